//! Watches that an upstream keeps sending: how long it may take to begin, and how slow it may be then.
//!
//! Counting the objects of a large pack takes minutes, in which a server is silent or sends keepalives
//! (`uploadpack.keepAlive` in git-config(1)) and progress. So what has not begun has limits of its own, as in
//! Varnish (`first_byte_timeout`), and the least throughput is one of packs and files that are under way.
//! Only time in which the upstream is waited for counts, never the time of our own work.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_ground::MinRate;

use crate::error::{Error, TimeLimit};
use crate::options::TransportOptions;

/// The part of the conversation that the upstream is to send next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    /// A greeting or a file, for which it has nothing to compute.
    Greeting,
    /// An answer that may take work.
    Answer,
    /// A pack, which has been waited for that long.
    Pack(Duration),
    /// More of what has begun.
    More,
}

#[derive(Debug)]
struct PaceState {
    awaited: Awaited,
    rate: MinRate,
}

/// The pace of an upstream. Clones watch the same conversation.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    limits: PaceLimits,
    state: Arc<Mutex<PaceState>>,
}

#[derive(Clone, Copy, Debug)]
struct PaceLimits {
    idle: Duration,
    first_byte: Duration,
    pack_start: Duration,
    bytes_per_second_min: u64,
}

impl Pace {
    /// Creates the pace of an upstream that is about to greet, or to send a file.
    pub(crate) fn new(options: &TransportOptions) -> Pace {
        let limits = PaceLimits {
            idle: options.idle_timeout,
            first_byte: options.first_byte_timeout,
            pack_start: options.pack_start_timeout,
            bytes_per_second_min: options.bytes_per_second_min,
        };
        let rate = MinRate::new(limits.bytes_per_second_min);
        Pace { limits, state: Arc::new(Mutex::new(PaceState { awaited: Awaited::Greeting, rate })) }
    }

    /// Creates the pace of an upstream that was asked for something that may take work.
    pub(crate) fn of_answer(options: &TransportOptions) -> Pace {
        let pace = Pace::new(options);
        pace.state().awaited = Awaited::Answer;
        pace
    }

    fn state(&self) -> MutexGuard<'_, PaceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a request was written. A request that goes out before the greeting is not an answer's.
    pub(crate) fn asked(&self) {
        let mut state = self.state();
        if state.awaited == Awaited::More {
            state.awaited = Awaited::Answer;
        }
    }

    /// Records that a pack is about to be requested. All rounds of the negotiation count as waiting for it.
    pub(crate) fn asks_for_pack(&self) {
        self.state().awaited = Awaited::Pack(Duration::ZERO);
    }

    /// Records that the first bytes of the pack are here.
    pub(crate) fn pack_begins(&self) {
        let mut state = self.state();
        if matches!(state.awaited, Awaited::Pack(_)) {
            *state =
                PaceState { awaited: Awaited::More, rate: MinRate::new(self.limits.bytes_per_second_min) };
        }
    }

    /// Records that bytes that came were no part of the pack: they do not count for its throughput.
    pub(crate) fn came_beside(&self, bytes: u64) {
        let mut state = self.state();
        if state.awaited == Awaited::More {
            state.rate.take_back(bytes);
        }
    }

    /// Returns how long the next read may wait for a byte.
    pub(crate) fn silence_max(&self) -> Duration {
        match self.state().awaited {
            Awaited::Greeting | Awaited::More => self.limits.idle,
            Awaited::Answer => self.limits.first_byte,
            Awaited::Pack(waited) => {
                // A timeout of zero would mean none to a socket.
                let left = self.limits.pack_start.saturating_sub(waited).max(Duration::from_millis(1));
                left.min(self.limits.first_byte)
            }
        }
    }

    /// Records time that was spent waiting for a pack without a byte of it.
    pub(crate) fn waited(&self, time: Duration) {
        if let Awaited::Pack(waited) = &mut self.state().awaited {
            *waited += time;
        }
    }

    /// Returns the error for an upstream that was silent for [`Pace::silence_max`].
    pub(crate) fn silent(&self) -> Error {
        let PaceLimits { idle, first_byte, pack_start, .. } = self.limits;
        let exceeded = |limit, max: Duration| Error::Slow { limit, max: max.as_secs() };
        match self.state().awaited {
            Awaited::Greeting | Awaited::More => exceeded(TimeLimit::Idle, idle),
            Awaited::Pack(waited) if waited + first_byte > pack_start => {
                exceeded(TimeLimit::PackStart, pack_start)
            }
            Awaited::Answer | Awaited::Pack(_) => exceeded(TimeLimit::FirstByte, first_byte),
        }
    }

    /// Returns how long a write may wait.
    pub(crate) fn write_max(&self) -> Duration {
        self.limits.idle
    }

    /// Returns the error for an upstream that took nothing for [`Pace::write_max`].
    pub(crate) fn takes_nothing(&self) -> Error {
        Error::Slow { limit: TimeLimit::Idle, max: self.limits.idle.as_secs() }
    }

    /// Records bytes that came after a wait of `waited`.
    ///
    /// # Errors
    /// If the upstream sends too little, or has not begun its pack in time.
    pub(crate) fn came(&self, bytes: usize, waited: Duration) -> io::Result<()> {
        let mut state = self.state();
        match &mut state.awaited {
            Awaited::Greeting | Awaited::Answer => {
                *state = PaceState {
                    awaited: Awaited::More,
                    rate: MinRate::new(self.limits.bytes_per_second_min),
                };
                state.rate.moved(bytes as u64);
            }
            Awaited::Pack(so_far) => {
                *so_far += waited;
                if *so_far >= self.limits.pack_start {
                    let max = self.limits.pack_start.as_secs();
                    return Err(Error::Slow { limit: TimeLimit::PackStart, max }.into());
                }
            }
            Awaited::More => {
                state.rate.moved(bytes as u64);
                if state.rate.is_too_slow_after(waited) {
                    let max = self.limits.bytes_per_second_min;
                    return Err(Error::Slow { limit: TimeLimit::Rate, max }.into());
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn pace() -> Pace {
        Pace::new(&TransportOptions { bytes_per_second_min: 1024, ..TransportOptions::default() })
    }

    /// Lets the upstream send `bytes` bytes `times` times, after `seconds` each. Returns the error.
    fn sends(pace: &Pace, bytes: usize, seconds: u32, times: u32) -> Option<String> {
        (0..times).find_map(|_| {
            let is_silent = SECOND * seconds >= pace.silence_max();
            if is_silent {
                return Some(pace.silent().to_string());
            }
            pace.came(bytes, SECOND * seconds).err().map(|e| e.to_string())
        })
    }

    #[test]
    fn pack_may_take_its_time_in_silence_or_with_keepalives() {
        let pace = pace();
        assert_eq!(sends(&pace, 500, 100, 1), None, "the greeting");
        pace.asks_for_pack();
        assert_eq!(sends(&pace, 4, 590, 1), None, "silence");
        assert_eq!(sends(&pace, 5, 5, 500), None, "keepalives");
        pace.pack_begins();
        assert_eq!(sends(&pace, 4096, 1, 100), None);
    }

    #[test]
    fn pack_that_never_begins_is_given_up() {
        let of_pack = || {
            let pace = pace();
            pace.asks_for_pack();
            pace
        };
        let said = sends(&of_pack(), 5, 5, 1000).unwrap();
        assert_eq!(said, "the upstream did not begin to send the pack within 3600 s");
        assert_eq!(sends(&of_pack(), 5, 5, 719), None);
        let said = sends(&of_pack(), 5, 600, 1).unwrap();
        assert_eq!(said, "the upstream did not answer for 600 s");
        // The silence may also reach the end of the whole time.
        let pace = of_pack();
        assert_eq!(sends(&pace, 5, 500, 7), None);
        let said = sends(&pace, 5, 100, 1).unwrap();
        assert_eq!(said, "the upstream did not begin to send the pack within 3600 s");
    }

    #[test]
    fn pack_that_has_begun_must_go_on() {
        let pace = pace();
        pace.asks_for_pack();
        pace.pack_begins();
        let said = sends(&pace, 5, 5, 100).unwrap();
        assert_eq!(said, "the upstream sends less than 1024 bytes a second", "keepalives do not count");
        let progress = (0..100).find_map(|_| {
            let error = sends(&pace, 60_000, 10, 1);
            pace.came_beside(60_000);
            error
        });
        assert_eq!(progress.unwrap(), said, "progress does not count");
        assert_eq!(sends(&pace, 1, 120, 1).unwrap(), "the upstream sent nothing for 120 s");
        // Only a pack that was asked for begins.
        pace.pack_begins();
        assert_eq!(pace.silence_max(), 120 * SECOND);
    }

    #[test]
    fn answer_may_take_longer_to_begin_than_a_greeting() {
        let pace = pace();
        pace.asked();
        assert_eq!(sends(&pace, 1, 120, 1).unwrap(), "the upstream sent nothing for 120 s");
        assert_eq!(sends(&pace, 100, 119, 1), None, "the least throughput is measured from the first byte");
        pace.asked();
        assert_eq!(sends(&pace, 100, 599, 1), None);
        assert_eq!(sends(&pace, 100, 31, 1).unwrap(), "the upstream sends less than 1024 bytes a second");
        pace.asked();
        assert_eq!(sends(&pace, 100, 600, 1).unwrap(), "the upstream did not answer for 600 s");
    }
}
