//! Kinds of media: several streams, refused ones, fax, encrypted ones, ICE; and descriptions that
//! come late or early (RFC 3264, RFC 3262, RFC 3311).

use anyhow::{Context as _, Result, ensure};

use crate::lab::dialog::Dialog;
use crate::lab::peer::{Ask, LIMIT, Peer, SDP};
use crate::lab::sip::Message;
use crate::lab::{Branch, flows, wait};

use super::Stage;
use super::connected::{Connected, connect, says};
use super::scene::{Party, call, end, hears};
use super::streams::{connection_of, described, description};

/// An RTP header of G.711, and some payload.
const RTP: &[u8] = &[
    0x80, 0, 0, 9, 0, 0, 0, 160, 0x4b, 0x4c, 0, 1, 0xd5, 0xd5, 0x2a,
];
/// A receiver report without a block.
const RTCP: &[u8] = &[0x80, 201, 0, 1, 0x4b, 0x4c, 0, 1];
/// The beginning of a DTLS 1.2 ClientHello.
const HELLO: &[u8] = &[22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0];
/// UDPTL counts from zero (ITU-T T.38 section 9): it looks like STUN.
const UDPTL: &[u8] = &[0, 0, 1, 0xc0, 0, 1];

/// Audio with RTCP elsewhere, and video with an address of its own whose RTCP shares its port
/// (case M6).
pub(super) fn video(stage: &Stage) -> Result<()> {
    let (phone, far) = stage.pair(0);
    let (near, away) = (phone.media().ip(), far.media().ip());
    let offer = description(
        near,
        1,
        &[
            "m=audio 12000 RTP/AVP 0\r\na=rtcp:12005\r\n",
            &format!(
                "m=video 12010 RTP/AVPF 96\r\n{}a=rtpmap:96 H264/90000\r\na=rtcp-mux\r\na=rtcp-fb:96 nack\r\n",
                connection_of(near)
            ),
        ],
    );
    let answer = description(
        away,
        1,
        &[
            "m=audio 12000 RTP/AVP 0\r\n",
            "m=video 12010 RTP/AVPF 96\r\na=rtpmap:96 H264/90000\r\na=rtcp-mux\r\n",
        ],
    );
    let call = connect(phone, far, [&offer, &answer])?;
    says(&call.told[1][1], "a=rtcp-fb:96 nack")?;
    call.line(stage, [12000, 12000], 0)?.carries(RTP)?;
    call.rtcp(stage, [12005, 12001], 0)?.carries(RTCP)?;
    let mut video = call.line(stage, [12010, 12010], 1)?;
    video.carries(RTP)?;
    video.carries(RTCP)?;
    call.end()
}

/// Video is refused at first, and taken in a later offer; the audio has gone on.
pub(super) fn refused_video(stage: &Stage) -> Result<()> {
    let (phone, far) = stage.pair(1);
    let (near, away) = (phone.media().ip(), far.media().ip());
    let audio = "m=audio 12020 RTP/AVP 0\r\n";
    let video = "m=video 12030 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n";
    let offer = description(away, 1, &[audio, video]);
    let answer = description(near, 1, &[audio, "m=video 0 RTP/AVP 96\r\n"]);
    let mut call = connect(far, phone, [&offer, &answer])?;
    let refused = &call.told[0][1];
    ensure!(refused.rtp.port() == 0, "not refused: {}", refused.text);
    let mut voice = call.line(stage, [12020, 12020], 0)?;
    voice.carries(RTP)?;
    let [offer, answer] = [near, away].map(|ip| description(ip, 2, &[audio, video]));
    call.again(1, &offer, &answer)?;
    voice.carries(RTP)?;
    call.line(stage, [12030, 12030], 1)?.carries(RTP)?;
    call.end()
}

/// A call turns into a fax and back.
pub(super) fn fax(stage: &Stage) -> Result<()> {
    let (phone, far) = stage.pair(2);
    let (near, away) = (phone.media().ip(), far.media().ip());
    let audio = "m=audio 12040 RTP/AVP 0\r\n";
    let image =
        "m=image 12050 udptl t38\r\na=T38FaxVersion:0\r\na=T38FaxUdpEC:t38UDPRedundancy\r\n";
    let bodies = |version, stream| [near, away].map(|ip| description(ip, version, &[stream]));
    let [offer, answer] = bodies(1, audio);
    let mut call = connect(phone, far, [&offer, &answer])?;
    call.line(stage, [12040, 12040], 0)?.carries(RTP)?;
    let [answer, offer] = bodies(2, image);
    call.again(1, &offer, &answer)?;
    for told in &call.told {
        says(&told[0], "a=T38FaxUdpEC:t38UDPRedundancy")?;
    }
    call.line(stage, [12050, 12050], 0)?.carries(UDPTL)?;
    let [offer, answer] = bodies(3, audio);
    call.again(0, &offer, &answer)?;
    call.line(stage, [12040, 12040], 0)?.carries(RTP)?;
    call.end()
}

/// Keys and encrypted packets are nobody's business.
pub(super) fn srtp(stage: &Stage) -> Result<()> {
    let (phone, far) = stage.pair(3);
    let key = |letter: &str| {
        let inline = letter.repeat(40);
        format!("a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:{inline}|2^20|1:32")
    };
    let body = |peer: &Peer, letter: &str| {
        let stream = format!("m=audio 12060 RTP/SAVP 0\r\n{}\r\n", key(letter));
        description(peer.media().ip(), 1, &[&stream])
    };
    let call = connect(phone, far, [&body(phone, "A"), &body(far, "B")])?;
    says(&call.told[0][0], &key("B"))?;
    says(&call.told[1][0], &key("A"))?;
    call.line(stage, [12060, 12060], 0)?.carries(RTP)?;
    call.end()
}

/// DTLS is shaken between the phones; a stranger's hello reaches nobody.
pub(super) fn dtls(stage: &Stage) -> Result<()> {
    let (phone, far) = stage.pair(4);
    let print = "a=fingerprint:sha-256 4A:AD:B9:B1:3F:82:18:3B:54:02:12:DF:3E:5D:49:6B:19:E5:7C:AB";
    let body = |peer: &Peer, setup: &str| {
        let stream =
            format!("m=audio 12080 UDP/TLS/RTP/SAVPF 0\r\n{print}\r\n{setup}\r\na=rtcp-mux\r\n");
        description(peer.media().ip(), 1, &[&stream])
    };
    let (offers, answers) = ("a=setup:actpass", "a=setup:active");
    let call = connect(far, phone, [&body(far, offers), &body(phone, answers)])?;
    for (told, setup) in call.told.iter().zip([answers, offers]) {
        says(&told[0], print)?;
        says(&told[0], setup)?;
    }
    let mut line = call.line(stage, [12080, 12080], 0)?;
    line.carries(HELLO)?;
    let stranger = format!("{}:12081", Branch::far_phone(0));
    let stranger = stage.office.branch.far.udp(&stranger)?;
    for _ in 0..10 {
        stranger.send_to(b"\x16\xfe\xfd a stranger's hello", call.told[0][0].rtp)?;
    }
    line.carries(RTP)?;
    line.hears_no_other(1)?;
    call.end()
}

/// The INVITE asks for an offer, and the ACK answers it.
pub(super) fn late_offer(stage: &Stage) -> Result<()> {
    let (phone, far) = stage.pair(6);
    let body = |peer: &Peer| description(peer.media().ip(), 1, &["m=audio 12120 RTP/AVP 0\r\n"]);
    let ask = phone.begin("INVITE", &phone.uri_of(far.user()), "", None);
    let invite = far.expect("INVITE", None)?;
    far.reply(&invite, "200 OK", "", Some((SDP, &body(far))));
    let ok = ask.sees(200, LIMIT)?;
    let near = ask.answered(&ok)?;
    phone.ack_with(&near, Some((SDP, &body(phone))));
    let away = far.side_of(&invite)?;
    let ack = far.expect("ACK", Some(&away.call_id))?;
    let call = Connected {
        peers: [phone, far],
        dialogs: [near, away],
        told: [described(&ok)?, described(&ack)?],
    };
    call.line(stage, [12120, 12120], 0)?.carries(RTP)?;
    call.end()
}

/// A reliable 183, its PRACK, an UPDATE before the answer; and once more the other way.
pub(super) fn early(stage: &Stage) -> Result<()> {
    let (phone, far) = stage.pair(7);
    early_one_way(stage, phone, far)?;
    early_one_way(stage, far, phone)
}

fn early_one_way(stage: &Stage, from: &Peer, to: &Peer) -> Result<()> {
    let body = |peer: &Peer, version| {
        description(peer.media().ip(), version, &["m=audio 12140 RTP/AVP 0\r\n"])
    };
    let offer = body(from, 1);
    let uri = from.uri_of(to.user());
    let extra = "Supported: 100rel\r\nAllow: INVITE, ACK, BYE, CANCEL, PRACK, UPDATE\r\n";
    let ask = from.begin("INVITE", &uri, extra, Some((SDP, &offer)));
    let invite = to.expect("INVITE", None)?;
    let reliable = "Require: 100rel\r\nRSeq: 77\r\n";
    to.reply(
        &invite,
        "183 Session Progress",
        reliable,
        Some((SDP, &body(to, 1))),
    );
    let (progress, mut near) = acknowledged(&ask, from, to, &invite)?;
    let mut call = Connected {
        peers: [from, to],
        told: [described(&progress)?, described(&invite)?],
        dialogs: [near.clone(), to.side_of(&invite)?],
    };
    call.line(stage, [12140, 12140], 0)?.carries(RTP)?;
    let update = from.within(&mut near, "UPDATE", "", Some((SDP, &body(from, 2))));
    let asked = to.expect("UPDATE", Some(&call.dialogs[1].call_id))?;
    to.reply(&asked, "200 OK", "", Some((SDP, &body(to, 2))));
    update.sees(200, LIMIT)?;
    to.reply(&invite, "200 OK", "", None);
    let ok = ask.sees(200, LIMIT)?;
    call.dialogs[0] = ask.answered(&ok)?;
    from.ack(&call.dialogs[0]);
    to.expect("ACK", Some(&call.dialogs[1].call_id))?;
    call.line(stage, [12140, 12140], 0)?.carries(RTP)?;
    // Its requests go on counting from the UPDATE's.
    call.dialogs[0].cseq = near.cseq;
    call.end()
}

/// The PRACK to a reliable 183 names what the other side counted (RFC 3262 section 7.2).
fn acknowledged(ask: &Ask, from: &Peer, to: &Peer, invite: &Message) -> Result<(Message, Dialog)> {
    let progress = ask.sees(183, LIMIT)?;
    let count = progress.header("RSeq").context("no RSeq")?;
    let (cseq, _) = progress.cseq().context("no CSeq")?;
    let mut near = ask.answered(&progress)?;
    let rack = format!("RAck: {count} {cseq} INVITE\r\n");
    let prack = from.within(&mut near, "PRACK", &rack, None);
    let seen = to.expect("PRACK", invite.header("Call-ID"))?;
    let (cseq, _) = invite.cseq().context("no CSeq")?;
    let rack = format!("77 {cseq} INVITE");
    ensure!(seen.header("RAck") == Some(&*rack), "{}", seen.text);
    to.reply(&seen, "200 OK", "", None);
    prack.sees(200, LIMIT)?;
    Ok((progress, near))
}

/// Another SSRC in the middle of a stream is forwarded as the first (case M3).
pub(super) fn another_source(stage: &Stage) -> Result<()> {
    let (phone, far) = stage.pair(8);
    let (mut near, mut away) = call(stage, phone, far)?;
    restarts(stage, &mut near, &away)?;
    restarts(stage, &mut away, &near)?;
    end(&mut near, &mut away)
}

fn restarts(stage: &Stage, from: &mut Party<'_>, to: &Party<'_>) -> Result<()> {
    let forwarded = || flows::forwarded_to(&stage.office, &[to.peer.media()]);
    from.rtp.stop_sending();
    let (before, heard) = (forwarded()?, to.rtp.count().received);
    from.rtp.send_to(from.dialog.peer_media)?;
    hears(to, from)?;
    from.rtp.stop_sending();
    let all = wait::until("XDP forwards all of it", LIMIT, || {
        let (now, new) = (forwarded().ok()?, to.rtp.count().received - heard);
        (now - before == new).then_some(new)
    })?;
    let lost = to.rtp.count().lost;
    ensure!(lost == 0, "{lost} lost of {all}");
    Ok(())
}
