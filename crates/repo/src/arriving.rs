//! A pack that is sent on while it arrives.

use std::any::Any;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use weir_git::{Oid, OidSet};

/// A pack that is being received, for those who send it on meanwhile.
///
/// Its bytes are as the upstream sends them: nothing of it is verified before it has arrived.
pub struct ArrivingPack {
    wants: OidSet,
    state: Mutex<ArrivingState>,
}

#[derive(Default)]
struct ArrivingState {
    place: Option<ArrivedPlace>,
    /// The bytes that are there.
    len: u64,
    /// Whether all of it has arrived; `None` while more is to come.
    is_whole: Option<bool>,
    /// Those who wait for more.
    waiting: Vec<Waker>,
    /// Whether anybody has read it.
    is_read: bool,
    /// The share of a limit that the file takes: it is given back when nobody can read the file any more.
    held: Option<Arc<dyn Any + Send + Sync>>,
}

/// Where the bytes are.
#[derive(Clone)]
enum ArrivedPlace {
    File(Arc<File>),
    Memory(Arc<[u8]>),
}

impl ArrivingPack {
    /// Returns a pack of all objects that `wants` reach, of which nothing has arrived.
    pub fn new(wants: OidSet) -> ArrivingPack {
        ArrivingPack { wants, state: Mutex::default() }
    }

    /// Returns whether the pack has the objects that `wants` reach, and no others.
    pub fn answers(&self, wants: &[Oid]) -> bool {
        wants.len() == self.wants.len() && wants.iter().all(|oid| self.wants.contains(oid))
    }

    /// Returns whether `oid` was wanted of the upstream.
    pub fn brings(&self, oid: &Oid) -> bool {
        self.wants.contains(oid)
    }

    /// Reads from byte `at` into `buf`, and returns the number of bytes: 0 at the end of the pack. While
    /// there are none, the task of `context` is woken when there may be some.
    ///
    /// # Errors
    /// If the rest of the pack will not come, or the file of what has come cannot be read.
    pub fn poll_read(&self, at: u64, buf: &mut [u8], context: &Context<'_>) -> Poll<io::Result<usize>> {
        let (place, len) = {
            let mut state = self.lock();
            state.is_read = true;
            let (true, Some(place)) = (at < state.len, &state.place) else {
                return match state.is_whole {
                    Some(true) => Poll::Ready(Ok(0)),
                    Some(false) => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                    None => {
                        if !state.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                            state.waiting.push(context.waker().clone());
                        }
                        Poll::Pending
                    }
                };
            };
            (place.clone(), state.len)
        };
        let count = usize::try_from(len - at).unwrap_or(usize::MAX).min(buf.len());
        let read = match place {
            ArrivedPlace::File(file) => file.read_exact_at(&mut buf[..count], at),
            ArrivedPlace::Memory(bytes) => {
                let from = at as usize;
                buf[..count].copy_from_slice(&bytes[from..from + count]);
                Ok(())
            }
        };
        Poll::Ready(read.map(|()| count))
    }

    /// Notes that the first `len` bytes are in `file`.
    pub(crate) fn grew(&self, file: &Arc<File>, len: u64) {
        let mut state = self.lock();
        if !matches!(&state.place, Some(ArrivedPlace::File(known)) if Arc::ptr_eq(known, file)) {
            state.place = Some(ArrivedPlace::File(file.clone()));
        }
        state.len = len;
        wake(state);
    }

    /// Keeps `held`, the share of a limit that the file takes, until nobody can read the file any more.
    pub(crate) fn hold(&self, held: Arc<dyn Any + Send + Sync>) {
        self.lock().held = Some(held);
    }

    /// Notes that the pack is `bytes`.
    pub(crate) fn is(&self, bytes: &[u8]) {
        let mut state = self.lock();
        (state.place, state.len) = (Some(ArrivedPlace::Memory(bytes.into())), bytes.len() as u64);
        wake(state);
    }

    /// Returns whether anybody has read it: then work on it gives way to whoever checks it.
    pub fn is_read(&self) -> bool {
        self.lock().is_read
    }

    /// Notes that no more will come: all has arrived, or the rest is lost. The first call counts.
    pub fn end(&self, is_whole: bool) {
        let mut state = self.lock();
        state.is_whole.get_or_insert(is_whole);
        wake(state);
    }

    fn lock(&self) -> MutexGuard<'_, ArrivingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes those who wait.
fn wake(mut state: MutexGuard<'_, ArrivingState>) {
    let waiting = std::mem::take(&mut state.waiting);
    drop(state);
    waiting.into_iter().for_each(Waker::wake);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pack: &ArrivingPack, at: u64) -> Poll<io::Result<usize>> {
        pack.poll_read(at, &mut [0; 64], &Context::from_waker(Waker::noop()))
    }

    #[test]
    fn the_end_comes_behind_what_has_arrived() {
        let pack = ArrivingPack::new(OidSet::default());
        assert!(read(&pack, 0).is_pending());
        let file = Arc::new(tempfile::tempfile().unwrap());
        file.write_all_at(&[7; 100], 0).unwrap();
        pack.grew(&file, 70);
        assert!(matches!(read(&pack, 0), Poll::Ready(Ok(64))));
        assert!(matches!(read(&pack, 64), Poll::Ready(Ok(6))));
        assert!(read(&pack, 70).is_pending());
        pack.grew(&file, 100);
        pack.end(true);
        pack.end(false);
        assert!(matches!(read(&pack, 70), Poll::Ready(Ok(30))));
        assert!(matches!(read(&pack, 100), Poll::Ready(Ok(0))));
    }

    #[test]
    fn what_breaks_off_has_no_end() {
        let pack = ArrivingPack::new(OidSet::default());
        pack.is(&[1, 2]);
        pack.end(false);
        assert!(matches!(read(&pack, 1), Poll::Ready(Ok(1))));
        assert!(matches!(read(&pack, 2), Poll::Ready(Err(_))));
    }
}
