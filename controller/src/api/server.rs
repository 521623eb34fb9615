//! The server side: sockets, bounds, shutdown.

use std::{
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum::{Router, extract::DefaultBodyLimit, serve::Listener};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, UnixListener, UnixStream},
    sync::{Semaphore, broadcast, mpsc, watch},
};

use super::{ask::Ask, model::Event, routes};

/// Connections at a time, over all listeners.
const MAX_CONNECTIONS: usize = 64;
/// No request has a body worth more.
const MAX_BODY: usize = 16 * 1024;
/// How long a client may take to send a request's head.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// What every request can reach.
#[derive(Debug, Clone)]
pub(super) struct Context {
    pub(super) asks: mpsc::Sender<Ask>,
    pub(super) events: broadcast::Sender<Event>,
}

/// The API, ready to be served on sockets.
///
/// Dropping it ends every connection, streams of events included: none of them can hold up a
/// shutdown.
#[derive(Debug)]
pub struct Server {
    context: Context,
    end: watch::Sender<()>,
    connections: Arc<Semaphore>,
    socket: Option<PathBuf>,
}

impl Server {
    /// `asks` leads to the driver; whatever it sends to `events` goes to clients that follow.
    #[must_use]
    pub fn new(asks: mpsc::Sender<Ask>, events: broadcast::Sender<Event>) -> Self {
        Self {
            context: Context { asks, events },
            end: watch::Sender::new(()),
            connections: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            socket: None,
        }
    }

    /// Serves on a Unix socket that its owner and group may use. A socket that nobody listens
    /// on is replaced.
    ///
    /// # Errors
    /// When another daemon listens there, or the folder cannot be written to.
    pub async fn listen_unix(&mut self, path: &Path) -> io::Result<()> {
        if UnixStream::connect(path).await.is_ok() {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "another daemon listens there",
            ));
        }
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
        self.socket = Some(path.to_owned());
        self.serve(listener, routes::all(self.context.clone()));
        Ok(())
    }

    /// Serves over TCP too, reading only: whoever reaches that port has shown no right to more.
    pub fn listen_tcp(&self, listener: TcpListener) {
        self.serve(listener, routes::reading(self.context.clone()));
    }

    fn serve<L: Listener>(&self, listener: L, routes: Router) {
        let routes = routes.layer(DefaultBodyLimit::max(MAX_BODY));
        let accept = accept(
            listener,
            routes,
            self.connections.clone(),
            self.end.subscribe(),
        );
        tokio::spawn(accept);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(socket) = &self.socket {
            // Gone already, or the folder is: nothing is left behind either way.
            let _ = std::fs::remove_file(socket);
        }
    }
}

async fn accept<L: Listener>(
    mut listener: L,
    routes: Router,
    connections: Arc<Semaphore>,
    mut ended: watch::Receiver<()>,
) {
    loop {
        let Ok(permit) = connections.clone().acquire_owned().await else {
            return;
        };
        let stream = tokio::select! {
            (stream, _) = listener.accept() => stream,
            _ = ended.changed() => return,
        };
        let service = TowerToHyperService::new(routes.clone());
        let mut ended = ended.clone();
        tokio::spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                // A client that breaks off mid-request is its own affair.
                _ = connection => {}
                _ = ended.changed() => {}
            }
            drop(permit);
        });
    }
}
