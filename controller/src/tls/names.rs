//! Whose certificate it is (RFC 5922 section 7): a SIP domain's, named by a SIP URI or, without
//! one, by a DNS name; compared as a whole, without wildcards. Common names are not looked at.
//!
//! Servers are configured by their addresses, so a certificate of that very address is as good.

use std::{net::IpAddr, sync::Arc};

use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_cert_signed_by_trust_anchor,
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};
use webpki::EndEntityCert;

/// Accepts one server: of this domain, or at this address.
#[derive(Debug)]
pub(super) struct Peer {
    domain: String,
    address: IpAddr,
    provider: Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
}

impl Peer {
    pub(super) fn new(
        domain: &str,
        address: IpAddr,
        provider: &Arc<CryptoProvider>,
        roots: &Arc<RootCertStore>,
    ) -> Self {
        Self {
            domain: domain.to_owned(),
            address,
            provider: provider.clone(),
            roots: roots.clone(),
        }
    }
}

impl ServerCertVerifier for Peer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let algorithms = self.provider.signature_verification_algorithms.all;
        let parsed = ParsedCertificate::try_from(end_entity)?;
        verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &self.roots,
            intermediates,
            now,
            algorithms,
        )?;
        let cert = EndEntityCert::try_from(end_entity)
            .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        match is_of(&cert, &self.domain) || is_at(&cert, self.address) {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(Error::General(format!(
                "the certificate is neither of {} nor of {}: it names {}",
                self.domain,
                self.address,
                named(&cert)
            ))),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

/// The names of a certificate, for people.
fn named(cert: &EndEntityCert<'_>) -> String {
    let names: Vec<&str> = cert
        .valid_uri_names()
        .chain(cert.valid_dns_names())
        .collect();
    match names.is_empty() {
        true => "nobody".to_owned(),
        false => names.join(", "),
    }
}

/// Whether the certificate is the domain's: DNS names count only where no SIP URI names one.
fn is_of(cert: &EndEntityCert<'_>, domain: &str) -> bool {
    let mut uris = cert.valid_uri_names().filter_map(sip_domain).peekable();
    if uris.peek().is_some() {
        return uris.any(|named| named.eq_ignore_ascii_case(domain));
    }
    cert.valid_dns_names()
        .any(|named| named.eq_ignore_ascii_case(domain))
}

/// The domain of a SIP URI that names one: nothing but scheme and host.
fn sip_domain(uri: &str) -> Option<&str> {
    let (scheme, rest) = uri.split_once(':')?;
    let sip = scheme.eq_ignore_ascii_case("sip") || scheme.eq_ignore_ascii_case("sips");
    (sip && !rest.contains('@')).then(|| rest.split([';', '?']).next().unwrap_or(rest))
}

fn is_at(cert: &EndEntityCert<'_>, address: IpAddr) -> bool {
    let name = ServerName::IpAddress(address.into());
    cert.verify_is_valid_for_subject_name(&name).is_ok()
}
