//! One connection: frames in, messages out, and patience with neither slow nor greedy peers.

use std::{
    os::fd::AsFd as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use keepline_engine::sip::stream::{Broken, Frame, Framer};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf},
    net::TcpStream,
    sync::mpsc,
    time::{Instant, timeout, timeout_at},
};

use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::{
    Hold, Key, Told,
    connect::{self, Failed, Way},
    listen,
};
use crate::driver::sockets::Heard;

/// Bytes read in one go.
const CHUNK: usize = 16 << 10;
/// Bytes of messages that are not whole, over all connections.
const MAX_HELD: usize = 64 << 20;
/// So much a connection may always hold: an ordinary message.
const ALWAYS: usize = 8 << 10;

/// How patient a connection is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// How long a message may take from its first byte to its last (slow senders).
    message: Duration,
    /// How long whoever connected may say nothing at all.
    first: Duration,
    /// How long he may say nothing later on.
    idle: Duration,
    /// A single CRLF is an answer to a ping when nothing follows it for so long.
    half_ping: Duration,
    /// How long a peer may leave one message unread.
    write: Duration,
    /// How long the answer to a broken stream may take to be read, before the connection ends.
    last_words: Duration,
}

impl Patience {
    /// With phones that are told to refresh every `refresh`: two refreshes and a missed one.
    pub(super) fn with(refresh: Duration) -> Self {
        Self {
            message: Duration::from_secs(10),
            first: Duration::from_secs(30),
            idle: (refresh * 3).max(Duration::from_secs(900)),
            half_ping: Duration::from_millis(500),
            write: Duration::from_secs(5),
            last_words: Duration::from_secs(2),
        }
    }
}

/// Messages to write; its end ends the connection, once they are written.
pub(super) type Queue = mpsc::Receiver<Vec<u8>>;

/// What a connection's task is given.
pub(super) struct Wire {
    pub(super) key: Key,
    pub(super) id: u64,
    /// Bytes in its queue.
    pub(super) waiting: Arc<AtomicUsize>,
    /// Where a second handle of its socket is put, if one is wanted.
    pub(super) hold: Option<Hold>,
    pub(super) heard: mpsc::Sender<Heard>,
    /// Bytes of messages that are not whole, over all connections.
    pub(super) held: Arc<AtomicUsize>,
    pub(super) patience: Patience,
}

/// Why reading ended.
enum End {
    /// The peer closed, was silent for too long, or is nobody's business any more.
    Closed,
    /// What comes cannot be read on.
    Broken(Broken, Vec<u8>),
}

/// Serves a connection that somebody opened.
pub(super) async fn accepted(
    socket: TcpStream,
    secure: Option<TlsAcceptor>,
    wire: Wire,
    queue: Queue,
) {
    // A socket that refuses is closed already: reading tells.
    let _ = listen::tune(&socket);
    wire.hold(&socket);
    let Some(acceptor) = secure else {
        return serve(socket, wire, queue, true).await;
    };
    let (key, id) = (wire.key, wire.id);
    match timeout(wire.patience.message, acceptor.accept(socket)).await {
        Ok(Ok(stream)) => {
            if let Some(certificate) = shown(&stream) {
                wire.tell(Told::Certified {
                    key,
                    id,
                    certificate,
                })
                .await;
            }
            return serve(stream, wire, queue, true).await;
        }
        Ok(Err(error)) => tracing::debug!(peer = %key.1, %error, "no TLS with who connected"),
        Err(_) => tracing::debug!(peer = %key.1, "TLS takes too long"),
    }
    wire.tell(Told::Ended { key, id }).await;
}

/// The certificate that a client showed.
fn shown(stream: &TlsStream<TcpStream>) -> Option<Vec<u8>> {
    let chain = stream.get_ref().1.peer_certificates()?;
    Some(chain.first()?.to_vec())
}

/// Opens a connection and serves it: it is held open, whatever is or is not said.
pub(super) async fn opened(way: Way, wire: Wire, queue: Queue) {
    let (key, id) = (wire.key, wire.id);
    let connected = connect::connect(&way, key.1).await;
    if let Ok(stream) = &connected {
        wire.hold(stream);
    }
    let failed = match (connected, way.secure) {
        (Ok(stream), None) => {
            wire.tell(Told::Opened { key, id }).await;
            return serve(stream, wire, queue, false).await;
        }
        (Ok(stream), Some(with)) => match connect::secure(stream, with).await {
            Ok(stream) => {
                wire.tell(Told::Opened { key, id }).await;
                return serve(stream, wire, queue, false).await;
            }
            Err(failed) => failed,
        },
        (Err(failed), _) => failed,
    };
    let Failed { why, distrusted } = failed;
    let told = Told::Failed {
        key,
        id,
        why,
        distrusted,
    };
    wire.tell(told).await;
}

/// Reads and writes until either ends. Only who was `accepted` must say something.
async fn serve<S: AsyncRead + AsyncWrite>(stream: S, wire: Wire, queue: Queue, accepted: bool) {
    let patience = wire.patience;
    let (mut reader, writer) = tokio::io::split(stream);
    let mut writing = std::pin::pin!(write(writer, queue, &wire));
    let mut held = Held::new(wire.held.clone());
    let end = tokio::select! {
        end = read(&mut reader, &wire, &mut held, accepted) => end,
        () = &mut writing => End::Closed,
    };
    drop(held);
    let (key, id) = (wire.key, wire.id);
    if let End::Broken(why, begun) = end {
        let told = Told::Broken {
            key,
            id,
            begun,
            why,
        };
        wire.tell(told).await;
        // Bytes that were sent and never read would make the kernel reset the connection, and
        // the answer with it.
        let _ = timeout(patience.last_words, async {
            tokio::join!(&mut writing, drain(&mut reader))
        })
        .await;
    }
    wire.tell(Told::Ended { key, id }).await;
}

impl Wire {
    /// Puts a second handle of the socket where it is wanted: it may have to move to another
    /// device. Without one the connection ends instead.
    fn hold(&self, socket: &TcpStream) {
        if let Some(hold) = &self.hold
            && let Ok(second) = socket.as_fd().try_clone_to_owned()
        {
            // There is one socket per connection.
            let _ = hold.set(second);
        }
    }

    /// The driver's end of the queue closes only when the daemon ends.
    async fn tell(&self, told: Told) {
        let _ = self.heard.send(Heard::Stream(told)).await;
    }

    async fn frame(&self, frame: Frame) {
        let (key, id) = (self.key, self.id);
        self.tell(Told::Frame { key, id, frame }).await;
    }
}

async fn read<S: AsyncRead>(
    reader: &mut ReadHalf<S>,
    wire: &Wire,
    held: &mut Held,
    accepted: bool,
) -> End {
    let limits = wire.patience;
    let mut framer = Framer::default();
    let mut chunk = vec![0; CHUNK];
    let idle = accepted.then_some(limits.idle);
    let mut patience = accepted.then_some(limits.first);
    // When the message that is not whole began.
    let mut begun: Option<Instant> = None;
    loop {
        let now = Instant::now();
        let until = match begun {
            Some(at) => Some(at + limits.message),
            None if framer.held() > 0 => Some(now + limits.half_ping),
            None => patience.map(|limit| now + limit),
        };
        let read = match until {
            Some(until) => timeout_at(until, reader.read(&mut chunk)).await,
            None => Ok(reader.read(&mut chunk).await),
        };
        match read {
            Ok(Ok(length @ 1..)) => framer.push(&chunk[..length]),
            Ok(_) => return End::Closed,
            Err(_) if begun.is_some() => return End::Broken(Broken::Slow, framer.begun()),
            Err(_) => match framer.settle() {
                Some(frame) => {
                    patience = idle;
                    wire.frame(frame).await;
                    continue;
                }
                None => return End::Closed,
            },
        }
        let mut whole = false;
        loop {
            match framer.next_frame() {
                Ok(Some(frame)) => wire.frame(frame).await,
                Ok(None) => break,
                Err(why) => return End::Broken(why, framer.begun()),
            }
            whole = true;
        }
        if whole {
            (patience, begun) = (idle, None);
        }
        match framer.is_pending() {
            true => begun = begun.or_else(|| Some(Instant::now())),
            false => begun = None,
        }
        if !held.fits(framer.held()) {
            return End::Broken(Broken::Slow, framer.begun());
        }
    }
}

/// Writes what is queued; ends with the queue, or with a peer that does not read.
async fn write<S: AsyncWrite>(mut writer: WriteHalf<S>, mut queue: Queue, wire: &Wire) {
    let limit = wire.patience.write;
    while let Some(bytes) = queue.recv().await {
        let written = timeout(limit, async {
            writer.write_all(&bytes).await?;
            writer.flush().await
        });
        let taken = matches!(written.await, Ok(Ok(())));
        wire.waiting.fetch_sub(bytes.len(), Ordering::Relaxed);
        if !taken {
            return;
        }
    }
    // The peer may read on what was written.
    let _ = timeout(limit, writer.shutdown()).await;
}

/// Reads and forgets until the peer closes too.
async fn drain<S: AsyncRead>(reader: &mut ReadHalf<S>) {
    let mut chunk = vec![0; CHUNK];
    while matches!(reader.read(&mut chunk).await, Ok(1..)) {}
}

/// This connection's share of the bytes that all together may hold.
struct Held {
    all: Arc<AtomicUsize>,
    own: usize,
}

impl Held {
    fn new(all: Arc<AtomicUsize>) -> Self {
        Self { all, own: 0 }
    }

    /// Takes note of what is held now; `false` when that is too much.
    fn fits(&mut self, now: usize) -> bool {
        let before = std::mem::replace(&mut self.own, now);
        self.all.fetch_add(now, Ordering::Relaxed);
        let all = self.all.fetch_sub(before, Ordering::Relaxed) - before;
        now <= ALWAYS || all <= MAX_HELD
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
