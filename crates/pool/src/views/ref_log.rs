//! The states that the refs of a repository had.

use std::collections::VecDeque;
use std::fmt;

use serde::{Serialize, Serializer};
use utoipa::ToSchema;
use weir_catalog::Repository;
use weir_git::Oid;
use weir_ground::{Timestamp, printable};
use weir_repo::{FollowedRefs, Head, StateChange};

use crate::error::{Error, InRepo, Result};
use crate::running::Pool;

/// A state that the refs had, and how it differs from the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct RefLogEntry {
    /// Its number.
    pub seq: u64,
    /// When it was written; unknown of those before the last compaction.
    #[schema(value_type = Option<i64>)]
    pub time: Option<Timestamp>,
    /// The number of refs.
    pub refs: usize,
    /// How many refs are new.
    pub added: usize,
    /// How many refs have another object.
    pub updated: usize,
    /// How many refs are gone.
    pub deleted: usize,
    /// Whether HEAD has changed.
    pub head_changed: bool,
    /// The branch or commit that HEAD leads to since then, if it led elsewhere before.
    #[serde(skip)]
    #[schema(ignore)]
    pub moved_head: Option<String>,
    /// Whether the upstream had more, and a visit could not fetch it.
    #[serde(rename = "partial")]
    pub is_partial: bool,
    /// The refs that differ, or the first of them.
    #[schema(value_type = Vec<String>)]
    pub changes: Vec<RefChange>,
}

/// A ref that differs between two states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefChange {
    /// Its name, without bytes that control a terminal.
    pub name: String,
    /// The object before; `None`, if it is new.
    pub old: Option<Oid>,
    /// The object after; `None`, if it is gone.
    pub new: Option<Oid>,
}

impl fmt::Display for RefChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.old, self.new) {
            (Some(old), Some(new)) => write!(f, "~ {} {old}..{new}", self.name),
            (None, Some(new)) => write!(f, "+ {} {new}", self.name),
            (Some(old), None) => write!(f, "- {} {old}", self.name),
            (None, None) => write!(f, "- {}", self.name),
        }
    }
}

impl Serialize for RefChange {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Returns the states of the refs of `r`, the last one first, at most `max`, with at most `changes_max`
/// changes each.
///
/// # Errors
/// If it was never mirrored, or the archive cannot be read.
pub fn ref_log(
    pool: &Pool,
    r: &Repository,
    max: Option<usize>,
    changes_max: usize,
) -> Result<VecDeque<RefLogEntry>> {
    let repo = pool.open_repo(r)?;
    let Some(mut states) = repo.ref_states().in_repo(&r.name)? else {
        return Err(Error::NotMirrored(r.name.clone()));
    };
    let mut entries = VecDeque::new();
    while let Some((before, change)) = states.next_state().in_repo(&r.name)? {
        entries.push_front(RefLogEntry::of(before, change, changes_max));
        entries.truncate(max.unwrap_or(usize::MAX));
    }
    Ok(entries)
}

impl RefLogEntry {
    /// Counts the changes that `change` makes to the refs `before`, and keeps the first `changes_max`.
    fn of(before: &FollowedRefs, change: &StateChange, changes_max: usize) -> RefLogEntry {
        let printed = |name: &[u8]| printable(&String::from_utf8_lossy(name));
        let head = change.head.as_ref().filter(|_| !before.is_empty()).map(|head| match head {
            Head::Symbolic(name) => printed(name.strip_prefix(b"refs/heads/").unwrap_or(name)),
            Head::Detached(oid) => oid.to_string(),
        });
        let mut entry = RefLogEntry {
            seq: change.seq,
            moved_head: head,
            time: change.time,
            is_partial: change.is_partial,
            head_changed: change.head.is_some(),
            ..RefLogEntry::default()
        };
        for r in &change.set {
            let old = before.get(&r.name);
            match old {
                None => entry.added += 1,
                Some(old) if old != r.oid => entry.updated += 1,
                // The ref is the same; only the object that it peels to became known.
                Some(_) => continue,
            }
            if entry.changes.len() < changes_max {
                entry.changes.push(RefChange { name: printed(&r.name), old, new: Some(r.oid) });
            }
        }
        for name in &change.removed {
            entry.deleted += 1;
            if let Some(old) = before.get(name).filter(|_| entry.changes.len() < changes_max) {
                entry.changes.push(RefChange { name: printed(name), old: Some(old), new: None });
            }
        }
        entry.refs = before.len() + entry.added - entry.deleted;
        entry
    }
}
