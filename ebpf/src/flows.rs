//! SIP between phones and their softswitches, routed as it is (transparent mode without hiding):
//! nothing but MAC addresses, tags and TTL changes. What was routed is stamped, and copied up;
//! so is what a softswitch said and the kernel routes in our stead.

use aya_ebpf::{
    Global,
    helpers::generated::bpf_ktime_get_ns,
    macros::map,
    maps::{Array, HashMap},
};
use keepline_common::{
    checksum::edit,
    classify::Sip,
    limits::FLOWS_DEFAULT,
    reason::Reason,
    record::{
        FlowKey, FlowWord, HOP_FORWARD, HOP_LOCAL, PARTY_PHONE, PARTY_SERVER, Plan, TalkState,
    },
};

use crate::{
    copies, events,
    frame::{Ethernet, Frame},
    parse::{self, Datagram, IPV4, IPV6, PROTOCOL_UDP, TYPE_IPV4, TYPE_IPV6},
    plans::{self, Found},
};

/// Words: flows that are not addressed to us.
#[map]
static FLOWS: HashMap<FlowKey, u64> = HashMap::with_max_entries(FLOWS_DEFAULT, 0);

/// What is stamped of each talk. The loader gives it its size.
#[map]
static TALKS: Array<TalkState> = Array::with_max_entries(1, 0);

/// Not zero where SIP goes through: `FLOWS` is looked into.
#[unsafe(no_mangle)]
static TRANSPARENT: Global<u32> = Global::new(0);

/// A flow of a talk.
pub struct Flow {
    found: Found,
    stranger: bool,
}

/// The flow of a datagram that is not addressed to us.
#[inline(always)]
pub fn find(datagram: &Datagram) -> Result<Flow, Reason> {
    if TRANSPARENT.load() == 0 {
        return Err(Reason::NoMatch);
    }
    // SAFETY: the value is one aligned word that is replaced whole.
    let word = unsafe { FLOWS.get(&datagram.key) }.copied().unwrap_or(0);
    let word = FlowWord::unpack(word).ok_or(Reason::NoMatch)?;
    let found = plans::follow(word.plan)?;
    if found.plan.key != datagram.key {
        return Err(Reason::PlanStale);
    }
    if found.plan.vlan != datagram.tags.ids {
        return Err(Reason::NoMatch);
    }
    if word.up {
        return Err(Reason::FlowUp);
    }
    Ok(Flow {
        found,
        stranger: word.stranger,
    })
}

/// Sends a datagram on as it is; any reason not to leaves it as it came. A phone's comes to our
/// socket then; a softswitch's is routed by the kernel, past us, and is seen here all the same.
#[inline(always)]
pub fn route<F: Frame>(frame: &mut F, datagram: &Datagram, flow: &Flow) -> Result<Reason, Reason> {
    let plan = flow.found.plan;
    let kind = Sip::of(parse::head(frame, datagram));
    let sent = send_on(frame, datagram, plan);
    let tag_bytes = match sent {
        Ok((_, tag_bytes)) => tag_bytes,
        Err(reason) if plan.party == PARTY_SERVER && arrives(frame, datagram, reason) => {
            datagram.tags.bytes
        }
        Err(reason) => return Err(reason),
    };
    // SAFETY: no argument, no state: it reads a clock. The only time this packet takes.
    let now = unsafe { bpf_ktime_get_ns() };
    if let Ok((hop, _)) = sent {
        plans::count_forwarded(flow.found.slot, datagram.payload_len(), now);
        plans::count_sent(hop);
    }
    if matches!(kind, Sip::Request | Sip::Response) {
        stamp(plan, kind, now);
        let l4 = datagram.l4() + tag_bytes - datagram.tags.bytes;
        let payload = (l4 + parse::UDP, datagram.payload_len());
        copies::send(frame, plan, flow.stranger, payload, now);
    }
    sent.map(|_| Reason::FlowRouted)
}

/// Whether the kernel brings a datagram to where it goes that was left to it for this reason.
#[inline(always)]
fn arrives<F: Frame>(frame: &F, datagram: &Datagram, reason: Reason) -> bool {
    match reason {
        // It asks for the neighbour meanwhile.
        Reason::HopUnresolved | Reason::HopLocal | Reason::NoDevice | Reason::NoRoom => true,
        // In fragments, if the sender lets it (RFC 791 section 3.1).
        Reason::TooBig if !datagram.v6 => match frame.read(datagram.l3() + 6) {
            Some([flags]) => flags & DONT_FRAGMENT == 0,
            None => false,
        },
        _ => false,
    }
}

/// A flag of IPv4, in the first byte of its word.
const DONT_FRAGMENT: u8 = 0x40;

/// Sends it: its hop, and the bytes of the tags that it leaves with.
#[inline(always)]
fn send_on<F: Frame>(
    frame: &mut F,
    datagram: &Datagram,
    plan: &Plan,
) -> Result<(u32, u32), Reason> {
    let (index, hop) = plans::hop(plan.group).inspect_err(|reason| {
        events::tell(datagram, *reason, plan.group);
    })?;
    match hop.kind {
        HOP_FORWARD => {}
        HOP_LOCAL => return Err(Reason::HopLocal),
        _ => return Err(Reason::HopUnresolved),
    }
    let (header, ether_type) = if datagram.v6 {
        (IPV6, TYPE_IPV6)
    } else {
        (IPV4, TYPE_IPV4)
    };
    // Whoever is one too many hops away gets nothing, by whatever way.
    if datagram.ttl <= 1 {
        return Err(Reason::TtlExpired);
    }
    if header + datagram.udp_len > hop.mtu {
        return Err(Reason::TooBig);
    }
    if !frame.redirect_to(hop.ifindex) {
        events::tell(datagram, Reason::NoDevice, hop.ifindex);
        return Err(Reason::NoDevice);
    }
    let check = frame.read(datagram.l3() + 10).ok_or(Reason::Truncated)?;
    let to = Ethernet {
        macs: &hop.macs,
        tags: &hop.tags,
        tag_bytes: match hop.tag_bytes {
            0 => 0,
            4 => 4,
            _ => 8,
        },
        ether_type,
    };
    let growth = to.tag_bytes as i32 - datagram.tags.bytes as i32;
    if !frame.dress(datagram, &to, growth) {
        return Err(Reason::NoRoom);
    }
    let l3 = parse::ETHERNET + to.tag_bytes;
    // Cannot fail: the frame holds what was read before, moved by `growth`.
    lower_ttl(frame, datagram, l3, check).ok_or(Reason::NoRoom)?;
    frame.done();
    Ok((index, to.tag_bytes))
}

/// One hop less; of an IPv4 header the checksum follows.
#[inline(always)]
fn lower_ttl<F: Frame>(frame: &mut F, datagram: &Datagram, l3: u32, check: [u8; 2]) -> Option<()> {
    let ttl = datagram.ttl - 1;
    if datagram.v6 {
        return frame.write(l3 + 7, [ttl]);
    }
    let [a, b] = edit(check)
        .without_word([datagram.ttl, PROTOCOL_UDP])
        .word([ttl, PROTOCOL_UDP])
        .checksum();
    frame.write(l3 + 8, [ttl, PROTOCOL_UDP, a, b])
}

/// Stamps what makes evidence: a phone's request, a softswitch's response.
#[inline(always)]
fn stamp(plan: &Plan, kind: Sip, now: u64) {
    let Some(talk) = TALKS.get_ptr_mut(plan.talk) else {
        return;
    };
    // SAFETY: fields of a map value, aligned words that any CPU may write last.
    unsafe {
        match (plan.party, kind) {
            (PARTY_PHONE, Sip::Request) => {
                (&raw mut (*talk).request).write_volatile(now);
                if (&raw const (*talk).unanswered).read_volatile() == 0 {
                    (&raw mut (*talk).unanswered).write_volatile(now);
                }
            }
            (PARTY_SERVER, Sip::Response) => {
                (&raw mut (*talk).response).write_volatile(now);
                (&raw mut (*talk).unanswered).write_volatile(0);
            }
            _ => {}
        }
    }
}
