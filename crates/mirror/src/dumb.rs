//! Fetching from upstreams that are plain files behind a web server: no process there makes packs, so that
//! loose objects and whole packs are fetched as they lie, into a git directory below the store, and one pack
//! is made of what was asked for.
//!
//! The walk believes nothing for long: loose objects are hashed when they come, and what is made of it all
//! goes through the same ingest as any other pack.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Cursor, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use weir_git::{HashKind, Kind, ObjectHasher, Oid, OidSet, TreeIter, link_targets};
use weir_ground::FailureClass;
use weir_repo::{Index, ObjectReader, PackPlan, Repo, Selection, open_directory, read_loose};
use weir_transport::HttpFiles;

use crate::failure::Failure;
use crate::options::VisitOptions;
use crate::work_folder::WorkFolder;

/// Packs of one upstream.
const PACKS_MAX: usize = 5_000;
/// Bytes of an index before its ids: its signature, its version and the fan-out table.
const INDEX_HEAD_BYTES: usize = 8 + 256 * 4;
/// Bytes of lists of packs and of alternates.
const LIST_BYTES_MAX: u64 = 16 << 20;
/// Bytes of a commit, tree or tag.
const LINKS_BYTES_MAX: u64 = 256 << 20;
/// Repositories that an upstream shares objects with.
const ALTERNATES_MAX: usize = 16;

/// A pack that an upstream lists.
struct ListedPack {
    /// Which of the repositories has it.
    from: usize,
    name: String,
    index: Index,
    is_here: bool,
}

/// The upstream's repository as far as it was fetched.
struct Download<'a> {
    /// The upstream, and those it shares objects with.
    files: Vec<HttpFiles>,
    hash: HashKind,
    folder: WorkFolder,
    packs: Vec<ListedPack>,
    /// Names of packs that were listed.
    named: HashSet<String>,
    /// How many of `files` have said what packs they have, and what they share with others.
    listed: usize,
    bytes_left: u64,
    options: &'a VisitOptions,
}

/// Fetches what `wants` lead to and `base` has not; gives it as a pack, in a file below `store`.
///
/// # Errors
/// If the upstream has not all of it, sends more than is allowed, or the disk fails.
pub(crate) fn fetch(
    files: HttpFiles,
    hash: HashKind,
    wants: &[Oid],
    base: Option<&Repo>,
    options: &VisitOptions,
    store: &Path,
) -> Result<File, Failure> {
    fs::create_dir_all(store).map_err(weir_repo::Error::from)?;
    let folder = WorkFolder::new(store).map_err(weir_repo::Error::from)?;
    let bytes_left = options.limits.pack_bytes_max;
    let mut download = Download {
        files: vec![files],
        hash,
        folder,
        packs: Vec::new(),
        named: HashSet::new(),
        listed: 0,
        bytes_left,
        options,
    };
    download.prepare().map_err(weir_repo::Error::from)?;
    let pack = BufWriter::new(tempfile::tempfile_in(store).map_err(weir_repo::Error::from)?);
    let pack = download.write(wants, base, pack).map_err(of_upstream)?;
    let mut pack = pack.into_inner().map_err(|e| weir_repo::Error::from(e.into_error()))?;
    pack.seek(SeekFrom::Start(0)).map_err(weir_repo::Error::from)?;
    Ok(pack)
}

/// What is wrong with files that came from upstream is no damage of the archive.
fn of_upstream(failure: Failure) -> Failure {
    if failure.class == FailureClass::Damaged {
        return Failure::new(
            FailureClass::BadPack,
            format!("a file of the upstream is damaged: {}", failure.error),
        );
    }
    failure
}

/// How an object is looked for.
enum FoundObject {
    /// It is among those that are here.
    Here,
    /// A pack with it came: the repository is to be opened again.
    InNewPack,
}

impl Download<'_> {
    /// Makes an empty git directory.
    fn prepare(&self) -> std::io::Result<()> {
        let at = self.folder.path();
        fs::create_dir_all(at.join("objects/pack"))?;
        fs::write(at.join("HEAD"), "ref: refs/heads/main\n")?;
        let config = match self.hash {
            HashKind::Sha1 => "[core]\n\trepositoryformatversion = 0\n\tbare = true\n",
            HashKind::Sha256 => {
                "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tobjectformat = \
                sha256\n"
            }
        };
        fs::write(at.join("config"), config)
    }

    fn open(&self) -> Result<Repo, Failure> {
        Ok(open_directory(self.folder.path())?)
    }

    /// Fetches all that `wants` lead to but what `base` has, and writes it as a pack.
    fn write(
        &mut self,
        wants: &[Oid],
        base: Option<&Repo>,
        mut pack: BufWriter<File>,
    ) -> Result<BufWriter<File>, Failure> {
        let (repo, objects) = self.walk(wants, base)?;
        PackPlan::new(repo.history(), Selection::of(objects), false, true)?
            .write(repo.history(), &mut pack)?;
        repo.check_reads()?;
        Ok(pack)
    }

    /// Fetches all that `wants` lead to but what `base` has.
    fn walk(&mut self, wants: &[Oid], base: Option<&Repo>) -> Result<(Repo, Vec<Oid>), Failure> {
        let mut repo = self.open()?;
        let mut seen = OidSet::default();
        let mut objects = Vec::new();
        // What trees call files is not read: an id that is there is all that is needed of it.
        let mut open: Vec<(Oid, bool)> = wants.iter().map(|oid| (*oid, false)).collect();
        while !open.is_empty() {
            let is_new = {
                let mut reader = repo.reader();
                loop {
                    let Some((oid, is_leaf)) = open.pop() else { break None };
                    if seen.contains(&oid) || base.is_some_and(|base| base.has(&oid)) {
                        continue;
                    }
                    if !repo.contains(&oid) {
                        match self.find(&oid)? {
                            FoundObject::Here => {}
                            FoundObject::InNewPack => break Some((oid, is_leaf)),
                        }
                    }
                    seen.insert(oid);
                    objects.push(oid);
                    if objects.len() as u64 > u64::from(self.options.limits.objects_max) {
                        return Err(weir_repo::Error::Limit {
                            what: "objects".to_owned(),
                            limit: self.options.limits.objects_max.into(),
                            option: "limits.objects_max",
                        }
                        .into());
                    }
                    if !is_leaf {
                        push_links(self.hash, &oid, &mut reader, &mut open)?;
                    }
                }
            };
            if let Some(again) = is_new {
                open.push(again);
                repo = self.open()?;
            }
        }
        Ok((repo, objects))
    }

    /// Looks for `oid` at the upstream: in a pack that is known to have it, as a loose object, in packs not
    /// yet listed, and at those the upstream shares objects with.
    fn find(&mut self, oid: &Oid) -> Result<FoundObject, Failure> {
        loop {
            if let Some(at) =
                self.packs.iter().position(|pack| !pack.is_here && pack.index.find(oid.as_bytes()).is_some())
            {
                self.fetch_pack(at)?;
                return Ok(FoundObject::InNewPack);
            }
            for from in 0..self.files.len() {
                if self.fetch_loose(from, oid)? {
                    return Ok(FoundObject::Here);
                }
            }
            if self.listed == self.files.len() {
                let error = format!(
                    "the upstream has no file with object {oid}; there, run 'git fsck' and 'git \
                    update-server-info'"
                );
                return Err(Failure::new(FailureClass::Incomplete, error));
            }
            self.list(self.listed)?;
            self.listed += 1;
        }
    }

    /// Fetches the loose object `oid`, if there is one.
    fn fetch_loose(&mut self, from: usize, oid: &Oid) -> Result<bool, Failure> {
        let hex = oid.to_string();
        let place = format!("objects/{}/{}", &hex[..2], &hex[2..]);
        let Some(body) = self.files[from].get_whole(&place)? else { return Ok(false) };
        let path = self.folder.path().join(&place);
        self.save(body, &path)?;
        // Hashed at once: whoever may choose what an id means could lead on for ever.
        let limits = &self.options.limits;
        let (limit, option) = [
            (limits.object_bytes_max, "limits.object_bytes_max"),
            (limits.held_bytes_max, "limits.held_bytes_max"),
        ]
        .into_iter()
        .min()
        .expect("two");
        let (kind, data) =
            read_loose(&self.folder.path().join("objects"), oid, limit).map_err(|e| match e {
                weir_repo::Error::TooLarge { size, .. } => weir_repo::Error::Limit {
                    what: format!("the object {oid} of {size} bytes"),
                    limit,
                    option,
                }
                .into(),
                e => Failure::new(
                    FailureClass::BadPack,
                    format!("the loose object {oid} of the upstream: {e}"),
                ),
            })?;
        if !ObjectHasher::hash(self.hash, kind, &data).is_ok_and(|is| is == *oid) {
            return Err(Failure::new(
                FailureClass::BadPack,
                format!("the loose object {oid} of the upstream has another id"),
            ));
        }
        Ok(true)
    }

    /// Writes `body` to `path`, within what is allowed in all.
    fn save(&mut self, body: Box<dyn Read + Send>, path: &Path) -> Result<(), Failure> {
        let failed = |e: std::io::Error| Failure::from(weir_repo::Error::from(e));
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let mut file = File::create(path).map_err(failed)?;
        let mut body = body.take(self.bytes_left + 1);
        let bytes = std::io::copy(&mut body, &mut file).map_err(failed)?;
        file.flush().map_err(failed)?;
        self.bytes_left = self.bytes_left.checked_sub(bytes).ok_or_else(|| {
            Failure::from(weir_repo::Error::Limit {
                what: "bytes of its files".to_owned(),
                limit: self.options.limits.pack_bytes_max,
                option: "limits.pack_bytes_max",
            })
        })?;
        Ok(())
    }

    /// Writes an index to `path`: as much as its head says that it has.
    fn save_index(&mut self, mut body: Box<dyn Read + Send>, path: &Path) -> Result<(), Failure> {
        let mut head = vec![0; INDEX_HEAD_BYTES];
        body.read_exact(&mut head).map_err(|e| {
            Failure::new(
                FailureClass::BadPack,
                format!("the index of a pack of the upstream is cut short: {e}"),
            )
        })?;
        let count = u64::from(u32::from_be_bytes(*head.last_chunk().expect("longer than that")));
        // An id, a CRC, an offset and at most one of 64 bits for each, and two sums (gitformat-pack, version
        // 2).
        let hash_bytes = self.hash.len() as u64;
        let rest = count * (hash_bytes + 4 + 4 + 8) + 2 * hash_bytes;
        self.save(Box::new(Cursor::new(head).chain(body.take(rest + 1))), path)
    }

    /// Reads what packs the repository `from` has, with their indices, and what it shares with others.
    fn list(&mut self, from: usize) -> Result<(), Failure> {
        for line in self.lines(from, "objects/info/packs")? {
            let Some(name) = line
                .strip_prefix("P ")
                .and_then(|name| name.strip_suffix(".pack"))
                .filter(|name| is_pack_name(name))
            else {
                continue;
            };
            if !self.named.insert(name.to_owned()) {
                continue;
            }
            if self.named.len() > PACKS_MAX {
                return Err(Failure::new(
                    FailureClass::Limit,
                    format!("the upstream lists more than {PACKS_MAX} packs"),
                ));
            }
            let place = format!("objects/pack/{name}.idx");
            // One that is listed and gone was packed anew meanwhile.
            let Some(body) = self.files[from].get_whole(&place)? else { continue };
            let path = self.folder.path().join(&place);
            self.save_index(body, &path)?;
            let file = File::open(&path).map_err(weir_repo::Error::from)?;
            let len = file.metadata().map_err(weir_repo::Error::from)?.len();
            // SAFETY: this visit created the file in its own folder, and no longer writes to it.
            let region =
                unsafe { weir_repo::Region::map(Arc::new(file), len) }.map_err(weir_repo::Error::from)?;
            let index = Index::open(&place, region, self.hash)
                .map_err(|e| Failure::new(FailureClass::BadPack, e.to_string()))?;
            self.packs.push(ListedPack { from, name: name.to_owned(), index, is_here: false });
        }
        let mut alternates = self.lines(from, "objects/info/http-alternates")?;
        if alternates.is_empty() {
            alternates = self.lines(from, "objects/info/alternates")?;
        }
        for line in alternates.iter().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if self.files.len() > ALTERNATES_MAX {
                return Err(Failure::new(
                    FailureClass::Limit,
                    format!("the upstream shares objects with more than {ALTERNATES_MAX} others"),
                ));
            }
            match self.files[from].alternate(line) {
                Ok(files) => self.files.push(files),
                // A path of its disk says nothing to us; what is missing then is told of.
                Err(e) => tracing::debug!("an alternate is not followed: {e}"),
            }
        }
        Ok(())
    }

    fn lines(&mut self, from: usize, place: &str) -> Result<Vec<String>, Failure> {
        let Some(body) = self.files[from].get_whole(place)? else { return Ok(Vec::new()) };
        let mut text = Vec::new();
        let failed = |e: std::io::Error| Failure::from(weir_repo::Error::from(e));
        BufReader::new(body.take(LIST_BYTES_MAX)).read_to_end(&mut text).map_err(failed)?;
        Ok(String::from_utf8_lossy(&text).lines().map(str::to_owned).collect())
    }

    fn fetch_pack(&mut self, at: usize) -> Result<(), Failure> {
        let (from, place) = (self.packs[at].from, format!("objects/pack/{}.pack", self.packs[at].name));
        let Some(body) = self.files[from].get_whole(&place)? else {
            return Err(Failure::new(
                FailureClass::Incomplete,
                format!("the upstream lists '{place}', but has no such file: it is being repacked"),
            ));
        };
        let path = self.folder.path().join(&place);
        self.save(body, &path)?;
        self.packs[at].is_here = true;
        Ok(())
    }
}

/// Pushes what an object names; with each whether it is named as a file.
fn push_links(
    hash: HashKind,
    oid: &Oid,
    reader: &mut ObjectReader<'_>,
    open: &mut Vec<(Oid, bool)>,
) -> Result<(), Failure> {
    let (kind, size) = reader.kind_and_size(oid)?.ok_or(weir_repo::Error::Missing(*oid))?;
    if kind == Kind::Blob {
        return Ok(());
    }
    if size > LINKS_BYTES_MAX {
        return Err(Failure::new(
            FailureClass::Limit,
            format!("the {} {oid} has {size} bytes (limit {LINKS_BYTES_MAX})", kind.name()),
        ));
    }
    let data = reader.require(oid)?.data;
    let bad = |e: weir_git::ObjectError| {
        Failure::new(FailureClass::BadPack, format!("the {} {oid}: {e}", kind.name()))
    };
    let id = |id: &[u8]| Oid::from_bytes(hash, id).expect("parsed as one of this hash");
    if kind == Kind::Tree {
        for entry in TreeIter::new(hash, &data) {
            let entry = entry.map_err(bad)?;
            if !entry.is_gitlink() {
                open.push((id(entry.id), !entry.is_tree()));
            }
        }
        return Ok(());
    }
    link_targets(hash, kind, &data, |target| open.push((id(target), false))).map_err(bad)
}

/// Whether `name` is one that git gives packs: nothing of it leads to another folder.
fn is_pack_name(name: &str) -> bool {
    name.starts_with("pack-")
        && name.len() <= 100
        && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
}

#[cfg(test)]
mod tests {
    use super::is_pack_name;

    #[test]
    fn names_of_packs_lead_nowhere_else() {
        assert!(is_pack_name("pack-0123456789abcdef0123456789abcdef01234567"));
        for bad in ["", "pack-", "../pack-1", "pack-1/../../x", "pack-1.idx", "x"] {
            assert!(!is_pack_name(bad) || bad == "pack-", "{bad}");
        }
    }
}
