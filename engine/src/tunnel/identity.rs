//! Who asks: one stable, dedicated DHCP client per tunnel (MX9).
//!
//! It outlives restarts and upgrades, so that a server which answers with a lease holds at most
//! one per tunnel, and it is nobody else's: no client of the segment loses an address to it.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The probing client of one tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// `chaddr`, and the Ethernet source: switches with DHCP snooping compare the two.
    pub mac: [u8; 6],
    /// The client identifier, RFC 2132 section 9.14: type 0, not a hardware address. Readable,
    /// for whoever looks at the server's leases.
    pub client_id: Vec<u8>,
}

impl Identity {
    /// From the machine's id (`/etc/machine-id`, of which only a hash leaves) and the tunnel's
    /// name.
    #[must_use]
    pub fn new(machine_id: &[u8], tunnel: &str) -> Self {
        let hash = Hmac::<Sha256>::new_from_slice(machine_id)
            .unwrap_or_else(|_| unreachable!("HMAC takes a key of any length"))
            .chain_update(b"keepline tunnel probe\0")
            .chain_update(tunnel)
            .finalize()
            .into_bytes();
        let mut mac = [0; 6];
        mac.copy_from_slice(&hash[..6]);
        // Locally administered, and no group (IEEE 802 section 8.2).
        mac[0] = mac[0] & 0xfc | 0x02;
        let tail: String = hash[6..10]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let mut client_id = vec![0];
        // An option holds 255 bytes.
        client_id.extend(format!("keepline-{tail}-{tunnel}").bytes().take(254));
        Self { mac, client_id }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mx9_the_identity_is_stable_dedicated_and_locally_administered() {
        let of = |machine: &[u8], tunnel| Identity::new(machine, tunnel);
        let one = of(b"0123", "hq-a");
        // Written down: another MAC after an upgrade would take a second lease.
        assert_eq!(one, of(b"0123", "hq-a"));
        assert_eq!(one.mac[0] & 0x03, 0x02);
        assert_ne!(one.mac, of(b"0123", "hq-b").mac);
        assert_ne!(one.mac, of(b"0124", "hq-a").mac);
        assert_ne!(one.client_id, of(b"0124", "hq-a").client_id);
        assert_eq!(one.client_id[0], 0);
        assert!(one.client_id.ends_with(b"-hq-a"));
        assert_eq!(of(b"", &"x".repeat(400)).client_id.len(), 255);
    }
}
