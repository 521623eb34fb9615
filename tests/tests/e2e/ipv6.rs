//! Phones that speak IPv6 only, behind a gateway whose softswitches speak IPv4.

use anyhow::Result;
use keepline_engine::net::Transport::{Tcp, Udp};
use keepline_tests::matrix::v6;

#[test]
fn em3_em18_phones_with_ipv6_over_udp_talk_to_ipv4() -> Result<()> {
    v6::play(Udp)
}

#[test]
fn em3_em18_phones_with_ipv6_over_tcp_talk_to_ipv4() -> Result<()> {
    v6::play(Tcp)
}
