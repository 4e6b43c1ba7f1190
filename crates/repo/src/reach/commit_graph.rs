//! The commit-graph file (gitformat-commit-graph), version 1, one layer: reads it in place, and writes it.

use weir_archive::Region;
use weir_git::{HashKind, Oid};

use crate::error::{Result, corrupt};
use crate::lists::Lists;
use crate::objects::index::append_checksum;
use crate::reach::path_filter::{FilteredPath, PathFilters, filter_chunks};

const NO_PARENT: u32 = 0x7000_0000;
const MORE_PARENTS: u32 = 0x8000_0000;

/// A commit-graph.
#[derive(Debug)]
pub(crate) struct CommitGraph {
    data: Region,
    hash: HashKind,
    count: u32,
    fan_out: usize,
    ids: usize,
    commits: usize,
    edges: Option<(usize, usize)>,
    filters: Option<PathFilters>,
}

/// The graph's data of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GraphCommit {
    pub(crate) tree: Oid,
    /// The positions of the parents.
    pub(crate) parents: Vec<u32>,
    pub(crate) generation: u32,
    pub(crate) time: u64,
}

fn be32(data: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(data[at..at + 4].try_into().expect("four bytes"))
}

fn be64(data: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(data[at..at + 8].try_into().expect("eight bytes"))
}

impl CommitGraph {
    pub(crate) fn open(data: Region, hash: HashKind) -> Result<CommitGraph> {
        let bad = |what: &str| corrupt("objects/info/commit-graph", what);
        if data.len() < 8
            || data[..4] != *b"CGPH"
            || data[4] != 1
            || data[5] != hash.format_id()
            || data[7] != 0
        {
            return bad("not a version 1 commit-graph of one layer");
        }
        let chunks = usize::from(data[6]);
        if data.len() < 8 + (chunks + 1) * 12 + hash.len() {
            return bad("its table of contents is cut off");
        }
        let mut found = [None; 6];
        for i in 0..chunks {
            let row = 8 + i * 12;
            let (start, end) = (be64(&data, row + 4), be64(&data, row + 16));
            if start > end || end > (data.len() - hash.len()) as u64 {
                return bad("a chunk lies outside");
            }
            let which = match &data[row..row + 4] {
                b"OIDF" => 0,
                b"OIDL" => 1,
                b"CDAT" => 2,
                b"EDGE" => 3,
                b"BIDX" => 4,
                b"BDAT" => 5,
                _ => continue,
            };
            found[which] = Some((start as usize, (end - start) as usize));
        }
        let [Some(fan_out), Some(ids), Some(commits), edges, filter_ends, filters] = found else {
            return bad("a chunk is missing");
        };
        if fan_out.1 != 1024 {
            return bad("its fan-out is not of 256 numbers");
        }
        let count = be32(&data, fan_out.0 + 1020);
        if ids.1 != count as usize * hash.len() || commits.1 != count as usize * (hash.len() + 16) {
            return bad("a chunk is not as long as its fan-out says");
        }
        let filters = match filter_ends.zip(filters) {
            Some((ends, filters)) => {
                let [ends, filters] = [ends, filters].map(|(start, len)| start..start + len);
                PathFilters::open(&data, ends, filters, count)?
            }
            None => None,
        };
        Ok(CommitGraph {
            fan_out: fan_out.0,
            ids: ids.0,
            commits: commits.0,
            edges,
            filters,
            count,
            hash,
            data,
        })
    }

    /// Returns whether the commit at `position` may change `path` from its first parent. It says yes of all,
    /// if the graph has no filters.
    pub(crate) fn may_change(&self, position: u32, path: &FilteredPath) -> bool {
        self.filters.as_ref().is_none_or(|filters| filters.may_change(&self.data, position, path))
    }

    pub(crate) fn oid(&self, position: u32) -> Oid {
        let at = self.ids + position as usize * self.hash.len();
        Oid::from_bytes(self.hash, &self.data[at..at + self.hash.len()]).expect("of its length")
    }

    pub(crate) fn find(&self, oid: &Oid) -> Option<u32> {
        let id = oid.as_bytes();
        let first = usize::from(id[0]);
        let mut low = if first == 0 { 0 } else { be32(&self.data, self.fan_out + (first - 1) * 4) };
        let mut high = be32(&self.data, self.fan_out + first * 4).min(self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            let at = self.ids + middle as usize * id.len();
            match self.data[at..at + id.len()].cmp(id) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Some(middle),
            }
        }
        None
    }

    /// Returns the commit at `position`; `None` if the file is corrupt there.
    pub(crate) fn commit(&self, position: u32) -> Option<GraphCommit> {
        let len = self.hash.len();
        let at = self.commits + position as usize * (len + 16);
        let tree = Oid::from_bytes(self.hash, &self.data[at..at + len])?;
        let mut parents = Vec::new();
        let first = be32(&self.data, at + len);
        let second = be32(&self.data, at + len + 4);
        if first != NO_PARENT {
            parents.push(first);
        }
        if second & MORE_PARENTS != 0 {
            let (start, bytes) = self.edges?;
            let mut i = (second & !MORE_PARENTS) as usize;
            loop {
                if (i + 1) * 4 > bytes {
                    return None;
                }
                let edge = be32(&self.data, start + i * 4);
                parents.push(edge & !MORE_PARENTS);
                if edge & MORE_PARENTS != 0 {
                    break;
                }
                i += 1;
            }
        } else if second != NO_PARENT {
            parents.push(second);
        }
        let word = be64(&self.data, at + len + 8);
        let inside = parents.iter().all(|&p| p < self.count);
        inside.then_some(GraphCommit {
            tree,
            parents,
            generation: (word >> 34) as u32,
            time: word & 0x3_ffff_ffff,
        })
    }
}

/// The commits to be written to a graph, by position: in ascending order of id.
pub(crate) struct GraphInput<'a> {
    pub(crate) oid: &'a dyn Fn(u32) -> Oid,
    pub(crate) tree: &'a dyn Fn(u32) -> Oid,
    /// The positions of the parents.
    pub(crate) parents: &'a Lists,
    pub(crate) time: &'a dyn Fn(u32) -> u64,
    /// The filters of the paths that they change.
    pub(crate) filter: &'a dyn Fn(u32) -> &'a [u8],
}

/// Writes a commit-graph of `commits`.
pub(crate) fn write_commit_graph(hash: HashKind, commits: &GraphInput<'_>) -> Vec<u8> {
    let n = commits.parents.len();
    let generations = generations(commits.parents);
    let mut ids = Vec::with_capacity(n * hash.len());
    let mut counts = [0u32; 256];
    let mut data = Vec::with_capacity(n * (hash.len() + 16));
    let mut edges: Vec<u8> = Vec::new();
    for i in 0..n as u32 {
        let oid = (commits.oid)(i);
        debug_assert!(i == 0 || (commits.oid)(i - 1) < oid, "commits out of order");
        debug_assert!(
            commits.parents.of(i).iter().all(|&parent| (parent as usize) < n),
            "a parent is no commit"
        );
        counts[usize::from(oid.as_bytes()[0])] += 1;
        ids.extend_from_slice(oid.as_bytes());
        data.extend_from_slice((commits.tree)(i).as_bytes());
        let p = commits.parents.of(i);
        data.extend_from_slice(&p.first().copied().unwrap_or(NO_PARENT).to_be_bytes());
        let second = match p.len() {
            0 | 1 => NO_PARENT,
            2 => p[1],
            _ => {
                let start = edges.len() as u32 / 4;
                for (k, &q) in p[1..].iter().enumerate() {
                    let last = if k + 2 == p.len() { MORE_PARENTS } else { 0 };
                    edges.extend_from_slice(&(q | last).to_be_bytes());
                }
                MORE_PARENTS | start
            }
        };
        data.extend_from_slice(&second.to_be_bytes());
        let word =
            (u64::from(generations[i as usize].min(0x3fff_ffff)) << 34) | ((commits.time)(i) & 0x3_ffff_ffff);
        data.extend_from_slice(&word.to_be_bytes());
    }
    let mut sum = 0;
    let fan_out = counts.iter().flat_map(|count| {
        sum += count;
        sum.to_be_bytes()
    });
    let fan_out = fan_out.collect();
    let mut chunks: Vec<(&[u8; 4], Vec<u8>)> = vec![(b"OIDF", fan_out), (b"OIDL", ids), (b"CDAT", data)];
    if !edges.is_empty() {
        chunks.push((b"EDGE", edges));
    }
    if let Some((ends, filters)) = filter_chunks((0..n as u32).map(|i| (commits.filter)(i))) {
        chunks.push((b"BIDX", ends));
        chunks.push((b"BDAT", filters));
    }
    let mut out = b"CGPH\x01".to_vec();
    out.extend_from_slice(&[hash.format_id(), chunks.len() as u8, 0]);
    let mut offset = 8 + (chunks.len() as u64 + 1) * 12;
    for (id, chunk) in &chunks {
        out.extend_from_slice(*id);
        out.extend_from_slice(&offset.to_be_bytes());
        offset += chunk.len() as u64;
    }
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&offset.to_be_bytes());
    for (_, chunk) in chunks {
        out.extend_from_slice(&chunk);
    }
    append_checksum(hash, &mut out);
    out
}

/// Computes topological levels: one more than that of the highest parent.
fn generations(parents: &Lists) -> Vec<u32> {
    let mut levels = vec![0u32; parents.len()];
    let mut stack = Vec::new();
    for start in 0..parents.len() as u32 {
        stack.push(start);
        while let Some(&c) = stack.last() {
            if levels[c as usize] != 0 {
                stack.pop();
                continue;
            }
            let mut highest = 0;
            let mut ready = true;
            for &p in parents.of(c) {
                match levels[p as usize] {
                    0 => {
                        stack.push(p);
                        ready = false;
                    }
                    level => highest = highest.max(level),
                }
            }
            if ready {
                levels[c as usize] = highest.saturating_add(1);
                stack.pop();
            }
        }
    }
    levels
}
