//! Phones that speak IPv6 only, behind a gateway whose softswitches speak IPv4, or IPv6 in transparent
//! mode.

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

#[test]
fn em20_em18_ipv6_is_taken_on_the_way_and_hidden_over_udp() -> Result<()> {
    v6::play_transparent(Udp)
}

#[test]
fn em20_em18_ipv6_is_taken_on_the_way_and_hidden_over_tcp() -> Result<()> {
    v6::play_transparent(Tcp)
}
