//! What a phone speaks over: a datagram socket, a connection, or TLS.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use keepline_engine::net::Transport;
use keepline_engine::sip::stream::{Frame, Framer};
use socket2::{Domain, Socket, Type};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::super::Node;
use super::Seat;

/// A reader looks this often whether it shall end, and what is to be repeated.
const GRAIN: Duration = Duration::from_millis(50);

/// Whom phones over TLS trust.
pub type Tls = Arc<ClientConfig>;

/// Phones that trust the authority of this certificate, in PEM.
///
/// # Errors
/// When it is none.
pub fn trusting(authority: &str) -> Result<Tls> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
    let config = ClientConfig::builder().with_root_certificates(roots);
    Ok(Arc::new(config.with_no_client_auth()))
}

#[derive(Clone)]
pub(super) enum Wire {
    Datagram(Arc<UdpSocket>, SocketAddr),
    Stream(Arc<TcpStream>),
    Sealed(Arc<TcpStream>, Arc<Mutex<ClientConnection>>),
}

impl Wire {
    pub(super) fn open(node: &Node, seat: &Seat) -> Result<Self> {
        if seat.over == Transport::Udp {
            let socket = node.udp(&seat.at.to_string())?;
            socket.set_read_timeout(Some(GRAIN))?;
            return Ok(Self::Datagram(Arc::new(socket), seat.proxy));
        }
        let stream = node.net().enter(|| connect(seat.at.ip(), seat.proxy))?;
        let session = match seat.over {
            Transport::Tls => Some(greet(&stream, seat)?),
            Transport::Udp | Transport::Tcp => None,
        };
        stream.set_read_timeout(Some(GRAIN))?;
        let stream = Arc::new(stream);
        Ok(match session {
            Some(session) => Self::Sealed(stream, Arc::new(Mutex::new(session))),
            None => Self::Stream(stream),
        })
    }

    /// Sends a message. One that cannot be sent is missed by whoever waits for its answer.
    pub(super) fn send(&self, text: &str) {
        let _ = self.try_send(text, None);
    }

    /// Sends a response: a datagram goes where the request's Via says (RFC 3261 section 18.2.2).
    pub(super) fn send_back(&self, text: &str, to: Option<SocketAddr>) {
        let _ = self.try_send(text, to);
    }

    fn try_send(&self, text: &str, other: Option<SocketAddr>) -> io::Result<()> {
        match self {
            // An ICMP error of an earlier datagram is no failure of this one.
            Self::Datagram(socket, proxy) => {
                let to = other.unwrap_or(*proxy);
                socket
                    .send_to(text.as_bytes(), to)
                    .or_else(|_| socket.send_to(text.as_bytes(), to))
                    .map(drop)
            }
            Self::Stream(stream) => stream.as_ref().write_all(text.as_bytes()),
            Self::Sealed(stream, session) => {
                let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
                session.writer().write_all(text.as_bytes())?;
                flush(&mut session, stream)
            }
        }
    }

    pub(super) fn reader(&self) -> Reader {
        Reader {
            wire: self.clone(),
            framer: Framer::default(),
        }
    }
}

/// Takes messages off a wire.
pub(super) struct Reader {
    wire: Wire,
    framer: Framer,
}

impl Reader {
    /// What has come; nothing after a short while.
    pub(super) fn read(&mut self) -> Vec<String> {
        let mut chunk = [0; 65_536];
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let got = match &self.wire {
            Wire::Datagram(socket, _) => {
                let got = socket.recv(&mut chunk);
                return got.map_or(Vec::new(), |length| vec![text(&chunk[..length])]);
            }
            Wire::Stream(stream) => stream.as_ref().read(&mut chunk),
            Wire::Sealed(stream, session) => unseal(stream, session, &mut chunk),
        };
        match got {
            // Closed: there is nothing to wait for any more.
            Ok(0) => std::thread::sleep(GRAIN),
            Ok(length) => self.framer.push(&chunk[..length]),
            Err(_) => {}
        }
        let frames = std::iter::from_fn(|| self.framer.next_frame().ok().flatten());
        let messages = frames.filter_map(|frame| match frame {
            Frame::Message(bytes) => Some(text(&bytes)),
            _ => None,
        });
        messages.collect()
    }
}

fn connect(from: IpAddr, to: SocketAddr) -> Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(from, 0).into())?;
    socket
        .connect(&to.into())
        .with_context(|| format!("nobody listens at {to}"))?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket.into())
}

/// The handshake, in which the proxy shows a certificate of its address.
fn greet(stream: &TcpStream, seat: &Seat) -> Result<ClientConnection> {
    let trusted = seat.tls.clone().context("a phone that trusts nobody")?;
    let name = ServerName::from(seat.proxy.ip());
    let mut session = ClientConnection::new(trusted, name)?;
    let mut stream = stream;
    while session.is_handshaking() {
        session.complete_io(&mut stream)?;
    }
    Ok(session)
}

/// Reads from the connection outside of the lock, so that others may send meanwhile.
fn unseal(
    stream: &TcpStream,
    session: &Mutex<ClientConnection>,
    into: &mut [u8],
) -> io::Result<usize> {
    let mut stream_bytes = [0; 16_384];
    let mut reading = stream;
    let length = reading.read(&mut stream_bytes)?;
    let mut sealed = &stream_bytes[..length];
    let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
    let mut filled = 0;
    while !sealed.is_empty() {
        session.read_tls(&mut sealed)?;
        session
            .process_new_packets()
            .map_err(|error| io::Error::other(error.to_string()))?;
        filled += plain(&mut session, &mut into[filled..])?;
    }
    flush(&mut session, stream)?;
    match (filled, length) {
        // A part of a record.
        (0, 1..) => Err(io::ErrorKind::WouldBlock.into()),
        (filled, _) => Ok(filled),
    }
}

/// What has been decrypted.
fn plain(session: &mut ClientConnection, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    loop {
        match session.reader().read(&mut into[filled..]) {
            Ok(0) => return Ok(filled),
            Ok(length) => filled += length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(filled),
            Err(error) => return Err(error),
        }
    }
}

fn flush(session: &mut ClientConnection, mut stream: &TcpStream) -> io::Result<()> {
    while session.wants_write() {
        session.write_tls(&mut stream)?;
    }
    Ok(())
}
