//! Archives of a tree, written while they are sent.

use std::io;
use std::sync::Arc;

use hyper::header::HeaderValue;
use sha2::{Digest, Sha256};
use utoipa::IntoParams;
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};
use weir_browse::{ArchiveFormat, ArchivePaths, Error, TreeArchive, tree_of_revision};
use weir_ground::hex;
use weir_repo::Repo;
use weir_serve::{BodyWriter, Effort};

use crate::answer::{ApiResult, FileBytes, TAG_BYTES, streamed};
use crate::problem::{Problem, Problems};
use crate::request::{ApiRequest, NamedRepository};
use crate::state::ApiState;

/// Bytes of a prefix.
const PREFIX_BYTES_MAX: usize = 1024;

/// Returns the media type of a format.
fn media_type(format: ArchiveFormat) -> HeaderValue {
    HeaderValue::from_static(match format {
        ArchiveFormat::TarGz => "application/gzip",
        ArchiveFormat::Tar => "application/x-tar",
        ArchiveFormat::Zip => "application/zip",
    })
}

/// Describes the formats.
fn format_schema() -> Object {
    let names = ArchiveFormat::ALL.map(ArchiveFormat::name);
    let kind = ObjectBuilder::new().schema_type(Type::String);
    kind.enum_values(Some(names)).default(Some(names[0].into())).build()
}

/// The archive that a client wants.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes parameters")]
struct WantedArchive {
    /// A branch, a tag or an id; HEAD, if it is not there.
    revision: Option<String>,
    /// `tar.gz`, `tar` or `zip`.
    #[param(schema_with = format_schema)]
    format: Option<ArchiveFormat>,
    /// A prefix of all paths in it (`git archive --prefix`). Without the parameter, the prefix is the name of
    /// the repository, the revision and a slash.
    #[param(max_length = 1024)]
    prefix: Option<String>,
}

/// Sends an archive of a revision, as `git archive` makes it: files that the attribute `export-ignore`
/// names are left out; the others are as they are stored.
#[utoipa::path(
    get, operation_id = "getArchive",
    path = "/api/v1/repositories/{repository}/archive", tag = "files",
    params(NamedRepository, WantedArchive),
    responses(
        (status = 200, description = "The archive.", content(
            (FileBytes = "application/gzip"), (FileBytes = "application/x-tar"),
            (FileBytes = "application/zip")
        )),
        (status = 304, description = "The client has it, by the header `If-None-Match`."),
        Problems
    )
)]
pub(crate) async fn archive(state: Arc<ApiState>, mut request: ApiRequest) -> ApiResult {
    let parameters = &mut request.parameters;
    let revision = parameters.text("revision")?.unwrap_or_else(|| "HEAD".to_owned());
    let word = parameters.text("format")?.unwrap_or_else(|| ArchiveFormat::TarGz.name().to_owned());
    let format = ArchiveFormat::ALL.into_iter().find(|format| format.name() == word);
    let format =
        format.ok_or_else(|| Problem::bad_request("the parameter 'format' must be tar.gz, tar or zip"))?;
    let prefix = parameters.bytes("prefix");
    if prefix.as_ref().is_some_and(|prefix| prefix.len() > PREFIX_BYTES_MAX) {
        return Err(Problem::bad_request(format!(
            "the parameter 'prefix' must have at most {PREFIX_BYTES_MAX} bytes"
        )));
    }
    // No path has one.
    let prefix = prefix.map(|prefix| prefix.into_iter().filter(|byte| *byte != 0).collect());
    parameters.end()?;
    let (repository, repo) = state.open(&request).await?;
    let base = repository.name.rsplit('/').next().unwrap_or_default();
    let stem = format!("{base}-{}", revision.replace(['/', '^', '~', '{', '}'], "-"));
    let planned = {
        let (repo, prefix) = (repo.clone(), prefix.unwrap_or_else(|| format!("{stem}/").into_bytes()));
        move || plan(&repo, &revision, prefix)
    };
    let planned = request.client.run(planned).await??;
    let etag = etag_of(&planned, format);
    let name = format!("{stem}.{}", format.name());
    let (mut response, is_there) = streamed(&request.headers, &etag, media_type(format), &name);
    if is_there {
        return Ok(response);
    }
    let key = Sha256::digest(format!("archive of {}: {etag}", repo.path().display())).into();
    let write = move |out: &mut BodyWriter| {
        format.write(&repo, &planned, out).map_err(|e| match e {
            Error::Io(e) => e,
            Error::WrongKind(words) => io::Error::new(io::ErrorKind::InvalidInput, words),
            e => {
                tracing::error!(path = %repo.path().display(), "an archive broke off: {e}");
                io::Error::other(e)
            }
        })
    };
    *response.body_mut() = request.client.stream(Effort::Bounded, key, write).await?;
    Ok(response)
}

/// Returns what an archive of `revision` is made of.
fn plan(repo: &Repo, revision: &str, prefix: Vec<u8>) -> Result<TreeArchive, Problem> {
    let (tree, commit) = tree_of_revision(repo, revision)?;
    let time = match commit {
        // git takes the number, even if no time zone follows.
        Some(commit) => {
            repo.history().commit(&mut repo.reader(), &commit).map_err(weir_browse::Error::from)?.time
        }
        None => 0,
    };
    Ok(TreeArchive { tree, commit, prefix, time, paths: ArchivePaths::default(), level: None })
}

/// Returns the tag of an archive. Compressed by another version of weir it may have other bytes.
fn etag_of(archive: &TreeArchive, format: ArchiveFormat) -> String {
    let mut sum = Sha256::new();
    sum.update(archive.commit.unwrap_or(archive.tree).as_bytes());
    sum.update(format.name());
    sum.update(&archive.prefix);
    format!("W/\"{}\"", hex(&sum.finalize()[..TAG_BYTES]))
}
