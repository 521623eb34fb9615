//! A server dies while a call is being set up: that very call connects by the other one, and
//! nothing the dead server says late reaches the phone (signalling.md sections 1 to 3).

use std::time::Duration;

use crate::world::{
    self, ALICE, GW_WAN, LAN, SS1, SS2, Sent, WAN, World, body, follow, invite, register, sdp,
};
use keepline_engine::sip::{Message, Name};

const RINGING: &str = "180 Ringing";
const CONTACT: &str = "Contact: <sip:202@203.0.113.9:5080>\n";

fn header(msg: &Message, name: Name) -> String {
    msg.header(name)
        .map(|span| String::from_utf8_lossy(msg.slice(span)).into_owned())
        .unwrap_or_default()
}

/// A registered phone whose primary has just gone silent, and its INVITE as the primary got it.
fn dying() -> (World, Sent) {
    let mut world = World::new();
    world.register("201", ALICE);
    world.pass_ms(100);
    world.alive = vec![SS2];
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, ""));
    let dead = world.one(SS1, "INVITE");
    world.one(ALICE, "100");
    (world, dead)
}

/// The backup's copy of the INVITE, and how long after the first byte it left.
fn hunted(world: &mut World) -> (Sent, Duration) {
    let begun = world.now;
    loop {
        if let Some(at) = world
            .sent
            .iter()
            .position(|sent| sent.to == world::addr(SS2) && sent.what() == "INVITE")
        {
            return (world.sent.remove(at), world.now.mono.since(begun.mono));
        }
        world.pass_ms(10);
        assert!(
            world.now.mono.since(begun.mono) < Duration::from_secs(10),
            "never hunted"
        );
    }
}

fn answered_by_backup(world: &mut World, backup: &Sent) {
    world.answer_tagged(backup, "200 OK", "backup", CONTACT);
}

#[test]
fn em4_that_very_call_connects_within_two_seconds_of_silence() {
    let (mut world, dead) = dying();
    let (backup, after) = hunted(&mut world);
    assert!(after <= Duration::from_millis(1_500), "{after:?}");
    // Hunting is forking: the same call on a new branch.
    for name in [Name::CallId, Name::CSeq, Name::From] {
        assert_eq!(header(&backup.msg, name), header(&dead.msg, name));
    }
    assert_ne!(backup.msg.branch(), dead.msg.branch());
    answered_by_backup(&mut world, &backup);
    assert_eq!(world.one(ALICE, "200").msg.to_tag(), Some(&b"backup"[..]));
    world.pass_ms(40_000);
    assert!(
        world.to(ALICE).iter().all(|sent| sent.what() != "100"),
        "one INVITE transaction"
    );
    assert_eq!(world.gateway.call_count(), 1);
    assert!(
        world
            .events
            .iter()
            .any(|event| event.kind == "server" && event.to == "down")
    );
}

#[test]
fn em4_an_icmp_error_hunts_at_once() {
    let (mut world, dead) = dying();
    world
        .gateway
        .unreachable(world.now, dead.to, dead.msg.bytes().to_vec());
    world.pass_ms(0);
    let (_, after) = hunted(&mut world);
    assert!(after <= Duration::from_millis(20), "{after:?}");
}

#[test]
fn em4_an_icmp_error_that_quotes_no_live_request_changes_nothing() {
    let (mut world, dead) = dying();
    let forged = dead.text().replace("branch=z9hG4bK", "branch=z9hG4bKx");
    world
        .gateway
        .unreachable(world.now, dead.to, forged.into_bytes());
    world.gateway.unreachable(
        world.now,
        world::addr("192.0.2.99:5060"),
        dead.msg.bytes().to_vec(),
    );
    world.pass_ms(0);
    assert!(world.to(SS2).is_empty());
}

#[test]
fn em4_nothing_a_dead_server_says_late_reaches_the_phone() {
    let reliable = "183 Session Progress";
    for late in ["100 Trying", RINGING, reliable, "200 OK", "486 Busy Here"] {
        for before_the_answer in [true, false] {
            let (mut world, dead) = dying();
            let (backup, _) = hunted(&mut world);
            world.to(SS1);
            if !before_the_answer {
                answered_by_backup(&mut world, &backup);
            }
            let extra = if late == reliable {
                "Require: 100rel\nRSeq: 1\n"
            } else {
                ""
            };
            world.answer_tagged(&dead, late, "dead", &format!("{extra}{CONTACT}"));
            let to_dead: Vec<String> = world
                .to(SS1)
                .iter()
                .map(Sent::what)
                .filter(|what| what != "OPTIONS")
                .collect();
            let expected: &[&str] = match late {
                "200 OK" => &["ACK", "BYE"],
                "486 Busy Here" => &["ACK"],
                _ => &["CANCEL"],
            };
            assert_eq!(to_dead, expected, "{late}");
            if before_the_answer {
                answered_by_backup(&mut world, &backup);
            }
            world.pass_ms(40_000);
            let heard: Vec<String> = world
                .to(ALICE)
                .iter()
                .map(|sent| format!("{} {}", sent.what(), sent.text().contains("tag=dead")))
                .collect();
            assert_eq!(
                heard,
                ["200 false"],
                "{late}, before the answer: {before_the_answer}"
            );
            assert_eq!(world.gateway.call_count(), 1, "{late}");
        }
    }
}

#[test]
fn em4_a_late_200_again_is_acknowledged_again_and_ended_once() {
    let (mut world, dead) = dying();
    let (backup, _) = hunted(&mut world);
    answered_by_backup(&mut world, &backup);
    world.to(SS1);
    world.answer_tagged(&dead, "200 OK", "dead", CONTACT);
    world.answer_tagged(&dead, "200 OK", "dead", CONTACT);
    let sent: Vec<String> = world
        .to(SS1)
        .iter()
        .map(Sent::what)
        .filter(|what| what != "OPTIONS")
        .collect();
    assert_eq!(sent, ["ACK", "BYE", "ACK"]);
}

#[test]
fn em4_cancel_ends_every_branch_in_every_state() {
    let cancel = || follow("CANCEL", "201", ALICE, "202", 1, "");
    for state in ["silent", "100", "hunting", "ringing at the backup"] {
        let (mut world, dead) = dying();
        let mut backup = None;
        match state {
            "silent" => {}
            "100" => world.answer(&dead, "100 Trying", ""),
            _ => backup = Some(hunted(&mut world).0),
        }
        if state == "ringing at the backup"
            && let Some(backup) = &backup
        {
            world.answer_tagged(backup, RINGING, "backup", CONTACT);
            world.one(ALICE, "180");
        }
        world.sent.clear();
        world.hear(LAN, ALICE, &cancel());
        let mut heard: Vec<String> = world.to(ALICE).iter().map(Sent::what).collect();
        heard.sort_unstable();
        assert_eq!(heard, ["200", "487"], "{state}");
        let cancelled =
            |world: &mut World, server| world.to(server).iter().any(|sent| sent.what() == "CANCEL");
        assert_eq!(cancelled(&mut world, SS1), state == "100", "{state}");
        assert_eq!(
            cancelled(&mut world, SS2),
            state == "ringing at the backup",
            "{state}"
        );
        // Whoever answers all the same is ended, and no further server is tried.
        for branch in [Some(&dead), backup.as_ref()].into_iter().flatten() {
            world.answer_tagged(branch, "200 OK", "late", CONTACT);
            let server = branch.to.to_string();
            let sent: Vec<String> = world
                .to(&server)
                .iter()
                .map(Sent::what)
                .filter(|what| what != "OPTIONS")
                .collect();
            assert_eq!(sent, ["ACK", "BYE"], "{state}");
        }
        world.pass_ms(40_000);
        let invites = world
            .to(SS2)
            .iter()
            .filter(|sent| sent.what() == "INVITE")
            .count();
        assert_eq!(invites, 0, "{state}: hunted after CANCEL");
        assert!(
            world.to(ALICE).iter().all(|sent| sent.what() == "487"),
            "{state}: 487 may be sent again only"
        );
        assert_eq!(world.gateway.call_count(), 0, "{state}");
    }
}

#[test]
fn em4_a_cancel_after_the_answer_changes_nothing() {
    let (mut world, _) = dying();
    let (backup, _) = hunted(&mut world);
    answered_by_backup(&mut world, &backup);
    world.sent.clear();
    world.hear(LAN, ALICE, &follow("CANCEL", "201", ALICE, "202", 1, ""));
    let heard: Vec<String> = world.to(ALICE).iter().map(Sent::what).collect();
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert_eq!(world.gateway.call_count(), 1);
}

#[test]
fn em23_a_foreign_nonce_is_called_stale_once() {
    let mut world = World::new();
    world.register("201", ALICE);
    let challenge = |nonce: &str| {
        format!(
            "Proxy-Authenticate: Digest realm=\"example.test\", nonce=\"{nonce}\", qop=\"auth\"\n"
        )
    };
    let credentials = |nonce: &str| {
        format!(
            "Proxy-Authorization: Digest username=\"201\", realm=\"example.test\", nonce=\"{nonce}\", uri=\"sip:202@example.test\", response=\"0\", qop=auth, nc=00000001, cnonce=\"c\"\n"
        )
    };
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, ""));
    let first = world.one(SS1, "INVITE");
    world.answer(
        &first,
        "407 Proxy Authentication Required",
        &challenge("of-primary"),
    );
    let asked = world.one(ALICE, "407");
    assert!(
        !asked.text().to_ascii_lowercase().contains("stale=true"),
        "{}",
        asked.text()
    );
    world.alive = vec![SS2];
    world.hear(
        LAN,
        ALICE,
        &invite("201", ALICE, "202", 2, &credentials("of-primary")),
    );
    let dead = world.one(SS1, "INVITE");
    assert!(
        dead.text().contains("uri=\"sip:202@example.test\""),
        "digest uri is never altered"
    );
    let (backup, _) = hunted(&mut world);
    world.answer(
        &backup,
        "407 Proxy Authentication Required",
        &challenge("of-backup"),
    );
    // Without an ACK in this test the first challenge is sent again, too.
    let mut again = world.to(ALICE);
    again.retain(|sent| sent.what() == "407" && sent.text().contains("of-backup"));
    assert_eq!(again.len(), 1);
    let again = again.remove(0);
    assert!(
        again.text().to_ascii_lowercase().contains("stale=true"),
        "{}",
        again.text()
    );
    world.hear(
        LAN,
        ALICE,
        &invite("201", ALICE, "202", 3, &credentials("of-backup")),
    );
    let last = world.one(SS2, "INVITE");
    answered_by_backup(&mut world, &last);
    world.one(ALICE, "200");
    // A wrong password at the issuer of the nonce is no stale nonce.
    let mut world = World::new();
    world.register("201", ALICE);
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, ""));
    let first = world.one(SS1, "INVITE");
    world.answer(
        &first,
        "407 Proxy Authentication Required",
        &challenge("n1"),
    );
    world.one(ALICE, "407");
    world.hear(
        LAN,
        ALICE,
        &invite("201", ALICE, "202", 2, &credentials("n1")),
    );
    let second = world.one(SS1, "INVITE");
    world.answer(
        &second,
        "407 Proxy Authentication Required",
        &challenge("n2"),
    );
    assert!(
        !world
            .one(ALICE, "407")
            .text()
            .to_ascii_lowercase()
            .contains("stale=true")
    );
}

#[test]
fn case_p3_a_503_with_retry_after_hunts_and_reaches_the_phone_as_500_only_when_nobody_is_left() {
    let mut world = World::new();
    world.register("201", ALICE);
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, ""));
    let first = world.one(SS1, "INVITE");
    world.answer(&first, "503 Service Unavailable", "Retry-After: 120\n");
    let (backup, after) = hunted(&mut world);
    assert!(after < Duration::from_millis(20), "{after:?}");
    world.answer(&backup, "503 Service Unavailable", "");
    world.one(ALICE, "500");
}

#[test]
fn s14_unknown_headers_survive_and_502_hunts_only_before_ringing() {
    let mut world = World::new();
    world.register("201", ALICE);
    let odd = "P-Charging-Vector: icid-value=\"x;y\"; icid-generated-at=z\nX-Odd :  two  spaces\n";
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, odd));
    let up = world.one(SS1, "INVITE");
    assert!(up.text().contains(
        "P-Charging-Vector: icid-value=\"x;y\"; icid-generated-at=z\r\nX-Odd :  two  spaces\r\n"
    ));
    world.answer(&up, RINGING, CONTACT);
    world.one(ALICE, "180");
    world.answer(&up, "502 Bad Gateway", "");
    world.one(ALICE, "502");
    assert!(world.to(SS2).is_empty());
}

#[test]
fn em4_register_hunts_too_and_every_binding_of_a_dead_server_is_due() {
    let mut world = World::new();
    world.register("201", ALICE);
    world.alive = vec![SS2];
    world.pass_ms(60_000);
    assert!(
        world
            .events
            .iter()
            .any(|event| event.kind == "server" && event.to == "down"),
        "{:?}",
        world.events
    );
    world.sent.clear();
    world.hear(LAN, ALICE, &register("201", ALICE, 2, 3600));
    let up = world.one(SS2, "REGISTER");
    assert!(up.text().contains(GW_WAN));
}

#[test]
fn what_a_dead_server_lets_ring_is_cancelled_before_the_backups_call_comes() {
    let mut world = World::new();
    world.register("201", ALICE);
    let contact = String::from_utf8_lossy(&world.store.bindings[0].upstream_contact).into_owned();
    let call = |server: &str, id: &str| {
        let at = server.trim_end_matches(":5060");
        format!(
            "INVITE {contact} SIP/2.0\nVia: SIP/2.0/UDP {at};branch=z9hG4bK{id}\n\
             Max-Forwards: 70\nFrom: <sip:202@example.test>;tag=f{id}\n\
             To: <sip:201@example.test>\nCall-ID: {id}@far\nCSeq: 5 INVITE\n\
             Contact: <sip:202@{at}>\n{}",
            body(&sdp("203.0.113.9:1", 6000))
        )
    };
    world.hear(WAN, SS1, &call(SS1, "one"));
    let ring = world.one(ALICE, "INVITE");
    world.answer(&ring, "180 Ringing", "");
    world.one(SS1, "180");
    world.alive = vec![SS2];
    let mut cancelled = false;
    for _ in 0..60 {
        world.pass_ms(1_000);
        cancelled |= world.to(ALICE).iter().any(|sent| sent.what() == "CANCEL");
        if cancelled {
            break;
        }
    }
    assert!(cancelled, "it rings for nobody");
    world.answer(&ring, "487 Request Terminated", "");
    world.sent.clear();
    world.hear(WAN, SS2, &call(SS2, "two"));
    let ring = world.one(ALICE, "INVITE");
    world.answer(&ring, "180 Ringing", "");
    world.one(SS2, "180");
    world.pass_ms(30_000);
    let second = |sent: &Sent| header(&sent.msg, Name::CallId).contains("two@far");
    let heard = world.to(ALICE);
    let cancelled = heard
        .iter()
        .any(|sent| second(sent) && sent.what() == "CANCEL");
    assert!(!cancelled, "the living server's call rings on");
}
