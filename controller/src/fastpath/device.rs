//! What there is to know of a device before and after a program sits on it, by rtnetlink: sysfs
//! shows the namespace it was mounted in, which need not be ours.

use rustix::net::netdevice;

use super::{
    Error, Mode, ethtool,
    features::{self, Features},
    rtnl::{self, attribute, number},
};

/// A device at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) index: u32,
    pub(super) mtu: u32,
    /// The driver is veth: the other end matters as much as this one.
    pub(super) is_veth: bool,
    /// The other end of a veth.
    pub(super) peer: Option<Peer>,
    /// The program it carries.
    pub(super) carried: Option<Carried>,
    /// Frames that left by it, and by the other end's count arrived.
    pub(super) sent: u64,
}

/// The other end of a veth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    /// In our network namespace, under this index.
    Here(u32),
    /// In another one: out of reach.
    Elsewhere,
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
        let socket = rtnl::socket(libc::NETLINK_ROUTE).map_err(|_| missing())?;
        let index = netdevice::name_to_index(&socket, name).map_err(|_| missing())?;
        let mut request = [0; IFINFO];
        request[4..8].copy_from_slice(&index.to_ne_bytes());
        let answer = rtnl::ask(&socket, RTM_GETLINK, &request).map_err(|_| missing())?;
        let attributes = answer.get(IFINFO..).unwrap_or_default();
        let kind = attribute(attributes, IFLA_LINKINFO).and_then(|info| attribute(info, INFO_KIND));
        let is_veth = kind.is_some_and(|kind| kind.starts_with(b"veth"));
        Ok(Self {
            name: name.to_owned(),
            index,
            mtu: attribute(attributes, IFLA_MTU)
                .and_then(number)
                .unwrap_or(0),
            is_veth,
            peer: is_veth.then(|| peer(attributes)).flatten(),
            carried: attribute(attributes, IFLA_XDP).and_then(carried),
            sent: attribute(attributes, IFLA_STATS64).map_or(0, sent),
        })
    }

    /// What its driver can do with XDP; `None` before kernel 6.3, which does not tell.
    pub(super) fn features(&self) -> Option<Features> {
        features::of(self.index)
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
    netdevice::index_to_name(rtnl::socket(libc::NETLINK_ROUTE).ok()?, index).ok()
}

const RTM_GETLINK: u16 = 18;
/// `ifinfomsg`.
const IFINFO: usize = 16;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_LINKINFO: u16 = 18;
const INFO_KIND: u16 = 1;
const IFLA_STATS64: u16 = 23;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_XDP: u16 = 43;
const XDP_ATTACHED: u16 = 2;
const XDP_PROG_ID: u16 = 4;
const XDP_ATTACHED_DRV: u8 = 1;

/// The other end, by the namespace that the kernel names beside it when it is not ours.
fn peer(attributes: &[u8]) -> Option<Peer> {
    let index = attribute(attributes, IFLA_LINK).and_then(number)?;
    Some(match attribute(attributes, IFLA_LINK_NETNSID) {
        None => Peer::Here(index),
        Some(_) => Peer::Elsewhere,
    })
}

/// `tx_packets` of `rtnl_link_stats64`, its second field.
fn sent(stats: &[u8]) -> u64 {
    let field = stats.get(8..).and_then(<[u8]>::first_chunk);
    field.copied().map_or(0, u64::from_ne_bytes)
}

fn carried(xdp: &[u8]) -> Option<Carried> {
    let program = attribute(xdp, XDP_PROG_ID).and_then(number)?;
    let native = attribute(xdp, XDP_ATTACHED)?.first() == Some(&XDP_ATTACHED_DRV);
    Some(Carried {
        program,
        mode: if native { Mode::Native } else { Mode::Generic },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
