//! What the program costs per packet, by BPF_PROG_TEST_RUN, net of the kernel's loop; and how
//! large it is, compared with the figure kept in the tree.

use std::process::Command;

use anyhow::{Context as _, ensure};
use aya::{TestRun as _, TestRunAttrs, TestRunOptions};
use keepline::fastpath::object;
use keepline_common::reason::Reason;
use keepline_engine::{
    net::ListenerId,
    steer::{Delta, Gate, GateId},
    time::Mono,
};
use serde::Deserialize;

use super::{Report, Row};
use crate::fixture::{
    self, Fixture, VETH, flow,
    packet::{Udp, stun},
    route,
};

/// Repetitions of each figure.
const N: usize = 7;
/// Runs per repetition of the figures that a run leaves the frame as it was for.
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
    veth()?;
    let pass = Udp::new("10.99.0.20:4000", "10.99.0.77:53", &[0; 172]).frame();
    // ARP leaves at the first comparison: what it costs is the kernel's loop and the counter.
    let arp = [
        &[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x06][..],
        &[0; 46],
    ]
    .concat();
    let request = Udp::new("10.99.0.20:4000", "10.99.0.1:5060", &stun(&[])).frame();
    let rtp = Udp::new("10.99.0.20:4000", "10.99.0.1:10000", &[0x80; 172]).ttl(255);
    let mut rows = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..N {
        let empty = time(&mut fixture, &arp, RUNS, Reason::NotIp)?;
        rows[0].push(forward(&mut fixture, &rtp, empty)?);
        rows[1].push(
            live(&mut fixture, &request, Reason::StunAnswered)?
                - live(&mut fixture, &arp, Reason::NotIp)?,
        );
        rows[2].push(time(&mut fixture, &pass, RUNS, Reason::NoMatch)? - empty);
    }
    let [forward, stun, pass] = rows;
    let info = object::program(&mut fixture.ebpf)?.info()?;
    let verified = f64::from(info.verified_instruction_count().unwrap_or(0));
    let jited = f64::from(info.size_jitted());
    let rows = vec![
        Row::lower("ns_forward", "ns", forward, Some(400.0)),
        Row::lower("ns_stun", "ns", stun, Some(400.0)),
        Row::lower("ns_pass", "ns", pass, None),
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

fn prepare(fixture: &mut Fixture) -> anyhow::Result<()> {
    let now = Mono::default();
    let address = "10.99.0.1:5060".parse()?;
    fixture
        .steer
        .listener_set(ListenerId(0), address, GateId(0), now)?;
    fixture.steer.apply(
        &Delta::GateSet {
            gate: GateId(0),
            state: Gate::Serving,
        },
        now,
    )?;
    // The way out rewrites every field to what it was but the TTL, so that the next run of the
    // same frame is forwarded again.
    let mut way = route("10.99.0.20", "10.99.0.1");
    way.source_mac = fixture::packet::THEIRS;
    way.next_hop_mac = Some(fixture::packet::OURS);
    let media = flow(
        1,
        [0, 1],
        "10.99.0.1:10000",
        "10.99.0.20:4000",
        4_000,
        "10.99.0.1:10000",
    );
    fixture.install(media, Some(way));
    Ok(())
}

/// A veth for answers, its index the one that is counted on.
fn veth() -> anyhow::Result<()> {
    let steps = [
        "ip link add answers index 7 type veth peer name sink",
        // Frames are taken by a veth whose other end has GRO.
        "ethtool -K sink gro on",
        "ip link set sink up",
        "ip link set answers up",
    ];
    for step in steps {
        let mut words = step.split(' ');
        let program = words.next().unwrap_or_default();
        let status = Command::new(program).args(words).status();
        ensure!(status.context(step)?.success(), "{step} failed");
    }
    Ok(())
}

/// Nanoseconds per run of `runs` in a row, all of them for `reason`.
fn time(fixture: &mut Fixture, frame: &[u8], runs: u32, reason: Reason) -> anyhow::Result<f64> {
    let counted = |fixture: &Fixture| fixture.counts()[reason as usize];
    let before = counted(fixture);
    let mut out = vec![0; frame.len() + 128];
    let program = object::program(&mut fixture.ebpf)?;
    let result = program.test_run(TestRunOptions {
        data_in: Some(frame),
        data_out: Some(&mut out),
        repeat: runs,
        ..TestRunOptions::default()
    })?;
    let moved = counted(fixture) - before;
    ensure!(
        moved == u64::from(runs),
        "{moved} of {runs} runs were {}",
        reason.name()
    );
    Ok(result.duration.as_nanos() as f64)
}

/// Forwarding, in batches that the TTL allows.
fn forward(fixture: &mut Fixture, rtp: &Udp, empty: f64) -> anyhow::Result<f64> {
    const BATCH: u32 = 250;
    let frame = rtp.frame();
    let mut samples = Vec::new();
    for _ in 0..400 {
        samples.push(time(fixture, &frame, BATCH, Reason::FlowForwarded)?);
    }
    Ok(median(samples) - empty)
}

/// Nanoseconds per run over batches of live frames. A repeated run sees the frame as the run
/// before left it, and an answer is no request: so the kernel is given live frames, each a page
/// of its own with the request in it, and the program's own clock (`BPF_ENABLE_STATS`) says what
/// its runs took. All of a batch but the first run warm, as on a port. Answers leave by a veth,
/// after the batch and outside of what is timed: pages that come back within it hold an answer.
/// The clock's two reads are in the figure: compare it with that of a frame that leaves at once.
fn live(fixture: &mut Fixture, frame: &[u8], reason: Reason) -> anyhow::Result<f64> {
    const BATCH: u32 = 64;
    const BATCHES: usize = 25;
    let _clock = aya::sys::enable_stats(aya::sys::Stats::RunTime)?;
    let context: Vec<u8> = [0, frame.len() as u32, 0, VETH, 0, 0]
        .iter()
        .flat_map(|field| field.to_ne_bytes())
        .collect();
    let counted = |fixture: &Fixture| fixture.counts_on(VETH)[reason as usize];
    let mut samples = Vec::new();
    for _ in 0..BATCHES {
        let before = counted(fixture);
        let program = object::program(&mut fixture.ebpf)?;
        let start = program.info()?;
        program.test_run(TestRunOptions {
            data_in: Some(frame),
            ctx_in: Some(&context),
            repeat: BATCH,
            attrs: TestRunAttrs::new().xdp_live_frames(BATCH),
            ..TestRunOptions::default()
        })?;
        let end = program.info()?;
        let moved = counted(fixture) - before;
        let runs = end.run_count() - start.run_count();
        ensure!(
            moved == u64::from(BATCH) && runs == moved,
            "{moved} of {runs} runs were {}",
            reason.name()
        );
        samples.push((end.run_time() - start.run_time()).as_nanos() as f64 / f64::from(BATCH));
    }
    Ok(median(samples))
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
}
