//! The endpoints: each turns a request into an [`Ask`] and the answer into JSON.

use std::{convert::Infallible, time::Duration};

use axum::{
    Json, Router,
    extract::{Query, State, rejection::JsonRejection, rejection::QueryRejection},
    http::StatusCode,
    response::{
        IntoResponse, Response,
        sse::{self, KeepAlive, Sse},
    },
    routing::{get, post},
};
use futures::{Stream, stream};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{broadcast::error::RecvError, oneshot},
    time::timeout,
};

use super::{
    ask::{Ask, Reply, SwitchTo},
    model::{ApiError, Done, ErrorBody, Event, Explanation},
    server::Context,
};

/// How long the driver may take; it answers between two packets.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two signs of life on a stream of events.
const STREAM_KEEPALIVE: Duration = Duration::from_secs(15);

type Answer<T> = Result<Json<T>, ApiError>;

/// Everything.
pub(super) fn all(context: Context) -> Router {
    let operations = Router::new()
        .route("/api/v1/switch", post(switch))
        .route("/api/v1/drain", post(drain))
        .route("/api/v1/reload", post(reload));
    operations
        .with_state(context.clone())
        .merge(reading(context))
}

/// What changes nothing.
pub(super) fn reading(context: Context) -> Router {
    Router::new()
        .route(
            "/api/v1/status",
            get(async |State(c)| ask(&c, Ask::Status).await),
        )
        .route(
            "/api/v1/softswitches",
            get(async |State(c)| ask(&c, Ask::Softswitches).await),
        )
        .route(
            "/api/v1/tunnels",
            get(async |State(c)| ask(&c, Ask::Tunnels).await),
        )
        .route(
            "/api/v1/registrations",
            get(async |State(c)| ask(&c, Ask::Registrations).await),
        )
        .route(
            "/api/v1/calls",
            get(async |State(c)| ask(&c, Ask::Calls).await),
        )
        .route(
            "/api/v1/flows",
            get(async |State(c)| ask(&c, Ask::Flows).await),
        )
        .route(
            "/api/v1/hops",
            get(async |State(c)| ask(&c, Ask::Hops).await),
        )
        .route("/api/v1/events", get(events))
        .route("/api/v1/explain", get(explain))
        .fallback(async || {
            ApiError::new(
                "not_found",
                "no such endpoint",
                "the endpoints begin with /api/v1/",
            )
        })
        .with_state(context)
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = match self.code.as_str() {
            "not_found" => StatusCode::NOT_FOUND,
            "usage" => StatusCode::BAD_REQUEST,
            "busy" => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::CONFLICT,
        };
        (status, Json(ErrorBody { error: self })).into_response()
    }
}

async fn ask<T>(context: &Context, question: impl FnOnce(Reply<T>) -> Ask) -> Answer<T> {
    let (reply, answer) = oneshot::channel();
    let exchange = async {
        context.asks.send(question(reply)).await.ok()?;
        answer.await.ok()
    };
    match timeout(ANSWER_TIMEOUT, exchange).await {
        Ok(Some(answer)) => Ok(Json(answer)),
        _ => Err(ApiError::new(
            "busy",
            "the daemon did not answer in time",
            "try again; see its log",
        )),
    }
}

async fn operate<T>(
    context: &Context,
    question: impl FnOnce(Reply<Result<T, ApiError>>) -> Ask,
) -> Answer<T> {
    ask(context, question).await?.0.map(Json)
}

#[derive(Debug, Deserialize)]
struct Follow {
    #[serde(default)]
    follow: bool,
}

async fn events(
    State(context): State<Context>,
    query: Result<Query<Follow>, QueryRejection>,
) -> Result<Response, ApiError> {
    if !query.map_err(|e| usage(e.body_text()))?.follow {
        return Ok(ask(&context, Ask::Events).await?.into_response());
    }
    let keepalive = KeepAlive::new().interval(STREAM_KEEPALIVE);
    Ok(Sse::new(follow(&context))
        .keep_alive(keepalive)
        .into_response())
}

/// The events from now on. A client that reads too slowly is told how many it missed.
fn follow(context: &Context) -> impl Stream<Item = Result<sse::Event, Infallible>> + use<> {
    stream::unfold(context.events.subscribe(), async |mut events| {
        let event = match events.recv().await {
            Ok(event) => rendered(&event),
            Err(RecvError::Lagged(missed)) => sse::Event::default()
                .event("missed")
                .data(missed.to_string()),
            Err(RecvError::Closed) => return None,
        };
        Some((Ok(event), events))
    })
}

fn rendered(event: &Event) -> sse::Event {
    sse::Event::default()
        .json_data(event)
        .unwrap_or_else(|error| sse::Event::default().event("error").data(error.to_string()))
}

#[derive(Debug, Deserialize)]
struct Object {
    object: String,
}

async fn explain(
    State(context): State<Context>,
    query: Result<Query<Object>, QueryRejection>,
) -> Answer<Explanation> {
    let Object { object } = query.map_err(|e| usage(e.body_text()))?.0;
    operate(&context, |reply| Ask::Explain { object, reply }).await
}

/// Body of `POST switch`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SwitchBody {
    /// The softswitch's name.
    pub(crate) group: String,
    /// A server's URI or address, or `auto`.
    pub(crate) server: String,
}

async fn switch(
    State(context): State<Context>,
    body: Result<Json<SwitchBody>, JsonRejection>,
) -> Answer<Done> {
    let SwitchBody { group, server } = body.map_err(|e| usage(e.body_text()))?.0;
    let to = if server == "auto" {
        SwitchTo::Auto
    } else {
        SwitchTo::Server(server)
    };
    operate(&context, |reply| Ask::Switch { group, to, reply }).await
}

/// Body of `POST drain`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DrainBody {
    /// Whether new work is refused from now on.
    pub(crate) on: bool,
}

async fn drain(
    State(context): State<Context>,
    body: Result<Json<DrainBody>, JsonRejection>,
) -> Answer<Done> {
    let DrainBody { on } = body.map_err(|e| usage(e.body_text()))?.0;
    operate(&context, |reply| Ask::Drain { on, reply }).await
}

async fn reload(State(context): State<Context>) -> Answer<Done> {
    operate(&context, Ask::Reload).await
}

fn usage(message: String) -> ApiError {
    ApiError::new("usage", message, "")
}
