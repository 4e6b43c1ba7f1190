//! Which certificate authorities are believed.

use std::path::Path;

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

/// Those of this system, its keeper's own among them; Mozilla's, which are compiled in, where a system has none.
pub fn system_roots() -> RootCerts {
    if SYSTEM_FILES.iter().any(|file| Path::new(file).is_file()) { RootCerts::PlatformVerifier } else { RootCerts::WebPki }
}

/// Those in a file, in PEM, and no others.
///
/// # Errors
/// If it cannot be read, or holds none: why.
pub fn roots_in(file: &Path) -> Result<RootCerts, String> {
    let pem = std::fs::read(file).map_err(|e| format!("cannot read '{}': {e}", file.display()))?;
    let mut found = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) = item.map_err(|e| format!("'{}' is no PEM file: {e}", file.display()))? {
            found.push(certificate);
        }
    }
    if found.is_empty() { Err(format!("'{}' holds no certificate", file.display())) } else { Ok(RootCerts::new_with_certs(&found)) }
}
