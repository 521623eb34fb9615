//! The questions the API puts to the driver.

use tokio::sync::oneshot;

use super::model::{
    ApiError, Calls, Done, Events, Explanation, Flows, Hops, Registrations, Softswitches, Status,
    Tunnels,
};

/// Where an answer goes. A dropped reply is answered to the client as "busy".
pub type Reply<T> = oneshot::Sender<T>;

/// A question to the driver, one per endpoint.
#[derive(Debug)]
pub enum Ask {
    /// `GET status`.
    Status(Reply<Status>),
    /// `GET softswitches`.
    Softswitches(Reply<Softswitches>),
    /// `GET tunnels`.
    Tunnels(Reply<Tunnels>),
    /// `GET registrations`.
    Registrations(Reply<Registrations>),
    /// `GET calls`.
    Calls(Reply<Calls>),
    /// `GET flows`.
    Flows(Reply<Flows>),
    /// `GET hops`.
    Hops(Reply<Hops>),
    /// `GET events`: what is kept.
    Events(Reply<Events>),
    /// `GET explain`: why the object is in its state.
    Explain {
        /// Any name a person may use: a server's URI, a group, a call's id, an AOR.
        object: String,
        /// `not_found` when nothing is called so.
        reply: Reply<Result<Explanation, ApiError>>,
    },
    /// `POST switch`.
    Switch {
        /// The softswitch's name.
        group: String,
        /// What to use from now on.
        to: SwitchTo,
        /// `not_found` when the group or server is unknown.
        reply: Reply<Result<Done, ApiError>>,
    },
    /// `POST drain`.
    Drain {
        /// Whether new work is refused from now on.
        on: bool,
        /// What was done.
        reply: Reply<Result<Done, ApiError>>,
    },
    /// `POST reload`: read the configuration file again.
    Reload(Reply<Result<Done, ApiError>>),
}

/// Target of `keepline switch`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SwitchTo {
    /// The server with this URI or address, until told otherwise.
    Server(String),
    /// What health and priority say.
    Auto,
}
