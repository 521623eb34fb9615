//! Listening sockets, and what every connection's socket is told.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use keepline_engine::net::ListenerId;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use super::Told;
use crate::driver::{sockets::Heard, taking};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 256;
/// After an error of the machine (no file descriptor left) nothing is accepted for so long.
const PAUSE: Duration = Duration::from_millis(100);
/// Data that nobody acknowledges for so long ends its connection: repetitions become so rare
/// that a peer which is back would not be heard from for minutes (RFC 5482).
const USER_TIMEOUT: Duration = Duration::from_secs(5);
/// A peer that vanished while nothing was sent is found out after two minutes.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(60))
    .with_interval(Duration::from_secs(20))
    .with_retries(3);

/// What a socket leaves by, and hears by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Path {
    /// This device alone.
    Device(String),
    /// A device that may not have the socket's address: it is carried there, or was.
    Away(String),
    /// It leaves as routing rules say of this mark, and hears by any.
    Mark(u32),
}

impl Path {
    /// Has a socket take it, which took another or none.
    pub(super) fn set(&self, socket: &Socket) -> io::Result<()> {
        match self {
            Self::Device(device) | Self::Away(device) => {
                socket.bind_device(Some(device.as_bytes()))
            }
            Self::Mark(mark) => {
                socket.set_mark(*mark)?;
                socket.bind_device(None)
            }
        }
    }
}

/// A TCP socket on this path. With `takes` the address may be a softswitch's, and the port that
/// of our listener.
pub(super) fn socket(path: &Path, at: SocketAddr, takes: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::TCP))?;
    if at.is_ipv6() {
        socket.set_only_v6(true)?;
        // Addresses of IPv6 belong to a device (RFC 4007), those of IPv4 to the machine.
        socket.set_freebind_v6(matches!(path, Path::Away(_)))?;
    }
    path.set(&socket)?;
    // Connections of an earlier run may linger on our port.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    if takes {
        taking::allow(&socket, at.is_ipv4())?;
        socket.set_reuse_port(true)?;
    }
    socket.bind(&at.into())?;
    Ok(socket)
}

/// A listening socket; with `takes`, on all addresses.
pub(super) fn bind(path: &Path, at: SocketAddr, takes: bool) -> io::Result<TcpListener> {
    let at = if takes { taking::any(at) } else { at };
    let socket = socket(path, at, takes)?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// What holds for every connection, whoever opened it.
pub(super) fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    socket.set_tcp_keepalive(&KEEPALIVE)
}

/// Hands over whoever connects, until nobody listens.
pub(super) async fn accept(
    listener: ListenerId,
    socket: Arc<TcpListener>,
    heard: mpsc::Sender<Heard>,
) {
    loop {
        match socket.accept().await {
            Ok((socket, peer)) => {
                let key = (listener, peer);
                let told = Told::Accepted { key, socket };
                if heard.send(Heard::Stream(told)).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::debug!(%error, "connection not accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
