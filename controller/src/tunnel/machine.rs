//! Who this machine is, for the identity of probes.

use std::fs;

use keepline_engine::tunnel::identity::Identity;

/// The identity that probes of this tunnel use here. Without `/etc/machine-id` (machine-id(5))
/// the boot id stands in: the identity then changes at each boot.
#[must_use]
pub fn identity(tunnel: &str) -> Identity {
    let read = |path| fs::read(path).ok().filter(|id| !id.is_empty());
    let id = read("/etc/machine-id")
        .or_else(|| read("/var/lib/dbus/machine-id"))
        .or_else(|| read("/proc/sys/kernel/random/boot_id"))
        .unwrap_or_default();
    Identity::new(id.trim_ascii(), tunnel)
}
