//! The softswitch: Kamailio as registrar and proxy, two of them sharing one location table.
//!
//! They replicate registrations over a link of their own (`dmq_usrloc`), as a cluster does, so
//! that a softswitch which is cut off on the WAN side comes back with a current table.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::Signal;

use super::{Branch, Launch, Node, Process, branch::SOFTSWITCHES, branch::SOFTSWITCHES_V6, wait};

/// Domain that the softswitches serve.
pub const DOMAIN: &str = "example.test";
const CONFIG: &str = include_str!("../../scenarios/kamailio.cfg");

/// Password of a phone; only the phones and the softswitches know it.
#[must_use]
pub fn password(user: &str) -> String {
    format!("secret-{user}")
}

/// One softswitch.
pub struct Softswitch {
    index: usize,
    digest: bool,
    domain: String,
    process: Process,
}

impl Softswitch {
    /// Starts the one with this index, and returns when it answers. With `digest`, REGISTER and
    /// the first INVITE of a call are challenged.
    ///
    /// # Errors
    /// When Kamailio does not start; the message quotes it.
    pub fn start(branch: &Branch, index: usize, digest: bool) -> Result<Self> {
        Self::start_for(DOMAIN, branch, index, digest)
    }

    /// The same for a domain of its own.
    ///
    /// # Errors
    /// As [`Softswitch::start`].
    pub fn start_for(domain: &str, branch: &Branch, index: usize, digest: bool) -> Result<Self> {
        let node = &branch.softswitches[index];
        let folder = format!("/run/ss{}", index + 1);
        branch
            .cell()
            .write(format!("{folder}/kamailio.cfg"), config(index, domain))?;
        let mut launch = Launch::new("kamailio")
            // Stay in the foreground, log here, keep out of the system's folders.
            .args([
                "-DD", "-E", "-n", "2", "-N", "2", "-m", "64", "-M", "8", "-Y", &folder,
            ])
            .args(["-f", &format!("{folder}/kamailio.cfg")]);
        // Who has a certificate speaks TLS too.
        if branch.cell().outside(format!("{folder}/cert.pem")).exists() {
            launch = launch.args(["-A", "WITH_TLS"]);
        }
        if digest {
            launch = launch.args(["-A", "WITH_DIGEST"]);
        }
        for (mark, define) in [
            ("stun", "WITH_STUN"),
            ("path", "WITH_PATH"),
            ("outbound", "WITH_OUTBOUND"),
            ("v6", "WITH_V6"),
        ] {
            if branch.cell().outside(format!("{folder}/{mark}")).exists() {
                launch = launch.args(["-A", define]);
            }
        }
        let process = node.start(&launch)?;
        answers(node, SOFTSWITCHES[index], domain)
            .with_context(|| format!("kamailio printed:\n{}", process.tail()))?;
        Ok(Self {
            index,
            digest,
            domain: domain.to_owned(),
            process,
        })
    }

    /// Lets the one with this index answer STUN too, from its next start on.
    ///
    /// # Errors
    /// When that cannot be written down.
    pub fn speaks_stun(branch: &Branch, index: usize) -> Result<()> {
        mark(branch, index, "stun")
    }

    /// Lets the one with this index keep the Path of registrations (RFC 3327), from its next
    /// start on.
    ///
    /// # Errors
    /// When that cannot be written down.
    pub fn keeps_paths(branch: &Branch, index: usize) -> Result<()> {
        mark(branch, index, "path")
    }

    /// Lets the one with this index reach phones by the flows that they open, with the Path of
    /// their registrations (RFC 5626), from its next start on.
    ///
    /// # Errors
    /// When that cannot be written down.
    pub fn grants_outbound(branch: &Branch, index: usize) -> Result<()> {
        mark(branch, index, "path")?;
        mark(branch, index, "outbound")
    }

    /// Has the one with this index listen to its address of IPv6 too, from its next start on; the
    /// address is there.
    ///
    /// # Errors
    /// When that cannot be written down.
    pub fn speaks_v6(branch: &Branch, index: usize) -> Result<()> {
        mark(branch, index, "v6")
    }

    /// `kill -9`: its ports answer with ICMP from now on.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// SIGSTOP: it takes packets and says nothing.
    ///
    /// # Errors
    /// When it is dead.
    pub fn pause(&self) -> Result<()> {
        self.process.signal(Signal::STOP)
    }

    /// SIGCONT.
    ///
    /// # Errors
    /// When it is dead.
    pub fn resume(&self) -> Result<()> {
        self.process.signal(Signal::CONT)
    }

    /// Starts it anew after [`Softswitch::kill`].
    ///
    /// # Errors
    /// As [`Softswitch::start`].
    pub fn restart(&mut self, branch: &Branch) -> Result<()> {
        self.process.kill();
        *self = Self::start_for(&self.domain.clone(), branch, self.index, self.digest)?;
        Ok(())
    }

    /// Asks it over its control socket, as in `ul.dump`. Words that look like numbers are taken
    /// as such, unless prefixed `s:`.
    ///
    /// # Errors
    /// When it refuses.
    pub fn rpc(&self, branch: &Branch, words: &[&str]) -> Result<String> {
        let socket = format!("unix:/run/ss{}/ctl", self.index + 1);
        let launch = Launch::new("kamcmd").args(["-s", &socket]).args(words);
        let mut kamcmd = branch.softswitches[self.index].start(&launch)?;
        kamcmd.succeed(Duration::from_secs(10))?;
        let text = kamcmd.all_text();
        if text.starts_with("error:") {
            bail!("kamcmd {words:?}: {text}");
        }
        Ok(text)
    }

    /// What it logged.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }
}

fn mark(branch: &Branch, index: usize, what: &str) -> Result<()> {
    let file = format!("/run/ss{}/{what}", index + 1);
    branch.cell().write(file, "")
}

fn config(index: usize, domain: &str) -> String {
    let peer = 2 - index;
    CONFIG
        .replace("@ADDRESS@", SOFTSWITCHES[index])
        .replace("@V6@", SOFTSWITCHES_V6[index])
        .replace("@CLUSTER@", &format!("10.99.20.{}", index + 1))
        .replace("@PEER@", &format!("10.99.20.{peer}"))
        .replace(
            "@SECRET@",
            &format!("nonce secret of softswitch {}", index + 1),
        )
        .replace("@FOLDER@", &format!("/run/ss{}", index + 1))
        .replace("@SOCKET@", &format!("/run/ss{}/ctl", index + 1))
        .replace("@DOMAIN@", domain)
}

/// Asks with OPTIONS until there is an answer.
fn answers(node: &Node, address: &str, domain: &str) -> Result<()> {
    let socket = node.udp(&format!("{address}:0"))?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let port = socket.local_addr()?.port();
    let mut round = 0;
    wait::until("kamailio answers OPTIONS", Duration::from_secs(10), || {
        round += 1;
        let options = format!(
            "OPTIONS sip:{domain} SIP/2.0\r\n\
             Via: SIP/2.0/UDP {address}:{port};branch=z9hG4bKlab{round}\r\n\
             From: <sip:lab@{domain}>;tag=lab\r\nTo: <sip:{domain}>\r\n\
             Call-ID: lab-{port}\r\nCSeq: {round} OPTIONS\r\nContent-Length: 0\r\n\r\n"
        );
        socket
            .send_to(options.as_bytes(), format!("{address}:5060"))
            .ok()?;
        let mut answer = [0; 1500];
        let length = socket.recv(&mut answer).ok()?;
        answer[..length].starts_with(b"SIP/2.0 200").then_some(())
    })
}
