//! Rogue DHCP: answers that are no answer to the probe keep no dead tunnel alive, bring none back,
//! and configure nothing.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use keepline_tests::lab::tunnels::{Lab, SOON};
use keepline_tests::lab::{Node, dhcp, wait};

/// Asked at 1 and 2 s of silence, down at 3 s.
const QUICK: &str = "heartbeat_interval = \"1s\"\nidle_timeout = \"1s\"\nprobe_timeout = \"2s\"";
/// The server that the primary's answers must come from, and one that nobody asked.
const EXPECTED: [u8; 4] = [10, 9, 0, 1];
const ROGUE: [u8; 4] = [10, 9, 0, 66];
/// So long the rogue answers after the verdict: probes enough to bring a tunnel back.
const ON: Duration = Duration::from_secs(6);

const OFFER: u8 = 2;
const ACK: u8 = 5;
const NAK: u8 = 6;

/// Somebody behind the primary who hears every probe, and two others who know what he hears.
struct Rogue {
    heard: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Rogue {
    fn begin(lab: &Lab) -> Result<Self> {
        let behind = server(&lab.net.concentrators[0], "br0", "10.9.0.66:67")?;
        // Through the other tunnel, and from the side of the clients.
        let beside = server(&lab.net.concentrators[1], "br0", "10.9.0.67:67")?;
        let client = server(&lab.net.client, "eth0", "0.0.0.0:67")?;
        let ears = server(&lab.net.concentrators[0], "br0", "0.0.0.0:67")?;
        let (heard, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (count, ended) = (Arc::clone(&heard), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            let mut probe = [0; 1500];
            while !ended.load(Ordering::Relaxed) {
                let Ok(length) = ears.recv(&mut probe) else {
                    continue;
                };
                let probe = &probe[..length];
                for forged in forgeries(probe) {
                    let _ = behind.send_to(&forged, "255.255.255.255:68");
                }
                let right = answer(probe, ACK, EXPECTED);
                let _ = beside.send_to(&right, "255.255.255.255:68");
                let _ = client.send_to(&right, "255.255.255.255:68");
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Ok(Self {
            heard,
            stop,
            thread: Some(thread),
        })
    }

    fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }
}

impl Drop for Rogue {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A socket at a DHCP server's port, beside whoever else has it.
fn server(node: &Node, device: &str, at: &str) -> Result<UdpSocket> {
    let at: std::net::SocketAddr = at.parse()?;
    let socket = node.net().enter(|| {
        let domain = socket2::Domain::IPV4;
        let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_broadcast(true)?;
        socket.bind_device(Some(device.as_bytes()))?;
        socket.bind(&at.into())?;
        Ok(UdpSocket::from(socket))
    })?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    Ok(socket)
}

fn answer(request: &[u8], kind: u8, server: [u8; 4]) -> Vec<u8> {
    dhcp::answer(request, kind, [10, 9, 0, 105], server)
}

/// What comes through the right tunnel and must not count. What is for another client is left to the
/// engine's tests: it is traffic like any (MX2), whoever made it.
fn forgeries(request: &[u8]) -> Vec<Vec<u8>> {
    let bent = |kind, change: fn(&mut Vec<u8>)| {
        let mut message = answer(request, kind, EXPECTED);
        change(&mut message);
        message
    };
    vec![
        answer(request, ACK, ROGUE),
        answer(request, NAK, ROGUE),
        answer(request, OFFER, EXPECTED),
        bent(NAK, |message| message[4] ^= 1),
        bent(ACK, |message| message[0] = 1),
        bent(ACK, |message| message[2] = 17),
        bent(ACK, |message| message[2] = 255),
        // Huge options, an overload that leads nowhere, and no end; of a server nobody expects.
        bent(OFFER, |message| {
            message.truncate(240);
            message.extend([52, 1, 3, 53, 1, ACK, 54, 4]);
            message.extend(ROGUE);
            (60..200).for_each(|code| message.extend([code, 3, 1, 2, 3]));
        }),
        bent(ACK, |message| message.truncate(243)),
    ]
}

fn addresses(lab: &Lab) -> Result<String> {
    lab.net.gw.ip("-o addr")
}

#[test]
fn threat_rogue_dhcp_case_d1_d4_d5_mx5_keeps_no_dead_tunnel_alive_and_brings_none_back()
-> Result<()> {
    let mut lab = Lab::raise()?;
    let keys = format!("{QUICK}\nexpected_server = \"10.9.0.1\"");
    let both = Lab::config(&keys);
    // Behind the secondary another one answers, whoever it is.
    let (primary, secondary) = both.split_at(both.rfind("[[tunnel]]").unwrap_or_default());
    let secondary = secondary.replace("expected_server = \"10.9.0.1\"", "");
    lab.start(&format!("{primary}{secondary}"))?;
    wait::until("both tunnels are proven", SOON, || {
        let proven = |name| {
            lab.tunnel(name)
                .is_ok_and(|tunnel| tunnel["proven"] == true)
        };
        (proven("hq-a") && proven("hq-b")).then_some(())
    })?;
    ensure!(lab.active()? == "hq-a");
    lab.net.concentrators[0].ip("addr add 10.9.0.66/24 dev br0")?;
    lab.net.concentrators[1].ip("addr add 10.9.0.67/24 dev br0")?;
    lab.net.client.ip("addr add 10.9.0.20/24 dev eth0")?;
    let before = addresses(&lab)?;

    drop(lab.dhcp[0].take());
    let rogue = Rogue::begin(&lab)?;
    let verdict = lab.event("tunnel", "probes_unanswered", 0, SOON)?;
    ensure!(verdict["object"] == "hq-a", "{verdict}");
    let answered = rogue.heard();
    ensure!(answered >= 1, "the rogue heard no probe");
    ensure!(lab.active()? == "hq-b" && lab.state("hq-a")? == "down");
    let begun = Instant::now();
    while begun.elapsed() < ON {
        let tunnel = lab.tunnel("hq-a")?;
        ensure!(
            tunnel["state"] == "down" && tunnel["returns_in_s"].is_null(),
            "{tunnel}"
        );
        ensure!(lab.active()? == "hq-b");
        thread::sleep(Duration::from_millis(200));
    }
    let heard = rogue.heard();
    println!("{heard} probes, {} forged answers", heard * 11);
    ensure!(heard >= answered + 3, "{heard} probes were heard");
    ensure!(addresses(&lab)? == before, "an interface was configured");
    drop(rogue);
    // The server that is expected brings it back.
    lab.serve(0)?;
    wait::until("it answers again", SOON, || {
        lab.tunnel("hq-a").ok()?["returns_in_s"]
            .is_u64()
            .then_some(())
    })
}
