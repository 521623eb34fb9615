//! The table of packets: description, frame in, reason (and with it verdict and counter), frame
//! out. Every reason has a row. Run on the very object that ships.

mod media;
mod parsing;
mod setup;
mod stun;
mod table;

use std::{collections::BTreeSet, net::UdpSocket};

use keepline_common::reason::Reason;
use keepline_tests::fixture::{
    self, Fixture, flow,
    hook::{self, Hook},
    packet::Udp,
    route,
};

use crate::table::{CTAG, RTP, Row, STAG, local, phone, row};

/// Whether the outer tag, if there is one, is among the bytes.
fn is_tagged(frame: &[u8]) -> bool {
    let outer = frame.get(12..14);
    [CTAG, STAG]
        .map(u16::to_be_bytes)
        .iter()
        .any(|tag| outer == Some(tag))
}

/// The hooks by which a row's frame can come. A frame that ends within its tag never becomes an
/// skb with the tag apart.
fn hooks(row: &Row) -> Vec<Hook> {
    let tc = row.only_xdp.is_none();
    let apart = tc && is_tagged(&row.frame) && row.frame.len() >= 18;
    [
        Some(Hook::Xdp),
        tc.then_some(Hook::Tc),
        apart.then_some(Hook::TcTagApart),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What a row wants of a hook. A test run does not show a tag that is in the skb: one that the
/// program puts on, or that came so and stays (on real devices: ebpf_twin.rs).
fn wanted(row: &Row, hook: Hook) -> (Reason, Vec<u8>) {
    let (reason, mut out) = match (&row.in_tc, hook) {
        (Some(otherwise), Hook::Tc | Hook::TcTagApart) => (otherwise.reason, otherwise.out.clone()),
        _ => (row.reason, row.out.clone().unwrap_or(row.frame.clone())),
    };
    let put_on = reason == Reason::FlowForwarded && is_tagged(&out);
    let apart = match hook {
        Hook::Xdp => false,
        Hook::Tc => put_on,
        Hook::TcTagApart => put_on || reason != Reason::FlowForwarded,
    };
    if apart {
        out.drain(12..16);
    }
    (reason, out)
}

fn check(fixture: &mut Fixture, row: &Row, hook: Hook) -> Result<(), String> {
    let outcome = fixture.run_at(|ebpf| hook.run(ebpf, &row.frame, row.reserved));
    let (reason, out) = wanted(row, hook);
    let name = format!("{} in {hook:?}", row.name);
    let hex = |frame: &[u8]| {
        frame
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    if outcome.reason != Some(reason) {
        return Err(format!(
            "{name}: counted {:?}, not {reason:?}",
            outcome.reason
        ));
    }
    if outcome.action != hook.action(reason.verdict()) {
        return Err(format!("{name}: action {}", outcome.action));
    }
    if outcome.frame != out {
        return Err(format!(
            "{name}:\n  out  {}\n  want {}",
            hex(&outcome.frame),
            hex(&out)
        ));
    }
    Ok(())
}

#[test]
fn case_x3_x4_x8_x9_x10_x12_x16_x22_t1_t3_t4_t6_m8_every_reason_has_a_row() {
    if fixture::cannot_run().is_some() {
        return;
    }
    fixture::enter_namespace();
    let mut fixture = Fixture::with_twin();
    setup::listeners(&mut fixture);
    setup::flows(&mut fixture);
    let _sockets = setup::sockets();
    let rows: Vec<Row> = [parsing::rows(), stun::rows(), media::rows()]
        .into_iter()
        .flatten()
        .collect();
    let runs: Vec<(&Row, Hook)> = rows
        .iter()
        .flat_map(|row| hooks(row).into_iter().map(move |hook| (row, hook)))
        .collect();
    let faults: Vec<String> = runs
        .iter()
        .filter_map(|(row, hook)| check(&mut fixture, row, *hook).err())
        .collect();
    assert!(
        faults.is_empty(),
        "{} of {} runs:\n{}",
        faults.len(),
        runs.len(),
        faults.join("\n")
    );

    let seen: BTreeSet<&str> = rows.iter().map(|row| row.reason.name()).collect();
    let missing: Vec<&str> = Reason::ALL
        .iter()
        .map(|reason| reason.name())
        .filter(|name| !seen.contains(name) && *name != Reason::NoDevice.name())
        // Frames of segments never meet this program: see ebpf_segments/table.rs.
        .filter(|name| !name.starts_with("segment_"))
        .collect();
    assert!(missing.is_empty(), "reasons without a row: {missing:?}");
    let by = |hook| runs.iter().filter(|(_, by)| *by == hook).count();
    println!(
        "{} rows, {} reasons; runs in XDP {}, in TC {}, in TC with the outer tag in the skb {}",
        rows.len(),
        seen.len(),
        by(Hook::Xdp),
        by(Hook::Tc),
        by(Hook::TcTagApart)
    );
    for (name, otherwise) in rows
        .iter()
        .filter_map(|row| Some((row.name, row.in_tc.as_ref()?)))
    {
        println!("otherwise in TC: {name}: {}", otherwise.because);
    }
    for (name, why) in rows
        .iter()
        .filter_map(|row| Some((row.name, row.only_xdp?)))
    {
        println!("not in TC: {name}: {why}");
    }
}

/// The row that needs a device which is gone.
#[test]
fn a_hop_whose_device_is_gone_passes_the_original() {
    if fixture::cannot_run().is_some() {
        return;
    }
    fixture::enter_namespace();
    let ip = |arguments: &[&str]| {
        let status = std::process::Command::new("ip")
            .args(arguments)
            .status()
            .unwrap();
        assert!(status.success(), "ip {arguments:?}");
    };
    ip(&[
        "link", "add", "gone0", "type", "veth", "peer", "name", "gone1",
    ]);
    // sysfs shows the namespace it was mounted in, so the socket is asked.
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let index = rustix::net::netdevice::name_to_index(socket, "gone0").unwrap();
    let mut fixture = Fixture::with_twin();
    let mut way = route("198.51.100.1", "198.51.100.254");
    way.ifindex = index;
    fixture.install(
        flow(
            1,
            [0, 1],
            &local(10_000),
            "10.99.0.20:4000",
            10_500,
            "192.0.2.10:5004",
        ),
        Some(way),
    );
    let frame = phone(10_000, RTP).frame();
    let before = fixture.run(&frame);
    assert_eq!(before.reason, Some(Reason::FlowForwarded));
    ip(&["link", "del", "gone0"]);
    let row = row("a dead device", frame, Reason::NoDevice);
    for hook in hooks(&row) {
        check(&mut fixture, &row, hook).unwrap();
    }
}

/// What GRO, or a sender's UDP_SEGMENT, made one of several: the kernel takes it apart again.
#[test]
fn several_datagrams_in_one_skb_are_left_to_the_kernel() {
    if fixture::cannot_run().is_some() {
        return;
    }
    fixture::enter_namespace();
    let mut fixture = Fixture::with_twin();
    setup::flows(&mut fixture);
    let frame = phone(10_000, RTP).frame();
    // gso_segs and gso_size of struct __sk_buff.
    let mut context = [0; 192];
    let whole = fixture.run_at(|ebpf| hook::tc(ebpf, &frame, &context));
    assert_eq!(whole.reason, Some(Reason::FlowForwarded));
    context[164] = 2;
    context[176] = 8;
    let several = fixture.run_at(|ebpf| hook::tc(ebpf, &frame, &context));
    assert_eq!(several.reason, Some(Reason::TooBig));
    assert_eq!((several.action, &several.frame), (u32::MAX, &frame));
}

#[test]
fn another_source_is_counted_at_its_flow_and_forwarding_is_too() {
    if fixture::cannot_run().is_some() {
        return;
    }
    fixture::enter_namespace();
    let mut fixture = Fixture::load(1_024, false);
    setup::flows(&mut fixture);
    let _sockets = setup::sockets();
    for _ in 0..3 {
        let _ = fixture.run(&phone(10_000, RTP).frame());
    }
    let foreign = Udp {
        from: "10.99.0.66:4000".parse().unwrap(),
        ..phone(10_000, RTP)
    };
    let _ = fixture.run(&foreign.frame());
    let rows = fixture.steer.flows().unwrap();
    let row = rows.iter().find(|row| row.local.port() == 10_000).unwrap();
    assert_eq!(
        (row.packets, row.bytes, row.foreign),
        (3, 3 * RTP.len() as u64, 1)
    );
    assert!(row.idle.is_some_and(|idle| idle.as_secs() < 60));
}
