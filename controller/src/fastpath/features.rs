//! What a driver can do with XDP, by the kernel's "netdev" family (since 6.3).

use super::rtnl::{self, attribute, put};

/// `GENL_ID_CTRL`: where families are asked for.
const CONTROL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const XDP_ACT_BASIC: u64 = 1;
const XDP_ACT_NDO_XMIT: u64 = 4;
/// `genlmsghdr`.
const GENERIC: usize = 4;

/// What a device offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// Programs can run in its driver.
    pub native: bool,
    /// It takes frames that other programs redirect to it. A veth does when its other end has a
    /// program or GRO, some drivers when they carry a program: else such frames are lost without
    /// a counter.
    pub target: bool,
}

/// The features of the device of this index; `None` where the kernel does not tell.
pub(super) fn of(index: u32) -> Option<Features> {
    let socket = rtnl::socket(libc::NETLINK_GENERIC).ok()?;
    let ask = |family, command, attribute: Vec<u8>| {
        let body = [vec![command, 1, 0, 0], attribute].concat();
        rtnl::ask(&socket, family, &body).ok()
    };
    let name = put(CTRL_ATTR_FAMILY_NAME, b"netdev\0");
    let family = ask(CONTROL, CTRL_CMD_GETFAMILY, name)?;
    let family = attribute(family.get(GENERIC..)?, CTRL_ATTR_FAMILY_ID)?;
    let family = u16::from_ne_bytes(*family.first_chunk()?);
    let device = put(NETDEV_A_DEV_IFINDEX, &index.to_ne_bytes());
    let device = ask(family, NETDEV_CMD_DEV_GET, device)?;
    let bits = attribute(device.get(GENERIC..)?, NETDEV_A_DEV_XDP_FEATURES)?;
    let bits = u64::from_ne_bytes(*bits.first_chunk()?);
    Some(Features {
        native: bits & XDP_ACT_BASIC != 0,
        target: bits & XDP_ACT_NDO_XMIT != 0,
    })
}
