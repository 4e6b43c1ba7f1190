//! The findings of checks, which come one after the other.

use serde::Serialize;
use weir_ground::FailureClass;

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

/// A remedy for what a check found, which the program that shows it words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckRemedy {
    /// The catalog comes from a backup, or the archives of the store are registered in a new pool.
    NewCatalog,
    /// The content of archives is checked by itself.
    CheckContent,
    /// The repository of this name is cloned again.
    CloneAgain(String),
    /// The repository of this name is cloned again, after its place in the store was made free.
    MoveAway(String),
    /// The archive of the repository of this name is repaired.
    Repair(String),
    /// The archive is registered.
    Register,
    /// The file gets another name, and is registered.
    RenameAndRegister,
    /// The rejected events of the table or worker of this name are looked at.
    SeeRejected(String),
    /// The rejected events of the table or worker of this name are dropped.
    DropRejected(String),
    /// More findings of a kind are listed.
    ListMore,
    /// The remedy for failed visits of a class.
    Class(FailureClass),
}

/// One finding of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckFinding {
    /// Its severity.
    pub level: CheckLevel,
    /// The name of the check.
    pub check: &'static str,
    /// The fault.
    pub message: String,
    /// The remedy, if `message` does not name it.
    pub remedy: Option<CheckRemedy>,
}

/// The text of a finding, with its remedy.
pub(crate) struct FindingText(String, Option<CheckRemedy>);

impl FindingText {
    /// Returns a text with a remedy.
    pub(crate) fn with(message: impl Into<String>, remedy: CheckRemedy) -> FindingText {
        FindingText(message.into(), Some(remedy))
    }
}

impl<T: Into<String>> From<T> for FindingText {
    fn from(message: T) -> FindingText {
        FindingText(message.into(), None)
    }
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
        self.add_text(level, check, message.into().into())
    }

    /// Adds a finding that may have a remedy.
    pub(crate) fn add_text(
        &mut self,
        level: CheckLevel,
        check: &'static str,
        text: FindingText,
    ) -> Result<()> {
        self.count(level, 1);
        self.tell(level, check, text)
    }

    fn count(&mut self, level: CheckLevel, n: usize) {
        match level {
            CheckLevel::Ok => {}
            CheckLevel::Warning => self.warnings += n,
            CheckLevel::Error => self.errors += n,
        }
    }

    fn tell(&mut self, level: CheckLevel, check: &'static str, text: FindingText) -> Result<()> {
        let FindingText(message, remedy) = text;
        Ok((self.tell)(CheckFinding { level, check, message, remedy })?)
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
        for text in many.named {
            self.tell(level, check, text)?;
        }
        match more {
            0 => Ok(()),
            more => {
                let text = format!("{more} more {}", many.what);
                self.tell(level, check, FindingText::with(text, CheckRemedy::ListMore))
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
    named: Vec<FindingText>,
    count: usize,
}

impl ManyFindings {
    pub(crate) fn add<T: Into<FindingText>>(&mut self, text: impl FnOnce() -> T) {
        if self.count < self.max_count {
            self.named.push(text().into());
        }
        self.count += 1;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }
}
