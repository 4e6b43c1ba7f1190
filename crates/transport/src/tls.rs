//! Finds the trusted certificate authorities.

use std::io;
use std::path::{Path, PathBuf};

use rustls::CertificateError;
use ureq::tls::{PemItem, RootCerts, parse_pem};

/// The files in which distributions keep their certificate authorities (as in OpenSSL, Go and curl).
const SYSTEM_FILES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/usr/local/share/certs/ca-root-nss.crt",
];

/// Returns the certificate authorities of this system, including those its operator added. If the system has
/// none, returns Mozilla's, which are compiled in.
pub fn system_roots() -> RootCerts {
    if SYSTEM_FILES.iter().any(|file| Path::new(file).is_file()) {
        RootCerts::PlatformVerifier
    } else {
        RootCerts::WebPki
    }
}

/// Why a file of certificate authorities cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RootsError {
    /// It cannot be read.
    #[error("cannot read '{}': {source}", .file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// It is not PEM (RFC 7468).
    #[error("'{}' is no PEM file: {source}", .file.display())]
    NoPem {
        /// The file.
        file: PathBuf,
        /// The reason.
        source: ureq::Error,
    },
    /// It holds no certificate.
    #[error("'{}' holds no certificate", .0.display())]
    Empty(PathBuf),
}

/// Returns only the certificate authorities in a PEM file.
///
/// # Errors
/// If it cannot be read, or holds no certificate.
pub fn roots_in(file: &Path) -> Result<RootCerts, RootsError> {
    let pem = std::fs::read(file).map_err(|source| RootsError::Read { file: file.to_owned(), source })?;
    let mut found = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) =
            item.map_err(|source| RootsError::NoPem { file: file.to_owned(), source })?
        {
            found.push(certificate);
        }
    }
    if found.is_empty() {
        Err(RootsError::Empty(file.to_owned()))
    } else {
        Ok(RootCerts::new_with_certs(&found))
    }
}

/// Returns why a server's certificate is not trusted, if that is the cause of `error`.
pub(crate) fn why_not_believed(error: &io::Error) -> Option<String> {
    let error: &rustls::Error = error.get_ref()?.downcast_ref()?;
    if is_of_authority(error) {
        return Some("it is a CA certificate (basicConstraints=CA:TRUE), not a server's".to_owned());
    }
    let rustls::Error::InvalidCertificate(why) = error else { return None };
    Some(match why {
        CertificateError::UnknownIssuer => "it was not issued by a trusted CA".to_owned(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired, by this machine's clock".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet, by this machine's clock".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another name".to_owned()
        }
        other => other.to_string(),
    })
}

/// Returns whether `error` says that a server shows a CA certificate: webpki's name for that error, which
/// rustls passes on.
pub(crate) fn is_of_authority(error: &rustls::Error) -> bool {
    use rustls::Error::InvalidCertificate;
    let InvalidCertificate(CertificateError::Other(why)) = error else { return false };
    why.to_string() == "CaUsedAsEndEntity"
}
