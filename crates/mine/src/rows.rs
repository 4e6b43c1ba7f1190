//! The rows that mining makes, and who takes them.

use std::io;

use weir_git::{Oid, OidSet};
use weir_ground::Timestamp;

use crate::commit::{CommitParts, TagParts};
use crate::renames::Status;

/// A commit.
#[derive(Clone, Copy, Debug)]
pub struct RevisionRow<'a> {
    /// Its id.
    pub id: Oid,
    /// Its parts.
    pub commit: &'a CommitParts<'a>,
}

/// A state of the refs.
#[derive(Clone, Copy, Debug)]
pub struct VisitRow {
    /// The number of the state: that of the commit of the archive, or 1, 2, ... for a git directory.
    pub visit: u64,
    /// The time of the state, if it is known.
    pub date: Option<Timestamp>,
    /// The SHA-1 of the state as Software Heritage defines it.
    pub snapshot: Option<Oid>,
    /// Whether the rest of what the upstream had was not received.
    pub is_partial: bool,
}

/// A ref that is new in a state, points elsewhere, or is gone.
#[derive(Clone, Copy, Debug)]
pub struct RefChangeRow<'a> {
    /// The number of the state.
    pub visit: u64,
    /// The name of the ref.
    pub name: &'a [u8],
    /// What it pointed at in the state before.
    pub old: Option<Oid>,
    /// What it points at.
    pub new: Option<Oid>,
}

/// An annotated tag.
#[derive(Clone, Copy, Debug)]
pub struct ReleaseRow<'a> {
    /// Its id.
    pub id: Oid,
    /// The object that it names, and the kind of it; `None` if the tag is malformed.
    pub target: Option<(Oid, weir_git::Kind)>,
    /// Its parts.
    pub tag: &'a TagParts<'a>,
}

/// A side of a file change.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The path of the file.
    pub path: &'a [u8],
    /// The id of the blob, or of the commit of a submodule.
    pub id: Oid,
    /// The mode, as git prints it.
    pub mode: u32,
}

/// A file that a commit changed, as a line of `git diff-tree -r --root` says it.
#[derive(Clone, Copy, Debug)]
pub struct FileChangeRow<'a> {
    /// The commit.
    pub revision: Oid,
    /// The time of the committer in seconds since 1970; `None` if the commit has none.
    pub committer_date: Option<i64>,
    /// The number of the parent that the commit is compared with, from 0. A root is compared with nothing.
    pub parent_rank: u32,
    /// Whether the commit has several parents.
    pub is_merge: bool,
    /// The sort of the change.
    pub status: Status,
    /// The similarity in percent, of renames and copies.
    pub similarity: Option<u8>,
    /// The file before.
    pub old: Option<Side<'a>>,
    /// The file after.
    pub new: Option<Side<'a>>,
    /// The changed lines, if they were asked for.
    pub lines: Option<Lines>,
}

/// How many lines a change adds and removes, as `git diff-tree --numstat` counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// Both sides are text.
    Text {
        /// Lines that were added.
        insertions: u64,
        /// Lines that were removed.
        deletions: u64,
    },
    /// At least one side is binary.
    Binary,
    /// At least one side is missing, or cannot be decoded.
    Unavailable,
}

/// The sort of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The object is not in the repository.
    Missing,
    /// The object cannot be decoded, or is malformed.
    Malformed,
    /// More rows than are wanted.
    Limit,
}

impl FaultKind {
    /// Returns the value in tables.
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::Missing => "missing",
            FaultKind::Malformed => "malformed",
            FaultKind::Limit => "limit",
        }
    }
}

/// Something that could not be mined. The rest was.
#[derive(Clone, Debug)]
pub struct FaultRow {
    /// The object.
    pub object: Oid,
    /// The sort of the error.
    pub kind: FaultKind,
    /// The commit in whose comparison the object was met, if any.
    pub revision: Option<Oid>,
    /// The error in words.
    pub text: String,
}

/// Rows that were written before and that new ones take the place of.
#[derive(Clone, Debug, Default)]
pub struct ReplacedRows {
    /// The commits that are mined again.
    pub revisions: OidSet,
    /// The annotated tags that are.
    pub releases: OidSet,
    /// Whether all errors are found again; otherwise those of these commits and tags.
    pub all_faults: bool,
    /// Whether all commits of the default branch come again.
    pub all_of_branch: bool,
}

/// Takes rows. Each thread of a miner has its own.
pub trait RowSink: Send {
    /// Takes a commit.
    ///
    /// # Errors
    /// If the row cannot be written, like all functions here. Mining ends then.
    fn revision(&mut self, row: &RevisionRow<'_>) -> io::Result<()> {
        let _ = row;
        Ok(())
    }

    /// Takes a state of the refs.
    ///
    /// # Errors
    /// See [`RowSink::revision`].
    fn visit(&mut self, row: &VisitRow) -> io::Result<()> {
        let _ = row;
        Ok(())
    }

    /// Takes a change of a ref, after its state.
    ///
    /// # Errors
    /// See [`RowSink::revision`].
    fn ref_change(&mut self, row: &RefChangeRow<'_>) -> io::Result<()> {
        let _ = row;
        Ok(())
    }

    /// Takes an annotated tag.
    ///
    /// # Errors
    /// See [`RowSink::revision`].
    fn release(&mut self, row: &ReleaseRow<'_>) -> io::Result<()> {
        let _ = row;
        Ok(())
    }

    /// Takes a changed file.
    ///
    /// # Errors
    /// See [`RowSink::revision`].
    fn file_change(&mut self, row: &FileChangeRow<'_>) -> io::Result<()> {
        let _ = row;
        Ok(())
    }

    /// Takes a commit of the default branch.
    ///
    /// # Errors
    /// See [`RowSink::revision`].
    fn branch_commit(&mut self, revision: Oid) -> io::Result<()> {
        let _ = revision;
        Ok(())
    }

    /// Takes an error.
    ///
    /// # Errors
    /// See [`RowSink::revision`].
    fn fault(&mut self, row: &FaultRow) -> io::Result<()> {
        let _ = row;
        Ok(())
    }

    /// Removes rows that an earlier mining of the repository wrote, before any row of commits and tags comes.
    ///
    /// # Errors
    /// See [`RowSink::revision`].
    fn replace(&mut self, rows: ReplacedRows) -> io::Result<()> {
        let _ = rows;
        Ok(())
    }
}

impl<S: RowSink + ?Sized> RowSink for &mut S {
    fn revision(&mut self, row: &RevisionRow<'_>) -> io::Result<()> {
        (**self).revision(row)
    }

    fn visit(&mut self, row: &VisitRow) -> io::Result<()> {
        (**self).visit(row)
    }

    fn ref_change(&mut self, row: &RefChangeRow<'_>) -> io::Result<()> {
        (**self).ref_change(row)
    }

    fn release(&mut self, row: &ReleaseRow<'_>) -> io::Result<()> {
        (**self).release(row)
    }

    fn file_change(&mut self, row: &FileChangeRow<'_>) -> io::Result<()> {
        (**self).file_change(row)
    }

    fn branch_commit(&mut self, revision: Oid) -> io::Result<()> {
        (**self).branch_commit(revision)
    }

    fn fault(&mut self, row: &FaultRow) -> io::Result<()> {
        (**self).fault(row)
    }

    fn replace(&mut self, rows: ReplacedRows) -> io::Result<()> {
        (**self).replace(rows)
    }
}

/// Takes rows and drops them.
pub struct NoRows;

impl RowSink for NoRows {}
