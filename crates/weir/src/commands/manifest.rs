//! `manifest`: lists what is mirrored, for mirrors of this mirror (grokmirror's `manifest.js`).

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

use serde_json::{Map, Value, json};
use sirocco::Format;
use sirocco::deflate::Level;
use weir_git::{HashKind, plain_sha};
use weir_ground::FileError;
use weir_pool::Pool;
use weir_repo::{Head, Repo};
use weir_serve::Client;

use crate::cli::{Global, RepoSelection};
use crate::error::{Error, Result};
use crate::locators::catalog::asked;
use crate::output;

pub(crate) fn manifest(
    pool: &Pool,
    global: &Global,
    file: &Path,
    selection: &RepoSelection,
    known_as: Option<String>,
) -> Result<()> {
    let mut entries = Map::new();
    let access = pool.config.access.rules().map_err(Error::Config)?;
    if let Some(name) =
        known_as.as_ref().filter(|name| !access.tokens.iter().any(|token| token.name == **name))
    {
        return Err(Error::Message(format!("there is no token called '{name}' in access.tokens")));
    }
    let reader = Client { known_as, ..Client::default() };
    let repositories = pool.selected(&selection.repos)?;
    let ids: Vec<i64> = repositories.iter().map(|r| r.id).collect();
    let bases: HashMap<i64, String> =
        pool.catalog.bases(&ids)?.into_iter().map(|base| (base.id, base.name)).collect();
    for r in repositories {
        if !pool.archive_path(&r).exists()
            || access.check(&asked(&r, &pool.catalog.exposure(r.id)?), &reader).is_err()
        {
            continue;
        }
        let repo = pool.open_repo(&r)?;
        let head = match &repo.refs().head {
            Head::Symbolic(name) => format!("ref: {}", String::from_utf8_lossy(name)),
            Head::Detached(oid) => oid.to_string(),
        };
        let modified = r.last_change.or(r.last_success).unwrap_or(r.added_at);
        let base = bases.get(&r.id).map(|base| format!("/{base}.git"));
        let entry = json!({ "owner": null, "description": pool.catalog.description(r.id)?, "head": head,
            "reference": base,
                            "forkgroup": null, "modified": modified, "fingerprint": fingerprint(&repo) });
        entries.insert(format!("/{}.git", r.name), entry);
    }
    let count = entries.len();
    let mut text = Value::Object(entries).to_string().into_bytes();
    if file.extension().is_some_and(|e| e == "gz") {
        text = sirocco::compress(Format::Gzip, Level::DEFAULT, &text);
    }
    let fail = FileError::on("write", file);
    // Readers see either the old file or the new one.
    let folder = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut new = tempfile::NamedTempFile::new_in(folder).map_err(fail)?;
    new.write_all(&text).and_then(|()| new.as_file().sync_all()).map_err(fail)?;
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    new.as_file().set_permissions(readable).map_err(fail)?;
    new.persist(file).map_err(|e| fail(e.error))?;
    if !global.quiet {
        writeln!(output::stdout(), "{count} repositories in {}", file.display())?;
    }
    Ok(())
}

/// Returns the SHA-1 of the output of `git show-ref`, as grok-manifest computes it.
fn fingerprint(repo: &Repo) -> String {
    let mut sum = plain_sha(HashKind::Sha1);
    for r in repo.refs().list() {
        sum.update(format!("{} ", r.oid).as_bytes());
        sum.update(&r.name);
        sum.update(b"\n");
    }
    sum.finish().to_string()
}
