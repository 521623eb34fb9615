//! Transparent mode in the kernel: what phones send to their softswitch is delivered here
//! (signalling.md section 12).
//!
//! No packet filter is needed. A routing rule for (LAN interface, protocol, destination port)
//! leads to a table whose one route calls every address local; a socket on all addresses with
//! `IP_TRANSPARENT` takes it from there, and answers in the name of the address. Everything else
//! is routed as before. Rules and route bear a protocol number of our own: a start finds what an
//! earlier run left, whatever ended it, and they are looked at every second, since a network
//! manager may flush rules that it did not make.

mod defrag;
mod local;
mod rules;

use std::{collections::BTreeSet, io, time::Duration};

use keepline_engine::{
    conf::Conf,
    net::{ListenerId, Transport},
};
use tokio::{sync::oneshot, task::JoinHandle};

use defrag::Defrag;
use local::Accepting;
use rules::{Rule, Rules};

/// Rules are put back within this.
const LOOK: Duration = Duration::from_secs(1);

/// Rules that are in force until [`Interception::end`].
#[derive(Debug)]
pub struct Interception {
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
    accepting: Accepting,
}

impl Interception {
    /// Takes away what an earlier run left on these interfaces, and installs what the
    /// configuration asks for: nothing, unless it is in transparent mode.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn begin(conf: &Conf) -> io::Result<Self> {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        tokio::spawn(connection);
        let interfaces = conf.links.iter().map(|link| link.name.clone());
        let rules = Rules::new(handle, interfaces.collect(), wanted(conf));
        rules.apply().await.map_err(io::Error::other)?;
        let accepting = Accepting::begin(conf)?;
        let defrag = rules.any().then(Defrag::begin);
        let (end, ended) = oneshot::channel();
        let task = tokio::spawn(keep(rules, defrag, ended));
        Ok(Self {
            end,
            task,
            accepting,
        })
    }

    /// Takes the rules away: from now on phones reach their softswitch without us.
    pub async fn end(self) {
        let _ = self.end.send(());
        let _ = self.task.await;
        self.accepting.end();
    }
}

/// One rule for each port that a listener takes.
fn wanted(conf: &Conf) -> BTreeSet<Rule> {
    let all = (0_u16..).map(ListenerId).zip(&conf.listeners);
    let takers = all.filter(|(id, _)| conf.takes(*id));
    takers
        .map(|(_, on)| Rule {
            interface: conf.links[usize::from(on.link.0)].name.clone(),
            v6: on.address.is_ipv6(),
            tcp: on.transport == Transport::Tcp,
            port: on.address.port(),
        })
        .collect()
}

async fn keep(mut rules: Rules, defrag: Option<Defrag>, mut ended: oneshot::Receiver<()>) {
    let mut look = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            _ = &mut ended => break,
            _ = look.tick(), if rules.any() => match rules.apply().await {
                Ok(0) => {}
                Ok(put) => tracing::warn!(put, "somebody removed routing rules: they are back"),
                Err(error) => tracing::warn!(%error, "routing rules cannot be looked at"),
            },
        }
    }
    rules.none();
    if let Err(error) = rules.apply().await {
        tracing::warn!(%error, "routing rules not removed");
    }
    drop(defrag);
}
