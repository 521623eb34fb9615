//! The command line's grammar.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::logging::Format;

/// A voice edge gateway: phones keep registering and calling when softswitches fail.
#[derive(Debug, Parser)]
#[command(name = "keepline", version, max_term_width = 100)]
pub(super) struct Cli {
    #[command(flatten)]
    pub(super) global: Global,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Args)]
pub(super) struct Global {
    /// The configuration file
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        default_value = "/etc/keepline/keepline.toml"
    )]
    pub(super) config: PathBuf,
    /// The daemon's socket
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        default_value = "/run/keepline/control.sock"
    )]
    pub(super) socket: PathBuf,
    /// Answer in JSON, errors included
    #[arg(long, global = true)]
    pub(super) json: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run the gateway in the foreground
    Run {
        /// How log lines look
        #[arg(long, value_enum, default_value_t)]
        log_format: Format,
    },
    /// Write, check or show the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// One screen: groups, registrations, calls, fast path
    Status {
        /// Exit with 3 when something is not as it should be
        #[arg(long)]
        check: bool,
    },
    /// Softswitches, their servers and why they are in their state
    Softswitches,
    /// Tunnels, which one a segment uses, and why they are in their state
    Tunnels,
    /// Registered phones
    Registrations,
    /// Calls in progress
    Calls,
    /// Media streams in the fast path
    Flows,
    /// Next hops of the fast path
    Hops,
    /// Packet counters, read from the pinned maps: no daemon needed
    Stats {
        /// In the Prometheus text format
        #[arg(long, conflicts_with = "json")]
        prometheus: bool,
    },
    /// Changes of state, each with its evidence
    Events {
        /// Go on as they happen
        #[arg(long)]
        follow: bool,
    },
    /// Why an object is in its state
    Explain {
        /// A server's URI, a softswitch, a call's id, an address of record
        object: String,
    },
    /// Use a server until told otherwise
    Switch {
        /// The softswitch
        group: String,
        /// A server's URI or address, or `auto`
        server: String,
    },
    /// Refuse new work, or take it again
    Drain {
        /// Refuse (`on`) or take (`off`)
        state: OnOff,
    },
    /// Have the daemon read its configuration again
    Reload,
    /// Ask a server something once, without the daemon
    #[command(subcommand)]
    Probe(ProbeCommand),
    /// Put the programs on interfaces or take them off, without the daemon
    #[command(subcommand)]
    Fastpath(FastpathCommand),
    /// What this machine lacks, each with a remedy
    Doctor,
}

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Write an annotated sample
    Init {
        /// Where to; standard output without it
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Tell every fault with its place and a hint
    Check,
    /// Show the values in force and where each came from
    Show,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum OnOff {
    On,
    Off,
}

#[derive(Debug, Subcommand)]
pub(super) enum ProbeCommand {
    /// SIP OPTIONS over UDP
    Options(ProbeArgs),
    /// STUN Binding over UDP
    Stun(ProbeArgs),
    /// DHCPREQUEST out of one interface, as a tunnel's monitor sends it
    Dhcp(DhcpArgs),
}

#[derive(Debug, Args)]
pub(super) struct DhcpArgs {
    /// The tunnel's interface
    #[arg(long, value_name = "IF")]
    pub(super) interface: String,
    /// The address to ask for: the tunnel's `health_check_ip`
    #[arg(long, value_name = "IP")]
    pub(super) request: std::net::Ipv4Addr,
    /// How many requests
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) count: u32,
    /// How long each waits, such as `3s`
    #[arg(long, default_value = "3s", value_parser = humantime::parse_duration)]
    pub(super) timeout: Duration,
}

#[derive(Debug, Args)]
pub(super) struct ProbeArgs {
    /// ADDRESS:PORT
    pub(super) server: SocketAddr,
    /// The address to ask from
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(super) from: Option<SocketAddr>,
    /// When to give up, such as `3s`
    #[arg(long, default_value = "3s", value_parser = humantime::parse_duration)]
    pub(super) timeout: Duration,
}

#[derive(Debug, Subcommand)]
pub(super) enum FastpathCommand {
    /// Load the programs and attach them
    Load(LoadArgs),
    /// Take everything off again
    Unload(PinArgs),
    /// What is loaded and attached
    Status(PinArgs),
}

#[derive(Debug, Args)]
pub(super) struct LoadArgs {
    /// An interface; may be repeated
    #[arg(long, required = true, value_name = "IF", num_args = 1..)]
    pub(super) iface: Vec<String>,
    /// How to attach
    #[arg(long, value_enum, default_value_t = LoadMode::Auto)]
    pub(super) mode: LoadMode,
    #[command(flatten)]
    pub(super) pin: PinArgs,
}

#[derive(Debug, Args)]
pub(super) struct PinArgs {
    /// Where on a bpffs; default: as configured, or /sys/fs/bpf/keepline
    #[arg(long, value_name = "PATH")]
    pub(super) pin: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum LoadMode {
    Auto,
    Native,
    Generic,
}
