//! The states of the refs, and what is new since the last mining.

use std::io;

use weir_git::Oid;
use weir_ground::Timestamp;
use weir_repo::{FollowedRefs, Head, Repo, StateChange};

use crate::error::{Error, Result};
use crate::rows::{RefChangeRow, RowSink, VisitRow};

/// What of a repository was mined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MinedState {
    /// Nothing.
    #[default]
    Nothing,
    /// The states of an archive up to the commit with this number.
    Archive {
        /// The number.
        seq: u64,
    },
    /// The refs of a git directory.
    Directory {
        /// The number of times that it was mined with other refs than before.
        visits: u64,
        /// Names and ids, ascending by name. The name of a detached HEAD is `HEAD`.
        refs: Vec<(Vec<u8>, Oid)>,
    },
}

/// What is to be mined of a repository.
#[derive(Clone, Debug, Default)]
pub struct ToMine {
    /// What refs point at, or pointed at in a state since the last mining.
    pub wanted: Vec<Oid>,
    /// What refs pointed at in states that were mined before.
    pub known: Vec<Oid>,
    /// What will have been mined.
    pub state: MinedState,
}

/// Writes the states of the refs of `repo` that are new since `before`. `now` is the time of the state of a
/// git directory. Returns `None` if there are none.
///
/// # Errors
/// If the archive is damaged or older than `before`, or the sink fails.
pub fn mine_visits<S: RowSink>(
    repo: &Repo,
    before: &MinedState,
    now: Timestamp,
    sink: &mut S,
) -> Result<Option<ToMine>> {
    match repo.ref_states()? {
        Some(_) => of_archive(repo, before, sink),
        None => of_directory(repo, before, now, sink),
    }
}

fn of_archive<S: RowSink>(repo: &Repo, before: &MinedState, sink: &mut S) -> Result<Option<ToMine>> {
    let mined = match before {
        MinedState::Archive { seq } => Some(*seq),
        _ => None,
    };
    let end = repo.archive().expect("it is an archive").state().record.seq;
    if let Some(mined) = mined.filter(|mined| end < *mined) {
        return Err(Error::Older { mined, found: end });
    }
    let mut states = repo.ref_states()?.expect("it is an archive");
    let mut new = ToMine { state: MinedState::Archive { seq: end }, ..ToMine::default() };
    let mut is_new = false;
    while let Some((refs, change)) = states.next_state()? {
        if mined.is_some_and(|mined| change.seq <= mined) {
            new.known.extend(change.tips());
            continue;
        }
        is_new = true;
        new.wanted.extend(change.tips());
        write_state(repo, refs, change, sink)?;
    }
    Ok(is_new.then_some(new))
}

fn of_directory<S: RowSink>(
    repo: &Repo,
    before: &MinedState,
    now: Timestamp,
    sink: &mut S,
) -> Result<Option<ToMine>> {
    let (visits, old) = match before {
        MinedState::Directory { visits, refs } => (*visits, refs.clone()),
        _ => (0, Vec::new()),
    };
    let mut refs: Vec<(Vec<u8>, Oid)> = repo.refs().list().iter().map(|r| (r.name.clone(), r.oid)).collect();
    if let Head::Detached(oid) = repo.refs().head {
        refs.push((b"HEAD".to_vec(), oid));
    }
    refs.sort_unstable();
    if visits > 0 && refs == old {
        return Ok(None);
    }
    let visit = visits + 1;
    let find = |list: &[(Vec<u8>, Oid)], name: &[u8]| {
        list.binary_search_by(|(other, _)| other.as_slice().cmp(name)).ok().map(|at| list[at].1)
    };
    let snapshot = repo.snapshot_id(repo.refs())?;
    sink.visit(&VisitRow { visit, date: Some(now), snapshot, is_partial: false })?;
    for (name, oid) in &old {
        if find(&refs, name).is_none() {
            sink.ref_change(&RefChangeRow { visit, name, old: Some(*oid), new: None })?;
        }
    }
    for (name, oid) in &refs {
        let before = find(&old, name);
        if before != Some(*oid) {
            sink.ref_change(&RefChangeRow { visit, name, old: before, new: Some(*oid) })?;
        }
    }
    let wanted = refs.iter().map(|(_, oid)| *oid).collect();
    let known = old.into_iter().map(|(_, oid)| oid).collect();
    Ok(Some(ToMine { wanted, known, state: MinedState::Directory { visits: visit, refs } }))
}

fn write_state<S: RowSink>(
    repo: &Repo,
    before: &FollowedRefs,
    change: &StateChange,
    sink: &mut S,
) -> Result<()> {
    let mut after = before.clone();
    after.apply(change);
    let snapshot = repo.snapshot_id(&after.to_refs())?;
    let visit = change.seq;
    sink.visit(&VisitRow { visit, date: change.time, snapshot, is_partial: change.is_partial })?;
    let removed = change.removed.iter().map(|name| (name, None));
    let set = change.set.iter().map(|r| (&r.name, Some(r.oid)));
    removed
        .chain(set)
        .try_for_each(|(name, new)| {
            let old = before.get(name);
            if old == new { Ok(()) } else { sink.ref_change(&RefChangeRow { visit, name, old, new }) }
        })
        .map_err(|e: io::Error| e.into())
}
