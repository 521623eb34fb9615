//! What softswitches send to phones past the data path is routed by the kernel, which looks up
//! the way back first: by our rules that is a local route, and what seems to come from ourselves
//! is dropped (RFC 1812 section 5.3.7), unless the interface accepts it (`accept_local` of
//! ip-sysctl).

use std::{fs, io, path::PathBuf};

use keepline_engine::{conf::Conf, net::Side};

/// Interfaces that accept such packets until [`Accepting::end`].
#[derive(Debug, Default)]
pub(super) struct Accepting {
    /// Settings that were another, and what they were.
    changed: Vec<(PathBuf, String)>,
}

impl Accepting {
    /// Begins on every WAN interface, where SIP goes through as it is.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn begin(conf: &Conf) -> io::Result<Self> {
        let mut accepting = Self::default();
        let wan = conf.links_facing(Side::Wan).map(|(_, link)| &link.name);
        for name in wan.filter(|_| !conf.hide_topology) {
            let path = setting(name, "accept_local");
            let before = fs::read_to_string(&path)?;
            if before.trim() != "1" {
                fs::write(&path, "1")?;
                accepting.changed.push((path, before));
            }
            if is_strict(name) {
                tracing::warn!(
                    interface = name,
                    "rp_filter is strict: what the kernel routes from here to phones, media too, \
                     is lost; write net.ipv4.conf.{name}.rp_filter = 2, and the same for `all`"
                );
            }
        }
        Ok(accepting)
    }

    /// Puts the settings back.
    pub(super) fn end(self) {
        for (path, before) in self.changed {
            // An interface that is gone has no setting.
            let _ = fs::write(path, before);
        }
    }
}

fn setting(interface: &str, name: &str) -> PathBuf {
    ["/proc/sys/net/ipv4/conf", interface, name]
        .iter()
        .collect()
}

/// The stricter of what is set for the interface and for all holds.
fn is_strict(interface: &str) -> bool {
    let read = |of: &str| fs::read_to_string(setting(of, "rp_filter")).unwrap_or_default();
    let set = [read(interface), read("all")];
    let highest = set.iter().filter_map(|text| text.trim().parse::<u8>().ok());
    highest.max() == Some(1)
}
