//! The ring of rare events, as the program writes them.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use aya::maps::{Map, MapData, RingBuf};
use keepline_common::record::EventRecord;

use super::Error;

/// The reading end. It becomes readable when something was written.
pub struct Events(RingBuf<MapData>);

impl Events {
    pub(super) fn of(map: Map) -> Result<Self, Error> {
        RingBuf::try_from(map)
            .map(Self)
            .map_err(|error| Error::map("EVENTS", error))
    }

    /// The next event. What is not of the size of one is left out: the ring is pinned, and
    /// whoever wrote there before may have been another version.
    pub fn next_event(&mut self) -> Option<EventRecord> {
        loop {
            let item = self.0.next()?;
            if let Ok(record) = bytemuck::try_pod_read_unaligned(&item) {
                return Some(record);
            }
        }
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Events {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
