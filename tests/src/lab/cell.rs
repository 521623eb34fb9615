//! The guard: a PID namespace and a mount namespace that hold everything a lab starts.
//!
//! - Every process of the lab is born into the PID namespace. Its first process dies with the
//!   thread that made the cell (`PR_SET_PDEATHSIG`), and the kernel then kills all the others,
//!   those that forked or daemonised included: panic, Ctrl-C, `kill -9` of the owner, all alike.
//! - `/run` and `/sys/fs/bpf` are fresh mounts of the mount namespace. Sockets, files, pins, and
//!   with the pins the programs attached to interfaces, vanish with its last process.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result, bail};
use rustix::mount::MountFlags;
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// What the first process of a cell does: mounts of our own, then waiting to be killed.
const FIRST_PROCESS: &str = "mount -t tmpfs -o mode=0755 tmpfs /run \
    && mount -t bpf bpf /sys/fs/bpf \
    && mkdir /run/bpf && mount --bind /sys/fs/bpf /run/bpf \
    && mount -t proc proc /proc \
    && echo ready && exec sleep infinity";

/// Ask the cell's own thread to start a process.
struct Birth {
    command: Command,
    reply: mpsc::Sender<io::Result<Child>>,
}

/// A place for processes that leaves nothing behind.
pub struct Cell {
    first: u32,
    mounts: OwnedFd,
    births: Option<mpsc::Sender<Birth>>,
    /// The thread whose children live in the PID namespace; the cell dies with it.
    keeper: Option<JoinHandle<()>>,
}

impl Cell {
    /// Makes an empty cell.
    ///
    /// # Errors
    /// When not root, or when the kernel refuses one of the namespaces or mounts.
    pub fn new() -> Result<Self> {
        let (births, inbox) = mpsc::channel();
        let (ready, outcome) = mpsc::channel();
        let keeper = thread::Builder::new()
            .name("cell".into())
            .spawn(move || keep(&inbox, &ready))
            .context("no thread for the cell")?;
        let first = outcome.recv().context("the cell's thread died")??;
        let mounts = File::open(format!("/proc/{first}/ns/mnt")).context("the cell is gone")?;
        Ok(Self {
            first,
            mounts: mounts.into(),
            births: Some(births),
            keeper: Some(keeper),
        })
    }

    /// Starts a process in the cell and in the network namespace `net`. It leads a session of
    /// its own, so that a signal can reach all that it forks.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self, mut command: Command, net: &OwnedFd) -> io::Result<Child> {
        let mounts = self.mounts.try_clone()?;
        let net = net.try_clone()?;
        let enter = move || {
            rustix::process::setsid()?;
            move_into_link_name_space(net.as_fd(), Some(LinkNameSpaceType::Network))?;
            move_into_link_name_space(mounts.as_fd(), Some(LinkNameSpaceType::Mount))?;
            rustix::process::chdir(c"/")?;
            sysfs_of_this_network()?;
            Ok(())
        };
        enter_before_exec(&mut command, enter);
        let (reply, born) = mpsc::channel();
        let gone = || io::Error::other("the cell is gone");
        let births = self.births.as_ref().ok_or_else(gone)?;
        births.send(Birth { command, reply }).map_err(|_| gone())?;
        born.recv().map_err(|_| gone())?
    }

    /// How a path inside the cell is reached from outside.
    #[must_use]
    pub fn outside(&self, inside: impl AsRef<Path>) -> PathBuf {
        let inside = inside.as_ref();
        let relative = inside.strip_prefix("/").unwrap_or(inside);
        PathBuf::from(format!("/proc/{}/root", self.first)).join(relative)
    }

    /// Writes a file at a path inside the cell, making its folders.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, inside: impl AsRef<Path>, text: impl AsRef<[u8]>) -> Result<()> {
        let outside = self.outside(inside.as_ref());
        if let Some(folder) = outside.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&outside, text)
            .with_context(|| format!("cannot write {} in the lab", inside.as_ref().display()))
    }

    /// Runs a shell script among the mounts of `process`, an id as seen from outside; those of
    /// the cell's first process are what later processes begin with.
    ///
    /// # Errors
    /// When it fails; the message quotes it.
    pub fn mounts_of(&self, process: u32, script: &str) -> Result<()> {
        let output = Command::new("nsenter")
            .arg(format!("--mount=/proc/{process}/ns/mnt"))
            // Its /proc knows only processes of its own PID namespace, and umount reads there.
            .arg(format!("--pid=/proc/{process}/ns/pid"))
            .args(["sh", "-ec", script])
            .output()
            .context("cannot run nsenter")?;
        if !output.status.success() {
            bail!("{script}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }

    /// Process id, outside, of the cell's first process; whoever enters the cell from another
    /// process (`nsenter`) needs it.
    #[must_use]
    pub fn first_process(&self) -> u32 {
        self.first
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        // The keeper leaves its loop, kills the first process and waits for it; with it all go.
        drop(self.births.take());
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

/// The keeper's life: its own PID namespace for children, the first process, then births.
fn keep(inbox: &mpsc::Receiver<Birth>, ready: &mpsc::Sender<Result<u32>>) {
    let (mut first, _stdout) = match first_process() {
        Ok(first) => first,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    let _ = ready.send(Ok(first.id()));
    while let Ok(Birth { mut command, reply }) = inbox.recv() {
        let _ = reply.send(command.spawn());
    }
    let _ = first.kill();
    let _ = first.wait();
}

fn first_process() -> Result<(Child, BufReader<std::process::ChildStdout>)> {
    new_pid_namespace().context("no PID namespace: labs need root")?;
    let mut command = Command::new("unshare");
    let arguments = [
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        FIRST_PROCESS,
    ];
    command
        .args(arguments.map(OsStr::new))
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    enter_before_exec(&mut command, || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // A terminal's Ctrl-C is for the owner; the cell follows the owner.
        rustix::process::setsid()?;
        Ok(())
    });
    let mut child = command.spawn().context("cannot run unshare (util-linux)")?;
    let mut stdout = BufReader::new(child.stdout.take().context("no pipe")?);
    let mut line = String::new();
    stdout.read_line(&mut line)?;
    if line.trim() != "ready" {
        let _ = child.kill();
        let _ = child.wait();
        bail!("the kernel refused the lab's mounts: see above");
    }
    Ok((child, stdout))
}

#[expect(
    unsafe_code,
    reason = "unshare is unsafe: it can pull file descriptors from under others"
)]
fn new_pid_namespace() -> rustix::io::Result<()> {
    // SAFETY: NEWPID alone touches neither descriptors nor memory of this process: it says only
    // where later children of the calling thread are born.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWPID) }
}

/// `/sys/class/net` shows the interfaces of the network that mounted it. Each process gets a
/// mount of its own, as on a machine of its own, with the cell's bpffs in its place.
fn sysfs_of_this_network() -> rustix::io::Result<()> {
    new_mount_namespace()?;
    rustix::mount::mount(c"sysfs", c"/sys", c"sysfs", MountFlags::empty(), None)?;
    rustix::mount::mount_bind(c"/run/bpf", c"/sys/fs/bpf")
}

#[expect(
    unsafe_code,
    reason = "unshare is unsafe: it can pull file descriptors from under others"
)]
fn new_mount_namespace() -> rustix::io::Result<()> {
    // SAFETY: called in a child between fork and exec; NEWNS touches no descriptor.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }
}

#[expect(
    unsafe_code,
    reason = "code between fork and exec is unsafe by contract"
)]
fn enter_before_exec(
    command: &mut Command,
    enter: impl Fn() -> io::Result<()> + Send + Sync + 'static,
) {
    // SAFETY: both callers pass closures that only make system calls (setsid, setns, chdir,
    // unshare, mount, prctl) on descriptors they own: no allocation, no lock, as async-signal safety asks.
    unsafe { command.pre_exec(enter) };
}
