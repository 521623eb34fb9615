//! Transactions by their letters: RFC 3261 section 17, RFC 6026.

mod support;

use keepline_engine::{
    sip::{Message, Method, cancel_for},
    transaction::{
        AnyId, ClientId, ClientKey, Incoming, Limits, Output, Reason, Received, ServerId,
        Transactions,
    },
};
use support::{LISTENER, addr, at, ms, parse, request, response};

/// What went out, each with its millisecond.
type Sent = Vec<(u64, Message)>;
/// What the user was told, each with its millisecond.
type Told = Vec<(u64, Output)>;

/// Everything that was sent, with its time, until nothing more would be.
fn run(machine: &mut Transactions) -> (Sent, Told) {
    run_until(machine, u64::MAX)
}

fn run_until(machine: &mut Transactions, end: u64) -> (Sent, Told) {
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

fn times(sent: &[(u64, Message)]) -> Vec<u64> {
    sent.iter().map(|(time, _)| *time).collect()
}

fn machine() -> Transactions {
    Transactions::new(Limits::default())
}

fn start(machine: &mut Transactions, method: &str) -> (ClientId, Message) {
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

fn answer(machine: &mut Transactions, time: u64, to: &Message, code: u16) -> Option<Received> {
    let msg = parse(response(to, code));
    machine
        .response(at(time), &msg, addr("192.0.2.4:5060"))
        .map(|(_, received)| received)
}

fn incoming(machine: &mut Transactions, time: u64, text: &str) -> Incoming {
    machine.request(at(time), &parse(text), addr("192.0.2.1:40000"), LISTENER)
}

fn new_server(machine: &mut Transactions, text: &str) -> ServerId {
    match incoming(machine, 0, text) {
        Incoming::New(id) => id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_unanswered_invite_follows_timers_a_and_b() {
    let mut machine = machine();
    let (id, _) = start(&mut machine, "INVITE");
    assert_eq!(
        machine.poll_timeout().map(|(_, reason)| reason),
        Some(Reason::Timer('A'))
    );
    let (sent, told) = run(&mut machine);
    assert_eq!(times(&sent), [0, 500, 1500, 3500, 7500, 15500, 31500]);
    assert_eq!(
        told,
        [
            (32_000, Output::TimedOut(id)),
            (32_000, Output::Ended(AnyId::Client(id)))
        ]
    );
    assert_eq!(machine.counters().bytes, 0);
}

#[test]
fn any_other_request_follows_timers_e_and_f() {
    let mut machine = machine();
    start(&mut machine, "OPTIONS");
    let (sent, told) = run(&mut machine);
    let schedule = [
        0, 500, 1500, 3500, 7500, 11500, 15500, 19500, 23500, 27500, 31500,
    ];
    assert_eq!(times(&sent), schedule);
    assert!(matches!(
        told[..],
        [(32_000, Output::TimedOut(_)), (32_000, Output::Ended(_))]
    ));
}

#[test]
fn a_provisional_response_slows_timer_e_to_t2() {
    let mut machine = machine();
    let (_, msg) = start(&mut machine, "OPTIONS");
    assert_eq!(
        answer(&mut machine, 100, &msg, 100),
        Some(Received::Provisional)
    );
    let (sent, _) = run(&mut machine);
    assert_eq!(
        times(&sent),
        [0, 500, 4500, 8500, 12500, 16500, 20500, 24500, 28500]
    );
}

#[test]
fn a_driver_that_wakes_late_keeps_the_schedule() {
    let mut machine = machine();
    start(&mut machine, "INVITE");
    machine.handle_timeout(at(590));
    assert_eq!(
        machine.poll_timeout(),
        Some((at(1500).mono, Reason::Timer('A')))
    );
    // Slept through several: one retransmission, not a burst.
    while machine.poll_output().is_some() {}
    machine.handle_timeout(at(9000));
    assert!(matches!(machine.poll_output(), Some(Output::Send { .. })));
    assert!(matches!(
        machine.poll_output(),
        Some(Output::Retransmitted(_))
    ));
    assert_eq!(machine.poll_output(), None);
}

#[test]
fn a_ringing_invite_waits_without_end() {
    let mut machine = machine();
    let (_, msg) = start(&mut machine, "INVITE");
    assert_eq!(
        answer(&mut machine, 400, &msg, 180),
        Some(Received::Provisional)
    );
    assert_eq!(machine.poll_timeout(), None);
    assert_eq!(
        answer(&mut machine, 400_000, &msg, 180),
        Some(Received::Provisional)
    );
    assert_eq!(
        answer(&mut machine, 500_000, &msg, 200),
        Some(Received::Final)
    );
    assert_eq!(
        machine.poll_timeout(),
        Some((at(532_000).mono, Reason::Timer('M')))
    );
}

#[test]
fn every_2xx_to_an_invite_is_reported_and_none_acknowledged() {
    let mut machine = machine();
    let (id, msg) = start(&mut machine, "INVITE");
    for time in [100, 600, 31_000] {
        assert_eq!(answer(&mut machine, time, &msg, 200), Some(Received::Final));
    }
    assert_eq!(
        answer(&mut machine, 31_100, &msg, 180),
        Some(Received::Retransmitted)
    );
    let (sent, told) = run(&mut machine);
    assert_eq!(sent.len(), 1, "only the INVITE");
    assert_eq!(told, [(32_100, Output::Ended(AnyId::Client(id)))]);
    assert_eq!(answer(&mut machine, 33_000, &msg, 200), None);
}

#[test]
fn other_final_responses_to_an_invite_are_acknowledged_by_the_machine() {
    let mut machine = machine();
    let (id, msg) = start(&mut machine, "INVITE");
    assert_eq!(answer(&mut machine, 100, &msg, 486), Some(Received::Final));
    assert_eq!(
        answer(&mut machine, 600, &msg, 486),
        Some(Received::Retransmitted)
    );
    let (sent, told) = run(&mut machine);
    let [(_, invite), (_, ack), (_, again)] = &sent[..] else {
        panic!("{sent:?}")
    };
    assert_eq!(ack.bytes(), again.bytes());
    assert_eq!(
        std::str::from_utf8(ack.bytes()).expect("text"),
        "ACK sip:bob@192.0.2.4 SIP/2.0\r\n\
         Via: SIP/2.0/UDP 192.0.2.1:5060;rport;branch=z9hG4bKours\r\n\
         Route: <sip:192.0.2.9;lr>\r\n\
         Max-Forwards: 70\r\n\
         From: \"Alice\" <sip:alice@atlanta.example>;tag=9fxced76sl\r\n\
         To: <sip:bob@biloxi.example>;tag=314159\r\n\
         Call-ID: 3848276298220188511@192.0.2.1\r\n\
         CSeq: 7 ACK\r\n\
         Content-Length: 0\r\n\r\n"
    );
    assert_eq!(invite.branch(), ack.branch());
    assert_eq!(told, [(32_100, Output::Ended(AnyId::Client(id)))]);
    // A 2xx behind it is the user's to acknowledge and to end.
    let (_, msg) = start(&mut machine, "INVITE");
    assert_eq!(answer(&mut machine, 100, &msg, 503), Some(Received::Final));
    assert_eq!(answer(&mut machine, 200, &msg, 200), Some(Received::Final));
}

#[test]
fn a_final_response_ends_any_other_request_after_timer_k() {
    let mut machine = machine();
    let (id, msg) = start(&mut machine, "BYE");
    assert_eq!(answer(&mut machine, 100, &msg, 200), Some(Received::Final));
    assert_eq!(
        answer(&mut machine, 700, &msg, 200),
        Some(Received::Retransmitted)
    );
    let (sent, told) = run(&mut machine);
    assert_eq!(times(&sent), [0]);
    assert_eq!(told, [(5100, Output::Ended(AnyId::Client(id)))]);
}

#[test]
fn responses_match_by_branch_method_and_sent_by_however_spelled() {
    let mut machine = machine();
    let (id, msg) = start(&mut machine, "OPTIONS");
    let text = String::from_utf8(response(&msg, 200)).expect("text");
    let mut try_with = |from: &str, to: &str| {
        let msg = parse(text.replace(from, to));
        machine
            .response(at(10), &msg, addr("192.0.2.77:9"))
            .map(|(id, _)| id)
    };
    assert_eq!(try_with("z9hG4bKours", "z9hG4bKother"), None);
    assert_eq!(try_with("192.0.2.1:5060", "192.0.2.2:5060"), None);
    assert_eq!(try_with("CSeq: 7 OPTIONS", "CSeq: 7 BYE"), None);
    // Compact, and the default port left out: still ours (case S1).
    assert_eq!(
        try_with(
            "Via: SIP/2.0/UDP 192.0.2.1:5060",
            "v: SIP/2.0/UDP 192.0.2.1 "
        ),
        Some(id)
    );
}

#[test]
fn a_hunted_request_is_silent_but_hears() {
    let mut machine = machine();
    let (id, msg) = start(&mut machine, "INVITE");
    let _ = run_until(&mut machine, 1500);
    machine.stop_retransmitting(at(1600), id);
    let (sent, _) = run_until(&mut machine, 20_000);
    assert!(sent.is_empty(), "{sent:?}");
    // Late: a 180 makes it cancellable, and starts the last 64·T1.
    assert_eq!(
        answer(&mut machine, 20_000, &msg, 180),
        Some(Received::Provisional)
    );
    let cancel = machine.cancel_bytes(id).expect("proceeding");
    assert_eq!(
        (cancel.to, cancel.request),
        (addr("192.0.2.4:5060"), msg.bytes())
    );
    let (sent, told) = run(&mut machine);
    assert!(sent.is_empty());
    assert!(matches!(
        told[..],
        [(52_000, Output::TimedOut(_)), (52_000, Output::Ended(_))]
    ));
}

#[test]
fn a_ringing_request_that_is_abandoned_ends() {
    let mut machine = machine();
    let (id, msg) = start(&mut machine, "INVITE");
    assert_eq!(
        answer(&mut machine, 100, &msg, 183),
        Some(Received::Provisional)
    );
    machine.stop_retransmitting(at(60_000), id);
    assert_eq!(
        answer(&mut machine, 70_000, &msg, 487),
        Some(Received::Final)
    );
    let (sent, told) = run(&mut machine);
    assert_eq!(
        sent.last().and_then(|(_, msg)| msg.method()),
        Some(Method::Ack)
    );
    assert!(
        matches!(told[..], [(102_000, Output::Ended(_))]),
        "{told:?}"
    );
}

#[test]
fn cancel_waits_for_a_provisional_response() {
    let mut machine = machine();
    let (id, msg) = start(&mut machine, "INVITE");
    assert_eq!(machine.cancel_bytes(id), None);
    assert_eq!(
        answer(&mut machine, 10, &msg, 100),
        Some(Received::Provisional)
    );
    let request = machine
        .cancel_bytes(id)
        .expect("proceeding")
        .request
        .to_vec();
    let cancel = parse(cancel_for(&parse(&request)));
    assert_eq!(cancel.method(), Some(Method::Cancel));
    assert_eq!(cancel.branch(), msg.branch());
    assert_eq!(
        cancel.cseq().map(|cseq| (cseq.number, cseq.method)),
        Some((7, Method::Cancel))
    );
    assert_eq!(answer(&mut machine, 20, &msg, 200), Some(Received::Final));
    assert_eq!(machine.cancel_bytes(id), None);
}

#[test]
fn a_server_repeats_its_last_response_only_when_asked_again() {
    let mut machine = machine();
    let text = request("OPTIONS", "z9hG4bKtheirs");
    let id = new_server(&mut machine, &text);
    assert_eq!(incoming(&mut machine, 100, &text), Incoming::Absorbed);
    assert_eq!(machine.poll_output(), None, "nothing to repeat yet");
    machine.respond(at(200), id, 200, response(&parse(&text), 200));
    assert_eq!(incoming(&mut machine, 500, &text), Incoming::Absorbed);
    machine.respond(at(600), id, 500, response(&parse(&text), 500));
    let (sent, told) = run(&mut machine);
    let codes: Vec<_> = sent.iter().map(|(_, msg)| msg.status()).collect();
    assert_eq!(
        codes,
        [Some(200), Some(200)],
        "the second final response is dropped"
    );
    assert_eq!(told, [(32_200, Output::Ended(AnyId::Server(id)))]);
    assert_eq!(machine.counters().absorbed, 2);
}

#[test]
fn a_refused_invite_repeats_by_timer_g_until_its_ack() {
    let mut machine = machine();
    let text = request("INVITE", "z9hG4bKtheirs");
    let id = new_server(&mut machine, &text);
    machine.respond(at(0), id, 486, response(&parse(&text), 486));
    let (sent, _) = run_until(&mut machine, 8000);
    assert_eq!(times(&sent), [0, 500, 1500, 3500, 7500]);
    let ack = request("ACK", "z9hG4bKtheirs");
    assert_eq!(incoming(&mut machine, 8000, &ack), Incoming::Absorbed);
    assert_eq!(incoming(&mut machine, 8100, &ack), Incoming::Absorbed);
    let (sent, told) = run(&mut machine);
    assert!(sent.is_empty());
    assert_eq!(told, [(13_000, Output::Ended(AnyId::Server(id)))]);
}

#[test]
fn a_refused_invite_without_ack_ends_with_timer_h() {
    let mut machine = machine();
    let text = request("INVITE", "z9hG4bKtheirs");
    let id = new_server(&mut machine, &text);
    machine.respond(at(0), id, 503, response(&parse(&text), 503));
    let (sent, told) = run(&mut machine);
    assert_eq!(
        times(&sent),
        [
            0, 500, 1500, 3500, 7500, 11500, 15500, 19500, 23500, 27500, 31500
        ]
    );
    assert_eq!(told, [(32_000, Output::Ended(AnyId::Server(id)))]);
}

#[test]
fn an_accepted_invite_passes_each_2xx_and_absorbs_the_request() {
    let mut machine = machine();
    let text = request("INVITE", "z9hG4bKtheirs");
    let msg = parse(&text);
    let id = new_server(&mut machine, &text);
    machine.respond(at(0), id, 100, response(&msg, 100));
    machine.respond(at(10), id, 200, response(&msg, 200));
    machine.respond(at(510), id, 200, response(&msg, 200));
    machine.respond(at(520), id, 486, response(&msg, 486));
    machine.respond(at(530), id, 180, response(&msg, 180));
    assert_eq!(incoming(&mut machine, 600, &text), Incoming::Absorbed);
    // A peer that reuses the branch for the ACK of a 2xx is understood.
    assert_eq!(
        incoming(&mut machine, 700, &request("ACK", "z9hG4bKtheirs")),
        Incoming::Ack2xx
    );
    let (sent, told) = run(&mut machine);
    let codes: Vec<_> = sent.iter().filter_map(|(_, msg)| msg.status()).collect();
    assert_eq!(codes, [100, 200, 200]);
    assert_eq!(told, [(32_010, Output::Ended(AnyId::Server(id)))]);
    assert_eq!(
        incoming(&mut machine, 40_000, &request("ACK", "z9hG4bKnew")),
        Incoming::Ack2xx
    );
}

#[test]
fn cancel_is_reported_with_its_invite() {
    let mut machine = machine();
    let invite = new_server(&mut machine, &request("INVITE", "z9hG4bKtheirs"));
    let cancel = request("CANCEL", "z9hG4bKtheirs");
    let Incoming::Cancel { invite: found, id } = incoming(&mut machine, 10, &cancel) else {
        panic!("no CANCEL");
    };
    assert_eq!(found, Some(invite));
    machine.respond(at(10), id, 200, response(&parse(&cancel), 200));
    assert_eq!(incoming(&mut machine, 510, &cancel), Incoming::Absorbed);
    let stray = request("CANCEL", "z9hG4bKstray");
    assert!(matches!(
        incoming(&mut machine, 20, &stray),
        Incoming::Cancel { invite: None, .. }
    ));
}

#[test]
fn a_request_nobody_answers_is_forgotten_after_64_t1() {
    let mut machine = machine();
    let id = new_server(&mut machine, &request("MESSAGE", "z9hG4bKtheirs"));
    let (_, told) = run(&mut machine);
    assert_eq!(told, [(32_000, Output::Ended(AnyId::Server(id)))]);
}

#[test]
fn clients_of_rfc_2543_are_told_apart_without_a_branch() {
    let mut machine = machine();
    let old = |method: &str| request(method, "1").replace(";branch=1", "");
    let id = new_server(&mut machine, &old("INVITE"));
    assert_eq!(
        incoming(&mut machine, 1, &old("INVITE")),
        Incoming::Absorbed
    );
    machine.respond(at(2), id, 404, response(&parse(old("INVITE")), 404));
    let ack = old("ACK").replace("biloxi.example>", "biloxi.example>;tag=314159");
    assert_eq!(incoming(&mut machine, 3, &ack), Incoming::Absorbed);
    let next = old("INVITE").replace("CSeq: 7", "CSeq: 8");
    assert!(matches!(incoming(&mut machine, 4, &next), Incoming::New(_)));
}

#[test]
fn case_s8_answers_go_to_the_real_source() {
    let mut machine = machine();
    for (via, expected) in [
        ("192.0.2.1:5060;rport", "192.0.2.1:40000"),
        ("10.99.99.99:5078", "192.0.2.1:40000"),
        ("phone.example", "192.0.2.1:40000"),
        // Without rport and without a NAT the port of the Via is meant.
        ("192.0.2.1:5078", "192.0.2.1:5078"),
        ("192.0.2.1", "192.0.2.1:5060"),
    ] {
        let text = request("OPTIONS", &format!("z9hG4bK{}", via.len()))
            .replace("192.0.2.1:5060;rport", via);
        let id = new_server(&mut machine, &text);
        machine.respond(at(0), id, 200, response(&parse(&text), 200));
        let Some(Output::Send { to, .. }) = machine.poll_output() else {
            panic!("nothing sent")
        };
        assert_eq!(to, addr(expected), "{via}");
    }
}

#[test]
fn the_table_is_bounded_and_says_so() {
    let limits = Limits {
        servers: 2,
        clients: 1,
        ..Limits::default()
    };
    let mut machine = Transactions::new(limits);
    for branch in ["z9hG4bK1", "z9hG4bK2"] {
        new_server(&mut machine, &request("OPTIONS", branch));
    }
    let third = request("OPTIONS", "z9hG4bK3");
    assert_eq!(incoming(&mut machine, 0, &third), Incoming::Overloaded);
    let (id, _) = start(&mut machine, "OPTIONS");
    let key = ClientKey {
        branch: b"z9hG4bKmore".to_vec(),
        sent_by: b"192.0.2.1".to_vec(),
        method: Method::Options,
    };
    let to = addr("192.0.2.4:5060");
    assert_eq!(
        machine.start(at(0), key, b"OPTIONS".to_vec(), to, LISTENER),
        None
    );
    assert_eq!(machine.counters().refused, 2);
    let (_, told) = run(&mut machine);
    assert!(told.contains(&(32_000, Output::Ended(AnyId::Client(id)))));
    assert_eq!(
        machine.counters(),
        keepline_engine::transaction::Counters {
            refused: 2,
            retransmitted: 10,
            ..Default::default()
        }
    );
    assert!(matches!(
        incoming(&mut machine, 33_000, &third),
        Incoming::New(_)
    ));
    // And by bytes.
    let mut machine = Transactions::new(Limits {
        bytes: 100,
        ..Limits::default()
    });
    let id = new_server(&mut machine, &third);
    machine.respond(at(0), id, 200, response(&parse(&third), 200));
    let fourth = request("OPTIONS", "z9hG4bK4");
    assert_eq!(incoming(&mut machine, 0, &fourth), Incoming::Overloaded);
    assert!(matches!(
        run(&mut machine).1[..],
        [(32_000, Output::Ended(_))]
    ));
    assert!(matches!(
        incoming(&mut machine, 33_000, &fourth),
        Incoming::New(_)
    ));
}
