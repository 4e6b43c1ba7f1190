//! Gathers what an upstream advertises, line by line: refs, HEAD, and names that git would not create.

use weir_git::{HashKind, Oid, refname};

use crate::error::{Error, Result};
use crate::text::printable;

/// The memory that a ref takes besides its name, here and in later processing.
const REF_BYTES: usize = 192;

/// A ref as an upstream advertises it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdvertisedRef {
    /// The full name, checked.
    pub name: Vec<u8>,
    /// The object that it points at.
    pub oid: Oid,
    /// The object that an annotated tag peels to.
    pub peeled: Option<Oid>,
}

/// The HEAD of an upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Symbolic {
    /// The branch that HEAD names.
    Branch(Vec<u8>),
    /// A commit without a branch.
    Detached(Oid),
    /// Unknown, as for an empty repository of an old server.
    #[default]
    Unknown,
}

/// All that an upstream advertises.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advertised {
    /// Refs, in the upstream's order.
    pub refs: Vec<AdvertisedRef>,
    /// HEAD.
    pub head: Symbolic,
    /// The commit that HEAD leads to, if the upstream tells it.
    pub head_oid: Option<Oid>,
    /// The names that were refused, because git would not create them.
    pub refused: Vec<Vec<u8>>,
}

impl Advertised {
    /// Keeps the refs that `wants` says. HEAD becomes detached if the branch that it names is not among them,
    /// as `git clone` has it.
    pub fn keep(&mut self, wants: impl Fn(&[u8]) -> bool) {
        let Symbolic::Branch(name) = &self.head else { return self.refs.retain(|r| wants(&r.name)) };
        let branch = self.refs.iter().find(|r| r.name == *name).map(|r| r.oid);
        let is_kept = branch.is_some() && wants(name);
        if let Some(oid) = self.head_oid.or(branch).filter(|_| !is_kept) {
            self.head = Symbolic::Detached(oid);
        }
        self.refs.retain(|r| wants(&r.name));
    }
}

/// A list of refs being gathered.
pub(crate) struct RefListing {
    hash: HashKind,
    refs: Vec<AdvertisedRef>,
    refused: Vec<Vec<u8>>,
    head: Symbolic,
    head_oid: Option<Oid>,
    bytes: u64,
    bytes_max: u64,
}

impl RefListing {
    pub(crate) fn new(hash: HashKind, bytes_max: u64) -> RefListing {
        RefListing {
            hash,
            refs: Vec::new(),
            refused: Vec::new(),
            head: Symbolic::Unknown,
            head_oid: None,
            bytes: 0,
            bytes_max,
        }
    }

    /// Counts the memory that the list takes.
    pub(crate) fn count(&mut self, bytes: usize) -> Result<()> {
        self.bytes += bytes as u64;
        if self.bytes > self.bytes_max {
            return Err(Error::TooManyRefs(self.bytes_max));
        }
        Ok(())
    }

    /// Adds a ref. A null id is kept: git lists a ref so that it cannot read, and refuses to send it.
    pub(crate) fn push(&mut self, name: &[u8], oid: Oid, peeled: Option<Oid>) -> Result<()> {
        self.count(name.len() + REF_BYTES)?;
        if refname::is_valid(name) {
            self.refs.push(AdvertisedRef { name: name.to_vec(), oid, peeled });
        } else if self.refused.len() < 1000 {
            self.refused.push(name.to_vec());
        }
        Ok(())
    }

    /// Adds a line `<oid|unborn> <name> [symref-target:<name>] [peeled:<oid>]`.
    pub(crate) fn add_v2(&mut self, line: &[u8]) -> Result<()> {
        let bad = || Error::Protocol(format!("bad ref line '{}'", printable(line)));
        let mut words = line.split(|&c| c == b' ');
        let (id, name) = (words.next().ok_or_else(bad)?, words.next().ok_or_else(bad)?);
        let (mut target, mut peeled) = (None, None);
        for word in words {
            if let Some(t) = word.strip_prefix(b"symref-target:") {
                target = Some(t.to_vec());
            } else if let Some(p) = word.strip_prefix(b"peeled:") {
                peeled = Some(Oid::from_hex(self.hash, p).ok_or_else(bad)?);
            }
        }
        if name == b"HEAD" {
            let oid = Oid::from_hex(self.hash, id);
            self.head = match target.filter(|t| refname::is_valid(t)) {
                Some(target) => Symbolic::Branch(target),
                None => Symbolic::Detached(oid.ok_or_else(bad)?),
            };
            self.head_oid = oid;
            return Ok(());
        }
        if id == b"unborn" {
            return Ok(());
        }
        let oid = Oid::from_hex(self.hash, id).ok_or_else(bad)?;
        self.push(name, oid, peeled)
    }

    /// Returns the hash of the ids.
    pub(crate) fn hash(&self) -> HashKind {
        self.hash
    }

    /// Sets the peeled object of the last ref, if that is `tag`.
    pub(crate) fn peel_last(&mut self, tag: &[u8], oid: Oid) {
        if let Some(last) = self.refs.last_mut().filter(|r| r.name == tag) {
            last.peeled = Some(oid);
        }
    }

    pub(crate) fn finish_with(self, head: Symbolic) -> Advertised {
        Advertised { head, ..self.finish() }
    }

    pub(crate) fn finish(self) -> Advertised {
        Advertised { refs: self.refs, head: self.head, head_oid: self.head_oid, refused: self.refused }
    }
}

/// The advertisement of v0 and v1 being gathered.
pub(crate) struct Early {
    list: RefListing,
    head: Option<Oid>,
    pub(crate) shallow: Vec<Oid>,
}

impl Early {
    pub(crate) fn new(hash: HashKind, bytes_max: u64) -> Early {
        Early { list: RefListing::new(hash, bytes_max), head: None, shallow: Vec::new() }
    }

    pub(crate) fn add(&mut self, line: &[u8]) -> Result<()> {
        let hash = self.list.hash;
        let bad = || Error::Protocol(format!("bad ref line '{}'", printable(line)));
        if let Some(id) = line.strip_prefix(b"shallow ") {
            self.shallow.push(Oid::from_hex(hash, id).ok_or_else(bad)?);
            return self.list.count(size_of::<Oid>());
        }
        let split = line.iter().position(|&c| c == b' ').ok_or_else(bad)?;
        let (oid, name) = (Oid::from_hex(hash, &line[..split]).ok_or_else(bad)?, &line[split + 1..]);
        if name == b"HEAD" {
            self.head = Some(oid);
        } else if let Some(tag) = name.strip_suffix(b"^{}") {
            self.list.peel_last(tag, oid);
        } else {
            self.list.push(name, oid, None)?;
        }
        Ok(())
    }

    pub(crate) fn finish(mut self, symref: Option<Vec<u8>>) -> Advertised {
        // "capabilities^{}" with a null id stands for no refs at all.
        self.list.refused.retain(|n| n != b"capabilities");
        let symref = symref.filter(|s| refname::is_valid(s));
        self.list.head_oid = self.head;
        self.list.head = match (symref, self.head) {
            (Some(target), _) => Symbolic::Branch(target),
            (None, Some(oid)) => {
                // Servers before 1.8.4.3 do not send it: guess as git clone does, master or main first.
                let guess = |name: &[u8]| self.list.refs.iter().any(|r| r.name == name && r.oid == oid);
                let known = [&b"refs/heads/master"[..], b"refs/heads/main"].into_iter().find(|n| guess(n));
                known.map_or(Symbolic::Detached(oid), |n| Symbolic::Branch(n.to_vec()))
            }
            (None, None) => Symbolic::Unknown,
        };
        self.list.finish()
    }
}
