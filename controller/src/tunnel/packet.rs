//! A packet socket that hears what arrives for DHCP clients on one device, and sends frames.
//!
//! It takes every protocol and filters, rather than asking for IPv4 alone: the kernel shows
//! frames to such sockets before TC redirects them into a segment, and to the others after.
//! The filter is set while the socket is deaf (protocol 0); bound to the device it hears from
//! then on, and nothing slips in between.
#![expect(
    unsafe_code,
    reason = "socket2 has no constructor for sockaddr_ll: two lines fill it"
)]

use std::{
    ffi::CString,
    io::{self, Read as _},
    mem::size_of,
    os::fd::AsFd as _,
};

use socket2::{Domain, SockAddr, SockAddrStorage, SockFilter, Socket, Type};
use tokio::io::{Interest, unix::AsyncFd};

/// The largest frame read: a DHCP answer of jumbo size.
const FRAME: usize = 9_216;

/// `ld`, `ldx`, `jmp`, `ret` of classic BPF (linux/bpf_common.h).
const LD_BYTE: u16 = 0x30;
const LD_HALF: u16 = 0x28;
const LD_HALF_AT_X: u16 = 0x48;
const LDX_IP_HEADER: u16 = 0xb1;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_SET: u16 = 0x45;
const RETURN: u16 = 0x06;
/// Where the kernel's own facts about a packet lie: `SKF_AD_OFF + SKF_AD_PKTTYPE`.
const PACKET_TYPE: u32 = 0xffff_f004;
/// `PACKET_OUTGOING`: what we sent ourselves.
const OUTGOING: u32 = 4;

/// Arriving, IPv4, UDP, no later fragment, to port 68. What fails jumps to the refusal at the
/// end; a load past the end of the frame refuses by itself.
fn to_dhcp_clients() -> [SockFilter; 13] {
    let line = |code, yes, no, k| SockFilter::new(code, yes, no, k);
    [
        line(LD_BYTE, 0, 0, PACKET_TYPE),
        line(JUMP_EQUAL, 10, 0, OUTGOING),
        line(LD_HALF, 0, 0, 12),
        line(JUMP_EQUAL, 0, 8, 0x0800),
        line(LD_BYTE, 0, 0, 23),
        line(JUMP_EQUAL, 0, 6, 17),
        line(LD_HALF, 0, 0, 20),
        line(JUMP_SET, 4, 0, 0x1fff),
        line(LDX_IP_HEADER, 0, 0, 14),
        line(LD_HALF_AT_X, 0, 0, 16),
        line(JUMP_EQUAL, 0, 1, 68),
        line(RETURN, 0, 0, u32::MAX),
        line(RETURN, 0, 0, 0),
    ]
}

/// The socket.
#[derive(Debug)]
pub struct PacketSocket {
    socket: AsyncFd<Socket>,
}

impl PacketSocket {
    /// Opens it on a device. Needs CAP_NET_RAW, and a tokio runtime.
    ///
    /// # Errors
    /// When there is no such device, it has no Ethernet header, or the kernel refuses.
    pub fn open(interface: &str) -> io::Result<Self> {
        ethernet(interface)?;
        let index = index_of(interface)?;
        let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
        socket.attach_filter(&to_dhcp_clients())?;
        socket.bind(&address(index))?;
        socket.set_nonblocking(true)?;
        // SAFETY: the descriptor is the socket's own, which moves into the AsyncFd and is neither
        // taken out nor replaced: it stays open and the same until the AsyncFd is dropped.
        let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?;
        Ok(Self { socket })
    }

    /// Sends one Ethernet frame. A full queue loses it, as the network may.
    ///
    /// # Errors
    /// When the device is down or gone.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.socket.get_ref().send(frame).map(drop)
    }

    /// Waits for the next frame.
    ///
    /// # Errors
    /// When the device went down or away.
    pub async fn receive(&self) -> io::Result<Vec<u8>> {
        loop {
            let mut ready = self.socket.readable().await?;
            let read = ready.try_io(|socket| {
                let mut buffer = vec![0; FRAME];
                let length = socket.get_ref().read(&mut buffer)?;
                buffer.truncate(length);
                Ok(buffer)
            });
            match read {
                Ok(frame) => return frame,
                Err(_would_block) => {}
            }
        }
    }
}

/// `ARPHRD_ETHER`: the probe's frames have an Ethernet header (a layer-3 tunnel has none).
fn ethernet(interface: &str) -> io::Result<()> {
    let kind = std::fs::read_to_string(format!("/sys/class/net/{interface}/type"))?;
    if kind.trim() == "1" {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "it carries no Ethernet frames",
    ))
}

fn index_of(interface: &str) -> io::Result<u32> {
    let any = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    let name = CString::new(interface).map_err(io::Error::other)?;
    let name = name.to_str().map_err(io::Error::other)?;
    rustix::net::netdevice::name_to_index(any.as_fd(), name).map_err(io::Error::from)
}

/// All protocols on one device.
fn address(index: u32) -> SockAddr {
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: sockaddr_ll is one of the address types that the storage is made for: smaller than
    // it, not stricter aligned, and zero is a value of each of its integers.
    let place = unsafe { storage.view_as::<libc::sockaddr_ll>() };
    place.sll_family = u16::try_from(libc::AF_PACKET).unwrap_or_default();
    place.sll_protocol = u16::try_from(libc::ETH_P_ALL).unwrap_or_default().to_be();
    place.sll_ifindex = i32::try_from(index).unwrap_or_default();
    let length = libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).unwrap_or_default();
    // SAFETY: the storage holds a sockaddr_ll, whose family was set above, of this length.
    unsafe { SockAddr::new(storage, length) }
}
