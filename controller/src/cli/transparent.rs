//! What `doctor` says of transparent mode.

use super::machine::Check;

/// What is routed past the gateway, and whether it is.
pub(super) fn checks() -> [Check; 2] {
    let forwards = |path: &str| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.trim() == "1"
    };
    of(forwards("/proc/sys/net/ipv4/ip_forward"))
}

fn of(forwards: bool) -> [Check; 2] {
    let not = if forwards { "" } else { "not " };
    [
        // True of every machine: it is said so that nobody relies on the contrary.
        Check::better(
            "transparent",
            false,
            "SIP over TLS, and all else that phones send, is routed to the softswitch untouched: \
             survivability does not cover it",
            "let phones speak UDP or TCP, or use the mode outbound-proxy for those over TLS",
        ),
        Check::better(
            "forwarding",
            forwards,
            format!("this machine does {not}forward IPv4: what is not SIP {not}passes it"),
            "sysctl -w net.ipv4.ip_forward=1: phones use this machine as their router",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn em20_doctor_says_what_survivability_does_not_cover() {
        let [tls, forwarding] = of(true);
        assert!(!tls.ok && !tls.needed);
        assert!(tls.found.contains("TLS") && tls.found.contains("survivability"));
        assert!(forwarding.ok && forwarding.remedy.is_empty());
        let [_, forwarding] = of(false);
        assert!(!forwarding.ok && forwarding.remedy.contains("ip_forward=1"));
    }
}
