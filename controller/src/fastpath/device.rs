//! What there is to know of a device before and after a program sits on it.

use std::{
    fs, io,
    io::{Read as _, Write as _},
    path::Path,
};

use socket2::{Domain, Protocol, Socket, Type};

use super::{Error, Mode, ethtool};

/// A device, as sysfs shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) index: u32,
    pub(super) mtu: u32,
}

/// The program a device carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Carried {
    pub(super) program: u32,
    pub(super) mode: Mode,
}

impl Device {
    /// The device of this name.
    pub(super) fn find(name: &str) -> Result<Self, Error> {
        let number = |attribute: &str| {
            let path = Path::new("/sys/class/net").join(name).join(attribute);
            fs::read_to_string(path).ok()?.trim().parse::<u32>().ok()
        };
        let missing = || Error::NoInterface(name.to_owned());
        if name.is_empty() || name.contains('/') || name.contains('.') && name.len() < 3 {
            return Err(missing());
        }
        let index = number("ifindex").ok_or_else(missing)?;
        let mtu = number("mtu").ok_or_else(missing)?;
        Ok(Self {
            name: name.to_owned(),
            index,
            mtu,
        })
    }

    /// The driver is veth: the other end matters as much as this one.
    pub(super) fn is_veth(&self) -> bool {
        let path = Path::new("/sys/class/net").join(&self.name);
        // veth has no parent device, and points to another device than itself.
        let link = fs::read_to_string(path.join("iflink")).unwrap_or_default();
        !path.join("device").exists()
            && link.trim().parse() != Ok(self.index)
            && fs::read_to_string(path.join("type")).is_ok_and(|kind| kind.trim() == "1")
            && !path.join("bridge").exists()
            && !path.join("tun_flags").exists()
    }

    /// The program it carries, by rtnetlink.
    pub(super) fn carried(&self) -> io::Result<Option<Carried>> {
        carried(self.index)
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

const RTM_GETLINK: u16 = 18;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
/// `nlmsghdr` and `ifinfomsg`.
const HEADERS: usize = 16 + 16;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;
const XDP_ATTACHED_DRV: u8 = 1;

fn carried(index: u32) -> io::Result<Option<Carried>> {
    let mut socket = Socket::new(
        Domain::from(libc::AF_NETLINK),
        Type::RAW,
        Some(Protocol::from(libc::NETLINK_ROUTE)),
    )?;
    let mut request = [0; HEADERS];
    request[0..4].copy_from_slice(&(HEADERS as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&RTM_GETLINK.to_ne_bytes());
    request[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    request[20..24].copy_from_slice(&index.to_ne_bytes());
    socket.write_all(&request)?;
    let mut answer = vec![0; 32_768];
    let len = socket.read(&mut answer)?;
    let answer = &answer[..len.min(answer.len())];
    if answer.get(4..6) == Some(&NLMSG_ERROR.to_ne_bytes()) {
        return Err(io::ErrorKind::NotFound.into());
    }
    let xdp = answer
        .get(HEADERS..)
        .and_then(|bytes| attribute(bytes, IFLA_XDP));
    Ok(xdp.and_then(|xdp| {
        let program = attribute(xdp, IFLA_XDP_PROG_ID)?.first_chunk().copied()?;
        let native = attribute(xdp, IFLA_XDP_ATTACHED)?.first() == Some(&XDP_ATTACHED_DRV);
        let mode = if native { Mode::Native } else { Mode::Generic };
        Some(Carried {
            program: u32::from_ne_bytes(program),
            mode,
        })
    }))
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
