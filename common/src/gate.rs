//! The word of a path: what its clients' keepalives are answered (signalling.md section 8).
//!
//! A path that falls tells its clients one after the other: each has its own moment within the
//! spread, by a hash of its address, so that they do not all register anew at once. The word
//! holds both answers and the moment of the change, so that one store changes it.
//!
//! ```text
//! 63                     20 19            4 3   2 1   0
//! changed at (44 bits)      spread (16)     before now
//! ```
//! Times are in ticks of 2^20 ns (1.05 ms) of the kernel's monotonic clock.

/// What a client is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Answer {
    /// Nothing: also the meaning of a word nobody wrote.
    Silent = 0,
    /// Success, with its own address.
    Serving = 1,
    /// Binding error 500.
    Error = 2,
}

impl Answer {
    const fn from_bits(bits: u64) -> Self {
        match bits & 3 {
            1 => Self::Serving,
            2 => Self::Error,
            _ => Self::Silent,
        }
    }
}

/// Nanoseconds as a power of two per tick.
const TICK_BITS: u32 = 20;
/// The longest spread, in ticks: a little over a minute.
const SPREAD_MAX: u64 = 0xffff;

/// The state of one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PathWord(u64);

impl PathWord {
    /// A path that answers `now`, at once, for everybody.
    #[must_use]
    pub const fn at_once(now: Answer) -> Self {
        Self((now as u64) << 2 | now as u64)
    }

    /// A path that answered `before` and changes to `now` at `at_ns`, spread over `spread_ns`
    /// (capped at a minute).
    #[must_use]
    pub const fn changing(before: Answer, now: Answer, at_ns: u64, spread_ns: u64) -> Self {
        let ticks = spread_ns >> TICK_BITS;
        let spread = if ticks > SPREAD_MAX {
            SPREAD_MAX
        } else {
            ticks
        };
        Self((at_ns >> TICK_BITS) << 20 | spread << 4 | (before as u64) << 2 | now as u64)
    }

    /// The word as it stands in the map.
    #[inline(always)]
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// A word from the map.
    #[inline(always)]
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The answer once every client has been told.
    #[must_use]
    pub const fn settled(self) -> Answer {
        Answer::from_bits(self.0)
    }

    /// What everybody is told, whatever the time, unless the path is changing or fell.
    #[inline(always)]
    #[must_use]
    pub const fn for_all(self) -> Option<Answer> {
        if (self.0 >> 2 ^ self.0) & 3 == 0 {
            Some(Answer::from_bits(self.0))
        } else {
            None
        }
    }

    /// The answer for the client of this hash at `now_ns`.
    #[inline(always)]
    #[must_use]
    pub const fn answer(self, now_ns: u64, client: u16) -> Answer {
        let spread = self.0 >> 4 & 0xffff;
        let turn = (self.0 >> 20) + ((spread * client as u64) >> 16);
        if (now_ns >> TICK_BITS) >= turn {
            Answer::from_bits(self.0)
        } else {
            Answer::from_bits(self.0 >> 2)
        }
    }
}

/// A client's place in the spread: a hash of its address and port.
#[inline(always)]
#[must_use]
pub const fn client_hash(address: &[u8; 16], port: [u8; 2]) -> u16 {
    let [_, _, _, _, a, b, c, d, e, f, g, h, i, j, k, l] = *address;
    // Fibonacci hashing: the high bits of a product with 2^32 divided by the golden ratio.
    let words = u32::from_be_bytes([a, b, c, d])
        ^ u32::from_be_bytes([e, f, g, h]).rotate_left(7)
        ^ u32::from_be_bytes([i, j, k, l])
        ^ (u16::from_be_bytes(port) as u32).rotate_left(16);
    (words.wrapping_mul(0x9e37_79b9) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    fn answer() -> impl Strategy<Value = Answer> {
        prop_oneof![
            Just(Answer::Silent),
            Just(Answer::Serving),
            Just(Answer::Error)
        ]
    }

    proptest! {
        #[test]
        fn before_the_change_all_get_the_old_and_after_the_spread_the_new(
            before in answer(), now in answer(), client: u16,
            at in 10 * MS..1 << 60, spread in 0..60_000 * MS,
        ) {
            let word = PathWord::changing(before, now, at, spread);
            prop_assert_eq!(word.answer(at - 2 * MS, client), before);
            prop_assert_eq!(word.answer(at + spread + 2 * MS, client), now);
            prop_assert_eq!(word.settled(), now);
        }

        #[test]
        fn a_client_changes_once(client: u16, at in 0..1_u64 << 50, steps in 1..200_u64) {
            let word = PathWord::changing(Answer::Serving, Answer::Silent, at, 5_000 * MS);
            let told = (0..steps).map(|step| word.answer(at + step * 50 * MS, client));
            prop_assert!(told.is_sorted_by_key(|told| told == Answer::Silent));
        }

        #[test]
        fn at_once_means_everybody_always(now in answer(), at: u64, client: u16) {
            prop_assert_eq!(PathWord::at_once(now).answer(at, client), now);
            prop_assert_eq!(PathWord::at_once(now).for_all(), Some(now));
        }

        #[test]
        fn a_path_that_changes_has_no_answer_for_all(
            before in answer(), now in answer(), at in 0..1_u64 << 60, spread in 0..60_000 * MS,
        ) {
            let word = PathWord::changing(before, now, at, spread);
            prop_assert_eq!(word.for_all(), (before == now).then_some(now));
        }
    }

    #[test]
    fn clients_of_one_subnet_are_spread_over_the_whole_interval() {
        let word = PathWord::changing(Answer::Serving, Answer::Silent, 0, 5_000 * MS);
        let told = |ms: u64| {
            (0..=255_u8)
                .filter(|host| {
                    let address = crate::record::mapped([10, 99, 0, *host]);
                    word.answer(ms * MS, client_hash(&address, [0x13, 0xc4])) == Answer::Silent
                })
                .count()
        };
        for (ms, share) in [(1_250, 64), (2_500, 128), (3_750, 192)] {
            assert!(
                told(ms).abs_diff(share) < 26,
                "{} of 256 after {ms} ms",
                told(ms)
            );
        }
    }
}
