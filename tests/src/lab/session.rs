//! A TCP connection that must live through whatever a test does: numbers go to the far side and
//! come back, in order.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, bail};

use super::{Node, wait};

/// Between two numbers.
const PACE: Duration = Duration::from_millis(20);
/// The longest silence it lives through.
const LIMIT: Duration = Duration::from_secs(30);

/// The connection.
pub struct Session {
    echoed: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    ended: Arc<Mutex<Option<String>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Session {
    /// Opens it from `client` to an address of `far`.
    ///
    /// # Errors
    /// When it is not accepted within ten seconds.
    pub fn open(client: &Node, far: &Node, at: SocketAddr) -> Result<Self> {
        let listener = far.net().enter(|| Ok(TcpListener::bind(at)?))?;
        let ten = Duration::from_secs(10);
        let near = client
            .net()
            .enter(|| Ok(TcpStream::connect_timeout(&at, ten)?))?;
        let (distant, _) = listener.accept()?;
        for side in [&near, &distant] {
            side.set_nodelay(true)?;
            side.set_read_timeout(Some(LIMIT))?;
        }
        let (echoed, stop, ended) = (Arc::default(), Arc::default(), Arc::default());
        let mut session = Self {
            echoed,
            stop,
            ended,
            threads: Vec::new(),
        };
        session.threads.push(thread::spawn(move || echo(distant)));
        let (echoed, stop, ended) = (
            session.echoed.clone(),
            session.stop.clone(),
            session.ended.clone(),
        );
        session.threads.push(thread::spawn(move || {
            if let Err(error) = ask(near, &echoed, &stop) {
                *ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
            }
        }));
        Ok(session)
    }

    /// Numbers that came back so far.
    #[must_use]
    pub fn echoed(&self) -> u64 {
        self.echoed.load(Ordering::Relaxed)
    }

    /// Waits until it carries numbers again.
    ///
    /// # Errors
    /// When it ended, or none came back within `limit`.
    pub fn lives(&self, limit: Duration) -> Result<()> {
        let before = self.echoed();
        let moved = wait::until("the TCP session carries again", limit, || {
            (self.echoed() >= before + 5).then_some(())
        });
        match &*self.ended.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => bail!("the TCP session ended: {error}"),
            None => moved,
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn echo(mut stream: TcpStream) {
    let mut number = [0; 8];
    while stream.read_exact(&mut number).is_ok() && stream.write_all(&number).is_ok() {}
}

fn ask(mut stream: TcpStream, echoed: &AtomicU64, stop: &AtomicBool) -> Result<()> {
    for number in 0_u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        stream.write_all(&number.to_be_bytes())?;
        let mut back = [0; 8];
        stream.read_exact(&mut back)?;
        if u64::from_be_bytes(back) != number {
            bail!("{number} came back as {back:?}");
        }
        echoed.store(number + 1, Ordering::Relaxed);
        thread::sleep(PACE);
    }
    Ok(())
}
