//! `config`, `completions`, `man`: about weir itself.

use std::io::Write;
use std::path::Path;

use clap::CommandFactory;

use crate::cli::{Cli, Global};
use crate::config;
use crate::error::{Error, Result};
use crate::output;
use crate::pool::{Pool, path_of};

pub(crate) fn config_check(global: &Global) -> Result<()> {
    let path = path_of(global)?.join(config::FILE_NAME);
    if !path.exists() {
        return Err(Error::NoPool(path_of(global)?));
    }
    config::load(&path)?;
    if global.json {
        output::json(&serde_json::json!({ "file": path, "ok": true }))?;
    } else if !global.quiet {
        writeln!(std::io::stdout(), "{}: well", path.display())?;
    }
    Ok(())
}

pub(crate) fn config_show(pool: &Pool, global: &Global) -> Result<()> {
    if global.json {
        return output::json(&pool.config);
    }
    let text = toml::to_string(&pool.config).map_err(|e| Error::Message(e.to_string()))?;
    write!(std::io::stdout(), "{text}")?;
    Ok(())
}

pub(crate) fn completions(shell: clap_complete::Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "weir", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(())
}

pub(crate) fn man(folder: &Path) -> Result<()> {
    let fail = |source| Error::File { what: "write to", path: folder.to_owned(), source };
    std::fs::create_dir_all(folder).map_err(fail)?;
    clap_mangen::generate_to(Cli::command(), folder).map_err(fail)
}
