//! Keeping the programs where they belong: a device that was made anew lost its program, and a
//! bpf file system that was unmounted took pins and programs along.

use keepline_engine::{
    event::{Event, Evidence},
    net::LinkId,
};

use super::{Clock as _, Driver};
use crate::{config::model::Interface, fastpath::Attached, steer::LinkPlace};

impl Driver {
    /// Puts the program back on devices that lost it, and moves sockets, flows and hops there:
    /// all of them still hold the device that is gone.
    pub(super) fn repair(&mut self) {
        let repaired = match self.data_path.repair() {
            Ok(repaired) => {
                self.fast_path_is(None);
                repaired
            }
            Err(error) => {
                self.fast_path_is(Some(error.to_string()));
                Vec::new()
            }
        };
        if !repaired.is_empty()
            && let Err(error) = self.traffic.renew()
        {
            tracing::warn!(error, "a segment is not joined to the new device");
        }
        for on in repaired {
            self.moved(on);
        }
    }

    /// What is wrong with the fast path is said once, and once that it is well again.
    fn fast_path_is(&mut self, failing: Option<String>) {
        let before = std::mem::replace(&mut self.fast_path_failing, failing);
        if before.is_some() == self.fast_path_failing.is_some() {
            return;
        }
        let now = self.clock.now();
        let name = |failing| if failing { "failing" } else { "well" }.to_owned();
        let what = match &self.fast_path_failing {
            Some(why) => format!("{why}; media takes the slow path, and ends with this process"),
            None => "programs and maps are pinned".to_owned(),
        };
        self.journal.record(&Event {
            at: now,
            kind: "fastpath",
            object: self.config.fastpath.pin.display().to_string(),
            from: name(before.is_some()),
            to: name(self.fast_path_failing.is_some()),
            rule: "programs_and_pins",
            evidence: vec![Evidence { at: now, what }],
        });
    }

    /// The program is back on a device, which may be another one.
    fn moved(&mut self, on: Attached) {
        let now = self.clock.now();
        self.rebind(&on.name);
        let position = |interface: &Interface| interface.name == on.name;
        let link = self.config.interfaces.iter().position(position);
        let Some(link) = link.and_then(|index| u8::try_from(index).ok()).map(LinkId) else {
            return;
        };
        let place = LinkPlace {
            ifindex: on.ifindex,
            vlan: [0; 2],
        };
        if let Err(error) = self.data_path.link_set(link, place, now.mono) {
            tracing::warn!(%error, interface = on.name, "flows not moved to the new device");
            self.overrun = true;
        }
        self.journal.record(&Event {
            at: now,
            kind: "fastpath",
            object: on.name,
            from: "severed".to_owned(),
            to: on.mode.name().to_owned(),
            rule: "device_made_anew",
            evidence: vec![Evidence {
                at: now,
                what: format!("the device's index is now {}", on.ifindex),
            }],
        });
    }
}
