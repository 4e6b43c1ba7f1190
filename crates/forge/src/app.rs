//! Tokens of a GitHub App (docs.github.com/apps: "Generating a JSON Web Token", "Authenticating as an
//! installation"). A signed JWT, which is valid for minutes, requests a token, which is valid for an hour.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::error::KeyRejected;
use ring::rand::SystemRandom;
use ring::rsa::KeyPair;
use ring::signature::RSA_PKCS1_SHA256;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::{self, PemObject};

/// How long a JWT is valid, in seconds: GitHub accepts ten minutes at most.
const HOLDS_S: u64 = 540;
/// How much earlier a JWT is dated, in seconds, because clocks differ.
const EARLIER_S: u64 = 60;

/// An App, and the installations whose tokens are used.
#[derive(Clone)]
pub struct GitHubApp {
    /// The App's client id, or its number.
    issuer: String,
    key: Arc<KeyPair>,
    /// Numbers of installations; all, if there are none.
    pub(crate) installations: Vec<u64>,
}

impl fmt::Debug for GitHubApp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GitHubApp({}, {:?})", self.issuer, self.installations)
    }
}

/// Why the private key of a GitHub App cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// It is not PEM.
    #[error("the private key of a GitHub App: {0}")]
    NoPem(pem::Error),
    /// It is a key of another kind.
    #[error("the private key of a GitHub App: it is no RSA key")]
    NoRsa,
    /// It is refused.
    #[error("the private key of a GitHub App: {0}")]
    Rejected(KeyRejected),
    /// Signing with it fails.
    #[error("the private key of a GitHub App cannot sign")]
    CannotSign,
}

impl GitHubApp {
    /// Returns the App `issuer`, with its private key in PEM as GitHub issues it.
    ///
    /// # Errors
    /// If that is no RSA key.
    pub fn new(issuer: &str, pem: &[u8], installations: Vec<u64>) -> Result<GitHubApp, AppError> {
        let key = match PrivateKeyDer::from_pem_slice(pem).map_err(AppError::NoPem)? {
            PrivateKeyDer::Pkcs1(key) => KeyPair::from_der(key.secret_pkcs1_der()),
            PrivateKeyDer::Pkcs8(key) => KeyPair::from_pkcs8(key.secret_pkcs8_der()),
            _ => return Err(AppError::NoRsa),
        };
        let key = key.map_err(AppError::Rejected)?;
        Ok(GitHubApp { issuer: issuer.to_owned(), key: Arc::new(key), installations })
    }

    /// Returns a JWT for `now`, in seconds since 1970 (RFC 7519, RS256).
    pub(crate) fn word(&self, now: u64) -> Result<String, AppError> {
        let claims = serde_json::json!({ "iat": now.saturating_sub(EARLIER_S), "exp": now + HOLDS_S,
            "iss": self.issuer });
        let text = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(r#"{"alg":"RS256","typ":"JWT"}"#),
            URL_SAFE_NO_PAD.encode(claims.to_string())
        );
        let mut signature = vec![0; self.key.public().modulus_len()];
        self.key
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature)
            .map_err(|_| AppError::CannotSign)?;
        Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}
