//! `check`: what is wrong here, or soon will be, before a visit or a client meets it.

mod hosts;
mod machine;
mod store;

use std::io::Write;
use std::process::ExitCode;

use serde::Serialize;

use crate::cli::Global;
use crate::config;
use crate::config_files::{is_for_everybody, secret_files, unusable};
use crate::error::Result;
use crate::output;
use crate::pool::Pool;

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

/// What was found.
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
}

impl Report<'_> {
    pub(super) fn add(&mut self, level: Level, check: &'static str, message: impl Into<String>) -> Result<()> {
        let message = message.into();
        if !self.global.json && (level != Level::Ok || !self.global.quiet) {
            writeln!(output::stdout(), "{:<9}{check:<10}{message}", level.name())?;
        }
        self.findings.push(Finding { level, check, message });
        Ok(())
    }

    /// Adds what may be many of a kind: the first are named, the others counted.
    pub(super) fn add_all(&mut self, level: Level, check: &'static str, messages: &Many) -> Result<()> {
        for message in &messages.named {
            self.add(level, check, message)?;
        }
        match messages.count - messages.named.len() {
            0 => Ok(()),
            more => self.add(level, check, format!("and {more} more of these; --max-count shows more")),
        }
    }

    /// Nothing of a kind, as yet.
    pub(super) fn many(&self) -> Many {
        Many { max_count: self.max_count, ..Many::default() }
    }

    fn count(&self, level: Level) -> usize {
        self.findings.iter().filter(|f| f.level == level).count()
    }
}

/// What may be many of a kind.
#[derive(Default)]
pub(super) struct Many {
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

pub(crate) fn check(pool: &Pool, global: &Global, offline: bool, max_count: usize) -> Result<ExitCode> {
    let mut report = Report { global, max_count, findings: Vec::new() };
    configuration(pool, &mut report)?;
    machine::owner(pool, &mut report)?;
    machine::space(pool, &mut report)?;
    machine::clock(pool, &mut report)?;
    machine::limits(pool, &mut report)?;
    store::catalog(pool, &mut report)?;
    store::archives(pool, &mut report)?;
    if !offline {
        hosts::hosts(pool, &mut report)?;
        hosts::forges(pool, &mut report)?;
    }
    let (errors, warnings) = (report.count(Level::Error), report.count(Level::Warning));
    if global.json {
        output::json(&report.findings)?;
    } else if !global.quiet {
        let some = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        writeln!(output::stdout(), "{}, {}", some(errors, "error"), some(warnings, "warning"))?;
    }
    Ok(if errors == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// What the configuration names, and who may read its secrets.
fn configuration(pool: &Pool, report: &mut Report<'_>) -> Result<()> {
    const CHECK: &str = "config";
    let unusable = unusable(&pool.config, &pool.store());
    for found in &unusable {
        report.add(Level::Error, CHECK, format!("{}: {}", found.key, found.why))?;
    }
    if unusable.is_empty() {
        report.add(Level::Ok, CHECK, format!("{}: what it names is there", pool.path.join(config::FILE_NAME).display()))?;
    }
    let own = pool.readable_secrets();
    let named = secret_files(&pool.config).into_iter().filter(|path| is_for_everybody(path));
    for path in own.into_iter().chain(named) {
        let path = path.display();
        report.add(Level::Warning, CHECK, format!("'{path}' may hold secrets, and everybody may read it: chmod o= '{path}'"))?;
    }
    Ok(())
}
