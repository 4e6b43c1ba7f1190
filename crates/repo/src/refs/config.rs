//! Reads git's configuration files (git-config, "Syntax", "Includes"), as far as a server needs them. Nothing
//! in them is executed. Where git would die, this is an error, too: a setting that hides refs must not be
//! skipped.

use std::path::{Path, PathBuf};

use gix_ignore::glob::wildmatch;
use gix_ignore::glob::wildmatch::Mode;
use weir_git::HashKind;

use crate::error::{Error, Result, corrupt};
use crate::files::read_if_there;
use crate::refs::list::{Head, parse_head};

/// The most bytes of a file that are read; no real configuration is longer.
pub(crate) const FILE_BYTES_MAX: u64 = 4 << 20;
/// The most levels of nested includes (git's `MAX_INCLUDE_DEPTH`).
const INCLUDE_DEPTH_MAX: usize = 10;
/// The most values in one configuration.
const VALUES_MAX: usize = 100_000;

/// The values of a configuration, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GitConfig {
    /// Keys are written `section.key` or `section.subsection.key`, section and key in lower case. A key
    /// without a value is true.
    values: Vec<(String, String)>,
}

/// The values that conditions of includes are tested against.
#[derive(Clone, Copy, Debug)]
pub struct ConfigScope<'s> {
    /// The repository that is asked for, if it is a git directory.
    pub git_dir: Option<&'s Path>,
    /// The folder that `~/` stands for.
    pub home: &'s Path,
}

/// A file that is being read.
struct ConfigFile<'f> {
    path: &'f Path,
    scope: ConfigScope<'f>,
    depth: usize,
}

impl GitConfig {
    /// Reads a text by itself and follows no includes.
    ///
    /// # Errors
    /// If a line is malformed.
    pub fn parse(data: &[u8]) -> Result<GitConfig> {
        let mut config = GitConfig::default();
        config.extend(data, Path::new("config"), &mut |_, _, _| Ok(()))?;
        Ok(config)
    }

    /// Reads the file at `path`, if there is one, and the files it includes. Its values override those read
    /// before.
    ///
    /// # Errors
    /// If a file cannot be read, is malformed, or includes another under a condition that weir does not
    /// understand.
    pub fn read(&mut self, path: &Path, scope: ConfigScope<'_>) -> Result<()> {
        self.read_file(&ConfigFile { path, scope, depth: 0 })
    }

    fn read_file(&mut self, file: &ConfigFile<'_>) -> Result<()> {
        if file.depth > INCLUDE_DEPTH_MAX {
            return corrupt(
                file.path.display().to_string(),
                format!("included by more than {INCLUDE_DEPTH_MAX} files in a row"),
            );
        }
        // Scripts name this path to mean no file at all.
        if file.path == Path::new("/dev/null") {
            return Ok(());
        }
        let Some(data) = read_if_there(file.path, FILE_BYTES_MAX)? else { return Ok(()) };
        self.extend(&data, file.path, &mut |config, key, value| {
            let is_included = key == "include.path"
                || match key.strip_prefix("includeif.").and_then(|rest| rest.strip_suffix(".path")) {
                    Some(condition) => file.meets(condition)?,
                    None => false,
                };
            if is_included {
                config.read_file(&ConfigFile { path: &file.named(value)?, depth: file.depth + 1, ..*file })
            } else {
                Ok(())
            }
        })
    }

    /// Sets `key`, written as `section.key` or `section.subsection.key`, as git does for values from its
    /// command line and environment.
    ///
    /// # Errors
    /// If `key` is not a valid key.
    pub fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let parts = key.split_once('.').and_then(|(section, _)| Some((section, key.rsplit_once('.')?.1)));
        let Some((section, name)) = parts.filter(|(section, name)| is_section(section) && is_key(name))
        else {
            return corrupt(
                "the configuration of the environment",
                format!("'{}' is no key", key.escape_debug()),
            );
        };
        let within = &key[section.len()..key.len() - name.len()];
        self.values.push((
            format!("{}{within}{}", section.to_ascii_lowercase(), name.to_ascii_lowercase()),
            value.to_owned(),
        ));
        Ok(())
    }

    /// Appends all values of `other`, which override the present ones.
    pub fn append(&mut self, other: &GitConfig) {
        self.values.extend_from_slice(&other.values);
    }

    /// Reads a further text and calls `then` after each value.
    fn extend(
        &mut self,
        data: &[u8],
        path: &Path,
        then: &mut dyn FnMut(&mut GitConfig, &str, &str) -> Result<()>,
    ) -> Result<()> {
        let text = String::from_utf8_lossy(data);
        let mut section = String::new();
        let mut lines = ConfigLines { rest: text.strip_prefix('\u{feff}').unwrap_or(&text), number: 0 };
        while let Some(line) = lines.next() {
            let number = lines.number;
            let bad = || corrupt(path.display().to_string(), format!("line {number} is malformed"));
            let mut rest = line.trim_start();
            while let Some(header) = rest.strip_prefix('[') {
                let Some((name, after)) = parse_header(header) else { return bad() };
                section = name;
                rest = after.trim_start();
            }
            if rest.is_empty() || rest.starts_with(['#', ';']) {
                continue;
            }
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).unwrap_or(rest.len());
            let (key, rest) = rest.split_at(end);
            if !is_key(key) || section.is_empty() {
                return bad();
            }
            let rest = rest.trim_start();
            let value = match rest.strip_prefix('=') {
                Some(value) => parse_value(value, &mut lines),
                None => rest.is_empty().then(|| "true".to_owned()),
            };
            let Some(value) = value else { return bad() };
            let key = format!("{section}.{}", key.to_ascii_lowercase());
            self.values.push((key.clone(), value.clone()));
            if self.values.len() > VALUES_MAX {
                return corrupt(path.display().to_string(), format!("more than {VALUES_MAX} values"));
            }
            then(self, &key, &value)?;
        }
        Ok(())
    }

    /// Returns the last value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.iter().rev().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// Returns all values of any of `keys`, in the order of the file.
    pub fn all<'c>(&'c self, keys: &'c [&str]) -> impl Iterator<Item = &'c str> {
        self.values.iter().filter(move |(k, _)| keys.contains(&k.as_str())).map(|(_, v)| v.as_str())
    }

    /// Returns a boolean; `None` if it is not set.
    ///
    /// # Errors
    /// If the value is not a boolean.
    pub fn truth(&self, key: &str) -> Result<Option<bool>> {
        self.get(key).map(|value| parse_truth(key, value)).transpose()
    }

    /// Returns a number, with one of git's units; `None` if it is not set.
    ///
    /// # Errors
    /// If the value is not a number.
    pub fn number(&self, key: &str) -> Result<Option<u64>> {
        self.get(key)
            .map(|value| {
                let (digits, unit) =
                    value.split_at(value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len()));
                let shift = match unit.to_ascii_lowercase().as_str() {
                    "" => Some(0),
                    "k" => Some(10),
                    "m" => Some(20),
                    "g" => Some(30),
                    _ => None,
                };
                let number = shift.and_then(|shift| digits.parse::<u64>().ok()?.checked_mul(1 << shift));
                number.map_or_else(
                    || corrupt("the configuration", format!("{key} = {} is no number", value.escape_debug())),
                    Ok,
                )
            })
            .transpose()
    }

    /// Returns the hash of a repository with this configuration, if weir understands its format
    /// (gitrepository-layout(5)).
    pub(crate) fn hash_of_format(&self) -> Result<HashKind> {
        let version = self.number("core.repositoryformatversion")?.unwrap_or(0);
        if version > 1 {
            return Err(Error::Unsupported(format!("its format has version {version}: weir knows 0 and 1")));
        }
        let extensions = self
            .values
            .iter()
            .filter_map(|(key, value)| Some((key.strip_prefix("extensions.")?, value.as_str())));
        for (name, value) in extensions {
            match (name, value.to_ascii_lowercase().as_str()) {
                ("noop-v1" | "objectformat" | "refstorage" | "relativeworktrees", _) if version == 0 => {
                    return Err(Error::Unsupported(format!(
                        "its format has version 0, but the extension '{name}' of version 1"
                    )));
                }
                (
                    "noop" | "noop-v1" | "preciousobjects" | "partialclone" | "worktreeconfig"
                    | "objectformat" | "relativeworktrees",
                    _,
                )
                | ("refstorage", "files") => {}
                ("refstorage", "reftable") => {}
                ("refstorage", _) => {
                    let why = format!(
                        "its refs are stored as '{}', which weir cannot read: 'git refs migrate \
                        --ref-format=files'",
                        value.escape_debug()
                    );
                    return Err(Error::Unsupported(why));
                }
                // Before formats had versions, any name could be used here.
                _ if version == 0 => {}
                _ => {
                    return Err(Error::Unsupported(format!(
                        "the repository extension '{}' is unknown",
                        name.escape_debug()
                    )));
                }
            }
        }
        match self.get("extensions.objectformat") {
            None => Ok(HashKind::Sha1),
            Some(name) => HashKind::from_name(name.to_ascii_lowercase().as_bytes()).ok_or_else(|| {
                Error::Unsupported(format!(
                    "object format '{}' is unknown: weir knows sha1 and sha256",
                    name.escape_debug()
                ))
            }),
        }
    }

    /// Returns whether refs are in a reftable (gitrepository-layout(5), `extensions.refStorage`).
    pub(crate) fn has_reftable(&self) -> bool {
        self.get("extensions.refstorage").is_some_and(|value| value.eq_ignore_ascii_case("reftable"))
    }

    /// Returns the values of `<section>.<key>` and `<section>.<subsection>.<key>` with their subsections, in
    /// order.
    pub fn values_of(&self, section: &str, key: &str) -> Vec<(Option<&str>, &str)> {
        let within = |k: &'_ str| -> Option<Option<usize>> {
            let rest = k.strip_prefix(section)?.strip_prefix('.')?;
            let before = rest.strip_suffix(key)?;
            Some(match before.strip_suffix('.') {
                None if before.is_empty() => None,
                None => return None,
                Some(subsection) => Some(subsection.len()),
            })
        };
        let start = section.len() + 1;
        self.values
            .iter()
            .filter_map(|(k, v)| within(k).map(|len| (len.map(|len| &k[start..start + len]), v.as_str())))
            .collect()
    }

    /// Returns the booleans `<section>.<subsection>.<key>` with their subsections, in order.
    ///
    /// # Errors
    /// If one of the values is not a boolean.
    pub fn truths_of(&self, section: &str, key: &str) -> Result<Vec<(String, bool)>> {
        let within = |k: &str| {
            Some(k.strip_prefix(section)?.strip_prefix('.')?.strip_suffix(key)?.strip_suffix('.')?.to_owned())
        };
        self.values
            .iter()
            .filter_map(|(k, v)| within(k).map(|within| Ok((within, parse_truth(k, v)?))))
            .collect()
    }
}

impl ConfigFile<'_> {
    /// Returns the path of the file that an include names.
    fn named(&self, value: &str) -> Result<PathBuf> {
        Ok(match (value.strip_prefix("~/"), value.starts_with(['~', '%'])) {
            (Some(below), _) => self.scope.home.join(below),
            (None, true) => return self.not_understood(&format!("the path {}", value.escape_debug())),
            (None, false) => self.folder().join(value),
        })
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    fn not_understood<T>(&self, what: &str) -> Result<T> {
        Err(Error::Unsupported(format!(
            "'{}' includes a file by {what}, which weir does not understand",
            self.path.display()
        )))
    }

    /// Returns whether the condition of an include is met (git-config, "Conditional includes"). A condition
    /// that git does not know either is not met.
    fn meets(&self, condition: &str) -> Result<bool> {
        let Some((kind, pattern)) = condition.split_once(':') else { return Ok(false) };
        let mode = Mode::NO_MATCH_SLASH_LITERAL;
        let matches =
            |pattern: &str, text: &[u8], mode| wildmatch(pattern.as_bytes().into(), text.into(), mode);
        let below = |pattern: String| if pattern.ends_with('/') { pattern + "**" } else { pattern };
        match kind.to_ascii_lowercase().as_str() {
            "gitdir" | "gitdir/i" => {
                let Some(git_dir) = self.scope.git_dir else { return Ok(false) };
                let mode = if kind.len() > 6 { mode | Mode::IGNORE_CASE } else { mode };
                let pattern = match (pattern.strip_prefix("~/"), pattern.strip_prefix("./")) {
                    (Some(rest), _) => self.scope.home.join(rest).display().to_string(),
                    (_, Some(rest)) => self.folder().canonicalize()?.join(rest).display().to_string(),
                    _ if pattern.starts_with('/') => pattern.to_owned(),
                    _ => format!("**/{pattern}"),
                };
                let pattern = below(pattern);
                let places = [git_dir.canonicalize()?, std::path::absolute(git_dir)?];
                Ok(places.iter().any(|place| matches(&pattern, place.as_os_str().as_encoded_bytes(), mode)))
            }
            "onbranch" => {
                let head = self
                    .scope
                    .git_dir
                    .map_or(Ok(None), |git_dir| read_if_there(&git_dir.join("HEAD"), FILE_BYTES_MAX))?;
                // The hash matters only for a detached HEAD, and that is on no branch.
                let head = head.and_then(|head| parse_head(HashKind::Sha1, &head).ok());
                let Some(Head::Symbolic(name)) = head else { return Ok(false) };
                Ok(name
                    .strip_prefix(b"refs/heads/")
                    .is_some_and(|branch| matches(&below(pattern.to_owned()), branch, mode)))
            }
            "hasconfig" => self.not_understood("hasconfig"),
            _ => Ok(false),
        }
    }
}

fn is_section(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
}

fn is_key(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
}

fn parse_truth(key: &str, value: &str) -> Result<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" => Ok(true),
        "false" | "no" | "off" | "" => Ok(false),
        number => match number.parse::<i64>() {
            Ok(n) => Ok(n != 0),
            Err(_) => corrupt(
                "the configuration",
                format!("{key} = {} is neither true nor false", value.escape_debug()),
            ),
        },
    }
}

/// The lines of a text, with their numbers.
struct ConfigLines<'t> {
    rest: &'t str,
    number: usize,
}

impl<'t> Iterator for ConfigLines<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        if self.rest.is_empty() {
            return None;
        }
        let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
        self.rest = rest;
        self.number += 1;
        Some(line.strip_suffix('\r').unwrap_or(line))
    }
}

/// Parses `section]` or `section "subsection"]`, after the bracket. Returns the name and the rest of the
/// line.
fn parse_header(header: &str) -> Option<(String, &str)> {
    let end = header.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '.'))?;
    let section = header[..end].to_ascii_lowercase();
    let rest = header[end..].trim_start();
    if let Some(after) = rest.strip_prefix(']') {
        return Some((section, after));
    }
    let mut name = String::new();
    let mut chars = rest.strip_prefix('"')?.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => {
                return rest[1 + at + 1..]
                    .trim_start()
                    .strip_prefix(']')
                    .map(|after| (format!("{section}.{name}"), after));
            }
            '\\' => name.push(chars.next()?.1),
            c => name.push(c),
        }
    }
    None
}

/// Parses a value after its equals sign. A backslash at the end of a line continues it. Returns `None` if it
/// is malformed.
fn parse_value<'t>(first: &'t str, lines: &mut impl Iterator<Item = &'t str>) -> Option<String> {
    let mut value = String::new();
    // Spaces count only between other characters, and in quotes. Up to this length the value is kept.
    let mut solid = 0;
    let mut quoted = false;
    let mut line = first.trim_start();
    'lines: loop {
        let mut chars = line.chars();
        while let Some(c) = chars.next() {
            match c {
                '\\' => match chars.next() {
                    None => match lines.next() {
                        Some(next) => {
                            line = next;
                            continue 'lines;
                        }
                        None => break 'lines,
                    },
                    Some('n') => value.push('\n'),
                    Some('t') => value.push('\t'),
                    Some('b') => value.push('\u{8}'),
                    Some(c @ ('\\' | '"')) => value.push(c),
                    Some(_) => return None,
                },
                '"' => quoted = !quoted,
                '#' | ';' if !quoted => break 'lines,
                c => value.push(c),
            }
            if quoted || !c.is_whitespace() {
                solid = value.len();
            }
        }
        break;
    }
    value.truncate(solid);
    (!quoted).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_as_git_reads_them() {
        let config = GitConfig::parse(
            b"; a comment\n[core]\n\tbare = true # yes\n\tName = \"a ; b\" c  \n[uploadpack] \
                allowFilter\n\thideRefs = refs/a\n\
              hiderefs=!refs/a/b\n[uploadpackfilter \"blob:none\"]\n allow=false\n[x \"A\\\"b\"]\nk = \
                  one\\\n two\\t3\n[Core]\nbare = no\n[a]\r\nb=c\r\n",
        )
        .unwrap();
        assert_eq!(config.truth("core.bare").unwrap(), Some(false));
        assert_eq!(config.get("core.name"), Some("a ; b c"));
        assert_eq!(config.truth("uploadpack.allowfilter").unwrap(), Some(true));
        assert_eq!(config.all(&["uploadpack.hiderefs"]).collect::<Vec<_>>(), ["refs/a", "!refs/a/b"]);
        assert_eq!(config.truths_of("uploadpackfilter", "allow").unwrap(), [("blob:none".to_owned(), false)]);
        assert_eq!(config.get("x.A\"b.k"), Some("one two\t3"));
        assert_eq!(config.truth("core.missing").unwrap(), None);
        assert!(config.truth("core.name").is_err(), "git dies of it");
        assert_eq!(config.get("a.b"), Some("c"));
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            &b"["[..],
            b"[a",
            b"[a \"",
            b"[a \"\\",
            b"= x",
            b"[a]\n=x",
            b"[a]\nk = \"",
            b"[a]\nk = \\q",
            b"[a]\nbad line here\n",
            b"\xff\xfe[a]\n\xff = 1",
            b"[a \"b\" c]\nk=1",
            b"k = 1",
            b"[a]\n1k = 1",
        ] {
            assert!(GitConfig::parse(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
        assert!(GitConfig::parse(b"").is_ok() && GitConfig::parse(b"[a]\nk = \\").is_ok());
    }

    #[test]
    fn files_include_others() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let read = |name: &str| {
            let mut config = GitConfig::default();
            let scope = ConfigScope { git_dir: Some(&dir.path().join("of/x.git")), home: dir.path() };
            config.read(&dir.path().join(name), scope).map(|()| config)
        };
        write("of/x.git/HEAD", "ref: refs/heads/release/1\n");
        write("in/one", "[a]\nb = one\n[include]\npath = ../two\n");
        write("two", "[a]\nb = two\n[c]\nd\n");
        write("main", "[include]\npath = in/one\npath = nowhere\n[a]\nb = last\n");
        let config = read("main").unwrap();
        assert_eq!(config.all(&["a.b"]).collect::<Vec<_>>(), ["one", "two", "last"]);
        assert_eq!(config.truth("c.d").unwrap(), Some(true));
        assert_eq!(read("nowhere").unwrap(), GitConfig::default());
        for (condition, is_met) in [
            ("gitdir:of/", true),
            ("gitdir:x.git", true),
            ("gitdir:X.GIT", false),
            ("gitdir/i:X.GIT", true),
            ("gitdir:./of/*.git", true),
            ("gitdir:other/", false),
            ("gitdir:~/of/", true),
            ("onbranch:release/", true),
            ("onbranch:release", false),
            ("unknown:x", false),
        ] {
            write("if", &format!("[includeIf \"{condition}\"]\npath = two\n"));
            assert_eq!(read("if").unwrap().get("a.b").is_some(), is_met, "{condition}");
        }
        write("if", "[includeIf \"hasconfig:remote.*.url:x\"]\npath = two\n");
        assert!(read("if").is_err());
        write("round", "[include]\npath = round\n");
        assert!(read("round").is_err());
    }

    #[test]
    fn values_of_the_environment() {
        let mut config = GitConfig::parse(b"[transfer]\nhideRefs = a\n").unwrap();
        config.set("transfer.hideRefs", "b").unwrap();
        config.set("Url.https://X.y/.insteadOf", "c").unwrap();
        assert_eq!(config.all(&["transfer.hiderefs"]).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(config.get("url.https://X.y/.insteadof"), Some("c"));
        assert!(config.set("nothing", "x").is_err() && config.set("a.", "x").is_err());
    }
}
