//! No address of one side is seen on the other (EM18): on the cables, in what phones received,
//! and over TLS in what the softswitches wrote down.

use std::borrow::Cow;
use std::net::Ipv4Addr;

use anyhow::{Context as _, Result, ensure};
use keepline_engine::net::Transport;

use crate::lab::Frame;

use super::{Mode, Stage};

/// What nobody on a side may see: as text, and as it stands in IPv4 headers and SIP's bytes.
struct Forbidden {
    texts: &'static [&'static str],
    networks: &'static [[u8; 3]],
    /// An address of these networks that the side knows all the same.
    known: Option<Ipv4Addr>,
}

/// To the phones: the WAN, and what is behind it but for the softswitch that they speak to in
/// transparent mode. To the WAN: the phones.
fn forbidden(mode: Mode) -> Result<[Forbidden; 2]> {
    let known = mode.target().parse()?;
    Ok([
        Forbidden {
            texts: &["10.99.2.", "10.99.10."],
            networks: &[[10, 99, 2], [10, 99, 10]],
            known: Some(known),
        },
        Forbidden {
            texts: &["10.99.1."],
            networks: &[[10, 99, 1]],
            known: None,
        },
    ])
}
/// Fewer frames or messages than so many would be another capture.
const PLAUSIBLE: usize = 200;

impl Stage {
    /// Looks through all that was captured and received so far.
    pub(super) fn leaks(&self) -> Result<()> {
        let all = forbidden(self.mode)?;
        for (side, forbidden) in all.iter().enumerate() {
            let frames = self.wires[side].frames()?;
            ensure!(frames.len() > PLAUSIBLE, "only {} frames", frames.len());
            for frame in &frames {
                forbidden.absent_in(frame, self.over)?;
            }
            let heard = self.heard(side);
            ensure!(heard.len() > PLAUSIBLE / 2, "only {} messages", heard.len());
            for text in &heard {
                forbidden.absent(text)?;
            }
        }
        if self.over == Transport::Tls {
            self.unsealed(&all[1])?;
        }
        Ok(())
    }

    /// What the softswitches received over TLS.
    fn unsealed(&self, forbidden: &Forbidden) -> Result<()> {
        for softswitch in [&self.office.primary, &self.office.backup] {
            let text = softswitch.process().text();
            let received = text.matches("received over TLS").count();
            ensure!(received > PLAUSIBLE / 10, "only {received} messages");
            for line in text.lines() {
                forbidden.absent(line)?;
            }
        }
        Ok(())
    }
}

impl Forbidden {
    /// The `uri` of a phone's credentials is hashed and never altered (signalling.md section 3):
    /// a phone whose registrar is the gateway names the gateway's own address in it.
    fn absent(&self, text: &str) -> Result<()> {
        let credentials = |line: &&str| {
            line.starts_with("Authorization:") || line.starts_with("Proxy-Authorization:")
        };
        for line in text.lines().filter(|line| !credentials(line)) {
            let line = self.without_known(line);
            for needle in self.texts {
                ensure!(!line.contains(needle), "{needle} in: {text}");
            }
        }
        Ok(())
    }

    /// The line without the address that this side knows; a longer one that begins like it stays.
    fn without_known<'a>(&self, line: &'a str) -> Cow<'a, str> {
        let Some(known) = self.known.map(|ip| ip.to_string()) else {
            return Cow::Borrowed(line);
        };
        let mut rest = line;
        let mut kept = String::new();
        while let Some((before, after)) = rest.split_once(&known) {
            kept.push_str(before);
            if after.starts_with(|next: char| next.is_ascii_digit()) {
                kept.push_str(&known);
            }
            rest = after;
        }
        kept.push_str(rest);
        Cow::Owned(kept)
    }

    fn is_known(&self, bytes: &[u8]) -> bool {
        self.known.is_some_and(|ip| bytes.starts_with(&ip.octets()))
    }

    fn absent_in(&self, frame: &Frame, over: Transport) -> Result<()> {
        let (source, target) = frame.ipv4().context("an IP frame without addresses")?;
        for network in self.networks {
            for ip in [source, target] {
                let inside = ip.starts_with(network) && !self.is_known(&ip);
                ensure!(!inside, "{source:?} -> {target:?}");
            }
        }
        // What is encrypted holds any three bytes now and then.
        if over == Transport::Tls && frame.tcp().is_some() {
            return Ok(());
        }
        self.absent(&String::from_utf8_lossy(&frame.bytes))?;
        let sip = |port: u16| port == 5060;
        let payload = match (frame.udp(), frame.tcp()) {
            (Some((from, to, payload)), _) | (_, Some((from, to, payload)))
                if sip(from) || sip(to) =>
            {
                payload
            }
            _ => return Ok(()),
        };
        for network in self.networks {
            let mut at = (0..payload.len()).map(|from| &payload[from..]);
            let found = at.any(|bytes| bytes.starts_with(network) && !self.is_known(bytes));
            ensure!(!found, "{network:?} in {}", payload.escape_ascii());
        }
        Ok(())
    }
}
