//! Internet checksums (RFC 1071), whole and by difference (RFC 1624, equation 3).
//!
//! Everything is computed on 16-bit words in the machine's order: the sum does not depend on it
//! (RFC 1071 section 2 (B)), and no word is swapped.

/// A sum of 16-bit words that is still to be folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sum(u64);

impl Sum {
    /// The empty sum.
    #[inline(always)]
    #[must_use]
    pub const fn new() -> Self {
        Self(0)
    }

    /// Adds a 16-bit word as it stands in the packet.
    #[inline(always)]
    #[must_use]
    pub const fn word(self, word: [u8; 2]) -> Self {
        Self(self.0 + u16::from_ne_bytes(word) as u64)
    }

    /// Adds two 16-bit words.
    #[inline(always)]
    #[must_use]
    pub const fn dword(self, words: [u8; 4]) -> Self {
        Self(self.0 + u32::from_ne_bytes(words) as u64)
    }

    /// Adds two 16-bit words that were read as one number.
    #[inline(always)]
    #[must_use]
    pub const fn raw(self, words: u32) -> Self {
        Self(self.0 + words as u64)
    }

    /// Adds an address.
    #[inline(always)]
    #[must_use]
    pub const fn address(self, address: &[u8; 16]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *address;
        self.dword([a, b, c, d])
            .dword([e, f, g, h])
            .dword([i, j, k, l])
            .dword([m, n, o, p])
    }

    /// Takes a 16-bit word away.
    #[inline(always)]
    #[must_use]
    pub const fn without_word(self, [a, b]: [u8; 2]) -> Self {
        self.word([!a, !b])
    }

    /// Takes two 16-bit words away.
    #[inline(always)]
    #[must_use]
    pub const fn without_dword(self, [a, b, c, d]: [u8; 4]) -> Self {
        self.dword([!a, !b, !c, !d])
    }

    /// Takes an address away.
    #[inline(always)]
    #[must_use]
    pub const fn without_address(self, address: &[u8; 16]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *address;
        self.without_dword([a, b, c, d])
            .without_dword([e, f, g, h])
            .without_dword([i, j, k, l])
            .without_dword([m, n, o, p])
    }

    /// The folded sum itself, as it stands in a field that somebody else completes.
    #[inline(always)]
    #[must_use]
    pub const fn folded(self) -> [u8; 2] {
        let [a, b] = self.checksum();
        [!a, !b]
    }

    /// The checksum field for what was summed: the complement of the folded sum.
    #[inline(always)]
    #[must_use]
    pub const fn checksum(self) -> [u8; 2] {
        let mut sum = (self.0 >> 32) + (self.0 & 0xffff_ffff);
        sum = (sum >> 16) + (sum & 0xffff);
        sum = (sum >> 16) + (sum & 0xffff);
        sum = (sum >> 16) + (sum & 0xffff);
        (!(sum as u16)).to_ne_bytes()
    }

    /// The UDP checksum field for what was summed: zero means "none" on the wire, so a computed
    /// zero is sent as all ones (RFC 768; case X8).
    #[inline(always)]
    #[must_use]
    pub const fn udp_checksum(self) -> [u8; 2] {
        match self.checksum() {
            [0, 0] => [0xff, 0xff],
            check => check,
        }
    }
}

/// Begins an edit: the sum that `check` is the complement of.
#[inline(always)]
#[must_use]
pub const fn edit(check: [u8; 2]) -> Sum {
    Sum::new().without_word(check)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// RFC 1071 word by word, in network order: the reference.
    fn reference(bytes: &[u8]) -> [u8; 2] {
        let mut sum = 0_u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        }
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        (!(sum as u16)).to_be_bytes()
    }

    fn sum_of(bytes: &[u8]) -> Sum {
        bytes
            .chunks_exact(4)
            .fold(Sum::new(), |sum, w| sum.dword([w[0], w[1], w[2], w[3]]))
    }

    /// Equal as one's complement numbers: 0x0000 and 0xffff are the same value.
    fn same(a: [u8; 2], b: [u8; 2]) -> bool {
        let plain = |c| if c == [0xff, 0xff] { [0, 0] } else { c };
        plain(a) == plain(b)
    }

    proptest! {
        #[test]
        fn the_whole_sum_is_rfc_1071s(words in prop::collection::vec(any::<[u8; 4]>(), 1..64)) {
            let bytes: Vec<u8> = words.concat();
            prop_assert_eq!(sum_of(&bytes).checksum(), reference(&bytes));
        }

        #[test]
        fn an_edit_gives_what_summing_anew_gives(
            head: [u8; 16], old: [u8; 16], new: [u8; 16],
            old_port: [u8; 2], new_port: [u8; 2], old_word: [u8; 4], new_word: [u8; 4],
        ) {
            prop_assert_eq!(sum_of(&head).folded().map(|byte| !byte), sum_of(&head).checksum());
            let before = [&head[..], &old, &old_port, &old_word, &[1, 2]].concat();
            let after = [&head[..], &new, &new_port, &new_word, &[1, 2]].concat();
            let edited = edit(reference(&before))
                .without_address(&old).address(&new)
                .without_word(old_port).word(new_port)
                .without_dword(old_word).dword(new_word)
                .checksum();
            prop_assert!(same(edited, reference(&after)), "{:?} {:?}", edited, reference(&after));
        }

        #[test]
        fn case_x8_udp_never_shows_zero(words in prop::collection::vec(any::<[u8; 4]>(), 1..8)) {
            prop_assert_ne!(sum_of(&words.concat()).udp_checksum(), [0, 0]);
        }
    }

    #[test]
    fn case_x8_a_computed_zero_is_sent_as_all_ones() {
        let sum = Sum::new().word([0xff, 0xff]);
        assert_eq!(sum.checksum(), [0, 0]);
        assert_eq!(sum.udp_checksum(), [0xff, 0xff]);
    }
}
