//! The commands that ask a running daemon.

use serde::{Serialize, de::DeserializeOwned};

use super::{
    args::{Command, Global, OnOff},
    output::{Failure, Output},
    render, tunnels,
};
use crate::api::{
    Client, DrainBody, SwitchBody,
    client::query_value,
    model::{Done, Event, Status},
};

pub(super) async fn ask(command: Command, global: &Global) -> Result<(), Failure> {
    let out = Output { json: global.json };
    let client = Client::new(&global.socket);
    match command {
        Command::Status { check } => status(&client, out, check).await,
        Command::Softswitches => read(&client, out, "softswitches", render::softswitches).await,
        Command::Tunnels => read(&client, out, "tunnels", tunnels::tunnels).await,
        Command::Registrations => read(&client, out, "registrations", render::registrations).await,
        Command::Calls => read(&client, out, "calls", render::calls).await,
        Command::Flows => read(&client, out, "flows", render::flows).await,
        Command::Hops => read(&client, out, "hops", render::hops).await,
        Command::Events { follow: false } => read(&client, out, "events", render::events).await,
        Command::Events { follow: true } => follow(&client, out).await,
        Command::Explain { object } => {
            let path = format!("explain?object={}", query_value(&object));
            read(&client, out, &path, render::explanation).await
        }
        Command::Switch { group, server } => {
            operate(&client, out, "switch", &SwitchBody { group, server }).await
        }
        Command::Drain { state } => {
            operate(
                &client,
                out,
                "drain",
                &DrainBody {
                    on: state == OnOff::On,
                },
            )
            .await
        }
        _ => operate(&client, out, "reload", &serde_json::json!({})).await,
    }
}

async fn read<T: Serialize + DeserializeOwned>(
    client: &Client,
    out: Output,
    path: &str,
    human: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    let answer: T = client.get(path).await?;
    out.answer(&answer, human)
}

async fn status(client: &Client, out: Output, check: bool) -> Result<(), Failure> {
    let status: Status = client.get("status").await?;
    out.answer(&status, render::status)?;
    let wrong = render::unhealthy(&status);
    if !check || wrong.is_empty() {
        return Ok(());
    }
    if !out.json {
        out.text(&format!("\nunhealthy:\n  {}\n", wrong.join("\n  ")))?;
    }
    Err(Failure::Unhealthy)
}

async fn operate(
    client: &Client,
    out: Output,
    path: &str,
    body: &impl Serialize,
) -> Result<(), Failure> {
    let done: Done = client.post(path, body).await?;
    out.answer(&done, |done| format!("{}\n", done.done))
}

/// Prints events as they come: one JSON object a line, or text.
async fn follow(client: &Client, out: Output) -> Result<(), Failure> {
    let mut result = Ok(());
    let followed = client.follow(|json| {
        let text = match serde_json::from_str::<Event>(json) {
            Ok(event) if !out.json => render::event(&event),
            // What is no event (a count of missed ones) is shown as it is.
            _ => format!("{json}\n"),
        };
        result = out.text(&text);
        result.is_ok()
    });
    followed.await?;
    result
}
