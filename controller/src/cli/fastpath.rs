//! `keepline fastpath load|unload|status` and `keepline stats`: the programs and their counters,
//! with no daemon.

use std::{
    collections::BTreeMap,
    fmt::Write,
    path::{Path, PathBuf},
};

use comfy_table::Cell;
use keepline_common::{
    limits::{FLOWS_DEFAULT, PLANS_DEFAULT},
    reason::{Reason, Verdict},
};
use serde::Serialize;

use super::{
    args::{FastpathCommand, Global, LoadArgs, LoadMode, PinArgs},
    output::{Failure, Output, label, state, table},
    tunnels,
};
use crate::{
    api::Client,
    api::model::{ApiError, FastpathInterface, Status, Verdicts},
    config::{self, Config, Machine},
    fastpath::{self, Fastpath, Interface, InterfaceCounters, Mode, Options, XdpChoice},
};

const DEFAULT_PIN: &str = "/sys/fs/bpf/keepline";
const DEFAULT_MEDIA: std::ops::RangeInclusive<u16> = 10_000..=32_767;

pub(super) fn fastpath(command: &FastpathCommand, global: &Global) -> Result<(), Failure> {
    let out = Output { json: global.json };
    match command {
        FastpathCommand::Load(args) => load(args, global, out),
        FastpathCommand::Unload(args) => unload(&pin(args, global), out),
        FastpathCommand::Status(args) => status(&pin(args, global), out),
    }
}

pub(super) async fn stats(global: &Global, prometheus: bool) -> Result<(), Failure> {
    let out = Output { json: global.json };
    let pin = configured(global).map_or_else(|| PathBuf::from(DEFAULT_PIN), |c| c.fastpath.pin);
    let counters = fastpath::counters(&pin).map_err(|error| failure(&error))?;
    if prometheus {
        // What only a daemon knows is left out where none runs.
        let client = Client::new(&global.socket);
        let tunnels = client.get("tunnels").await;
        let status: Result<Status, _> = client.get("status").await;
        let told = tunnels.map(|answer| tunnels::exposition(&answer));
        let counted = status.map(|status| signalling(&status));
        let told = told.unwrap_or_default() + &counted.unwrap_or_default();
        return out.text(&(exposition(&counters) + &told));
    }
    out.answer(&Stats::of(&counters), human)
}

/// The configuration, where there is a usable one: these commands work without.
fn configured(global: &Global) -> Option<Config> {
    config::load(&global.config, &Machine::here())
        .ok()
        .map(|loaded| loaded.config)
}

fn pin(args: &PinArgs, global: &Global) -> PathBuf {
    let configured = || configured(global).map(|config| config.fastpath.pin);
    args.pin
        .clone()
        .or_else(configured)
        .unwrap_or_else(|| PathBuf::from(DEFAULT_PIN))
}

fn load(args: &LoadArgs, global: &Global, out: Output) -> Result<(), Failure> {
    let xdp = match args.mode {
        LoadMode::Auto => XdpChoice::Auto,
        LoadMode::Native => XdpChoice::Native,
        LoadMode::Generic => XdpChoice::Generic,
    };
    let interface = |name: &String| Interface {
        name: name.clone(),
        xdp,
    };
    let options = Options {
        pin: pin(&args.pin, global),
        interfaces: args.iface.iter().map(interface).collect(),
        media: configured(global).map_or(DEFAULT_MEDIA, |config| config.media.ports),
        max_plans: PLANS_DEFAULT,
        max_flows: FLOWS_DEFAULT,
        segments: Vec::new(),
        transparent: false,
    };
    let (fastpath, _maps) = Fastpath::start(&options).map_err(|error| failure(&error))?;
    if !out.json {
        if let Some(sentence) = fastpath.rebuilt() {
            out.text(&format!("{sentence}\n"))?;
        }
        for attached in fastpath.attached() {
            for remark in attached.degraded.iter().chain(&attached.notes) {
                out.text(&format!("{}: {remark}\n", attached.name))?;
            }
        }
    }
    status(&options.pin, out)
}

fn unload(pin: &Path, out: Output) -> Result<(), Failure> {
    let interfaces = fastpath::unload(pin).map_err(|error| failure(&error))?;
    let answer = serde_json::json!({ "unloaded": interfaces });
    out.answer(&answer, |_| {
        format!("taken off {}\n", interfaces.join(", "))
    })
}

fn status(pin: &Path, out: Output) -> Result<(), Failure> {
    let interfaces = fastpath::status(pin).map_err(|error| failure(&error))?;
    let interfaces: Vec<FastpathInterface> = interfaces
        .into_iter()
        .map(|interface| FastpathInterface {
            attached: interface.mode.is_some(),
            mode: interface.mode.map_or("", Mode::name).to_owned(),
            name: interface.name,
            degraded: Vec::new(),
        })
        .collect();
    out.answer(&serde_json::json!({ "interfaces": interfaces }), |_| {
        let rows = interfaces.iter().map(|interface| {
            let mode = if interface.attached {
                interface.mode.as_str()
            } else {
                "down"
            };
            vec![Cell::new(&interface.name), state(mode)]
        });
        table(&["interface", "fast path"], rows.collect())
    })
}

fn failure(error: &fastpath::Error) -> ApiError {
    ApiError::new(
        "fastpath",
        error.to_string(),
        error.remedy().unwrap_or_default(),
    )
}

/// `keepline stats --json`.
#[derive(Debug, PartialEq, Serialize)]
struct Stats {
    verdicts: Verdicts,
    reasons: BTreeMap<&'static str, u64>,
    interfaces: Vec<InterfaceStats>,
}

#[derive(Debug, PartialEq, Serialize)]
struct InterfaceStats {
    name: String,
    reasons: BTreeMap<&'static str, u64>,
}

impl Stats {
    fn of(counters: &[InterfaceCounters]) -> Self {
        let mut stats = Self {
            verdicts: Verdicts::default(),
            reasons: BTreeMap::new(),
            interfaces: Vec::new(),
        };
        for interface in counters {
            let mut reasons = BTreeMap::new();
            for (&reason, &packets) in Reason::ALL.iter().zip(&interface.packets) {
                let total = match reason.verdict() {
                    Verdict::Tx => &mut stats.verdicts.tx,
                    Verdict::Redirect => &mut stats.verdicts.redirect,
                    Verdict::Pass => &mut stats.verdicts.pass,
                    Verdict::Drop => &mut stats.verdicts.drop,
                };
                *total += packets;
                *stats.reasons.entry(reason.name()).or_default() += packets;
                reasons.insert(reason.name(), packets);
            }
            stats.interfaces.push(InterfaceStats {
                name: interface.interface.clone(),
                reasons,
            });
        }
        stats
    }
}

fn human(stats: &Stats) -> String {
    let rows = stats.interfaces.iter().flat_map(|interface| {
        let seen = Reason::ALL.iter().filter_map(|reason| {
            let packets = interface
                .reasons
                .get(reason.name())
                .copied()
                .unwrap_or_default();
            (packets > 0).then(|| {
                let (verdict, reason) = (reason.verdict().name(), reason.name());
                [
                    interface.name.as_str(),
                    verdict,
                    reason,
                    &packets.to_string(),
                ]
                .map(Cell::new)
                .into()
            })
        });
        seen.collect::<Vec<_>>()
    });
    table(
        &["interface", "verdict", "reason", "packets"],
        rows.collect(),
    )
}

/// What the daemon counted of signalling, in the same format.
fn signalling(status: &Status) -> String {
    let mut out = String::from(
        "# HELP keepline_signalling_total What happened to SIP messages, by counter.\n\
         # TYPE keepline_signalling_total counter\n",
    );
    for (counter, count) in &status.signalling {
        let _ = writeln!(
            out,
            "keepline_signalling_total{{counter=\"{counter}\"}} {count}"
        );
    }
    out
}

/// The Prometheus text format, version 0.0.4.
fn exposition(counters: &[InterfaceCounters]) -> String {
    let mut out =
        "# HELP keepline_fastpath_packets_total Packets by interface, verdict and reason.\n\
                   # TYPE keepline_fastpath_packets_total counter\n"
            .to_owned();
    for interface in counters {
        for (&reason, packets) in Reason::ALL.iter().zip(&interface.packets) {
            let _ = writeln!(
                out,
                "keepline_fastpath_packets_total{{interface=\"{}\",verdict=\"{}\",reason=\"{}\"}} {packets}",
                label(&interface.interface),
                reason.verdict().name(),
                reason.name(),
            );
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters() -> Vec<InterfaceCounters> {
        let packets = |n: u64| (0..Reason::COUNT as u64).map(|i| i * n).collect();
        let of = |name: &str, n| InterfaceCounters {
            interface: name.to_owned(),
            ifindex: 1,
            packets: packets(n),
        };
        vec![of("lan0", 1), of("wan0", 10)]
    }

    #[test]
    fn totals_are_the_sums_over_interfaces() {
        let stats = Stats::of(&counters());
        let total: u64 = counters().iter().flat_map(|c| &c.packets).sum();
        let Verdicts {
            tx,
            redirect,
            pass,
            drop,
        } = stats.verdicts;
        assert_eq!(tx + redirect + pass + drop, total);
        assert_eq!(stats.reasons.values().sum::<u64>(), total);
        assert_eq!(stats.reasons["stun_answered"], 11);
        assert_eq!(stats.interfaces[1].reasons["stun_answered"], 10);
    }

    #[test]
    fn exposition_has_a_line_per_interface_and_reason() {
        let text = exposition(&counters());
        assert_eq!(text.lines().count(), 2 + 2 * Reason::COUNT);
        let line = "keepline_fastpath_packets_total{interface=\"wan0\",verdict=\"tx\",reason=\"stun_answered\"} 10";
        assert!(text.lines().any(|l| l == line), "{text}");
    }
}
