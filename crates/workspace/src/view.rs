//! Repositories as folders: branches, tags and commits.
//!
//! ```text
//! NAME/HEAD                 -> commits/ID
//! NAME/branches/BRANCH      -> ../commits/ID
//! NAME/tags/TAG             -> ../commits/ID
//! NAME/refs/REF             every ref by its full name
//! NAME/commits/ID/          the files of a commit
//! ```
//!
//! A node is a number. Its upper half says which commit's files it belongs to, or is 0 for the folders above
//! commits, which change when a repository does.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use weir_git::Oid;
use weir_repo::{Pack, Region, Repo};

use crate::error::Result;
use crate::file_times::{FileTime, FileTimes};
use crate::place::{ViewPlace, commit_named, own_children, refs_below};
use crate::remote_commit::RemoteCommit;
use crate::tree::{CommitTree, FileKind, TOP};

/// The number of the top folder.
pub(crate) const ROOT: u64 = 1;
/// Repositories by name.
pub trait Repositories: Send + Sync {
    /// Returns all names, ascending by their bytes.
    ///
    /// # Errors
    /// If they cannot be read.
    fn names(&self) -> Result<Arc<Vec<String>>>;

    /// Returns the repository called `name` as it is now, if there is one.
    ///
    /// # Errors
    /// If it cannot be opened.
    fn open(&self, name: &str) -> Result<Option<Arc<Repo>>>;
}

/// What is shown.
pub enum Shown {
    /// All repositories, in folders as their names say.
    All(Box<dyn Repositories>),
    /// The repository of this name.
    One(Box<dyn Repositories>, String),
    /// The files of a commit.
    Commit(Arc<Repo>, Oid),
    /// The lower layer of workspaces: the files of a commit in the folder `files`, and the objects of its
    /// archive in `objects`, as a git directory has them.
    Lower(LowerCommit),
}

/// The commit of a lower layer.
pub struct LowerCommit {
    /// Its repository.
    pub repo: Arc<Repo>,
    /// The commit.
    pub commit: Oid,
    /// Set if the objects are on another machine.
    pub remote: Option<Arc<RemoteCommit>>,
    /// The times of its files, if not all have the commit's.
    pub times: Option<FileTimes>,
}

/// A repository that stays as it is open.
struct OpenRepository(Arc<Repo>);

impl Repositories for OpenRepository {
    fn names(&self) -> Result<Arc<Vec<String>>> {
        Ok(Arc::default())
    }

    fn open(&self, _: &str) -> Result<Option<Arc<Repo>>> {
        Ok(Some(Arc::clone(&self.0)))
    }
}

/// A node's attributes.
#[derive(Clone, Copy)]
pub(crate) struct Attributes {
    pub(crate) node: u64,
    pub(crate) kind: FileKind,
    pub(crate) size: u64,
    pub(crate) time: FileTime,
    pub(crate) validity: Validity,
}

/// How long attributes and names are true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Validity {
    /// For ever: a commit never changes.
    Lasting,
    /// Until the repository changes.
    Changing,
    /// Not at all: the object cannot be read now.
    Unknown,
}

struct PlaceNode {
    above: u64,
    place: ViewPlace,
}

/// The folders above commits that were looked up.
#[derive(Default)]
struct ViewPlaces {
    list: Vec<Arc<PlaceNode>>,
    numbers: HashMap<(u64, Vec<u8>), u32>,
}

/// The commits whose files were looked up.
#[derive(Default)]
struct ViewTrees {
    /// With the number of the folder above.
    list: Vec<(Arc<CommitTree>, u64)>,
    numbers: HashMap<(String, Oid), u32>,
}

/// The content of a file.
pub(crate) enum FileContent {
    Decoded(Arc<Vec<u8>>),
    /// A part of an archive.
    Stored(Region),
}

impl std::ops::Deref for FileContent {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            FileContent::Decoded(data) => data,
            FileContent::Stored(data) => data,
        }
    }
}

/// A child of a folder.
pub(crate) struct Child {
    pub(crate) name: Vec<u8>,
    pub(crate) attributes: Attributes,
}

/// What is shown, with the numbers of all that was looked up.
pub(crate) struct View {
    repositories: Option<Box<dyn Repositories>>,
    /// The only commit, if its objects are on another machine.
    remote: Option<Arc<RemoteCommit>>,
    /// The times of its files, if not all have the commit's.
    times: Option<FileTimes>,
    places: Mutex<ViewPlaces>,
    trees: RwLock<ViewTrees>,
    /// When it was made, in seconds since 1970.
    made: u64,
    numbering: Numbering,
}

/// How the kernel knows the nodes of commits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Numbering {
    /// By the numbers of this file.
    Plain,
    /// Likewise; but the top folder of the only commit is that of the view.
    Commit,
    /// The only commit's nodes have their number in the upper half, and a hash of their path in the lower:
    /// git compares the lower half with its index, which knows it without asking.
    Lower,
}

/// The number of the first commit's files.
const FIRST_TREE: u64 = 1 << 32;
const _: () =
    assert!(FIRST_TREE > u32::MAX as u64 && ROOT < FIRST_TREE, "numbers of trees are no numbers of files");

impl View {
    pub(crate) fn new(shown: Shown) -> Result<View> {
        let made = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let (mut places, mut trees) = (ViewPlaces::default(), ViewTrees::default());
        let (mut numbering, mut remote, mut times) = (Numbering::Plain, None, None);
        let mut top = |place| places.list.push(Arc::new(PlaceNode { above: ROOT, place }));
        let repositories = match shown {
            Shown::All(repositories) => {
                top(ViewPlace::Names(String::new()));
                Some(repositories)
            }
            Shown::One(repositories, name) => {
                top(ViewPlace::Repository(name));
                Some(repositories)
            }
            Shown::Commit(repo, commit) => {
                numbering = Numbering::Commit;
                let tree = CommitTree::open(repo, &commit, None, None)?;
                trees.list.push((Arc::new(tree), FIRST_TREE | u64::from(TOP)));
                None
            }
            Shown::Lower(LowerCommit { repo, commit, remote: elsewhere, times: known }) => {
                (remote, times) = (elsewhere, known);
                numbering = Numbering::Lower;
                top(ViewPlace::Lower(commit));
                Some(Box::new(OpenRepository(repo)) as Box<dyn Repositories>)
            }
        };
        let (places, trees) = (Mutex::new(places), RwLock::new(trees));
        Ok(View { repositories, remote, times, places, trees, made, numbering })
    }

    /// Gives numbers to all nodes above the files of a lower layer, and begins to log those of the files.
    /// After that, a copy of this process can go on where another was killed.
    pub(crate) fn number_all(&self) -> Result<()> {
        let mut folders = vec![ROOT];
        while let Some(folder) = folders.pop() {
            let children = self.all_children(folder)?.unwrap_or_default();
            let below = children.into_iter().map(|child| child.attributes);
            folders.extend(below.filter(|child| child.kind.is_folder()).map(|child| child.node));
        }
        let mut trees = self.trees.write().unwrap_or_else(PoisonError::into_inner);
        for (tree, _) in &mut trees.list {
            Arc::get_mut(tree).expect("nothing reads it yet").log_numbers()?;
        }
        Ok(())
    }

    /// Goes on with the numbers that were given by a process which was killed.
    pub(crate) fn take_up(&self) -> Result<()> {
        let trees = self.trees.read().unwrap_or_else(PoisonError::into_inner);
        trees.list.iter().try_for_each(|(tree, _)| tree.take_up())
    }

    /// Returns whether nothing that is shown ever changes.
    pub(crate) fn is_lasting(&self) -> bool {
        self.numbering != Numbering::Plain
    }

    /// Returns whether workspaces stand on it.
    pub(crate) fn is_lower(&self) -> bool {
        self.numbering == Numbering::Lower
    }

    /// Returns the number that the rest of this file uses for a node of the kernel.
    fn own(&self, node: u64) -> u64 {
        match self.numbering {
            Numbering::Commit if node == ROOT => FIRST_TREE | u64::from(TOP),
            Numbering::Lower if node >> 32 != 0 => FIRST_TREE | node >> 32,
            _ => node,
        }
    }

    /// Returns the number by which the kernel knows a node, the path of which has this hash.
    fn shown(&self, node: u64, path: u32) -> u64 {
        match self.numbering {
            Numbering::Commit if node == FIRST_TREE | u64::from(TOP) => ROOT,
            Numbering::Lower if node >> 32 != 0 => node << 32 | u64::from(path),
            _ => node,
        }
    }

    fn places(&self) -> MutexGuard<'_, ViewPlaces> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the tree that `node` belongs to, the number of its folder above, and the number of the node in
    /// it; `None` for a node above commits.
    fn tree(&self, node: u64) -> Option<(Arc<CommitTree>, u64, u32)> {
        let trees = self.trees.read().unwrap_or_else(PoisonError::into_inner);
        let at = usize::try_from((node >> 32).checked_sub(1)?).ok()?;
        let (tree, above) = trees.list.get(at)?;
        Some((Arc::clone(tree), *above, node as u32))
    }

    fn place(&self, node: u64) -> Result<Arc<PlaceNode>> {
        let at = usize::try_from(node).ok().and_then(|node| node.checked_sub(1));
        let places = self.places();
        at.and_then(|at| places.list.get(at)).map(Arc::clone).ok_or(crate::Error::NoNode)
    }

    fn repositories(&self) -> Result<&dyn Repositories> {
        self.repositories.as_deref().ok_or(crate::Error::NoNode)
    }

    fn repository(&self, name: &str) -> Result<Option<Arc<Repo>>> {
        self.repositories()?.open(name)
    }

    pub(crate) fn attributes(&self, node: u64) -> Result<Attributes> {
        self.attributes_by_number(self.own(node))
    }

    fn attributes_by_number(&self, node: u64) -> Result<Attributes> {
        let Some((tree, _, at)) = self.tree(node) else {
            return Ok(self.attributes_of(node, &self.place(node)?.place));
        };
        let (kind, size, path) = tree.attributes(at)?;
        let node = self.shown(node, path);
        Ok(Attributes { node, kind, size, time: tree.time(path), validity: Validity::Lasting })
    }

    fn attributes_of(&self, node: u64, place: &ViewPlace) -> Attributes {
        let (kind, size) = match place {
            ViewPlace::Link(target) => (FileKind::Link, target.len() as u64),
            ViewPlace::Pack { .. } => {
                let size = self.pack(place).map_or(0, |data| data.len() as u64);
                (FileKind::File { is_executable: false }, size)
            }
            _ => (FileKind::Folder, 0),
        };
        let validity = if self.is_lasting() { Validity::Lasting } else { Validity::Changing };
        Attributes { node, kind, size, time: FileTime::second(self.made), validity }
    }

    /// Returns the node called `name` in the folder `above`.
    pub(crate) fn look_up(&self, above: u64, name: &[u8]) -> Result<Option<Attributes>> {
        let above = self.own(above);
        if let Some((tree, top, at)) = self.tree(above) {
            let folder = tree.folder(at)?;
            return Ok(match name {
                b"." => Some(self.attributes_by_number(above)?),
                b".." => Some(self.attributes_by_number(number_above(above, top, at, folder.above))?),
                _ => match folder.find(name) {
                    None => None,
                    Some(entry) => {
                        let node = above >> 32 << 32 | u64::from(entry.node);
                        let (node, size) = (self.shown(node, entry.path), tree.size(&entry)?);
                        let time = tree.time(entry.path);
                        let (kind, validity) = (entry.kind, Validity::Lasting);
                        Some(Attributes { node, kind, size, time, validity })
                    }
                },
            });
        }
        let place = self.place(above)?;
        match name {
            b"." => return self.attributes_by_number(above).map(Some),
            b".." => return self.attributes_by_number(place.above).map(Some),
            _ => {}
        }
        match self.child(&place.place, name)? {
            Some(child) => self.known(above, name, child).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the attributes of a child, which gets a number if it has none.
    fn known(&self, above: u64, name: &[u8], place: ViewPlace) -> Result<Attributes> {
        if let ViewPlace::Tree { repository, commit } = place {
            return self.known_tree(above, repository, commit);
        }
        let mut places = self.places();
        let key = (above, name.to_vec());
        let node = match places.numbers.get(&key) {
            Some(&number) => {
                let number = number as usize;
                // A branch has moved, or a repository took the place of a folder.
                if places.list[number].place != place {
                    places.list[number] = Arc::new(PlaceNode { above, place: place.clone() });
                }
                number
            }
            None => {
                let number = places.list.len();
                places.numbers.insert(key, u32::try_from(number).map_err(|_| crate::Error::Full)?);
                places.list.push(Arc::new(PlaceNode { above, place: place.clone() }));
                number
            }
        };
        Ok(self.attributes_of(node as u64 + 1, &place))
    }

    fn known_tree(&self, above: u64, repository: String, commit: Oid) -> Result<Attributes> {
        let key = (repository, commit);
        let number = self.trees.read().unwrap_or_else(PoisonError::into_inner).numbers.get(&key).copied();
        let number = match number {
            Some(number) => number,
            None => {
                let repo = self.repository(&key.0)?.ok_or(crate::Error::NoNode)?;
                let tree =
                    Arc::new(CommitTree::open(repo, &commit, self.remote.clone(), self.times.clone())?);
                let mut trees = self.trees.write().unwrap_or_else(PoisonError::into_inner);
                let next = u32::try_from(trees.list.len() + 1).map_err(|_| crate::Error::Full)?;
                let number = *trees.numbers.entry(key).or_insert(next);
                if number == next {
                    trees.list.push((tree, above));
                }
                number
            }
        };
        self.attributes_by_number(u64::from(number) << 32 | u64::from(TOP))
    }

    /// Returns what is called `name` in a folder above commits.
    fn child(&self, place: &ViewPlace, name: &[u8]) -> Result<Option<ViewPlace>> {
        let text = std::str::from_utf8(name).ok();
        match place {
            ViewPlace::Names(prefix) => text.map_or(Ok(None), |name| self.named(prefix, name)),
            ViewPlace::Repository(repository) => {
                let Some(repo) = self.repository(repository)? else { return Ok(None) };
                let own = own_children(repository, &repo).into_iter().find(|(own, _)| *own == name);
                match (own, text) {
                    (Some((_, place)), _) => Ok(Some(place)),
                    (None, Some(name)) => self.named(repository, name),
                    (None, None) => Ok(None),
                }
            }
            ViewPlace::Refs { repository, prefix, depth } => {
                let Some(repo) = self.repository(repository)? else { return Ok(None) };
                let children = refs_below(&repo, repository, prefix, *depth, Some(name));
                Ok(children.into_iter().map(|(_, place)| place).next())
            }
            ViewPlace::Commits(repository) => {
                let Some(repo) = self.repository(repository)? else { return Ok(None) };
                Ok(text.and_then(|name| commit_named(&repo, repository, name)))
            }
            ViewPlace::Lower(_) | ViewPlace::Objects | ViewPlace::Packs => {
                let children = self.children(place)?;
                Ok(children.into_iter().find(|(child, _)| child == name).map(|(_, place)| place))
            }
            ViewPlace::Link(_) | ViewPlace::Tree { .. } | ViewPlace::Pack { .. } => {
                Err(crate::Error::NotAFolder)
            }
        }
    }

    /// Returns the repository `prefix/name`, or the folder of repositories whose names begin so.
    fn named(&self, prefix: &str, name: &str) -> Result<Option<ViewPlace>> {
        let full = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") };
        let names = self.repositories()?.names()?;
        if names.binary_search(&full).is_ok() {
            return Ok(Some(ViewPlace::Repository(full)));
        }
        let below = format!("{full}/");
        let at = names.partition_point(|name| *name < below);
        Ok(names.get(at).filter(|name| name.starts_with(&below)).map(|_| ViewPlace::Names(full)))
    }

    /// Returns the names right below `prefix`.
    fn names_below(&self, prefix: &str) -> Result<Vec<(Vec<u8>, ViewPlace)>> {
        let below = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        let names = self.repositories()?.names()?;
        let from = names.partition_point(|name| *name < below);
        let mut children: BTreeMap<&str, ViewPlace> = BTreeMap::new();
        for name in names[from..].iter().take_while(|name| name.starts_with(&below)) {
            match name[below.len()..].split_once('/') {
                None => {
                    children.insert(&name[below.len()..], ViewPlace::Repository(name.clone()));
                }
                // The folder of a repository shows those below it, too.
                Some((child, _)) => {
                    children.entry(child).or_insert_with(|| ViewPlace::Names(format!("{below}{child}")));
                }
            }
        }
        Ok(children.into_iter().map(|(name, place)| (name.as_bytes().to_vec(), place)).collect())
    }

    /// Returns the children of a folder above commits.
    fn children(&self, place: &ViewPlace) -> Result<Vec<(Vec<u8>, ViewPlace)>> {
        match place {
            ViewPlace::Names(prefix) => self.names_below(prefix),
            ViewPlace::Repository(repository) => {
                let Some(repo) = self.repository(repository)? else { return Ok(Vec::new()) };
                let mut children = own_children(repository, &repo);
                let own: Vec<Vec<u8>> = children.iter().map(|(name, _)| name.clone()).collect();
                children.extend(self.names_below(repository)?.into_iter().filter(|(n, _)| !own.contains(n)));
                Ok(children)
            }
            ViewPlace::Refs { repository, prefix, depth } => {
                let Some(repo) = self.repository(repository)? else { return Ok(Vec::new()) };
                Ok(refs_below(&repo, repository, prefix, *depth, None))
            }
            ViewPlace::Commits(repository) => {
                let Some(repo) = self.repository(repository)? else { return Ok(Vec::new()) };
                let mut tips: Vec<Oid> = repo.refs().head_and_tag_tips().collect();
                tips.extend(repo.refs().head_oid());
                let peel = |tip: Oid| repo.objects().peel(&tip).ok().map(|peeled| peeled.unwrap_or(tip));
                let mut tips: Vec<Oid> = tips.into_iter().filter_map(peel).collect();
                tips.sort_unstable();
                tips.dedup();
                let tree = |commit: Oid| ViewPlace::Tree { repository: repository.clone(), commit };
                Ok(tips.into_iter().map(|tip| (tip.to_string().into_bytes(), tree(tip))).collect())
            }
            ViewPlace::Lower(commit) => {
                let files = ViewPlace::Tree { repository: String::new(), commit: *commit };
                Ok(vec![(b"files".to_vec(), files), (b"objects".to_vec(), ViewPlace::Objects)])
            }
            ViewPlace::Objects => Ok(vec![(b"pack".to_vec(), ViewPlace::Packs)]),
            ViewPlace::Packs => {
                let Some(repo) = self.repository("")? else { return Ok(Vec::new()) };
                let of = |(number, pack): (usize, &Arc<Pack>)| {
                    [(false, "pack"), (true, "idx")].map(|(is_index, end)| {
                        // Some names have a path before them.
                        let name = pack.name().rsplit('/').next().unwrap_or_default();
                        let name = format!("{name}.{end}");
                        (name.into_bytes(), ViewPlace::Pack { number, is_index })
                    })
                };
                Ok(repo.objects().packs().iter().enumerate().flat_map(of).collect())
            }
            ViewPlace::Link(_) | ViewPlace::Tree { .. } | ViewPlace::Pack { .. } => {
                Err(crate::Error::NotAFolder)
            }
        }
    }

    /// Returns the bytes of a pack, or of its index.
    fn pack(&self, place: &ViewPlace) -> Option<Region> {
        let ViewPlace::Pack { number, is_index } = place else { return None };
        let repo = self.repository("").ok()??;
        let pack = repo.objects().packs().get(*number)?;
        Some(if *is_index { pack.index().data().clone() } else { pack.data().clone() })
    }

    /// Returns all children of a folder above commits; `None` if the folder is one of a commit.
    pub(crate) fn all_children(&self, node: u64) -> Result<Option<Vec<Child>>> {
        if self.own(node) >> 32 != 0 {
            return Ok(None);
        }
        let place = self.place(node)?;
        let mut children = Vec::new();
        for (name, child) in self.children(&place.place)? {
            // What cannot be opened is not listed, and does not hide the others.
            match self.known(node, &name, child) {
                Ok(attributes) => children.push(Child { name, attributes }),
                Err(e) => tracing::warn!(name = %String::from_utf8_lossy(&name), "not shown: {e}"),
            }
        }
        Ok(Some(children))
    }

    /// Calls `each` with the children of a commit's folder from the place `from` on, and the place behind
    /// each, until it returns false.
    pub(crate) fn each_child(
        &self,
        node: u64,
        from: usize,
        mut each: impl FnMut(&[u8], Attributes, usize) -> bool,
    ) -> Result<()> {
        let node = self.own(node);
        let (tree, _, at) = self.tree(node).ok_or(crate::Error::NoNode)?;
        let folder = tree.folder(at)?;
        for (n, entry) in folder.entries(from).enumerate() {
            let child = self.shown(node >> 32 << 32 | u64::from(entry.node), entry.path);
            // A file that is missing hides no other; who asks for it gets the error.
            let (size, validity) =
                tree.size(&entry).map_or((0, Validity::Unknown), |size| (size, Validity::Lasting));
            let time = tree.time(entry.path);
            let attributes = Attributes { node: child, kind: entry.kind, size, time, validity };
            if !each(entry.name, attributes, from + n + 1) {
                break;
            }
        }
        Ok(())
    }

    /// Returns the attributes of the folder above a folder.
    pub(crate) fn parent(&self, node: u64) -> Result<Attributes> {
        let node = self.own(node);
        self.attributes_by_number(match self.tree(node) {
            Some((tree, top, at)) => number_above(node, top, at, tree.folder(at)?.above),
            None => self.place(node)?.above,
        })
    }

    /// Returns the content of a file, or the target of a link.
    pub(crate) fn content(&self, node: u64) -> Result<FileContent> {
        let node = self.own(node);
        if let Some((tree, _, at)) = self.tree(node) {
            return tree.content(at).map(FileContent::Decoded);
        }
        let place = self.place(node)?;
        match (&place.place, self.pack(&place.place)) {
            (_, Some(data)) => Ok(FileContent::Stored(data)),
            (ViewPlace::Link(target), _) => Ok(FileContent::Decoded(Arc::new(target.clone()))),
            _ => Err(crate::Error::NotAFile),
        }
    }
}

/// Returns the number of the folder above a folder of a tree, whose top folder is in `top`.
fn number_above(node: u64, top: u64, at: u32, above: u32) -> u64 {
    if at == TOP { top } else { node >> 32 << 32 | u64::from(above) }
}
