//! URIs that one side is asked to call: a Refer-To, the Contact of a redirection, and the
//! Request-URI that comes of it. They may name a host of the other side, and must lead there all
//! the same, without showing it (signalling.md section 6).

use std::net::IpAddr;

use super::{Gateway, dialogs::DialogKey, topology::Sight, words::unescaped};
use crate::{
    net::{ListenerId, Side},
    seal,
    sip::Uri,
};

/// Separates sealed targets from every other use of the secret.
const TARGET: &str = "target";
/// What the user part of a sealed target begins with.
const TARGET_PREFIX: &[u8] = b"kt1-";
/// Longer ones are known by their domain only: a user part must fit into one datagram.
const MAX_SEALED: usize = 256;

impl Gateway {
    /// A URI of a message that came from one side, as the other can call it; `None` when it may
    /// stay as it is. `towards` is who sees the message, and the listener it leaves from.
    pub(super) fn callable(
        &self,
        uri: &[u8],
        from: Side,
        towards: (Sight, ListenerId),
    ) -> Option<Vec<u8>> {
        let to = towards.0.side;
        if from == to {
            return self.topology.uri(uri, from, towards.0);
        }
        let parsed = Uri::parse(uri).filter(Uri::is_sip)?;
        let (base, headers) = uri.split_at(uri.len() - parsed.headers.len());
        let base_changed = match self.replaced_party(parsed.headers, from, to) {
            // The party's own Contact, on its own side; a phone of ours goes by its name.
            Some(target) => self.reached(&target, to, towards).or(Some(target)),
            None => self.reached(base, from, towards),
        };
        let headers_changed = self.topology.uri_headers(&parsed);
        if base_changed.is_none() && headers_changed.is_none() {
            return None;
        }
        let base = base_changed.unwrap_or_else(|| base.to_vec());
        let headers = headers_changed.unwrap_or_else(|| headers.to_vec());
        Some([base, headers].concat())
    }

    /// The same for a URI without headers.
    fn reached(&self, uri: &[u8], from: Side, towards: (Sight, ListenerId)) -> Option<Vec<u8>> {
        let (parsed, to) = (Uri::parse(uri)?, towards.0.side);
        let ip = parsed.host_ip()?.to_canonical();
        if let Some(phone) = self.phone_of(uri, &parsed, ip, to) {
            return Some(phone);
        }
        let ours = self.is_our_address(ip);
        let open = || self.open_target(parsed.user.filter(|_| ours && to == Side::Wan)?);
        // Before it is asked who may see the address: in transparent mode it is a softswitch's.
        if let Some(open) = open() {
            return Some(open);
        }
        if !self.topology.hides(ip, from, to) {
            return self.topology.uri(uri, from, towards.0);
        }
        let named = ours || self.conf.groups.iter().any(|group| group.has_server(ip));
        let short = uri.len() <= MAX_SEALED;
        if to == Side::Lan && !named && short && parsed.user.is_some() {
            return Some(self.seal_target(uri, towards.1));
        }
        self.topology.uri(uri, from, towards.0)
    }

    /// A phone of ours, by its token or by its Contact: it goes by its address of record, which
    /// everybody can call.
    fn phone_of(&self, uri: &[u8], parsed: &Uri<'_>, ip: IpAddr, to: Side) -> Option<Vec<u8>> {
        let ours = self.is_our_address(ip);
        let id = match ours {
            true => self.bindings.by_token(parsed.user?)?,
            false if to == Side::Lan => return None,
            false => {
                let mut all = self.bindings.iter();
                all.find(|(_, binding)| binding.contact == uri)?.0
            }
        };
        let binding = self.bindings.get(id)?;
        Some([b"sip:", binding.aor.as_bytes()].concat())
    }

    fn is_our_address(&self, ip: IpAddr) -> bool {
        let mut links = self.conf.links.iter();
        links.any(|link| link.address == Some(ip)) || self.is_spoken_for(ip)
    }

    /// `sip:kt1-...@gateway`: a phone can call it, and only this gateway can read it. Requests to
    /// it go to the softswitch as any other, whatever the address inside.
    fn seal_target(&self, uri: &[u8], towards: ListenerId) -> Vec<u8> {
        let sealed = seal::seal(&self.conf.secret, TARGET, uri);
        self.contact_uri(&[TARGET_PREFIX, sealed.as_bytes()].concat(), towards)
    }

    fn open_target(&self, user: &[u8]) -> Option<Vec<u8>> {
        let sealed = std::str::from_utf8(user.strip_prefix(TARGET_PREFIX)?).ok()?;
        seal::open(&self.conf.secret, TARGET, sealed)
    }

    /// Whom a `Replaces` among a URI's headers names: the party that speaks with its to-tag, as
    /// it is reached on its own side (RFC 3891 section 3, RFC 5589 section 7.1).
    fn replaced_party(&self, headers: &[u8], from: Side, to: Side) -> Option<Vec<u8>> {
        let (_, value) = uri_headers(headers).find(|(name, _)| is(name, "Replaces"))?;
        let value = unescaped(value);
        let mut parts = value.split(|byte| *byte == b';');
        let call_id = parts.next()?.trim_ascii();
        let mut tags = [None, None];
        for part in parts {
            let equals = part.iter().position(|byte| *byte == b'=')?;
            let (name, tag) = (part[..equals].trim_ascii(), part[equals + 1..].trim_ascii());
            for (found, wanted) in tags.iter_mut().zip(["to-tag", "from-tag"]) {
                if is(name, wanted) {
                    *found = Some(tag.to_vec());
                }
            }
        }
        let [Some(speaker), Some(listener)] = tags else {
            return None;
        };
        let call_id = match from {
            Side::Lan => call_id.to_vec(),
            Side::Wan => self.topology.call_id(call_id),
        };
        let (dialog, party) = self.dialogs.find(&DialogKey {
            call_id,
            speaker,
            listener,
            side: to,
        })?;
        Some(self.dialogs.get(dialog)?.leg(party).target.clone())
    }
}

/// `?name=value&name=value`, as written.
fn uri_headers(headers: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let inside = headers.strip_prefix(b"?").unwrap_or_default();
    inside.split(|byte| *byte == b'&').filter_map(|one| {
        let equals = one.iter().position(|byte| *byte == b'=')?;
        Some((&one[..equals], &one[equals + 1..]))
    })
}

fn is(name: &[u8], wanted: &str) -> bool {
    name.eq_ignore_ascii_case(wanted.as_bytes())
}
