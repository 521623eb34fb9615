//! What a Refer-To or a 302 asks a phone to call (RFC 3515, RFC 3891).

use anyhow::{Context as _, Result};

use super::super::sip::Message;

/// A call to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invitation {
    /// Whom to call: the URI without its headers.
    pub uri: String,
    /// Whole lines that its headers ask for.
    pub extra: String,
}

/// Reads the URI that a Refer-To or the Contact of a 302 names.
///
/// # Errors
/// When there is none.
pub fn referred(message: &Message, header: &str) -> Result<Invitation> {
    let value = message
        .header(header)
        .with_context(|| format!("no {header} in\n{}", message.text))?;
    let inside = value.split_once('<').map_or(value, |(_, rest)| rest);
    let uri = inside.split('>').next().unwrap_or_default();
    let (uri, headers) = uri.split_once('?').unwrap_or((uri, ""));
    let lines = headers.split('&').filter_map(|one| one.split_once('='));
    let extra = lines.map(|(name, value)| format!("{name}: {}\r\n", unescape(value)));
    Ok(Invitation {
        uri: uri.to_owned(),
        extra: extra.collect(),
    })
}

/// Percent escapes of a URI's header (RFC 3261 section 19.1.1).
pub(super) fn unescape(text: &str) -> String {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let hex = tail.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let byte = hex.and_then(|two| u8::from_str_radix(two, 16).ok());
        match byte.filter(|_| *first == b'%') {
            Some(byte) => {
                out.push(byte);
                rest = &tail[2..];
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaces_in_a_refer_to_is_read_as_a_header() -> Result<()> {
        let refer = Message::received(
            "REFER sip:b SIP/2.0\r\nRefer-To: <sip:c@192.0.2.1:5060?Replaces=1%40h%3Bto-tag%3D2\
             %3Bfrom-tag%3D3&Require=replaces>\r\n\r\n"
                .to_owned(),
        );
        let to_make = referred(&refer, "Refer-To")?;
        assert_eq!(to_make.uri, "sip:c@192.0.2.1:5060");
        assert_eq!(
            to_make.extra,
            "Replaces: 1@h;to-tag=2;from-tag=3\r\nRequire: replaces\r\n"
        );
        Ok(())
    }
}
