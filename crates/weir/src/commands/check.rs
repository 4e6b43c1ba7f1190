//! `check`: finds what is wrong here, or soon will be, before a visit or a client meets it.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::builder::styling::Style;
use serde::Serialize;
use weir_arguments::Global;
use weir_pool::{CATALOG_NAME, CheckFinding, CheckLevel, CheckReport, check_owner, check_pool};
use weir_terminal::{colors, output};

use crate::error::{Error, Result};
use crate::pool::{open_pool, path_of};
use crate::remedies;
use crate::remedies::Remediable;

/// A finding with its remedy, as JSON has it.
#[derive(Serialize)]
struct WordedFinding {
    level: CheckLevel,
    check: &'static str,
    message: String,
}

pub(crate) fn check(global: &Global, offline: bool, max_count: usize) -> Result<ExitCode> {
    let mut findings = Vec::new();
    let mut tell = |finding: CheckFinding| {
        let CheckFinding { level, check, mut message, remedy } = finding;
        if let Some(remedy) = &remedy {
            message = format!("{message}; {}", remedies::of_finding(remedy));
        }
        if !global.json && (level != CheckLevel::Ok || !global.quiet) {
            show(level, check, &message)?;
        }
        findings.push(WordedFinding { level, check, message });
        Ok(())
    };
    let mut report = CheckReport::new(max_count, &mut tell);
    let path = path_of(global)?.path;
    check_owner(&path, &mut report)?;
    match open_pool(global) {
        Ok(pool) => check_pool(&pool, offline, &mut report)?,
        // There is nothing to check.
        Err(e @ Error::NoPool(_)) => return Err(e),
        Err(e) => report.add(CheckLevel::Error, "pool", unopened(&e, &path))?,
    }
    let CheckReport { errors, warnings, .. } = report;
    if global.json {
        output::json(&findings)?;
    } else if !global.quiet {
        let some = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        writeln!(output::stdout(), "{}, {}", some(errors, "error"), some(warnings, "warning"))?;
    }
    Ok(if errors == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Prints a finding.
fn show(level: CheckLevel, check: &str, message: &str) -> std::io::Result<()> {
    let mut out = output::stdout();
    out.styled(style_of(level), level.name())?;
    writeln!(out, "{:1$}{check:<10}{message}", "", 9 - level.name().len())
}

fn style_of(level: CheckLevel) -> Style {
    match level {
        CheckLevel::Ok => colors::GOOD,
        CheckLevel::Warning => colors::DOUBTFUL,
        CheckLevel::Error => colors::BAD,
    }
}

/// Returns why the pool at `path` cannot be opened, and what to do.
fn unopened(e: &Error, path: &Path) -> String {
    match e {
        Error::Catalog(weir_catalog::Error::Sql(weir_sql::Error::Sqlite(_))) => {
            let catalog = path.join(CATALOG_NAME);
            format!(
                "{e} ('{0}'): if it is damaged, restore a backup; or move '{0}', '{0}-wal' and '{0}-shm' \
                away and rebuild it from the store with 'weir init' and 'weir adopt'",
                catalog.display()
            )
        }
        e => e.with_remedy(),
    }
}
