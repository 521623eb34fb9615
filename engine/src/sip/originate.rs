//! Requests the gateway makes itself: OPTIONS, REGISTER, and the ACK and BYE of a 2xx that
//! nobody waits for any more. `rsip` gives the vocabulary and prints them; it never sees bytes
//! of the network (it refuses or alters too much real traffic). What must equal another
//! request byte for byte is copied instead: [`ack_for`](super::ack_for),
//! [`cancel_for`](super::cancel_for).

use rsip::{
    Header, Headers, Host, HostWithPort, Request, Uri, Version,
    headers::{CallId, ContentLength, From, MaxForwards, Route, To, UntypedHeader, Via},
};

use super::{Message, Method, Name, Span};

/// What a request of our own is made of. Values are written as they are; a line end inside one
/// (a fold in a header it was taken from) becomes white space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// The method. [`Method::Other`] stands for no name; it is sent as OPTIONS, which changes
    /// nothing anywhere.
    pub method: Method,
    /// The Request-URI.
    pub uri: String,
    /// Transport and sent-by for our Via, as in `UDP 192.0.2.1:5060`.
    pub via: String,
    /// The Via branch, magic cookie included.
    pub branch: String,
    /// The From value, tag included.
    pub from: String,
    /// The To value, with its tag inside a dialog.
    pub to: String,
    /// The Call-ID.
    pub call_id: String,
    /// The CSeq number.
    pub cseq: u32,
    /// Route values, first hop first.
    pub routes: Vec<String>,
    /// Further headers, name and value, in order.
    pub headers: Vec<(String, String)>,
}

impl Draft {
    /// The ACK of a 2xx (RFC 3261 section 13.2.2.4), from the INVITE as it was sent: its target
    /// is the Contact of the 2xx, its routes the Record-Route reversed. A BYE that ends the
    /// same dialog differs in method, branch, and a CSeq number one higher.
    ///
    /// `None` when the 2xx has no readable Contact: there is nobody to send to.
    #[must_use]
    pub fn ack_of_2xx(invite: &Message, ok: &Message, via: &str, branch: &str) -> Option<Self> {
        let text =
            |msg: &Message, span: Span| String::from_utf8_lossy(msg.slice(span)).into_owned();
        let mut routes: Vec<String> = ok
            .values(Name::RecordRoute)
            .map(|route| text(ok, route))
            .collect();
        routes.reverse();
        Some(Self {
            method: Method::Ack,
            uri: text(ok, ok.contacts().next()?.uri),
            via: via.to_owned(),
            branch: branch.to_owned(),
            from: text(invite, invite.header(Name::From)?),
            to: text(ok, ok.header(Name::To)?),
            call_id: text(invite, invite.header(Name::CallId)?),
            cseq: invite.cseq()?.number,
            routes,
            headers: Vec::new(),
        })
    }

    /// The request's bytes: no body, Max-Forwards 70, `rport` asked for (RFC 3581).
    #[must_use]
    pub fn build(&self) -> Vec<u8> {
        let method = vocabulary(self.method);
        let via = format!("SIP/2.0/{};rport;branch={}", self.via, self.branch);
        let mut headers = vec![
            Via::new(one_line(&via)).into(),
            MaxForwards::default().into(),
        ];
        headers.extend(
            self.routes
                .iter()
                .map(|route| Route::new(one_line(route)).into()),
        );
        headers.extend([
            From::new(one_line(&self.from)).into(),
            To::new(one_line(&self.to)).into(),
            CallId::new(one_line(&self.call_id)).into(),
            rsip::headers::CSeq::new(format!("{} {method}", self.cseq)).into(),
        ]);
        headers.extend(
            self.headers
                .iter()
                .map(|(name, value)| Header::Other(one_line(name), one_line(value))),
        );
        headers.push(ContentLength::default().into());
        let uri = verbatim(one_line(&self.uri));
        let (version, headers) = (Version::V2, Headers::from(headers));
        Request {
            method,
            uri,
            version,
            headers,
            body: Vec::new(),
        }
        .to_string()
        .into_bytes()
    }
}

/// A URI that rsip prints as it is. Its own fields would drop the brackets of IPv6 and every
/// scheme but two.
fn verbatim(uri: String) -> Uri {
    let host_with_port = HostWithPort {
        host: Host::Domain(uri.into()),
        port: None,
    };
    Uri {
        scheme: None,
        host_with_port,
        ..Uri::default()
    }
}

fn one_line(value: &str) -> String {
    value.replace(['\r', '\n'], " ")
}

fn vocabulary(method: Method) -> rsip::Method {
    match method {
        Method::Invite => rsip::Method::Invite,
        Method::Ack => rsip::Method::Ack,
        Method::Bye => rsip::Method::Bye,
        Method::Cancel => rsip::Method::Cancel,
        Method::Register => rsip::Method::Register,
        Method::Prack => rsip::Method::PRack,
        Method::Update => rsip::Method::Update,
        Method::Info => rsip::Method::Info,
        Method::Refer => rsip::Method::Refer,
        Method::Subscribe => rsip::Method::Subscribe,
        Method::Notify => rsip::Method::Notify,
        Method::Message => rsip::Method::Message,
        Method::Publish => rsip::Method::Publish,
        Method::Options | Method::Other => rsip::Method::Options,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft() -> Draft {
        Draft {
            method: Method::Register,
            uri: "sip:[2001:db8::1]:5070;transport=udp".into(),
            via: "UDP [2001:db8::2]:5060".into(),
            branch: "z9hG4bKx".into(),
            from: "\"Böb\r\n x\" <sip:bob@biloxi.example>;tag=1".into(),
            to: "<sip:bob@biloxi.example>".into(),
            call_id: "abc".into(),
            cseq: 4_294_967_294,
            routes: vec!["<sip:192.0.2.1;lr>".into(), "<sip:192.0.2.2;lr>".into()],
            headers: vec![("Contact".into(), "<sip:t@[2001:db8::2]>;expires=60".into())],
        }
    }

    #[test]
    fn prints_what_it_was_given() {
        let text = String::from_utf8(draft().build()).expect("text");
        assert_eq!(
            text,
            "REGISTER sip:[2001:db8::1]:5070;transport=udp SIP/2.0\r\n\
             Via: SIP/2.0/UDP [2001:db8::2]:5060;rport;branch=z9hG4bKx\r\n\
             Max-Forwards: 70\r\n\
             Route: <sip:192.0.2.1;lr>\r\n\
             Route: <sip:192.0.2.2;lr>\r\n\
             From: \"Böb   x\" <sip:bob@biloxi.example>;tag=1\r\n\
             To: <sip:bob@biloxi.example>\r\n\
             Call-ID: abc\r\n\
             CSeq: 4294967294 REGISTER\r\n\
             Contact: <sip:t@[2001:db8::2]>;expires=60\r\n\
             Content-Length: 0\r\n\r\n"
        );
    }

    #[test]
    fn every_method_parses_back() {
        for method in [
            Method::Invite,
            Method::Ack,
            Method::Bye,
            Method::Cancel,
            Method::Register,
            Method::Options,
            Method::Prack,
            Method::Update,
            Method::Info,
            Method::Refer,
            Method::Subscribe,
            Method::Notify,
            Method::Message,
            Method::Publish,
        ] {
            let draft = Draft {
                method,
                cseq: 7,
                ..draft()
            };
            let msg = Message::parse(draft.build()).expect("well-formed");
            assert_eq!(msg.method(), Some(method));
            assert_eq!(msg.cseq().map(|cseq| cseq.method), Some(method));
        }
    }

    #[test]
    fn the_ack_of_a_2xx_takes_the_dialogs_route() {
        let invite = Message::parse(
            Draft {
                method: Method::Invite,
                cseq: 7,
                ..draft()
            }
            .build(),
        );
        let invite = invite.expect("well-formed");
        let ok = b"SIP/2.0 200 OK\r\nv: SIP/2.0/UDP [2001:db8::2]:5060;branch=z9hG4bKx\r\n\
            Record-Route: <sip:p2;lr>, <sip:p1;lr>\r\nf: x <sip:bob@biloxi.example>;tag=1\r\n\
            t: <sip:bob@biloxi.example>;tag=99\r\ni: abc\r\nCSeq: 7 INVITE\r\n\
            m: \"a, b\" <sip:callee@192.0.2.77:5080;ob>;q=1\r\nl: 0\r\n\r\n";
        let ok = Message::parse(ok.to_vec()).expect("well-formed");
        let ack =
            Draft::ack_of_2xx(&invite, &ok, "UDP 192.0.2.5", "z9hG4bKack").expect("a contact");
        assert_eq!(ack.uri, "sip:callee@192.0.2.77:5080;ob");
        assert_eq!(ack.routes, ["<sip:p1;lr>", "<sip:p2;lr>"]);
        assert_eq!(ack.to, "<sip:bob@biloxi.example>;tag=99");
        assert_eq!((ack.method, ack.cseq), (Method::Ack, 7));
    }
}
