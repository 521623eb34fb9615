//! A gateway with two VXLAN tunnels to two concentrators: dnsmasq behind one, Kea behind the
//! other, one network behind both, clients behind a segment.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use socket2::{Domain, Socket, Type};

use super::dhcp::{Server, Serving};
use super::gateway::built;
pub use super::headquarters::{HQ, NET, SPEAKER};
use super::{Launch, Node, Process, headquarters::Headquarters, wait};

const CONFIG: &str = "/run/gw/keepline.toml";
/// Off the network behind the tunnels: draws a NAK.
pub const HEALTH_CHECK_IP: &str = "203.0.113.1";
/// What an event of the daemon may take to be visible.
pub const SOON: Duration = Duration::from_secs(10);

/// The machines, and what runs on them.
pub struct Lab {
    // Processes go first: the cell, which the machines hold, waits for them.
    daemon: Option<Process>,
    /// The DHCP servers behind the concentrators.
    pub dhcp: [Option<Process>; 2],
    /// The machines.
    pub net: Headquarters,
}

impl Lab {
    /// Raises machines, tunnels `hq0` and `hq1`, and both servers.
    ///
    /// # Errors
    /// When not root, or a server does not start.
    pub fn raise() -> Result<Self> {
        let mut lab = Self {
            net: Headquarters::raise()?,
            dhcp: [None, None],
            daemon: None,
        };
        lab.serve(0)?;
        lab.serve(1)?;
        Ok(lab)
    }

    /// The same with the daemon, once it has proven both tunnels and uses the first.
    ///
    /// # Errors
    /// When it does not come so far.
    pub fn proven(keys: &str) -> Result<Self> {
        let mut lab = Self::raise()?;
        lab.start(&Self::config(keys))?;
        for name in ["hq-a", "hq-b"] {
            let mut seen = None;
            let proven = wait::until("both tunnels are proven", SOON, || {
                seen = lab.tunnel(name).ok();
                (seen.as_ref()?["proven"] == true).then_some(())
            });
            proven.with_context(|| format!("{seen:?}\n{}", lab.printed()))?;
        }
        ensure!(lab.active()? == "hq-a");
        Ok(lab)
    }

    /// Starts the DHCP server behind this tunnel: dnsmasq behind the first, Kea behind the other.
    ///
    /// # Errors
    /// When it does not start.
    pub fn serve(&mut self, n: usize) -> Result<()> {
        let server = if n == 0 {
            Server::Dnsmasq {
                authoritative: true,
            }
        } else {
            Server::Kea {
                authoritative: true,
            }
        };
        let serving = Serving {
            net: NET,
            interface: "br0",
            leases: &[],
        };
        self.dhcp[n] = Some(server.start(&self.net.concentrators[n], &serving)?);
        Ok(())
    }

    /// A gateway's configuration with these keys in each `[[tunnel]]`.
    #[must_use]
    pub fn config(keys: &str) -> String {
        let tunnel = |name: &str, interface: &str| {
            format!(
                "[[tunnel]]\nname = \"{name}\"\ninterface = \"{interface}\"\n\
                 health_check_ip = \"{HEALTH_CHECK_IP}\"\n{keys}\n"
            )
        };
        let interface = |name: &str, role: &str| {
            format!("[[interface]]\nname = \"{name}\"\nrole = \"{role}\"\nxdp = \"off\"\n")
        };
        [
            "[gateway]\nname = \"branch\"\ndomain = \"example.test\"\n".to_owned(),
            interface("lan0", "lan"),
            interface("wan0", "wan"),
            "[listen]\nudp = [\"lan0:5060\", \"wan0:5060\"]\n[[softswitch]]\nname = \"core\"\n\
             servers = [{ uri = \"sip:192.0.2.10:5060\" }]\n[store]\npath = \"/run/gw/state\"\n\
             [[segment]]\ninterface = \"voice0\"\ntunnels = [\"hq-a\", \"hq-b\"]\n"
                .to_owned(),
            tunnel("hq-a", "hq0"),
            tunnel("hq-b", "hq1"),
        ]
        .concat()
    }

    /// Starts the gateway, and returns when it answers.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(&mut self, config: &str) -> Result<()> {
        let gw = &self.net.gw;
        gw.cell().write(CONFIG, config)?;
        std::fs::create_dir_all(gw.cell().outside("/run/keepline"))?;
        let launch = Launch::new(built("keepline")?).args(["--config", CONFIG, "run"]);
        let mut daemon = gw.start(&launch)?;
        let answered = wait::until("the gateway answers", Duration::from_secs(20), || {
            if !daemon.runs() {
                return Some(false);
            }
            self.ask(&["status"]).ok().map(|_| true)
        });
        if !matches!(answered, Ok(true)) {
            bail!("the gateway does not start; it printed:\n{}", daemon.tail());
        }
        self.daemon = Some(daemon);
        Ok(())
    }

    /// The client takes a lease, by a real DHCP client through the segment, and configures it.
    ///
    /// # Errors
    /// When nobody gives it one.
    pub fn lease(&self) -> Result<Ipv4Addr> {
        const SCRIPT: &str = "/run/lease.sh";
        let client = &self.net.client;
        let script = "#!/bin/sh\n[ \"$1\" = bound ] || exit 0\n\
                      ip addr replace \"$ip/$mask\" dev \"$interface\" && echo \"leased $ip\"\n";
        client.cell().write(SCRIPT, script)?;
        let permissions = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(client.cell().outside(SCRIPT), permissions)?;
        let words = "-i eth0 -n -q -f -t 10 -T 1 -A 1 -s";
        let launch = Launch::new("udhcpc").args(words.split(' ')).arg(SCRIPT);
        let mut process = client.start(&launch)?;
        process.succeed(Duration::from_secs(20))?;
        let line = process.wait_line("leased ", SOON)?;
        let address = line.text.trim_start_matches("leased ").parse();
        address.with_context(|| format!("no address in {:?}", line.text))
    }

    /// What the daemon and the servers printed last.
    fn printed(&self) -> String {
        let all = self.daemon.iter().chain(self.dhcp.iter().flatten());
        all.map(Process::tail).collect::<Vec<_>>().join("\n")
    }

    /// `keepline WORDS --json`.
    ///
    /// # Errors
    /// When it fails.
    pub fn ask(&self, words: &[&str]) -> Result<Value> {
        let text = self.say(&[words, &["--json"]].concat())?;
        serde_json::from_str(&text).with_context(|| format!("{words:?} said {text:?}"))
    }

    /// What `keepline WORDS` prints.
    ///
    /// # Errors
    /// When it fails.
    pub fn say(&self, words: &[&str]) -> Result<String> {
        let launch = Launch::new(built("keepline")?)
            .args(["--config", CONFIG])
            .args(words);
        let mut process = self.net.gw.start(&launch)?;
        process.succeed(Duration::from_secs(10))?;
        Ok(process.all_text())
    }

    /// A tunnel, as `keepline tunnels` shows it.
    ///
    /// # Errors
    /// When the gateway does not answer.
    pub fn tunnel(&self, name: &str) -> Result<Value> {
        let answer = self.ask(&["tunnels"])?;
        let all = answer["tunnels"].as_array().context("no tunnels")?;
        let one = all.iter().find(|tunnel| tunnel["name"] == name);
        one.cloned().context("no such tunnel")
    }

    /// The state of a tunnel.
    ///
    /// # Errors
    /// When the gateway does not answer.
    pub fn state(&self, name: &str) -> Result<String> {
        let tunnel = self.tunnel(name)?;
        Ok(tunnel["state"].as_str().unwrap_or_default().to_owned())
    }

    /// The tunnel in use.
    ///
    /// # Errors
    /// When the gateway does not answer.
    pub fn active(&self) -> Result<String> {
        let status = self.ask(&["status"])?;
        let active = status.pointer("/segments/0/active").and_then(Value::as_str);
        active
            .map(str::to_owned)
            .with_context(|| status.to_string())
    }

    /// Waits for an event of this kind (`tunnel`, `segment`) by this rule, after the first
    /// `known`.
    ///
    /// # Errors
    /// When there is none within `limit`; the message tells the events.
    pub fn event(&self, kind: &str, rule: &str, known: usize, limit: Duration) -> Result<Value> {
        let seen = wait::until(rule, limit, || {
            self.events(kind, rule).ok()?.into_iter().nth(known)
        });
        match seen {
            Ok(event) => Ok(event),
            Err(error) => bail!("{error}; events: {}", self.ask(&["events"])?),
        }
    }

    /// Events of this kind that name this rule, oldest first.
    ///
    /// # Errors
    /// When the gateway does not answer.
    pub fn events(&self, kind: &str, rule: &str) -> Result<Vec<Value>> {
        let answer = self.ask(&["events"])?;
        let all = answer["events"].as_array().context("no events")?;
        let named = all
            .iter()
            .filter(|event| event["kind"] == kind && event["rule"] == rule);
        Ok(named.cloned().collect())
    }
}

/// Whether `from` reaches `to` from that address, and is answered: it refuses a connection,
/// which takes ARP and a packet each way.
///
/// # Errors
/// When nothing comes back.
pub fn reaches(from: &Node, source: IpAddr, to: &str) -> Result<()> {
    let to = SocketAddr::new(to.parse()?, 9);
    let refused = from.net().enter(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::new(source, 0).into())?;
        let tried = socket.connect_timeout(&to.into(), Duration::from_secs(3));
        Ok(tried.err().map(|error| error.kind()))
    })?;
    let refused = refused == Some(ErrorKind::ConnectionRefused);
    ensure!(refused, "{source} does not reach {to}");
    Ok(())
}

/// When an event happened, since the epoch.
///
/// # Errors
/// When it does not say.
pub fn at(event: &Value) -> Result<Duration> {
    let at = event["at"].as_str().unwrap_or_default();
    let at = humantime::parse_rfc3339(at).with_context(|| event.to_string())?;
    Ok(at.duration_since(SystemTime::UNIX_EPOCH)?)
}

/// This moment, since the epoch.
#[must_use]
pub fn epoch() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}
