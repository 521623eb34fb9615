//! Random histories of calls and registrations: a restart is not seen in any view.

use std::{collections::BTreeSet, time::Duration};

use keepline_engine::{
    gateway::{CallView, Records, RegistrationView},
    media::{SourceRecord, WindowRecord},
    sip::Name,
    steer::Flow,
};
use proptest::prelude::*;

use super::{
    ALICE, GW_WAN, LAN, SS1, World, addr, answer_of_far, body, call, calls, flows, follow, header,
    invite, ports, register, registrations, sdp,
};

/// What parties may do, in any order.
#[derive(Debug, Clone, Copy)]
enum Act {
    Register(u8),
    Unregister(u8),
    Call(u8),
    /// A re-INVITE; its 200 has had its ACK, or not yet.
    Hold {
        acked: bool,
    },
    Media(u8),
    Bye,
    Pass(u16),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (0_u8..4).prop_map(Act::Register),
        (0_u8..4).prop_map(Act::Unregister),
        (0_u8..4).prop_map(Act::Call),
        any::<bool>().prop_map(|acked| Act::Hold { acked }),
        (0_u8..3).prop_map(Act::Media),
        Just(Act::Bye),
        (0_u16..20_000).prop_map(Act::Pass),
    ]
}

fn phone(n: u8) -> (String, String) {
    (format!("20{n}"), format!("10.99.1.{}:5060", 20 + n))
}

fn perform(world: &mut World, step: usize, act: Act) {
    let cseq = u32::try_from(step).unwrap() + 10;
    match act {
        Act::Register(n) | Act::Unregister(n) => {
            let (user, at) = phone(n);
            let expires = if matches!(act, Act::Register(_)) {
                3600
            } else {
                0
            };
            world.hear(LAN, &at, &register(&user, &at, cseq, expires));
            for up in world
                .to(SS1)
                .into_iter()
                .filter(|sent| sent.what() == "REGISTER")
            {
                let contact = header(&up, Name::Contact);
                world.answer(&up, "200 OK", &format!("Contact: {contact}\n"));
            }
        }
        Act::Call(n) => {
            let (user, at) = phone(n);
            let text = invite(&user, &at, "300", cseq, "")
                .replace("call-1", &format!("call-{step}"))
                .replace("tag=a1", &format!("tag=a{step}"));
            world.hear(LAN, &at, &text);
            for up in world
                .to(SS1)
                .into_iter()
                .filter(|sent| sent.what() == "INVITE")
            {
                world.answer_tagged(&up, "200 OK", "b1", &answer_of_far());
            }
        }
        Act::Hold { .. } | Act::Bye => {
            let Some(call) = calls(world).into_iter().next() else {
                return;
            };
            let at = call.legs[0].remote.to_string();
            let user = call
                .from
                .trim_start_matches("sip:")
                .split('@')
                .next()
                .unwrap()
                .to_owned();
            let step: String = call
                .call_id
                .chars()
                .skip(5)
                .take_while(char::is_ascii_digit)
                .collect();
            let (method, extra) = match act {
                Act::Hold { .. } => ("INVITE", body(&format!("{}a=sendonly\r\n", sdp(&at, 4000)))),
                _ => ("BYE", String::new()),
            };
            let of_call = |text: String| {
                text.replace("call-1", &format!("call-{step}"))
                    .replace("tag=a1", &format!("tag=a{step}"))
            };
            let text = of_call(follow(method, &user, &at, "300", cseq, &extra));
            world.hear(LAN, &at, &text);
            agree(world);
            if matches!(act, Act::Hold { acked: true }) {
                let ack = of_call(follow("ACK", &user, &at, "300", cseq, ""));
                world.hear(LAN, &at, &ack);
            }
        }
        Act::Media(n) => {
            let from = addr(&format!("203.0.113.9:{}", 6000 + u16::from(n)));
            let local = ports(world)
                .into_iter()
                .map(|(_, at)| at)
                .find(|at| at.ip() == addr(GW_WAN).ip());
            if let Some(local) = local {
                let _ = world.gateway.media_seen(world.now, local, from);
            }
        }
        Act::Pass(ms) => world.pass_ms(u64::from(ms)),
    }
    world.pass_ms(0);
    world.sent.clear();
}

/// The far party answers what reached it.
fn agree(world: &mut World) {
    for up in world.to(SS1) {
        match up.what().as_str() {
            "INVITE" => world.answer(&up, "200 OK", &answer_of_far()),
            "BYE" => world.answer(&up, "200 OK", ""),
            _ => {}
        }
    }
}

/// Flows, calls and bindings, as anybody can see them.
fn seen(world: &World) -> (Vec<Flow>, Vec<CallView>, Vec<RegistrationView>) {
    let mut calls = calls(world);
    // Counted while the source is unknown, and of no use after a restart.
    for leg in calls
        .iter_mut()
        .flat_map(|call| call.media.iter_mut())
        .flat_map(|m| &mut m.streams)
        .flat_map(|s| &mut s.legs)
    {
        leg.before_lock = 0;
    }
    (flows(world), calls, registrations(world))
}

#[test]
fn kl5_the_comparison_sees_a_planted_fault() {
    let mut world = World::new();
    world.register("201", ALICE);
    call(&mut world);
    let faults: [fn(&mut Records); 4] = [
        |records| records.bindings[0].phone_until.0 -= Duration::from_secs(5),
        |records| records.dialogs.clear(),
        |records| source(records).accepted = None,
        |records| source(records).accepted = Some(addr("203.0.113.9:6666")),
    ];
    for (index, plant) in faults.into_iter().enumerate() {
        let mut again = World::new();
        again.store = world.store.clone();
        plant(&mut again.store);
        again.now = world.now;
        let again = again.restarted(Duration::ZERO);
        assert_ne!(seen(&again), seen(&world), "fault {index} goes unseen");
    }
}

/// An exchange that is repeated after the restart opens its learning of 2 s once more, and one
/// that is too old is kept no longer: that may differ where one was `unsettled`, nothing else.
fn comparable(records: &Records, unsettled: &BTreeSet<u64>) -> Records {
    let mut records = records.clone();
    let dialogs = records.dialogs.iter_mut();
    for dialog in dialogs.filter(|dialog| unsettled.contains(&dialog.id)) {
        dialog.caller.asked = None;
        for stream in dialog.media.iter_mut().flat_map(|media| &mut media.streams) {
            for end in &mut stream.ends {
                end.rtp.window = WindowRecord::Closed;
                end.rtcp.window = WindowRecord::Closed;
            }
        }
    }
    records
}

fn unsettled(records: &Records) -> BTreeSet<u64> {
    let asked = (records.dialogs.iter()).filter(|dialog| dialog.caller.asked.is_some());
    asked.map(|dialog| dialog.id).collect()
}

/// What is accepted from the far party of the first call.
fn source(records: &mut Records) -> &mut SourceRecord {
    let media = records.dialogs[0].media.as_mut().expect("media");
    &mut media.streams[0].ends[1].rtp
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn kl5_a_restart_is_not_seen_in_any_view(acts in prop::collection::vec(act(), 1..30)) {
        let mut world = World::new();
        for (step, act) in acts.into_iter().enumerate() {
            perform(&mut world, step, act);
        }
        let mut again = world.restarted(Duration::ZERO);
        // A re-INVITE whose 200 had no ACK yet is sent once more, and answered once more.
        agree(&mut again);
        prop_assert_eq!(seen(&again), seen(&world));
        prop_assert_eq!(ports(&again), ports(&world));
        let open = unsettled(&world.store);
        prop_assert!(comparable(&again.store, &open) == comparable(&world.store, &open));
    }
}
