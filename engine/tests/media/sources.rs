//! Whose packets are taken: learning, NAT, and third hosts that spray.

use keepline_engine::media::{DropReason, Learn, Leg, Seen, SessionId};

use crate::gateway::{Gateway, LAN, WAN, at, audio, behind_nat, direct, wanted};

const PHONE: &str = "10.99.1.20:4000";
const FAR: &str = "192.0.2.30:6000";

#[test]
fn a_client_behind_nat_is_learned_from_where_its_signalling_came() {
    let mut gw = Gateway::new();
    gw.media.open(SessionId(1), WAN, LAN);
    let client = behind_nat("203.0.113.50");
    let out = gw
        .offer(1, Leg::Caller, client, &audio("192.168.1.5:4000", ""))
        .unwrap();
    let phone_told = wanted(&out);
    let client_told = wanted(
        &gw.answer(1, Leg::Callee, direct("10.99.1.20"), &audio(PHONE, ""))
            .unwrap(),
    );
    assert_eq!(
        gw.flow(phone_told),
        None,
        "nothing is sent to a private address over the WAN"
    );
    assert_eq!(
        gw.seen(phone_told, PHONE),
        Seen::Drop(DropReason::NoDestination)
    );
    assert_eq!(
        gw.seen(client_told, "192.168.1.5:4000"),
        Seen::Drop(DropReason::ForeignSource)
    );
    assert_eq!(
        gw.seen(client_told, "203.0.113.50:61000"),
        Seen::Relay {
            from: phone_told,
            to: at(PHONE)
        }
    );
    assert_eq!(gw.flow(phone_told).unwrap().to, at("203.0.113.50:61000"));
    assert_eq!(
        gw.seen(client_told, "203.0.113.50:61001"),
        Seen::Drop(DropReason::ForeignSource),
        "locked"
    );
}

#[test]
fn rtp_bleed_a_third_host_gets_and_injects_nothing_in_any_phase() {
    let mut gw = Gateway::new();
    let spray = |gw: &mut Gateway| {
        let before = gw.flows.clone();
        for local in gw.ports.clone() {
            for from in ["203.0.113.66:4000", "10.99.1.66:4000", "192.0.2.66:6000"] {
                assert_eq!(
                    gw.seen(local, from),
                    Seen::Drop(DropReason::ForeignSource),
                    "{local} {from}"
                );
            }
        }
        assert_eq!(gw.flows, before);
    };
    gw.media.open(SessionId(1), LAN, WAN);
    let out = gw
        .offer(1, Leg::Caller, direct("10.99.1.20"), &audio(PHONE, ""))
        .unwrap();
    spray(&mut gw);
    gw.answer(1, Leg::Callee, direct("192.0.2.10"), &audio(FAR, ""))
        .unwrap();
    spray(&mut gw);
    let _ = gw.seen(wanted(&out), FAR);
    spray(&mut gw);
    gw.offer(1, Leg::Callee, direct("192.0.2.10"), &audio(FAR, ""))
        .unwrap();
    gw.answer(1, Leg::Caller, direct("10.99.1.20"), &audio(PHONE, ""))
        .unwrap();
    spray(&mut gw);
    assert_eq!(
        gw.media.session_view(SessionId(1)).unwrap().streams[0].legs[1].source,
        Some(at(FAR))
    );
}

#[test]
fn learn_never_accepts_the_declared_source_alone() {
    let mut gw = Gateway::with(10_000..=10_199, Learn::Never);
    let (_, far_told) = gw.call(1, PHONE, FAR);
    assert_eq!(
        gw.flow(far_told).unwrap().source,
        at(FAR),
        "installed at the answer"
    );
    assert_eq!(
        gw.seen(far_told, "192.0.2.30:6001"),
        Seen::Drop(DropReason::ForeignSource)
    );
}
