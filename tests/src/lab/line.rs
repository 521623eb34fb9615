//! A connection that speaks SIP by hand: for what no SIP program does.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use keepline_engine::sip::stream::{Frame, Framer};

use super::Node;
use super::sip::Message;

/// One connection.
pub struct Line {
    stream: TcpStream,
    framer: Framer,
}

impl Line {
    /// Connects, as in `10.99.1.1:5060`.
    ///
    /// # Errors
    /// When nobody listens there.
    pub fn connect(node: &Node, to: &str) -> Result<Self> {
        let stream = node.net().enter(|| {
            TcpStream::connect(to)
                .with_context(|| format!("{}: no connection to {to}", node.name()))
        })?;
        Ok(Self {
            stream,
            framer: Framer::default(),
        })
    }

    /// Writes bytes as they are.
    ///
    /// # Errors
    /// When the other end has closed.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).context("closed")
    }

    /// Sends a message without a body, its lines separated by `\\n`.
    ///
    /// # Errors
    /// When the other end has closed.
    pub fn send(&mut self, head: &str) -> Result<()> {
        self.send_with(head, "")
    }

    /// Sends a message with a body.
    ///
    /// # Errors
    /// When the other end has closed.
    pub fn send_with(&mut self, head: &str, body: &str) -> Result<()> {
        let (head, body) = (
            head.trim_end().replace('\n', "\r\n"),
            body.replace('\n', "\r\n"),
        );
        let message = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        self.write(message.as_bytes())
    }

    /// The next thing that comes whole; `None` when the other end closed.
    ///
    /// # Errors
    /// When nothing comes within `limit`.
    pub fn next(&mut self, limit: Duration) -> Result<Option<Frame>> {
        let deadline = Instant::now() + limit;
        let mut chunk = [0; 4096];
        loop {
            if let Some(frame) = self.framer.next_frame()? {
                return Ok(Some(frame));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            ensure!(!left.is_zero(), "nothing came");
            // A pong is one when nothing follows it for a while.
            let patience = left.min(Duration::from_millis(200));
            self.stream.set_read_timeout(Some(patience))?;
            match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(None),
                Ok(length) => self.framer.push(&chunk[..length]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                    return Ok(None);
                }
                Err(_) => {
                    if let Some(frame) = self.framer.settle() {
                        return Ok(Some(frame));
                    }
                }
            }
        }
    }

    /// The final answer to what was sent last, which must have this status.
    ///
    /// # Errors
    /// When it has another, or none comes.
    pub fn answer(&mut self, status: u16, limit: Duration) -> Result<Message> {
        loop {
            match self.next(limit)? {
                Some(Frame::Message(bytes)) => {
                    let message = Message::received(String::from_utf8_lossy(&bytes).into_owned());
                    match message.status() {
                        Some(100..=199) => {}
                        Some(found) if found == status => return Ok(message),
                        _ => bail!("not {status}: {}", message.text),
                    }
                }
                Some(_) => {}
                None => bail!("closed before the {status}"),
            }
        }
    }
}
