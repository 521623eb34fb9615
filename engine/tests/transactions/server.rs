//! The side that answers: timers G to J, retransmissions, bounds.

use keepline_engine::{
    sip::Method,
    transaction::{AnyId, ClientKey, Incoming, Limits, Output, Transactions},
};

use crate::{
    incoming, machine, new_server, run, run_until, start,
    support::{LISTENER, addr, at, parse, request, response},
    times,
};

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
