//! Session descriptions: whatever is read can be rewritten for the other leg, and says there
//! what it said here, but for addresses, ports, `o=` and ICE.

use std::net::IpAddr;

use keepline_engine::sdp::{Host, Ice, Origin, Rewrite, Sdp, SdpError, Stream, StreamOut};

/// What no line may show, besides private addresses.
const HIDDEN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 66));

/// Any body, to a leg of either family and with either treatment of ICE.
pub(crate) fn sdp(data: &[u8]) {
    let sdp = match Sdp::parse(data) {
        Ok(sdp) => sdp,
        Err(why) => return assert!(matches!(why.status(), 400 | 488), "{why}"),
    };
    for address in ["198.51.100.9", "2001:db8::9"] {
        for ice in [Ice::Strip, Ice::Relay] {
            rewritten(&sdp, address.parse().expect("an address"), ice);
        }
    }
}

fn rewritten(sdp: &Sdp<'_>, address: IpAddr, ice: Ice) {
    let streams: Vec<StreamOut> = (20_000..).step_by(2).zip(sdp.streams()).map(ours).collect();
    let to = Rewrite {
        address,
        origin: Origin { id: 77, version: 3 },
        streams: &streams,
        ice,
        hide: &[HIDDEN],
    };
    let out = sdp.rewrite(&to);
    let again = match Sdp::parse(&out) {
        Ok(again) => again,
        // Longer addresses, a candidate more: a body at the limit may pass it.
        Err(why) => return assert_eq!(why, SdpError::TooLarge, "{}", out.escape_ascii()),
    };
    assert_eq!(again.streams().len(), sdp.streams().len());
    for ((before, after), ours) in sdp.streams().iter().zip(again.streams()).zip(&streams) {
        says_the_same(before, after);
        assert_eq!(after.port, ours.rtp);
        let ours = |host| matches!(host, Host::Hold) || host == Host::Ip(address);
        assert!(after.host.is_none_or(ours), "{:?}", after.host);
    }
    assert_eq!(again.rewrite(&to), out, "a second time changes nothing");
    for line in out.split(|byte| *byte == b'\n') {
        let free = matches!(line.first(), Some(b'v' | b't' | b'm'));
        let shows = line.windows(12).any(|part| part == b"203.0.113.66");
        assert!(free || !shows || longer(line), "{}", line.escape_ascii());
    }
}

/// Whether the address is only a part of a longer word, which is none.
fn longer(line: &[u8]) -> bool {
    let at = line.windows(12).position(|part| part == b"203.0.113.66");
    let Some(at) = at else { return false };
    let of_a_word = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b'.' | b':');
    let before = at.checked_sub(1).and_then(|at| line.get(at));
    let after = line.get(at + 12);
    before.is_some_and(of_a_word) || after.is_some_and(of_a_word)
}

fn ours((rtp, stream): (u16, &Stream)) -> StreamOut {
    match stream.port {
        0 => StreamOut { rtp: 0, rtcp: 0 },
        _ => StreamOut { rtp, rtcp: rtp + 1 },
    }
}

fn says_the_same(before: &Stream, after: &Stream) {
    assert_eq!(before.media, after.media);
    assert_eq!(before.over_udp, after.over_udp);
    assert_eq!(before.direction, after.direction);
    assert_eq!(before.mux, after.mux);
    let held = |stream: &Stream| stream.host == Some(Host::Hold);
    assert_eq!(held(before), held(after));
}
