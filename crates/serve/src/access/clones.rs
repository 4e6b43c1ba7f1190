//! Whole clones with their index, for clients that take both and so need not make the index; bodies as
//! bundles; the trees of commits.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::{OnceCell, Semaphore};
use weir_archive::Region;
use weir_git::{Kind, Oid, OidSet};
use weir_repo::{BundleParts, CloneIndex, Head, Index, Repo, Result, write_commit_trees};

use crate::access::locate::INTERNAL_ERROR;

/// The numbers of whole clones whose index is kept, and of bundles whose header is kept: a line for each ref.
const CLONES_KEPT_MAX: usize = 64;
const BUNDLES_KEPT_MAX: usize = 16;
/// The number of commits whose trees are kept, in files.
const TREES_KEPT_MAX: usize = 32;
/// Indices, headers and lists of trees made at a time.
const MADE_AT_A_TIME: usize = 2;
const _: () = assert!(MADE_AT_A_TIME <= BUNDLES_KEPT_MAX, "what is made is kept");

/// A clone of HEAD, branches and tags as one pack.
pub(crate) struct CloneFile {
    /// The path of the repository.
    path: PathBuf,
    /// The pack that each region is part of, and the region's length.
    parts: Vec<(Oid, u64)>,
    pub(crate) count: u32,
    pub(crate) regions: Vec<Region>,
    pub(crate) trailer: Oid,
    pub(crate) index: Region,
}

/// What an update brought, as a bundle.
pub(crate) struct Bundle {
    /// Everything before the pack's entries.
    pub(crate) header: Bytes,
    pub(crate) entries: Region,
    pub(crate) trailer: Oid,
}

/// The clones and bundles that clients asked for lately.
pub(crate) struct KeptClones {
    folder: PathBuf,
    clones: KeptOnce<u64, Option<Arc<CloneFile>>>,
    bundles: KeptOnce<(u64, String), Option<Arc<Bundle>>>,
    trees: KeptOnce<(u64, Oid), Option<Region>>,
    turns: Arc<Semaphore>,
}

impl KeptClones {
    /// Returns an empty cache that writes the indices that it must make to `folder`.
    pub(crate) fn new(folder: PathBuf) -> KeptClones {
        let turns = Arc::new(Semaphore::new(MADE_AT_A_TIME));
        KeptClones {
            folder,
            clones: KeptOnce::new(CLONES_KEPT_MAX),
            bundles: KeptOnce::new(BUNDLES_KEPT_MAX),
            trees: KeptOnce::new(TREES_KEPT_MAX),
            turns,
        }
    }

    /// Returns the clone of `repo`; `None` if its archive does not hold exactly that.
    pub(crate) async fn get(&self, repo: &Arc<Repo>) -> Result<Option<Arc<CloneFile>>> {
        let (repo, folder) = (repo.clone(), self.folder.clone());
        self.clones.get(repo.serial(), &self.turns, move || make(&repo, &folder)).await
    }

    /// Returns the clone of the repository at `path` whose pack has the checksum `trailer`, also of an older
    /// state, if a client asked for it lately: it may not have all of it yet.
    pub(crate) fn older(&self, path: &Path, trailer: &str) -> Option<Arc<CloneFile>> {
        let is_it = |clone: &&Arc<CloneFile>| clone.path == path && clone.trailer.to_string() == trailer;
        self.clones.find(|clone| clone.as_ref().filter(is_it).cloned())
    }

    /// Returns the trees of the commit `oid` of `repo`, whose clone is `whole`; `None` if the clone has no
    /// such commit.
    pub(crate) async fn trees(
        &self,
        repo: &Arc<Repo>,
        whole: &Arc<CloneFile>,
        oid: Oid,
    ) -> Result<Option<Region>> {
        let key = (repo.serial(), oid);
        let (repo, whole, folder) = (repo.clone(), whole.clone(), self.folder.clone());
        let make = move || {
            let index = Index::open("clone", whole.index.clone(), repo.hash())?;
            let Some((Kind::Commit, _)) = repo.reader().kind_and_size(&oid)? else { return Ok(None) };
            let is_in_clone = index.find(oid.as_bytes()).is_some();
            is_in_clone.then(|| mapped(&folder, &write_commit_trees(&repo, &oid)?)).transpose()
        };
        self.trees.get(key, &self.turns, make).await
    }

    /// Returns the bundle of the body whose pack is called `name`; `None` if there is none.
    pub(crate) async fn bundle(&self, repo: &Arc<Repo>, name: String) -> Result<Option<Arc<Bundle>>> {
        let repo = repo.clone();
        let key = (repo.serial(), name.clone());
        let make = move || {
            let Some(bundle) = repo.body_bundles()?.iter().find(|b| b.name.to_string() == name) else {
                return Ok(None);
            };
            let BundleParts { header, entries, trailer } = repo.bundle_parts(bundle)?;
            Ok(Some(Arc::new(Bundle { header: header.into(), entries, trailer })))
        };
        self.bundles.get(key, &self.turns, make).await
    }
}

/// Values that were made lately, each of them once, however many requests ask for it.
struct KeptOnce<K, T> {
    list: Mutex<VecDeque<(K, Arc<OnceCell<T>>)>>,
    max: usize,
}

impl<K: PartialEq, T: Clone + Send + Sync + 'static> KeptOnce<K, T> {
    fn new(max: usize) -> KeptOnce<K, T> {
        KeptOnce { list: Mutex::default(), max }
    }

    /// Returns what `of` returns for the first value for which it is something.
    fn find<F>(&self, of: impl Fn(&T) -> Option<F>) -> Option<F> {
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.iter().find_map(|(_, cell)| of(cell.get()?))
    }

    async fn get(
        &self,
        key: K,
        turns: &Arc<Semaphore>,
        make: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let cell = {
            let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
            match list.iter().find(|(k, _)| *k == key) {
                Some((_, cell)) => cell.clone(),
                None => {
                    if list.len() >= self.max {
                        list.pop_front();
                    }
                    let cell = Arc::new(OnceCell::new());
                    list.push_back((key, cell.clone()));
                    cell
                }
            }
        };
        if let Some(made) = cell.get() {
            return Ok(made.clone());
        }
        let turns = turns.clone();
        // A task of its own comes to its end, and its result is kept, even if the client leaves. Other
        // requests for the same key wait here, not on a thread.
        let making = tokio::spawn(async move {
            let defect = || weir_repo::Error::from(io::Error::other(INTERNAL_ERROR));
            let made = cell.get_or_try_init(|| async {
                let turn = turns.acquire_owned().await.map_err(|_| defect())?;
                let making = tokio::task::spawn_blocking(move || {
                    let made = make();
                    drop(turn);
                    made
                });
                making.await.map_err(|_| defect())?
            });
            made.await.cloned()
        });
        making.await.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::BrokenPipe).into()))
    }
}

fn make(repo: &Repo, folder: &Path) -> Result<Option<Arc<CloneFile>>> {
    let wants: OidSet = repo.refs().head_and_tag_tips().collect();
    // Ref names that are not UTF-8 have no place in the description.
    let is_text = repo.refs().list().iter().all(|r| std::str::from_utf8(&r.name).is_ok());
    let Some(clone) = (is_text && repo.archive().is_some() && repo.history().shallow().is_empty())
        .then(|| repo.whole_clone(&wants))
        .flatten()
    else {
        return Ok(None);
    };
    let index = match clone.index(repo)? {
        CloneIndex::Stored(region) => region,
        CloneIndex::Merged(bytes) => mapped(folder, &bytes)?,
    };
    Ok(Some(Arc::new(CloneFile {
        path: repo.path().to_owned(),
        parts: clone.parts().collect(),
        count: clone.count,
        trailer: clone.trailer(repo),
        index,
        regions: clone.regions,
    })))
}

/// Returns `bytes` as a map of a file in `folder`: the system may write them out where memory is short.
fn mapped(folder: &Path, bytes: &[u8]) -> Result<Region> {
    let mut file = tempfile::tempfile_in(folder)?;
    file.write_all(bytes)?;
    // SAFETY: no other process can open a file without a name, and nothing writes to it any more.
    Ok(unsafe { Region::map(Arc::new(file), bytes.len() as u64)? })
}

impl CloneFile {
    /// Describes the clone as JSON.
    pub(crate) fn describe(&self, repo: &Repo) -> Vec<u8> {
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let refs = repo.refs();
        let listed = refs.list().iter().filter(|r| weir_git::refname::is_head_or_tag(&r.name));
        let peeled = listed.clone().filter_map(|r| Some((text(&r.name), r.peeled?.to_string())));
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
            "peeled": peeled.collect::<Vec<_>>(),
            "checksum": self.trailer.to_string(),
            "objects": self.count,
            "pack_bytes": bytes,
            "index_bytes": self.index.len(),
            "parts": self.parts.iter().map(|(pack, len)| (pack.to_string(), len)).collect::<Vec<_>>(),
        });
        description.to_string().into_bytes()
    }
}
