//! Groups that come and go while others are under watch: softswitches that phones were seen to
//! register with (signalling.md section 12).

use super::{Group, GroupConf, Health, Path, Task};
use crate::{
    net::{GroupId, PathKey, ServerId},
    time::Now,
};

impl Health {
    /// Puts a group under watch: behind all others, or in the place of one that was taken away.
    pub fn put_group(&mut self, now: Now, id: GroupId, conf: GroupConf) {
        self.take_group(id);
        let at = usize::from(id.0);
        if at > self.groups.len() {
            return;
        }
        let servers = u16::try_from(conf.servers.len()).unwrap_or(u16::MAX);
        match self.groups.get_mut(at) {
            Some(place) => *place = Group::new(conf),
            None => self.groups.push(Group::new(conf)),
        }
        let links: Vec<_> = self.links.iter().map(|link| link.id).collect();
        for index in 0..servers {
            for link in links.iter().copied() {
                let server = ServerId { group: id, index };
                let key = PathKey { server, link };
                self.paths.insert(key, Path::new(now));
                self.plan_probe(key, now.mono);
            }
        }
        self.regroup(now, id, "start");
    }

    /// Takes a group away; its place stays, empty. What was under watch is no more.
    pub fn take_group(&mut self, id: GroupId) {
        let Some(place) = self.groups.get_mut(usize::from(id.0)) else {
            return;
        };
        let servers = u16::try_from(place.conf.servers.len()).unwrap_or(u16::MAX);
        *place = Group::new(GroupConf::default());
        for index in 0..servers {
            self.agenda.clear(Task::Held(ServerId { group: id, index }));
        }
        let gone: Vec<_> = self.paths_of(id).map(|(key, _)| key).collect();
        for key in gone {
            self.paths.remove(&key);
            for task in [Task::Burst(key), Task::Probe(key), Task::Failback(key)] {
                self.agenda.clear(task);
            }
        }
        self.probes.retain(|_, probe| !probe.is_of(id));
        let requests = self.requests.iter();
        let of_it = requests.filter(|(_, request)| request.path.server.group == id);
        for request in of_it.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.requests.remove(&request);
            self.agenda.clear(Task::Request(request));
        }
    }
}
