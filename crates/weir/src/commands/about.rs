//! `config`, `completions`, `man`: commands about weir itself.

use std::fmt;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use serde::Serialize;
use weir_ground::FileError;
use weir_pool::{CATALOG_NAME, CONFIG_NAME, CatalogLocator, Pool, STORE_NAME};
use weir_serve::Client;
use weir_settings::{Unusable, unusable};
use weir_transport::{Scheme, Url};

use crate::cli::{Cli, Global};
use crate::environment::environment;
use crate::error::{Error, Result};
use crate::output;
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
            meanings.push(Meaning::of(url, &locator)?);
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

/// The repository that a client's URL names on this server, and who may read it.
#[derive(Serialize)]
struct Meaning {
    url: String,
    name: Option<String>,
    found: bool,
    public: bool,
    error: Option<String>,
}

impl Meaning {
    fn of(url: &str, locator: &CatalogLocator) -> Result<Meaning> {
        let (host, path) = match Url::parse(url)? {
            url if url.scheme == Scheme::Local => (None, url.path),
            url => (Some(url.host), url.path),
        };
        // Paths in ssh's short form have no leading slash.
        let path = if path.starts_with('/') { path } else { format!("/{path}") };
        let named = locator.name_of(host.as_deref(), &path);
        let (name, repository) = named.as_ref().map_or((String::new(), None), |name| locator.look_up(name));
        let public = named.is_ok() && locator.check(&name, repository.as_ref(), &Client::default()).is_ok();
        let error = named.as_ref().err().map(ToString::to_string);
        Ok(Meaning {
            url: url.to_owned(),
            name: named.is_ok().then_some(name),
            found: repository.is_some(),
            public,
            error,
        })
    }
}

impl fmt::Display for Meaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.url)?;
        match (&self.name, self.found) {
            (None, _) => f.write_str(self.error.as_deref().unwrap_or_default()),
            (Some(name), false) => write!(f, "{name}, which is not in the pool"),
            (Some(name), true) => {
                write!(f, "{name}, {}", if self.public { "for everybody" } else { "not for everybody" })
            }
        }
    }
}

pub(crate) fn config_show(pool: &Pool, global: &Global) -> Result<()> {
    if global.json {
        return output::json(&pool.config);
    }
    let text = toml::to_string(&pool.config).map_err(Error::of)?;
    write!(std::io::stdout(), "{text}")?;
    Ok(())
}

pub(crate) fn completions(shell: clap_complete::Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "weir", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(())
}

/// Sections that all manual pages share.
const MANUAL_SECTIONS: &str = include_str!("manual_sections.roff");

pub(crate) fn man(folder: &Path) -> Result<()> {
    let fail = FileError::on("write to", folder);
    std::fs::create_dir_all(folder).map_err(fail)?;
    let mut command = Cli::command().disable_help_subcommand(true);
    // clap adds the deferred arguments of all subcommands.
    command.build();
    clap_mangen::generate_to(command.clone(), folder).map_err(fail)?;
    let mut names = Vec::new();
    page_names(&command, "", &mut names);
    for name in names {
        let path = folder.join(format!("{name}.1"));
        let fail = FileError::on("write", &path);
        let page = std::fs::read_to_string(&path).map_err(fail)?;
        let after_help = if name == "weir" { ".SH EXAMPLES\n" } else { ".SH NOTES\n" };
        let page = page.replacen(".SH EXTRA\n", after_help, 1);
        let (options, version) = page.rsplit_once(".SH VERSION\n").unwrap_or((&page, ""));
        std::fs::write(&path, format!("{options}{MANUAL_SECTIONS}.SH VERSION\n{version}")).map_err(fail)?;
    }
    Ok(())
}

/// Adds the names of the manual pages of `command` and its subcommands, which clap_mangen uses as file names.
fn page_names(command: &clap::Command, above: &str, names: &mut Vec<String>) {
    let name = if above.is_empty() {
        command.get_name().to_owned()
    } else {
        format!("{above}-{}", command.get_name())
    };
    let below = command.get_subcommands().filter(|command| !command.is_hide_set());
    below.for_each(|command| page_names(command, &name, names));
    names.push(name);
}
