//! The states of the refs, and what is new since the last mining.

use std::io;

use weir_git::{Oid, OidSet};
use weir_ground::Timestamp;
use weir_repo::{FollowedRefs, Head, Ref, Repo, StateChange};

use crate::error::{Error, Result};
use crate::miner::MineReport;
use crate::rows::{FaultKind, FaultRow, RefChangeRow, RowSink, VisitRow};

/// What of a repository was mined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MinedState {
    /// Which states of the refs.
    pub refs: MinedRefs,
    /// The commits at which history ended, and those that were grafted or replaced with what they were given;
    /// ascending. `None` if that is not known.
    pub joins: Option<Vec<Oid>>,
    /// The commit that HEAD had.
    pub head: Option<Oid>,
    /// If something could not be read: what was there, as [`weir_repo::Objects::fingerprint`] tells it. Once
    /// that differs, everything is mined again.
    pub unread: Option<String>,
}

/// The states of the refs that were mined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MinedRefs {
    /// None.
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
        /// What refs pointed at before, and do not any more; ascending.
        past: Vec<Oid>,
    },
}

/// What is to be mined of a repository.
#[derive(Clone, Debug, Default)]
pub struct ToMine {
    /// What refs point at, or pointed at in a state since the last mining.
    pub wanted: Vec<Oid>,
    /// What refs pointed at in states that were mined before. Empty if everything is mined again.
    pub known: Vec<Oid>,
    /// Whether rows of the same commits and tags may have been written before. The new ones take their place.
    pub replaces: bool,
    /// The commit that HEAD had then.
    pub known_head: Option<Oid>,
    /// The refs that cannot be read.
    pub faults: Vec<FaultRow>,
    /// What will have been mined, if all of it can be read.
    pub state: MinedState,
    /// What is there, as [`MinedState::unread`] has it.
    there: String,
}

impl ToMine {
    /// Returns what was mined, with what `report` tells of it.
    pub fn mined(self, report: &MineReport) -> MinedState {
        let has_unread = report.has_unread || self.state.unread.is_some();
        MinedState { unread: has_unread.then_some(self.there), ..self.state }
    }
}

/// Writes the states of the refs of `repo` that are new since `before`. `now` is the time of the state of a
/// git directory. Returns `None` if nothing is new.
///
/// # Errors
/// If the archive is damaged or older than `before`, or the sink fails.
pub fn mine_visits<S: RowSink>(
    repo: &Repo,
    before: &MinedState,
    now: Timestamp,
    sink: &mut S,
) -> Result<Option<ToMine>> {
    // Grafts and replacements join histories as shallow commits end them.
    let mut joins = repo.history().shallow().to_vec();
    joins
        .extend(repo.extras().grafts.iter().flat_map(|(commit, parents)| [&[*commit][..], parents].concat()));
    joins.extend(repo.replaced().into_iter().flat_map(|(replaced, by)| [replaced, by]));
    joins.sort_unstable();
    let mut new = ToMine { there: repo.objects().fingerprint()?, ..ToMine::default() };
    new.state.joins = Some(joins);
    // What cannot be read leads to where it led.
    let head = repo.refs().head_oid();
    new.state.head = if head.is_some_and(|oid| oid.is_null()) { before.head } else { head };
    new.known_head = before.head;
    let is_new = match repo.ref_states()? {
        Some(_) => of_archive(repo, before, &mut new, sink)?,
        None => of_directory(repo, before, now, &mut new, sink)?,
    };
    new.wanted.extend(new.state.head);
    new.known.extend(before.head);
    // A directory may have been converted: then nothing of what is there was mined.
    new.known.retain(|tip| tip.kind() == repo.hash());
    let has_other_joins = before.joins.is_some() && before.joins != new.state.joins;
    let has_other_objects = match &before.unread {
        Some(unread) => *unread != new.there,
        None => !is_new && !new.faults.is_empty(),
    };
    if has_other_joins || has_other_objects {
        // Rows of commits that were mined may not be right any more, and others may lie behind them.
        new.wanted.extend(new.known.drain(..).filter(|tip| repo.contains(tip)));
        new.replaces = true;
    } else if is_new || before.head != new.state.head {
        // What could not be read before still cannot.
        new.state.unread.clone_from(&before.unread);
    } else {
        return Ok(None);
    }
    // Of what was removed for good, a part may come back: it cannot be told by its tip then.
    new.replaces |= new.known.iter().any(|tip| !repo.contains(tip));
    Ok(Some(new))
}

/// The objects that the refs of a repository point at now.
#[derive(Clone, Debug, Default)]
pub struct PresentTips {
    /// The objects.
    pub wanted: Vec<Oid>,
    /// The refs that cannot be read.
    pub faults: Vec<FaultRow>,
    /// The commit of HEAD.
    pub head: Option<Oid>,
}

impl PresentTips {
    /// Returns what the refs of `repo` point at.
    pub fn of(repo: &Repo) -> PresentTips {
        let head = repo.refs().head_oid().filter(|oid| !oid.is_null());
        let (readable, unreadable): (Vec<&Ref>, Vec<&Ref>) =
            repo.refs().list().iter().partition(|r| !r.oid.is_null());
        PresentTips {
            wanted: readable.into_iter().map(|r| r.oid).chain(head).collect(),
            faults: unreadable.into_iter().map(unreadable_ref).collect(),
            head,
        }
    }
}

fn unreadable_ref(r: &Ref) -> FaultRow {
    let text = format!("the ref '{}' cannot be read", String::from_utf8_lossy(&r.name));
    FaultRow { object: r.oid, kind: FaultKind::Malformed, revision: None, text }
}

/// Writes the states of an archive that are new, and returns whether there are any.
fn of_archive<S: RowSink>(repo: &Repo, before: &MinedState, new: &mut ToMine, sink: &mut S) -> Result<bool> {
    let mined = match before.refs {
        MinedRefs::Archive { seq } => Some(seq),
        _ => None,
    };
    let end = repo.archive().expect("it is an archive").state().record.seq;
    if let Some(mined) = mined.filter(|mined| end < *mined) {
        return Err(Error::Older { mined, found: end });
    }
    let mut states = repo.ref_states()?.expect("it is an archive");
    new.state.refs = MinedRefs::Archive { seq: end };
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
    Ok(is_new)
}

/// Writes the refs of a git directory, if they are new, and returns whether they are.
fn of_directory<S: RowSink>(
    repo: &Repo,
    before: &MinedState,
    now: Timestamp,
    new: &mut ToMine,
    sink: &mut S,
) -> Result<bool> {
    let (visits, old, past) = match &before.refs {
        MinedRefs::Directory { visits, refs, past } => (*visits, &refs[..], &past[..]),
        _ => (0, &[][..], &[][..]),
    };
    let find = |list: &[(Vec<u8>, Oid)], name: &[u8]| {
        list.binary_search_by(|(other, _)| other.as_slice().cmp(name)).ok().map(|at| list[at].1)
    };
    let mut refs: Vec<(Vec<u8>, Oid)> = Vec::with_capacity(repo.refs().list().len());
    for r in repo.refs().list() {
        if !r.oid.is_null() {
            refs.push((r.name.clone(), r.oid));
            continue;
        }
        // What cannot be read is not gone.
        refs.extend(find(old, &r.name).map(|oid| (r.name.clone(), oid)));
        new.there += &format!(" {}", String::from_utf8_lossy(&r.name));
        new.faults.push(unreadable_ref(r));
    }
    if let Head::Detached(oid) = repo.refs().head {
        refs.push((b"HEAD".to_vec(), oid));
    }
    refs.extend(repo.extras().heads.iter().cloned());
    refs.sort_unstable();
    let is_new = visits == 0 || refs != old;
    let visit = visits + u64::from(is_new);
    if is_new {
        let snapshot = repo.snapshot_id(repo.refs())?;
        sink.visit(&VisitRow { visit, date: Some(now), snapshot, is_partial: false })?;
        for (name, oid) in old.iter().filter(|(name, _)| find(&refs, name).is_none()) {
            sink.ref_change(&RefChangeRow { visit, name, old: Some(*oid), new: None })?;
        }
        for (name, oid) in &refs {
            let before = find(old, name);
            if before != Some(*oid) {
                sink.ref_change(&RefChangeRow { visit, name, old: before, new: Some(*oid) })?;
            }
        }
    }
    new.wanted = refs.iter().map(|(_, oid)| *oid).collect();
    new.known = old.iter().map(|(_, oid)| *oid).chain(past.iter().copied()).collect();
    new.known.sort_unstable();
    new.known.dedup();
    let now_there: OidSet = new.wanted.iter().copied().collect();
    let past = new.known.iter().filter(|tip| !now_there.contains(tip)).copied().collect();
    new.state.refs = MinedRefs::Directory { visits: visit, refs, past };
    Ok(is_new)
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
