//! Where the pool is: where it is named, in the current folder or one above it, as git finds a repository, or
//! in the default place.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User, geteuid};
use weir_pool::{CONFIG_NAME, is_pool_folder};

/// The path of a pool, which may not be there.
#[derive(Clone, Debug)]
pub(crate) struct PoolPath {
    pub(crate) path: PathBuf,
    /// The search that did not find a pool, so that `path` is the default place.
    failed_search: Option<PoolSearch>,
}

impl fmt::Display for PoolPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", self.path.display())?;
        let Some(PoolSearch { from, last, is_at_boundary, .. }) = &self.failed_search else { return Ok(()) };
        write!(f, ", nor in '{}'", from.display())?;
        match (from == last, is_at_boundary) {
            (true, false) => Ok(()),
            (_, false) => f.write_str(" or a folder above it"),
            (_, true) => {
                let last = last.display();
                write!(f, " or above it up to '{last}', where another file system begins")
            }
        }
    }
}

/// A search for a pool from a folder upwards.
#[derive(Clone, Debug)]
struct PoolSearch {
    from: PathBuf,
    /// The last folder that was searched: the pool, if `is_found`.
    last: PathBuf,
    is_found: bool,
    /// Whether the search ended where another file system begins.
    is_at_boundary: bool,
}

impl PoolSearch {
    /// Searches `from` and the folders above it on the same file system. Beyond, a folder may be anybody's,
    /// or may wait for a network (git, `GIT_DISCOVERY_ACROSS_FILESYSTEM`).
    fn upwards(from: &Path) -> PoolSearch {
        let device = |path: &Path| std::fs::metadata(path).ok().map(|m| m.dev());
        let mut last = from;
        let (mut is_found, mut is_at_boundary) = (false, false);
        for folder in from.ancestors() {
            is_at_boundary = device(folder) != device(from);
            if is_at_boundary {
                break;
            }
            last = folder;
            is_found = is_pool_folder(folder);
            if is_found {
                break;
            }
        }
        PoolSearch { from: from.to_owned(), last: last.to_owned(), is_found, is_at_boundary }
    }
}

/// Why there is no path of a pool.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PoolPathError {
    #[error("neither HOME nor XDG_DATA_HOME is set; name the pool with --pool")]
    NoHome,
    #[error("cannot read '{}': {source}", .config.display())]
    Unread { config: PathBuf, source: std::io::Error },
    /// It is another user's, and nobody named it.
    #[error(
        "the pool at '{pool}' belongs to '{owner}', and its {CONFIG_NAME} can name programs that weir runs: \
         if you trust it, use --pool '{pool}'", pool = .pool.display()
    )]
    OfAnother { pool: PathBuf, owner: String },
}

/// Returns the path of the pool: `named`, or where a search from the current folder finds one, or the default
/// place. An error says why it cannot be said, or why the pool that was found is not used.
pub(crate) fn find_pool(named: Option<&Path>) -> Result<PoolPath, PoolPathError> {
    if let Some(path) = named {
        return Ok(PoolPath { path: path.to_owned(), failed_search: None });
    }
    let failed_search = match std::env::current_dir().map(|here| PoolSearch::upwards(&here)) {
        Ok(search) if search.is_found => {
            check_owners(&search.last)?;
            return Ok(PoolPath { path: search.last, failed_search: None });
        }
        search => search.ok(),
    };
    Ok(PoolPath { path: default_path()?, failed_search })
}

/// Returns the path of the pool if nothing names another, and none is found.
pub(crate) fn default_path() -> Result<PathBuf, PoolPathError> {
    let folder = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let data = folder("XDG_DATA_HOME").or_else(|| Some(folder("HOME")?.join(".local/share")));
    let data = data.ok_or(PoolPathError::NoHome)?;
    Ok(data.join("weir"))
}

/// Checks that a pool that nobody named is this user's, or root's: its configuration can name programs, which
/// weir would run (git-config, `safe.directory`).
fn check_owners(pool: &Path) -> Result<(), PoolPathError> {
    let config = pool.join(CONFIG_NAME);
    let sudo = std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok()).map(Uid::from_raw);
    for found in [std::fs::metadata(pool), std::fs::symlink_metadata(&config), std::fs::metadata(&config)] {
        let found = found.map_err(|source| PoolPathError::Unread { config: config.clone(), source })?;
        let owner = Uid::from_raw(found.uid());
        if !is_trusted(owner, geteuid(), sudo) {
            let user = User::from_uid(owner).ok().flatten();
            let owner = user.map_or_else(|| owner.to_string(), |user| user.name);
            return Err(PoolPathError::OfAnother { pool: pool.to_owned(), owner });
        }
    }
    Ok(())
}

/// Returns whether `user` runs what files of `owner` say. `sudo` is the user that became root.
fn is_trusted(owner: Uid, user: Uid, sudo: Option<Uid>) -> bool {
    owner == user || owner.is_root() || (user.is_root() && Some(owner) == sudo)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_search_stops_at_another_file_system() {
        let search = PoolSearch::upwards(Path::new("/proc/self/task"));
        assert!(!search.is_found && search.is_at_boundary);
        assert_eq!(search.last, Path::new("/proc"));
        let search = PoolSearch::upwards(Path::new("/"));
        assert!(!search.is_at_boundary);
    }

    #[test]
    fn pool_owners_are_trusted_as_git_trusts_them() {
        let [root, me, other] = [0, 1000, 1001].map(Uid::from_raw);
        assert!(is_trusted(me, me, None) && is_trusted(root, me, None) && is_trusted(root, root, None));
        assert!(!is_trusted(other, me, None) && !is_trusted(me, root, None));
        assert!(is_trusted(me, root, Some(me)) && !is_trusted(other, root, Some(me)));
        assert!(!is_trusted(other, me, Some(other)), "only root can have been somebody else");
    }
}
