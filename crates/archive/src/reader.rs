//! Reading an archive in place.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use crate::error::Result;
use crate::record::Record;
use crate::region::Region;
use crate::state::{self, State};

/// An archive as of one commit: what was open stays readable whatever is appended, compacted or renamed meanwhile.
#[derive(Clone)]
pub struct Archive {
    file: Arc<File>,
    region: Region,
    state: Arc<State>,
}

impl Archive {
    /// Opens the archive at `path` as last committed.
    ///
    /// # Errors
    /// Of the system; [`crate::Error::NoCommit`] and [`crate::Error::Damaged`] as the file is.
    pub fn open(path: &Path) -> Result<Archive> {
        Archive::from_file(Arc::new(File::open(path)?))
    }

    /// The same from an open file.
    ///
    /// # Errors
    /// As [`Archive::open`].
    pub fn from_file(file: Arc<File>) -> Result<Archive> {
        let state = state::find(&*file)?;
        Archive::with_state(file, state)
    }

    /// The same in a `state` that is known: a writer's on that file, say. Nothing is searched or verified again.
    ///
    /// # Errors
    /// Of the system.
    pub fn with_state(file: Arc<File>, state: State) -> Result<Archive> {
        let region = Region::map(file.clone(), state.end())?;
        Ok(Archive { file, region, state: Arc::new(state) })
    }

    /// The archive as of commit `seq`; `None` if it has no such commit (any more).
    ///
    /// # Errors
    /// If the chain of records is damaged.
    pub fn at(&self, seq: u64) -> Result<Option<Archive>> {
        if seq == self.state.record.seq {
            return Ok(Some(self.clone()));
        }
        let mut record = self.state.record.clone();
        while let Some((older, at)) = state::previous(&*self.file, &record)? {
            if older.seq == seq {
                let state = state::assemble(&*self.file, older, at)?;
                return Archive::with_state(self.file.clone(), state).map(Some);
            }
            record = older;
        }
        Ok(None)
    }

    /// All records, newest first.
    ///
    /// # Errors
    /// If the chain of records is damaged.
    pub fn records(&self) -> Result<Vec<Record>> {
        let mut records = vec![self.state.record.clone()];
        while let Some((older, _)) = state::previous(&*self.file, &records[records.len() - 1])? {
            records.push(older);
        }
        Ok(records)
    }

    /// What is committed.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The data of the live member called `name`.
    pub fn member(&self, name: &str) -> Option<Region> {
        let m = self.state.members.get(name)?;
        self.region.slice(m.offset..m.offset + m.len)
    }

    /// The value of the attribute called `key`.
    pub fn attribute(&self, key: &str) -> Option<&str> {
        self.state.attributes.get(key).map(String::as_str)
    }

    /// The whole committed part.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The open file.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }
}
