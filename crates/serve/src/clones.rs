//! Whole clones with their index, for those who take both and skip making it.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;
use weir_archive::Region;
use weir_git::{Oid, OidSet};
use weir_repo::{CloneIndex, Head, Repo, Result};

/// Repositories whose index is kept.
const KEPT_MAX: usize = 64;

/// A clone of HEAD, branches and tags as one pack.
pub(crate) struct WholeClone {
    pub(crate) count: u32,
    pub(crate) regions: Vec<Region>,
    pub(crate) trailer: Oid,
    pub(crate) index: Region,
}

type Cell = Arc<OnceCell<Option<Arc<WholeClone>>>>;

/// Those that were asked for lately.
pub(crate) struct Clones {
    folder: PathBuf,
    kept: Mutex<VecDeque<(u64, Cell)>>,
}

impl Clones {
    /// Indices that must be made go to `folder`.
    pub(crate) fn new(folder: PathBuf) -> Clones {
        Clones { folder, kept: Mutex::default() }
    }

    /// The clone of `repo`; `None` if its archive does not hold just that.
    pub(crate) async fn get(&self, repo: &Arc<Repo>) -> io::Result<Result<Option<Arc<WholeClone>>>> {
        let cell = {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            match kept.iter().find(|(serial, _)| *serial == repo.serial()) {
                Some((_, cell)) => cell.clone(),
                None => {
                    if kept.len() >= KEPT_MAX {
                        kept.pop_front();
                    }
                    let cell = Cell::default();
                    kept.push_back((repo.serial(), cell.clone()));
                    cell
                }
            }
        };
        let (repo, folder) = (repo.clone(), self.folder.clone());
        // A task of its own: it comes to its end, and is of use, whoever has gone meanwhile.
        let making = tokio::spawn(async move {
            let defect = || io::Error::other("an index could not be made: this is a defect of weir's");
            let made = cell.get_or_try_init(|| async {
                let making = tokio::task::spawn_blocking(move || make(&repo, &folder)).await;
                making.map_err(|_| Err(defect()))?.map_err(Ok)
            });
            made.await.cloned()
        });
        match making.await {
            Ok(Ok(whole)) => Ok(Ok(whole)),
            Ok(Err(Ok(e))) => Ok(Err(e)),
            Ok(Err(Err(e))) => Err(e),
            Err(_) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

fn make(repo: &Repo, folder: &Path) -> Result<Option<Arc<WholeClone>>> {
    let wants: OidSet = repo.refs().head_and_tag_tips().collect();
    // Names that are no text have no place in the description.
    let is_text = repo.refs().list().iter().all(|r| std::str::from_utf8(&r.name).is_ok());
    let Some(clone) =
        (is_text && repo.archive().is_some() && repo.shallow().is_empty()).then(|| repo.bodies().whole_clone(repo, &wants)).flatten()
    else {
        return Ok(None);
    };
    let index = match clone.index(repo)? {
        CloneIndex::Stored(region) => region,
        CloneIndex::Merged(bytes) => {
            let mut file = tempfile::tempfile_in(folder)?;
            file.write_all(&bytes)?;
            Region::map(Arc::new(file), bytes.len() as u64)?
        }
    };
    Ok(Some(Arc::new(WholeClone { count: clone.count, trailer: clone.trailer(repo), index, regions: clone.regions })))
}

impl WholeClone {
    /// What it consists of, as JSON.
    pub(crate) fn describe(&self, repo: &Repo) -> Vec<u8> {
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let refs = repo.refs();
        let listed = refs.list().iter().filter(|r| r.name.starts_with(b"refs/heads/") || r.name.starts_with(b"refs/tags/"));
        let hash_len = repo.hash().len() as u64;
        let bytes = 12 + self.regions.iter().map(|r| r.len() as u64).sum::<u64>() + hash_len;
        let description = serde_json::json!({
            "version": 1,
            "object_format": repo.hash().name(),
            "head": match &refs.head {
                Head::Symbolic(name) => Some(text(name)),
                _ => None,
            },
            "head_oid": refs.head_oid().map(|oid| oid.to_string()),
            "refs": listed.map(|r| (text(&r.name), r.oid.to_string())).collect::<Vec<_>>(),
            "checksum": self.trailer.to_string(),
            "objects": self.count,
            "pack_bytes": bytes,
            "index_bytes": self.index.len(),
        });
        description.to_string().into_bytes()
    }
}
