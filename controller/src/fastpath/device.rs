//! What there is to know of a device before and after a program sits on it, by rtnetlink: sysfs
//! shows the namespace it was mounted in, which need not be ours.

use std::{
    io,
    io::{Read as _, Write as _},
};

use rustix::net::netdevice;
use socket2::{Domain, Protocol, Socket, Type};

use super::{Error, Mode, ethtool};

/// A device at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) index: u32,
    pub(super) mtu: u32,
    /// The driver is veth: the other end matters as much as this one.
    pub(super) is_veth: bool,
    /// The program it carries.
    pub(super) carried: Option<Carried>,
}

/// The program a device carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Carried {
    pub(super) program: u32,
    pub(super) mode: Mode,
}

impl Device {
    /// The device of this name, as it is now.
    pub(super) fn find(name: &str) -> Result<Self, Error> {
        let missing = || Error::NoInterface(name.to_owned());
        let socket = netlink().map_err(|_| missing())?;
        let index = netdevice::name_to_index(&socket, name).map_err(|_| missing())?;
        let answer = ask(socket, index).map_err(|_| missing())?;
        let attributes = answer.get(HEADERS..).unwrap_or_default();
        let kind = attribute(attributes, IFLA_LINKINFO).and_then(|info| attribute(info, INFO_KIND));
        Ok(Self {
            name: name.to_owned(),
            index,
            mtu: attribute(attributes, IFLA_MTU)
                .and_then(number)
                .unwrap_or(0),
            is_veth: kind.is_some_and(|kind| kind.starts_with(b"veth")),
            carried: attribute(attributes, IFLA_XDP).and_then(carried),
        })
    }

    /// Keeps VLAN tags in the frame, where the program reads them. `Err` says why it could not.
    pub(super) fn keep_tags(&self) -> Result<(), String> {
        // No such flag, or already off.
        if !ethtool::strips_tags(&self.name).unwrap_or(false) {
            return Ok(());
        }
        let failed = |why: String| format!("rx-vlan-offload stays on ({why}): no VLANs here");
        ethtool::keep_tags(&self.name).map_err(|error| failed(error.to_string()))?;
        match ethtool::strips_tags(&self.name) {
            Ok(false) => Ok(()),
            Ok(true) => Err(failed("the driver ignores it".into())),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}

/// The name of the device of this index, if there is one.
pub(super) fn name_of(index: u32) -> Option<String> {
    netdevice::index_to_name(netlink().ok()?, index).ok()
}

const RTM_GETLINK: u16 = 18;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
/// `nlmsghdr` and `ifinfomsg`.
const HEADERS: usize = 16 + 16;
const IFLA_MTU: u16 = 4;
const IFLA_LINKINFO: u16 = 18;
const INFO_KIND: u16 = 1;
const IFLA_XDP: u16 = 43;
const XDP_ATTACHED: u16 = 2;
const XDP_PROG_ID: u16 = 4;
const XDP_ATTACHED_DRV: u8 = 1;

fn netlink() -> io::Result<Socket> {
    let protocol = Some(Protocol::from(libc::NETLINK_ROUTE));
    Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, protocol)
}

fn ask(mut socket: Socket, index: u32) -> io::Result<Vec<u8>> {
    let mut request = [0; HEADERS];
    request[0..4].copy_from_slice(&(HEADERS as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&RTM_GETLINK.to_ne_bytes());
    request[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    request[20..24].copy_from_slice(&index.to_ne_bytes());
    socket.write_all(&request)?;
    let mut answer = vec![0; 32_768];
    let len = socket.read(&mut answer)?;
    answer.truncate(len);
    if answer.get(4..6) == Some(&NLMSG_ERROR.to_ne_bytes()) {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(answer)
}

fn carried(xdp: &[u8]) -> Option<Carried> {
    let program = attribute(xdp, XDP_PROG_ID).and_then(number)?;
    let native = attribute(xdp, XDP_ATTACHED)?.first() == Some(&XDP_ATTACHED_DRV);
    Some(Carried {
        program,
        mode: if native { Mode::Native } else { Mode::Generic },
    })
}

fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().copied().map(u32::from_ne_bytes)
}

/// The payload of the attribute `kind` in a list of them.
fn attribute(mut bytes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let [l0, l1, k0, k1] = *bytes.first_chunk()?;
        let len = usize::from(u16::from_ne_bytes([l0, l1]));
        let payload = bytes.get(4..len)?;
        // The two high bits are flags.
        if u16::from_ne_bytes([k0, k1]) & 0x3fff == kind {
            return Some(payload);
        }
        bytes = bytes.get(len.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_and_torn_ones_are_not() {
        let list = [5, 0, 1, 0, 9, 0, 0, 0, 8, 0, 43, 0, 1, 2, 3, 4];
        assert_eq!(attribute(&list, 43), Some(&[1, 2, 3, 4][..]));
        assert_eq!(attribute(&list, 1), Some(&[9][..]));
        assert_eq!(attribute(&list, 7), None);
        assert_eq!(attribute(&list[..14], 43), None);
        assert_eq!(
            attribute(&[0, 0, 1, 0], 43),
            None,
            "a length of zero does not loop"
        );
    }

    #[test]
    fn names_that_are_no_names_are_no_interfaces() {
        for name in ["", "..", "../lo", "no-such-dev"] {
            assert!(
                matches!(Device::find(name), Err(Error::NoInterface(_))),
                "{name}"
            );
        }
    }
}
