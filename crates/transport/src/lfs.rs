//! A client for Git LFS: the batch API and the basic transfer (github.com/git-lfs/git-lfs, docs/api), ssh
//! alone, or the folder of a local repository.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::json;

use crate::error::{Error, Result};
use crate::http::Http;
use crate::lfs_answer::{LfsAnswer, LfsDownload, LfsSource};
use crate::lfs_ssh::LfsSsh;
use crate::options::TransportOptions;
use crate::pace::Pace;
use crate::ssh::ssh_output;
use crate::text::printable;
use crate::url::{Scheme, Url};

/// The maximum number of objects in one request, as in git-lfs.
pub const LFS_BATCH_MAX: usize = 100;
/// The maximum bytes of an answer to a batch request, and to `git-lfs-authenticate`.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
const MEDIA_TYPE: &str = "application/vnd.git-lfs+json";

/// The place that has the LFS objects of a repository.
pub struct Lfs {
    place: LfsStore,
}

enum LfsStore {
    Http {
        http: Box<Http>,
        headers: HashMap<String, String>,
    },
    Ssh(Box<LfsSsh>),
    /// The possible git directories.
    Local(Vec<PathBuf>),
}

#[derive(Deserialize)]
struct LfsBatch {
    #[serde(default)]
    transfer: Option<String>,
    #[serde(default)]
    objects: Vec<LfsBatchObject>,
}

#[derive(Clone, Deserialize)]
struct LfsBatchObject {
    oid: String,
    #[serde(default)]
    actions: Option<Actions>,
    #[serde(default)]
    error: Option<LfsBatchError>,
}

#[derive(Clone, Deserialize)]
struct Actions {
    #[serde(default)]
    download: Option<Action>,
}

#[derive(Clone, Deserialize)]
struct Action {
    href: String,
    #[serde(default)]
    header: Option<HashMap<String, String>>,
}

#[derive(Clone, Deserialize)]
struct LfsBatchError {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    message: String,
}

impl Lfs {
    /// Finds the LFS server of the repository at `url`.
    ///
    /// # Errors
    /// If ssh neither tells where the server is nor gives objects itself.
    pub fn of(url: &Url, options: &TransportOptions) -> Result<Lfs> {
        let (endpoint, headers) = match &url.scheme {
            Scheme::Local => {
                let path = url.local_path();
                return Ok(Lfs { place: LfsStore::Local(vec![path.join(".git"), path]) });
            }
            Scheme::Http { .. } => (endpoint_of(&url.http_base()), HashMap::new()),
            // As git-lfs does.
            Scheme::Git => (endpoint_of(&format!("https://{}{}", url.host, url.path)), HashMap::new()),
            // Most hosts have `git-lfs-authenticate`, some only `git-lfs-transfer`.
            Scheme::Ssh => match over_http(url, options) {
                Ok(place) => place,
                Err(first) => {
                    let lfs = LfsSsh::connect(url, options);
                    let lfs = lfs.map_err(|e| {
                        Error::Ssh(format!("git-lfs-authenticate: {first}; git-lfs-transfer: {e}"))
                    })?;
                    return Ok(Lfs { place: LfsStore::Ssh(Box::new(lfs)) });
                }
            },
        };
        // Credentials are looked up for the LFS host, not for the host that named it.
        let own = if matches!(url.scheme, Scheme::Http { .. }) {
            url.clone()
        } else {
            Url::parse(&endpoint).map_err(|e| Error::Protocol(e.to_string()))?
        };
        let mut http = Http::new(&own, url, options)?;
        http.base = endpoint;
        Ok(Lfs { place: LfsStore::Http { http: Box::new(http), headers } })
    }

    /// Asks where objects are, by id and size, [`LFS_BATCH_MAX`] at most. Objects that the server does not
    /// mention are absent.
    ///
    /// # Errors
    /// If the network fails, or the server refuses all of them.
    pub fn batch(&mut self, objects: &[(&str, u64)]) -> Result<Vec<LfsAnswer>> {
        match &mut self.place {
            LfsStore::Ssh(lfs) => lfs.batch(objects),
            LfsStore::Local(folders) => {
                let found =
                    |oid: &str| folders.iter().filter_map(|f| lfs_path(f, oid)).find(|path| path.is_file());
                let answer = |oid: &str| match found(oid) {
                    Some(path) => LfsAnswer::Here(LfsDownload(LfsSource::File(path))),
                    None => LfsAnswer::Absent("there is no such file".to_owned()),
                };
                Ok(objects.iter().map(|(oid, _)| answer(oid)).collect())
            }
            LfsStore::Http { http, headers } => {
                let asked: Vec<_> =
                    objects.iter().map(|(oid, size)| json!({ "oid": oid, "size": size })).collect();
                let question = json!({ "operation": "download", "transfers": ["basic"], "objects": asked,
                    "hash_algo": "sha256" });
                let mut response = http.post_json("objects/batch", MEDIA_TYPE, headers, &question)?;
                crate::http::check_status(&mut response)?;
                let mut text = Vec::new();
                http.body(response, &Pace::of_answer(&http.options))
                    .take(ANSWER_BYTES_MAX)
                    .read_to_end(&mut text)?;
                let batch: LfsBatch = serde_json::from_slice(&text)
                    .map_err(|e| Error::Protocol(format!("the LFS server's answer is no batch: {e}")))?;
                if let Some(other) = batch.transfer.filter(|transfer| transfer != "basic") {
                    return Err(Error::Protocol(format!(
                        "the LFS server wants transfer '{}'; weir knows basic",
                        printable(other.as_bytes())
                    )));
                }
                let answers: HashMap<String, LfsBatchObject> =
                    batch.objects.into_iter().map(|o| (o.oid.clone(), o)).collect();
                Ok(objects.iter().map(|(oid, _)| answer_of(answers.get(*oid).cloned())).collect())
            }
        }
    }

    /// Returns the bytes of an object.
    ///
    /// # Errors
    /// If the network fails; [`Error::Http`] if the server does not send the object.
    pub fn download(&mut self, object: &LfsDownload) -> Result<Box<dyn Read + Send + '_>> {
        match (&object.0, &mut self.place) {
            (LfsSource::Href(href, headers), LfsStore::Http { http, .. }) => {
                http.get_elsewhere(href, headers)
            }
            (LfsSource::Ssh(oid, arguments), LfsStore::Ssh(lfs)) => lfs.download(oid, arguments),
            (LfsSource::File(path), _) => {
                Ok(Box::new(File::open(path).map_err(|e| Error::Remote(format!("{}: {e}", path.display())))?))
            }
            (LfsSource::Href(..) | LfsSource::Ssh(..), _) => {
                Err(Error::Local("an LFS object is asked for elsewhere than it was found".to_owned()))
            }
        }
    }
}

/// Asks the host over ssh for the URL of its LFS server, and for the headers to send there (git-lfs,
/// docs/api/authentication.md).
fn over_http(url: &Url, options: &TransportOptions) -> Result<(String, HashMap<String, String>)> {
    let said = ssh_output(url, options, "git-lfs-authenticate", "download", ANSWER_BYTES_MAX)?;
    let said: Action =
        serde_json::from_slice(&said).map_err(|e| Error::Protocol(format!("no JSON is given: {e}")))?;
    Ok((said.href.trim_end_matches('/').to_owned(), said.header.unwrap_or_default()))
}

fn answer_of(object: Option<LfsBatchObject>) -> LfsAnswer {
    let Some(object) = object else { return LfsAnswer::Absent("the server says nothing of it".to_owned()) };
    if let Some(error) = object.error {
        let words = format!("{} {}", error.code, printable(error.message.as_bytes()));
        return if matches!(error.code, 404 | 410 | 422) {
            LfsAnswer::Absent(words)
        } else {
            LfsAnswer::Later(words)
        };
    }
    match object.actions.and_then(|actions| actions.download) {
        Some(action) => {
            LfsAnswer::Here(LfsDownload(LfsSource::Href(action.href, action.header.unwrap_or_default())))
        }
        None => LfsAnswer::Absent("the server does not say where it is".to_owned()),
    }
}

/// Returns the default URL of the LFS server of a repository (git-lfs, docs/api/server-discovery.md).
fn endpoint_of(base: &str) -> String {
    if base.ends_with(".git") { format!("{base}/info/lfs") } else { format!("{base}.git/info/lfs") }
}

/// Returns the path of an object in git-lfs's layout.
fn lfs_path(git_dir: &Path, oid: &str) -> Option<PathBuf> {
    Some(git_dir.join("lfs/objects").join(oid.get(..2)?).join(oid.get(2..4)?).join(oid))
}
