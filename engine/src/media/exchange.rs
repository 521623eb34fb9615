//! Offers and answers (RFC 3264): what they do to a session, and what the other leg is sent.

use std::net::{IpAddr, SocketAddr};

use super::{
    Leg, Media, Refused, SessionId, Signalled,
    remote::{Reader, Remote},
    session::{Body, Exchange, Part, Slot, Stream},
    source::Target,
};
use crate::{
    sdp::{Host, Ice, Origin, Rewrite, Sdp, StreamOut},
    steer::Delta,
    time::Now,
};

impl Media {
    /// Takes an offer from `from` and returns the body for the other leg. The same body again
    /// (a retransmission, a hunt to another server) returns the same bytes.
    ///
    /// # Errors
    /// [`Refused`], with the SIP status to answer; the session is as it was.
    pub fn offer(
        &mut self,
        now: Now,
        session: SessionId,
        from: Leg,
        signalled: Signalled,
        body: &[u8],
    ) -> Result<Vec<u8>, Refused> {
        let state = self.sessions.get(&session).ok_or(Refused::NoSession)?;
        if let Some(open) = state.exchange.as_ref().filter(|open| open.from == from)
            && open.answer.is_none()
            && open.offer.is(signalled, body)
        {
            return Ok(open.offer.went.clone());
        }
        let sdp = Sdp::parse(body)?;
        if sdp.streams().len() < state.streams.len() {
            return Err(Refused::Mismatch);
        }
        if self.conf.ice == Ice::Pass && sdp.has_ice() {
            return Ok(self.pass_offer(session, from, signalled, &sdp, body));
        }
        let remotes = self.read(session, from, signalled, &sdp)?;
        self.take_ports(now, session, &sdp, &remotes)?;
        let went = self.render(session, from.other(), &sdp, signalled, &remotes)?;
        let offer = Body {
            signalled,
            came: body.to_vec(),
            went: went.clone(),
        };
        self.changed.insert(session);
        if let Some(state) = self.sessions.get_mut(&session) {
            state.exchange = Some(Exchange {
                from,
                offer,
                remotes,
                answer: None,
            });
        }
        Ok(went)
    }

    /// Takes an answer from `from` (an 18x, a 2xx, an ACK) and returns the body for the other
    /// leg. Of several answers to one offer the last wins; the same again changes nothing.
    ///
    /// # Errors
    /// [`Refused`]; the session is as it was.
    pub fn answer(
        &mut self,
        now: Now,
        session: SessionId,
        from: Leg,
        signalled: Signalled,
        body: &[u8],
    ) -> Result<Vec<u8>, Refused> {
        let state = self.sessions.get(&session).ok_or(Refused::NoSession)?;
        let open = state
            .exchange
            .as_ref()
            .filter(|open| open.from == from.other());
        let open = open.ok_or(Refused::Mismatch)?;
        if let Some(answer) = open
            .answer
            .as_ref()
            .filter(|answer| answer.is(signalled, body))
        {
            return Ok(answer.went.clone());
        }
        let offered = open.remotes.clone();
        let sdp = Sdp::parse(body)?;
        if sdp.streams().len() != offered.len() {
            return Err(Refused::Mismatch);
        }
        if open.is_passed() {
            return Ok(self.pass_answer(now, session, signalled, body));
        }
        let answered = self.read(session, from, signalled, &sdp)?;
        // Used only where both sides use it.
        let both: Vec<_> = offered
            .iter()
            .zip(&answered)
            .map(|(o, a)| o.as_ref().and(a.as_ref()).copied())
            .collect();
        let went = self.render(session, from.other(), &sdp, signalled, &both)?;
        self.take_kinds(session, &sdp);
        self.agree(now, session, from.other(), &offered, &answered);
        self.changed.insert(session);
        let answer = Body {
            signalled,
            came: body.to_vec(),
            went: went.clone(),
        };
        if let Some(open) = self
            .sessions
            .get_mut(&session)
            .and_then(|s| s.exchange.as_mut())
        {
            open.answer = Some(answer);
        }
        Ok(went)
    }

    /// The offer that is open was refused: what was agreed before stays in force (RFC 3264
    /// section 4). Does nothing when it was answered already.
    pub fn offer_refused(&mut self, now: Now, session: SessionId) {
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        if state
            .exchange
            .as_ref()
            .is_none_or(|open| open.answer.is_some())
        {
            return;
        }
        state.exchange = None;
        self.changed.insert(session);
        let agreed = state
            .streams
            .iter()
            .rposition(|stream| stream.agreed)
            .map_or(0, |i| i + 1);
        (agreed..state.streams.len()).for_each(|stream| self.free_stream(now, session, stream));
        if let Some(state) = self.sessions.get_mut(&session) {
            state.streams.truncate(agreed);
        }
    }

    /// An offer with ICE goes on as it is: the parties find their own way ([`Ice::Pass`]).
    fn pass_offer(
        &mut self,
        session: SessionId,
        from: Leg,
        signalled: Signalled,
        sdp: &Sdp<'_>,
        body: &[u8],
    ) -> Vec<u8> {
        let exchange = Exchange {
            from,
            offer: Body::passed(signalled, body),
            remotes: vec![None; sdp.streams().len()],
            answer: None,
        };
        self.changed.insert(session);
        if let Some(state) = self.sessions.get_mut(&session) {
            state.exchange = Some(exchange);
        }
        body.to_vec()
    }

    /// So does its answer, and what was anchored before is no more.
    fn pass_answer(
        &mut self,
        now: Now,
        session: SessionId,
        signalled: Signalled,
        body: &[u8],
    ) -> Vec<u8> {
        let anchored = self.sessions.get(&session).map_or(0, |s| s.streams.len());
        (0..anchored).for_each(|stream| self.free_stream(now, session, stream));
        self.changed.insert(session);
        if let Some(state) = self.sessions.get_mut(&session) {
            state.streams.clear();
            if let Some(open) = &mut state.exchange {
                open.answer = Some(Body::passed(signalled, body));
            }
        }
        body.to_vec()
    }

    /// What a body says of its sender's streams.
    fn read(
        &self,
        session: SessionId,
        from: Leg,
        signalled: Signalled,
        sdp: &Sdp<'_>,
    ) -> Result<Vec<Option<Remote>>, Refused> {
        let state = self.sessions.get(&session).ok_or(Refused::NoSession)?;
        let link = state.side(from).link;
        let reader = Reader {
            signalled,
            learn: self.conf.learn,
            side: self.links.get(&link).ok_or(Refused::NoAddress)?.side,
            ours: self.address(link).ok_or(Refused::NoAddress)?,
            is_ours: &|ip| self.is_ours(ip),
            is_media: &|at: SocketAddr| self.locals.contains_key(&at),
        };
        let remotes = sdp.streams().iter().map(|stream| reader.remote(stream));
        let known = remotes.enumerate().map(|(stream, remote)| {
            Ok(remote?.map(|remote| self.as_itself(session, (stream, from), remote)))
        });
        known.collect()
    }

    /// A party whose ICE checks we relay learns from their answers that it is our port on the
    /// other leg, and may say so in its next description: it means itself, as it was.
    fn as_itself(&self, session: SessionId, (stream, leg): (usize, Leg), said: Remote) -> Remote {
        let before = self.sessions.get(&session).and_then(|s| s.end(stream, leg));
        let Some(before) = before.and_then(|end| end.remote) else {
            return said;
        };
        let is_itself = |target: &Target| {
            let slot = target.declared.and_then(|at| self.locals.get(&at));
            slot.is_some_and(|slot| {
                (slot.session, slot.stream, slot.leg) == (session, stream, leg.other())
            })
        };
        let as_before = |said: Target, before: Target| match is_itself(&said) {
            true => before,
            false => said,
        };
        Remote {
            rtp: as_before(said.rtp, before.rtp),
            rtcp: as_before(said.rtcp, before.rtcp),
            ..said
        }
    }

    /// A port pair on each leg for every stream that is in use and has none: all or nothing.
    fn take_ports(
        &mut self,
        now: Now,
        session: SessionId,
        sdp: &Sdp<'_>,
        remotes: &[Option<Remote>],
    ) -> Result<(), Refused> {
        let state = self.sessions.get(&session).ok_or(Refused::NoSession)?;
        if state
            .sides
            .iter()
            .any(|side| self.address(side.link).is_none())
        {
            return Err(Refused::NoAddress);
        }
        let needed: Vec<_> = (0..remotes.len())
            .filter(|&stream| remotes.get(stream).is_some_and(Option::is_some))
            .flat_map(|stream| [(stream, Leg::Caller), (stream, Leg::Callee)])
            .filter(|&(stream, leg)| state.end(stream, leg).is_none_or(|end| end.port.is_none()))
            .map(|(stream, leg)| (stream, leg, state.side(leg).link))
            .collect();
        let links: Vec<_> = needed.iter().map(|(_, _, link)| *link).collect();
        for link in &links {
            let wanted = links.iter().filter(|other| *other == link).count();
            let state = self.links.get_mut(link).ok_or(Refused::NoAddress)?;
            if state.ports.available(now.mono) < wanted {
                return Err(Refused::NoPorts);
            }
        }
        self.grow(session, sdp);
        for (stream, leg, link) in needed {
            let Some(port) = self
                .links
                .get_mut(&link)
                .and_then(|l| l.ports.take(now.mono))
            else {
                continue;
            };
            let rtp = Slot {
                session,
                stream,
                leg,
                part: Part::Rtp,
            };
            if let Some(end) = self.end_mut(rtp) {
                end.port = Some(port);
            }
            self.open_ports(rtp, link, port);
        }
        Ok(())
    }

    /// A place for each m= line.
    fn grow(&mut self, session: SessionId, sdp: &Sdp<'_>) {
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        for stream in sdp.streams().iter().skip(state.streams.len()) {
            state
                .streams
                .push(Stream::new(&stream.media, self.next_flow));
            self.next_flow += 4;
        }
    }

    pub(super) fn open_ports(&mut self, rtp: Slot, link: crate::net::LinkId, port: u16) {
        for part in Part::BOTH {
            if let Some(local) = self.local(link, part.of(port)) {
                self.locals.insert(local, Slot { part, ..rtp });
                self.outputs.push_back(Delta::PortOpen { link, local });
            }
        }
    }

    /// The body for a leg; its version rises when it says something else than before.
    fn render(
        &mut self,
        session: SessionId,
        to: Leg,
        sdp: &Sdp<'_>,
        signalled: Signalled,
        used: &[Option<Remote>],
    ) -> Result<Vec<u8>, Refused> {
        let state = self.sessions.get(&session).ok_or(Refused::NoSession)?;
        let address = self
            .address(state.side(to).link)
            .ok_or(Refused::NoAddress)?;
        let port = |(stream, used): (usize, &Option<Remote>)| {
            let port = used
                .as_ref()
                .and(state.end(stream, to))
                .and_then(|end| end.port);
            port.map_or(StreamOut { rtp: 0, rtcp: 0 }, |p| StreamOut {
                rtp: p,
                rtcp: Part::Rtcp.of(p),
            })
        };
        let streams: Vec<_> = used.iter().enumerate().map(port).collect();
        let mut hide = hosts(sdp);
        hide.push(signalled.from.to_canonical());
        hide.extend(
            self.links
                .values()
                .filter_map(|link| link.address)
                .filter(|a| *a != address),
        );
        let side = state.side(to);
        let plain = Rewrite {
            address,
            origin: Origin {
                version: 0,
                ..side.origin
            },
            streams: &streams,
            ice: self.conf.ice,
            hide: &hide,
        };
        let said = sdp.rewrite(&plain);
        let version = side.origin.version + u64::from(side.sent.as_ref() != Some(&said));
        let origin = Origin {
            version,
            ..side.origin
        };
        let body = sdp.rewrite(&Rewrite { origin, ..plain });
        if let Some(state) = self.sessions.get_mut(&session) {
            let side = state.side_mut(to);
            (side.origin, side.sent) = (origin, Some(said));
        }
        Ok(body)
    }

    /// A stream may become another kind, as a call that turns out to be a fax (RFC 3264 section
    /// 8.3.3).
    fn take_kinds(&mut self, session: SessionId, sdp: &Sdp<'_>) {
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        for (stream, described) in state.streams.iter_mut().zip(sdp.streams()) {
            stream.media.clone_from(&described.media);
        }
    }

    /// Both parties have spoken: their streams are in force.
    fn agree(
        &mut self,
        now: Now,
        session: SessionId,
        offerer: Leg,
        offered: &[Option<Remote>],
        answered: &[Option<Remote>],
    ) {
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        for (stream, remotes) in state.streams.iter_mut().zip(offered.iter().zip(answered)) {
            let (Some(offered), Some(answered)) = remotes else {
                stream.agreed = true;
                stream.disabled = true;
                continue;
            };
            stream.agreed = true;
            stream.disabled = false;
            stream.mux = offered.mux && answered.mux;
            for (leg, remote) in [(offerer, offered), (offerer.other(), answered)] {
                let end = &mut stream.ends[leg as usize];
                end.rtp = end.rtp.renewed(now.mono, &remote.rtp);
                end.rtcp = end.rtcp.renewed(now.mono, &remote.rtcp);
                end.remote = Some(*remote);
            }
        }
        self.link_hairpins(session);
        self.replan(session);
    }
}

/// Every address a body names for media.
fn hosts(sdp: &Sdp<'_>) -> Vec<IpAddr> {
    let host = |host: Option<Host>| match host {
        Some(Host::Ip(ip)) => Some(ip),
        Some(Host::Hold | Host::Name) | None => None,
    };
    sdp.streams()
        .iter()
        .flat_map(|s| [host(s.host), s.rtcp.and_then(|(_, ip)| ip)])
        .flatten()
        .collect()
}
