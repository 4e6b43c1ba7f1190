//! Which commit each line of a file comes from, as `git blame` finds it.
//!
//! The lines go from a commit to the parents that have them, newest commits first (blame.c, `assign_blame`).
//! A parent with the same file takes all lines; else each takes those that it shares, the first parent first.
//! If a parent lacks the file, its old name is searched. A line that no parent has stays.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use weir_git::{Kind, Oid, OidMap};
use weir_mine::{Edit, EditFinder, FileLines, LineStarts, Mode, RenameOptions, renamed_from};
use weir_repo::{LinkedCommit, ObjectReader, Repo};

use crate::error::{Error, Result};
use crate::folder::clean_path;
use crate::path_entries::PathEntries;

/// Larger files are not looked at.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Lines of a file that are compared; a comparison takes some 200 bytes for each.
pub(crate) const LINES_MAX: usize = 1_000_000;
/// Files that may be gone at once where a file is new, for its old name to be looked for.
const GONE_MAX: usize = 1_000_000;
/// Answers that are kept, and their bytes.
const KEPT_MAX: usize = 1024;
const KEPT_BYTES_MAX: usize = 32 << 20;
/// Bytes of files that are remembered.
const TEXTS_BYTES_MAX: usize = 8 << 20;
const _: () = assert!(TEXTS_BYTES_MAX <= KEPT_BYTES_MAX, "texts are a part of what is kept");

/// A request for the commits of the lines of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlameQuery {
    /// The path of the file.
    pub path: Vec<u8>,
    /// The first line that is wanted, from 1 on.
    pub first: u64,
    /// The last line that is wanted, if not all are.
    pub last: Option<u64>,
    /// The commits that are gone through at most.
    pub walked_max: usize,
}

/// Lines that follow each other in a file and in the commit that they come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlameRange {
    /// The commit.
    pub commit: Oid,
    /// The path of the file in that commit.
    pub path: Arc<[u8]>,
    /// The number of the first line there, from 1 on.
    pub original_line: u64,
    /// The number of the first line in the file, from 1 on.
    pub line: u64,
    /// The number of lines.
    pub count: u64,
    /// Whether the commit has no parents here: the lines may be older.
    pub is_boundary: bool,
}

/// The commits of the lines of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blame {
    /// The ranges, in the order of the lines.
    pub ranges: Vec<BlameRange>,
    /// The number of lines of the file.
    pub line_count: u64,
}

impl Blame {
    /// Returns the bytes that it takes, about.
    fn bytes(&self) -> usize {
        size_of::<Blame>() + self.ranges.len() * size_of::<BlameRange>()
    }
}

/// An open repository, a commit of it, and what is asked of the commit.
type BlameKey = (u64, Oid, BlameQuery);

/// Answers that were given lately: finding them takes long. The memory is bounded; the oldest are dropped
/// first.
#[derive(Default)]
pub struct KeptBlames(Mutex<VecDeque<(BlameKey, Arc<Blame>)>>);

impl KeptBlames {
    fn get(&self, key: &BlameKey) -> Option<Arc<Blame>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|(known, _)| known == key)?;
        let (key, found) = kept.remove(at)?;
        kept.push_back((key, found.clone()));
        Some(found)
    }

    fn keep(&self, key: BlameKey, found: Arc<Blame>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(known, _)| *known != key);
        kept.push_back((key, found));
        let mut bytes: usize = kept.iter().map(|(_, found)| found.bytes()).sum();
        while bytes > KEPT_BYTES_MAX || kept.len() > KEPT_MAX {
            let Some((_, oldest)) = kept.pop_front() else { break };
            bytes -= oldest.bytes();
        }
    }
}

/// A file, and where its lines start.
struct FileText {
    data: Rc<Vec<u8>>,
    starts: LineStarts,
}

impl FileText {
    fn lines(&self) -> FileLines<'_> {
        FileLines::new(&self.data, &self.starts)
    }
}

/// Lines of a file that a commit may have brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LineRun {
    /// The first line, in the file of the commit.
    at: u32,
    /// The first line, in the file that is asked for.
    line: u32,
    count: u32,
}

/// A file of a commit.
#[derive(Clone, Copy)]
struct SuspectFile {
    /// The number of its path.
    path: usize,
    mode: Mode,
    oid: Oid,
}

/// A file of a commit, with the lines that the commit may have brought.
struct SuspectRuns {
    file: SuspectFile,
    runs: Vec<LineRun>,
}

/// A file of a parent.
#[derive(Clone, Copy)]
struct ParentFile {
    commit: Oid,
    time: u64,
    file: SuspectFile,
}

/// The files of the parents that a file comes from.
enum Parents {
    /// One of them is the same.
    Same(ParentFile),
    /// All of them differ, from the file and from each other.
    Differ(Vec<ParentFile>),
}

/// A path that the file had, and the entries there.
struct KnownPath {
    path: Arc<[u8]>,
    entries: PathEntries,
}

struct BlameWalk<'r> {
    repo: &'r Repo,
    reader: ObjectReader<'r>,
    paths: Vec<KnownPath>,
    path_numbers: HashMap<Arc<[u8]>, usize>,
    /// The commits with suspects: by time, and by the order in which they were met.
    queue: BinaryHeap<(u64, Reverse<usize>, Oid)>,
    met: usize,
    suspects: OidMap<Vec<SuspectRuns>>,
    texts: VecDeque<(Oid, Rc<FileText>)>,
    texts_bytes: usize,
    finder: EditFinder,
    edits: Vec<Edit>,
    ranges: Vec<BlameRange>,
}

/// Returns the commits of the lines of a file in the commit `from`.
///
/// # Errors
/// If there is no such file or line, if an object is missing or corrupt, or if too many commits would have to
/// be gone through.
pub fn blame(repo: &Repo, from: &Oid, query: &BlameQuery, kept: &KeptBlames) -> Result<Arc<Blame>> {
    let key = (repo.serial(), *from, query.clone());
    if let Some(found) = kept.get(&key) {
        return Ok(found);
    }
    let mut walk = BlameWalk {
        repo,
        reader: repo.reader(),
        paths: Vec::new(),
        path_numbers: HashMap::new(),
        queue: BinaryHeap::new(),
        met: 0,
        suspects: OidMap::default(),
        texts: VecDeque::new(),
        texts_bytes: 0,
        finder: EditFinder::default(),
        edits: Vec::new(),
        ranges: Vec::new(),
    };
    let path = walk.path_number(&clean_path(&query.path));
    let commit = repo.history().commit(&mut walk.reader, from)?;
    let shown = String::from_utf8_lossy(&query.path).into_owned();
    let (mode, oid) = match walk.paths[path].entries.entry(&mut walk.reader, &commit.tree)? {
        None => return Err(Error::NotFound(format!("there is no '{shown}'"))),
        Some((Mode::Tree, _)) => return Err(Error::WrongKind(format!("'{shown}' is a folder, not a file"))),
        Some((Mode::Gitlink, _)) => {
            return Err(Error::WrongKind(format!("'{shown}' is a submodule, not a file")));
        }
        Some(file) => file,
    };
    let line_count = walk.text(&oid, None)?.lines().count() as u32;
    let first = query.first.max(1);
    if let Some(last) = query.last.filter(|last| *last < first) {
        return Err(Error::WrongKind(format!("the last line, {last}, is before the first, {first}")));
    }
    let last = query.last.unwrap_or(u64::MAX).min(line_count.into());
    if last < first && first > 1 {
        return Err(Error::NotFound(format!("'{shown}' has only {line_count} lines, and no line {first}")));
    }
    if last >= first {
        let (at, count) = (first as u32 - 1, (last - first + 1) as u32);
        let file = SuspectFile { path, mode, oid };
        let parent = ParentFile { commit: *from, time: commit.time, file };
        walk.suspect(parent, vec![LineRun { at, line: at, count }]);
    }
    walk.go(query.walked_max)?;
    let mut ranges = walk.ranges;
    ranges.sort_unstable_by_key(|range| range.line);
    ranges.dedup_by(|next, range| {
        let is_next = range.commit == next.commit
            && Arc::ptr_eq(&range.path, &next.path)
            && range.original_line + range.count == next.original_line
            && range.line + range.count == next.line;
        if is_next {
            range.count += next.count;
        }
        is_next
    });
    let follows = |a: &BlameRange, b: &BlameRange| a.line + a.count == b.line;
    debug_assert!(ranges.is_sorted_by(follows), "a line comes from no commit, or from two");
    let found = Arc::new(Blame { ranges, line_count: line_count.into() });
    kept.keep(key, found.clone());
    Ok(found)
}

impl BlameWalk<'_> {
    fn path_number(&mut self, path: &[u8]) -> usize {
        if let Some(number) = self.path_numbers.get(path) {
            return *number;
        }
        let shared: Arc<[u8]> = path.into();
        self.path_numbers.insert(shared.clone(), self.paths.len());
        self.paths.push(KnownPath { entries: PathEntries::new(path), path: shared });
        self.paths.len() - 1
    }

    /// Returns the text of a file, which is much like that of `other`.
    fn text(&mut self, oid: &Oid, other: Option<&FileText>) -> Result<Rc<FileText>> {
        if let Some((_, text)) = self.texts.iter().rev().find(|(known, _)| known == oid) {
            return Ok(text.clone());
        }
        if let Some((Kind::Blob, size)) = self.reader.kind_and_size(oid)?
            && size > FILE_BYTES_MAX
        {
            let words = format!("a version of the file has {size} bytes, more than {FILE_BYTES_MAX}");
            return Err(Error::TooLarge(words));
        }
        let data = self.reader.require(oid)?.data;
        let starts = match other {
            Some(other) => LineStarts::beside(&data, other.lines()),
            None => LineStarts::of(&data),
        };
        if starts.count() > LINES_MAX {
            return Err(Error::TooLarge(format!("a version of the file has more than {LINES_MAX} lines")));
        }
        let text = Rc::new(FileText { data, starts });
        let bytes = |text: &FileText| text.data.len() + 4 * text.starts.count();
        self.texts_bytes += bytes(&text);
        self.texts.push_back((*oid, text.clone()));
        while self.texts_bytes > TEXTS_BYTES_MAX && self.texts.len() > 1 {
            let Some((_, oldest)) = self.texts.pop_front() else { break };
            self.texts_bytes -= bytes(&oldest);
        }
        Ok(text)
    }

    /// Notes that a file of a commit may have brought lines.
    fn suspect(&mut self, at: ParentFile, runs: Vec<LineRun>) {
        let ParentFile { commit, time, file } = at;
        let suspects = self.suspects.entry(commit).or_default();
        if suspects.is_empty() {
            self.queue.push((time, Reverse(self.met), commit));
            self.met += 1;
        }
        match suspects.iter_mut().find(|known| known.file.path == file.path) {
            Some(known) => known.runs.extend(runs),
            None => suspects.push(SuspectRuns { file, runs }),
        }
    }

    fn go(&mut self, walked_max: usize) -> Result<()> {
        let mut walked = 0;
        while let Some((_, _, oid)) = self.queue.pop() {
            walked += 1;
            if walked > walked_max {
                let words = format!("the lines are older than {walked_max} commits of the file");
                return Err(Error::TooLarge(words));
            }
            let commit = self.repo.history().commit(&mut self.reader, &oid)?;
            for suspect in self.suspects.remove(&oid).unwrap_or_default() {
                self.pass(&oid, &commit, suspect)?;
            }
        }
        Ok(())
    }

    /// Passes the lines of a suspect to the parents of its commit. The others are the commit's.
    fn pass(&mut self, oid: &Oid, commit: &LinkedCommit, suspect: SuspectRuns) -> Result<()> {
        let SuspectRuns { file, mut runs } = suspect;
        let parents = match self.parents(commit, &file)? {
            Parents::Same(parent) => {
                self.suspect(parent, runs);
                return Ok(());
            }
            Parents::Differ(parents) => parents,
        };
        runs.sort_unstable();
        for parent in parents {
            let new = self.text(&file.oid, None)?;
            let old = self.text(&parent.file.oid, Some(&new))?;
            self.finder.find(old.lines(), new.lines(), true, &mut self.edits);
            let (kept, passed) = split(&runs, &self.edits);
            if !passed.is_empty() {
                self.suspect(parent, passed);
            }
            if kept.is_empty() {
                return Ok(());
            }
            runs = kept;
        }
        let path = &self.paths[file.path].path;
        self.ranges.extend(runs.iter().map(|run| BlameRange {
            commit: *oid,
            path: path.clone(),
            original_line: u64::from(run.at) + 1,
            line: u64::from(run.line) + 1,
            count: run.count.into(),
            is_boundary: commit.parents.is_empty(),
        }));
        Ok(())
    }

    /// Finds the files of the parents of `commit` that its file `file` comes from.
    fn parents(&mut self, commit: &LinkedCommit, file: &SuspectFile) -> Result<Parents> {
        let mut found: Vec<Option<ParentFile>> = vec![None; commit.parents.len()];
        for has_old_name in [false, true] {
            for (rank, oid) in commit.parents.iter().enumerate() {
                if found[rank].is_some() || !self.repo.contains(oid) {
                    continue;
                }
                let parent = self.repo.history().commit(&mut self.reader, oid)?;
                let origin = match has_old_name {
                    true => self.renamed(commit, &parent, file)?,
                    false => self.same_path(commit, &parent, rank, file)?,
                };
                let Some(origin) = origin else { continue };
                let origin = ParentFile { commit: *oid, time: parent.time, file: origin };
                if origin.file.oid == file.oid {
                    return Ok(Parents::Same(origin));
                }
                // Parents with the same file have the same lines.
                if !found[..rank].iter().flatten().any(|known| known.file.oid == origin.file.oid) {
                    found[rank] = Some(origin);
                }
            }
        }
        Ok(Parents::Differ(found.into_iter().flatten().collect()))
    }

    /// Returns the file of `parent`, the parent number `rank`, that has the same path.
    fn same_path(
        &mut self,
        commit: &LinkedCommit,
        parent: &LinkedCommit,
        rank: usize,
        file: &SuspectFile,
    ) -> Result<Option<SuspectFile>> {
        let entries = &mut self.paths[file.path].entries;
        if rank == 0 && entries.is_certainly_unchanged(self.repo, commit) {
            return Ok(Some(*file));
        }
        let entry = entries.entry(&mut self.reader, &parent.tree)?;
        let entry = entry.filter(|(mode, _)| mode.is_same_type(file.mode));
        Ok(entry.map(|(mode, oid)| SuspectFile { path: file.path, mode, oid }))
    }

    /// Returns the file of `parent` that has another path.
    fn renamed(
        &mut self,
        commit: &LinkedCommit,
        parent: &LinkedCommit,
        file: &SuspectFile,
    ) -> Result<Option<SuspectFile>> {
        let path = self.paths[file.path].path.clone();
        let options = RenameOptions::default();
        let found = renamed_from(self.repo, &parent.tree, &commit.tree, &path, &options, GONE_MAX)?;
        Ok(found.map(|side| SuspectFile {
            path: self.path_number(&side.path),
            mode: side.mode,
            oid: side.oid,
        }))
    }
}

/// Splits lines of a file into those that `edits` brought, which are returned first, and those of the old
/// file, numbered as they are there.
fn split(runs: &[LineRun], edits: &[Edit]) -> (Vec<LineRun>, Vec<LineRun>) {
    let (mut kept, mut passed) = (Vec::new(), Vec::new());
    for run in runs {
        let end = run.at + run.count;
        let part =
            |from: u32, to: u32| LineRun { at: from, line: run.line + (from - run.at), count: to - from };
        let mut at = run.at;
        let mut next = edits.partition_point(|edit| edit.new.end <= at);
        while at < end {
            let edit = edits.get(next);
            let until = edit.map_or(end, |edit| edit.new.start.clamp(at, end));
            if until > at {
                let before = next.checked_sub(1).map(|before| &edits[before]);
                let (old, new) = before.map_or((0, 0), |edit| (edit.old.end, edit.new.end));
                passed.push(LineRun { at: at - new + old, ..part(at, until) });
            }
            let Some(edit) = edit else { break };
            at = edit.new.end.min(end);
            if at > until {
                kept.push(part(until, at));
            }
            next += 1;
        }
    }
    let lines = |runs: &[LineRun]| runs.iter().map(|run| u64::from(run.count)).sum::<u64>();
    debug_assert_eq!(lines(&kept) + lines(&passed), lines(runs), "lines are lost, or are there twice");
    (kept, passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_at_edits() {
        let edits =
            [Edit { old: 2..4, new: 2..3 }, Edit { old: 6..6, new: 5..8 }, Edit { old: 9..10, new: 11..11 }];
        let run = |at, line, count| LineRun { at, line, count };
        let split = |at, line, count| split(&[run(at, line, count)], &edits);
        assert_eq!(split(0, 0, 2), (vec![], vec![run(0, 0, 2)]));
        assert_eq!(split(2, 7, 1), (vec![run(2, 7, 1)], vec![]));
        let all = split(0, 10, 14);
        assert_eq!(all.0, [run(2, 12, 1), run(5, 15, 3)]);
        assert_eq!(all.1, [run(0, 10, 2), run(4, 13, 2), run(6, 18, 3), run(10, 21, 3)]);
        assert_eq!(split(6, 0, 4), (vec![run(6, 0, 2)], vec![run(6, 2, 2)]));
    }
}
