//! Certificates for HTTPS (rustls); they are read again when their files change.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig, crypto::ring};

/// How often the files are checked for changes.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// A certificate with its key.
#[derive(Clone, Debug)]
pub struct Tls {
    files: Arc<Files>,
}

#[derive(Debug)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
    loaded: Mutex<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    config: Arc<ServerConfig>,
    stamps: [Option<SystemTime>; 2],
    looked: Instant,
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read, or is not PEM.
    #[error("'{}': {source}", .file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The reason.
        source: pem::Error,
    },
    /// The file has none.
    #[error("'{}': there is no certificate in it", .0.display())]
    Empty(PathBuf),
    /// It is not usable, or does not belong to its key.
    #[error("'{}': {source}", .file.display())]
    Unusable {
        /// The file of the certificate.
        file: PathBuf,
        /// The reason.
        source: rustls::Error,
    },
}

impl Tls {
    /// Reads a chain of certificates, the server's own first, and its key, both in PEM.
    ///
    /// # Errors
    /// If a file cannot be read, or the two do not belong together.
    pub fn load(certificate: &Path, key: &Path) -> Result<Tls, CertificateError> {
        let stamps = stamps(certificate, key);
        let config = read(certificate, key)?;
        let loaded = Mutex::new(Loaded { config, stamps, looked: Instant::now() });
        Ok(Tls {
            files: Arc::new(Files { certificate: certificate.to_owned(), key: key.to_owned(), loaded }),
        })
    }

    /// Returns the current configuration. Reads files that changed; if that fails, the last one stays in
    /// force.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        let mut loaded = self.files.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if loaded.looked.elapsed() >= LOOK_AGAIN {
            loaded.looked = Instant::now();
            let now = stamps(&self.files.certificate, &self.files.key);
            if now != loaded.stamps {
                loaded.stamps = now;
                match read(&self.files.certificate, &self.files.key) {
                    Ok(config) => {
                        tracing::info!("reloaded certificate {}", self.files.certificate.display());
                        loaded.config = config;
                    }
                    Err(e) => tracing::error!("cannot reload the certificate, keeping the current one: {e}"),
                }
            }
        }
        loaded.config.clone()
    }
}

fn stamps(certificate: &Path, key: &Path) -> [Option<SystemTime>; 2] {
    [certificate, key].map(|path| std::fs::metadata(path).and_then(|m| m.modified()).ok())
}

fn read(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, CertificateError> {
    let no_pem = |path: &Path| {
        let file = path.to_owned();
        |source| CertificateError::File { file, source }
    };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(no_pem(certificate))?;
    if chain.is_empty() {
        return Err(CertificateError::Empty(certificate.to_owned()));
    }
    let secret = PrivateKeyDer::from_pem_file(key).map_err(no_pem(key))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, secret))
        .map_err(|source| CertificateError::Unusable { file: certificate.to_owned(), source })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec(), b"http/1.0".to_vec()];
    Ok(Arc::new(config))
}

/// Returns the error of a failed handshake for the log.
pub(crate) fn handshake(e: io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("TLS: {e}"))
}
