//! Every mode over every transport: what phones do, in one table. Each test is a column.

use anyhow::Result;
use keepline_engine::net::Transport::{Tcp, Tls, Udp};
use keepline_tests::matrix::{Mode, play};

#[test]
fn em3_em18_normal_over_udp() -> Result<()> {
    play(Udp, Mode::Normal)
}

#[test]
fn em3_em18_normal_over_tcp() -> Result<()> {
    play(Tcp, Mode::Normal)
}

#[test]
fn em3_em18_normal_over_tls() -> Result<()> {
    play(Tls, Mode::Normal)
}

#[test]
fn em3_em18_em19_outbound_proxy_over_udp() -> Result<()> {
    play(Udp, Mode::OutboundProxy)
}

#[test]
fn em3_em18_em19_outbound_proxy_over_tcp() -> Result<()> {
    play(Tcp, Mode::OutboundProxy)
}

#[test]
fn em3_em18_em19_outbound_proxy_over_tls() -> Result<()> {
    play(Tls, Mode::OutboundProxy)
}

#[test]
fn em3_em18_em20_transparent_over_udp() -> Result<()> {
    play(Udp, Mode::Transparent)
}

#[test]
fn em3_em18_em20_transparent_over_tcp() -> Result<()> {
    play(Tcp, Mode::Transparent)
}

/// Nothing is hidden and no media anchored: rows about either say nothing of this cell.
#[test]
fn em3_em20_transparent_without_hiding_over_udp() -> Result<()> {
    play(Udp, Mode::Through)
}

/// TCP is taken and hidden whatever `hide_topology` says (signalling.md section 12).
#[test]
fn em3_em18_em20_transparent_without_hiding_over_tcp() -> Result<()> {
    play(Tcp, Mode::Through)
}
