//! Who is believed while no softswitch is there to be asked (signalling.md sections 4 and 11):
//! known phones from where they are known, and nobody else.

use anyhow::{Result, ensure};
use keepline_tests::lab::Node;
use keepline_tests::lab::agent::Agent;
use keepline_tests::lab::branch::GATEWAY_LAN;
use keepline_tests::lab::gateway;
use keepline_tests::lab::office::{LIMIT, Office, Opening};
use keepline_tests::lab::sip::Message;

/// Where somebody is who never registered.
const THIEF: &str = "10.99.1.200";

/// What is listed for a user: Contact and source.
fn listed(office: &Office, user: &str) -> Result<Vec<(String, String)>> {
    let answer = office.ask(&["registrations"])?;
    let text =
        |row: &serde_json::Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let rows = gateway::list(&answer, "registrations").iter();
    let of_user = rows.filter(|row| text(row, "aor").starts_with(user));
    Ok(of_user
        .map(|row| (text(row, "contact"), text(row, "source")))
        .collect())
}

#[test]
fn em22_em13_replayed_spoofed_and_wildcard_registers_are_refused() -> Result<()> {
    let office = Office::open(&Opening::default())?;
    office.register()?;
    let victim = &office.lan[0];
    // Whoever listens on the LAN has this phone's credentials, byte for byte.
    let sent = Message::of(&office.wire.frames()?, &victim.address);
    let captured = sent
        .iter()
        .find_map(|message| message.header("Authorization"))
        .map(str::to_owned);
    let captured = captured.ok_or_else(|| anyhow::anyhow!("no credentials captured"))?;
    let machine = office.branch.guest(THIEF)?;
    let thief = Agent::new(&machine, "666", THIEF, GATEWAY_LAN)?;
    for softswitch in &office.branch.softswitches {
        softswitch.blackhole("eth0")?;
    }
    office.wait_group("survivability")?;
    let before = listed(&office, &victim.user)?;
    ensure!(before.len() == 1, "{before:?}");

    let own = format!("<sip:{}@{}:5060>", victim.user, victim.address);
    let moved = format!("<sip:{}@{THIEF}:5060>", victim.user);
    let replay = format!("Authorization: {captured}\r\nExpires: 3600\r\n");
    let attempts = [
        (
            "captured Authorization, the phone's Contact",
            &own,
            replay.as_str(),
        ),
        (
            "captured Authorization, another Contact",
            &moved,
            replay.as_str(),
        ),
        (
            "the phone's Contact from elsewhere",
            &own,
            "Expires: 3600\r\n",
        ),
        ("a changed Contact", &moved, "Expires: 3600\r\n"),
        ("the phone's Contact taken away", &own, "Expires: 0\r\n"),
        ("all of them taken away", &"*".to_owned(), "Expires: 0\r\n"),
    ];
    for (what, contact, extra) in &attempts {
        let answer = thief.register_as(&victim.user, contact, extra)?;
        ensure!(answer.status() == 403, "{what}: {}", answer.message.text);
        ensure!(
            listed(&office, &victim.user)? == before,
            "{what}: the list changed"
        );
    }
    let refused = office.events()?;
    let refused = refused
        .iter()
        .filter(|event| event["rule"] == "not_known_from_this_source");
    ensure!(
        refused.count() == attempts.len(),
        "not every refusal is an event"
    );

    // Nor may it call in the victim's name, or at all.
    let call = thief.call(&office.lan[1].user, "", LIMIT);
    ensure!(call.is_err(), "a stranger called");
    // The phone itself is served as before.
    let seen = office.register_one(victim)?;
    ensure!(seen == [200], "the phone saw {seen:?}");
    Ok(())
}

/// While nobody can be asked, a phone is its Ethernet address: it may come with another IP
/// address, and whoever was given its old one is nobody.
#[test]
fn em22_a_phone_with_a_new_address_is_known_and_who_has_its_old_one_is_not() -> Result<()> {
    const USER: &str = "640";
    const OLD: &str = "10.99.1.201";
    const NEW: &str = "10.99.1.202";
    let office = Office::open(&Opening {
        digest: false,
        ..Opening::default()
    })?;
    let contact = |at: &str| format!("<sip:{USER}@{at}:5060>");
    // Each has a name of its own for its branches: the same one would be a retransmission.
    let registers = |machine: &Node, name: &str, from: &str, contact: &str, status: u16| {
        let phone = Agent::new(machine, name, from, GATEWAY_LAN)?;
        let answer = phone.register_as(USER, contact, "Expires: 3600\r\n")?;
        ensure!(answer.status() == status, "{name}: {}", answer.message.text);
        anyhow::Ok(())
    };
    let phone = office.branch.guest(OLD)?;
    registers(&phone, "first", OLD, &contact(OLD), 200)?;
    for softswitch in &office.branch.softswitches {
        softswitch.blackhole("eth0")?;
    }
    office.wait_group("survivability")?;

    // DHCP gives it another address. It asks anew where the gateway is, as phones do.
    phone.ip(&format!("address del {OLD}/24 dev eth0"))?;
    phone.ip("neigh flush all")?;
    phone.ip(&format!("address add {NEW}/24 dev eth0"))?;
    registers(&phone, "moved", NEW, &contact(NEW), 200)?;

    let thief = office.branch.guest(OLD)?;
    registers(&thief, "thief", OLD, &contact(OLD), 403)?;
    registers(&thief, "again", OLD, &contact(NEW), 403)?;
    registers(&phone, "still", NEW, &contact(NEW), 200)
}
