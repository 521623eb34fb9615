//! Response contexts (RFC 3261 section 16): one request received, the branches it was sent
//! out on, and what has become of them.

use std::{net::SocketAddr, rc::Rc};

use super::dialogs::Party;
use crate::{
    health::RequestId,
    net::{GroupId, ListenerId, PathKey, Side},
    sip::Message,
    transaction::{ClientId, ServerId},
};

/// What kind of request the context carries, and what only that kind needs.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// Not yet known, or answered here.
    Local,
    /// Outside any dialog, towards a group of servers.
    ToGroup { group: GroupId, aor: Vec<u8> },
    /// Outside any dialog, towards a phone.
    ToPhone,
    /// Inside a dialog.
    InDialog {
        dialog: u64,
        /// Which of its parties sent it.
        sender: Party,
    },
    /// A REGISTER; see [`super::registrar`].
    Register {
        group: GroupId,
        register: Rc<super::registrar::Pending>,
    },
}

/// How far the answer to the sender has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nothing but a 100 was relayed.
    Trying,
    /// This branch's 18x was relayed: it is the one that rings.
    Ringing(usize),
    /// The final answer was sent.
    Answered,
}

/// One request sent out for a context.
#[derive(Debug, Clone)]
pub(crate) struct Branch {
    pub(crate) client: ClientId,
    /// The health machine's name for it; only towards servers.
    pub(crate) health: Option<RequestId>,
    pub(crate) path: Option<PathKey>,
    /// The request as sent: ACK, BYE and CANCEL are built from it.
    pub(crate) sent: Rc<Message>,
    pub(crate) to: SocketAddr,
    /// The listener whose address it names.
    pub(crate) listener: ListenerId,
    /// The listener it was sent over: another one for what is too large for a datagram.
    pub(crate) way: ListenerId,
    /// Given up: whatever it says now is answered here and never relayed.
    pub(crate) abandoned: bool,
    /// A provisional response came: a CANCEL may be sent (RFC 3261 section 9.1).
    pub(crate) provisional: bool,
    /// A CANCEL was sent.
    pub(crate) cancelled: bool,
    /// A final response came, or its transaction timed out.
    pub(crate) finished: bool,
    /// Its transaction is over.
    pub(crate) ended: bool,
    /// An unwanted 2xx was answered with ACK and BYE; its retransmissions get an ACK only.
    pub(crate) bye_sent: bool,
}

/// One request and its branches.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) id: u64,
    pub(crate) server: ServerId,
    pub(crate) request: Rc<Message>,
    pub(crate) from: SocketAddr,
    pub(crate) listener: ListenerId,
    /// The side it came from.
    pub(crate) side: Side,
    pub(crate) kind: Kind,
    pub(crate) branches: Vec<Branch>,
    /// The path that the phone itself tried before the request was taken from it.
    pub(crate) went_by: Option<PathKey>,
    pub(crate) progress: Progress,
    /// The media session of its offer or answer.
    pub(crate) session: Option<u64>,
    /// Early dialogs its branches made: those that lose are taken away with it.
    pub(crate) dialogs: Vec<u64>,
    /// The request carried an SDP body: those of its responses are answers, not offers.
    pub(crate) offered: bool,
    /// The best refusal so far, while other branches ring: branch, code, response.
    pub(crate) best: Option<(usize, u16, Rc<Message>)>,
    /// The sender gave up: no further server is tried.
    pub(crate) cancelled: bool,
    /// The server transaction is over.
    pub(crate) server_ended: bool,
}

impl Context {
    /// The paths that were tried already.
    pub(crate) fn tried(&self) -> Vec<PathKey> {
        let branches = self.branches.iter().filter_map(|branch| branch.path);
        branches.chain(self.went_by).collect()
    }

    /// Whether a branch may still bring the final answer.
    pub(crate) fn has_live_branch(&self) -> bool {
        self.branches
            .iter()
            .any(|branch| !branch.abandoned && !branch.finished)
    }

    /// Whether nothing can come any more.
    pub(crate) fn is_over(&self) -> bool {
        self.server_ended && self.branches.iter().all(|branch| branch.ended)
    }
}
