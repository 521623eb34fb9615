//! Transactions by their letters: RFC 3261 section 17, RFC 6026.

mod client;
mod server;
#[path = "../support/mod.rs"]
mod support;

use keepline_engine::{
    sip::{Message, Method},
    transaction::{
        ClientId, ClientKey, Incoming, Limits, Output, Received, ServerId, Transactions,
    },
};
use support::{LISTENER, addr, at, ms, parse, request, response};

/// What went out, each with its millisecond.
pub(crate) type Sent = Vec<(u64, Message)>;
/// What the user was told, each with its millisecond.
pub(crate) type Told = Vec<(u64, Output)>;

/// Everything that was sent, with its time, until nothing more would be.
pub(crate) fn run(machine: &mut Transactions) -> (Sent, Told) {
    run_until(machine, u64::MAX)
}

pub(crate) fn run_until(machine: &mut Transactions, end: u64) -> (Sent, Told) {
    let (mut sent, mut told, mut now) = (Vec::new(), Vec::new(), None);
    loop {
        while let Some(output) = machine.poll_output() {
            match output {
                Output::Send { bytes, .. } => sent.push((now.unwrap_or(0), parse(bytes))),
                Output::Retransmitted(_) => {}
                other => told.push((now.unwrap_or(0), other)),
            }
        }
        let Some((due, _)) = machine.poll_timeout().filter(|(due, _)| ms(*due) <= end) else {
            return (sent, told);
        };
        now = Some(ms(due));
        machine.handle_timeout(at(ms(due)));
    }
}

pub(crate) fn times(sent: &[(u64, Message)]) -> Vec<u64> {
    sent.iter().map(|(time, _)| *time).collect()
}

pub(crate) fn machine() -> Transactions {
    Transactions::new(Limits::default())
}

pub(crate) fn start(machine: &mut Transactions, method: &str) -> (ClientId, Message) {
    let sent = request(method, "z9hG4bKours");
    let msg = parse(&sent);
    let key = ClientKey {
        branch: b"z9hG4bKours".to_vec(),
        sent_by: b"192.0.2.1:5060".to_vec(),
        method: Method::of(method.as_bytes()),
    };
    let id = machine.start(
        at(0),
        key,
        sent.into_bytes(),
        addr("192.0.2.4:5060"),
        LISTENER,
    );
    (id.expect("room"), msg)
}

pub(crate) fn answer(
    machine: &mut Transactions,
    time: u64,
    to: &Message,
    code: u16,
) -> Option<Received> {
    let msg = parse(response(to, code));
    machine
        .response(at(time), &msg, addr("192.0.2.4:5060"))
        .map(|(_, received)| received)
}

pub(crate) fn incoming(machine: &mut Transactions, time: u64, text: &str) -> Incoming {
    machine.request(at(time), &parse(text), addr("192.0.2.1:40000"), LISTENER)
}

pub(crate) fn new_server(machine: &mut Transactions, text: &str) -> ServerId {
    match incoming(machine, 0, text) {
        Incoming::New(id) => id,
        other => panic!("{other:?}"),
    }
}
