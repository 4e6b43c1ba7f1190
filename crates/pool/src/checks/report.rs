//! The findings of checks, which come one after the other.

use serde::Serialize;

use crate::error::Result;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckLevel {
    /// All is well.
    Ok,
    /// It works, but perhaps not for long, or not as fast.
    Warning,
    /// Something does not work.
    Error,
}

impl CheckLevel {
    /// Returns the word for it.
    pub fn name(self) -> &'static str {
        match self {
            CheckLevel::Ok => "ok",
            CheckLevel::Warning => "warning",
            CheckLevel::Error => "error",
        }
    }
}

/// One finding of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckFinding {
    /// Its severity.
    pub level: CheckLevel,
    /// The name of the check.
    pub check: &'static str,
    /// The fault, and the remedy.
    pub message: String,
}

/// A function that takes findings as they come.
pub type TellFinding<'t> = &'t mut dyn FnMut(CheckFinding) -> std::io::Result<()>;

/// Counts findings, and passes each to a function as it comes.
pub struct CheckReport<'t> {
    tell: TellFinding<'t>,
    /// The number of findings of a kind that are named.
    max_count: usize,
    /// The number of errors so far.
    pub errors: usize,
    /// The number of warnings so far.
    pub warnings: usize,
}

impl<'t> CheckReport<'t> {
    /// Returns an empty report, which names at most `max_count` findings of a kind.
    pub fn new(max_count: usize, tell: TellFinding<'t>) -> CheckReport<'t> {
        CheckReport { tell, max_count, errors: 0, warnings: 0 }
    }

    /// Adds a finding.
    ///
    /// # Errors
    /// If the function that takes findings fails.
    pub fn add(&mut self, level: CheckLevel, check: &'static str, message: impl Into<String>) -> Result<()> {
        self.count(level, 1);
        self.tell(level, check, message.into())
    }

    fn count(&mut self, level: CheckLevel, n: usize) {
        match level {
            CheckLevel::Ok => {}
            CheckLevel::Warning => self.warnings += n,
            CheckLevel::Error => self.errors += n,
        }
    }

    fn tell(&mut self, level: CheckLevel, check: &'static str, message: String) -> Result<()> {
        Ok((self.tell)(CheckFinding { level, check, message })?)
    }

    /// Adds findings of one kind: the first are named, the others counted.
    pub(crate) fn add_all(
        &mut self,
        level: CheckLevel,
        check: &'static str,
        many: ManyFindings,
    ) -> Result<()> {
        self.count(level, many.count);
        let more = many.count - many.named.len();
        for message in many.named {
            self.tell(level, check, message)?;
        }
        match more {
            0 => Ok(()),
            more => {
                self.tell(level, check, format!("{more} more {}; use --max-count to list more", many.what))
            }
        }
    }

    /// Returns an empty list of findings of one kind. `what` describes them, in the plural.
    pub(crate) fn many(&self, what: &'static str) -> ManyFindings {
        ManyFindings { what, max_count: self.max_count, named: Vec::new(), count: 0 }
    }
}

/// Findings of one kind, of which there may be many.
pub(crate) struct ManyFindings {
    what: &'static str,
    max_count: usize,
    named: Vec<String>,
    count: usize,
}

impl ManyFindings {
    pub(crate) fn add(&mut self, message: impl FnOnce() -> String) {
        if self.count < self.max_count {
            self.named.push(message());
        }
        self.count += 1;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }
}
