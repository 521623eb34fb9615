//! One neighbour, asked of the kernel at this very moment: the published table follows a little
//! later, and who a phone is may turn on it.

use std::{io, net::IpAddr};

use rtnetlink::{
    packet_core::{NLM_F_REQUEST, NetlinkMessage, NetlinkPayload},
    packet_route::{
        AddressFamily, RouteNetlinkMessage,
        neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage},
    },
    sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE},
};

use super::{
    Mac,
    dump::{self, Resolution},
};

/// A socket to ask on.
pub(crate) struct Neighbours {
    socket: Socket,
}

impl Neighbours {
    /// # Errors
    /// When the kernel gives no netlink socket.
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket })
    }

    /// The MAC that the kernel would send to; `None` when it knows none. The kernel answers while
    /// it is asked: nothing is waited for.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub(crate) fn mac_of(&self, ifindex: u32, ip: IpAddr) -> io::Result<Option<Mac>> {
        self.socket.send(&question(ifindex, ip), 0)?;
        let (bytes, _) = self.socket.recv_from_full()?;
        let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&bytes)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewNeighbour(found)) = answer.payload
        else {
            return Ok(None);
        };
        Ok(dump::neighbour(&found).and_then(|found| match found.state {
            Resolution::At(mac) => Some(mac),
            Resolution::Pending | Resolution::Failed => None,
        }))
    }
}

fn question(ifindex: u32, ip: IpAddr) -> Vec<u8> {
    let mut asked = NeighbourMessage::default();
    asked.header.ifindex = ifindex;
    let (family, address) = match ip {
        IpAddr::V4(v4) => (AddressFamily::Inet, NeighbourAddress::Inet(v4)),
        IpAddr::V6(v6) => (AddressFamily::Inet6, NeighbourAddress::Inet6(v6)),
    };
    asked.header.family = family;
    asked.attributes = vec![NeighbourAttribute::Destination(address)];
    let mut message = NetlinkMessage::from(RouteNetlinkMessage::GetNeighbour(asked));
    message.header.flags = NLM_F_REQUEST;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}
