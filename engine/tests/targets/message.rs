//! Reading: the index covers the message, the readers stay inside it, answers are well-formed.

use std::net::{Ipv6Addr, SocketAddr};

use keepline_engine::sip::{
    Datagram, Message, Name, NameAddr, Span, Uri, ack_for, cancel_for, classify, digest, params,
    reply_address, respond,
};

/// Any datagram.
pub(crate) fn sip_message(data: &[u8]) {
    if classify(data) == Datagram::Keepalive {
        return;
    }
    let source = SocketAddr::from((Ipv6Addr::LOCALHOST, 5060));
    match Message::parse(data.to_vec()) {
        Ok(msg) => {
            covers(data, &msg);
            reads(&msg);
            if msg.is_request() {
                answers(&msg, source);
            }
        }
        Err(refusal) => {
            assert!(!refusal.to_string().is_empty());
            if let Some(answer) = refusal.answer("tag", source) {
                let status = refusal.status().map(|(code, _)| code);
                assert!(answer.starts_with(format!("SIP/2.0 {} ", status.unwrap_or(0)).as_bytes()));
            }
        }
    }
}

/// Start line, lines, blank line and body are the message, in order, without a gap; and the
/// message is a part of the datagram that means the same alone.
fn covers(data: &[u8], msg: &Message) {
    let bytes = msg.bytes();
    let skipped = data
        .iter()
        .take_while(|byte| matches!(byte, b'\r' | b'\n'))
        .count();
    assert!(data[skipped..].starts_with(bytes));
    let mut at = msg.start_line().end;
    for line in msg.lines() {
        assert_eq!(line.full.start, at);
        assert!(line.full.start <= line.name_span.start && line.name_span.end < line.full.end);
        assert!(line.name_span.end < line.value.start || line.value.is_empty());
        assert!(line.value.end <= line.full.end);
        at = line.full.end;
    }
    assert_eq!(msg.blank_line().start, at);
    assert_eq!(
        msg.body_span(),
        Span::new(msg.blank_line().end as usize..bytes.len())
    );
    let again = Message::parse(bytes.to_vec()).expect("the same message alone");
    assert_eq!(again.bytes(), bytes);
    assert_eq!(again.lines(), msg.lines());
}

/// Every reader, over every value, whatever header it stands in.
fn reads(msg: &Message) {
    let bytes = msg.bytes();
    let inside = |span: Span| assert!(span.start <= span.end && span.end as usize <= bytes.len());
    for (at, line) in msg.lines().iter().enumerate() {
        // The values of one name once, or many lines of it cost their square.
        let before = &msg.lines()[..at];
        let first = before.iter().all(|before| before.name != line.name);
        for value in msg.values(line.name).filter(|_| first) {
            inside(value);
            if let Some(via) = msg.read_via(value) {
                [via.transport, via.sent_by, via.host, via.params]
                    .into_iter()
                    .for_each(inside);
                params(bytes, via.params).for_each(|param| inside(param.full));
            }
            if let Some(addr) = msg.read_addr(value) {
                inside_addr(msg, &addr);
            }
        }
        let value = msg.slice(line.value);
        let nonce = digest::Challenge::parse(value).map(|challenge| challenge.nonce);
        assert!(nonce.is_none() || nonce == digest::nonce(value));
        let _ = digest::Credentials::parse(value);
    }
    assert!(msg.from().is_some() && msg.to().is_some() && msg.top_via().is_some());
    assert!(msg.call_id().is_some() && msg.cseq().is_some());
    assert!(msg.header(Name::MaxForwards).is_none() || msg.max_forwards().is_some());
    let _ = (
        msg.from_tag(),
        msg.to_tag(),
        msg.expires(),
        msg.branch(),
        format!("{msg:?}"),
    );
}

fn inside_addr(msg: &Message, addr: &NameAddr) {
    let bytes = msg.bytes();
    assert!(addr.value.start <= addr.uri.start && addr.uri.end <= addr.params.start);
    assert!(addr.params.end <= addr.value.end);
    for param in params(bytes, addr.params) {
        assert_eq!(param.full.of(bytes).first(), Some(&b';'));
        assert!(addr.params.start <= param.full.start && param.full.end <= addr.params.end);
        assert!(
            param
                .value
                .is_none_or(|value| param.name.end < value.end.max(value.start))
        );
    }
    if let Some(uri) = Uri::parse(addr.uri.of(bytes)) {
        assert_eq!(uri.params_span.of(uri.bytes), uri.params);
        assert!(
            uri.user_span
                .is_none_or(|span| Some(span.of(uri.bytes)) == uri.user)
        );
        let host = uri.host_port_span.of(uri.bytes);
        assert!(
            host.windows(uri.host.len().max(1))
                .any(|part| part == uri.host)
                || uri.host.is_empty()
        );
    }
}

/// What we answer to a request, and what repeats it, can be read and belongs to it.
fn answers(msg: &Message, source: SocketAddr) {
    let _ = reply_address(msg, source);
    let reply = Message::parse(respond(msg, 486, "Busy Here", Some("tag"), source));
    let reply = reply.expect("our own response is well-formed");
    assert_eq!(reply.status(), Some(486));
    assert_eq!(reply.call_id(), msg.call_id());
    assert_eq!(reply.from_tag(), msg.from_tag());
    assert_eq!(reply.branch(), msg.branch());
    assert!(reply.to_tag().is_some());
    assert_eq!(reply.vias().count(), msg.vias().count());
    for derived in [ack_for(msg, &reply), cancel_for(msg)] {
        let derived = Message::parse(derived).expect("our own request is well-formed");
        assert_eq!(derived.branch(), msg.branch());
        assert_eq!(
            derived.cseq().map(|cseq| cseq.number),
            msg.cseq().map(|cseq| cseq.number)
        );
    }
}
