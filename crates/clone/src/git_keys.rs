//! Keys of git's configuration that decide whether git has to clone itself.

/// The name of the remote, as git has it.
pub const ORIGIN: &str = "origin";

/// A pattern of the keys that change how git would clone: another address, other certificates, proxies or
/// headers, templates with hooks, another remote. For `git config --get-regexp`.
pub const GIT_CLONE_KEYS: &str =
    r"^(url\..*\.insteadof|http\.|init\.templatedir|core\.hookspath|clone\.defaultremotename)";

/// A pattern of the keys that may change files that are checked out. For `git config --get-regexp`.
pub const GIT_CHECKOUT_KEYS: &str =
    r"^core\.(autocrlf|eol|attributesfile|symlinks|ignorecase|protecthfs|worktree)$";

/// Keys of git's HTTP client that weir follows, or that change nothing about what is cloned, or from whom.
const HARMLESS_HTTP_KEYS: &[&str] = &[
    "http.sslcainfo",
    "http.postbuffer",
    "http.lowspeedlimit",
    "http.lowspeedtime",
    "http.maxrequests",
    "http.minsessions",
    "http.version",
    "http.useragent",
    "http.keepaliveidle",
    "http.keepaliveinterval",
    "http.keepalivecount",
];

/// Returns the first key among `set` that this client does not know, and that changes how git would clone
/// `repository`. `set` has a key and its value in each line, as git prints them for [`GIT_CLONE_KEYS`];
/// `of_url` has the keys of `http` that hold for the URL, or is `None` if the repository is on this machine.
/// `names_origin` is whether the user names the remote himself.
pub fn applying_key<'k>(
    set: &'k str,
    of_url: Option<&'k str>,
    repository: &str,
    names_origin: bool,
) -> Option<&'k str> {
    let keys = set.lines().chain(of_url.unwrap_or_default().lines());
    let mut applying = keys.filter_map(|line| line.split_once(' ')).filter(|(key, value)| {
        match key.split('.').next() {
            Some("url") => repository.starts_with(value),
            // Only a key for this URL is without one of its own here.
            Some("http") => {
                of_url.is_some_and(|of_url| of_url.contains(key)) && !HARMLESS_HTTP_KEYS.contains(key)
            }
            Some("clone") => !names_origin && *value != ORIGIN,
            _ => true,
        }
    });
    applying.next().map(|(key, _)| key)
}

/// Returns whether git's settings may change files that are checked out. `set` has a key and its value in
/// each line, as git prints them for [`GIT_CHECKOUT_KEYS`].
pub fn changes_files(set: &str) -> bool {
    const HARMLESS: [&str; 6] = [
        "core.autocrlf false",
        "core.autocrlf input",
        "core.eol lf",
        "core.eol native",
        "core.symlinks true",
        "core.ignorecase false",
    ];
    set.lines().any(|line| !HARMLESS.contains(&line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_keys_apply_to_their_urls() {
        let url = "https://example.org/p.git";
        for (set, of_url, names_origin, key) in [
            ("", Some(""), false, None),
            ("url.ssh://h/.insteadof https://example.org/", Some(""), false, Some("url.ssh://h/.insteadof")),
            ("url.ssh://h/.insteadof https://other.org/", Some(""), false, None),
            ("http.proxy p:1", Some("http.proxy p:1"), false, Some("http.proxy")),
            // It is set for another URL, or the repository is here.
            ("http.proxy p:1", Some(""), false, None),
            ("http.proxy p:1", None, false, None),
            ("http.version HTTP/1.1", Some("http.version HTTP/1.1"), false, None),
            ("init.templatedir /t", None, false, Some("init.templatedir")),
            ("core.hookspath /h", None, true, Some("core.hookspath")),
            ("clone.defaultremotename up", None, false, Some("clone.defaultremotename")),
            ("clone.defaultremotename up", None, true, None),
            ("clone.defaultremotename origin", None, false, None),
        ] {
            assert_eq!(applying_key(set, of_url, url, names_origin), key, "{set} {of_url:?} {names_origin}");
        }
    }

    #[test]
    fn git_keys_that_convert_files_are_told_from_others() {
        assert!(!changes_files("") && !changes_files("core.autocrlf input\ncore.eol lf"));
        assert!(changes_files("core.autocrlf input\ncore.eol crlf") && changes_files("core.autocrlf true"));
    }
}
