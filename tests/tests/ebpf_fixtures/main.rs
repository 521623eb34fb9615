//! The table of packets: description, frame in, reason (and with it verdict and counter), frame
//! out. Every reason has a row. Run on the very object that ships.

mod media;
mod parsing;
mod setup;
mod stun;
mod table;

use std::{collections::BTreeSet, net::UdpSocket};

use keepline_common::reason::{Reason, Verdict};
use keepline_tests::fixture::{self, Fixture, flow, packet::Udp, route};

use crate::table::{RTP, Row, local, phone, row};

const fn action(verdict: Verdict) -> u32 {
    match verdict {
        Verdict::Drop => 1,
        Verdict::Pass => 2,
        Verdict::Tx => 3,
        Verdict::Redirect => 4,
    }
}

fn check(fixture: &mut Fixture, row: &Row) -> Result<(), String> {
    let outcome = fixture.run(&row.frame, row.reserved);
    let wanted = row.out.as_ref().unwrap_or(&row.frame);
    let hex = |frame: &[u8]| {
        frame
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    if outcome.reason != Some(row.reason) {
        return Err(format!(
            "{}: counted {:?}, not {:?}",
            row.name, outcome.reason, row.reason
        ));
    }
    if outcome.action != action(row.reason.verdict()) {
        return Err(format!("{}: action {}", row.name, outcome.action));
    }
    if outcome.frame != *wanted {
        return Err(format!(
            "{}:\n  out  {}\n  want {}",
            row.name,
            hex(&outcome.frame),
            hex(wanted)
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
    let mut fixture = Fixture::load(1_024, false);
    setup::listeners(&mut fixture);
    setup::flows(&mut fixture);
    let _sockets = setup::sockets();
    let rows: Vec<Row> = [parsing::rows(), stun::rows(), media::rows()]
        .into_iter()
        .flatten()
        .collect();
    let faults: Vec<String> = rows
        .iter()
        .filter_map(|row| check(&mut fixture, row).err())
        .collect();
    assert!(
        faults.is_empty(),
        "{} of {} rows:\n{}",
        faults.len(),
        rows.len(),
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
    println!("{} rows, {} reasons", rows.len(), seen.len());
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
    let mut fixture = Fixture::load(1_024, false);
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
    let before = fixture.run(&frame, 0);
    assert_eq!(before.reason, Some(Reason::FlowForwarded));
    ip(&["link", "del", "gone0"]);
    check(&mut fixture, &row("a dead device", frame, Reason::NoDevice)).unwrap();
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
        let _ = fixture.run(&phone(10_000, RTP).frame(), 0);
    }
    let foreign = Udp {
        from: "10.99.0.66:4000".parse().unwrap(),
        ..phone(10_000, RTP)
    };
    let _ = fixture.run(&foreign.frame(), 0);
    let rows = fixture.steer.flows().unwrap();
    let row = rows.iter().find(|row| row.local.port() == 10_000).unwrap();
    assert_eq!(
        (row.packets, row.bytes, row.foreign),
        (3, 3 * RTP.len() as u64, 1)
    );
    assert!(row.idle.is_some_and(|idle| idle.as_secs() < 60));
}
