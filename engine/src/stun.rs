//! STUN Binding requests that the data path leaves to userspace (RFC 8489): unknown required
//! attributes, MESSAGE-INTEGRITY, long FINGERPRINTed ones, and every request where no XDP
//! program is attached.

use std::net::SocketAddr;

use stun_rs::{
    ErrorCode as Code, MessageClass, MessageDecoderBuilder, MessageEncoderBuilder, StunMessage,
    StunMessageBuilder,
    attributes::stun::{
        ErrorCode, Fingerprint, MessageIntegrity, MessageIntegritySha256, UnknownAttributes,
        XorMappedAddress,
    },
    methods::BINDING,
};

use crate::steer::Gate;

/// A transaction id.
pub type Id = [u8; 12];

/// What a response says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Of which request.
    pub id: Id,
    /// Our address as the server sees it; `None` where the request was refused.
    pub mapped: Option<SocketAddr>,
}

/// A Binding request of our own.
#[must_use]
pub fn ask(id: Id) -> Vec<u8> {
    [&[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42][..], &id].concat()
}

/// Reads a Binding response; `None` for anything else.
#[must_use]
pub fn told(datagram: &[u8]) -> Option<Told> {
    let (message, length) = MessageDecoderBuilder::default()
        .build()
        .decode(datagram)
        .ok()?;
    if message.method() != BINDING || length != datagram.len() {
        return None;
    }
    let mapped = message
        .get::<XorMappedAddress>()
        .and_then(|attribute| attribute.as_xor_mapped_address().ok())
        .map(|address| *address.socket_address());
    let id = *message.transaction_id().as_bytes();
    match message.class() {
        MessageClass::SuccessResponse => mapped.map(|at| Told {
            id,
            mapped: Some(at),
        }),
        MessageClass::ErrorResponse => Some(Told { id, mapped: None }),
        MessageClass::Request | MessageClass::Indication => None,
    }
}

/// Octets of a FINGERPRINT attribute, which is always the last.
const FINGERPRINT: usize = 8;

/// The answer to a datagram that looks like STUN; `None` is silence: for responses and
/// indications, for a wrong FINGERPRINT, for what is malformed, and behind a silent gate.
#[must_use]
pub fn answer(datagram: &[u8], from: SocketAddr, gate: Gate) -> Option<Vec<u8>> {
    let (request, length) = MessageDecoderBuilder::default()
        .build()
        .decode(datagram)
        .ok()?;
    if request.class() != MessageClass::Request
        || request.method() != BINDING
        || length != datagram.len()
    {
        return None;
    }
    let fingerprint = match request.get::<Fingerprint>() {
        Some(attribute) => {
            let covered = datagram.get(..length.checked_sub(FINGERPRINT)?)?;
            attribute
                .as_fingerprint()
                .ok()?
                .validate(covered)
                .then_some(())?;
            true
        }
        None => false,
    };
    let builder = match verdict(&request, from, gate)? {
        Verdict::Success(address) => reply(&request, MessageClass::SuccessResponse)
            .with_attribute(XorMappedAddress::from(address)),
        Verdict::Error(code, reason) => error(&request, code, reason)?,
        Verdict::Unknown(types) => {
            let mut list = UnknownAttributes::default();
            types.into_iter().for_each(|kind| list.add(kind));
            error(&request, 420, "Unknown Attribute")?.with_attribute(list)
        }
    };
    let builder = if fingerprint {
        builder.with_attribute(Fingerprint::default())
    } else {
        builder
    };
    let mut buffer = [0; 548];
    let size = MessageEncoderBuilder::default()
        .build()
        .encode(&mut buffer, &builder.build())
        .ok()?;
    Some(buffer[..size].to_vec())
}

enum Verdict {
    Success(SocketAddr),
    Error(u16, &'static str),
    Unknown(Vec<u16>),
}

fn verdict(request: &StunMessage, from: SocketAddr, gate: Gate) -> Option<Verdict> {
    let unknown: Vec<u16> = request
        .attributes()
        .iter()
        .filter(|attribute| attribute.is_unknown())
        .map(|attribute| attribute.attribute_type())
        .filter(|kind| kind.is_comprehension_required())
        .map(|kind| kind.as_u16())
        .collect();
    let signed = request.get::<MessageIntegrity>().is_some()
        || request.get::<MessageIntegritySha256>().is_some();
    Some(match gate {
        Gate::Silent => return None,
        _ if !unknown.is_empty() => Verdict::Unknown(unknown),
        // Keepalives need no credentials, so none that are shown can be checked (section 9.1.3).
        _ if signed => Verdict::Error(401, "Unauthenticated"),
        Gate::Error => Verdict::Error(500, "Server Error"),
        Gate::Serving => Verdict::Success(SocketAddr::new(from.ip().to_canonical(), from.port())),
    })
}

fn reply(request: &StunMessage, class: MessageClass) -> StunMessageBuilder {
    StunMessageBuilder::new(BINDING, class).with_transaction_id(*request.transaction_id())
}

fn error(request: &StunMessage, code: u16, reason: &str) -> Option<StunMessageBuilder> {
    let code = ErrorCode::new(Code::new(code, reason).ok()?);
    Some(reply(request, MessageClass::ErrorResponse).with_attribute(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: &str = "192.0.2.7:40000";

    fn request(attributes: &[u8]) -> Vec<u8> {
        let mut bytes = vec![
            0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
        ];
        bytes[3] = u8::try_from(attributes.len()).unwrap();
        bytes.extend_from_slice(attributes);
        bytes
    }

    fn ask(bytes: &[u8], gate: Gate) -> Option<Vec<u8>> {
        answer(bytes, FROM.parse().unwrap(), gate)
    }

    #[test]
    fn case_t1_a_bare_request_gets_32_bytes_and_its_address() {
        let reply = ask(&request(&[]), Gate::Serving).unwrap();
        assert_eq!(reply.len(), 32);
        assert_eq!(reply[..2], [1, 1]);
        assert_eq!(reply[8..20], request(&[])[8..20]);
        let port = u16::from_be_bytes([reply[26], reply[27]]) ^ 0x2112;
        assert_eq!(port, 40000);
    }

    #[test]
    fn case_t3_unknown_required_attributes_are_listed() {
        let two = [0x00, 0x33, 0, 0, 0x00, 0x34, 0, 0];
        let reply = ask(&request(&two), Gate::Serving).unwrap();
        assert_eq!(reply[..2], [0x01, 0x11]);
        let list = [0x00, 0x0a, 0, 4, 0x00, 0x33, 0x00, 0x34];
        assert!(
            reply.windows(list.len()).any(|window| window == list),
            "{reply:02x?}"
        );
        let optional = ask(&request(&[0x80, 0x33, 0, 0]), Gate::Serving).unwrap();
        assert_eq!(optional[..2], [1, 1]);
    }

    #[test]
    fn case_t4_malformed_is_silence() {
        for size in 0..20 {
            assert_eq!(ask(&request(&[])[..size], Gate::Serving), None);
        }
        let mut trailing = request(&[]);
        trailing.extend_from_slice(&[0; 4]);
        assert_eq!(ask(&trailing, Gate::Serving), None);
        assert_eq!(
            ask(&request(&[0x80, 0x22, 0, 40, 1, 2, 3, 4]), Gate::Serving),
            None
        );
    }

    #[test]
    fn case_t6_fingerprint_is_checked_and_returned() {
        let message = StunMessageBuilder::new(BINDING, MessageClass::Request)
            .with_attribute(Fingerprint::default())
            .build();
        let mut buffer = [0; 64];
        let size = MessageEncoderBuilder::default()
            .build()
            .encode(&mut buffer, &message)
            .unwrap();
        let reply = ask(&buffer[..size], Gate::Serving).unwrap();
        assert_eq!(reply[reply.len() - 8..reply.len() - 4], [0x80, 0x28, 0, 4]);
        buffer[size - 1] ^= 1;
        assert_eq!(ask(&buffer[..size], Gate::Serving), None);
    }

    #[test]
    fn ex4_what_is_asked_is_answered_and_read_back() {
        let id = *b"abcdefghijkl";
        let reply = answer(&super::ask(id), FROM.parse().unwrap(), Gate::Serving).unwrap();
        let mapped = Some(FROM.parse().unwrap());
        assert_eq!(told(&reply), Some(Told { id, mapped }));
        let refused = answer(&super::ask(id), FROM.parse().unwrap(), Gate::Error).unwrap();
        assert_eq!(told(&refused), Some(Told { id, mapped: None }));
        assert_eq!(told(&super::ask(id)), None);
        for size in 0..reply.len() {
            assert_eq!(told(&reply[..size]), None);
        }
    }

    #[test]
    fn gates_responses_and_credentials() {
        assert_eq!(ask(&request(&[]), Gate::Silent), None);
        let error = ask(&request(&[]), Gate::Error).unwrap();
        assert_eq!(
            (&error[..2], error[26], error[27]),
            (&[0x01, 0x11][..], 5, 0)
        );
        let mut response = request(&[]);
        response[0] = 1;
        assert_eq!(ask(&response, Gate::Serving), None);
        let mut signed = vec![0x00, 0x08, 0, 20];
        signed.extend_from_slice(&[0; 20]);
        let reply = ask(&request(&signed), Gate::Serving).unwrap();
        assert_eq!((reply[26], reply[27]), (4, 1));
    }
}
