//! Which connections have said nothing for long, without a timer for each: a line costs a connection the note
//! of a number.

use std::cell::Cell;

/// The number of sweeps in the time for which a connection may be idle.
pub(crate) const SWEEPS: u32 = 8;

/// Looks at all connections now and then.
#[derive(Debug, Default)]
pub struct IdleSweep {
    /// The number of the current sweep.
    now: Cell<u32>,
}

/// The sweep in which a connection said something last.
#[derive(Debug, Default)]
pub struct LastHeard(Cell<u32>);

impl IdleSweep {
    /// Notes that a connection says something, or begins.
    pub fn hear(&self, last: &LastHeard) {
        last.0.set(self.now.get());
    }

    /// Begins the next sweep.
    pub fn begin(&self) {
        self.now.set(self.now.get().wrapping_add(1));
    }

    /// Returns whether a connection has said nothing for eight sweeps.
    pub fn is_idle(&self, last: &LastHeard) -> bool {
        self.now.get().wrapping_sub(last.0.get()) > SWEEPS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_idle_after_eight_sweeps() {
        let (sweep, last, other) = (IdleSweep::default(), LastHeard::default(), LastHeard::default());
        sweep.hear(&last);
        for n in 0..=SWEEPS {
            assert!(!sweep.is_idle(&last), "{n}");
            sweep.begin();
        }
        sweep.hear(&other);
        assert!(sweep.is_idle(&last) && !sweep.is_idle(&other));
    }
}
