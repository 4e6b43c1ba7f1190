//! What a walk may cost, and whether somebody still waits for it.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

/// Bounds of one selection.
#[derive(Clone, Copy, Debug)]
pub struct Budget<'a> {
    /// Commits and trees looked at.
    pub steps_max: u64,
    /// Set when nobody waits for the answer any more.
    pub cancelled: Option<&'a AtomicBool>,
}

impl Default for Budget<'_> {
    fn default() -> Self {
        Budget { steps_max: 200_000_000, cancelled: None }
    }
}

pub(crate) struct Steps<'a> {
    left: u64,
    cancelled: Option<&'a AtomicBool>,
    have_ended: bool,
}

impl<'a> Steps<'a> {
    pub(crate) fn new(budget: Budget<'a>) -> Steps<'a> {
        Steps { left: budget.steps_max, cancelled: budget.cancelled, have_ended: false }
    }

    /// For what this program asks of itself.
    pub(crate) fn unbounded() -> Steps<'static> {
        Steps::new(Budget { steps_max: u64::MAX, cancelled: None })
    }

    pub(crate) fn take(&mut self, n: u64) -> Result<()> {
        match self.left.checked_sub(n) {
            Some(left) => {
                // A look at what another thread writes now and then.
                let is_time = left / 1024 != self.left / 1024;
                self.left = left;
                if is_time && self.cancelled.is_some_and(|c| c.load(Ordering::Relaxed)) {
                    self.have_ended = true;
                    return Err(Error::Unsupported("nobody waits for the answer any more".to_owned()));
                }
                Ok(())
            }
            None => {
                self.have_ended = true;
                Err(Error::Unsupported("the request needs more work than this server allows".to_owned()))
            }
        }
    }

    /// Returns whether none were left, or nobody waits any more.
    pub(crate) fn have_ended(&self) -> bool {
        self.have_ended
    }
}
