//! The refs of a repository as they once were.

use weir_git::OidSet;

use crate::error::Result;
use crate::refs::list::Refs;
use crate::refs::states::RefStates;
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
        let Some(mut states) = self.ref_states()? else { return Ok(None) };
        while let Some((refs, change)) = states.next_state()? {
            if change.seq > seq {
                return Ok(refs.head.is_some().then(|| refs.to_refs()));
            }
        }
        let refs = states.into_last()?;
        Ok(refs.head.is_some().then(|| refs.to_refs()))
    }
}
