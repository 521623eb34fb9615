//! Opening a connection.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use tokio::{
    net::{TcpSocket, TcpStream},
    time::timeout,
};

use super::listen;

/// How long it may take until a server counts as unreachable (signalling.md section 1).
const LIMIT: Duration = Duration::from_millis(1200);

/// Connects from our address on an interface.
///
/// # Errors
/// What the system says, or that it took too long.
pub(super) async fn connect(
    interface: &str,
    from: IpAddr,
    to: SocketAddr,
) -> io::Result<TcpStream> {
    let socket = listen::socket(interface, SocketAddr::new(from, 0))?;
    let socket = TcpSocket::from_std_stream(socket.into());
    let Ok(connected) = timeout(LIMIT, socket.connect(to)).await else {
        return Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("no connection within {} ms", LIMIT.as_millis()),
        ));
    };
    let stream = connected?;
    listen::tune(&stream)?;
    Ok(stream)
}
