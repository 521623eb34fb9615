//! The socket error queue: which datagram an ICMP error is about (`IP_RECVERR`, ip(7)).
//!
//! Linux queues the payload of the offending datagram, as far as the ICMP message quotes it,
//! with the address it was sent to. No safe wrapper reads it.
#![expect(unsafe_code, reason = "recvmsg(MSG_ERRQUEUE) has no safe wrapper")]

use std::{
    io,
    mem::{MaybeUninit, size_of},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsRawFd, BorrowedFd},
};

/// An ICMP error that came back for a datagram of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unreachable {
    /// Where the datagram was sent.
    pub to: SocketAddr,
    /// Its payload, as far as it was quoted.
    pub quoted: Vec<u8>,
}

/// Makes the kernel queue ICMP errors on a socket.
///
/// # Errors
/// What setsockopt says.
pub(super) fn enable(socket: BorrowedFd<'_>, v4: bool) -> io::Result<()> {
    let (level, name) = if v4 {
        (libc::IPPROTO_IP, libc::IP_RECVERR)
    } else {
        (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
    };
    let on: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of::<libc::c_int>()).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open for the borrow's lifetime, and `on` is a live c_int of
    // exactly `length` bytes that the kernel only reads.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const on).cast(),
            length,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Takes the oldest error off the queue without waiting; `WouldBlock` when it is empty.
///
/// # Errors
/// What recvmsg says.
pub(super) fn take(socket: BorrowedFd<'_>) -> io::Result<Unreachable> {
    let mut payload = [0_u8; 2048];
    let mut control = [0_u64; 64]; // aligned for cmsghdr
    let mut name = MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let mut iov = libc::iovec {
        iov_base: payload.as_mut_ptr().cast(),
        iov_len: payload.len(),
    };
    // SAFETY: msghdr is plain data for which all zeroes is a valid value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = name.as_mut_ptr().cast();
    message.msg_namelen =
        libc::socklen_t::try_from(size_of::<libc::sockaddr_storage>()).map_err(io::Error::other)?;
    message.msg_iov = &raw mut iov;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of::<[u64; 64]>();
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: every pointer in `message` refers to a live local of the length stated beside it;
    // the kernel writes no further than those lengths.
    let read = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    let length = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: zeroed above and possibly overwritten by the kernel: initialised either way.
    let name = unsafe { name.assume_init() };
    let to = address(&name).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok(Unreachable {
        to,
        quoted: payload[..length.min(payload.len())].to_vec(),
    })
}

/// Reads an IPv4 or IPv6 address out of the storage the kernel filled.
fn address(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match libc::c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that a sockaddr_in was written, which is smaller than
            // and as aligned as the storage.
            let v4 = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddr::new(ip.into(), u16::from_be(v4.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above, for a sockaddr_in6.
            let v6 = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some(SocketAddr::new(ip.into(), u16::from_be(v6.sin6_port)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::{net::UdpSocket, os::fd::AsFd, time::Instant};

    use super::*;

    #[test]
    fn a_refused_datagram_comes_back_with_its_payload() {
        let closed = UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        enable(socket.as_fd(), true).unwrap();
        assert_eq!(
            take(socket.as_fd()).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        socket
            .send_to(b"OPTIONS sip:a SIP/2.0\r\n", closed)
            .unwrap();
        let deadline = Instant::now() + std::time::Duration::from_secs(5);
        let error = loop {
            match take(socket.as_fd()) {
                Ok(error) => break error,
                Err(_) if Instant::now() < deadline => std::thread::yield_now(),
                Err(error) => panic!("no ICMP error within 5 s: {error}"),
            }
        };
        assert_eq!(error.to, closed);
        assert_eq!(error.quoted, b"OPTIONS sip:a SIP/2.0\r\n");
    }
}
