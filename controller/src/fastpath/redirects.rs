//! Frames that were handed to a device and never left it. No counter of the kernel tells of them
//! without tracing: so what the program handed over is compared with what the device says it
//! sent (case X13).

use std::collections::HashMap;

/// Frames handed over before a device is judged.
const LEAST: u64 = 50;

/// Who counted frames that were handed to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Counter {
    /// A hop, by its index.
    Hop(u32),
    /// Answers that went back by the device of this index.
    Answers(u32),
}

/// One count: who counted, for which device, how many until now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handed {
    /// Who counted.
    pub by: Counter,
    /// Index of the device.
    pub device: u32,
    /// Frames since the counter began.
    pub frames: u64,
}

/// What a device says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// Frames it sent, ours and others.
    pub frames: u64,
    /// Its driver is known to count frames of XDP among them.
    pub counts_xdp: bool,
}

/// Compares over time. The caller looks every second or so.
#[derive(Debug, Default)]
pub struct Watch {
    counters: HashMap<Counter, u64>,
    devices: HashMap<u32, Window>,
}

#[derive(Debug, Default)]
struct Window {
    handed: u64,
    since: u64,
    /// It was once seen to count what was handed to it.
    follows: bool,
    losing: Option<String>,
}

impl Watch {
    /// Takes what was counted until now; `sent` is asked once for each device.
    pub fn look(&mut self, handed: &[Handed], sent: impl Fn(u32) -> Option<Sent>) {
        for count in handed {
            let before = self.counters.insert(count.by, count.frames);
            // What was counted before the first look is no news.
            let new = before.map_or(0, |before| count.frames.saturating_sub(before));
            self.devices.entry(count.device).or_default().handed += new;
        }
        let known = |device: &u32| handed.iter().any(|count| count.device == *device);
        self.devices.retain(|device, _| known(device));
        let counter = |by: &Counter| handed.iter().any(|count| count.by == *by);
        self.counters.retain(|by, _| counter(by));
        for (device, window) in &mut self.devices {
            if let Some(sent) = sent(*device) {
                window.judge(sent);
            }
        }
    }

    /// What is wrong with a device, in one sentence.
    #[must_use]
    pub fn losing(&self, device: u32) -> Option<&str> {
        self.devices.get(&device)?.losing.as_deref()
    }
}

impl Window {
    fn judge(&mut self, sent: Sent) {
        let Some(left) = sent
            .frames
            .checked_sub(self.since)
            .filter(|_| self.since > 0)
        else {
            // The first look, or the device's counter began anew.
            (self.since, self.handed) = (sent.frames.max(1), 0);
            return;
        };
        if self.handed < LEAST {
            return;
        }
        // Frames of other senders are among those that left, and some are on their way.
        let lost = left < self.handed / 2;
        self.follows |= !lost;
        self.losing = (lost && (sent.counts_xdp || self.follows)).then(|| {
            format!(
                "{} frames were handed to the device, which sent {left}: does its other end \
                 carry an XDP program?",
                self.handed
            )
        });
        (self.since, self.handed) = (sent.frames.max(1), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(watch: &mut Watch, handed: u64, sent: u64, counts_xdp: bool) -> bool {
        let count = Handed {
            by: Counter::Hop(3),
            device: 7,
            frames: handed,
        };
        let sent = Sent {
            frames: sent,
            counts_xdp,
        };
        watch.look(&[count], |_| Some(sent));
        watch.losing(7).is_some()
    }

    #[test]
    fn case_x13_a_device_that_swallows_frames_is_told_and_told_well_again() {
        let mut watch = Watch::default();
        assert!(!look(&mut watch, 1_000, 10, true), "nothing is known yet");
        assert!(!look(&mut watch, 1_020, 10, true), "too few to judge");
        assert!(look(&mut watch, 1_100, 12, true));
        assert!(look(&mut watch, 1_110, 12, true), "until seen well");
        assert!(!look(&mut watch, 1_300, 200, true));
    }

    #[test]
    fn a_device_that_counts_other_senders_too_is_well() {
        let mut watch = Watch::default();
        look(&mut watch, 0, 5, true);
        assert!(!look(&mut watch, 100, 5_000, true));
        assert!(!look(&mut watch, 200, 5_090, true));
    }

    #[test]
    fn a_driver_that_never_counted_xdp_is_not_accused_and_one_that_stops_is() {
        let mut watch = Watch::default();
        look(&mut watch, 0, 5, false);
        assert!(!look(&mut watch, 1_000, 6, false), "it may count elsewhere");
        assert!(!look(&mut watch, 2_000, 1_006, false));
        assert!(look(&mut watch, 3_000, 1_007, false));
    }

    #[test]
    fn a_counter_that_begins_anew_accuses_nobody() {
        let mut watch = Watch::default();
        look(&mut watch, 0, 50_000, true);
        assert!(!look(&mut watch, 100, 3, true), "the device was made anew");
        assert!(!look(&mut watch, 200, 103, true));
    }

    #[test]
    fn a_hop_that_is_gone_takes_its_device_along() {
        let mut watch = Watch::default();
        look(&mut watch, 0, 5, true);
        assert!(look(&mut watch, 100, 5, true));
        watch.look(&[], |_| None);
        assert!(watch.losing(7).is_none());
    }
}
