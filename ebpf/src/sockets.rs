//! Whether somebody listens: asked on the miss path only (about 240 ns).

use aya_ebpf::{
    bindings::{
        bpf_sock_tuple, bpf_sock_tuple__bindgen_ty_1__bindgen_ty_1 as Ipv4Tuple,
        bpf_sock_tuple__bindgen_ty_1__bindgen_ty_2 as Ipv6Tuple,
    },
    helpers::generated::{bpf_sk_lookup_udp, bpf_sk_release},
};
use keepline_common::record::unmapped;

use crate::{frame::Frame, parse::Datagram};

/// `BPF_F_CURRENT_NETNS`: the namespace of the device.
const CURRENT_NETNS: u64 = u64::MAX;
const IPV4_TUPLE: u32 = size_of::<Ipv4Tuple>() as u32;
const IPV6_TUPLE: u32 = size_of::<Ipv6Tuple>() as u32;

/// Whether a UDP socket would take the datagram.
#[inline(always)]
pub fn is_bound<F: Frame>(frame: &F, datagram: &Datagram) -> bool {
    let key = &datagram.key;
    let (sport, dport) = (
        u16::from_ne_bytes(key.source_port),
        u16::from_ne_bytes(key.destination_port),
    );
    // SAFETY: a union of two structs of integers, of which all zeroes is a value.
    let mut tuple: bpf_sock_tuple = unsafe { core::mem::zeroed() };
    let size = match (unmapped(&key.source), unmapped(&key.destination)) {
        (Some(source), Some(destination)) => {
            let (saddr, daddr) = (u32::from_ne_bytes(source), u32::from_ne_bytes(destination));
            tuple.__bindgen_anon_1.ipv4 = Ipv4Tuple {
                saddr,
                daddr,
                sport,
                dport,
            };
            IPV4_TUPLE
        }
        _ => {
            let (saddr, daddr) = (words(key.source), words(key.destination));
            tuple.__bindgen_anon_1.ipv6 = Ipv6Tuple {
                saddr,
                daddr,
                sport,
                dport,
            };
            IPV6_TUPLE
        }
    };
    // SAFETY: the context is this run's, and `tuple` holds `size` initialised bytes.
    let socket =
        unsafe { bpf_sk_lookup_udp(frame.context(), &raw mut tuple, size, CURRENT_NETNS, 0) };
    if socket.is_null() {
        return false;
    }
    // SAFETY: the reference the lookup took, released once.
    unsafe { bpf_sk_release(socket.cast()) };
    true
}

#[inline(always)]
fn words([a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]: [u8; 16]) -> [u32; 4] {
    [[a, b, c, d], [e, f, g, h], [i, j, k, l], [m, n, o, p]].map(u32::from_ne_bytes)
}
