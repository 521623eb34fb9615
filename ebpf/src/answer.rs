//! STUN Binding requests on listeners, answered to where they came from.

use keepline_common::{
    checksum::Sum,
    gate,
    reason::Reason,
    record::{Address, Listener, unmapped},
    stun::{self, Answer, Form, Refusal, Words},
};

use crate::{
    forward::{write_ipv4, write_ipv6},
    frame::Frame,
    listeners, media,
    parse::{Datagram, PROTOCOL_UDP, UDP},
};

/// TTL of what we originate.
const TTL: u8 = 64;

/// Answers a request as its path's gate says; everything else on a listener goes up.
#[inline(always)]
pub fn answer<F: Frame>(
    frame: &mut F,
    datagram: &Datagram,
    listener: &Listener,
) -> Result<Reason, Reason> {
    let payload = Payload {
        frame: &*frame,
        at: datagram.payload(),
    };
    let request = stun::parse(&payload, datagram.payload_len()).map_err(reason_of)?;
    if !may_ask(&datagram.key.source, datagram.key.source_port) {
        return Err(Reason::StunBadSource);
    }
    let (answer, reason) = match listeners::gate(datagram, listener) {
        gate::Answer::Silent => return Ok(Reason::StunSilenced),
        gate::Answer::Serving => {
            let (address, port) = (&datagram.key.source, datagram.key.source_port);
            (
                Answer::success(&request, address, port),
                Reason::StunAnswered,
            )
        }
        gate::Answer::Error => (Answer::error_500(&request), Reason::StunRefused),
    };
    reply(frame, datagram, &answer)?;
    Ok(reason)
}

#[inline(always)]
fn reason_of(refusal: Refusal) -> Reason {
    match refusal {
        Refusal::NotStun => Reason::ListenerPassed,
        Refusal::Classic => Reason::StunClassic,
        Refusal::Malformed => Reason::StunMalformed,
        Refusal::NotRequest => Reason::StunOther,
        Refusal::Authenticated => Reason::StunAuthenticated,
        Refusal::UnknownRequired => Reason::StunUnknownRequired,
        Refusal::TooLong => Reason::StunLong,
        Refusal::BadFingerprint => Reason::StunBadFingerprint,
    }
}

/// Whether a request from there may be answered: not from nowhere, a group, this host or one of
/// our own addresses, which would leave on the wire (case X12).
#[inline(always)]
fn may_ask(address: &Address, port: [u8; 2]) -> bool {
    let addressable = match unmapped(address) {
        Some([first, ..]) => !matches!(first, 0 | 127 | 224..),
        None => address[0] != 0xff && address[..15] != [0; 15],
    };
    addressable && port != [0; 2] && !media::is_ours(address)
}

/// The frame's payload as STUN reads it.
struct Payload<'a, F> {
    frame: &'a F,
    at: u32,
}

impl<F: Frame> Words for Payload<'_, F> {
    #[inline(always)]
    fn word(&self, at: u32) -> Option<[u8; 4]> {
        self.frame.read(self.at + at)
    }
}

/// Turns the frame round with the answer in it.
#[inline(always)]
fn reply<F: Frame>(frame: &mut F, datagram: &Datagram, answer: &Answer) -> Result<(), Reason> {
    let growth = (datagram.payload() + answer.len()) as i32 - frame.len() as i32;
    frame.turn_round(datagram, growth)?;
    // Cannot fail: the frame has exactly the length of what is written.
    write_ip(frame, datagram, UDP + answer.len())
        .and_then(|()| write_udp(frame, datagram, answer))
        .ok_or(Reason::NoRoom)
}

#[inline(always)]
fn write_ip<F: Frame>(frame: &mut F, datagram: &Datagram, payload: u32) -> Option<()> {
    let (from, to) = (&datagram.key.destination, &datagram.key.source);
    match (datagram.v6, unmapped(from), unmapped(to)) {
        (false, Some(from), Some(to)) => {
            write_ipv4(frame, datagram.l3(), datagram.tos, TTL, payload, from, to)
        }
        _ => write_ipv6(frame, datagram.l3(), datagram.tos, TTL, payload, from, to),
    }
}

/// The checksum is summed anew, never edited: what a local socket sent may carry a partial one
/// (case X6).
#[inline(always)]
fn write_udp<F: Frame>(frame: &mut F, datagram: &Datagram, answer: &Answer) -> Option<()> {
    let key = &datagram.key;
    let [a, b] = key.destination_port;
    let [c, d] = key.source_port;
    let [l0, l1] = ((UDP + answer.len()) as u16).to_be_bytes();
    let pseudo = Sum::new()
        .address(&key.source)
        .address(&key.destination)
        .word([0, PROTOCOL_UDP])
        .word([l0, l1]);
    let sum = pseudo.dword([a, b, c, d]).word([l0, l1]);
    let at = datagram.payload();
    match answer.form() {
        Form::Error => frame.write_words(at, answer.words::<7>())?,
        Form::Ipv4 => frame.write_words(at, answer.words::<8>())?,
        Form::Ipv6 => frame.write_words(at, answer.words::<11>())?,
    }
    if let Some(seal) = answer.fingerprint() {
        frame.write_words(at + answer.form().words() * 4, seal)?;
    }
    let [c0, c1] = answer.add_to(sum).udp_checksum();
    frame.write_udp(datagram.l4(), [a, b, c, d, l0, l1, c0, c1], pseudo)
}
