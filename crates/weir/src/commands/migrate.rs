//! `migrate`: moves the catalog from SQLite to PostgreSQL, or back.

use std::io::Write;

use weir_arguments::Global;
use weir_catalog::Catalog;
use weir_ground::FileError;
use weir_pool::{CATALOG_NAME, CONFIG_NAME, MIRROR_LOCK_NAME, Pool, machine_of};
use weir_sql::redacted;
use weir_terminal::output;

use crate::error::{Error, Result};

pub(crate) fn migrate(pool: &Pool, global: &Global, destination: &str) -> Result<()> {
    // No process records visits meanwhile.
    let lock = pool.open_lock(MIRROR_LOCK_NAME)?;
    if lock.try_lock().is_err() {
        return Err(Error::Message("'weir mirror' or 'weir serve' is running; stop it first".to_owned()));
    }
    let mut tables: Vec<(String, u64)> = Vec::new();
    let mut observe = |table: &str, rows: u64| match tables.last_mut() {
        Some((name, count)) if name == table => *count = rows,
        _ => tables.push((table.to_owned(), rows)),
    };
    let url = (destination != "sqlite").then_some(destination);
    match url {
        Some(url) if pool.config.catalog.url.as_deref() == Some(url) => {
            return Err(Error::Message(format!("the catalog is in {} already", redacted(url))));
        }
        Some(url) => {
            let new = Catalog::connect(url)?;
            new.claim_store(&weir_pool::read_or_make(&pool.store.path)?)?;
            pool.catalog.migrate(&new, &mut observe)?;
            new.events().adopt(&machine_of(&new))?;
        }
        None => to_sqlite(pool, &mut observe)?,
    }
    let file = pool.path.join(CONFIG_NAME);
    let is_set = weir_settings::set_catalog_url(&file, url)?;
    if global.json {
        let rows: serde_json::Map<_, _> =
            tables.into_iter().map(|(name, rows)| (name, rows.into())).collect();
        output::json(
            &serde_json::json!({ "destination": redacted(destination), "rows": rows, "configured": is_set }),
        )?;
    } else if !global.quiet {
        let mut out = output::stdout();
        for (name, rows) in tables {
            writeln!(out, "{rows:>12}  {name}")?;
        }
        match is_set {
            true => writeln!(
                out,
                "the catalog is now in {}; {} has its URL",
                redacted(destination),
                file.display()
            )?,
            false => writeln!(
                out,
                "copied to {}; now set catalog.url in {}",
                redacted(destination),
                file.display()
            )?,
        }
    }
    Ok(())
}

fn to_sqlite(pool: &Pool, observe: &mut dyn FnMut(&str, u64)) -> Result<()> {
    if !pool.catalog.is_remote() {
        return Err(Error::Message("the catalog is in SQLite already".to_owned()));
    }
    let path = pool.path.join(CATALOG_NAME);
    if path.exists() {
        return Err(Error::Message(format!(
            "'{}' already exists, an older catalog; move it away first",
            path.display()
        )));
    }
    // The file gets its name when it is complete.
    let new = pool.path.join("catalog.db.new");
    let _ = std::fs::remove_file(&new);
    let catalog = Catalog::open(&new)?;
    pool.catalog.migrate(&catalog, observe)?;
    catalog.events().adopt(&machine_of(&catalog))?;
    catalog.settle()?;
    drop(catalog);
    std::fs::rename(&new, &path).map_err(FileError::on("write", &path))?;
    Ok(weir_archive::sync_folder_of(&path)?)
}
