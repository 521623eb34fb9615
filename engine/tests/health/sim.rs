//! A small world around the health machine: virtual time, servers that behave or die, a lossy
//! network, and a phone side that retransmits and hunts as the proxy does.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use keepline_engine::{
    event::Event,
    health::{
        Class, GroupConf, GroupState, Health, Judgement, Output, PathState, PathView, ProbeId,
        RequestId, ServerConf, Want,
    },
    net::{GroupId, LinkId, PathKey, ServerId, Transport},
    time::{Mono, Now},
};

pub(crate) const GROUP: GroupId = GroupId(0);
const T1: Duration = Duration::from_millis(500);
const T2: Duration = Duration::from_secs(4);
const GIVE_UP: Duration = Duration::from_secs(32);

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

pub(crate) fn path(server: u16, link: u8) -> PathKey {
    PathKey {
        server: ServerId {
            group: GROUP,
            index: server,
        },
        link: LinkId(link),
    }
}

/// A group of servers with falling priority, otherwise as shipped.
pub(crate) fn group(servers: u16) -> GroupConf {
    let server = |i: u16| ServerConf {
        uri: format!("sip:192.0.2.{}:5060", 10 + i),
        address: SocketAddr::from((
            Ipv4Addr::new(192, 0, 2, u8::try_from(10 + i).unwrap()),
            5060,
        )),
        transport: Transport::Udp,
        priority: 1 + i,
        weight: 10,
    };
    GroupConf {
        name: "core".to_owned(),
        servers: (0..servers).map(server).collect(),
        ..GroupConf::default()
    }
}

/// How a path answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// 200 to everything.
    Well,
    /// Nothing, as after SIGSTOP or in a blackhole.
    Silence,
    /// ICMP port unreachable to everything, as after kill -9.
    Icmp,
    /// This final to OPTIONS, 200 to the rest.
    Options(u16, Option<u64>),
    /// This final to everything, with this Retry-After.
    Always(u16, Option<u64>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    ProbeAtServer(ProbeId, PathKey),
    ProbeAnswer(ProbeId, u16, Option<u64>),
    RequestAtServer(RequestId, PathKey),
    Response(RequestId, u16, Option<u64>),
    ServerRepeats200(RequestId, PathKey, Duration),
    Unreachable(RequestId),
    Retransmit(RequestId, Duration),
    /// Timer B or C: the transaction ends without a final.
    GiveUp(RequestId),
}

/// One request of a phone and its branches.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) class: Class,
    pub(crate) started: Mono,
    pub(crate) answered: Option<(Mono, PathKey, u16)>,
    pub(crate) tried: Vec<PathKey>,
    pub(crate) rules: Vec<&'static str>,
}

pub(crate) struct World {
    pub(crate) health: Health,
    pub(crate) now: Now,
    pub(crate) answers: BTreeMap<PathKey, Answer>,
    pub(crate) loss: f64,
    pub(crate) one_way: Duration,
    pub(crate) events: Vec<Event>,
    pub(crate) groups: Vec<(Mono, GroupState)>,
    pub(crate) downs: Vec<(Mono, PathKey)>,
    pub(crate) ups: Vec<(Mono, PathKey)>,
    pub(crate) probes: Vec<(Mono, PathKey)>,
    pub(crate) calls: Vec<Call>,
    branches: BTreeMap<RequestId, Branch>,
    net: BTreeMap<(Mono, u64), Act>,
    order: u64,
    random: u64,
}

#[derive(Debug, Clone, Copy)]
struct Branch {
    call: usize,
    path: PathKey,
    responded: bool,
    abandoned: bool,
}

impl World {
    pub(crate) fn new(conf: GroupConf, links: u8, seed: u64) -> Self {
        let answers = (0..u16::try_from(conf.servers.len()).unwrap())
            .flat_map(|s| (0..links).map(move |l| (path(s, l), Answer::Well)))
            .collect();
        let now = Now::default().after(secs(1_000));
        let links = (0..links).map(|l| (LinkId(l), format!("wan{l}"))).collect();
        let mut world = Self {
            health: Health::new(now, vec![conf], links, seed),
            now,
            answers,
            loss: 0.0,
            one_way: ms(10),
            events: Vec::new(),
            groups: Vec::new(),
            downs: Vec::new(),
            ups: Vec::new(),
            probes: Vec::new(),
            calls: Vec::new(),
            branches: BTreeMap::new(),
            net: BTreeMap::new(),
            order: 0,
            random: seed.wrapping_mul(2).wrapping_add(1),
        };
        world.drain();
        world
    }

    pub(crate) fn set(&mut self, server: u16, answer: Answer) {
        for (key, slot) in &mut self.answers {
            if key.server.index == server {
                *slot = answer;
            }
        }
    }

    pub(crate) fn random(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.random;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn run(&mut self, for_: Duration) {
        let end = self.now.mono + for_;
        loop {
            let net = self.net.keys().next().map(|&(at, _)| at);
            let timer = self.health.poll_timeout().map(|(at, _)| at);
            let Some(next) = net.into_iter().chain(timer).min().filter(|&at| at <= end) else {
                break;
            };
            self.advance(next);
            if timer.is_some_and(|at| at <= next) {
                self.health.handle_timeout(self.now);
                let after = self.health.poll_timeout();
                assert!(
                    after.is_none_or(|(at, _)| at > next),
                    "no progress at {next:?}: {after:?}"
                );
                self.drain();
            } else if let Some((_, act)) = self.net.pop_first() {
                self.act(act);
                self.drain();
            }
        }
        self.advance(end);
    }

    fn advance(&mut self, to: Mono) {
        self.now = self.now.after(to.since(self.now.mono));
    }

    /// A phone's request; returns its number in `calls`.
    pub(crate) fn request(&mut self, class: Class) -> usize {
        let call = self.calls.len();
        let started = self.now.mono;
        self.calls.push(Call {
            class,
            started,
            answered: None,
            tried: Vec::new(),
            rules: Vec::new(),
        });
        self.next_branch(call);
        self.drain();
        call
    }

    pub(crate) fn choose(&self, class: Class, affinity: Option<u16>) -> Option<PathKey> {
        let affinity = affinity.map(|index| ServerId {
            group: GROUP,
            index,
        });
        self.health.choose(
            self.now,
            &Want {
                group: GROUP,
                class,
                aor: b"sip:201@example.test",
                affinity,
                tried: &[],
            },
        )
    }

    pub(crate) fn view(&self, key: PathKey) -> PathView {
        let groups = self.health.snapshot(self.now);
        groups[0]
            .paths
            .iter()
            .find(|p| p.key == key)
            .unwrap()
            .clone()
    }

    pub(crate) fn state(&self, key: PathKey) -> PathState {
        self.view(key).state
    }

    pub(crate) fn group_state(&self) -> GroupState {
        self.health.snapshot(self.now)[0].state
    }

    /// How long a phone's request took until a 2xx, and from which path.
    pub(crate) fn took(&self, call: usize) -> Option<(Duration, PathKey)> {
        let call = &self.calls[call];
        call.answered
            .map(|(at, path, _)| (at.since(call.started), path))
    }

    fn next_branch(&mut self, call: usize) {
        let (class, tried) = (self.calls[call].class, self.calls[call].tried.clone());
        let aor = format!("sip:{call}@example.test");
        let want = Want {
            group: GROUP,
            class,
            aor: aor.as_bytes(),
            affinity: None,
            tried: &tried,
        };
        let Some(path) = self.health.choose(self.now, &want) else {
            return;
        };
        self.calls[call].tried.push(path);
        self.order += 1;
        let req = RequestId(self.order);
        self.branches.insert(
            req,
            Branch {
                call,
                path,
                responded: false,
                abandoned: false,
            },
        );
        self.health.sent(
            self.now,
            req,
            path,
            class,
            &format!("{class:?} of call {call}"),
        );
        self.send(Act::RequestAtServer(req, path));
        self.later(T1, Act::Retransmit(req, T1));
        self.later(GIVE_UP, Act::GiveUp(req));
    }

    fn hunt(&mut self, req: RequestId, rule: &'static str) {
        let branch = self.branches.get_mut(&req).expect("a known request hunts");
        branch.abandoned = true;
        let call = branch.call;
        self.calls[call].rules.push(rule);
        if self.calls[call].answered.is_none() {
            self.next_branch(call);
        }
    }

    pub(crate) fn drain(&mut self) {
        while let Some(output) = self.health.poll_output() {
            match output {
                Output::Probe { id, path } => {
                    self.probes.push((self.now.mono, path));
                    self.send(Act::ProbeAtServer(id, path));
                }
                Output::Hunt { req, rule } => self.hunt(req, rule),
                Output::Event(event) => self.events.push(event),
                Output::Group { state, .. } => self.groups.push((self.now.mono, state)),
                Output::ServerDown { path } => self.downs.push((self.now.mono, path)),
                Output::ServerUp { path } => self.ups.push((self.now.mono, path)),
            }
        }
    }

    /// Over the network, which may lose it.
    fn send(&mut self, act: Act) {
        if self.random() >= self.loss {
            self.later(self.one_way, act);
        }
    }

    fn later(&mut self, wait: Duration, act: Act) {
        self.order += 1;
        self.net.insert((self.now.mono + wait, self.order), act);
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::ProbeAtServer(id, path) => match self.answers[&path] {
                Answer::Well => self.send(Act::ProbeAnswer(id, 200, None)),
                Answer::Options(code, retry) | Answer::Always(code, retry) => {
                    self.send(Act::ProbeAnswer(id, code, retry));
                }
                Answer::Silence | Answer::Icmp => {}
            },
            Act::ProbeAnswer(id, code, retry) => {
                self.health
                    .probe_received(self.now, id, code, retry.map(secs));
            }
            Act::RequestAtServer(req, path) => self.request_at_server(req, path),
            Act::ServerRepeats200(req, path, wait) => {
                let branch = self.branches[&req];
                let open = self.calls[branch.call].answered.is_none() && !branch.abandoned;
                if self.answers[&path] == Answer::Well && open && wait < GIVE_UP {
                    self.send(Act::Response(req, 200, None));
                    self.later(wait, Act::ServerRepeats200(req, path, (wait * 2).min(T2)));
                }
            }
            Act::Response(req, code, retry) => self.response(req, code, retry),
            Act::Unreachable(req) => self.health.icmp(self.now, req),
            Act::Retransmit(req, wait) => self.retransmit(req, wait),
            Act::GiveUp(req) => self.health.closed(self.now, req),
        }
    }

    fn request_at_server(&mut self, req: RequestId, path: PathKey) {
        let class = self.calls[self.branches[&req].call].class;
        match self.answers[&path] {
            Answer::Silence => {}
            Answer::Icmp => self.send(Act::Unreachable(req)),
            Answer::Always(code, retry) => self.send(Act::Response(req, code, retry)),
            Answer::Well | Answer::Options(..) if class == Class::Invite => {
                self.send(Act::Response(req, 100, None));
                self.later(ms(100), Act::ServerRepeats200(req, path, T1));
            }
            Answer::Well | Answer::Options(..) => self.send(Act::Response(req, 200, None)),
        }
    }

    fn response(&mut self, req: RequestId, code: u16, retry: Option<u64>) {
        let branch = self
            .branches
            .get_mut(&req)
            .expect("a known request is answered");
        branch.responded = true;
        let branch = *branch;
        match self
            .health
            .received(self.now, req, code, retry.map(secs), false)
        {
            Judgement::Hunt(rule) => self.hunt(req, rule),
            Judgement::Relay if code >= 200 && !branch.abandoned => {
                let answered = &mut self.calls[branch.call].answered;
                answered.get_or_insert((self.now.mono, branch.path, code));
            }
            Judgement::Relay => {}
        }
    }

    fn retransmit(&mut self, req: RequestId, wait: Duration) {
        let branch = self.branches[&req];
        let over = self.now.mono.since(self.calls[branch.call].started) > GIVE_UP;
        if branch.responded || branch.abandoned || over {
            return;
        }
        self.health.retransmitted(self.now, req);
        self.send(Act::RequestAtServer(req, branch.path));
        let next = wait * 2;
        let invite = self.calls[branch.call].class == Class::Invite;
        let next = if invite { next } else { next.min(T2) };
        self.later(next, Act::Retransmit(req, next));
    }
}
