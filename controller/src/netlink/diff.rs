//! What changed between two tables.

use std::collections::HashSet;

use super::{NetChange, table::Table};

/// The changes that lead from `old` to `new`: links first, so that what follows can be looked
/// up, then addresses, neighbours, routes.
pub(super) fn diff(old: &Table, new: &Table) -> Vec<NetChange> {
    let mut changes = Vec::new();
    links(old, new, &mut changes);
    addresses(old, new, &mut changes);
    neighbours(old, new, &mut changes);
    if old.routes != new.routes {
        changes.push(NetChange::Routes);
    }
    changes
}

fn links(old: &Table, new: &Table, changes: &mut Vec<NetChange>) {
    for (ifindex, link) in &old.links {
        if !new.links.contains_key(ifindex) {
            changes.push(NetChange::LinkGone {
                name: link.name.clone(),
                ifindex: *ifindex,
            });
        }
    }
    for (ifindex, link) in &new.links {
        let same = old.links.get(ifindex).is_some_and(|before| {
            (&before.name, before.up, before.mac, before.mtu)
                == (&link.name, link.up, link.mac, link.mtu)
        });
        if !same {
            changes.push(NetChange::Link {
                name: link.name.clone(),
                ifindex: *ifindex,
                up: link.up,
                mac: link.mac,
                mtu: link.mtu,
            });
        }
    }
}

fn addresses(old: &Table, new: &Table, changes: &mut Vec<NetChange>) {
    for (ifindex, link) in &new.links {
        let before = old
            .links
            .get(ifindex)
            .map(|before| before.addresses.as_slice());
        if before.unwrap_or_default() != link.addresses {
            let addresses = link.addresses.clone();
            changes.push(NetChange::Address {
                ifindex: *ifindex,
                addresses,
            });
        }
    }
}

fn neighbours(old: &Table, new: &Table, changes: &mut Vec<NetChange>) {
    let keys: HashSet<_> = old.neighbours.keys().chain(new.neighbours.keys()).collect();
    for &&(ifindex, ip) in &keys {
        let mac = new.neighbours.get(&(ifindex, ip)).copied();
        // Neighbours of a link that is gone went with it.
        if mac != old.neighbours.get(&(ifindex, ip)).copied() && new.links.contains_key(&ifindex) {
            changes.push(NetChange::Neighbour { ifindex, ip, mac });
        }
    }
}
