//! No address of one side is seen on the other (EM18): on the cables, in what phones received,
//! and over TLS in what the softswitches wrote down.

use anyhow::{Context as _, Result, ensure};
use keepline_engine::net::Transport;

use crate::lab::Frame;

use super::Stage;

/// What nobody on a side may see: as text, and as it stands in IPv4 headers and SIP's bytes.
struct Forbidden {
    texts: &'static [&'static str],
    networks: &'static [[u8; 3]],
}

/// To the phones: the WAN, and what is behind it. To the WAN: the phones.
const FORBIDDEN: [Forbidden; 2] = [
    Forbidden {
        texts: &["10.99.2.", "10.99.10."],
        networks: &[[10, 99, 2], [10, 99, 10]],
    },
    Forbidden {
        texts: &["10.99.1."],
        networks: &[[10, 99, 1]],
    },
];
/// Fewer frames or messages than so many would be another capture.
const PLAUSIBLE: usize = 200;

impl Stage {
    /// Looks through all that was captured and received so far.
    pub(super) fn leaks(&self) -> Result<()> {
        for (side, forbidden) in FORBIDDEN.iter().enumerate() {
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
            self.unsealed()?;
        }
        Ok(())
    }

    /// What the softswitches received over TLS.
    fn unsealed(&self) -> Result<()> {
        for softswitch in [&self.office.primary, &self.office.backup] {
            let text = softswitch.process().text();
            let received = text.matches("received over TLS").count();
            ensure!(received > PLAUSIBLE / 10, "only {received} messages");
            for line in text.lines() {
                FORBIDDEN[1].absent(line)?;
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
            for needle in self.texts {
                ensure!(!line.contains(needle), "{needle} in: {text}");
            }
        }
        Ok(())
    }

    fn absent_in(&self, frame: &Frame, over: Transport) -> Result<()> {
        let (source, target) = frame.ipv4().context("an IP frame without addresses")?;
        for network in self.networks {
            let inside = source.starts_with(network) || target.starts_with(network);
            ensure!(!inside, "{source:?} -> {target:?}");
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
            let found = payload.windows(3).any(|bytes| bytes == network);
            ensure!(!found, "{network:?} in {}", payload.escape_ascii());
        }
        Ok(())
    }
}
