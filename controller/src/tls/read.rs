//! PEM files.

use std::path::Path;

use tokio_rustls::rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use super::TlsError;

/// What we show: a chain that begins with our own certificate, and its key.
pub(super) struct Identity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
}

/// Reads our certificate and its key.
///
/// # Errors
/// When one of the files does not hold it.
pub(super) fn identity(cert: &Path, key: &Path) -> Result<Identity, TlsError> {
    let chain = certificates(cert)?;
    let key = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| TlsError(format!("no private key in {}: {error}", key.display())))?;
    Ok(Identity { chain, key })
}

/// Reads those who vouch for others.
///
/// # Errors
/// When the file holds none that can be used.
pub(super) fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    let (taken, _) = roots.add_parsable_certificates(certificates(path)?);
    match taken {
        0 => Err(TlsError(format!(
            "no usable CA certificate in {}",
            path.display()
        ))),
        _ => Ok(roots),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |error: &dyn std::fmt::Display| {
        TlsError(format!("no certificate in {}: {error}", path.display()))
    };
    let all = CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))?;
    let all: Vec<_> = all
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(&error))?;
    match all.is_empty() {
        true => Err(wrong(&"the file holds none")),
        false => Ok(all),
    }
}
