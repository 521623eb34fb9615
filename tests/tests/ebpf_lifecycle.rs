//! The programs' life on real interfaces: attached, restarted, replaced, severed, refused and
//! taken off, with media crossing them where a loss would show.

use std::{
    fs,
    net::{IpAddr, SocketAddr, UdpSocket},
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use aya::maps::MapType;
use keepline::{
    fastpath::{
        self, Error, Fastpath, Interface, Mode, Options, XdpChoice,
        layout::{self, Shape},
        maps::Maps,
        object::Sizes,
    },
    steer::{LinkPlace, Steer, resolver::Route},
};
use keepline_common::{ABI, reason::Reason};
use keepline_engine::{
    net::{LinkId, ListenerId},
    steer::{Delta, Gate, GateId},
    time::Mono,
};
use keepline_tests::{
    fixture::{FakeResolver, flow, plant::plant},
    lab::{Branch, Node, branch, gateway, wait},
};

const LIMIT: Duration = Duration::from_secs(10);
const MEDIA: &str = "10.99.1.1:10000";
const PHONE: &str = "10.99.1.11:4000";
const FAR: &str = "10.99.10.100:4000";

/// The gateway's machine, and what is loaded there by this test's own hand.
struct Site {
    branch: Branch,
    options: Options,
}

type Steering = Steer<Maps, FakeResolver>;

impl Site {
    fn raise() -> Result<Self> {
        let branch = Branch::raise()?;
        let interface = |name: &str| Interface {
            name: name.into(),
            xdp: XdpChoice::Native,
        };
        let options = Options {
            pin: branch.cell().outside("/sys/fs/bpf/keepline"),
            interfaces: ["lan0", "wan0"].map(interface).into(),
            media: 10_000..=19_999,
            max_plans: 1_024,
            max_flows: 1_024,
            transparent: false,
        };
        Ok(Self { branch, options })
    }

    fn start(&self) -> Result<(Fastpath, Maps)> {
        let started = self
            .branch
            .gw
            .net()
            .enter(|| Ok(Fastpath::start(&self.options)))?;
        Ok(started?)
    }

    /// What a start that must fail says.
    fn refused(&self) -> Result<Error> {
        match self
            .branch
            .gw
            .net()
            .enter(|| Ok(Fastpath::start(&self.options).err()))?
        {
            Some(error) => Ok(error),
            None => bail!("it started"),
        }
    }

    /// Steers one direction of a call: from the phone through the first router to the far phone.
    /// Done on the gateway's network: a devmap finds its devices where the caller is.
    fn steer(&self, maps: Maps) -> Result<Steering> {
        self.branch.gw.net().enter(|| self.steer_here(maps))
    }

    fn steer_here(&self, maps: Maps) -> Result<Steering> {
        let gw = &self.branch.gw;
        let route = Route {
            next_hop: branch::ROUTERS[0].parse()?,
            ifindex: index(gw, "wan0")?,
            source: branch::GATEWAY_WAN.parse()?,
            source_mac: mac(gw, "wan0")?,
            next_hop_mac: Some(mac(&self.branch.routers[0], "eth0")?),
            mtu: 1_500,
            vlan: [0; 2],
            local: false,
        };
        let to: IpAddr = FAR.parse::<SocketAddr>()?.ip();
        let mut resolver = FakeResolver::default();
        resolver.routes.insert((LinkId(1), to), route);
        let mut steer = Steer::new(maps, resolver, Duration::ZERO)?;
        for (link, name) in [(LinkId(0), "lan0"), (LinkId(1), "wan0")] {
            let place = LinkPlace {
                ifindex: index(gw, name)?,
                vlan: [0; 2],
            };
            steer.link_set(link, place, Mono::default())?;
        }
        let flow = flow(1, [0, 1], MEDIA, PHONE, 10_000, FAR);
        steer.reconcile(&[flow], Mono::default())?;
        Ok(steer)
    }

    /// What the programs counted, for messages.
    fn counted(&self) -> String {
        let Ok(counters) = fastpath::counters(&self.options.pin) else {
            return "no counters".into();
        };
        let named = |counts: &[u64]| -> Vec<String> {
            let moved = Reason::ALL.iter().zip(counts).filter(|(_, n)| **n > 0);
            moved
                .map(|(reason, n)| format!("{} {n}", reason.name()))
                .collect()
        };
        let all: Vec<_> = counters.iter().map(|c| named(&c.packets)).collect();
        format!("{all:?}")
    }

    fn directory(&self) -> PathBuf {
        self.options.pin.join(format!("v{ABI}"))
    }

    /// One generation of pins, in the shapes that are wanted.
    fn one_generation(&self) -> Result<()> {
        let names: Vec<_> = fs::read_dir(&self.options.pin)?
            .map(|entry| Ok(entry?.file_name()))
            .collect::<Result<_>>()?;
        ensure!(names == [format!("v{ABI}").as_str()], "{names:?}");
        layout::check(&self.directory(), &Sizes::of(&self.options)?)?;
        Ok(())
    }

    fn link_pins(&self) -> Result<Vec<u64>> {
        ["lan0", "wan0"]
            .iter()
            .map(|name| Ok(fs::metadata(self.directory().join(format!("link-{name}")))?.ino()))
            .collect()
    }

    /// Sends 1,000 packets a second across the gateway while `work` is done; returns how many
    /// were sent and how many came.
    fn under_traffic(&self, work: impl FnOnce() -> Result<()>) -> Result<(u64, u64)> {
        let phone = self.branch.phones.udp(PHONE)?;
        let far = self.branch.far.udp(FAR)?;
        far.set_read_timeout(Some(Duration::from_millis(500)))?;
        warm(&phone, &far).with_context(|| self.counted())?;
        let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
        let (done, came) = thread::scope(|scope| {
            let came = scope.spawn(|| receive(&far, &stop));
            let sender = scope.spawn(|| send(&phone, &stop, &sent));
            let done = work();
            stop.store(true, Ordering::Relaxed);
            let _ = sender.join();
            (done, came.join())
        });
        done?;
        let came = came.map_err(|_| anyhow::anyhow!("the receiver panicked"))?;
        Ok((sent.load(Ordering::Relaxed), came))
    }
}

/// Neighbours on the way are resolved by the first packets: those do not count.
fn warm(phone: &UdpSocket, far: &UdpSocket) -> Result<()> {
    let mut datagram = [0; 64];
    wait::until("media crosses", LIMIT, || {
        phone.send_to(&[0x80; 20], MEDIA).ok()?;
        far.recv(&mut datagram).ok()
    })?;
    while far.recv(&mut datagram).is_ok() {}
    Ok(())
}

fn send(phone: &UdpSocket, stop: &AtomicBool, sent: &AtomicU64) {
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        if phone.send_to(&[0x80; 172], MEDIA).is_ok() {
            sent.fetch_add(1, Ordering::Relaxed);
        }
        next += Duration::from_millis(1);
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

fn receive(far: &UdpSocket, stop: &AtomicBool) -> u64 {
    let mut datagram = [0; 256];
    let mut came = 0;
    loop {
        match far.recv(&mut datagram) {
            Ok(_) => came += 1,
            // Half a second of silence after the end: all has come.
            Err(_) if stop.load(Ordering::Relaxed) => return came,
            Err(_) => {}
        }
    }
}

fn link_line(node: &Node, name: &str) -> Result<String> {
    node.ip(&format!("-o link show dev {name}"))
}

fn index(node: &Node, name: &str) -> Result<u32> {
    let line = link_line(node, name)?;
    Ok(line.split(':').next().context("no index")?.trim().parse()?)
}

fn mac(node: &Node, name: &str) -> Result<[u8; 6]> {
    let line = link_line(node, name)?;
    let mut words = line.split_whitespace();
    words.find(|word| *word == "link/ether").context("no MAC")?;
    let bytes = words.next().context("no MAC")?.split(':');
    let bytes: Vec<u8> = bytes
        .map(|byte| u8::from_str_radix(byte, 16))
        .collect::<Result<_, _>>()?;
    bytes.try_into().map_err(|_| anyhow::anyhow!("no MAC"))
}

fn carries_a_program(node: &Node, name: &str) -> Result<bool> {
    Ok(node
        .ip(&format!("-d link show dev {name}"))?
        .contains("prog/xdp"))
}

#[test]
fn kl5_case_x19_restarts_and_upgrades_lose_nothing_and_never_unset_the_link() -> Result<()> {
    let site = Site::raise()?;
    let (programs, maps) = site.start()?;
    let on: Vec<_> = programs.attached().iter().map(|on| on.mode).collect();
    ensure!(on == [Mode::Native, Mode::Native], "{on:?}");
    let mut running = Some((programs, site.steer(maps)?));
    let pins = site.link_pins()?;
    let other = Options {
        // Another constant in the program: another program, over the same maps.
        transparent: true,
        ..site.options.clone()
    };
    let (plain, upgraded) = (site.options.clone(), other);
    let mut starts = vec![plain.clone(); 10];
    starts.extend([&upgraded, &plain].into_iter().cycle().take(10).cloned());
    let mut next = starts.into_iter();
    let restart = |options: &Options| -> Result<(Fastpath, Steering)> {
        let gw = site.branch.gw.net();
        let (programs, maps) = gw.enter(|| Ok(Fastpath::start(options)))??;
        ensure!(programs.rebuilt().is_none(), "{:?}", programs.rebuilt());
        Ok((programs, site.steer(maps)?))
    };
    let (sent, came) = site.under_traffic(|| {
        next.try_for_each(|options| {
            drop(running.take());
            thread::sleep(Duration::from_millis(100)); // dead for a while, as after a kill
            running = Some(restart(&options)?);
            Ok(())
        })
    })?;
    eprintln!("20 restarts, 10 of them with another program: {sent} sent, {came} came");
    ensure!(sent > 1_000, "only {sent} packets were sent");
    ensure!(sent == came, "{sent} sent, {came} came");
    ensure!(site.link_pins()? == pins, "a link was made anew");
    site.one_generation()
}

#[test]
fn case_x21_other_media_ports_rebuild_the_maps_and_lose_nothing() -> Result<()> {
    let mut site = Site::raise()?;
    let (programs, maps) = site.start()?;
    let steer = site.steer(maps)?;
    drop((programs, steer));
    let small = site.options.clone();
    site.options.media = 9_000..=29_999;
    let mut said = None;
    let (sent, came) = site.under_traffic(|| {
        thread::sleep(Duration::from_millis(300));
        let (programs, maps) = site.start()?;
        said = programs.rebuilt().map(str::to_owned);
        // No steering yet: what forwards was carried over.
        drop((programs, maps));
        thread::sleep(Duration::from_millis(300));
        Ok(())
    })?;
    let said = said.context("nothing was said")?;
    ensure!(
        said.contains("entries") && said.contains("1 flows carried over"),
        "{said}"
    );
    ensure!(sent > 300 && sent == came, "{sent} sent, {came} came");
    site.one_generation()?;

    // Killed right after the pins were set aside: the next start finishes.
    let aside = site.options.pin.join(format!("v{ABI}-old1"));
    fs::rename(site.directory(), aside)?;
    site.options = small;
    let (sent, came) = site.under_traffic(|| {
        drop(site.start()?);
        thread::sleep(Duration::from_millis(300));
        Ok(())
    })?;
    ensure!(sent > 100 && sent == came, "{sent} sent, {came} came");
    site.one_generation()
}

#[test]
fn case_x21_the_maps_of_another_version_are_replaced_and_the_gap_is_said() -> Result<()> {
    let site = Site::raise()?;
    drop(site.start()?);
    let sizes = Sizes::of(&site.options)?;
    let plans = shape(&sizes, "PLANS")?;
    let grown = Shape {
        value: plans.value + 8,
        ..plans
    };
    plant(&site.directory(), &grown)?;
    fs::rename(site.directory(), site.options.pin.join("v0"))?;
    let (programs, maps) = site.start()?;
    let said = programs.rebuilt().context("nothing was said")?;
    ensure!(said.contains("no flow could be carried over"), "{said}");
    site.one_generation()?;
    // State comes back by steering.
    let steer = site.steer(maps)?;
    let (sent, came) = site.under_traffic(|| {
        thread::sleep(Duration::from_millis(200));
        Ok(())
    })?;
    drop(steer);
    ensure!(sent == came, "{sent} sent, {came} came");
    Ok(())
}

fn shape(sizes: &Sizes, name: &str) -> Result<Shape> {
    let shapes = layout::shapes(sizes);
    let found = shapes.iter().find(|shape| shape.name == name);
    found.copied().context("no such map")
}

#[test]
fn pins_of_another_shape_are_never_loaded_over() -> Result<()> {
    let site = Site::raise()?;
    drop(site.start()?);
    let sizes = Sizes::of(&site.options)?;
    let [state, groups] = [shape(&sizes, "STATE")?, shape(&sizes, "GROUPS")?];
    let addresses = shape(&sizes, "ADDRS")?;
    let planted = [
        (
            "type",
            Shape {
                kind: MapType::LruHash,
                ..addresses
            },
        ),
        (
            "key size",
            Shape {
                key: addresses.key + 4,
                ..addresses
            },
        ),
        (
            "value size",
            Shape {
                value: state.value - 8,
                ..state
            },
        ),
        (
            "entries",
            Shape {
                entries: state.entries - 1,
                ..state
            },
        ),
        ("flags", Shape { flags: 0, ..groups }),
    ];
    for (what, wrong) in planted {
        plant(&site.directory(), &wrong)?;
        let (programs, maps) = site.start().with_context(|| what.to_owned())?;
        let said = programs.rebuilt().with_context(|| what.to_owned())?;
        ensure!(said.contains(what) && said.contains(wrong.name), "{said}");
        drop(maps);
        site.one_generation().with_context(|| what.to_owned())?;
        ensure!(carries_a_program(&site.branch.gw, "lan0")?, "{what}");
    }
    Ok(())
}

#[test]
fn unload_leaves_nothing() -> Result<()> {
    let site = Site::raise()?;
    drop(site.start()?);
    ensure!(carries_a_program(&site.branch.gw, "lan0")?);
    let names = site
        .branch
        .gw
        .net()
        .enter(|| Ok(fastpath::unload(&site.options.pin)?))?;
    ensure!(names == ["lan0", "wan0"], "{names:?}");
    ensure!(!site.options.pin.exists());
    ensure!(!carries_a_program(&site.branch.gw, "lan0")?);
    ensure!(!carries_a_program(&site.branch.gw, "wan0")?);
    let again = fastpath::unload(&site.options.pin);
    ensure!(matches!(again, Err(Error::NotLoaded(_))), "{again:?}");
    Ok(())
}

#[test]
fn a_foreign_program_is_refused_by_name_and_number() -> Result<()> {
    let mut site = Site::raise()?;
    site.branch.gw.as_test_host("lan0")?;
    let error = site.refused()?;
    let Error::Foreign { interface, id, .. } = &error else {
        bail!("{error}");
    };
    let shown = site.branch.gw.ip("-d link show dev lan0")?;
    ensure!(
        interface == "lan0" && shown.contains(&format!("id {id} ")),
        "{error}: {shown}"
    );
    ensure!(error.remedy().is_some_and(|remedy| remedy.contains("lan0")));
    Ok(())
}

#[test]
fn no_bpf_file_system_costs_one_sentence() -> Result<()> {
    let mut site = Site::raise()?;
    site.options.pin = "/run/keepline-not-there".into();
    let error = site.refused()?;
    ensure!(matches!(error, Error::NoBpffs(_)), "{error}");
    ensure!(error.to_string().lines().count() == 1);
    ensure!(
        error
            .remedy()
            .is_some_and(|remedy| remedy.contains("mount -t bpf"))
    );
    ensure!(!carries_a_program(&site.branch.gw, "lan0")?);
    Ok(())
}

#[test]
fn case_x15_jumbo_frames_do_not_refuse_native_mode() -> Result<()> {
    let mut site = Site::raise()?;
    let cable = "link add jumbo0 mtu 9000 type veth peer name jumbo1 mtu 9000";
    site.branch.gw.ip(cable)?;
    site.options.interfaces[0].name = "jumbo0".into();
    let (programs, _maps) = site.start()?;
    let lan = programs.attached().first().context("nothing attached")?;
    ensure!(lan.mode == Mode::Native, "{lan:?}");
    Ok(())
}

#[test]
fn a_veth_is_told_to_need_a_program_at_its_other_end() -> Result<()> {
    let site = Site::raise()?;
    let (programs, _maps) = site.start()?;
    for on in programs.attached() {
        ensure!(
            on.notes.iter().any(|note| note.contains("other end")),
            "{on:?}"
        );
    }
    Ok(())
}

#[test]
fn case_x6_an_answer_to_a_partial_checksum_verifies() -> Result<()> {
    let site = Site::raise()?;
    let (programs, maps) = site.start()?;
    let mut steer = site.steer(maps)?;
    let at = "10.99.1.1:5060".parse()?;
    steer.listener_set(ListenerId(0), at, GateId(0), Mono::default())?;
    let serving = Delta::GateSet {
        gate: GateId(0),
        state: Gate::Serving,
    };
    steer.apply(&serving, Mono::default())?;
    // Sockets of this host now leave checksums to a NIC that is not there.
    site.branch
        .phones
        .run("ethtool", &["-K", "eth0", "tx", "on"])?;
    let phone = site.branch.phones.udp("10.99.1.11:7000")?;
    phone.set_read_timeout(Some(LIMIT))?;
    let mut request = [0x5a; 20];
    request[..8].copy_from_slice(&[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42]);
    phone.send_to(&request, at)?;
    let mut answer = [0; 128];
    // The answer comes as a frame without any mark: the kernel sums it before a socket sees it.
    let length = phone.recv(&mut answer).context("no answer passed")?;
    ensure!(answer[..2] == [1, 1] && length == 32, "{length} bytes");
    drop((programs, steer));
    Ok(())
}

#[test]
fn a_device_that_was_made_anew_is_taken_up_by_the_daemon() -> Result<()> {
    let mut branch = Branch::raise()?;
    let _gateway = gateway::Gateway::start(&branch, &gateway::config())?;
    ensure!(carries_a_program(&branch.gw, "lan0")?);
    let before = index(&branch.gw, "lan0")?;
    branch.gw.ip("link del lan0")?;
    ensure!(link_line(&branch.gw, "lan0").is_err());
    Node::cable((&mut branch.phones, "eth0"), (&mut branch.gw, "lan0"))?;
    branch.phones.as_test_host("eth0")?;
    branch.gw.ip("address add 10.99.1.1/24 dev lan0")?;
    branch.phones.ip("address add 10.99.1.11/24 dev eth0")?;
    branch.phones.ip("link set eth0 up")?;
    branch.gw.ip("link set lan0 up")?;
    ensure!(index(&branch.gw, "lan0")? != before, "the same device");
    let since = Instant::now();
    wait::until("the program is back", LIMIT, || {
        carries_a_program(&branch.gw, "lan0").ok().filter(|on| *on)
    })?;
    eprintln!("back after {} ms", since.elapsed().as_millis());
    wait::until("the event", LIMIT, || {
        let events = gateway::run(&branch, &["events", "--json"]).ok()?;
        events.contains("device_made_anew").then_some(())
    })?;
    // The listener hears again: sockets of the old device were bound to it.
    let phone = branch.phones.udp("10.99.1.11:5062")?;
    phone.set_read_timeout(Some(Duration::from_millis(500)))?;
    let options = "OPTIONS sip:10.99.1.1 SIP/2.0\r\nVia: SIP/2.0/UDP 10.99.1.11:5062;\
        branch=z9hG4bKanew\r\nFrom: <sip:201@10.99.1.11>;tag=1\r\nTo: <sip:10.99.1.1>\r\n\
        Call-ID: anew\r\nCSeq: 1 OPTIONS\r\nMax-Forwards: 70\r\nContent-Length: 0\r\n\r\n";
    let mut answer = [0; 2048];
    wait::until("an answer", LIMIT, || {
        phone.send_to(options.as_bytes(), "10.99.1.1:5060").ok()?;
        phone.recv(&mut answer).ok()
    })?;
    ensure!(answer.starts_with(b"SIP/2.0 "));
    Ok(())
}
