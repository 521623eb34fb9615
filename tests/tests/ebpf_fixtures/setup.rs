//! What the fixtures' gateway serves: listeners, flows, sockets.

use std::net::UdpSocket;

use keepline_engine::{
    net::ListenerId,
    steer::{Delta, Gate, GateId},
    time::Mono,
};
use keepline_tests::fixture::{Fixture, MEDIA_FIRST, flow, route};

use crate::table::{LAN, LAN6, local, local6};

/// Listeners at port 5060 whose paths serve, 5061 silent, 5062 error, 5063 serving by client.
pub(crate) fn listeners(fixture: &mut Fixture) {
    for (number, gate) in [Gate::Serving, Gate::Silent, Gate::Error]
        .into_iter()
        .enumerate()
    {
        let id = number as u16;
        for (index, address) in [LAN, LAN6].into_iter().enumerate() {
            let address = std::net::SocketAddr::new(address.parse().unwrap(), 5060 + id);
            fixture
                .steer
                .listener_set(
                    ListenerId(id * 2 + index as u16),
                    address,
                    GateId(id),
                    Mono::default(),
                )
                .unwrap();
        }
        let delta = Delta::GateSet {
            gate: GateId(id),
            state: gate,
        };
        // From a word nobody wrote, the error form is spread: set it as if long ago.
        fixture.steer.apply(&delta, Mono::default()).unwrap();
    }
    // One client of the silent listener has a path of its own that serves.
    let client = Delta::ClientSet {
        client: "10.99.0.20:7000".parse().unwrap(),
        listener: ListenerId(2),
        gate: GateId(0),
    };
    fixture.steer.apply(&client, Mono::default()).unwrap();
}

/// One media port per kind of way out.
pub(crate) fn flows(fixture: &mut Fixture) {
    let mut install = |port: u16, links, source: &str, to: &str, way| {
        let address = if source.starts_with('[') {
            local6(port)
        } else {
            local(port)
        };
        let id = u64::from(port);
        fixture.install(flow(id, links, &address, source, 10_500, to), way);
    };
    let phone = "10.99.0.20:4000";
    let phone6 = "[2001:db8::20]:4000";
    let plain = || route("198.51.100.1", "198.51.100.254");
    let plain6 = || route("2001:db8:1::1", "2001:db8:1::fe");
    install(10_000, [0, 1], phone, "192.0.2.10:5004", Some(plain()));
    install(
        10_001,
        [0, 1],
        phone6,
        "[2001:db8:2::10]:5004",
        Some(plain6()),
    );
    let small = |way| keepline::steer::resolver::Route { mtu: 100, ..way };
    install(
        10_002,
        [0, 1],
        phone,
        "192.0.2.12:5004",
        Some(small(route("198.51.100.1", "198.51.100.3"))),
    );
    install(10_003, [0, 1], phone, "192.0.2.13:5004", None);
    let here = keepline::steer::resolver::Route {
        local: true,
        ..route("198.51.100.1", "192.0.2.14")
    };
    install(10_004, [0, 1], phone, "192.0.2.14:5004", Some(here));
    install(
        10_005,
        [0, 1],
        phone,
        "192.0.2.15:5004",
        Some(route("2001:db8:1::1", "192.0.2.15")),
    );
    let mut tagged = route("198.51.100.1", "198.51.100.4");
    tagged.vlan = [7, 0];
    install(
        10_006,
        [0, 1],
        phone,
        "192.0.2.16:5004",
        Some(tagged.clone()),
    );
    tagged.next_hop = "198.51.100.5".parse().unwrap();
    tagged.vlan = [7, 8];
    install(
        10_007,
        [0, 1],
        phone,
        "192.0.2.17:5004",
        Some(tagged.clone()),
    );
    install(10_008, [2, 1], phone, "192.0.2.10:5004", Some(plain()));
    install(10_009, [3, 1], phone, "192.0.2.17:5004", Some(tagged));
    install(
        10_010,
        [0, 1],
        phone,
        "[2001:db8:2::10]:5004",
        Some(plain6()),
    );
    install(10_011, [0, 1], phone6, "192.0.2.10:5004", Some(plain()));
    // A plan whose slot holds another generation than the word says.
    let slot = keepline_common::record::PlanWord {
        slot: 0,
        generation: 0x7777,
    };
    fixture
        .media
        .store(u32::from(10_012 - MEDIA_FIRST), slot.pack());
    fixture
        .media
        .store(u32::from(10_013 - MEDIA_FIRST), fixture.media.load(0));
}

/// Sockets as the controller holds them, one per media port in use.
pub(crate) fn sockets() -> Vec<UdpSocket> {
    (10_000..10_014)
        .flat_map(|port| [format!("0.0.0.0:{port}"), format!("[::]:{port}")])
        .map(|address| {
            let domain = if address.starts_with('[') {
                socket2::Domain::IPV6
            } else {
                socket2::Domain::IPV4
            };
            let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, None).unwrap();
            if domain == socket2::Domain::IPV6 {
                socket.set_only_v6(true).unwrap();
            }
            socket
                .bind(&address.parse::<std::net::SocketAddr>().unwrap().into())
                .unwrap();
            socket.into()
        })
        .collect()
}
