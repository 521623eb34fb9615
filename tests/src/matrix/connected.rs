//! Calls whose streams are described in the test's own words.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};

use crate::lab::dialog::Dialog;
use crate::lab::peer::{LIMIT, Peer, SDP};

use super::Stage;
use super::scene::bye;
use super::streams::{Described, Line, described};

/// Two phones whose first stream is at `at`, in a call; how each sees the other's streams.
pub(super) struct Connected<'a> {
    pub(super) peers: [&'a Peer; 2],
    pub(super) dialogs: [Dialog; 2],
    pub(super) told: [Vec<Described>; 2],
}

impl Connected<'_> {
    /// The way of one stream: its ports, as the phones described them.
    pub(super) fn line<'s>(
        &self,
        stage: &'s Stage,
        ports: [u16; 2],
        index: usize,
    ) -> Result<Line<'s>> {
        let told = |side: usize| self.told[side].get(index).map(|of| of.rtp);
        self.way(stage, ports, [told(0), told(1)])
    }

    pub(super) fn rtcp<'s>(
        &self,
        stage: &'s Stage,
        ports: [u16; 2],
        index: usize,
    ) -> Result<Line<'s>> {
        let told = |side: usize| self.told[side].get(index).map(|of| of.rtcp);
        self.way(stage, ports, [told(0), told(1)])
    }

    fn way<'s>(
        &self,
        stage: &'s Stage,
        ports: [u16; 2],
        told: [Option<SocketAddr>; 2],
    ) -> Result<Line<'s>> {
        let end = |side: usize| {
            let told = told[side].context("no such stream")?;
            anyhow::Ok((self.peers[side], ports[side], told))
        };
        Line::open(stage, [end(0)?, end(1)?])
    }

    /// A re-INVITE by the phone on this side.
    pub(super) fn again(&mut self, side: usize, offer: &str, answer: &str) -> Result<()> {
        let other = 1 - side;
        let (from, to) = (self.peers[side], self.peers[other]);
        let ask = from.within(&mut self.dialogs[side], "INVITE", "", Some((SDP, offer)));
        let invite = to.expect("INVITE", Some(&self.dialogs[other].call_id))?;
        to.reply(&invite, "200 OK", "", Some((SDP, answer)));
        let ok = ask.sees(200, LIMIT)?;
        from.ack(&self.dialogs[side]);
        to.expect("ACK", Some(&self.dialogs[other].call_id))?;
        self.told[side] = described(&ok)?;
        self.told[other] = described(&invite)?;
        Ok(())
    }

    pub(super) fn end(mut self) -> Result<()> {
        let [from, to] = self.peers;
        let [near, away] = &mut self.dialogs;
        bye(from, near, to, away)
    }
}

/// A call with this offer and this answer.
pub(super) fn connect<'a>(
    from: &'a Peer,
    to: &'a Peer,
    bodies: [&str; 2],
) -> Result<Connected<'a>> {
    let offer = Some((SDP, bodies[0]));
    let ask = from.begin("INVITE", &from.uri_of(to.user()), "", offer);
    let invite = to.expect("INVITE", None)?;
    to.reply(&invite, "200 OK", "", Some((SDP, bodies[1])));
    let ok = ask.sees(200, LIMIT)?;
    let near = ask.answered(&ok)?;
    from.ack(&near);
    let away = to.side_of(&invite)?;
    to.expect("ACK", Some(&away.call_id))?;
    Ok(Connected {
        peers: [from, to],
        dialogs: [near, away],
        told: [described(&ok)?, described(&invite)?],
    })
}

pub(super) fn says(described: &Described, line: &str) -> Result<()> {
    let found = described.text.lines().any(|one| one == line);
    ensure!(found, "no {line} in {}", described.text);
    Ok(())
}
