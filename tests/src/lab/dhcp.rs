//! Real DHCP servers of the lab: dnsmasq and Kea.

use std::time::Duration;

use anyhow::Result;
use keepline_engine::tunnel::identity::Identity;

use super::{Launch, Node, Process};

/// Which server, and how it sees itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// dnsmasq, with or without `dhcp-authoritative`.
    Dnsmasq {
        /// It is the only server there.
        authoritative: bool,
    },
    /// Kea, with `authoritative` true or false.
    Kea {
        /// It is the only server there.
        authoritative: bool,
    },
}

/// A network that is served: `NET.1` is the server, the pool is `NET.100` to `NET.109`.
pub struct Serving<'a> {
    /// The first three numbers, as in `10.9.0`.
    pub net: &'a str,
    /// The server's interface.
    pub interface: &'a str,
    /// Leases in force from the start: the last number, and whose.
    pub leases: &'a [(u8, Identity)],
}

/// How long a server may take to start.
const START: Duration = Duration::from_secs(15);
/// A wall-clock time far ahead: leases of the start do not end.
const LATER: u64 = 4_000_000_000;

impl Server {
    /// Starts it, and returns when it serves.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(self, node: &Node, serving: &Serving<'_>) -> Result<Process> {
        match self {
            Self::Dnsmasq { authoritative } => dnsmasq(node, serving, authoritative),
            Self::Kea { authoritative } => kea(node, serving, authoritative),
        }
    }

    /// For tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Dnsmasq {
                authoritative: false,
            } => "dnsmasq",
            Self::Dnsmasq {
                authoritative: true,
            } => "dnsmasq, `dhcp-authoritative`",
            Self::Kea {
                authoritative: false,
            } => "Kea, `\"authoritative\": false`",
            Self::Kea {
                authoritative: true,
            } => "Kea, `\"authoritative\": true`",
        }
    }
}

fn dnsmasq(node: &Node, serving: &Serving<'_>, authoritative: bool) -> Result<Process> {
    let Serving { net, interface, .. } = serving;
    let lease = |(last, of): &(u8, Identity)| {
        let (mac, id) = (hex(&of.mac), hex(&of.client_id));
        format!("{LATER} {mac} {net}.{last} * {id}\n")
    };
    let file = format!("/run/dnsmasq-{interface}.leases");
    let leases: String = serving.leases.iter().map(lease).collect();
    node.cell().write(&file, leases)?;
    let mut launch = Launch::new("dnsmasq").args([
        "--no-daemon",
        // It would ping an address for three seconds before it offers it.
        "--no-ping",
        "--conf-file=/dev/null",
        "--port=0",
        "--user=root",
        "--log-dhcp",
        "--pid-file=",
        &format!("--interface={interface}"),
        &format!("--dhcp-leasefile={file}"),
        &format!("--dhcp-range={net}.100,{net}.109,255.255.255.0,1h"),
    ]);
    if authoritative {
        launch = launch.arg("--dhcp-authoritative");
    }
    let process = node.start(&launch)?;
    process.wait_line("DHCP, IP range", START)?;
    Ok(process)
}

fn kea(node: &Node, serving: &Serving<'_>, authoritative: bool) -> Result<Process> {
    let Serving { net, interface, .. } = serving;
    let folder = format!("/run/kea-{interface}");
    let lease = |(last, of): &(u8, Identity)| {
        let (mac, id) = (hex(&of.mac), hex(&of.client_id));
        format!("{net}.{last},{mac},{id},3600,{LATER},1,0,0,,0,\n")
    };
    let header = "address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,\
                  hostname,state,user_context\n";
    let leases: String = serving.leases.iter().map(lease).collect();
    node.cell()
        .write(format!("{folder}/leases.csv"), header.to_owned() + &leases)?;
    let config = serde_json::json!({"Dhcp4": {
        "interfaces-config": {"interfaces": [interface], "dhcp-socket-type": "raw"},
        "lease-database": {"type": "memfile", "name": format!("{folder}/leases.csv")},
        "valid-lifetime": 3600,
        "authoritative": authoritative,
        "subnet4": [{
            "id": 1,
            "subnet": format!("{net}.0/24"),
            "pools": [{"pool": format!("{net}.100 - {net}.109")}],
        }],
        "loggers": [{
            "name": "kea-dhcp4", "severity": "INFO", "output_options": [{"output": "stdout"}],
        }],
    }});
    node.cell()
        .write(format!("{folder}/kea.json"), config.to_string())?;
    let launch = Launch::new("kea-dhcp4")
        .args(["-c", &format!("{folder}/kea.json")])
        .env("KEA_PIDFILE_DIR", folder.as_str())
        .env("KEA_LOCKFILE_DIR", folder.as_str());
    let process = node.start(&launch)?;
    process.wait_line("DHCP4_STARTED", START)?;
    Ok(process)
}

/// An answer to this very request, of this type, by a server that only a test plays.
#[must_use]
pub fn answer(request: &[u8], kind: u8, yiaddr: [u8; 4], server: [u8; 4]) -> Vec<u8> {
    let mut message = vec![0; 240];
    message[..16].copy_from_slice(&request[..16]);
    message[0] = 2;
    message[16..20].copy_from_slice(&yiaddr);
    message[28..44].copy_from_slice(&request[28..44]);
    message[236..].copy_from_slice(&[99, 130, 83, 99]);
    message.extend([53, 1, kind, 54, 4]);
    message.extend(server);
    message.push(255);
    message
}

/// `aa:bb:cc`.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.join(":")
}
