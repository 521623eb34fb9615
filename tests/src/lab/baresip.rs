//! A phone that people use: baresip, without a sound card. It plays a tone, and answers by itself.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use keepline_engine::net::Transport;
use rustix::process::Signal;
use serde_json::json;

use super::kamailio::{DOMAIN, password};
use super::office::LIMIT;
use super::{Launch, Node, Phone, Process};

/// Where it takes commands, on its own address.
const CONTROL: u16 = 4444;

/// What it can do beyond calling.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kit {
    /// Modules to load, by name.
    pub modules: &'static [&'static str],
    /// Parameters of its account, each with its semicolon.
    pub account: &'static str,
}

/// A running baresip.
pub struct Baresip {
    process: Process,
    control: SocketAddr,
}

impl Baresip {
    /// Starts it as `phone`, with RTP ports from `rtp` on, and returns when it is registered.
    /// `commands` are typed into it once it runs, as in `/dial sip:201@example.test`.
    ///
    /// # Errors
    /// When it does not register; the message quotes it.
    pub fn start(node: &Node, phone: &Phone, rtp: u16, commands: &[&str]) -> Result<Self> {
        Self::start_with(node, phone, rtp, commands, &Kit::default())
    }

    /// The same with more of what it can do.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with(
        node: &Node,
        phone: &Phone,
        rtp: u16,
        commands: &[&str],
        kit: &Kit,
    ) -> Result<Self> {
        let folder = format!("/run/baresip/{}", phone.user);
        let modules = kit.modules.iter().map(|name| format!("module {name}.so\n"));
        for (name, text) in [
            ("config", config(phone, rtp) + &modules.collect::<String>()),
            ("accounts", account(phone, kit.account)),
            ("contacts", String::new()),
        ] {
            node.cell().write(format!("{folder}/{name}"), text)?;
        }
        let mut launch = Launch::new("baresip").args(["-f", &folder, "-4", "-v"]);
        for command in commands {
            launch = launch.args(["-e", command]);
        }
        let process = node.start(&launch)?;
        process.wait_line("200 OK", LIMIT)?;
        let control = format!("{}:{CONTROL}", phone.address).parse()?;
        Ok(Self { process, control })
    }

    /// Tells it something, as in `hold` or `transfer sip:201@example.test`.
    ///
    /// # Errors
    /// When it does not take it.
    pub fn tell(&self, node: &Node, command: &str) -> Result<()> {
        let (command, params) = command.split_once(' ').unwrap_or((command, ""));
        let said = json!({ "command": command, "params": params, "token": "lab" }).to_string();
        let mut line = node.net().enter(|| Ok(TcpStream::connect(self.control)?))?;
        line.set_read_timeout(Some(LIMIT))?;
        // A netstring (https://cr.yp.to/proto/netstrings.txt) each way, events among the answers.
        write!(line, "{}:{said},", said.len())?;
        let mut heard = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            let text = String::from_utf8_lossy(&heard);
            if text.contains("\"response\":true") {
                ensure!(text.contains("\"ok\":true"), "{command}: {text}");
                return Ok(());
            }
            let length = line.read(&mut chunk).context("no answer of baresip")?;
            ensure!(length > 0, "{command}: closed after {text}");
            heard.extend_from_slice(&chunk[..length]);
        }
    }

    /// How often it has said `text` so far.
    #[must_use]
    pub fn said(&self, text: &str) -> usize {
        let lines = self.process.lines();
        lines.iter().filter(|line| line.text.contains(text)).count()
    }

    /// All that it printed.
    #[must_use]
    pub fn text(&self) -> String {
        self.process.text()
    }

    /// Waits until it says `text`.
    ///
    /// # Errors
    /// When it does not.
    pub fn says(&self, text: &str, limit: Duration) -> Result<()> {
        self.process.wait_line(text, limit).map(drop)
    }

    /// Ends it as Ctrl-C does: it hangs up, takes its registration back and goes.
    ///
    /// # Errors
    /// When it does not end.
    pub fn quit(&mut self) -> Result<()> {
        self.process.signal(Signal::INT)?;
        self.process.wait(LIMIT).map(drop)
    }
}

fn account(phone: &Phone, more: &str) -> String {
    let Phone {
        user, proxy, over, ..
    } = phone;
    let transport = over.uri_param();
    let port = if *over == Transport::Tls { 5061 } else { 5060 };
    format!(
        "<sip:{user}@{DOMAIN}{transport}>;auth_user={user};auth_pass={};\
         outbound=\"sip:{proxy}:{port}{transport}\";\
         answermode=auto;regint=60;audio_codecs=PCMU{more}\n",
        password(user)
    )
}

fn config(phone: &Phone, rtp: u16) -> String {
    // It does not start with a file that is not there.
    let authority = match phone.over {
        Transport::Tls => "sip_cafile /run/gw/ca.pem\n",
        Transport::Udp | Transport::Tcp => "",
    };
    format!(
        "poll_method epoll\n\
         sip_listen {}:5060\n\
         rtp_ports {rtp}-{}\n\
         rtcp_mux no\n\
         {authority}\
         audio_source ausine,440\n\
         ausrc_srate 48000\n\
         ausrc_channels 2\n\
         audio_player aubridge,ear\n\
         audio_alert aubridge,bell\n\
         module_path /usr/lib/baresip/modules\n\
         module g711.so\n\
         module ausine.so\n\
         module aubridge.so\n\
         module_tmp account.so\n\
         module_app menu.so\n\
         module_app ctrl_tcp.so\n\
         ctrl_tcp_listen {}:{CONTROL}\n",
        phone.address,
        rtp + 98,
        phone.address,
    )
}
