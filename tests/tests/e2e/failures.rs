//! What may go wrong under the daemon, one by one, with a call up: the outcomes that
//! docs/operations.md promises.

use std::fs;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use keepline_tests::lab::agent::Agent;
use keepline_tests::lab::branch::{Branch, GATEWAY_LAN, SOFTSWITCHES};
use keepline_tests::lab::call::whole;
use keepline_tests::lab::gateway::{self, Gateway};
use keepline_tests::lab::office::{LIMIT, Office, Opening};
use keepline_tests::lab::talk::Talk;
use keepline_tests::lab::{Launch, wait};
use rustix::process::Signal;

const PACE: Duration = Duration::from_millis(20);
const EXPIRES: u32 = 3600;
const STATE: &str = "/run/gw/state";
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
/// What the kernel may drop of 50 packets a second, both ways, while programs are taken off and
/// put back.
const TAKEN_OFF: u64 = 20;

/// A call that is up across the gateway.
struct Scene {
    talk: Talk,
    phone: Agent,
    far: Agent,
    office: Office,
}

impl Scene {
    fn open() -> Result<Self> {
        Self::open_with(|_| Ok(()))
    }

    /// `prepare` is called before anything registers, with a gateway that may be replaced.
    fn open_with(prepare: impl FnOnce(&mut Office) -> Result<()>) -> Result<Self> {
        let mut office = Office::open(&Opening::without_phones())?;
        prepare(&mut office)?;
        let branch = &office.branch;
        let phone = Agent::new(&branch.phones, "250", &Branch::phone(10), GATEWAY_LAN)?;
        let far = Agent::new(&branch.far, "750", &Branch::far_phone(10), SOFTSWITCHES[1])?;
        phone.register(EXPIRES)?.is(200)?;
        far.register(EXPIRES)?.is(200)?;
        let talk = Talk::begin((&branch.phones, &phone), (&branch.far, &far), PACE, "")?;
        talk.hear(20)?;
        Ok(Self {
            talk,
            phone,
            far,
            office,
        })
    }

    fn state(&self) -> PathBuf {
        self.office.branch.cell().outside(STATE)
    }

    fn start(&mut self, program: Launch) -> Result<()> {
        self.office.gateway = Gateway::start_as(&self.office.branch, &gateway::config(), program)?;
        Ok(())
    }

    fn start_again(&mut self) -> Result<()> {
        self.start(Launch::new(gateway::built("keepline")?))
    }

    /// The call is known, takes a re-INVITE of either side, lost nothing, and ends in order.
    fn goes_on_and_ends(mut self) -> Result<u64> {
        self.talk.hear(20)?;
        let active = self.office.ask(&["status"])?["calls"]["active"].as_u64();
        ensure!(active == Some(1), "{active:?} calls");
        let mut theirs = self.far.taken(&self.talk.dialog.call_id)?;
        self.phone
            .reinvite(&mut self.talk.dialog, 6000, "")?
            .is(200)?;
        self.far.reinvite(&mut theirs, 6000, "")?.is(200)?;
        self.talk.hear(20)?;
        let Self { talk, phone, .. } = &mut self;
        let packets = whole(talk.silence())?;
        phone.bye(&mut talk.dialog)?.is(200)?;
        Ok(packets)
    }

    /// Waits for an event of this kind that leads to this state.
    fn wait_event(&self, kind: &str, to: &str) -> Result<()> {
        let what = format!("the event {kind}: {to}");
        wait::until(&what, LIMIT, || {
            let events = self.office.events().ok()?;
            let found = |event: &&serde_json::Value| event["kind"] == kind && event["to"] == to;
            events.iter().find(found).map(drop)
        })
        .with_context(|| format!("{:?}", self.office.events()))
    }

    fn unhealthy(&self, why: &str) -> Result<()> {
        let (code, text) = gateway::check(&self.office.branch)?;
        ensure!(code == Some(3) && text.contains(why), "{code:?}: {text}");
        Ok(())
    }
}

#[test]
fn kl5_sigterm_ends_in_order_and_media_goes_on() -> Result<()> {
    let mut scene = Scene::open()?;
    scene.office.gateway.process().signal(Signal::TERM)?;
    let status = scene.office.gateway.process().wait(LIMIT)?;
    ensure!(status.code() == Some(0), "{status}");
    let journals = fs::read_dir(scene.state())?.filter_map(|entry| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        name.starts_with("journal-").then_some(name)
    });
    let left: Vec<_> = journals.collect();
    ensure!(left.len() <= 1, "the journal was not moved: {left:?}");
    scene.talk.hear(25)?;
    scene.start_again()?;
    scene.goes_on_and_ends().map(drop)
}

#[test]
fn kl5_a_panic_in_a_worker_is_as_a_kill_and_says_where() -> Result<()> {
    let mut scene = Scene::open_with(|office| {
        office.gateway.process().kill();
        let program = Launch::new(gateway::built("panicking")?);
        office.gateway = Gateway::start_as(&office.branch, &gateway::config(), program)?;
        Ok(())
    })?;
    scene.office.gateway.process().signal(Signal::USR1)?;
    let status = scene.office.gateway.process().wait(LIMIT)?;
    ensure!(status.signal() == Some(Signal::ABORT.as_raw()), "{status}");
    let said = scene.office.gateway.process().all_text();
    ensure!(
        said.contains("a worker's bug") && said.contains("panicking.rs"),
        "{said}"
    );
    scene.talk.hear(25)?;
    scene.start_again()?;
    scene.goes_on_and_ends().map(drop)
}

/// The store gets a small disk of its own.
fn small_disk(office: &mut Office) -> Result<()> {
    office.gateway.process().kill();
    let cell = office.branch.cell();
    let script = format!("rm -rf {STATE}; mkdir {STATE}; mount -t tmpfs -o size=8m tmpfs {STATE}");
    cell.mounts_of(cell.first_process(), &script)?;
    office.gateway = Gateway::start(&office.branch, &gateway::config())?;
    Ok(())
}

#[test]
fn kl5_a_full_disk_stops_no_call_and_all_is_written_when_there_is_room() -> Result<()> {
    let mut scene = Scene::open_with(small_disk)?;
    let filler = scene.state().join("filler");
    let mut file = fs::File::create(&filler)?;
    while file.write_all(&[1; 4096]).is_ok() {}
    drop(file);
    // Changes to lose: registrations, and a call that begins only now.
    let branch = &scene.office.branch;
    let late = Agent::new(&branch.phones, "251", &Branch::phone(11), GATEWAY_LAN)?;
    let other = Agent::new(&branch.far, "751", &Branch::far_phone(11), SOFTSWITCHES[1])?;
    other.register(EXPIRES)?.is(200)?;
    wait::until("the store fails", LIMIT, || {
        late.register(EXPIRES).ok()?.is(200).ok()?;
        let status = scene.office.ask(&["status"]).ok()?;
        (status["store"]["lost"].as_u64()? > 0).then_some(())
    })?;
    let mut second = Talk::begin((&branch.phones, &late), (&branch.far, &other), PACE, "")?;
    second.hear(20)?;
    scene.wait_event("store", "failing")?;
    scene.unhealthy("the store takes no changes")?;

    fs::remove_file(filler)?;
    scene.wait_event("store", "well")?;
    scene.office.gateway.process().kill();
    second.hear(20)?;
    scene.start_again()?;
    second.hear(20)?;
    late.reinvite(&mut second.dialog, 6000, "")?.is(200)?;
    second.end(&late).context("the call of the full disk")?;
    scene.goes_on_and_ends().map(drop)
}

#[test]
fn kl5_a_read_only_store_is_read_and_the_gateway_serves() -> Result<()> {
    let mut scene = Scene::open_with(small_disk)?;
    scene.office.gateway.process().kill();
    let cell = scene.office.branch.cell();
    cell.mounts_of(
        cell.first_process(),
        &format!("mount -o remount,ro {STATE}"),
    )?;
    scene.talk.hear(20)?;
    scene.start_again()?;
    scene.wait_event("store", "failing")?;
    scene.unhealthy("the store takes no changes")?;
    let rows = scene.office.ask(&["registrations"])?;
    ensure!(gateway::list(&rows, "registrations").len() == 1, "{rows}");
    scene.phone.register(EXPIRES)?.is(200)?;
    scene.goes_on_and_ends().map(drop)
}

#[test]
fn kl5_a_bpffs_that_vanishes_costs_the_fast_path_until_it_is_back_and_no_call() -> Result<()> {
    let mut scene = Scene::open()?;
    let daemon = scene.office.gateway.process().id();
    let cell = scene.office.branch.cell();
    cell.mounts_of(daemon, "umount -l /sys/fs/bpf")?;
    // No other mount may keep what is pinned alive: the file system is gone with its contents.
    fs::remove_dir_all(cell.outside("/sys/fs/bpf/keepline"))?;
    scene.wait_event("fastpath", "failing")?;
    scene.unhealthy("no fast path on lan0")?;
    scene.talk.hear(100).context("by the slow path")?;
    let said = scene.office.gateway.process().text();
    let times = said.matches("is not on a bpf file system").count();
    ensure!(times <= 1, "said {times} times:\n{said}");

    cell.mounts_of(daemon, "mount --bind /run/bpf /sys/fs/bpf")?;
    scene.wait_event("fastpath", "well")?;
    let (code, text) = gateway::check(&scene.office.branch)?;
    ensure!(code == Some(0), "{text}");
    let forwarded = |scene: &Scene| -> Result<u64> {
        let status = scene.office.ask(&["status"])?;
        let count = status["fastpath"]["reasons"]["flow_forwarded"].as_u64();
        count.context("no counter")
    };
    let before = forwarded(&scene)?;
    scene.talk.hear(50)?;
    let after = forwarded(&scene)?;
    ensure!(after >= before + 90, "{before} and then {after} in XDP");

    // Everything is pinned again: a kill costs nothing.
    let (near, away) = scene.talk.count();
    let lost = near.lost + away.lost;
    println!("{lost} RTP packets lost while programs were taken off and put back");
    ensure!(lost <= TAKEN_OFF, "{near:?} {away:?}");
    scene.office.gateway.process().kill();
    scene.talk.hear(25)?;
    scene.start_again()?;
    scene.talk.hear(25)?;
    let (near, away) = scene.talk.silence();
    ensure!(near.lost + away.lost == lost, "{near:?} {away:?}");
    scene.phone.bye(&mut scene.talk.dialog)?.is(200)?;

    scene.office.gateway.process().kill();
    let elsewhere = format!(
        "{}\n[fastpath]\npin = \"/run/gw/pins\"\n",
        gateway::config()
    );
    match Gateway::start(&scene.office.branch, &elsewhere) {
        Ok(_) => bail!("it started without a bpf file system"),
        Err(error) => {
            let text = format!("{error:#}");
            ensure!(
                text.contains("bpf file system") && text.contains("mount -t bpf"),
                "{text}"
            );
        }
    }
    Ok(())
}

/// A store that cannot be used: calls are not known again, and their media goes on.
fn set_aside(spoil: impl Fn(&[u8]) -> Vec<u8>) -> Result<()> {
    let mut scene = Scene::open()?;
    scene.office.gateway.process().signal(Signal::TERM)?;
    scene.office.gateway.process().wait(LIMIT)?;
    let database = scene.state().join("state.redb");
    fs::write(&database, spoil(&fs::read(&database)?))?;
    scene.start_again()?;
    let said = scene.office.gateway.process().text();
    let times = said.matches("state.redb cannot be used").count();
    ensure!(times == 1, "said {times} times:\n{said}");
    ensure!(
        scene.state().join("state.redb.damaged-1").exists(),
        "not kept"
    );
    let status = scene.office.ask(&["status"])?;
    ensure!(status["calls"]["active"] == 0 && status["registrations"]["active"] == 0);
    let flows = status["fastpath"]["flows"].as_u64();
    ensure!(flows >= Some(2), "{flows:?} flows: the call's are not kept");
    scene.talk.hear(50)?;
    let (near, away) = scene.talk.count();
    ensure!(near.lost + away.lost == 0, "{near:?} {away:?}");
    // The phone is back with its next refresh, and can call.
    scene.phone.register(EXPIRES)?.is(200)?;
    scene.talk.silence();
    let (mut next, _) = scene.phone.call(scene.far.user(), "", LIMIT)?;
    scene.phone.bye(&mut next)?.is(200)?;
    Ok(())
}

#[test]
fn kl5_a_corrupt_store_is_set_aside_and_media_goes_on() -> Result<()> {
    set_aside(|bytes| {
        let mut bytes = bytes.to_vec();
        for at in (4096..bytes.len()).step_by(61) {
            bytes[at] ^= 0x55;
        }
        bytes
    })
}

#[test]
fn kl5_a_foreign_store_is_set_aside_and_media_goes_on() -> Result<()> {
    set_aside(|_| [b"SQLite format 3\0".as_slice(), &[0; 8192]].concat())
}

/// The machine comes up with another time of day.
fn clock_jumps(offset: &str, listed: usize) -> Result<()> {
    let mut scene = Scene::open()?;
    scene.office.gateway.process().kill();
    let program = Launch::new(gateway::built("keepline")?)
        .env("LD_PRELOAD", FAKETIME)
        .env("FAKETIME", offset)
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("NO_FAKE_STAT", "1");
    scene.start(program)?;
    let events = scene.office.events()?;
    let at = events.first().and_then(|event| event["at"].as_str());
    println!("{offset}: the daemon's first event is of {at:?}");
    let rows = scene.office.ask(&["registrations"])?;
    let rows = gateway::list(&rows, "registrations");
    ensure!(rows.len() == listed, "{rows:?}");
    for row in rows {
        let left = row["expires_s"].as_u64().context("no expiry")?;
        // The longest expiry that a phone is told, with its jitter.
        ensure!(left <= 66, "{row}");
    }
    scene.phone.register(EXPIRES)?.is(200)?;
    scene.talk.hear(25)?;
    scene.goes_on_and_ends().map(drop)
}

#[test]
fn kl5_a_clock_that_went_ahead_at_boot_ends_no_call() -> Result<()> {
    clock_jumps("+2d", 0)
}

#[test]
fn kl5_a_clock_that_went_back_at_boot_prolongs_nothing() -> Result<()> {
    clock_jumps("-2d", 1)
}
