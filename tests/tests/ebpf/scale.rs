//! A failover's cost does not depend on how many flows there are (KL1), with the maps of the
//! kernel filled to the brim.

use std::{net::SocketAddr, time::Instant};

use anyhow::{Context as _, Result, ensure};
use keepline::{
    fastpath::batch,
    steer::{Writes, resolver::Route},
};
use keepline_common::{
    reason::Reason,
    record::{FlowKey, PARTY_PHONE, Plan, PlanWord, mapped},
};
use keepline_engine::{net::LinkId, time::Mono};
use keepline_tests::fixture::{self, Fixture, IFINDEX, flow, packet::Udp, route};

const FLOWS: u32 = 1_000_000;
/// Slots that steering uses itself.
const RESERVED: u32 = 16;
const RTP: &[u8] = &[0x80, 0, 0, 1, 0, 0, 0, 160, 1, 2, 3, 4];

/// Flow `n` of transparent mode, from a host of its own.
fn ends(n: u32) -> (SocketAddr, SocketAddr) {
    let [_, a, b, c] = n.to_be_bytes();
    (
        SocketAddr::from(([10, a, b, c], 4_000)),
        SocketAddr::from(([203, 0, 113, 9], 5_004)),
    )
}

fn plan(n: u32, group: u32) -> (FlowKey, Plan) {
    let (SocketAddr::V4(from), SocketAddr::V4(to)) = ends(n) else {
        unreachable!("both are IPv4")
    };
    let key = FlowKey {
        source: mapped(from.ip().octets()),
        destination: mapped(to.ip().octets()),
        source_port: from.port().to_be_bytes(),
        destination_port: to.port().to_be_bytes(),
        ifindex: IFINDEX,
    };
    let plan = Plan {
        key,
        generation: 1,
        group,
        to: key.destination,
        to_port: key.destination_port,
        from_port: key.source_port,
        vlan: [[0; 2]; 2],
        classes: 0,
        talk: 1,
        party: PARTY_PHONE,
    };
    (key, plan)
}

/// Installs flows `range` by batch.
fn fill(fixture: &Fixture, group: u32, range: std::ops::Range<u32>) -> Result<()> {
    let slots: Vec<u32> = range.clone().map(|n| RESERVED + n).collect();
    let (keys, plans): (Vec<_>, Vec<_>) = range.map(|n| plan(n, group)).unzip();
    let word = |slot: &u32| {
        PlanWord {
            slot: *slot,
            generation: 1,
        }
        .pack()
    };
    let words: Vec<u64> = slots.iter().map(word).collect();
    batch::update(&fixture.plans_map, &slots, &plans).context("PLANS")?;
    batch::update(&fixture.flows_map, &keys, &words).context("FLOWS")
}

/// What a change of the next hop's MAC writes.
fn failover(fixture: &mut Fixture, last: u8) -> Result<Writes> {
    let to = "192.0.2.10".parse()?;
    let way = Route {
        next_hop_mac: Some([2, 0, 0, 0, 9, last]),
        ..route("198.51.100.1", "198.51.100.254")
    };
    fixture.steer.resolver().routes.insert((LinkId(1), to), way);
    let before = fixture.steer.writes();
    fixture.steer.route_changed(LinkId(1), Mono::default())?;
    Ok(fixture.steer.writes().since(before))
}

/// Packets of flow `n` leave for the router with this last byte of its MAC.
fn leaves_by(fixture: &mut Fixture, n: u32, last: u8) -> Result<()> {
    let (from, to) = ends(n);
    let frame = Udp::new(&from.to_string(), &to.to_string(), RTP).frame();
    let outcome = fixture.run(&frame);
    ensure!(
        outcome.reason == Some(Reason::FlowRouted),
        "flow {n}: {outcome:?}"
    );
    ensure!(
        outcome.frame[..6] == [2, 0, 0, 0, 9, last],
        "flow {n}: {outcome:?}"
    );
    Ok(())
}

#[test]
fn kl1_a_failover_of_1_000_000_flows_writes_what_one_of_a_single_flow_does() -> Result<()> {
    if fixture::cannot_run().is_some() {
        return Ok(());
    }
    fixture::enter_namespace();
    let mut fixture = Fixture::sized(FLOWS + RESERVED, FLOWS, true);
    let way = route("198.51.100.1", "198.51.100.254");
    let media = flow(
        1,
        [0, 1],
        "10.99.0.1:10000",
        "10.99.0.20:4000",
        10_500,
        "192.0.2.10:5004",
    );
    fixture.install(media, Some(way));
    let rows = fixture.steer.flows()?;
    let group = rows.first().context("no flow")?.group;

    fill(&fixture, group, 0..1)?;
    let one = failover(&mut fixture, 1)?;
    leaves_by(&mut fixture, 0, 1)?;
    let since = Instant::now();
    for from in (1..FLOWS).step_by(100_000) {
        fill(&fixture, group, from..(from + 100_000).min(FLOWS))?;
    }
    eprintln!(
        "{FLOWS} flows installed in {} ms",
        since.elapsed().as_millis()
    );
    let all = failover(&mut fixture, 2)?;
    ensure!(one == all, "with one flow {one:?}, with {FLOWS} {all:?}");
    ensure!(
        all == Writes {
            groups: 1,
            hops: 1,
            ..Writes::default()
        },
        "{all:?}"
    );
    for n in (0..FLOWS).step_by(997) {
        leaves_by(&mut fixture, n, 2)?;
    }
    Ok(())
}
