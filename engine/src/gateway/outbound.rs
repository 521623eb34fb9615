//! The way of a registration (RFC 3327) and flows that a phone opened (RFC 5626): the softswitch
//! reaches a phone by the flow that registered it, or is told that the flow has failed.
//!
//! Our Contact token is the flow token: it names the binding, and with it the connection.

use super::{Gateway, bindings::Binding, outgoing::Target, registrar::Pending};
use crate::{
    conf::PathUse,
    net::ListenerId,
    sip::{Edit, Message, Method, Name},
    time::Now,
};

/// Seconds after which a phone that sent nothing shall send a keepalive: over UDP before a NAT
/// forgets, over streams often enough to find out that a connection is gone.
const KEEP_DATAGRAMS: u32 = 30;
const KEEP_STREAM: u32 = 120;

impl Gateway {
    /// Puts ourselves into the Path of a REGISTER, where the group wants it: requests for the
    /// phone then carry our URI as a Route. What stood there is the LAN's business.
    pub(super) fn push_path(
        &self,
        edit: &mut Edit<'_>,
        request: &Message,
        target: &Target,
        register: &Pending,
    ) {
        edit.remove_all(Name::Path);
        let (Some(asked), Some(path)) = (register.asked.first(), target.path) else {
            return;
        };
        let supported = |tag| lists(request, Name::Supported, tag);
        let wanted = match self.conf.groups[usize::from(path.server.group.0)].path {
            PathUse::Off => false,
            PathUse::On => true,
            PathUse::Auto => {
                supported("path") || supported("outbound") || !register.path.is_empty()
            }
        };
        if !wanted {
            return;
        }
        let uri = self.contact_uri(asked.token.as_bytes(), target.listener);
        // We are the first hop of a phone that opens flows (RFC 5626 section 5.1).
        let first = request.values(Name::Via).count() == 1;
        let opens = first && supported("outbound") && asked.opens_flow();
        let ob: &[u8] = if opens { b";ob" } else { b"" };
        edit.push_back(
            Name::Path,
            [b"<", uri.as_slice(), b";lr", ob, b">"].concat(),
        );
        if !supported("path") {
            edit.push_back(Name::Supported, "path");
        }
    }

    /// What the 200 of a phone says of its flow, when it is one (RFC 5626 section 5.4).
    pub(super) fn flow_headers(&self, binding: &Binding) -> Vec<(Name, String)> {
        let stream = self.transport(binding.listener).is_stream();
        let timer = stream.then(|| (Name::FlowTimer, KEEP_STREAM.to_string()));
        let require = (Name::Require, "outbound".to_owned());
        match binding.outbound {
            true => std::iter::once(require).chain(timer).collect(),
            false => Vec::new(),
        }
    }

    /// How often a phone that registered and offers keepalives shall send them, in seconds
    /// (RFC 6223 section 4.4); `None` where nothing is promised.
    pub(super) fn keep_promised(
        &self,
        listener: ListenerId,
        request: &Message,
        code: u16,
    ) -> Option<u32> {
        let registered = request.method() == Some(Method::Register) && code / 100 == 2;
        registered.then(|| match self.transport(listener).is_stream() {
            true => KEEP_STREAM,
            false => KEEP_DATAGRAMS,
        })
    }

    /// Whether the flow that a phone opened is gone. Its softswitch is told (430), and tries the
    /// phone's other flows (RFC 5626 section 5.3).
    pub(super) fn flow_failed(&self, now: Now, binding: &Binding) -> bool {
        let stands = match self.transport(binding.listener).is_stream() {
            true => self.is_connected(binding.listener, binding.source),
            false => binding.present(now.mono),
        };
        binding.outbound && !stands
    }
}

/// Whether a header that lists option tags has this one.
pub(super) fn lists(msg: &Message, name: Name, tag: &str) -> bool {
    let mut values = msg.values(name);
    values.any(|value| msg.slice(value).eq_ignore_ascii_case(tag.as_bytes()))
}
