//! Reading a DHCP answer: whatever arrives, nothing panics, and what counts bears our marks.

use std::net::Ipv4Addr;

use keepline_engine::{
    time::Mono,
    tunnel::{
        answer::{Ignored, Prober},
        identity::Identity,
    },
};

/// Any frame; the identity and the request are fixed, so that a fuzzer can hit them.
pub(crate) fn dhcp_answer(data: &[u8]) {
    let identity = Identity {
        mac: [2, 0, 0, 0, 0, 1],
        client_id: b"\0fuzz".to_vec(),
    };
    let server = Ipv4Addr::new(203, 0, 113, 2);
    for expected in [None, Some(server)] {
        let mut prober = Prober::new(identity.clone(), Ipv4Addr::new(203, 0, 113, 1), expected);
        let _ = prober.ask(Mono::default(), 0x1122_3344, 0, true);
        match prober.answer(Mono::default(), data) {
            Ok(answer) => {
                let has = |bytes: &[u8]| data.windows(bytes.len()).any(|part| part == bytes);
                assert!(has(&[0x11, 0x22, 0x33, 0x44]) && has(&identity.mac));
                assert!(expected.is_none_or(|expected| expected == answer.server));
                assert!(!answer.to_string().contains(char::is_control));
            }
            Err(Ignored::OtherServer(other)) => {
                assert_eq!(expected.map(|e| e == other), Some(false))
            }
            Err(why) => assert!(!why.to_string().is_empty()),
        }
    }
}
