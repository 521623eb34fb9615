//! Who a sender is, as far as the network proves it (signalling.md section 4, "same source"):
//! an address may be another phone's tomorrow, and a phone may have another one.

use std::net::{IpAddr, SocketAddr};

use sha2::{Digest as _, Sha256};

use super::{Gateway, bindings::Binding};
use crate::net::{LinkId, ListenerId};

/// What is harder to borrow than an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Proof {
    /// The Ethernet address of a neighbour on the LAN. Who is behind a router has none.
    Mac([u8; 6]),
    /// SHA-256 of the certificate that a TLS client proved to hold.
    Certificate([u8; 32]),
}

impl Binding {
    /// Whether a sender is the phone that registered this: by certificate where either showed
    /// one, by Ethernet address where both are known, else by address; never by the port.
    pub(crate) fn is_from(&self, ip: IpAddr, proof: Option<Proof>) -> bool {
        match (self.proof, proof) {
            (Some(Proof::Certificate(_)), _) | (_, Some(Proof::Certificate(_))) => {
                self.proof == proof
            }
            (Some(_), Some(_)) => self.proof == proof,
            _ => self.source.ip() == ip,
        }
    }
}

impl Gateway {
    /// The Ethernet address of a neighbour on a LAN link, or that it has none any more.
    pub fn neighbour(&mut self, link: LinkId, ip: IpAddr, mac: Option<[u8; 6]>) {
        match mac {
            Some(mac) => self.neighbours.insert((link, ip), mac),
            None => self.neighbours.remove(&(link, ip)),
        };
    }

    /// Who connected proved to hold a certificate (DER); forgotten with the connection.
    pub fn certified(&mut self, listener: ListenerId, peer: SocketAddr, certificate: &[u8]) {
        let sha256 = Sha256::digest(certificate).into();
        self.certificates.insert((listener, peer), sha256);
    }

    pub(super) fn proof(&self, listener: ListenerId, from: SocketAddr) -> Option<Proof> {
        let certificate = self.certificates.get(&(listener, from));
        let mac = || self.neighbours.get(&(self.link(listener), from.ip()));
        certificate
            .map(|sha256| Proof::Certificate(*sha256))
            .or_else(|| mac().map(|mac| Proof::Mac(*mac)))
    }
}
