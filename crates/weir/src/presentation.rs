//! How git directories are served, as the environment and git's configuration say.

use std::path::PathBuf;

use weir_repo::{GitConfig, quoted_pairs};
use weir_serve::Presentation;

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
    if let Ok(text) = std::env::var("GIT_CONFIG_PARAMETERS") {
        let pairs = quoted_pairs(&text);
        for (key, value) in
            pairs.ok_or_else(|| unsupported("GIT_CONFIG_PARAMETERS is malformed".to_owned()))?
        {
            config.set(&key, &value)?;
        }
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
