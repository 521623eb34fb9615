//! Keys that take one of a few words.

use keepline_engine::{net::Side, tunnel::Detect};

use super::{
    fault::Fault,
    model::{
        Accept, Failback, Ice, Learn, Mode, OnPathDown, PathUse, Prefer, ProbePolicy, Role, Stun,
        SurvivabilityPolicy, XdpMode,
    },
    value::{Node, Value, quoted, read_text},
};
use crate::tls::ClientCertificates;

/// `interface.role`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InterfaceRole {
    Lan,
    Wan,
    Tunnel,
}

impl InterfaceRole {
    pub(super) fn side(self) -> Side {
        match self {
            Self::Lan => Side::Lan,
            Self::Wan | Self::Tunnel => Side::Wan,
        }
    }

    pub(super) fn xdp(self) -> XdpMode {
        match self {
            Self::Lan | Self::Wan => XdpMode::Auto,
            Self::Tunnel => XdpMode::Off,
        }
    }
}

/// Implements [`Value`] for an enum by its words; `later` are words of the interface that this
/// version does not serve yet.
macro_rules! keywords {
    ($type:ident { $($word:literal => $variant:ident),+ $(,)? } later [$($later:literal),*]) => {
        impl Value for $type {
            fn read(node: &Node<'_>, faults: &mut Vec<Fault>) -> Option<Self> {
                read_text(node, faults, concat!("one of", $(" \"", $word, "\""),+), |text| {
                    const WORDS: &[&str] = &[$($word),+];
                    match text {
                        $($word => Ok(Self::$variant),)+
                        $($later => Err(later(text, WORDS)),)*
                        _ => Err(unknown(text, WORDS)),
                    }
                })
            }

            fn show(&self) -> String {
                quoted(match self { $(Self::$variant => $word),+ })
            }
        }
    };
}

fn later(text: &str, words: &[&str]) -> (String, String) {
    (
        format!("`{text}` is not supported in this version"),
        choices(words),
    )
}

fn unknown(text: &str, words: &[&str]) -> (String, String) {
    (
        format!("`{text}` is not a value of this key"),
        choices(words),
    )
}

fn choices(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    format!("write {}", quoted.join(" or "))
}

keywords!(Role { "standalone" => Standalone } later ["edge", "core"]);
keywords!(Mode {
    "normal" => Normal, "outbound-proxy" => OutboundProxy, "transparent" => Transparent,
} later []);
keywords!(InterfaceRole { "lan" => Lan, "wan" => Wan, "tunnel" => Tunnel } later []);
keywords!(Detect { "classic" => Classic, "fast" => Fast } later []);
keywords!(XdpMode {
    "auto" => Auto, "native" => Native, "generic" => Generic, "off" => Off,
} later []);
keywords!(Accept { "peers" => Peers, "clients" => Clients } later []);
keywords!(ProbePolicy {
    "off" => Off, "inactive" => Inactive, "idle" => Idle, "all" => All,
} later []);
keywords!(Prefer { "link" => Link, "server" => Server } later []);
keywords!(Failback {
    "registration" => Registration, "immediate" => Immediate, "manual" => Manual,
} later []);
keywords!(SurvivabilityPolicy {
    "off" => Off, "known" => Known, "open-lan" => OpenLan,
} later ["local-users"]);
keywords!(PathUse { "auto" => Auto, "on" => On, "off" => Off } later []);
keywords!(Stun { "auto" => Auto, "on" => On, "off" => Off } later []);
keywords!(OnPathDown { "silent" => Silent, "error" => Error } later []);
keywords!(Learn { "once" => Once, "never" => Never } later []);
keywords!(ClientCertificates {
    "off" => Off, "optional" => Optional, "required" => Required,
} later []);
keywords!(Ice { "strip" => Strip, "relay" => Relay, "pass" => Pass } later []);
