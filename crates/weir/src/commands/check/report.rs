//! The report of `weir check`. Each finding is shown as it comes.

use std::io::Write;
use std::process::ExitCode;

use clap::builder::styling::Style;
use serde::Serialize;

use crate::cli::Global;
use crate::colors;
use crate::error::Result;
use crate::output;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    Ok,
    /// It works, but perhaps not for long, or not as fast.
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

    fn style(self) -> Style {
        match self {
            Level::Ok => colors::GOOD,
            Level::Warning => colors::DOUBTFUL,
            Level::Error => colors::BAD,
        }
    }
}

/// One finding of a check.
#[derive(Serialize)]
pub(super) struct Finding {
    level: Level,
    /// The name of the check.
    check: &'static str,
    message: String,
}

/// Collects findings, and shows each as it comes.
pub(super) struct Report<'a> {
    global: &'a Global,
    /// The number of findings of a kind that are named.
    max_count: usize,
    findings: Vec<Finding>,
    errors: usize,
    warnings: usize,
}

impl<'a> Report<'a> {
    /// Returns an empty report, which names at most `max_count` findings of a kind.
    pub(super) fn new(global: &'a Global, max_count: usize) -> Report<'a> {
        Report { global, max_count, findings: Vec::new(), errors: 0, warnings: 0 }
    }

    pub(super) fn add(
        &mut self,
        level: Level,
        check: &'static str,
        message: impl Into<String>,
    ) -> Result<()> {
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
            let mut out = output::stdout();
            out.styled(level.style(), level.name())?;
            writeln!(out, "{:1$}{check:<10}{message}", "", 9 - level.name().len())?;
        }
        self.findings.push(Finding { level, check, message });
        Ok(())
    }

    /// Adds findings of one kind: the first are named, the others counted.
    pub(super) fn add_all(&mut self, level: Level, check: &'static str, many: Many) -> Result<()> {
        self.count(level, many.count);
        let more = many.count - many.named.len();
        for message in many.named {
            self.show(level, check, message)?;
        }
        match more {
            0 => Ok(()),
            more => {
                self.show(level, check, format!("{more} more {}; use --max-count to list more", many.what))
            }
        }
    }

    /// Returns an empty list of findings of one kind. `what` describes them, in the plural.
    pub(super) fn many(&self, what: &'static str) -> Many {
        Many { what, max_count: self.max_count, named: Vec::new(), count: 0 }
    }

    /// Ends the report: prints the totals, and returns the exit code.
    pub(super) fn end(self) -> Result<ExitCode> {
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

/// Findings of one kind, of which there may be many.
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
