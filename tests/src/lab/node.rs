//! A machine of the lab: a network namespace, and programs in it.

use std::fs;
use std::net::UdpSocket;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};

use super::{Cell, Launch, Netns, Process, stub};

/// One machine.
pub struct Node {
    name: String,
    net: Netns,
    cell: Arc<Cell>,
    /// Links of the XDP programs on its interfaces: attached as long as they are held.
    stubs: Vec<stub::Attached>,
}

impl Node {
    /// A machine with nothing but a loopback, which is up.
    ///
    /// # Errors
    /// When not root.
    pub fn new(name: &str, cell: &Arc<Cell>) -> Result<Self> {
        let net = Netns::new()?;
        let node = Self {
            name: name.into(),
            net,
            cell: Arc::clone(cell),
            stubs: Vec::new(),
        };
        node.ip("link set lo up")?;
        Ok(node)
    }

    /// A cable between two machines; both ends stay down.
    ///
    /// The gateway's programs redirect and answer into such a cable, which a real NIC would
    /// take as it is; a veth wants an XDP program (or GRO) on the other end, and before the
    /// link comes up. And checksums: sockets on veth leave them to a NIC that is not there.
    /// So every end of a cable, except the gateway's own, gets a program that passes all, and
    /// no transmit offload.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn cable(left: (&mut Self, &str), right: (&mut Self, &str)) -> Result<()> {
        let far_end = right.0.net.path();
        left.0.ip(&format!(
            "link add {} type veth peer name {} netns {far_end}",
            left.1, right.1
        ))?;
        Ok(())
    }

    /// Makes an interface that of a test host: see [`Node::cable`].
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn as_test_host(&mut self, interface: &str) -> Result<()> {
        self.run("ethtool", &["-K", interface, "tx", "off", "gro", "on"])?;
        let attached = self.net.enter(|| stub::attach_pass(interface))?;
        self.stubs.push(attached);
        Ok(())
    }

    /// Takes back what [`Self::as_test_host`] did on every interface of this machine but the
    /// checksums: no program, no GRO.
    ///
    /// # Errors
    /// When `ethtool` fails.
    pub fn bare(&mut self, interface: &str) -> Result<()> {
        self.stubs.clear();
        self.run("ethtool", &["-K", interface, "gro", "off"])
            .map(drop)
    }

    /// `ip` with these words.
    ///
    /// # Errors
    /// When it fails.
    pub fn ip(&self, words: &str) -> Result<String> {
        self.run("ip", &words.split_whitespace().collect::<Vec<_>>())
    }

    /// Runs a short program in this machine's network to its end, and returns what it printed.
    ///
    /// # Errors
    /// When it fails; the message quotes what it printed.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let output = self.net.enter(|| {
            Command::new(program)
                .args(arguments)
                .output()
                .with_context(|| format!("cannot run {program}"))
        })?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            bail!(
                "{}: {program} {}: {text}{error}",
                self.name,
                arguments.join(" ")
            );
        }
        Ok(text)
    }

    /// Starts a program of the lab on this machine.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self, launch: &Launch) -> Result<Process> {
        let name = format!("{} on {}", launch.name(), self.name);
        let child = self
            .cell
            .start(launch.command(), self.net.descriptor())
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Process::adopt(name, child))
    }

    /// Sets a network sysctl, as in `net.ipv4.ip_forward`.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn sysctl(&self, name: &str, value: &str) -> Result<()> {
        let file = format!("/proc/sys/{}", name.replace('.', "/"));
        self.net
            .enter(|| fs::write(&file, value).with_context(|| format!("cannot set {name}")))
    }

    /// A UDP socket on this machine.
    ///
    /// # Errors
    /// When the address is not here or taken.
    pub fn udp(&self, address: &str) -> Result<UdpSocket> {
        self.net.enter(|| {
            UdpSocket::bind(address)
                .with_context(|| format!("{}: cannot bind {address}", self.name))
        })
    }

    /// Silence: whatever comes or goes by this interface is lost, and nobody is told.
    ///
    /// # Errors
    /// When nft fails.
    pub fn blackhole(&self, interface: &str) -> Result<()> {
        let rules = format!(
            "table inet blackhole {{
               chain in {{ type filter hook input priority -300; iifname {interface} drop; }}
               chain out {{ type filter hook output priority -300; oifname {interface} drop; }}
             }}"
        );
        self.run("nft", &[&rules]).map(drop)
    }

    /// Ends [`Node::blackhole`].
    ///
    /// # Errors
    /// When there was none.
    pub fn end_blackhole(&self) -> Result<()> {
        self.run("nft", &["delete table inet blackhole"]).map(drop)
    }

    /// The machine's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its network namespace.
    #[must_use]
    pub fn net(&self) -> &Netns {
        &self.net
    }

    /// The cell that its programs live in.
    #[must_use]
    pub fn cell(&self) -> &Arc<Cell> {
        &self.cell
    }
}
