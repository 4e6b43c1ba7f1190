//! The objects of a git directory: its own packs and loose objects, and those of its alternates
//! (gitrepository-layout, "objects/info/alternates").

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_archive::Region;
use weir_git::HashKind;

use crate::error::{Error, Result};
use crate::files::{SMALL_BYTES_MAX, read_or_empty};
use crate::objects::lookup::Objects;
use crate::objects::loose::Loose;
use crate::objects::pack::Pack;

/// The most levels of alternates that are followed, as in git.
const ALTERNATES_DEPTH_MAX: usize = 5;

/// Returns the objects in `folder` and in its alternates. An alternate that is not there is noted: the
/// objects in it are missing, and their refs are not.
///
/// # Errors
/// If a folder or a file that is there cannot be read.
pub(crate) fn objects_below(folder: &Path, hash: HashKind) -> Result<Objects> {
    let mut objects = Objects::of_packs(hash, Vec::new());
    add_folder(&mut objects, folder, 0)?;
    Ok(objects)
}

/// Returns the objects of `other`, and those below `folder`, but not those of its alternates.
pub(crate) fn objects_beside(other: &Objects, folder: &Path) -> Result<Objects> {
    let mut objects = Objects::of_packs(other.hash, other.packs.clone());
    objects.loose.clone_from(&other.loose);
    add_own(&mut objects, folder)?;
    Ok(objects)
}

fn add_folder(objects: &mut Objects, folder: &Path, depth: usize) -> Result<()> {
    add_own(objects, folder)?;
    for path in parse_alternates(&read_or_empty(&folder.join("info/alternates"), SMALL_BYTES_MAX)?) {
        let alternate = folder.join(path);
        if depth >= ALTERNATES_DEPTH_MAX || !alternate.is_dir() {
            objects.lost_folders.push(alternate);
        } else if !objects.loose.iter().any(|known| known.folder == alternate) {
            add_folder(objects, &alternate, depth + 1)?;
        }
    }
    Ok(())
}

/// Adds the objects of `folder`, but not those of its alternates.
fn add_own(objects: &mut Objects, folder: &Path) -> Result<()> {
    let pack_folder = folder.join("pack");
    match fs::read_dir(&pack_folder) {
        Ok(entries) => {
            let mut names = entries.map(|e| Ok(e?.path())).collect::<io::Result<Vec<PathBuf>>>()?;
            names.retain(|p| p.extension().is_some_and(|e| e == "idx") && p.with_extension("pack").is_file());
            names.sort();
            for idx in names {
                objects.packs.push(Arc::new(open_pack(&idx, objects.hash)?));
            }
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(named(e, &pack_folder)),
    }
    objects.loose.push(Loose { folder: folder.to_owned() });
    Ok(())
}

fn open_pack(idx: &Path, hash: HashKind) -> Result<Pack> {
    let map = |path: &Path| -> Result<Region> {
        let file = File::open(path).map_err(|e| named(e, path))?;
        let len = file.metadata()?.len();
        // SAFETY: git writes a pack or index under a temporary name, and later only unlinks it.
        Ok(unsafe { Region::map(Arc::new(file), len)? })
    };
    let name = idx.with_extension("").display().to_string();
    Pack::open(&name, map(&idx.with_extension("pack"))?, map(idx)?, hash)
}

fn named(e: io::Error, path: &Path) -> Error {
    Error::Io(io::Error::new(e.kind(), format!("cannot read '{}': {e}", path.display())))
}

/// Returns the paths in a file of alternates: one a line, or quoted as in C.
fn parse_alternates(data: &[u8]) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    let mut rest = data;
    while !rest.is_empty() {
        if rest[0] == b'"'
            && let Some((path, len)) = unquote_c(rest)
        {
            paths.push(path);
            rest = &rest[len..];
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            continue;
        }
        let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let line = &rest[..end];
        if !line.is_empty() && line[0] != b'#' {
            paths.push(line.to_vec());
        }
        rest = &rest[(end + 1).min(rest.len())..];
    }
    paths.into_iter().map(|path| PathBuf::from(OsString::from_vec(path))).collect()
}

/// Returns the text that is quoted at the start of `quoted`, as git quotes paths (core.quotePath), and the
/// length of its quoted form; `None` if it is malformed.
fn unquote_c(quoted: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut text = Vec::new();
    let mut at = 1;
    loop {
        let byte = *quoted.get(at)?;
        at += 1;
        match byte {
            b'"' => return Some((text, at)),
            b'\\' => {
                let escaped = *quoted.get(at)?;
                at += 1;
                text.push(match escaped {
                    b'a' => 7,
                    b'b' => 8,
                    b'f' => 12,
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'v' => 11,
                    b'\\' | b'"' => escaped,
                    b'0'..=b'3' => {
                        let octal = std::str::from_utf8(quoted.get(at - 1..at + 2)?).ok()?;
                        at += 2;
                        u8::from_str_radix(octal, 8).ok()?
                    }
                    _ => return None,
                });
            }
            _ => text.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternates_may_be_quoted() {
        let parse = |text: &str| -> Vec<String> {
            parse_alternates(text.as_bytes()).into_iter().map(|p| p.display().to_string()).collect()
        };
        assert_eq!(parse("/a\n# no\n\n../b c\n"), ["/a", "../b c"]);
        assert_eq!(parse("\"/a\\tb\\303\\274\\\"\"\n/c"), ["/a\tb\u{fc}\"", "/c"]);
        assert_eq!(parse("\"open\n\n/d"), ["\"open", "/d"]);
    }
}
