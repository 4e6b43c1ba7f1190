//! Which certificate authorities are believed.

use std::io;
use std::path::Path;

use rustls::CertificateError;
use ureq::tls::{PemItem, RootCerts, parse_pem};

/// Where distributions keep their certificate authorities (the places OpenSSL, Go and curl look at).
const SYSTEM_FILES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/usr/local/share/certs/ca-root-nss.crt",
];

/// Those of this system, its keeper's own among them; Mozilla's, which are compiled in, where a system has
/// none.
pub fn system_roots() -> RootCerts {
    if SYSTEM_FILES.iter().any(|file| Path::new(file).is_file()) {
        RootCerts::PlatformVerifier
    } else {
        RootCerts::WebPki
    }
}

/// Those in a file, in PEM, and no others.
///
/// # Errors
/// If it cannot be read, or holds none: why.
pub fn roots_in(file: &Path) -> Result<RootCerts, String> {
    let pem = std::fs::read(file).map_err(|e| format!("cannot read '{}': {e}", file.display()))?;
    let mut found = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) =
            item.map_err(|e| format!("'{}' is no PEM file: {e}", file.display()))?
        {
            found.push(certificate);
        }
    }
    if found.is_empty() {
        Err(format!("'{}' holds no certificate", file.display()))
    } else {
        Ok(RootCerts::new_with_certs(&found))
    }
}

/// Why a server's certificate is not believed, if that is what `error` says.
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

/// Whether `error` says that a server shows the certificate of an authority: webpki's word for it, which
/// rustls passes on as it is.
pub(crate) fn is_of_authority(error: &rustls::Error) -> bool {
    use rustls::Error::InvalidCertificate;
    let InvalidCertificate(CertificateError::Other(why)) = error else { return false };
    why.to_string() == "CaUsedAsEndEntity"
}
