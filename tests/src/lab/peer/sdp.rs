//! Session descriptions of one audio stream, and what others say in theirs.

use std::net::SocketAddr;

use super::super::sip::Message;

/// Which way media flows, as the sender of a description sees it (RFC 3264 section 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Both ways.
    SendRecv,
    /// On hold, with music.
    SendOnly,
    /// Put on hold.
    RecvOnly,
    /// Neither.
    Inactive,
}

impl Direction {
    const ALL: [Self; 4] = [
        Self::SendRecv,
        Self::SendOnly,
        Self::RecvOnly,
        Self::Inactive,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::SendRecv => "sendrecv",
            Self::SendOnly => "sendonly",
            Self::RecvOnly => "recvonly",
            Self::Inactive => "inactive",
        }
    }
}

pub(super) fn body(media: SocketAddr, direction: Direction, version: u32) -> String {
    let (ip, port) = (media.ip(), media.port());
    format!(
        "v=0\r\no=- 1 {version} IN IP4 {ip}\r\ns=-\r\nc=IN IP4 {ip}\r\nt=0 0\r\n\
         m=audio {port} RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\na={}\r\n",
        direction.word()
    )
}

/// What a description says; none says `sendrecv`.
#[must_use]
pub fn direction_of(message: &Message) -> Direction {
    let says = |word: &str| message.text.contains(&format!("\r\na={word}\r\n"));
    let found = Direction::ALL.into_iter().find(|one| says(one.word()));
    found.unwrap_or(Direction::SendRecv)
}
