//! CRC-32 of STUN's FINGERPRINT (RFC 8489 section 14.7; ITU-T V.42).

/// What STUN's CRC is XORed with.
const FINGERPRINT_XOR: u32 = 0x5354_554e;

/// Polynomial 0x04c11db7, reflected.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// What a byte does to the CRC that stands `n` bytes before the end of its word: table `n`. Four
/// bytes at once need no value of one another.
static TABLES: [[u32; 256]; 4] = {
    let mut tables = [[0; 256]; 4];
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
        tables[0][index] = crc;
        index += 1;
    }
    let mut n = 1;
    while n < 4 {
        let mut index = 0;
        while index < 256 {
            let before: u32 = tables[n - 1][index];
            tables[n][index] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            index += 1;
        }
        n += 1;
    }
    tables
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
    pub fn word(self, bytes: [u8; 4]) -> Self {
        let mixed = self.0 ^ u32::from_le_bytes(bytes);
        let of = |n: usize, shift: u32| TABLES[n][(mixed >> shift & 0xff) as usize];
        Self(of(3, 0) ^ of(2, 8) ^ of(1, 16) ^ of(0, 24))
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
        // The check value of CRC-32/ISO-HDLC is that of "123456789"; this is of its first eight.
        let crc = Crc::new().word(*b"1234").word(*b"5678");
        assert_eq!(!crc.0, 0x9ae0_daaf);
    }
}
