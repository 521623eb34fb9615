//! The XDP program and its twin in TC: the whole policy is [`decide`], for both; everything it
//! calls is one concern a file.
//!
//! A packet is answered, forwarded or absorbed only when it is understood whole; everything
//! else passes to the kernel, unmodified. Nothing is written before everything is decided.

#![no_std]
#![no_main]
#![feature(asm_experimental_arch, core_intrinsics)]
#![allow(
    internal_features,
    reason = "this target's `core` has no atomic fetch_add: see atomic.rs"
)]

mod answer;
mod atomic;
mod bytes;
mod copies;
mod events;
mod flows;
mod forward;
mod frame;
mod listeners;
mod media;
mod parse;
mod plans;
mod segment;
mod sockets;
mod tc;
mod xdp;

use aya_ebpf::{
    bindings::xdp_action,
    helpers::generated::bpf_redirect,
    macros::{classifier, xdp},
    programs::{TcContext, XdpContext},
};
use keepline_common::{
    classify::Keepalive,
    reason::{Reason, Verdict},
};

use crate::{frame::Frame, tc::SkbFrame, xdp::XdpFrame};

/// The program on every interface.
#[xdp(frags)] // jumbo frames: attaches at any MTU (case X15)
pub fn keepline(ctx: XdpContext) -> u32 {
    let mut frame = XdpFrame::new(ctx);
    let (Ok(reason) | Err(reason)) = decide(&mut frame);
    events::count(frame.ingress(), reason);
    match reason.verdict() {
        Verdict::Tx => xdp_action::XDP_TX,
        Verdict::Redirect => xdp_action::XDP_REDIRECT,
        Verdict::Pass => xdp_action::XDP_PASS,
        Verdict::Drop => xdp_action::XDP_DROP,
    }
}

/// Passes everything: for the other end of a veth, which else takes no frames from us.
#[xdp(frags)]
pub fn keepline_stub(_ctx: XdpContext) -> u32 {
    xdp_action::XDP_PASS
}

/// The program on every interface of a segment, at TC ingress.
#[classifier]
pub fn keepline_segment(ctx: TcContext) -> i32 {
    let mut frame = SkbFrame::new(&ctx);
    let reason = segment::run(&mut frame);
    events::count(frame.ingress(), reason);
    verdict(&frame, reason)
}

/// The policy at TC ingress: the twin of the XDP program.
#[classifier]
pub fn keepline_tc(ctx: TcContext) -> i32 {
    let mut frame = SkbFrame::new(&ctx);
    let reason = if frame.is_aggregate() {
        Reason::TooBig
    } else {
        let (Ok(reason) | Err(reason)) = decide(&mut frame);
        reason
    };
    events::count(frame.ingress(), reason);
    verdict(&frame, reason)
}

/// What TC wants to know.
#[inline(always)]
fn verdict(frame: &SkbFrame, reason: Reason) -> i32 {
    /// `TCX_NEXT`, and `TC_ACT_UNSPEC` of clsact: whoever comes next decides.
    const NEXT: i32 = -1;
    /// `TC_ACT_SHOT`.
    const SHOT: i32 = 2;
    match reason.verdict() {
        // SAFETY: no pointer; a device that is gone by now drops the frame.
        Verdict::Redirect | Verdict::Tx => unsafe { bpf_redirect(frame.out(), 0) as i32 },
        Verdict::Drop => SHOT,
        Verdict::Pass if frame.is_torn() => SHOT,
        Verdict::Pass => NEXT,
    }
}

/// The policy. `Ok`: dealt with here. `Err`: why it was left to others, or to nobody.
#[inline(always)]
fn decide<F: Frame>(frame: &mut F) -> Result<Reason, Reason> {
    let datagram = parse::parse(frame)?;
    if let Some(index) = media::index(&datagram) {
        let plan = media::plan(frame, &datagram, index)?;
        return forward::forward(frame, &datagram, &plan);
    }
    if let Some(listener) = listeners::find(&datagram) {
        return match Keepalive::of(datagram.payload_len(), parse::head(frame, &datagram)) {
            Some(Keepalive::Empty) => Ok(Reason::KeepaliveEmpty),
            Some(Keepalive::Crlf) => Ok(Reason::KeepaliveCrlf),
            Some(Keepalive::DoubleCrlf) => Ok(Reason::KeepaliveDoubleCrlf),
            Some(Keepalive::Zeros) => Ok(Reason::KeepaliveZeros),
            None => answer::answer(frame, &datagram, &listener),
        };
    }
    let flow = flows::find(&datagram)?;
    flows::route(frame, &datagram, &flow)
}

#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

/// What the kernel asks for before it offers its GPL-only helpers.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
