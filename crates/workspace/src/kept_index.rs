//! The index that the workspaces of a commit begin with: it is written once, and what many begin with is on
//! the disk once.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weir_git::Oid;

use crate::error::{Error, Result};
use crate::index::{WantedIndex, write_index_of};
use crate::workspaces::{NewWorkspace, Workspaces, id};
use weir_worktree::{index_moved_to, is_whole_index};

/// The folder of the indexes.
const INDEXES: &str = "indexes";
/// Bytes that indexes of their own may take, if all workspaces have one of that size.
const OWN_INDEXES_MAX: u64 = 32 << 20;

/// The index that the workspaces of a commit began with.
pub(crate) struct KeptIndex {
    pub(crate) path: PathBuf,
    /// An index for the new workspace alone, which says of it, too, that no folder has other files: git
    /// believes that of one place only. `None` if it shares the index of others: the first can, and of many
    /// not each is to have its own.
    pub(crate) own: Option<Vec<u8>>,
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
        if let (Ok(own), Ok(converts)) = (self.own_index(new, &path), fs::read_to_string(&remark)) {
            return Ok(KeptIndex { path, own, converts: Some(converts).filter(|path| !path.is_empty()) });
        }
        let ignores = (new.ignores)();
        let wanted = WantedIndex { folder: new.folder, token, ignores: ignores.as_deref() };
        let above = path.parent().unwrap_or(&path);
        fs::create_dir_all(above).map_err(Error::on(above))?;
        let part = path.with_extension("new");
        let _ = fs::remove_file(&part);
        let converts = write_index_of(new.repo, new.listed, top, time, &wanted, &part)
            .inspect_err(|_| _ = fs::remove_file(&part))?;
        fs::write(&remark, converts.as_deref().unwrap_or_default()).map_err(Error::on(&remark))?;
        fs::set_permissions(&part, fs::Permissions::from_mode(0o444)).map_err(Error::on(&part))?;
        fs::rename(&part, &path).map_err(Error::on(&path))?;
        Ok(KeptIndex { path, own: None, converts })
    }

    /// Returns the workspace's own index, made of the one at `path`, if it is to have one.
    ///
    /// # Errors
    /// If there is none, or it is damaged. The sum of one that was written since the machine was started is
    /// taken to be right.
    fn own_index(&self, new: &NewWorkspace<'_>, path: &Path) -> std::io::Result<Option<Vec<u8>>> {
        let about = fs::metadata(path)?;
        let count = fs::read_dir(&self.root)?.count() as u64;
        let shares = count.saturating_mul(about.len()) > OWN_INDEXES_MAX;
        let is_trusted = about.modified()?.elapsed().is_ok_and(|age| age < uptime());
        if shares && is_trusted {
            return Ok(None);
        }
        let (data, hash) = (fs::read(path)?, new.repo.hash());
        let own = index_moved_to(hash, &data, new.folder);
        match own.filter(|_| is_trusted || is_whole_index(hash, &data)) {
            Some(own) => Ok(Some(own).filter(|_| !shares)),
            None => Err(std::io::ErrorKind::InvalidData.into()),
        }
    }

    /// Removes the index of a commit that no workspace stands on.
    pub(crate) fn remove_kept_index(&self, commit: &str) {
        let index = self.index_path(commit);
        let _ = fs::remove_file(index.with_extension("converts"));
        let _ = fs::remove_file(index);
    }
}

/// Returns the time since the machine was started.
fn uptime() -> Duration {
    Duration::from_secs(u64::try_from(rustix::system::sysinfo().uptime).unwrap_or(0))
}
