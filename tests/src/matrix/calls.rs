//! Calls, holds, re-INVITEs, and two phones that ring for one call.

use anyhow::{Result, ensure};

use crate::lab::peer::{Direction, LIMIT, SDP, direction_of};

use super::Stage;
use super::scene::{Party, call, end, hears, party, talk};

pub(super) fn from_a_phone(stage: &Stage) -> Result<()> {
    let (mut phone, mut far) = call(stage, &stage.lan[1], &stage.far[1])?;
    end(&mut far, &mut phone)
}

pub(super) fn to_a_phone(stage: &Stage) -> Result<()> {
    let (mut far, mut phone) = call(stage, &stage.far[2], &stage.lan[2])?;
    end(&mut phone, &mut far)
}

pub(super) fn hold(stage: &Stage) -> Result<()> {
    let (mut phone, mut far) = call(stage, &stage.lan[3], &stage.far[3])?;
    reinvite(&mut phone, &mut far, Direction::SendOnly)?;
    // The one who is held is silent, and hears music.
    far.rtp.stop_sending();
    hears(&far, &phone)?;
    reinvite(&mut phone, &mut far, Direction::SendRecv)?;
    talk(stage, &mut phone, &mut far)?;
    end(&mut phone, &mut far)
}

pub(super) fn hold_by_far(stage: &Stage) -> Result<()> {
    let (mut phone, mut far) = call(stage, &stage.lan[15], &stage.far[0])?;
    reinvite(&mut far, &mut phone, Direction::Inactive)?;
    far.rtp.stop_sending();
    phone.rtp.stop_sending();
    reinvite(&mut far, &mut phone, Direction::SendRecv)?;
    talk(stage, &mut phone, &mut far)?;
    // As phones did before RFC 3264.
    let offer = far.peer.sdp_without_address();
    offer_and_answer(&mut far, &mut phone, &offer, Direction::SendRecv)?;
    phone.rtp.stop_sending();
    reinvite(&mut far, &mut phone, Direction::SendRecv)?;
    talk(stage, &mut phone, &mut far)?;
    end(&mut far, &mut phone)
}

/// A re-INVITE of `from`, accepted by `to` with the direction that mirrors it.
pub(super) fn reinvite(
    from: &mut Party<'_>,
    to: &mut Party<'_>,
    direction: Direction,
) -> Result<()> {
    let offer = from.peer.sdp(direction);
    offer_and_answer(from, to, &offer, direction)
}

fn offer_and_answer(
    from: &mut Party<'_>,
    to: &mut Party<'_>,
    offer: &str,
    direction: Direction,
) -> Result<()> {
    let mirrored = match direction {
        Direction::SendOnly => Direction::RecvOnly,
        Direction::RecvOnly => Direction::SendOnly,
        both => both,
    };
    let ask = from
        .peer
        .within(&mut from.dialog, "INVITE", "", Some((SDP, offer)));
    let invite = to.peer.expect("INVITE", Some(&to.dialog.call_id))?;
    let seen = direction_of(&invite);
    ensure!(seen == direction, "offered {direction:?}, seen {seen:?}");
    let answer = to.peer.sdp(mirrored);
    to.peer.reply(&invite, "200 OK", "", Some((SDP, &answer)));
    let ok = ask.sees(200, LIMIT)?;
    from.peer.ack(&from.dialog);
    to.peer.expect("ACK", Some(&to.dialog.call_id))?;
    let seen = direction_of(&ok);
    ensure!(seen == mirrored, "answered {mirrored:?}, seen {seen:?}");
    from.dialog.hears(&ok);
    to.dialog.hears(&invite);
    Ok(())
}

/// Two phones of one user ring; one answers, the other is cancelled.
pub(super) fn forked_in(stage: &Stage) -> Result<()> {
    let (far, first, second) = (&stage.far[12], &stage.lan[16], &stage.lan[17]);
    let ask = far.invite(&far.uri_of(first.user()), "");
    let at_first = first.expect("INVITE", None)?;
    let at_second = second.expect("INVITE", None)?;
    first.reply(&at_first, "180 Ringing", "", None);
    let one = ask.sees(180, LIMIT)?;
    second.reply(&at_second, "180 Ringing", "", None);
    let other = ask.sees(180, LIMIT)?;
    ensure!(one.header("To") != other.header("To"), "one dialog for two");
    let answer = second.sdp(Direction::SendRecv);
    second.reply(&at_second, "200 OK", "", Some((SDP, &answer)));
    let dialog = ask.dialog(LIMIT)?;
    far.ack(&dialog);
    let theirs = second.side_of(&at_second)?;
    second.expect("ACK", Some(&theirs.call_id))?;
    let cancel = first.expect("CANCEL", at_first.header("Call-ID"))?;
    first.reply(&cancel, "200 OK", "", None);
    first.refuse(&at_first, "487 Request Terminated", "")?;
    let mut caller = party(stage, far, dialog)?;
    let mut callee = party(stage, second, theirs)?;
    talk(stage, &mut caller, &mut callee)?;
    end(&mut callee, &mut caller)
}

/// Two far phones of one user send early media, and the one that spoke first answers.
pub(super) fn forked_out(stage: &Stage) -> Result<()> {
    let (phone, first, second) = (&stage.lan[12], &stage.far[16], &stage.far[17]);
    let ask = phone.invite(&phone.uri_of(first.user()), "");
    let at_first = first.expect("INVITE", None)?;
    let at_second = second.expect("INVITE", None)?;
    let mut early = Vec::new();
    for (peer, invite) in [(first, &at_first), (second, &at_second)] {
        let answer = peer.sdp(Direction::SendRecv);
        peer.reply(invite, "183 Session Progress", "", Some((SDP, &answer)));
        let seen = ask.sees(183, LIMIT)?;
        early.push((seen.header("To").map(str::to_owned), answer));
    }
    ensure!(early[0].0 != early[1].0, "one dialog for two");
    first.reply(&at_first, "200 OK", "", Some((SDP, &early[0].1)));
    let dialog = ask.dialog(LIMIT)?;
    phone.ack(&dialog);
    let theirs = first.side_of(&at_first)?;
    first.expect("ACK", Some(&theirs.call_id))?;
    let cancel = second.expect("CANCEL", at_second.header("Call-ID"))?;
    second.reply(&cancel, "200 OK", "", None);
    second.refuse(&at_second, "487 Request Terminated", "")?;
    let mut caller = party(stage, phone, dialog)?;
    let mut callee = party(stage, first, theirs)?;
    talk(stage, &mut caller, &mut callee)?;
    end(&mut callee, &mut caller)
}
