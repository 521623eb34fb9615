use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::record::mapped;

const ID: [u8; 12] = *b"transaction!";

fn message(kind: [u8; 2], attributes: &[u8]) -> Vec<u8> {
    let len = (attributes.len() as u16).to_be_bytes();
    [&kind[..], &len, &COOKIE, &ID, attributes].concat()
}

fn sealed(attributes: &[u8]) -> Vec<u8> {
    let mut bytes = message(BINDING_REQUEST, &[attributes, &[0; 8]].concat());
    let end = bytes.len() - 8;
    let crc = bytes[..end]
        .chunks_exact(4)
        .fold(Crc::new(), |crc, w| crc.word([w[0], w[1], w[2], w[3]]));
    bytes[end..].copy_from_slice(&[&[0x80, 0x28, 0, 4][..], &crc.fingerprint()].concat());
    bytes
}

fn read(bytes: &[u8]) -> Result<Request, Refusal> {
    parse(bytes, bytes.len() as u32)
}

fn bytes_of(answer: &Answer) -> Vec<u8> {
    let words = answer.words::<11>();
    let whole = words.iter().take(answer.form().words() as usize);
    let sealed = answer.fingerprint().into_iter().flatten();
    let bytes: Vec<u8> = whole
        .copied()
        .chain(sealed)
        .flat_map(u32::to_ne_bytes)
        .collect();
    assert_eq!(bytes.len(), answer.len() as usize);
    bytes
}

#[test]
fn case_t1_answers_stay_small() {
    let request = read(&message(BINDING_REQUEST, &[])).unwrap();
    let v4 = Answer::success(&request, &mapped([192, 0, 2, 1]), [0x80, 0x55]);
    let v6 = Answer::success(&request, &[0x20; 16], [0x80, 0x55]);
    assert_eq!(
        (v4.len(), v6.len(), Answer::error_500(&request).len()),
        (32, 44, 28)
    );
}

/// The address, port and transaction id of RFC 5769 section 2.2 and 2.3.
#[test]
fn addresses_are_masked_as_in_rfc_5769() {
    let id = [
        0xb7, 0xe7, 0xa7, 0x01, 0xbc, 0x34, 0xd6, 0x86, 0xfa, 0x87, 0xdf, 0xae,
    ];
    let request = read(&[&BINDING_REQUEST[..], &[0, 0], &COOKIE, &id].concat()).unwrap();
    let port = 32853_u16.to_be_bytes();
    let v4 = bytes_of(&Answer::success(&request, &mapped([192, 0, 2, 1]), port));
    assert_eq!(
        v4[20..],
        [0, 0x20, 0, 8, 0, 1, 0xa1, 0x47, 0xe1, 0x12, 0xa6, 0x43]
    );
    let address = [
        0x20, 0x01, 0x0d, 0xb8, 0x12, 0x34, 0x56, 0x78, 0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66,
        0x77,
    ];
    let v6 = bytes_of(&Answer::success(&request, &address, port));
    assert_eq!(
        v6[20..],
        [
            0x00, 0x20, 0x00, 0x14, 0x00, 0x02, 0xa1, 0x47, 0x01, 0x13, 0xa9, 0xfa, 0xa5, 0xd3,
            0xf1, 0x79, 0xbc, 0x25, 0xf4, 0xb5, 0xbe, 0xd2, 0xb9, 0xd9,
        ]
    );
}

/// FINGERPRINT of RFC 5769 section 2.1 covers the request up to itself; its own attributes carry
/// credentials, so only the CRC is compared.
#[test]
fn case_t6_fingerprint_is_rfc_5769s() {
    const REQUEST: &[u8] = b"\x00\x01\x00\x58\x21\x12\xa4\x42\xb7\xe7\xa7\x01\xbc\x34\xd6\x86\xfa\
        \x87\xdf\xae\x80\x22\x00\x10\x53\x54\x55\x4e\x20\x74\x65\x73\x74\x20\x63\x6c\x69\x65\x6e\
        \x74\x00\x24\x00\x04\x6e\x00\x01\xff\x80\x29\x00\x08\x93\x2f\xf9\xb1\x51\x26\x3b\x36\x00\
        \x06\x00\x09\x65\x76\x74\x6a\x3a\x68\x36\x76\x59\x20\x20\x20\x00\x08\x00\x14\x9a\xea\xa7\
        \x0c\xbf\xd8\xcb\x56\x78\x1e\xf2\xb5\xb2\xd3\xf2\x49\xc1\xb5\x71\xa2\x80\x28\x00\x04\xe5\
        \x7a\x3b\xcf";
    assert_eq!(
        check_fingerprint(REQUEST, 108, [0xe5, 0x7a, 0x3b, 0xcf]),
        Ok(())
    );
    assert_eq!(
        check_fingerprint(REQUEST, 108, [0xe5, 0x7a, 0x3b, 0xce]),
        Err(Refusal::BadFingerprint)
    );
}

#[test]
fn case_t2_without_the_cookie_it_is_rfc_3489() {
    let mut classic = message(BINDING_REQUEST, &[]);
    classic[4] = 0;
    assert_eq!(read(&classic), Err(Refusal::Classic));
}

#[test]
fn case_t3_required_attributes_are_not_ignored() {
    let unknown = |kind: [u8; 2]| read(&message(BINDING_REQUEST, &[kind[0], kind[1], 0, 0]));
    assert_eq!(unknown([0x00, 0x33]), Err(Refusal::UnknownRequired));
    assert_eq!(unknown([0x00, 0x08]), Err(Refusal::Authenticated));
    assert!(unknown([0x80, 0x33]).is_ok());
}

#[test]
fn case_t4_contradicting_lengths_are_refused() {
    let whole = message(BINDING_REQUEST, &[]);
    for len in 0..20 {
        assert_eq!(read(&whole[..len]), Err(Refusal::NotStun), "{len} bytes");
    }
    let with = |attributes: &[u8]| read(&message(BINDING_REQUEST, attributes));
    assert_eq!(
        with(&[0x80, 0x22, 0, 5, 1, 2, 3, 4]),
        Err(Refusal::Malformed),
        "overrun"
    );
    assert_eq!(
        with(&[0x80, 0x22]),
        Err(Refusal::Malformed),
        "not a multiple of four"
    );
    let mut longer = whole.clone();
    longer[3] = 4;
    assert_eq!(
        read(&longer),
        Err(Refusal::Malformed),
        "announces more than there is"
    );
    let fingerprint_first = [&[0x80, 0x28, 0, 4, 1, 2, 3, 4][..], &[0x80, 0x22, 0, 0]].concat();
    assert_eq!(with(&fingerprint_first), Err(Refusal::Malformed));
}

#[test]
fn responses_and_indications_are_never_answered() {
    for kind in [BINDING_SUCCESS, BINDING_ERROR, [0x00, 0x11], [0x00, 0x03]] {
        assert_eq!(read(&message(kind, &[])), Err(Refusal::NotRequest));
    }
}

#[test]
fn long_requests_go_up() {
    let many = [0x80, 0x22, 0, 0].repeat(STUN_ATTRIBUTES as usize + 1);
    assert_eq!(
        read(&message(BINDING_REQUEST, &many)),
        Err(Refusal::TooLong)
    );
    let just = [0x80, 0x22, 0, 0].repeat(STUN_ATTRIBUTES as usize);
    assert!(read(&message(BINDING_REQUEST, &just)).is_ok());
    let long = [&[0x80, 0x22, 0, 228][..], &[b'x'; 228]].concat();
    assert_eq!(read(&sealed(&long)), Err(Refusal::TooLong));
    let fits = [&[0x80, 0x22, 0, 224][..], &[b'x'; 224]].concat();
    assert!(read(&sealed(&fits)).is_ok_and(|request| request.fingerprint));
}

proptest! {
    #[test]
    fn anything_is_read_without_a_panic(bytes: Vec<u8>) {
        let _ = read(&bytes);
    }

    #[test]
    fn a_broken_bit_under_a_fingerprint_is_noticed(
        software in prop::collection::vec(any::<[u8; 4]>(), 0..20), bit in 64_usize..128,
    ) {
        let body: Vec<u8> = software.concat();
        let attribute = [&[0x80, 0x22, 0, body.len() as u8][..], &body].concat();
        let mut bytes = sealed(&attribute);
        prop_assert!(read(&bytes).is_ok());
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(read(&bytes), Err(Refusal::BadFingerprint));
    }

    #[test]
    fn an_answer_that_carries_a_fingerprint_carries_a_good_one(
        address: [u8; 16], v4: Option<[u8; 4]>, port: [u8; 2], error: bool,
    ) {
        let request = read(&sealed(&[])).unwrap();
        let address = v4.map_or(address, mapped);
        let answer = if error {
            Answer::error_500(&request)
        } else {
            Answer::success(&request, &address, port)
        };
        let bytes = bytes_of(&answer);
        let sum = bytes
            .chunks_exact(4)
            .fold(Sum::new(), |sum, w| sum.dword([w[0], w[1], w[2], w[3]]));
        prop_assert_eq!(answer.add_to(Sum::new()).checksum(), sum.checksum());
        let end = bytes.len() - 4;
        let value = [bytes[end], bytes[end + 1], bytes[end + 2], bytes[end + 3]];
        prop_assert_eq!(check_fingerprint(&bytes[..], answer.len(), value), Ok(()));
        prop_assert_eq!(usize::from(u16::from_be_bytes([bytes[2], bytes[3]])), bytes.len() - 20);
        prop_assert_eq!(&bytes[8..20], &ID);
    }
}
