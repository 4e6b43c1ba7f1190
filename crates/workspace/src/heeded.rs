//! Names in the answer of a monitor that git rejects: git has no untracked cache then.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use weir_worktree::is_like_dot_git;

/// The lines that [`turn_off`] appends to git's configuration.
const OFF: &str = "[core]\n\tuntrackedCache = false\n";

/// Lets git have no untracked cache in the workspace `folder` from its next command on. Returns whether git's
/// configuration says so now.
pub(crate) fn turn_off(folder: &Path) -> bool {
    let config = folder.join(".git/config");
    let Ok(mut text) = fs::read_to_string(&config) else { return false };
    if text.ends_with(OFF) {
        return true;
    }
    text.push_str(OFF);
    // As git locks its configuration.
    let lock = folder.join(".git/config.lock");
    let Ok(mut file) = OpenOptions::new().write(true).create_new(true).open(&lock) else { return false };
    let written = file.write_all(text.as_bytes()).and_then(|()| fs::rename(&lock, &config));
    written.or_else(|e| fs::remove_file(&lock).and(Err(e))).is_ok()
}

/// Returns the folder in which the first name of `path` lies that git rejects in the answer of a monitor
/// (`verify_path`, `is_ntfs_dotgit`), if there is one. git lists untracked files of that name all the same.
pub(crate) fn heeded(path: &[u8]) -> Option<&[u8]> {
    let mut start = 0;
    for name in path.split(|byte| *byte == b'/') {
        if is_like_dot_git(name) {
            return Some(path[..start].strip_suffix(b"/").unwrap_or_default());
        }
        start += name.len() + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_git_rejects_are_known() {
        let is_in = |path: &str, folder: &str| assert_eq!(heeded(path.as_bytes()), Some(folder.as_bytes()));
        is_in("a/git~1/b", "a");
        is_in("a/b/.git::$INDEX", "a/b");
        is_in("x/.Git. ", "x");
        for odd in [".GIT", "GIT~1", "a\\.git", ".git\\a"] {
            is_in(odd, "");
        }
        for plain in ["a/.git/HEAD", ".gitignore", ".github/a", "git~2", "git~1a", ".gitfoo", "a.git", "a\\b"]
        {
            assert_eq!(heeded(plain.as_bytes()), None, "{plain}");
        }
    }

    #[test]
    fn git_is_told_once_to_have_no_cache() {
        let dir = weir_testing::folder();
        let (folder, config) = (dir.path(), dir.path().join(".git/config"));
        assert!(!turn_off(folder), "there is no configuration");
        fs::create_dir(folder.join(".git")).unwrap();
        fs::write(&config, "[core]\n\tbare = false\n").unwrap();
        let lock = folder.join(".git/config.lock");
        fs::write(&lock, "").unwrap();
        assert!(!turn_off(folder), "somebody writes it");
        fs::remove_file(&lock).unwrap();
        for _ in 0..2 {
            assert!(turn_off(folder));
            let expected = "[core]\n\tbare = false\n[core]\n\tuntrackedCache = false\n";
            assert_eq!(fs::read_to_string(&config).unwrap(), expected);
        }
    }
}
