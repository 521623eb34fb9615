//! Registrations, messages and subscriptions.

use anyhow::{Context as _, Result, ensure};

use crate::lab::branch::GATEWAY_WAN;
use crate::lab::dialog::Dialog;
use crate::lab::peer::{LIMIT, Peer};
use crate::lab::wait;

use super::Stage;

/// One Contact per phone upstream, whatever Contacts the phone had; and none in the end. What
/// goes through bears the phone's own: the one before is taken away by the REGISTER after it.
pub(super) fn register(stage: &Stage) -> Result<()> {
    let through = stage.goes_through();
    let (phone, softswitch) = (&stage.lan[0], &stage.office.primary);
    let other = phone.contact().replace("c-", "d-");
    let held = || stage.contacts(softswitch, phone.user());
    for contact in [phone.contact(), other.clone(), phone.contact()] {
        let ok = phone.register_as(&contact, 3600)?;
        if through {
            let what = "the Contact before is taken away";
            wait::until(what, LIMIT, || {
                phone.register_as(&contact, 3600).ok()?;
                (held().ok()?.len() == 1).then_some(())
            })?;
        }
        // Beside the one before, where that is still to be taken away.
        let given = format!("<{contact}>;expires=");
        ensure!(ok.text.contains(&given), "{}", ok.text);
        let held = held()?;
        let own = if through { &contact } else { GATEWAY_WAN };
        let right = held.len() == 1 && held[0].contains(own);
        ensure!(right, "the softswitch holds {held:?}");
    }
    phone.register_as(&phone.contact(), 0)?;
    let left = held()?;
    ensure!(left.is_empty(), "the softswitch holds {left:?}");
    phone.register().map(drop)
}

pub(super) fn message(stage: &Stage) -> Result<()> {
    let text = "Grüße, \"sip\" & 10 €\r\n\r\n--\r\n";
    let (phone, far) = (&stage.lan[1], &stage.far[1]);
    for (from, to) in [(phone, far), (far, phone)] {
        let body = Some(("text/plain;charset=UTF-8", text));
        let ask = from.begin("MESSAGE", &from.uri_of(to.user()), "", body);
        let message = to.expect("MESSAGE", None)?;
        let whole = message.text.ends_with(&format!("\r\n\r\n{text}"));
        ensure!(whole, "{}", message.text);
        to.reply(&message, "200 OK", "", None);
        ask.sees(200, LIMIT)?;
    }
    Ok(())
}

pub(super) fn subscribe(stage: &Stage) -> Result<()> {
    let (phone, far) = (&stage.lan[2], &stage.far[2]);
    subscription(phone, far)?;
    subscription(far, phone)
}

/// A subscription to a phone's calls: begun, notified of, renewed and ended.
fn subscription(subscriber: &Peer, notifier: &Peer) -> Result<()> {
    let uri = subscriber.uri_of(notifier.user());
    let event = "Event: dialog\r\nAccept: application/dialog-info+xml\r\n";
    let extra = format!("{event}Expires: 60\r\n");
    let ask = subscriber.begin("SUBSCRIBE", &uri, &extra, None);
    let first = notifier.expect("SUBSCRIBE", None)?;
    notifier.reply(&first, "200 OK", "Expires: 60\r\n", None);
    let mut ours = ask.dialog(LIMIT)?;
    let mut theirs = notifier.side_of(&first)?;
    for state in ["active;expires=60", "active;expires=30"] {
        notify(notifier, &mut theirs, subscriber, &ours, state)?;
    }
    for (expires, state) in [(60, "active;expires=60"), (0, "terminated;reason=timeout")] {
        let extra = format!("{event}Expires: {expires}\r\n");
        let ask = subscriber.within(&mut ours, "SUBSCRIBE", &extra, None);
        let again = notifier.expect("SUBSCRIBE", Some(&theirs.call_id))?;
        notifier.reply(&again, "200 OK", &format!("Expires: {expires}\r\n"), None);
        ask.sees(200, LIMIT)?;
        notify(notifier, &mut theirs, subscriber, &ours, state)?;
    }
    Ok(())
}

/// A NOTIFY whose body names the notifier's address and a call of its own.
fn notify(from: &Peer, dialog: &mut Dialog, to: &Peer, theirs: &Dialog, state: &str) -> Result<()> {
    let (contact, ip) = (from.contact(), from.media().ip());
    let body = format!(
        "<?xml version=\"1.0\"?>\r\n<dialog-info xmlns=\"urn:ietf:params:xml:ns:dialog-info\" \
         version=\"1\" state=\"full\" entity=\"{}\"><dialog id=\"1\" call-id=\"5-x@{ip}\" \
         local-tag=\"1\" remote-tag=\"2\" direction=\"initiator\"><state>confirmed</state>\
         <local><target uri=\"{contact}\"/></local></dialog></dialog-info>\r\n",
        from.uri_of(from.user())
    );
    let extra = format!("Event: dialog\r\nSubscription-State: {state}\r\n");
    let body = Some(("application/dialog-info+xml", body.as_str()));
    let ask = from.within(dialog, "NOTIFY", &extra, body);
    let notify = to.expect("NOTIFY", Some(&theirs.call_id))?;
    let target = notify.text.split_once("<target uri=\"");
    target.with_context(|| format!("no target in {}", notify.text))?;
    to.reply(&notify, "200 OK", "", None);
    ask.sees(200, LIMIT).map(drop)
}
