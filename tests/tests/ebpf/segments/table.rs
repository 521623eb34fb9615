//! The table of frames of segments, under BPF_PROG_TEST_RUN: where the interface belongs, whereto
//! the word leads, frame in, reason (and with it what TC is told). Every reason has a row.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use aya::{
    Ebpf, TestRun as _, TestRunOptions,
    maps::{Array, HashMap, PerCpuHashMap, PerCpuValues},
    programs::SchedClassifier,
};
use keepline::fastpath::{
    Options,
    object::{self, Sizes},
};
use keepline_common::{
    limits::{GROUPS, HOPS},
    reason::{Reason, Verdict},
    record::{HOP_FORWARD, HOP_SEGMENT, Hop, PORT_CLIENT, PORT_TUNNEL, Port},
};
use keepline_tests::fixture::{self, IFINDEX, VETH, packet::Udp};

use super::site::PROBE;

struct Row {
    name: &'static str,
    /// What the interface is; `None`: nothing of a segment.
    role: Option<u32>,
    /// The device that the segment's word leads to; `None`: it leads nowhere.
    joined: Option<u32>,
    frame: Vec<u8>,
    reason: Reason,
    /// Whether the tunnel is said to be alive afterwards.
    stamped: bool,
}

fn frame(to: [u8; 6], udp: &Udp) -> Vec<u8> {
    let mut frame = udp.frame();
    frame[..6].copy_from_slice(&to);
    frame
}

fn rows() -> Vec<Row> {
    const PEER: [u8; 6] = [2, 0, 0, 0, 0, 9];
    const ALL: [u8; 6] = [0xff; 6];
    // The loopback's own MAC address.
    const OURS: [u8; 6] = [0; 6];
    let plain = Udp::new("10.50.0.20:4000", "10.50.0.1:4000", b"a frame");
    let mut answer = vec![0; 300];
    answer[28..34].copy_from_slice(&PROBE);
    let probe = Udp::new("10.50.0.1:67", "255.255.255.255:68", &answer);
    answer[28] = 0x0a;
    let other = Udp::new("10.50.0.1:67", "255.255.255.255:68", &answer);
    let tagged = plain.clone().tagged(&[[0x88a8, 5], [0x8100, 6]]);
    let (client, tunnel) = (Some(PORT_CLIENT), Some(PORT_TUNNEL));
    let (here, away) = (Some(IFINDEX), Some(VETH));
    let row = |name, role, joined, frame, reason| Row {
        name,
        role,
        joined,
        frame,
        reason,
        stamped: role == Some(PORT_TUNNEL),
    };
    let forwarded = Reason::SegmentForwarded;
    vec![
        row(
            "no segment's interface",
            None,
            away,
            frame(PEER, &plain),
            Reason::SegmentUnknown,
        ),
        row(
            "from a client",
            client,
            away,
            frame(PEER, &plain),
            forwarded,
        ),
        row(
            "a broadcast from a client",
            client,
            away,
            frame(ALL, &plain),
            forwarded,
        ),
        row(
            "QinQ from a client",
            client,
            away,
            frame(PEER, &tagged),
            forwarded,
        ),
        row(
            "joined to nothing",
            client,
            None,
            frame(PEER, &plain),
            Reason::SegmentUnjoined,
        ),
        row(
            "would go back",
            client,
            here,
            frame(PEER, &plain),
            Reason::SegmentLoop,
        ),
        row(
            "a client's, for us",
            client,
            away,
            frame(OURS, &plain),
            Reason::SegmentLocal,
        ),
        row(
            "from the tunnel",
            tunnel,
            here,
            frame(PEER, &plain),
            forwarded,
        ),
        row(
            "a broadcast from the tunnel",
            tunnel,
            here,
            frame(ALL, &plain),
            forwarded,
        ),
        row(
            "DHCP for a client",
            tunnel,
            here,
            frame(ALL, &other),
            forwarded,
        ),
        row(
            "from another tunnel",
            tunnel,
            away,
            frame(ALL, &plain),
            Reason::SegmentInactive,
        ),
        row(
            "a tunnel's, nothing joined",
            tunnel,
            None,
            frame(PEER, &plain),
            Reason::SegmentUnjoined,
        ),
        row(
            "a tunnel's, for us",
            tunnel,
            here,
            frame(OURS, &plain),
            Reason::SegmentLocal,
        ),
        Row {
            stamped: false,
            ..row(
                "an answer to our probe",
                tunnel,
                here,
                frame(ALL, &probe),
                Reason::SegmentLocal,
            )
        },
    ]
}

/// The object with one interface, the loopback, that counts.
fn load() -> Result<Ebpf> {
    let sizes = Sizes::of(&Options {
        pin: "/nowhere".into(),
        interfaces: Vec::new(),
        media: 10_000..=10_001,
        max_plans: 1,
        max_flows: 1,
        segments: Vec::new(),
        transparent: false,
    })?;
    let mut ebpf = object::load(&sizes, None)?;
    let map = ebpf.map_mut("COUNTERS").context("COUNTERS")?;
    let mut counters: PerCpuHashMap<_, u32, [u64; Reason::COUNT]> = map.try_into()?;
    let cpus = aya::util::nr_cpus().map_err(|(_, error)| error)?;
    let zero = PerCpuValues::try_from(vec![[0; Reason::COUNT]; cpus])?;
    counters.insert(IFINDEX, zero, 0)?;
    Ok(ebpf)
}

/// Puts the interface where the row says.
fn prepare(ebpf: &mut Ebpf, row: &Row) -> Result<()> {
    let mut ports: HashMap<_, u32, [u8; size_of::<Port>()]> =
        ebpf.map_mut("PORTS").context("PORTS")?.try_into()?;
    match row.role {
        Some(role) => {
            let port = Port {
                group: GROUPS,
                role,
                tunnel: 3,
                client: VETH,
                probe: PROBE,
                zero: [0; 2],
            };
            ports.insert(
                IFINDEX,
                bytemuck::cast::<_, [u8; size_of::<Port>()]>(port),
                0,
            )?;
        }
        // Absent at first.
        None => drop(ports.remove(&IFINDEX)),
    }
    let hop = Hop {
        ifindex: row.joined.unwrap_or(VETH),
        kind: if row.joined.is_some() {
            HOP_SEGMENT
        } else {
            HOP_FORWARD
        },
        ..bytemuck::Zeroable::zeroed()
    };
    let mut hops: Array<_, [u8; size_of::<Hop>()]> =
        ebpf.map_mut("HOPS").context("HOPS")?.try_into()?;
    hops.set(HOPS, bytemuck::cast::<_, [u8; size_of::<Hop>()]>(hop), 0)?;
    let mut groups: Array<_, u32> = ebpf.map_mut("GROUPS").context("GROUPS")?.try_into()?;
    groups.set(GROUPS, row.joined.map_or(0, |_| HOPS), 0)?;
    let mut inbound: Array<_, u64> = ebpf.map_mut("INBOUND").context("INBOUND")?.try_into()?;
    inbound.set(3, 0, 0)?;
    Ok(())
}

fn counts(ebpf: &Ebpf) -> Result<Vec<u64>> {
    let map = ebpf.map("COUNTERS").context("COUNTERS")?;
    let counters: PerCpuHashMap<_, u32, [u64; Reason::COUNT]> = map.try_into()?;
    let cpus = counters.get(&IFINDEX, 0)?;
    let total = |reason: usize| cpus.iter().map(|cpu| cpu[reason]).sum();
    Ok((0..Reason::COUNT).map(total).collect())
}

fn check(ebpf: &mut Ebpf, row: &Row) -> Result<()> {
    prepare(ebpf, row)?;
    let before = counts(ebpf)?;
    let mut out = vec![0; row.frame.len() + 64];
    let program = ebpf.program_mut("keepline_segment").context("no program")?;
    let program: &mut SchedClassifier = program.try_into()?;
    let result = program.test_run(TestRunOptions {
        data_in: Some(&row.frame),
        data_out: Some(&mut out),
        repeat: 1,
        ..TestRunOptions::default()
    })?;
    out.truncate(result.data_size_out as usize);
    let after = counts(ebpf)?;
    let moved = Reason::ALL
        .iter()
        .filter(|r| after[**r as usize] != before[**r as usize]);
    let moved: Vec<_> = moved.map(|reason| reason.name()).collect();
    ensure!(moved == [row.reason.name()], "counted {moved:?}");
    let action = match row.reason.verdict() {
        Verdict::Redirect => 7,
        Verdict::Drop => 2,
        Verdict::Pass | Verdict::Tx => u32::MAX,
    };
    ensure!(
        result.return_value == action,
        "action {}",
        result.return_value
    );
    ensure!(out == row.frame, "the frame changed");
    let inbound: Array<_, u64> = ebpf.map("INBOUND").context("INBOUND")?.try_into()?;
    ensure!(
        (inbound.get(&3, 0)? != 0) == row.stamped,
        "stamped: {}",
        !row.stamped
    );
    Ok(())
}

#[test]
fn mx1_every_reason_of_segments_has_a_row() -> Result<()> {
    if fixture::cannot_run().is_some() {
        return Ok(());
    }
    fixture::enter_namespace();
    let mut ebpf = load()?;
    let rows = rows();
    for row in &rows {
        check(&mut ebpf, row).with_context(|| row.name)?;
    }
    let seen: BTreeSet<&str> = rows.iter().map(|row| row.reason.name()).collect();
    let all = Reason::ALL.iter().map(|reason| reason.name());
    let missing: Vec<_> = all
        .filter(|name| name.starts_with("segment_") && !seen.contains(name))
        .collect();
    ensure!(missing.is_empty(), "reasons without a row: {missing:?}");
    Ok(())
}
