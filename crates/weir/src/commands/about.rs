//! `config`, `completions`, `man`: commands about weir itself.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use weir_arguments::Global;
use weir_pool::{CATALOG_NAME, CONFIG_NAME, CatalogLocator, Pool, STORE_NAME, UrlMeaning};
use weir_settings::{Unusable, unusable};
use weir_terminal::{output, warn_line};

use crate::environment::environment;
use crate::error::{Error, Result};
use crate::pool::{open_pool, path_of};

pub(crate) fn config_check(global: &Global, urls: &[String]) -> Result<ExitCode> {
    let place = path_of(global)?;
    let path = place.path.join(CONFIG_NAME);
    if !path.exists() {
        return Err(match place.path.join(CATALOG_NAME).exists() {
            true => weir_pool::Error::NoConfig(place.path).into(),
            false => Error::NoPool(place),
        });
    }
    let config = weir_settings::load(&path, environment())?;
    let unusable = unusable(&config, &place.path.join(STORE_NAME));
    let ok = unusable.is_empty();
    if !global.json {
        for Unusable { key, why } in &unusable {
            warn_line!("{}: {key}: {why}", path.display());
        }
        if ok && !global.quiet {
            writeln!(output::stdout(), "{}: OK", path.display())?;
        }
    }
    let mut meanings = Vec::new();
    if ok && !urls.is_empty() {
        let pool = open_pool(global)?;
        let locator = CatalogLocator::new(&pool)?;
        for url in urls {
            meanings.push(UrlMeaning::of(url, &locator)?);
        }
    }
    if global.json {
        let unusable: Vec<_> =
            unusable.iter().map(|u| serde_json::json!({ "key": u.key, "why": u.why.to_string() })).collect();
        output::json(&serde_json::json!({ "file": path, "ok": ok, "unusable": unusable, "urls": meanings }))?;
    } else {
        for meaning in &meanings {
            writeln!(output::stdout(), "{meaning}")?;
        }
    }
    Ok(match ok {
        false => ExitCode::from(2),
        true if meanings.iter().all(|meaning| meaning.found) => ExitCode::SUCCESS,
        true => ExitCode::from(1),
    })
}

pub(crate) fn config_show(pool: &Pool, global: &Global) -> Result<()> {
    if global.json {
        return Ok(output::json(&pool.config)?);
    }
    let text = toml::to_string(&pool.config).map_err(Error::of)?;
    write!(std::io::stdout(), "{text}")?;
    Ok(())
}

pub(crate) fn completions(shell: clap_complete::Shell) -> Result<()> {
    Ok(std::io::stdout().write_all(&weir_arguments::completions(shell))?)
}

pub(crate) fn man(folder: &Path) -> Result<()> {
    Ok(weir_arguments::write_manual(folder)?)
}
