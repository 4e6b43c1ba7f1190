//! The URLs git understands (git-clone(1), "GIT URLS").

use std::fmt;
use std::path::PathBuf;

/// How an upstream is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `git://`.
    Git,
    /// `http://` or `https://`; the URL without credentials and trailing slashes.
    Http {
        /// Whether over TLS.
        tls: bool,
    },
    /// `ssh://` or scp-like.
    Ssh,
    /// `file://` or a plain path.
    Local,
}

/// A parsed URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    text: String,
    /// How it is reached.
    pub scheme: Scheme,
    /// User before the host, if any.
    pub user: Option<String>,
    /// Password after the user, if any.
    pub password: Option<String>,
    /// Host; empty for local paths.
    pub host: String,
    /// Port, if one is named.
    pub port: Option<u16>,
    /// Path, with a leading slash except in scp-like URLs and relative paths.
    pub path: String,
}

/// A text that is no URL of a repository.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{url}' is not a repository URL: {why}")]
pub struct UrlError {
    /// The text.
    pub url: String,
    /// What is wrong.
    pub why: &'static str,
}

impl Url {
    /// Parses any form git does.
    ///
    /// # Errors
    /// If the scheme is unknown, or a part is missing or has characters that no part of a URL has.
    pub fn parse(text: &str) -> Result<Url, UrlError> {
        let fail = |why| Err(UrlError { url: text.to_owned(), why });
        if text.is_empty() {
            return fail("it is empty");
        }
        if text.chars().any(char::is_control) {
            return fail("it has control characters");
        }
        let Some((scheme, rest)) = text.split_once("://") else { return Url::parse_without_scheme(text) };
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "git" => Scheme::Git,
            "http" => Scheme::Http { tls: false },
            "https" => Scheme::Http { tls: true },
            "ssh" | "git+ssh" | "ssh+git" => Scheme::Ssh,
            "file" => {
                let path = rest.strip_prefix("localhost").unwrap_or(rest);
                return if path.starts_with('/') { Ok(Url::local(text, path)) } else { fail("a file URL needs an absolute path") };
            }
            _ => return fail("the scheme is none of git, http, https, ssh, file"),
        };
        let (authority, path) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => return fail("there is no path"),
        };
        let (userinfo, host_port) = authority.rsplit_once('@').map_or((None, authority), |(u, h)| (Some(u), h));
        let (host, port) = split_port(host_port).ok_or(UrlError { url: text.to_owned(), why: "the port is not a number" })?;
        if host.is_empty() {
            return fail("there is no host");
        }
        if host.starts_with('-') || userinfo.is_some_and(|u| u.starts_with('-')) {
            return fail("a host or user starting with a dash could be taken for an option");
        }
        let (user, password) = match userinfo.map(|u| u.split_once(':').map_or((u, None), |(u, p)| (u, Some(p)))) {
            Some((u, p)) => (Some(percent_decode(u)), p.map(percent_decode)),
            None => (None, None),
        };
        let path = path.trim_end_matches('/');
        if path.is_empty() {
            return fail("there is no path");
        }
        Ok(Url { text: text.to_owned(), scheme, user, password, host, port, path: path.to_owned() })
    }

    fn parse_without_scheme(text: &str) -> Result<Url, UrlError> {
        // As git: a colon before any slash makes it scp-like.
        let colon = text.find(':').filter(|c| text.find('/').is_none_or(|slash| *c < slash));
        let Some(colon) = colon else { return Ok(Url::local(text, text)) };
        let (authority, path) = (&text[..colon], &text[colon + 1..]);
        let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(u, h)| (Some(u.to_owned()), h));
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let why = if host.is_empty() || path.is_empty() {
            "host or path is missing"
        } else if host.starts_with('-') || path.starts_with('-') || user.as_deref().is_some_and(|u| u.starts_with('-')) {
            "a part starting with a dash could be taken for an option"
        } else {
            let path = path.trim_end_matches('/').to_owned();
            return Ok(Url { text: text.to_owned(), scheme: Scheme::Ssh, user, password: None, host: host.to_owned(), port: None, path });
        };
        Err(UrlError { url: text.to_owned(), why })
    }

    fn local(text: &str, path: &str) -> Url {
        let trimmed = path.trim_end_matches('/');
        let path = if trimmed.is_empty() { "/" } else { trimmed };
        Url {
            text: text.to_owned(),
            scheme: Scheme::Local,
            user: None,
            password: None,
            host: String::new(),
            port: None,
            path: path.to_owned(),
        }
    }

    /// The path of a local URL.
    pub fn local_path(&self) -> PathBuf {
        PathBuf::from(&self.path)
    }

    /// Host and port, as for a Host header: the key of limits a host.
    pub fn host_port(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        self.port.map_or(host.clone(), |p| format!("{host}:{p}"))
    }

    /// The base of an HTTP URL, without credentials.
    pub fn http_base(&self) -> String {
        let scheme = if self.scheme == (Scheme::Http { tls: true }) { "https" } else { "http" };
        format!("{scheme}://{}{}", self.host_port(), self.path)
    }

    /// The name a repository gets if none is given: host and path, without `.git`; for local paths the path alone.
    pub fn default_name(&self) -> String {
        let path = self.path.trim_matches('/');
        let path = path.strip_suffix("/.git").or_else(|| path.strip_suffix(".git")).unwrap_or(path).trim_end_matches('/');
        let parts = path.split('/').filter(|p| !p.is_empty() && *p != "." && *p != "..").map(|p| p.trim_start_matches('~'));
        let host = self.host.to_ascii_lowercase().replace(':', "_");
        let parts: Vec<&str> = std::iter::once(host.as_str()).chain(parts).filter(|p| !p.is_empty()).collect();
        parts.join("/")
    }

    /// The text as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl Url {
    /// The URL without what is only ours: a password, and a user where the upstream needs none (HTTP).
    pub fn without_userinfo(&self) -> String {
        let scheme = self.text.split("://").next().unwrap_or("");
        let is_http = matches!(self.scheme, Scheme::Http { .. });
        match (&self.user, &self.password) {
            (None, None) => self.text.clone(),
            (Some(_), None) if !is_http => self.text.clone(),
            (Some(user), Some(_)) if !is_http => format!("{scheme}://{user}@{}{}", self.host_port(), self.path),
            _ => format!("{scheme}://{}{}", self.host_port(), self.path),
        }
    }
}

impl fmt::Display for Url {
    /// The URL without its password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.password {
            None => f.write_str(&self.text),
            Some(_) => {
                let scheme = self.text.split("://").next().unwrap_or("");
                write!(f, "{scheme}://{}:***@{}{}", self.user.as_deref().unwrap_or(""), self.host_port(), self.path)
            }
        }
    }
}

fn split_port(text: &str) -> Option<(String, Option<u16>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        return match after.strip_prefix(':') {
            Some(port) => Some((host.to_owned(), Some(port.parse().ok()?))),
            None => after.is_empty().then(|| (host.to_owned(), None)),
        };
    }
    match text.rsplit_once(':') {
        Some((host, "")) => Some((host.to_owned(), None)),
        Some((host, port)) => Some((host.to_owned(), Some(port.parse().ok()?))),
        None => Some((text.to_owned(), None)),
    }
}

fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let hex = (bytes[i] == b'%').then(|| text.get(i + 1..i + 3).and_then(|h| u8::from_str_radix(h, 16).ok())).flatten();
        match hex {
            Some(byte) => {
                out.push(byte);
                i += 3;
            }
            None => {
                out.push(bytes[i]);
                i += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_git_takes() {
        let name = |text: &str| Url::parse(text).unwrap().default_name();
        assert_eq!(name("https://github.com/git/git.git"), "github.com/git/git");
        assert_eq!(name("git://Host.example:1234/a/b.git/"), "host.example/a/b");
        assert_eq!(name("git@github.com:git/git.git"), "github.com/git/git");
        assert_eq!(name("ssh://me@host:22/~me/x.git"), "host/me/x");
        assert_eq!(name("file:///srv/git/x.git"), "srv/git/x");
        assert_eq!(name("/srv/work/.git"), "srv/work");
        assert_eq!(name("../../etc/x"), "etc/x");
        let url = Url::parse("https://u%40x:p%3Aw@h:8443/r").unwrap();
        assert_eq!((url.user.as_deref(), url.password.as_deref(), url.port), (Some("u@x"), Some("p:w"), Some(8443)));
        assert_eq!(url.http_base(), "https://h:8443/r");
        assert!(!url.to_string().contains("p%3Aw"), "a password is never shown");
        for bad in ["", "ftp://h/x", "git://", "git://h", "git:///x", "http://h:x/y", "-oProxyCommand=x:y", "ssh://-oX/y", "h:-x", "a\nb:c"]
        {
            assert!(Url::parse(bad).is_err(), "{bad:?}");
        }
    }
}
