//! The index that the workspaces of a commit begin with: it is written once, and what many begin with is on
//! the disk once.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use weir_git::Oid;

use crate::error::{Error, Result};
use crate::index::{CommitIndex, WantedIndex, index_of};
use crate::index_file::{index_moved_to, is_whole_index};
use crate::workspaces::{NewWorkspace, Workspaces, id};

/// The folder of the indexes.
const INDEXES: &str = "indexes";
/// Bytes that indexes of their own may take, if all workspaces have one of that size.
const OWN_INDEXES_MAX: usize = 32 << 20;

/// The index that the workspaces of a commit began with.
pub(crate) struct KeptIndex {
    pub(crate) path: PathBuf,
    data: Vec<u8>,
    /// Whether it was made for this workspace.
    is_new: bool,
    /// The file of attributes that [`crate::Added`] names.
    pub(crate) converts: Option<String>,
}

impl Workspaces {
    /// Returns the folder of the indexes that workspaces of a commit began with.
    fn index_path(&self, commit: &str) -> PathBuf {
        self.root.join(INDEXES).join(id(commit.as_bytes()))
    }

    /// Returns the index of the commit, which is made for its first workspace.
    pub(crate) fn kept_index(
        &self,
        new: &NewWorkspace<'_>,
        top: &Oid,
        time: u64,
        token: &str,
    ) -> Result<KeptIndex> {
        let path = self.index_path(&new.commit.to_string());
        let remark = path.with_extension("converts");
        let kept = fs::read(&path).ok().filter(|data| is_whole_index(new.repo.hash(), data));
        if let (Some(data), Ok(converts)) = (kept, fs::read_to_string(&remark)) {
            let converts = Some(converts).filter(|path| !path.is_empty());
            return Ok(KeptIndex { path, data, is_new: false, converts });
        }
        let ignores = (new.ignores)();
        let wanted = WantedIndex { folder: new.folder, token, ignores: ignores.as_deref() };
        let CommitIndex { data, converts } = index_of(new.repo, top, time, &wanted)?;
        let above = path.parent().unwrap_or(&path);
        fs::create_dir_all(above).map_err(Error::on(above))?;
        fs::write(&remark, converts.as_deref().unwrap_or_default()).map_err(Error::on(&remark))?;
        let part = path.with_extension("new");
        let _ = fs::remove_file(&part);
        fs::write(&part, &data).map_err(Error::on(&part))?;
        fs::set_permissions(&part, fs::Permissions::from_mode(0o444)).map_err(Error::on(&part))?;
        fs::rename(&part, &path).map_err(Error::on(&path))?;
        Ok(KeptIndex { path, data, is_new: true, converts })
    }

    /// Returns an index that says of the new workspace, too, which folders have nothing but the commit's
    /// files: git believes it only of one place. `None` if the workspace shares the index of others: the
    /// first one can, and of many not each is to have its own.
    pub(crate) fn own_index(&self, new: &NewWorkspace<'_>, index: &KeptIndex) -> Result<Option<Vec<u8>>> {
        let count = fs::read_dir(&self.root).map_err(Error::on(&self.root))?.count();
        if index.is_new || count.saturating_mul(index.data.len()) > OWN_INDEXES_MAX {
            return Ok(None);
        }
        Ok(index_moved_to(new.repo.hash(), &index.data, new.folder))
    }

    /// Removes the index of a commit that no workspace stands on.
    pub(crate) fn remove_kept_index(&self, commit: &str) {
        let index = self.index_path(commit);
        let _ = fs::remove_file(index.with_extension("converts"));
        let _ = fs::remove_file(index);
    }
}
