//! `weir-bench states ARCHIVE COUNT [--same]`: adds COUNT commits to an archive, each of which moves one ref,
//! or none.

use std::borrow::Cow;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use weir_ground::{Epoch, Timestamp};
use weir_repo::{ArchiveRepo, NewState, Refs, StateKind};

pub(crate) fn run(path: &str, count: u64, same: bool) -> Result<(), crate::Error> {
    let mut archive = ArchiveRepo::open(Path::new(path))?;
    let (mut list, head) = match archive.repo()? {
        Some(repo) => (repo.refs().list().to_vec(), repo.refs().head.clone()),
        None => return Err("the archive is empty".into()),
    };
    let Some(other) = list.iter().find(|r| r.oid != list[0].oid).map(|r| r.oid) else {
        return Err("all refs lead to one object: none can move".into());
    };
    let start = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let first = list[0].oid;
    for n in 0..count {
        if !same {
            // The refs move in turn, from the first to the last.
            let moved = (n % list.len() as u64) as usize;
            list[moved].oid = if list[moved].oid == other { first } else { other };
        }
        let refs = Refs::new(list.clone(), head.clone());
        archive.commit(
            None,
            NewState {
                refs: Cow::Owned(refs),
                shallow: &[],
                time: Timestamp::from(start + n),
                epoch: Epoch::NONE,
                kind: StateKind::Mirrored,
            },
        )?;
    }
    Ok(())
}
