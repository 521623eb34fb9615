//! UDP sockets: one per SIP listener, one per media port in use. Each has a task on the loop's
//! thread that reads it into a bounded queue; when the engine lags, the kernel's buffer fills and
//! drops.

mod carried;

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    os::fd::AsFd,
    sync::Arc,
};

use keepline_engine::net::ListenerId;
use rustix::net::{SendFlags, sockopt};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::{io::Interest, net::UdpSocket, runtime::Handle, sync::mpsc, task::JoinHandle};

use self::carried::Ear;
use super::{errqueue, streams::Told, taking};

/// Datagrams that wait for the engine.
pub(super) const QUEUE: usize = 4096;
/// Bytes that wait in the kernel while the loop's thread does something long, for each SIP
/// listener: about 4,000 datagrams as the kernel counts them.
const WAITING: usize = 4 << 20;
/// The largest datagram that is read.
const DATAGRAM: usize = 65_535;

/// What a socket saw.
#[derive(Debug)]
pub(super) enum Heard {
    /// A datagram on a SIP listener.
    Sip {
        /// Which listener.
        listener: ListenerId,
        /// Where to, on a listener that takes what is sent to others.
        to: Option<SocketAddr>,
        /// Who sent it.
        from: SocketAddr,
        /// All of it.
        bytes: Vec<u8>,
    },
    /// An ICMP error for a datagram that a listener sent.
    Unreachable {
        /// The error.
        error: errqueue::Unreachable,
    },
    /// Something about a connection of a listener over streams.
    Stream(Told),
    /// A datagram on a media port: XDP left it to the slow path.
    Media {
        /// The port's address.
        local: SocketAddr,
        /// Who sent it.
        from: SocketAddr,
        /// All of it.
        bytes: Vec<u8>,
    },
}

/// A socket and the interface it is bound to.
#[derive(Debug)]
struct Bound {
    interface: String,
    socket: Arc<UdpSocket>,
    /// It takes what is sent to others, and speaks in their name.
    takes: bool,
    /// What hears by a device that the interface was on.
    ear: Option<Ear>,
}

/// Every open socket.
#[derive(Debug)]
pub(super) struct Sockets {
    heard: mpsc::Sender<Heard>,
    /// What reads them: the loop's own thread.
    own: Handle,
    listeners: Vec<Bound>,
    media: HashMap<SocketAddr, (Bound, JoinHandle<()>)>,
    /// Interfaces whose traffic another device carries, and which.
    carried: HashMap<String, String>,
}

impl Sockets {
    /// No socket yet; `own` reads them, and what they hear goes to `heard`.
    #[must_use]
    pub(super) fn new(heard: mpsc::Sender<Heard>, own: Handle) -> Self {
        Self {
            heard,
            own,
            listeners: Vec::new(),
            media: HashMap::new(),
            carried: HashMap::new(),
        }
    }

    /// Opens the next SIP listener, bound to its interface: a packet of one link never leaves
    /// by another. With `takes` it hears what is sent to any address.
    ///
    /// # Errors
    /// When the port is taken, the address is not ours, or the process may not bind it.
    pub(super) fn listen(
        &mut self,
        listener: ListenerId,
        interface: &str,
        at: SocketAddr,
        takes: bool,
    ) -> io::Result<()> {
        let _own = self.own.enter();
        let socket = bind(interface, at, takes, false)?;
        errqueue::enable(socket.as_fd(), at.is_ipv4())?;
        // Without the right to more, what the system allows must do.
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, WAITING);
        let socket = Arc::new(socket);
        self.listeners.push(Bound {
            interface: interface.to_owned(),
            socket: socket.clone(),
            takes,
            ear: None,
        });
        let port = takes.then_some(at.port());
        tokio::spawn(read_listener(listener, port, socket, self.heard.clone()));
        Ok(())
    }

    /// Sends from a listener, in the name of `source` where it takes what is sent to others. A
    /// full socket buffer loses the datagram, as the network may.
    pub(super) fn send(
        &self,
        listener: ListenerId,
        source: IpAddr,
        to: SocketAddr,
        bytes: &[u8],
    ) -> io::Result<()> {
        let Some(bound) = self.listeners.get(usize::from(listener.0)) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let socket = &bound.socket;
        twice(|| match bound.takes {
            false => send(socket, to, bytes),
            true => taking::send(socket.as_fd(), source, to, bytes),
        })
    }

    /// Sends one datagram in the name of `from`, which is not ours: by a socket of its own, since
    /// a socket has one port, and those of phones are many. It lives for this datagram.
    pub(super) fn pass(
        &self,
        interface: &str,
        from: SocketAddr,
        to: SocketAddr,
        bytes: &[u8],
    ) -> io::Result<()> {
        let socket = Socket::new(Domain::for_address(from), Type::DGRAM, Some(Protocol::UDP))?;
        if from.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind_device(Some(self.device(interface).as_bytes()))?;
        socket.set_nonblocking(true)?;
        socket.set_reuse_address(true)?;
        taking::allow(&socket, from.is_ipv4())?;
        socket.bind(&from.into())?;
        socket.send_to(bytes, &to.into()).map(drop)
    }

    /// Holds a media port.
    ///
    /// # Errors
    /// When it is taken: the call then has no slow path, and the kernel's ICMP may end it.
    pub(super) fn open_media(&mut self, interface: &str, at: SocketAddr) -> io::Result<()> {
        if self.media.contains_key(&at) {
            return Ok(());
        }
        let _own = self.own.enter();
        let device = self.device(interface);
        let away = device != interface;
        let socket = Arc::new(bind(device, at, false, away)?);
        let task = tokio::spawn(read_media(at, socket.clone(), self.heard.clone()));
        let bound = Bound {
            interface: interface.to_owned(),
            socket,
            takes: false,
            ear: away.then(|| self.media_ear(interface, at)).flatten(),
        };
        self.media.insert(at, (bound, task));
        Ok(())
    }

    /// Lets a media port go.
    pub(super) fn close_media(&mut self, at: SocketAddr) {
        if let Some((_, task)) = self.media.remove(&at) {
            task.abort();
        }
    }

    /// Sends from a media port: the slow path.
    pub(super) fn send_media(
        &self,
        from: SocketAddr,
        to: SocketAddr,
        bytes: &[u8],
    ) -> io::Result<()> {
        match self.media.get(&from) {
            Some((Bound { socket, .. }, _)) => twice(|| send(socket, to, bytes)),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

/// Without asking whether the socket is known to take it: it is not, until the runtime has looked.
fn send(socket: &UdpSocket, to: SocketAddr, bytes: &[u8]) -> io::Result<()> {
    rustix::net::sendto(socket, bytes, SendFlags::DONTWAIT, &to)?;
    Ok(())
}

fn twice(send: impl Fn() -> io::Result<()>) -> io::Result<()> {
    match send() {
        // An ICMP error of an earlier datagram is reported here once; this one was not sent.
        Err(error) if is_icmp(&error) => send(),
        sent => sent,
    }
}

fn is_icmp(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
    )
}

/// With `away` the address may be another device's.
fn bind(interface: &str, at: SocketAddr, takes: bool, away: bool) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(at), Type::DGRAM, Some(Protocol::UDP))?;
    if at.is_ipv6() {
        socket.set_only_v6(true)?;
        // Addresses of IPv6 belong to a device (RFC 4007), those of IPv4 to the machine.
        socket.set_freebind_v6(away)?;
    }
    socket.bind_device(Some(interface.as_bytes()))?;
    socket.set_nonblocking(true)?;
    if takes {
        taking::allow(&socket, at.is_ipv4())?;
        taking::tell_destination(&socket, at.is_ipv4())?;
        socket.bind(&taking::any(at).into())?;
    } else {
        socket.bind(&at.into())?;
    }
    UdpSocket::from_std(socket.into())
}

/// `port` is that of a listener which takes what is sent to others.
async fn read_listener(
    listener: ListenerId,
    port: Option<u16>,
    socket: Arc<UdpSocket>,
    heard: mpsc::Sender<Heard>,
) {
    let mut buffer = vec![0; DATAGRAM];
    loop {
        let Ok(ready) = socket.ready(Interest::READABLE | Interest::ERROR).await else {
            return;
        };
        if ready.is_error() {
            while let Ok(error) = errqueue::take(socket.as_fd()) {
                if heard.send(Heard::Unreachable { error }).await.is_err() {
                    return;
                }
            }
            // Reading takes the pending error off, so that readiness is told anew.
            let _ = socket.take_error();
            let _ = socket.try_io(Interest::ERROR, || {
                Err::<(), _>(io::ErrorKind::WouldBlock.into())
            });
        }
        while let Ok((length, from, to)) = receive(&socket, port, &mut buffer) {
            let bytes = buffer[..length].to_vec();
            if heard
                .send(Heard::Sip {
                    listener,
                    to,
                    from,
                    bytes,
                })
                .await
                .is_err()
            {
                return;
            }
        }
    }
}

/// A datagram: its length, who sent it, and where to.
fn receive(
    socket: &UdpSocket,
    port: Option<u16>,
    buffer: &mut [u8],
) -> io::Result<(usize, SocketAddr, Option<SocketAddr>)> {
    let Some(port) = port else {
        let (length, from) = socket.try_recv_from(buffer)?;
        return Ok((length, from, None));
    };
    let read = || taking::receive(socket.as_fd(), buffer);
    let (length, from, to) = socket.try_io(Interest::READABLE, read)?;
    Ok((length, from, Some(SocketAddr::new(to, port))))
}

/// What XDP forwards never comes here, so the buffer is there only while something is read: it
/// would be most of what a call costs (`bench sip`, `bytes_per_call`).
async fn read_media(local: SocketAddr, socket: Arc<UdpSocket>, heard: mpsc::Sender<Heard>) {
    while socket.readable().await.is_ok() {
        let mut buffer = vec![0; DATAGRAM];
        // An ICMP error here is the other party's business: its signalling ends the call.
        while let Ok((length, from)) = socket.try_recv_from(&mut buffer) {
            let bytes = buffer[..length].to_vec();
            if heard
                .send(Heard::Media { local, from, bytes })
                .await
                .is_err()
            {
                return;
            }
        }
    }
}
