//! Where nothing is hidden: what phones and softswitches say is the same on both cables, and the
//! gateway has seen all of it.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};

use crate::lab::gateway::list;
use crate::lab::peer::LIMIT;
use crate::lab::sip::Message;
use crate::lab::{Frame, wait};

use super::Stage;

/// Fewer messages than so many would be another capture.
const PLAUSIBLE: u64 = 200;

/// How often each text was seen.
type Texts = BTreeMap<String, usize>;

impl Stage {
    /// Every message of a phone is on one cable as it is on the other; the data path forwarded
    /// most of them, and told of each; the gateway knows every phone by its own Contact.
    pub(super) fn untouched(&self) -> Result<()> {
        let peers = self.lan.iter().chain(self.pairs.iter().map(|(lan, _)| lan));
        for peer in peers {
            let address = peer.media().ip().to_string();
            for sent in [true, false] {
                // The last message may be on its way from one cable to the other.
                let mut last = None;
                let same = wait::until("both cables carry the same", LIMIT, || {
                    let [near, away] = [0, 1].map(|wire| {
                        let frames = self.wires[wire].frames();
                        frames.map(|frames| texts(&frames, &address, sent))
                    });
                    let (near, away) = (near.ok()?, away.ok()?);
                    let same = near == away && !near.is_empty();
                    last = Some(difference(&near, &away));
                    same.then_some(())
                });
                same.with_context(|| format!("{}, sent {sent}: {last:?}", peer.user()))?;
            }
        }
        self.seen()
    }

    fn seen(&self) -> Result<()> {
        let status = self.office.ask(&["status"])?;
        let through = &status["through"];
        let number = |of: &serde_json::Value| of.as_u64().context("no number");
        let copies = number(&through["copies"])?;
        let routed = number(&status["fastpath"]["reasons"]["flow_routed"])?;
        ensure!(copies.min(routed) > PLAUSIBLE, "{status}");
        ensure!(through["copies_lost"] == 0, "{status}");
        let known = self.office.ask(&["registrations"])?;
        let known = list(&known, "registrations");
        for peer in &self.lan {
            let own = known.iter().find(|one| one["contact"] == peer.contact());
            let own = own.with_context(|| format!("{} is not known", peer.user()))?;
            ensure!(own["state"] == "upstream", "{own}");
        }
        Ok(())
    }
}

/// What a phone sent or received; without the lines by which we take Contacts away.
fn texts(frames: &[Frame], phone: &str, sent: bool) -> Texts {
    let mut texts = Texts::new();
    for message in Message::of(frames, phone) {
        if message.sent != sent {
            continue;
        }
        let ours = |line: &&str| line.starts_with("Contact:") && line.contains(">;expires=0");
        let text = match message.method() {
            Some("REGISTER") => {
                let lines = message.text.split_inclusive('\n');
                lines.filter(|line| !ours(line)).collect()
            }
            _ => message.text,
        };
        *texts.entry(text).or_default() += 1;
    }
    texts
}

/// What is on one cable more often than on the other.
fn difference(near: &Texts, away: &Texts) -> Vec<(String, usize, usize)> {
    let all = near.keys().chain(away.keys());
    let count = |of: &Texts, text: &String| of.get(text).copied().unwrap_or(0);
    let both = all.map(|text| (text.clone(), count(near, text), count(away, text)));
    both.filter(|(_, near, away)| near != away).collect()
}
