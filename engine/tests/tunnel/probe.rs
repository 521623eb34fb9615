//! The probe on the wire, and what counts as its answer: MX4, MX5, cases D1 to D5, rogue DHCP.

use std::net::Ipv4Addr;

use keepline_engine::{
    time::Mono,
    tunnel::{
        answer::{Answer, Ignored, Kind, Prober},
        identity::Identity,
    },
};

use crate::sim::{ms, secs};

const IP: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const SERVER: [u8; 4] = [203, 0, 113, 2];
const OTHER: [u8; 4] = [203, 0, 113, 3];
const XID: u32 = 0x1122_3344;

fn prober(expected: Option<[u8; 4]>) -> Prober {
    Prober::new(
        Identity::new(b"machine", "hq-a"),
        IP,
        expected.map(Ipv4Addr::from),
    )
}

/// An answer as a server would send it, to be bent.
#[derive(Clone)]
pub(crate) struct Reply {
    op: u8,
    hlen: u8,
    xid: u32,
    chaddr: [u8; 16],
    sname: Vec<u8>,
    file: Vec<u8>,
    options: Vec<u8>,
    to: [u8; 6],
    ports: (u16, u16),
}

impl Reply {
    fn to(prober: &Prober, kind: u8) -> Self {
        let mac = prober.identity().mac;
        let mut chaddr = [0; 16];
        chaddr[..6].copy_from_slice(&mac);
        let mut options = vec![53, 1, kind, 54, 4];
        options.extend(SERVER);
        options.push(255);
        Self {
            op: 2,
            hlen: 6,
            xid: XID,
            chaddr,
            sname: Vec::new(),
            file: Vec::new(),
            options,
            to: [0xff; 6],
            ports: (67, 68),
        }
    }

    fn frame(&self) -> Vec<u8> {
        let mut message = vec![self.op, 1, self.hlen, 0];
        message.extend(self.xid.to_be_bytes());
        message.extend([0, 0, 0x80, 0]);
        message.extend([0; 16]);
        message.extend(self.chaddr);
        for (field, size) in [(&self.sname, 64), (&self.file, 128)] {
            let mut field = field.clone();
            field.resize(size, 0);
            message.extend(field);
        }
        message.extend([99, 130, 83, 99]);
        message.extend(&self.options);
        let builder = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 9], self.to)
            .ipv4(SERVER, [255; 4], 64)
            .udp(self.ports.0, self.ports.1);
        let mut frame = Vec::new();
        builder.write(&mut frame, &message).expect("into memory");
        frame
    }
}

/// Asks once and shows this answer.
fn shown(prober: &mut Prober, reply: &Reply) -> Result<Answer, Ignored> {
    let _ = prober.ask(Mono(secs(5)), XID, 0, true);
    prober.answer(Mono(secs(5) + ms(3)), &reply.frame())
}

#[test]
fn mx4_case_d2_the_probe_is_an_init_reboot_request_as_broadcast() {
    let mut prober = prober(None);
    let frame = prober.ask(Mono(secs(5)), XID, 20, true);
    let mac = prober.identity().mac;
    assert_eq!(frame[..6], [0xff; 6]);
    assert_eq!(
        frame[6..12],
        mac,
        "Ethernet source = chaddr: switches check"
    );
    assert_eq!(frame[26..34], [0, 0, 0, 0, 255, 255, 255, 255]);
    assert_eq!(frame[34..38], [0, 68, 0, 67]);
    let dhcp = &frame[42..];
    assert!(dhcp.len() >= 300, "BOOTP's least");
    assert_eq!(dhcp[..4], [1, 1, 6, 0]);
    assert_eq!(dhcp[4..8], XID.to_be_bytes());
    assert_eq!(
        dhcp[8..12],
        [0, 20, 0x80, 0x00],
        "secs, and the broadcast flag"
    );
    assert_eq!(dhcp[12..28], [0; 16], "ciaddr, yiaddr, siaddr, giaddr");
    assert_eq!(dhcp[28..34], mac);
    let mut options = std::collections::BTreeMap::new();
    let mut rest = &dhcp[240..];
    while let [code, length, after @ ..] = rest
        && *code != 255
    {
        let (value, next) = after.split_at(usize::from(*length));
        options.insert(*code, value.to_vec());
        rest = next;
    }
    assert_eq!(options[&53], [3], "DHCPREQUEST");
    assert_eq!(
        options[&50],
        IP.octets(),
        "the health-check address, here only"
    );
    assert_eq!(options[&61], prober.identity().client_id);
    assert!(!options.contains_key(&54), "no server is named");
    let ip = IP.octets();
    assert_eq!(frame.windows(4).filter(|four| *four == ip).count(), 1);
    // Both checksums, as a switch or server would verify them.
    let sliced = etherparse::SlicedPacket::from_ethernet(&frame).expect("well-formed");
    let (Some(etherparse::NetSlice::Ipv4(v4)), Some(etherparse::TransportSlice::Udp(udp))) =
        (&sliced.net, &sliced.transport)
    else {
        panic!("not IPv4 and UDP");
    };
    let header = v4.header();
    assert_eq!(
        header.header_checksum(),
        header.to_header().calc_header_checksum()
    );
    let expected = udp
        .to_header()
        .calc_checksum_ipv4(&header.to_header(), udp.payload());
    assert_eq!(Some(udp.checksum()), expected.ok());
}

#[test]
fn mx5_ack_and_nak_count_and_nothing_else() {
    let mut prober = prober(None);
    for (kind, expected) in [(5, Kind::Ack), (6, Kind::Nak)] {
        let answer = shown(&mut prober, &Reply::to(&prober_of(), kind)).expect("counts");
        assert_eq!(answer.kind, expected);
        assert_eq!((answer.server.octets(), answer.after), (SERVER, ms(3)));
    }
    for kind in [0, 1, 2, 3, 4, 7, 8, 255] {
        let reply = Reply::to(&prober, kind);
        assert_eq!(
            shown(&mut prober, &reply),
            Err(Ignored::NotFinal),
            "type {kind}"
        );
    }
}

fn prober_of() -> Prober {
    prober(None)
}

#[test]
fn mx5_case_d1_a_wrong_xid_chaddr_or_direction_is_ignored() {
    let mut prober = prober(None);
    let good = Reply::to(&prober, 6);
    let bent = |change: fn(&mut Reply)| {
        let mut reply = good.clone();
        change(&mut reply);
        reply
    };
    let cases: [(Reply, Ignored); 6] = [
        (bent(|r| r.xid ^= 1), Ignored::OtherRequest),
        (bent(|r| r.chaddr[5] ^= 1), Ignored::OtherClient),
        (bent(|r| r.op = 1), Ignored::NotFinal),
        (bent(|r| r.ports.1 = 67), Ignored::NotDhcp),
        (bent(|r| r.ports.0 = 1067), Ignored::NotDhcp),
        (bent(|r| r.options.clear()), Ignored::Malformed),
    ];
    for (reply, why) in cases {
        assert_eq!(shown(&mut prober, &reply), Err(why));
    }
    assert!(shown(&mut prober, &good).is_ok());
    // What was meant for one tunnel does not count for another: another client, other requests.
    let other = Prober::new(Identity::new(b"machine", "hq-b"), IP, None);
    assert_eq!(
        other.answer(Mono(secs(5)), &good.frame()),
        Err(Ignored::OtherClient)
    );
}

#[test]
fn mx5_an_answer_to_an_earlier_series_is_too_late() {
    let mut prober = prober(None);
    let reply = Reply::to(&prober, 6).frame();
    let _ = prober.ask(Mono(secs(5)), XID, 0, true);
    let _ = prober.ask(Mono(secs(15)), XID + 1, 10, false);
    let answer = prober
        .answer(Mono(secs(16)), &reply)
        .expect("the same series");
    assert_eq!(answer.after, secs(11));
    let _ = prober.ask(Mono(secs(65)), XID + 2, 0, true);
    assert_eq!(
        prober.answer(Mono(secs(66)), &reply),
        Err(Ignored::OtherRequest)
    );
}

#[test]
fn case_d2_a_unicast_answer_counts_all_the_same() {
    let mut prober = prober(None);
    let mut reply = Reply::to(&prober, 5);
    reply.to = prober.identity().mac;
    assert!(shown(&mut prober, &reply).is_ok());
}

#[test]
fn mx5_case_d4_another_server_than_the_expected_one_is_ignored() {
    let mut prober = prober(Some(OTHER));
    let reply = Reply::to(&prober, 6);
    let ignored = shown(&mut prober, &reply);
    assert_eq!(ignored, Err(Ignored::OtherServer(Ipv4Addr::from(SERVER))));
    let mut reply = reply;
    reply.options[5..9].copy_from_slice(&OTHER);
    assert_eq!(
        shown(&mut prober, &reply).expect("counts").server.octets(),
        OTHER
    );
    // Without option 54 the source address speaks.
    reply.options = vec![53, 1, 6, 255];
    let ignored = shown(&mut prober, &reply);
    assert_eq!(ignored, Err(Ignored::OtherServer(Ipv4Addr::from(SERVER))));
}

#[test]
fn case_d5_two_servers_are_both_told() {
    let mut open = prober(None);
    let one = Reply::to(&open, 6);
    let mut two = Reply::to(&open, 5);
    two.options[5..9].copy_from_slice(&OTHER);
    let _ = open.ask(Mono(secs(5)), XID, 0, true);
    let servers = [&one, &two].map(|reply| {
        let answer = open.answer(Mono(secs(5)), &reply.frame());
        answer.expect("counts").server.octets()
    });
    assert_eq!(servers, [SERVER, OTHER]);
    let mut strict = prober(Some(OTHER));
    assert!(shown(&mut strict, &one).is_err());
    assert!(shown(&mut strict, &two).is_ok());
}

#[test]
fn threat_rogue_dhcp_lengths_overload_and_missing_end_are_survived() {
    let mut prober = prober(None);
    let good = Reply::to(&prober, 6);
    // A hardware address longer than its field made the decoder panic.
    for hlen in [0, 5, 7, 16, 17, 255] {
        let mut reply = good.clone();
        reply.hlen = hlen;
        assert_eq!(shown(&mut prober, &reply), Err(Ignored::Malformed));
    }
    // The end is missing, or an option reaches past it.
    for tail in [&[][..], &[56], &[56, 200], &[56, 200, 1]] {
        let mut reply = good.clone();
        reply.options.pop();
        reply.options.extend(tail);
        assert!(shown(&mut prober, &reply).is_ok(), "{tail:?}");
    }
    // Options that claim a wrong length (debug builds of the decoder assert on these).
    for option in [
        &[80, 1, 0][..],
        &[94, 2, 0, 0],
        &[54, 3, 1, 2, 3],
        &[53, 2, 6, 6],
        &[52, 1, 9],
    ] {
        let mut reply = good.clone();
        reply.options.splice(0..0, option.iter().copied());
        assert!(shown(&mut prober, &reply).is_ok(), "{option:?}");
    }
    // A thousand bytes of everything, and text for a terminal to choke on.
    let mut huge = good.clone();
    huge.options.pop();
    huge.options
        .extend([56, 250].into_iter().chain([0x1b; 125]).chain([b'A'; 125]));
    for code in 60..250 {
        huge.options.extend([code, 3, 1, 2, 3]);
    }
    let answer = shown(&mut prober, &huge).expect("counts");
    assert_eq!(answer.text.expect("text").len(), 120);
    // The kind stands in `file`, the server in `sname` (RFC 2132 section 9.3).
    let mut over = good.clone();
    over.options = vec![52, 1, 3, 255];
    over.file = vec![53, 1, 6, 255];
    over.sname = [&[54, 4][..], &OTHER[..], &[255]].concat();
    assert_eq!(
        shown(&mut prober, &over).expect("counts").server.octets(),
        OTHER
    );
    over.options = vec![255];
    assert_eq!(
        shown(&mut prober, &over),
        Err(Ignored::Malformed),
        "not without option 52"
    );
    // Cut anywhere, it is no answer or the same one.
    let whole = good.frame();
    for length in 0..whole.len() {
        let _ = prober.answer(Mono(secs(5)), &whole[..length]);
    }
}
