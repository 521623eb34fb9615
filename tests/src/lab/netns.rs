//! Network namespaces without a name: each lives as long as a descriptor of it, or a process
//! inside.

use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::thread;

use anyhow::{Context as _, Result};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// One network namespace.
pub struct Netns {
    descriptor: OwnedFd,
}

impl Netns {
    /// A new one, with its loopback down.
    ///
    /// # Errors
    /// When not root.
    pub fn new() -> Result<Self> {
        let made = thread::spawn(|| -> Result<OwnedFd> {
            unshare_net().context("no network namespace: labs need root")?;
            Ok(File::open("/proc/thread-self/ns/net")?.into())
        });
        let descriptor = made
            .join()
            .map_err(|_| anyhow::anyhow!("the thread panicked"))??;
        Ok(Self { descriptor })
    }

    /// Runs `work` inside. Sockets opened there stay there, programs started there too.
    ///
    /// # Errors
    /// Those of `work`, or when the namespace cannot be entered.
    ///
    /// # Panics
    /// When `work` does.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        // A thread of its own: a namespace belongs to a thread, and this one must not keep it.
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                move_into_link_name_space(
                    self.descriptor.as_fd(),
                    Some(LinkNameSpaceType::Network),
                )?;
                work()
            });
            match inside.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// The descriptor that keeps it alive.
    #[must_use]
    pub fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }

    /// A path that other processes of this machine (`ip`, `nsenter`) can open.
    #[must_use]
    pub fn path(&self) -> String {
        format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            self.descriptor.as_raw_fd()
        )
    }
}

#[expect(
    unsafe_code,
    reason = "unshare is unsafe: it can pull file descriptors from under others"
)]
fn unshare_net() -> rustix::io::Result<()> {
    // SAFETY: NEWNET changes the calling thread's network namespace and no descriptor.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }
}
