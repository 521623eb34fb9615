//! ICE as `[media] ice` says: relayed by way of one candidate of ours, or left to the parties.

use keepline_engine::{
    media::{Learn, Leg, SessionId},
    sdp::Ice,
    steer::FlowKind,
};

use crate::gateway::{Gateway, LAN, WAN, at, audio, direct, wanted};

const PHONE: &str = "10.99.1.20:4000";
const FAR: &str = "192.0.2.30:6000";

fn with_ice(at: &str, port: u16) -> Vec<u8> {
    let (ip, _) = at.rsplit_once(':').unwrap();
    let ice = format!(
        "a=ice-ufrag:9uB6\r\na=ice-pwd:YH75Fviy6338Vbrhrlp8Yh\r\n\
         a=candidate:1 1 UDP 2130706431 {ip} {port} typ host\r\n\
         a=candidate:1 2 UDP 2130706430 {ip} {} typ host\r\n\
         a=candidate:2 1 UDP 1694498815 203.0.113.77 45664 typ srflx raddr {ip} rport {port}\r\n",
        port + 1
    );
    audio(at, &ice)
}

fn gateway(ice: Ice) -> Gateway {
    let mut gw = Gateway::doing(10_000..=10_199, Learn::Once, ice);
    gw.media.open(SessionId(1), LAN, WAN);
    gw
}

/// A call whose parties do ICE by way of us; the offer and the answer as they went on.
fn relayed() -> (Gateway, Vec<u8>, Vec<u8>) {
    let mut gw = gateway(Ice::Relay);
    let offer = gw
        .offer(1, Leg::Caller, direct("10.99.1.20"), &with_ice(PHONE, 4000))
        .unwrap();
    let answer = gw
        .answer(1, Leg::Callee, direct("192.0.2.10"), &with_ice(FAR, 6000))
        .unwrap();
    (gw, offer, answer)
}

#[test]
fn a_relayed_offer_names_our_candidate_and_checks_are_forwarded() {
    let (gw, offer, answer) = relayed();
    for body in [&offer, &answer] {
        let (text, at) = (String::from_utf8_lossy(body), wanted(body));
        let candidates: Vec<_> = text.lines().filter(|l| l.starts_with("a=cand")).collect();
        let ours = |component: u16| {
            format!(
                "UDP {} {} {} typ host",
                2_130_706_432 - u32::from(component),
                at.ip(),
                at.port() + component - 1
            )
        };
        assert_eq!(candidates.len(), 2, "{text}");
        assert!(candidates[0].ends_with(&ours(1)), "{text}");
        assert!(candidates[1].ends_with(&ours(2)), "{text}");
        assert!(text.contains("a=ice-pwd:YH75Fviy6338Vbrhrlp8Yh\r\n"));
    }
    let kind = gw.flow(wanted(&answer)).map(|flow| flow.kind);
    assert_eq!(kind, Some(FlowKind::Checked));
}

#[test]
fn a_passed_offer_is_untouched_and_nothing_is_anchored() {
    let mut gw = gateway(Ice::Pass);
    let (said, back) = (with_ice(PHONE, 4000), with_ice(FAR, 6000));
    let went = gw.offer(1, Leg::Caller, direct("10.99.1.20"), &said);
    assert_eq!(went.as_ref(), Ok(&said));
    let went = gw.answer(1, Leg::Callee, direct("192.0.2.10"), &back);
    assert_eq!(went.as_ref(), Ok(&back));
    assert!(gw.flows.is_empty() && gw.ports.is_empty());
    let passed = |gw: &Gateway| gw.media.session_view(SessionId(1)).unwrap().passed;
    assert!(passed(&gw) && gw.media.may_be_silent(SessionId(1)));

    // A later offer without ICE is anchored, and one with it lets go again.
    let went = gw.offer(1, Leg::Callee, direct("192.0.2.10"), &audio(FAR, ""));
    assert_ne!(went.as_deref(), Ok(&*audio(FAR, "")));
    let answer = gw
        .answer(1, Leg::Caller, direct("10.99.1.20"), &audio(PHONE, ""))
        .unwrap();
    assert_ne!(wanted(&answer), at(PHONE));
    assert!(!passed(&gw) && !gw.flows.is_empty());
    let went = gw.offer(1, Leg::Caller, direct("10.99.1.20"), &said);
    assert_eq!(went.as_ref(), Ok(&said));
    assert!(!gw.flows.is_empty(), "until it is answered");
    let went = gw.answer(1, Leg::Callee, direct("192.0.2.10"), &back);
    assert_eq!(went.as_ref(), Ok(&back));
    assert!(passed(&gw) && gw.flows.is_empty() && gw.ports.is_empty());
}

#[test]
fn what_does_no_ice_is_anchored_as_ever() {
    for ice in [Ice::Strip, Ice::Relay, Ice::Pass] {
        let mut gw = gateway(ice);
        let went = gw
            .offer(1, Leg::Caller, direct("10.99.1.20"), &audio(PHONE, ""))
            .unwrap();
        assert!(!String::from_utf8_lossy(&went).contains("candidate"));
        assert_ne!(wanted(&went), at(PHONE), "{ice:?}");
    }
}

#[test]
fn a_party_that_calls_itself_by_our_other_address_means_itself() {
    let (mut gw, offer, answer) = relayed();
    let (phone_told, far_told) = (wanted(&answer), wanted(&offer));
    let _ = gw.seen(far_told, FAR);
    let both = |gw: &Gateway| {
        let flow = |at| gw.flow(at).map(|flow| (flow.source, flow.to));
        (flow(phone_told), flow(far_told))
    };
    let before = both(&gw);
    assert_eq!(before.0, Some((at(PHONE), at(FAR))));
    assert_eq!(before.1, Some((at(FAR), at(PHONE))));
    // As the answer to its check called it.
    let mapped = audio(&far_told.to_string(), "a=ice-ufrag:9uB6\r\n");
    gw.offer(1, Leg::Caller, direct("10.99.1.20"), &mapped)
        .unwrap();
    gw.answer(1, Leg::Callee, direct("192.0.2.10"), &with_ice(FAR, 6000))
        .unwrap();
    assert_eq!(both(&gw), before);
}
