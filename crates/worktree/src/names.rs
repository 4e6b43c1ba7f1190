//! The names that files of trees may have.

/// Trees in each other. git's own limit (core.maxTreeDepth) is 2048.
pub const DEPTH_MAX: usize = 2048;
/// The longest name of a file in bytes (NAME_MAX of the kernel).
const NAME_LEN_MAX: usize = 255;

/// Returns whether git checks out entries of this name, and the file system has them.
pub fn is_name(name: &[u8]) -> bool {
    name.len() <= NAME_LEN_MAX && is_path_part(name)
}

/// Returns whether git takes the name for part of a path (`verify_path`). It would take a `.git` in a tree
/// for a repository.
pub fn is_path_part(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..")
        && !name.contains(&b'/')
        && !name.eq_ignore_ascii_case(b".git")
        && !name.eq_ignore_ascii_case(b"git~1")
}

/// Returns whether git rejects the name in a path, as NTFS would take it for `.git` (`is_ntfs_dotgit`).
/// `.git` itself is none of them: in each folder git passes over it.
pub fn is_like_dot_git(name: &[u8]) -> bool {
    name != b".git"
        && name.split(|byte| *byte == b'\\').any(|part| {
            let rest = [&b".git"[..], b"git~1"].iter().find_map(|dot_git| {
                let (start, rest) = part.split_at_checked(dot_git.len())?;
                start.eq_ignore_ascii_case(dot_git).then_some(rest)
            });
            let rest = rest.map(|rest| rest.iter().find(|byte| !matches!(byte, b' ' | b'.')));
            matches!(rest, Some(None | Some(b':')))
        })
}
