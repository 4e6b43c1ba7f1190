//! Filters of the paths that commits change: the Bloom filters of a commit-graph (gitformat-commit-graph,
//! chunks BIDX and BDAT, version 2), read and written.
//!
//! The filter of a commit holds each path that differs between its tree and that of its first parent, and the
//! folders on the way. It never denies a path that differs, and seldom holds one that does not.

use std::ops::Range;

use crate::error::{Result, corrupt};

/// The version of the hash: 2 is murmur3 of unsigned bytes, which is the same on each machine.
const HASH_VERSION: u32 = 2;
/// Hashes of a path, and bits of a filter for each path.
const HASHES: u32 = 7;
const BITS_PER_PATH: usize = 10;
/// A commit that changes more paths gets a filter that holds all paths.
const PATHS_MAX: usize = 512;
/// The filter that holds all paths, and the one that holds none.
const ALL_PATHS: [u8; 1] = [0xff];
const NO_PATHS: [u8; 1] = [0];
const SEEDS: [u32; 2] = [0x293a_e76f, 0x7e64_6e2c];
const HEADER_BYTES: usize = 12;

fn be32(data: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(data[at..at + 4].try_into().expect("four bytes"))
}

/// Returns the murmur3 hash of `data` (32 bits).
fn murmur3(seed: u32, data: &[u8]) -> u32 {
    let mix = |word: u32| word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let mut hash = seed;
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        hash ^= mix(u32::from_le_bytes(word.try_into().expect("four bytes")));
        hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    let tail = words.remainder();
    if !tail.is_empty() {
        let mut word = [0; 4];
        word[..tail.len()].copy_from_slice(tail);
        hash ^= mix(u32::from_le_bytes(word));
    }
    hash ^= data.len() as u32;
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

/// The hashes of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PathHash([u32; 2]);

impl PathHash {
    fn of(path: &[u8]) -> PathHash {
        PathHash(SEEDS.map(|seed| murmur3(seed, path)))
    }

    /// Returns the byte and the bit of each hash in a filter of `len` bytes.
    fn bits(self, len: usize) -> impl Iterator<Item = (usize, u8)> {
        let PathHash([first, second]) = self;
        (0..HASHES).map(move |n| {
            let bit = u64::from(first.wrapping_add(n.wrapping_mul(second))) % (len as u64 * 8);
            ((bit / 8) as usize, 1 << (bit % 8))
        })
    }
}

/// A path that is looked up in filters.
#[derive(Clone, Debug)]
pub struct FilteredPath {
    /// The hashes of the path and of each folder on the way, the path first.
    hashes: Vec<PathHash>,
}

impl FilteredPath {
    /// Returns the path of which `names` are the parts; `None` for the top, which no filter holds.
    pub fn new(names: &[impl AsRef<[u8]>]) -> Option<FilteredPath> {
        let mut path = Vec::new();
        let mut hashes = Vec::new();
        for name in names {
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name.as_ref());
            hashes.push(PathHash::of(&path));
        }
        hashes.reverse();
        (!hashes.is_empty()).then_some(FilteredPath { hashes })
    }

    fn may_be_in(&self, filter: &[u8]) -> bool {
        self.hashes.iter().all(|hash| hash.bits(filter.len()).all(|(byte, bit)| filter[byte] & bit != 0))
    }
}

/// The places of the filters in a commit-graph.
#[derive(Debug)]
pub(crate) struct PathFilters {
    /// The place of the list of the ends of filters.
    ends: usize,
    /// The place of the filters.
    filters: Range<usize>,
}

impl PathFilters {
    /// Returns the filters of `count` commits: `index` is the chunk BIDX of `graph`, `filters` the chunk
    /// BDAT. Returns `None` if they were made in another way.
    ///
    /// # Errors
    /// If they are corrupt.
    pub(crate) fn open(
        graph: &[u8],
        index: Range<usize>,
        filters: Range<usize>,
        count: u32,
    ) -> Result<Option<PathFilters>> {
        if index.len() != count as usize * 4 || filters.len() < HEADER_BYTES {
            return corrupt("objects/info/commit-graph", "its filters of paths are cut off");
        }
        let header = [0, 4, 8].map(|at| be32(graph, filters.start + at));
        let is_known = header == [HASH_VERSION, HASHES, BITS_PER_PATH as u32];
        let filters = filters.start + HEADER_BYTES..filters.end;
        Ok(is_known.then_some(PathFilters { ends: index.start, filters }))
    }

    /// Returns whether the commit at `position` may change `path`; yes, if its filter is corrupt.
    pub(crate) fn may_change(&self, graph: &[u8], position: u32, path: &FilteredPath) -> bool {
        let end = |position: u32| be32(graph, self.ends + position as usize * 4) as usize;
        let start = if position == 0 { 0 } else { end(position - 1) };
        let filters = &graph[self.filters.clone()];
        match filters.get(start..end(position)) {
            Some(filter) if !filter.is_empty() => path.may_be_in(filter),
            _ => true,
        }
    }
}

/// Paths that a commit changes.
#[derive(Default)]
pub(crate) struct ChangedPaths {
    hashes: Vec<PathHash>,
}

impl ChangedPaths {
    /// Adds a path. Returns whether there is room for more.
    pub(crate) fn add(&mut self, path: &[u8]) -> bool {
        self.hashes.push(PathHash::of(path));
        // The path of a file may also be that of a folder.
        self.hashes.len() <= 2 * PATHS_MAX
    }

    pub(crate) fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Appends the filter of the paths to `filters`, and forgets them. They are too many unless they are
    /// `whole`.
    pub(crate) fn finish(&mut self, whole: bool, filters: &mut Vec<u8>) {
        self.hashes.sort_unstable();
        self.hashes.dedup();
        if !whole || self.hashes.len() > PATHS_MAX {
            filters.extend_from_slice(&ALL_PATHS);
        } else if self.hashes.is_empty() {
            filters.extend_from_slice(&NO_PATHS);
        } else {
            let start = filters.len();
            filters.resize(start + (self.hashes.len() * BITS_PER_PATH).div_ceil(8), 0);
            let filter = &mut filters[start..];
            let len = filter.len();
            for (byte, bit) in self.hashes.iter().flat_map(|hash| hash.bits(len)) {
                filter[byte] |= bit;
            }
        }
        self.hashes.clear();
    }
}

/// Returns the chunks BIDX and BDAT of the filters of commits, in the order of a graph; `None` if they are
/// too large.
pub(crate) fn filter_chunks<'f>(filters: impl Iterator<Item = &'f [u8]>) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut index = Vec::new();
    let mut data: Vec<u8> =
        [HASH_VERSION, HASHES, BITS_PER_PATH as u32].iter().flat_map(|word| word.to_be_bytes()).collect();
    for filter in filters {
        data.extend_from_slice(filter);
        index.extend_from_slice(&u32::try_from(data.len() - HEADER_BYTES).ok()?.to_be_bytes());
    }
    Some((index, data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_git() {
        // t0095-bloom.sh.
        assert_eq!(murmur3(0, b""), 0);
        assert_eq!(murmur3(0, b"Hello world!"), 0x627b_0c2c);
        assert_eq!(murmur3(0, b"The quick brown fox jumps over the lazy dog"), 0x2e4f_f723);
        assert_eq!(murmur3(0, b"\x99\xaa\xbb\xcc\xdd\xee\xff"), 0xa183_ccfd);
        let filter = |paths: &[String]| {
            let (mut filter, mut changed) = (Vec::new(), ChangedPaths::default());
            paths.iter().for_each(|path| assert!(changed.add(path.as_bytes())));
            changed.finish(true, &mut filter);
            filter
        };
        assert_eq!(filter(&["file.txt".to_owned()]), [0xa5, 0x4a]);
        let mut paths: Vec<String> = (0..10).map(|n| format!("smallDir/{n}")).collect();
        paths.push("smallDir".to_owned());
        let wanted = [0x02, 0xb3, 0xc4, 0xa0, 0x34, 0xe7, 0xfe, 0xeb, 0xcb, 0x47, 0xfe, 0xa0, 0xe8, 0x72];
        assert_eq!(filter(&paths), wanted);
    }

    #[test]
    fn a_filter_holds_what_was_added_and_seldom_more() {
        let name = |n: usize| format!("folder/file-{n}");
        let mut filter = Vec::new();
        let mut changed = ChangedPaths::default();
        assert!(changed.add(b"folder"));
        (0..100).for_each(|n| assert!(changed.add(name(n).as_bytes())));
        changed.finish(true, &mut filter);
        let has = |path: &str| {
            FilteredPath::new(&path.split('/').collect::<Vec<_>>())
                .is_some_and(|path| path.may_be_in(&filter))
        };
        assert!((0..100).all(|n| has(&name(n))) && has("folder"));
        assert!((100..1100).filter(|n| has(&name(*n))).count() < 50);
        let mut more = Vec::new();
        (0..=PATHS_MAX).for_each(|n| assert!(changed.add(name(n).as_bytes())));
        changed.finish(true, &mut more);
        changed.finish(true, &mut more);
        changed.finish(false, &mut more);
        assert_eq!(more, [0xff, 0, 0xff]);
    }
}
