//! What a machine must have before the gateway can run on it, and what it would be better for.

use std::{net::SocketAddr, os::unix::net::UnixStream, path::Path};

use keepline_engine::net::Transport;

use super::{clock, interface, transparent};
use crate::{
    config::{
        Config,
        model::{ListenAddress, Mode},
    },
    tls::{Files, Tls},
};

/// Kernel that `NTF_EXT_MANAGED` and pinned XDP links need.
const KERNEL: (u32, u32) = (5, 18);
/// Kernel that TCX needs: programs of segments, pinned.
const SEGMENTS: (u32, u32) = (6, 6);
/// `BPF_FS_MAGIC` of linux/magic.h.
const BPF_FS_MAGIC: i128 = 0xcafe_4a11;

/// One thing looked at.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(super) struct Check {
    /// What: stable, snake_case.
    pub(super) check: &'static str,
    /// Whether it is as it should be.
    pub(super) ok: bool,
    /// The gateway cannot run without it.
    pub(super) needed: bool,
    /// What was found, in one sentence.
    pub(super) found: String,
    /// What to do; empty when there is nothing to do.
    pub(super) remedy: String,
}

impl Check {
    /// Something the gateway runs without, less well.
    pub(super) fn better(
        check: &'static str,
        ok: bool,
        found: impl Into<String>,
        remedy: &str,
    ) -> Self {
        Self {
            needed: false,
            ..Self::needed(check, ok, found, remedy)
        }
    }

    pub(super) fn needed(
        check: &'static str,
        ok: bool,
        found: impl Into<String>,
        remedy: &str,
    ) -> Self {
        let remedy = if ok { String::new() } else { remedy.to_owned() };
        Self {
            check,
            ok,
            needed: true,
            found: found.into(),
            remedy,
        }
    }
}

/// Everything, the most fundamental first. Without a configuration only what needs none.
pub(super) fn checks(config: Option<&Config>, socket: &Path) -> Vec<Check> {
    let mut checks = vec![root(), kernel(), btf()];
    let pin = config.map_or(Path::new("/sys/fs/bpf/keepline"), |c| {
        c.fastpath.pin.as_path()
    });
    checks.push(bpffs(pin));
    checks.extend(clock::checks(
        config.map(|config| config.store.path.as_path()),
    ));
    let Some(config) = config else { return checks };
    for there in &config.interfaces {
        checks.push(interface(&there.name));
        checks.extend(interface::checks(there));
    }
    if config.segments.iter().any(|of| of.interface.is_some()) {
        checks.push(segments(
            &rustix::system::uname().release().to_string_lossy(),
        ));
    }
    for segment in crate::tunnel::traffic::joined(config) {
        let tunnels = segment.tunnels.iter().map(|tunnel| &tunnel.interface);
        checks.extend(
            tunnels
                .chain([&segment.interface])
                .filter_map(|on| frames(on)),
        );
    }
    checks.extend(config.tls.iter().map(certificates));
    if config.gateway.mode == Mode::Transparent {
        checks.extend(transparent::checks());
    }
    // A running daemon holds the very ports that would be tried.
    if UnixStream::connect(socket).is_err() {
        let listeners = config.listen.all();
        checks.extend(listeners.filter_map(|(over, on)| listener(config, over, on)));
        checks.extend(config.api.iter().map(|api| api_port(api.listen)));
    }
    checks
}

fn root() -> Check {
    let ok = rustix::process::geteuid().is_root();
    let found = if ok {
        "running as root"
    } else {
        "not running as root"
    };
    Check::needed(
        "root",
        ok,
        found,
        "run it with sudo: XDP and raw sockets need root",
    )
}

fn kernel() -> Check {
    let name = rustix::system::uname();
    kernel_of(&name.release().to_string_lossy())
}

fn kernel_of(release: &str) -> Check {
    let ok = version(release).is_some_and(|version| version >= KERNEL);
    let found = format!("the kernel is {release}");
    let remedy = "use a kernel of 5.18 or newer: older ones keep no neighbours for XDP";
    Check::needed("kernel", ok, found, remedy)
}

/// Asked where a segment has an interface. No filter of clsact stands in on older kernels: it could
/// not be pinned, and would end with the daemon.
fn segments(release: &str) -> Check {
    let ok = version(release).is_some_and(|version| version >= SEGMENTS);
    let can = if ok { "can" } else { "cannot" };
    let found = format!("the kernel is {release}: it {can} join a segment's interface to tunnels");
    let remedy = "use a kernel of 6.6 or newer, or take `interface` out of [[segment]]: calls and \
                  routes through tunnels move on older ones too";
    Check::needed("segments", ok, found, remedy)
}

/// Both ends of what is joined at layer 2 need `ARPHRD_ETHER`; `None` while there is no such device.
fn frames(name: &str) -> Option<Check> {
    let kind = std::fs::read_to_string(format!("/sys/class/net/{name}/type")).ok()?;
    let ok = kind.trim() == "1";
    let found = format!(
        "{name} carries {}Ethernet frames",
        if ok { "" } else { "no " }
    );
    let remedy = "a segment's interface is joined at layer 2: use tunnels of layer 2 (VXLAN, gretap, \
                  L2TP), or take `interface` out of [[segment]]: what is routed moves all the same";
    Some(Check::needed("segment_frames", ok, found, remedy))
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn btf() -> Check {
    let ok = Path::new("/sys/kernel/btf/vmlinux").exists();
    let found = if ok {
        "the kernel has BTF"
    } else {
        "the kernel has no BTF"
    };
    Check::better(
        "btf",
        ok,
        found,
        "use a kernel with CONFIG_DEBUG_INFO_BTF=y",
    )
}

fn bpffs(pin: &Path) -> Check {
    let existing = pin
        .ancestors()
        .find(|path| path.exists())
        .unwrap_or(Path::new("/"));
    let ok = rustix::fs::statfs(existing).is_ok_and(|fs| i128::from(fs.f_type) == BPF_FS_MAGIC);
    let found = format!(
        "{} is {}on a bpf file system",
        pin.display(),
        if ok { "" } else { "not " }
    );
    Check::needed("bpffs", ok, found, "mount it: mount -t bpf bpf /sys/fs/bpf")
}

fn interface(name: &str) -> Check {
    let present = interfaces();
    let ok = present.iter().any(|there| there == name);
    let found = format!(
        "interface {name} {}",
        if ok { "exists" } else { "does not exist" }
    );
    let remedy = format!(
        "correct [[interface]] name; this machine has {}",
        present.join(", ")
    );
    Check::needed("interface", ok, found, &remedy)
}

/// The interfaces of this process's network namespace, which `/sys` may not be mounted for.
fn interfaces() -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    let names = table.lines().filter_map(|line| line.split_once(':'));
    names.map(|(name, _)| name.trim().to_owned()).collect()
}

/// Tries the port; `None` when the listener has no address to try yet.
fn listener(config: &Config, transport: Transport, listen: ListenAddress) -> Option<Check> {
    let (kind, flag) = match transport {
        Transport::Udp => (socket2::Type::DGRAM, 'u'),
        Transport::Tcp | Transport::Tls => (socket2::Type::STREAM, 't'),
    };
    let via = transport.via();
    let socket = socket2::Socket::new(
        match listen {
            ListenAddress::Address(address) => socket2::Domain::for_address(address),
            ListenAddress::Interface { .. } => socket2::Domain::IPV4,
        },
        kind,
        None,
    );
    let socket = socket.ok()?;
    if transport.is_stream() {
        // Connections of a daemon that ended linger on its port; that hinders nobody.
        socket.set_reuse_address(true).ok()?;
    }
    let (address, name) = match listen {
        ListenAddress::Address(address) => (address, address.to_string()),
        ListenAddress::Interface { link, port } => {
            let name = &config.interfaces.get(usize::from(link.0))?.name;
            socket.bind_device(Some(name.as_bytes())).ok()?;
            (
                SocketAddr::from(([0, 0, 0, 0], port)),
                format!("{name}:{port}"),
            )
        }
    };
    Some(match socket.bind(&address.into()) {
        Ok(()) => Check::needed("port", true, format!("{via} {name} is free"), ""),
        Err(error) => {
            let remedy = format!(
                "stop what holds it (ss -{flag}lpn sport = :{}), or change [listen] {}",
                address.port(),
                via.to_ascii_lowercase()
            );
            Check::needed(
                "port",
                false,
                format!("{via} {name} cannot be used: {error}"),
                &remedy,
            )
        }
    })
}

/// The files of `[tls]` hold what they must, and the key is the certificate's.
fn certificates(files: &Files) -> Check {
    let (ok, found) = match Tls::load(files) {
        Ok(_) => (true, format!("{} can be shown", files.cert.display())),
        Err(error) => (false, error.to_string()),
    };
    let remedy = "correct [tls]: cert, key and ca are PEM files, the key is the certificate's";
    Check::needed("tls", ok, found, remedy)
}

fn api_port(listen: SocketAddr) -> Check {
    match std::net::TcpListener::bind(listen) {
        Ok(_) => Check::needed("port", true, format!("TCP {listen} is free"), ""),
        Err(error) => {
            let remedy = format!(
                "stop what holds it (ss -tlpn sport = :{}), or change [api] listen",
                listen.port()
            );
            Check::needed(
                "port",
                false,
                format!("TCP {listen} cannot be used: {error}"),
                &remedy,
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_compared_by_number() {
        assert!(version("5.18.0-1-amd64") >= Some(KERNEL));
        assert!(version("6.1.0").is_some_and(|v| v >= KERNEL));
        assert!(version("5.9.1").is_some_and(|v| v < KERNEL));
        assert_eq!(version("unknown"), None);
        let old = kernel_of("5.10.0-28-amd64");
        assert!(old.needed && !old.ok);
        assert_eq!(old.found, "the kernel is 5.10.0-28-amd64");
        assert!(old.remedy.contains("5.18"));
        assert!(kernel_of("6.1.0").ok && kernel_of("6.1.0").remedy.is_empty());
    }

    #[test]
    fn mx1_segments_want_a_kernel_with_tcx_and_say_what_to_do() {
        let old = segments("6.1.0-28-amd64");
        assert!(old.needed && !old.ok);
        let found = "the kernel is 6.1.0-28-amd64: it cannot join a segment's interface to tunnels";
        assert_eq!(old.found, found);
        assert!(old.remedy.contains("6.6") && old.remedy.contains("[[segment]]"));
        assert!(segments("6.6.0").ok && segments("6.6.0").remedy.is_empty());
    }

    #[test]
    fn mx1_a_segment_is_not_joined_to_a_tunnel_of_layer_3() {
        let check = frames("lo").expect("it is there");
        assert!(check.needed && !check.ok);
        assert_eq!(check.found, "lo carries no Ethernet frames");
        assert!(check.remedy.contains("VXLAN"), "{}", check.remedy);
        assert!(frames("no-such-dev").is_none());
    }

    #[test]
    fn a_missing_interface_is_named_with_those_there_are() {
        let check = interface("nosuch0");
        assert!(!check.ok && check.needed);
        assert_eq!(check.found, "interface nosuch0 does not exist");
        assert!(check.remedy.contains("lo"), "{}", check.remedy);
    }

    #[test]
    fn a_folder_that_is_no_bpffs_is_told() {
        let check = bpffs(Path::new("/proc/keepline"));
        assert!(!check.ok);
        assert_eq!(check.found, "/proc/keepline is not on a bpf file system");
        assert!(check.remedy.contains("mount -t bpf"), "{}", check.remedy);
    }

    #[test]
    fn a_port_that_is_taken_is_told_with_its_remedy() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let check = api_port(taken.local_addr().expect("an address"));
        assert!(!check.ok);
        assert!(check.remedy.contains("ss -tlpn"), "{}", check.remedy);
    }
}
