//! Keyed tokens: reversible ones that hide an address (signalling.md sections 4 and 6), and
//! one-way ones that name a branch (section 2).

/// A secret of 32 bytes.
#[derive(Clone)]
pub struct Key(pub [u8; 32]);

/// Seals `plain` into a token of URL-safe characters. The same input gives the same token, so
/// it is stable over restarts; `domain` separates uses of one key.
#[must_use]
pub fn seal(key: &Key, domain: &str, plain: &[u8]) -> String {
    let _ = (key, domain, plain);
    todo!()
}

/// Opens a token; `None` when it was not sealed with this key and domain, or was altered.
#[must_use]
pub fn open(key: &Key, domain: &str, token: &str) -> Option<Vec<u8>> {
    let _ = (key, domain, token);
    todo!()
}

/// A keyed one-way hash of several fields, as a token of 26 characters (128 bits). Fields are
/// length-prefixed: `["ab", "c"]` and `["a", "bc"]` differ.
#[must_use]
pub fn keyed_hash(key: &Key, domain: &str, fields: &[&[u8]]) -> String {
    let _ = (key, domain, fields);
    todo!()
}
