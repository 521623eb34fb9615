//! `keepline probe options`: an OPTIONS request (RFC 3261 section 11).

use std::{net::SocketAddr, time::Duration};

use keepline_engine::sip::{Message, Method, originate::Draft};

use super::{Answer, Error, Question, random_hex, socket};

/// T1 and T2 (RFC 3261 table 4).
const T1: Duration = Duration::from_millis(500);
const T2: Duration = Duration::from_secs(4);

/// Asks `server` for its OPTIONS. Retransmits as RFC 3261 section 17.1.2.2 says.
///
/// # Errors
/// When the socket fails, or no answer comes in time.
pub async fn options(
    server: SocketAddr,
    from: Option<SocketAddr>,
    limit: Duration,
) -> Result<Answer, Error> {
    let socket = socket(server, from).await?;
    let local = socket
        .local_addr()
        .map_err(|source| Error::Socket { server, source })?;
    let branch = format!("z9hG4bK{}", random_hex::<12>()?);
    let request = Draft {
        method: Method::Options,
        uri: format!("sip:{server}"),
        via: format!("UDP {local}"),
        branch: branch.clone(),
        from: format!("<sip:keepline@{local}>;tag={}", random_hex::<8>()?),
        to: format!("<sip:{server}>"),
        call_id: random_hex::<16>()?,
        cseq: 1,
        routes: Vec::new(),
        headers: Vec::new(),
    };
    let bytes = request.build();
    let question = Question {
        server,
        socket: &socket,
        bytes: &bytes,
        first: T1,
        longest: T2,
        limit,
    };
    question.ask(|bytes| answer(bytes, &branch)).await
}

/// The answer to the request of this branch, in words; `None` for anything else.
fn answer(bytes: &[u8], branch: &str) -> Option<String> {
    let message = Message::parse(bytes.to_vec()).ok()?;
    let status = message.status()?;
    // A provisional answer is no answer yet (RFC 3261 section 17.1.2.2).
    if status < 200 || message.branch() != Some(branch.as_bytes()) {
        return None;
    }
    let text = |span| String::from_utf8_lossy(message.slice(span)).into_owned();
    let reason = message.reason().map(text).unwrap_or_default();
    let agent = message
        .named("Server")
        .or_else(|| message.named("User-Agent"))
        .map(text);
    let agent = agent
        .map(|agent| format!(" from {agent}"))
        .unwrap_or_default();
    Some(format!("{status} {reason}{agent}"))
}

#[cfg(test)]
mod tests {
    use tokio::net::UdpSocket;

    use super::*;

    async fn server() -> (UdpSocket, SocketAddr) {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let address = socket.local_addr().expect("an address");
        (socket, address)
    }

    /// A response to the request as a server would print it.
    fn response(request: &[u8], status: &str) -> Vec<u8> {
        let text = String::from_utf8(request.to_vec()).expect("ours is ASCII");
        let (_, headers) = text.split_once("\r\n").expect("a start line");
        format!("SIP/2.0 {status}\r\n{headers}").into_bytes()
    }

    #[tokio::test]
    async fn an_unanswered_request_is_sent_again_and_a_final_response_ends_it() {
        let (socket, address) = server().await;
        let serve = async {
            let mut buffer = vec![0; 2000];
            let (first, _) = socket.recv_from(&mut buffer).await.expect("a request");
            let request = buffer[..first].to_vec();
            let (second, peer) = socket
                .recv_from(&mut buffer)
                .await
                .expect("a retransmission");
            assert_eq!(
                buffer[..second],
                request,
                "a retransmission is the same bytes"
            );
            let foreign = response(&request, "200 OK").escape_ascii().to_string();
            let foreign = foreign.replace("z9hG4bK", "z9hG4bKx");
            for answer in [
                response(&request, "100 Trying"),
                foreign.into_bytes(),
                response(&request, "405 No"),
            ] {
                socket.send_to(&answer, peer).await.expect("sent");
            }
        };
        let (answer, ()) = tokio::join!(options(address, None, Duration::from_secs(5)), serve);
        let answer = answer.expect("an answer");
        assert_eq!(
            (answer.answer.as_str(), answer.transmissions),
            ("405 No", 2)
        );
        assert!(answer.rtt_ms >= 500.0, "{}", answer.rtt_ms);
    }

    #[tokio::test]
    async fn silence_and_refusal_are_told_apart() {
        let (socket, address) = server().await;
        let silence = options(address, None, Duration::from_millis(700)).await;
        assert!(
            matches!(
                silence,
                Err(Error::Silence {
                    transmissions: 2,
                    ..
                })
            ),
            "{silence:?}"
        );
        drop(socket);
        let refused = options(address, None, Duration::from_secs(5)).await;
        assert!(matches!(refused, Err(Error::Socket { .. })), "{refused:?}");
    }
}
