//! Commits as text.

use weir_git::{HashKind, Oid};
use weir_mine::{CommitDecoder, CommitParts, Ident, lossy};
use weir_repo::{ObjectReader, Repo};

use crate::error::{Error, Result};
use crate::kept;

/// A commit, in UTF-8. U+FFFD replaces what no encoding explains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldCommit {
    /// The id.
    pub oid: Oid,
    /// The id of the tree.
    pub tree: Oid,
    /// The ids of the parents.
    pub parents: Vec<Oid>,
    /// Who wrote the change.
    pub author: Person,
    /// Who made the commit.
    pub committer: Person,
    /// The message.
    pub message: String,
    /// The kind of the signature, if there is one: `openpgp`, `ssh`, `x509` or `other`.
    pub signature: Option<&'static str>,
}

/// A person at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Person {
    /// The name.
    pub name: String,
    /// The email address.
    pub email: String,
    /// The time in seconds since 1970.
    pub seconds: Option<i64>,
    /// The offset from UTC in minutes.
    pub offset_minutes: Option<i16>,
}

impl From<&Ident<'_>> for Person {
    fn from(ident: &Ident<'_>) -> Person {
        Person {
            name: lossy(ident.name).into_owned(),
            email: lossy(ident.email).into_owned(),
            seconds: ident.seconds,
            offset_minutes: ident.offset_minutes(),
        }
    }
}

/// Reads commits as text.
pub struct ToldCommits<'r> {
    repo: &'r Repo,
    hash: HashKind,
    reader: ObjectReader<'r>,
    decoder: CommitDecoder,
}

impl<'r> ToldCommits<'r> {
    /// Returns a reader of the commits of `repo`.
    pub fn new(repo: &'r Repo) -> ToldCommits<'r> {
        ToldCommits { repo, hash: repo.hash(), reader: repo.reader(), decoder: CommitDecoder::default() }
    }

    /// Reads the commit `oid`.
    ///
    /// # Errors
    /// If it is missing, or no commit.
    pub fn read(&mut self, oid: &Oid) -> Result<ToldCommit> {
        let object = kept::read(&mut self.reader, oid)?;
        let raw = CommitParts::parse(self.hash, &object).map_err(Error::of_object(oid))?;
        let decoded = self.decoder.decode(raw.encoding, raw.data);
        let parts = match &decoded {
            Some(text) => CommitParts::parse_text(&raw.links, text),
            None => raw,
        };
        // Where history is cut off, a commit has no parents.
        let is_shallow = self.repo.history().shallow().contains(oid);
        let parents = if is_shallow { Vec::new() } else { parts.links.parents.clone() };
        Ok(ToldCommit {
            oid: *oid,
            tree: parts.links.tree,
            parents,
            author: (&parts.author).into(),
            committer: (&parts.committer).into(),
            message: lossy(parts.message).into_owned(),
            signature: parts.signature.map(weir_mine::SignatureKind::name),
        })
    }
}
