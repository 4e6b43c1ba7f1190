//! Limits the cost of a walk, and stops it when the client no longer waits.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

/// The bounds of one selection.
#[derive(Clone, Copy, Debug)]
pub struct Budget<'a> {
    /// The most commits and trees that are read.
    pub steps_max: u64,
    /// Set when the client no longer waits for the answer.
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

    /// Returns unlimited steps, for work that no client asked for.
    pub(crate) fn unbounded() -> Steps<'static> {
        Steps::new(Budget { steps_max: u64::MAX, cancelled: None })
    }

    pub(crate) fn take(&mut self, n: u64) -> Result<()> {
        match self.left.checked_sub(n) {
            Some(left) => {
                // Another thread writes the flag, so it is read only now and then.
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

    /// Returns whether the steps were used up, or the client no longer waits.
    pub(crate) fn have_ended(&self) -> bool {
        self.have_ended
    }
}
