//! `keepline probe options|stun`.

use super::{
    args::{Global, ProbeCommand},
    output::{Failure, Output},
};
use crate::{
    api::model::ApiError,
    probe::{self, Answer, Error},
};

pub(super) async fn probe(command: &ProbeCommand, global: &Global) -> Result<(), Failure> {
    let answer = match command {
        ProbeCommand::Options(args) => probe::options(args.server, args.from, args.timeout).await,
        ProbeCommand::Stun(args) => probe::stun(args.server, args.from, args.timeout).await,
    };
    let out = Output { json: global.json };
    out.answer(&answer.map_err(|error| failure(&error))?, human)
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
