//! The refs as one snapshot: the content of `packed-refs` and `HEAD` together.

use memchr::memchr;
use weir_git::{HashKind, Oid, refname};

use crate::error::{Result, corrupt};

/// A ref.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ref {
    /// The full name, in bytes: it need not be UTF-8.
    pub name: Vec<u8>,
    /// The id that the ref points at.
    pub oid: Oid,
    /// The id after all tags are peeled, if the ref points at an annotated tag.
    pub peeled: Option<Oid>,
}

/// The value of HEAD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// The name of a branch, which need not exist (unborn).
    Symbolic(Vec<u8>),
    /// A commit (detached).
    Detached(Oid),
}

impl Default for Head {
    fn default() -> Self {
        Head::Symbolic(b"refs/heads/master".to_vec())
    }
}

/// All refs of a repository at one moment, in ascending order of name.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Refs {
    list: Vec<Ref>,
    /// The value of HEAD.
    pub head: Head,
    /// Symbolic refs other than HEAD, by name, with their targets. Their values are in the list, too.
    pub symbolic: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Refs {
    /// Makes a snapshot of `list`, which may be in any order. Of several refs with one name the last counts.
    pub fn new(mut list: Vec<Ref>, head: Head) -> Refs {
        // The order in which git lists refs.
        if !list.is_sorted_by(|a, b| a.name < b.name) {
            list.sort_by(|a, b| a.name.cmp(&b.name));
            list.reverse();
            list.dedup_by(|a, b| a.name == b.name);
            list.reverse();
        }
        debug_assert!(list.is_sorted_by(|a, b| a.name < b.name), "a name is there twice");
        Refs { list, head, symbolic: Vec::new() }
    }

    /// Returns the upstream's refs as an ordinary clone knows them: the branches and HEAD of `origin`, and
    /// the clone's tags. Returns the refs unchanged if this is a mirror.
    pub fn of_origin(&self) -> Refs {
        const REMOTE: &[u8] = b"refs/remotes/origin/";
        let branch = |name: &[u8]| {
            name.strip_prefix(REMOTE).filter(|n| *n != b"HEAD").map(|n| [b"refs/heads/", n].concat())
        };
        if !self.list.iter().any(|r| branch(&r.name).is_some()) {
            return self.clone();
        }
        // The other refs of the clone (local branches, a stash) are private to its owner.
        let own = self.list.iter().filter(|r| r.name.starts_with(b"refs/tags/")).cloned();
        let upstream = self.list.iter().filter_map(|r| Some(Ref { name: branch(&r.name)?, ..r.clone() }));
        let head = self
            .symbolic
            .iter()
            .find(|(name, _)| name == b"refs/remotes/origin/HEAD")
            .and_then(|(_, target)| branch(target));
        Refs::new(own.chain(upstream).collect(), head.map_or_else(|| self.head.clone(), Head::Symbolic))
    }

    /// Returns the refs that are shown, and the refs that are hidden. Shown are refs below `prefix`, which is
    /// removed from their names, unless `patterns` hide them. The last pattern that matches counts: `!`
    /// before a pattern shows refs again, `^` matches it against the name with its prefix.
    pub(crate) fn shown(self, prefix: &[u8], patterns: &[&str]) -> (Refs, Vec<Ref>) {
        let is_hidden = |full: &[u8], name: &[u8]| {
            patterns
                .iter()
                .rev()
                .find_map(|pattern| {
                    let (shows, pattern) = pattern.strip_prefix('!').map_or((false, *pattern), |p| (true, p));
                    let (name, pattern) = pattern.strip_prefix('^').map_or((name, pattern), |p| (full, p));
                    let rest = name.strip_prefix(pattern.trim_end_matches('/').as_bytes())?;
                    (rest.is_empty() || rest.starts_with(b"/")).then_some(!shows)
                })
                .unwrap_or(false)
        };
        let head = if prefix.is_empty() {
            self.head.clone()
        } else {
            let name = [prefix, b"HEAD"].concat();
            let target = self.symbolic.iter().find(|s| s.0 == name).and_then(|s| s.1.strip_prefix(prefix));
            match (target, self.get(&name)) {
                (Some(target), _) => Head::Symbolic(target.to_vec()),
                (None, Some(r)) => Head::Detached(r.oid),
                (None, None) => Head::default(),
            }
        };
        let (mut shown, mut hidden) = (Vec::new(), Vec::new());
        for r in self.list {
            let Some(name) = r.name.strip_prefix(prefix) else {
                hidden.push(r);
                continue;
            };
            if name == b"HEAD" {
                continue;
            }
            let kept = Ref { name: name.to_vec(), ..r.clone() };
            if is_hidden(&r.name, name) { hidden.push(kept) } else { shown.push(kept) }
        }
        let strip = |name: Vec<u8>| name.strip_prefix(prefix).map(<[u8]>::to_vec);
        let symbolic = self
            .symbolic
            .into_iter()
            .filter_map(|(name, target)| Some((strip(name)?, strip(target)?)))
            .collect();
        let mut refs = Refs::new(shown, head);
        refs.symbolic = symbolic;
        refs.symbolic.retain(|(name, _)| refs.list.binary_search_by(|r| r.name.cmp(name)).is_ok());
        (refs, hidden)
    }

    /// Returns all refs in ascending order of name, without HEAD.
    pub fn list(&self) -> &[Ref] {
        &self.list
    }

    /// Returns the refs in ascending order of name, so that their peeled ids can be set. Names must not
    /// change.
    pub(crate) fn list_mut(&mut self) -> &mut [Ref] {
        &mut self.list
    }

    /// Returns whether all refs and HEAD point where those of `other` do. Peeled ids are not compared.
    pub fn lead_where(&self, other: &Refs) -> bool {
        let is_same = |(a, b): (&Ref, &Ref)| (&a.name, a.oid) == (&b.name, b.oid);
        self.head == other.head
            && self.list.len() == other.list.len()
            && self.list.iter().zip(&other.list).all(is_same)
    }

    /// Returns the ref called `name`.
    pub fn get(&self, name: &[u8]) -> Option<&Ref> {
        self.list.binary_search_by(|r| r.name.as_slice().cmp(name)).ok().map(|i| &self.list[i])
    }

    /// Returns the commit that HEAD leads to; `None` if unborn.
    pub fn head_oid(&self) -> Option<Oid> {
        match &self.head {
            Head::Symbolic(name) => self.get(name).map(|r| r.oid),
            Head::Detached(oid) => Some(*oid),
        }
    }

    /// Returns the ids of everything an ordinary clone takes: HEAD, branches, tags.
    pub fn head_and_tag_tips(&self) -> impl Iterator<Item = Oid> + '_ {
        let named = self.list.iter().filter(|r| refname::is_head_or_tag(&r.name)).map(|r| r.oid);
        self.head_oid().into_iter().chain(named)
    }

    /// Returns the ids of all refs, and HEAD's.
    pub fn tips(&self) -> impl Iterator<Item = Oid> + '_ {
        self.head_oid().into_iter().chain(self.list.iter().map(|r| r.oid))
    }

    /// Returns the content of the `packed-refs` file (git-pack-refs), fully peeled and sorted.
    pub fn to_packed_refs(&self) -> Vec<u8> {
        let head = b"# pack-refs with: peeled fully-peeled sorted \n";
        let lines = |r: &Ref| {
            r.oid.as_bytes().len() * 2
                + r.name.len()
                + 2
                + r.peeled.map_or(0, |oid| oid.as_bytes().len() * 2 + 2)
        };
        let mut out = Vec::with_capacity(head.len() + self.list.iter().map(lines).sum::<usize>());
        out.extend_from_slice(head);
        for r in &self.list {
            push_packed_ref(&mut out, r);
        }
        out
    }

    /// Returns the content of the `HEAD` file.
    pub fn to_head_file(&self) -> Vec<u8> {
        self.head.to_file()
    }
}

impl Head {
    /// Returns the content of the `HEAD` file.
    pub(crate) fn to_file(&self) -> Vec<u8> {
        match self {
            Head::Symbolic(name) => [b"ref: ", name.as_slice(), b"\n"].concat(),
            Head::Detached(oid) => format!("{oid}\n").into_bytes(),
        }
    }
}

/// Appends the lines of `r` in a `packed-refs` file.
pub(crate) fn push_packed_ref(out: &mut Vec<u8>, r: &Ref) {
    r.oid.push_hex(out);
    out.push(b' ');
    out.extend_from_slice(&r.name);
    out.push(b'\n');
    if let Some(peeled) = r.peeled {
        out.push(b'^');
        peeled.push_hex(out);
        out.push(b'\n');
    }
}

/// Parses a `packed-refs` file.
///
/// # Errors
/// If a line is malformed.
pub fn parse_packed_refs(hash: HashKind, data: &[u8]) -> Result<Vec<Ref>> {
    let mut list: Vec<Ref> = Vec::new();
    let mut rest = data;
    let hex = hash.hex_len();
    while !rest.is_empty() {
        let end = memchr(b'\n', rest).unwrap_or(rest.len());
        let line = &rest[..end];
        rest = &rest[(end + 1).min(rest.len())..];
        if line.starts_with(b"#") || line.is_empty() {
            continue;
        }
        let bad = || corrupt("packed-refs", format!("malformed line {:?}", String::from_utf8_lossy(line)));
        if let Some(peeled) = line.strip_prefix(b"^") {
            match (list.last_mut(), Oid::from_hex(hash, peeled)) {
                (Some(last), Some(oid)) => last.peeled = Some(oid),
                _ => return bad(),
            }
            continue;
        }
        if line.len() <= hex + 1 || line[hex] != b' ' {
            return bad();
        }
        let Some(oid) = Oid::from_hex(hash, &line[..hex]) else { return bad() };
        list.push(Ref { name: line[hex + 1..].to_vec(), oid, peeled: None });
    }
    Ok(list)
}

/// Returns whether a `packed-refs` file has the peeled id of every ref that is a tag (git-pack-refs:
/// `fully-peeled`).
pub(crate) fn is_fully_peeled(data: &[u8]) -> bool {
    let header = data.split(|&c| c == b'\n').next().and_then(|line| line.strip_prefix(b"# pack-refs with:"));
    header.is_some_and(|words| words.split(|&c| c == b' ').any(|word| word == b"fully-peeled"))
}

/// Parses a `HEAD` file.
///
/// # Errors
/// If it is neither a symbolic ref nor an id.
pub fn parse_head(hash: HashKind, data: &[u8]) -> Result<Head> {
    let text = data.trim_ascii();
    if let Some(target) = text.strip_prefix(b"ref:") {
        return Ok(Head::Symbolic(target.trim_ascii().to_vec()));
    }
    match Oid::from_hex(hash, text) {
        Some(oid) => Ok(Head::Detached(oid)),
        None => corrupt("HEAD", "neither 'ref: <name>' nor an object id"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_refs_come_back() {
        let oid = |c: u8| Oid::from_bytes(HashKind::Sha1, &[c; 20]).unwrap();
        let r = |name: &str, c, peeled| Ref { name: name.into(), oid: oid(c), peeled };
        let refs = Refs::new(
            vec![r("refs/tags/v1", 3, Some(oid(4))), r("refs/heads/b", 2, None), r("refs/heads/b", 5, None)],
            Head::Symbolic(b"refs/heads/b".to_vec()),
        );
        assert_eq!(refs.list().len(), 2);
        assert_eq!(refs.head_oid(), Some(oid(5)));
        let parsed = parse_packed_refs(HashKind::Sha1, &refs.to_packed_refs()).unwrap();
        assert_eq!(Refs::new(parsed, parse_head(HashKind::Sha1, &refs.to_head_file()).unwrap()), refs);
        for bad in ["^", "zz refs/x\n", "0000 refs/x", "0000000000000000000000000000000000000000"] {
            assert!(parse_packed_refs(HashKind::Sha1, bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
