//! Torture: messages of our own after the descriptions of RFC 4475 (the fuzz corpus), and the
//! RFC's own where a copy lies beside the repository.

use std::{fs, path::PathBuf};

use keepline_engine::sip::{Edit, Message, Method, Name, Uri, Why};

/// What a datagram is to us: whole, cut behind Content-Length, or refused.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Whole,
    Cut,
    Refused(Why, Option<u16>),
}

use Verdict::{Cut, Refused, Whole};

fn judge(bytes: &[u8]) -> Verdict {
    match Message::parse(bytes.to_vec()) {
        Ok(msg) => {
            assert_eq!(Edit::new(&msg).finish(), msg.bytes());
            if msg.bytes() == bytes { Whole } else { Cut }
        }
        Err(refusal) => Refused(refusal.why, refusal.status().map(|(code, _)| code)),
    }
}

fn own(name: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/sip_message");
    fs::read(folder.join(name)).expect("a sample of the repository")
}

fn parsed(name: &str) -> Message {
    Message::parse(own(name)).expect("a sample that is accepted")
}

#[test]
fn own_samples_are_judged_as_meant() {
    for (name, verdict) in [
        ("spaced_invite", Whole),
        ("odd_method", Whole),
        ("latin1_names", Whole),
        ("multipart_binary", Whole),
        ("long_values", Whole),
        ("tel_target", Whole),
        ("contact_list", Whole),
        ("no_reason", Whole),
        ("unknown_scheme", Whole),
        ("semicolon_user", Whole),
        ("two_in_one", Cut),
        ("refused_version", Refused(Why::Version, Some(505))),
        (
            "refused_two_lengths",
            Refused(Why::ContentLength, Some(400)),
        ),
        ("refused_short_body", Refused(Why::ContentLength, Some(400))),
        ("refused_angle_target", Refused(Why::StartLine, Some(400))),
        ("refused_bare_cr", Refused(Why::BareCr, Some(400))),
        ("refused_mismatch", Refused(Why::CSeqMethod, Some(400))),
        (
            "refused_two_froms",
            Refused(Why::Repeated(Name::From), Some(400)),
        ),
        ("refused_big_code", Refused(Why::StartLine, None)),
        (
            "refused_big_cseq",
            Refused(Why::Malformed(Name::CSeq), Some(400)),
        ),
        (
            "refused_open_quote",
            Refused(Why::Malformed(Name::To), Some(400)),
        ),
        ("refused_truncated", Refused(Why::Truncated, Some(400))),
        ("refused_fold_first", Refused(Why::HeaderLine, Some(400))),
        (
            "refused_via_list",
            Refused(Why::Malformed(Name::Via), Some(400)),
        ),
        (
            "refused_no_from",
            Refused(Why::Missing(Name::From), Some(400)),
        ),
        ("not_sip", Refused(Why::StartLine, None)),
    ] {
        assert_eq!(judge(&own(name)), verdict, "{name}");
    }
}

#[test]
fn values_are_read_through_white_space_and_folds() {
    let msg = parsed("spaced_invite");
    let vias: Vec<_> = msg
        .vias()
        .map(|via| {
            (
                msg.slice(via.sent_by),
                msg.slice(via.transport),
                via.branch(msg.bytes()),
            )
        })
        .collect();
    assert_eq!(
        vias,
        [
            (&b"192.0.2.2"[..], &b"UDP"[..], Some(&b"390skdjuw"[..])),
            (b"spindle.example.com", b"TCP", Some(b"z9hG4bK9ikj8")),
            (b"192.168.255.111", b"UDP", Some(b"z9hG4bK30239")),
        ]
    );
    assert_eq!(
        (msg.from_tag(), msg.to_tag()),
        (Some(&b"98asjd8"[..]), Some(&b"1918181833n"[..]))
    );
    assert_eq!(
        msg.cseq().map(|cseq| (cseq.number, cseq.method)),
        Some((9, Method::Invite))
    );
    assert_eq!(msg.max_forwards(), Some(68));
    let contact = msg.contacts().next().expect("a contact");
    assert_eq!(msg.slice(contact.uri), b"sip:jdrosen@example.com");
    assert_eq!(msg.param(contact.params, "q"), Some(&b"0.33"[..]));
    assert_eq!(
        msg.param(contact.params, "newparam"),
        Some(&b"newvalue"[..])
    );
}

#[test]
fn odd_but_legal_tokens_pass_through() {
    let msg = parsed("odd_method");
    assert_eq!(msg.method(), Some(Method::Other));
    assert_eq!(msg.method_bytes(), b"!odd-Meth.0_%*+`'~");
    assert_eq!(msg.from_tag(), Some(&b"_token~1'+`*%!-."[..]));
    let uri = Uri::parse(msg.slice(msg.uri().expect("a request"))).expect("a SIP URI");
    assert_eq!(uri.host, b"example.com");
    assert_eq!(
        uri.password,
        Some(&b"&it+has=1,weird!*pas$wo~d_too.(doesn't-it)"[..])
    );

    let msg = parsed("semicolon_user");
    let uri = Uri::parse(msg.slice(msg.uri().expect("a request"))).expect("a SIP URI");
    assert_eq!(uri.user, Some(&b"user;par=u%40example.net"[..]));
    assert_eq!((uri.params, uri.headers), (&b";lr"[..], &b"?X=a%2Cb"[..]));

    let msg = parsed("multipart_binary");
    assert!(
        msg.body()
            .windows(256)
            .any(|part| part.iter().copied().eq(0..=255))
    );
}

#[test]
fn a_list_of_contacts_is_split_where_it_should_be() {
    let msg = parsed("contact_list");
    let uris: Vec<_> = msg
        .contacts()
        .map(|contact| msg.slice(contact.uri))
        .collect();
    assert_eq!(
        uris,
        [
            &b"sip:a@192.0.2.7"[..],
            b"sip:a,b@192.0.2.8",
            b"sip:c@192.0.2.9",
            b"sip:d@192.0.2.10"
        ]
    );
    assert_eq!(msg.addrs(Name::ServiceRoute).count(), 2);
    let star = parsed("contact_star");
    assert!(
        star.contacts()
            .map(|contact| star.slice(contact.uri))
            .eq([b"*"])
    );
    assert_eq!(star.expires(), Some(0));
}

/// The 49 messages of RFC 4475, section by section. Where the RFC leaves a choice, a proxy's
/// is taken: what can be routed is passed on.
#[test]
fn rfc_4475_messages_are_judged_as_the_rfc_wants() {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/corpus");
    let root = std::env::var("KEEPLINE_CORPUS").unwrap_or_else(|_| beside.to_owned());
    let folder = PathBuf::from(root).join("rfc4475");
    if !folder.is_dir() {
        eprintln!("skipped: no {} (set KEEPLINE_CORPUS)", folder.display());
        return;
    }
    let refused = [
        ("badinv01", Why::Malformed(Name::Via), Some(400)),
        ("badvers", Why::Version, Some(505)),
        ("bigcode", Why::StartLine, None),
        ("clerr", Why::ContentLength, Some(400)),
        ("insuf", Why::Missing(Name::From), Some(400)),
        ("ltgtruri", Why::StartLine, Some(400)),
        ("lwsruri", Why::StartLine, Some(400)),
        ("lwsstart", Why::StartLine, Some(400)),
        ("mcl01", Why::ContentLength, Some(400)),
        ("mismatch01", Why::CSeqMethod, Some(400)),
        ("mismatch02", Why::CSeqMethod, Some(400)),
        ("multi01", Why::Repeated(Name::From), Some(400)),
        ("ncl", Why::ContentLength, Some(400)),
        ("quotbal", Why::Malformed(Name::To), Some(400)),
        ("scalar02", Why::Malformed(Name::CSeq), Some(400)),
        ("scalarlg", Why::Malformed(Name::CSeq), None),
        ("trws", Why::StartLine, Some(400)),
    ];
    let mut count = 0;
    for file in fs::read_dir(&folder).expect("a readable folder") {
        let path = file.expect("a readable folder").path();
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let expected = match (refused.iter().find(|row| row.0 == name), name.as_str()) {
            (Some((_, why, status)), _) => Refused(*why, *status),
            // One datagram, two requests: the second is not there (section 3.1.2.4).
            (None, "dblreq") => Cut,
            (None, _) => Whole,
        };
        assert_eq!(
            judge(&fs::read(&path).expect("a readable file")),
            expected,
            "{name}"
        );
        count += 1;
    }
    assert_eq!(count, 49);
}
