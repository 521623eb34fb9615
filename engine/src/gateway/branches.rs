//! Sending a request out: one branch of a context, towards a server, a phone or along a
//! dialog.

use std::{
    net::{IpAddr, SocketAddr},
    rc::Rc,
};

use super::{
    Gateway,
    bodies::sdp_of,
    context::{Branch, Context, Kind},
    deadlines::Deadline,
    dialogs::{Party, opposite},
    outgoing::{Target, put_uri},
};
use crate::{
    health::{Class, RequestId},
    media::{SessionId, Signalled},
    net::{LinkId, ListenerId, PathKey, Side},
    sip::{Message, Method, Uri},
    time::Now,
    transaction::ClientKey,
};

/// How long a phone may leave an INVITE wholly unanswered (signalling.md section 4).
const PHONE_SILENT: std::time::Duration = std::time::Duration::from_secs(4);

impl Gateway {
    /// The link a listener is on.
    pub(super) fn link(&self, listener: ListenerId) -> LinkId {
        self.conf.listeners[usize::from(listener.0)].link
    }

    /// An INVITE outside a dialog begins a media session; its far leg moves with the hunt.
    pub(super) fn open_session(&mut self, id: u64) {
        let Some(ctx) = self.contexts.get_mut(&id) else {
            return;
        };
        if ctx.request.method() != Some(Method::Invite) {
            return;
        }
        let from = self.conf.listeners[usize::from(ctx.listener.0)].link;
        let far = self
            .conf
            .links_facing(opposite(ctx.side))
            .next()
            .map(|(link, _)| link);
        ctx.session = Some(id);
        self.media.open(SessionId(id), from, far.unwrap_or(from));
    }

    /// Sends the request to a server (signalling.md section 2: a new branch per server).
    pub(super) fn branch_to_server(&mut self, now: Now, id: u64, path: PathKey) {
        let Some(target) = self.server_target(id, path) else {
            return self.answer(now, id, 500);
        };
        let ctx = &self.contexts[&id];
        let register = match &ctx.kind {
            Kind::Register { register, .. } => Some(register.clone()),
            _ => None,
        };
        match register {
            Some(register) => self.branch_register(now, id, &target, &register),
            None => self.branch_relayed(now, id, target),
        }
    }

    fn server_target(&self, id: u64, path: PathKey) -> Option<Target> {
        let ctx = self.contexts.get(&id)?;
        let group = &self.conf.groups[usize::from(path.server.group.0)];
        let server = &group.health.servers[usize::from(path.server.index)];
        let uri = ctx.request.slice(ctx.request.uri()?).to_vec();
        let listener = self.conf.listener_to(path)?;
        let mut target = Target {
            side: Side::Wan,
            listener,
            to: server.address,
            uri,
            routes: self.service_route(ctx, path),
            parties: None,
            path: Some(path),
        };
        let towards = (self.sight(&target), listener);
        if let Some(uri) = self.callable(&target.uri, Side::Lan, towards) {
            target.uri = uri;
        }
        Some(target)
    }

    /// The Service-Route of the sender's registration (RFC 3608), without what names another
    /// server of the group than the one that is about to be asked: a hunted request would be
    /// sent back to the dead one.
    fn service_route(&self, ctx: &Context, path: PathKey) -> Vec<Vec<u8>> {
        let Kind::ToGroup { aor, .. } = &ctx.kind else {
            return Vec::new();
        };
        let aor = String::from_utf8_lossy(aor);
        let bindings = self.bindings.of_aor(&aor).into_iter();
        let mut bindings = bindings.filter_map(|id| self.bindings.get(id));
        let proof = self.proof(ctx.listener, ctx.from);
        let own = bindings.find(|binding| binding.is_from(ctx.from.ip(), proof));
        let routes = own.map(|binding| binding.service_route.iter());
        let asked = self.server_address(path.server).ip();
        let group = &self.conf.groups[usize::from(path.server.group.0)];
        let usable = |route: &&Vec<u8>| {
            let host = host_of(route);
            host.is_none_or(|host| host == asked || !group.has_server(host))
        };
        routes
            .into_iter()
            .flatten()
            .filter(usable)
            .cloned()
            .collect()
    }

    /// Delivers a request to a phone: to where its REGISTER came from, as a rule.
    pub(super) fn branch_to_phone(&mut self, now: Now, id: u64, binding: u64) {
        let Some(binding) = self.bindings.get(binding) else {
            return self.answer(now, id, 404);
        };
        let target = Target {
            side: Side::Lan,
            listener: binding.listener,
            to: self.reach(binding),
            uri: binding.contact.clone(),
            routes: binding.path.clone(),
            parties: None,
            path: None,
        };
        self.branch_relayed(now, id, target);
        let invite = self
            .contexts
            .get(&id)
            .is_some_and(|ctx| ctx.request.method() == Some(Method::Invite));
        if invite {
            self.deadlines
                .set(Deadline::PhoneSilent(id), now.mono + PHONE_SILENT);
        }
    }

    /// Sends a request on with Contact and body translated.
    pub(super) fn branch_relayed(&mut self, now: Now, id: u64, target: Target) {
        let Some(ctx) = self.contexts.get(&id) else {
            return;
        };
        let request = ctx.request.clone();
        let (from, side) = (ctx.from, ctx.side);
        let body = match self.offer_for(now, id, &target) {
            Ok(body) => body,
            Err(code) => return self.answer(now, id, code),
        };
        let branch = self.branch(&request, &target);
        let mut edit = self.outgoing(&request, side, &target, &branch);
        let party = self.lan_party(&request, side);
        for addr in request.contacts() {
            let contact = self.contact(
                &request,
                &addr,
                (target.side, target.listener),
                &party,
                from,
            );
            put_uri(&mut edit, &addr, &contact);
        }
        self.edit_body(&mut edit, &request, (side, self.sight(&target)), body);
        let bytes = edit.finish();
        self.start(now, id, &target, &branch, bytes);
    }

    /// The URI of the phone a request is from or to, as the phone writes it: its address of
    /// record keys the Contact token.
    fn lan_party(&self, request: &Message, side: Side) -> Vec<u8> {
        let addr = if side == Side::Lan {
            request.from()
        } else {
            request.to()
        };
        addr.map(|addr| request.slice(addr.uri).to_vec())
            .unwrap_or_default()
    }

    /// The SDP body of a request for the leg of `target`; the status to answer when it cannot
    /// be anchored.
    fn offer_for(&mut self, now: Now, id: u64, target: &Target) -> Result<Option<Vec<u8>>, u16> {
        let link = self.link(target.listener);
        let Some(ctx) = self.contexts.get_mut(&id) else {
            return Ok(None);
        };
        let (Some(session), Some(body)) = (ctx.session, sdp_of(&ctx.request)) else {
            return Ok(None);
        };
        ctx.offered = true;
        let session = SessionId(session);
        let leg = match &ctx.kind {
            Kind::InDialog { sender, .. } => *sender,
            _ => Party::Caller,
        };
        self.media.relink(now, session, leg.other(), link);
        let signalled = signalled(&ctx.request, ctx.from, ctx.side);
        let body = body.to_vec();
        let rewritten = self.media.offer(now, session, leg, signalled, &body);
        self.drain_media();
        rewritten.map(Some).map_err(|refused| refused.status())
    }

    /// Starts the client transaction of a branch and puts it under watch.
    pub(super) fn start(
        &mut self,
        now: Now,
        id: u64,
        target: &Target,
        branch: &str,
        bytes: Vec<u8>,
    ) {
        let way = self.way_of(now, target, &bytes);
        let bytes = match way == target.listener {
            true => bytes,
            false => self.by_way(bytes, way, branch),
        };
        let Ok(sent) = Message::parse(bytes.clone()) else {
            return self.answer(now, id, 400);
        };
        self.engage(now, target.listener, target.to);
        let key = self.client_key(branch, way, &sent);
        let Some(client) = self.transactions.start(now, key, bytes, target.to, way) else {
            self.counters.table_full += 1;
            return self.answer(now, id, 503);
        };
        let health = target.path.map(|path| self.watch(now, path, &sent));
        let Some(ctx) = self.contexts.get_mut(&id) else {
            return;
        };
        let index = ctx.branches.len();
        ctx.branches.push(Branch {
            client,
            health,
            path: target.path,
            sent: Rc::new(sent),
            to: target.to,
            listener: target.listener,
            way,
            abandoned: false,
            provisional: false,
            cancelled: false,
            finished: false,
            ended: false,
            bye_sent: false,
        });
        self.by_client.insert(client, (id, index));
        if let Some(health) = health {
            self.by_health.insert(health, (id, index));
        }
        if way != target.listener && target.side == Side::Wan {
            self.await_offer(now, way, target.to);
        }
    }

    pub(super) fn client_key(
        &self,
        branch: &str,
        listener: ListenerId,
        sent: &Message,
    ) -> ClientKey {
        ClientKey {
            branch: branch.as_bytes().to_vec(),
            sent_by: self.address(listener).to_string().into_bytes(),
            method: sent.method().unwrap_or(Method::Other),
        }
    }

    /// Tells the health machine that a request is on its way to a server.
    fn watch(&mut self, now: Now, path: PathKey, sent: &Message) -> RequestId {
        let request = RequestId(self.fresh_id());
        let class = match sent.method() {
            Some(Method::Invite) => Class::Invite,
            Some(Method::Register) => Class::Register,
            _ => Class::Other,
        };
        let to = sent.to().map(|to| sent.slice(to.uri)).unwrap_or_default();
        let what = format!(
            "{} {}",
            String::from_utf8_lossy(sent.method_bytes()),
            to.escape_ascii()
        );
        self.health.sent(now, request, path, class, &what);
        request
    }
}

/// The host of a route, where it is an address.
fn host_of(route: &[u8]) -> Option<IpAddr> {
    Uri::parse(uri_of(route))?.host_ip()
}

/// The URI of a route value or of a bare URI: what stands in its angle brackets, if it has any.
pub(super) fn uri_of(value: &[u8]) -> &[u8] {
    let inside = value.split(|byte| *byte == b'<').nth(1).unwrap_or(value);
    inside.split(|byte| *byte == b'>').next().unwrap_or(inside)
}

/// Where a body came from, and whether a NAT stands between (RFC 3261 section 18.2.1). On the
/// WAN a softswitch speaks for parties elsewhere, so differing addresses say nothing there.
pub(super) fn signalled(msg: &Message, from: SocketAddr, side: Side) -> Signalled {
    let via = msg
        .top_via()
        .filter(|_| msg.is_request())
        .and_then(|via| via.host_ip(msg.bytes()));
    let contact = msg
        .contacts()
        .next()
        .and_then(|addr| Uri::parse(msg.slice(addr.uri))?.host_ip());
    let ip = from.ip().to_canonical();
    let elsewhere = via.or(contact).is_some_and(|named| named != ip);
    Signalled {
        from: ip,
        behind_nat: side == Side::Lan && elsewhere,
    }
}
