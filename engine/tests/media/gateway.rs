//! A gateway with a LAN and two WAN links, and what its data path would hold.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use keepline_engine::{
    media::{Learn, Leg, Media, MediaConf, MediaLink, Refused, Seen, SessionId, Signalled},
    net::{LinkId, Side},
    sdp::Ice,
    steer::{Delta, Flow, FlowId},
    time::Now,
};

pub(crate) const LAN: LinkId = LinkId(0);
pub(crate) const WAN: LinkId = LinkId(1);
pub(crate) const WAN2: LinkId = LinkId(2);
pub(crate) const LAN_IP: &str = "10.99.1.1";
pub(crate) const WAN_IP: &str = "198.51.100.9";

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

pub(crate) fn direct(from: &str) -> Signalled {
    Signalled {
        from: ip(from),
        behind_nat: false,
    }
}

pub(crate) fn behind_nat(from: &str) -> Signalled {
    Signalled {
        from: ip(from),
        behind_nat: true,
    }
}

/// One audio stream, as a phone would offer it.
pub(crate) fn audio(at: &str, extra: &str) -> Vec<u8> {
    let (ip, port) = at.rsplit_once(':').unwrap();
    format!(
        "v=0\r\no=- 1 1 IN IP4 {ip}\r\ns=-\r\nc=IN IP4 {ip}\r\nt=0 0\r\n\
         m=audio {port} RTP/AVP 8\r\na=rtpmap:8 PCMA/8000\r\n{extra}"
    )
    .into_bytes()
}

/// The address and port a body asks media to be sent to.
pub(crate) fn wanted(body: &[u8]) -> SocketAddr {
    let text = std::str::from_utf8(body).unwrap();
    let line = |kind: &str| text.lines().find_map(|l| l.strip_prefix(kind)).unwrap();
    let ip: IpAddr = line("c=").rsplit(' ').next().unwrap().parse().unwrap();
    SocketAddr::new(ip, line("m=").split(' ').nth(1).unwrap().parse().unwrap())
}

/// `o=` without its user name.
pub(crate) fn origin(body: &[u8]) -> (u64, u64) {
    let text = std::str::from_utf8(body).unwrap();
    let line = text.lines().find_map(|l| l.strip_prefix("o=")).unwrap();
    let words: Vec<_> = line.split(' ').collect();
    (words[1].parse().unwrap(), words[2].parse().unwrap())
}

pub(crate) struct Gateway {
    pub(crate) media: Media,
    pub(crate) now: Now,
    /// What the deltas so far amount to.
    pub(crate) flows: BTreeMap<FlowId, Flow>,
    pub(crate) ports: BTreeSet<SocketAddr>,
}

impl Gateway {
    pub(crate) fn new() -> Self {
        Self::with(10_000..=10_199, Learn::Once)
    }

    pub(crate) fn with(ports: std::ops::RangeInclusive<u16>, learn: Learn) -> Self {
        Self::doing(ports, learn, Ice::Strip)
    }

    pub(crate) fn doing(ports: std::ops::RangeInclusive<u16>, learn: Learn, ice: Ice) -> Self {
        let conf = MediaConf {
            ports,
            learn,
            ice,
            timeout: Duration::from_secs(300),
            seed: 42,
        };
        let link = |id, side, address| MediaLink {
            id,
            side,
            address: Some(ip(address)),
        };
        let links = vec![
            link(LAN, Side::Lan, LAN_IP),
            link(WAN, Side::Wan, WAN_IP),
            link(WAN2, Side::Wan, "203.0.113.9"),
        ];
        Self {
            media: Media::new(conf, links),
            now: Now::default().after(Duration::from_secs(100)),
            flows: BTreeMap::new(),
            ports: BTreeSet::new(),
        }
    }

    pub(crate) fn wait(&mut self, ms: u64) {
        self.now = self.now.after(Duration::from_millis(ms));
    }

    /// Applies the deltas as the data path would, and checks that they agree with the lists.
    pub(crate) fn drain(&mut self) {
        while let Some(delta) = self.media.poll_output() {
            match delta {
                Delta::PortOpen { local, .. } => {
                    assert!(self.ports.insert(local), "opened twice: {local}")
                }
                Delta::PortClose { local } => {
                    assert!(self.ports.remove(&local), "not open: {local}")
                }
                Delta::FlowSet(flow) => {
                    assert_ne!(self.flows.insert(flow.id, flow), Some(flow), "set twice");
                }
                Delta::FlowClear(id) => assert!(self.flows.remove(&id).is_some(), "no such flow"),
                other => panic!("{other:?}"),
            }
        }
        let listed: BTreeMap<_, _> = self
            .media
            .flows()
            .map(|(_, flow)| (flow.id, *flow))
            .collect();
        assert_eq!(listed, self.flows, "deltas and list agree");
        let listed: BTreeSet<_> = self.media.ports().map(|(_, local)| local).collect();
        assert_eq!(listed, self.ports);
        let keys: BTreeSet<_> = self.flows.values().map(|flow| flow.local).collect();
        assert_eq!(keys.len(), self.flows.len(), "no two flows share a port");
        for flow in self.flows.values() {
            assert!(
                self.ports.contains(&flow.local),
                "a flow without its socket"
            );
            assert!(!flow.to.ip().is_loopback() && !flow.to.ip().is_multicast());
        }
    }

    pub(crate) fn offer(
        &mut self,
        session: u64,
        from: Leg,
        signalled: Signalled,
        body: &[u8],
    ) -> Result<Vec<u8>, Refused> {
        let out = self
            .media
            .offer(self.now, SessionId(session), from, signalled, body);
        self.drain();
        out
    }

    pub(crate) fn answer(
        &mut self,
        session: u64,
        from: Leg,
        signalled: Signalled,
        body: &[u8],
    ) -> Result<Vec<u8>, Refused> {
        let out = self
            .media
            .answer(self.now, SessionId(session), from, signalled, body);
        self.drain();
        out
    }

    pub(crate) fn seen(&mut self, local: SocketAddr, from: &str) -> Seen {
        let seen = self.media.source_seen(self.now, local, at(from));
        self.drain();
        seen
    }

    pub(crate) fn close(&mut self, session: u64) {
        self.media.close(self.now, SessionId(session));
        self.drain();
    }

    /// A call from a LAN phone at `phone` to a softswitch whose media is at `far`: returns what
    /// each of them was told to send to.
    pub(crate) fn call(
        &mut self,
        session: u64,
        phone: &str,
        far: &str,
    ) -> (SocketAddr, SocketAddr) {
        self.media.open(SessionId(session), LAN, WAN);
        let phone_ip = phone.rsplit_once(':').unwrap().0;
        let out = self
            .offer(session, Leg::Caller, direct(phone_ip), &audio(phone, ""))
            .unwrap();
        let far_told = wanted(&out);
        let out = self
            .answer(session, Leg::Callee, direct("192.0.2.10"), &audio(far, ""))
            .unwrap();
        (wanted(&out), far_told)
    }

    /// The flow of what arrives at this port.
    pub(crate) fn flow(&self, local: SocketAddr) -> Option<Flow> {
        self.flows
            .values()
            .find(|flow| flow.local == local)
            .copied()
    }
}
