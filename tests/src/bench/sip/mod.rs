//! What signalling costs, against Kamailio on the same machine, path and load: CPU time of all
//! threads of the program per REGISTER and per call, the two interleaved; and what Keepline
//! keeps in memory per binding and per call.
//!
//! Kamailio does the nearest job that it has modules for: a registrar in memory, and a proxy
//! with dialogs and topology hiding. It anchors no media and stores nothing.

mod load;
mod peer;
mod softswitch;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::{Report, Row};
use crate::lab::branch::{GATEWAY_LAN, SOFTSWITCHES};
use crate::lab::gateway::{Gateway, config_for};
use crate::lab::kamailio::DOMAIN;
use crate::lab::{Branch, Process};
use load::{Callers, Phones};
use softswitch::Softswitch;

/// Repetitions of each figure; the two programs take turns.
const N: usize = 7;
/// REGISTERs and calls per repetition: of all of them together, fewer than the 50,000 transactions
/// that Keepline holds, each for 32 s.
const REGISTERS: usize = 3_000;
const CALLS: usize = 1_000;
/// Requests in flight at once.
const WINDOW: u16 = 32;
/// Bindings and calls that stand when memory is read.
const BINDINGS: usize = 10_000;
const STANDING: usize = 1_000;

/// 64 T1, and a little (RFC 3261 section 17): nothing tells from outside that one is over.
const TRANSACTION: Duration = Duration::from_secs(34);

/// Measures all rows.
///
/// # Errors
/// When the lab cannot be raised, or a program does not answer.
pub fn run() -> Result<Report> {
    let branch = Branch::raise().context("the lab cannot be raised")?;
    let _upstream = Softswitch::start(&branch)?;
    let mut gateway = Gateway::start(&branch, &config())?;
    let theirs = peer::start(&branch)?;
    let keepline: SocketAddr = format!("{GATEWAY_LAN}:5060").parse()?;
    let kamailio = format!("{GATEWAY_LAN}:{}", peer::PORT).parse()?;

    // While both programs hold the same: nothing that stands here alone is billed.
    let ours: &Process = gateway.process();
    let mut register = [
        Phones::new(&branch, keepline, WINDOW)?,
        Phones::new(&branch, kamailio, WINDOW)?,
    ];
    let register = interleaved([ours, &theirs], REGISTERS, |which| {
        register[which].refresh(REGISTERS)
    })?;
    let mut call = [
        Callers::new(&branch, keepline, WINDOW)?,
        Callers::new(&branch, kamailio, WINDOW)?,
    ];
    let call = interleaved([ours, &theirs], CALLS, |which| call[which].calls(CALLS))?;
    // A fresh process: memory that the load has used would be used again, and hide what is kept.
    gateway.restart(&branch)?;
    let [binding, standing] = held(&branch, gateway.process(), keepline)?;

    let [register_ours, register_theirs] = &register;
    let [call_ours, call_theirs] = &call;
    let rows = vec![
        Row::higher(
            "register_vs_kamailio",
            "ratio",
            ratios(register_theirs, register_ours),
            Some(1.5),
        ),
        Row::higher(
            "call_vs_kamailio",
            "ratio",
            ratios(call_theirs, call_ours),
            Some(1.5),
        ),
        Row::lower("bytes_per_binding", "bytes", vec![binding], Some(2_048.0)),
        Row::lower("bytes_per_call", "bytes", vec![standing], Some(16_384.0)),
        Row::lower("us_per_register", "us", register_ours.clone(), None),
        Row::lower(
            "us_per_register_kamailio",
            "us",
            register_theirs.clone(),
            None,
        ),
        Row::lower("us_per_call", "us", call_ours.clone(), None),
        Row::lower("us_per_call_kamailio", "us", call_theirs.clone(), None),
    ];
    Ok(Report::new("sip", rows))
}

/// One softswitch, which is told apart from nothing: no probe runs beside the load.
fn config() -> String {
    let server = SOFTSWITCHES[0];
    config_for(&format!(
        "[[softswitch]]\nname = \"core\"\ndomain = \"{DOMAIN}\"\n\
         servers = [{{ uri = \"sip:{server}:5060\", priority = 1 }}]"
    ))
}

/// Microseconds of CPU per unit of work, of either program, taking turns. The first turn of
/// each warms up and is not counted.
fn interleaved(
    programs: [&Process; 2],
    units: usize,
    mut work: impl FnMut(usize) -> Result<()>,
) -> Result<[Vec<f64>; 2]> {
    let mut found = [Vec::new(), Vec::new()];
    for round in 0..=N {
        for which in 0..2 {
            let before = cpu(programs[which])?;
            work(which)?;
            let spent = (cpu(programs[which])? - before).as_secs_f64() * 1e6;
            if round > 0 {
                found[which].push(spent / units as f64);
            }
        }
    }
    Ok(found)
}

/// Turn by turn: how many times more the other program spent.
fn ratios(theirs: &[f64], ours: &[f64]) -> Vec<f64> {
    theirs
        .iter()
        .zip(ours)
        .map(|(theirs, ours)| theirs / ours)
        .collect()
}

/// What a binding and a call add to memory, in bytes.
fn held(branch: &Branch, ours: &Process, keepline: SocketAddr) -> Result<[f64; 2]> {
    let mut phones = Phones::new(branch, keepline, WINDOW)?;
    let bindings = grown(ours, &mut || phones.newcomers(BINDINGS))?;
    let mut callers = Callers::new(branch, keepline, WINDOW)?;
    let calls = grown(ours, &mut || callers.stand(STANDING))?;
    Ok([bindings / BINDINGS as f64, calls / STANDING as f64])
}

/// What `more` adds. The first time brings what its transactions need; when those are over, the
/// second uses it again. A wait for each: bindings that stay have the memory that transactions of
/// calls would use again.
fn grown(program: &Process, more: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
    more()?;
    std::thread::sleep(TRANSACTION);
    let before = resident(program)?;
    more()?;
    Ok(resident(program)? - before)
}

/// CPU time of all threads of a program and of what it forked: they share its process group.
fn cpu(program: &Process) -> Result<Duration> {
    let group = program.id().to_string();
    let mut total = 0;
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let path = entry.path();
        // Processes come and go while this is read.
        let Ok(stat) = std::fs::read_to_string(path.join("stat")) else {
            continue;
        };
        // Behind the name, which may hold anything: state, parent, group.
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        if fields.split_whitespace().nth(2) != Some(&group) {
            continue;
        }
        for thread in std::fs::read_dir(path.join("task"))?.flatten() {
            let spent = std::fs::read_to_string(thread.path().join("schedstat"))?;
            let nanoseconds = spent.split_whitespace().next().context("no schedstat")?;
            total += nanoseconds.parse::<u64>()?;
        }
    }
    Ok(Duration::from_nanos(total))
}

/// Bytes of memory that a program holds.
fn resident(program: &Process) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", program.id()))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(kilobytes.context("no VmRSS")?.parse::<f64>()? * 1024.0)
}
