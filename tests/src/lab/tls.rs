//! Certificates of the lab, by an authority of its own that lives as long as the test.

use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};

use super::branch::{GATEWAY_LAN, GATEWAY_WAN};
use super::kamailio::DOMAIN;
use super::{Branch, Cell};

/// Where the softswitches have their certificates.
pub const SOFTSWITCHES: [&str; 2] = ["/run/ss1", "/run/ss2"];
const DAY: Duration = Duration::from_secs(86_400);

/// Who vouches for gateway and softswitches.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A network in which gateway and softswitches have certificates.
///
/// # Errors
/// When it cannot be raised.
pub fn certified() -> Result<(Branch, Authority)> {
    let branch = Branch::raise()?;
    let authority = Authority::new()?;
    authority.issue(
        branch.cell(),
        "/run/gw",
        &[DOMAIN, GATEWAY_LAN, GATEWAY_WAN],
    )?;
    for folder in SOFTSWITCHES {
        authority.issue(branch.cell(), folder, &[DOMAIN])?;
    }
    Ok((branch, authority))
}

impl Authority {
    /// A new one.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn new() -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Self {
            issuer: Issuer::new(params, key),
            pem,
        })
    }

    /// Its own certificate.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Writes `ca.pem`, `cert.pem` and `key.pem` into a folder of the cell: a certificate of
    /// these DNS names and addresses.
    ///
    /// # Errors
    /// When a name is none, or a file cannot be written.
    pub fn issue(&self, cell: &Cell, folder: &str, names: &[&str]) -> Result<()> {
        self.write(cell, folder, names, DAY)
    }

    /// The same, expired an hour ago.
    ///
    /// # Errors
    /// As [`Authority::issue`].
    pub fn issue_expired(&self, cell: &Cell, folder: &str, names: &[&str]) -> Result<()> {
        self.write(
            cell,
            folder,
            names,
            DAY - Duration::from_secs(3600) - DAY / 2,
        )
    }

    /// `life` is counted from half a day before now.
    fn write(&self, cell: &Cell, folder: &str, names: &[&str], life: Duration) -> Result<()> {
        let mut params = CertificateParams::new(Vec::new())?;
        for name in names {
            let name = match name.parse() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName((*name).try_into().context("no DNS name")?),
            };
            params.subject_alt_names.push(name);
        }
        let begin = SystemTime::now() - DAY / 2;
        params.not_before = begin.into();
        params.not_after = (begin + life).into();
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &self.issuer)?;
        for (name, text) in [
            ("ca.pem", self.pem.clone()),
            ("cert.pem", cert.pem()),
            ("key.pem", key.serialize_pem()),
        ] {
            cell.write(format!("{folder}/{name}"), text)?;
        }
        Ok(())
    }
}
