//! Methods a proxy has rules for.

/// A request's method. Any token is a legal method and is relayed; [`Method::Other`] only says
/// that no rule of ours names it. Case-sensitive (RFC 3261 section 7.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// RFC 3261.
    Invite,
    /// RFC 3261.
    Ack,
    /// RFC 3261.
    Bye,
    /// RFC 3261.
    Cancel,
    /// RFC 3261.
    Register,
    /// RFC 3261.
    Options,
    /// RFC 3262.
    Prack,
    /// RFC 3311.
    Update,
    /// RFC 6086.
    Info,
    /// RFC 3515.
    Refer,
    /// RFC 6665.
    Subscribe,
    /// RFC 6665.
    Notify,
    /// RFC 3428.
    Message,
    /// RFC 3903.
    Publish,
    /// Anything else: see [`Message::method_bytes`](super::Message::method_bytes).
    Other,
}

/// Every method with a name of its own.
const NAMES: [(Method, &str); 14] = [
    (Method::Invite, "INVITE"),
    (Method::Ack, "ACK"),
    (Method::Bye, "BYE"),
    (Method::Cancel, "CANCEL"),
    (Method::Register, "REGISTER"),
    (Method::Options, "OPTIONS"),
    (Method::Prack, "PRACK"),
    (Method::Update, "UPDATE"),
    (Method::Info, "INFO"),
    (Method::Refer, "REFER"),
    (Method::Subscribe, "SUBSCRIBE"),
    (Method::Notify, "NOTIFY"),
    (Method::Message, "MESSAGE"),
    (Method::Publish, "PUBLISH"),
];

impl Method {
    /// The method these bytes name.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        NAMES
            .iter()
            .find(|(_, name)| name.as_bytes() == bytes)
            .map_or(Self::Other, |(method, _)| *method)
    }

    /// Its name on the wire; `None` for [`Method::Other`].
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        NAMES
            .iter()
            .find(|(method, _)| *method == self)
            .map(|(_, name)| *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_case_sensitive_and_reversible() {
        for (method, name) in NAMES {
            assert_eq!(Method::of(name.as_bytes()), method);
            assert_eq!(method.name(), Some(name));
        }
        assert_eq!(Method::of(b"invite"), Method::Other);
        assert_eq!(
            Method::of(b"!interesting-Method0123456789_*+`.%indeed'~"),
            Method::Other
        );
        assert_eq!(Method::Other.name(), None);
    }
}
