//! What several scenarios have in common: setting calls up, and hearing who speaks.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::lab::dialog::Dialog;
use crate::lab::peer::{Ask, Direction, LIMIT, Peer, SDP};
use crate::lab::rtp::Rtp;
use crate::lab::sip::Message;
use crate::lab::{flows, wait};

use super::Stage;

/// Half a second of G.711 is a voice.
const ENOUGH: u64 = 25;

/// One side of a call.
pub(super) struct Party<'a> {
    pub(super) peer: &'a Peer,
    pub(super) dialog: Dialog,
    pub(super) rtp: Rtp,
}

/// A call, signalled only: the caller's and the callee's side.
pub(super) fn connect(from: &Peer, to: &Peer) -> Result<(Dialog, Dialog)> {
    let ask = from.invite(&from.uri_of(to.user()), "");
    let (near, away, _) = answered(ask, from, to)?;
    Ok((near, away))
}

/// The callee rings and answers, the caller acknowledges; the INVITE that the callee got.
pub(super) fn answered(ask: Ask, from: &Peer, to: &Peer) -> Result<(Dialog, Dialog, Message)> {
    let invite = match to.expect("INVITE", None) {
        Ok(invite) => invite,
        // The refusal, if there is one, says more.
        Err(error) => return Err(ask.sees(180, Duration::ZERO).err().unwrap_or(error)),
    };
    to.reply(&invite, "180 Ringing", "", None);
    ask.sees(180, LIMIT)?;
    let answer = to.sdp(Direction::SendRecv);
    to.reply(&invite, "200 OK", "", Some((SDP, &answer)));
    let near = ask.dialog(LIMIT)?;
    from.ack(&near);
    let away = to.side_of(&invite)?;
    to.expect("ACK", Some(&away.call_id))?;
    Ok((near, away, invite))
}

/// A call in which both talk, and are heard.
pub(super) fn call<'a>(
    stage: &Stage,
    from: &'a Peer,
    to: &'a Peer,
) -> Result<(Party<'a>, Party<'a>)> {
    let (near, away) = connect(from, to)?;
    let mut both = (party(stage, from, near)?, party(stage, to, away)?);
    talk(stage, &mut both.0, &mut both.1)?;
    Ok(both)
}

/// A side of a call with an ear of its own.
pub(super) fn party<'a>(stage: &Stage, peer: &'a Peer, dialog: Dialog) -> Result<Party<'a>> {
    Ok(Party {
        rtp: stage.voice(peer)?,
        peer,
        dialog,
    })
}

/// Both speak to where the other's description says, until each has heard the other, and nobody
/// but the gateway as the sender; XDP has forwarded it. Where nothing is hidden each hears the
/// other itself.
pub(super) fn talk(stage: &Stage, one: &mut Party<'_>, other: &mut Party<'_>) -> Result<()> {
    speak(one)?;
    speak(other)?;
    hears(one, other)?;
    hears(other, one)?;
    if stage.goes_through() {
        return heard_itself(one, other).and(heard_itself(other, one));
    }
    for party in [&*one, &*other] {
        let (_, gateway) = stage.home_of(party.peer);
        for source in party.rtp.sources() {
            let anchored = source.ip().to_string() == gateway;
            ensure!(anchored, "{} hears {source}", party.peer.user());
        }
        let forwarded = || {
            let packets = flows::forwarded_to(&stage.office, &[party.peer.media()]).ok()?;
            (packets >= ENOUGH).then_some(())
        };
        let what = format!("XDP forwards to {}", party.peer.media());
        wait::until(&what, LIMIT, forwarded)?;
    }
    Ok(())
}

fn heard_itself(ear: &Party<'_>, mouth: &Party<'_>) -> Result<()> {
    let sources = ear.rtp.sources();
    let direct = sources.contains(&mouth.peer.media());
    ensure!(direct, "{} hears {sources:?}", ear.peer.user());
    Ok(())
}

fn speak(party: &mut Party<'_>) -> Result<()> {
    party.rtp.stop_sending();
    party.rtp.send_to(party.dialog.peer_media)
}

/// Waits until `ear` has heard this much more of `mouth`.
pub(super) fn hears(ear: &Party<'_>, mouth: &Party<'_>) -> Result<()> {
    let of = mouth.peer.media().port();
    let before = ear.rtp.heard_from(of);
    let what = || format!("{} hears {}", ear.peer.user(), mouth.peer.user());
    wait::until(&what(), LIMIT, || {
        (ear.rtp.heard_from(of) >= before + ENOUGH).then_some(())
    })
    .with_context(|| format!("{:?} from {:?}", ear.rtp.count(), ear.rtp.sources()))
}

/// One side hangs up, the other agrees.
pub(super) fn bye(from: &Peer, dialog: &mut Dialog, to: &Peer, theirs: &Dialog) -> Result<()> {
    let ask = from.within(dialog, "BYE", "", None);
    let bye = to.expect("BYE", Some(&theirs.call_id))?;
    to.reply(&bye, "200 OK", "", None);
    ask.sees(200, LIMIT).map(drop)
}

/// One party of a call hangs up.
pub(super) fn end(from: &mut Party<'_>, to: &mut Party<'_>) -> Result<()> {
    from.rtp.stop_sending();
    to.rtp.stop_sending();
    bye(from.peer, &mut from.dialog, to.peer, &to.dialog)
}
