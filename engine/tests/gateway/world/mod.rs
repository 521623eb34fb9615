//! A gateway in a simulated world: two softswitches on the WAN, phones on the LAN, a clock that
//! moves when told. Everything the gateway sends is kept; nothing is lost unless a test loses it.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses its own part of the world"
)]

use std::{net::SocketAddr, time::Duration};

use keepline_engine::{
    conf::{
        Accept, Conf, Group, Keepalive, Mode, PathUse, Policy, Registration, Stun, Survivability,
    },
    event::Event,
    gateway::{Gateway, Output, Records},
    health::{GroupConf, ServerConf},
    media::{Learn, MediaConf},
    net::{Link, LinkId, Listener, ListenerId, Side, Transport},
    sdp::Ice,
    seal::Key,
    sip::{Message, Name, stream::Frame},
    steer::Delta,
    time::{Mono, Now, Wall},
};

pub const LAN: ListenerId = ListenerId(0);
pub const WAN: ListenerId = ListenerId(1);
pub const GW_LAN: &str = "10.99.1.1:5060";
pub const GW_WAN: &str = "198.51.100.1:5060";
pub const SS1: &str = "192.0.2.10:5060";
pub const SS2: &str = "192.0.2.11:5060";
pub const ALICE: &str = "10.99.1.11:5060";
pub const BOB: &str = "10.99.1.12:5060";

/// A datagram the gateway sent.
#[derive(Debug, Clone)]
pub struct Sent {
    pub listener: ListenerId,
    pub to: SocketAddr,
    pub msg: Message,
}

impl Sent {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.msg.bytes()).into_owned()
    }

    /// The request's method or the response's code.
    pub fn what(&self) -> String {
        match self.msg.status() {
            Some(code) => code.to_string(),
            None => String::from_utf8_lossy(self.msg.method_bytes()).into_owned(),
        }
    }
}

pub struct World {
    pub gateway: Gateway,
    pub now: Now,
    pub sent: Vec<Sent>,
    pub deltas: Vec<Delta>,
    pub events: Vec<Event>,
    /// What a store would hold.
    pub store: Records,
    /// How many changes it was told.
    pub written: usize,
    /// Where every datagram went, taken or not.
    pub everything: Vec<SocketAddr>,
    /// To whom a CRLF went: the answer to a ping in a stream.
    pub pongs: Vec<SocketAddr>,
    /// To whom a double CRLF went, and when.
    pub pings: Vec<(SocketAddr, Mono)>,
    /// Binding requests: to whom, when, and the bytes.
    pub stuns: Vec<(SocketAddr, Mono, Vec<u8>)>,
    /// Whose connections were closed.
    pub closed: Vec<SocketAddr>,
    /// Which connection may be used for which address.
    pub aliases: Vec<(SocketAddr, SocketAddr)>,
    /// Dialogs whose silence was asked for, with their flows.
    pub asked: Vec<(u64, Vec<keepline_engine::steer::FlowId>)>,
    /// What was sent on in a phone's own name: whose, where to, and the bytes.
    pub passed: Vec<(SocketAddr, SocketAddr, Vec<u8>)>,
    /// Talks whose stamps were asked for.
    pub stamps: Vec<keepline_engine::steer::TalkId>,
    /// Servers that answer OPTIONS at once.
    pub alive: Vec<&'static str>,
}

pub fn addr(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

pub fn conf() -> Conf {
    let link = |name: &str, side, address: &str| Link {
        name: name.to_owned(),
        side,
        address: Some(addr(address).ip()),
        prefix: 24,
        up: true,
    };
    let server = |address: &str, priority| ServerConf {
        uri: format!("sip:{address}"),
        address: addr(address),
        transport: Transport::Udp,
        priority,
        weight: 10,
    };
    Conf {
        name: "branch-12".to_owned(),
        mode: Mode::Normal,
        hide_topology: true,
        domain: "example.test".to_owned(),
        links: vec![
            link("lan0", Side::Lan, GW_LAN),
            link("wan0", Side::Wan, GW_WAN),
        ],
        listeners: vec![
            Listener {
                link: LinkId(0),
                transport: Transport::Udp,
                address: addr(GW_LAN),
                taken_by: None,
            },
            Listener {
                link: LinkId(1),
                transport: Transport::Udp,
                address: addr(GW_WAN),
                taken_by: None,
            },
        ],
        groups: vec![Group {
            health: GroupConf {
                name: "core".to_owned(),
                servers: vec![server(SS1, 1), server(SS2, 2)],
                ..GroupConf::default()
            },
            domain: "example.test".to_owned(),
            hunt_budget: Duration::from_secs(4),
            inbound: Vec::new(),
            path: PathUse::Auto,
            shared_dialogs: false,
        }],
        accept: Accept::Peers,
        registration: Registration {
            phone_expires: Duration::from_secs(60),
            phone_expires_stream: Duration::from_secs(300),
            known_for: Duration::from_secs(14 * 86_400),
        },
        survivability: Survivability {
            policy: Policy::Off,
            expires: Duration::from_secs(60),
            last_digits: vec![3],
            recovery_register_rate: 50,
        },
        keepalive: Keepalive {
            stun: Stun::Off,
            interval: Duration::from_secs(30),
            timeout: Duration::from_secs(3),
        },
        keepalive_error: false,
        drain_grace: Duration::from_secs(60),
        media: MediaConf {
            ports: 10_000..=10_999,
            learn: Learn::Once,
            ice: Ice::Strip,
            timeout: Duration::from_secs(300),
            seed: 1,
        },
        secret: Key([7; 32]),
    }
}

impl World {
    pub fn new() -> Self {
        Self::with(conf())
    }

    pub fn with(conf: Conf) -> Self {
        let now = Now {
            mono: Mono(Duration::from_secs(1000)),
            wall: Wall(Duration::from_secs(1_800_000_000)),
        };
        let mut world = Self::begun(Gateway::new(now, conf, 42), now);
        world.drain();
        world
    }

    /// Nothing was said yet, and both servers live.
    fn begun(gateway: Gateway, now: Now) -> Self {
        Self {
            gateway,
            now,
            sent: Vec::new(),
            deltas: Vec::new(),
            events: Vec::new(),
            store: Records::default(),
            written: 0,
            everything: Vec::new(),
            pongs: Vec::new(),
            pings: Vec::new(),
            stuns: Vec::new(),
            closed: Vec::new(),
            aliases: Vec::new(),
            asked: Vec::new(),
            passed: Vec::new(),
            stamps: Vec::new(),
            alive: vec![SS1, SS2],
        }
    }

    /// The process dies here and starts again after this long, from what the store holds.
    pub fn restarted(&self, after: Duration) -> Self {
        self.restarted_at(|wall| wall + after)
    }

    /// The same, on a machine whose clock then says something else.
    pub fn restarted_at(&self, wall: impl Fn(Duration) -> Duration) -> Self {
        self.restarted_with(self.gateway.conf().clone(), wall)
    }

    /// The same, with another configuration.
    pub fn restarted_with(&self, conf: Conf, wall: impl Fn(Duration) -> Duration) -> Self {
        let now = Now {
            // Another process counts from another epoch.
            mono: Mono(Duration::from_secs(100_000_000)),
            wall: Wall(wall(self.now.wall.0)),
        };
        let mut world = Self {
            store: self.store.clone(),
            alive: self.alive.clone(),
            ..Self::begun(Gateway::new(now, conf, 43), now)
        };
        world.gateway.restore(now, self.store.clone());
        world.drain();
        world
    }

    fn drain(&mut self) {
        self.collect();
        while let Some(probe) = self.next_probe() {
            let text = response(&probe.msg, "200 OK", "p", "");
            self.gateway
                .datagram(self.now, probe.listener, probe.to, text);
            self.collect();
        }
    }

    fn next_probe(&mut self) -> Option<Sent> {
        let to_alive = |sent: &Sent| self.alive.iter().any(|server| sent.to == addr(server));
        let at = self
            .sent
            .iter()
            .position(|sent| sent.what() == "OPTIONS" && to_alive(sent))?;
        Some(self.sent.remove(at))
    }

    fn collect(&mut self) {
        while let Some(output) = self.gateway.poll_output() {
            match output {
                Output::Send { to, bytes, .. } if bytes == b"\r\n" => self.pongs.push(to),
                Output::Send { to, bytes, .. } if bytes == b"\r\n\r\n" => {
                    self.pings.push((to, self.now.mono));
                }
                Output::Send { to, bytes, .. } if bytes.starts_with(&[0, 1]) => {
                    self.stuns.push((to, self.now.mono, bytes));
                }
                Output::Close { peer, .. } => self.closed.push(peer),
                Output::Alias { peer, of, .. } => self.aliases.push((peer, of)),
                Output::Send {
                    listener,
                    to,
                    bytes,
                } => match Message::parse(bytes.clone()) {
                    Ok(msg) => {
                        self.everything.push(to);
                        self.sent.push(Sent { listener, to, msg });
                    }
                    Err(refusal) => panic!("sent no SIP ({refusal}): {}", bytes.escape_ascii()),
                },
                Output::Steer(delta) => self.deltas.push(delta),
                Output::Keep(change) => {
                    self.written += 1;
                    self.store.apply(change);
                }
                Output::Event(event) => self.events.push(event),
                Output::Silence { dialog, flows } => self.asked.push((dialog, flows)),
                Output::Pass {
                    from, to, bytes, ..
                } => self.passed.push((from, to, bytes)),
                Output::Stamps(talk) => self.stamps.push(talk),
            }
        }
    }

    /// A datagram arrives; `\n` stands for the line end.
    pub fn hear(&mut self, listener: ListenerId, from: &str, text: &str) {
        self.hear_bytes(
            listener,
            from,
            text.replace("\r\n", "\n")
                .replace('\n', "\r\n")
                .into_bytes(),
        );
    }

    pub fn hear_bytes(&mut self, listener: ListenerId, from: &str, bytes: Vec<u8>) {
        let listeners = &self.gateway.conf().listeners;
        match listeners[usize::from(listener.0)].transport.is_stream() {
            true => self
                .gateway
                .stream(self.now, listener, addr(from), Frame::Message(bytes)),
            false => self.gateway.datagram(self.now, listener, addr(from), bytes),
        }
        self.drain();
    }

    /// A datagram that a phone sent to a softswitch is taken on the way.
    pub fn hear_to(&mut self, to: &str, from: &str, text: &str) {
        let bytes = text.replace("\r\n", "\n").replace('\n', "\r\n");
        let (to, from) = (addr(to), addr(from));
        self.gateway
            .intercepted(self.now, LAN, to, from, bytes.into_bytes());
        self.drain();
    }

    /// The address that a message left from.
    pub fn source(&self, sent: &Sent) -> String {
        let listener = &self.gateway.conf().listeners[usize::from(sent.listener.0)];
        listener.address.to_string()
    }

    /// Time passes; every timer fires at its own time.
    pub fn pass(&mut self, by: Duration) {
        let end = self.now.after(by);
        self.drain();
        while let Some((at, _)) = self
            .gateway
            .poll_timeout()
            .filter(|(at, _)| *at <= end.mono)
        {
            self.now = self.now.after(at.since(self.now.mono));
            self.gateway.handle_timeout(self.now);
            self.drain();
        }
        self.now = end;
    }

    pub fn pass_ms(&mut self, ms: u64) {
        self.pass(Duration::from_millis(ms));
    }

    /// Takes what was sent to an address since the last call.
    pub fn to(&mut self, address: &str) -> Vec<Sent> {
        let (taken, kept) = std::mem::take(&mut self.sent)
            .into_iter()
            .partition(|sent| sent.to == addr(address));
        self.sent = kept;
        taken
    }

    /// Takes the one message of that kind that was sent to an address, leaving none behind.
    pub fn one(&mut self, address: &str, what: &str) -> Sent {
        let mut sent = self.to(address);
        sent.retain(|sent| sent.what() == what);
        let seen: Vec<String> = sent.iter().map(Sent::text).collect();
        assert_eq!(
            sent.len(),
            1,
            "{what} to {address}: {seen:#?}\nleft: {:?}",
            self.left()
        );
        sent.remove(0)
    }

    pub fn left(&self) -> Vec<String> {
        self.sent
            .iter()
            .map(|sent| format!("{} to {}", sent.what(), sent.to))
            .collect()
    }

    /// Answers a request the gateway sent, from where it was sent to.
    pub fn answer(&mut self, request: &Sent, status: &str, extra: &str) {
        self.answer_tagged(request, status, "b1", extra);
    }

    pub fn answer_tagged(&mut self, request: &Sent, status: &str, tag: &str, extra: &str) {
        let text = response(&request.msg, status, tag, extra);
        self.hear_bytes(request.listener, &request.to.to_string(), text);
    }

    /// Registers a phone and takes everything that was said.
    pub fn register(&mut self, user: &str, phone: &str) {
        self.hear(LAN, phone, &register(user, phone, 1, 3600));
        let up = self.one(SS1, "REGISTER");
        let contact = up.msg.contacts().next().expect("a contact");
        let contact = String::from_utf8_lossy(up.msg.slice(contact.uri)).into_owned();
        self.answer(
            &up,
            "200 OK",
            &format!("Contact: <{contact}>;expires=3600\n"),
        );
        self.one(phone, "200");
    }
}

pub fn register(user: &str, phone: &str, cseq: u32, expires: u32) -> String {
    format!(
        "REGISTER sip:example.test SIP/2.0
Via: SIP/2.0/UDP {phone};branch=z9hG4bKr{user}{cseq};rport
Max-Forwards: 70
From: <sip:{user}@example.test>;tag=r{user}
To: <sip:{user}@example.test>
Call-ID: reg-{user}
CSeq: {cseq} REGISTER
Contact: <sip:{user}@{phone}>
Expires: {expires}
Content-Length: 0

"
    )
}

pub fn sdp(address: &str, port: u16) -> String {
    let ip = addr(address).ip();
    format!("v=0\no=- 1 1 IN IP4 {ip}\ns=-\nc=IN IP4 {ip}\nt=0 0\nm=audio {port} RTP/AVP 0\na=rtpmap:0 PCMU/8000\n")
        .replace('\n', "\r\n")
}

pub fn body(sdp: &str) -> String {
    format!(
        "Content-Type: application/sdp\nContent-Length: {}\n\n{sdp}",
        sdp.len()
    )
}

pub fn invite(user: &str, phone: &str, to: &str, cseq: u32, extra: &str) -> String {
    let body = body(&sdp(phone, 4000));
    format!(
        "INVITE sip:{to}@example.test SIP/2.0
Via: SIP/2.0/UDP {phone};branch=z9hG4bKi{user}{cseq};rport
Max-Forwards: 70
From: <sip:{user}@example.test>;tag=a1
To: <sip:{to}@example.test>
Call-ID: call-1@{ip}
CSeq: {cseq} INVITE
Contact: <sip:{user}@{phone}>
{extra}{body}",
        ip = addr(phone).ip()
    )
}

/// A request of the caller inside the dialog of [`invite`].
pub fn follow(method: &str, user: &str, phone: &str, to: &str, cseq: u32, extra: &str) -> String {
    let to_tag = if method == "CANCEL" { "" } else { ";tag=b1" };
    let branch = if method == "CANCEL" {
        format!("i{user}{cseq}")
    } else {
        format!("{method}{cseq}")
    };
    let body = if extra.contains("\n\n") {
        ""
    } else {
        "Content-Length: 0\n\n"
    };
    format!(
        "{method} sip:{to}@example.test SIP/2.0
Via: SIP/2.0/UDP {phone};branch=z9hG4bK{branch};rport
Max-Forwards: 70
From: <sip:{user}@example.test>;tag=a1
To: <sip:{to}@example.test>{to_tag}
Call-ID: call-1@{ip}
CSeq: {cseq} {method}
{extra}{body}",
        ip = addr(phone).ip()
    )
}

/// A response built as a user agent would: what identifies the transaction copied, a To tag
/// added where there is none. `extra` may end in a body.
pub fn response(request: &Message, status: &str, tag: &str, extra: &str) -> Vec<u8> {
    let mut out = format!("SIP/2.0 {status}\r\n");
    for line in request.lines() {
        if matches!(
            line.name,
            Name::Via | Name::From | Name::CallId | Name::CSeq | Name::RecordRoute
        ) {
            out.push_str(&String::from_utf8_lossy(request.slice(line.full)));
        }
    }
    let to = request
        .header(Name::To)
        .map(|span| String::from_utf8_lossy(request.slice(span)).into_owned());
    let to = to.expect("To");
    let tagged = request.to_tag().is_some() || status.starts_with("100");
    let tag = if tagged {
        String::new()
    } else {
        format!(";tag={tag}")
    };
    out.push_str(&format!("To: {to}{tag}\r\n"));
    let extra = extra.replace("\r\n", "\n").replace('\n', "\r\n");
    out.push_str(&extra);
    if !extra.contains("\r\n\r\n") {
        out.push_str("Content-Length: 0\r\n\r\n");
    }
    out.into_bytes()
}
