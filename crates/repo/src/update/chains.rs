//! Knows whether the chains of deltas in an archive are as short as git writes them.

use weir_git::HashKind;
use weir_ground::Timestamp;

use crate::error::Result;
use crate::objects::entry::{DELTA_CHAIN_MAX, Stored};
use crate::objects::pack::Pack;
use crate::repo::keys::{DELTAS_KEY, LONG_DELTAS, SHORT_DELTAS};
use crate::update::archive_repo::ArchiveRepo;

impl ArchiveRepo {
    /// Returns whether a chain of deltas is longer than git writes it. A compaction mends that. In an archive
    /// that does not say, all chains are looked at, once.
    ///
    /// # Errors
    /// If the archive is damaged or the disk fails.
    pub fn has_long_chains(&mut self, time: Timestamp) -> Result<bool> {
        if let Some(told) = self.state().and_then(|state| state.attributes.get(DELTAS_KEY)) {
            return Ok(told == LONG_DELTAS);
        }
        let Some(repo) = self.repo()? else { return Ok(false) };
        let of_base = repo.base().map_or(0, |base| base.objects().packs().len());
        let mut is_long = false;
        for pack in &repo.objects().packs()[of_base..] {
            is_long |= chain_len(pack, repo.hash())? > u32::from(DELTA_CHAIN_MAX);
        }
        let value = if is_long { LONG_DELTAS } else { SHORT_DELTAS };
        self.commit_members(&[], &[(DELTAS_KEY.to_owned(), value.to_owned())], time)?;
        Ok(is_long)
    }
}

/// Returns the length of the longest chain of deltas in `pack`; 0 if it is too small for a long one.
fn chain_len(pack: &Pack, hash: HashKind) -> Result<u32> {
    let count = pack.index().count();
    if count <= u32::from(DELTA_CHAIN_MAX) {
        return Ok(0);
    }
    let starts = pack.starts(0, count - 1)?;
    let mut lens = vec![None; count as usize];
    let mut chain = Vec::new();
    for rank in 0..count as usize {
        let mut next = Some(rank);
        let mut len = loop {
            let Some(at) = next else { break 0 };
            // A circle is damage, and damage is not told here.
            if lens[at].is_some() || chain.len() > count as usize {
                break lens[at].unwrap_or(0);
            }
            let base = match pack.entry(starts[at])?.stored {
                Stored::Whole(_) => None,
                Stored::OfsDelta(distance) => Some(starts[at] - distance),
                Stored::RefDelta(start) => {
                    let start = starts[at] as usize + start;
                    let id = &pack.data()[start..start + hash.len()];
                    pack.index().find(id).map(|position| pack.offset(position)).transpose()?
                }
            };
            match base {
                Some(base) => {
                    chain.push(at);
                    next = starts.binary_search(&base).ok();
                }
                None => break *lens[at].insert(0),
            }
        };
        while let Some(at) = chain.pop() {
            len += 1;
            lens[at] = Some(len);
        }
    }
    Ok(lens.into_iter().flatten().max().unwrap_or_default())
}
