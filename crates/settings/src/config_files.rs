//! Tries the programs and files that the configuration names, in the way they would be used.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};
use weir_crawl::CrawlSource;
use weir_serve::Tls;

use crate::config::Config;
use crate::error::SettingError;

/// A key of the configuration that names something unusable, and why it cannot be used.
pub struct Unusable {
    /// The key.
    pub key: String,
    /// The reason.
    pub why: SettingError,
}

/// Returns everything that cannot be used. Hooks run in `store`.
pub fn unusable(config: &Config, store: &Path) -> Vec<Unusable> {
    let mut found = Vec::new();
    let mut try_out = |key: &str, outcome: Result<(), SettingError>| {
        if let Err(why) = outcome {
            found.push(Unusable { key: key.to_owned(), why });
        }
    };
    let here = Path::new("");
    let path = &(config.environment.variable)("PATH").unwrap_or_default();
    for (key, words) in
        [("hooks.post_update", &config.hooks.post_update), ("hooks.notify", &config.hooks.notify)]
    {
        if let Some(program) = words.first() {
            try_out(key, find_program(program, store, path));
        }
    }
    for worker in &config.events.worker {
        if let Some(program) = worker.program() {
            try_out(&format!("command of the worker {}", worker.name), find_program(program, store, path));
        }
    }
    for stream in &config.events.stream {
        if let Some(program) = stream.command.first() {
            try_out(&format!("command of the stream {}", stream.name), find_program(program, store, path));
        }
    }
    for hook in &config.hooks.command {
        if let Some(program) = hook.command.first() {
            try_out(&format!("command of the hook {}", hook.name), find_program(program, store, path));
        }
    }
    for webhook in &config.hooks.webhook {
        try_out("hooks.webhook", webhook.signer().map(drop).map_err(SettingError::of));
    }
    if let Some(hook) = &config.access.hook {
        try_out("access.hook", find_program(&hook.to_string_lossy(), here, path));
    }
    if let Some(program) = config.transport.ssh_command.as_deref().and_then(program_of_line) {
        try_out("transport.ssh_command", find_program(program, here, path));
    }
    if let Some(netrc) = &config.transport.netrc {
        try_out("transport.netrc", read(netrc));
    }
    if let (Some(certificate), Some(key)) = (&config.serve.tls_certificate, &config.serve.tls_key) {
        try_out("serve.tls_certificate", Tls::load(certificate, key).map(drop).map_err(SettingError::of));
    }
    if let Some(folder) = config.serve.access_log.as_deref().and_then(Path::parent) {
        let is_there = folder.as_os_str().is_empty() || folder.is_dir();
        let missing = || format!("there is no folder '{}'; make it first", folder.display()).into();
        try_out("serve.access_log", is_there.then_some(()).ok_or_else(missing));
    }
    if let Some(url) = &config.catalog.url {
        try_out("catalog.url", weir_sql::check_url(url).map_err(SettingError::of));
    }
    for forge in &config.forge {
        let key = |name: &str| format!("{name} of the forge {}", forge.name());
        try_out(&key("token_files"), forge.tokens().map(drop).map_err(SettingError::of));
        try_out(&key("app_key_file"), forge.app().map(drop).map_err(SettingError::of));
    }
    for webhook in &config.events.webhook {
        try_out("events.webhook", webhook.options().map(drop).map_err(SettingError::of));
    }
    found
}

/// Returns the files with secrets that the configuration names.
pub fn secret_files(config: &Config) -> Vec<PathBuf> {
    let named = config.serve.tls_key.iter().chain(&config.transport.netrc);
    let of_forges = config.forge.iter().flat_map(|forge| forge.secret_files());
    let of_webhooks = config.events.webhook.iter().flat_map(|webhook| webhook.secret_files());
    let of_hooks = config.hooks.webhook.iter().flat_map(|webhook| webhook.secret_files());
    named.cloned().chain(of_forges.cloned()).chain(of_webhooks.cloned()).chain(of_hooks.cloned()).collect()
}

/// Returns whether every user of this machine may read the file at `path`, by its own mode.
pub fn is_for_everybody(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.permissions().mode() & 0o004 != 0)
}

/// Looks for `program` as execvp(3) does, from `folder` and in the folders of `places`.
fn find_program(program: &str, folder: &Path, places: &OsStr) -> Result<(), SettingError> {
    let may_run = |path: &Path| path.is_file() && access(path, AccessFlags::X_OK).is_ok();
    if program.contains('/') {
        let path = folder.join(program);
        return match path.is_file() {
            true if may_run(&path) => Ok(()),
            true => Err(format!("'{}' may not be run: chmod +x", path.display()).into()),
            false => Err(format!("there is no program '{}'", path.display()).into()),
        };
    }
    match std::env::split_paths(places).any(|place| may_run(&place.join(program))) {
        true => Ok(()),
        false => Err(format!("no program '{program}' in PATH").into()),
    }
}

/// Returns the program that a shell command starts with, or `None` if only a shell could tell.
fn program_of_line(line: &str) -> Option<&str> {
    let word = line.split_ascii_whitespace().find(|word| !word.contains('='))?;
    (!word.contains(['"', '\'', '\\', '$', '`', '(', '~', '*', '?', '['])).then_some(word)
}

fn read(path: &Path) -> Result<(), SettingError> {
    std::fs::File::open(path)
        .map(drop)
        .map_err(|e| SettingError::of(format!("cannot read '{}': {e}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_looked_for_as_the_system_does() {
        let places = OsStr::new("/usr/bin:/bin");
        assert!(
            find_program("sh", Path::new(""), places).is_ok()
                && find_program("/bin/sh", Path::new(""), places).is_ok()
        );
        assert!(
            find_program("no-such-program", Path::new(""), places)
                .unwrap_err()
                .to_string()
                .contains("no program 'no-such-program' in PATH")
        );
        assert!(
            find_program("./no-such-program", Path::new("/"), places)
                .unwrap_err()
                .to_string()
                .contains("there is no program '/./no-such-program'")
        );
        assert!(
            find_program("/etc/passwd", Path::new(""), places)
                .unwrap_err()
                .to_string()
                .contains("may not be run")
        );
        for (line, program) in [
            ("ssh -v", Some("ssh")),
            ("A=1 /x/ssh -i 'a b'", Some("/x/ssh")),
            ("\"$HOME/ssh\" -v", None),
            ("~/ssh", None),
            ("", None),
        ] {
            assert_eq!(program_of_line(line), program, "{line}");
        }
    }
}
