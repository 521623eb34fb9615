//! What `doctor` says of the clock: expiry times outlive a restart only if it tells the truth.

#![expect(unsafe_code, reason = "one system call that fills a struct")]

use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use super::machine::Check;

/// `STA_UNSYNC` of linux/timex.h.
const UNSYNC: i32 = 0x40;
/// A clock may be corrected by this much without anybody calling it a jump.
const CORRECTION: Duration = Duration::from_secs(60);

/// Whether the clock is kept right, and whether it went back behind what the gateway wrote.
pub(super) fn checks(store: Option<&Path>) -> Vec<Check> {
    let mut checks = vec![synchronised(status())];
    checks.extend(
        store
            .and_then(newest)
            .map(|last| jump(SystemTime::now(), last)),
    );
    checks
}

/// The kernel's word on its clock, if it gives one.
fn status() -> Option<i32> {
    // SAFETY: `timex` is a struct of integers, of which zero is a value: ask, change nothing.
    let mut asked: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the struct lives through the call, which fills it.
    let state = unsafe { libc::adjtimex(&raw mut asked) };
    (state >= 0).then_some(asked.status)
}

fn synchronised(status: Option<i32>) -> Check {
    let (ok, found) = match status {
        Some(status) if status & UNSYNC == 0 => (true, "the clock is synchronised"),
        Some(_) => (false, "the clock is not synchronised"),
        None => (
            false,
            "the kernel does not say whether the clock is synchronised",
        ),
    };
    let remedy = "run an NTP client (systemd-timesyncd, chrony): expiry times of registrations \
                  outlive a restart by this clock";
    Check::better("clock", ok, found, remedy)
}

/// When the newest file of the store was written.
fn newest(store: &Path) -> Option<SystemTime> {
    let entries = fs::read_dir(store).ok()?;
    let written =
        |entry: std::io::Result<fs::DirEntry>| entry.ok()?.metadata().ok()?.modified().ok();
    entries.filter_map(written).max()
}

fn jump(now: SystemTime, last: SystemTime) -> Check {
    let behind = last.duration_since(now).unwrap_or_default();
    let ok = behind <= CORRECTION;
    let found = if ok {
        "the clock did not go back".to_owned()
    } else {
        format!(
            "the clock is {} s behind what the gateway wrote last",
            behind.as_secs()
        )
    };
    let remedy = "set the clock (chronyc makestep, timedatectl): until then registrations live \
                  longer than they should";
    Check::better("clock_jump", ok, found, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_nobody_keeps_is_told() {
        assert!(synchronised(Some(0)).ok);
        for status in [Some(UNSYNC), Some(UNSYNC | 1), None] {
            let check = synchronised(status);
            assert!(!check.ok && !check.needed && check.remedy.contains("NTP"));
        }
        assert!(status().is_some(), "the kernel answers everybody");
    }

    #[test]
    fn a_clock_behind_the_store_is_told() {
        let last = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        assert!(jump(last + Duration::from_secs(5), last).ok);
        assert!(
            jump(last - Duration::from_secs(30), last).ok,
            "a correction"
        );
        let check = jump(last - Duration::from_secs(3_600), last);
        assert!(
            !check.ok && check.found.contains("3600 s behind"),
            "{check:?}"
        );
    }
}
