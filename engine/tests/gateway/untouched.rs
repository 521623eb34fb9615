//! What need not change does not (signalling.md section 6): generated messages of all kinds,
//! in every writing that the field knows, leave with the same lines in the same order, but for
//! the list.

use crate::world::{ALICE, LAN, SS1, Sent, WAN, World};
use keepline_engine::sip::{Message, Name};
use proptest::{prelude::*, sample::subsequence, test_runner::Config};

/// Written by the gateway: translated, or counted anew.
const LISTED: [Name; 9] = [
    Name::Via,
    Name::Route,
    Name::RecordRoute,
    Name::MaxForwards,
    Name::Contact,
    Name::ContentLength,
    Name::CallId,
    Name::From,
    Name::To,
];

/// Lines that mean something to others, or nothing to anybody.
const LINES: [&str; 26] = [
    "Subject: caf\u{e9} \u{2713}",
    "s:short",
    "Supported : 100rel,  timer",
    "k: outbound, path",
    "Allow:INVITE,ACK , CANCEL",
    "ALLOW: bye",
    "User-Agent:   Acme/1.0 (\"x\" <y>)",
    "X-Folded: one,\n two,\n\tthree",
    "X-Empty:",
    "X-Empty2: ",
    "P-Asserted-Identity: \"A, B\" <sip:201@example.test>, <tel:+15550100>",
    "P-Preferred-Identity: <sip:201@example.test;user=phone>",
    "Privacy: id;header",
    "Session-Expires: 90;refresher=uac",
    "x: 1800",
    "Min-SE: 90",
    "Require: X-none",
    "Alert-Info: <http://192.168.7.7/ring.wav>;info=a",
    "Date: Sat, 13 Nov 2010 23:29:00 GMT",
    "Timestamp: 54.21",
    "Reason: Q.850;cause=16;text=\"x\"",
    "Geolocation: <cid:a@example.test>",
    "Proxy-Authorization: Digest username=\"201\", realm=\"r\", nonce=\"n\", uri=\"sip:10.99.1.1\", response=\"0\"",
    "o: presence",
    "x-very-long-header-name-that-nobody-ever-saw: 1",
    "Priority:\turgent",
];

/// OPTIONS is left out: this world answers it, as a probe.
const METHODS: [&str; 9] = [
    "INVITE",
    "MESSAGE",
    "SERVICE",
    "SUBSCRIBE",
    "PUBLISH",
    "INFO",
    "REFER",
    "NOTIFY",
    "X-METHOD",
];

#[derive(Debug, Clone)]
struct Said {
    method: &'static str,
    lines: Vec<&'static str>,
    body: Vec<u8>,
    /// Line ends as a careless device writes them.
    bare: bool,
    compact: bool,
}

fn said() -> impl Strategy<Value = Said> {
    let body = prop_oneof![
        2 => Just(Vec::new()),
        2 => "[ -~\r\n]{1,80}".prop_map(String::into_bytes),
        2 => proptest::collection::vec(any::<u8>(), 1..120),
    ];
    let lines = subsequence(&LINES[..], 0..LINES.len()).prop_shuffle();
    let method = proptest::sample::select(&METHODS[..]);
    (method, lines, body, any::<bool>(), any::<bool>()).prop_map(
        |(method, lines, body, bare, compact)| Said {
            method,
            lines,
            body,
            bare,
            compact,
        },
    )
}

impl Said {
    fn tail(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for line in &self.lines {
            out.extend_from_slice(line.as_bytes());
            out.push(b'\n');
        }
        if !self.body.is_empty() {
            out.extend_from_slice(b"Content-Type: application/octet-stream\n");
        }
        out
    }

    /// The whole of it: head lines, the odd ones, the body.
    fn message(&self, head: &str) -> Vec<u8> {
        let mut text = head.as_bytes().to_vec();
        text.extend(self.tail());
        text.extend_from_slice(format!("Content-Length: {}\n\n", self.body.len()).as_bytes());
        let end: &[u8] = if self.bare { b"\n" } else { b"\r\n" };
        let mut bytes = Vec::new();
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            bytes.extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
            bytes.extend_from_slice(end);
        }
        bytes.extend_from_slice(&self.body);
        bytes
    }

    fn request(&self, number: usize) -> Vec<u8> {
        let (from, to, call_id) = match self.compact {
            true => ("f", "t", "i"),
            false => ("From", "To", "Call-ID"),
        };
        self.message(&format!(
            "{method} sip:300@example.test;x=%20 SIP/2.0\nVia: SIP/2.0/UDP {ALICE};branch=z9hG4bKu{number};rport\n\
             Max-Forwards: 70\n{from}: \"A\" <sip:201@example.test>;tag=a{number};x\n{to}:<sip:300@example.test>\n\
             {call_id}: untouched-{number}\nCSeq:  {number} {method}\nm: <sip:201@{ALICE}>;+x=\"y\"\n",
            method = self.method
        ))
    }

    fn response(&self, up: &Message) -> Vec<u8> {
        let mut head = "SIP/2.0 299 Whatever it is\n".to_owned();
        for line in up.lines() {
            if matches!(
                line.name,
                Name::Via | Name::From | Name::CallId | Name::CSeq
            ) {
                head.push_str(String::from_utf8_lossy(up.slice(line.full)).trim_end());
                head.push('\n');
            }
        }
        self.message(&format!(
            "{head}To: <sip:300@example.test>;tag=u\nContact: <sip:300@{SS1}>\n"
        ))
    }
}

/// The lines that are not listed, byte for byte and in order, and the body.
fn kept(msg: &Message) -> (Vec<String>, Vec<u8>) {
    let kept = msg
        .lines()
        .iter()
        .filter(|line| !LISTED.contains(&line.name));
    let lines = kept.map(|line| msg.slice(line.full).escape_ascii().to_string());
    (lines.collect(), msg.body().to_vec())
}

fn compare(came: &[u8], went: &Sent) -> Result<(), TestCaseError> {
    let came = Message::parse(came.to_vec()).expect("we wrote it");
    prop_assert_eq!(kept(&came), kept(&went.msg));
    // Of the listed ones these name nothing of either side here.
    for name in [Name::From, Name::To, Name::CallId, Name::ContentLength] {
        let line = |msg: &Message| {
            let line = msg.lines().iter().find(|line| line.name == name);
            line.map(|line| msg.slice(line.full).escape_ascii().to_string())
        };
        prop_assert_eq!(line(&came), line(&went.msg));
    }
    let params = |msg: &Message| {
        let contact = msg.contacts().next();
        contact.map(|contact| msg.slice(contact.params).escape_ascii().to_string())
    };
    prop_assert_eq!(params(&came), params(&went.msg));
    Ok(())
}

proptest! {
    #![proptest_config(Config { cases: 200, ..Config::default() })]

    #[test]
    fn em18_only_what_is_listed_differs(request in said(), answer in said()) {
        let mut world = World::new();
        world.register("201", ALICE);
        let bytes = request.request(7);
        world.hear_bytes(LAN, ALICE, bytes.clone());
        let up = world.to(SS1);
        let up = up.iter().find(|sent| sent.what() == request.method);
        let up = up.expect("it goes up");
        compare(&bytes, up)?;
        let bytes = answer.response(&up.msg);
        world.hear_bytes(WAN, SS1, bytes.clone());
        let back = world.to(ALICE);
        let back = back.iter().find(|sent| sent.what() == "299").expect("it comes back");
        let came = Message::parse(bytes.clone()).expect("we wrote it");
        prop_assert_eq!(kept(&came), kept(&back.msg));
    }
}
