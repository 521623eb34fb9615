//! `explain OBJECT`: what an object is, and why. A server, a softswitch, a registration or a call
//! is named as the other commands list it; its address or its user at a domain is enough.

use keepline_engine::{
    gateway::{CallView, Gateway, RegistrationView},
    health::{GroupState, GroupView, PathView},
    time::Now,
};

use super::{
    Journal,
    render::{self, evidence, timestamp},
};
use crate::{
    api::{model, model::ApiError},
    tunnel::Tunnels,
};

/// State and history of what is called `object`.
///
/// # Errors
/// When nothing is, and nothing was.
pub(super) fn explain(
    (gateway, tunnels): (&Gateway, &Tunnels),
    journal: &Journal,
    now: Now,
    object: &str,
) -> Result<model::Explanation, ApiError> {
    let mut events = journal.about(|name| is_called(name, object));
    let views = gateway.health().snapshot(now);
    let found = server(&views, object, now)
        .or_else(|| group(&views, object))
        .or_else(|| phone(gateway, object, now))
        .or_else(|| call(gateway, object, now))
        .or_else(|| tunnel(tunnels, object, now));
    let known = |found: Found| model::Explanation {
        object: found.object,
        state: found.state,
        events: Vec::new(),
    };
    if let Some(mut found) = found {
        events.append(&mut found.present);
        return Ok(model::Explanation {
            events,
            ..known(found)
        });
    }
    let Some(last) = events.last() else {
        return Err(ApiError::new(
            "not_found",
            format!("nothing is called {object}"),
            "name a server, a softswitch, a registration or a call as `keepline softswitches`, \
             `registrations`, `calls` and `tunnels` list them",
        ));
    };
    Ok(model::Explanation {
        object: object.to_owned(),
        state: last.to.clone(),
        events,
    })
}

/// An object as it is now.
struct Found {
    object: String,
    state: String,
    present: Vec<model::Event>,
}

/// Whether an event's object is the one asked for: all of its name, or one word of it, with or
/// without the scheme and the port.
fn is_called(name: &str, asked: &str) -> bool {
    let bare = |text: &str| text.trim_start_matches("sip:").to_owned();
    let without_port = |text: &str| {
        let host = text.rsplit_once(':').map(|(host, _)| host.to_owned());
        host.map(|host| host.trim_matches(['[', ']']).to_owned())
    };
    let asked = bare(asked);
    bare(name) == asked
        || name
            .split_whitespace()
            .map(bare)
            .any(|word| word == asked || without_port(&word).is_some_and(|host| host == asked))
}

/// A tunnel, by its name, its interface or its segment.
fn tunnel(tunnels: &Tunnels, object: &str, now: Now) -> Option<Found> {
    let (object, state, present) = tunnels.explain(now, object)?;
    Some(Found {
        object,
        state,
        present: vec![render::event(&present)],
    })
}

/// A server, on every link that leads to it.
fn server(views: &[GroupView], object: &str, now: Now) -> Option<Found> {
    let named = |path: &&PathView| {
        path.uri == object
            || path.address.to_string() == object
            || path.address.ip().to_string() == object
    };
    let paths: Vec<_> = (views.iter())
        .flat_map(|group| {
            group
                .paths
                .iter()
                .filter(named)
                .map(move |path| (group, path))
        })
        .collect();
    let (group, first) = paths.first()?;
    let same = paths.iter().all(|(_, path)| path.state == first.state);
    let state = match same {
        true => first.state.name().to_owned(),
        false => {
            let each = paths.iter();
            let each = each.map(|(_, path)| format!("{} on {}", path.state.name(), path.link));
            each.collect::<Vec<_>>().join(", ")
        }
    };
    let object = match paths.as_slice() {
        [_] => format!("{} {} {}", group.name, first.uri, first.link),
        _ => format!("{} {}", group.name, first.uri),
    };
    let present = paths.iter().map(|(group, path)| model::Event {
        at: timestamp(now.wall),
        kind: "server".to_owned(),
        object: format!("{} {} {}", group.name, path.uri, path.link),
        from: path.state.name().to_owned(),
        to: path.state.name().to_owned(),
        rule: path.reason.to_owned(),
        evidence: path.evidence.iter().map(evidence).collect(),
    });
    Some(Found {
        object,
        state,
        present: present.collect(),
    })
}

fn group(views: &[GroupView], object: &str) -> Option<Found> {
    let group = views.iter().find(|group| group.name == object)?;
    let state = match group.state {
        GroupState::Serving { .. } => "serving",
        GroupState::Survivability => "survivability",
    };
    Some(Found {
        object: group.name.clone(),
        state: state.to_owned(),
        present: Vec::new(),
    })
}

/// An address of record, with each of its contacts.
fn phone(gateway: &Gateway, object: &str, now: Now) -> Option<Found> {
    let aor = object.trim_start_matches("sip:");
    let contacts: Vec<RegistrationView> = (gateway.registrations(now))
        .filter(|view| view.aor == aor)
        .collect();
    let upstream = contacts.iter().any(|view| view.upstream);
    let state = if upstream { "upstream" } else { "local" };
    contacts.first()?;
    let present = contacts.into_iter().map(|view| {
        let row = render::registration(gateway, view);
        let what = format!(
            "{} from {}, {} s left, at {}",
            row.contact, row.source, row.expires_s, row.server
        );
        now_is("registration", &row.aor, state, "registered", what, now)
    });
    Some(Found {
        object: aor.to_owned(),
        state: state.to_owned(),
        present: present.collect(),
    })
}

/// A call, by its Call-ID.
fn call(gateway: &Gateway, object: &str, now: Now) -> Option<Found> {
    let named: Vec<CallView> = (gateway.calls())
        .filter(|view| view.call_id == object)
        .collect();
    let state = named.first()?.state;
    let present = named.into_iter().map(|view| {
        let row = render::call(gateway, view);
        let what = format!(
            "{} to {} via {}, since {}",
            row.from, row.to, row.via, row.started
        );
        now_is("call", &row.call_id, &row.state, "dialog", what, now)
    });
    Some(Found {
        object: object.to_owned(),
        state: state.to_owned(),
        present: present.collect(),
    })
}

fn now_is(
    kind: &str,
    object: &str,
    state: &str,
    rule: &str,
    what: String,
    now: Now,
) -> model::Event {
    let at = timestamp(now.wall);
    model::Event {
        at: at.clone(),
        kind: kind.to_owned(),
        object: object.to_owned(),
        from: state.to_owned(),
        to: state.to_owned(),
        rule: rule.to_owned(),
        evidence: vec![model::Evidence { at, what }],
    }
}

#[cfg(test)]
mod tests {
    use super::is_called;

    #[test]
    fn an_object_is_named_by_a_whole_word_of_it() {
        let server = "core sip:192.0.2.10:5060 wan0";
        let six = "core sip:[2001:db8::1]:5060 wan0";
        for (name, asked, is) in [
            (server, "sip:192.0.2.10:5060", true),
            (server, "192.0.2.10:5060", true),
            (server, "192.0.2.10", true),
            (server, "core", true),
            (server, server, true),
            (server, "192.0.2.1", false),
            (server, "2.10", false),
            (server, "cor", false),
            (six, "2001:db8::1", true),
            (six, "2001:db8::", false),
            ("201@example.test", "sip:201@example.test", true),
            ("1201@example.test", "201@example.test", false),
        ] {
            assert_eq!(is_called(name, asked), is, "{asked} in {name}");
        }
    }
}
