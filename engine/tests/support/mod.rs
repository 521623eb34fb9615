//! Messages and instants for the SIP tests.
#![allow(dead_code, reason = "each test binary uses its part, and one uses all")]

use std::{net::SocketAddr, time::Duration};

use keepline_engine::{
    net::ListenerId,
    sip::Message,
    time::{Mono, Now, Wall},
};

/// The socket everything arrives at.
pub(crate) const LISTENER: ListenerId = ListenerId(1);

/// Milliseconds after the start of the world.
pub(crate) fn at(ms: u64) -> Now {
    let since = Duration::from_millis(ms);
    Now {
        mono: Mono(since),
        wall: Wall(since + Duration::from_secs(1_700_000_000)),
    }
}

/// Milliseconds since the start of the world.
pub(crate) fn ms(mono: Mono) -> u64 {
    u64::try_from(mono.0.as_millis()).expect("a short test")
}

/// A socket address.
pub(crate) fn addr(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// A message that is well-formed.
pub(crate) fn parse(text: impl AsRef<[u8]>) -> Message {
    let text = text.as_ref();
    Message::parse(text.to_vec())
        .unwrap_or_else(|refusal| panic!("{refusal}: {}", text.escape_ascii()))
}

/// A request from 192.0.2.1.
pub(crate) fn request(method: &str, branch: &str) -> String {
    format!(
        "{method} sip:bob@192.0.2.4 SIP/2.0\r\n\
         Via: SIP/2.0/UDP 192.0.2.1:5060;rport;branch={branch}\r\n\
         Max-Forwards: 70\r\n\
         Route: <sip:192.0.2.9;lr>\r\n\
         From: \"Alice\" <sip:alice@atlanta.example>;tag=9fxced76sl\r\n\
         To: <sip:bob@biloxi.example>\r\n\
         Call-ID: 3848276298220188511@192.0.2.1\r\n\
         CSeq: 7 {method}\r\n\
         Content-Length: 0\r\n\r\n"
    )
}

/// What the peer answers to a request of [`request`]'s kind.
pub(crate) fn response(request: &Message, code: u16) -> Vec<u8> {
    keepline_engine::sip::respond(
        request,
        code,
        "Whatever",
        Some("314159"),
        addr("192.0.2.1:5060"),
    )
}

/// A small deterministic source of numbers (splitmix64).
pub(crate) struct Seeded(pub(crate) u64);

impl Seeded {
    /// The next number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
