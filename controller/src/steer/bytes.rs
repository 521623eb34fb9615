//! Addresses to map bytes and back.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use keepline_common::record::{Address, mapped};

/// An address as the maps hold it.
pub(super) fn address(ip: IpAddr) -> Address {
    match ip {
        IpAddr::V4(v4) => mapped(v4.octets()),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// An address from a map.
pub(super) fn ip(address: Address) -> IpAddr {
    Ipv6Addr::from(address).to_canonical()
}

/// An address and port from a map.
pub(super) fn socket(address: Address, port: [u8; 2]) -> SocketAddr {
    SocketAddr::new(ip(address), u16::from_be_bytes(port))
}
