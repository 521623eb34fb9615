//! A softswitch returns after the branch was on its own: phones come back at the configured
//! rate, and the next call goes up at once.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use keepline_tests::lab::agent::Agent;
use keepline_tests::lab::branch::{Branch, GATEWAY_LAN, SOFTSWITCHES};
use keepline_tests::lab::crowd::{Crowd, Tally};
use keepline_tests::lab::gateway;
use keepline_tests::lab::office::{LIMIT, Office, Opening};
use keepline_tests::lab::sip::Message;
use keepline_tests::lab::talk::Talk;
use keepline_tests::lab::{Capture, Frame, wait};

const PHONES: u16 = 500;
/// `survivability.recovery_register_rate`, its default.
const RATE: usize = 50;
/// How many phones refresh a second, once nobody is away: more than may go up.
const OFFERED: u32 = 125;
/// From a server's first answer to a call through it.
const BACK: Duration = Duration::from_secs(10);
const PACE: Duration = Duration::from_millis(20);

fn office() -> Result<Office> {
    Office::open(&Opening::without_phones())
}

fn cut_off(office: &Office) -> Result<()> {
    for softswitch in &office.branch.softswitches {
        softswitch.blackhole("eth0")?;
    }
    office.wait_group("survivability").map(drop)
}

/// What both servers receive and send.
fn at_servers(office: &Office) -> Result<[Capture; 2]> {
    let [one, two] = &office.branch.softswitches;
    let capture = |node| Capture::start(node, "eth0", "udp port 5060 and host 10.99.2.1");
    Ok([capture(one)?, capture(two)?])
}

fn frames(captures: &[Capture; 2], skip: [usize; 2]) -> Result<Vec<Frame>> {
    let mut all = Vec::new();
    for (capture, skip) in captures.iter().zip(skip) {
        all.append(&mut capture.frames()?.split_off(skip));
    }
    all.sort_by_key(|frame| frame.at);
    Ok(all)
}

/// When each request of this method came, and its first Contact.
fn requests(frames: &[Frame], method: &str) -> Vec<(Duration, String)> {
    let of = |frame: &Frame| {
        let (_, to, payload) = frame.udp()?;
        let message = Message::received(String::from_utf8_lossy(payload).into_owned());
        let ours = to == 5060 && message.method() == Some(method);
        let contact = message.header("Contact").unwrap_or_default().to_owned();
        ours.then_some((frame.at, contact))
    };
    frames.iter().filter_map(of).collect()
}

fn all_well(tally: &Tally) -> Result<()> {
    let well = tally.finals.keys().eq([&200]) && tally.unanswered == 0;
    ensure!(well, "refused or dropped: {tally:?}");
    Ok(())
}

fn upstream(office: &Office) -> Result<usize> {
    let answer = office.ask(&["registrations"])?;
    let rows = gateway::list(&answer, "registrations").iter();
    Ok(rows.filter(|row| row["state"] == "upstream").count())
}

/// The most that came within any second.
fn densest(times: &[Duration]) -> usize {
    let within = |start: &Duration| {
        let end = *start + Duration::from_secs(1);
        times
            .iter()
            .filter(|at| (*start..end).contains(*at))
            .count()
    };
    times.iter().map(within).max().unwrap_or(0)
}

#[test]
fn em17_five_hundred_phones_return_at_fifty_a_second_and_none_is_refused() -> Result<()> {
    let office = office()?;
    let mut crowd = Crowd::new(&office.branch, PHONES, GATEWAY_LAN)?;
    all_well(&crowd.register(OFFERED)?)?;
    let count = usize::from(PHONES);
    ensure!(upstream(&office)? == count, "not all are registered");
    cut_off(&office)?;
    all_well(&crowd.register(OFFERED)?)?;
    ensure!(
        upstream(&office)? == 0,
        "the gateway vouches for all of them"
    );

    let captures = at_servers(&office)?;
    for softswitch in &office.branch.softswitches {
        softswitch.end_blackhole()?;
    }
    office.wait_group("serving")?;
    let skip = [captures[0].read(), captures[1].read()];
    let start = Instant::now();
    let (mut rounds, mut answered) = (0, 0);
    // A phone is back when a softswitch has heard it: its registration there has not expired.
    let returned = || -> Result<BTreeSet<String>> {
        let came = requests(&frames(&captures, skip)?, "REGISTER");
        Ok(came.into_iter().map(|(_, contact)| contact).collect())
    };
    while returned()?.len() < count {
        ensure!(start.elapsed() < Duration::from_secs(40), "not all return");
        let tally = crowd.register(OFFERED)?;
        all_well(&tally)?;
        answered += tally.finals.values().sum::<usize>();
        rounds += 1;
    }
    let came = requests(&frames(&captures, skip)?, "REGISTER");
    let times: Vec<_> = came.iter().map(|(at, _)| *at).collect();
    let phones: BTreeSet<_> = came.iter().map(|(_, contact)| contact).collect();
    ensure!(phones.len() == count, "{} of {count} came", phones.len());
    let span = times[times.len() - 1] - times[0];
    // The bucket holds one second's worth; a request that is repeated counts as it comes.
    let most = RATE * (usize::try_from(span.as_secs())? + 2);
    ensure!(times.len() <= most, "{} in {span:?}", times.len());
    let densest = densest(&times);
    ensure!(densest <= 2 * RATE + 5, "{densest} within a second");
    println!(
        "{} REGISTERs of {count} phones at the softswitches in {:.1} s: {:.1}/s, at most \
         {densest} within a second; phones had {answered} answers in {rounds} rounds, all 200",
        times.len(),
        span.as_secs_f64(),
        times.len() as f64 / span.as_secs_f64(),
    );
    Ok(())
}

/// When a server first answered after the return.
fn first_answer(captures: &[Capture; 2], skip: [usize; 2]) -> Result<Duration> {
    let answer = |frame: &Frame| {
        let payload = frame.udp().map(|(from, _, payload)| (from, payload));
        payload.is_some_and(|(from, bytes)| from == 5060 && bytes.starts_with(b"SIP/2.0 200"))
    };
    let found = frames(captures, skip)?.into_iter().find(answer);
    Ok(found.context("no server answered")?.at)
}

#[test]
fn em17_the_next_call_goes_up_within_ten_seconds_and_the_local_one_ends_in_order() -> Result<()> {
    let office = office()?;
    let branch = &office.branch;
    let phone = |user, at| Agent::new(&branch.phones, user, &Branch::phone(at), GATEWAY_LAN);
    let (a, b, c) = (phone("250", 10)?, phone("251", 11)?, phone("252", 12)?);
    let far = Agent::new(&branch.far, "750", &Branch::far_phone(10), SOFTSWITCHES[1])?;
    for agent in [&a, &b, &c, &far] {
        agent.register(3600)?.is(200)?;
    }
    cut_off(&office)?;
    let local = Talk::begin((&branch.phones, &a), (&branch.phones, &b), PACE, "")?;
    local.hear(20)?;
    let captures = at_servers(&office)?;
    for softswitch in &branch.softswitches {
        softswitch.end_blackhole()?;
    }
    let skip = [captures[0].read(), captures[1].read()];
    // A phone that dials on and on gets through as soon as it can.
    let start = Instant::now();
    let (mut call, _) = loop {
        match c.call("750", "", LIMIT) {
            Ok(call) => break call,
            Err(error) => ensure!(start.elapsed() < Duration::from_secs(60), "{error:#}"),
        }
        // As long as nobody is there, a call across the WAN is refused at once.
        std::thread::sleep(Duration::from_millis(100));
    };
    far.taken(&call.call_id)?;
    let acknowledged = wait::until("the call goes up", LIMIT, || {
        let acks = requests(&frames(&captures, skip).ok()?, "ACK");
        acks.first().map(|(at, _)| *at)
    })?;
    let took = acknowledged - first_answer(&captures, skip)?;
    println!(
        "through a softswitch {} ms after its first answer",
        took.as_millis()
    );
    ensure!(took <= BACK, "{} ms", took.as_millis());
    local.hear(20)?;
    let id = local.dialog.call_id.clone();
    let (packets, _) = local.end(&a)?;
    ensure!(packets > 40, "{packets} packets");
    let (ended, _) = b.ended();
    ensure!(
        ended.contains(&id),
        "the local call's BYE did not arrive: {ended:?}"
    );
    c.bye(&mut call)?.is(200)?;
    Ok(())
}
