//! Offloads by the ethtool ioctl: no crate of the tree offers it synchronously.

#![expect(unsafe_code, reason = "one ioctl with a pointer to two structs")]

use std::{io, os::fd::AsRawFd};

const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SFLAGS: u32 = 0x26;
const ETHTOOL_GTXCSUM: u32 = 0x16;
const ETHTOOL_GGRO: u32 = 0x2b;
/// `ETH_FLAG_LRO`.
const LRO: u32 = 1 << 15;
/// `ETH_FLAG_RXVLAN`: the device strips tags before the program sees them.
const RXVLAN: u32 = 1 << 8;

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Whether the device strips VLAN tags on receipt (case X1).
///
/// # Errors
/// When the device has no such flags.
pub(super) fn strips_tags(interface: &str) -> io::Result<bool> {
    Ok(call(interface, ETHTOOL_GFLAGS, 0)? & RXVLAN != 0)
}

/// Whether checksums of what leaves are left to the device (case X6).
///
/// # Errors
/// When the device has no such switch.
pub(super) fn tx_checksum(interface: &str) -> io::Result<bool> {
    Ok(call(interface, ETHTOOL_GTXCSUM, 0)? != 0)
}

/// Whether the network stack merges packets.
///
/// # Errors
/// When the device has no such switch.
pub(super) fn gro(interface: &str) -> io::Result<bool> {
    Ok(call(interface, ETHTOOL_GGRO, 0)? != 0)
}

/// Whether the device merges packets.
///
/// # Errors
/// When the device has no such flags.
pub(super) fn lro(interface: &str) -> io::Result<bool> {
    Ok(call(interface, ETHTOOL_GFLAGS, 0)? & LRO != 0)
}

/// Stops stripping tags.
///
/// # Errors
/// When the device refuses.
pub(super) fn keep_tags(interface: &str) -> io::Result<()> {
    let flags = call(interface, ETHTOOL_GFLAGS, 0)?;
    call(interface, ETHTOOL_SFLAGS, flags & !RXVLAN).map(drop)
}

fn call(interface: &str, command: u32, data: u32) -> io::Result<u32> {
    let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0))?;
    let mut value = Value { command, data };
    // SAFETY: `ifreq` is a struct of bytes, integers and a pointer, of which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request
        .ifr_name
        .iter_mut()
        .zip(interface.bytes().take(libc::IFNAMSIZ - 1))
    {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: both structs live through the call, and these commands read and write a `Value`.
    let result =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if result == 0 {
        Ok(value.data)
    } else {
        Err(io::Error::last_os_error())
    }
}
