//! All commits of a repository: decoded once, with their parents by number.

use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

use weir_git::{Kind, Oid, commit_links};
use weir_ground::Stop;
use weir_ground::thread::on_threads;
use weir_repo::{DeltaBase, Error, ForestReader, ForestVisit, NO_OBJECT, ObjectReader};

use crate::commit::committer_time;
use crate::ids::ObjectNumbers;
use crate::rows::{FaultKind, FaultRow};

/// Commits larger than this are not decoded.
const COMMIT_BYTES_MAX: u64 = 256 << 20;
/// The bytes of commits that are kept, all threads together. Other commits are read again.
const KEPT_BYTES_MAX: usize = 384 << 20;
/// The bytes of a chunk of kept commits.
const CHUNK_BYTES: usize = 4 << 20;
/// The chunk of a commit that is not kept.
const NO_CHUNK: u32 = u32::MAX;
/// The number of delta trees that a thread takes at once.
const ROOTS_AT_ONCE: usize = 256;

/// The most replacements of replacements that are followed, as in git.
const REPLACED_DEPTH_MAX: usize = 5;

/// Stands for no time.
const NO_TIME: i64 = i64::MAX;

/// A commit, with the numbers of what it names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommitNode {
    pub(crate) object: u32,
    /// The object whose content it has: another one if it is replaced (git-replace(1)).
    content: u32,
    /// `NO_OBJECT` if trees are not needed.
    pub(crate) tree: u32,
    /// The time of the committer in seconds since 1970, by which commits are sorted; `NO_TIME` if there is
    /// none.
    pub(crate) date: i64,
    parents_at: usize,
    parent_count: u32,
    chunk: u32,
    start: u32,
    len: u32,
}

/// What is needed of commits.
#[derive(Clone, Copy)]
pub(crate) struct CommitNeeds {
    /// The numbers of their trees.
    pub(crate) trees: bool,
    /// All of their content.
    pub(crate) content: bool,
}

impl CommitNode {
    /// Returns the time of the committer in seconds since 1970, as the rows of the commit have it.
    pub(crate) fn committer_time(&self) -> Option<i64> {
        (self.date != NO_TIME).then_some(self.date)
    }
}

/// Where a history ends or goes on, other than its commits say.
#[derive(Default)]
pub(crate) struct HistoryJoins<'h> {
    /// Commits whose parents are not here.
    pub(crate) shallow: &'h [Oid],
    /// Commits with other parents.
    pub(crate) grafts: &'h [(Oid, Vec<Oid>)],
    /// Commits that others take the place of, ascending.
    pub(crate) replaced: Vec<(Oid, Oid)>,
}

/// The commits of a repository.
pub(crate) struct CommitTable {
    pub(crate) nodes: Vec<CommitNode>,
    parents: Vec<u32>,
    chunks: Vec<Vec<u8>>,
    /// For each object the place of its node; `NO_OBJECT` if it is no well-formed commit.
    by_object: Vec<u32>,
    /// Commits that could not be read, ascending, and why.
    faults: Vec<(u32, String)>,
}

/// The commits that one thread decoded.
#[derive(Default)]
struct CommitPart {
    nodes: Vec<CommitNode>,
    parents: Vec<u32>,
    chunks: Vec<Vec<u8>>,
    faults: Vec<(u32, String)>,
}

struct CommitVisit<'v, 'f, 'o> {
    ids: &'v ObjectNumbers<'f, 'o>,
    needs: CommitNeeds,
    part: CommitPart,
    /// The ids of the parents whose numbers are not looked up yet, and of their trees.
    parent_ids: Vec<u8>,
    tree_ids: Vec<u8>,
    /// A buffer for numbers.
    numbers: Vec<u32>,
    kept_bytes: &'v AtomicUsize,
}

impl CommitVisit<'_, '_, '_> {
    /// Looks up the ids that the last commits name.
    fn look_up(&mut self) {
        self.ids.numbers(&self.parent_ids, &mut self.numbers);
        self.part.parents.append(&mut self.numbers);
        self.parent_ids.clear();
        self.ids.numbers(&self.tree_ids, &mut self.numbers);
        debug_assert!(self.numbers.len() <= self.part.nodes.len(), "more trees than commits");
        let start = self.part.nodes.len() - self.numbers.len();
        for (node, &tree) in self.part.nodes[start..].iter_mut().zip(&self.numbers) {
            node.tree = tree;
        }
        self.tree_ids.clear();
    }

    /// Keeps the bytes of a commit. Returns their chunk, and where they start in it.
    fn keep(&mut self, data: &[u8]) -> (u32, u32) {
        if !self.needs.content {
            return (NO_CHUNK, 0);
        }
        if self.kept_bytes.fetch_add(data.len(), Ordering::Relaxed) + data.len() > KEPT_BYTES_MAX {
            return (NO_CHUNK, 0);
        }
        let has_room = |chunk: &Vec<u8>| chunk.len() + data.len() <= chunk.capacity();
        if !self.part.chunks.last().is_some_and(has_room) {
            self.part.chunks.push(Vec::with_capacity(CHUNK_BYTES.max(data.len())));
        }
        let place = self.part.chunks.len() as u32 - 1;
        let chunk = self.part.chunks.last_mut().expect("one was pushed");
        chunk.extend_from_slice(data);
        (place, (chunk.len() - data.len()) as u32)
    }
}

impl ForestVisit for CommitVisit<'_, '_, '_> {
    type Kept = ();

    fn wants(&mut self, _: u32) -> bool {
        true
    }

    fn object(&mut self, number: u32, data: &Rc<Vec<u8>>, _: Option<DeltaBase<'_, ()>>) {
        let links = match commit_links(self.ids.forest().objects().hash(), data) {
            Ok(links) => links,
            Err(e) => return self.part.faults.push((number, e.to_string())),
        };
        let (chunk, start) = self.keep(data);
        let parents_at = self.part.parents.len() + self.parent_ids.len() / links.tree.as_bytes().len();
        links.parents.iter().for_each(|id| self.parent_ids.extend_from_slice(id.as_bytes()));
        if self.needs.trees {
            self.tree_ids.extend_from_slice(links.tree.as_bytes());
        }
        self.part.nodes.push(CommitNode {
            object: number,
            content: number,
            tree: NO_OBJECT,
            date: committer_time(data).unwrap_or(NO_TIME),
            parents_at,
            parent_count: links.parents.len() as u32,
            chunk,
            start,
            len: data.len() as u32,
        });
    }

    fn failed(&mut self, number: u32, error: &Error) {
        self.part.faults.push((number, error.to_string()));
    }
}

impl CommitTable {
    /// Decodes all commits of `ids`. What `joins` says of commits counts, not what they say themselves.
    pub(crate) fn new(
        ids: &ObjectNumbers<'_, '_>,
        joins: &HistoryJoins<'_>,
        needs: CommitNeeds,
        threads: usize,
        stop: &Stop,
    ) -> CommitTable {
        let forest = ids.forest();
        let roots: Vec<u32> = (0..forest.count())
            .filter(|&n| forest.kind(n) == Some(Kind::Commit) && forest.base(n).is_none())
            .collect();
        let (next, kept_bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let parts = on_threads("weir-commits", threads, || {
            let mut reader = ForestReader::new(forest, COMMIT_BYTES_MAX);
            let mut visit = CommitVisit {
                ids,
                needs,
                part: CommitPart::default(),
                parent_ids: Vec::new(),
                tree_ids: Vec::new(),
                numbers: Vec::new(),
                kept_bytes: &kept_bytes,
            };
            while !stop.is_stopped() {
                let at = next.fetch_add(ROOTS_AT_ONCE, Ordering::Relaxed);
                let Some(some) = roots.get(at..roots.len().min(at + ROOTS_AT_ONCE)) else { break };
                some.iter().for_each(|&root| reader.walk(root, &mut visit));
                visit.look_up();
            }
            visit.part
        });
        let mut all = CommitTable {
            nodes: Vec::new(),
            parents: Vec::new(),
            chunks: Vec::new(),
            by_object: vec![NO_OBJECT; forest.count() as usize],
            faults: Vec::new(),
        };
        for part in parts {
            let (parents, chunks) = (all.parents.len(), all.chunks.len() as u32);
            all.nodes.extend(part.nodes.into_iter().map(|node| CommitNode {
                parents_at: node.parents_at + parents,
                chunk: if node.chunk == NO_CHUNK { NO_CHUNK } else { node.chunk + chunks },
                ..node
            }));
            all.parents.extend(part.parents);
            all.chunks.extend(part.chunks);
            all.faults.extend(part.faults);
        }
        for (at, node) in (0u32..).zip(&all.nodes) {
            debug_assert_eq!(all.by_object[node.object as usize], NO_OBJECT, "a commit is there twice");
            all.by_object[node.object as usize] = at;
        }
        debug_assert!(
            all.nodes.iter().all(|node| node.parents_at + node.parent_count as usize <= all.parents.len()),
            "parents of a commit are not in the table"
        );
        all.join(ids, joins);
        all.faults.sort_unstable_by_key(|(number, _)| *number);
        all
    }

    /// Gives commits the content and the parents that `joins` says.
    fn join(&mut self, ids: &ObjectNumbers<'_, '_>, joins: &HistoryJoins<'_>) {
        debug_assert!(joins.replaced.is_sorted_by(|a, b| a.0 < b.0), "a commit is replaced twice");
        let forest = ids.forest();
        let place = |table: &CommitTable, oid: &Oid| table.place(forest.find(oid.as_bytes())?);
        let own = self.nodes.clone();
        for (replaced, by) in &joins.replaced {
            // A replacement may be replaced itself.
            let mut by = *by;
            for _ in 0..REPLACED_DEPTH_MAX {
                match joins.replaced.binary_search_by(|(other, _)| other.cmp(&by)) {
                    Ok(at) => by = joins.replaced[at].1,
                    Err(_) => break,
                }
            }
            if let (Some(at), Some(by)) = (place(self, replaced), place(self, &by)) {
                self.nodes[at] = CommitNode { object: own[at].object, ..own[by] };
            }
        }
        for (commit, parents) in joins.grafts {
            if let Some(at) = place(self, commit) {
                self.nodes[at].parents_at = self.parents.len();
                self.nodes[at].parent_count = parents.len() as u32;
                self.parents.extend(parents.iter().map(|oid| ids.number(oid.as_bytes())));
            }
        }
        for commit in joins.shallow {
            if let Some(at) = place(self, commit) {
                self.nodes[at].parent_count = 0;
            }
        }
    }

    /// Returns the numbers of the parents of `node`.
    pub(crate) fn parents(&self, node: &CommitNode) -> &[u32] {
        &self.parents[node.parents_at..][..node.parent_count as usize]
    }

    /// Returns the place of the commit with the number `object`, if it is a well-formed commit.
    pub(crate) fn place(&self, object: u32) -> Option<usize> {
        self.by_object.get(object as usize).filter(|&&at| at != NO_OBJECT).map(|&at| at as usize)
    }

    /// Calls `each` with the content of `node`.
    ///
    /// # Errors
    /// If the commit is not kept, and cannot be read again.
    pub(crate) fn with_data<T>(
        &self,
        node: &CommitNode,
        ids: &ObjectNumbers<'_, '_>,
        reader: &mut ObjectReader<'_>,
        each: impl FnOnce(&[u8]) -> T,
    ) -> weir_repo::Result<T> {
        match self.chunks.get(node.chunk as usize) {
            Some(chunk) => Ok(each(&chunk[node.start as usize..][..node.len as usize])),
            None => Ok(each(&reader.require(&ids.oid(node.content))?.data)),
        }
    }

    /// Drops the kept commits. They can still be read again.
    pub(crate) fn drop_data(&mut self) {
        self.chunks.clear();
        self.nodes.iter_mut().for_each(|node| node.chunk = NO_CHUNK);
    }

    /// Marks all commits that `tips` reach, by place. Calls `missing` with the number of each object that a
    /// marked commit names as a parent, or that is a tip, and that is no well-formed commit; and with the
    /// place of that commit.
    pub(crate) fn mark_reached(
        &self,
        tips: &[u32],
        marks: &mut [bool],
        mut missing: impl FnMut(u32, Option<usize>),
    ) {
        let mut stack = Vec::new();
        let mut see = |object: u32, from: Option<usize>, stack: &mut Vec<usize>| match self.place(object) {
            Some(place) if !marks[place] => {
                marks[place] = true;
                stack.push(place);
            }
            Some(_) => {}
            None => missing(object, from),
        };
        tips.iter().for_each(|&tip| see(tip, None, &mut stack));
        while let Some(place) = stack.pop() {
            for &parent in self.parents(&self.nodes[place]) {
                see(parent, Some(place), &mut stack);
            }
        }
    }

    /// Returns the error of the object `number`, which is no well-formed commit.
    pub(crate) fn fault(&self, ids: &ObjectNumbers<'_, '_>, number: u32, from: Option<usize>) -> FaultRow {
        let known = self.faults.binary_search_by_key(&number, |(number, _)| *number);
        let (kind, text) = match known {
            Ok(at) => (FaultKind::Malformed, self.faults[at].1.clone()),
            Err(_) if ids.is_here(number) => (FaultKind::Malformed, "not a commit".to_owned()),
            Err(_) => (FaultKind::Missing, "the commit is not in the repository".to_owned()),
        };
        let revision = from.map(|place| ids.oid(self.nodes[place].object));
        FaultRow { object: ids.oid(number), kind, revision, text }
    }
}
