//! Files over HTTP: the files that dumb clients fetch (gitprotocol-http), whole clones with their index,
//! bundles and archives. All can be requested in part (RFC 9110, "Range Requests"), so that a client can
//! resume a transfer.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hyper::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, EXPIRES, HeaderMap,
    HeaderValue,
};
use hyper::{Request, Response, StatusCode};
use weir_archive::Region;
use weir_git::Oid;
use weir_repo::{BodyBundle, Repo};
use weir_upload::{Framing, UNREADABLE};

use crate::access::clones::CloneFile;
use crate::access::opened::Opened;
use crate::http::body::{ResponseBody, Stream};
use crate::http::conditional::WantedPart;
use crate::http::front::{HttpRefusal, TEXT, ok};
use crate::http::route::{ClonePart, Route};
use crate::server::daemon::{Daemon, DaemonLimits};
use crate::server::jobs::Out;

const PACK: HeaderValue = HeaderValue::from_static("application/x-git-packed-objects");
const INDEX: HeaderValue = HeaderValue::from_static("application/x-git-packed-objects-toc");
const LOOSE: HeaderValue = HeaderValue::from_static("application/x-git-loose-object");
const BUNDLE: HeaderValue = HeaderValue::from_static("application/x-git-bundle");
const TAR: HeaderValue = HeaderValue::from_static("application/x-tar");
const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// How long clients may keep a file that is named by its checksum: such a file never changes.
const FOREVER: Duration = Duration::from_secs(31_536_000);

/// A part of a file's content.
enum FilePart {
    Bytes(Bytes),
    Region(Region),
}

impl FilePart {
    fn len(&self) -> u64 {
        match self {
            FilePart::Bytes(bytes) => bytes.len() as u64,
            FilePart::Region(region) => region.len() as u64,
        }
    }
}

/// A file to be sent, in whole or in part.
struct FileAnswer {
    content_type: HeaderValue,
    /// The tag that distinguishes this version of the file from others.
    etag: String,
    is_immutable: bool,
    parts: Vec<FilePart>,
}

impl FileAnswer {
    /// Returns a file of one part that never changes under its name.
    fn immutable(content_type: HeaderValue, etag: String, part: FilePart) -> FileAnswer {
        FileAnswer { content_type, etag, is_immutable: true, parts: vec![part] }
    }
}

/// Refuses a request of a dumb client if files are switched off, or if the archive has a base and the request
/// is for a pack, the list of packs or the archive.
fn check_may_have(opened: &Opened, route: &Route) -> Result<(), HttpRefusal> {
    let is_dumb = !matches!(
        route,
        Route::Clone
            | Route::ClonePart(..)
            | Route::Trees(_)
            | Route::Bundles
            | Route::BodyBundle(_)
            | Route::LfsObject(_)
    );
    if is_dumb && !opened.http.files {
        return Err(HttpRefusal::new(
            StatusCode::FORBIDDEN,
            "repository files are not served; git 1.6.6 and newer do not need them",
        ));
    }
    // An archive with a base is not a full copy, and other clients than this one may have access to the base.
    let is_of_base =
        matches!(route, Route::InfoPacks | Route::Pack(_) | Route::Archive) && opened.repo.base().is_some();
    if is_of_base {
        return Err(HttpRefusal::new(
            StatusCode::NOT_FOUND,
            "repository files are not served for an archive with a base; git 1.6.6 and newer do not need \
            them",
        ));
    }
    Ok(())
}

impl Daemon {
    /// Answers a request for a file of a repository.
    pub(crate) async fn file<B>(
        self: &Arc<Self>,
        request: &Request<B>,
        opened: Opened,
        route: Route,
    ) -> Result<Response<ResponseBody>, HttpRefusal> {
        let headers = request.headers().clone();
        check_may_have(&opened, &route)?;
        let repo = opened.repo;
        let file = match route {
            Route::InfoRefs(None) => return Ok(ok(TEXT, ResponseBody::from(info_refs(&repo)))),
            Route::Head => return Ok(ok(TEXT, ResponseBody::from(repo.refs().to_head_file()))),
            Route::InfoPacks => return Ok(ok(TEXT, ResponseBody::from(info_packs(&repo)))),
            Route::Info(name) => {
                let path = repo.git_dir().join("objects/info").join(name);
                let data = self.off_thread(&repo, move |_| Ok(std::fs::read(path).ok())).await?;
                return data.map(|data| ok(TEXT, ResponseBody::from(data))).ok_or_else(gone);
            }
            Route::Clone => {
                let whole = self.whole_clone(&repo).await?;
                return Ok(ok(JSON, ResponseBody::from(whole.describe(&repo))));
            }
            Route::ClonePart(trailer, part) => self.clone_part(&repo, &trailer, part).await?,
            Route::Trees(commit) => {
                let whole = self.whole_clone(&repo).await?;
                let oid = Oid::from_hex(repo.hash(), commit.as_bytes()).ok_or_else(gone)?;
                let trees = self.clones.trees(&repo, &whole, oid).await.map_err(|e| broken(&repo, &e))?;
                FileAnswer::immutable(BYTES, commit, FilePart::Region(trees.ok_or_else(gone)?))
            }
            Route::Bundles => {
                // The records of older states are read once per open repository.
                let list = |repo: &Repo| repo.body_bundles().map(<[BodyBundle]>::to_vec);
                let bundles = self.off_thread(&repo, list).await?;
                (!bundles.is_empty()).then(|| bundle_list(&bundles)).ok_or_else(gone)?
            }
            Route::BodyBundle(name) => self.body_bundle(&repo, name).await?,
            Route::Loose(path) => {
                let file = repo.git_dir().join("objects").join(&path);
                let read = move |repo: &Repo| match repo.archive() {
                    None => Ok(std::fs::read(file).ok()),
                    Some(_) => Ok(None),
                };
                let data = self.off_thread(&repo, read).await?.ok_or_else(gone)?;
                FileAnswer::immutable(LOOSE, path, FilePart::Bytes(data.into()))
            }
            Route::Pack(name) => {
                let (stem, extension) = name.rsplit_once('.').unwrap_or((&name, ""));
                let pack =
                    repo.objects().packs().iter().find(|p| p.name().ends_with(stem)).ok_or_else(gone)?;
                let (content_type, region) =
                    if extension == "idx" { (INDEX, pack.index().data()) } else { (PACK, pack.data()) };
                FileAnswer::immutable(content_type, name.clone(), FilePart::Region(region.clone()))
            }
            Route::LfsObject(oid) => {
                let find = {
                    let oid = oid.clone();
                    move |repo: &Repo| Ok(repo.lfs_object(&oid))
                };
                let region = self.off_thread(&repo, find).await?.ok_or_else(gone)?;
                FileAnswer::immutable(BYTES, oid, FilePart::Region(region))
            }
            Route::Archive => {
                let archive = repo.archive().ok_or_else(gone)?;
                let region = archive.region().clone();
                let etag = format!("{}-{}", archive.state().record.seq, region.len());
                let parts = vec![FilePart::Region(region)];
                FileAnswer { content_type: TAR, etag, is_immutable: false, parts }
            }
            _ => return Err(gone()),
        };
        Ok(file.answer(&headers, self.repositories.locator.is_open(), &self.limits))
    }

    /// Runs work that reads from disk on a thread that may block.
    async fn off_thread<T: Send + 'static>(
        &self,
        repo: &Arc<Repo>,
        work: impl FnOnce(&Repo) -> weir_repo::Result<T> + Send + 'static,
    ) -> Result<T, HttpRefusal> {
        let found = tokio::task::spawn_blocking({
            let repo = repo.clone();
            move || work(&repo)
        });
        found.await.map_err(|e| broken(repo, &io::Error::other(e).into()))?.map_err(|e| broken(repo, &e))
    }

    async fn whole_clone(&self, repo: &Arc<Repo>) -> Result<Arc<CloneFile>, HttpRefusal> {
        let whole = self.clones.get(repo).await.map_err(|e| broken(repo, &e))?;
        whole.ok_or_else(|| {
            HttpRefusal::new(
                StatusCode::NOT_FOUND,
                "this repository is not available as one pack; clone it with git",
            )
        })
    }

    /// Returns a part of the whole clone whose pack has the checksum `trailer`.
    async fn clone_part(
        &self,
        repo: &Arc<Repo>,
        trailer: &str,
        part: ClonePart,
    ) -> Result<FileAnswer, HttpRefusal> {
        let whole = match self.clones.older(repo.path(), trailer) {
            Some(whole) => whole,
            None => self.whole_clone(repo).await?,
        };
        if *trailer != whole.trailer.to_string() {
            return Err(gone());
        }
        let pack = || {
            let regions = whole.regions.iter().cloned().map(FilePart::Region);
            let header = FilePart::Bytes(Bytes::copy_from_slice(&weir_repo::pack_header(whole.count)));
            let trailer = FilePart::Bytes(Bytes::copy_from_slice(whole.trailer.as_bytes()));
            std::iter::once(header).chain(regions).chain([trailer])
        };
        let (content_type, parts): (_, Vec<FilePart>) = match part {
            ClonePart::Pack => (PACK, pack().collect()),
            ClonePart::Index => (INDEX, vec![FilePart::Region(whole.index.clone())]),
            ClonePart::Bundle => {
                let header = FilePart::Bytes(weir_repo::bundle_header(repo, false).into());
                (BUNDLE, std::iter::once(header).chain(pack()).collect())
            }
        };
        let etag = format!("{trailer}-{part:?}");
        Ok(FileAnswer { content_type, etag, is_immutable: part != ClonePart::Bundle, parts })
    }

    /// Returns the body `name` as a bundle.
    async fn body_bundle(&self, repo: &Arc<Repo>, name: String) -> Result<FileAnswer, HttpRefusal> {
        let bundle = self.clones.bundle(repo, name.clone()).await.map_err(|e| broken(repo, &e))?;
        let bundle = bundle.ok_or_else(gone)?;
        // The header may change: it does not name refs that were deleted since.
        let etag = format!("{name}-{:08x}", crc32fast::hash(&bundle.header));
        let trailer = Bytes::copy_from_slice(bundle.trailer.as_bytes());
        let parts = vec![
            FilePart::Bytes(bundle.header.clone()),
            FilePart::Region(bundle.entries.clone()),
            FilePart::Bytes(trailer),
        ];
        Ok(FileAnswer { content_type: BUNDLE, etag, is_immutable: false, parts })
    }
}

fn gone() -> HttpRefusal {
    HttpRefusal::new(StatusCode::NOT_FOUND, "there is no such file")
}

/// Logs why the repository cannot be read, and returns a refusal.
fn broken(repo: &Repo, e: &weir_repo::Error) -> HttpRefusal {
    tracing::error!(path = %repo.path().display(), "cannot be read: {e}");
    HttpRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, UNREADABLE)
}

/// Returns a list of bundles (git-bundle-uri, "Bundle list").
fn bundle_list(bundles: &[BodyBundle]) -> FileAnswer {
    let mut list = "[bundle]\n\tversion = 1\n\tmode = all\n\theuristic = creationToken\n".to_owned();
    for BodyBundle { name, token, .. } in bundles {
        let _ =
            write!(list, "[bundle \"body-{name}\"]\n\turi = body-{name}.bundle\n\tcreationToken = {token}\n");
    }
    let etag = format!("bundles-{}-{:08x}", bundles.len(), crc32fast::hash(list.as_bytes()));
    FileAnswer { content_type: TEXT, etag, is_immutable: false, parts: vec![FilePart::Bytes(list.into())] }
}

impl FileAnswer {
    fn answer(self, headers: &HeaderMap, is_open: bool, limits: &DaemonLimits) -> Response<ResponseBody> {
        let len: u64 = self.parts.iter().map(FilePart::len).sum();
        let etag = format!("\"{}\"", self.etag);
        let mut response = Response::new(ResponseBody::from(Vec::new()));
        {
            let head = response.headers_mut();
            head.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
            insert(head, ETAG, &etag);
            if self.is_immutable {
                // A shared proxy must not keep files that not every client may read.
                let whose = if is_open { "public, max-age=31536000" } else { "private, max-age=31536000" };
                head.insert(CACHE_CONTROL, HeaderValue::from_static(whose));
                insert(head, EXPIRES, &httpdate::fmt_http_date(SystemTime::now() + FOREVER));
            } else {
                head.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            }
        }
        let range = match WantedPart::of(headers, &etag, len) {
            WantedPart::Nothing => {
                *response.status_mut() = StatusCode::NOT_MODIFIED;
                return response;
            }
            WantedPart::Outside => {
                *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
                insert(response.headers_mut(), CONTENT_RANGE, &format!("bytes */{len}"));
                return response;
            }
            WantedPart::Bytes(range) => {
                *response.status_mut() = StatusCode::PARTIAL_CONTENT;
                let (first, last) = (range.start, range.end - 1);
                insert(response.headers_mut(), CONTENT_RANGE, &format!("bytes {first}-{last}/{len}"));
                range
            }
            WantedPart::All => 0..len,
        };
        let head = response.headers_mut();
        head.insert(CONTENT_TYPE, self.content_type);
        insert(head, CONTENT_LENGTH, &(range.end - range.start).to_string());
        let (mut stream, answer) = Stream::new(limits);
        *response.body_mut() = answer.of_length(range.end - range.start);
        let parts = cut(self.parts, range);
        tokio::spawn(async move {
            let sent: io::Result<()> = async {
                for part in parts {
                    match part {
                        FilePart::Bytes(bytes) => stream.give(bytes).await?,
                        FilePart::Region(region) => stream.region(region, Framing::Raw).await?,
                    }
                }
                Ok(())
            }
            .await;
            if let Err(e) = sent {
                stream.fail(e).await;
            }
        });
        response
    }
}

fn insert(headers: &mut HeaderMap, name: hyper::header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Returns those pieces of `parts` that lie in `range`.
fn cut(parts: Vec<FilePart>, range: std::ops::Range<u64>) -> Vec<FilePart> {
    let mut at = 0;
    let mut out = Vec::new();
    for part in parts {
        let len = part.len();
        let (start, end) = (range.start.clamp(at, at + len) - at, range.end.clamp(at, at + len) - at);
        at += len;
        if start < end {
            match part {
                FilePart::Bytes(bytes) => {
                    out.push(FilePart::Bytes(bytes.slice(start as usize..end as usize)))
                }
                FilePart::Region(region) => out.extend(region.slice(start..end).map(FilePart::Region)),
            }
        }
    }
    out
}

/// Returns the file `info/refs` for dumb clients.
fn info_refs(repo: &Repo) -> Vec<u8> {
    let mut out = Vec::new();
    for r in repo.refs().list() {
        r.oid.push_hex(&mut out);
        out.extend_from_slice(&[b"\t", &*r.name, b"\n"].concat());
        if let Some(peeled) = r.peeled {
            peeled.push_hex(&mut out);
            out.extend_from_slice(&[b"\t", &*r.name, b"^{}\n"].concat());
        }
    }
    out
}

fn info_packs(repo: &Repo) -> Vec<u8> {
    let names = repo.objects().packs().iter().filter_map(|pack| pack.name().rsplit('/').next());
    let mut out: String = names.map(|name| format!("P {name}.pack\n")).collect();
    out.push('\n');
    out.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_cut() {
        let parts = || {
            vec![FilePart::Bytes(Bytes::from_static(b"abc")), FilePart::Bytes(Bytes::from_static(b"defg"))]
        };
        let text = |range| {
            cut(parts(), range)
                .into_iter()
                .map(|p| match p {
                    FilePart::Bytes(b) => String::from_utf8(b.to_vec()).unwrap(),
                    FilePart::Region(_) => String::new(),
                })
                .collect::<String>()
        };
        assert_eq!(
            (text(0..7), text(2..4), text(3..7), text(6..7)),
            ("abcdefg".into(), "cd".into(), "defg".into(), "g".into())
        );
    }
}
