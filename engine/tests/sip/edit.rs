//! Patching, by example and by property.

use crate::support::{parse, request};
use keepline_engine::sip::{Edit, Message, Name, Span};
use proptest::{collection::vec, prelude::*, sample::select};

const LISTED: &str = "OPTIONS sip:a SIP/2.0\r\nVia: SIP/2.0/UDP a;branch=1\r\nRoute: <sip:1>, <sip:2>,<sip:3>\r\n\
                      f: <sip:a>;tag=1\r\nRoute:<sip:4>\r\nt: <sip:b>\r\ni: 1\r\nCSeq: 1 OPTIONS\r\n\r\n";

fn edited(text: &str, change: impl FnOnce(&Message, &mut Edit<'_>)) -> String {
    let msg = parse(text);
    let mut edit = Edit::new(&msg);
    change(&msg, &mut edit);
    String::from_utf8(edit.finish()).expect("text")
}

fn without_routes(gone: &[usize]) -> String {
    edited(LISTED, |msg, edit| {
        let values: Vec<Span> = msg.values(Name::Route).collect();
        gone.iter()
            .for_each(|at| edit.remove_value(Name::Route, values[*at]));
    })
}

#[test]
fn values_leave_with_their_comma_and_lines_with_their_last_value() {
    let with = |first: &str, second: &str| {
        LISTED
            .replace("Route: <sip:1>, <sip:2>,<sip:3>\r\n", first)
            .replace("Route:<sip:4>\r\n", second)
    };
    let last = "Route:<sip:4>\r\n";
    assert_eq!(
        without_routes(&[0]),
        with("Route: <sip:2>,<sip:3>\r\n", last)
    );
    assert_eq!(
        without_routes(&[1]),
        with("Route: <sip:1>,<sip:3>\r\n", last)
    );
    assert_eq!(
        without_routes(&[2]),
        with("Route: <sip:1>, <sip:2>\r\n", last)
    );
    assert_eq!(without_routes(&[1, 0]), with("Route: <sip:3>\r\n", last));
    assert_eq!(without_routes(&[2, 0]), with("Route: <sip:2>\r\n", last));
    assert_eq!(without_routes(&[1, 2, 1]), with("Route: <sip:1>\r\n", last));
    assert_eq!(without_routes(&[2, 1, 0]), with("", last));
    assert_eq!(
        without_routes(&[3]),
        with("Route: <sip:1>, <sip:2>,<sip:3>\r\n", "")
    );
}

#[test]
fn pushed_lines_stand_where_they_are_meant_to() {
    let text = edited(LISTED, |_, edit| {
        edit.push_front(Name::Route, "<sip:0>");
        edit.push_front(Name::Route, "<sip:00>");
        edit.push_front(Name::RecordRoute, "<sip:rr>");
        edit.push_back(Name::Supported, "path");
        edit.push_back_named("X-Last", "1");
        edit.push_lines("Via: SIP/2.0/UDP b\r\n");
        edit.push_back(Name::Other, "nameless");
    });
    let expected = LISTED
        .replacen(
            "\r\n",
            "\r\nRecord-Route: <sip:rr>\r\nVia: SIP/2.0/UDP b\r\n",
            1,
        )
        .replacen(
            "Route: <sip:1>",
            "Route: <sip:00>\r\nRoute: <sip:0>\r\nRoute: <sip:1>",
            1,
        )
        .replace("\r\n\r\n", "\r\nSupported: path\r\nX-Last: 1\r\n\r\n");
    assert_eq!(text, expected);
}

#[test]
fn of_changes_that_overlap_the_later_stands_and_removal_always() {
    let msg = parse(LISTED);
    let line = *msg
        .lines()
        .iter()
        .find(|line| line.name == Name::Route)
        .expect("a Route");
    let inner = Span {
        start: line.value.start + 1,
        end: line.value.end - 1,
    };
    let replace = |spans: [Span; 2]| {
        edited(LISTED, |_, edit| {
            edit.replace(spans[0], "first");
            edit.replace(spans[1], "second");
        })
    };
    let value = "<sip:1>, <sip:2>,<sip:3>";
    assert_eq!(
        replace([line.value, inner]),
        LISTED.replace(value, "<second>")
    );
    assert_eq!(
        replace([inner, line.value]),
        LISTED.replace(value, "second")
    );
    assert_eq!(
        replace([line.value, line.value]),
        LISTED.replace(value, "second")
    );
    let gone = LISTED.replace("Route: <sip:1>, <sip:2>,<sip:3>\r\n", "");
    for removed_first in [true, false] {
        let text = edited(LISTED, |_, edit| {
            if removed_first {
                edit.remove_line(&line);
            }
            edit.replace(inner, "x");
            edit.remove_value(
                Name::Route,
                Span {
                    start: line.value.start,
                    end: line.value.start + 7,
                },
            );
            if !removed_first {
                edit.remove_line(&line);
            }
        });
        assert_eq!(text, gone);
    }
    // An earlier change that a dropped one had covered stands again: only what stands counts.
    let span = |start, end| Span { start, end };
    let text = edited(LISTED, |_, edit| {
        edit.replace(span(0, 3), "A");
        edit.replace(span(2, 6), "B");
        edit.replace(span(5, 7), "C");
    });
    assert_eq!(text, format!("A{}C{}", &LISTED[3..5], &LISTED[7..]));
}

#[test]
fn a_new_body_keeps_the_style_of_its_length() {
    for (before, after) in [
        ("l: 0", "l: 4"),
        ("CONTENT-length :  0", "CONTENT-length :  4"),
        ("X: 1", "X: 1\r\nContent-Length: 4"),
    ] {
        let text = request("OPTIONS", "b").replace("Content-Length: 0", before);
        let new = edited(&text, |_, edit| {
            edit.set_body("a longer one");
            edit.set_body("body");
        });
        assert_eq!(new, text.replace(before, after) + "body");
    }
}

/// Headers as phones write them, good and bad.
fn header() -> impl Strategy<Value = String> {
    let name = select(vec![
        "Contact",
        "m",
        "Route",
        "X-Odd",
        "Record-Route",
        "Supported",
        "v",
        "Via",
        "Expires",
    ]);
    let gap = select(vec![":", ": ", " : ", ":\r\n ", ":\t"]);
    let value = prop_oneof![
        Just("<sip:a@192.0.2.1:5060;transport=udp>;q=0.5".to_owned()),
        Just(
            "\"Q, \\\" <\" <sip:b@[2001:db8::1]>;+sip.instance=\"<urn:x,y>\", sip:c@d;expires=0"
                .to_owned()
        ),
        Just("SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1".to_owned()),
        Just("SIP/2.0/UDP a , SIP / 2.0 / TCP b:5070\r\n ;rport".to_owned()),
        "[ -~]{0,40}",
        "[a-z,;<>\"\\\\ ]{0,40}",
    ];
    (name, gap, value).prop_map(|(name, gap, value)| format!("{name}{gap}{value}\r\n"))
}

fn message() -> impl Strategy<Value = Vec<u8>> {
    let start = select(vec![
        "INVITE sip:bob@192.0.2.4 SIP/2.0\r\n",
        "SIP/2.0 200 OK\r\n",
    ]);
    (start, vec(header(), 0..8), vec(any::<u8>(), 0..40), any::<bool>()).prop_map(
        |(start, headers, body, counted)| {
            let length = if counted { format!("l: {}\r\n", body.len()) } else { String::new() };
            let text = format!(
                "{start}Via: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK0\r\nf: <sip:a@b>;tag=1\r\nt: <sip:c@d>\r\n\
                 i: 1\r\nMax-Forwards: 70\r\nCSeq: 1 INVITE\r\n{}{length}\r\n",
                headers.concat()
            );
            [text.into_bytes(), body].concat()
        },
    )
}

/// A message with bytes changed, cut out or doubled.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<prop::sample::Index>(), any::<u8>(), 0..3_u8);
    (message(), vec(change, 0..6)).prop_map(|(mut bytes, changes)| {
        for (at, byte, how) in changes {
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => bytes.truncate(at.max(1)),
            }
        }
        bytes
    })
}

/// Enough for every run; PROPTEST_CASES asks for more.
fn cases() -> u32 {
    ProptestConfig::default().cases.max(2000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..Default::default() })]

    #[test]
    fn what_is_read_is_what_was_written(bytes in message()) {
        crate::targets::sip_message(&bytes);
        if let Ok(msg) = Message::parse(bytes.clone()) {
            prop_assert_eq!(msg.bytes(), &bytes[..]);
            prop_assert_eq!(Edit::new(&msg).finish(), bytes);
        }
    }

    #[test]
    fn nothing_panics_on_mutations(bytes in mutated()) {
        crate::targets::sip_message(&bytes);
    }

    #[test]
    fn nothing_panics_on_noise(bytes in vec(any::<u8>(), 0..200)) {
        crate::targets::sip_message(&bytes);
    }

    #[test]
    fn random_edits_leave_a_message(script in vec(1..=255_u8, 0..24), bytes in message()) {
        crate::targets::sip_edit(&[&script[..], &[0], &bytes[..]].concat());
    }
}

/// The generator above is not so wild that the parser refuses all of it.
#[test]
fn most_generated_messages_are_accepted() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let accepted = (0..500)
        .filter_map(|_| message().new_tree(&mut runner).ok())
        .filter(|tree| Message::parse(tree.current()).is_ok())
        .count();
    assert!(accepted > 250, "{accepted} of 500");
}
