//! `manifest`: lists what is mirrored, for mirrors of this mirror (grokmirror's `manifest.js`).

use std::io::Write;
use std::path::Path;

use sirocco::Format;
use sirocco::deflate::Level;
use weir_arguments::{Global, RepoSelection};
use weir_catalog::Repository;
use weir_ground::FileError;
use weir_pool::{Pool, asked};
use weir_serve::Client;
use weir_terminal::output;

use crate::error::{Error, Result};

pub(crate) fn manifest(
    pool: &Pool,
    global: &Global,
    file: &Path,
    selection: &RepoSelection,
    known_as: Option<String>,
) -> Result<()> {
    let access = pool.config.access.rules().map_err(|e| Error::Config(e.to_string()))?;
    if let Some(name) =
        known_as.as_ref().filter(|name| !access.tokens.iter().any(|token| token.name == **name))
    {
        return Err(Error::Message(format!("there is no token called '{name}' in access.tokens")));
    }
    let reader = Client { known_as, ..Client::default() };
    let is_shown =
        |r: &Repository| Ok(access.check(&asked(r, &pool.catalog.exposure(r.id)?), &reader).is_ok());
    let entries = weir_pool::manifest(pool, &selection.repos, &is_shown)?;
    let count = entries.len();
    let mut text = serde_json::to_vec(&entries).map_err(std::io::Error::from)?;
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
