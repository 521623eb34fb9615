//! The side that asks: timers A to F, K, and requests that were hunted or cancelled.

use keepline_engine::{
    sip::{Method, cancel_for},
    transaction::{AnyId, Output, Reason, Received},
};

use crate::{
    answer, machine, run, run_until, start,
    support::{addr, at, parse, response},
    times,
};

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
