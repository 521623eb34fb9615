//! The routing rules and the one route behind them (rtnetlink(7), ip-rule(8)).

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, Ipv6Addr},
};

use futures::TryStreamExt as _;
use rtnetlink::{
    Error, Handle, IpVersion, RouteMessageBuilder,
    packet_route::{
        IpProtocol,
        route::{RouteMessage, RouteProtocol, RouteScope, RouteType},
        rule::{RuleAction, RuleAttribute, RuleMessage, RulePortRange},
    },
};

/// Marks rules and routes as ours (rtnetlink(7): above `RTPROT_STATIC`).
const OURS: RouteProtocol = RouteProtocol::Other(76);
/// The table that calls every address local.
const TABLE: u32 = 27_500;
/// Before the main table (32766), behind what an administrator puts first.
const PRIORITY: u32 = 5_060;
/// The loopback is the first interface of every network namespace.
const LOOPBACK: u32 = 1;

/// What arrives on an interface for a port is delivered here, whatever its address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rule {
    pub(super) interface: String,
    pub(super) v6: bool,
    /// TCP, else UDP.
    pub(super) tcp: bool,
    pub(super) port: u16,
}

/// What there shall be on our interfaces.
pub(super) struct Rules {
    handle: Handle,
    /// Rules on others are another gateway's.
    interfaces: Vec<String>,
    wanted: BTreeSet<Rule>,
}

impl Rules {
    pub(super) fn new(handle: Handle, interfaces: Vec<String>, wanted: BTreeSet<Rule>) -> Self {
        Self {
            handle,
            interfaces,
            wanted,
        }
    }

    /// Whether there shall be any.
    pub(super) fn any(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// There shall be none any more.
    pub(super) fn none(&mut self) {
        self.wanted.clear();
    }

    /// Makes it so; how many rules were missing.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) async fn apply(&self) -> Result<usize, Error> {
        let mut missing = 0;
        for v6 in [false, true] {
            missing += self.apply_to(v6).await?;
        }
        Ok(missing)
    }

    async fn apply_to(&self, v6: bool) -> Result<usize, Error> {
        let version = if v6 { IpVersion::V6 } else { IpVersion::V4 };
        let all = self.handle.rule().get(version).execute();
        // Without IPv6 in the kernel there is nothing of it to do.
        let all: Vec<RuleMessage> = match all.try_collect().await {
            Ok(all) => all,
            Err(_) if v6 => Vec::new(),
            Err(error) => return Err(error),
        };
        let ours: Vec<(Rule, RuleMessage)> = all
            .into_iter()
            .filter_map(|message| Some((read(&message, v6)?, message)))
            .collect();
        let (mine, others): (Vec<_>, Vec<_>) = ours
            .into_iter()
            .partition(|(rule, _)| self.interfaces.contains(&rule.interface));
        let mut missing: Vec<&Rule> = self.wanted.iter().filter(|rule| rule.v6 == v6).collect();
        let needed = !missing.is_empty() || !others.is_empty();
        if !missing.is_empty() {
            // Before the rules: a rule that leads nowhere lets packets pass by. Not replaced where
            // it is: every route that changes makes everybody look at all of them.
            match self.handle.route().add(all_local(v6)).execute().await {
                Err(Error::NetlinkError(error)) if error.raw_code() == -libc::EEXIST => {}
                added => added?,
            }
        }
        let had = !mine.is_empty();
        for (rule, message) in mine {
            match missing.iter().position(|wanted| **wanted == rule) {
                Some(there) => drop(missing.swap_remove(there)),
                None => self.handle.rule().del(message).execute().await?,
            }
        }
        for rule in &missing {
            self.add(rule).await?;
        }
        if had && !needed {
            let _ = self.handle.route().del(all_local(v6)).execute().await;
        }
        Ok(missing.len())
    }

    async fn add(&self, rule: &Rule) -> Result<(), Error> {
        let request = self.handle.rule().add();
        let request = request.input_interface(&rule.interface);
        let request = request.priority(PRIORITY).table_id(TABLE);
        let request = request.action(RuleAction::ToTable);
        let also = [
            RuleAttribute::Protocol(OURS),
            RuleAttribute::IpProtocol(match rule.tcp {
                true => IpProtocol::Tcp,
                false => IpProtocol::Udp,
            }),
            RuleAttribute::DestinationPortRange(RulePortRange {
                start: rule.port,
                end: rule.port,
            }),
        ];
        match rule.v6 {
            false => {
                let mut request = request.v4();
                request.message_mut().attributes.extend(also);
                request.execute().await
            }
            true => {
                let mut request = request.v6();
                request.message_mut().attributes.extend(also);
                request.execute().await
            }
        }
    }
}

/// A rule of ours, any gateway's.
fn read(message: &RuleMessage, v6: bool) -> Option<Rule> {
    let (mut interface, mut tcp, mut port, mut ours) = (None, None, None, false);
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Iifname(name) => interface = Some(name.clone()),
            RuleAttribute::IpProtocol(over) => tcp = Some(*over == IpProtocol::Tcp),
            RuleAttribute::DestinationPortRange(range) => port = Some(range.start),
            RuleAttribute::Protocol(protocol) => ours = *protocol == OURS,
            _ => {}
        }
    }
    ours.then_some(Rule {
        interface: interface?,
        v6,
        tcp: tcp?,
        port: port?,
    })
}

fn all_local(v6: bool) -> RouteMessage {
    match v6 {
        false => RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(Ipv4Addr::UNSPECIFIED, 0)
            .kind(RouteType::Local)
            .scope(RouteScope::Host)
            .protocol(OURS)
            .table_id(TABLE)
            .output_interface(LOOPBACK)
            .build(),
        true => RouteMessageBuilder::<Ipv6Addr>::new()
            .destination_prefix(Ipv6Addr::UNSPECIFIED, 0)
            .kind(RouteType::Local)
            .protocol(OURS)
            .table_id(TABLE)
            .output_interface(LOOPBACK)
            .build(),
    }
}
