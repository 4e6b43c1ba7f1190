//! A clone whose pack stays on the server: a git directory here, and the pack and its index, which are read
//! in parts when something of them is needed.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weir_git::Oid;
use weir_ground::FileError;
use weir_ground::thread::{spawn, spawn_scoped};
use weir_repo::{CommitTrees, ListHasher, Region, TREES_BYTES_MAX, pack_header};
use weir_transport::{HttpFiles, TransportOptions, Url};

use crate::description::{Description, DescriptionError};
use crate::error::{Error, Result};
use crate::fetched_file::{FetchedFile, PART_BYTES, ReadRange};
use crate::repository::{ChosenHead, Remote, Target, write_peeled_refs, write_repository};

/// The file that describes an attached clone, beside its git directory.
const RECORD: &str = "attached.json";
/// Where the lists of trees are in the git directory, each by its commit.
const TREES: &str = "weir-trees";
/// The extension of the notes of a list. Those of an older weir ("notes") have another form.
const NOTES: &str = "notes2";
/// The files of a pack, in the order in which all of each is read in the background: without its index, a
/// pack cannot be read when the server has another.
const SUFFIXES: [&str; 2] = ["idx", "pack"];
const PACK: usize = 1;
/// Threads that read ahead, and what may wait for them.
const AHEAD_THREADS: usize = 4;
const AHEAD_WAITING_MAX: usize = 64;
/// For how long readers get an error at once after one gave up.
const GAVE_UP_FOR: Duration = Duration::from_secs(5);
/// How long a server may be silent, and how slow.
const SILENCE_MAX: Duration = Duration::from_secs(15);
const BYTES_PER_SECOND_MIN: u64 = 1000;
/// For how long a reader asks a server again that is away, also one that has never answered, and the longest
/// pause between two requests.
const PATIENCE: Duration = Duration::from_secs(45);
const FIRST_PATIENCE: Duration = Duration::from_secs(5);
const _: () = assert!(FIRST_PATIENCE.as_millis() < PATIENCE.as_millis(), "the first wait is the shortest");
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// After how long it is told that a reader waits, and how often that is looked at.
const TOLD_AFTER: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(300);
const _: () = assert!(TICK.as_millis() < TOLD_AFTER.as_millis(), "a wait is noticed before it is told");
/// Bytes that are read at a time of a list of trees, and in how many buffers.
const BUFFER_BYTES: usize = 256 << 10;
const BUFFERS: usize = 4;
/// After how long reading in the background begins: who attaches is about to read.
const FILL_AFTER: Duration = Duration::from_secs(1);
/// How long reading in the background pauses when others read, and when the server is away or the disk full.
const FILL_PAUSE: Duration = Duration::from_millis(20);
const FILL_RETRY: Duration = Duration::from_secs(10);

/// A clone on a weir server that is attached to a folder here.
#[derive(Clone, Serialize, Deserialize)]
pub struct Attached {
    /// As the user gave it, maybe with a password.
    url: String,
    description: Description,
}

impl Attached {
    /// Asks the server at `url` for its clone. Returns `None` if it offers none.
    ///
    /// # Errors
    /// If the server cannot be reached, or does not answer as it should.
    pub fn find(url: &Url, options: &TransportOptions) -> Result<Option<Attached>> {
        let options = &hasty(options);
        let fail = |source| Error::Upstream { url: url.to_string(), source };
        let Some(mut files) = HttpFiles::new(url, options).map_err(fail)? else { return Ok(None) };
        let description = Description::fetch(&mut files).map_err(fail)?;
        if let Some(description) = &description {
            let bad = |e: DescriptionError| fail(weir_transport::Error::Protocol(e.to_string()));
            description.check_sizes().map_err(bad)?;
        }
        Ok(description.map(|description| Attached { url: url.as_str().to_owned(), description }))
    }

    /// Reads what [`Attached::write`] wrote to the folder `place`.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(place: &Path) -> Result<Attached> {
        let path = place.join(RECORD);
        let fail = FileError::on("read", &path);
        let text = fs::read(&path).map_err(fail)?;
        Ok(serde_json::from_slice(&text).map_err(io::Error::from).map_err(fail)?)
    }

    /// Returns whether the folder `place` has an attached clone.
    pub fn is_at(place: &Path) -> bool {
        place.join(RECORD).is_file()
    }

    /// Returns the git directory of the clone that is attached to the folder `place`.
    pub fn git_dir(place: &Path) -> PathBuf {
        place.join("git")
    }

    /// Writes the git directory to the folder `place`: all but the pack and its index.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, place: &Path) -> Result<()> {
        let git_dir = Attached::git_dir(place);
        let target = Target { top: git_dir.clone(), git_dir };
        target.prepare()?;
        let url = self.url()?;
        let remote = Remote { name: "origin", url: &url, upload_pack: None };
        let head = ChosenHead::of(&self.description, None, remote.name)?;
        write_repository(&target, true, &remote, &self.description, &head)?;
        write_peeled_refs(&target, &self.description)?;
        let path = place.join(RECORD);
        let (new, fail) = (path.with_extension("new"), FileError::on("write", &path));
        let text = serde_json::to_vec(self).map_err(io::Error::from).map_err(fail)?;
        Ok(fs::write(&new, text).and_then(|()| fs::rename(&new, &path)).map_err(fail)?)
    }

    /// Returns the URL of the server's repository.
    ///
    /// # Errors
    /// If the record was changed.
    pub fn url(&self) -> Result<Url> {
        let bad = |e: weir_transport::UrlError| io::Error::new(io::ErrorKind::InvalidData, e.to_string());
        Ok(Url::parse(&self.url).map_err(bad).map_err(FileError::on("read", Path::new(RECORD)))?)
    }

    /// Returns the checksum of the pack.
    pub fn checksum(&self) -> &str {
        &self.description.checksum
    }

    /// Returns the commit that `revision` names, or HEAD, if the server's description says so.
    pub fn commit_of(&self, revision: Option<&str>) -> Option<Oid> {
        let Description { head_oid, peeled, .. } = &self.description;
        let Some(revision) = revision else { return self.description.parse(head_oid.as_deref()?) };
        let of = |prefix: &str| {
            let name = format!("{prefix}{revision}");
            let peeled = peeled.iter().flatten().find(|(known, _)| *known == name).map(|(_, oid)| oid);
            peeled.or_else(|| self.description.oid_of(&name))
        };
        self.description.parse(of("refs/tags/").or_else(|| of("refs/heads/"))?)
    }

    /// Returns the names of the index and the pack, and their sizes in bytes.
    pub fn files(&self) -> [(String, u64); 2] {
        let sizes = [self.description.index_bytes, self.description.pack_bytes];
        [0, 1].map(|n| (format!("pack-{}.{}", self.checksum(), SUFFIXES[n]), sizes[n]))
    }

    /// Returns the trees of the commit `oid`, and keeps them in the folder `place`.
    ///
    /// # Errors
    /// If the server has no such commit, what it sends is no list of its trees, or the disk fails.
    pub fn trees(&self, place: &Path, oid: &Oid, options: &TransportOptions) -> Result<CommitTrees> {
        if let Some(trees) = trees_in(&Attached::git_dir(place), oid) {
            return Ok(trees);
        }
        let url = self.url()?;
        let fail = |source| Error::Upstream { url: url.to_string(), source };
        let files = HttpFiles::new(&url, &hasty(options)).map_err(fail)?;
        let name = format!("weir/trees-{oid}");
        let found = files.map(|mut files| files.get(&name, 0)).transpose().map_err(fail)?.flatten();
        let Some(found) = found else {
            let why = format!("the server has no commit {oid}, or is too old to say what is in it");
            return Err(fail(weir_transport::Error::Protocol(why)));
        };
        let path = trees_path(&Attached::git_dir(place), oid);
        let on = FileError::on("write", &path);
        let folder = path.parent().unwrap_or(&path);
        fs::create_dir_all(folder).map_err(on)?;
        let mut new = tempfile::NamedTempFile::new_in(folder).map_err(on)?;
        let untrusted = |e: weir_repo::Error| Error::Untrusted { oid: *oid, why: e.to_string() };
        let mut reader = found.reader.take(TREES_BYTES_MAX as u64);
        let hashed = std::thread::scope(|scope| {
            let ((full, to_hash), (empty, to_fill)) = (channel::<Vec<u8>>(), channel());
            // A list takes as long to hash as to arrive.
            let hashing = spawn_scoped("hash", scope, move || {
                let mut hasher = ListHasher::new(oid.kind());
                (0..BUFFERS).for_each(|_| drop(empty.send(vec![0; BUFFER_BYTES])));
                for buffer in to_hash {
                    hasher.push(&buffer)?;
                    // If the receiver was dropped, all has arrived.
                    let _ = empty.send(buffer);
                }
                hasher.finish()
            });
            let hashing = hashing.map_err(on)?;
            let mut arrive = || -> Result<()> {
                // If the thread has ended, it knows why this is no list.
                while let Ok(mut buffer) = to_fill.recv() {
                    buffer.resize(BUFFER_BYTES, 0);
                    let len = reader.read(&mut buffer).map_err(|e| fail(e.into()))?;
                    if len == 0 {
                        break;
                    }
                    buffer.truncate(len);
                    new.write_all(&buffer).map_err(on)?;
                    if full.send(buffer).is_err() {
                        break;
                    }
                }
                Ok(())
            };
            let arrived = arrive();
            drop(full);
            let hashed = hashing.join().unwrap_or_else(|panic| resume_unwind(panic));
            arrived.and_then(|()| hashed.map_err(untrusted))
        })?;
        let list = map_list(new.reopen().map_err(on)?).map_err(untrusted)?;
        let trees = CommitTrees::with_hashed(oid.kind(), oid, list, &hashed).map_err(untrusted)?;
        let notes = path.with_extension(NOTES);
        fs::write(&notes, trees.notes()).map_err(FileError::on("write", &notes))?;
        new.persist(&path).map_err(|e| on(e.error))?;
        Ok(trees)
    }

    /// Opens the pack and its index, parts of which are kept in the folder `place`.
    ///
    /// # Errors
    /// If the files of parts cannot be opened.
    pub fn open(&self, place: &Path, reading: RemoteReading) -> Result<AttachedFiles> {
        let RemoteReading { options, fills, tell } = reading;
        let url = self.url()?;
        let failed = |source| Error::Upstream { url: url.to_string(), source };
        let files = HttpFiles::new(&url, &hasty(&options)).map_err(failed)?;
        let files = files.ok_or_else(|| failed(weir_transport::Error::Protocol("no HTTP URL".to_owned())))?;
        let server = Arc::new(Server {
            url: url.to_string(),
            files,
            idle: Mutex::default(),
            checksum: RwLock::new(self.description.checksum.clone()),
            first: self.description.checksum.clone(),
            parts: self.description.parts.clone(),
            waited_for: AtomicUsize::new(0),
            has_answered: [const { AtomicBool::new(false) }; 2],
            waiting: Mutex::default(),
            tell,
        });
        let watched = Arc::clone(&server);
        start("watch", move || watched.watch())?;
        let file = |number: usize| -> Result<FetchedFile> {
            let open = |suffix: &str| {
                let path = place.join(format!("{}.{suffix}", SUFFIXES[number]));
                let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
                file.map_err(FileError::on("open", &path))
            };
            let bytes = self.files()[number].1;
            let source = Box::new(FileOfServer { server: Arc::clone(&server), number });
            let (kept, sums) = (open("kept")?, open("sums")?);
            let known = if number == PACK { self.known_of_pack() } else { Vec::new() };
            Ok(FetchedFile::open(bytes, kept, sums, source, known)
                .map_err(FileError::on("read", &place.join(format!("{}.sums", SUFFIXES[number]))))?)
        };
        let shared = Arc::new(SharedFiles {
            files: [file(0)?, file(PACK)?],
            server,
            waiting: Mutex::new(self.first_parts()),
            has_more: Condvar::new(),
        });
        for n in 0..AHEAD_THREADS {
            let shared = Arc::clone(&shared);
            start(&format!("ahead {n}"), move || shared.read_ahead())?;
        }
        if fills {
            let shared = Arc::clone(&shared);
            start("fill", move || shared.fill())?;
        }
        Ok(AttachedFiles(shared))
    }

    /// Returns what is read of each file when it is opened: its beginning and its end.
    fn first_parts(&self) -> VecDeque<(usize, Range<usize>)> {
        let ends = self.files().map(|(_, bytes)| bytes.div_ceil(PART_BYTES) as usize);
        let of = |(file, end): (usize, usize)| [(file, 0..1), (file, end - 1..end)];
        ends.into_iter().enumerate().flat_map(of).collect()
    }

    /// Returns what the header and the trailer of the pack are: those of a larger pack, which the server has
    /// by now, are others.
    fn known_of_pack(&self) -> Vec<(u64, Vec<u8>)> {
        let trailer = self.description.parse(self.checksum());
        let trailer = trailer.map(|oid| oid.as_bytes().to_vec()).unwrap_or_default();
        let at = self.description.pack_bytes - trailer.len() as u64;
        vec![(0, pack_header(self.description.objects).to_vec()), (at, trailer)]
    }
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    spawn(name, work).map(drop).map_err(|e| FileError::on("start a thread for", Path::new(RECORD))(e).into())
}

fn trees_path(git_dir: &Path, commit: &Oid) -> PathBuf {
    git_dir.join(TREES).join(commit.to_string())
}

/// Returns how to talk to a server for which programs wait.
fn hasty(options: &TransportOptions) -> TransportOptions {
    TransportOptions {
        connect_timeout: options.connect_timeout.min(SILENCE_MAX),
        idle_timeout: options.idle_timeout.min(SILENCE_MAX),
        first_byte_timeout: options.first_byte_timeout.min(SILENCE_MAX),
        bytes_per_second_min: options.bytes_per_second_min.max(BYTES_PER_SECOND_MIN),
        ..options.clone()
    }
}

/// Returns the trees of `commit` that are kept in the git directory `git_dir` of an attached clone.
pub fn trees_in(git_dir: &Path, commit: &Oid) -> Option<CommitTrees> {
    let path = trees_path(git_dir, commit);
    let list = || -> weir_repo::Result<Region> { map_list(File::open(&path)?) };
    // weir does not use a damaged list, nor one that its notes do not fit: only they show that a size is
    // damaged. An older weir wrote no notes.
    match fs::read(path.with_extension(NOTES)) {
        Ok(notes) => CommitTrees::with_notes(commit.kind(), commit, list().ok()?, &notes).ok(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            CommitTrees::parse(commit.kind(), commit, list().ok()?).ok()
        }
        Err(_) => None,
    }
}

fn map_list(list: File) -> weir_repo::Result<Region> {
    let bytes = list.metadata()?.len();
    // SAFETY: a list is written under another name, and nobody writes to it any more. A map that cannot be
    // read is an error.
    Ok(unsafe { Region::map(Arc::new(list), bytes)? })
}

/// A function that receives what readers wait for, and `None` when nobody waits any more.
pub type TellWaiting = Box<dyn Fn(Option<&str>) + Send + Sync>;

/// How an attached clone is read.
pub struct RemoteReading {
    /// How to talk to the server.
    pub options: TransportOptions,
    /// Whether to read all of it in the background.
    pub fills: bool,
    /// Says what readers wait for.
    pub tell: TellWaiting,
}

/// The index and the pack of an attached clone.
pub struct AttachedFiles(Arc<SharedFiles>);

impl AttachedFiles {
    /// Reads the bytes at `offset` of a file, by its place in [`Attached::files`].
    ///
    /// # Errors
    /// If the server is away for a minute, or has no such file any more.
    pub fn read(&self, file: usize, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let next = self.0.files[file].read(offset, buffer)?;
        if !next.is_empty() {
            let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if waiting.len() >= AHEAD_WAITING_MAX {
                waiting.pop_front();
            }
            waiting.push_back((file, next));
            self.0.has_more.notify_one();
        }
        Ok(())
    }
}

/// The files, and the queue of parts to read ahead. All threads of the process share it.
struct SharedFiles {
    files: [FetchedFile; 2],
    server: Arc<Server>,
    /// Parts that a thread is to read ahead, each with the number of its file.
    waiting: Mutex<VecDeque<(usize, Range<usize>)>>,
    has_more: Condvar,
}

impl SharedFiles {
    /// Reads ahead what readers will want next.
    fn read_ahead(&self) {
        loop {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let (file, parts) = loop {
                match waiting.pop_front() {
                    Some(next) => break next,
                    None => {
                        waiting = self.has_more.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                    }
                }
            };
            drop(waiting);
            // Who wants it asks again.
            let _ = self.files[file].read_ahead(parts);
        }
    }

    /// Reads all that nobody has read yet, while nobody else waits.
    fn fill(&self) {
        sleep(FILL_AFTER);
        for file in &self.files {
            let mut from = 0;
            while let Some(parts) = file.absent(from) {
                while self.server.waited_for.load(Ordering::Relaxed) > 0 {
                    sleep(FILL_PAUSE);
                }
                from = parts.start;
                let is_read = file.read_ahead(parts).is_ok();
                // A full disk keeps nothing.
                if !is_read || file.absent(from).is_some_and(|next| next.start == from) {
                    sleep(FILL_RETRY);
                }
            }
        }
    }
}

/// The server of an attached clone.
struct Server {
    /// For messages.
    url: String,
    files: HttpFiles,
    /// Those that wait for the next request, with what the server asked of them.
    idle: Mutex<Vec<HttpFiles>>,
    /// The checksum of the pack that the server has.
    checksum: RwLock<String>,
    /// The checksum of the pack that is attached, and its parts.
    first: String,
    parts: Vec<(String, u64)>,
    /// Readers that wait.
    waited_for: AtomicUsize,
    /// Whether any part was ever read, of each file.
    has_answered: [AtomicBool; 2],
    waiting: Mutex<Waiting>,
    tell: TellWaiting,
}

/// How long readers have waited.
#[derive(Default)]
struct Waiting {
    /// Since when some reader waits.
    since: Option<Instant>,
    /// Why the server does not answer, as far as it is known.
    why: Option<String>,
    /// The text that `tell` received last; `None` once nobody waits.
    told: Option<String>,
    /// Whether something is gone for ever.
    is_gone: bool,
    /// When a reader gave up, if nothing was read since.
    gave_up: Option<Instant>,
}

/// Why the server did not answer.
enum NoAnswer {
    /// It may do so later.
    Away(weir_transport::Error),
    /// It has not got the bytes any more.
    Gone,
}

impl From<weir_transport::Error> for NoAnswer {
    fn from(e: weir_transport::Error) -> NoAnswer {
        NoAnswer::Away(e)
    }
}

impl Server {
    fn checksum(&self) -> String {
        self.checksum.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Requests bytes of a file, by its place in [`SUFFIXES`].
    fn ask(&self, number: usize, range: &Range<u64>) -> std::result::Result<Box<dyn Read + Send>, NoAnswer> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut files = idle().pop().unwrap_or_else(|| self.files.clone());
        loop {
            let checksum = self.checksum();
            let name = format!("weir/clone-{checksum}.{}", SUFFIXES[number]);
            if let Some(reader) = files.get_range(&name, range.clone())? {
                idle().push(files);
                return Ok(reader);
            }
            // The repository has changed. What was added follows what was there.
            let now = Description::fetch(&mut files)?.ok_or(NoAnswer::Gone)?;
            let goes_on = !self.parts.is_empty() && now.parts.starts_with(&self.parts);
            if now.checksum == checksum || !(goes_on && number == PACK || now.checksum == self.first) {
                return Err(NoAnswer::Gone);
            }
            *self.checksum.write().unwrap_or_else(PoisonError::into_inner) = now.checksum;
        }
    }

    fn read(&self, number: usize, range: &Range<u64>, patient: bool) -> io::Result<Box<dyn Read + Send>> {
        let (start, mut pause) = (Instant::now(), FILL_PAUSE);
        let has_answered = &self.has_answered[number];
        let patience = if has_answered.load(Ordering::Relaxed) { PATIENCE } else { FIRST_PATIENCE };
        // One reader asks for many pages, one after the other.
        let waiting = self.waiting();
        if waiting.gave_up.is_some_and(|at| at.elapsed() < GAVE_UP_FOR) {
            return Err(io::Error::other(waiting.told.clone().unwrap_or_default()));
        }
        drop(waiting);
        loop {
            match self.ask(number, range) {
                Ok(reader) => {
                    has_answered.store(true, Ordering::Relaxed);
                    let mut waiting = self.waiting();
                    (waiting.gave_up, waiting.is_gone) = (None, false);
                    return Ok(reader);
                }
                Err(NoAnswer::Gone) => {
                    let why = format!(
                        "{}: the repository was rewritten there, and what nobody has read before is gone; \
                        attach it again",
                        self.url
                    );
                    let mut waiting = self.waiting();
                    waiting.is_gone = true;
                    self.tell(&mut waiting, Some(&why));
                    return Err(io::Error::other(why));
                }
                Err(NoAnswer::Away(e)) => {
                    let why = format!("{}: {e}", self.url);
                    if !patient {
                        return Err(io::Error::other(why));
                    }
                    let mut waiting = self.waiting();
                    if start.elapsed() > patience {
                        waiting.gave_up = Some(Instant::now());
                        self.tell(&mut waiting, Some(&why));
                        return Err(io::Error::other(why));
                    }
                    waiting.why = Some(why);
                    drop(waiting);
                    sleep(pause);
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells what readers wait for.
    fn watch(&self) {
        loop {
            sleep(TICK);
            let mut waiting = self.waiting();
            match waiting.since {
                _ if waiting.is_gone => {}
                Some(since) if since.elapsed() > TOLD_AFTER => {
                    let silent = || format!("{}: the server has not answered for a second", self.url);
                    let why = waiting.why.clone().unwrap_or_else(silent);
                    self.tell(&mut waiting, Some(&why));
                }
                None if waiting.gave_up.is_none() => self.tell(&mut waiting, None),
                _ => {}
            }
        }
    }

    /// Tells what readers wait for, unless it was told before.
    fn tell(&self, waiting: &mut Waiting, what: Option<&str>) {
        if waiting.told.as_deref() != what {
            (self.tell)(what);
            waiting.told = what.map(str::to_owned);
        }
    }

    /// Counts a reader that waits.
    fn begin_waiting(self: &Arc<Self>) -> WaitingReader {
        if self.waited_for.fetch_add(1, Ordering::Relaxed) == 0 {
            let mut waiting = self.waiting();
            (waiting.since, waiting.why) = (Some(Instant::now()), None);
        }
        WaitingReader(Arc::clone(self))
    }
}

/// A reader that waits until this is dropped.
struct WaitingReader(Arc<Server>);

impl Drop for WaitingReader {
    fn drop(&mut self) {
        if self.0.waited_for.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.waiting().since = None;
        }
    }
}

/// The answer of a server, for a reader that counts as waiting until it drops this.
struct AwaitedAnswer {
    answer: Box<dyn Read + Send>,
    _waiting: WaitingReader,
}

impl Read for AwaitedAnswer {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.answer.read(buffer)
    }
}

/// A file of a server, by its place in [`SUFFIXES`].
struct FileOfServer {
    server: Arc<Server>,
    number: usize,
}

impl ReadRange for FileOfServer {
    fn read_range(&self, range: Range<u64>, patient: bool) -> io::Result<Box<dyn Read + Send>> {
        if !patient {
            return self.server.read(self.number, &range, false);
        }
        let waiting = self.server.begin_waiting();
        let answer = self.server.read(self.number, &range, true)?;
        Ok(Box::new(AwaitedAnswer { answer, _waiting: waiting }))
    }
}
