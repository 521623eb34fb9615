//! Answers to challenges (RFC 7616).

use keepline_engine::sip::digest::{Algorithm, Answer, Challenge, ha1};

use super::super::sip::Message;

/// A request that was challenged, once more with credentials: CSeq and branch are new (RFC 3261
/// section 22.2).
pub(super) fn again(
    request: &str,
    challenge: &Message,
    (user, password): (&str, &str),
    branch: &str,
) -> Option<String> {
    let line = answer(request, challenge, user, password)?;
    let old = Message::received(request.to_owned());
    let (number, _) = old.cseq()?;
    let (_, rest) = request.split_once("branch=")?;
    let was = rest.split(';').next()?;
    let cseq = |number: u32| format!("CSeq: {number} ");
    let text = request
        .replacen(was, branch, 1)
        .replacen(&cseq(number), &cseq(number + 1), 1)
        .replacen("Max-Forwards:", &format!("{line}\r\nMax-Forwards:"), 1);
    Some(text)
}

/// The Authorization or Proxy-Authorization line of a request that was challenged.
fn answer(request: &str, challenge: &Message, user: &str, password: &str) -> Option<String> {
    let (name, asked) = [
        ("Authorization", "WWW-Authenticate"),
        ("Proxy-Authorization", "Proxy-Authenticate"),
    ]
    .into_iter()
    .find_map(|(name, asked)| Some((name, challenge.header(asked)?)))?;
    let challenge = Challenge::parse(asked.as_bytes())?;
    let mut words = request.split(' ');
    let (method, uri) = (words.next()?, words.next()?);
    let algorithm = Algorithm::of(challenge.algorithm)?;
    let qop = challenge.qop.map(|_| b"auth".as_slice());
    let (nc, cnonce) = ("00000001", "6c6162");
    let secret = ha1(
        algorithm,
        user.as_bytes(),
        challenge.realm,
        password.as_bytes(),
    );
    let response = Answer {
        algorithm,
        method: method.as_bytes(),
        uri: uri.as_bytes(),
        nonce: challenge.nonce,
        qop,
        nc: nc.as_bytes(),
        cnonce: cnonce.as_bytes(),
        body: b"",
    }
    .response(&secret);
    let (realm, nonce) = (
        String::from_utf8_lossy(challenge.realm),
        String::from_utf8_lossy(challenge.nonce),
    );
    let quality = match qop {
        Some(_) => format!(", qop=auth, nc={nc}, cnonce=\"{cnonce}\""),
        None => String::new(),
    };
    Some(format!(
        "{name}: Digest username=\"{user}\", realm=\"{realm}\", nonce=\"{nonce}\", \
         uri=\"{uri}\", response=\"{response}\", algorithm={}{quality}",
        algorithm.name()
    ))
}
