//! The rings of copies, as the program writes them.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use aya::maps::{Map, MapData, RingBuf};
use keepline_common::record::{CopyHead, PARTY_PHONE, PARTY_SERVER};
use keepline_engine::{gateway::Sender, steer::TalkId};

use super::Error;

/// The reading end of one ring. It becomes readable when something was written.
pub struct Copies(RingBuf<MapData>);

/// A datagram that was routed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// When, by the clock of [`super::words::kernel_now`], in nanoseconds.
    pub at: u64,
    /// The talk it is part of.
    pub talk: TalkId,
    /// Whose it is.
    pub sender: Sender,
    /// Its payload.
    pub bytes: Vec<u8>,
}

impl Copies {
    /// Opens a ring.
    ///
    /// # Errors
    /// [`Error::Map`] when it is none.
    pub fn of(name: &'static str, map: Map) -> Result<Self, Error> {
        RingBuf::try_from(map)
            .map(Self)
            .map_err(|error| Error::map(name, error))
    }

    /// The next copy. What is none is left out: the ring is pinned, and whoever wrote there
    /// before may have been another version.
    pub fn next_copy(&mut self) -> Option<Copied> {
        loop {
            let item = self.0.next()?;
            if let Some(copied) = read(&item) {
                return Some(copied);
            }
        }
    }
}

fn read(item: &[u8]) -> Option<Copied> {
    let (head, payload) = item.split_at_checked(size_of::<CopyHead>())?;
    let head: CopyHead = bytemuck::try_pod_read_unaligned(head).ok()?;
    let sender = match u32::from(head.party) {
        PARTY_PHONE => Sender::Phone,
        PARTY_SERVER => Sender::Server,
        _ => return None,
    };
    Some(Copied {
        at: head.at,
        talk: TalkId(head.talk),
        sender,
        bytes: payload.get(..usize::from(head.len))?.to_vec(),
    })
}

impl AsFd for Copies {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Copies {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(party: u16, len: u16, payload: &[u8]) -> Vec<u8> {
        let head = CopyHead {
            at: 7,
            talk: 3,
            party,
            len,
        };
        [bytemuck::bytes_of(&head), payload].concat()
    }

    #[test]
    fn kl2_a_copy_is_as_long_as_it_says_and_what_is_none_is_left_out() {
        let copied = read(&item(1, 4, b"OPTIONS")).expect("a copy");
        assert_eq!(
            (copied.at, copied.talk, copied.sender),
            (7, TalkId(3), Sender::Phone)
        );
        assert_eq!(copied.bytes, b"OPTI");
        for none in [item(0, 4, b"OPTIONS"), item(1, 8, b"OPTIONS"), vec![0; 7]] {
            assert_eq!(read(&none), None);
        }
    }
}
