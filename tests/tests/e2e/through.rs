//! Transparent mode without hiding: SIP between a phone and its softswitch goes through as it is,
//! in XDP, and is taken over when the softswitch is silent (EM20, KL2).

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use keepline_tests::lab::branch::{GATEWAY_LAN, SOFTSWITCHES};
use keepline_tests::lab::call::{Call, Seat, whole};
use keepline_tests::lab::death::Death;
use keepline_tests::lab::office::{LIMIT, Office, Opening};
use keepline_tests::lab::phone::Phone;
use keepline_tests::lab::sip::{Message, SetUp};
use keepline_tests::lab::{Capture, Frame, wait};

const TALK: Duration = Duration::from_secs(1);
const RING: Duration = Duration::from_millis(100);

/// An office whose phones are registered, the gateway being their router: it forwards media.
fn office(digest: bool) -> Result<Office> {
    let office = Office::open(&Opening {
        digest,
        lan: 2,
        far: 2,
        ..Opening::through()
    })?;
    office.branch.routes_both_ways()?;
    office.register()?;
    office.registered_upstream()?;
    let routed = || (through(&office, "routed").ok()? == 2).then_some(());
    wait::until("both phones are routed", LIMIT, routed)?;
    Ok(office)
}

/// A number of the gateway's `through` in its status.
fn through(office: &Office, what: &str) -> Result<u64> {
    let status = office.ask(&["status"])?;
    let number = status["through"][what].as_u64();
    number.with_context(|| format!("no {what} in {status}"))
}

fn reason(office: &Office, name: &str) -> Result<u64> {
    let status = office.ask(&["status"])?;
    let number = status["fastpath"]["reasons"][name].as_u64();
    number.with_context(|| format!("no {name} in {status}"))
}

/// The SIP that a phone sent and received, in the order that it had there.
fn said(frames: &[Frame], phone: &str, sent: bool) -> Vec<String> {
    let all = Message::of(frames, phone);
    let of = all.into_iter().filter(|message| message.sent == sent);
    of.map(|message| message.text).collect()
}

/// What the softswitch holds of a user: his Contacts.
fn contacts(office: &Office, user: &str) -> Result<Vec<String>> {
    let words = ["ul.lookup", "location", &format!("s:{user}")];
    let text = office.primary.rpc(&office.branch, &words)?;
    let of = |line: &str| Some(line.trim().strip_prefix("Address:")?.trim().to_owned());
    Ok(text.lines().filter_map(of).collect())
}

fn one_contact_each(office: &Office) -> Result<()> {
    for phone in &office.lan {
        let held = contacts(office, &phone.user)?;
        let own = format!("sip:{}@{}:5060", phone.user, phone.address);
        ensure!(held == [own.clone()], "{held:?} instead of {own}");
    }
    Ok(())
}

#[test]
fn em20_em25_sip_goes_through_byte_for_byte_in_xdp_and_the_softswitch_has_one_contact() -> Result<()>
{
    let office = office(true)?;
    one_contact_each(&office)?;
    let passed = through(&office, "passed")?;
    ensure!(passed >= 4, "the first REGISTERs come to us: {passed}");
    let routed = reason(&office, "flow_routed")?;
    let near = Capture::start(&office.branch.phones, "eth0", "udp port 5060")?;
    let away = Capture::start(&office.branch.softswitches[0], "eth0", "udp port 5060")?;
    office.register()?;
    let (phones, far) = (&office.branch.phones, &office.branch.far);
    let caller = Phone {
        proxy: SOFTSWITCHES[0].to_owned(),
        ..office.far[1].clone()
    };
    for (from, to) in [
        ((phones, &office.lan[0]), (far, &office.far[0])),
        ((far, &caller), (phones, &office.lan[1])),
    ] {
        talk(from, to)?;
    }
    one_contact_each(&office)?;
    // Nothing of all this came to the daemon's sockets, and all of it was seen.
    ensure!(through(&office, "passed")? == passed);
    ensure!(through(&office, "copies_lost")? == 0);
    let (near, away) = (near.stop()?, away.stop()?);
    let mut compared = 0;
    for phone in &office.lan {
        for sent in [true, false] {
            let here = said(&near, &phone.address, sent);
            ensure!(here == said(&away, &phone.address, sent), "{here:#?}");
            compared += here.len() as u64;
        }
    }
    let routed = reason(&office, "flow_routed")? - routed;
    println!("{compared} messages of phones byte for byte, {routed} forwarded in XDP");
    ensure!(
        compared >= 20 && routed == compared,
        "{routed} of {compared}"
    );
    ensure!(through(&office, "copies")? > 0);
    // A call by way of a server that the phone does not address: its answers are sent on.
    talk((far, &office.far[1]), (phones, &office.lan[1]))?;
    ensure!(through(&office, "passed")? > passed);
    Ok(())
}

/// A softswitch's answer that the kernel routes, since nobody knows yet where the phone is.
#[test]
fn em20_kl2_a_registration_is_learned_whoever_brings_the_answer_to_the_phone() -> Result<()> {
    let office = Office::open(&Opening {
        digest: false,
        lan: 1,
        far: 0,
        ..Opening::through()
    })?;
    office.branch.routes_both_ways()?;
    // The phone knows the gateway, and does not say where it is itself.
    let phones = &office.branch.phones;
    let link = office.branch.gw.ip("link show lan0")?;
    let words: Vec<&str> = link.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "link/ether");
    let mac = at
        .and_then(|at| words.get(at + 1))
        .context("no MAC address")?;
    phones.ip(&format!(
        "neigh replace {GATEWAY_LAN} lladdr {mac} nud permanent dev eth0"
    ))?;
    phones.sysctl("net.ipv4.conf.eth0.arp_ignore", "8")?;
    office.branch.gw.ip("neigh flush dev lan0")?;
    let before = reason(&office, "hop_unresolved")?;
    let mut registering = office.lan[0].register(phones, 3600)?;
    let left = || (reason(&office, "hop_unresolved").ok()? > before).then_some(());
    wait::until("an answer is left to the kernel", LIMIT, left)?;
    phones.sysctl("net.ipv4.conf.eth0.arp_ignore", "0")?;
    registering.succeed(LIMIT)?;
    let known = || (office.registered_upstream().ok()? == 1).then_some(());
    wait::until("the phone is known", LIMIT, known)?;
    let routed = || (through(&office, "routed").ok()? == 1).then_some(());
    wait::until("the phone is routed", LIMIT, routed)?;
    ensure!(through(&office, "copies_lost")? == 0);
    Ok(())
}

fn talk(from: Seat<'_>, to: Seat<'_>) -> Result<()> {
    let mut call = Call::dial(from, to, TALK)?;
    call.talk()?;
    call.heard_for(TALK / 2)?;
    whole(call.silence())?;
    call.done()
}

/// The call that is placed as the primary dies is answered by way of the backup.
fn that_very_call_connects(death: Death) -> Result<()> {
    let mut office = office(false)?;
    let earlier = office.wire.frames()?.len();
    death.strike(&mut office)?;
    let (from, to) = (office.lan[0].clone(), office.far[0].clone());
    let mut callee = to.answer(&office.branch.far, RING)?;
    let mut caller = from.call(&office.branch.phones, &to.user, TALK / 2)?;
    caller.media(LIMIT)?;
    caller.done(LIMIT)?;
    callee.done(LIMIT)?;
    let frames = office.wire.frames()?;
    let setup = SetUp::of(&frames[earlier..], &from.address);
    let finals: Vec<u16> = setup.finals.iter().map(|(_, status)| *status).collect();
    ensure!(
        finals == [200] && setup.transactions.len() == 1,
        "{setup:?}"
    );
    let took = setup.answered_after(0).context("no answer captured")?;
    println!("answered after {} ms", took.as_millis());
    ensure!(
        took <= Duration::from_secs(2),
        "after {} ms",
        took.as_millis()
    );
    // All phones' talks are up by then, and the event tells why.
    ensure!(through(&office, "routed")? == 0);
    let suspected = office.events()?.iter().any(|event| {
        let of = |key: &str| event[key].as_str().unwrap_or_default();
        of("to") == "suspect" && of("rule") == "request_unanswered"
    });
    ensure!(suspected, "{:#?}", office.events()?);
    Ok(())
}

#[test]
fn em20_em4_kl2_that_very_call_connects_when_the_primary_is_killed() -> Result<()> {
    that_very_call_connects(Death::Killed)
}

#[test]
fn em20_em4_kl2_that_very_call_connects_when_the_primary_hangs() -> Result<()> {
    that_very_call_connects(Death::Stopped)
}

#[test]
fn em20_em4_kl2_that_very_call_connects_when_the_network_goes_silent() -> Result<()> {
    that_very_call_connects(Death::Blackhole)
}

#[test]
fn em20_em13_em17_phones_call_one_another_without_a_softswitch_and_go_home_when_it_is_back()
-> Result<()> {
    let office = office(false)?;
    for softswitch in &office.branch.softswitches {
        softswitch.blackhole("eth0")?;
    }
    let phones = &office.branch.phones;
    let (from, to) = (&office.lan[0], &office.lan[1]);
    talk((phones, from), (phones, to))?;
    office.wait_group("survivability")?;
    // Known phones are served, and stay so until a softswitch has accepted them again.
    for phone in &office.lan {
        ensure!(office.register_one(phone)? == [200]);
    }
    ensure!(through(&office, "routed")? == 0);
    for softswitch in &office.branch.softswitches {
        softswitch.end_blackhole()?;
    }
    office.wait_group("serving")?;
    office.wait_primary_up()?;
    // A REGISTER may be answered here until its turn has come, so each phone asks again; and a
    // phone is routed when nothing of it is with us any more, so each asks seldom.
    let home = || {
        for phone in &office.lan {
            office.register_one(phone).ok()?;
        }
        let routed = || (through(&office, "routed").ok()? == 2).then_some(());
        wait::until("nothing is left with us", Duration::from_secs(6), routed).ok()
    };
    wait::until(
        "both phones are routed again",
        Duration::from_secs(120),
        home,
    )?;
    one_contact_each(&office)
}

#[test]
fn em20_kl5_sip_goes_through_while_the_daemon_is_dead_and_after_its_return() -> Result<()> {
    let mut office = office(true)?;
    office.gateway.process().kill();
    let routed = || {
        for phone in &office.lan {
            ensure!(office.register_one(phone)? == [401, 200]);
        }
        Ok::<_, anyhow::Error>(())
    };
    routed()?;
    office.gateway.restart(&office.branch)?;
    ensure!(through(&office, "routed")? == 2);
    let routed = || {
        for phone in &office.lan {
            ensure!(office.register_one(phone)? == [401, 200]);
        }
        Ok::<_, anyhow::Error>(())
    };
    routed()?;
    ensure!(through(&office, "passed")? == 0);
    one_contact_each(&office)
}
