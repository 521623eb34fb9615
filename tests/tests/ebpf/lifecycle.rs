//! The programs' life on real interfaces: attached, restarted, replaced, severed, refused and
//! taken off, with media crossing them where a loss would show.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use keepline::fastpath::{self, Error, Fastpath, Mode};
use keepline_engine::{
    net::ListenerId,
    steer::{Delta, Gate, GateId},
    time::Mono,
};
use keepline_tests::{
    fixture::site::{LIMIT, Site, Steering, carries_a_program, index, link_line, program_on},
    lab::{Branch, Node, gateway, wait},
};

#[test]
fn kl5_case_x19_restarts_and_upgrades_lose_nothing_and_never_unset_the_link() -> Result<()> {
    let site = Site::raise()?;
    let (programs, maps) = site.start()?;
    let on: Vec<_> = programs.attached().iter().map(|on| on.mode).collect();
    ensure!(on == [Mode::Native, Mode::Native], "{on:?}");
    let mut running = Some((programs, site.steer(maps)?));
    let pins = site.link_pins()?;
    // Each start brings a program of its own, over the same maps.
    let mut seen = BTreeSet::from([program_on(&site.branch.gw, "lan0")?]);
    let mut starts = 0..20;
    let restart = || -> Result<(Fastpath, Steering)> {
        let gw = site.branch.gw.net();
        let (programs, maps) = gw.enter(|| Ok(Fastpath::start(&site.options)))??;
        ensure!(programs.rebuilt().is_none(), "{:?}", programs.rebuilt());
        Ok((programs, site.steer(maps)?))
    };
    let (sent, came) = site.under_traffic(|traffic| {
        starts.try_for_each(|_| {
            drop(running.take());
            traffic.pass(100)?; // dead for a while, as after a kill
            running = Some(restart()?);
            let program = program_on(&site.branch.gw, "lan0")?;
            ensure!(seen.insert(program), "{program:?} again");
            Ok(())
        })
    })?;
    eprintln!("20 restarts, each with another program: {sent} sent, {came} came");
    ensure!(sent > 1_000, "only {sent} packets were sent");
    ensure!(sent == came, "{sent} sent, {came} came");
    ensure!(site.link_pins()? == pins, "a link was made anew");
    site.one_generation()
}

#[test]
fn unload_leaves_nothing() -> Result<()> {
    let site = Site::raise()?;
    drop(site.start()?);
    ensure!(carries_a_program(&site.branch.gw, "lan0")?);
    let names = site
        .branch
        .gw
        .net()
        .enter(|| Ok(fastpath::unload(&site.options.pin)?))?;
    ensure!(names == ["lan0", "wan0"], "{names:?}");
    ensure!(!site.options.pin.exists());
    ensure!(!carries_a_program(&site.branch.gw, "lan0")?);
    ensure!(!carries_a_program(&site.branch.gw, "wan0")?);
    let again = fastpath::unload(&site.options.pin);
    ensure!(matches!(again, Err(Error::NotLoaded(_))), "{again:?}");
    Ok(())
}

#[test]
fn a_foreign_program_is_refused_by_name_and_number() -> Result<()> {
    let mut site = Site::raise()?;
    site.branch.gw.as_test_host("lan0")?;
    let error = site.refused()?;
    let Error::Foreign { interface, id, .. } = &error else {
        bail!("{error}");
    };
    let shown = site.branch.gw.ip("-d link show dev lan0")?;
    ensure!(
        interface == "lan0" && shown.contains(&format!("id {id} ")),
        "{error}: {shown}"
    );
    ensure!(error.remedy().is_some_and(|remedy| remedy.contains("lan0")));
    Ok(())
}

#[test]
fn no_bpf_file_system_costs_one_sentence() -> Result<()> {
    let mut site = Site::raise()?;
    site.options.pin = "/run/keepline-not-there".into();
    let error = site.refused()?;
    ensure!(matches!(error, Error::NoBpffs(_)), "{error}");
    ensure!(error.to_string().lines().count() == 1);
    ensure!(
        error
            .remedy()
            .is_some_and(|remedy| remedy.contains("mount -t bpf"))
    );
    ensure!(!carries_a_program(&site.branch.gw, "lan0")?);
    Ok(())
}

#[test]
fn case_x15_jumbo_frames_do_not_refuse_native_mode() -> Result<()> {
    let mut site = Site::raise()?;
    let cable = "link add jumbo0 mtu 9000 type veth peer name jumbo1 mtu 9000";
    site.branch.gw.ip(cable)?;
    site.options.interfaces[0].name = "jumbo0".into();
    let (programs, _maps) = site.start()?;
    let lan = programs.attached().first().context("nothing attached")?;
    ensure!(lan.mode == Mode::Native, "{lan:?}");
    Ok(())
}

#[test]
fn case_x6_an_answer_to_a_partial_checksum_verifies() -> Result<()> {
    let site = Site::raise()?;
    let (programs, maps) = site.start()?;
    let mut steer = site.steer(maps)?;
    let at = "10.99.1.1:5060".parse()?;
    steer.listener_set(ListenerId(0), at, GateId(0), Mono::default())?;
    let serving = Delta::GateSet {
        gate: GateId(0),
        state: Gate::Serving,
    };
    steer.apply(&serving, Mono::default())?;
    // Sockets of this host now leave checksums to a NIC that is not there.
    site.branch
        .phones
        .run("ethtool", &["-K", "eth0", "tx", "on"])?;
    let phone = site.branch.phones.udp("10.99.1.11:7000")?;
    phone.set_read_timeout(Some(LIMIT))?;
    let mut request = [0x5a; 20];
    request[..8].copy_from_slice(&[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42]);
    phone.send_to(&request, at)?;
    let mut answer = [0; 128];
    // The answer comes as a frame without any mark: the kernel sums it before a socket sees it.
    let length = phone.recv(&mut answer).context("no answer passed")?;
    ensure!(answer[..2] == [1, 1] && length == 32, "{length} bytes");
    drop((programs, steer));
    Ok(())
}

#[test]
fn a_device_that_was_made_anew_is_taken_up_by_the_daemon() -> Result<()> {
    let mut branch = Branch::raise()?;
    let _gateway = gateway::Gateway::start(&branch, &gateway::config())?;
    ensure!(carries_a_program(&branch.gw, "lan0")?);
    let before = index(&branch.gw, "lan0")?;
    branch.gw.ip("link del lan0")?;
    ensure!(link_line(&branch.gw, "lan0").is_err());
    Node::cable((&mut branch.phones, "eth0"), (&mut branch.gw, "lan0"))?;
    branch.phones.as_test_host("eth0")?;
    branch.gw.ip("address add 10.99.1.1/24 dev lan0")?;
    branch.phones.ip("address add 10.99.1.11/24 dev eth0")?;
    branch.phones.ip("link set eth0 up")?;
    branch.gw.ip("link set lan0 up")?;
    ensure!(index(&branch.gw, "lan0")? != before, "the same device");
    let since = Instant::now();
    wait::until("the program is back", LIMIT, || {
        carries_a_program(&branch.gw, "lan0").ok().filter(|on| *on)
    })?;
    eprintln!("back after {} ms", since.elapsed().as_millis());
    wait::until("the event", LIMIT, || {
        let events = gateway::run(&branch, &["events", "--json"]).ok()?;
        events.contains("device_made_anew").then_some(())
    })?;
    // The listener hears again: sockets of the old device were bound to it.
    let phone = branch.phones.udp("10.99.1.11:5062")?;
    phone.set_read_timeout(Some(Duration::from_millis(500)))?;
    let options = "OPTIONS sip:10.99.1.1 SIP/2.0\r\nVia: SIP/2.0/UDP 10.99.1.11:5062;\
        branch=z9hG4bKanew\r\nFrom: <sip:201@10.99.1.11>;tag=1\r\nTo: <sip:10.99.1.1>\r\n\
        Call-ID: anew\r\nCSeq: 1 OPTIONS\r\nMax-Forwards: 70\r\nContent-Length: 0\r\n\r\n";
    let mut answer = [0; 2048];
    wait::until("an answer", LIMIT, || {
        phone.send_to(options.as_bytes(), "10.99.1.1:5060").ok()?;
        phone.recv(&mut answer).ok()
    })?;
    ensure!(answer.starts_with(b"SIP/2.0 "));
    Ok(())
}
