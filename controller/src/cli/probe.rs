//! `keepline probe options|stun|dhcp`.

use super::{
    args::{DhcpArgs, Global, ProbeCommand},
    output::{Failure, Output},
};
use crate::{
    api::model::ApiError,
    config,
    probe::{self, Answer, DhcpQuestion, Error, Outcome, Report},
};

pub(super) async fn probe(command: &ProbeCommand, global: &Global) -> Result<(), Failure> {
    let answer = match command {
        ProbeCommand::Dhcp(args) => return dhcp(args, global).await,
        ProbeCommand::Options(args) => probe::options(args.server, args.from, args.timeout).await,
        ProbeCommand::Stun(args) => probe::stun(args.server, args.from, args.timeout).await,
    };
    let out = Output { json: global.json };
    out.answer(&answer.map_err(|error| failure(&error))?, human)
}

/// What makes a silent server speak (MX9, MX10).
const SILENT: &str = "a server that is responsible for the network answers at once; dnsmasq: \
    add `dhcp-authoritative`; kea: set `\"authoritative\": true`; both must listen on that \
    network, or a relay must lead there: see the README, \"Prove your DHCP server answers\"";

async fn dhcp(args: &DhcpArgs, global: &Global) -> Result<(), Failure> {
    let question = DhcpQuestion {
        interface: args.interface.clone(),
        tunnel: tunnel_on(args, global),
        request: args.request,
        count: args.count,
        limit: args.timeout,
    };
    let report = probe::dhcp(&question).await.map_err(|error| {
        let message = format!("cannot ask out of {}: {error}", args.interface);
        let hint = match error.kind() {
            std::io::ErrorKind::PermissionDenied => "run as root, or with CAP_NET_RAW",
            _ => "`ip link` lists the interfaces; it must exist, be up, and carry Ethernet",
        };
        ApiError::new("interface", message, hint)
    })?;
    let out = Output { json: global.json };
    if report.outcome == Outcome::Silence {
        if !out.json {
            out.text(&dhcp_human(&report))?;
        }
        let message = format!(
            "silence: no DHCP server answered on {} within {:?}",
            report.interface, args.timeout
        );
        return Err(Failure::Failed(ApiError::new("silence", message, SILENT)));
    }
    out.answer(&report, dhcp_human)
}

/// The configured tunnel on this interface, so that its own client asks; else the interface.
fn tunnel_on(args: &DhcpArgs, global: &Global) -> String {
    let loaded = config::load(&global.config, &config::Machine::here());
    let on = |tunnel: &&config::model::Tunnel| tunnel.interface == args.interface;
    let tunnel = loaded.ok().and_then(|loaded| {
        loaded
            .config
            .tunnels
            .iter()
            .find(on)
            .map(|t| t.name.clone())
    });
    tunnel.unwrap_or_else(|| args.interface.clone())
}

fn dhcp_human(report: &Report) -> String {
    let mut text = String::new();
    for (number, probe) in report.probes.iter().enumerate() {
        if probe.answers.is_empty() {
            text += &format!("{}: silence\n", number + 1);
        }
        for answer in &probe.answers {
            let word = match answer.outcome {
                Outcome::Ack => "ACK",
                Outcome::Nak => "NAK",
                Outcome::Silence => "silence",
            };
            let said = answer.text.as_ref().map(|text| format!(" \"{text}\""));
            text += &format!(
                "{}: {word} from {} in {:.1} ms{}\n",
                number + 1,
                answer.server,
                answer.rtt_ms,
                said.unwrap_or_default(),
            );
        }
    }
    if report.outcome == Outcome::Ack {
        text += "an ACK gives this client a lease; an address outside of the served network \
                 draws a NAK and takes none\n";
    }
    text
}

fn human(answer: &Answer) -> String {
    format!(
        "{}: {} in {:.1} ms ({} transmission{}, from {})\n",
        answer.server,
        answer.answer,
        answer.rtt_ms,
        answer.transmissions,
        if answer.transmissions == 1 { "" } else { "s" },
        answer.from,
    )
}

fn failure(error: &Error) -> ApiError {
    let (code, hint) = match error {
        Error::Silence { .. } => (
            "silence",
            "is it running, and does a firewall let UDP through?",
        ),
        Error::Socket { .. } => (
            "unreachable",
            "is it running on that port, and is there a route?",
        ),
        Error::Random(_) => ("random", ""),
    };
    ApiError::new(code, error.to_string(), hint)
}
