//! Both sides over a pipe, with certificates of an authority of our own.

use std::{path::Path, time::Duration};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, IsCa, Issuer, KeyPair, SanType,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio_rustls::rustls::pki_types::ServerName;

use super::*;

const DOMAIN: &str = "example.test";
const ADDRESS: &str = "192.0.2.10";

/// An authority, and a folder for its files.
struct World {
    issuer: Issuer<'static, KeyPair>,
    folder: std::path::PathBuf,
}

fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().unwrap())
}

fn dns(text: &str) -> SanType {
    SanType::DnsName(text.try_into().unwrap())
}

impl World {
    fn new(name: &str) -> Self {
        let name = format!("keepline-tls-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        let key = KeyPair::generate().unwrap();
        let cert = params.self_signed(&key).unwrap();
        std::fs::write(folder.join("ca.pem"), cert.pem()).unwrap();
        Self {
            issuer: Issuer::new(params, key),
            folder,
        }
    }

    /// Files of a gateway or a softswitch with these names, valid until `ends` after now.
    fn files(&self, name: &str, names: Vec<SanType>, ends: i64) -> Files {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = names;
        let now = std::time::SystemTime::now();
        params.not_before = (now - Duration::from_secs(7200)).into();
        params.not_after = (now - Duration::from_secs(3600)).into();
        params.not_after += Duration::from_secs(3600) * u32::try_from(ends + 1).unwrap();
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        let file = |ending: &str| self.folder.join(format!("{name}.{ending}"));
        std::fs::write(file("crt"), cert.pem()).unwrap();
        std::fs::write(file("key"), key.serialize_pem()).unwrap();
        Files {
            cert: file("crt"),
            key: file("key"),
            ca: self.folder.join("ca.pem"),
            clients: ClientCertificates::Off,
        }
    }

    fn ours(&self) -> Tls {
        Tls::load(&self.files("gateway", vec![dns("branch.example.test")], 1)).unwrap()
    }

    /// What a server with these names gets from us, as a softswitch of [`DOMAIN`].
    async fn server_with(&self, names: Vec<SanType>, ends: i64) -> Result<(), String> {
        let server = Tls::load(&self.files("server", names, ends)).unwrap();
        shake(&self.ours(), &server).await
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// One connects to the other, and each says a word.
async fn shake(from: &Tls, to: &Tls) -> Result<(), String> {
    let (near, away) = duplex(64 << 10);
    let acceptor = to.acceptor();
    let server = tokio::spawn(async move {
        let mut stream = acceptor.accept(away).await.map_err(|e| e.to_string())?;
        let mut word = [0; 4];
        stream
            .read_exact(&mut word)
            .await
            .map_err(|e| e.to_string())?;
        stream.write_all(&word).await.map_err(|e| e.to_string())
    });
    let connector = from.connector(DOMAIN, ADDRESS.parse().unwrap()).unwrap();
    let name = ServerName::try_from(DOMAIN).unwrap();
    let mut stream = connector
        .connect(name, near)
        .await
        .map_err(|e| e.to_string())?;
    stream.write_all(b"word").await.map_err(|e| e.to_string())?;
    let mut word = [0; 4];
    stream
        .read_exact(&mut word)
        .await
        .map_err(|e| e.to_string())?;
    server.await.unwrap()
}

#[tokio::test]
async fn em3_a_server_shows_a_certificate_of_its_domain_or_of_its_address() {
    let world = World::new("names");
    let ip = SanType::IpAddress(ADDRESS.parse().unwrap());
    for (names, taken) in [
        (vec![uri("sip:example.test")], true),
        (vec![uri("SIP:Example.Test")], true),
        (vec![dns("example.test")], true),
        (vec![dns("other.test"), dns("EXAMPLE.test")], true),
        (vec![ip], true),
        (
            vec![SanType::IpAddress("192.0.2.11".parse().unwrap())],
            false,
        ),
        (vec![dns("*.example.test"), dns("ss1.example.test")], false),
        (vec![uri("sip:alice@example.test")], false),
        (vec![uri("https://example.test")], false),
        // A SIP URI says whose it is: DNS names say nothing then.
        (vec![uri("sip:other.test"), dns("example.test")], false),
        (Vec::new(), false),
    ] {
        let shown = format!("{names:?}");
        let met = world.server_with(names, 1).await;
        assert_eq!(met.is_ok(), taken, "{shown}: {met:?}");
    }
}

#[tokio::test]
async fn em3_a_wrong_name_is_told_with_what_was_shown() {
    let world = World::new("wrong");
    let why = world
        .server_with(vec![dns("other.test")], 1)
        .await
        .unwrap_err();
    assert!(
        why.contains("neither of example.test nor of 192.0.2.10"),
        "{why}"
    );
    assert!(why.contains("it names other.test"), "{why}");
}

#[tokio::test]
async fn em3_an_expired_certificate_and_a_foreign_authority_are_refused() {
    let world = World::new("expired");
    let why = world.server_with(vec![dns(DOMAIN)], -1).await.unwrap_err();
    assert!(why.to_lowercase().contains("expired"), "{why}");
    let other = World::new("foreign");
    let server = Tls::load(&other.files("server", vec![dns(DOMAIN)], 1)).unwrap();
    let why = shake(&world.ours(), &server).await.unwrap_err();
    // Both authorities have the same name: only the signature tells them apart.
    assert!(why.contains("BadSignature"), "{why}");
}

#[tokio::test]
async fn em3_client_certificates_are_checked_where_they_are_asked_for() {
    let (world, other) = (World::new("clients"), World::new("clients-foreign"));
    let stranger = |ca: &Path| {
        let mut files = other.files("gateway", vec![dns("branch.example.test")], 1);
        files.ca = ca.to_owned();
        Tls::load(&files).unwrap()
    };
    for (clients, strangers) in [
        (ClientCertificates::Off, true),
        (ClientCertificates::Optional, false),
        (ClientCertificates::Required, false),
    ] {
        let mut files = world.files("server", vec![dns(DOMAIN)], 1);
        files.clients = clients;
        let server = Tls::load(&files).unwrap();
        assert_eq!(shake(&world.ours(), &server).await, Ok(()), "{clients:?}");
        let met = shake(&stranger(&files.ca), &server).await;
        assert_eq!(met.is_ok(), strangers, "{clients:?}: {met:?}");
    }
}

#[test]
fn what_does_not_fit_is_told_with_its_file() {
    let world = World::new("files");
    let good = world.files("gateway", vec![dns(DOMAIN)], 1);
    let other = world.files("other", vec![dns(DOMAIN)], 1);
    let missing = Path::new("/nonexistent.pem").to_owned();
    for (files, told) in [
        (
            Files {
                key: other.key.clone(),
                ..good.clone()
            },
            "do not fit",
        ),
        (
            Files {
                cert: good.key.clone(),
                ..good.clone()
            },
            "no certificate in",
        ),
        (
            Files {
                key: good.cert.clone(),
                ..good.clone()
            },
            "no private key in",
        ),
        (
            Files {
                ca: missing,
                ..good.clone()
            },
            "/nonexistent.pem",
        ),
    ] {
        let why = Tls::load(&files).unwrap_err().to_string();
        assert!(why.contains(told), "{why}");
    }
    assert!(Tls::load(&good).is_ok());
}
