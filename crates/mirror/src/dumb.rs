//! Fetches from upstreams that are plain files behind a web server. No process there makes packs. So loose
//! objects and whole packs are fetched as they are, into a git directory below the store, and one pack is
//! made of the wanted objects.
//!
//! Nothing is trusted: loose objects are hashed when they arrive, and the resulting pack is ingested like any
//! other.

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

/// The most packs that one upstream may list.
const PACKS_MAX: usize = 5_000;
/// The bytes of an index before its ids: its signature, its version and the fan-out table.
const INDEX_HEAD_BYTES: usize = 8 + 256 * 4;
/// The most bytes that are read of a list of packs or of alternates.
const LIST_BYTES_MAX: u64 = 16 << 20;
/// The largest commit, tree or tag.
const LINKS_BYTES_MAX: u64 = 256 << 20;
/// The most repositories that an upstream may share objects with.
const ALTERNATES_MAX: usize = 16;

/// A pack that an upstream lists.
struct ListedPack {
    /// The index in `files` of the repository that has it.
    from: usize,
    name: String,
    index: Index,
    is_here: bool,
}

/// The part of the upstream's repository that has been fetched.
struct Download<'a> {
    /// The upstream, and the repositories it shares objects with.
    files: Vec<HttpFiles>,
    hash: HashKind,
    folder: WorkFolder,
    packs: Vec<ListedPack>,
    /// The names of packs that were listed.
    named: HashSet<String>,
    /// What was sent in place of the object that was asked for last, if it was none.
    no_object: Option<(Oid, String)>,
    /// The number of `files` whose lists of packs and alternates have been read.
    listed: usize,
    bytes_left: u64,
    options: &'a VisitOptions,
}

/// Fetches the objects that `wants` reach and `base` lacks; returns them as a pack in a file below `store`.
///
/// # Errors
/// If the upstream lacks some of them or sends more than is allowed, or if the disk fails.
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
        no_object: None,
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

/// Reports damage in the upstream's files as a bad pack, as it is not damage of the archive.
fn of_upstream(failure: Failure) -> Failure {
    if failure.class == FailureClass::Damaged {
        return Failure::new(
            FailureClass::BadPack,
            format!("a file of the upstream is damaged: {}", failure.error),
        );
    }
    failure
}

/// Where an object was found.
enum FoundObject {
    /// It is in the work folder.
    Here,
    /// It is in a pack that was just fetched: the repository must be opened again.
    InNewPack,
}

impl Download<'_> {
    /// Makes an empty git directory.
    fn prepare(&self) -> std::io::Result<()> {
        let at = self.folder.path();
        fs::create_dir_all(at.join("objects/pack"))?;
        fs::create_dir(at.join("refs"))?;
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

    /// Fetches the objects that `wants` reach and `base` lacks, and writes them as a pack.
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

    /// Fetches the objects that `wants` reach and `base` lacks.
    fn walk(&mut self, wants: &[Oid], base: Option<&Repo>) -> Result<(Repo, Vec<Oid>), Failure> {
        let mut repo = self.open()?;
        let mut seen = OidSet::default();
        let mut objects = Vec::new();
        // Blobs are not read: it is enough that they are here.
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

    /// Finds `oid` at the upstream: in a pack whose index has it, as a loose object, in packs not yet listed,
    /// and in the repositories that the upstream shares objects with.
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
                if let Some((_, error)) = self.no_object.take_if(|(of, _)| of == oid) {
                    return Err(Failure::new(FailureClass::BadPack, error));
                }
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
        // Hashed at once: a server that could choose the content of an id could lead the walk on for ever.
        let limits = &self.options.limits;
        let (limit, option) = [
            (limits.object_bytes_max, "limits.object_bytes_max"),
            (limits.held_bytes_max, "limits.held_bytes_max"),
        ]
        .into_iter()
        .min()
        .expect("two");
        let (kind, data) = match read_loose(&self.folder.path().join("objects"), oid, limit) {
            Ok(object) => object,
            Err(weir_repo::Error::TooLarge { size, .. }) => {
                let what = format!("the object {oid} of {size} bytes");
                return Err(weir_repo::Error::Limit { what, limit, option }.into());
            }
            // Some servers have a page for every path. Like git, look for the object elsewhere then.
            Err(e) => {
                fs::remove_file(&path).map_err(weir_repo::Error::from)?;
                self.no_object = Some((*oid, format!("the loose object {oid} of the upstream: {e}")));
                return Ok(false);
            }
        };
        if !ObjectHasher::hash(self.hash, kind, &data).is_ok_and(|is| is == *oid) {
            return Err(Failure::new(
                FailureClass::BadPack,
                format!("the loose object {oid} of the upstream has another id"),
            ));
        }
        Ok(true)
    }

    /// Writes `body` to `path`, within the limit for all files together.
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

    /// Writes an index to `path`, with at most as many bytes as its header allows.
    fn save_index(&mut self, mut body: Box<dyn Read + Send>, path: &Path) -> Result<(), Failure> {
        let mut head = vec![0; INDEX_HEAD_BYTES];
        body.read_exact(&mut head).map_err(|e| {
            Failure::new(
                FailureClass::BadPack,
                format!("the index of a pack of the upstream is cut short: {e}"),
            )
        })?;
        let count = u64::from(u32::from_be_bytes(*head.last_chunk().expect("longer than that")));
        // For each object an id, a CRC, an offset and at most one 64-bit offset, then two checksums
        // (gitformat-pack, version 2).
        let hash_bytes = self.hash.len() as u64;
        let rest = count * (hash_bytes + 4 + 4 + 8) + 2 * hash_bytes;
        self.save(Box::new(Cursor::new(head).chain(body.take(rest + 1))), path)
    }

    /// Reads the list of packs of the repository `from`, their indices, and its alternates.
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
            // A pack that is listed but gone was repacked meanwhile.
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
                // A path on the server's disk cannot be followed; if objects are missing then, that is
                // reported.
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

/// Pushes the ids that an object refers to, each with whether it is a blob of a tree.
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

/// Returns whether `name` is a name that git gives to packs, which cannot lead to another folder.
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
