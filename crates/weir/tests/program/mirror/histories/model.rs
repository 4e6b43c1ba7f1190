//! A model of the upstreams of random histories: it knows all objects, and which of them an answer must hold.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write;
use std::path::PathBuf;

use sha1::{Digest, Sha1};

pub type Id = String;
pub type Set = BTreeSet<Id>;

/// An object as the model knows it.
#[derive(Clone)]
pub enum Object {
    Blob(Vec<u8>),
    /// The entries by name, with whether each is a tree, and the data. The entries have no submodules.
    Tree(BTreeMap<String, (bool, Id)>, Vec<u8>),
    Commit {
        tree: Id,
        parents: Vec<Id>,
        data: Vec<u8>,
    },
    Tag {
        target: Id,
        data: Vec<u8>,
    },
}

impl Object {
    pub fn data(&self) -> (&'static str, &[u8]) {
        match self {
            Object::Blob(data) => ("blob", data),
            Object::Tree(_, data) => ("tree", data),
            Object::Commit { data, .. } => ("commit", data),
            Object::Tag { data, .. } => ("tag", data),
        }
    }
}

pub fn id_of(kind: &str, data: &[u8]) -> Id {
    let mut sum = Sha1::new();
    sum.update(format!("{kind} {}\0", data.len()));
    sum.update(data);
    hex(&sum.finalize())
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

pub fn unhex(id: &str) -> Vec<u8> {
    (0..id.len() / 2).map(|n| u8::from_str_radix(&id[2 * n..2 * n + 2], 16).unwrap()).collect()
}

/// All objects of all repositories.
#[derive(Default)]
pub struct Model(pub HashMap<Id, Object>);

impl Model {
    /// Returns all objects that `tips` reach. Submodules are not followed, as in git.
    pub fn reach(&self, tips: impl IntoIterator<Item = Id>) -> Set {
        let mut found = Set::new();
        let mut stack: Vec<Id> = tips.into_iter().collect();
        while let Some(id) = stack.pop() {
            if !found.insert(id.clone()) {
                continue;
            }
            match &self.0[&id] {
                Object::Blob(_) => {}
                Object::Tree(entries, _) => stack.extend(entries.values().map(|(_, id)| id.clone())),
                Object::Commit { tree, parents, .. } => stack.extend(parents.iter().chain([tree]).cloned()),
                Object::Tag { target, .. } => stack.push(target.clone()),
            }
        }
        found
    }

    /// Follows tags; returns the object behind them, and the tags.
    pub fn peel(&self, id: &Id) -> (Id, Vec<Id>) {
        let (mut at, mut tags) = (id.clone(), Vec::new());
        while let Object::Tag { target, .. } = &self.0[&at] {
            tags.push(at.clone());
            at.clone_from(target);
        }
        (at, tags)
    }

    pub fn is_commit(&self, id: &Id) -> bool {
        matches!(self.0[id], Object::Commit { .. })
    }

    /// Returns the objects of a clone of that depth (git-clone, `--depth`), and the commits where it ends.
    pub fn shallow(&self, tips: &Set, depth: usize) -> (Set, Set) {
        let (mut found, mut ends) = (Set::new(), Set::new());
        let mut depths: HashMap<Id, usize> = HashMap::new();
        let mut queue = std::collections::VecDeque::new();
        for tip in tips {
            let (at, tags) = self.peel(tip);
            found.extend(tags);
            if self.is_commit(&at) {
                queue.push_back((at, 1));
            } else {
                found.extend(self.reach([at]));
            }
        }
        while let Some((id, at)) = queue.pop_front() {
            if depths.get(&id).is_some_and(|known| *known <= at) {
                continue;
            }
            depths.insert(id.clone(), at);
            let Object::Commit { parents, .. } = &self.0[&id] else { unreachable!("a commit") };
            if at < depth {
                queue.extend(parents.iter().map(|parent| (parent.clone(), at + 1)));
            }
        }
        for (id, at) in &depths {
            let Object::Commit { tree, .. } = &self.0[id] else { unreachable!("a commit") };
            found.insert(id.clone());
            found.extend(self.reach([tree.clone()]));
            // Like git, this includes a root commit.
            if *at == depth {
                ends.insert(id.clone());
            }
        }
        (found, ends)
    }

    /// Returns what a partial clone must hold (git-rev-list, `--filter`) of the objects that `tips` reach.
    pub fn filtered(&self, tips: &Set, filter: &str) -> Set {
        let all = self.reach(tips.iter().cloned());
        let named: Set = tips.iter().map(|tip| self.peel(tip).0).collect();
        let depth = filter.strip_prefix("tree:").map(|n| n.parse::<usize>().unwrap());
        if let Some(depth) = depth {
            let mut found: Set = named.clone();
            for id in &all {
                match &self.0[id] {
                    Object::Commit { tree, .. } => {
                        found.insert(id.clone());
                        self.down_to(tree, depth, &mut found);
                    }
                    Object::Tag { .. } => drop(found.insert(id.clone())),
                    _ => {}
                }
            }
            for id in named.iter().filter(|id| matches!(self.0[*id], Object::Tree(..))) {
                self.down_to(id, depth, &mut found);
            }
            return found;
        }
        let bytes_below = filter.strip_prefix("blob:limit=").map_or(0, |n| n.parse().unwrap());
        let is_kept = |id: &Id| match &self.0[id] {
            Object::Blob(data) => data.len() < bytes_below || named.contains(id),
            _ => true,
        };
        all.into_iter().filter(is_kept).collect()
    }

    pub fn down_to(&self, id: &Id, depth: usize, found: &mut Set) {
        if depth == 0 {
            return;
        }
        found.insert(id.clone());
        if let Object::Tree(entries, _) = &self.0[id] {
            entries.values().for_each(|(_, id)| self.down_to(id, depth - 1, found));
        }
    }
}

/// A bare repository, written by hand.
pub struct Upstream {
    pub path: PathBuf,
    pub refs: BTreeMap<String, Id>,
    pub head: String,
    pub commits: Vec<Id>,
}

impl Upstream {
    pub fn new(path: PathBuf) -> Upstream {
        for folder in ["objects/info", "objects/pack", "refs/heads"] {
            std::fs::create_dir_all(path.join(folder)).unwrap();
        }
        std::fs::write(path.join("config"), "[core]\n\trepositoryformatversion = 0\n\tbare = true\n")
            .unwrap();
        Upstream { path, refs: BTreeMap::new(), head: "refs/heads/main".into(), commits: Vec::new() }
    }

    pub fn put(&self, model: &mut Model, object: Object) -> Id {
        let (kind, data) = object.data();
        let id = id_of(kind, data);
        let path = self.path.join("objects").join(&id[..2]).join(&id[2..]);
        if !path.exists() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(format!("{kind} {}\0", data.len()).as_bytes()).unwrap();
            encoder.write_all(data).unwrap();
            std::fs::write(path, encoder.finish().unwrap()).unwrap();
        }
        model.0.insert(id.clone(), object);
        id
    }

    /// Adds all objects that `tip` reaches.
    pub fn take(&self, model: &mut Model, tip: &Id) {
        for id in model.reach([tip.clone()]) {
            let object = model.0[&id].clone();
            self.put(model, object);
        }
    }

    /// Writes its refs and its HEAD.
    pub fn write_refs(&self) {
        let lines: String = self.refs.iter().map(|(name, id)| format!("{id} {name}\n")).collect();
        std::fs::write(self.path.join("packed-refs"), lines).unwrap();
        std::fs::write(self.path.join("HEAD"), format!("ref: {}\n", self.head)).unwrap();
    }

    pub fn head_tip(&self) -> Option<&Id> {
        self.refs.get(&self.head)
    }

    pub fn tips(&self, prefixes: &[&str]) -> Set {
        let named = self
            .refs
            .iter()
            .filter(|(name, _)| prefixes.iter().any(|p| name.starts_with(p)))
            .map(|(_, id)| id);
        named.chain(self.head_tip()).cloned().collect()
    }
}

pub const NAMES: [&str; 13] = [
    "refs/heads/main",
    "refs/heads/a",
    "refs/heads/b",
    "refs/heads/c/d",
    "refs/tags/t1",
    "refs/tags/t2",
    "refs/tags/t3",
    "refs/pull/1/head",
    "refs/pull/2/head",
    "refs/pull/3/head",
    "refs/notes/x",
    "refs/x/y",
    "refs/x/z",
];
