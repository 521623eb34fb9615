//! The arithmetic of digest authentication (RFC 7616 section 3.4).

use md5::Md5;
use sha2::{Digest, Sha256};

use super::Credentials;

/// A hash, plain or bound to the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// `MD5`, also when none is named.
    Md5,
    /// `MD5-sess`.
    Md5Sess,
    /// `SHA-256` (RFC 8760).
    Sha256,
    /// `SHA-256-sess`.
    Sha256Sess,
}

impl Algorithm {
    /// The algorithm of an `algorithm` value, `None` standing for MD5; `None` back for one that
    /// is not known.
    #[must_use]
    pub fn of(written: Option<&[u8]>) -> Option<Self> {
        let Some(written) = written else {
            return Some(Self::Md5);
        };
        let all = [Self::Md5, Self::Md5Sess, Self::Sha256, Self::Sha256Sess];
        all.into_iter()
            .find(|one| one.name().as_bytes().eq_ignore_ascii_case(written))
    }

    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Md5 => "MD5",
            Self::Md5Sess => "MD5-sess",
            Self::Sha256 => "SHA-256",
            Self::Sha256Sess => "SHA-256-sess",
        }
    }

    fn is_session(self) -> bool {
        matches!(self, Self::Md5Sess | Self::Sha256Sess)
    }

    /// The hash of the parts joined by colons, in lower-case hexadecimal.
    fn hash(self, parts: &[&[u8]]) -> String {
        match self {
            Self::Md5 | Self::Md5Sess => hash::<Md5>(parts),
            Self::Sha256 | Self::Sha256Sess => hash::<Sha256>(parts),
        }
    }
}

/// H(username:realm:password), the secret that stands for a password.
#[must_use]
pub fn ha1(algorithm: Algorithm, username: &[u8], realm: &[u8], password: &[u8]) -> String {
    algorithm.hash(&[username, realm, password])
}

/// Everything an answer is computed from but the secret.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    /// Which hash.
    pub algorithm: Algorithm,
    /// The method of the request, as written.
    pub method: &'a [u8],
    /// The `uri` value, as written.
    pub uri: &'a [u8],
    /// The nonce, without quotes.
    pub nonce: &'a [u8],
    /// The quality chosen; `None` for RFC 2069's answer without one.
    pub qop: Option<&'a [u8]>,
    /// The nonce count, as written.
    pub nc: &'a [u8],
    /// The client's nonce, without quotes.
    pub cnonce: &'a [u8],
    /// The body: `auth-int` covers it.
    pub body: &'a [u8],
}

impl Answer<'_> {
    /// The `response` value for the user with this [`ha1`].
    #[must_use]
    pub fn response(&self, ha1: &str) -> String {
        let hash = |parts: &[&[u8]]| self.algorithm.hash(parts);
        let a1 = if self.algorithm.is_session() {
            hash(&[ha1.as_bytes(), self.nonce, self.cnonce])
        } else {
            ha1.to_owned()
        };
        let integrity = self
            .qop
            .is_some_and(|qop| qop.eq_ignore_ascii_case(b"auth-int"));
        let a2 = if integrity {
            hash(&[self.method, self.uri, hash(&[self.body]).as_bytes()])
        } else {
            hash(&[self.method, self.uri])
        };
        match self.qop {
            Some(qop) => hash(&[
                a1.as_bytes(),
                self.nonce,
                self.nc,
                self.cnonce,
                qop,
                a2.as_bytes(),
            ]),
            None => hash(&[a1.as_bytes(), self.nonce, a2.as_bytes()]),
        }
    }
}

/// Whether credentials prove knowledge of the secret. That the nonce is ours and fresh, and
/// that the `uri` fits the request, is the caller's to judge.
#[must_use]
pub fn verify(credentials: &Credentials<'_>, ha1: &str, method: &[u8], body: &[u8]) -> bool {
    let Some(algorithm) = Algorithm::of(credentials.algorithm) else {
        return false;
    };
    let expected = Answer {
        algorithm,
        method,
        uri: credentials.uri,
        nonce: credentials.nonce,
        qop: credentials.qop,
        nc: credentials.nc.unwrap_or_default(),
        cnonce: credentials.cnonce.unwrap_or_default(),
        body,
    };
    same(
        expected.response(ha1).as_bytes(),
        &credentials.response.to_ascii_lowercase(),
    )
}

fn hash<D: Digest>(parts: &[&[u8]]) -> String {
    let digest = D::digest(parts.join(&b':'));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares without telling by the time it takes where the difference is.
fn same(one: &[u8], other: &[u8]) -> bool {
    let differences = one
        .iter()
        .zip(other)
        .fold(0, |sum, (one, other)| sum | (one ^ other));
    one.len() == other.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 2617 section 3.5 and RFC 7616 section 3.9.1; user Mufasa, GET /dir/index.html.
    const VECTORS: [(Algorithm, &str, &str, &str, &str, &str); 3] = [
        (
            Algorithm::Md5,
            "testrealm@host.com",
            "Circle Of Life",
            "dcd98b7102dd2f0e8b11d0f600bfb0c093",
            "0a4f113b",
            "6629fae49393a05397450978507c4ef1",
        ),
        (
            Algorithm::Md5,
            "http-auth@example.org",
            "Circle of Life",
            "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v",
            "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ",
            "8ca523f5e9506fed4657c9700eebdbec",
        ),
        (
            Algorithm::Sha256,
            "http-auth@example.org",
            "Circle of Life",
            "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v",
            "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ",
            "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1",
        ),
    ];

    #[test]
    fn agrees_with_the_rfcs() {
        for (algorithm, realm, password, nonce, cnonce, response) in VECTORS {
            let value = format!(
                "Digest username=\"Mufasa\", realm=\"{realm}\", uri=\"/dir/index.html\", algorithm={}, \
                 nonce=\"{nonce}\", nc=00000001, cnonce=\"{cnonce}\", qop=auth, response=\"{}\"",
                algorithm.name(),
                response.to_ascii_uppercase(),
            );
            let credentials = Credentials::parse(value.as_bytes()).expect("credentials");
            let ha1 = ha1(algorithm, b"Mufasa", realm.as_bytes(), password.as_bytes());
            assert!(verify(&credentials, &ha1, b"GET", b""));
            assert!(!verify(&credentials, &ha1, b"PUT", b""));
            assert!(!verify(
                &Credentials {
                    nc: Some(b"00000002"),
                    ..credentials
                },
                &ha1,
                b"GET",
                b""
            ));
            assert!(!verify(
                &Credentials {
                    algorithm: Some(b"SHA-1"),
                    ..credentials
                },
                &ha1,
                b"GET",
                b""
            ));
            assert!(!verify(
                &Credentials {
                    response: b"",
                    ..credentials
                },
                &ha1,
                b"GET",
                b""
            ));
        }
    }

    #[test]
    fn sessions_integrity_and_rfc_2069() {
        let answer = Answer {
            algorithm: Algorithm::Md5,
            method: b"REGISTER",
            uri: b"sip:pbx.example;transport=udp",
            nonce: b"n",
            qop: None,
            nc: b"0000000a",
            cnonce: b"c",
            body: b"body",
        };
        let ha1 = ha1(Algorithm::Md5, b"101", b"pbx.example", b"secret");
        // Computed with Python's hashlib.
        assert_eq!(answer.response(&ha1), "14251ec68183e4723bb97132255120dc");
        let session = Answer {
            algorithm: Algorithm::Md5Sess,
            qop: Some(b"auth"),
            ..answer
        };
        assert_eq!(session.response(&ha1), "6e24c0ba164f76472bc5767e7457f942");
        let integrity = Answer {
            qop: Some(b"auth-int"),
            ..answer
        };
        assert_eq!(integrity.response(&ha1), "91f72b44d26ce44eaeb5c7d7b22280e7");
    }
}
