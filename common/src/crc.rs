//! CRC-32 of STUN's FINGERPRINT (RFC 8489 section 14.7; ITU-T V.42).

/// What STUN's CRC is XORed with.
const FINGERPRINT_XOR: u32 = 0x5354_554e;

/// Polynomial 0x04c11db7, reflected.
const POLYNOMIAL: u32 = 0xedb8_8320;

static TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = index as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 0 {
                crc >> 1
            } else {
                crc >> 1 ^ POLYNOMIAL
            };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
};

/// A CRC-32 that is being computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crc(u32);

impl Crc {
    /// Nothing summed yet.
    #[inline(always)]
    #[must_use]
    pub const fn new() -> Self {
        Self(u32::MAX)
    }

    /// Continues over four bytes as they stand in the message.
    #[inline(always)]
    #[must_use]
    pub fn word(self, [a, b, c, d]: [u8; 4]) -> Self {
        self.byte(a).byte(b).byte(c).byte(d)
    }

    #[inline(always)]
    fn byte(self, byte: u8) -> Self {
        Self(self.0 >> 8 ^ TABLE[usize::from(self.0 as u8 ^ byte)])
    }

    /// The value of the FINGERPRINT attribute.
    #[inline(always)]
    #[must_use]
    pub const fn fingerprint(self) -> [u8; 4] {
        (!self.0 ^ FINGERPRINT_XOR).to_be_bytes()
    }
}

impl Default for Crc {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_t6_the_variant_is_v42() {
        // The check value of CRC-32/ISO-HDLC is that of "123456789".
        let crc = b"123456789"
            .iter()
            .fold(Crc::new(), |crc, byte| crc.byte(*byte));
        assert_eq!(!crc.0, 0xcbf4_3926);
    }
}
