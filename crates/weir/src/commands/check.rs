//! `check`: what is wrong here, or soon will be, before a visit or a client meets it.

mod hosts;
mod machine;
mod store;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use crate::cli::Global;
use crate::config;
use crate::config_files::{is_for_everybody, secret_files, unusable};
use crate::error::{Error, Result};
use crate::output;
use crate::pool::{CATALOG_NAME, Pool, path_of};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    Ok,
    /// It works, and may not for long, or not as fast.
    Warning,
    /// Something does not work.
    Error,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Error => "error",
        }
    }
}

/// One thing that a check found.
#[derive(Serialize)]
pub(super) struct Finding {
    level: Level,
    /// What was looked at.
    check: &'static str,
    message: String,
}

/// Collects findings, and shows each as it comes.
pub(super) struct Report<'a> {
    global: &'a Global,
    /// How many of a kind are named.
    max_count: usize,
    findings: Vec<Finding>,
    errors: usize,
    warnings: usize,
}

impl Report<'_> {
    pub(super) fn add(&mut self, level: Level, check: &'static str, message: impl Into<String>) -> Result<()> {
        self.count(level, 1);
        self.show(level, check, message.into())
    }

    fn count(&mut self, level: Level, n: usize) {
        match level {
            Level::Ok => {}
            Level::Warning => self.warnings += n,
            Level::Error => self.errors += n,
        }
    }

    fn show(&mut self, level: Level, check: &'static str, message: String) -> Result<()> {
        if !self.global.json && (level != Level::Ok || !self.global.quiet) {
            writeln!(output::stdout(), "{:<9}{check:<10}{message}", level.name())?;
        }
        self.findings.push(Finding { level, check, message });
        Ok(())
    }

    /// Adds what may be many of a kind: the first are named, the others counted.
    pub(super) fn add_all(&mut self, level: Level, check: &'static str, many: Many) -> Result<()> {
        self.count(level, many.count);
        let more = many.count - many.named.len();
        for message in many.named {
            self.show(level, check, message)?;
        }
        match more {
            0 => Ok(()),
            more => self.show(level, check, format!("{more} more {}; --max-count names more", many.what)),
        }
    }

    /// Nothing as yet of what is `what`, in the plural.
    pub(super) fn many(&self, what: &'static str) -> Many {
        Many { what, max_count: self.max_count, named: Vec::new(), count: 0 }
    }

    /// Ends it: says how much was found, and how that is told to whoever called.
    fn end(self) -> Result<ExitCode> {
        let (errors, warnings) = (self.errors, self.warnings);
        if self.global.json {
            output::json(&self.findings)?;
        } else if !self.global.quiet {
            let some = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
            writeln!(output::stdout(), "{}, {}", some(errors, "error"), some(warnings, "warning"))?;
        }
        Ok(if errors == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}

/// What may be many of a kind.
pub(super) struct Many {
    what: &'static str,
    max_count: usize,
    named: Vec<String>,
    count: usize,
}

impl Many {
    pub(super) fn add(&mut self, message: impl FnOnce() -> String) {
        if self.count < self.max_count {
            self.named.push(message());
        }
        self.count += 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }
}

pub(crate) fn check(global: &Global, offline: bool, max_count: usize) -> Result<ExitCode> {
    let mut report = Report { global, max_count, findings: Vec::new(), errors: 0, warnings: 0 };
    let path = path_of(global)?;
    machine::owner(&path, &mut report)?;
    let pool = match Pool::open(global) {
        Ok(pool) => pool,
        // There is nothing to look at.
        Err(e @ Error::NoPool(_)) => return Err(e),
        Err(e) => {
            report.add(Level::Error, "pool", unopened(&e, &path))?;
            return report.end();
        }
    };
    configuration(&pool, &mut report)?;
    machine::space(&pool, &mut report)?;
    machine::clock(&pool, &mut report)?;
    machine::limits(&pool, &mut report)?;
    store::catalog(&pool, &mut report)?;
    store::archives(&pool, &mut report)?;
    if !offline {
        hosts::hosts(&pool, &mut report)?;
        hosts::forges(&pool, &mut report)?;
    }
    report.end()
}

/// Why the pool at `path` cannot be opened, and what to do.
fn unopened(e: &Error, path: &Path) -> String {
    match e {
        Error::Catalog(weir_catalog::Error::Sqlite(_)) => {
            let catalog = path.join(CATALOG_NAME);
            format!(
                "{e} ('{0}'): if it is damaged, put back a copy; or move '{0}', '{0}-wal' and '{0}-shm' away, and 'weir init' and \
                 'weir adopt' make a new one of the store",
                catalog.display()
            )
        }
        e => e.to_string(),
    }
}

/// What the configuration names, and who may read its secrets.
fn configuration(pool: &Pool, report: &mut Report<'_>) -> Result<()> {
    const CHECK: &str = "config";
    let unusable = unusable(&pool.config, &pool.store());
    for found in &unusable {
        report.add(Level::Error, CHECK, format!("{}: {}", found.key, found.why))?;
    }
    let path = pool.path.join(config::FILE_NAME);
    if !path.exists() {
        report.add(Level::Warning, CHECK, format!("there is no '{}': the defaults hold", path.display()))?;
    } else if unusable.is_empty() {
        report.add(Level::Ok, CHECK, format!("{}: what it names is there", path.display()))?;
    }
    let own = pool.readable_secrets();
    let named = secret_files(&pool.config).into_iter().filter(|path| is_for_everybody(path));
    for path in own.into_iter().chain(named) {
        let path = path.display();
        report.add(Level::Warning, CHECK, format!("'{path}' may hold secrets, and everybody may read it: chmod o= '{path}'"))?;
    }
    Ok(())
}
