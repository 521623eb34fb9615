//! What `doctor` says of one interface: XDP, offloads, MTU.

use super::machine::Check;
use crate::{
    config::model::{Interface, XdpMode},
    fastpath::{self, Inspection},
};

/// Bytes of the smallest packet that every path must carry (RFC 8200 section 5).
const MTU_LEAST: u32 = 1_280;

/// What is to say; nothing of an interface that does not exist, which is said elsewhere.
pub(super) fn checks(interface: &Interface) -> Vec<Check> {
    match fastpath::inspect(&interface.name) {
        Ok(seen) => of(&interface.name, interface.xdp, &seen),
        Err(_) => Vec::new(),
    }
}

fn of(name: &str, xdp: XdpMode, seen: &Inspection) -> Vec<Check> {
    let mut checks = vec![mtu(name, seen.mtu)];
    if xdp == XdpMode::Off {
        return checks;
    }
    checks.push(native(name, xdp, seen));
    checks.extend(target(name, seen));
    checks.extend(offloads(name, seen));
    checks
}

fn mtu(name: &str, mtu: u32) -> Check {
    Check::better(
        "mtu",
        mtu >= MTU_LEAST,
        format!("{name} has an MTU of {mtu}"),
        &format!("ip link set dev {name} mtu 1500: media larger than the MTU leaves the fast path"),
    )
}

fn native(name: &str, xdp: XdpMode, seen: &Inspection) -> Check {
    let (ok, found) = match seen.features {
        Some(features) if features.native => (true, "runs XDP natively"),
        Some(_) => (false, "cannot run XDP natively"),
        None => (true, "may run XDP natively: this kernel does not tell"),
    };
    let remedy = "generic XDP is used, half as fast; use a NIC whose driver has XDP";
    let check = Check::better("native_xdp", ok, format!("{name} {found}"), remedy);
    Check {
        // Asked for by name, it is an error to go without.
        needed: xdp == XdpMode::Native,
        ..check
    }
}

/// Whether frames that XDP sends to it would leave (case X13). Drivers other than veth become a
/// target by the program they are given, so they are asked once they carry one.
fn target(name: &str, seen: &Inspection) -> Option<Check> {
    let features = seen.features?;
    if !features.native || !seen.is_veth && seen.carries.is_none() {
        return None;
    }
    // Where the other end is in reach, the gateway sees to it when it starts.
    let ok = features.target || seen.is_veth && !seen.peer_elsewhere && seen.carries.is_none();
    let found = if ok {
        format!("{name} takes frames from XDP")
    } else {
        format!("{name} loses frames from XDP: its other end has no XDP program")
    };
    let remedy = format!(
        "put an XDP program on the other end of {name} (a bare PASS will do), or set xdp = \
         \"generic\" for it"
    );
    Some(Check::better("xdp_target", ok, found, &remedy))
}

fn offloads(name: &str, seen: &Inspection) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut offload = |check, bad: Option<bool>, on: &str, off: &str, remedy: String| {
        if let Some(bad) = bad {
            let found = format!("{name} {}", if bad { on } else { off });
            checks.push(Check::better(check, !bad, found, &remedy));
        }
    };
    offload(
        "vlan_offload",
        seen.strips_tags,
        "strips VLAN tags before XDP sees them",
        "leaves VLAN tags in frames",
        format!("ethtool -K {name} rxvlan off; the gateway does it when it starts"),
    );
    offload(
        "lro",
        seen.lro,
        "merges packets (LRO)",
        "does not merge packets (LRO)",
        format!("ethtool -K {name} lro off: XDP needs packets as they were sent"),
    );
    // Only between veths do partial checksums reach a program.
    offload(
        "tx_checksum",
        seen.tx_checksum.filter(|_| seen.is_veth),
        "leaves checksums of what this machine sends to a device that computes none",
        "sends whole checksums",
        format!("ethtool -K {name} tx off, and the same on its other end"),
    );
    if let Some(gro) = seen.gro {
        let found = format!("{name} {} GRO", if gro { "has" } else { "has no" });
        checks.push(Check::better("gro", true, found, ""));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fastpath::Features;

    fn well() -> Inspection {
        Inspection {
            mtu: 1_500,
            features: Some(Features {
                native: true,
                target: true,
            }),
            peer_elsewhere: true,
            is_veth: true,
            carries: None,
            strips_tags: Some(false),
            tx_checksum: Some(false),
            gro: Some(true),
            lro: Some(false),
        }
    }

    /// The checks that are not as they should be.
    fn wrong(xdp: XdpMode, seen: &Inspection) -> Vec<&'static str> {
        let checks = of("wan0", xdp, seen);
        for check in &checks {
            assert!(check.found.contains("wan0"), "{check:?}");
            assert_eq!(check.ok, check.remedy.is_empty(), "{check:?}");
        }
        let wrong = checks.iter().filter(|check| !check.ok);
        wrong.map(|check| check.check).collect()
    }

    #[test]
    fn what_is_well_has_no_remedy() {
        assert_eq!(wrong(XdpMode::Auto, &well()), [""; 0]);
    }

    #[test]
    fn each_fault_is_told_by_its_name() {
        let no_xdp = Some(Features {
            native: false,
            target: false,
        });
        let bare = Some(Features {
            native: true,
            target: false,
        });
        let faults: [(&str, Inspection); 6] = [
            (
                "mtu",
                Inspection {
                    mtu: 1_000,
                    ..well()
                },
            ),
            (
                "native_xdp",
                Inspection {
                    features: no_xdp,
                    ..well()
                },
            ),
            (
                "xdp_target",
                Inspection {
                    features: bare,
                    ..well()
                },
            ),
            (
                "vlan_offload",
                Inspection {
                    strips_tags: Some(true),
                    ..well()
                },
            ),
            (
                "lro",
                Inspection {
                    lro: Some(true),
                    ..well()
                },
            ),
            (
                "tx_checksum",
                Inspection {
                    tx_checksum: Some(true),
                    ..well()
                },
            ),
        ];
        for (name, seen) in faults {
            assert_eq!(wrong(XdpMode::Auto, &seen), [name]);
        }
    }

    #[test]
    fn case_x13_a_bare_end_that_the_gateway_reaches_is_its_own_business() {
        let seen = Inspection {
            features: Some(Features {
                native: true,
                target: false,
            }),
            peer_elsewhere: false,
            ..well()
        };
        assert_eq!(wrong(XdpMode::Auto, &seen), [""; 0]);
    }

    #[test]
    fn native_by_name_is_needed_and_off_asks_nothing_of_xdp() {
        let seen = Inspection {
            features: Some(Features {
                native: false,
                target: false,
            }),
            ..well()
        };
        assert!(native("wan0", XdpMode::Native, &seen).needed);
        assert!(!native("wan0", XdpMode::Auto, &seen).needed);
        assert_eq!(of("wan0", XdpMode::Off, &seen).len(), 1);
    }
}
