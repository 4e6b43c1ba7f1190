//! The refs of a repository as they once were, and the repository with them.

use weir_git::OidSet;

use crate::error::{Error, Result};
use crate::refs::list::Refs;
use crate::refs::state_kind::PARTIAL_KEY;
use crate::refs::states::{RefStates, StateChange};
use crate::repo::named_state::NamedState;
use crate::repo::repository::Repo;

impl Repo {
    /// Returns the states of the refs; `None` for a directory, which has none.
    ///
    /// # Errors
    /// If the archive is damaged.
    pub fn ref_states(&self) -> Result<Option<RefStates<'_>>> {
        self.archive().map(|archive| RefStates::of(archive, self.hash())).transpose()
    }

    /// Returns the ids of everything that refs point at, or once pointed at.
    ///
    /// # Errors
    /// If the archive is damaged.
    pub fn tips_ever(&self) -> Result<OidSet> {
        let mut tips: OidSet = self.refs().tips().collect();
        if let Some(mut states) = self.ref_states()? {
            while let Some((_, change)) = states.next_state()? {
                tips.extend(change.tips());
            }
        }
        Ok(tips)
    }

    /// Returns the refs as of commit `seq`; `None` if there were no refs yet, or that commit is still to
    /// come.
    ///
    /// # Errors
    /// If the archive is damaged.
    pub fn refs_at(&self, seq: u64) -> Result<Option<Refs>> {
        if self.archive().is_none_or(|archive| archive.state().record.seq < seq) {
            return Ok(None);
        }
        self.refs_before(|change| change.seq > seq)
    }

    /// Returns the refs before the first state that `is_later`.
    fn refs_before(&self, is_later: impl Fn(&StateChange) -> bool) -> Result<Option<Refs>> {
        let Some(mut states) = self.ref_states()? else { return Ok(None) };
        while let Some((refs, change)) = states.next_state()? {
            if is_later(change) {
                return Ok(refs.head.is_some().then(|| refs.to_refs()));
            }
        }
        let refs = states.into_last()?;
        Ok(refs.head.is_some().then(|| refs.to_refs()))
    }

    /// Returns the repository in an older state; `None` if it has no such state.
    ///
    /// The archive is opened as of the commit that brought the state: that part of it is as it was, with its
    /// stored clones. If a compaction has replaced that commit, the present archive is opened with the refs
    /// of that state.
    ///
    /// # Errors
    /// If the archive is damaged, or has not all of that state any more.
    pub fn at_state(&self, state: NamedState) -> Result<Option<Repo>> {
        let Some(archive) = self.archive() else { return Ok(None) };
        let last = archive.state().record.seq;
        if matches!(state, NamedState::Number(seq) if seq > last) {
            return Ok(None);
        }
        let is_partial = |set: &[(String, String)]| set.iter().any(|(key, _)| key == PARTIAL_KEY);
        let committed = archive.at_newest(|record| {
            let is_by_then = match state {
                NamedState::Number(seq) => record.seq <= seq,
                NamedState::Until(time) => record.time <= time,
            };
            is_by_then && (record.seq == last || !is_partial(&record.set))
        })?;
        if let Some(committed) = committed {
            if committed.member("packed-refs").is_none() {
                return Ok(None);
            }
            return Repo::from_archive(committed, self.path()).map(Some);
        }
        let refs = self.refs_before(|change| match state {
            NamedState::Number(seq) => change.seq > seq,
            NamedState::Until(time) => change.time.is_some_and(|at| at > time),
        })?;
        let Some(refs) = refs else { return Ok(None) };
        if let Some(missing) = refs.tips().find(|oid| !self.contains(oid)) {
            return Err(Error::NotFound(format!(
                "the archive has not all of state {state} any more: {missing}"
            )));
        }
        let mut repo = Repo::from_archive(archive.clone(), self.path())?;
        repo.set_refs(refs);
        Ok(Some(repo))
    }
}
