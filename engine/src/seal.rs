//! Keyed tokens: reversible ones that hide an address (signalling.md sections 4 and 6), and
//! one-way ones that name a branch (section 2).
//!
//! Sealing is deterministic on purpose: a phone's Contact and Call-ID must get the same token
//! after a restart, and in a mesh on every core that holds the key. It follows the shape of SIV
//! (RFC 5297) with HMAC-SHA256 for both halves: the tag is computed over the plain bytes and
//! serves as the initial vector of the key stream. Equal inputs are visible as equal, nothing
//! else is.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Bytes of the tag in front of every sealed token.
const TAG: usize = 16;
/// What a token may hold; more is no address and no Call-ID.
pub const MAX_PLAIN: usize = 1024;

const BASE64_URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// A secret of 32 bytes.
#[derive(Clone)]
pub struct Key(pub [u8; 32]);

/// Not the secret.
impl std::fmt::Debug for Key {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Key(..)")
    }
}

/// Seals `plain` into a token of letters, digits, `-` and `_`: legal in a Call-ID, in the user
/// part of a URI and as a tag, all of which are case-sensitive. The same input gives the same
/// token; `domain` separates uses of one key. Bytes past [`MAX_PLAIN`] are an error of the
/// caller: [`open`] refuses such a token.
#[must_use]
pub fn seal(key: &Key, domain: &str, plain: &[u8]) -> String {
    let tag = tag_of(key, domain, plain).finalize().into_bytes();
    let mut bytes = tag[..TAG].to_vec();
    bytes.extend_from_slice(plain);
    let (tag, text) = bytes.split_at_mut(TAG);
    apply_stream(key, domain, tag, text);
    encode(&bytes, BASE64_URL, 6)
}

/// Opens a token; `None` when it was not sealed with this key and domain, or was altered.
#[must_use]
pub fn open(key: &Key, domain: &str, token: &str) -> Option<Vec<u8>> {
    if token.len() > (TAG + MAX_PLAIN).div_ceil(3) * 4 {
        return None;
    }
    let bytes = decode_base64(token)?;
    let (tag, sealed) = bytes.split_at_checked(TAG)?;
    let mut plain = sealed.to_vec();
    apply_stream(key, domain, tag, &mut plain);
    tag_of(key, domain, &plain)
        .verify_truncated_left(tag)
        .ok()?;
    Some(plain)
}

/// A keyed one-way hash of several fields: 26 lower-case letters and digits (128 bits), so that
/// it survives peers that compare without case. Fields are length-prefixed: `["ab", "c"]` and
/// `["a", "bc"]` differ.
#[must_use]
pub fn keyed_hash(key: &Key, domain: &str, fields: &[&[u8]]) -> String {
    let mut mac = keyed(&subkey(key, "hash", domain));
    for field in fields {
        mac.update(&(field.len() as u64).to_be_bytes());
        mac.update(field);
    }
    encode(&mac.finalize().into_bytes()[..16], BASE32, 5)
}

fn tag_of(key: &Key, domain: &str, plain: &[u8]) -> Hmac<Sha256> {
    keyed(&subkey(key, "tag", domain)).chain_update(plain)
}

/// Adds the key stream of this tag; doing it twice takes it away again.
fn apply_stream(key: &Key, domain: &str, tag: &[u8], text: &mut [u8]) {
    let stream = keyed(&subkey(key, "stream", domain)).chain_update(tag);
    for (counter, block) in (0_u64..).zip(text.chunks_mut(32)) {
        let pad = stream
            .clone()
            .chain_update(counter.to_be_bytes())
            .finalize()
            .into_bytes();
        for (byte, pad) in block.iter_mut().zip(pad) {
            *byte ^= pad;
        }
    }
}

/// A key for one purpose in one domain.
fn subkey(key: &Key, purpose: &str, domain: &str) -> [u8; 32] {
    let mac = keyed(&key.0)
        .chain_update(purpose)
        .chain_update([0])
        .chain_update(domain);
    mac.finalize().into_bytes().into()
}

fn keyed(key: &[u8; 32]) -> Hmac<Sha256> {
    // HMAC pads a short key with zeros to the hash's block: padding it here makes a call that
    // cannot fail.
    let mut block = [0; 64];
    block[..32].copy_from_slice(key);
    Hmac::new(&block.into())
}

/// Groups of `width` bits, most significant first, the last one filled with zeros; no padding.
fn encode(bytes: &[u8], alphabet: &[u8], width: u32) -> String {
    let mut out = String::with_capacity(bytes.len() * 8 / width as usize + 1);
    let (mut buffer, mut bits) = (0_u32, 0);
    let letter = |group: u32| char::from(alphabet[group as usize & (alphabet.len() - 1)]);
    for byte in bytes {
        buffer = (buffer << 8 | u32::from(*byte)) & 0xffff;
        bits += 8;
        while bits >= width {
            bits -= width;
            out.push(letter(buffer >> bits));
        }
    }
    if bits > 0 {
        out.push(letter(buffer << (width - bits)));
    }
    out
}

/// The reverse of [`encode`] for base64. Exactly one token stands for given bytes: leftover
/// bits must be zero.
fn decode_base64(token: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(token.len() * 3 / 4);
    let (mut buffer, mut bits) = (0_u32, 0);
    for letter in token.bytes() {
        let group = BASE64_URL.iter().position(|other| *other == letter)?;
        buffer = (buffer << 6 | group as u32) & 0xffff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push((buffer >> bits) as u8);
        }
    }
    let leftover = buffer & ((1 << bits) - 1);
    (bits < 6 && leftover == 0).then_some(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: Key = Key([7; 32]);

    #[test]
    fn tokens_are_stable_over_restarts() {
        // Written down: a change of these breaks every registration and call over an upgrade.
        assert_eq!(
            seal(&KEY, "call-id", b"a84b4c76e66710@192.0.2.4"),
            "9ioGcpHcBRABGvfWra1hG6tCJ4BWN70FmibbuFH2vnNQGc4wKTYCdA"
        );
        assert_eq!(
            keyed_hash(&KEY, "branch", &[b"z9hG4bK1", b"192.0.2.1:5060"]),
            "ifqwr3u3hdtxvxpj6f327i3ubu"
        );
    }

    #[test]
    fn base64_agrees_with_rfc_4648() {
        for (plain, text) in [
            ("", ""),
            ("f", "Zg"),
            ("fo", "Zm8"),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg"),
        ] {
            assert_eq!(encode(plain.as_bytes(), BASE64_URL, 6), text);
            assert_eq!(decode_base64(text).as_deref(), Some(plain.as_bytes()));
        }
        assert_eq!(encode(b"foobar", BASE32, 5), "mzxw6ytboi");
        assert_eq!(decode_base64("Zh"), None, "leftover bits");
        assert_eq!(decode_base64("Z"), None, "no whole byte");
        assert_eq!(decode_base64("Zg="), None, "padding");
    }

    #[test]
    fn domains_keys_and_field_borders_separate() {
        let token = seal(&KEY, "contact", b"x");
        assert_eq!(open(&KEY, "call-id", &token), None);
        assert_eq!(open(&Key([8; 32]), "contact", &token), None);
        assert_ne!(
            keyed_hash(&KEY, "d", &[b"ab", b"c"]),
            keyed_hash(&KEY, "d", &[b"a", b"bc"])
        );
        assert_ne!(
            keyed_hash(&KEY, "d", &[b"a"]),
            keyed_hash(&KEY, "e", &[b"a"])
        );
        assert_eq!(keyed_hash(&KEY, "d", &[]).len(), 26);
        assert_eq!(open(&KEY, "d", &seal(&KEY, "d", &[0; MAX_PLAIN + 3])), None);
        assert!(!format!("{KEY:?}").contains('7'));
    }

    proptest! {
        #[test]
        fn opens_what_it_sealed_and_nothing_else(
            plain in proptest::collection::vec(any::<u8>(), 0..200),
            at in any::<proptest::sample::Index>(),
            letter in any::<proptest::sample::Index>(),
        ) {
            let token = seal(&KEY, "d", &plain);
            prop_assert!(token.bytes().all(|byte| BASE64_URL.contains(&byte)));
            prop_assert_eq!(open(&KEY, "d", &token), Some(plain));
            let mut altered = token.clone().into_bytes();
            let at = at.index(altered.len());
            altered[at] = BASE64_URL[letter.index(64)];
            let altered = String::from_utf8(altered).expect("ascii");
            prop_assert!(altered == token || open(&KEY, "d", &altered).is_none());
            prop_assert!(open(&KEY, "d", &token[1..]).is_none());
        }

        #[test]
        fn foreign_tokens_are_refused(token in "\\PC{0,64}") {
            prop_assert_eq!(open(&KEY, "d", &token), None);
        }
    }
}
