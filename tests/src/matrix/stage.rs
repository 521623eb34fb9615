//! A cell of the matrix: the office, and its cast.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};

use anyhow::{Context as _, Result, ensure};
use keepline_engine::net::Transport;

use crate::lab::branch::{GATEWAY_LAN, SOFTSWITCHES};
use crate::lab::gateway;
use crate::lab::kamailio::{DOMAIN, Softswitch};
use crate::lab::office::{Office, Opening};
use crate::lab::peer::{Ear, LIMIT, Peer, Seat, Tls, trusting};
use crate::lab::rtp::Rtp;
use crate::lab::tls::certified;
use crate::lab::{Branch, Capture, Node, wait};

/// Phones of the branch that are played, by index of their address.
const LAN: u8 = 18;
/// Phones of other offices.
const FAR: u8 = 19;
/// Phones of either side with as many on the other, who send each other media of other kinds.
pub(super) const PAIRS: std::ops::Range<u8> = 20..29;

/// How phones and gateway stand to each other (EM3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Phones take the gateway for their registrar: its address is their domain.
    Normal,
    /// Phones keep their softswitch's domain.
    OutboundProxy,
    /// Phones speak to their softswitch itself; the gateway takes it on the way.
    Transparent,
    /// The same without hiding: over UDP what they say goes through as it is, and the kernel
    /// routes their media. Over TCP it is taken and hidden as ever (signalling.md section 12).
    Through,
}

impl Mode {
    /// As the configuration writes it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::OutboundProxy => "outbound-proxy",
            Self::Transparent | Self::Through => "transparent",
        }
    }

    /// The lines of the configuration that say so.
    fn lines(self) -> String {
        let hides = match self {
            Self::Through => "\nhide_topology = false",
            _ => "",
        };
        format!("mode = \"{}\"{hides}", self.word())
    }

    fn home(self) -> &'static str {
        match self {
            Self::Normal => GATEWAY_LAN,
            Self::OutboundProxy | Self::Transparent | Self::Through => DOMAIN,
        }
    }

    /// The address that phones send to.
    #[must_use]
    pub fn target(self) -> &'static str {
        match self {
            Self::Normal | Self::OutboundProxy => GATEWAY_LAN,
            Self::Transparent | Self::Through => SOFTSWITCHES[0],
        }
    }
}

/// The office, its phones, and what was seen on the wires.
pub struct Stage {
    /// What phones speak over, and the gateway on the WAN.
    pub over: Transport,
    /// The gateway's mode.
    pub mode: Mode,
    /// Phones of the branch.
    pub lan: Vec<Peer>,
    /// Phones of other offices, over UDP.
    pub far: Vec<Peer>,
    /// What the phones of either side received.
    pub(super) ears: [Ear; 2],
    pub(super) pairs: Vec<(Peer, Peer)>,
    /// Both cables of the gateway: at the phones, at the carrier.
    pub(super) wires: [Capture; 2],
    /// The rest.
    pub office: Office,
}

impl Stage {
    /// Opens the office and registers all phones.
    ///
    /// # Errors
    /// When something does not start, or a phone is refused.
    pub fn open(over: Transport, mode: Mode) -> Result<Self> {
        Self::open_with(over, mode, "")
    }

    /// The same with more lines in the gateway's configuration.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with(over: Transport, mode: Mode, more: &str) -> Result<Self> {
        let (branch, tls) = match over {
            Transport::Tls => {
                let (branch, authority) = certified()?;
                (branch, Some(trusting(authority.pem())?))
            }
            Transport::Udp | Transport::Tcp => (Branch::raise()?, None),
        };
        let mut opening = Opening {
            lan: 0,
            far: 0,
            target: mode.target(),
            ..Opening::over(over, over)
        };
        opening.config = (opening.config).replace("mode = \"normal\"", &mode.lines());
        opening.config += more;
        let office = Office::open_on(branch, &opening)?;
        if mode == Mode::Through {
            office.branch.routes_both_ways()?;
        }
        let branch = &office.branch;
        let wires = [
            Capture::start(&branch.phones, "eth0", "ip")?,
            Capture::start(&branch.carrier, "a-gw", "ip")?,
        ];
        let ears = [Ear::default(), Ear::default()];
        let lan_seat_of = |index| lan_seat(index, over, mode, tls.clone(), &ears[0]);
        let far_seat_of = |index| far_seat(index, &ears[1]);
        let lan = cast(&branch.phones, (0..LAN).map(lan_seat_of))?;
        let lan_of_pairs = cast(&branch.phones, PAIRS.map(lan_seat_of))?;
        let far_of_pairs = cast(&branch.far, PAIRS.map(far_seat_of))?;
        let far = cast(&branch.far, (0..FAR).map(far_seat_of))?;
        let stage = Self {
            over,
            mode,
            lan,
            far,
            pairs: lan_of_pairs.into_iter().zip(far_of_pairs).collect(),
            ears,
            wires,
            office,
        };
        stage.all_are_known()?;
        Ok(stage)
    }

    /// What the cell is called.
    #[must_use]
    pub fn name(&self) -> String {
        let mode = match self.mode {
            Mode::Through => "through",
            other => other.word(),
        };
        format!("{} {mode}", self.over.via())
    }

    /// Whether what phones say goes through as it is: nothing is hidden, no media is anchored.
    #[must_use]
    pub fn goes_through(&self) -> bool {
        self.mode == Mode::Through && self.over == Transport::Udp
    }

    /// A phone of the branch and one of another office that no other scenario uses.
    pub(super) fn pair(&self, index: usize) -> (&Peer, &Peer) {
        let (lan, far) = &self.pairs[index];
        (lan, far)
    }

    /// The machine that a phone lives on, and the gateway's address there.
    #[must_use]
    pub fn home_of(&self, peer: &Peer) -> (&Node, &'static str) {
        let branch = &self.office.branch;
        let at = peer.media().ip().to_string();
        let beyond = ["10.99.10.", "2001:db8:10:"];
        if beyond.iter().any(|net| at.starts_with(net)) {
            (&branch.far, crate::lab::branch::GATEWAY_WAN)
        } else {
            (&branch.phones, GATEWAY_LAN)
        }
    }

    /// Opens a phone's ear and mouth. A program that another scenario starts meanwhile holds
    /// what was open here until it runs: a port that was given back may be taken for a moment.
    ///
    /// # Errors
    /// When another call of it has them.
    pub fn voice(&self, peer: &Peer) -> Result<Rtp> {
        let (node, _) = self.home_of(peer);
        wait::until("the port is free", LIMIT, || peer.voice(node).ok())
    }

    /// What a softswitch knows of a user: his Contacts.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub fn contacts(&self, softswitch: &Softswitch, user: &str) -> Result<Vec<String>> {
        let words = ["ul.lookup", "location", &format!("s:{user}")];
        // One that knows nobody of the name says so as an error.
        let text = softswitch
            .rpc(&self.office.branch, &words)
            .unwrap_or_default();
        let of = |line: &str| Some(line.trim().strip_prefix("Address:")?.trim().to_owned());
        Ok(text.lines().filter_map(of).collect())
    }

    /// The softswitches tell each other of registrations: calls begin when both know all.
    pub(super) fn all_are_known(&self) -> Result<()> {
        for softswitch in [&self.office.primary, &self.office.backup] {
            let unknown = |peer: &&Peer| {
                let contacts = self.contacts(softswitch, peer.user());
                contacts.map_or(true, |contacts| contacts.is_empty())
            };
            let pairs = self.pairs.iter().flat_map(|(lan, far)| [lan, far]);
            for peer in self.lan.iter().chain(&self.far).chain(pairs) {
                let known = || (!unknown(&peer)).then_some(());
                wait::until("both softswitches know all phones", LIMIT, known)?;
            }
        }
        Ok(())
    }

    /// The gateway holds no call and no flow any more.
    pub(super) fn is_idle(&self) -> Result<()> {
        let mut left = None;
        let idle = wait::until("all calls are over", LIMIT, || {
            let calls = self.office.ask(&["calls"]).ok()?;
            let flows = self.office.ask(&["flows"]).ok()?;
            let none = gateway::list(&calls, "calls").is_empty()
                && gateway::list(&flows, "flows").is_empty();
            left = Some((calls, flows));
            none.then_some(())
        });
        idle.with_context(|| format!("{left:?}"))
    }

    /// All that the phones of a side received.
    pub(super) fn heard(&self, side: usize) -> Vec<String> {
        let ear = self.ears[side].lock();
        ear.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

pub(super) fn cast(node: &Node, seats: impl Iterator<Item = Result<Seat>>) -> Result<Vec<Peer>> {
    let mut all = Vec::new();
    for seat in seats {
        let peer = Peer::new(node, seat?)?;
        peer.register()?;
        all.push(peer);
    }
    ensure!(!all.is_empty(), "nobody to play");
    Ok(all)
}

/// Users of a side: two phones share one, and one is not waited for.
pub(super) fn user(digit: char, index: u8) -> String {
    match index {
        13 => format!("{digit}92"),
        17 => format!("{digit}16"),
        index => format!("{digit}{index:02}"),
    }
}

fn lan_seat(index: u8, over: Transport, mode: Mode, tls: Option<Tls>, ear: &Ear) -> Result<Seat> {
    let port = if over == Transport::Tls { 5061 } else { 5060 };
    Ok(Seat {
        user: user('2', index),
        home: mode.home().to_owned(),
        at: format!("{}:5060", Branch::phone(index)).parse()?,
        media: 7000 + 2 * u16::from(index),
        proxy: SocketAddr::new(mode.target().parse()?, port),
        over,
        tls,
        ear: Arc::clone(ear),
    })
}

pub(super) fn far_seat(index: u8, ear: &Ear) -> Result<Seat> {
    Ok(Seat {
        user: user('7', index),
        home: DOMAIN.to_owned(),
        at: format!("{}:5060", Branch::far_phone(index)).parse()?,
        media: 8000 + 2 * u16::from(index),
        proxy: SocketAddr::new(SOFTSWITCHES[1].parse()?, 5060),
        over: Transport::Udp,
        tls: None,
        ear: Arc::clone(ear),
    })
}
