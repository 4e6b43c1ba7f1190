//! The git directory of a workspace: what `git clone` would make, with the objects elsewhere.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde::{Deserialize, Serialize};
use weir_git::{HashKind, Oid};
use weir_repo::{Head, Origin, Ref, Refs, Repo};

use crate::error::{Error, Result};
use crate::monitor_socket;

/// Settings of a workspace. The objects elsewhere are not git's to pack.
const SETTINGS: &str = "\tbare = false
\tlogallrefupdates = true
\tautocrlf = false
\tfsmonitorHookVersion = 2
[gc]
\tauto = 0
[maintenance]
\tauto = false
[advice]
\tdetachedHead = false
";

/// The file of git's configuration that lets git ask at the socket.
const MONITOR_CONFIG: &str = "fsmonitor.config";
/// The name at which git looks for the socket (fsmonitor-ipc.c).
const MONITOR_SOCKET: &str = "fsmonitor--daemon.ipc";

/// How git asks what has changed (`core.fsmonitor`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Monitor {
    /// git looks at the files itself. Before 2.43 it takes files that its fsmonitor vouches for as deleted,
    /// now and then (`git diff HEAD`).
    None,
    /// git starts a program.
    #[default]
    Hook,
    /// git connects to a socket (2.55 and newer).
    Socket,
}

/// What a workspace begins with.
pub(crate) struct Checkout<'a> {
    pub(crate) repo: &'a Repo,
    /// The URL of the upstream, if the repository does not say.
    pub(crate) url: Option<&'a str>,
    pub(crate) commit: Oid,
    /// The branch that HEAD is on; detached without one.
    pub(crate) branch: Option<&'a str>,
    /// The folder of the objects.
    pub(crate) objects: &'a Path,
    pub(crate) index: FirstIndex<'a>,
    /// The folder of the workspace.
    pub(crate) folder: &'a Path,
    pub(crate) monitor: Monitor,
    /// The program that git starts, or the socket that it connects to, to learn what has changed.
    pub(crate) hook: &'a Path,
    pub(crate) socket: &'a Path,
}

/// The index that a workspace begins with.
pub(crate) enum FirstIndex<'a> {
    /// A file, which nobody writes to: git puts another in its place.
    Shared(&'a Path),
    /// The content of its own.
    Own(&'a [u8]),
}

/// Writes the git directory `.git` in the folder `upper`.
pub(crate) fn write(upper: &Path, checkout: &Checkout<'_>) -> Result<()> {
    let at = upper.join(".git");
    let folders = ["objects/info", "objects/pack", "refs/heads", "refs/remotes/origin", "refs/tags", "info"];
    for folder in folders {
        let path = at.join(folder);
        fs::create_dir_all(&path).map_err(Error::on(&path))?;
    }
    let file = |name: &str, content: &[u8]| {
        let path = at.join(name);
        fs::write(&path, content).map_err(Error::on(&path))
    };
    let Checkout { repo, commit, branch, objects, .. } = checkout;
    let mut alternates = objects.as_os_str().as_encoded_bytes().to_vec();
    alternates.push(b'\n');
    file("objects/info/alternates", &alternates)?;
    file("config", config(checkout).as_bytes())?;
    if checkout.monitor == Monitor::Socket {
        file(MONITOR_CONFIG, b"[core]\n\tfsmonitor = true\n")?;
        link_monitor(&at, checkout.socket)?;
    }
    let mut shallow = Vec::new();
    repo.history().shallow().iter().for_each(|oid| writeln!(shallow, "{oid}").expect("memory takes all"));
    if !shallow.is_empty() {
        file("shallow", &shallow)?;
    }
    let (refs, origin_head) = refs(repo, *commit, *branch);
    file("packed-refs", &refs.to_packed_refs())?;
    file("HEAD", &refs.to_head_file())?;
    if let Some(name) = origin_head {
        file("refs/remotes/origin/HEAD", &[b"ref: refs/remotes/origin/", name.as_slice(), b"\n"].concat())?;
    }
    match checkout.index {
        FirstIndex::Own(data) => file("index", data),
        FirstIndex::Shared(index) => {
            let path = at.join("index");
            let linked = fs::hard_link(index, &path).or_else(|_| fs::copy(index, &path).map(drop));
            linked.map_err(Error::on(&path))
        }
    }
}

/// Links the socket into the git directory `git_dir`, where git looks for it. Ends git's own daemon, if that
/// has put its socket there.
pub(crate) fn link_monitor(git_dir: &Path, socket: &Path) -> Result<()> {
    let path = git_dir.join(MONITOR_SOCKET);
    if fs::read_link(&path).is_ok_and(|to| to == socket) {
        return Ok(());
    }
    monitor_socket::end_daemon(&path);
    let _ = fs::remove_file(&path);
    symlink(socket, &path).map_err(Error::on(&path))
}

fn config(checkout: &Checkout<'_>) -> String {
    let Checkout { repo, url, branch, folder, monitor, hook, .. } = checkout;
    let mut config = String::new();
    // What git's commands write into this file comes behind it, and counts.
    if *monitor == Monitor::Socket {
        config += &include_monitor(folder);
    }
    config += "[core]\n";
    let is_sha256 = repo.hash() == HashKind::Sha256;
    config += &format!("\trepositoryformatversion = {}\n", u8::from(is_sha256));
    config += SETTINGS;
    // Without a monitor git believes the times of folders, and misses a change now and then that comes within
    // the same tick of the clock as its look.
    config += &format!("[core]\n\tuntrackedCache = {}\n", *monitor != Monitor::None);
    if *monitor == Monitor::Hook {
        config += &format!("\tfsmonitor = {}\n", quoted(&hook.display().to_string()));
    }
    if is_sha256 {
        config += "[extensions]\n\tobjectFormat = sha256\n";
    }
    let url = match repo.archive() {
        _ if url.is_some() => url.map(str::to_owned),
        Some(archive) => Origin::of(archive).map(|origin| origin.url),
        None => Some(repo.git_dir().display().to_string()),
    };
    if let Some(url) = url {
        let url = quoted(&url);
        config +=
            &format!("[remote \"origin\"]\n\turl = {url}\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n");
    }
    if let Some(branch) = branch {
        let name = branch.replace('\\', "\\\\").replace('"', "\\\"");
        let merge = quoted(&format!("refs/heads/{branch}"));
        config += &format!("[branch \"{name}\"]\n\tremote = origin\n\tmerge = {merge}\n");
    }
    config
}

/// Returns the lines of configuration that let git ask at the socket in the workspace `folder` alone. Linked
/// working trees (`git worktree`) share the configuration, and have no socket: git would start a daemon for
/// them.
pub(crate) fn include_monitor(folder: &Path) -> String {
    let mut pattern = String::new();
    for letter in folder.join(".git").display().to_string().chars() {
        if matches!(letter, '*' | '?' | '[' | '\\') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    let pattern = pattern.replace('\\', "\\\\").replace('"', "\\\"");
    format!("[includeIf \"gitdir:{pattern}\"]\n\tpath = {MONITOR_CONFIG}\n")
}

/// Returns a value as a file of git's configuration has it.
fn quoted(value: &str) -> String {
    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}

/// Returns the refs of a clone of `repo`, and the branch of the repository's HEAD.
fn refs(repo: &Repo, commit: Oid, branch: Option<&str>) -> (Refs, Option<Vec<u8>>) {
    let heads = b"refs/heads/";
    let mut list = Vec::new();
    for r in repo.refs().list() {
        if let Some(name) = r.name.strip_prefix(heads) {
            list.push(Ref { name: [b"refs/remotes/origin/", name].concat(), ..r.clone() });
        } else if r.name.starts_with(b"refs/tags/") {
            list.push(r.clone());
        }
    }
    let head = match branch {
        Some(branch) => {
            let name = format!("refs/heads/{branch}").into_bytes();
            list.push(Ref { name: name.clone(), oid: commit, peeled: None });
            Head::Symbolic(name)
        }
        None => Head::Detached(commit),
    };
    let origin_head = match &repo.refs().head {
        Head::Symbolic(name) if repo.refs().get(name).is_some() => {
            name.strip_prefix(heads).map(<[u8]>::to_vec)
        }
        _ => None,
    };
    (Refs::new(list, head), origin_head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_is_quoted_as_git_reads_it() {
        assert_eq!(quoted("a\"b\\c\nd"), "\"a\\\"b\\\\c\\nd\"");
        let included = include_monitor(Path::new("/a*b?c[d\\e\"f"));
        let pattern = "/a\\\\*b\\\\?c\\\\[d\\\\\\\\e\\\"f/.git";
        let expected = format!("[includeIf \"gitdir:{pattern}\"]\n\tpath = fsmonitor.config\n");
        assert_eq!(included, expected);
    }
}
