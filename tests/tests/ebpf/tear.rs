//! A plan taken away and another put in its place, at the highest rate, under four million
//! packets: no packet leaves by a plan that is not its own (fastpath.md section 1). The same
//! check fails when a record is edited in place, which shows that it can.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
};

use aya::maps::{Array, MapData};
use keepline::{
    fastpath::maps::Maps,
    steer::{Steer, tables::Tables as _},
};
use keepline_common::record::{Plan, PlanWord};
use keepline_engine::{
    steer::{Delta, FlowId},
    time::Mono,
};
use keepline_tests::fixture::{self, FakeResolver, Fixture, flow, hook::Hook, packet::Udp, route};

const PACKETS: u32 = 4_000_000;
const LOCAL: &str = "10.99.0.1:10000";
const PHONE: &str = "10.99.0.20:4000";
/// Where the calls of the port under test go. Their halves differ in every byte, so that a mix
/// of two shows.
const FIRST: &str = "192.0.2.10:4369";
const SECOND: &str = "203.0.113.245:61166";
/// Where another call goes that is put into the same slot.
const STRANGER: &str = "198.18.7.7:30583";

/// Packets of the port under test while `edit` runs, by where they went.
fn storm(
    fixture: &mut Fixture,
    packets: u32,
    mut edit: impl FnMut(&mut Hands<'_>, u64) + Send,
) -> BTreeMap<String, u64> {
    let frame = Udp::new(PHONE, LOCAL, &[0x80; 20]).frame();
    let done = AtomicBool::new(false);
    let Fixture {
        ebpf, steer, plans, ..
    } = fixture;
    let mut seen = BTreeMap::new();
    std::thread::scope(|scope| {
        let editor = scope.spawn(|| {
            let mut rounds = 0;
            let mut hands = Hands { steer, plans };
            while !done.load(Ordering::Relaxed) {
                edit(&mut hands, rounds);
                rounds += 1;
            }
            rounds
        });
        for _ in 0..packets {
            let (_, out) = Hook::Xdp.run(ebpf, &frame, 0);
            let key: [u8; 8] = [out[30], out[31], out[32], out[33], out[36], out[37], 0, 0];
            *seen.entry(key).or_insert(0) += 1;
        }
        done.store(true, Ordering::Relaxed);
        let rounds = editor.join().expect("the editor does not panic");
        println!("{packets} packets, {rounds} rounds of edits");
        assert!(rounds > 1_000, "only {rounds} rounds: nothing was hammered");
    });
    seen.into_iter()
        .map(|(key, count)| (place(key), count))
        .collect()
}

/// The hands of the editing thread.
struct Hands<'a> {
    steer: &'a mut Steer<Maps, FakeResolver>,
    plans: &'a mut Array<MapData, [u8; size_of::<Plan>()]>,
}

fn place([a, b, c, d, e, f, ..]: [u8; 8]) -> String {
    format!("{a}.{b}.{c}.{d}:{}", u16::from_be_bytes([e, f]))
}

fn foreign(seen: &BTreeMap<String, u64>) -> BTreeMap<&String, &u64> {
    seen.iter()
        .filter(|(place, _)| ![FIRST, SECOND, LOCAL].contains(&place.as_str()))
        .collect()
}

fn prepared(plans: u32) -> Fixture {
    fixture::enter_namespace();
    let mut fixture = Fixture::load(plans, false);
    // The port's own call comes last: no packet before the first edit goes elsewhere.
    for to in [STRANGER, SECOND, FIRST] {
        let way = route("198.51.100.1", "198.51.100.254");
        fixture.install(flow(1, [0, 1], LOCAL, PHONE, 10_500, to), Some(way));
    }
    fixture
}

/// The slots are few, so that each is soon another call's.
#[test]
fn no_packet_leaves_by_a_foreign_plan() {
    if fixture::cannot_run().is_some() {
        return;
    }
    let mut fixture = prepared(8);
    let seen = storm(&mut fixture, PACKETS, |hands, round| {
        let now = Mono(std::time::Duration::from_nanos(round));
        let mut apply = |delta| {
            hands
                .steer
                .apply(&delta, now)
                .expect("a slot after its grace")
        };
        apply(Delta::FlowSet(flow(1, [0, 1], LOCAL, PHONE, 10_500, FIRST)));
        apply(Delta::FlowSet(flow(
            1,
            [0, 1],
            LOCAL,
            PHONE,
            10_500,
            SECOND,
        )));
        apply(Delta::FlowClear(FlowId(1)));
        apply(Delta::FlowSet(flow(
            2,
            [0, 1],
            "10.99.0.1:10002",
            PHONE,
            10_502,
            STRANGER,
        )));
        apply(Delta::FlowClear(FlowId(2)));
    });
    println!("{seen:?}");
    assert!(
        seen.contains_key(FIRST) && seen.contains_key(SECOND),
        "both calls had packets"
    );
    assert_eq!(foreign(&seen), BTreeMap::new(), "packets by a foreign plan");
}

/// The planted fault: a re-INVITE that edits the record a word leads to.
#[test]
fn editing_a_record_in_place_is_noticed() {
    if fixture::cannot_run().is_some() {
        return;
    }
    let mut fixture = prepared(8);
    let word = PlanWord::unpack(fixture.media.load(0)).expect("the flow is in force");
    let first = fixture.steer.tables().plan(word.slot).expect("its plan");
    let mut second = first;
    second.to = keepline_common::record::mapped([203, 0, 113, 245]);
    second.to_port = 61_166_u16.to_be_bytes();
    let mut torn = BTreeMap::new();
    for _ in 0..20 {
        let seen = storm(&mut fixture, PACKETS / 20, |hands, round| {
            // Past the steering code, which offers no such write.
            let plan = if round % 2 == 0 { first } else { second };
            let bytes = *bytemuck::bytes_of(&plan)
                .first_chunk()
                .expect("a plan's bytes");
            hands.plans.set(word.slot, bytes, 0).expect("a write");
        });
        torn = foreign(&seen)
            .into_iter()
            .map(|(place, count)| (place.clone(), *count))
            .collect();
        if !torn.is_empty() {
            break;
        }
    }
    println!("torn: {torn:?}");
    assert!(
        !torn.is_empty(),
        "records were edited in place and nobody noticed"
    );
}
