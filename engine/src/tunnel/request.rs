//! What is sent: a DHCPREQUEST of a client that has just booted and would like its old address
//! again (INIT-REBOOT, RFC 2131 section 4.3.2). A server that is responsible for the network
//! answers it at once, with ACK or NAK, and nothing is negotiated.

use std::net::Ipv4Addr;

use dhcproto::{
    Encodable, Encoder,
    v4::{DhcpOption, Flags, MIN_PACKET_SIZE, Message, MessageType, OptionCode},
};
use etherparse::PacketBuilder;

use super::identity::Identity;

/// DHCP client and server ports.
pub const CLIENT_PORT: u16 = 68;
/// See [`CLIENT_PORT`].
pub const SERVER_PORT: u16 = 67;

/// The whole Ethernet frame. `health_check_ip` stands in option 50 and nowhere else: `ciaddr` is
/// zero, no server is named (option 54), and the broadcast flag asks for an answer that needs no
/// address here.
///
/// # Panics
/// Never: the message is of fixed shape and fits a frame.
#[must_use]
pub fn frame(identity: &Identity, xid: u32, secs: u16, health_check_ip: Ipv4Addr) -> Vec<u8> {
    let zero = Ipv4Addr::UNSPECIFIED;
    let mut message = Message::new_with_id(xid, zero, zero, zero, zero, &identity.mac);
    message
        .set_secs(secs)
        .set_flags(Flags::default().set_broadcast());
    let options = message.opts_mut();
    options.insert(DhcpOption::MessageType(MessageType::Request));
    options.insert(DhcpOption::RequestedIpAddress(health_check_ip));
    options.insert(DhcpOption::ClientIdentifier(identity.client_id.clone()));
    options.insert(DhcpOption::ParameterRequestList(vec![
        OptionCode::SubnetMask,
    ]));
    let mut payload = Vec::with_capacity(2 * MIN_PACKET_SIZE);
    let encoded = message.encode(&mut Encoder::new(&mut payload));
    encoded.unwrap_or_else(|error| unreachable!("a message of fixed shape: {error}"));
    // Relays and old servers drop what is shorter than BOOTP (RFC 1542 section 2.1).
    if payload.len() < MIN_PACKET_SIZE {
        payload.resize(MIN_PACKET_SIZE, 0);
    }
    let builder = PacketBuilder::ethernet2(identity.mac, [0xff; 6])
        .ipv4([0; 4], [0xff; 4], 64)
        .udp(CLIENT_PORT, SERVER_PORT);
    let mut frame = Vec::with_capacity(builder.size(payload.len()));
    let written = builder.write(&mut frame, &payload);
    written.unwrap_or_else(|error| unreachable!("a small datagram into memory: {error}"));
    frame
}
