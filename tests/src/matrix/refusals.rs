//! Calls that do not come about: cancelled, busy, not answered, moved.

use anyhow::{Result, ensure};

use crate::lab::peer::{LIMIT, Peer, referred};

use super::Stage;
use super::scene::{answered, bye};

fn both_ways(
    stage: &Stage,
    (phone, far): (usize, usize),
    scene: impl Fn(&Peer, &Peer) -> Result<()>,
) -> Result<()> {
    scene(&stage.lan[phone], &stage.far[far])?;
    scene(&stage.far[far], &stage.lan[phone])
}

pub(super) fn cancel(stage: &Stage) -> Result<()> {
    both_ways(stage, (11, 11), |from, to| {
        let ask = from.invite(&from.uri_of(to.user()), "");
        let invite = to.expect("INVITE", None)?;
        to.reply(&invite, "180 Ringing", "", None);
        ask.sees(180, LIMIT)?;
        let ended = std::thread::scope(|scope| {
            let callee = scope.spawn(|| {
                let cancel = to.expect("CANCEL", invite.header("Call-ID"))?;
                to.reply(&cancel, "200 OK", "", None);
                to.refuse(&invite, "487 Request Terminated", "")
            });
            let caller = ask.cancel(LIMIT);
            (caller, callee.join())
        });
        ended.0?;
        ended.1.unwrap_or_else(|_| anyhow::bail!("panicked"))
    })
}

pub(super) fn busy(stage: &Stage) -> Result<()> {
    both_ways(stage, (12, 12), |from, to| {
        let ask = from.invite(&from.uri_of(to.user()), "");
        let invite = to.expect("INVITE", None)?;
        to.refuse(&invite, "486 Busy Here", "")?;
        ask.sees(486, LIMIT).map(drop)
    })
}

/// The softswitch gives up after two seconds of ringing.
pub(super) fn no_answer(stage: &Stage) -> Result<()> {
    both_ways(stage, (13, 13), |from, to| {
        let ask = from.invite(&from.uri_of(to.user()), "");
        let invite = to.expect("INVITE", None)?;
        to.reply(&invite, "180 Ringing", "", None);
        ask.sees(180, LIMIT)?;
        let cancel = to.expect("CANCEL", invite.header("Call-ID"))?;
        to.reply(&cancel, "200 OK", "", None);
        to.refuse(&invite, "487 Request Terminated", "")?;
        ask.sees(408, LIMIT).map(drop)
    })
}

/// The callee says where he is, by the Contact of another phone, and the caller calls there.
pub(super) fn moved(stage: &Stage) -> Result<()> {
    let elsewhere = |to: &Peer| match std::ptr::eq(to, &stage.lan[14]) {
        true => &stage.lan[15],
        false => &stage.far[15],
    };
    both_ways(stage, (14, 14), |from, to| {
        let there = elsewhere(to);
        let ask = from.invite(&from.uri_of(to.user()), "");
        let invite = to.expect("INVITE", None)?;
        let contact = format!("Contact: <{}>\r\n", there.contact());
        to.refuse(&invite, "302 Moved Temporarily", &contact)?;
        let moved = ask.sees(302, LIMIT)?;
        ensure!(moved.header("Contact").is_some(), "{}", moved.text);
        let target = referred(&moved, "Contact")?;
        let ask = from.invite(&target.uri, "");
        let (mut near, away, _) = answered(ask, from, there)?;
        bye(from, &mut near, there, &away)
    })
}
