//! Opening a connection, and making sure whom it is with.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    net::{TcpSocket, TcpStream},
    time::timeout,
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{self, pki_types::ServerName},
};

use super::listen;

/// How long it may take until a server counts as unreachable (signalling.md section 1).
const LIMIT: Duration = Duration::from_millis(1200);

/// From where, and how, a connection is opened.
pub(super) struct Way {
    /// What it leaves by, and hears by.
    pub(super) path: listen::Path,
    /// Our address there, and port 0; or a softswitch's, which we speak for.
    pub(super) from: SocketAddr,
    /// It is a softswitch's.
    pub(super) takes: bool,
    /// `None` for plain TCP; an error where TLS cannot be spoken.
    pub(super) secure: Option<Result<Secure, String>>,
}

/// How the other end proves who it is.
pub(super) struct Secure {
    pub(super) connector: TlsConnector,
    pub(super) name: ServerName<'static>,
}

/// Why there is no connection.
pub(super) struct Failed {
    pub(super) why: String,
    /// Somebody was reached who is not who he must be.
    pub(super) distrusted: bool,
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        let inner = error.get_ref();
        Self {
            distrusted: inner.is_some_and(|inner| inner.is::<rustls::Error>()),
            why: error.to_string(),
        }
    }
}

/// Connects from our address on an interface.
///
/// # Errors
/// What the system says, or that it took too long.
pub(super) async fn connect(way: &Way, to: SocketAddr) -> Result<TcpStream, Failed> {
    let socket = listen::socket(&way.path, way.from, way.takes)?;
    let socket = TcpSocket::from_std_stream(socket.into());
    let stream = within(socket.connect(to)).await?;
    listen::tune(&stream)?;
    Ok(stream)
}

/// Speaks TLS over a connection.
///
/// # Errors
/// When the other end is not who it must be, cannot speak it, or takes too long.
pub(super) async fn secure(
    stream: TcpStream,
    with: Result<Secure, String>,
) -> Result<TlsStream<TcpStream>, Failed> {
    let Secure { connector, name } = with.map_err(|why| Failed {
        why,
        distrusted: false,
    })?;
    Ok(within(connector.connect(name, stream)).await?)
}

async fn within<T>(connecting: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(LIMIT, connecting).await.unwrap_or_else(|_| {
        let why = format!("no connection within {} ms", LIMIT.as_millis());
        Err(io::Error::new(io::ErrorKind::TimedOut, why))
    })
}
