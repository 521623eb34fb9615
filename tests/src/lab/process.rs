//! Programs of the lab: started, watched by what they print, signalled, and ended.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// An ended process's outputs are read to their end in no time, unless a child holds them open.
const OUTPUT_LIMIT: Duration = Duration::from_secs(2);

/// What to start.
#[derive(Clone)]
pub struct Launch {
    program: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

impl Launch {
    /// A program, found on PATH unless it is a path.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<T: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = T>) -> Self {
        self.arguments
            .extend(arguments.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(self, argument: impl AsRef<OsStr>) -> Self {
        self.args([argument])
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// The command, with both outputs piped.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .envs(self.environment.iter().cloned());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// The program's name, for messages.
    #[must_use]
    pub fn name(&self) -> String {
        let program = std::path::Path::new(&self.program);
        program
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    }
}

/// A line that a process printed, and when it arrived here.
#[derive(Clone, Debug)]
pub struct Line {
    /// When it was read.
    pub at: Instant,
    /// Without its newline.
    pub text: String,
}

#[derive(Default)]
struct Log {
    lines: Mutex<(Vec<Line>, usize)>,
    changed: Condvar,
}

/// A process of the lab. Dropping it kills it and all that it forked.
pub struct Process {
    name: String,
    child: Child,
    status: Option<ExitStatus>,
    log: Arc<Log>,
}

impl Process {
    /// Takes over a child whose outputs are piped.
    pub(super) fn adopt(name: String, mut child: Child) -> Self {
        let log = Arc::new(Log::default());
        let outputs: [Option<Box<dyn Read + Send>>; 2] = [
            child.stdout.take().map(|pipe| Box::new(pipe) as _),
            child.stderr.take().map(|pipe| Box::new(pipe) as _),
        ];
        for output in outputs.into_iter().flatten() {
            Log::follow(&log, output);
        }
        Self {
            name,
            child,
            status: None,
            log,
        }
    }

    /// Process id, as seen from outside the lab.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Everything printed so far.
    #[must_use]
    pub fn lines(&self) -> Vec<Line> {
        self.log
            .lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .0
            .clone()
    }

    /// Everything printed so far, as one text.
    #[must_use]
    pub fn text(&self) -> String {
        self.lines()
            .into_iter()
            .map(|line| line.text + "\n")
            .collect()
    }

    /// The same of a process that has ended: all that it printed.
    #[must_use]
    pub fn all_text(&self) -> String {
        self.wait_outputs(OUTPUT_LIMIT);
        self.text()
    }

    /// Waits for a line that contains `pattern`, from the first line on.
    ///
    /// # Errors
    /// When time is up or the process ends before it printed one; the message quotes its last lines.
    pub fn wait_line(&self, pattern: &str, limit: Duration) -> Result<Line> {
        self.wait_line_after(0, pattern, limit)
    }

    /// The same, from the line after the first `skip` on.
    ///
    /// # Errors
    /// As [`Process::wait_line`].
    pub fn wait_line_after(&self, skip: usize, pattern: &str, limit: Duration) -> Result<Line> {
        let deadline = Instant::now() + limit;
        let mut seen = self
            .log
            .lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        loop {
            let mut later = seen.0.iter().skip(skip);
            if let Some(line) = later.find(|line| line.text.contains(pattern)) {
                return Ok(line.clone());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || seen.1 == 0 {
                drop(seen);
                bail!(
                    "{} did not print {pattern:?}; it printed:\n{}",
                    self.name,
                    self.tail()
                );
            }
            let woken = self.log.changed.wait_timeout(seen, left);
            seen = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Sends a signal to the process and all that it forked.
    ///
    /// # Errors
    /// When it is gone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill_process_group(self.pid()?, signal)
            .with_context(|| format!("{} cannot be signalled", self.name))
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it still runs after `limit`.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        if let Some(status) = self.status {
            return Ok(status);
        }
        let descriptor = pidfd_open(self.pid()?, PidfdFlags::empty())?;
        let limit = Timespec::try_from(limit).context("too long a limit")?;
        let mut ready = [PollFd::new(&descriptor, PollFlags::IN)];
        if poll(&mut ready, Some(&limit))? == 0 {
            bail!("{} still runs; it printed:\n{}", self.name, self.tail());
        }
        let status = self.child.wait()?;
        self.status = Some(status);
        Ok(status)
    }

    /// Waits for its end and asks for exit code 0.
    ///
    /// # Errors
    /// When it still runs, or failed; the message quotes its last lines.
    pub fn succeed(&mut self, limit: Duration) -> Result<()> {
        let status = self.wait(limit)?;
        if !status.success() {
            self.wait_outputs(OUTPUT_LIMIT);
            bail!("{}: {status}; it printed:\n{}", self.name, self.tail());
        }
        Ok(())
    }

    /// Kills it and all that it forked, and waits until it is gone.
    pub fn kill(&mut self) {
        if self.status.is_none() {
            let _ = self.signal(Signal::KILL);
            self.status = self.child.wait().ok();
        }
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        self.status.is_none() && self.child.try_wait().is_ok_and(|status| status.is_none())
    }

    /// Its last lines, for messages.
    #[must_use]
    pub fn tail(&self) -> String {
        let lines = self.lines();
        let from = lines.len().saturating_sub(30);
        lines
            .iter()
            .skip(from)
            .map(|line| format!("  | {}\n", line.text))
            .collect()
    }

    fn wait_outputs(&self, limit: Duration) {
        let seen = self
            .log
            .lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let open = |seen: &mut (Vec<Line>, usize)| seen.1 > 0;
        drop(self.log.changed.wait_timeout_while(seen, limit, open));
    }

    fn pid(&self) -> Result<Pid> {
        let raw = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        raw.context("no process id")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Log {
    /// Reads `output` to its end on a thread of its own.
    fn follow(log: &Arc<Self>, output: Box<dyn Read + Send>) {
        log.lines.lock().unwrap_or_else(PoisonError::into_inner).1 += 1;
        let log = Arc::clone(log);
        thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                let mut seen = log.lines.lock().unwrap_or_else(PoisonError::into_inner);
                seen.0.push(Line {
                    at: Instant::now(),
                    text,
                });
                log.changed.notify_all();
            }
            log.lines.lock().unwrap_or_else(PoisonError::into_inner).1 -= 1;
            log.changed.notify_all();
        });
    }
}
