//! STUN on listeners.

use keepline_common::reason::Reason;
use keepline_tests::fixture::packet::{Udp, stun, stun_message, with_fingerprint};

use crate::table::{CTAG, Row, STAG, answered, becomes, edited, local, local6, phone, phone6, row};

/// The answer to [`stun`], by RFC 8489 section 14.2 and by hand.
fn success(address: &[u8], port: u16) -> Vec<u8> {
    let mask = [&[0x21, 0x12, 0xa4, 0x42][..], b"fixture-txid"].concat();
    let family = if address.len() == 4 { 1 } else { 2 };
    let mut attribute = vec![0, 0x20, 0, address.len() as u8 + 4, 0, family];
    attribute.extend((port ^ 0x2112).to_be_bytes());
    attribute.extend(address.iter().zip(mask).map(|(a, m)| a ^ m));
    stun_message(0x0101, &attribute)
}

/// Rows of STUN on listeners.
pub(crate) fn rows() -> Vec<Row> {
    let back = |payload: &[u8]| answered(&local(5060), "10.99.0.20:4000", payload);
    let back6 = |payload: &[u8]| answered(&local6(5060), "[2001:db8::20]:4000", payload);
    let v6: [u8; 16] = "2001:db8::20"
        .parse::<std::net::Ipv6Addr>()
        .unwrap()
        .octets();
    let ok = success(&[10, 99, 0, 20], 4000);
    let ok6 = success(&v6, 4000);
    let error = stun_message(0x0111, &[0, 9, 0, 4, 0, 0, 5, 0]);
    let software = |len: usize| [&[0x80, 0x22, 0, len as u8][..], &vec![b'x'; len]].concat();
    let sealed = with_fingerprint(stun(&[]));
    let trailing = |udp: Udp| edited(&udp, |f| f.extend([0xaa; 30]));
    let mut bad = sealed.clone();
    *bad.last_mut().unwrap() ^= 1;
    let mut classic = stun(&[]);
    classic[4] = 0;
    let mut long = stun(&[]);
    long[3] = 4;
    let own = Udp {
        from: local(9).parse().unwrap(),
        ..phone(5060, &stun(&[]))
    };
    let loopback = Udp::new("[::1]:9", &local6(5060), &stun(&[]));
    vec![
        becomes(
            "case_t1_answer_grows_by_12",
            phone(5060, &stun(&[])).frame(),
            Reason::StunAnswered,
            back(&ok).frame(),
        ),
        becomes(
            "case_t1_answer_ipv6",
            phone6(5060, &stun(&[])).frame(),
            Reason::StunAnswered,
            back6(&ok6).frame(),
        ),
        becomes(
            "an answer in a VLAN",
            phone(5060, &stun(&[])).tagged(&[[CTAG, 0x2005]]).frame(),
            Reason::StunAnswered,
            back(&ok).tagged(&[[CTAG, 0x2005]]).frame(),
        ),
        becomes(
            "an answer in QinQ over IPv6",
            phone6(5060, &stun(&[]))
                .tagged(&[[STAG, 5], [CTAG, 6]])
                .frame(),
            Reason::StunAnswered,
            back6(&ok6).tagged(&[[STAG, 5], [CTAG, 6]]).frame(),
        ),
        becomes(
            "case_t3_optional_attributes_ignored",
            phone(5060, &stun(&[0x80, 0x33, 0, 1, 7, 0, 0, 0])).frame(),
            Reason::StunAnswered,
            back(&ok).frame(),
        ),
        becomes(
            "an answer that is shorter than the request",
            phone(5060, &stun(&software(100))).frame(),
            Reason::StunAnswered,
            back(&ok).frame(),
        ),
        becomes(
            "case_t6_good_fingerprint",
            phone(5060, &sealed).frame(),
            Reason::StunAnswered,
            back(&with_fingerprint(ok.clone())).frame(),
        ),
        becomes(
            "case_t6_good_fingerprint_ipv6_vlan",
            phone6(5060, &sealed).tagged(&[[CTAG, 5]]).frame(),
            Reason::StunAnswered,
            back6(&with_fingerprint(ok6)).tagged(&[[CTAG, 5]]).frame(),
        ),
        becomes(
            "case_t6_bytes_beyond_the_ip_length",
            trailing(phone(5060, &sealed)),
            Reason::StunAnswered,
            back(&with_fingerprint(ok.clone())).frame(),
        ),
        becomes(
            "a FINGERPRINT over 256 bytes in all",
            phone(5060, &with_fingerprint(stun(&software(224)))).frame(),
            Reason::StunAnswered,
            back(&with_fingerprint(ok.clone())).frame(),
        ),
        becomes(
            "case_x6_a_partial_checksum",
            edited(&phone(5060, &stun(&[])), |f| f[40] ^= 0x55),
            Reason::StunAnswered,
            back(&ok).frame(),
        ),
        becomes(
            "a client whose own path serves",
            Udp::new("10.99.0.20:7000", &local(5061), &stun(&[])).frame(),
            Reason::StunAnswered,
            answered(
                &local(5061),
                "10.99.0.20:7000",
                &success(&[10, 99, 0, 20], 7000),
            )
            .frame(),
        ),
        becomes(
            "the error form",
            phone(5062, &stun(&[])).frame(),
            Reason::StunRefused,
            answered(&local(5062), "10.99.0.20:4000", &error).frame(),
        ),
        becomes(
            "the error form with FINGERPRINT",
            phone6(5062, &sealed).frame(),
            Reason::StunRefused,
            answered(
                &local6(5062),
                "[2001:db8::20]:4000",
                &with_fingerprint(error),
            )
            .frame(),
        ),
        row(
            "a path that is down",
            phone(5061, &stun(&[])).frame(),
            Reason::StunSilenced,
        ),
        row(
            "case_t6_bad_fingerprint",
            phone(5060, &bad).frame(),
            Reason::StunBadFingerprint,
        ),
        row(
            "case_t6_bad_fingerprint_ipv6",
            phone6(5060, &bad).frame(),
            Reason::StunBadFingerprint,
        ),
        row(
            "case_t4_length_contradicts",
            phone(5060, &long).frame(),
            Reason::StunMalformed,
        ),
        row(
            "case_t4_attribute_overrun",
            phone(5060, &stun(&[0x80, 0x22, 0, 9, 1, 2, 3, 4])).frame(),
            Reason::StunMalformed,
        ),
        row(
            "case_t4_not_times_four_ipv6",
            phone6(5060, &stun(&[0x80, 0x22])).frame(),
            Reason::StunMalformed,
        ),
        row(
            "case_t2_no_cookie",
            phone(5060, &classic).frame(),
            Reason::StunClassic,
        ),
        row("a response", phone(5060, &ok).frame(), Reason::StunOther),
        row(
            "an indication",
            phone(5060, &stun_message(0x0011, &[])).frame(),
            Reason::StunOther,
        ),
        row(
            "credentials",
            phone(5060, &stun(&[&[0, 8, 0, 20][..], &[0; 20]].concat())).frame(),
            Reason::StunAuthenticated,
        ),
        row(
            "case_t3_unknown_required",
            phone(5060, &stun(&[0, 0x33, 0, 0, 0, 0x34, 0, 0])).frame(),
            Reason::StunUnknownRequired,
        ),
        row(
            "a FINGERPRINT over 260 bytes",
            phone(5060, &with_fingerprint(stun(&software(228)))).frame(),
            Reason::StunLong,
        ),
        row(
            "seventeen attributes",
            phone(5060, &stun(&[0x80, 0x22, 0, 0].repeat(17))).frame(),
            Reason::StunLong,
        ),
        row("from our own address", own.frame(), Reason::StunBadSource),
        row(
            "from the IPv6 loopback",
            loopback.frame(),
            Reason::StunBadSource,
        ),
    ]
}
