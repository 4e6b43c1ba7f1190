//! Headers that git's configuration adds to HTTP requests: `http.extraHeader` and `http.cookieFile`, for all
//! URLs or for some (`http.<url>.*` of git-config(1)).

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ureq::http::{HeaderName, HeaderValue};

use crate::url::{Scheme, Url};

/// The most bytes of a file of cookies.
const COOKIES_BYTES_MAX: u64 = 4 << 20;

/// Stands for a star in the host of a pattern: any label.
const ANY_LABEL: &str = "_any_";

/// A setting, in the order of the configuration.
#[derive(Clone, Debug)]
pub struct ExtraHeader {
    /// The URLs that it is for; `None` for all.
    pub scope: Option<String>,
    /// What it adds.
    pub value: ExtraValue,
}

/// What a setting adds to requests.
#[derive(Clone, Debug)]
pub enum ExtraValue {
    /// A header line; if it is empty, those before do not count.
    Header(String),
    /// A file of cookies, in the format of Netscape; if it is empty, those before do not count.
    CookieFile(PathBuf),
}

/// Returns the headers that `settings` add to requests of `url`.
pub(crate) fn headers_of(settings: &[ExtraHeader], url: &Url) -> Vec<(HeaderName, HeaderValue)> {
    let (mut lines, mut cookie_file) = (Vec::new(), None);
    // Of the settings for a URL those count that name most of it.
    let (mut best_of_lines, mut best_of_files) = (0, 0);
    for setting in settings {
        let Some(rank) = setting.scope.as_deref().map_or(Some(0), |scope| rank_of(scope, url)) else {
            continue;
        };
        match &setting.value {
            ExtraValue::Header(line) if rank >= best_of_lines => {
                best_of_lines = rank;
                if line.is_empty() {
                    lines.clear();
                } else {
                    lines.push(line.as_str());
                }
            }
            ExtraValue::CookieFile(path) if rank >= best_of_files => {
                best_of_files = rank;
                cookie_file = Some(path);
            }
            _ => {}
        }
    }
    let cookies = cookie_file.filter(|path| !path.as_os_str().is_empty()).map(|path| cookies_in(path, url));
    let cookies = cookies.filter(|cookies| !cookies.is_empty()).map(|cookies| format!("Cookie: {cookies}"));
    lines.into_iter().chain(cookies.as_deref()).filter_map(parse_header).collect()
}

fn parse_header(line: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = line.split_once(':')?;
    Some((name.trim().parse().ok()?, value.trim().parse().ok()?))
}

/// Returns how much of `url` the pattern `scope` names; `None` if it is for others (git-config(1),
/// "http.<url>.*").
fn rank_of(scope: &str, url: &Url) -> Option<usize> {
    // No host has a star.
    let scope = scope.trim_end_matches('/').replace('*', ANY_LABEL);
    let pattern = Url::parse(&format!("{scope}/")).ok()?;
    let is_user = pattern.user.is_none() || pattern.user == url.user;
    let port =
        |url: &Url| url.port.unwrap_or(if url.scheme == (Scheme::Http { tls: true }) { 443 } else { 80 });
    let (labels, of_pattern) = (url.host.split('.'), pattern.host.split('.'));
    let is_host = labels.clone().count() == of_pattern.clone().count()
        && labels
            .zip(of_pattern)
            .all(|(label, of_pattern)| of_pattern == ANY_LABEL || label.eq_ignore_ascii_case(of_pattern));
    let path = pattern.path.trim_end_matches('/');
    let is_below = url.path.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let is_one =
        pattern.scheme == url.scheme && port(&pattern) == port(url) && is_user && is_host && is_below;
    is_one.then(|| 1 + path.len() * 2 + usize::from(pattern.user.is_some()))
}

/// Returns the cookies in the file `path` that are for `url`, as a header has them.
fn cookies_in(path: &Path, url: &Url) -> String {
    let is_small = path.metadata().is_ok_and(|file| file.is_file() && file.len() <= COOKIES_BYTES_MAX);
    let text = if is_small { std::fs::read(path).unwrap_or_default() } else { Vec::new() };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let text = String::from_utf8_lossy(&text);
    let cookie = |line: &str| {
        let line = line.strip_prefix("#HttpOnly_").unwrap_or(line);
        let [domain, tail, path, secure, until, name, value] =
            line.split('\t').collect::<Vec<_>>().try_into().ok()?;
        let host = url.host.to_ascii_lowercase();
        let domain = domain.trim_start_matches('.').to_ascii_lowercase();
        let is_below = || host.strip_suffix(&domain).is_some_and(|start| start.ends_with('.'));
        let is_host = host == domain || (tail.eq_ignore_ascii_case("TRUE") && is_below());
        let is_path = url.path.starts_with(path) || path == "/";
        let is_safe = !secure.eq_ignore_ascii_case("TRUE") || url.scheme == (Scheme::Http { tls: true });
        let until: u64 = until.parse().ok()?;
        let is_meant =
            !domain.starts_with('#') && is_host && is_path && is_safe && (until == 0 || until > now);
        is_meant.then(|| format!("{name}={value}"))
    };
    text.lines().filter_map(cookie).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(scope: Option<&str>, line: &str) -> ExtraHeader {
        ExtraHeader { scope: scope.map(str::to_owned), value: ExtraValue::Header(line.to_owned()) }
    }

    #[test]
    fn extra_headers_are_for_their_urls() {
        let settings = [
            header(None, "X-All: 1"),
            header(Some("https://h.example/a"), "X-Some: 2"),
            header(Some("https://*.example"), "X-Host: 3"),
        ];
        let of = |url: &str| -> Vec<String> {
            let headers = headers_of(&settings, &Url::parse(url).unwrap());
            headers.into_iter().map(|(name, _)| name.as_str().to_owned()).collect()
        };
        assert_eq!(of("https://other/x"), ["x-all"]);
        assert_eq!(of("https://h.example/a/b.git"), ["x-all", "x-some"]);
        assert_eq!(of("https://h.example/ab"), ["x-all", "x-host"]);
        assert_eq!(of("http://h.example/a/b"), ["x-all"]);
        assert_eq!(of("https://h.example:444/a/b"), ["x-all"]);
        let reset = [header(None, "X-All: 1"), header(None, ""), header(None, "no header")];
        assert!(headers_of(&reset, &Url::parse("https://h/x").unwrap()).is_empty());
    }

    #[test]
    fn cookies_are_for_their_hosts() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "# Netscape HTTP Cookie File\nh.example\tFALSE\t/\tFALSE\t0\ta\t1\n\
            #HttpOnly_.example\tTRUE\t/p\tTRUE\t4102444800\tb\t2\nh.example\tFALSE\t/\tFALSE\t12\told\t3\n\
            other\tFALSE\t/\tFALSE\t0\tc\t4\nbroken\n";
        std::fs::write(file.path(), text).unwrap();
        let cookies = |url: &str| cookies_in(file.path(), &Url::parse(url).unwrap());
        assert_eq!(cookies("https://h.example/p/r"), "a=1; b=2");
        assert_eq!(cookies("http://h.example/p/r"), "a=1");
        assert_eq!(cookies("https://x.example/q"), "");
    }
}
