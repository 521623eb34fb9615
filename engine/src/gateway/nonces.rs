//! Which server issued which nonce: a request with credentials goes back there, and a foreign
//! nonce is called stale rather than wrong (signalling.md section 3, EM23).

use std::collections::{HashMap, VecDeque};

use crate::net::ServerId;

/// How many nonces are remembered; the oldest is forgotten first. A forgotten one costs its
/// phone one more challenge.
const MAX_NONCES: usize = 65_536;
/// Nonces longer than this are not remembered.
const MAX_LENGTH: usize = 256;

/// The issuers of recent nonces.
#[derive(Debug, Default)]
pub(super) struct Nonces {
    issuer: HashMap<Vec<u8>, ServerId>,
    order: VecDeque<Vec<u8>>,
}

impl Nonces {
    pub(super) fn issued(&mut self, nonce: &[u8], by: ServerId) {
        if nonce.len() > MAX_LENGTH || self.issuer.insert(nonce.to_vec(), by).is_some() {
            return;
        }
        self.order.push_back(nonce.to_vec());
        if self.order.len() > MAX_NONCES
            && let Some(oldest) = self.order.pop_front()
        {
            self.issuer.remove(&oldest);
        }
    }

    pub(super) fn issuer(&self, nonce: &[u8]) -> Option<ServerId> {
        self.issuer.get(nonce).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::GroupId;

    #[test]
    fn remembers_a_bounded_number() {
        let server = |index| ServerId {
            group: GroupId(0),
            index,
        };
        let mut nonces = Nonces::default();
        nonces.issued(b"first", server(1));
        for n in 0..MAX_NONCES {
            nonces.issued(&n.to_be_bytes(), server(2));
        }
        assert_eq!(nonces.issuer(b"first"), None);
        assert_eq!(
            nonces.issuer(&(MAX_NONCES - 1).to_be_bytes()),
            Some(server(2))
        );
        assert_eq!(nonces.order.len(), MAX_NONCES);
        nonces.issued(&[0; MAX_LENGTH + 1], server(1));
        assert_eq!(nonces.issuer(&[0; MAX_LENGTH + 1]), None);
    }
}
