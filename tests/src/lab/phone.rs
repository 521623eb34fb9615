//! Phones: SIPp with scenarios of our own, and an RTP peer beside it for exact counts.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use keepline_engine::net::Transport;

use super::kamailio::{DOMAIN, password};
use super::process::Line;
use super::{Launch, Node, Process};

const REGISTER: &str = include_str!("../../scenarios/register.xml");
const CALLER: &str = include_str!("../../scenarios/caller.xml");
const CALLEE: &str = include_str!("../../scenarios/callee.xml");
const CALLER_RENEWS: &str = include_str!("../../scenarios/caller-renews.xml");
const CALLEE_RENEWS: &str = include_str!("../../scenarios/callee-renews.xml");
/// Where the scenarios of a call's set-up end, and what happens in the call begins.
const IN_THE_CALL: &str = "  <!-- in the call -->\n";

/// A phone: a user at an address, with the proxy it speaks to.
#[derive(Clone, Debug)]
pub struct Phone {
    /// User part of its address of record.
    pub user: String,
    /// Its IP address; it uses port 5060 there.
    pub address: String,
    /// Where it sends everything: the gateway, or a softswitch.
    pub proxy: String,
    /// What it speaks SIP over.
    pub over: Transport,
}

/// What a phone does in a call.
pub struct Leg {
    process: Process,
    /// Word that its scenario logs with the peer's media address.
    word: &'static str,
}

impl Phone {
    /// A phone.
    #[must_use]
    pub fn new(user: &str, address: String, proxy: &str) -> Self {
        Self {
            user: user.into(),
            address,
            proxy: proxy.into(),
            over: Transport::Udp,
        }
    }

    /// The same phone, speaking over this.
    #[must_use]
    pub fn over(self, over: Transport) -> Self {
        Self { over, ..self }
    }

    /// Where it sends and takes RTP.
    #[must_use]
    pub fn media(&self) -> String {
        format!("{}:{}", self.address, self.media_port())
    }

    /// Starts to register, for `expires` seconds; 0 takes the registration back. It ends with
    /// exit code 0 when registered.
    ///
    /// # Errors
    /// When SIPp cannot be started.
    pub fn register(&self, node: &Node, expires: u32) -> Result<Process> {
        let launch = self.sipp(node, "register", REGISTER)?.args([
            "-key",
            "expires",
            &expires.to_string(),
            "-timeout",
            "20s",
            "-timeout_error",
        ]);
        node.start(&launch)
    }

    /// Waits for a call, rings for `ring`, answers.
    ///
    /// # Errors
    /// When SIPp cannot be started.
    pub fn answer(&self, node: &Node, ring: Duration) -> Result<Leg> {
        let launch = self
            .sipp(node, "callee", CALLEE)?
            .args(["-d", &ring.as_millis().to_string()]);
        let process = node.start(&launch)?;
        Ok(Leg {
            process,
            word: "offered",
        })
    }

    /// Calls, and hangs up after `talk`.
    ///
    /// # Errors
    /// When SIPp cannot be started.
    pub fn call(&self, node: &Node, to: &str, talk: Duration) -> Result<Leg> {
        self.call_thinking(node, to, talk, Duration::ZERO)
    }

    /// The same, thinking for a while before it answers its first challenge.
    ///
    /// # Errors
    /// When SIPp cannot be started.
    pub fn call_thinking(
        &self,
        node: &Node,
        to: &str,
        talk: Duration,
        think: Duration,
    ) -> Result<Leg> {
        let think = think.as_millis();
        let pause = format!("<pause milliseconds=\"{think}\"/>");
        let scenario = CALLER.replace("<pause milliseconds=\"0\"/>", &pause);
        let launch = self
            .sipp(node, &format!("caller-{think}"), &scenario)?
            .args(["-key", "to", to, "-d", &talk.as_millis().to_string()]);
        let process = node.start(&launch)?;
        Ok(Leg {
            process,
            word: "answered",
        })
    }

    /// Calls, renews the session after `talk`, takes the callee's renewal and is hung up on:
    /// the counterpart of [`Phone::answer_renewing`].
    ///
    /// # Errors
    /// When SIPp cannot be started.
    pub fn call_renewing(&self, node: &Node, to: &str, talk: Duration) -> Result<Leg> {
        let scenario = with_tail(CALLER, CALLER_RENEWS)?;
        let launch = self.sipp(node, "caller-renews", &scenario)?.args([
            "-key",
            "to",
            to,
            "-d",
            &talk.as_millis().to_string(),
        ]);
        let process = node.start(&launch)?;
        Ok(Leg {
            process,
            word: "answered",
        })
    }

    /// Answers, takes the caller's renewal of the session, renews it itself a second later, and
    /// hangs up another second later.
    ///
    /// # Errors
    /// When SIPp cannot be started.
    pub fn answer_renewing(&self, node: &Node, ring: Duration) -> Result<Leg> {
        let scenario = with_tail(CALLEE, CALLEE_RENEWS)?;
        let launch = self
            .sipp(node, "callee-renews", &scenario)?
            .args(["-d", &ring.as_millis().to_string()]);
        let process = node.start(&launch)?;
        Ok(Leg {
            process,
            word: "offered",
        })
    }

    fn media_port(&self) -> u16 {
        6000
    }

    fn sipp(&self, node: &Node, name: &str, scenario: &str) -> Result<Launch> {
        let (mode, port) = match self.over {
            Transport::Udp => ("u1", 5060),
            Transport::Tcp => ("t1", 5060),
            Transport::Tls => ("l1", 5061),
        };
        let file = format!("/run/sipp/{name}-{mode}.xml");
        if !node.cell().outside(&file).exists() {
            // A Contact says how to be reached.
            let contact = format!("[local_port]{}>", self.over.uri_param());
            node.cell()
                .write(&file, scenario.replace("[local_port]>", &contact))?;
        }
        let mut launch = Launch::new("sipp");
        if self.over.is_stream() {
            // A lost connection is opened anew, and calls go on.
            launch = launch.args(["-max_reconnect", "20", "-reconnect_close", "false"]);
            launch = launch.args(["-reconnect_sleep", "200"]);
        }
        Ok(launch
            .args([&format!("{}:{port}", self.proxy), "-t", mode])
            .args(["-sf", &file, "-i", &self.address, "-p", "5060"])
            .args([
                "-m",
                "1",
                "-nostdin",
                "-trace_logs",
                "-log_file",
                "/dev/stderr",
            ])
            .args(["-trace_err", "-error_file", "/dev/stderr"])
            .args([
                "-auth_uri",
                DOMAIN,
                "-key",
                "user",
                &self.user,
                "-key",
                "domain",
                DOMAIN,
            ])
            .args(["-au", &self.user, "-ap", &password(&self.user)])
            .args(["-key", "media", &self.media_port().to_string()])
            // SIPp lifts its file limit otherwise, and warns.
            .arg("-skip_rlimit"))
    }
}

/// A scenario with another course of the call after its set-up.
fn with_tail(scenario: &str, tail: &str) -> Result<String> {
    let (setup, _) = scenario
        .split_once(IN_THE_CALL)
        .context("the scenario has no mark where the call begins")?;
    Ok(format!("{setup}{tail}"))
}

impl Leg {
    /// Waits until it knows where its peer takes media: for a caller, the answer.
    ///
    /// # Errors
    /// When it fails or takes longer; the message quotes SIPp.
    pub fn media(&self, limit: Duration) -> Result<SocketAddr> {
        let line = self.process.wait_line(self.word, limit)?;
        let word = line.text.rsplit(' ').next().unwrap_or_default();
        word.parse()
            .with_context(|| format!("no address in {:?}", line.text))
    }

    /// Waits until the call has ended as it should.
    ///
    /// # Errors
    /// When it fails or takes longer; the message quotes SIPp.
    pub fn done(&mut self, limit: Duration) -> Result<Line> {
        let line = self.process.wait_line("done", limit)?;
        self.process.succeed(limit)?;
        Ok(line)
    }

    /// The SIPp behind it.
    #[must_use]
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}
