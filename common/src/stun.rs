//! STUN Binding (RFC 8489): what can be answered without credentials or state, and the answer.

use crate::{
    checksum::Sum,
    crc::Crc,
    limits::{STUN_ATTRIBUTES, STUN_FINGERPRINT_BYTES},
    record::{Address, unmapped},
};

/// Length of the header.
pub const HEADER: u32 = 20;
/// Words of the longest answer before its FINGERPRINT: header and XOR-MAPPED-ADDRESS of IPv6.
const WORDS: usize = 11;

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

/// An answer, by words as they stand in the message, in the machine's order: the kernel's program
/// handles whole words three times faster than bytes. Words past the end are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    words: [u32; WORDS],
    form: Form,
    fingerprint: Option<[u32; 2]>,
}

/// Which answer it is: its length before the FINGERPRINT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Error 500: 7 words.
    Error,
    /// An IPv4 address: 8 words.
    Ipv4,
    /// An IPv6 address: 11 words.
    Ipv6,
}

impl Form {
    /// Words of the message before the FINGERPRINT.
    #[inline(always)]
    #[must_use]
    pub const fn words(self) -> u32 {
        match self {
            Self::Error => 7,
            Self::Ipv4 => 8,
            Self::Ipv6 => 11,
        }
    }
}

impl Answer {
    /// Success: the client's address as we see it (section 14.2).
    #[inline(always)]
    #[must_use]
    pub fn success(request: &Request, address: &Address, [p0, p1]: [u8; 2]) -> Self {
        let [cookie, id @ ..] = request.transaction.map(u32::from_ne_bytes);
        let port = [p0 ^ COOKIE[0], p1 ^ COOKIE[1]];
        let [a, b, c, d] = in_words(address);
        if unmapped(address).is_some() {
            let body = [
                attribute(XOR_MAPPED_ADDRESS, 8),
                word([0, 1, port[0], port[1]]),
                d ^ cookie,
                0,
                0,
                0,
            ];
            return Self::finish(body, Form::Ipv4, BINDING_SUCCESS, request);
        }
        let body = [
            attribute(XOR_MAPPED_ADDRESS, 20),
            word([0, 2, port[0], port[1]]),
            a ^ cookie,
            b ^ id[0],
            c ^ id[1],
            d ^ id[2],
        ];
        Self::finish(body, Form::Ipv6, BINDING_SUCCESS, request)
    }

    /// Binding error 500 without a reason phrase (section 14.8).
    #[inline(always)]
    #[must_use]
    pub fn error_500(request: &Request) -> Self {
        let body = [attribute(ERROR_CODE, 4), word([0, 0, 5, 0]), 0, 0, 0, 0];
        Self::finish(body, Form::Error, BINDING_ERROR, request)
    }

    /// Its length in bytes: a multiple of four.
    #[inline(always)]
    #[expect(clippy::len_without_is_empty, reason = "an answer is never empty")]
    #[must_use]
    pub const fn len(&self) -> u32 {
        let sealed = if self.fingerprint.is_some() { 2 } else { 0 };
        (self.form.words() + sealed) * 4
    }

    /// Which answer it is.
    #[inline(always)]
    #[must_use]
    pub const fn form(&self) -> Form {
        self.form
    }

    /// Its first `N` words, which for [`Form::words`] are all before the FINGERPRINT.
    #[inline(always)]
    #[must_use]
    pub fn words<const N: usize>(&self) -> [u32; N] {
        core::array::from_fn(|index| self.words.get(index).copied().unwrap_or(0))
    }

    /// The FINGERPRINT at its end, when the request had one.
    #[inline(always)]
    #[must_use]
    pub const fn fingerprint(&self) -> Option<[u32; 2]> {
        self.fingerprint
    }

    /// Adds it to a checksum.
    #[inline(always)]
    #[must_use]
    pub fn add_to(&self, sum: Sum) -> Sum {
        let [a, b] = self.fingerprint.unwrap_or([0; 2]);
        let sum = sum.raw(a).raw(b);
        self.words.iter().fold(sum, |sum, word| sum.raw(*word))
    }

    #[inline(always)]
    fn finish(body: [u32; 6], form: Form, [k0, k1]: [u8; 2], request: &Request) -> Self {
        let sealed = if request.fingerprint { 8 } else { 0 };
        let [l0, l1] = (form.words() as u16 * 4 - HEADER as u16 + sealed).to_be_bytes();
        let [cookie, id0, id1, id2] = request.transaction.map(u32::from_ne_bytes);
        let [a, b, c, d, e, f] = body;
        let first = word([k0, k1, l0, l1]);
        let mut answer = Self {
            words: [first, cookie, id0, id1, id2, a, b, c, d, e, f],
            form,
            fingerprint: None,
        };
        if request.fingerprint {
            let head = attribute(FINGERPRINT.to_be_bytes(), 4);
            // The lengths are constants, so that every index is.
            let crc = match form {
                Form::Error => crc_of(answer.words::<7>()),
                Form::Ipv4 => crc_of(answer.words::<8>()),
                Form::Ipv6 => crc_of(answer.words::<11>()),
            };
            answer.fingerprint = Some([head, word(crc.fingerprint())]);
        }
        answer
    }
}

#[inline(always)]
fn crc_of<const N: usize>(words: [u32; N]) -> Crc {
    words
        .iter()
        .fold(Crc::new(), |crc, word| crc.word(word.to_ne_bytes()))
}

#[inline(always)]
const fn attribute([a, b]: [u8; 2], len: u8) -> u32 {
    word([a, b, 0, len])
}

/// Four bytes as they stand in the message, as one number.
#[inline(always)]
const fn word(bytes: [u8; 4]) -> u32 {
    u32::from_ne_bytes(bytes)
}

/// An address as four numbers, its bytes as they stand.
#[inline(always)]
const fn in_words(address: &Address) -> [u32; 4] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *address;
    [
        word([a, b, c, d]),
        word([e, f, g, h]),
        word([i, j, k, l]),
        word([m, n, o, p]),
    ]
}

#[cfg(test)]
mod tests;
