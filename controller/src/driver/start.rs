//! Everything that must work before the gateway says that it is ready. Sockets come first, then
//! what an earlier run kept, and XDP last, so that a failed start leaves nothing attached.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use keepline_engine::{
    gateway::Gateway,
    net::{LinkId, ListenerId, Transport},
    steer::GateId,
};
use tokio::{
    runtime::Handle,
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

use super::{
    Clock, DataPath, Driver, Journal, NoDataPath, Queues, SystemClock, conf,
    outbox::Outbox,
    render,
    run::Running,
    secret,
    sockets::{QUEUE, Sockets},
    streams::Streams,
};
use crate::{
    api::{Server, model::ApiError},
    config::{self, Config, LoadError, model::XdpMode},
    intercept::Interception,
    netlink::{LinkResolver, Neighbours, Netlink},
    steer::LinkPlace,
    store::{FileStore, Health, OpenError},
    tls::Tls,
    tunnel::{Tunnels, routes::Routes, traffic},
};

/// Questions of the API that wait for the driver.
const ASKS: usize = 64;

/// What `keepline run` is told.
#[derive(Debug, Clone)]
pub struct Options {
    /// The configuration, checked.
    pub config: Config,
    /// Where it was read from: `reload` reads it again.
    pub config_path: PathBuf,
    /// Where the control socket is to be.
    pub socket: PathBuf,
}

/// Why the gateway did not start: one sentence, and the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct StartError {
    /// Stable, snake_case.
    pub code: &'static str,
    /// What does not work.
    pub what: String,
    /// What to do.
    pub hint: String,
}

impl StartError {
    pub(super) fn new(
        code: &'static str,
        what: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            code,
            what: what.into(),
            hint: hint.into(),
        }
    }
}

impl From<StartError> for ApiError {
    fn from(error: StartError) -> Self {
        Self::new(error.code, error.what, error.hint)
    }
}

/// Brings everything up. What the loop reads itself is read by `own`, its thread.
///
/// # Errors
/// When something it needs is missing on this machine; nothing is attached then.
pub(super) async fn start(options: Options, own: &Handle) -> Result<Running, StartError> {
    let Options {
        config,
        config_path,
        socket,
    } = options;
    let unable = |error: &dyn std::fmt::Display| {
        StartError::new(
            "netlink",
            format!("netlink does not work: {error}"),
            "run as root, or with CAP_NET_ADMIN",
        )
    };
    let (netlink, changes) = Netlink::start().await.map_err(|error| unable(&error))?;
    let neighbours = Neighbours::open().map_err(|error| unable(&error))?;
    let clock = SystemClock::new();
    let secret = secret::load(&config.store.path)
        .map_err(|error| store_error(&config.store.path, &error))?;
    let seed = getrandom::u64().unwrap_or_else(|_| clock.now().wall.0.as_nanos() as u64);
    let engine = conf::engine(&config, &netlink.table(), secret, seed)
        .map_err(|unfit| StartError::new("interface", unfit.to_string(), unfit.hint()))?;
    let (heard_in, heard) = mpsc::channel(QUEUE);
    let mut sockets = Sockets::new(heard_in.clone(), own.clone());
    let mut streams = Streams::new(
        heard_in,
        config.registration.phone_expires_stream,
        Handle::current(),
    );
    if let Some(files) = &config.tls {
        streams.set_tls(Tls::load(files).map_err(|error| {
            let hint =
                "correct [tls]: cert, key and ca are PEM files, the key is the certificate's";
            StartError::new("tls", error.to_string(), hint)
        })?);
    }
    for group in &config.softswitches {
        for server in &group.servers {
            streams.expect(server.address, &group.domain);
        }
    }
    for tunnel in &config.tunnels {
        streams.may_carry(&tunnel.interface);
    }
    // Bound first, heard last: what arrives meanwhile waits in the queue.
    listen(&mut sockets, &mut streams, &engine)?;
    let (store, records) = FileStore::open(&config.store.path).map_err(unopened)?;
    let mut gateway = Gateway::new(clock.now(), engine.clone(), seed);
    let restored = gateway.restore(clock.now(), records);
    tracing::info!(
        bindings = restored.bindings,
        dialogs = restored.dialogs,
        dropped = restored.dropped,
        "state restored"
    );
    hold_media(&mut sockets, &gateway);
    let journal = Journal::new();
    let (asks_in, asks) = mpsc::channel(ASKS);
    let mut server = Server::new(asks_in, journal.follow());
    server
        .listen_unix(&socket)
        .await
        .map_err(|error| socket_error(&socket, &error))?;
    if let Some(api) = &config.api {
        let listener = tokio::net::TcpListener::bind(api.listen).await;
        server.listen_tcp(listener.map_err(|error| taken("the API", api.listen, &error))?);
    }
    let mut data_path = data_path(&config, &netlink, &engine, &clock)?;
    let told = super::told::listen(data_path.events());
    let (stop_in, stop) = mpsc::channel(1);
    let (reload_in, reload) = mpsc::channel(1);
    signals(stop_in, reload_in)
        .map_err(|error| StartError::new("signals", error.to_string(), ""))?;
    let traffic = traffic::open(&config).map_err(|error| {
        let hint = error.remedy().unwrap_or_default();
        StartError::new("segments", error.to_string(), hint)
    })?;
    let (mut tunnels, frames) = Tunnels::new(&config, clock.now(), &netlink.table());
    if !tunnels.is_empty() {
        let all = config.tunnels.iter().map(|tunnel| &tunnel.interface);
        let ours = |home: &&String| config.interfaces.iter().any(|of| of.name == **home);
        let homes: Vec<String> = all.filter(ours).cloned().collect();
        let routes = Routes::start(netlink.clone(), homes.clone()).await;
        let routes = routes.map_err(|error| StartError::new("netlink", error.to_string(), ""))?;
        for (number, home) in (0..).zip(&homes) {
            if let Some(mark) = routes.mark(number) {
                streams.mark(home, mark);
            }
        }
        tunnels.move_routes(routes, &netlink.table());
    }
    let mut driver = Driver {
        tunnels,
        traffic,
        config,
        config_path,
        clock,
        gateway,
        sockets,
        streams,
        data_path,
        netlink,
        neighbours,
        store: Box::new(store),
        outbox: Outbox::default(),
        store_health: Health::default(),
        journal,
        told: super::told::Told::new(),
        degraded: std::collections::BTreeMap::new(),
        fast_path_failing: None,
        overrun: false,
        copied: super::copied::Tally::default(),
        media_heard: std::collections::HashMap::new(),
    };
    // Flows of restored calls are claimed before anything is heard: no plan of theirs changes.
    driver.drain_outputs();
    driver.reconcile();
    // Now: what was copied before bears the numbers of an earlier run.
    let copied = driver.listen_for_copies();
    if let Some(gap) = driver.data_path.gap() {
        let flows = driver.data_path.flow_count();
        let event = render::rebuilt_event(driver.clock.now(), gap, flows);
        driver.journal.record(&event);
    }
    // Last: until here phones reach their softswitch without us.
    let interception = Interception::begin(&engine).await.map_err(|error| {
        let hint = "run as root, or with CAP_NET_ADMIN; `ip rule` shows what is there";
        let what = format!("packets for softswitches cannot be taken: {error}");
        StartError::new("intercept", what, hint)
    })?;
    let queues = Queues {
        heard,
        frames,
        asks,
        changes,
        copied,
        told,
        stop,
        reload,
    };
    Ok(Running {
        driver,
        queues,
        interception,
        server,
    })
}

fn listen(
    sockets: &mut Sockets,
    streams: &mut Streams,
    engine: &keepline_engine::conf::Conf,
) -> Result<(), StartError> {
    for (id, listener) in (0_u16..).map(ListenerId).zip(&engine.listeners) {
        let interface = &engine.links[usize::from(listener.link.0)].name;
        let address = listener.address;
        let bound = match listener.transport {
            Transport::Udp => sockets.listen(id, interface, address, engine.takes(id)),
            Transport::Tcp | Transport::Tls => {
                let secure = listener.transport == Transport::Tls;
                streams.listen(id, interface, address, (secure, engine.takes(id)))
            }
        };
        let what = format!("SIP over {}", listener.transport.via());
        bound.map_err(|error| taken(&what, address, &error))?;
    }
    Ok(())
}

/// The media ports of restored calls are held at once: until then the kernel answers their
/// stray packets with ICMP, which ends calls.
fn hold_media(sockets: &mut Sockets, gateway: &Gateway) {
    for (link, local) in gateway.media().ports() {
        let interface = &gateway.conf().links[usize::from(link.0)].name;
        if let Err(error) = sockets.open_media(interface, local) {
            tracing::warn!(%error, %local, "media port not held: no slow path for its call");
        }
    }
}

fn unopened(error: OpenError) -> StartError {
    let hint = match &error {
        OpenError::InUse(_) => "another keepline runs with this store: stop it first",
        OpenError::Directory { .. } => "make the folder readable, or set [store] path",
    };
    StartError::new("store", error.to_string(), hint)
}

/// The programs on their interfaces and the maps behind them.
fn data_path(
    config: &Config,
    netlink: &Netlink,
    engine: &keepline_engine::conf::Conf,
    clock: &SystemClock,
) -> Result<Box<dyn DataPath>, StartError> {
    if config
        .interfaces
        .iter()
        .all(|interface| interface.xdp == XdpMode::Off)
        && crate::tunnel::traffic::joined(config).is_empty()
    {
        return Ok(Box::new(NoDataPath));
    }
    let names = config
        .interfaces
        .iter()
        .map(|interface| interface.name.clone())
        .collect();
    let resolver = LinkResolver::new(netlink.clone(), names);
    let mut path = super::xdp::start(config, resolver)?;
    let now = clock.now().mono;
    let steering = |error: crate::steer::Error| {
        StartError::new(
            "fastpath",
            format!("the fast path cannot be set up: {error}"),
            "`keepline doctor` tells what is missing",
        )
    };
    let table = netlink.table();
    for (link, interface) in (0_u8..).map(LinkId).zip(&config.interfaces) {
        if let Some((ifindex, _)) = table.link_by_name(&interface.name) {
            path.link_set(
                link,
                LinkPlace {
                    ifindex,
                    vlan: [0; 2],
                },
                now,
            )
            .map_err(steering)?;
        }
    }
    for (id, listener) in (0_u16..).map(ListenerId).zip(&engine.listeners) {
        let address = listener.address;
        let set = match listener.transport {
            Transport::Udp => path.listener_set(id, address, GateId(0), now),
            // What comes in streams is the stack's; media comes to the same address.
            Transport::Tcp | Transport::Tls => path.address_set(address.ip(), now),
        };
        set.map_err(steering)?;
    }
    Ok(path)
}

fn signals(stop: mpsc::Sender<()>, reload: mpsc::Sender<()>) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                // One reload waiting is enough.
                _ = hangup.recv() => drop(reload.try_send(())),
            }
        }
        // Nobody listens any more: the driver has ended by itself.
        let _ = stop.send(()).await;
    });
    Ok(())
}

/// Reads the configuration file again: `true` when it says what is in force.
///
/// # Errors
/// When it cannot be read or has faults.
pub(super) fn reread(path: &Path, in_force: &Config) -> Result<bool, ApiError> {
    match config::load(path, &config::Machine::here()) {
        Ok(loaded) => Ok(loaded.config == *in_force),
        Err(LoadError::Faults(_)) => Err(ApiError::new(
            "config",
            format!(
                "{} has faults; the configuration in force stays",
                path.display()
            ),
            "keepline config check tells each",
        )),
        Err(error) => Err(ApiError::new("config", error.to_string(), "")),
    }
}

fn taken(what: &str, at: SocketAddr, error: &io::Error) -> StartError {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "`ss -ltunp sport = :{}` shows who has it; stop that, or change [listen]",
            at.port()
        ),
        io::ErrorKind::AddrNotAvailable => {
            "`ip address` lists this machine's addresses; correct [listen]".to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "run as root, or with CAP_NET_BIND_SERVICE and CAP_NET_RAW".to_owned()
        }
        _ => String::new(),
    };
    let cause = match error.kind() {
        io::ErrorKind::AddrInUse => "the port is taken".to_owned(),
        _ => error.to_string(),
    };
    StartError::new(
        "listen",
        format!("cannot listen for {what} on {at}: {cause}"),
        hint,
    )
}

fn store_error(path: &Path, error: &io::Error) -> StartError {
    StartError::new(
        "store",
        format!("cannot keep state in {}: {error}", path.display()),
        "make the folder writable, or set [store] path",
    )
}

fn socket_error(path: &Path, error: &io::Error) -> StartError {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => "stop it first, or give this one another --socket",
        _ => "run as root, or set --socket to a place you may write to",
    };
    StartError::new(
        "socket",
        format!("cannot open the control socket {}: {error}", path.display()),
        hint,
    )
}
