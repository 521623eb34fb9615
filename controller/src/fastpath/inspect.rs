//! What `doctor` asks of an interface. Nothing is changed.

use super::{
    Error, Features,
    device::{Device, Peer},
    ethtool,
};

/// An interface as it is. `None` of an offload: the driver has no such switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// Largest packet, in bytes.
    pub mtu: u32,
    /// What the driver can do with XDP; `None` before kernel 6.3.
    pub features: Option<Features>,
    /// It is a veth whose other end is in another network namespace.
    pub peer_elsewhere: bool,
    /// It is a veth.
    pub is_veth: bool,
    /// Id of the XDP program it carries.
    pub carries: Option<u32>,
    /// VLAN tags are stripped before the program sees them.
    pub strips_tags: Option<bool>,
    /// Checksums of what leaves are left to the device.
    pub tx_checksum: Option<bool>,
    /// Packets are merged in the network stack.
    pub gro: Option<bool>,
    /// Packets are merged by the device.
    pub lro: Option<bool>,
}

/// Looks at an interface.
///
/// # Errors
/// [`Error::NoInterface`].
pub fn inspect(name: &str) -> Result<Inspection, Error> {
    let device = Device::find(name)?;
    Ok(Inspection {
        mtu: device.mtu,
        features: device.features(),
        peer_elsewhere: device.peer == Some(Peer::Elsewhere),
        is_veth: device.is_veth,
        carries: device.carried.map(|carried| carried.program),
        strips_tags: ethtool::strips_tags(name).ok(),
        tx_checksum: ethtool::tx_checksum(name).ok(),
        gro: ethtool::gro(name).ok(),
        lro: ethtool::lro(name).ok(),
    })
}
