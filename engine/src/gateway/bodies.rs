//! Bodies: the session description of a message, wherever in it it stands, and what bodies of
//! events say of addresses and dialogs (signalling.md section 6).

use std::ops::Range;

use super::{Gateway, topology::Sight};
use crate::{
    net::Side,
    sip::{
        Edit, Message,
        body::{Part, parts},
    },
};

const SDP: &str = "application/sdp";

/// Bodies that machines write about the network: their addresses are translated. What people
/// write to each other is not.
const ABOUT_US: [&str; 6] = [
    "message/sipfrag",
    "message/sip",
    "application/dialog-info+xml",
    "application/reginfo+xml",
    "application/pidf+xml",
    "application/simple-message-summary",
];

/// The session description of a message: its body, or a part of it (RFC 5621 section 3.1).
pub(super) fn sdp_of(msg: &Message) -> Option<&[u8]> {
    let part = parts(msg).into_iter().find(is_sdp)?;
    msg.body().get(part.range)
}

impl Gateway {
    /// Puts the session description for the other side in its place, and hides in the other
    /// parts what that side must not see.
    pub(super) fn edit_body(
        &self,
        edit: &mut Edit<'_>,
        msg: &Message,
        (from, towards): (Side, Sight),
        sdp: Option<Vec<u8>>,
    ) {
        let mut sdp = sdp;
        let mut changed: Vec<(Range<usize>, Vec<u8>)> = Vec::new();
        for part in parts(msg) {
            let content = msg.body().get(part.range.clone()).unwrap_or_default();
            let becomes = match is_sdp(&part) {
                true => sdp.take(),
                false if from != towards.side && ABOUT_US.contains(&part.kind.as_str()) => {
                    self.topology.text(content, from, towards)
                }
                false => None,
            };
            changed.extend(becomes.map(|becomes| (part.range, becomes)));
        }
        if !changed.is_empty() {
            edit.set_body(spliced(msg.body(), &changed));
        }
    }
}

fn is_sdp(part: &Part) -> bool {
    part.kind == SDP && !part.range.is_empty()
}

/// The body with these places, in order, said anew.
fn spliced(body: &[u8], changed: &[(Range<usize>, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + 64);
    let mut at = 0;
    for (range, becomes) in changed {
        out.extend_from_slice(body.get(at..range.start).unwrap_or_default());
        out.extend_from_slice(becomes);
        at = range.end;
    }
    out.extend_from_slice(body.get(at..).unwrap_or_default());
    out
}
