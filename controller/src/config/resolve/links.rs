//! `[[interface]]` and `[listen]`.

use std::ops::Range;

use keepline_engine::net::{LinkId, Side, Transport};

use super::super::{
    fault::Fault,
    keywords::InterfaceRole,
    model::{Accept, Gateway, Interface, Listen, ListenAddress, Mode, Softswitch, XdpMode},
    section::Section,
    text::ListenText,
    value::At,
};
use super::duplicates;

/// Links are numbered by a byte, and the kernel's device map has as many slots.
const MAX_INTERFACES: usize = 64;
/// Each is a socket and a record in the data path.
const MAX_LISTENERS: usize = 64;

/// Interfaces with the place of their names.
pub(super) type Interfaces = Option<Vec<At<Interface>>>;

pub(super) fn interfaces(root: &mut Section<'_>) -> Interfaces {
    let sections = root.tables("interface");
    if sections.is_empty() {
        root.fault(Fault::error(
            root.span(),
            "no [[interface]]",
            "add one with `role = \"lan\"` and one with `role = \"wan\"`",
        ));
    }
    if let Some(beyond) = sections.get(MAX_INTERFACES) {
        let message = format!("more than {MAX_INTERFACES} interfaces");
        root.fault(Fault::error(beyond.span(), message, "remove some"));
    }
    let read: Vec<Option<At<Interface>>> = sections.into_iter().map(interface).collect();
    let names: Vec<At<String>> = read
        .iter()
        .flatten()
        .map(|at| At {
            span: at.span.clone(),
            value: at.value.name.clone(),
        })
        .collect();
    duplicates(root, String::clone, "interface", &names);
    let all: Interfaces = read.into_iter().collect();
    all.filter(|all| !all.is_empty() && all.len() <= MAX_INTERFACES)
}

fn interface(mut section: Section<'_>) -> Option<At<Interface>> {
    let name: Option<At<String>> = section.required("name", "\"lan0\"");
    let role: Option<InterfaceRole> = section.required("role", "\"lan\"");
    // XDP cannot send into most tunnel devices: the slow path carries what is routed there.
    let xdp = section.get("xdp", role.map_or(XdpMode::Auto, InterfaceRole::xdp));
    section.not_enforced("max_calls");
    let max_calls = section.optional::<u32>("max_calls");
    section.not_yet("max_kbps", "bound the link with `max_calls`");
    if let Some(name) = name.as_ref().filter(|name| !kernel_accepts(&name.value)) {
        section.fault(Fault::error(
            name.span.clone(),
            format!("`{}` cannot be an interface's name", name.value),
            "1 to 15 characters without `/`, `:` and blanks: see `ip link`",
        ));
    }
    section.finish();
    let name = name?;
    let value = Interface {
        name: name.value,
        side: role?.side(),
        xdp,
        max_calls,
    };
    Some(At {
        span: name.span,
        value,
    })
}

/// The kernel's `dev_valid_name`.
pub(super) fn kernel_accepts(name: &str) -> bool {
    (1..=15).contains(&name.len())
        && name != "."
        && name != ".."
        && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace())
}

/// `[listen]`, with what the media range must keep clear of.
pub(super) struct Listeners {
    pub(super) resolved: Option<Listen>,
    pub(super) ports: Vec<At<u16>>,
    /// Where the first one over TLS stands.
    pub(super) secure: Option<Range<usize>>,
}

pub(super) fn listen(mut section: Section<'_>, interfaces: &Interfaces) -> Listeners {
    let udp: Vec<At<ListenText>> = section.get("udp", Vec::new());
    let tcp: Vec<At<ListenText>> = section.get("tcp", Vec::new());
    let tls: Vec<At<ListenText>> = section.get("tls", Vec::new());
    if udp.is_empty() && tcp.is_empty() && tls.is_empty() {
        nothing(&mut section);
    }
    let accept = section.get("accept", Accept::Peers);
    if udp.len() + tcp.len() + tls.len() > MAX_LISTENERS {
        let message = format!("more than {MAX_LISTENERS} listeners");
        section.fault(Fault::error(section.span(), message, "remove some"));
    }
    duplicates(&section, ToString::to_string, "listener", &udp);
    // Both are TCP ports.
    let streams = [tcp.clone(), tls.clone()].concat();
    duplicates(&section, ToString::to_string, "listener", &streams);
    let secure = tls.first().map(|at| at.span.clone());
    let ports = udp.iter().map(|at| At {
        span: at.span.clone(),
        value: port(&at.value),
    });
    let ports = ports.collect();
    let addresses = |texts: &[At<ListenText>]| -> Option<Vec<ListenAddress>> {
        let all = texts
            .iter()
            .map(|text| address(&section, text, interfaces.as_deref()));
        // All are read before one that is wrong ends it.
        all.collect::<Vec<_>>().into_iter().collect()
    };
    let (udp, tcp, tls) = (addresses(&udp), addresses(&tcp), addresses(&tls));
    section.finish();
    let resolved = udp.zip(tcp).zip(tls).map(|((udp, tcp), tls)| Listen {
        udp,
        tcp,
        tls,
        accept,
    });
    let resolved = resolved.filter(|listen| listen.all().next().is_some());
    Listeners {
        resolved,
        ports,
        secure,
    }
}

/// Something must be listened to.
fn nothing(section: &mut Section<'_>) {
    let example = "[\"lan0:5060\", \"wan0:5060\"]";
    let written: Option<At<Vec<ListenText>>> = section.required("udp", example);
    if let Some(empty) = written.filter(|at| at.value.is_empty()) {
        section.fault(Fault::error(
            empty.span,
            "[listen] names no listener",
            format!("write `udp = {example}`"),
        ));
    }
}

fn port(text: &ListenText) -> u16 {
    match text {
        ListenText::Interface { port, .. } => *port,
        ListenText::Address(address) => address.port(),
    }
}

fn address(
    section: &Section<'_>,
    text: &At<ListenText>,
    interfaces: Option<&[At<Interface>]>,
) -> Option<ListenAddress> {
    let (name, port) = match &text.value {
        ListenText::Address(address) => return Some(ListenAddress::Address(*address)),
        ListenText::Interface { name, port } => (name, *port),
    };
    // Faults of the interfaces themselves are told already; a guess here would mislead.
    let interfaces = interfaces?;
    let index = interfaces.iter().position(|at| at.value.name == *name);
    let Some(link) = index.and_then(|i| u8::try_from(i).ok()) else {
        let known: Vec<&str> = interfaces.iter().map(|at| at.value.name.as_str()).collect();
        section.fault(Fault::error(
            text.span.clone(),
            format!("no [[interface]] is named `{name}`"),
            format!("use one of {}, or add it", known.join(", ")),
        ));
        return None;
    };
    Some(ListenAddress::Interface {
        link: LinkId(link),
        port,
    })
}

/// A gateway has two sides, and a listener on each.
pub(super) fn sides(
    root: &Section<'_>,
    interfaces: &Interfaces,
    listen: &Listeners,
    softswitches: &Option<Vec<Softswitch>>,
) {
    let (Some(interfaces), Some(listen)) = (interfaces, &listen.resolved) else {
        return;
    };
    let has = |side| interfaces.iter().any(|at| at.value.side == side);
    let needs_wan = softswitches
        .as_ref()
        .is_some_and(|groups| !groups.is_empty());
    let first = || interfaces.first().map_or(0..0, |at| at.span.clone());
    if !has(Side::Lan) {
        let hint = "give the interface that phones are on `role = \"lan\"`";
        root.fault(Fault::error(first(), "no interface faces the phones", hint));
    }
    if needs_wan && !has(Side::Wan) {
        let hint = "give the interface that softswitches are reached over `role = \"wan\"`";
        root.fault(Fault::error(
            first(),
            "no interface faces the softswitches",
            hint,
        ));
    }
    let by_address = by_address(listen);
    for (index, interface) in interfaces.iter().enumerate().filter(|_| !by_address) {
        if !listen.all().any(|(_, on)| is_on(on, index)) {
            let name = &interface.value.name;
            root.fault(Fault::warning(
                interface.span.clone(),
                format!("nothing listens on `{name}`: no SIP is spoken over it"),
                format!("add `\"{name}:5060\"` to [listen] udp"),
            ));
        }
    }
}

/// Listeners over TLS show a certificate.
pub(super) fn certificates(root: &Section<'_>, listen: &Listeners, there: bool) {
    if let Some(span) = listen.secure.clone().filter(|_| !there) {
        root.fault(Fault::error(
            span,
            "a listener over TLS, and no [tls] with its certificate",
            "add [tls] with `cert` and `key`",
        ));
    }
}

/// In transparent mode what phones say over TLS is for their softswitch alone.
pub(super) fn untouched(
    root: &Section<'_>,
    mode: Mode,
    interfaces: &Interfaces,
    listen: &Listeners,
) {
    let (Some(interfaces), Some(resolved)) = (interfaces, &listen.resolved) else {
        return;
    };
    let lan = |on: &ListenAddress| {
        let mut all = interfaces.iter().enumerate();
        all.any(|(index, at)| at.value.side == Side::Lan && is_on(*on, index))
    };
    if mode == Mode::Transparent
        && resolved.tls.iter().any(lan)
        && let Some(span) = listen.secure.clone()
    {
        root.fault(Fault::error(
            span,
            "phones over TLS cannot be served in transparent mode: their softswitch's certificate \
             is not ours to show",
            "listen for TLS on the WAN only, or use the mode `outbound-proxy`",
        ));
    }
}

/// What goes through as it is is forwarded and seen in XDP.
pub(super) fn seen(root: &Section<'_>, gateway: &Gateway, interfaces: &Interfaces) {
    let off = |at: &&At<Interface>| at.value.xdp == XdpMode::Off;
    let bare = interfaces.iter().flatten().filter(off);
    for at in bare.filter(|_| gateway.goes_through()) {
        root.fault(Fault::error(
            at.span.clone(),
            format!(
                "`hide_topology = false` needs XDP on `{}`: what goes through is forwarded and \
                 seen there",
                at.value.name
            ),
            "leave `xdp` out, or hide",
        ));
    }
}

/// Each transport over connections that a server asks for needs a listener on the WAN: requests leave from it, and
/// the softswitch answers and calls there.
pub(super) fn transports(
    root: &Section<'_>,
    interfaces: &Interfaces,
    listen: &Listeners,
    spoken: &[At<Transport>],
) {
    let (Some(interfaces), Some(listen)) = (interfaces, &listen.resolved) else {
        return;
    };
    if by_address(listen) {
        return;
    }
    let wan = |on| {
        let mut all = interfaces.iter().enumerate();
        all.any(|(index, at)| at.value.side == Side::Wan && is_on(on, index))
    };
    // A WAN that nothing at all listens on is warned of already.
    for server in spoken.iter().filter(|at| at.value.is_stream()) {
        let transport = server.value;
        if listen.all().any(|(over, on)| over == transport && wan(on)) {
            continue;
        }
        let key = transport.via().to_ascii_lowercase();
        let port = if transport == Transport::Tls {
            5061
        } else {
            5060
        };
        root.fault(Fault::error(
            server.span.clone(),
            format!(
                "this server is spoken to over {}, which no WAN interface listens for",
                transport.via()
            ),
            format!("add `\"wan0:{port}\"`, with your interface's name, to [listen] {key}"),
        ));
    }
}

/// Whether some listener is on whatever interface has its address: only the machine knows.
fn by_address(listen: &Listen) -> bool {
    let mut all = listen.all();
    all.any(|(_, on)| matches!(on, ListenAddress::Address(_)))
}

fn is_on(on: ListenAddress, index: usize) -> bool {
    matches!(on, ListenAddress::Interface { link, .. } if usize::from(link.0) == index)
}
