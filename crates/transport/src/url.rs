//! Parses the URLs that git understands (git-clone(1), "GIT URLS").

use std::fmt;
use std::path::PathBuf;

use weir_ground::without_password;

/// The protocol of an upstream.
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

impl Scheme {
    /// Returns the part of a URL before `://`.
    pub fn name(&self) -> &'static str {
        match self {
            Scheme::Git => "git",
            Scheme::Http { tls: true } => "https",
            Scheme::Http { tls: false } => "http",
            Scheme::Ssh => "ssh",
            Scheme::Local => "file",
        }
    }
}

/// A parsed URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    text: String,
    /// The protocol.
    pub scheme: Scheme,
    /// The user before the host, if any.
    pub user: Option<String>,
    /// The password after the user, if any.
    pub password: Option<String>,
    /// The host; empty for local paths.
    pub host: String,
    /// The port, if given.
    pub port: Option<u16>,
    /// The path, with a leading slash except in scp-like URLs and relative paths. For HTTP, it is as given;
    /// for other protocols, decoded.
    pub path: String,
}

/// A text that is not a repository URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{}' is not a repository URL: {why}", shown(.url))]
pub struct UrlError {
    /// The text, which may hold a password.
    pub url: String,
    /// What is wrong.
    pub why: &'static str,
}

/// The maximum number of characters of an invalid URL that are shown.
const SHOWN_CHARS_MAX: usize = 200;

/// Returns an invalid URL for messages: without a possible password, and shortened.
fn shown(text: &str) -> String {
    let whole = without_password(text);
    match whole.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((at, _)) => format!("{}...", &whole[..at]),
        None => whole,
    }
}

impl Url {
    /// Parses any form that git accepts.
    ///
    /// # Errors
    /// If the scheme is unknown, or a part is missing or has invalid characters.
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
                if !path.starts_with('/') {
                    return fail("a file URL needs an absolute path");
                }
                return match percent_decode(path) {
                    Some(path) => Ok(Url::local(text, &path)),
                    None => fail(UNDECODABLE),
                };
            }
            _ => return fail("the scheme is none of git, http, https, ssh, file"),
        };
        let (authority, path) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => return fail("there is no path"),
        };
        let (userinfo, host_port) =
            authority.rsplit_once('@').map_or((None, authority), |(u, h)| (Some(u), h));
        let (host, port) = split_port(host_port)
            .ok_or(UrlError { url: text.to_owned(), why: "the port is not a number" })?;
        if host.is_empty() {
            return fail("there is no host");
        }
        let (user, password) =
            userinfo.map(|u| u.split_once(':').map_or((u, None), |(u, p)| (u, Some(p)))).unzip();
        let is_http = matches!(scheme, Scheme::Http { .. });
        let path = path.trim_end_matches('/');
        let path = match (is_http, path) {
            (true, path) => Some(path.to_owned()),
            (false, "") => Some("/".to_owned()),
            (false, path) => percent_decode(path),
        };
        let (Some(user), Some(password), Some(host), Some(path)) = (
            user.map_or(Some(None), |u| percent_decode(u).map(Some)),
            password.flatten().map_or(Some(None), |p| percent_decode(p).map(Some)),
            percent_decode(&host),
            path,
        ) else {
            return fail(UNDECODABLE);
        };
        Url { text: text.to_owned(), scheme, user, password, host, port, path }.checked()
    }

    /// Checks the parts after decoding, as they are passed to programs and in line-based protocols.
    fn checked(self) -> Result<Url, UrlError> {
        let user = self.user.as_deref().unwrap_or_default();
        let why = if self.host.starts_with('-') || user.starts_with('-') {
            "a host or user starting with a dash could be taken for an option"
        } else if !self.host.chars().all(|c| c.is_alphanumeric() || ".-_:%".contains(c)) {
            "the host has invalid characters"
        } else if self.scheme == Scheme::Ssh
            && (user.contains(|c| "'`\";&<>|(){}".contains(c)) || user.contains(" -") || user.ends_with('\\'))
        {
            // As OpenSSH since 9.6: a configured ProxyCommand may pass it to a shell.
            "the user has characters that are special to a shell"
        } else {
            return Ok(self);
        };
        Err(UrlError { url: self.text, why })
    }

    fn parse_without_scheme(text: &str) -> Result<Url, UrlError> {
        // As in git, a colon before any slash makes it scp-like; colons in brackets do not count.
        let bracket = if text.starts_with('[') { Some(0) } else { text.find("@[").map(|at| at + 1) };
        let bracket = bracket.filter(|at| text.find('/').is_none_or(|slash| *at < slash));
        let after = bracket.and_then(|at| Some(at + text[at..].find(']')?)).unwrap_or(0);
        let colon = text[after..]
            .find(':')
            .map(|c| c + after)
            .filter(|c| text[after..].find('/').is_none_or(|slash| *c < slash + after));
        let Some(colon) = colon else { return Ok(Url::local(text, text)) };
        let (authority, path) = (&text[..colon], &text[colon + 1..]);
        // "[user@host:port]:path", "user@[address]:path", "[address]:path".
        let is_whole = bracket == Some(0);
        let authority =
            if is_whole { authority.trim_start_matches('[').trim_end_matches(']') } else { authority };
        let (user, host) =
            authority.rsplit_once('@').map_or((None, authority), |(u, h)| (Some(u.to_owned()), h));
        let (host, port) = match host.split_once(':') {
            Some((host, port)) if is_whole && !host.is_empty() && port.parse::<u16>().is_ok() => {
                (host, port.parse().ok())
            }
            _ => (host.trim_start_matches('[').trim_end_matches(']'), None),
        };
        let fail = |why| Err(UrlError { url: text.to_owned(), why });
        if host.is_empty() || path.is_empty() {
            return fail("host or path is missing");
        }
        if path.starts_with('-') {
            return fail("a path starting with a dash could be taken for an option");
        }
        let path = path.trim_end_matches('/').to_owned();
        Url {
            text: text.to_owned(),
            scheme: Scheme::Ssh,
            user,
            password: None,
            host: host.to_owned(),
            port,
            path,
        }
        .checked()
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

    /// Returns the path of a local URL.
    pub fn local_path(&self) -> PathBuf {
        PathBuf::from(&self.path)
    }

    /// Returns host and port, as for a Host header: the key of limits per host.
    pub fn host_port(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        self.port.map_or(host.clone(), |p| format!("{host}:{p}"))
    }

    /// Returns the base of an HTTP URL, without credentials. What no URL may hold as it is, is escaped.
    pub fn http_base(&self) -> String {
        let scheme = if self.scheme == (Scheme::Http { tls: true }) { "https" } else { "http" };
        let mut base = format!("{scheme}://{}", self.host_port());
        for byte in self.path.bytes() {
            // As git's url.c, `http_quote`: the escapes that are there stay.
            match byte {
                b' ' | b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | 0x80.. => {
                    base += &format!("%{byte:02X}");
                }
                byte => base.push(char::from(byte)),
            }
        }
        base
    }

    /// Returns the path of an HTTP URL without its query, and whether it has one: there may be a token in it.
    fn path_without_query(&self) -> (&str, bool) {
        match (&self.scheme, self.path.split_once('?')) {
            (Scheme::Http { .. }, Some((path, _))) => (path, true),
            _ => (&self.path, false),
        }
    }

    /// Returns the name that a repository gets if none is given: host and path, without `.git`; for local
    /// paths, the path alone. It is decoded for every protocol, so that each finds it under the same path.
    pub fn default_name(&self) -> String {
        let (path, _) = self.path_without_query();
        let decoded = match self.scheme {
            Scheme::Http { .. } => percent_decode(path),
            _ => None,
        };
        let path = decoded.as_deref().unwrap_or(path).trim_matches('/');
        let path = path
            .strip_suffix("/.git")
            .or_else(|| path.strip_suffix(".git"))
            .unwrap_or(path)
            .trim_end_matches('/');
        let parts = path.split('/').filter(|p| !p.is_empty() && *p != "." && *p != "..");
        let host = self.host.to_ascii_lowercase().replace(':', "_");
        let parts: Vec<&str> =
            std::iter::once(host.as_str()).chain(parts).filter(|p| !p.is_empty()).collect();
        parts.join("/")
    }

    /// Returns the text as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl Url {
    /// Returns the URL without its password. For HTTP, the user is removed, too: tokens may stand in its
    /// place.
    pub fn without_userinfo(&self) -> String {
        let scheme = self.text.split("://").next().unwrap_or("");
        let is_http = matches!(self.scheme, Scheme::Http { .. });
        let (path, has_query) = self.path_without_query();
        if has_query {
            return format!("{scheme}://{}{path}?***", self.host_port());
        }
        match (&self.user, &self.password) {
            (None, None) => self.text.clone(),
            (Some(_), None) if !is_http => self.text.clone(),
            (Some(user), Some(_)) if !is_http => {
                format!("{scheme}://{user}@{}{}", self.host_port(), self.path)
            }
            _ => format!("{scheme}://{}{}", self.host_port(), self.path),
        }
    }
}

impl fmt::Display for Url {
    /// [`Url::without_userinfo`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.without_userinfo())
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

const UNDECODABLE: &str = "its %XX escapes decode to invalid UTF-8 or control characters";

/// Decodes %XX; returns `None` if the result is not UTF-8 or has control characters.
fn percent_decode(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let hex = (bytes[i] == b'%')
            .then(|| text.get(i + 1..i + 3).and_then(|h| u8::from_str_radix(h, 16).ok()))
            .flatten();
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
    String::from_utf8(out).ok().filter(|text| !text.chars().any(char::is_control))
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
        assert_eq!(name("ssh://me@host:22/~me/x.git"), "host/~me/x");
        assert_eq!(name("https://h/My%20Project/%C3%BC%2B~x.git"), "h/My Project/\u{fc}+~x");
        assert_eq!(name("https://h/org/.github.git?token=x"), "h/org/.github");
        assert_eq!(name("file:///srv/git/x.git"), "srv/git/x");
        assert_eq!(name("/srv/work/.git"), "srv/work");
        assert_eq!(name("../../etc/x"), "etc/x");
        let url = Url::parse("https://u%40x:p%3Aw@h:8443/r").unwrap();
        assert_eq!(
            (url.user.as_deref(), url.password.as_deref(), url.port),
            (Some("u@x"), Some("p:w"), Some(8443))
        );
        assert_eq!(url.http_base(), "https://h:8443/r");
        assert_eq!(url.to_string(), "https://h:8443/r");
        for bad in [
            "",
            "ftp://h/x",
            "git://",
            "git://h",
            "git:///x",
            "http://h:x/y",
            "-oProxyCommand=x:y",
            "ssh://-oX/y",
            "h:-x",
            "a\nb:c",
        ] {
            assert!(Url::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_is_decoded_is_looked_at_then() {
        // CVE-2020-5260, CVE-2017-1000117, and users that a configured ProxyCommand passes to a shell.
        for bad in [
            "http://victim%0aprotocol=https%0ahost=github.com@evil.example/x.git",
            "https://u:p%0dq@h/x",
            "https://h%0a/x",
            "git://h/a%0ab",
            "ssh://%2DoProxyCommand=touch%20x%23@host/x.git",
            "ssh://a%3bb@host/x",
            "ssh://a%20-oX@host/x",
            "ssh://%2Dh/x",
            "git://h/%ff",
            "file:///a%00b",
        ] {
            assert!(Url::parse(bad).is_err(), "{bad:?}");
        }
        let path = |text: &str| Url::parse(text).unwrap().path;
        assert_eq!(path("git://h/a%20b.git"), "/a b.git");
        assert_eq!(path("ssh://h/a%20b"), "/a b");
        assert_eq!(path("file:///a%20b"), "/a b");
        assert_eq!(path("/a%20b"), "/a%20b");
        assert_eq!(path("https://h/a%20b"), "/a%20b", "as it is asked for");
        assert_eq!(path("git://h/a%zz"), "/a%zz");
    }

    #[test]
    fn what_is_no_url_shows_no_secret_and_no_flood() {
        let said = |text: &str| Url::parse(text).unwrap_err().to_string();
        assert!(said("ftp://user:s3cret@h/x").starts_with("'ftp://user:***@h/x' is not"));
        assert!(said("http://u:s3c@ret@h:x/y").starts_with("'http://***@h:x/y' is not"));
        assert!(said(&format!("ftp://h/{}", "x".repeat(1 << 20))).len() < 400);
    }

    #[test]
    fn tokens_are_not_shown() {
        for url in [
            "https://TOKEN:x-oauth-basic@h/x",
            "https://TOKEN@h/x",
            "https://TOKEN:@h/x",
            "https://u:TOKEN@h/x",
        ] {
            assert_eq!(Url::parse(url).unwrap().to_string(), "https://h/x");
        }
        assert_eq!(Url::parse("https://u@h/x?token=TOKEN").unwrap().to_string(), "https://h/x?***");
        assert_eq!(Url::parse("https://h/\u{fc} x").unwrap().http_base(), "https://h/%C3%BC%20x");
        assert_eq!(Url::parse("ssh://git:TOKEN@h/x").unwrap().to_string(), "ssh://git@h/x");
        assert_eq!(Url::parse("ssh://git@h:22/x").unwrap().to_string(), "ssh://git@h:22/x");
    }

    #[test]
    fn hosts_in_brackets_and_no_paths() {
        let parts = |text: &str| {
            let url = Url::parse(text).unwrap();
            (url.user, url.host, url.port, url.path)
        };
        let is = |text: &str, user: Option<&str>, host: &str, port: Option<u16>, path: &str| {
            assert_eq!(
                parts(text),
                (user.map(str::to_owned), host.to_owned(), port, path.to_owned()),
                "{text}"
            );
        };
        is("[root@host:2222]:a/b", Some("root"), "host", Some(2222), "a/b");
        is("[host:22]:x", None, "host", Some(22), "x");
        is("git@[::1]:x", Some("git"), "::1", None, "x");
        is("[::1]:x", None, "::1", None, "x");
        is("git@h:x[1]", Some("git"), "h", None, "x[1]");
        is("http://h:3000/", None, "h", Some(3000), "");
        is("git://h/", None, "h", None, "/");
        assert_eq!(Url::parse("./a@[b:c").unwrap().scheme, Scheme::Local);
    }
}
