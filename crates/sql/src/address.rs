//! The address of a PostgreSQL server and how it is trusted: URLs in the format of libpq.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use postgres::config::{Host, SslMode};
use postgres::{Client, Config, NoTls};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::{Error, Result};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A server that acknowledges nothing for so long is gone.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(30);
const _: () = assert!(
    CONNECT_TIMEOUT.as_secs() <= UNACKNOWLEDGED_MAX.as_secs(),
    "a new connection is given up no later"
);

/// How a server's certificate is checked (libpq's `sslmode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    /// `disable`
    Plain,
    /// `prefer`, `require`: encrypted, with any certificate.
    Anybody,
    /// `verify-ca`, `verify-full`: both check the name, too.
    Verified,
}

/// A server, its database and how it is trusted.
pub struct DatabaseAddress {
    config: Config,
    trust: Trust,
    root_certificates: Option<PathBuf>,
}

impl DatabaseAddress {
    pub fn parse(url: &str) -> Result<DatabaseAddress> {
        let bad = |why: String| Error::BadUrl { url: redacted(url), why };
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(bad("it must start with postgres://".to_owned()));
        }
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut kept, mut mode, mut root_certificates, mut password_file) = (Vec::new(), None, None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("sslmode", value) => mode = Some(value.to_owned()),
                ("sslrootcert", value) => root_certificates = Some(PathBuf::from(decoded(value))),
                (key, _) if decoded(key) == "password" => {
                    return Err(bad("put the password before the host, or in a passfile".to_owned()));
                }
                ("passfile", value) => password_file = Some(PathBuf::from(decoded(value))),
                _ => kept.push(pair),
            }
        }
        let rest = if kept.is_empty() { base.to_owned() } else { format!("{base}?{}", kept.join("&")) };
        let mut config: Config =
            rest.parse().map_err(|e: postgres::Error| bad(Error::from(e).to_string()))?;
        let (ssl_mode, trust) = match mode.as_deref() {
            Some("disable") => (SslMode::Disable, Trust::Plain),
            None | Some("prefer") => (SslMode::Prefer, Trust::Anybody),
            // As in libpq: a URL that names a root certificate wants it checked.
            Some("require") if root_certificates.is_some() => (SslMode::Require, Trust::Verified),
            Some("require") => (SslMode::Require, Trust::Anybody),
            Some("verify-ca" | "verify-full") => (SslMode::Require, Trust::Verified),
            Some(other) => {
                return Err(bad(format!(
                    "sslmode is disable, prefer, require, verify-ca or verify-full, not '{other}'"
                )));
            }
        };
        config.ssl_mode(ssl_mode).tcp_user_timeout(UNACKNOWLEDGED_MAX);
        config.keepalives_idle(UNACKNOWLEDGED_MAX / 2).keepalives_interval(UNACKNOWLEDGED_MAX / 6);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_application_name().is_none() {
            config.application_name("weir");
        }
        if config.get_user().is_none() {
            return Err(bad("it names no user".to_owned()));
        }
        if let (Some(file), None) = (password_file, config.get_password()) {
            let text = std::fs::read_to_string(&file)
                .map_err(|e| bad(format!("its passfile {}: {e}", file.display())))?;
            match password_of(&text, &config) {
                Some(password) => config.password(password),
                None => return Err(bad(format!("its passfile {} has no line for it", file.display()))),
            };
        }
        Ok(DatabaseAddress { config, trust, root_certificates })
    }

    pub fn connect(&self) -> Result<Client> {
        let connected = match self.trust {
            Trust::Plain => self.config.connect(NoTls),
            Trust::Anybody => self.config.connect(MakeRustlsConnect::new(self.unverified()?)),
            Trust::Verified => self.config.connect(MakeRustlsConnect::new(self.verified()?)),
        };
        connected.map_err(|e| Error::Unreachable { place: self.place(), why: Error::from(e).to_string() })
    }

    fn unverified(&self) -> Result<ClientConfig> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(Error::Tls)?;
        Ok(builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth())
    }

    fn verified(&self) -> Result<ClientConfig> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(Error::Tls)?;
        let Some(path) = &self.root_certificates else {
            return Ok(builder.with_platform_verifier().map_err(Error::Tls)?.with_no_client_auth());
        };
        let unreadable = |e: String| Error::BadUrl {
            url: self.place(),
            why: format!("its sslrootcert {}: {e}", path.display()),
        };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(path).map_err(|e| unreadable(e.to_string()))? {
            roots.add(certificate.map_err(|e| unreadable(e.to_string()))?).map_err(Error::Tls)?;
        }
        if roots.is_empty() {
            return Err(unreadable("no certificate in it".to_owned()));
        }
        Ok(builder.with_root_certificates(roots).with_no_client_auth())
    }

    fn place(&self) -> String {
        match self.config.get_hosts().first() {
            Some(Host::Tcp(host)) => format!("postgres://{host}"),
            Some(Host::Unix(path)) => format!("postgres://{}", path.display()),
            None => "postgres://".to_owned(),
        }
    }
}

/// Connects to the PostgreSQL server at `url`, with weir's certificates and limits of time.
///
/// # Errors
/// If `url` is malformed, or the server cannot be reached.
pub fn connect_postgres(url: &str) -> Result<Client> {
    DatabaseAddress::parse(url)?.connect()
}

/// Checks the `url` of a database, without connecting to it.
///
/// # Errors
/// If it is not a valid URL, or names a file that cannot be read.
pub fn check_url(url: &str) -> Result<()> {
    DatabaseAddress::parse(url).map(drop)
}

/// Returns the `url` of a database without its password.
#[must_use]
pub fn redacted(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return redacted_words(url) };
    let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let host = rest.find('/').unwrap_or(rest.len());
    // A password may have any character: the last '@' before the path ends it.
    let at = rest[..host].rfind('@').or_else(|| rest.rfind('@'));
    let user = at.and_then(|at| Some((rest[..at].split_once(':')?.0, at)));
    let shown = match user {
        Some((user, at)) => format!("{scheme}://{user}@{}", &rest[at + 1..]),
        None => format!("{scheme}://{rest}"),
    };
    let Some(query) = query else { return shown };
    let pairs = query.split('&').filter_map(|pair| {
        let (name, _) = pair.split_once('=').unwrap_or((pair, ""));
        match decoded(name).as_str() {
            name if PUBLIC_OPTIONS.contains(&name) => Some(pair.to_owned()),
            name if name.eq_ignore_ascii_case("password") => None,
            _ => Some(format!("{name}=***")),
        }
    });
    let pairs = pairs.collect::<Vec<_>>().join("&");
    if pairs.is_empty() { shown } else { format!("{shown}?{pairs}") }
}

/// The options of a URL that hold no secret.
const PUBLIC_OPTIONS: [&str; 11] = [
    "channel_binding",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "passfile",
    "port",
    "sslmode",
    "sslrootcert",
    "user",
];

/// Returns the text of options in libpq's other form, `host=h password=p`, without values that may be secret.
fn redacted_words(text: &str) -> String {
    if !text.contains('=') {
        return text.to_owned();
    }
    let mut shown = Vec::new();
    for word in text.split_whitespace() {
        match word.split_once('=') {
            Some((name, _)) if PUBLIC_OPTIONS.contains(&name) => shown.push(word.to_owned()),
            Some((name, _)) => shown.push(format!("{name}=***")),
            // The rest of a value with blanks in it.
            None => {}
        }
    }
    shown.join(" ")
}

fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Returns the password for `config` in a file of lines `host:port:database:user:password`
/// (<https://www.postgresql.org/docs/current/libpq-pgpass.html>).
fn password_of(text: &str, config: &Config) -> Option<String> {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(host)) => host.clone(),
        Some(Host::Unix(_)) | None => "localhost".to_owned(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432).to_string();
    let user = config.get_user().unwrap_or_default();
    let wanted = [host.as_str(), port.as_str(), config.get_dbname().unwrap_or(user), user];
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut fields = vec![String::new()];
        let mut characters = line.chars();
        while let Some(c) = characters.next() {
            let is_last = fields.len() == 5;
            let last = fields.last_mut().expect("never empty");
            match c {
                '\\' => last.extend(characters.next()),
                ':' if !is_last => fields.push(String::new()),
                c => last.push(c),
            }
        }
        let is_it = fields.len() == 5
            && fields.iter().zip(wanted).all(|(field, wanted)| field == "*" || field == wanted);
        is_it.then(|| fields.pop().expect("five"))
    })
}

/// Accepts any certificate, as `sslmode=require` says. Signatures made with it are verified.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_as_libpq_writes_them() {
        let parsed = |url: &str| {
            DatabaseAddress::parse(url).map(|a| (a.config.get_ssl_mode(), a.trust)).map_err(|e| e.to_string())
        };
        assert_eq!(parsed("postgres://weir@h/db?sslmode=disable"), Ok((SslMode::Disable, Trust::Plain)));
        assert_eq!(parsed("postgresql://weir:secret@h:6432/db"), Ok((SslMode::Prefer, Trust::Anybody)));
        assert_eq!(
            parsed("postgres://weir@h/db?application_name=x&sslmode=verify-full"),
            Ok((SslMode::Require, Trust::Verified))
        );
        for (url, why) in [
            ("mysql://weir@h/db", "postgres://"),
            ("postgres://h/db", "no user"),
            ("postgres://weir:secret@h/db?sslmode=maybe", "'maybe'"),
            ("postgres://weir:secret@h/db?color=red", "color"),
            ("postgres://weir@h/db?passfile=/nowhere/pgpass", "/nowhere/pgpass"),
            ("postgres://weir@h/db?pass%77ord=secret", "passfile"),
        ] {
            let message = parsed(url).unwrap_err();
            assert!(message.contains(why) && !message.contains("secret"), "{message}");
        }
    }

    #[test]
    fn passwords_are_not_told() {
        assert_eq!(redacted("postgres://weir:a@b:c@h:1/db"), "postgres://weir@h:1/db");
        assert_eq!(redacted("postgres://weir:a/b@h/db"), "postgres://weir@h/db");
        assert_eq!(redacted("postgres://weir@h/db"), "postgres://weir@h/db");
        assert_eq!(redacted("postgres://h/db"), "postgres://h/db");
        let url = "postgres://a:x@h/db?sslmode=require&password=secret&PASSWORD=b&application_name=c";
        assert_eq!(redacted(url), "postgres://a@h/db?sslmode=require&application_name=***");
        assert_eq!(redacted("postgres://h/db?password=secret"), "postgres://h/db");
        assert_eq!(redacted("host=h password='a b' sslkey=k"), "host=h password=*** sslkey=***");
    }

    #[test]
    fn a_passfile_is_as_libpq_reads_it() {
        let config: Config = "postgres://weir@h:6432/db".parse().unwrap();
        let of = |text: &str| password_of(text, &config);
        assert_eq!(
            of("# h:*:*:*:no\nother:*:*:*:no\nh:6432:db:weir:a\\:b\\\\c:d\n").as_deref(),
            Some("a:b\\c:d")
        );
        assert_eq!(of("*:*:*:*:x").as_deref(), Some("x"));
        assert_eq!(of("h:5432:db:weir:x\n\nh\n"), None);
    }
}
