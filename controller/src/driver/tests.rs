//! The loop on fakes: no programs, a store in memory, a phone on the loopback.

use std::{cell::RefCell, net::UdpSocket, path::Path, rc::Rc};

use keepline_engine::{
    gateway::{BindingRecord, Change, ListenerRecord, Records},
    net::ListenerId,
    seal::Key,
};
use tokio::runtime::Handle;

use super::{sockets::QUEUE, *};
use crate::{
    config::{self, Machine},
    store::MemoryStore,
    tunnel::traffic::Counters,
};

const CONFIG: &str = r#"
[gateway]
domain = "example.test"
[[interface]]
name = "lo"
role = "lan"
xdp = "off"
[[interface]]
name = "other"
role = "wan"
xdp = "off"
[listen]
udp = ["127.0.0.1:5060"]
[[softswitch]]
name = "core"
domain = "example.test"
servers = [{ uri = "sip:192.0.2.10:5060" }]
"#;

/// The store, seen from outside while the driver writes to it.
#[derive(Clone, Default)]
struct Shared(Rc<RefCell<MemoryStore>>);

impl Store for Shared {
    fn append(&mut self, changes: &[Change]) {
        self.0.borrow_mut().append(changes);
    }

    fn health(&mut self) -> Health {
        self.0.borrow_mut().health()
    }
}

impl Shared {
    fn full(&self, full: bool) {
        self.0.borrow_mut().full = full;
    }

    /// CSeq of the one binding it holds.
    fn cseq(&self) -> u32 {
        self.0.borrow().records.bindings[0].cseq
    }
}

/// A driver, its store, and a registered phone.
struct World {
    driver: Driver,
    queue: (mpsc::Sender<Heard>, mpsc::Receiver<Heard>),
    store: Shared,
    phone: UdpSocket,
}

impl World {
    async fn new() -> Self {
        let phone = UdpSocket::bind("127.0.0.1:0").unwrap();
        phone
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let queue = mpsc::channel(QUEUE);
        let store = Shared::default();
        let (netlink, _changes) = Netlink::start().await.unwrap();
        let loaded = config::parse(Path::new("k.toml"), CONFIG, &Machine::default());
        let mut config = loaded.expect("a configuration").config;
        // Every machine has one interface for certain: it plays both.
        "lo".clone_into(&mut config.interfaces[1].name);
        let engine = conf::engine(&config, &netlink.table(), Key([7; 32]), 1).unwrap();
        let clock = SystemClock::new();
        let mut sockets = Sockets::new(queue.0.clone(), Handle::current());
        let streams = Streams::new(queue.0.clone(), Duration::from_secs(300), Handle::current());
        let any = "127.0.0.1:0".parse().unwrap();
        sockets.listen(ListenerId(0), "lo", any, false).unwrap();
        let mut gateway = Gateway::new(clock.now(), engine, 1);
        let mut records = Records::default();
        records.bindings.push(binding(&phone, clock.now()));
        store.0.borrow_mut().records = records.clone();
        let _ = gateway.restore(clock.now(), records);
        let (tunnels, _frames) = Tunnels::new(&config, clock.now(), &netlink.table());
        let driver = Driver {
            config,
            config_path: PathBuf::new(),
            clock,
            gateway,
            sockets,
            streams,
            data_path: Box::new(NoDataPath),
            netlink,
            neighbours: Neighbours::open().unwrap(),
            store: Box::new(store.clone()),
            outbox: Outbox::default(),
            store_health: Health::default(),
            journal: Journal::new(),
            told: told::Told::new(),
            degraded: BTreeMap::new(),
            fast_path_failing: None,
            overrun: false,
            tunnels,
            traffic: Box::new(Counters::default()),
            copied: super::copied::Tally::default(),
            media_heard: HashMap::new(),
        };
        let mut world = Self {
            driver,
            queue,
            store: store.clone(),
            phone,
        };
        world.driver.drain_outputs();
        world
    }

    /// The phone refreshes its registration; what it is answered.
    fn refresh(&mut self, cseq: u32) -> String {
        let from = self.phone.local_addr().unwrap();
        let text = format!(
            "REGISTER sip:example.test SIP/2.0\r\n\
             Via: SIP/2.0/UDP {from};branch=z9hG4bK{cseq};rport\r\nMax-Forwards: 70\r\n\
             From: <sip:201@example.test>;tag=a\r\nTo: <sip:201@example.test>\r\n\
             Call-ID: reg-201\r\nCSeq: {cseq} REGISTER\r\nContact: <sip:201@{from}>\r\n\
             Expires: 3600\r\nContent-Length: 0\r\n\r\n"
        );
        let heard = Heard::Sip {
            listener: ListenerId(0),
            to: None,
            from,
            bytes: text.into_bytes(),
        };
        self.driver.hear(heard, &mut self.queue.1);
        let mut answer = [0; 2048];
        let length = self.phone.recv(&mut answer).expect("an answer");
        String::from_utf8_lossy(&answer[..length]).into_owned()
    }

    /// What was said of the store.
    fn said(&self) -> Vec<String> {
        let events = self.driver.journal.all();
        let of_store = events.into_iter().filter(|event| event.kind == "store");
        of_store.map(|event| event.to).collect()
    }
}

fn binding(phone: &UdpSocket, now: Now) -> BindingRecord {
    let source = phone.local_addr().unwrap();
    BindingRecord {
        id: 1,
        aor: "201@example.test".to_owned(),
        contact: format!("sip:201@{source}").into_bytes(),
        params: Vec::new(),
        token: "token".to_owned(),
        upstream_contact: b"sip:token@127.0.0.1:5060".to_vec(),
        source,
        proof: None,
        listener: ListenerRecord {
            link: "lo".to_owned(),
            transport: keepline_engine::net::Transport::Udp,
            address: "127.0.0.1:5060".parse().unwrap(),
        },
        call_id: b"reg-201".to_vec(),
        cseq: 1,
        credentials: None,
        group: "core".to_owned(),
        server: "192.0.2.10:5060".parse().unwrap(),
        accepted: now.wall,
        granted: Duration::from_secs(3600),
        phone_until: keepline_engine::time::Wall(now.wall.0 + Duration::from_secs(60)),
        service_route: Vec::new(),
        path: Vec::new(),
        outbound: false,
        associated: Vec::new(),
    }
}

#[tokio::test]
async fn kl5_a_full_store_stops_no_answer_is_said_once_and_is_told_all_anew() {
    let mut world = World::new().await;
    let answer = world.refresh(2);
    assert!(answer.starts_with("SIP/2.0 200"), "{answer}");
    assert_eq!(world.store.cseq(), 2, "kept before it was answered");

    world.store.full(true);
    let answer = world.refresh(3);
    assert!(answer.starts_with("SIP/2.0 200"), "{answer}");
    assert_eq!(world.store.cseq(), 2, "lost");
    for _ in 0..3 {
        world.driver.watch_store();
    }
    assert_eq!(world.said(), ["failing"]);

    world.store.full(false);
    for _ in 0..3 {
        world.driver.watch_store();
    }
    assert_eq!(world.said(), ["failing", "well"]);
    assert_eq!(world.store.cseq(), 3, "told anew what it lost");
    assert_eq!(world.store.0.borrow().records.bindings.len(), 1);
}

/// Found by `bench sip`: one datagram of each full batch was taken out of the queue and lost.
#[test]
fn nothing_is_lost_between_two_batches() {
    let (send, mut queue) = mpsc::channel(1_000);
    let all = 0..3 * BATCH + 5;
    all.clone()
        .for_each(|number| send.try_send(number).unwrap());
    let mut taken = Vec::new();
    while let Ok(first) = queue.try_recv() {
        let of_one: Vec<usize> = batch(first, &mut queue).collect();
        assert!(of_one.len() <= BATCH);
        taken.extend(of_one);
    }
    assert_eq!(taken, all.collect::<Vec<_>>());
}
