//! Maps that a start made anew: why, what became of their flows, and how long media waited.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use super::{Error, Stage, carry, maps::Maps};

/// What is told of maps that were made anew.
#[derive(Debug)]
pub(super) struct Rebuilt {
    /// Why, and what became of their flows.
    pub(super) said: String,
    /// No flow could be carried over.
    empty: bool,
    /// When the first link had a program with nothing to forward by.
    since: Option<Instant>,
}

impl Rebuilt {
    /// Fills the new maps with the flows of those in `older`. `None`: there are none.
    pub(super) fn from(
        older: &[PathBuf],
        difference: Option<String>,
        maps: &mut Maps,
        at: &mut dyn FnMut(Stage<'_>) -> Result<(), Error>,
    ) -> Result<Option<Self>, Error> {
        if older.is_empty() {
            return Ok(None);
        }
        let mut carried = None;
        for older in older {
            if let Some(flows) = carry::flows(older, maps, at)? {
                *carried.get_or_insert(0) += flows;
            }
        }
        let why = difference.unwrap_or_else(|| "the pinned maps are of another start".to_owned());
        let flows = carried.map_or_else(
            || {
                "no flow could be carried over: media of calls in progress waits until their \
                 calls are known again"
                    .to_owned()
            },
            |flows| format!("{flows} flows carried over without a gap"),
        );
        Ok(Some(Self {
            said: format!("{why}; the maps were made anew, {flows}"),
            empty: carried.is_none(),
            since: None,
        }))
    }

    /// Links get the program from here on.
    pub(super) fn attaching(&mut self) {
        if self.empty {
            self.since = Some(Instant::now());
        }
    }

    /// How long media has waited; `None`: it had to wait for nothing.
    pub(super) fn gap(&self) -> Option<Duration> {
        self.since.map(|since| since.elapsed())
    }
}
