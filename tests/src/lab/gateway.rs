//! The gateway under test: the real binary, on the lab's gateway machine.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use keepline_engine::net::Transport;
use serde_json::Value;

use super::branch::SOFTSWITCHES;
use super::kamailio::DOMAIN;
use super::{Branch, Launch, Process, wait};

const CONFIG: &str = "/run/gw/keepline.toml";

/// The configuration that demo and tests start from. It sets no timer.
#[must_use]
pub fn config() -> String {
    let [primary, backup] = SOFTSWITCHES;
    config_for(&format!(
        r#"[[softswitch]]
name = "core"
domain = "{DOMAIN}"
servers = [
  {{ uri = "sip:{primary}:5060", priority = 1 }},
  {{ uri = "sip:{backup}:5060", priority = 2 }},
]"#
    ))
}

/// The same for other softswitches.
#[must_use]
pub fn config_for(softswitches: &str) -> String {
    format!(
        r#"[gateway]
name = "branch"
role = "standalone"
mode = "normal"
domain = "{DOMAIN}"

[[interface]]
name = "lan0"
role = "lan"
xdp = "native"

[[interface]]
name = "wan0"
role = "wan"
xdp = "native"

[listen]
udp = ["lan0:5060", "wan0:5060"]

{softswitches}

[store]
path = "/run/gw/state"
"#
    )
}

/// The same, with phones and softswitches spoken to over these.
#[must_use]
pub fn config_over(lan: Transport, wan: Transport) -> String {
    let sides = [(lan, "lan0"), (wan, "wan0")];
    let listen = |over: Transport, port: u16| {
        let all = sides.iter().filter(|(side, _)| *side == over);
        let all: Vec<String> = all.map(|(_, on)| format!("\"{on}:{port}\"")).collect();
        let key = over.via().to_ascii_lowercase();
        match all.is_empty() {
            true => String::new(),
            false => format!("{key} = [{}]\n", all.join(", ")),
        }
    };
    let listen = [
        listen(Transport::Udp, 5060),
        listen(Transport::Tcp, 5060),
        listen(Transport::Tls, 5061),
    ];
    let server = match wan {
        Transport::Tls => ":5061;transport=tls\"",
        Transport::Tcp => ":5060;transport=tcp\"",
        Transport::Udp => ":5060\"",
    };
    let tls = match [lan, wan].contains(&Transport::Tls) {
        true => {
            "[tls]\ncert = \"/run/gw/cert.pem\"\nkey = \"/run/gw/key.pem\"\n\
             ca = \"/run/gw/ca.pem\"\n\n"
        }
        false => "",
    };
    config()
        .replace("udp = [\"lan0:5060\", \"wan0:5060\"]\n", &listen.concat())
        .replace(":5060\", priority", &format!("{server}, priority"))
        .replace("[store]", &format!("{tls}[store]"))
}

/// A program that `cargo build` made, beside the one that runs now.
///
/// # Errors
/// When it is not there.
pub fn built(name: &str) -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    let folder = here.parent().context("no folder")?;
    let folder = if folder.ends_with("deps") {
        folder.parent().unwrap_or(folder)
    } else {
        folder
    };
    let program = folder.join(name);
    if !program.is_file() {
        bail!(
            "{} is not built: `cargo xtask build` does it",
            program.display()
        );
    }
    Ok(program)
}

/// A running gateway.
pub struct Gateway {
    process: Process,
    config: String,
}

impl Gateway {
    /// Starts it with `config`, and returns when it answers.
    ///
    /// # Errors
    /// When it does not start; the message quotes it.
    pub fn start(branch: &Branch, config: &str) -> Result<Self> {
        Self::start_as(branch, config, Launch::new(built("keepline")?))
    }

    /// The same with a program or an environment of the test's own.
    ///
    /// # Errors
    /// As [`Gateway::start`].
    pub fn start_as(branch: &Branch, config: &str, program: Launch) -> Result<Self> {
        branch.cell().write(CONFIG, config)?;
        std::fs::create_dir_all(branch.cell().outside("/run/keepline"))?;
        let launch = program.args(["--config", CONFIG, "run"]);
        let mut process = branch.gw.start(&launch)?;
        let answered = wait::until("the gateway answers", Duration::from_secs(20), || {
            if !process.runs() {
                return Some(Err(anyhow::anyhow!("it ended")));
            }
            ask(branch, &["status"]).ok().map(Ok)
        });
        if let Err(error) = answered.and_then(|inner| inner) {
            bail!(
                "the gateway does not start: {error}; it printed:\n{}",
                process.tail()
            );
        }
        Ok(Self {
            process,
            config: config.to_owned(),
        })
    }

    /// Starts it anew with the same configuration, killing it first if it still runs.
    ///
    /// # Errors
    /// As [`Gateway::start`].
    pub fn restart(&mut self, branch: &Branch) -> Result<()> {
        self.process.kill();
        *self = Self::start(branch, &self.config)?;
        Ok(())
    }

    /// The daemon's process.
    #[must_use]
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// Runs `keepline WORDS --json` on the gateway and reads its answer.
///
/// # Errors
/// When it fails; the message quotes it.
pub fn ask(branch: &Branch, words: &[&str]) -> Result<Value> {
    let text = run(branch, &[words, &["--json"]].concat())?;
    serde_json::from_str(&text).with_context(|| format!("keepline {words:?} said {text:?}"))
}

/// URI of the softswitch that carries the call, or `local`.
///
/// # Errors
/// When there is no such call.
pub fn via(branch: &Branch, call_id: &str) -> Result<String> {
    let calls = ask(branch, &["calls"])?;
    let call = list(&calls, "calls")
        .iter()
        .find(|row| row["call_id"] == call_id)
        .with_context(|| format!("no call {call_id} in {calls}"))?;
    Ok(call["via"].as_str().context("no via")?.to_owned())
}

/// Runs `keepline WORDS` on the gateway and returns what it printed.
///
/// # Errors
/// When it fails; the message quotes it.
pub fn run(branch: &Branch, words: &[&str]) -> Result<String> {
    let launch = Launch::new(built("keepline")?)
        .args(["--config", CONFIG])
        .args(words);
    let mut process = branch.gw.start(&launch)?;
    process.succeed(Duration::from_secs(10))?;
    Ok(process.all_text())
}

/// Exit code of `keepline status --check`, and what it printed.
///
/// # Errors
/// When it cannot be run.
pub fn check(branch: &Branch) -> Result<(Option<i32>, String)> {
    let launch = Launch::new(built("keepline")?).args(["--config", CONFIG, "status", "--check"]);
    let mut process = branch.gw.start(&launch)?;
    let status = process.wait(Duration::from_secs(10))?;
    Ok((status.code(), process.all_text()))
}

/// The list under `name` in an answer, or nothing.
#[must_use]
pub fn list<'a>(answer: &'a Value, name: &str) -> &'a [Value] {
    answer
        .get(name)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}
