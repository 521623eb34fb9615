//! Ranges of a message's bytes.

use std::ops::Range;

/// A range of [`Message::bytes`](super::Message::bytes).
///
/// Messages are bounded to 64 KiB, so 32 bits are plenty; a span is as cheap as a pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// The span of a range of indices. Indices past 4 GiB, which no message has, saturate.
    #[must_use]
    pub fn new(range: Range<usize>) -> Self {
        let clamp = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Self {
            start: clamp(range.start),
            end: clamp(range.end),
        }
    }

    /// The same range, for slicing.
    #[must_use]
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// Its bytes in `bytes`; empty when it lies outside, which happens only to a span of
    /// another message.
    #[must_use]
    pub fn of(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.range()).unwrap_or_default()
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(self) -> usize {
        self.range().len()
    }

    /// Whether it holds no byte.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// The same length, `by` bytes further on.
    #[must_use]
    pub fn shift(self, by: u32) -> Self {
        Self {
            start: self.start.saturating_add(by),
            end: self.end.saturating_add(by),
        }
    }

    /// Without white space (folds included) at either end.
    #[must_use]
    pub fn trim(self, bytes: &[u8]) -> Self {
        let slice = self.of(bytes);
        let front = slice.iter().take_while(|byte| is_lws(**byte)).count();
        let back = slice[front..]
            .iter()
            .rev()
            .take_while(|byte| is_lws(**byte))
            .count();
        let start = self.start as usize + front;
        Self::new(start..start + slice.len() - front - back)
    }
}

/// Linear white space inside a header value: a fold's line end counts (RFC 3261 section 25.1).
pub(super) fn is_lws(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trims_folds_and_survives_foreign_spans() {
        let bytes = b"  \r\n a b\t ";
        assert_eq!(Span::new(0..bytes.len()).trim(bytes).of(bytes), b"a b");
        assert!(Span::new(0..4).trim(bytes).is_empty());
        assert_eq!(Span::new(5..99).of(bytes), b"");
        assert!(Span::new(5..99).trim(bytes).is_empty());
    }
}
