//! `clone`: makes an ordinary git repository, from a weir server with its index, or from an archive.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use weir_arguments::{CloneArgs, Global};
use weir_clone::{
    CloneOptions, CloneOutcome, GIT_CHECKOUT_KEYS, GIT_CLONE_KEYS, ORIGIN, applying_key, changes_files,
    default_directory,
};
use weir_ground::without_password;
use weir_pool::transport_options;
use weir_settings::Config;
use weir_terminal::{output, warn_line};
use weir_transport::{Scheme, Url};

use crate::client::{client_transport, git_config};
use crate::environment::environment;
use crate::error::{Error, Result};
use crate::pool::open_pool;

pub(crate) fn clone(global: &Global, args: &CloneArgs) -> Result<()> {
    let started = Instant::now();
    let source = CloneSource::find(global, args)?;
    if !args.git.words().is_empty() {
        return hand_over(global, args, &source);
    }
    if let Some(key) = git_key_that_applies(args, &source) {
        if !global.quiet {
            warn_line!("git's configuration has '{key}'; using git clone, which follows it");
        }
        return hand_over(global, args, &source);
    }
    let url = &source.url;
    let transport = match source.is_archive {
        true => transport_options(&Config::of(environment())),
        false => client_transport(global, &args.repository)?,
    };
    let bar = progress_bar(global);
    let upload_pack = if source.is_archive { Some(upload_pack_command()?) } else { None };
    let outcome = weir_clone::clone(&CloneOptions {
        url,
        directory: source.directory.as_deref(),
        is_bare: args.bare,
        checks_out: !args.no_checkout,
        lets_git_check_out: !args.no_checkout && !args.bare && git_changes_files(),
        branch: args.branch.as_deref(),
        origin: args.origin.as_deref().unwrap_or(ORIGIN),
        upload_pack: upload_pack.as_deref(),
        verifies_all: args.verify,
        transport: &transport,
        tell: &|transfer| {
            bar.set_length(transfer.total);
            bar.set_position(transfer.done);
            if transfer.done == transfer.total {
                bar.finish_and_clear();
            }
        },
    });
    let cloned = match outcome? {
        CloneOutcome::Done(cloned) => cloned,
        CloneOutcome::NotOffered => {
            if !global.quiet {
                let name = without_password(&args.repository);
                warn_line!("{name}: no weir serves it as one pack over HTTP; using git clone");
            }
            return hand_over(global, args, &source);
        }
    };
    let took = started.elapsed().as_secs_f64();
    if global.json {
        output::json(&serde_json::json!({ "directory": cloned.directory, "objects": cloned.objects,
                "bytes": cloned.bytes, "seconds": took }))?;
    } else if !global.quiet {
        let (objects, bytes) = (cloned.objects, output::bytes(cloned.bytes));
        writeln!(
            output::stdout(),
            "cloned {url} into {}: {objects} objects, {bytes} in {took:.1} s",
            cloned.directory.display()
        )?;
    }
    Ok(())
}

/// The repository to clone, and the directory to clone it into.
struct CloneSource {
    url: Url,
    is_archive: bool,
    /// The directory that is made, if it does not follow from the URL.
    directory: Option<PathBuf>,
}

impl CloneSource {
    /// Finds what `args` name: a path or URL, as git takes it, or else a repository of the pool.
    fn find(global: &Global, args: &CloneArgs) -> Result<CloneSource> {
        let url = Url::parse(&args.repository)?;
        let directory = args.directory.clone();
        if url.scheme != Scheme::Local || is_for_git(&args.repository) {
            let is_archive = url.scheme == Scheme::Local && url.local_path().is_file();
            return Ok(CloneSource { url, is_archive, directory });
        }
        let pool = match open_pool(global) {
            Err(Error::NoPool(_)) => return Err(nothing_at(&args.repository, "there is no pool, either")),
            pool => pool?,
        };
        let found = match pool.get(&args.repository) {
            Err(weir_pool::Error::NoMatch(_)) => {
                let why = format!("the pool at '{}' has no repository of that name", pool.path.display());
                return Err(nothing_at(&args.repository, &why));
            }
            found => found?,
        };
        let archive = pool.archive_path(&found);
        if !archive.is_file() {
            return Err(weir_pool::Error::NotMirrored(found.name).into());
        }
        let is_bare = args.bare || args.git.is_mirror();
        let directory = directory.unwrap_or_else(|| default_directory(&url, is_bare));
        let url = Url::parse(&std::path::absolute(archive)?.display().to_string())?;
        Ok(CloneSource { url, is_archive: true, directory: Some(directory) })
    }
}

/// Returns whether git would find a repository or a bundle at `path`.
fn is_for_git(path: &str) -> bool {
    let is_there = |suffix: &&str| {
        let path = PathBuf::from(format!("{path}{suffix}"));
        path.is_file() || path.join("HEAD").is_file() || path.join(".git").exists()
    };
    ["", ".git", ".bundle"].iter().any(is_there) || path.starts_with("file://")
}

/// Returns a key of git's configuration, or a variable, that changes how git would clone.
fn git_key_that_applies(args: &CloneArgs, source: &CloneSource) -> Option<String> {
    if std::env::var_os("GIT_SSL_NO_VERIFY").is_some() {
        return Some("GIT_SSL_NO_VERIFY".to_owned());
    }
    let set = git_config(&["--get-regexp", GIT_CLONE_KEYS])?;
    let is_remote = source.url.scheme != Scheme::Local;
    let of_url = if is_remote { git_config(&["--get-urlmatch", "http", &args.repository]) } else { None };
    let of_url = if is_remote { Some(of_url.as_deref().unwrap_or_default()) } else { None };
    applying_key(&set, of_url, &args.repository, args.origin.is_some()).map(str::to_owned)
}

/// Returns whether git's settings, or files of attributes besides those in the repository, may change files
/// that are checked out.
fn git_changes_files() -> bool {
    let set = git_config(&["--get-regexp", GIT_CHECKOUT_KEYS]).unwrap_or_default();
    let folder = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let of_user = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")));
    let of_user = of_user.map(|folder| folder.join("git/attributes"));
    let files = [Some(PathBuf::from("/etc/gitattributes")), of_user];
    changes_files(&set) || files.into_iter().flatten().any(|file| file.exists())
}

/// Returns the error that a clone of `path` finds nothing, and what may have been meant.
fn nothing_at(path: &str, why: &str) -> Error {
    let found = weir_pool::check_url(path).map_or_else(|e| e.to_string(), |()| format!("'{path}' is none"));
    Error::Message(format!("{found}; {why}"))
}

/// Returns a bar that is shown once it has a length, if a user can see it.
fn progress_bar(global: &Global) -> ProgressBar {
    if !std::io::stderr().is_terminal() || global.quiet || global.json {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left")
        .expect("a valid template");
    ProgressBar::no_length().with_style(style)
}

/// Returns the command by which git fetches from an archive, for a shell.
fn upload_pack_command() -> Result<String> {
    let program = std::env::current_exe()?;
    Ok(format!("'{}' upload-pack", program.display().to_string().replace('\'', "'\\''")))
}

/// Runs `git clone`: for options that only git has, for a server that is not weir, or not over HTTP.
fn hand_over(global: &Global, args: &CloneArgs, source: &CloneSource) -> Result<()> {
    let mut command = weir_workspace::git_command();
    command.arg("clone");
    if let Some(origin) = &args.origin {
        command.args(["--origin", origin]);
    }
    command.args(args.bare.then_some("--bare")).args(args.no_checkout.then_some("--no-checkout"));
    command.args(global.quiet.then_some("--quiet"));
    if let Some(branch) = &args.branch {
        command.args(["--branch", branch]);
    }
    command.args(args.git.words());
    let mut repository = OsString::from(&args.repository);
    if source.is_archive {
        // git takes a file for a bundle, unless a URL names it. A URL may hold escapes.
        let path = std::path::absolute(source.url.local_path())?;
        repository = format!("file://{}", path.display().to_string().replace('%', "%25")).into();
        if !args.git.names_upload_pack() {
            // The option is for the clone, the key for each fetch after it.
            let upload_pack = upload_pack_command()?;
            let origin = args.origin.clone().or_else(|| git_config(&["--get", "clone.defaultRemoteName"]));
            let origin = origin.unwrap_or_else(|| ORIGIN.to_owned());
            command.arg("--config").arg(format!("remote.{}.uploadpack={upload_pack}", origin.trim_end()));
            command.arg("--upload-pack").arg(upload_pack);
        }
    }
    command.arg("--").arg(repository).args(&source.directory);
    Err(Error::Message(format!("cannot run git: {}", command.exec())))
}
