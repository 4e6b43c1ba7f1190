//! Switches a workspace to another commit.
//!
//! If many files differ and nothing uses the workspace, it is mounted again on a view of the other commit: of
//! the files only those are written that would be hidden there, by what was written before. Else all that
//! differs is written through the mount, and whoever is in the workspace goes on there.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, DirEntry, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Scope, ScopedJoinHandle};

use rustix::fs::{AtFlags, CWD, Timestamps, utimensat};
use rustix::io::Errno;
use weir_git::Oid;
use weir_ground::thread::spawn_scoped;
use weir_repo::Repo;

use crate::error::{Error, Result};
use crate::file_times::{FileTime, FileTimes};
use crate::hidden::LayersAbove;
use crate::index::LowerFiles;
use crate::known_files::KnownFile;
use crate::mounts_elsewhere::UserSearch;
use crate::overlay::{self, ReplacedMount, unmount_dead};
use crate::replaced_file::{LeftFiles, replace_file};
use crate::revision::{HeadMove, MovingHead};
use crate::switch::{BegunSwitch, TreeSwitch, begun_path};
use crate::touched;
use crate::tree::CommitTree;
use crate::tree_changes::{TreeChanges, tree_changes};
use crate::workspaces::{
    Processes, RECORD, STANDS_ON, StartingView, TIMES_VERSION, Workspace, Workspaces, id,
};

/// The file that says where a workspace finds objects.
const ALTERNATES: &str = ".git/objects/info/alternates";
/// Up to this number, weir writes files faster than it mounts a view of them.
const WRITTEN_MAX: usize = 64;

/// A switch of a workspace.
pub struct CommitSwitch<'a> {
    /// The git directory of the workspace, perhaps with the objects of the source alone.
    pub own: Repo,
    /// Opens the same again.
    pub open_own: &'a dyn Fn() -> Result<Repo>,
    /// Opens it with all objects that git finds there.
    pub open: &'a dyn Fn() -> Result<Repo>,
    /// The repository of which the workspace is one, as it is now; `None` if that is on another machine.
    pub source: Option<&'a Repo>,
    /// The commit that HEAD is at.
    pub from: Oid,
    /// The move of HEAD to the other one.
    pub head: HeadMove,
    /// Who uses the workspace.
    pub users: UserSearch,
    /// Whether the workspace may be mounted again if few files differ, too.
    pub prefers_mount: bool,
}

/// A switch of which the files are written. Until it is dropped, no other process makes, forks, mounts or
/// removes workspaces.
pub struct Switched {
    /// The number of files that differ.
    pub count: usize,
    head: MovingHead,
    /// The workspace as it was, if weir has mounted it again, and what differs.
    left: Option<(Workspace, NotedChanges, ReplacedMount)>,
    /// The file that tells a later switch that this one is not finished.
    begun: PathBuf,
    _alone: File,
}

/// The changes of a switch, which weir has added to the workspace's list of touched files.
struct NotedChanges {
    changes: TreeChanges,
    /// The number that the list has given to them.
    noted: u64,
}

impl Switched {
    /// Waits until git has moved HEAD.
    ///
    /// # Errors
    /// If it does not.
    pub fn wait(self) -> Result<()> {
        self.head.wait()?;
        let _ = fs::remove_file(&self.begun);
        Ok(())
    }
}

/// A workspace as it is to be, on the view of another commit.
struct NextMount<'a> {
    workspace: Workspace,
    /// The repository of the view.
    source: &'a Repo,
    times: FileTimes,
}

impl NextMount<'_> {
    /// Returns a switch to it.
    fn switch<'s>(&'s self, switch: TreeSwitch<'s>) -> TreeSwitch<'s> {
        TreeSwitch { lower: LowerFiles::new(&self.times), ..switch }
    }
}

/// The index of a workspace as it is to be. A thread makes it.
struct NextIndex<'scope> {
    /// Lets the thread write the index, which opens a file in the workspace.
    write: Sender<()>,
    /// Gets what the index said before of the files that differ.
    known: Receiver<Result<Vec<KnownFile>>>,
    thread: io::Result<ScopedJoinHandle<'scope, Result<()>>>,
}

impl<'scope> NextIndex<'scope> {
    /// Begins to make the index, which is right unless layers hide files that differ.
    fn begin<'env>(
        scope: &'scope Scope<'scope, 'env>,
        next: &'env NextMount<'env>,
        switch: TreeSwitch<'env>,
        begun: &'env BegunSwitch,
    ) -> NextIndex<'scope> {
        let ((write, may_write), (tell, known)) = (channel(), channel());
        let make = move || {
            let tell = |files| {
                // If the receiver was dropped, weir does not mount the workspace again.
                let _ = tell.send(files);
            };
            let content = next.switch(switch).index_of_view(begun, &mut next.source.reader(), tell)?;
            // If the sender was dropped, weir does not mount the workspace again, and needs no such index.
            may_write.recv().map_or(Ok(()), |()| begun.lock.write(&content))
        };
        NextIndex { write, known, thread: spawn_scoped("index", scope, make) }
    }

    /// Waits until the thread knows what the index said before. Returns that as [`TreeSwitch::known`] does.
    fn known(&self, switch: &TreeSwitch<'_>, begun: &BegunSwitch) -> Result<Vec<KnownFile>> {
        // A thread that has failed before tells nothing.
        self.known.recv().unwrap_or_else(|_| switch.known(begun))
    }

    fn let_write(&self) {
        // If the thread has failed, `wait` returns why.
        let _ = self.write.send(());
    }

    /// Waits until it is written.
    fn wait(self) -> Result<()> {
        let thread = self.thread.map_err(Error::on(Path::new("/proc/self/task")))?;
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// Which files of commits a user sees in a workspace.
struct SeenFiles {
    /// The differing files that a layer covers.
    hidden: BTreeSet<Vec<u8>>,
    /// Paths at which HEAD has other files than the commit below.
    other: BTreeSet<Vec<u8>>,
    /// The folders above files that the new commit does not have.
    left: BTreeSet<Vec<u8>>,
}

impl SeenFiles {
    /// Returns whether HEAD's file is seen at `path`, or nothing if it has none.
    fn is_untouched(&self, path: &[u8]) -> bool {
        !self.hidden.contains(path) && !self.other.contains(path)
    }
}

impl Workspaces {
    /// Shows the files of another commit in a mounted workspace, writes the index, and begins to move HEAD.
    /// [`Workspaces::end_switch`] and [`Switched::wait`] are to follow.
    ///
    /// # Errors
    /// If a file that differs has other changes, or cannot be written. HEAD has moved only if nothing is left
    /// to do but to give folders their times, or to leave the objects of the old commit.
    pub fn switch(
        &self,
        workspace: &mut Workspace,
        switch: CommitSwitch<'_>,
        processes: &dyn Processes,
    ) -> Result<Switched> {
        let alone = self.lock()?;
        self.renew(workspace)?;
        let CommitSwitch { mut own, open_own, open, source, from, head, users, prefers_mount } = switch;
        let to = head.to.commit;
        let base = Oid::from_hex_any(workspace.commit.as_bytes()).ok_or(Error::NoNode)?;
        // The source's own files are read directly. Each read of the workspace's objects asks the process of
        // a view.
        let has_all = |repo: &&Repo| [base, from, to].iter().all(|commit| repo.contains(commit));
        let has_own = has_all(&&own);
        if !has_own {
            own = open()?;
        }
        let trees_of = source.filter(has_all).unwrap_or(&own);
        let (base, time) = CommitTree::top_of(trees_of, &base)?;
        let times = self.times_path(workspace).map(|path| FileTimes::read(&path)).transpose()?;
        let times = times.unwrap_or_else(|| FileTimes::all(time));
        let tree = |commit: &Oid| CommitTree::top_of(trees_of, commit).map(|(tree, _)| tree);
        let (trees, folder) = ([tree(&from)?, tree(&to)?], workspace.folder.clone());
        let token = touched::oldest_token(&self.place(&folder));
        let (hash, lower) = (own.hash(), LowerFiles::new(&times));
        let (commits, branch) = ([from, to], head.to.branch.clone());
        let asked = branch.as_deref();
        let tree_switch = TreeSwitch { folder: &folder, hash, commits, asked, trees, lower, token: &token };
        let begun_path = begun_path(&folder.join(".git"));
        let switched =
            |count, head, _alone, left| Ok(Switched { count, head, left, begun: begun_path.clone(), _alone });
        self.check_head(workspace, &from)?;
        let begun = tree_switch.begin(&mut trees_of.reader())?;
        self.check_head(workspace, &from)?;
        let count = begun.changes.files.len();
        let may_mount = !workspace.uses_fuse_overlayfs && (prefers_mount || count >= WRITTEN_MAX);
        let source = source.filter(|source| may_mount && source.contains(&to));
        let next = source.map(|source| {
            let workspace = next_workspace(workspace, source, &to, begun.time());
            NextMount { workspace, source, times: begun.times_after(&times) }
        });
        let has_all = source.is_some_and(|source| std::ptr::eq(trees_of, source));
        let trees = [base, trees[0], trees[1]];
        let see = |source: &Repo| match has_all {
            true => self.seen(workspace, source, trees, &begun),
            false if has_own => self.seen(workspace, &open_own()?, trees, &begun),
            false => self.seen(workspace, &open()?, trees, &begun),
        };
        let remounted = std::thread::scope(|scope| {
            let next = next.as_ref()?;
            // A thread makes the index while weir finds out whether anybody uses the workspace.
            let index = NextIndex::begin(scope, next, tree_switch, &begun);
            if users.has_found() {
                return None;
            }
            // Its own packs are files of the workspace, which are in use while it is open.
            drop(own);
            Some(self.remount(next, index, workspace, (tree_switch, &begun), || see(next.source), processes))
        });
        let (Some(next), Some(remounted)) = (next, remounted) else {
            let own = self.with_objects(workspace, &to, open, processes)?;
            tree_switch.check(&begun, &tree_switch.known(&begun)?, |_| false)?;
            write_all(tree_switch, begun, &own)?;
            return switched(count, head.begin(&alone)?, alone, None);
        };
        let remounted = remounted.inspect_err(|_| self.undo(workspace, &begun, &begun_path))?;
        if let Some((noted, seen, replaced)) = remounted {
            let (changes, head) =
                self.finish_remount(&next, &seen, next.switch(tree_switch), begun, (head, &alone))?;
            let left = std::mem::replace(workspace, next.workspace);
            return switched(count, head, alone, Some((left, NotedChanges { changes, noted }, replaced)));
        }
        self.record(workspace)?;
        self.write_objects(workspace, &[])?;
        let own = self.with_objects(workspace, &to, open, processes);
        let own = own.inspect_err(|_| self.undo(workspace, &begun, &begun_path))?;
        write_all(tree_switch, begun, &own)?;
        switched(count, head.begin(&alone)?, alone, None)
    }

    /// Checks that HEAD is still at the commit `from`.
    fn check_head(&self, workspace: &Workspace, from: &Oid) -> Result<()> {
        match self.head(workspace) {
            Some((head, _)) if head != *from => Err(Error::HeadMoved(workspace.folder.clone())),
            _ => Ok(()),
        }
    }

    /// Leaves a workspace as it was before a switch that has written no file yet.
    fn undo(&self, workspace: &Workspace, begun: &BegunSwitch, begun_path: &Path) {
        let _ = self.record(workspace);
        let _ = self.write_objects(workspace, &[]);
        self.sweep(workspace);
        if !begun.resumes {
            let _ = fs::remove_file(begun_path);
        }
    }

    /// Returns the workspace's own repository, as `open` does, after git finds the commit `to` there.
    fn with_objects(
        &self,
        workspace: &mut Workspace,
        to: &Oid,
        open: &dyn Fn() -> Result<Repo>,
        processes: &dyn Processes,
    ) -> Result<Repo> {
        let own = open()?;
        if own.contains(to) {
            return Ok(own);
        }
        self.add_objects_alone(workspace, to, processes)?;
        open()
    }

    /// Ends the views that a workspace needed before a switch, and those that killed processes have left.
    pub fn end_switch(&self, workspace: &Workspace, switched: &mut Switched) {
        if let Some((left, NotedChanges { changes, noted }, replaced)) = switched.left.take() {
            drop(replaced);
            // The index says the same by now. But git remembers which untracked files folders have.
            let is_kept = |path: &[u8]| changes.renames_in_folder(path);
            if let Err(e) = touched::forget_other(&self.place(&workspace.folder), noted, is_kept) {
                tracing::debug!("git looks at more files than it has to: {e}");
            }
            if self.list().is_ok_and(|all| all.iter().all(|one| one.commit != left.commit)) {
                self.remove_kept_index(&left.commit);
            }
        }
        self.sweep(workspace);
    }

    /// Ends views and removes folders of mounts that no workspace needs.
    fn sweep(&self, workspace: &Workspace) {
        unmount_dead(&self.next_place(workspace));
        let work = self.work(workspace);
        let entries = fs::read_dir(self.place(&workspace.folder)).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            let is_work = path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"overlay"));
            if is_work && path != work {
                let _ = fs::remove_dir_all(path);
            }
        }
        self.release_views();
    }

    /// Checks that nothing is lost, and mounts the workspace `next` in place of `old`. Lets the `index` be
    /// written.
    ///
    /// Returns the number by which the list of touched files knows the change, what is seen, as `see` returns
    /// it, and what was mounted; `None` if a program uses the workspace, or the system does not mount so:
    /// then `old` stays mounted.
    ///
    /// # Errors
    /// If something would be lost, or the index or the record cannot be written, as on a full disk. Then
    /// nothing is mounted again.
    fn remount(
        &self,
        next: &NextMount<'_>,
        index: NextIndex<'_>,
        old: &Workspace,
        (switch, begun): (TreeSwitch<'_>, &BegunSwitch),
        see: impl FnOnce() -> Result<Option<SeenFiles>>,
        processes: &dyn Processes,
    ) -> Result<Option<(u64, SeenFiles, ReplacedMount)>> {
        let folder = &next.workspace.folder;
        let entered = self.entered_path(old);
        if entered.exists() || !overlay::is_free(folder) {
            switch.check(begun, &index.known(&switch, begun)?, |_| false)?;
            return Ok(None);
        }
        index.let_write();
        let (place, mut left) = (self.place(folder), LeftFiles::default());
        let written = self.written(&next.workspace);
        let [list, record] = [touched::FILE, RECORD].map(|name| place.join(name));
        [list, record, written.join(ALTERNATES)].iter().for_each(|path| left.keep(path));
        // The view starts while this process finds what the user sees, and checks that nothing is lost.
        let mut view = self.start_view(&next.workspace, processes);
        let Some(seen) = see()? else {
            switch.check(begun, &index.known(&switch, begun)?, |_| false)?;
            return Ok(None);
        };
        switch.check(begun, &index.known(&switch, begun)?, |path| seen.is_untouched(path))?;
        next.times.write(&self.times_path(&next.workspace).unwrap_or_default())?;
        if let Ok(Some(view)) = &mut view {
            view.times_are_written();
        }
        let noted = touched::note_other(&place, begun.changes.paths())?;
        let new = view.and_then(|view| self.mount_next(next, view, processes));
        let Ok(new) = new.inspect_err(|e| tracing::warn!("'{}' is not mounted again: {e}", folder.display()))
        else {
            return Ok(None);
        };
        // After a crash, git must find the objects of both commits.
        self.write_objects(&next.workspace, &self.views(old))?;
        index.wait()?;
        if !overlay::is_free(folder) {
            return Ok(None);
        }
        // After a crash from here on, weir mounts the new view. git then looks at each file that differs:
        // these are in the list of touched files by now.
        self.record(&next.workspace)?;
        match overlay::replace(folder, &new) {
            Ok(Some(replaced)) => Ok(Some((noted, seen, replaced))),
            Ok(None) => {
                fs::write(&entered, b"").map_err(Error::on(&entered))?;
                Ok(None)
            }
            Err(e) => {
                tracing::debug!("'{}' is not mounted again: {e}", folder.display());
                Ok(None)
            }
        }
    }

    /// Mounts a workspace as it is to be, where nobody sees it yet, when its `view` is there.
    fn mount_next(
        &self,
        next: &NextMount<'_>,
        view: Option<Box<dyn StartingView>>,
        processes: &dyn Processes,
    ) -> Result<OwnedFd> {
        let workspace = &next.workspace;
        if let Some(view) = view {
            view.wait()?;
        }
        for commit in &workspace.later {
            self.show_later(workspace, commit, processes)?;
        }
        let by = self.next_place(workspace);
        // A killed process may have left a mount.
        unmount_dead(&by);
        fs::create_dir_all(&by).map_err(Error::on(&by))?;
        self.with_layers(workspace, |layers| overlay::mount_detached(&by, layers))
    }

    /// Writes the files that a layer covers, and the index, in a workspace that weir has mounted again, and
    /// begins to move HEAD. Returns what differs.
    fn finish_remount(
        &self,
        next: &NextMount<'_>,
        seen: &SeenFiles,
        switch: TreeSwitch<'_>,
        begun: BegunSwitch,
        (head, alone): (HeadMove, &File),
    ) -> Result<(TreeChanges, MovingHead)> {
        let NextMount { workspace, source, .. } = next;
        let (written, mut left) = (self.written(workspace), LeftFiles::default());
        let stands_on = self.place(&workspace.folder).join(STANDS_ON);
        [written.join(ALTERNATES), written.join(".git/index"), stands_on]
            .iter()
            .for_each(|path| left.keep(path));
        self.note_mounted(workspace)?;
        let time = begun.time();
        let end = |changes: &TreeChanges| {
            self.remove_left(workspace, &seen.left);
            self.renew_folders(workspace, changes, time)?;
            self.write_objects(workspace, &[])
        };
        if !seen.hidden.is_empty() {
            end(&begun.changes)?;
            let is_hidden = |path: &[u8]| seen.hidden.contains(path);
            begun.lock.write(&switch.write_files(&begun, &mut source.reader(), is_hidden)?)?;
        }
        let BegunSwitch { lock, changes, .. } = begun;
        lock.commit()?;
        let head = head.begin(alone)?;
        if seen.hidden.is_empty()
            && let Err(e) = end(&changes)
        {
            head.wait()?;
            return Err(e);
        }
        Ok((changes, head))
    }

    /// Returns which files a user sees of the commits with the trees `trees`: the one below a workspace,
    /// HEAD's, and the one that `begun` switches to. `None` if weir cannot mount the workspace again without
    /// changing a file that the switch must not touch.
    fn seen(
        &self,
        workspace: &Workspace,
        repo: &Repo,
        trees: [Oid; 3],
        begun: &BegunSwitch,
    ) -> Result<Option<SeenFiles>> {
        let (layers, lower) = (self.asked_layers(workspace), self.lower(workspace));
        let mut above = LayersAbove::new(&layers, &lower);
        let mut reader = repo.reader();
        let [below, head, to] = trees;
        let Some(hidden) = above.hidden(begun.changes.paths()) else {
            return Ok(None);
        };
        let mut seen = SeenFiles {
            hidden: hidden.into_iter().map(<[u8]>::to_vec).collect(),
            other: tree_changes(&mut reader, &below, &head)?.paths().map(<[u8]>::to_vec).collect(),
            left: BTreeSet::new(),
        };
        let since_below = match below == head {
            true => TreeChanges::default(),
            false => tree_changes(&mut reader, &below, &to)?,
        };
        // The layers have marks where HEAD has deleted files, or the user has renamed folders.
        let Some(hidden_since) = above.hidden(since_below.paths()) else {
            return Ok(None);
        };
        // 'git reset' makes files of the commit below changes, where HEAD has other ones: they stay.
        let differs = |path: &[u8]| {
            let found = begun.changes.files.binary_search_by(|change| change.path.as_slice().cmp(path));
            found.is_ok()
        };
        if since_below.paths().any(|path| !hidden_since.contains(path) && !differs(path)) {
            return Ok(None);
        }
        let all = begun.changes.files.iter().chain(&since_below.files);
        for change in all.filter(|change| change.new.is_none()) {
            let mut path = change.path.as_slice();
            while let Some(at) = path.iter().rposition(|byte| *byte == b'/') {
                path = &path[..at];
                seen.left.insert(path.to_vec());
            }
        }
        Ok(Some(seen))
    }

    /// Removes folders that the commit does not have, if nothing is in them but marks of files that were
    /// deleted.
    fn remove_left(&self, workspace: &Workspace, folders: &BTreeSet<Vec<u8>>) {
        let (layers, lower) = (self.asked_layers(workspace), self.lower(workspace));
        let Some((written, frozen)) = layers.split_last() else { return };
        let is_in = |layer: &Path, path: &Path| fs::symlink_metadata(layer.join(path)).is_ok();
        // The deepest first.
        for folder in folders.iter().rev() {
            let path = Path::new(OsStr::from_bytes(folder));
            if !layers.iter().any(|layer| is_in(layer, path)) || is_in(&lower, path) {
                continue;
            }
            let upper = written.join(path);
            let is_folder = fs::symlink_metadata(&upper).is_ok_and(|about| about.is_dir());
            let entries = is_folder.then(|| fs::read_dir(&upper)).into_iter().flatten();
            for entry in entries.flatten().flatten() {
                let name = path.join(entry.file_name());
                // The mark hides nothing any more, unless a layer of a fork has the file.
                if is_whiteout(&entry) && !frozen.iter().any(|layer| is_in(layer, &name)) {
                    let _ = fs::remove_file(entry.path());
                }
            }
            // One that is not empty stays.
            let _ = fs::remove_dir(workspace.folder.join(path));
        }
    }

    /// Sets the time of folders that have other files after the switch. A folder of the upper layer does not
    /// take it from the view.
    fn renew_folders(&self, workspace: &Workspace, changes: &TreeChanges, time: FileTime) -> Result<()> {
        let written = self.written(workspace);
        let time = time.as_timespec();
        let times = Timestamps { last_access: time, last_modification: time };
        let mut missing: Option<&[u8]> = None;
        for folder in changes.folders.keys() {
            // The folders in one that is not there follow it.
            if missing.is_some_and(|missing| folder.starts_with(missing)) {
                continue;
            }
            let path = Path::new(OsStr::from_bytes(folder.strip_suffix(b"/").unwrap_or(folder)));
            if !fs::symlink_metadata(written.join(path)).is_ok_and(|about| about.is_dir()) {
                missing = Some(folder);
                continue;
            }
            let path = workspace.folder.join(path);
            match utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW) {
                Err(e) if e != Errno::NOENT => return Err(Error::on(&path)(e.into())),
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes where a workspace finds the objects of its commits, and those of other `views`. Lines that are
    /// not weir's stay.
    fn write_objects(&self, workspace: &Workspace, views: &[PathBuf]) -> Result<()> {
        let path = workspace.folder.join(ALTERNATES);
        let before = match fs::read(&path) {
            // The user has copied all objects.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            before => before.map_err(Error::on(&path))?,
        };
        let line = |view: &PathBuf| [view.join("objects").as_os_str().as_bytes(), b"\n"].concat();
        let mut text: Vec<u8> = self.views(workspace).iter().chain(views).flat_map(line).collect();
        let own = self.views_folder();
        let is_other =
            |line: &&[u8]| !line.is_empty() && !Path::new(OsStr::from_bytes(line)).starts_with(&own);
        let others = before.split(|byte| *byte == b'\n').filter(is_other);
        text.extend(others.flat_map(|line| [line, b"\n"].concat()));
        replace_file(&path, &text)
    }
}

/// Writes all files that differ, and the index. `own` has their objects.
fn write_all(switch: TreeSwitch<'_>, begun: BegunSwitch, own: &Repo) -> Result<()> {
    begun.lock.write(&switch.write_files(&begun, &mut own.reader(), |_| true)?)?;
    begun.lock.commit()
}

/// Returns a workspace as it is to be: on the commit `to` of `source`, the new files of which have this time.
fn next_workspace(workspace: &Workspace, source: &Repo, to: &Oid, time: FileTime) -> Workspace {
    let folder = workspace.folder.as_os_str().as_encoded_bytes();
    let name = format!("\0{}.{}", time.seconds, time.nanoseconds);
    // The new view has the objects of all commits that the repository still has.
    let is_gone =
        |commit: &&String| Oid::from_hex_any(commit.as_bytes()).is_none_or(|oid| !source.contains(&oid));
    let views = std::iter::once(&workspace.commit).chain(&workspace.later);
    Workspace {
        version: TIMES_VERSION,
        commit: to.to_string(),
        times: Some(id(&[folder, name.as_bytes()].concat())),
        later: views.filter(is_gone).cloned().collect(),
        ..workspace.clone()
    }
}

/// Returns whether an entry of an upper folder says that a file was deleted.
fn is_whiteout(entry: &DirEntry) -> bool {
    entry.metadata().is_ok_and(|about| about.file_type().is_char_device() && about.rdev() == 0)
}
