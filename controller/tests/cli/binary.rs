//! The binary itself: exit codes, JSON errors, closed pipes, and the commands that ask a daemon.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use keepline::api::{
    Ask, Server, SwitchTo,
    model::{
        ApiError, Done, Event, Events, Evidence, Explanation, Fastpath, FastpathInterface, Group,
        GroupState, Registrations, Status,
    },
};
use tokio::sync::{broadcast, mpsc};

/// A folder of this test's own, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("keepline-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("a file");
        path.display().to_string()
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn keepline(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_keepline"))
        .args(arguments)
        .output()
        .expect("the binary runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", stdout(output)))
}

#[test]
fn the_sample_is_written_checked_and_shown() {
    let folder = Folder::new("sample");
    let path = folder.path("keepline.toml");
    let written = keepline(&["config", "init", "--output", &path]);
    assert_eq!(written.status.code(), Some(0), "{}", stderr(&written));
    let again = keepline(&["config", "init", "--output", &path]);
    assert_eq!(again.status.code(), Some(1), "it never overwrites");
    let checked = keepline(&["config", "check", "--config", &path]);
    assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
    assert!(
        stdout(&checked).contains("calls at a time"),
        "{}",
        stdout(&checked)
    );
    let limits = json(&keepline(&["config", "check", "--config", &path, "--json"]));
    assert!(limits["limits"]["calls"].as_u64() > Some(0), "{limits}");
    assert!(limits["limits"]["map_bytes"].as_u64() > Some(0), "{limits}");
    let shown = keepline(&["config", "show", "--config", &path]);
    let again = folder.file("shown.toml", &stdout(&shown));
    assert_eq!(
        keepline(&["config", "check", "--config", &again])
            .status
            .code(),
        Some(0)
    );
}

#[test]
fn a_bad_configuration_exits_2_and_tells_each_fault() {
    let folder = Folder::new("bad");
    let path = folder.file(
        "bad.toml",
        "[gateway]\nmod = \"normal\"\n[listen]\nudp = 5060\n",
    );
    for command in [&["config", "check"][..], &["config", "show"], &["run"]] {
        let output = keepline(&[command, &["--config", &path]].concat());
        assert_eq!(output.status.code(), Some(2), "{command:?}");
        let text = stderr(&output);
        for part in [
            "bad.toml:2:1",
            "did you mean `mode`?",
            "bad.toml:4:7",
            "found an integer",
        ] {
            assert!(text.contains(part), "{command:?}: no {part} in\n{text}");
        }
        assert!(!text.contains('\u{1b}'), "colour without a terminal");
    }
    let output = keepline(&["config", "check", "--config", &path, "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let error = json(&output)["error"].clone();
    assert_eq!(error["code"], "config");
    let first = &error["faults"][2];
    assert_eq!(
        (first["line"].as_u64(), first["column"].as_u64()),
        (Some(2), Some(1)),
        "{error:#}"
    );
}

#[test]
fn wrong_usage_exits_2_also_in_json() {
    assert_eq!(keepline(&["frobnicate"]).status.code(), Some(2));
    assert_eq!(keepline(&["switch", "core"]).status.code(), Some(2));
    assert_eq!(keepline(&[]).status.code(), Some(2));
    assert_eq!(keepline(&["--version"]).status.code(), Some(0));
    let output = keepline(&["frobnicate", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(json(&output)["error"]["code"], "usage");
    let missing = keepline(&["config", "check", "--config", "/nonexistent/keepline.toml"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(stderr(&missing).contains("remedy:"), "{}", stderr(&missing));
}

#[test]
fn without_a_daemon_reading_commands_exit_1_with_a_remedy() {
    for command in [
        "status",
        "softswitches",
        "registrations",
        "calls",
        "flows",
        "hops",
        "events",
    ] {
        let output = keepline(&[command, "--socket", "/nonexistent/control.sock"]);
        assert_eq!(output.status.code(), Some(1), "{command}");
        let text = stderr(&output);
        assert!(
            text.contains("no daemon answers") && text.contains("keepline run"),
            "{text}"
        );
        let output = keepline(&[command, "--json", "--socket", "/nonexistent/control.sock"]);
        let error = json(&output)["error"].clone();
        assert_eq!(error["code"], "no_daemon", "{command}");
        assert!(
            error["hint"].as_str().is_some_and(|hint| !hint.is_empty()),
            "{error}"
        );
    }
}

#[test]
fn a_closed_pipe_is_no_panic() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_keepline"))
        .args(["config", "init"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(stderr(&output), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_probe_tells_silence_and_refusal() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address").to_string();
    let output = keepline(&["probe", "options", &address, "--timeout", "100ms", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(json(&output)["error"]["code"], "silence");
    drop(silent);
    let output = keepline(&["probe", "stun", &address, "--json"]);
    assert_eq!(json(&output)["error"]["code"], "unreachable");
}

/// A daemon that has the API and nothing behind it.
struct Daemon {
    folder: Folder,
    runtime: tokio::runtime::Runtime,
    server: Option<Server>,
    events: broadcast::Sender<Event>,
}

impl Daemon {
    fn start(name: &str) -> Self {
        let folder = Folder::new(name);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let (asks_in, mut asks) = mpsc::channel(8);
        let events = broadcast::Sender::new(8);
        let mut server = Server::new(asks_in, events.clone());
        let socket = folder.path("control.sock");
        runtime
            .block_on(server.listen_unix(Path::new(&socket)))
            .expect("the socket");
        runtime.spawn(async move {
            while let Some(ask) = asks.recv().await {
                answer(ask);
            }
        });
        Self {
            folder,
            runtime,
            server: Some(server),
            events,
        }
    }

    fn socket(&self) -> String {
        self.folder.path("control.sock")
    }

    fn ask(&self, arguments: &[&str]) -> Output {
        keepline(&[arguments, &["--socket", &self.socket()]].concat())
    }
}

fn event() -> Event {
    Event {
        at: "2026-01-01T00:00:00Z".into(),
        kind: "server".into(),
        object: "core sip:192.0.2.10:5060 wan0".into(),
        from: "up".into(),
        to: "down".into(),
        rule: "burst_unanswered".into(),
        evidence: vec![Evidence {
            at: "2026-01-01T00:00:00Z".into(),
            what: "silence".into(),
        }],
    }
}

fn answer(ask: Ask) {
    let not_found = || ApiError::new("not_found", "no such thing", "list them");
    match ask {
        Ask::Status(reply) => drop(reply.send(Status {
            groups: vec![Group {
                name: "core".into(),
                state: GroupState::Survivability,
                ..Group::default()
            }],
            fastpath: Fastpath {
                interfaces: vec![FastpathInterface {
                    name: "wan0".into(),
                    mode: "native".into(),
                    attached: true,
                    degraded: Vec::new(),
                }],
                ..Fastpath::default()
            },
            ..Status::default()
        })),
        Ask::Registrations(reply) => drop(reply.send(Registrations::default())),
        Ask::Events(reply) => drop(reply.send(Events {
            events: vec![event()],
        })),
        Ask::Explain { object, reply } if object == "sip:201@example.test" => {
            drop(reply.send(Ok(Explanation {
                object,
                state: "up".into(),
                events: vec![event()],
            })));
        }
        Ask::Explain { reply, .. } => drop(reply.send(Err(not_found()))),
        Ask::Switch {
            group,
            to: SwitchTo::Server(server),
            reply,
        } => {
            drop(reply.send(Ok(Done {
                done: format!("{group} uses {server}"),
            })));
        }
        Ask::Switch { reply, .. } => drop(reply.send(Err(not_found()))),
        Ask::Drain { on, reply } => drop(reply.send(Ok(Done {
            done: format!("draining: {on}"),
        }))),
        // The rest is dropped: a driver that does not answer.
        _ => {}
    }
}

#[test]
fn status_has_the_contract_s_shape_and_check_exits_3() {
    let daemon = Daemon::start("status");
    let output = daemon.ask(&["status", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let status = json(&output);
    for pointer in [
        "/gateway/name",
        "/gateway/role",
        "/gateway/mode",
        "/gateway/uptime_s",
        "/gateway/draining",
        "/groups/0/name",
        "/groups/0/state",
        "/groups/0/active",
        "/groups/0/servers",
        "/segments",
        "/tunnels",
        "/nodes",
        "/registrations/active",
        "/calls/active",
        "/fastpath/flows",
        "/fastpath/interfaces/0/mode",
        "/fastpath/interfaces/0/attached",
        "/fastpath/verdicts/tx",
        "/fastpath/verdicts/redirect",
        "/fastpath/verdicts/pass",
        "/fastpath/verdicts/drop",
        "/fastpath/reasons",
    ] {
        assert!(
            status.pointer(pointer).is_some(),
            "no {pointer} in {status:#}"
        );
    }
    assert_eq!(status["groups"][0]["state"], "survivability");
    assert_eq!(status["groups"][0]["active"], serde_json::Value::Null);
    let output = daemon.ask(&["status", "--check"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        stdout(&output).contains("core is survivability"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn operations_and_their_refusals_come_back() {
    let daemon = Daemon::start("operate");
    let output = daemon.ask(&["switch", "core", "sip:192.0.2.11:5060"]);
    assert_eq!(stdout(&output), "core uses sip:192.0.2.11:5060\n");
    let output = daemon.ask(&["switch", "core", "auto", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(json(&output)["error"]["code"], "not_found");
    assert_eq!(stdout(&daemon.ask(&["drain", "on"])), "draining: true\n");
    let output = daemon.ask(&["explain", "sip:201@example.test"]);
    assert!(
        stdout(&output).contains("burst_unanswered"),
        "{}",
        stdout(&output)
    );
    assert_eq!(daemon.ask(&["explain", "?&="]).status.code(), Some(1));
    assert_eq!(stdout(&daemon.ask(&["registrations"])), "none\n");
    let output = daemon.ask(&["calls", "--json"]);
    assert_eq!(
        json(&output)["error"]["code"],
        "busy",
        "a driver that does not answer"
    );
}

#[test]
fn events_are_followed_and_do_not_hold_up_the_end() {
    use std::io::{BufRead, BufReader};
    let mut daemon = Daemon::start("follow");
    let mut child = Command::new(env!("CARGO_BIN_EXE_keepline"))
        .args(["events", "--follow", "--json", "--socket", &daemon.socket()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let followed = async {
        while daemon.events.receiver_count() == 0 {
            tokio::task::yield_now().await;
        }
    };
    let limit = Duration::from_secs(10);
    daemon
        .runtime
        .block_on(async { tokio::time::timeout(limit, followed).await })
        .expect("a follower");
    daemon.events.send(event()).expect("a follower");
    let mut line = String::new();
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
    lines.read_line(&mut line).expect("a line");
    assert_eq!(
        serde_json::from_str::<Event>(&line).expect("an event"),
        event()
    );
    let socket = daemon.socket();
    drop(daemon.server.take());
    assert!(
        !Path::new(&socket).exists(),
        "the socket goes with the server"
    );
    let status = child.wait().expect("the follower ends");
    assert!(matches!(status.code(), Some(0 | 1)), "{status}");
}

#[test]
fn the_socket_is_for_owner_and_group_and_for_one_daemon() {
    use std::os::unix::fs::PermissionsExt;
    let daemon = Daemon::start("mode");
    let mode = std::fs::metadata(daemon.socket())
        .expect("the socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o660);
    let (asks, _kept) = mpsc::channel(1);
    let mut second = Server::new(asks, broadcast::Sender::new(1));
    let path = daemon.socket();
    let refused = daemon
        .runtime
        .block_on(second.listen_unix(Path::new(&path)));
    assert_eq!(
        refused.expect_err("taken").kind(),
        std::io::ErrorKind::AddrInUse
    );
}
