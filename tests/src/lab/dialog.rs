//! Dialogs as a phone keeps them (RFC 3261 section 12), and the texts that it sends.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result};

use super::kamailio::DOMAIN;
use super::sip::Message;

/// The port of a phone's audio.
pub const MEDIA: u16 = 6000;

const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// One side of a dialog.
#[derive(Clone, Debug)]
pub struct Dialog {
    /// Its Call-ID.
    pub call_id: String,
    /// Value of From in requests of this side.
    local: String,
    /// Value of To in requests of this side.
    remote: String,
    target: String,
    routes: Vec<String>,
    /// CSeq of this side's last request.
    pub cseq: u32,
    /// Where the peer takes media: nowhere when the dialog is no call's.
    pub peer_media: SocketAddr,
}

impl Dialog {
    /// The caller's side, from the 200.
    ///
    /// # Errors
    /// When that lacks something.
    pub(super) fn of_answer(ok: &Message) -> Result<Self> {
        let mut routes = values(ok, "Record-Route");
        routes.reverse();
        Ok(Self {
            call_id: value(ok, "Call-ID")?,
            local: value(ok, "From")?,
            remote: value(ok, "To")?,
            target: uri(&value(ok, "Contact")?),
            routes,
            cseq: ok.cseq().context("no CSeq")?.0,
            peer_media: media(ok).unwrap_or(NOWHERE),
        })
    }

    /// The callee's side, from the INVITE that `user` accepts.
    ///
    /// # Errors
    /// When that lacks something.
    pub(super) fn of_offer(invite: &Message, user: &str) -> Result<Self> {
        Ok(Self {
            call_id: value(invite, "Call-ID")?,
            local: tagged(&value(invite, "To")?, user),
            remote: value(invite, "From")?,
            target: uri(&value(invite, "Contact")?),
            routes: values(invite, "Record-Route"),
            cseq: 0,
            peer_media: media(invite).unwrap_or(NOWHERE),
        })
    }

    /// Tags of this side and of the other.
    #[must_use]
    pub fn tags(&self) -> (&str, &str) {
        let tag = |value: &'_ str| value.find(";tag=").map_or(value.len(), |at| at + 5);
        (
            &self.local[tag(&self.local)..],
            &self.remote[tag(&self.remote)..],
        )
    }

    /// The other side's Contact URI.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Takes where media goes from a later description of the other side.
    pub fn hears(&mut self, message: &Message) {
        if let Ok(at) = media(message) {
            self.peer_media = at;
        }
    }

    /// A request; `tail` is what follows CSeq.
    pub(super) fn request(&self, method: &str, cseq: u32, via: &str, tail: &str) -> String {
        let routes: String = self
            .routes
            .iter()
            .map(|route| format!("Route: {route}\r\n"))
            .collect();
        format!(
            "{method} {} SIP/2.0\r\n{via}{routes}Max-Forwards: 70\r\nFrom: {}\r\nTo: {}\r\n\
             Call-ID: {}\r\nCSeq: {cseq} {method}\r\n{tail}",
            self.target, self.local, self.remote, self.call_id
        )
    }
}

/// A session description with audio at `port`, and the headers before it.
pub(super) fn body(at: SocketAddr, port: u16) -> String {
    let ip = at.ip();
    let sdp = format!(
        "v=0\r\no=- 1 1 IN IP4 {ip}\r\ns=-\r\nc=IN IP4 {ip}\r\nt=0 0\r\n\
         m=audio {port} RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\na=sendrecv\r\n"
    );
    let length = sdp.len();
    format!("Content-Type: application/sdp\r\nContent-Length: {length}\r\n\r\n{sdp}")
}

/// The 200 to an INVITE. A session interval that is asked for is granted, with the caller as
/// refresher (RFC 4028 section 9).
pub(super) fn accept(invite: &Message, user: &str, contact: &str, at: SocketAddr) -> String {
    let interval = invite
        .header("Session-Expires")
        .map_or(String::new(), |value| {
            let interval = value.split(';').next().unwrap_or_default();
            format!("Session-Expires: {interval};refresher=uac\r\nRequire: timer\r\n")
        });
    let tail = format!("Contact: {contact}\r\n{interval}{}", body(at, MEDIA));
    reply(invite, "200 OK", user, &tail)
}

/// The 200 to any other request.
pub(super) fn agree(request: &Message, user: &str) -> String {
    reply(request, "200 OK", user, "Content-Length: 0\r\n\r\n")
}

/// The ACK to a final answer that is no 200: part of the INVITE's transaction (RFC 3261 section
/// 17.1.1.3).
pub(super) fn ack_of_failure(invite: &str, answer: &Message) -> String {
    let head = invite.split("\r\n\r\n").next().unwrap_or_default();
    let to = answer.header("To").unwrap_or_default();
    let kept = ["Via:", "Max-Forwards:", "From:", "Call-ID:", "Route:"];
    let mut lines = head.lines();
    let first = lines
        .next()
        .unwrap_or_default()
        .replacen("INVITE", "ACK", 1);
    let lines: String = lines
        .filter(|line| kept.iter().any(|name| line.starts_with(name)))
        .map(|line| format!("{line}\r\n"))
        .collect();
    let number = answer.cseq().map_or(1, |(number, _)| number);
    format!("{first}\r\n{lines}To: {to}\r\nCSeq: {number} ACK\r\nContent-Length: 0\r\n\r\n")
}

/// Any answer, with a tag of `user`'s; `tail` is what follows CSeq.
pub(super) fn reply(request: &Message, status: &str, user: &str, tail: &str) -> String {
    let copied: String = ["Via", "Record-Route"]
        .iter()
        .flat_map(|name| {
            let values = values(request, name);
            values.into_iter().map(move |v| format!("{name}: {v}\r\n"))
        })
        .collect();
    let of = |name| request.header(name).unwrap_or_default();
    format!(
        "SIP/2.0 {status}\r\n{copied}From: {}\r\nTo: {}\r\nCall-ID: {}\r\nCSeq: {}\r\n{tail}",
        of("From"),
        tagged(of("To"), user),
        of("Call-ID"),
        of("CSeq"),
    )
}

/// The To of this side: with a tag of its own unless it has one.
fn tagged(to: &str, user: &str) -> String {
    if to.contains(";tag=") {
        to.to_owned()
    } else {
        format!("{to};tag=callee{user}")
    }
}

fn value(message: &Message, name: &str) -> Result<String> {
    let value = message.header(name).map(str::to_owned);
    value.with_context(|| format!("no {name} in\n{}", message.text))
}

/// All values of a header, those of one line apart.
fn values(message: &Message, name: &str) -> Vec<String> {
    let head = message.text.lines().skip(1).take_while(|l| !l.is_empty());
    let lines = head.filter_map(|line| line.split_once(':'));
    lines
        .filter(|(key, _)| key.trim().eq_ignore_ascii_case(name))
        .flat_map(|(_, value)| value.split(',').map(|one| one.trim().to_owned()))
        .collect()
}

fn uri(contact: &str) -> String {
    let inside = contact.split_once('<').map_or(contact, |(_, rest)| rest);
    inside.split('>').next().unwrap_or_default().to_owned()
}

/// Where a session description takes audio.
fn media(message: &Message) -> Result<SocketAddr> {
    let after = |prefix: &str| {
        let line = message.text.lines().find_map(|l| l.strip_prefix(prefix));
        line.with_context(|| format!("no {prefix} in\n{}", message.text))
    };
    let ip = after("c=IN IP4 ")?.trim();
    let port = after("m=audio ")?.split(' ').next().unwrap_or_default();
    Ok(format!("{ip}:{port}").parse()?)
}

/// The address of record of a user.
#[must_use]
pub fn aor(user: &str) -> String {
    format!("{user}@{DOMAIN}")
}
