//! Cases from the field, section S.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use crate::support::{LISTENER, addr, at, parse, request};
use keepline_engine::{
    sip::{Edit, Message, Method, Name, Why, digest, respond},
    transaction::{ClientKey, Limits, Received, Transactions},
};

fn sample(name: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/sip_message");
    fs::read(folder.join(name)).expect("a sample of the repository")
}

/// The same message with every compact name in its long form.
fn long_form(msg: &Message) -> Message {
    let mut edit = Edit::new(msg);
    for line in msg.lines() {
        edit.replace(line.name_span, line.name.long().expect("a known name"));
    }
    parse(edit.finish())
}

#[test]
fn case_s1_compact_names_route_like_long_ones() {
    let compact = parse(sample("compact_unauthorized"));
    let long = long_form(&compact);
    assert_ne!(compact.bytes(), long.bytes());
    for msg in [&compact, &long] {
        let mut machine = Transactions::new(Limits::default());
        let key = ClientKey {
            branch: b"z9hG4bKa1".to_vec(),
            sent_by: b"192.0.2.7:5062".to_vec(),
            method: Method::Register,
        };
        let to = addr("192.0.2.4:5060");
        let id = machine.start(at(0), key, sample("compact_register"), to, LISTENER);
        let found = machine.response(at(5), msg, to);
        assert_eq!(found, id.map(|id| (id, Received::Final)));
        assert_eq!(msg.to_tag(), Some(&b"z"[..]));
        assert_eq!(msg.call_id(), Some(&b"77@192.0.2.7"[..]));
    }
    let long = long_form(&parse(sample("compact_register")));
    assert_eq!(long.contacts().count(), 1);
    assert_eq!(
        long.header(Name::Supported).map(|span| long.slice(span)),
        Some(&b"path,outbound"[..])
    );
}

#[test]
fn case_s3_a_folded_challenge_is_relayed_intact() {
    let msg = parse(sample("folded_challenge"));
    let line = msg
        .lines()
        .iter()
        .find(|line| line.name == Name::WwwAuthenticate)
        .expect("it");
    assert!(line.folded);
    // Relayed: another Via, a stale mark, a header more.
    let mut edit = Edit::new(&msg);
    edit.remove_all(Name::Via);
    edit.push_lines("Via: SIP/2.0/UDP 192.0.2.50;branch=z9hG4bKphone\r\n");
    edit.push_back(Name::Server, "x");
    for relayed in [edit.finish(), digest::mark_stale(&msg)] {
        let relayed = parse(relayed);
        let value = relayed.header(Name::WwwAuthenticate).expect("still there");
        assert!(
            relayed.slice(value).starts_with(msg.slice(line.value)),
            "not a byte changed"
        );
        let challenge = digest::Challenge::parse(relayed.slice(value)).expect("a challenge");
        assert_eq!(
            challenge.nonce,
            b"mJHxkQ9B+0123456789/ABCDEFGHIJKLMNOPQRSTUV=="
        );
        assert_eq!(challenge.opaque, Some(&b"0a1b2c"[..]));
        assert_eq!(challenge.qop, Some(&b"auth"[..]));
    }
}

#[test]
fn case_s5_bare_line_feeds_are_accepted_and_the_next_message_served() {
    let msg = parse(sample("bare_lf"));
    assert_eq!(
        (msg.method(), msg.body()),
        (Some(Method::Options), &b"a\nb"[..])
    );
    assert_eq!(msg.bytes(), sample("bare_lf"));
    parse(request("OPTIONS", "z9hG4bKnext"));
}

/// Shapes that cost a careless parser more than their length; each is prefixed by a good
/// header, so that all of it is read.
fn hostile(length: usize) -> Vec<(&'static str, Vec<u8>)> {
    let head = request("OPTIONS", "z9hG4bK1").replace("Content-Length: 0\r\n\r\n", "");
    let fill = |name: &'static str, prefix: &str, piece: &str, suffix: &str| {
        let room = length - head.len() - prefix.len() - suffix.len();
        let text = [&head, prefix, &piece.repeat(room / piece.len()), suffix].concat();
        (name, text.into_bytes())
    };
    let end = "\r\n\r\n";
    vec![
        fill("line feeds", "X: a\n\n", "\n", ""),
        fill("blank folds", "X:\r\n", " \r\n", "\r\n"),
        fill("blank folds behind a value", "X: a\r\n", " \r\n", "\r\n"),
        fill("folds", "X: a\r\n", " b\r\n", "\r\n"),
        fill("commas in Contact", "Contact: <sip:a@b>", ",", end),
        fill("contacts", "Contact: <sip:a@b>", ",<sip:a>", end),
        fill("vias", "Via: SIP/2.0/UDP a", ",SIP/2.0/UDP a", end),
        fill("routes", "Route: <sip:a>", ",<sip:a>", end),
        fill("quotes", "Contact: ", "\"\",", end),
        fill("escapes", "Contact: \"", "\\", "\" <sip:a@b>\r\n\r\n"),
        fill("angles", "Contact: ", "<", end),
        fill("parameters", "Contact: <sip:a@b>", ";a=\"b\"", end),
        fill("white space", "Contact: <sip:a@b>;a=", " ", "b\r\n\r\n"),
        fill("colons", "X:", ":", end),
        fill("carriage returns", "X:", "\r", end),
        fill("no end", "X:", "x", ""),
        fill("challenge", "WWW-Authenticate: Digest a=1", ",a=1", end),
    ]
}

/// Everything the gateway does to one datagram; the shortest of several runs, since the
/// machine has other work.
#[expect(clippy::disallowed_methods, reason = "this test measures real time")]
fn cost(bytes: &[u8]) -> Duration {
    let once = || {
        let begin = Instant::now();
        if let Ok(msg) = Message::parse(bytes.to_vec()) {
            let _ = (msg.vias().count(), msg.contacts().count());
            let _ = msg
                .contacts()
                .filter_map(|c| c.param(msg.bytes(), "none"))
                .count();
            let _ = (
                respond(&msg, 400, "", Some("t"), addr("192.0.2.1:1")),
                digest::mark_stale(&msg),
            );
            let mut edit = Edit::new(&msg);
            for value in msg.values(Name::Route) {
                edit.remove_value(Name::Route, value);
            }
            edit.push_front(Name::Via, "SIP/2.0/UDP b");
            let _ = edit.finish();
        }
        begin.elapsed()
    };
    (0..7).map(|_| once()).min().unwrap_or_default()
}

#[test]
fn case_s5_the_cost_of_a_datagram_is_linear_in_its_length() {
    for ((name, short), (_, long)) in hostile(4 * 1024).into_iter().zip(hostile(60 * 1024)) {
        let (short, long) = (cost(&short), cost(&long));
        // 15 times the length: quadratic would be 225 times the cost, and seconds in all.
        let bound = (short * 60).max(Duration::from_millis(20));
        assert!(
            long < bound,
            "{name}: {short:?} for 4 KiB, {long:?} for 60 KiB"
        );
    }
}

#[test]
fn case_s8_received_and_rport_are_the_real_source() {
    let source = addr("192.0.2.7:40000");
    for (via, expected) in [
        (
            "10.99.99.99:5078;rport",
            "10.99.99.99:5078;received=192.0.2.7;rport=40000",
        ),
        (
            "10.99.99.99:5078;rport=1;x=y",
            "10.99.99.99:5078;received=192.0.2.7;rport=40000;x=y",
        ),
        (
            "10.99.99.99 ; received=198.51.100.1 ;branch=b",
            "10.99.99.99;received=192.0.2.7;branch=b",
        ),
        ("192.0.2.7:40000", "192.0.2.7:40000;received=192.0.2.7"),
    ] {
        let text = request("OPTIONS", "b").replace("192.0.2.1:5060;rport;branch=b", via);
        let reply = parse(respond(&parse(text), 200, "OK", Some("t"), source));
        let top = reply.top_via().expect("a Via");
        assert_eq!(
            reply.slice(top.value),
            format!("SIP/2.0/UDP {expected}").as_bytes()
        );
    }
    // Over a socket of both families, a source in version 4 is written as such.
    let mapped = addr("[::ffff:192.0.2.7]:40000");
    let reply = respond(&parse(request("OPTIONS", "b")), 200, "OK", None, mapped);
    assert!(String::from_utf8_lossy(&reply).contains(";received=192.0.2.7;rport=40000;"));
}

#[test]
fn case_s10_line_ends_in_front_are_no_part_of_the_message() {
    let msg = parse(sample("leading_crlf"));
    assert_eq!(msg.method(), Some(Method::Options));
    assert!(msg.bytes().starts_with(b"OPTIONS "));
}

#[test]
fn case_s11_bad_lengths_are_400_for_requests_and_silence_for_responses() {
    let ok = respond(
        &parse(request("OPTIONS", "z9hG4bK1")),
        200,
        "OK",
        Some("t"),
        addr("192.0.2.1:1"),
    );
    let ok = String::from_utf8(ok).expect("text");
    for length in [
        "9999",
        "-999",
        "4294967296",
        "99999999999999999999",
        "one",
        "",
        "0x0",
        "+0",
        "1",
    ] {
        let with = |text: &str| {
            let text = text.replace("Content-Length: 0", &format!("Content-Length: {length}"));
            Message::parse(text.into_bytes()).expect_err(length)
        };
        let refusal = with(&request("OPTIONS", "z9hG4bK1"));
        assert_eq!(refusal.why, Why::ContentLength);
        let answer = refusal
            .answer("tag", addr("192.0.2.1:5060"))
            .expect("an answer");
        let answer = parse(answer);
        assert_eq!((answer.status(), answer.body()), (Some(400), &b""[..]));
        assert_eq!(answer.branch(), Some(&b"z9hG4bK1"[..]));
        let refusal = with(&ok);
        assert_eq!((refusal.why, refusal.status()), (Why::ContentLength, None));
        assert!(refusal.answer("tag", addr("192.0.2.1:5060")).is_none());
        let refusal = with(&request("ACK", "z9hG4bK1"));
        assert!(
            refusal.answer("tag", addr("192.0.2.1:5060")).is_none(),
            "no answer to an ACK"
        );
    }
    // Too small is a shorter message, not a fault: the rest is ignored.
    let text = request("OPTIONS", "z9hG4bK1").replace("Length: 0\r\n\r\n", "Length: 2\r\n\r\nabcd");
    assert_eq!(parse(text).body(), b"ab");
}

#[test]
fn case_s14_unknown_headers_are_relayed_byte_for_byte() {
    let odd = "P-Charging-Vector: icid-value=\"12;34\" ;  orig-ioi=home1.net\r\n\
               x-ODD :\t a , b\r\n  , c\r\nX-Empty:\r\nX-Empty:   \r\n";
    let text = request("INVITE", "z9hG4bK1").replace("Content-Length", &format!("{odd}l"));
    let msg = parse(&text);
    let mut edit = Edit::new(&msg);
    edit.push_front(Name::Via, "SIP/2.0/UDP 192.0.2.9;branch=z9hG4bK2");
    edit.replace(msg.header(Name::MaxForwards).expect("it"), "69");
    edit.remove_all(Name::Route);
    edit.set_body("v=0\r\n");
    let expected = text
        .replacen(
            "Via:",
            "Via: SIP/2.0/UDP 192.0.2.9;branch=z9hG4bK2\r\nVia:",
            1,
        )
        .replace("Max-Forwards: 70", "Max-Forwards: 69")
        .replace("Route: <sip:192.0.2.9;lr>\r\n", "")
        .replace("l: 0\r\n\r\n", "l: 5\r\n\r\nv=0\r\n");
    assert_eq!(String::from_utf8(edit.finish()).expect("text"), expected);
    let icid = msg.named("p-charging-vector").map(|span| msg.slice(span));
    assert_eq!(
        icid,
        Some(&b"icid-value=\"12;34\" ;  orig-ioi=home1.net"[..])
    );
}

#[test]
fn limits_are_told_from_faults() {
    let many = |count: usize| {
        let more = "X: y\r\n".repeat(count - 8);
        request("OPTIONS", "z9hG4bK1").replace("Content-Length", &format!("{more}Content-Length"))
    };
    assert_eq!(parse(many(256)).lines().len(), 256);
    let refusal = Message::parse(many(257).into_bytes()).expect_err("too many");
    assert_eq!(
        (refusal.why, refusal.status().map(|status| status.0)),
        (Why::TooManyLines, Some(513))
    );
    let mut long = request("OPTIONS", "z9hG4bK1").into_bytes();
    long.resize(64 * 1024 + 1, b'x');
    let refusal = Message::parse(long).expect_err("too long");
    assert_eq!(
        (refusal.why, refusal.status().map(|status| status.0)),
        (Why::TooLong, Some(513))
    );
    assert!(refusal.answer("t", addr("192.0.2.1:1")).is_some());
    assert_eq!(
        Message::parse(b"\r\n\r\n\r\n".to_vec())
            .expect_err("empty")
            .why,
        Why::Empty
    );
}
