//! From an SDP body and the message that brought it to what is known of a party.

use std::net::{IpAddr, SocketAddr};

use super::{Learn, Refused, Signalled, source::Target};
use crate::{
    net::Side,
    sdp::{Direction, Host, Stream, is_private},
};

/// One stream of a party.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Remote {
    pub(super) rtp: Target,
    pub(super) rtcp: Target,
    pub(super) mux: bool,
    pub(super) held: bool,
}

/// What a body is read with.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) signalled: Signalled,
    pub(super) learn: Learn,
    pub(super) side: Side,
    /// Our address on the party's link.
    pub(super) ours: IpAddr,
    /// Is it an address of ours at all, and if so, is this port one of a call?
    pub(super) is_ours: &'a dyn Fn(IpAddr) -> bool,
    pub(super) is_media: &'a dyn Fn(SocketAddr) -> bool,
}

impl Reader<'_> {
    /// `None` for a stream that is not in use or cannot be anchored.
    pub(super) fn remote(&self, stream: &Stream) -> Result<Option<Remote>, Refused> {
        let Some(host) = stream.host.filter(|_| stream.port != 0 && stream.over_udp) else {
            return Ok(None);
        };
        let rtcp_port = stream
            .rtcp
            .map_or(stream.port.checked_add(1), |(port, _)| Some(port));
        let rtcp_host = stream.rtcp.and_then(|(_, ip)| ip).map_or(host, Host::Ip);
        Ok(Some(Remote {
            rtp: self.target(host, Some(stream.port))?,
            rtcp: self.target(rtcp_host, rtcp_port.filter(|&port| port != 0))?,
            mux: stream.mux,
            held: host == Host::Hold || stream.direction != Direction::SendRecv,
        }))
    }

    fn target(&self, host: Host, port: Option<u16>) -> Result<Target, Refused> {
        let from = self.signalled.from.to_canonical();
        let unknown = Target {
            declared: None,
            reachable: false,
            certain: false,
            hold: host == Host::Hold,
            eligible: [Some(from), None],
        };
        let (Host::Ip(ip), Some(port)) = (host, port) else {
            return Ok(unknown);
        };
        let declared = SocketAddr::new(ip, port);
        self.check(declared)?;
        let agrees = self.side == Side::Lan && ip == from && !self.signalled.behind_nat;
        // Private as seen from here: an address of a network we are not in.
        let foreign_private = is_private(ip) && !is_private(self.ours);
        let eligible = if foreign_private || self.signalled.behind_nat {
            [Some(from), None]
        } else if is_private(ip) {
            // A media server beside its softswitch, or a NAT within our own network.
            [Some(ip), Some(from)]
        } else {
            [Some(ip), None]
        };
        Ok(Target {
            declared: Some(declared),
            reachable: !foreign_private,
            certain: agrees || self.learn == Learn::Never,
            hold: false,
            eligible,
        })
    }

    /// Media never goes where it would loop or leave the network's rules.
    fn check(&self, target: SocketAddr) -> Result<(), Refused> {
        let ip = target.ip();
        let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast() || v4.octets()[0] == 0);
        let barred = ip.is_loopback() || ip.is_multicast() || ip.is_unspecified() || broadcast;
        let stray = (self.is_ours)(ip) && !(self.is_media)(target);
        if barred || stray {
            Err(Refused::Target(ip))
        } else {
            Ok(())
        }
    }
}
