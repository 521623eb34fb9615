//! `keepline probe stun`: a Binding request (RFC 8489).

use std::{net::SocketAddr, time::Duration};

use stun_rs::{
    MessageClass, MessageDecoderBuilder, MessageEncoderBuilder, StunMessage, StunMessageBuilder,
    attributes::stun::{ErrorCode, Fingerprint, XorMappedAddress},
    methods::BINDING,
};

use super::{Answer, Error, Question, socket};

/// Header, and FINGERPRINT.
const REQUEST_MAX: usize = 64;

/// Asks `server` how it sees us. Retransmits as RFC 8489 section 6.2.1 says, with its RTO.
///
/// # Errors
/// When the socket fails, or no answer comes in time.
///
/// # Panics
/// Never: a request of one attribute fits its buffer.
pub async fn stun(
    server: SocketAddr,
    from: Option<SocketAddr>,
    limit: Duration,
) -> Result<Answer, Error> {
    let socket = socket(server, from).await?;
    let request = StunMessageBuilder::new(BINDING, MessageClass::Request)
        .with_attribute(Fingerprint::default())
        .build();
    let mut bytes = [0; REQUEST_MAX];
    let length = MessageEncoderBuilder::default()
        .build()
        .encode(&mut bytes, &request)
        .unwrap_or_else(|error| unreachable!("a request of one attribute: {error}"));
    let question = Question {
        server,
        socket: &socket,
        bytes: &bytes[..length],
        first: Duration::from_millis(500),
        longest: Duration::from_secs(8),
        limit,
    };
    question.ask(|bytes| answer(bytes, &request)).await
}

/// The answer to `request`, in words; `None` for anything else.
fn answer(bytes: &[u8], request: &StunMessage) -> Option<String> {
    let (message, _) = MessageDecoderBuilder::default()
        .build()
        .decode(bytes)
        .ok()?;
    if message.transaction_id() != request.transaction_id() || message.method() != BINDING {
        return None;
    }
    match message.class() {
        MessageClass::SuccessResponse => {
            let mapped = message
                .get::<XorMappedAddress>()
                .and_then(|a| a.as_xor_mapped_address().ok());
            Some(match mapped {
                Some(mapped) => format!("mapped address {}", mapped.socket_address()),
                None => "success without a mapped address".to_owned(),
            })
        }
        MessageClass::ErrorResponse => {
            let code = message
                .get::<ErrorCode>()
                .and_then(|a| a.as_error_code().ok());
            Some(match code.map(ErrorCode::error_code) {
                Some(code) => format!("error {} {}", code.error_code(), code.reason()),
                None => "error without a code".to_owned(),
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UdpSocket;

    use super::*;

    #[tokio::test]
    async fn the_mapped_address_is_told() {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let address = socket.local_addr().expect("an address");
        let serve = async {
            let mut buffer = [0; 200];
            let (length, peer) = socket.recv_from(&mut buffer).await.expect("a request");
            let (request, _) = MessageDecoderBuilder::default()
                .build()
                .decode(&buffer[..length])
                .expect("a STUN message");
            let success = StunMessageBuilder::new(BINDING, MessageClass::SuccessResponse)
                .with_transaction_id(*request.transaction_id())
                .with_attribute(XorMappedAddress::from(
                    "192.0.2.7:40000".parse::<SocketAddr>().expect("one"),
                ))
                .build();
            let length = MessageEncoderBuilder::default()
                .build()
                .encode(&mut buffer, &success)
                .expect("fits");
            socket.send_to(&buffer[..length], peer).await.expect("sent");
        };
        let (answer, ()) = tokio::join!(stun(address, None, Duration::from_secs(5)), serve);
        assert_eq!(
            answer.expect("an answer").answer,
            "mapped address 192.0.2.7:40000"
        );
    }
}
