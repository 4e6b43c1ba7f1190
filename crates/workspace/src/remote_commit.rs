//! A commit whose objects are on another machine.

use std::rc::Rc;
use std::sync::{Arc, PoisonError, RwLock};

use weir_git::{Kind, ObjectHasher, Oid};
use weir_repo::{CommitTrees, Repo};

use crate::error::{Error, Result};

/// A function that opens the repository of a commit.
pub type Reopen = Box<dyn Fn() -> Result<Repo> + Send + Sync>;

/// A commit whose objects are on another machine.
pub struct RemoteCommit {
    /// The trees and sizes.
    pub(crate) trees: CommitTrees,
    reopen: Reopen,
    /// The repository that files are read from, since it had to be opened again.
    opened: RwLock<Option<Arc<Repo>>>,
}

impl RemoteCommit {
    /// Returns the commit of these trees. `reopen` opens its repository again.
    pub fn new(trees: CommitTrees, reopen: Reopen) -> RemoteCommit {
        RemoteCommit { trees, reopen, opened: RwLock::default() }
    }

    /// Returns the file `oid` of `size` bytes, which is what its id says. `repo` is the repository as it was
    /// opened first.
    ///
    /// # Errors
    /// If it cannot be read now, or is something else.
    pub(crate) fn file(&self, repo: &Arc<Repo>, oid: &Oid, size: u64) -> Result<Rc<Vec<u8>>> {
        let opened = self.opened.read().unwrap_or_else(PoisonError::into_inner).clone();
        let repo = opened.as_ref().unwrap_or(repo);
        let found = read(repo, oid, size);
        // What could not be read once stays away in this map.
        if found.is_err()
            && repo.check_reads().is_err()
            && let Ok(again) = (self.reopen)()
        {
            *self.opened.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(again));
        }
        found
    }
}

fn read(repo: &Repo, oid: &Oid, size: u64) -> Result<Rc<Vec<u8>>> {
    let object = repo.reader().require(oid)?;
    if object.kind != Kind::Blob {
        return Err(Error::NotAFile);
    }
    let found = ObjectHasher::hash(repo.hash(), Kind::Blob, &object.data);
    if found.is_ok_and(|found| found == *oid) && object.data.len() as u64 == size {
        return Ok(object.data);
    }
    // Bytes that could not be read are zeroes.
    repo.check_reads()?;
    Err(Error::Untrusted(*oid))
}
