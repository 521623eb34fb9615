//! What the program costs per packet, by BPF_PROG_TEST_RUN, net of the kernel's loop and of what
//! makes a frame fit for the next run (see `harness`); and how large the program is, compared
//! with the figures kept in the tree.

use std::os::fd::{AsFd as _, OwnedFd};

use anyhow::{Context as _, ensure};
use keepline::fastpath::object;
use keepline_common::reason::Reason;
use keepline_engine::{
    net::ListenerId,
    steer::{Delta, Gate, GateId},
    time::Mono,
};
use serde::Deserialize;

use super::{Report, Row, harness::Harness};
use crate::fixture::{
    self, Fixture, flow,
    packet::{Udp, stun, with_fingerprint},
    route,
};

/// Repetitions of each figure.
const N: usize = 11;
/// Runs per repetition.
const RUNS: u32 = 200_000;
/// Growth of the program's size that is let pass.
const GROWTH: f64 = 1.05;
const SIZES: &str = include_str!("testrun_sizes.json");

/// The size of the program, as it was last looked at.
#[derive(Debug, Deserialize)]
struct Kept {
    jited_bytes: f64,
    verified_insns: f64,
}

/// Measures all rows.
///
/// # Errors
/// When the machine cannot run the program, or the program takes another path than is timed.
pub fn run() -> anyhow::Result<Report> {
    fixture::enter_namespace();
    let kept: Kept = serde_json::from_str(SIZES).context("testrun_sizes.json")?;
    let mut fixture = Fixture::load(1_024, false);
    prepare(&mut fixture)?;
    let program: OwnedFd = object::program(&mut fixture.ebpf)?
        .fd()?
        .as_fd()
        .try_clone_to_owned()?;
    let cases = cases()
        .into_iter()
        .map(|(frame, reason)| Ok((Harness::new(&frame)?, reason)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let mut figures = vec![Vec::new(); cases.len()];
    for _ in 0..N {
        for ((harness, reason), samples) in cases.iter().zip(&mut figures) {
            samples.push(time(&fixture, &program, harness, *reason)?);
        }
    }
    let mut figures = figures.into_iter();
    let mut next = || figures.next().unwrap_or_default();
    let info = object::program(&mut fixture.ebpf)?.info()?;
    let verified = f64::from(info.verified_instruction_count().unwrap_or(0));
    let jited = f64::from(info.size_jitted());
    let rows = vec![
        Row::lower("ns_forward", "ns", next(), Some(400.0)),
        Row::lower("ns_stun", "ns", next(), Some(400.0)),
        Row::lower("ns_stun_fingerprint", "ns", next(), None),
        Row::lower("ns_stun_ipv6", "ns", next(), None),
        Row::lower("ns_pass", "ns", next(), None),
        size("jited_bytes", "bytes", jited, kept.jited_bytes),
        size(
            "verified_insns",
            "instructions",
            verified,
            kept.verified_insns,
        ),
    ];
    Ok(Report::new("testrun", rows))
}

/// A size: no bar in the table, yet it fails when it grows by more than [`GROWTH`].
fn size(name: &'static str, unit: &'static str, value: f64, kept: f64) -> Row {
    let ok = value <= kept * GROWTH;
    Row {
        ok,
        ..Row::lower(name, unit, vec![value], None)
    }
}

/// What is timed, in the order of the rows: a frame, and what must become of it.
fn cases() -> Vec<(Vec<u8>, Reason)> {
    let (phone, phone6) = ("10.99.0.20:4000", "[2001:db8::20]:4000");
    let (sip, sip6) = ("10.99.0.1:5060", "[2001:db8::1]:5060");
    let request = stun(&[]);
    vec![
        (
            Udp::new(phone, "10.99.0.1:10000", &[0x80; 172]).frame(),
            Reason::FlowForwarded,
        ),
        (Udp::new(phone, sip, &request).frame(), Reason::StunAnswered),
        (
            Udp::new(phone, sip, &with_fingerprint(request.clone())).frame(),
            Reason::StunAnswered,
        ),
        (
            Udp::new(phone6, sip6, &request).frame(),
            Reason::StunAnswered,
        ),
        (
            Udp::new(phone, "10.99.0.77:53", &[0; 172]).frame(),
            Reason::NoMatch,
        ),
    ]
}

/// A listener of each family on a path that serves, and a flow.
fn prepare(fixture: &mut Fixture) -> anyhow::Result<()> {
    let now = Mono::default();
    for (number, address) in ["10.99.0.1:5060", "[2001:db8::1]:5060"]
        .into_iter()
        .enumerate()
    {
        let listener = ListenerId(number as u16);
        fixture
            .steer
            .listener_set(listener, address.parse()?, GateId(0), now)?;
    }
    let serving = Delta::GateSet {
        gate: GateId(0),
        state: Gate::Serving,
    };
    fixture.steer.apply(&serving, now)?;
    let way = route("198.51.100.1", "198.51.100.254");
    let (local, phone) = ("10.99.0.1:10000", "10.99.0.20:4000");
    let media = flow(1, [0, 1], local, phone, 4_000, "192.0.2.10:5004");
    fixture.install(media, Some(way));
    Ok(())
}

/// Nanoseconds per run of the program, all of them for `reason`, net of everything around it.
fn time(
    fixture: &Fixture,
    program: &OwnedFd,
    harness: &Harness,
    reason: Reason,
) -> anyhow::Result<f64> {
    let counted = || fixture.counts()[reason as usize];
    let before = counted();
    let idle = harness.idle(RUNS)?;
    let ours = harness.time(program.as_fd(), RUNS)?;
    let moved = counted() - before;
    ensure!(
        moved == u64::from(RUNS),
        "{moved} of {RUNS} runs were {}, the last returned {}",
        reason.name(),
        ours.action
    );
    Ok(ours.ns - idle)
}
