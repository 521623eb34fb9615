//! Why a packet got its verdict. Every reason has one verdict and one counter per interface.

/// What happens to a packet.
#[must_use = "a verdict that nobody returns to the kernel is a packet lost"]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Answered to where it came from.
    Tx,
    /// Rewritten and sent out of another device.
    Redirect,
    /// Left to the kernel, unmodified.
    Pass,
    /// Absorbed.
    Drop,
}

impl Verdict {
    /// Its name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tx => "tx",
            Self::Redirect => "redirect",
            Self::Pass => "pass",
            Self::Drop => "drop",
        }
    }
}

/// Writes the enum, the count, the names and the verdicts from one table, so that none is
/// forgotten.
macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $verdict:ident, $name:literal;)+) => {
        /// Why a packet got its verdict; the name in metrics is the snake_case of the variant.
        #[must_use = "a reason that is not counted never happened"]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Reason {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Reason {
            /// All, in the order of their counters.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The verdict that goes with it.
            #[inline]
            pub const fn verdict(self) -> Verdict {
                match self {
                    $(Self::$variant => Verdict::$verdict,)+
                }
            }

            /// Its name in metrics, JSON and documents.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// What it means, for people.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($doc),+),)+
                }
            }
        }
    };
}

reasons! {
    /// A datagram of an installed flow, rewritten and sent on.
    FlowForwarded = Redirect, "flow_forwarded";
    /// A STUN Binding request answered with success.
    StunAnswered = Tx, "stun_answered";
    /// A STUN Binding request answered with error 500: its path is down.
    StunRefused = Tx, "stun_refused";
    /// A STUN Binding request met with silence: its path is down.
    StunSilenced = Drop, "stun_silenced";
    /// A STUN request whose FINGERPRINT is wrong.
    StunBadFingerprint = Drop, "stun_bad_fingerprint";
    /// An empty keepalive datagram on a listener.
    KeepaliveEmpty = Drop, "keepalive_empty";
    /// A CRLF keepalive on a listener.
    KeepaliveCrlf = Drop, "keepalive_crlf";
    /// A double CRLF keepalive on a listener.
    KeepaliveDoubleCrlf = Drop, "keepalive_double_crlf";
    /// A keepalive of four zero bytes on a listener.
    KeepaliveZeros = Drop, "keepalive_zeros";
    /// For a media port that has neither a usable plan nor a socket.
    MediaUnbound = Drop, "media_unbound";
    /// A frame too short for the headers it announces.
    Truncated = Pass, "truncated";
    /// Three or more VLAN tags.
    VlanDeep = Pass, "vlan_deep";
    /// Neither IPv4 nor IPv6.
    NotIp = Pass, "not_ip";
    /// A version or length that contradicts the frame.
    IpMalformed = Pass, "ip_malformed";
    /// An IPv4 header with options.
    Ipv4Options = Pass, "ipv4_options";
    /// An IPv6 extension header other than a fragment's.
    Ipv6Extension = Pass, "ipv6_extension";
    /// A fragment, the first one included.
    Fragment = Pass, "fragment";
    /// A protocol other than UDP.
    NotUdp = Pass, "not_udp";
    /// A UDP length that is not the IP payload's length.
    UdpLength = Pass, "udp_length";
    /// Sent to a group or broadcast address, of Ethernet or IP.
    NotUnicast = Pass, "not_unicast";
    /// Nothing of ours: no listener, media port or flow.
    NoMatch = Pass, "no_match";
    /// On a listener and neither STUN nor a keepalive: SIP.
    ListenerPassed = Pass, "listener_passed";
    /// On a listener, STUN by its cookie, and badly formed.
    StunMalformed = Pass, "stun_malformed";
    /// On a listener, STUN of RFC 3489, without the cookie.
    StunClassic = Pass, "stun_classic";
    /// On a listener, a STUN response, indication or other method.
    StunOther = Pass, "stun_other";
    /// On a listener, a STUN request with credentials.
    StunAuthenticated = Pass, "stun_authenticated";
    /// On a listener, a STUN request with unknown comprehension-required attributes.
    StunUnknownRequired = Pass, "stun_unknown_required";
    /// On a listener, a STUN request with too many attributes, or too long for its FINGERPRINT.
    StunLong = Pass, "stun_long";
    /// On a listener, a STUN request that claims one of our addresses or no unicast one.
    StunBadSource = Pass, "stun_bad_source";
    /// For a media port in use that has no plan.
    MediaUnplanned = Pass, "media_unplanned";
    /// For a media port or flow whose plan was replaced while the packet was looked up.
    PlanStale = Pass, "plan_stale";
    /// For a media port, from another source than its plan's.
    MediaForeignSource = Pass, "media_foreign_source";
    /// For a media port, by another interface or VLAN than its plan's.
    MediaWrongIngress = Pass, "media_wrong_ingress";
    /// For a media port, STUN.
    MediaStun = Pass, "media_stun";
    /// For a media port, neither RTP, RTCP, DTLS nor STUN.
    MediaOther = Pass, "media_other";
    /// The flow's hop has no neighbour yet.
    HopUnresolved = Pass, "hop_unresolved";
    /// The flow's destination is this machine.
    HopLocal = Pass, "hop_local";
    /// The flow's destination and its hop are of different families.
    HopFamily = Pass, "hop_family";
    /// Larger than the hop's MTU; in TC also several datagrams in one piece (GRO).
    TooBig = Pass, "too_big";
    /// TTL or hop limit used up.
    TtlExpired = Pass, "ttl_expired";
    /// No UDP checksum where one is needed: IPv6, or a flow that becomes IPv6.
    UdpUnchecked = Pass, "udp_unchecked";
    /// The hop's device is not among those that can be redirected to.
    NoDevice = Pass, "no_device";
    /// The frame could not grow: no room before or behind it.
    NoRoom = Pass, "no_room";
    /// A frame of a segment, joined on to its tunnel or its client side.
    SegmentForwarded = Redirect, "segment_forwarded";
    /// On a segment's interface, for the gateway itself: its own MAC address, or the answer to its
    /// own probe.
    SegmentLocal = Pass, "segment_local";
    /// Of a tunnel that its segment is not joined to.
    SegmentInactive = Pass, "segment_inactive";
    /// On a segment that is joined to no tunnel.
    SegmentUnjoined = Pass, "segment_unjoined";
    /// On an interface that no segment has any more.
    SegmentUnknown = Pass, "segment_unknown";
    /// On a segment, and would leave by the interface it came from.
    SegmentLoop = Drop, "segment_loop";
    /// SIP between a phone and its softswitch, sent on as it is.
    FlowRouted = Redirect, "flow_routed";
    /// SIP of a phone whose talk with its softswitch is up: left to the gateway's socket.
    FlowUp = Pass, "flow_up";
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, format, string::String};

    use super::*;

    fn snake_case(variant: &str) -> String {
        let mut out = String::new();
        for (at, c) in variant.char_indices() {
            if c.is_ascii_uppercase() && at > 0 {
                out.push('_');
            }
            out.push(c.to_ascii_lowercase());
        }
        out
    }

    #[test]
    fn names_are_the_snake_case_of_their_variants_and_unique() {
        let mut seen = HashSet::new();
        for reason in Reason::ALL {
            assert_eq!(reason.name(), snake_case(&format!("{reason:?}")));
            assert!(seen.insert(reason.name()), "{} twice", reason.name());
        }
    }

    #[test]
    fn the_order_of_all_is_the_number_of_the_counter() {
        for (index, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, index);
        }
    }
}
