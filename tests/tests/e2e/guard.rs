//! The lab's guard: whatever becomes of the owner, nothing stays behind.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use keepline_tests::lab::standing::Facts;
use keepline_tests::lab::{Branch, Launch, Node, Process, wait};
use rustix::process::{Pid, Signal, kill_process};

const LIMIT: Duration = Duration::from_secs(10);

/// The namespaces of a lab, as the kernel numbers them.
struct Traces(BTreeSet<String>);

impl Traces {
    fn of(facts: &Facts) -> Result<Self> {
        let mut links = vec![
            format!("/proc/{}/ns/pid", facts.first),
            format!("/proc/{}/ns/mnt", facts.first),
        ];
        links.extend(facts.nodes.iter().map(|(_, path)| path.clone()));
        let read = |link: &String| Ok(fs::read_link(link)?.to_string_lossy().into_owned());
        let traces: BTreeSet<_> = links.iter().map(read).collect::<Result<_>>()?;
        assert!(
            traces.len() > 5,
            "too few namespaces to prove anything: {traces:?}"
        );
        Ok(Self(traces))
    }

    /// Nobody lives in one of the namespaces, and nobody holds one open.
    fn wait_gone(&self) -> Result<()> {
        wait::until("the lab is gone", LIMIT, || {
            (self.holders() == 0).then_some(())
        })
    }

    fn holders(&self) -> usize {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let links = processes.flat_map(|process| {
            let open = |folder: &str| {
                fs::read_dir(process.path().join(folder))
                    .into_iter()
                    .flatten()
            };
            let all: Vec<_> = open("ns")
                .chain(open("fd"))
                .flatten()
                .map(|link| link.path())
                .collect();
            all
        });
        links
            .filter_map(|link| fs::read_link(link).ok())
            .filter(|target| self.0.contains(target.to_string_lossy().as_ref()))
            .count()
    }
}

/// What a program of the gateway's kind leaves where a guard is careless: a pinned map, and a
/// child that left its session.
fn dirty(branch: &Branch) -> Result<(Process, String)> {
    let script = "bpftool map create /sys/fs/bpf/guard type array key 4 value 4 entries 1 name kl_guard \
        && bpftool -j map show pinned /sys/fs/bpf/guard && (setsid sleep 1000 &) && echo dirty && sleep 1000";
    let process = branch.gw.start(&Launch::new("sh").args(["-c", script]))?;
    process.wait_line("dirty", LIMIT)?;
    let text = process.text();
    let id = text
        .split("\"id\":")
        .nth(1)
        .and_then(|rest| rest.split(',').next());
    let id = id.context("bpftool named no id")?.to_owned();
    assert!(map_exists(&id), "the map is not there to begin with");
    Ok((process, id))
}

fn map_exists(id: &str) -> bool {
    let show = Command::new("bpftool")
        .args(["map", "show", "id", id])
        .output();
    show.is_ok_and(|output| output.status.success())
}

fn wait_map_gone(id: &str) -> Result<()> {
    wait::until("the pinned map is gone", LIMIT, || {
        (!map_exists(id)).then_some(())
    })
}

/// A process that owns a lab, and the facts it printed.
fn owner() -> Result<(Child, Facts)> {
    let mut owner = Command::new(env!("CARGO_BIN_EXE_story"))
        .args(["lab", "hold"])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(owner.stdout.take().context("no pipe")?).read_line(&mut line)?;
    Ok((owner, serde_json::from_str(&line)?))
}

fn owner_ends_by(signal: Signal) -> Result<()> {
    let (mut owner, facts) = owner()?;
    let traces = Traces::of(&facts)?;
    kill_process(Pid::from_child(&owner), signal)?;
    owner.wait()?;
    traces.wait_gone()
}

#[test]
fn guard_after_success() -> Result<()> {
    let branch = Branch::raise()?;
    let traces = Traces::of(&Facts::of(&branch))?;
    let (process, map) = dirty(&branch)?;
    drop(process);
    drop(branch);
    traces.wait_gone()?;
    wait_map_gone(&map)
}

#[test]
fn guard_after_a_panic() -> Result<()> {
    let (sender, facts) = std::sync::mpsc::channel();
    let panicked = std::panic::catch_unwind(move || {
        let branch = Branch::raise().expect("a lab");
        let traces = Traces::of(&Facts::of(&branch)).expect("traces");
        let (_process, map) = dirty(&branch).expect("something to clean up");
        sender.send((traces, map)).expect("a listener");
        panic!("on purpose");
    });
    assert!(panicked.is_err());
    let (traces, map) = facts.recv()?;
    traces.wait_gone()?;
    wait_map_gone(&map)
}

#[test]
fn guard_after_an_abort() -> Result<()> {
    owner_ends_by(Signal::ABORT)
}

#[test]
fn guard_after_ctrl_c() -> Result<()> {
    owner_ends_by(Signal::INT)
}

#[test]
fn guard_after_sigterm() -> Result<()> {
    owner_ends_by(Signal::TERM)
}

#[test]
fn guard_after_the_owner_was_killed() -> Result<()> {
    owner_ends_by(Signal::KILL)
}

#[test]
fn two_labs_stand_side_by_side() -> Result<()> {
    let (one, two) = (Branch::raise()?, Branch::raise()?);
    carries(&one.phones, "10.99.1.11:4000", &one.gw, "10.99.1.1:4000")?;
    carries(&two.phones, "10.99.1.11:4000", &two.gw, "10.99.1.1:4000")?;
    drop(one);
    carries(&two.gw, "10.99.2.1:4000", &two.far, "10.99.10.100:4000")
}

/// A datagram sent here arrives there.
fn carries(from: &Node, source: &str, to: &Node, target: &str) -> Result<()> {
    let (sender, receiver) = (from.udp(source)?, to.udp(target)?);
    receiver.set_read_timeout(Some(LIMIT))?;
    sender.send_to(b"hello", target)?;
    let mut datagram = [0; 16];
    let (length, origin) = receiver.recv_from(&mut datagram)?;
    assert_eq!(
        (&datagram[..length], origin.to_string().as_str()),
        (&b"hello"[..], source)
    );
    Ok(())
}
