//! Segments in TC: a client joined at layer 2 to one of two VXLAN tunnels, with real ARP, ping,
//! TCP and broadcast across.

mod site;
mod table;

use std::{
    net::{Ipv6Addr, SocketAddrV6, UdpSocket},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use keepline::fastpath::{self, words};
use keepline_common::reason::Reason;
use keepline_tests::{
    fixture::site::{index, mac},
    lab::wait,
};
use socket2::{Domain, Protocol, Socket, Type};

use site::{CLIENT, FAR, LIMIT, PROBE, Site, TUNNELS, arrives, reaches};

#[test]
fn mx1_frames_go_to_the_active_tunnel_and_mx8_one_word_turns_them() -> Result<()> {
    let site = Site::raise()?;
    let _fastpath = site.start()?;
    let mut segments = site.segments()?;
    ensure!(
        site.reaches().is_err(),
        "joined to nothing, yet somebody answers"
    );
    ensure!(site.counted("voice0", Reason::SegmentUnjoined)? > 0);
    let (client, far) = site.datagrams()?;
    for active in [0, 1, 0] {
        site.join(&mut segments, active)?;
        ensure!(segments.active("voice0") == Some(TUNNELS[active]));
        // Who was asked before is another machine with another MAC: the client must ask anew,
        // as after a gratuitous ARP.
        site.client.ip("neigh flush dev eth0")?;
        site.reaches().with_context(|| TUNNELS[active])?;
        arrives(&client, &far[active])?;
        let mut buffer = [0; 64];
        ensure!(
            far[1 - active].recv(&mut buffer).is_err(),
            "it went to both"
        );
        // The other way, and only from the active one.
        ensure!(site.counted(TUNNELS[active], Reason::SegmentForwarded)? > 0);
        let stray = reaches(&site.far[1 - active], CLIENT);
        ensure!(
            stray.is_err(),
            "the tunnel that is not active speaks into the segment"
        );
        ensure!(site.counted(TUNNELS[1 - active], Reason::SegmentInactive)? > 0);
    }
    let none = site.with(&mut segments, |segments| {
        segments.activate("voice0", Some("vx9"))
    });
    ensure!(none.is_err() && segments.active("voice0") == Some(TUNNELS[0]));
    Ok(())
}

#[test]
fn mx2_each_tunnel_has_its_stamp_and_clients_are_known_by_mac_and_address() -> Result<()> {
    let site = Site::raise()?;
    let _fastpath = site.start()?;
    let mut segments = site.segments()?;
    site.join(&mut segments, 0)?;
    ensure!(segments.last_inbound("vx9").is_none());
    let before = words::kernel_now();
    site.reaches()?;
    let at = segments.last_inbound("vx0").context("no stamp")?;
    ensure!(at >= before && at <= words::kernel_now(), "{before} {at}");
    // One that is not active is heard all the same.
    ensure!(reaches(&site.far[1], CLIENT).is_err());
    let other = segments
        .last_inbound("vx1")
        .context("no stamp of the other")?;
    ensure!(other >= at);

    let clients = site.with(&mut segments, |segments| segments.clients("voice0"))?;
    let own = mac(&site.client, "eth0")?;
    ensure!(clients.len() == 1 && clients[0].mac == own, "{clients:?}");
    ensure!(clients[0].v4 == Some(CLIENT.parse()?), "{clients:?}");
    Ok(())
}

#[test]
fn mx8_clients_are_known_by_their_ipv6_address_too() -> Result<()> {
    let site = Site::raise()?;
    let _fastpath = site.start()?;
    let mut segments = site.segments()?;
    site.join(&mut segments, 0)?;
    let own = "fd00:50::20";
    site.client
        .ip(&format!("address add {own}/64 dev eth0 nodad"))?;
    let socket = site.client.udp(&format!("[{own}]:0"))?;
    let client = wait::until("it is known", LIMIT, || {
        // Asks who has that address; nobody does.
        let _ = socket.send_to(b"anybody", "[fd00:50::99]:9");
        let clients = site.with(&mut segments, |segments| segments.clients("voice0"));
        let mut clients = clients.ok()?.into_iter();
        clients.find(|client| client.v6 == own.parse().ok())
    })?;
    ensure!(
        client.mac == mac(&site.client, "eth0")? && !client.router,
        "{client:?}"
    );
    Ok(())
}

/// Answers of DHCP servers to the gateway's own probe: no sign of life by themselves.
#[test]
fn mx4_an_answer_to_a_probe_is_no_traffic_and_reaches_no_client() -> Result<()> {
    let site = Site::raise()?;
    let _fastpath = site.start()?;
    let mut segments = site.segments()?;
    site.join(&mut segments, 0)?;
    let client = site.client.udp("0.0.0.0:68")?;
    client.set_read_timeout(Some(LIMIT))?;
    let server = site.far[0].udp(&format!("{FAR}:67"))?;
    server.set_broadcast(true)?;
    let answer = |mac: [u8; 6]| {
        let mut bytes = vec![0; 300];
        bytes[0] = 2;
        bytes[28..34].copy_from_slice(&mac);
        bytes
    };
    // The tunnel's own chatter (IPv6 discovery) is over when its stamp rests.
    let quiet = wait::until("a quiet tunnel", Duration::from_secs(30), || {
        let at = segments.last_inbound("vx0").unwrap_or(0);
        (words::kernel_now() - at > 2_000_000_000).then_some(at)
    })?;
    let local = site.counted("vx0", Reason::SegmentLocal)?;
    server.send_to(&answer(PROBE), "10.50.0.255:68")?;
    wait::until("it is counted", LIMIT, || {
        let now = site.counted("vx0", Reason::SegmentLocal).ok()?;
        (now > local).then_some(())
    })?;
    ensure!(
        segments.last_inbound("vx0").unwrap_or(0) == quiet,
        "it was stamped"
    );
    // What is for another client crosses, and is the first that the client hears.
    server.send_to(&answer([2, 0, 0, 0, 0, 7]), "10.50.0.255:68")?;
    let mut heard = [0; 512];
    let length = client.recv(&mut heard).context("no broadcast crossed")?;
    ensure!(
        length == 300 && heard[28..34] == [2, 0, 0, 0, 0, 7],
        "the probe's answer crossed"
    );
    ensure!(segments.last_inbound("vx0").unwrap_or(0) > quiet);
    Ok(())
}

#[test]
fn mx1_broadcast_dhcp_ipv6_advertisements_and_jumbo_frames_cross_unharmed() -> Result<()> {
    let site = Site::raise()?;
    let _fastpath = site.start()?;
    let mut segments = site.segments()?;
    site.join(&mut segments, 0)?;
    let server = site.far[0].udp("0.0.0.0:67")?;
    server.set_read_timeout(Some(LIMIT))?;
    let client = site.client.udp(&format!("{CLIENT}:68"))?;
    client.set_broadcast(true)?;
    client.send_to(&[1; 300], "255.255.255.255:67")?;
    let mut buffer = [0; 512];
    let (length, from) = server.recv_from(&mut buffer).context("no broadcast")?;
    ensure!(length == 300 && from == client.local_addr()?);
    // 8,900 bytes in one piece.
    let (client, far) = site.datagrams()?;
    let jumbo = vec![0x5a; 8_900];
    let mut buffer = vec![0; 9_000];
    let length = wait::until("a jumbo frame", LIMIT, || {
        client.send_to(&jumbo, (FAR, 7000)).ok()?;
        far[0].recv(&mut buffer).ok()
    })?;
    ensure!(buffer[..length] == jumbo);
    ipv6(&site)
}

/// Multicast from the client, and an answer that takes neighbour discovery.
fn ipv6(site: &Site) -> Result<()> {
    let group: Ipv6Addr = "ff02::4b50".parse()?;
    let far = site.far[0].udp("[::]:7001")?;
    far.join_multicast_v6(&group, index(&site.far[0], "vx0")?)?;
    far.set_read_timeout(Some(Duration::from_millis(300)))?;
    let client = site.client.udp("[::]:7001")?;
    client.set_read_timeout(Some(LIMIT))?;
    let to = SocketAddrV6::new(group, 7001, 0, index(&site.client, "eth0")?);
    let mut buffer = [0; 64];
    // Link-local addresses must first be found to be nobody else's.
    let from = wait::until("IPv6 multicast crosses", LIMIT, || {
        client.send_to(b"to all", to).ok()?;
        far.recv_from(&mut buffer).ok().map(|(_, from)| from)
    })?;
    wait::until("IPv6 unicast crosses", LIMIT, || {
        far.send_to(b"to you", from).ok()
    })?;
    let length = client.recv(&mut buffer)?;
    ensure!(&buffer[..length] == b"to you");
    advertised(site)
}

/// A router's advertisement (RFC 4861 section 4.2) crosses so whole that the client's kernel takes
/// an address and a route from it.
fn advertised(site: &Site) -> Result<()> {
    let prefix: Ipv6Addr = "fd00:51::".parse()?;
    // Type, checksum by the kernel, hop limit, flags, lifetime of half an hour; then the prefix:
    // on the link, for addresses of one's own, an hour.
    let mut message = vec![134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    message.extend([3, 4, 64, 0xc0, 0, 0, 14, 16, 0, 0, 14, 16, 0, 0, 0, 0]);
    message.extend(prefix.octets());
    let device = index(&site.far[0], "vx0")?;
    let router = site.far[0].net().enter(|| {
        let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
        socket.set_multicast_hops_v6(255)?;
        Ok(socket)
    })?;
    let everybody = SocketAddrV6::new("ff02::1".parse()?, 0, 0, device);
    let told = |what: &str| site.client.ip(&format!("-6 -o {what} dev eth0"));
    wait::until("the client heard the router", LIMIT, || {
        router.send_to(&message, &everybody.into()).ok()?;
        let address = told("address show").ok()?.contains("fd00:51::");
        let route = told("route show default").ok()?.contains("proto ra");
        (address && route).then_some(())
    })
}

/// The far ends are bridged to one another, as two concentrators of one site are.
#[test]
fn mx1_no_frame_returns_and_none_goes_round_through_two_tunnels() -> Result<()> {
    let mut site = Site::raise()?;
    // Its chatter would be among what is counted.
    for node in [&site.client, &site.gw, &site.far[0], &site.far[1]] {
        node.sysctl("net.ipv6.conf.all.disable_ipv6", "1")?;
        node.sysctl("net.ipv6.conf.default.disable_ipv6", "1")?;
    }
    let [first, second] = &mut site.far;
    keepline_tests::lab::Node::cable((first, "between"), (second, "between"))?;
    for (number, node) in site.far.iter().enumerate() {
        node.ip("link add br0 type bridge")?;
        let address = format!("address del {FAR}/24 dev {}", TUNNELS[number]);
        node.ip(&address)?;
        for port in [TUNNELS[number], "between"] {
            node.ip(&format!("link set {port} master br0"))?;
            node.ip(&format!("link set {port} up"))?;
        }
        node.ip("link set br0 up")?;
    }
    site.far[0].ip(&format!("address add {FAR}/24 dev br0"))?;
    let _fastpath = site.start()?;
    let mut segments = site.segments()?;
    for active in [0, 1] {
        site.join(&mut segments, active)?;
        site.client.ip("neigh flush dev eth0")?;
        let own = site.client.udp(&format!("{CLIENT}:0"))?;
        own.set_broadcast(true)?;
        let inactive = || site.counted(TUNNELS[1 - active], Reason::SegmentInactive);
        let came = inactive()?;
        wait::until("the bridges forward", LIMIT, || {
            site.reaches().ok()?;
            own.send_to(b"to all", "10.50.0.255:9").ok()?;
            (inactive().ok()? > came).then_some(())
        })?;
        let (before, came) = (forwarded(&site)?, inactive()?);
        let back = site.counted(TUNNELS[active], Reason::SegmentForwarded)?;
        let mut sent = 0;
        wait::until("they come by the other tunnel", LIMIT, || {
            own.send_to(b"to all", "10.50.0.255:9").ok()?;
            sent += 1;
            (inactive().ok()? - came >= 100).then_some(())
        })?;
        site.reaches()?;
        // Their way out and a connection refused: a storm would be tens of thousands.
        let after = forwarded(&site)? - before;
        ensure!(
            after < sent + 20,
            "{after} frames for {sent} and a connection"
        );
        let back = site.counted(TUNNELS[active], Reason::SegmentForwarded)? - back;
        ensure!(back < 20, "{back} frames came to the client");
    }
    Ok(())
}

fn forwarded(site: &Site) -> Result<u64> {
    let all = ["voice0", "vx0", "vx1"];
    all.iter()
        .map(|name| site.counted(name, Reason::SegmentForwarded))
        .sum()
}

/// Both ways with default offloads, against a kernel bridge in the same place.
#[test]
fn mx1_tcp_with_default_offloads_is_at_least_half_as_fast_as_over_a_bridge() -> Result<()> {
    const BYTES: usize = 50_000_000;
    let site = Site::raise()?;
    let best = |what: &str| -> Result<[f64; 2]> {
        let mut best = [0.0_f64; 2];
        // A busy machine halves any one of them.
        for _ in 0..10 {
            for (way, best) in best.iter_mut().enumerate() {
                *best = best.max(site.tcp(way == 0, BYTES).with_context(|| what.to_owned())?);
            }
        }
        eprintln!("{what}: {:.0} and {:.0} MB/s", best[0] / 1e6, best[1] / 1e6);
        Ok(best)
    };
    let fastpath = site.start()?;
    let mut segments = site.segments()?;
    site.join(&mut segments, 0)?;
    site.reaches()?;
    let ours = best("segment")?;
    drop((fastpath, segments));
    site.gw
        .net()
        .enter(|| Ok(fastpath::unload(&site.options.pin)?))?;
    site.gw.ip("link add br0 type bridge")?;
    for port in ["voice0", "vx0"] {
        site.gw.ip(&format!("link set {port} master br0"))?;
    }
    site.gw.ip("link set br0 up")?;
    wait::until("the bridge forwards", LIMIT, || site.reaches().ok())?;
    let bridge = best("bridge")?;
    for way in 0..2 {
        ensure!(
            ours[way] * 2.0 >= bridge[way],
            "{ours:?} against {bridge:?}"
        );
    }
    Ok(())
}

#[test]
fn kl5_restarts_and_other_maps_lose_no_frame_of_a_segment() -> Result<()> {
    let mut site = Site::raise()?;
    let mut running = Some(site.start()?);
    let mut segments = site.segments()?;
    site.join(&mut segments, 1)?;
    let (client, far) = site.datagrams()?;
    arrives(&client, &far[1])?;
    let mut buffer = [0; 64];
    while far[1].recv(&mut buffer).is_ok() {}
    let stop = AtomicBool::new(false);
    let mut media = vec![10_000..=10_999; 5];
    // Other ports: other maps.
    media.extend([10_000..=11_999, 10_000..=12_999]);
    let (sent, came) = std::thread::scope(|scope| -> Result<(u64, u64)> {
        let sender = scope.spawn(|| send(&client, &stop));
        let receiver = scope.spawn(|| receive(&far[1], &stop));
        let restart = || -> Result<()> {
            for media in media {
                drop(running.take());
                site.options.media = media;
                running = Some(site.start()?);
                segments = site.segments()?;
                ensure!(segments.active("voice0") == Some("vx1"), "forgotten");
            }
            Ok(())
        };
        let done = restart();
        stop.store(true, Ordering::Relaxed);
        let join = |_| anyhow::anyhow!("a thread panicked");
        let (sent, came) = (sender.join().map_err(join)?, receiver.join().map_err(join)?);
        done.map(|()| (sent, came))
    })?;
    eprintln!("7 restarts, 2 with other maps: {sent} sent, {came} came");
    ensure!(sent > 300 && sent == came, "{sent} sent, {came} came");
    let pins = std::fs::read_dir(site.directory())?.count();
    ensure!(pins > 10, "{pins} pins");

    site.gw
        .net()
        .enter(|| Ok(fastpath::unload(&site.options.pin)?))?;
    ensure!(!site.options.pin.exists());
    ensure!(site.reaches().is_err(), "still joined");
    Ok(())
}

fn send(client: &UdpSocket, stop: &AtomicBool) -> u64 {
    let mut sent = 0;
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        sent += u64::from(client.send_to(b"client", (FAR, 7000)).is_ok());
        next += Duration::from_millis(1);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    sent
}

fn receive(far: &UdpSocket, stop: &AtomicBool) -> u64 {
    let mut buffer = [0; 64];
    let mut came = 0;
    loop {
        match far.recv(&mut buffer) {
            Ok(_) => came += 1,
            // A third of a second of silence after the end: all has come.
            Err(_) if stop.load(Ordering::Relaxed) => return came,
            Err(_) => {}
        }
    }
}

#[test]
fn mx1_a_tunnel_that_was_made_anew_is_joined_again() -> Result<()> {
    let site = Site::raise()?;
    let (mut programs, mut maps) = site.start()?;
    let mut segments = site.segments()?;
    site.join(&mut segments, 0)?;
    site.reaches()?;
    site.anew(0)?;
    ensure!(
        site.reaches().is_err(),
        "the new device carries the program by itself"
    );
    let repaired = site.gw.net().enter(|| Ok(programs.repair(&mut maps)))??;
    ensure!(
        repaired.iter().map(|on| on.name.as_str()).eq(["vx0"]),
        "{repaired:?}"
    );
    site.with(&mut segments, |segments| segments.renew())?;
    ensure!(segments.active("voice0") == Some("vx0"));
    wait::until("joined again", LIMIT, || site.reaches().ok())
}
