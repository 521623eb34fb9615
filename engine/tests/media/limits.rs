//! Ports that run out, streams that cannot be anchored, links that change under a call.

use keepline_engine::media::{Learn, Leg, Refused, SessionId};

use crate::gateway::{Gateway, LAN, WAN, WAN2, at, audio, direct, ip, wanted};

const PHONE: &str = "10.99.1.20:4000";
const FAR: &str = "192.0.2.30:6000";

#[test]
fn a_full_range_refuses_clearly_and_rested_ports_serve_again() {
    let mut gw = Gateway::with(10_000..=10_003, Learn::Once);
    gw.call(1, PHONE, FAR);
    gw.call(2, "10.99.1.21:4000", FAR);
    gw.media.open(SessionId(3), LAN, WAN);
    let body = audio("10.99.1.22:4000", "");
    let refused = gw
        .offer(3, Leg::Caller, direct("10.99.1.22"), &body)
        .unwrap_err();
    assert_eq!((refused.clone(), refused.status()), (Refused::NoPorts, 503));
    gw.close(1);
    assert_eq!(
        gw.offer(3, Leg::Caller, direct("10.99.1.22"), &body),
        Err(Refused::NoPorts),
        "they rest"
    );
    gw.wait(10_000);
    assert!(
        gw.offer(3, Leg::Caller, direct("10.99.1.22"), &body)
            .is_ok()
    );
}

#[test]
fn a_stream_that_cannot_be_anchored_is_turned_off() {
    let mut gw = Gateway::new();
    gw.media.open(SessionId(1), LAN, WAN);
    let body = [
        audio(PHONE, ""),
        b"m=message 9 TCP/MSRP *\r\na=path:msrp://10.99.1.20:9/x;tcp\r\n".to_vec(),
    ]
    .concat();
    let out = gw
        .offer(1, Leg::Caller, direct("10.99.1.20"), &body)
        .unwrap();
    let text = String::from_utf8_lossy(&out).into_owned();
    assert!(
        text.contains("m=message 0 TCP/MSRP *\r\n") && !text.contains("10.99."),
        "{text}"
    );
}

#[test]
fn a_wan_address_change_moves_ports_and_flows() {
    let mut gw = Gateway::new();
    let (phone_told, far_told) = gw.call(1, PHONE, FAR);
    let _ = gw.seen(far_told, FAR);
    gw.media
        .address_changed(gw.now, WAN, Some(ip("198.51.100.77")));
    gw.drain();
    let mut moved = far_told;
    moved.set_ip(ip("198.51.100.77"));
    assert!(gw.ports.contains(&moved) && !gw.ports.contains(&far_told));
    assert_eq!(gw.flow(moved).unwrap().to, at(PHONE));
    assert!(gw.flow(phone_told).is_some());
    gw.media.address_changed(gw.now, WAN, None);
    gw.drain();
    assert_eq!(gw.ports.len(), 2, "only the LAN's");
    gw.close(1);
    assert!(gw.ports.is_empty());
}

#[test]
fn a_hunt_over_another_link_moves_the_leg() {
    let mut gw = Gateway::new();
    gw.media.open(SessionId(1), LAN, WAN);
    let body = audio(PHONE, "");
    gw.offer(1, Leg::Caller, direct("10.99.1.20"), &body)
        .unwrap();
    gw.media.relink(gw.now, SessionId(1), Leg::Callee, WAN2);
    gw.drain();
    let out = gw
        .offer(1, Leg::Caller, direct("10.99.1.20"), &body)
        .unwrap();
    assert_eq!(wanted(&out).ip(), ip("203.0.113.9"));
    assert_eq!(gw.ports.len(), 4);
    let told = wanted(
        &gw.answer(1, Leg::Callee, direct("192.0.2.10"), &audio(FAR, ""))
            .unwrap(),
    );
    assert_eq!(gw.flow(told).unwrap().egress, WAN2);
}
