//! Transfers (RFC 3515, RFC 3891, RFC 5589): who was referred calls whom he was referred to, and
//! those two talk.

use anyhow::{Context as _, Result, ensure};

use crate::lab::dialog::Dialog;
use crate::lab::peer::{Direction, LIMIT, Peer, referred};
use crate::lab::sip::Message;

use super::Stage;
use super::calls::reinvite;
use super::scene::{Party, answered, bye, call, connect, end, talk};

/// The phone sends its far party to another phone.
pub(super) fn blind(stage: &Stage) -> Result<()> {
    let (mut phone, mut far) = call(stage, &stage.lan[4], &stage.far[4])?;
    let to = &stage.lan[5];
    let refer_to = format!("<{}>", phone.peer.uri_of(to.user()));
    let refer = refer(&mut phone, &far, &refer_to)?;
    trying(&mut far, &phone)?;
    let (dialog, theirs) = follow(far.peer, &refer, to)?;
    succeeded(&mut far, &phone)?;
    bye(phone.peer, &mut phone.dialog, far.peer, &far.dialog)?;
    talk_on(stage, far, dialog, to, theirs)
}

/// The far side sends the phone to another far party, and does not wait for how it ends.
pub(super) fn blind_by_far(stage: &Stage) -> Result<()> {
    let (mut far, mut phone) = call(stage, &stage.far[5], &stage.lan[6])?;
    let to = &stage.far[6];
    let refer_to = format!("<{}>", far.peer.uri_of(to.user()));
    let refer = refer(&mut far, &phone, &refer_to)?;
    bye(far.peer, &mut far.dialog, phone.peer, &phone.dialog)?;
    // The subscription that REFER made lives on in the dialog (RFC 3515 section 2.4.7).
    trying(&mut phone, &far)?;
    let (dialog, theirs) = follow(phone.peer, &refer, to)?;
    succeeded(&mut phone, &far)?;
    talk_on(stage, phone, dialog, to, theirs)
}

/// The phone talks to another phone first; and once more with a far party in its place.
pub(super) fn attended(stage: &Stage) -> Result<()> {
    let (phone, far) = (&stage.lan[7], &stage.far[7]);
    attend(stage, phone, far, &stage.lan[8], true)?;
    attend(stage, phone, far, &stage.far[8], false)
}

/// The far side talks to another far party first; and once more to a phone.
pub(super) fn attended_by_far(stage: &Stage) -> Result<()> {
    let (far, phone) = (&stage.far[9], &stage.lan[9]);
    attend(stage, far, phone, &stage.far[10], true)?;
    attend(stage, far, phone, &stage.lan[10], true)
}

/// `by` is in a call with `who`, and puts `to` in its own place. The media of two far parties
/// does not pass here.
fn attend(stage: &Stage, by: &Peer, who: &Peer, to: &Peer, anchored: bool) -> Result<()> {
    let (mut transferor, mut transferee) = call(stage, by, who)?;
    reinvite(&mut transferor, &mut transferee, Direction::SendOnly)?;
    let (consulting, mut consulted) = connect(by, to)?;
    let (ours, theirs) = consulting.tags();
    let replaces = format!("{};to-tag={theirs};from-tag={ours}", consulting.call_id);
    let replaces = replaces
        .replace('@', "%40")
        .replace(';', "%3B")
        .replace('=', "%3D");
    let refer_to = format!("<{}?Replaces={replaces}>", consulting.target());
    let refer = refer(&mut transferor, &transferee, &refer_to)?;
    trying(&mut transferee, &transferor)?;
    let target = referred(&refer, "Refer-To")?;
    let ask = who.invite(&target.uri, &target.extra);
    let (dialog, replacing, invite) = answered(ask, who, to)?;
    replaces_dialog(&invite, &consulted)?;
    bye(to, &mut consulted, by, &consulting)?;
    succeeded(&mut transferee, &transferor)?;
    bye(by, &mut transferor.dialog, who, &transferee.dialog)?;
    drop(transferor);
    if anchored {
        return talk_on(stage, transferee, dialog, to, replacing);
    }
    let (mut dialog, replacing) = (dialog, replacing);
    bye(who, &mut dialog, to, &replacing)
}

/// The INVITE names the dialog as the one that it reaches knows it (RFC 3891 section 3).
fn replaces_dialog(invite: &Message, known: &Dialog) -> Result<()> {
    let found = invite.header("Replaces");
    let found = found.with_context(|| format!("no Replaces in {}", invite.text))?;
    let (ours, theirs) = known.tags();
    let expected = format!("{};to-tag={ours};from-tag={theirs}", known.call_id);
    ensure!(found == expected, "Replaces {found}, not {expected}");
    Ok(())
}

/// A REFER that is accepted; as the one who is referred got it.
fn refer(from: &mut Party<'_>, to: &Party<'_>, refer_to: &str) -> Result<Message> {
    let by = from.peer.uri_of(from.peer.user());
    let extra = format!("Refer-To: {refer_to}\r\nReferred-By: <{by}>\r\n");
    let ask = from.peer.within(&mut from.dialog, "REFER", &extra, None);
    let refer = to.peer.expect("REFER", Some(&to.dialog.call_id))?;
    to.peer.reply(&refer, "202 Accepted", "", None);
    ask.sees(202, LIMIT)?;
    Ok(refer)
}

/// The call that a REFER asks for, set up: the caller's side, the callee's.
fn follow(who: &Peer, refer: &Message, to: &Peer) -> Result<(Dialog, Dialog)> {
    let target = referred(refer, "Refer-To")?;
    let by = refer.header("Referred-By").context("no Referred-By")?;
    let extra = format!("Referred-By: {by}\r\n{}", target.extra);
    let (near, away, _) = answered(who.invite(&target.uri, &extra), who, to)?;
    Ok((near, away))
}

fn trying(from: &mut Party<'_>, to: &Party<'_>) -> Result<()> {
    notify(from, to, "active;expires=60", "SIP/2.0 100 Trying\r\n")
}

fn succeeded(from: &mut Party<'_>, to: &Party<'_>) -> Result<()> {
    // Some phones put more than the status line in.
    let said = format!("SIP/2.0 200 OK\r\nContact: <{}>\r\n", from.peer.contact());
    notify(from, to, "terminated;reason=noresource", &said)
}

/// A NOTIFY of how the referred call fares.
fn notify(from: &mut Party<'_>, to: &Party<'_>, state: &str, said: &str) -> Result<()> {
    let extra = format!("Event: refer\r\nSubscription-State: {state}\r\n");
    let body = Some(("message/sipfrag;version=2.0", said));
    let ask = from.peer.within(&mut from.dialog, "NOTIFY", &extra, body);
    let notify = to.peer.expect("NOTIFY", Some(&to.dialog.call_id))?;
    let first = said.lines().next().unwrap_or_default();
    ensure!(notify.text.contains(first), "{}", notify.text);
    to.peer.reply(&notify, "200 OK", "", None);
    ask.sees(200, LIMIT).map(drop)
}

/// The one who was referred talks to the other, who hangs up.
fn talk_on(stage: &Stage, who: Party<'_>, dialog: Dialog, to: &Peer, theirs: Dialog) -> Result<()> {
    let mut who = Party { dialog, ..who };
    let mut to = super::scene::party(stage, to, theirs)?;
    talk(stage, &mut who, &mut to)?;
    end(&mut to, &mut who)
}
