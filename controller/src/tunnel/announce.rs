//! After a switch: what tells the network behind a tunnel that a client is reached through it.

use super::traffic::Client;

const ARP: u16 = 0x0806;
const RARP: u16 = 0x8035;

/// A gratuitous ARP request (RFC 5227 section 3) from the client's MAC; for a client whose
/// address is not known a reverse one (RFC 903), by which switches learn all the same.
#[must_use]
pub fn frame(client: &Client) -> [u8; 60] {
    let (kind, operation) = if client.v4.is_some() {
        (ARP, 1)
    } else {
        (RARP, 3)
    };
    let address = client.v4.map_or([0; 4], |v4| v4.octets());
    let target = if client.v4.is_some() {
        [0; 6]
    } else {
        client.mac
    };
    let parts: [&[u8]; 9] = [
        &[0xff; 6],
        &client.mac,
        &kind.to_be_bytes(),
        &[0, 1, 0x08, 0x00, 6, 4, 0, operation],
        &client.mac,
        &address,
        &target,
        &address,
        &[0; 18],
    ];
    let mut frame = [0; 60];
    let bytes = parts.iter().flat_map(|part| part.iter());
    frame
        .iter_mut()
        .zip(bytes)
        .for_each(|(to, from)| *to = *from);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mx8_a_client_is_announced_by_gratuitous_arp_or_reverse_arp() {
        let mac = [2, 0, 0, 0, 0, 7];
        let known = frame(&Client {
            mac,
            v4: Some([10, 9, 0, 7].into()),
        });
        assert_eq!(known[..6], [0xff; 6]);
        assert_eq!(known[6..12], mac);
        assert_eq!(known[12..22], [8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        assert_eq!(known[22..28], mac);
        assert_eq!(known[28..32], [10, 9, 0, 7]);
        assert_eq!(
            known[38..42],
            [10, 9, 0, 7],
            "sender and target are the same"
        );
        let unknown = frame(&Client { mac, v4: None });
        assert_eq!(unknown[12..14], [0x80, 0x35]);
        assert_eq!((&unknown[6..12], unknown[21]), (&mac[..], 3));
        assert_eq!(unknown[32..38], mac);
    }
}
