//! STUN on the SIP port, answered by XDP while a server can be reached.

use std::net::UdpSocket;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use keepline_tests::lab::branch::GATEWAY_LAN;
use keepline_tests::lab::office::{Office, Opening};
use keepline_tests::lab::{Launch, gateway, wait};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(10);

/// A bare Binding request: 20 bytes.
fn binding() -> [u8; 20] {
    let mut request = [0x5a; 20];
    request[..8].copy_from_slice(&[0x00, 0x01, 0x00, 0x00, 0x21, 0x12, 0xa4, 0x42]);
    request
}

/// How often the programs say that they answered.
fn answered(office: &Office) -> Result<u64> {
    let answer = office.ask(&["stats"])?;
    let count = answer
        .pointer("/reasons/stun_answered")
        .and_then(Value::as_u64);
    count.with_context(|| answer.to_string())
}

/// What is waiting in, or was lost from, the daemon's listener: nothing, if XDP answered.
fn reached_the_listener(office: &Office) -> Result<bool> {
    // Every datagram that a socket of this namespace took is counted here.
    let file = office.branch.gw.run("cat", &["/proc/net/snmp"])?;
    let udp: Vec<&str> = file
        .lines()
        .filter(|line| line.starts_with("Udp:"))
        .collect();
    let column = udp[0]
        .split(' ')
        .position(|name| name == "InDatagrams")
        .context("no column")?;
    let count: u64 = udp[1].split(' ').nth(column).context("no value")?.parse()?;
    Ok(count > 0)
}

fn ask(socket: &UdpSocket, request: &[u8]) -> Result<Vec<u8>> {
    socket.send_to(request, format!("{GATEWAY_LAN}:5060"))?;
    let mut answer = [0; 600];
    let length = socket.recv(&mut answer)?;
    Ok(answer[..length].to_vec())
}

#[test]
fn kl3_ex3_case_t1_a_bare_binding_is_answered_by_xdp() -> Result<()> {
    let office = Office::open(&Opening::default())?;
    let phone = office.branch.phones.udp("10.99.1.11:7000")?;
    phone.set_read_timeout(Some(LIMIT))?;
    let before = answered(&office)?;
    let heard = reached_the_listener(&office)?;
    let request = binding();
    let answer = ask(&phone, &request)?;
    ensure!(answer.len() <= 32, "an answer of {} bytes", answer.len());
    ensure!(
        answer[..2] == [0x01, 0x01] && answer[4..20] == request[4..20],
        "{answer:02x?}"
    );
    // XOR-MAPPED-ADDRESS: family 1, port and address under the cookie.
    ensure!(answer[20..24] == [0x00, 0x20, 0x00, 0x08], "{answer:02x?}");
    let port = u16::from_be_bytes([answer[26], answer[27]]) ^ 0x2112;
    let address: Vec<u8> = answer[28..32]
        .iter()
        .zip([0x21, 0x12, 0xa4, 0x42])
        .map(|(byte, key)| byte ^ key)
        .collect();
    ensure!(
        port == 7000 && address == [10, 99, 1, 11],
        "{port} {address:?}"
    );
    ensure!(
        answered(&office)? == before + 1,
        "the counter did not move by one"
    );
    ensure!(heard || !reached_the_listener(&office)?, "a socket saw it");
    Ok(())
}

#[test]
fn kl3_turnutils_stunclient_is_answered() -> Result<()> {
    let office = Office::open(&Opening::default())?;
    let before = answered(&office)?;
    let launch =
        Launch::new("turnutils_stunclient").args(["-p", "5060", "-L", "10.99.1.11", GATEWAY_LAN]);
    let mut client = office.branch.phones.start(&launch)?;
    client.succeed(LIMIT)?;
    let text = client.all_text();
    ensure!(text.contains("UDP reflexive addr: 10.99.1.11"), "{text}");
    ensure!(answered(&office)? > before, "not by XDP");
    Ok(())
}

/// An office without survivability that loses both softswitches once a phone was answered, and
/// the phone's socket.
fn cut_off(keys: &str) -> Result<(Office, UdpSocket)> {
    let config = gateway::config() + "\n[survivability]\npolicy = \"off\"\n" + keys;
    let office = Office::open(&Opening {
        config,
        ..Opening::default()
    })?;
    let phone = office.branch.phones.udp("10.99.1.11:7000")?;
    phone.set_read_timeout(Some(Duration::from_millis(500)))?;
    ask(&phone, &binding()).context("no answer to begin with")?;
    for softswitch in &office.branch.softswitches {
        softswitch.blackhole("eth0")?;
    }
    Ok((office, phone))
}

#[test]
fn ex3_silence_while_no_server_can_be_reached() -> Result<()> {
    let (office, phone) = cut_off("")?;
    wait::until("the gateway falls silent", Duration::from_secs(60), || {
        ask(&phone, &binding()).is_err().then_some(())
    })?;
    ensure!(office.state(0)? == "down" && office.state(1)? == "down");
    Ok(())
}

#[test]
fn ex3_an_error_while_no_server_can_be_reached_where_so_configured() -> Result<()> {
    let (office, phone) = cut_off("\n[keepalive]\non_path_down = \"error\"\n")?;
    let request = binding();
    let answer = wait::until("the gateway refuses", Duration::from_secs(60), || {
        let answer = ask(&phone, &request).ok()?;
        (answer[..2] == [0x01, 0x11]).then_some(answer)
    })?;
    // ERROR-CODE 500 (RFC 8489 section 14.8), under the request's transaction id.
    ensure!(answer[4..20] == request[4..20], "{answer:02x?}");
    ensure!(
        answer[20..22] == [0x00, 0x09] && answer[26..28] == [5, 0],
        "{answer:02x?}"
    );
    let refused = office.ask(&["stats"])?;
    let count = refused.pointer("/reasons/stun_refused");
    ensure!(count.and_then(Value::as_u64) > Some(0), "{refused}");
    ensure!(office.state(0)? == "down" && office.state(1)? == "down");
    Ok(())
}
