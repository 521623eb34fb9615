//! STUN Binding (RFC 8489): what can be answered without credentials or state, and the answer.

use crate::{
    crc::Crc,
    limits::{STUN_ATTRIBUTES, STUN_FINGERPRINT_BYTES},
    record::{Address, unmapped},
};

/// Length of the header.
pub const HEADER: u32 = 20;
/// The longest answer: header, XOR-MAPPED-ADDRESS of IPv6, FINGERPRINT.
pub const ANSWER_MAX: usize = 52;

const COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];
const BINDING_REQUEST: [u8; 2] = [0x00, 0x01];
const BINDING_SUCCESS: [u8; 2] = [0x01, 0x01];
const BINDING_ERROR: [u8; 2] = [0x01, 0x11];

const ERROR_CODE: [u8; 2] = [0x00, 0x09];
const XOR_MAPPED_ADDRESS: [u8; 2] = [0x00, 0x20];
const FINGERPRINT: u16 = 0x8028;
/// From here on attributes may be ignored (section 14).
const OPTIONAL: u16 = 0x8000;

/// The bytes of a datagram's payload, by words of four.
pub trait Words {
    /// The word at byte `at`, a multiple of four; `None` past the end.
    fn word(&self, at: u32) -> Option<[u8; 4]>;
}

impl Words for [u8] {
    fn word(&self, at: u32) -> Option<[u8; 4]> {
        self.get(at as usize..)?.first_chunk().copied()
    }
}

/// A request that can be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Cookie and transaction id: what the answer repeats and masks addresses with.
    pub transaction: [[u8; 4]; 4],
    /// The request carries a FINGERPRINT, so the answer does.
    pub fingerprint: bool,
}

/// Why a payload is not answered here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Not STUN at all.
    NotStun,
    /// Shaped like a STUN header, without the cookie of RFC 5389: RFC 3489.
    Classic,
    /// Lengths that contradict each other.
    Malformed,
    /// A response, an indication, or another method than Binding.
    NotRequest,
    /// Carries credentials, which the signalling side checks.
    Authenticated,
    /// Carries attributes that must be understood and are not (section 6.3.1: 420).
    UnknownRequired,
    /// More attributes, or more bytes under a FINGERPRINT, than are walked here.
    TooLong,
    /// The FINGERPRINT is wrong.
    BadFingerprint,
}

/// Reads a payload of `len` bytes.
///
/// # Errors
/// The [`Refusal`] says why it is not a request that can be answered without more knowledge.
#[inline(always)]
pub fn parse<W: Words + ?Sized>(payload: &W, len: u32) -> Result<Request, Refusal> {
    let [k0, k1, l0, l1] = payload
        .word(0)
        .filter(|_| len >= HEADER)
        .ok_or(Refusal::NotStun)?;
    let body = u32::from(u16::from_be_bytes([l0, l1]));
    if k0 & 0xc0 != 0 || body % 4 != 0 && payload.word(4) != Some(COOKIE) {
        return Err(Refusal::NotStun);
    }
    let cookie = payload.word(4).ok_or(Refusal::NotStun)?;
    if cookie != COOKIE {
        let classic = [k0, k1] == BINDING_REQUEST && body == len - HEADER;
        return Err(if classic {
            Refusal::Classic
        } else {
            Refusal::NotStun
        });
    }
    if body % 4 != 0 || body != len - HEADER {
        return Err(Refusal::Malformed);
    }
    if [k0, k1] != BINDING_REQUEST {
        return Err(Refusal::NotRequest);
    }
    let id = |at| payload.word(at).ok_or(Refusal::Malformed);
    let transaction = [cookie, id(8)?, id(12)?, id(16)?];
    let fingerprint = match walk(payload, len)? {
        None => false,
        Some(value) if len <= STUN_FINGERPRINT_BYTES => {
            check_fingerprint(payload, len, value)?;
            true
        }
        Some(_) => return Err(Refusal::TooLong),
    };
    Ok(Request {
        transaction,
        fingerprint,
    })
}

/// Walks over the attributes; the value of FINGERPRINT, which must be the last.
#[inline(always)]
fn walk<W: Words + ?Sized>(payload: &W, len: u32) -> Result<Option<[u8; 4]>, Refusal> {
    let mut at = HEADER;
    for _ in 0..STUN_ATTRIBUTES {
        if at == len {
            return Ok(None);
        }
        let [t0, t1, l0, l1] = payload.word(at).ok_or(Refusal::Malformed)?;
        let kind = u16::from_be_bytes([t0, t1]);
        let size = u32::from(u16::from_be_bytes([l0, l1]));
        let next = at + 4 + ((size + 3) & !3);
        if next > len {
            return Err(Refusal::Malformed);
        }
        if kind == FINGERPRINT {
            let whole = size == 4 && next == len;
            let value = payload
                .word(at + 4)
                .filter(|_| whole)
                .ok_or(Refusal::Malformed)?;
            return Ok(Some(value));
        }
        if kind < OPTIONAL {
            return Err(if is_credential(kind) {
                Refusal::Authenticated
            } else {
                Refusal::UnknownRequired
            });
        }
        at = next;
    }
    if at == len {
        Ok(None)
    } else {
        Err(Refusal::TooLong)
    }
}

/// USERNAME, MESSAGE-INTEGRITY, REALM, NONCE, MESSAGE-INTEGRITY-SHA256, PASSWORD-ALGORITHM,
/// USERHASH.
#[inline(always)]
const fn is_credential(kind: u16) -> bool {
    matches!(
        kind,
        0x0006 | 0x0008 | 0x0014 | 0x0015 | 0x001c | 0x001d | 0x001e
    )
}

#[inline(always)]
fn check_fingerprint<W: Words + ?Sized>(
    payload: &W,
    len: u32,
    value: [u8; 4],
) -> Result<(), Refusal> {
    let mut crc = Crc::new();
    for index in 0..STUN_FINGERPRINT_BYTES / 4 - 2 {
        if index * 4 + 8 >= len {
            break;
        }
        crc = crc.word(payload.word(index * 4).ok_or(Refusal::Malformed)?);
    }
    if crc.fingerprint() == value {
        Ok(())
    } else {
        Err(Refusal::BadFingerprint)
    }
}

/// An answer: whole words, so that summing and copying go by four.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    words: [[u8; 4]; ANSWER_MAX / 4],
    len: u32,
}

impl Answer {
    /// Success: the client's address as we see it (section 14.2).
    #[inline(always)]
    #[must_use]
    pub fn success(request: &Request, address: &Address, port: [u8; 2]) -> Self {
        let [cookie, id @ ..] = request.transaction;
        let port = [port[0] ^ cookie[0], port[1] ^ cookie[1]];
        let mut words = [[0; 4]; ANSWER_MAX / 4];
        words[6] = [0, 1, port[0], port[1]];
        let body = if let Some(v4) = unmapped(address) {
            words[5] = attribute(XOR_MAPPED_ADDRESS, 8);
            words[7] = xor(v4, cookie);
            12
        } else {
            let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *address;
            words[5] = attribute(XOR_MAPPED_ADDRESS, 20);
            words[6][1] = 2;
            words[7] = xor([a, b, c, d], cookie);
            words[8] = xor([e, f, g, h], id[0]);
            words[9] = xor([i, j, k, l], id[1]);
            words[10] = xor([m, n, o, p], id[2]);
            24
        };
        Self::finish(words, BINDING_SUCCESS, body, request)
    }

    /// Binding error 500 without a reason phrase (section 14.8).
    #[inline(always)]
    #[must_use]
    pub fn error_500(request: &Request) -> Self {
        let mut words = [[0; 4]; ANSWER_MAX / 4];
        words[5] = attribute(ERROR_CODE, 4);
        words[6] = [0, 0, 5, 0];
        Self::finish(words, BINDING_ERROR, 8, request)
    }

    /// Its length in bytes: a multiple of four.
    #[inline(always)]
    #[expect(clippy::len_without_is_empty, reason = "an answer is never empty")]
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// The word at `index`, zero past the end.
    #[inline(always)]
    #[must_use]
    pub const fn word(&self, index: usize) -> [u8; 4] {
        self.words[index]
    }

    #[inline(always)]
    fn finish(
        mut words: [[u8; 4]; ANSWER_MAX / 4],
        kind: [u8; 2],
        body: u16,
        request: &Request,
    ) -> Self {
        let total = if request.fingerprint { body + 8 } else { body };
        let [l0, l1] = total.to_be_bytes();
        words[0] = [kind[0], kind[1], l0, l1];
        [words[1], words[2], words[3], words[4]] = request.transaction;
        if request.fingerprint {
            // `body` is 8, 12 or 24: constant branches keep every index constant.
            match body {
                8 => seal::<7>(&mut words),
                12 => seal::<8>(&mut words),
                _ => seal::<11>(&mut words),
            }
        }
        Self {
            words,
            len: HEADER + u32::from(total),
        }
    }
}

/// Appends FINGERPRINT behind the first `N` words.
#[inline(always)]
fn seal<const N: usize>(words: &mut [[u8; 4]; ANSWER_MAX / 4]) {
    let mut crc = Crc::new();
    let mut index = 0;
    while index < N {
        crc = crc.word(words[index]);
        index += 1;
    }
    words[N] = attribute(FINGERPRINT.to_be_bytes(), 4);
    words[N + 1] = crc.fingerprint();
}

#[inline(always)]
const fn attribute([a, b]: [u8; 2], len: u8) -> [u8; 4] {
    [a, b, 0, len]
}

#[inline(always)]
const fn xor([a, b, c, d]: [u8; 4], [e, f, g, h]: [u8; 4]) -> [u8; 4] {
    [a ^ e, b ^ f, c ^ g, d ^ h]
}

#[cfg(test)]
mod tests;
