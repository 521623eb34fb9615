//! One file of the journal: a header, then frames of length, CRC-32 and payload. It is written
//! once and read once. Its end may be torn: what follows the last whole frame never was.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// What a segment begins with; the last digit is the version of its frames.
const HEADER: &[u8; 8] = b"KLJRNL1\n";
/// Bytes before a payload: its length and its CRC-32, both little-endian.
const FRAME: usize = 8;
/// More than any record; a longer length is no frame.
const MAX_PAYLOAD: usize = 1 << 20;

/// A segment that is being written.
#[derive(Debug)]
pub(super) struct Writer {
    file: File,
    frames: Vec<u8>,
}

impl Writer {
    /// Begins a segment. A write after this may still fail.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path)?;
        file.write_all(HEADER)?;
        Ok(Self {
            file,
            frames: Vec::new(),
        })
    }

    /// Appends payloads in one write; returns the bytes written. After an error the segment must
    /// not be written to again: its end may be torn.
    pub(super) fn append(
        &mut self,
        payloads: impl IntoIterator<Item: AsRef<[u8]>>,
    ) -> io::Result<u64> {
        self.frames.clear();
        for payload in payloads {
            self.frame(payload.as_ref())?;
        }
        self.file.write_all(&self.frames)?;
        Ok(self.frames.len() as u64)
    }

    fn frame(&mut self, payload: &[u8]) -> io::Result<()> {
        let length = u32::try_from(payload.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        if payload.len() > MAX_PAYLOAD {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.frames.extend(length.to_le_bytes());
        self.frames.extend(crc32fast::hash(payload).to_le_bytes());
        self.frames.extend(payload);
        Ok(())
    }
}

#[cfg(test)]
impl Writer {
    /// Writes go elsewhere from now on: to a device that is full.
    pub(super) fn divert(&mut self, to: File) {
        self.file = to;
    }
}

/// What a segment holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// The payloads of its whole frames.
    Payloads(Vec<Vec<u8>>),
    /// It is no segment of ours.
    Foreign,
}

/// Reads a segment up to its last whole frame.
pub(super) fn read(path: &Path) -> io::Result<Content> {
    let bytes = std::fs::read(path)?;
    // Killed before the header was written.
    if HEADER.starts_with(&bytes) {
        return Ok(Content::Payloads(Vec::new()));
    }
    let Some(mut rest) = bytes.strip_prefix(HEADER.as_slice()) else {
        return Ok(Content::Foreign);
    };
    let mut payloads = Vec::new();
    while let Some((payload, after)) = next(rest) {
        payloads.push(payload.to_vec());
        rest = after;
    }
    Ok(Content::Payloads(payloads))
}

fn next(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (frame, rest) = bytes.split_first_chunk::<FRAME>()?;
    let [a, b, c, d, crc @ ..] = *frame;
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    if length > MAX_PAYLOAD {
        return None;
    }
    let (payload, rest) = rest.split_at_checked(length)?;
    (crc32fast::hash(payload) == u32::from_le_bytes(crc)).then_some((payload, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::file::tests::Folder;

    fn written(folder: &Folder, payloads: &[&[u8]]) -> std::path::PathBuf {
        let path = folder.path().join("segment");
        let mut writer = Writer::create(&path).unwrap();
        writer.append(payloads).unwrap();
        path
    }

    #[test]
    fn kl5_a_segment_cut_anywhere_gives_its_whole_frames() {
        let folder = Folder::new("cut");
        let payloads: [&[u8]; 3] = [b"first", b"", b"the third one"];
        let path = written(&folder, &payloads);
        let whole = std::fs::read(&path).unwrap();
        for cut in 0..=whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let ends = [HEADER.len() + 13, HEADER.len() + 21, whole.len()];
            let expected = ends.iter().filter(|end| **end <= cut).count();
            let Content::Payloads(read) = read(&path).unwrap() else {
                panic!("cut at {cut}: foreign");
            };
            assert_eq!(read, payloads[..expected], "cut at {cut}");
        }
    }

    #[test]
    fn kl5_a_flipped_bit_ends_the_journal_and_never_alters_a_payload() {
        let folder = Folder::new("flip");
        let payloads: [&[u8]; 2] = [b"first", b"second"];
        let path = written(&folder, &payloads);
        let whole = std::fs::read(&path).unwrap();
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, &bytes).unwrap();
            match read(&path).unwrap() {
                Content::Foreign => assert!(bit / 8 < HEADER.len()),
                Content::Payloads(read) => {
                    assert!(read.len() < 2, "bit {bit} went unseen");
                    assert_eq!(read, payloads[..read.len()]);
                }
            }
        }
    }
}
