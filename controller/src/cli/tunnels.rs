//! `keepline tunnels`, and what `status` says of them.

use std::fmt::Write as _;

use comfy_table::Cell;

use super::output::{label, state, table};
use crate::api::model::{Status, Tunnel, Tunnels};

pub(super) fn tunnels(answer: &Tunnels) -> String {
    table(
        &[
            "segment",
            "",
            "tunnel",
            "interface",
            "state",
            "last frame",
            "next probe",
            "reason",
        ],
        answer.tunnels.iter().map(row).collect(),
    )
}

fn row(tunnel: &Tunnel) -> Vec<Cell> {
    let next = match (tunnel.returns_in_s, tunnel.next_probe_s) {
        (Some(left), _) => format!("back in {left} s"),
        (None, Some(left)) => format!("in {left} s"),
        (None, None) => String::new(),
    };
    vec![
        Cell::new(&tunnel.segment),
        Cell::new(if tunnel.active { "*" } else { "" }),
        Cell::new(&tunnel.name),
        Cell::new(&tunnel.interface),
        state(&tunnel.state),
        Cell::new(format!("{} s ago", tunnel.last_inbound_s)),
        Cell::new(next),
        Cell::new(tunnel.reason.replace('_', " ")),
    ]
}

/// Of the status screen; nothing where no tunnel is configured.
pub(super) fn section(status: &Status) -> String {
    if status.tunnels.is_empty() {
        return String::new();
    }
    let answer = Tunnels {
        tunnels: status.tunnels.clone(),
        segments: Vec::new(),
    };
    tunnels(&answer) + "\n"
}

/// What `status --check` finds wrong.
pub(super) fn unhealthy(status: &Status) -> impl Iterator<Item = String> {
    status.tunnels.iter().filter_map(|tunnel| {
        let wrong = matches!(tunnel.state.as_str(), "down" | "unproven");
        wrong.then(|| {
            format!(
                "tunnel {} is {}: {}",
                tunnel.name, tunnel.state, tunnel.reason
            )
        })
    })
}

/// Of `stats --prometheus`; nothing where no tunnel is configured.
pub(super) fn exposition(answer: &Tunnels) -> String {
    let mut out = String::new();
    let mut family = |name: &str, kind: &str, help: &str, rows: Vec<(String, u64)>| {
        if !rows.is_empty() {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        }
        for (labels, value) in rows {
            let _ = writeln!(out, "{name}{{{labels}}} {value}");
        }
    };
    let each = |value: fn(&Tunnel) -> bool| {
        let tunnels = answer.tunnels.iter();
        let row = |t: &Tunnel| {
            let name = label(&t.name);
            (format!("tunnel=\"{name}\""), u64::from(value(t)))
        };
        tunnels.map(row).collect()
    };
    family(
        "keepline_tunnel_up",
        "gauge",
        "0 for a tunnel that is called down.",
        each(|tunnel| tunnel.state != "down"),
    );
    family(
        "keepline_tunnel_active",
        "gauge",
        "1 for the tunnel that its segment uses.",
        each(|tunnel| tunnel.active),
    );
    family(
        "keepline_tunnel_proven",
        "gauge",
        "1 for a tunnel that has answered a probe.",
        each(|tunnel| tunnel.proven),
    );
    let switches = answer.segments.iter().map(|segment| {
        let name = label(&segment.interface);
        let labels = format!("kind=\"segment\",name=\"{name}\"");
        (labels, segment.switches)
    });
    family(
        "keepline_failovers_total",
        "counter",
        "Times that something was left for another.",
        switches.collect(),
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::model::Segment;

    fn answer() -> Tunnels {
        let tunnel = |name: &str, state: &str, active| Tunnel {
            name: name.to_owned(),
            interface: "vxlan10".to_owned(),
            state: state.to_owned(),
            reason: "probes_unanswered".to_owned(),
            segment: "voice0".to_owned(),
            active,
            proven: true,
            last_inbound_s: 61,
            returns_in_s: (!active).then_some(17),
            next_probe_s: Some(3),
            ..Tunnel::default()
        };
        Tunnels {
            tunnels: vec![tunnel("hq-a", "down", false), tunnel("hq-b", "up", true)],
            segments: vec![Segment {
                interface: "voice0".to_owned(),
                active: Some("hq-b".to_owned()),
                switches: 1,
            }],
        }
    }

    #[test]
    fn mx7_the_table_says_which_is_used_and_why() {
        let text = tunnels(&answer());
        let line = |name: &str| {
            let line = text.lines().find(|line| line.contains(name));
            line.unwrap_or_default().to_owned()
        };
        let primary = line("hq-a");
        for part in [
            "voice0",
            "down",
            "61 s ago",
            "back in 17 s",
            "probes unanswered",
        ] {
            assert!(primary.contains(part), "no {part} in {primary}");
        }
        assert!(line("hq-b").contains('*') && line("hq-b").contains("in 3 s"));
    }

    #[test]
    fn metrics_have_a_line_per_tunnel_and_none_without_tunnels() {
        let text = exposition(&answer());
        for line in [
            "keepline_tunnel_up{tunnel=\"hq-a\"} 0",
            "keepline_tunnel_up{tunnel=\"hq-b\"} 1",
            "keepline_tunnel_active{tunnel=\"hq-b\"} 1",
            "keepline_tunnel_proven{tunnel=\"hq-a\"} 1",
            "keepline_failovers_total{kind=\"segment\",name=\"voice0\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "no {line} in {text}");
        }
        assert_eq!(exposition(&Tunnels::default()), "");
    }

    #[test]
    fn status_check_names_a_tunnel_that_is_down() {
        let status = Status {
            tunnels: answer().tunnels,
            ..Status::default()
        };
        let wrong: Vec<String> = unhealthy(&status).collect();
        assert_eq!(wrong, ["tunnel hq-a is down: probes_unanswered"]);
        assert!(section(&Status::default()).is_empty());
    }
}
