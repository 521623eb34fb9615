//! Digest authentication (RFC 7616, RFC 8760) on raw strings: what a peer wrote goes into the
//! hash, and to the other side, byte for byte.

mod hash;

pub use hash::{Algorithm, Answer, ha1, verify};

use super::{Edit, Message, Name, Span, span::is_lws, unquote};

/// A challenge, read in place. Values are without their quotes; escapes stay as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Challenge<'a> {
    /// The realm.
    pub realm: &'a [u8],
    /// The nonce.
    pub nonce: &'a [u8],
    /// To be returned as it is.
    pub opaque: Option<&'a [u8]>,
    /// The list of qualities offered, as written: `auth,auth-int`.
    pub qop: Option<&'a [u8]>,
    /// The algorithm as written; `None` stands for MD5.
    pub algorithm: Option<&'a [u8]>,
    /// The nonce was old, the password may be right.
    pub stale: bool,
}

/// Credentials, read in place. Values are without their quotes; escapes stay as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credentials<'a> {
    /// The user's name.
    pub username: &'a [u8],
    /// The realm.
    pub realm: &'a [u8],
    /// The nonce.
    pub nonce: &'a [u8],
    /// The URI that was hashed: never altered, and not always the Request-URI.
    pub uri: &'a [u8],
    /// The answer, in hexadecimal.
    pub response: &'a [u8],
    /// The algorithm as written; `None` stands for MD5.
    pub algorithm: Option<&'a [u8]>,
    /// The quality chosen.
    pub qop: Option<&'a [u8]>,
    /// The nonce count, eight hexadecimal digits.
    pub nc: Option<&'a [u8]>,
    /// The client's nonce.
    pub cnonce: Option<&'a [u8]>,
    /// The server's opaque value.
    pub opaque: Option<&'a [u8]>,
}

impl<'a> Challenge<'a> {
    /// Reads the value of a WWW-Authenticate or Proxy-Authenticate line, folds included.
    /// `None` when it is not Digest, or without realm or nonce.
    #[must_use]
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let get = |name| field(value, name);
        let stale = get("stale").is_some_and(|stale| stale.eq_ignore_ascii_case(b"true"));
        Some(Self {
            realm: get("realm")?,
            nonce: get("nonce")?,
            opaque: get("opaque"),
            qop: get("qop"),
            algorithm: get("algorithm"),
            stale,
        })
    }
}

impl<'a> Credentials<'a> {
    /// Reads the value of an Authorization or Proxy-Authorization line, folds included. `None`
    /// when it is not Digest or lacks what every answer has.
    #[must_use]
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let get = |name| field(value, name);
        Some(Self {
            username: get("username")?,
            realm: get("realm")?,
            nonce: get("nonce")?,
            uri: get("uri")?,
            response: get("response")?,
            algorithm: get("algorithm"),
            qop: get("qop"),
            nc: get("nc"),
            cnonce: get("cnonce"),
            opaque: get("opaque"),
        })
    }
}

/// The nonce of a challenge or of credentials.
#[must_use]
pub fn nonce(value: &[u8]) -> Option<&[u8]> {
    field(value, "nonce")
}

/// The response with `stale=true` in each of its Digest challenges, everything else as it was:
/// the phone answers again without asking its user (signalling.md section 3).
#[must_use]
pub fn mark_stale(response: &Message) -> Vec<u8> {
    let mut edit = Edit::new(response);
    for line in response.lines() {
        let challenge = matches!(line.name, Name::WwwAuthenticate | Name::ProxyAuthenticate);
        let value = response.slice(line.value);
        if !challenge || !is_digest(value) {
            continue;
        }
        match fields(value).find(|field| field.name.eq_ignore_ascii_case(b"stale")) {
            Some(stale) => edit.replace(stale.value.shift(line.value.start), b"true"),
            None => edit.replace(
                Span {
                    start: line.value.end,
                    ..line.value
                },
                b", stale=true",
            ),
        }
    }
    edit.finish()
}

/// One `name=value` of a challenge or of credentials.
struct Field<'a> {
    name: &'a [u8],
    /// With its quotes, counted from the start of the header's value.
    value: Span,
}

/// The value of a field, without quotes.
fn field<'a>(value: &'a [u8], name: &str) -> Option<&'a [u8]> {
    is_digest(value).then_some(())?;
    let found = fields(value).find(|field| field.name.eq_ignore_ascii_case(name.as_bytes()))?;
    Some(unquote(found.value.of(value)))
}

fn is_digest(value: &[u8]) -> bool {
    let (scheme, rest) = value.split_at_checked(6).unwrap_or((value, &[]));
    scheme.eq_ignore_ascii_case(b"Digest") && rest.first().is_some_and(|byte| is_lws(*byte))
}

/// All fields behind the scheme. Commas inside quotes separate nothing.
fn fields(value: &[u8]) -> impl Iterator<Item = Field<'_>> {
    let scheme = value.iter().take_while(|byte| !is_lws(**byte)).count();
    super::split(value, Span::new(scheme..value.len())).filter_map(move |piece| {
        let equals = piece.of(value).iter().position(|byte| *byte == b'=')?;
        let at = piece.start as usize + equals;
        let name = Span::new(piece.start as usize..at).trim(value).of(value);
        Some(Field {
            name,
            value: Span::new(at + 1..piece.end as usize).trim(value),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOLDED: &[u8] = b"Digest\r\n realm=\"a, \\\"b\\\"\",\r\n\tnonce = \"84a4cc6f3082121f32b42a2187831a9e\",\r\n \
        opaque=\"\",\r\n qop=\"auth,auth-int\",\r\n algorithm=SHA-256";

    fn unauthorized(challenges: &[&str]) -> Message {
        let lines: String = challenges
            .iter()
            .map(|line| format!("{line}\r\n"))
            .collect();
        let text = format!(
            "SIP/2.0 401 Unauthorized\r\nv: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1\r\nf: <sip:a@b>;tag=1\r\n\
             t: <sip:a@b>;tag=2\r\ni: 1\r\nCSeq: 1 REGISTER\r\n{lines}l: 0\r\n\r\n"
        );
        Message::parse(text.into_bytes()).expect("well-formed")
    }

    #[test]
    fn case_s3_a_challenge_folded_over_five_lines_is_read_whole() {
        let challenge = Challenge::parse(FOLDED).expect("a challenge");
        assert_eq!(challenge.realm, br#"a, \"b\""#);
        assert_eq!(challenge.nonce, b"84a4cc6f3082121f32b42a2187831a9e");
        assert_eq!(challenge.opaque, Some(&b""[..]));
        assert_eq!(challenge.qop, Some(&b"auth,auth-int"[..]));
        assert_eq!(challenge.algorithm, Some(&b"SHA-256"[..]));
        assert!(!challenge.stale);
        assert_eq!(nonce(FOLDED), Some(challenge.nonce));
    }

    #[test]
    fn other_schemes_and_halves_are_none() {
        assert_eq!(Challenge::parse(b"Basic realm=\"x\", nonce=\"y\""), None);
        assert_eq!(Challenge::parse(b"Digest realm=\"x\""), None);
        assert_eq!(
            Challenge::parse(b"Digestive realm=\"x\", nonce=\"y\""),
            None
        );
        assert_eq!(Credentials::parse(b"Digest"), None);
        assert_eq!(nonce(b""), None);
    }

    #[test]
    fn stale_is_added_or_set_and_nothing_else_changes() {
        let folded = format!("WWW-Authenticate: {}", String::from_utf8_lossy(FOLDED));
        for (before, after) in [
            (folded.as_str(), format!("{folded}, stale=true")),
            (
                "Proxy-Authenticate: Digest realm=\"x\", STALE=\"false\" ,nonce=\"y\"",
                "Proxy-Authenticate: Digest realm=\"x\", STALE=true ,nonce=\"y\"".into(),
            ),
            (
                "WWW-Authenticate: Basic realm=\"x\"",
                "WWW-Authenticate: Basic realm=\"x\"".into(),
            ),
        ] {
            let msg = unauthorized(&[before, "WWW-Authenticate:Digest realm=\"2\",nonce=\"z\""]);
            let expected = unauthorized(&[
                &after,
                "WWW-Authenticate:Digest realm=\"2\",nonce=\"z\", stale=true",
            ]);
            let marked = mark_stale(&msg);
            assert_eq!(
                marked.escape_ascii().to_string(),
                expected.bytes().escape_ascii().to_string()
            );
            let marked = Message::parse(marked).expect("well-formed");
            let digest = marked
                .lines()
                .iter()
                .filter_map(|line| Challenge::parse(marked.slice(line.value)));
            assert!(digest.into_iter().all(|challenge| challenge.stale));
        }
    }
}
