//! `kill -9` at random moments, in the middle of call set-ups, re-INVITEs and BYEs, under RTP at
//! 1,000 packets a second each way.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::lab::agent::Agent;
use crate::lab::branch::{Branch, GATEWAY_LAN, SOFTSWITCHES};
use crate::lab::dialog::{Dialog, aor};
use crate::lab::gateway::{self, Gateway};
use crate::lab::office::{Office, Opening};
use crate::lab::rtp::Count;
use crate::lab::talk::Talk;
use crate::lab::wait;

/// 1,000 packets a second.
const PACE: Duration = Duration::from_millis(1);
/// Packets that each end must hear between a restart and the next kill.
const BETWEEN: u64 = 300;
/// The gateway is killed within this much of a round, and dead for as much.
const ROUND_MS: u64 = 600;
const DEAD_MS: u64 = 700;
/// A caller that has no answer gives up: its call only rang when the gateway died.
const PATIENCE: Duration = Duration::from_secs(2);
const EXPIRES: u32 = 3600;
/// What a clock that is read twice, and whole seconds, may differ by.
const SLACK_S: u64 = 2;

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Seed of the moments.
    pub seed: u64,
    /// How often the gateway was killed.
    pub kills: u32,
    /// RTP packets that were received, of as many that were sent.
    pub packets: u64,
    /// Of those, the ones that came after a later one: two cores under load reorder by themselves.
    pub reordered: u64,
    /// Calls that were answered around the kills; all of them were re-INVITEd and hung up.
    pub answered: usize,
    /// Calls that had no answer when the gateway died.
    pub rang: usize,
    /// Requests that were under way while nobody ran, and were answered after the restart.
    pub bridged: usize,
    /// The longest time between a kill and the daemon's next answer.
    pub longest_gap: Duration,
}

struct Scene {
    office: Office,
    agents: [Agent; 4],
    /// Drives all moments: xorshift.
    dice: u64,
    /// Calls whose caller heard the 200.
    answered: HashSet<String>,
    outcome: Outcome,
}

/// Kills the gateway `kills` times. Everything that must hold is asserted.
///
/// # Errors
/// With what did not hold, and the seed.
pub fn play(seed: u64, kills: u32) -> Result<Outcome> {
    println!("seed {seed}");
    let played = Scene::open(seed).and_then(|scene| scene.play(kills));
    played.with_context(|| format!("with seed {seed}"))
}

impl Scene {
    fn open(seed: u64) -> Result<Self> {
        let office = Office::open(&Opening::without_phones())?;
        let branch = &office.branch;
        let lan = |user, at| Agent::new(&branch.phones, user, &Branch::phone(at), GATEWAY_LAN);
        let far = |user, at| Agent::new(&branch.far, user, &Branch::far_phone(at), SOFTSWITCHES[1]);
        let agents = [
            lan("250", 10)?,
            far("750", 10)?,
            lan("251", 11)?,
            far("751", 11)?,
        ];
        for agent in &agents {
            agent.register(EXPIRES)?.is(200)?;
        }
        Ok(Self {
            office,
            agents,
            dice: seed | 1,
            answered: HashSet::new(),
            outcome: Outcome {
                seed,
                ..Outcome::default()
            },
        })
    }

    fn play(mut self, kills: u32) -> Result<Outcome> {
        let [a, b, ..] = &self.agents;
        let branch = &self.office.branch;
        let mut talk = Talk::begin((&branch.phones, a), (&branch.far, b), PACE, "")?;
        for round in 0..kills {
            talk.hear(BETWEEN)?;
            self.round().with_context(|| format!("in round {round}"))?;
            let (near, away) = talk.count();
            ensure!(
                near.lost + away.lost == 0,
                "round {round}: {near:?} {away:?}"
            );
            // The call that talks all along: now one of its ends asks, now the other.
            talk.dialog = self.still_there(talk.dialog, round)?;
        }
        talk.hear(BETWEEN)?;
        self.count(talk.silence())?;
        self.agents[0].bye(&mut talk.dialog)?.is(200)?;
        wait::until("no call is left", Duration::from_secs(5), || {
            (self.calls().ok()? == 0).then_some(())
        })?;
        for agent in &self.agents {
            let (_, given_up) = agent.ended();
            let lost: Vec<_> = given_up
                .iter()
                .filter(|id| self.answered.contains(*id))
                .collect();
            ensure!(lost.is_empty(), "{}: no ACK for {lost:?}", agent.user());
        }
        Ok(self.outcome)
    }

    /// Every packet came once.
    fn count(&mut self, (near, away): (Count, Count)) -> Result<()> {
        let all = near.received == away.sent && away.received == near.sent;
        ensure!(all && near.lost + away.lost == 0, "{near:?} {away:?}");
        self.outcome.packets = near.received + away.received;
        self.outcome.reordered = near.strange + away.strange;
        Ok(())
    }

    /// One kill in the middle of work, and what must hold after the restart.
    fn round(&mut self) -> Result<()> {
        let before = self.registrations()?;
        let (moment, dead) = (self.roll(ROUND_MS), self.roll(DEAD_MS));
        let start = Instant::now();
        let Office {
            gateway, branch, ..
        } = &mut self.office;
        let killed = AtomicBool::new(false);
        let pid = Pid::from_raw(i32::try_from(gateway.process().id())?).context("no pid")?;
        let (caller, callee) = (&self.agents[2], &self.agents[3]);
        let (work, gap) = thread::scope(|scope| {
            let killer = scope.spawn(|| -> Result<Duration> {
                thread::sleep(Duration::from_millis(moment));
                kill_process(pid, Signal::KILL)?;
                killed.store(true, Ordering::Relaxed);
                let gone = Instant::now();
                gateway.process().kill();
                thread::sleep(Duration::from_millis(dead));
                *gateway = Gateway::start(branch, &gateway::config())?;
                Ok(gone.elapsed())
            });
            let work = call_until(caller, callee, &killed);
            let gap = killer.join();
            (
                work,
                gap.unwrap_or_else(|_| Err(anyhow::anyhow!("the killer panicked"))),
            )
        });
        let (gap, work) = (gap?, work?);
        self.outcome.kills += 1;
        self.outcome.longest_gap = self.outcome.longest_gap.max(gap);
        self.outcome.answered += work.answered.len();
        self.answered.extend(work.answered);
        self.outcome.rang += work.rang;
        self.outcome.bridged += work.bridged;
        self.expiry_is_right(&before, start.elapsed())?;
        for (number, dialog) in work.up.into_iter().enumerate() {
            self.goes_on(dialog, number)?;
        }
        Ok(())
    }

    /// An answered call takes a re-INVITE of either side after the restart, and ends in order.
    fn goes_on(&self, mut dialog: Dialog, number: usize) -> Result<()> {
        let (caller, callee) = (&self.agents[2], &self.agents[3]);
        let mut theirs = callee.taken(&dialog.call_id)?;
        caller.reinvite(&mut dialog, 6000, "")?.is(200)?;
        callee.reinvite(&mut theirs, 6000, "")?.is(200)?;
        if number.is_multiple_of(2) {
            caller.bye(&mut dialog)?.is(200)?;
        } else {
            callee.bye(&mut theirs)?.is(200)?;
        }
        Ok(())
    }

    /// The call with media is re-INVITEd too: with the same media, so that none may be lost.
    fn still_there(&self, mut dialog: Dialog, round: u32) -> Result<Dialog> {
        let asked = if round.is_multiple_of(2) {
            self.agents[0].reinvite(&mut dialog, 6000, "")?
        } else {
            let mut theirs = self.agents[1].taken(&dialog.call_id)?;
            // Its own count of requests starts anew each time: a high one is as good.
            theirs.cseq = round * 2;
            self.agents[1].reinvite(&mut theirs, 6000, "")?
        };
        asked.is(200)?;
        Ok(dialog)
    }

    /// Every phone of the branch is listed once, with what is left of its time.
    fn expiry_is_right(&self, before: &BTreeMap<String, u64>, took: Duration) -> Result<()> {
        let after = self.registrations()?;
        let names: Vec<_> = after.keys().cloned().collect();
        ensure!(
            names == [aor("250"), aor("251")],
            "{names:?} are registered"
        );
        for (aor, left) in &after {
            let had = before.get(aor).copied().unwrap_or_default();
            let least = had.saturating_sub(took.as_secs() + SLACK_S);
            ensure!(
                (least..=had).contains(left),
                "{aor}: {had} s before, {left} s after {} ms",
                took.as_millis()
            );
        }
        Ok(())
    }

    fn registrations(&self) -> Result<BTreeMap<String, u64>> {
        let answer = self.office.ask(&["registrations"])?;
        let rows = gateway::list(&answer, "registrations").iter();
        rows.map(|row| {
            let aor = row["aor"].as_str().context("no aor")?.to_owned();
            Ok((aor, row["expires_s"].as_u64().context("no expiry")?))
        })
        .collect()
    }

    fn calls(&self) -> Result<usize> {
        let answer = self.office.ask(&["calls"])?;
        Ok(gateway::list(&answer, "calls").len())
    }

    fn roll(&mut self, below: u64) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        (self.dice >> 16) % below
    }
}

/// What was done until the gateway died.
#[derive(Default)]
struct Work {
    /// Calls that are up.
    up: Vec<Dialog>,
    /// All whose caller heard the 200.
    answered: Vec<String>,
    rang: usize,
    bridged: usize,
}

/// Calls, re-INVITEs and BYEs, one after the other, until the gateway was killed in the midst
/// of one.
fn call_until(caller: &Agent, callee: &Agent, killed: &AtomicBool) -> Result<Work> {
    let mut work = Work::default();
    while !killed.load(Ordering::Relaxed) {
        match caller.call(callee.user(), "", PATIENCE) {
            Ok((dialog, answer)) => {
                work.bridged += usize::from(answer.sent > 1);
                work.answered.push(dialog.call_id.clone());
                work.up.push(dialog);
            }
            // Nobody answered it: such a call is dialled again, not restored.
            Err(_) if killed.load(Ordering::Relaxed) => work.rang += 1,
            Err(error) => return Err(error),
        }
        if work.up.len() < 3 {
            continue;
        }
        let mut oldest = work.up.remove(0);
        let asked = caller.reinvite(&mut oldest, 6000, "")?.is(200)?;
        work.bridged += usize::from(asked.sent > 1);
        let ended = caller.bye(&mut oldest)?.is(200)?;
        work.bridged += usize::from(ended.sent > 1);
    }
    Ok(work)
}
