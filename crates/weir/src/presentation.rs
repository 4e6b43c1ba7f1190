//! How git directories are served, as the environment and git's configuration say.

use std::path::PathBuf;
use std::sync::Arc;

use weir_repo::GitConfig;
use weir_serve::{Found, Opened, Presentation};
use weir_upload::Features;

/// The system's configuration, in its usual place.
const SYSTEM_CONFIG: &str = "/etc/gitconfig";

/// Returns the presentation that the environment describes, with the files of git configuration that it leads
/// to (git-config, "Files", "Environment").
pub(crate) fn presentation() -> std::result::Result<Presentation, String> {
    let path = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let mut files_before = Vec::new();
    let is_off = std::env::var("GIT_CONFIG_NOSYSTEM")
        .is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false" | "no" | "off"));
    if !is_off {
        files_before.push(path("GIT_CONFIG_SYSTEM").unwrap_or_else(|| PathBuf::from(SYSTEM_CONFIG)));
    }
    match path("GIT_CONFIG_GLOBAL") {
        Some(file) => files_before.push(file),
        None => {
            let xdg = path("XDG_CONFIG_HOME").or_else(|| Some(path("HOME")?.join(".config")));
            files_before.extend(
                [xdg.map(|x| x.join("git/config")), path("HOME").map(|h| h.join(".gitconfig"))]
                    .into_iter()
                    .flatten(),
            );
        }
    }
    let environment = environment().map_err(|e| e.to_string())?;
    Ok(Presentation {
        namespace: std::env::var("GIT_NAMESPACE").unwrap_or_default(),
        files_before,
        home: path("HOME").unwrap_or_default(),
        environment,
        files: false,
    })
}

/// Reads the configuration in `GIT_CONFIG_COUNT`, and the one that `git -c` passes on.
fn environment() -> weir_repo::Result<GitConfig> {
    let mut config = GitConfig::default();
    let unsupported = |what: String| weir_repo::Error::Unsupported(what);
    let given = |name: String| {
        std::env::var(&name).map_err(|_| unsupported(format!("{name} is not set, or not UTF-8")))
    };
    for (key, value) in std::env::var("GIT_CONFIG_PARAMETERS").map_or(Ok(Vec::new()), |text| {
        quoted_pairs(&text).ok_or_else(|| unsupported("GIT_CONFIG_PARAMETERS is malformed".to_owned()))
    })? {
        config.set(&key, &value)?;
    }
    if let Some(count) = std::env::var("GIT_CONFIG_COUNT").ok().filter(|count| !count.is_empty()) {
        let count = count
            .parse::<u16>()
            .map_err(|_| unsupported(format!("GIT_CONFIG_COUNT={count} is no number, or too large")))?;
        for n in 0..count {
            config.set(&given(format!("GIT_CONFIG_KEY_{n}"))?, &given(format!("GIT_CONFIG_VALUE_{n}"))?)?;
        }
    }
    Ok(config)
}

/// Parses `'key'='value' 'key'='value'`, quoted as for a shell. Older gits write `'key=value'`. A key without
/// a value is `'key'=` or `'key'`.
fn quoted_pairs(text: &str) -> Option<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (key, after) = unquoted(rest)?;
        let (pair, after) = match after.strip_prefix('=') {
            Some(after) if after.starts_with('\'') => {
                let (value, after) = unquoted(after)?;
                ((key, value), after)
            }
            Some(after) => ((key, "true".to_owned()), after),
            None => (
                key.split_once('=')
                    .map_or_else(|| (key.clone(), "true".to_owned()), |(k, v)| (k.to_owned(), v.to_owned())),
                after,
            ),
        };
        if !after.is_empty() && !after.starts_with(' ') {
            return None;
        }
        pairs.push(pair);
        rest = after.trim_start();
    }
    Some(pairs)
}

/// Unquotes the word at the start of `text` (git's `sq_dequote`). Returns it with the text that follows.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut word = String::new();
    let mut rest = text.strip_prefix('\'')?;
    loop {
        let (part, after) = rest.split_once('\'')?;
        word.push_str(part);
        // A quote or an exclamation mark stands outside the quotes: '\''.
        let escaped =
            after.strip_prefix('\\').and_then(|a| a.chars().next().filter(|c| matches!(c, '\'' | '!')));
        match escaped.and_then(|c| Some((c, after[2..].strip_prefix('\'')?))) {
            Some((c, next)) => {
                word.push(c);
                rest = next;
            }
            None => return Some((word, after)),
        }
    }
}

/// Opens the repository that was found.
pub(crate) fn open(
    found: &Found,
    presentation: &Presentation,
) -> weir_repo::Result<(Arc<weir_repo::Repo>, Features)> {
    match found {
        Found::Archive(path) => Ok((Arc::new(weir_repo::Repo::open_archive(path)?), Features::default())),
        Found::OlderState(path, state) => {
            let older = weir_repo::Repo::open_archive(path)?.at_state(*state)?;
            let none = || weir_repo::Error::NotFound(format!("no state {state}"));
            Ok((Arc::new(older.ok_or_else(none)?), Features::default()))
        }
        Found::Directory(path) => {
            let Opened { repo, features, .. } = presentation.open(path)?;
            Ok((repo, features.unwrap_or_default()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_git_hands_on_is_read() {
        let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
        let text = r"'a.b'='it'\''s' 'c.d=e=f' 'g.h' 'i.j'= 'k.l'=''\!''";
        let expected = [
            pair("a.b", "it's"),
            pair("c.d", "e=f"),
            pair("g.h", "true"),
            pair("i.j", "true"),
            pair("k.l", "!"),
        ];
        assert_eq!(quoted_pairs(text).unwrap(), expected);
        for bad in ["a.b=c", "'a.b", "'a'x", "'a'='b"] {
            assert_eq!(quoted_pairs(bad), None, "{bad}");
        }
    }
}
