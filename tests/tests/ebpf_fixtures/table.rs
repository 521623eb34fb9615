//! What a row is, and the frames that rows are made of.

use keepline_common::reason::Reason;
use keepline_tests::fixture::packet::{OURS, THEIRS, Udp};

pub(crate) const LAN: &str = "10.99.0.1";
pub(crate) const LAN6: &str = "2001:db8::1";
pub(crate) const RTP: &[u8] = &[0x80, 0, 0, 1, 0, 0, 0, 160, 1, 2, 3, 4, 9, 9, 9, 9];
pub(crate) const CTAG: u16 = 0x8100;
pub(crate) const STAG: u16 = 0x88a8;

pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) frame: Vec<u8>,
    pub(crate) reason: Reason,
    /// `None`: as it came in.
    pub(crate) out: Option<Vec<u8>>,
    /// Headroom taken by metadata, in XDP.
    pub(crate) reserved: u32,
    /// What becomes of it in TC; `None`: the same.
    pub(crate) in_tc: Option<Otherwise>,
    /// Why it cannot be run in TC, if it cannot.
    pub(crate) only_xdp: Option<&'static str>,
}

/// A row that cannot be the same in TC.
pub(crate) struct Otherwise {
    /// Why.
    pub(crate) because: &'static str,
    pub(crate) reason: Reason,
    pub(crate) out: Vec<u8>,
}

pub(crate) fn row(name: &'static str, frame: Vec<u8>, reason: Reason) -> Row {
    Row {
        name,
        frame,
        reason,
        out: None,
        reserved: 0,
        in_tc: None,
        only_xdp: None,
    }
}

pub(crate) fn becomes(name: &'static str, frame: Vec<u8>, reason: Reason, out: Vec<u8>) -> Row {
    Row {
        out: Some(out),
        ..row(name, frame, reason)
    }
}

/// A frame as the gateway forwards it.
pub(crate) fn forwarded(from: &str, to: &str, payload: &[u8]) -> Udp {
    let macs = [[2, 0, 0, 0, 0, 4], [2, 0, 0, 0, 0, 3]];
    Udp {
        macs,
        ttl: 63,
        ..Udp::new(from, to, payload)
    }
}

/// A frame as the gateway answers it.
pub(crate) fn answered(from: &str, to: &str, payload: &[u8]) -> Udp {
    Udp {
        macs: [THEIRS, OURS],
        id: [0, 0x4000],
        ..Udp::new(from, to, payload)
    }
}

pub(crate) fn edited(udp: &Udp, edit: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = udp.frame();
    edit(&mut frame);
    frame
}

pub(crate) fn phone(port: u16, payload: &[u8]) -> Udp {
    Udp::new("10.99.0.20:4000", &local(port), payload)
}

pub(crate) fn phone6(port: u16, payload: &[u8]) -> Udp {
    Udp::new("[2001:db8::20]:4000", &local6(port), payload)
}

pub(crate) fn local(port: u16) -> String {
    format!("{LAN}:{port}")
}

pub(crate) fn local6(port: u16) -> String {
    format!("[{LAN6}]:{port}")
}
