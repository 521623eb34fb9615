//! What outlives the process (signalling.md section 5): every change of a binding or of a
//! confirmed dialog is put out before the message that makes it visible, and comes back at the
//! next start.
//!
//! The tables note what was touched. The one place through which datagrams leave tells the
//! store first, so no rule of the proxy has to think of it.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use super::{
    Gateway, Output,
    bindings::{Binding, MAX_BINDINGS},
    dialogs::{Dialog, Leg, MAX_DIALOGS, Phase},
    records::{
        BindingRecord, Change, DialogRecord, ListenerRecord, PartyRecord, PathRecord, Records,
        Restored,
    },
};
use crate::{
    event::{Event, Evidence},
    media::{SessionId, SessionRecord},
    net::{GroupId, LinkId, ListenerId, PathKey, ServerId},
    steer::{Delta, GateId},
    time::{Now, Wall},
};

/// CSeq numbers are kept rounded up: a request that changes nothing else is not written, and a
/// request of our own after a restart may leave numbers out (RFC 3261 section 12.2.2).
const CSEQ_GRAIN: u32 = 10_000;

/// What the store was told last, as fingerprints: what was touched but says the same is not
/// written again.
#[derive(Debug, Default)]
pub(super) struct Kept {
    bindings: HashMap<u64, u64>,
    dialogs: HashMap<u64, u64>,
}

impl Gateway {
    /// Tells the store what changed since the last call.
    pub(super) fn keep_changes(&mut self) {
        for id in self.bindings.take_touched() {
            let record = self.bindings.get(id).map(|b| self.binding_record(id, b));
            let print = record.as_ref().map(fingerprint);
            if changed(&mut self.kept.bindings, id, print) {
                let change = record.map_or(Change::BindingGone(id), |r| Change::Binding(r.into()));
                self.out.push_back(Output::Keep(change));
            }
        }
        let sessions = self.media.take_changed();
        for id in self.dialogs.take_touched(sessions.iter().map(|s| s.0)) {
            let confirmed = self.dialogs.get(id).filter(|d| d.phase != Phase::Early);
            let record = confirmed.map(|dialog| self.dialog_record(dialog));
            let print = record.as_ref().map(fingerprint);
            if changed(&mut self.kept.dialogs, id, print) {
                let change = record.map_or(Change::DialogGone(id), |r| Change::Dialog(r.into()));
                self.out.push_back(Output::Keep(change));
            }
        }
    }

    /// Tells the store everything anew: it lost some of what it was told.
    pub fn keep_all(&mut self) {
        self.kept = Kept::default();
        self.out.push_back(Output::Keep(Change::Anew));
        self.bindings.touch_all();
        self.dialogs.touch_all();
        self.keep_changes();
    }

    /// Puts back what an earlier run kept. Call it once, before the first input: sockets are
    /// opened and flows claimed by the outputs.
    pub fn restore(&mut self, now: Now, records: Records) -> Restored {
        let stored = records.bindings.len() + records.dialogs.len();
        let gone: Vec<Change> = (records.bindings.iter().map(|b| Change::BindingGone(b.id)))
            .chain(records.dialogs.iter().map(|d| Change::DialogGone(d.id)))
            .collect();
        self.places_back(now, &records);
        for record in records.bindings {
            if let Some(binding) = self.load_binding(now, &record) {
                self.binding_back(now, record.id, binding);
            }
        }
        let sessions: Vec<SessionRecord> = (records.dialogs.iter())
            .filter_map(|record| record.media.clone())
            .collect();
        let dialogs: Vec<Dialog> = (records.dialogs.iter())
            .filter_map(|record| self.load_dialog(now, record))
            .take(MAX_DIALOGS)
            .collect();
        let used: Vec<SessionRecord> = (sessions.into_iter())
            .filter(|session| dialogs.iter().any(|d| d.session == Some(session.id)))
            .collect();
        let conf = &self.conf;
        self.media
            .restore(now, &used, |name| link_named(conf, name));
        for dialog in dialogs {
            let id = dialog.id;
            // Contexts and sessions are numbered together.
            self.next = self.next.max(dialog.session.unwrap_or_default());
            self.dialogs.put_back(dialog);
            self.await_media(now, id);
            self.await_subscription(id);
        }
        self.drain_media();
        let restored = Restored {
            bindings: self.bindings.len(),
            dialogs: self.dialogs.len(),
            dropped: stored.saturating_sub(self.bindings.len() + self.dialogs.len()),
        };
        self.tell_restored(now, gone, restored);
        self.hear_asked_again(now);
        restored
    }

    /// The store holds what is back as it is now, and nothing else.
    fn tell_restored(&mut self, now: Now, gone: Vec<Change>, restored: Restored) {
        for change in gone {
            let back = match &change {
                Change::BindingGone(id) => self.bindings.get(*id).is_some(),
                Change::DialogGone(id) => self.dialogs.get(*id).is_some(),
                Change::Binding(_) | Change::Dialog(_) | Change::Anew => true,
            };
            if !back {
                self.out.push_back(Output::Keep(change));
            }
        }
        self.keep_changes();
        if restored != Restored::default() {
            self.out.push_back(Output::Event(Event {
                at: now,
                kind: "gateway",
                object: self.conf.name.clone(),
                from: "starting".to_owned(),
                to: "restored".to_owned(),
                rule: "stored_state",
                evidence: vec![Evidence {
                    at: now,
                    what: format!(
                        "{} bindings and {} dialogs are back, {} records dropped",
                        restored.bindings, restored.dialogs, restored.dropped
                    ),
                }],
            }));
        }
    }

    fn binding_back(&mut self, now: Now, id: u64, binding: Binding) {
        if self.bindings.len() >= MAX_BINDINGS {
            return;
        }
        let client = Delta::ClientSet {
            client: binding.source,
            listener: binding.listener,
            gate: GateId(binding.group.0),
        };
        let listener = binding.listener;
        self.talk_back(now, &binding);
        self.bindings.put_back(id, binding);
        self.watch_binding(id);
        self.steer_client(listener, client);
    }

    fn binding_record(&self, id: u64, binding: &Binding) -> BindingRecord {
        BindingRecord {
            id,
            aor: binding.aor.clone(),
            contact: binding.contact.clone(),
            params: binding.params.clone(),
            token: binding.token.clone(),
            upstream_contact: binding.upstream_contact.clone(),
            source: binding.source,
            proof: binding.proof,
            listener: self.listener_record(binding.listener),
            call_id: binding.call_id.clone(),
            cseq: binding.cseq,
            credentials: binding.credentials.clone(),
            group: self.group_name(binding.group),
            server: self.server_address(binding.server),
            accepted: binding.accepted.wall,
            granted: binding.granted,
            phone_until: self.clock.wall_at(binding.phone_until),
            service_route: binding.service_route.clone(),
            path: binding.path.clone(),
            outbound: binding.outbound,
            associated: binding.associated.clone(),
        }
    }

    /// `None` when it is neither here nor known any more, or its group or listener is gone.
    fn load_binding(&self, now: Now, record: &BindingRecord) -> Option<Binding> {
        let group = self.group_named(&record.group)?;
        let server = self.server_at(group, record.server);
        // Accepted in the future: the clock went back, and how long ago it was is not known.
        let certain = record.accepted.0 <= now.wall.0;
        let accepted = Wall(record.accepted.0.min(now.wall.0));
        let mut binding = Binding {
            aor: record.aor.clone(),
            contact: record.contact.clone(),
            params: record.params.clone(),
            token: record.token.clone(),
            upstream_contact: record.upstream_contact.clone(),
            source: record.source,
            proof: record.proof,
            listener: self.listener_of(&record.listener)?,
            call_id: record.call_id.clone(),
            cseq: record.cseq,
            credentials: record.credentials.clone(),
            group,
            server: server.unwrap_or(ServerId { group, index: 0 }),
            accepted: Now {
                mono: now.mono_at(accepted),
                wall: accepted,
            },
            granted: record.granted,
            phone_until: now
                .mono_at(record.phone_until)
                .min(now.mono + self.longest_told()),
            due: false,
            challenged: None,
            service_route: record.service_route.clone(),
            path: record.path.clone(),
            outbound: record.outbound,
            associated: record.associated.clone(),
        };
        // Shaped with all others when it has to go upstream (EM17).
        binding.due = !certain || server.is_none() || !binding.refresh_is_local(now.mono);
        let known = binding.known(now.wall, self.conf.registration.known_for);
        (known || binding.present(now.mono)).then_some(binding)
    }

    /// The longest expiry any phone is told, with its jitter.
    fn longest_told(&self) -> Duration {
        let registration = self.conf.registration;
        let streams = self.conf.streams().next();
        let stream = streams.map_or(Duration::ZERO, |_| registration.phone_expires_stream);
        let longest = registration.phone_expires.max(stream);
        longest.max(self.conf.survivability.expires) * 11 / 10
    }

    fn dialog_record(&self, dialog: &Dialog) -> DialogRecord {
        let party = |leg: &Leg| PartyRecord {
            listener: self.listener_record(leg.listener),
            tag: leg.tag.clone(),
            target: leg.target.clone(),
            routes: leg.routes.clone(),
            peer: leg.peer,
            caller_uri: leg.caller_uri.clone(),
            callee_uri: leg.callee_uri.clone(),
            said: leg.said.clone(),
            told: leg.told.clone(),
            answered_here: leg.answered_here,
            cseq: leg.cseq.saturating_add(CSEQ_GRAIN - 1) / CSEQ_GRAIN * CSEQ_GRAIN,
            asked: leg.asked.as_ref().map(|asked| self.asked_record(asked)),
        };
        let session = dialog.session.map(SessionId);
        DialogRecord {
            id: dialog.id,
            call_id: dialog.call_id.clone(),
            caller: party(&dialog.caller),
            callee: party(&dialog.callee),
            path: dialog.path.map(|path| PathRecord {
                group: self.group_name(path.server.group),
                server: self.server_address(path.server),
                link: self.link_name(path.link),
            }),
            answer_in_ack: dialog.answer_in_ack,
            since: dialog.since.wall,
            ends: dialog.ends.map(|ends| self.clock.wall_at(ends)),
            media: session.and_then(|session| {
                self.media
                    .save(self.clock, session, |link| self.link_name(link))
            }),
        }
    }

    /// `None` when a link or listener of it is gone.
    fn load_dialog(&self, now: Now, record: &DialogRecord) -> Option<Dialog> {
        let leg = |party: &PartyRecord| {
            let listener = self.listener_of(&party.listener)?;
            Some(Leg {
                side: self.side(listener),
                tag: party.tag.clone(),
                target: party.target.clone(),
                routes: party.routes.clone(),
                peer: party.peer,
                listener,
                caller_uri: party.caller_uri.clone(),
                callee_uri: party.callee_uri.clone(),
                said: party.said.clone(),
                told: party.told.clone(),
                answered_here: party.answered_here,
                cseq: party.cseq,
                asked: (party.asked.as_ref()).and_then(|asked| self.load_asked(now, asked)),
            })
        };
        let media = record.media.as_ref();
        let links_known = media.is_none_or(|media| {
            let mut links = media.sides.iter().map(|side| side.link.as_str());
            links.all(|name| link_named(&self.conf, name).is_some())
        });
        let since = Wall(record.since.0.min(now.wall.0));
        links_known.then_some(Dialog {
            id: record.id,
            call_id: record.call_id.clone(),
            caller: leg(&record.caller)?,
            callee: leg(&record.callee)?,
            path: record.path.as_ref().and_then(|path| self.path_of(path)),
            session: media.map(|media| media.id),
            answer_in_ack: record.answer_in_ack,
            phase: Phase::Confirmed,
            since: Now {
                mono: now.mono_at(since),
                wall: since,
            },
            silent_from: now.mono,
            ends: record.ends.map(|ends| now.mono_at(ends)),
        })
    }
}

/// Names for positions, and back.
impl Gateway {
    fn link_name(&self, link: LinkId) -> String {
        self.conf.links[usize::from(link.0)].name.clone()
    }

    fn group_name(&self, group: GroupId) -> String {
        self.conf.groups[usize::from(group.0)].health.name.clone()
    }

    /// Where a server's requests go.
    pub(super) fn server_address(&self, server: ServerId) -> std::net::SocketAddr {
        let group = &self.conf.groups[usize::from(server.group.0)];
        group.health.servers[usize::from(server.index)].address
    }

    pub(super) fn listener_record(&self, listener: ListenerId) -> ListenerRecord {
        ListenerRecord {
            link: self.link_name(self.link(listener)),
            transport: self.transport(listener),
            address: self.address(listener),
        }
    }

    /// The same listener, or the first of its link when its address is another one now.
    pub(super) fn listener_of(&self, record: &ListenerRecord) -> Option<ListenerId> {
        let link = link_named(&self.conf, &record.link)?;
        let same = (0_u16..).map(ListenerId).zip(&self.conf.listeners);
        let same = same.filter(|(_, at)| at.link == link && at.address == record.address);
        let mut same = same.filter(|(_, at)| at.transport == record.transport);
        let same = same.next().map(|(id, _)| id);
        same.or_else(|| self.conf.listener_on(link, record.transport))
    }

    pub(super) fn group_named(&self, name: &str) -> Option<GroupId> {
        let mut groups = (0_u16..).map(GroupId).zip(&self.conf.groups);
        groups
            .find(|(_, group)| group.health.name == name)
            .map(|(id, _)| id)
    }

    fn server_at(&self, group: GroupId, address: std::net::SocketAddr) -> Option<ServerId> {
        let servers = &self.conf.groups[usize::from(group.0)].health.servers;
        let index = servers.iter().position(|s| s.address == address)?;
        let index = u16::try_from(index).ok()?;
        Some(ServerId { group, index })
    }

    fn path_of(&self, record: &PathRecord) -> Option<PathKey> {
        let group = self.group_named(&record.group)?;
        Some(PathKey {
            server: self.server_at(group, record.server)?,
            link: link_named(&self.conf, &record.link)?,
        })
    }
}

pub(super) fn link_named(conf: &crate::conf::Conf, name: &str) -> Option<LinkId> {
    let mut links = (0_u8..).map(LinkId).zip(&conf.links);
    links.find(|(_, link)| link.name == name).map(|(id, _)| id)
}

/// Notes the new fingerprint; whether it differs from what the store was told.
fn changed(kept: &mut HashMap<u64, u64>, id: u64, print: Option<u64>) -> bool {
    match print {
        Some(print) => kept.insert(id, print) != Some(print),
        None => kept.remove(&id).is_some(),
    }
}

fn fingerprint(record: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    record.hash(&mut hasher);
    hasher.finish()
}
