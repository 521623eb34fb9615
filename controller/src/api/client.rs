//! The client side: how the command line asks a running daemon.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, Request, Response,
    body::{Bytes, Incoming},
};
use hyper_util::rt::TokioIo;
use serde::{Serialize, de::DeserializeOwned};
use tokio::{net::UnixStream, time::timeout};

use super::model::{ApiError, ErrorBody};

/// A little more than the server allows the driver.
const TIMEOUT: Duration = Duration::from_secs(10);
/// 100,000 registrations are 30 MB of JSON.
const MAX_ANSWER: usize = 256 * 1024 * 1024;
/// An event with all its evidence.
const MAX_EVENT: usize = 1024 * 1024;

/// A daemon's API.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// The daemon that listens on this socket.
    #[must_use]
    pub fn new(socket: &Path) -> Self {
        Self {
            socket: socket.to_owned(),
        }
    }

    /// `GET /api/v1/PATH`.
    ///
    /// # Errors
    /// When no daemon answers, or it answers with an error.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiError> {
        self.exchange(Method::GET, path, Vec::new()).await
    }

    /// `POST /api/v1/PATH`.
    ///
    /// # Errors
    /// When no daemon answers, or it answers with an error.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ApiError> {
        let body = serde_json::to_vec(body).map_err(broken)?;
        self.exchange(Method::POST, path, body).await
    }

    /// Follows the events: calls `each` with the JSON of one after the other until it answers
    /// `false` or the daemon ends.
    ///
    /// # Errors
    /// When no daemon answers, or the stream breaks.
    pub async fn follow(&self, mut each: impl FnMut(&str) -> bool) -> Result<(), ApiError> {
        let response = self
            .send(Method::GET, "events?follow=true", Vec::new())
            .await?;
        let mut body = response.into_body();
        let mut pending = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(broken)?.into_data() else {
                continue;
            };
            pending.extend_from_slice(&data);
            while let Some(end) = pending.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = pending.drain(..=end).collect();
                let data = line.strip_prefix(b"data: ").map(String::from_utf8_lossy);
                if data.is_some_and(|data| !each(data.trim_end())) {
                    return Ok(());
                }
            }
            if pending.len() > MAX_EVENT {
                return Err(broken("an event without an end"));
            }
        }
        Ok(())
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<T, ApiError> {
        let answer = async {
            let response = self.send(method, path, body).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_ANSWER)
                .collect()
                .await;
            Ok::<_, ApiError>((status, body.map_err(broken)?.to_bytes()))
        };
        let (status, bytes) = timeout(TIMEOUT, answer).await.map_err(|_| silent())??;
        if status.is_success() {
            return serde_json::from_slice(&bytes).map_err(broken);
        }
        Err(serde_json::from_slice::<ErrorBody>(&bytes)
            .map_err(broken)?
            .error)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Response<Incoming>, ApiError> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|e| self.unreachable(&e))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(broken)?;
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(format!("/api/v1/{path}"))
            .header("host", "keepline")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(broken)?;
        sender.send_request(request).await.map_err(broken)
    }

    fn unreachable(&self, error: &io::Error) -> ApiError {
        let socket = self.socket.display();
        let hint = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                "run it as root or as a member of the socket's group"
            }
            _ => "start it with `keepline run`, or name its socket with --socket",
        };
        ApiError::new(
            "no_daemon",
            format!("no daemon answers at {socket}: {error}"),
            hint,
        )
    }
}

fn silent() -> ApiError {
    ApiError::new(
        "busy",
        "the daemon did not answer in time",
        "try again; see its log",
    )
}

fn broken(error: impl std::fmt::Display) -> ApiError {
    let hint = "are daemon and command line of the same version?";
    ApiError::new(
        "protocol",
        format!("the daemon's answer makes no sense: {error}"),
        hint,
    )
}

/// Percent-encodes what may not stand in a query (RFC 3986 section 3.4).
#[must_use]
pub fn query_value(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
