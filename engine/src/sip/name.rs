//! Header names a proxy reads or writes.

/// A header by name, whichever form it was written in (RFC 3261 section 7.3.3). Names are
/// case-insensitive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Name {
    /// `Via`, `v` for short.
    Via,
    /// `From`, `f` for short.
    From,
    /// `To`, `t` for short.
    To,
    /// `Call-ID`, `i` for short.
    CallId,
    /// `CSeq`.
    CSeq,
    /// `Contact`, `m` for short.
    Contact,
    /// `Max-Forwards`.
    MaxForwards,
    /// `Route`.
    Route,
    /// `Record-Route`.
    RecordRoute,
    /// `Path`.
    Path,
    /// `Service-Route`.
    ServiceRoute,
    /// `Expires`.
    Expires,
    /// `Content-Length`, `l` for short.
    ContentLength,
    /// `Content-Type`, `c` for short.
    ContentType,
    /// `Authorization`.
    Authorization,
    /// `Proxy-Authorization`.
    ProxyAuthorization,
    /// `WWW-Authenticate`.
    WwwAuthenticate,
    /// `Proxy-Authenticate`.
    ProxyAuthenticate,
    /// `Authentication-Info`.
    AuthenticationInfo,
    /// `RAck`.
    RAck,
    /// `RSeq`.
    RSeq,
    /// `Require`.
    Require,
    /// `Proxy-Require`.
    ProxyRequire,
    /// `Supported`, `k` for short.
    Supported,
    /// `Retry-After`.
    RetryAfter,
    /// `Refer-To`, `r` for short.
    ReferTo,
    /// `Referred-By`, `b` for short.
    ReferredBy,
    /// `P-Asserted-Identity`.
    PAssertedIdentity,
    /// `P-Preferred-Identity`.
    PPreferredIdentity,
    /// `Diversion`.
    Diversion,
    /// `History-Info`.
    HistoryInfo,
    /// `Warning`.
    Warning,
    /// `User-Agent`.
    UserAgent,
    /// `Server`.
    Server,
    /// `Session-Expires`, `x` for short.
    SessionExpires,
    /// `Min-SE`.
    MinSe,
    /// `Event`, `o` for short.
    Event,
    /// `Subscription-State`.
    SubscriptionState,
    /// `Replaces`.
    Replaces,
    /// `Join`.
    Join,
    /// `Target-Dialog`.
    TargetDialog,
    /// `In-Reply-To`.
    InReplyTo,
    /// `Date`.
    Date,
    /// `Timestamp`.
    Timestamp,
    /// `Allow-Events`, `u` for short.
    AllowEvents,
    /// `Allow`.
    Allow,
    /// `Unsupported`.
    Unsupported,
    /// `Min-Expires`.
    MinExpires,
    /// `P-Associated-URI`.
    PAssociatedUri,
    /// `P-Called-Party-ID`.
    PCalledPartyId,
    /// `Remote-Party-ID`.
    RemotePartyId,
    /// `Reason`.
    Reason,
    /// `Flow-Timer`.
    FlowTimer,
    /// `Subject`, `s` for short.
    Subject,
    /// `Content-Encoding`, `e` for short.
    ContentEncoding,
    /// Any other: see [`Message::named`](super::Message::named).
    Other,
}

/// Name, long form, compact form.
const TABLE: [(Name, &str, Option<u8>); 55] = [
    (Name::Via, "Via", Some(b'v')),
    (Name::From, "From", Some(b'f')),
    (Name::To, "To", Some(b't')),
    (Name::CallId, "Call-ID", Some(b'i')),
    (Name::CSeq, "CSeq", None),
    (Name::Contact, "Contact", Some(b'm')),
    (Name::MaxForwards, "Max-Forwards", None),
    (Name::Route, "Route", None),
    (Name::RecordRoute, "Record-Route", None),
    (Name::Path, "Path", None),
    (Name::ServiceRoute, "Service-Route", None),
    (Name::Expires, "Expires", None),
    (Name::ContentLength, "Content-Length", Some(b'l')),
    (Name::ContentType, "Content-Type", Some(b'c')),
    (Name::Authorization, "Authorization", None),
    (Name::ProxyAuthorization, "Proxy-Authorization", None),
    (Name::WwwAuthenticate, "WWW-Authenticate", None),
    (Name::ProxyAuthenticate, "Proxy-Authenticate", None),
    (Name::AuthenticationInfo, "Authentication-Info", None),
    (Name::RAck, "RAck", None),
    (Name::RSeq, "RSeq", None),
    (Name::Require, "Require", None),
    (Name::ProxyRequire, "Proxy-Require", None),
    (Name::Supported, "Supported", Some(b'k')),
    (Name::RetryAfter, "Retry-After", None),
    (Name::ReferTo, "Refer-To", Some(b'r')),
    (Name::ReferredBy, "Referred-By", Some(b'b')),
    (Name::PAssertedIdentity, "P-Asserted-Identity", None),
    (Name::PPreferredIdentity, "P-Preferred-Identity", None),
    (Name::Diversion, "Diversion", None),
    (Name::HistoryInfo, "History-Info", None),
    (Name::Warning, "Warning", None),
    (Name::UserAgent, "User-Agent", None),
    (Name::Server, "Server", None),
    (Name::SessionExpires, "Session-Expires", Some(b'x')),
    (Name::MinSe, "Min-SE", None),
    (Name::Event, "Event", Some(b'o')),
    (Name::SubscriptionState, "Subscription-State", None),
    (Name::Replaces, "Replaces", None),
    (Name::Join, "Join", None),
    (Name::TargetDialog, "Target-Dialog", None),
    (Name::InReplyTo, "In-Reply-To", None),
    (Name::Date, "Date", None),
    (Name::Timestamp, "Timestamp", None),
    (Name::AllowEvents, "Allow-Events", Some(b'u')),
    (Name::Allow, "Allow", None),
    (Name::Unsupported, "Unsupported", None),
    (Name::MinExpires, "Min-Expires", None),
    (Name::PAssociatedUri, "P-Associated-URI", None),
    (Name::PCalledPartyId, "P-Called-Party-ID", None),
    (Name::RemotePartyId, "Remote-Party-ID", None),
    (Name::Reason, "Reason", None),
    (Name::FlowTimer, "Flow-Timer", None),
    (Name::Subject, "Subject", Some(b's')),
    (Name::ContentEncoding, "Content-Encoding", Some(b'e')),
];

/// The longest long form, in bytes.
const LONGEST: usize = 20;

/// Where the long forms of each length stand in [`TABLE`]: from the entry of the length to that of
/// the next one.
const BY_LENGTH: ([u8; LONGEST + 2], [u8; TABLE.len()]) = {
    let (mut starts, mut order) = ([0; LONGEST + 2], [0; TABLE.len()]);
    let (mut length, mut filled) = (0, 0);
    while length <= LONGEST {
        starts[length] = filled as u8;
        let mut at = 0;
        while at < TABLE.len() {
            if TABLE[at].1.len() == length {
                order[filled] = at as u8;
                filled += 1;
            }
            at += 1;
        }
        length += 1;
    }
    assert!(filled == TABLE.len(), "a name is longer");
    starts[length] = filled as u8;
    (starts, order)
};

impl Name {
    /// The header these bytes name, long or compact.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        if let [letter] = bytes {
            let short = Some(letter.to_ascii_lowercase());
            let known = TABLE.iter().find(|(_, _, compact)| *compact == short);
            return known.map_or(Self::Other, |(name, _, _)| *name);
        }
        if bytes.len() > LONGEST {
            return Self::Other;
        }
        let (starts, order) = &BY_LENGTH;
        let same = usize::from(starts[bytes.len()])..usize::from(starts[bytes.len() + 1]);
        let mut same = order[same].iter().map(|at| &TABLE[usize::from(*at)]);
        let known = same.find(|(_, long, _)| long.as_bytes().eq_ignore_ascii_case(bytes));
        known.map_or(Self::Other, |(name, _, _)| *name)
    }

    /// The long form; `None` for [`Name::Other`].
    #[must_use]
    pub fn long(self) -> Option<&'static str> {
        // Declared in the order of the table.
        TABLE.get(self as usize).map(|(_, long, _)| *long)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_and_case_is_known_and_unique() {
        for (name, long, compact) in TABLE {
            assert_eq!(Name::of(long.as_bytes()), name);
            assert_eq!(Name::of(long.to_ascii_uppercase().as_bytes()), name);
            assert_eq!(name.long(), Some(long));
            if let Some(letter) = compact {
                assert_eq!(Name::of(&[letter]), name);
                assert_eq!(Name::of(&[letter.to_ascii_uppercase()]), name);
            }
        }
        assert_eq!(Name::of(b"P-Charging-Vector"), Name::Other);
        assert_eq!(Name::of(b""), Name::Other);
        assert_eq!(Name::of(b"q"), Name::Other);
    }
}
