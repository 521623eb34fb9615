//! TLS for SIP: certificates from files, who may be whom (RFC 5922), and both sides' settings.
//!
//! A [`Tls`] is what was read at one moment. Reading again makes another one: connections that
//! exist keep theirs, later ones get the new one, so that a certificate is renewed without a
//! restart.

mod names;
mod read;

use std::{net::IpAddr, path::PathBuf, sync::Arc};

use tokio_rustls::{
    TlsAcceptor, TlsConnector,
    rustls::{
        self, ClientConfig, RootCertStore, ServerConfig,
        client::WantsClientCert,
        crypto::{CryptoProvider, ring},
        server::WebPkiClientVerifier,
    },
};

/// What certificates phones and softswitches that connect must show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientCertificates {
    /// None is asked for.
    Off,
    /// Who shows one must show one that our `ca` vouches for.
    Optional,
    /// Without one nobody gets in.
    Required,
}

/// Where everything is, all of it PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// Our certificate, and the intermediate ones behind it.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Who vouches for others.
    pub ca: PathBuf,
    /// What those who connect must show.
    pub clients: ClientCertificates,
}

/// Why there is no TLS: one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(String);

/// Settings for both directions, read from files once.
#[derive(Clone)]
pub struct Tls {
    server: Arc<ServerConfig>,
    provider: Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
    shown: Arc<read::Identity>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls") // holds a private key
    }
}

impl Tls {
    /// Reads and checks the files.
    ///
    /// # Errors
    /// When one cannot be read, or the key is not the certificate's.
    pub fn load(files: &Files) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let roots = Arc::new(read::roots(&files.ca)?);
        let shown = Arc::new(read::identity(&files.cert, &files.key)?);
        let server = server(files, &provider, &roots, &shown)?;
        Ok(Self {
            server: Arc::new(server),
            provider,
            roots,
            shown,
        })
    }

    /// For connections that others open.
    #[must_use]
    pub fn acceptor(&self) -> TlsAcceptor {
        self.server.clone().into()
    }

    /// For a connection to a server of this domain: it must show a certificate of the domain, or
    /// of its address (RFC 5922 section 7). The domain is what it is told as server name.
    ///
    /// # Errors
    /// When no certificate can be shown to it.
    pub fn connector(&self, domain: &str, address: IpAddr) -> Result<TlsConnector, TlsError> {
        let verifier = names::Peer::new(domain, address, &self.provider, &self.roots);
        let builder = ClientConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let shown = self.shown.clone();
        let config = with_certificate(builder, &shown)?;
        Ok(Arc::new(config).into())
    }
}

fn with_certificate(
    builder: rustls::ConfigBuilder<ClientConfig, WantsClientCert>,
    shown: &read::Identity,
) -> Result<ClientConfig, TlsError> {
    builder
        .with_client_auth_cert(shown.chain.clone(), shown.key.clone_key())
        .map_err(|error| TlsError(error.to_string()))
}

fn server(
    files: &Files,
    provider: &Arc<CryptoProvider>,
    roots: &Arc<RootCertStore>,
    shown: &read::Identity,
) -> Result<ServerConfig, TlsError> {
    let wrong = |error: &dyn std::fmt::Display| {
        let cert = files.cert.display();
        TlsError(format!(
            "{cert} and {} do not fit: {error}",
            files.key.display()
        ))
    };
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&error))?;
    let verifier = || WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
    let built = match files.clients {
        ClientCertificates::Off => None,
        ClientCertificates::Optional => Some(verifier().allow_unauthenticated().build()),
        ClientCertificates::Required => Some(verifier().build()),
    };
    let builder = match built {
        None => builder.with_no_client_auth(),
        Some(Ok(verifier)) => builder.with_client_cert_verifier(verifier),
        Some(Err(error)) => return Err(wrong(&error)),
    };
    builder
        .with_single_cert(shown.chain.clone(), shown.key.clone_key())
        .map_err(|error| wrong(&error))
}

#[cfg(test)]
mod tests;
