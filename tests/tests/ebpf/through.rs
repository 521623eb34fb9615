//! SIP between a phone and its softswitch that goes through (EM20, KL2), under BPF_PROG_TEST_RUN
//! by both hooks: verdict, bytes, counters, stamps, copies.

use keepline::{
    fastpath::copies::{Copied, Copies},
    steer::resolver::Route,
};
use keepline_common::{limits::COPY_PAYLOAD, reason::Reason};
use keepline_engine::{
    gateway::Sender,
    net::LinkId,
    steer::{Delta, Stamps, Talk, TalkId},
    time::Mono,
};
use keepline_tests::fixture::{self, Fixture, hook::Hook, packet::Udp, route};

const PHONE: &str = "10.99.0.20:5060";
const SERVER: &str = "192.0.2.10:5060";
const PHONE6: &str = "[2001:db8::20]:5060";
const SERVER6: &str = "[2001:db8:2::10]:5060";
const REQUEST: &[u8] = b"REGISTER sip:example.test SIP/2.0\r\nVia: x\r\n\r\n";
const RESPONSE: &[u8] = b"SIP/2.0 200 OK\r\nVia: x\r\n\r\n";
const ACK: &[u8] = b"ACK sip:example.test SIP/2.0\r\n\r\n";
const CTAG: u16 = 0x8100;
const HOOKS: [Hook; 2] = [Hook::Xdp, Hook::Tc];

fn talk(id: u32, phone: &str, server: &str) -> Talk {
    Talk {
        id: TalkId(id),
        lan: LinkId(0),
        phone: phone.parse().expect("an address"),
        wan: LinkId(1),
        server: server.parse().expect("an address"),
        up: false,
        bound: true,
    }
}

/// A gateway with a way to both parties, and its rings: the known ones', and the strangers'.
struct Site {
    fixture: Fixture,
    rings: [Copies; 2],
}

impl Site {
    fn new() -> Option<Self> {
        if fixture::cannot_run().is_some() {
            return None;
        }
        fixture::enter_namespace();
        let mut fixture = Fixture::through();
        let rings = ["COPIES", "STRANGERS"].map(|name| {
            let map = fixture.ebpf.take_map(name).expect("a ring");
            Copies::of(name, map).expect("a ring")
        });
        let mut site = Self { fixture, rings };
        site.way(1, SERVER, Some(route("198.51.100.1", "198.51.100.254")));
        site.way(0, PHONE, Some(route("10.99.0.1", "10.99.0.20")));
        site.way(1, SERVER6, Some(route("2001:db8:1::1", "2001:db8:1::fe")));
        site.way(0, PHONE6, Some(route("2001:db8::1", "2001:db8::20")));
        Some(site)
    }

    fn way(&mut self, link: u8, to: &str, way: Option<Route>) {
        let to: std::net::SocketAddr = to.parse().expect("an address");
        let routes = &mut self.fixture.steer.resolver().routes;
        match way {
            Some(way) => routes.insert((LinkId(link), to.ip()), way),
            None => routes.remove(&(LinkId(link), to.ip())),
        };
    }

    fn set(&mut self, talk: Talk) {
        let delta = Delta::TalkSet(talk);
        let set = self.fixture.steer.apply(&delta, Mono::default());
        set.expect("the talk is installed");
    }

    fn clear(&mut self, id: u32) {
        let delta = Delta::TalkClear(TalkId(id));
        let cleared = self.fixture.steer.apply(&delta, Mono::default());
        cleared.expect("the talk is taken away");
    }

    /// What becomes of a frame: the reason that was counted, and the frame.
    fn run(&mut self, hook: Hook, frame: &Udp) -> (Reason, Vec<u8>) {
        let frame = frame.frame();
        let outcome = self.fixture.run_at(|ebpf| hook.run(ebpf, &frame, 0));
        let reason = outcome.reason.expect("one reason");
        assert_eq!(outcome.action, hook.action(reason.verdict()), "{reason:?}");
        (reason, outcome.frame)
    }

    /// A frame that is left as it came, for this reason.
    fn stays(&mut self, hook: Hook, frame: &Udp, reason: Reason) {
        assert_eq!(self.run(hook, frame), (reason, frame.frame()), "{hook:?}");
        assert_eq!(self.copies(), []);
    }

    /// A frame that leaves as it came, but for MAC addresses and TTL.
    fn leaves(&mut self, hook: Hook, frame: &Udp) {
        let wanted = routed(frame).frame();
        let (reason, out) = self.run(hook, frame);
        assert_eq!((reason, out), (Reason::FlowRouted, wanted), "{hook:?}");
    }

    fn copies(&mut self) -> Vec<(Sender, Vec<u8>)> {
        let copied = |copied: Copied| (copied.sender, copied.bytes);
        let mut all: Vec<_> = std::iter::from_fn(|| self.rings[0].next_copy())
            .map(copied)
            .collect();
        all.extend(std::iter::from_fn(|| self.rings[1].next_copy()).map(copied));
        all
    }

    fn stamps(&self, id: u32) -> Stamps {
        self.fixture.steer.stamps(TalkId(id)).expect("stamps")
    }

    fn lost(&self) -> u64 {
        self.fixture.steer.tables().copies_lost()
    }
}

/// A frame as the gateway routes it.
fn routed(frame: &Udp) -> Udp {
    Udp {
        macs: [[2, 0, 0, 0, 0, 4], [2, 0, 0, 0, 0, 3]],
        ttl: frame.ttl - 1,
        ..frame.clone()
    }
}

fn says(payload: &[u8]) -> Udp {
    Udp::new(PHONE, SERVER, payload)
}

fn hears(payload: &[u8]) -> Udp {
    Udp::new(SERVER, PHONE, payload)
}

#[test]
fn em20_case_x9_both_directions_are_routed_as_they_are_and_copied() {
    let Some(mut site) = Site::new() else { return };
    site.set(talk(1, PHONE, SERVER));
    site.set(talk(2, PHONE6, SERVER6));
    for hook in HOOKS {
        for (phone, server) in [(PHONE, SERVER), (PHONE6, SERVER6)] {
            let request = Udp::new(phone, server, REQUEST);
            site.leaves(hook, &request);
            assert_eq!(site.copies(), [(Sender::Phone, REQUEST.to_vec())]);
            site.leaves(hook, &Udp::new(server, phone, RESPONSE));
            assert_eq!(site.copies(), [(Sender::Server, RESPONSE.to_vec())]);
            // A request of the softswitch, and the phone's answer.
            site.leaves(hook, &Udp::new(server, phone, REQUEST));
            site.leaves(hook, &Udp::new(phone, server, RESPONSE));
            assert_eq!(
                site.copies(),
                [
                    (Sender::Server, REQUEST.to_vec()),
                    (Sender::Phone, RESPONSE.to_vec())
                ]
            );
            // No evidence: keepalives, and what has no answer.
            for nothing in [b"\r\n\r\n", &[0; 4][..], b"", ACK] {
                site.leaves(hook, &Udp::new(phone, server, nothing));
            }
            assert_eq!(site.copies(), []);
        }
        let unchecked = Udp {
            unchecked: true,
            ..says(REQUEST)
        };
        site.leaves(hook, &unchecked);
        site.copies();
    }
    assert_eq!(site.lost(), 0);
}

#[test]
fn kl2_requests_and_responses_are_stamped_and_the_oldest_unanswered_stays() {
    let Some(mut site) = Site::new() else { return };
    site.set(talk(1, PHONE, SERVER));
    assert_eq!(site.stamps(1), Stamps::default());
    site.leaves(Hook::Xdp, &says(ACK));
    site.leaves(Hook::Xdp, &hears(REQUEST));
    site.leaves(Hook::Xdp, &says(RESPONSE));
    assert_eq!(site.stamps(1), Stamps::default());
    site.leaves(Hook::Xdp, &says(REQUEST));
    let first = site.stamps(1);
    site.leaves(Hook::Xdp, &says(REQUEST));
    let second = site.stamps(1);
    assert!(first.unanswered.is_some() && first.response.is_none());
    assert!(second.unanswered > second.request, "{second:?}");
    site.leaves(Hook::Xdp, &hears(RESPONSE));
    let answered = site.stamps(1);
    assert!(answered.unanswered.is_none() && answered.response.is_some());
    site.leaves(Hook::Xdp, &says(REQUEST));
    assert!(
        site.stamps(1).unanswered < answered.request,
        "since the answer"
    );
    // Another phone under the same number begins anew.
    site.clear(1);
    site.stays_unknown();
    site.set(talk(1, "10.99.0.20:5061", SERVER));
    assert_eq!(site.stamps(1), Stamps::default());
}

impl Site {
    fn stays_unknown(&mut self) {
        self.copies();
        self.stays(Hook::Xdp, &says(REQUEST), Reason::NoMatch);
        self.stays(Hook::Xdp, &hears(RESPONSE), Reason::NoMatch);
    }
}

#[test]
fn em20_a_talk_that_is_up_leaves_the_phone_to_the_socket_and_routes_its_softswitch() {
    let Some(mut site) = Site::new() else { return };
    site.set(Talk {
        up: true,
        bound: false,
        ..talk(1, PHONE, SERVER)
    });
    for hook in HOOKS {
        site.stays(hook, &says(REQUEST), Reason::FlowUp);
        site.leaves(hook, &hears(RESPONSE));
        // Nobody vouched for it: its copy is in the other ring.
        assert!(site.rings[0].next_copy().is_none());
        assert_eq!(site.copies(), [(Sender::Server, RESPONSE.to_vec())]);
    }
    site.set(talk(1, PHONE, SERVER));
    site.leaves(Hook::Xdp, &says(REQUEST));
    let copied = site.rings[0].next_copy().expect("a copy");
    assert_eq!((copied.talk, copied.sender), (TalkId(1), Sender::Phone));
}

#[test]
fn em20_case_x1_x3_what_cannot_be_routed_is_left_as_it_came() {
    let Some(mut site) = Site::new() else { return };
    site.set(talk(1, PHONE, SERVER));
    for hook in HOOKS {
        site.stays(hook, &says(REQUEST).ttl(1), Reason::TtlExpired);
        let other = Udp::new("10.99.0.20:5062", SERVER, REQUEST);
        site.stays(hook, &other, Reason::NoMatch);
        let tagged = says(REQUEST).tagged(&[[CTAG, 7]]);
        site.stays(hook, &tagged, Reason::NoMatch);
    }
    // A tag on the way out, and on the way in.
    site.way(
        1,
        SERVER,
        Some(Route {
            vlan: [7, 0],
            ..route("198.51.100.1", "198.51.100.4")
        }),
    );
    site.set(talk(1, PHONE, SERVER));
    let (reason, out) = site.run(Hook::Xdp, &says(REQUEST));
    let wanted = routed(&says(REQUEST)).tagged(&[[CTAG, 7]]).frame();
    assert_eq!((reason, out), (Reason::FlowRouted, wanted));
    site.set(Talk {
        lan: LinkId(2),
        ..talk(1, PHONE, SERVER)
    });
    let (reason, out) = site.run(Hook::Xdp, &says(REQUEST).tagged(&[[CTAG, 100]]));
    let wanted = routed(&says(REQUEST)).tagged(&[[CTAG, 7]]).frame();
    assert_eq!((reason, out), (Reason::FlowRouted, wanted));
    site.copies();
    site.way(
        1,
        SERVER,
        Some(Route {
            mtu: 60,
            ..route("198.51.100.1", "198.51.100.5")
        }),
    );
    site.set(talk(1, PHONE, SERVER));
    site.stays(Hook::Xdp, &says(REQUEST), Reason::TooBig);
    site.way(1, SERVER, None);
    site.set(talk(1, PHONE, SERVER));
    site.stays(Hook::Xdp, &says(REQUEST), Reason::HopUnresolved);
    assert_eq!(site.lost(), 0);
}

/// IPv4's flag, in the word of flags and offset.
const DONT_FRAGMENT: u16 = 0x4000;

#[test]
fn em20_kl2_what_the_kernel_routes_to_a_phone_is_stamped_and_copied_too() {
    let Some(mut site) = Site::new() else { return };
    let short = |mtu| Route {
        mtu,
        ..route("10.99.0.1", "10.99.0.21")
    };
    let whole = |id: u16| Udp {
        id: [id, DONT_FRAGMENT],
        ..hears(RESPONSE)
    };
    let late = hears(RESPONSE).ttl(1);
    let here = Route {
        local: true,
        ..route("10.99.0.20", "10.99.0.20")
    };
    // The way to the phone, the datagram, why it is left alone, whether the phone gets it.
    let cases = [
        (None, hears(RESPONSE), Reason::HopUnresolved, true),
        (Some(here), hears(RESPONSE), Reason::HopLocal, true),
        (Some(short(40)), hears(RESPONSE), Reason::TooBig, true),
        (Some(short(41)), whole(1), Reason::TooBig, false),
        (Some(short(1500)), late.clone(), Reason::TtlExpired, false),
        (Some(short(42)), late, Reason::TtlExpired, false),
    ];
    for (number, (way, frame, reason, arrives)) in (1..).zip(cases) {
        for hook in HOOKS {
            site.way(0, PHONE, way.clone());
            site.set(talk(number, PHONE, SERVER));
            let left = (reason, frame.frame());
            assert_eq!(site.run(hook, &frame), left, "{hook:?}");
            let copied = arrives.then(|| (Sender::Server, RESPONSE.to_vec()));
            assert_eq!(site.copies(), Vec::from_iter(copied), "{reason:?}");
            assert_eq!(
                site.stamps(number).response.is_some(),
                arrives,
                "{reason:?}"
            );
            site.clear(number);
        }
    }
    // A phone's comes to our socket: nothing else tells of it.
    site.way(1, SERVER, None);
    site.set(talk(9, PHONE, SERVER));
    site.stays(Hook::Xdp, &says(REQUEST), Reason::HopUnresolved);
    assert_eq!(site.stamps(9), Stamps::default());
}

#[test]
fn kl2_a_full_ring_loses_copies_which_are_counted_and_no_packet() {
    let Some(mut site) = Site::new() else { return };
    site.way(
        1,
        SERVER,
        Some(Route {
            mtu: 9_000,
            ..route("198.51.100.1", "198.51.100.254")
        }),
    );
    site.set(Talk {
        bound: false,
        ..talk(1, PHONE, SERVER)
    });
    let long = |len: u32| [REQUEST, &vec![b'x'; len as usize - REQUEST.len()]].concat();
    for hook in HOOKS {
        site.leaves(hook, &says(&long(COPY_PAYLOAD)));
        assert_eq!(site.copies(), [(Sender::Phone, long(COPY_PAYLOAD))]);
        let before = site.lost();
        site.leaves(hook, &says(&long(COPY_PAYLOAD + 1)));
        assert_eq!((site.copies(), site.lost() - before), (Vec::new(), 1));
    }
    let before = site.lost();
    let mut sent = 0;
    while site.lost() == before {
        site.leaves(Hook::Xdp, &says(REQUEST));
        sent += 1;
        assert!(sent < 1_000, "the ring of strangers is small");
    }
    site.leaves(Hook::Xdp, &says(REQUEST));
    assert_eq!(site.lost() - before, 2);
    assert_eq!(site.copies().len(), sent - 1);
    // Those whom a softswitch knows have a ring of their own.
    site.set(talk(1, PHONE, SERVER));
    for _ in 0..sent {
        site.leaves(Hook::Xdp, &says(REQUEST));
    }
    assert_eq!((site.copies().len(), site.lost() - before), (sent, 2));
}
