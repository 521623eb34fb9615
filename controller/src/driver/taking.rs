//! Sockets that take what is addressed to others, and answer in their name (transparent mode):
//! bound to all addresses with `IP_TRANSPARENT`, told the destination by `IP_PKTINFO` (ip(7)).
#![expect(unsafe_code, reason = "IPV6_TRANSPARENT has no safe wrapper")]

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::size_of,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsRawFd as _, BorrowedFd},
};

use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn, SockaddrIn6, SockaddrStorage,
    recvmsg, sendmsg, setsockopt, sockopt,
};

/// Lets a socket be bound to, and speak from, an address that is not ours; before it is bound.
///
/// # Errors
/// What setsockopt says: it needs `CAP_NET_ADMIN`.
pub(super) fn allow(socket: &socket2::Socket, v4: bool) -> io::Result<()> {
    if v4 {
        return socket.set_ip_transparent_v4(true);
    }
    let on: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of::<libc::c_int>()).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open for the borrow's lifetime, and `on` is a live c_int of
    // exactly `length` bytes that the kernel only reads.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IPV6,
            libc::IPV6_TRANSPARENT,
            (&raw const on).cast(),
            length,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes a datagram socket tell where what it receives was sent to.
///
/// # Errors
/// What setsockopt says.
pub(super) fn tell_destination(socket: &socket2::Socket, v4: bool) -> io::Result<()> {
    match v4 {
        true => setsockopt(socket, sockopt::Ipv4PacketInfo, &true)?,
        false => setsockopt(socket, sockopt::Ipv6RecvPacketInfo, &true)?,
    }
    Ok(())
}

/// All addresses of a family.
#[must_use]
pub(super) fn any(at: SocketAddr) -> SocketAddr {
    let ip = match at {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    SocketAddr::new(ip, at.port())
}

/// Receives a datagram: its length, who sent it, and to which address.
///
/// # Errors
/// What recvmsg says.
pub(super) fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<(usize, SocketAddr, IpAddr)> {
    let mut space = nix::cmsg_space!(libc::in6_pktinfo);
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_DONTWAIT;
    let got = recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    let unknown = || io::Error::from(io::ErrorKind::InvalidData);
    let from = got.address.as_ref().and_then(address).ok_or_else(unknown)?;
    let mut told = got.cmsgs()?;
    let to = told.find_map(|message| match message {
        ControlMessageOwned::Ipv4PacketInfo(info) => {
            let bits = u32::from_be(info.ipi_addr.s_addr);
            Some(IpAddr::V4(Ipv4Addr::from_bits(bits)))
        }
        ControlMessageOwned::Ipv6PacketInfo(info) => {
            Some(IpAddr::V6(Ipv6Addr::from(info.ipi6_addr.s6_addr)))
        }
        _ => None,
    });
    Ok((got.bytes, from, to.ok_or_else(unknown)?))
}

/// Sends a datagram from an address.
///
/// # Errors
/// What sendmsg says.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    source: IpAddr,
    to: SocketAddr,
    bytes: &[u8],
) -> io::Result<()> {
    let parts = [IoSlice::new(bytes)];
    let (fd, flags) = (socket.as_raw_fd(), MsgFlags::MSG_DONTWAIT);
    match (source, to) {
        (IpAddr::V4(source), SocketAddr::V4(to)) => {
            let info = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr {
                    s_addr: source.to_bits().to_be(),
                },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            let told = [ControlMessage::Ipv4PacketInfo(&info)];
            sendmsg(fd, &parts, &told, flags, Some(&SockaddrIn::from(to)))?;
        }
        (IpAddr::V6(source), SocketAddr::V6(to)) => {
            let info = libc::in6_pktinfo {
                ipi6_addr: libc::in6_addr {
                    s6_addr: source.octets(),
                },
                ipi6_ifindex: 0,
            };
            let told = [ControlMessage::Ipv6PacketInfo(&info)];
            sendmsg(fd, &parts, &told, flags, Some(&SockaddrIn6::from(to)))?;
        }
        _ => return Err(io::ErrorKind::AddrNotAvailable.into()),
    }
    Ok(())
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = storage.as_sockaddr_in() {
        return Some(SocketAddr::new(v4.ip().into(), v4.port()));
    }
    let v6 = storage.as_sockaddr_in6()?;
    Some(SocketAddr::new(v6.ip().into(), v6.port()))
}

#[cfg(test)]
mod tests {
    use std::{net::UdpSocket, os::fd::AsFd as _};

    use socket2::{Domain, Socket, Type};

    use super::*;

    /// A socket on all addresses, whose port the system chose.
    fn socket(text: &str) -> Socket {
        let at: SocketAddr = text.parse().unwrap();
        let socket = Socket::new(Domain::for_address(at), Type::DGRAM, None).unwrap();
        tell_destination(&socket, at.is_ipv4()).unwrap();
        socket.bind(&any(at).into()).unwrap();
        socket
    }

    #[test]
    fn em20_a_datagram_is_answered_from_where_it_was_sent_to() {
        for addressed in ["127.0.0.2:0", "127.0.0.3:0", "[::1]:0"] {
            let socket = socket(addressed);
            let port = socket.local_addr().unwrap().as_socket().unwrap().port();
            let to = SocketAddr::new(addressed.parse::<SocketAddr>().unwrap().ip(), port);
            let phone = UdpSocket::bind(if to.is_ipv4() {
                "127.0.0.1:0"
            } else {
                "[::1]:0"
            });
            let phone = phone.unwrap();
            phone.send_to(b"REGISTER", to).unwrap();
            // The loopback delivers before send_to returns.
            let mut buffer = [0; 64];
            let (length, from, told) = receive(socket.as_fd(), &mut buffer).unwrap();
            assert_eq!((&buffer[..length], told), (&b"REGISTER"[..], to.ip()));
            assert_eq!(from, phone.local_addr().unwrap());
            send(socket.as_fd(), told, from, b"200").unwrap();
            let (length, answerer) = phone.recv_from(&mut buffer).unwrap();
            assert_eq!((&buffer[..length], answerer), (&b"200"[..], to));
        }
    }

    #[test]
    fn em20_speaking_for_others_takes_a_capability_and_nothing_else() {
        for (domain, v4) in [(Domain::IPV4, true), (Domain::IPV6, false)] {
            let socket = Socket::new(domain, Type::DGRAM, None).unwrap();
            let softswitch: SocketAddr = match v4 {
                true => "192.0.2.10:0".parse().unwrap(),
                false => "[2001:db8::10]:0".parse().unwrap(),
            };
            match allow(&socket, v4) {
                Ok(()) => socket.bind(&softswitch.into()).unwrap(),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
            }
        }
    }
}
