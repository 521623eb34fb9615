//! Steering against maps in memory and routes by hand: what is written, and how often.

use std::{collections::HashMap, io};

use keepline_common::classify::Class;
use keepline_common::record::{
    Address, ClientKey, FlowKey, FlowState, FlowWord, Hop, Listener, ListenerKey, Plan, PlanWord,
    TalkState,
};
use keepline_engine::steer::FlowKind;

use super::{resolver::Route, *};

const WAN: LinkId = LinkId(1);
const LAN: LinkId = LinkId(0);
const FIRST: u16 = 10_000;
const PORTS: u32 = 50_000;

/// The maps, in memory.
#[derive(Default)]
struct Memory {
    slots: u32,
    grace: bool,
    plans: HashMap<u32, Plan>,
    states: HashMap<u32, FlowState>,
    media: HashMap<u32, u64>,
    groups: HashMap<u32, u32>,
    paths: HashMap<u32, u64>,
    hops: HashMap<u32, Hop>,
    addresses: HashMap<Address, u32>,
    flows: HashMap<FlowKey, u64>,
    talks: HashMap<u32, TalkState>,
    /// Plans written over while a word led there: must stay empty.
    torn: Vec<u32>,
}

impl Tables for Memory {
    fn set_plan(&mut self, slot: u32, plan: &Plan) -> io::Result<()> {
        let leads_here = |word: &u64| PlanWord::unpack(*word).is_some_and(|w| w.slot == slot);
        // Looked at in small tables only: it walks them.
        let flow = |word: &u64| FlowWord::unpack(*word).is_some_and(|w| w.plan.slot == slot);
        let small = self.media.len() < 100;
        if small && self.media.values().any(leads_here) || self.flows.values().any(flow) {
            self.torn.push(slot);
        }
        self.plans.insert(slot, *plan);
        Ok(())
    }
    fn plan(&self, slot: u32) -> io::Result<Plan> {
        Ok(self.plans[&slot])
    }
    fn plan_slots(&self) -> u32 {
        self.slots
    }
    fn reset_state(&mut self, slot: u32) -> io::Result<()> {
        self.states.insert(slot, bytemuck::Zeroable::zeroed());
        Ok(())
    }
    fn state(&self, slot: u32) -> io::Result<FlowState> {
        Ok(self.states[&slot])
    }
    fn media_range(&self) -> (u16, u32) {
        (FIRST, PORTS)
    }
    fn media(&self, index: u32) -> u64 {
        self.media.get(&index).copied().unwrap_or(0)
    }
    fn set_media(&mut self, index: u32, word: u64) {
        self.media.insert(index, word);
    }
    fn group(&self, index: u32) -> u32 {
        self.groups.get(&index).copied().unwrap_or(0)
    }
    fn set_group(&mut self, index: u32, hop: u32) {
        self.groups.insert(index, hop);
    }
    fn path(&self, index: u32) -> u64 {
        self.paths.get(&index).copied().unwrap_or(0)
    }
    fn set_path(&mut self, index: u32, word: u64) {
        self.paths.insert(index, word);
    }
    fn set_hop(&mut self, index: u32, hop: &Hop) -> io::Result<()> {
        self.hops.insert(index, *hop);
        Ok(())
    }
    fn hop(&self, index: u32) -> io::Result<Hop> {
        Ok(self.hops[&index])
    }
    fn set_address(&mut self, address: Address, slot: u32) -> io::Result<()> {
        self.addresses.insert(address, slot);
        Ok(())
    }
    fn clear_address(&mut self, address: Address) -> io::Result<()> {
        self.addresses.remove(&address);
        Ok(())
    }
    fn addresses(&self) -> io::Result<Vec<(Address, u32)>> {
        Ok(self.addresses.iter().map(|(a, slot)| (*a, *slot)).collect())
    }
    fn set_listener(&mut self, _: ListenerKey, _: Listener) -> io::Result<()> {
        Ok(())
    }
    fn clear_listener(&mut self, _: ListenerKey) -> io::Result<()> {
        Ok(())
    }
    fn listeners(&self) -> io::Result<Vec<ListenerKey>> {
        Ok(Vec::new())
    }
    fn set_client(&mut self, _: ClientKey, _: u32) -> io::Result<()> {
        Ok(())
    }
    fn clear_client(&mut self, _: ClientKey) -> io::Result<()> {
        Ok(())
    }
    fn clear_clients(&mut self) -> io::Result<()> {
        Ok(())
    }
    fn set_flow(&mut self, key: FlowKey, word: u64) -> io::Result<()> {
        self.flows.insert(key, word);
        Ok(())
    }
    fn clear_flow(&mut self, key: FlowKey) -> io::Result<()> {
        self.flows.remove(&key);
        Ok(())
    }
    fn flow_words(&self) -> io::Result<Vec<(FlowKey, u64)>> {
        Ok(self.flows.iter().map(|(key, word)| (*key, *word)).collect())
    }
    fn talk(&self, index: u32) -> io::Result<TalkState> {
        Ok(self.talks[&index])
    }
    fn reset_talk(&mut self, index: u32) -> io::Result<()> {
        self.talks.insert(index, bytemuck::Zeroable::zeroed());
        Ok(())
    }
    fn set_device(&mut self, _: u32) -> io::Result<()> {
        Ok(())
    }
    fn kernel_now(&self) -> u64 {
        1_000_000_000_000
    }
    fn grace(&mut self) -> bool {
        self.grace
    }
}

/// Routes: everything by one router, but for the destinations named apart.
#[derive(Clone)]
struct Routes {
    all: Route,
    apart: HashMap<IpAddr, Route>,
}

impl Resolver for Routes {
    fn resolve(&mut self, _: LinkId, to: IpAddr) -> Option<Route> {
        Some(self.apart.get(&to).unwrap_or(&self.all).clone())
    }
}

fn by(router: u8) -> Route {
    Route {
        next_hop: IpAddr::from([10, 99, 2, router]),
        ifindex: 3,
        source: IpAddr::from([10, 99, 2, 1]),
        source_mac: [2, 0, 0, 0, 0, 1],
        next_hop_mac: Some([2, 0, 0, 0, 9, router]),
        mtu: 1_500,
        vlan: [0; 2],
        local: false,
    }
}

fn at(ms: u64) -> Mono {
    Mono(Duration::from_millis(ms))
}

fn steer_on(tables: Memory) -> Steer<Memory, Routes> {
    let routes = Routes {
        all: by(251),
        apart: HashMap::new(),
    };
    let mut steer = Steer::new(tables, routes, Duration::ZERO).unwrap();
    for (link, ifindex) in [(LAN, 2), (WAN, 3)] {
        let place = LinkPlace {
            ifindex,
            vlan: [0; 2],
        };
        steer.link_set(link, place, at(0)).unwrap();
    }
    steer
}

fn memory(slots: u32) -> Memory {
    Memory {
        slots,
        ..Memory::default()
    }
}

/// Flow `n`, to one of 200 destinations.
fn flow(n: u32) -> Flow {
    let local = IpAddr::from([10, 99, 1, 1 + (n / PORTS) as u8]);
    let port = FIRST + (n % PORTS) as u16;
    Flow {
        id: FlowId(u64::from(n)),
        kind: FlowKind::Rtp,
        ingress: LAN,
        local: SocketAddr::new(local, port),
        source: SocketAddr::from(([10, 99, 1, 20], 4_000)),
        egress: WAN,
        from_port: port,
        to: SocketAddr::from(([10, 99, 10, (n % 200) as u8], 4_000)),
    }
}

fn with_flows(count: u32) -> Steer<Memory, Routes> {
    let mut steer = steer_on(memory(count + 10));
    for n in 0..count {
        steer.apply(&Delta::FlowSet(flow(n)), at(0)).unwrap();
    }
    steer
}

/// What `change` wrote.
fn written(
    steer: &mut Steer<Memory, Routes>,
    change: impl FnOnce(&mut Steer<Memory, Routes>),
) -> Writes {
    let before = steer.writes();
    change(steer);
    steer.writes().since(before)
}

const ONE_STORE: Writes = Writes {
    media: 0,
    plans: 0,
    flows: 0,
    groups: 1,
    hops: 1,
    addresses: 0,
    clients: 0,
    paths: 0,
    listeners: 0,
    devices: 0,
};

/// What the word of a flow's port leads to.
fn plan_of(steer: &Steer<Memory, Routes>, flow: &Flow) -> Plan {
    let tables = steer.tables();
    let slot = tables.addresses[&bytes::address(flow.local.ip())];
    let index = slot * PORTS + u32::from(flow.local.port() - FIRST);
    let word = PlanWord::unpack(tables.media(index)).expect("a plan");
    tables.plans[&word.slot]
}

/// The MAC address that a flow's datagrams leave for, by the maps alone.
fn sent_to(steer: &Steer<Memory, Routes>, flow: &Flow) -> [u8; 6] {
    let tables = steer.tables();
    let hop = tables.hops[&tables.group(plan_of(steer, flow).group)];
    let [a, b, c, d, e, f, ..] = hop.macs;
    [a, b, c, d, e, f]
}

#[test]
fn kl1_a_new_mac_of_the_next_hop_is_one_hop_and_one_store_with_1_and_with_100_000_flows() {
    for count in [1, 100_000] {
        let mut steer = with_flows(count);
        let writes = written(&mut steer, |steer| {
            steer.resolver().all.next_hop_mac = Some([2, 0, 0, 0, 7, 7]);
            steer.route_changed(WAN, at(1)).unwrap();
        });
        assert_eq!(writes, ONE_STORE, "with {count} flows");
        assert_eq!(sent_to(&steer, &flow(count - 1)), [2, 0, 0, 0, 7, 7]);
    }
}

#[test]
fn kl1_a_route_by_a_second_router_is_one_hop_and_one_store_with_1_and_with_100_000_flows() {
    for count in [1, 100_000] {
        let mut steer = with_flows(count);
        let writes = written(&mut steer, |steer| {
            steer.resolver().all = by(252);
            steer.route_changed(WAN, at(1)).unwrap();
        });
        assert_eq!(writes, ONE_STORE, "with {count} flows");
        assert_eq!(sent_to(&steer, &flow(0)), [2, 0, 0, 0, 9, 252]);
    }
}

#[test]
fn what_is_forwarded_depends_on_what_a_flow_carries() {
    let mut steer = with_flows(1);
    let forwarded = |steer: &Steer<Memory, Routes>, first| {
        Class::of(first).is_in(plan_of(steer, &flow(0)).classes)
    };
    // RTP, DTLS; STUN, none of them.
    let seen = |steer: &Steer<Memory, Routes>| [0x80, 22, 0, 0xff].map(|b| forwarded(steer, b));
    assert_eq!(seen(&steer), [true, true, false, false]);
    for (kind, forwarded) in [
        (FlowKind::Checked, [true, true, true, false]),
        (FlowKind::Udptl, [true; 4]),
    ] {
        let other = Flow { kind, ..flow(0) };
        steer.apply(&Delta::FlowSet(other), at(1)).unwrap();
        assert_eq!(seen(&steer), forwarded, "{kind:?}");
    }
}

#[test]
fn a_change_that_changes_nothing_writes_nothing() {
    let mut steer = with_flows(10);
    let writes = written(&mut steer, |steer| {
        steer.route_changed(WAN, at(1)).unwrap();
        steer.apply(&Delta::FlowSet(flow(3)), at(1)).unwrap();
    });
    assert_eq!(writes, Writes::default());
}

#[test]
fn only_the_flows_that_strayed_move_to_another_group() {
    let mut steer = with_flows(200);
    let strayed = flow(7);
    let writes = written(&mut steer, |steer| {
        steer.resolver().apart.insert(strayed.to.ip(), by(252));
        steer.route_changed(WAN, at(1)).unwrap();
    });
    assert_eq!((writes.plans, writes.media), (1, 1), "{writes:?}");
    assert_eq!(sent_to(&steer, &strayed), [2, 0, 0, 0, 9, 252]);
    for n in (0..200).filter(|n| *n != 7) {
        assert_eq!(sent_to(&steer, &flow(n)), [2, 0, 0, 0, 9, 251], "flow {n}");
    }
}

#[test]
fn a_new_wan_address_is_one_entry_one_hop_and_one_store_and_the_old_one_stays_a_minute() {
    let (old, new) = (IpAddr::from([10, 99, 2, 1]), IpAddr::from([10, 99, 2, 9]));
    let mut steer = with_flows(1_000);
    let inbound = Flow {
        id: FlowId(9_999),
        ingress: WAN,
        egress: LAN,
        local: SocketAddr::new(old, FIRST),
        ..flow(0)
    };
    steer.apply(&Delta::FlowSet(inbound), at(0)).unwrap();
    let has = |steer: &Steer<Memory, Routes>, address| {
        steer
            .tables()
            .addresses
            .get(&bytes::address(address))
            .copied()
    };
    let slot = has(&steer, old).unwrap();
    let writes = written(&mut steer, |steer| {
        steer.resolver().all.source = new;
        steer
            .address_changed(WAN, Some(old), Some(new), at(1))
            .unwrap();
    });
    let wanted = Writes {
        addresses: 1,
        ..ONE_STORE
    };
    assert_eq!(writes, wanted, "no plan and no port is touched");
    steer.tick(at(59_000)).unwrap();
    assert_eq!(has(&steer, old), Some(slot), "receive-only");
    assert_eq!(has(&steer, new), Some(slot), "the same plans");
    steer.tick(at(61_001)).unwrap();
    assert_eq!(has(&steer, old), None);
    assert_eq!(has(&steer, new), Some(slot));
}

#[test]
fn kl5_a_restart_takes_up_orphans_and_claiming_them_writes_nothing_of_theirs() {
    let mut before = with_flows(100);
    let tables = std::mem::take(before.tables_mut());
    let media = tables.media.clone();
    let mut steer = steer_on(tables);
    let orphans = |steer: &Steer<Memory, Routes>| {
        let rows = steer.flows().unwrap();
        rows.iter().filter(|row| row.id.is_none()).count()
    };
    assert_eq!(
        orphans(&steer),
        100,
        "all forward before anybody claims them"
    );
    let wanted: Vec<Flow> = (0..60).map(flow).collect();
    let writes = written(&mut steer, |steer| {
        steer.reconcile((&wanted, &[]), at(1)).unwrap();
    });
    assert_eq!((writes.plans, writes.media), (0, 0), "{writes:?}");
    assert_eq!((writes.groups, writes.hops), (0, 0), "{writes:?}");
    assert_eq!(steer.tables().media, media, "slots and generations stay");
    assert_eq!(orphans(&steer), 40, "what nobody claims forwards on");

    // New flows take neither the slots nor the generations of what was there.
    steer.apply(&Delta::FlowSet(flow(500)), at(2)).unwrap();
    assert!(steer.tables().torn.is_empty());
    let gone = steer.forget_orphans(Duration::from_secs(1), at(3)).unwrap();
    assert_eq!((gone, orphans(&steer)), (40, 0), "silent orphans end");
    assert_eq!(steer.flow_count(), 61);
}

#[test]
fn reconciling_ends_claimed_flows_that_are_not_wanted() {
    let mut steer = with_flows(10);
    let wanted: Vec<Flow> = (0..4).map(flow).collect();
    let writes = written(&mut steer, |steer| {
        steer.reconcile((&wanted, &[]), at(1)).unwrap();
    });
    assert_eq!((writes.media, writes.plans), (6, 0));
    assert_eq!(steer.flow_count(), 4);
}

#[test]
fn case_x17_a_full_table_refuses_the_new_flow_says_so_and_keeps_the_old_ones() {
    let mut steer = steer_on(memory(8));
    for n in 0..8 {
        steer.apply(&Delta::FlowSet(flow(n)), at(0)).unwrap();
    }
    let media = steer.tables().media.clone();
    for n in 8..1_000 {
        let refused = steer.apply(&Delta::FlowSet(flow(n)), at(1)).unwrap_err();
        assert!(matches!(refused, Error::Full("PLANS")), "{refused}");
        assert!(refused.to_string().contains("full"), "{refused}");
    }
    assert_eq!(steer.tables().media, media, "the old ones are untouched");
    assert_eq!(steer.flow_count(), 8);
    // Room that was made is given to the next, after its grace.
    steer.apply(&Delta::FlowClear(FlowId(0)), at(2)).unwrap();
    steer.tick(at(1_100)).unwrap();
    steer.apply(&Delta::FlowSet(flow(8)), at(1_100)).unwrap();
}

#[test]
fn a_slot_is_not_written_before_its_grace_is_over() {
    let mut steer = steer_on(memory(2));
    steer.apply(&Delta::FlowSet(flow(0)), at(0)).unwrap();
    let moved = |n: u8| Flow {
        to: SocketAddr::from(([10, 99, 10, n], 5_000)),
        ..flow(0)
    };
    // A re-INVITE takes the other slot; the first rests.
    steer.apply(&Delta::FlowSet(moved(1)), at(0)).unwrap();
    let early = steer.apply(&Delta::FlowSet(moved(2)), at(500));
    assert!(matches!(early, Err(Error::Full("PLANS"))), "{early:?}");
    steer.tick(at(1_000)).unwrap();
    steer.apply(&Delta::FlowSet(moved(2)), at(1_000)).unwrap();
    // Where the kernel waits for its readers, nobody has to wait for the clock.
    steer.tables_mut().grace = true;
    steer.apply(&Delta::FlowSet(moved(3)), at(1_000)).unwrap();
    assert!(steer.tables().torn.is_empty());
}

#[test]
fn a_device_that_was_made_anew_moves_flows_and_hops() {
    let mut steer = with_flows(3);
    steer.resolver().all.ifindex = 33;
    let lan = LinkPlace {
        ifindex: 22,
        vlan: [0; 2],
    };
    let wan = LinkPlace {
        ifindex: 33,
        vlan: [0; 2],
    };
    let writes = written(&mut steer, |steer| {
        steer.link_set(LAN, lan, at(1)).unwrap();
        steer.link_set(WAN, wan, at(1)).unwrap();
    });
    assert_eq!(
        (writes.plans, writes.hops, writes.devices),
        (3, 1, 1),
        "{writes:?}"
    );
    assert!(steer.flows().unwrap().iter().all(|row| row.ifindex == 22));
    assert!(steer.hops().unwrap().iter().all(|row| row.ifindex == 33));
}

/// A phone of 200, and the softswitch.
fn talk(n: u32) -> Talk {
    Talk {
        id: TalkId(n),
        lan: LAN,
        phone: SocketAddr::from(([10, 99, 1, n as u8], 5_060)),
        wan: WAN,
        server: SocketAddr::from(([10, 99, 10, 1], 5_060)),
        up: true,
        bound: false,
    }
}

/// The words of a talk: the phone's, and its softswitch's.
fn words(steer: &Steer<Memory, Routes>, talk: &Talk) -> [Option<FlowWord>; 2] {
    let word = |from: SocketAddr, to: SocketAddr, ifindex| {
        let key = FlowKey {
            source: bytes::address(from.ip()),
            destination: bytes::address(to.ip()),
            source_port: from.port().to_be_bytes(),
            destination_port: to.port().to_be_bytes(),
            ifindex,
        };
        FlowWord::unpack(*steer.tables().flows.get(&key)?)
    };
    [
        word(talk.phone, talk.server, 2),
        word(talk.server, talk.phone, 3),
    ]
}

#[test]
fn em20_turning_a_talk_up_or_down_is_one_store_and_no_record() {
    let mut steer = steer_on(memory(500));
    for n in 1..=200 {
        steer.apply(&Delta::TalkSet(talk(n)), at(0)).unwrap();
    }
    let [phone, server] = words(&steer, &talk(7)).map(Option::unwrap);
    assert!(phone.up && phone.stranger && !server.up && server.stranger);
    let routed = Talk {
        up: false,
        bound: true,
        ..talk(7)
    };
    let set = written(&mut steer, |steer| {
        steer.apply(&Delta::TalkSet(routed), at(1)).unwrap();
    });
    // Both words say that it is a stranger's no more.
    let two_stores = Writes {
        flows: 2,
        ..Writes::default()
    };
    assert_eq!(set, two_stores);
    let up = Talk { up: true, ..routed };
    let set = written(&mut steer, |steer| {
        steer.apply(&Delta::TalkSet(up), at(2)).unwrap();
    });
    let one_store = Writes {
        flows: 1,
        ..Writes::default()
    };
    assert_eq!(set, one_store);
    let [now, _] = words(&steer, &up).map(Option::unwrap);
    assert_eq!((now.plan, now.up), (phone.plan, true));
    assert!(steer.tables().torn.is_empty());
}

#[test]
fn em20_a_talk_that_is_cleared_leaves_nothing_and_its_slots_rest() {
    let mut steer = steer_on(memory(2));
    steer.apply(&Delta::TalkSet(talk(1)), at(0)).unwrap();
    let full = steer.apply(&Delta::TalkSet(talk(2)), at(0));
    assert!(matches!(full, Err(Error::Full("PLANS"))), "{full:?}");
    steer.apply(&Delta::TalkClear(TalkId(1)), at(0)).unwrap();
    assert_eq!(words(&steer, &talk(1)), [None, None]);
    assert!(steer.apply(&Delta::TalkSet(talk(2)), at(999)).is_err());
    steer.tick(at(1_000)).unwrap();
    steer.apply(&Delta::TalkSet(talk(2)), at(1_000)).unwrap();
    assert_eq!(steer.talk_count(), 1);
}

#[test]
fn em20_kl5_a_restart_claims_talks_without_a_write_and_ends_the_others() {
    let mut steer = steer_on(memory(10));
    for n in 1..=2 {
        let routed = Talk {
            up: false,
            ..talk(n)
        };
        steer.apply(&Delta::TalkSet(routed), at(0)).unwrap();
    }
    let mut steer = steer_on(steer.tables);
    let kept = Talk {
        up: false,
        // Numbers are given anew.
        ..talk(1)
    };
    let claimed = written(&mut steer, |steer| {
        steer.apply(&Delta::TalkSet(kept), at(0)).unwrap();
    });
    assert_eq!((claimed.flows, claimed.plans), (0, 0));
    steer.reconcile((&[], &[kept]), at(1)).unwrap();
    assert!(words(&steer, &talk(1)).iter().all(Option::is_some));
    assert_eq!(words(&steer, &talk(2)), [None, None]);
    let again = written(&mut steer, |steer| {
        steer.reconcile((&[], &[kept]), at(2)).unwrap();
    });
    assert_eq!(again, Writes::default());
}

#[test]
fn em20_a_device_that_was_made_anew_moves_talks() {
    let mut steer = steer_on(memory(10));
    steer.apply(&Delta::TalkSet(talk(1)), at(0)).unwrap();
    let place = LinkPlace {
        ifindex: 9,
        vlan: [0; 2],
    };
    steer.link_set(WAN, place, at(1)).unwrap();
    let [phone, server] = words(&steer, &talk(1));
    assert!(phone.is_some() && server.is_none(), "the old key is gone");
    assert!(steer.tables().flows.keys().any(|key| key.ifindex == 9));
    assert_eq!(steer.tables().flows.len(), 2);
}
