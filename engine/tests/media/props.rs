//! What holds whatever is signalled. The gateway's own `drain` checks after every step that
//! deltas and lists agree, that no two flows share a port, and that each flow has its socket.

use keepline_engine::media::{Leg, SessionId};
use proptest::prelude::*;

use crate::gateway::{Gateway, LAN, LAN_IP, WAN, WAN_IP, WAN2, at, audio, direct, ip};

#[derive(Debug, Clone)]
enum Step {
    Open(u64, bool),
    Offer(u64, bool, Body),
    Answer(u64, bool, Body),
    Refused(u64),
    Packet(usize, u8, u16),
    Relink(u64, bool),
    Address(bool, Option<u8>),
    Close(u64),
    Wait(u64),
}

/// Whom a body names: a party, one of our own ports, or somewhere that is refused.
#[derive(Debug, Clone)]
enum Body {
    Party(u8, u16, &'static str),
    Ours(usize),
    Odd(&'static str),
}

fn body() -> impl Strategy<Value = Body> {
    let extra = prop_oneof![
        Just(""),
        Just("a=rtcp-mux\r\n"),
        Just("a=sendonly\r\n"),
        Just("a=rtcp:5555\r\n"),
        Just("m=video 7000 RTP/AVP 97\r\n")
    ];
    prop_oneof![
        6 => (20..30_u8, prop_oneof![Just(0_u16), 4_000..4_010_u16], extra).prop_map(|(h, p, e)| Body::Party(h, p, e)),
        4 => (0..64_usize).prop_map(Body::Ours),
        1 => prop_oneof![Just("127.0.0.1:4000"), Just("224.0.0.1:4000"), Just("0.0.0.0:4000"), Just("10.99.1.1:5060")].prop_map(Body::Odd),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let session = 1..6_u64;
    prop_oneof![
        2 => (session.clone(), any::<bool>()).prop_map(|(s, out)| Step::Open(s, out)),
        6 => (session.clone(), any::<bool>(), body()).prop_map(|(s, l, b)| Step::Offer(s, l, b)),
        6 => (session.clone(), any::<bool>(), body()).prop_map(|(s, l, b)| Step::Answer(s, l, b)),
        1 => session.clone().prop_map(Step::Refused),
        6 => (0..64_usize, 20..30_u8, 4_000..4_010_u16).prop_map(|(l, h, p)| Step::Packet(l, h, p)),
        1 => (session.clone(), any::<bool>()).prop_map(|(s, second)| Step::Relink(s, second)),
        1 => (any::<bool>(), proptest::option::of(1..5_u8)).prop_map(|(lan, a)| Step::Address(lan, a)),
        1 => session.prop_map(Step::Close),
        1 => (0..20_000_u64).prop_map(Step::Wait),
    ]
}

fn leg(caller: bool) -> Leg {
    if caller { Leg::Caller } else { Leg::Callee }
}

fn bytes(gw: &Gateway, body: &Body) -> (Vec<u8>, String) {
    match body {
        Body::Party(host, port, extra) => {
            let host = format!("192.0.2.{host}");
            (audio(&format!("{host}:{port}"), extra), host)
        }
        Body::Ours(nth) => {
            let ours = gw.ports.iter().nth(nth % gw.ports.len().max(1));
            let ours = ours.map_or_else(|| "192.0.2.40:4000".to_owned(), ToString::to_string);
            (audio(&ours, ""), "192.0.2.10".to_owned())
        }
        Body::Odd(target) => (audio(target, ""), "192.0.2.10".to_owned()),
    }
}

fn play(gw: &mut Gateway, step: Step) {
    match step {
        Step::Open(s, true) => gw.media.open(SessionId(s), LAN, WAN),
        Step::Open(s, false) => gw.media.open(SessionId(s), WAN, LAN),
        Step::Offer(s, caller, body) => {
            let (bytes, from) = bytes(gw, &body);
            let before = (gw.flows.clone(), gw.ports.clone());
            if gw.offer(s, leg(caller), direct(&from), &bytes).is_err() {
                assert_eq!(
                    (&gw.flows, &gw.ports),
                    (&before.0, &before.1),
                    "a refusal changes nothing"
                );
            }
        }
        Step::Answer(s, caller, body) => {
            let (bytes, from) = bytes(gw, &body);
            let before = gw.flows.clone();
            if gw.answer(s, leg(caller), direct(&from), &bytes).is_err() {
                assert_eq!(gw.flows, before, "a refusal changes nothing");
            }
        }
        Step::Refused(s) => gw.media.offer_refused(gw.now, SessionId(s)),
        Step::Packet(nth, host, port) => {
            if let Some(local) = gw.ports.iter().nth(nth % gw.ports.len().max(1)).copied() {
                let _ = gw.seen(local, &format!("192.0.2.{host}:{port}"));
            }
        }
        Step::Relink(s, second) => {
            let to = if second { WAN2 } else { WAN };
            gw.media.relink(gw.now, SessionId(s), Leg::Callee, to);
        }
        Step::Address(true, last) => {
            let address = last.map(|n| ip(&format!("10.99.1.{n}")));
            gw.media.address_changed(gw.now, LAN, address);
        }
        Step::Address(false, last) => {
            let address = last.map(|n| ip(&format!("198.51.100.{n}")));
            gw.media.address_changed(gw.now, WAN, address);
        }
        Step::Close(s) => gw.media.close(gw.now, SessionId(s)),
        Step::Wait(ms) => gw.wait(ms),
    }
    gw.drain();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn flows_and_ports_are_conserved(steps in proptest::collection::vec(step(), 1..80)) {
        let mut gw = Gateway::with(10_000..=10_063, keepline_engine::media::Learn::Once);
        for step in steps {
            play(&mut gw, step);
            // No flow ends at one of our own addresses: hairpins are resolved.
            let ours: Vec<_> = gw.ports.iter().map(std::net::SocketAddr::ip).collect();
            for flow in gw.flows.values() {
                prop_assert!(!ours.contains(&flow.to.ip()), "{:?}", flow);
            }
        }
        (1..6).for_each(|s| gw.close(s));
        prop_assert!(gw.flows.is_empty() && gw.ports.is_empty());
        // Every port can be had again: nothing leaked.
        gw.media.address_changed(gw.now, LAN, Some(ip(LAN_IP)));
        gw.media.address_changed(gw.now, WAN, Some(ip(WAN_IP)));
        gw.drain();
        gw.wait(10_000);
        for s in 100..132 {
            gw.media.open(SessionId(s), LAN, WAN);
            let body = audio("192.0.2.40:4000", "");
            prop_assert!(gw.offer(s, Leg::Caller, direct("192.0.2.40"), &body).is_ok(), "session {}", s);
        }
        prop_assert_eq!(gw.ports.len(), 32 * 4);
        let _ = at("192.0.2.1:1");
    }
}
