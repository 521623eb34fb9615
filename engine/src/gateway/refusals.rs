//! Which refusals of strangers are told: whoever floods the gateway with REGISTERs must not
//! push all other events out of the journal (cases.md, threats: signals from the LAN).

use std::time::Duration;

use crate::time::Mono;

/// So many are told one after the other, whoever is refused ...
const BURST: u32 = 20;
/// ... and then one in so long.
const PACE: Duration = Duration::from_secs(5);

/// What may still be told, and how much was not.
#[derive(Debug)]
pub(super) struct Refusals {
    left: u32,
    /// `left` is right as of then.
    at: Mono,
    untold: u64,
}

impl Default for Refusals {
    fn default() -> Self {
        Self {
            left: BURST,
            at: Mono::default(),
            untold: 0,
        }
    }
}

impl Refusals {
    /// A stranger is refused. `Some`: it shall be told, with the number of refusals before it
    /// that were not.
    pub(super) fn refused(&mut self, now: Mono) -> Option<u64> {
        let earned = now.since(self.at).as_secs() / PACE.as_secs();
        if earned > 0 {
            let earned = u32::try_from(earned).unwrap_or(BURST);
            self.left = self.left.saturating_add(earned).min(BURST);
            self.at = now;
        }
        if self.left == 0 {
            self.untold += 1;
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Mono {
        Mono(Duration::from_secs(1000 + secs))
    }

    #[test]
    fn a_flood_is_told_twenty_times_and_then_once_in_five_seconds() {
        let mut refusals = Refusals::default();
        let told = (0..10_000).filter(|_| refusals.refused(at(0)).is_some());
        assert_eq!(told.count(), 20);
        assert_eq!(refusals.refused(at(4)), None);
        assert_eq!(refusals.refused(at(5)), Some(9_981), "with what was not");
        assert_eq!(refusals.refused(at(6)), None);
        let quiet = at(3_600);
        let told = (0..10_000).filter(|_| refusals.refused(quiet).is_some());
        assert_eq!(told.count(), 20, "a quiet hour earns one burst");
    }
}
