//! Maps of files that a disk cannot read any more, or that were cut short: whoever reads such a page gets
//! zeroes and the map is marked, instead of the whole process being ended by SIGBUS. Readers look at the mark
//! before they believe what they read.
//!
//! The handler is installed with the first map, and passes on what concerns no map of ours. It touches
//! nothing but atomics, and calls `mmap` and `sigaction`.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, Once, PoisonError};

/// Slots for maps are allocated in chunks of this many.
const CHUNK_SLOTS: usize = 1024;
/// Pieces at the most. Maps beyond are not noted: what cannot be read of them ends the process, as it does
/// without a handler.
const CHUNKS_MAX: usize = 256;

/// A map that is noted.
struct MapSlot {
    /// Its first address, and the one behind its last; 0 for a slot that is free.
    start: AtomicUsize,
    end: AtomicUsize,
    is_marked: AtomicBool,
}

type Chunk = [MapSlot; CHUNK_SLOTS];

/// Once made they stay, for the handler may look at them at any time.
static CHUNKS: [AtomicPtr<Chunk>; CHUNKS_MAX] = [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS_MAX];
/// Slots that were used and are free, and how many were used at all.
static FREE: Mutex<(Vec<usize>, usize)> = Mutex::new((Vec::new(), 0));
static INSTALLED: Once = Once::new();

/// The handler of SIGBUS that was installed before ours.
struct Before(UnsafeCell<MaybeUninit<libc::sigaction>>);
// SAFETY: written once, before the handler that reads it is installed.
unsafe impl Sync for Before {}
static BEFORE: Before = Before(UnsafeCell::new(MaybeUninit::zeroed()));

/// A map that is noted as long as this lives, which must be no longer than the map.
#[derive(Debug)]
pub(crate) struct Noted(Option<usize>);

fn slot(number: usize) -> Option<&'static MapSlot> {
    let chunk = CHUNKS.get(number / CHUNK_SLOTS)?.load(Ordering::Acquire);
    // SAFETY: chunks are leaked boxes, and only read.
    unsafe { chunk.as_ref() }.map(|chunk| &chunk[number % CHUNK_SLOTS])
}

impl Noted {
    /// Notes the map of `len` bytes at `start`.
    pub(crate) fn new(start: *const u8, len: usize) -> Noted {
        INSTALLED.call_once(install);
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        let (freed, used) = &mut *free;
        let number = freed.pop().unwrap_or_else(|| {
            *used += 1;
            *used - 1
        });
        if number / CHUNK_SLOTS >= CHUNKS_MAX {
            *used -= 1;
            return Noted(None);
        }
        let chunk = &CHUNKS[number / CHUNK_SLOTS];
        if chunk.load(Ordering::Acquire).is_null() {
            let new = || MapSlot {
                start: AtomicUsize::new(0),
                end: AtomicUsize::new(0),
                is_marked: AtomicBool::new(false),
            };
            let slots: Vec<MapSlot> = (0..CHUNK_SLOTS).map(|_| new()).collect();
            let slots: Box<Chunk> =
                slots.try_into().unwrap_or_else(|_| unreachable!("as many as a chunk has"));
            chunk.store(Box::into_raw(slots), Ordering::Release);
        }
        if let Some(slot) = slot(number) {
            slot.is_marked.store(false, Ordering::Relaxed);
            slot.end.store(start as usize + len, Ordering::Relaxed);
            slot.start.store(start as usize, Ordering::Release);
        }
        Noted(Some(number))
    }

    /// Whether some of it could not be read.
    pub(crate) fn is_marked(&self) -> bool {
        self.0.and_then(slot).is_some_and(|slot| slot.is_marked.load(Ordering::Relaxed))
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        if let Some(number) = self.0 {
            if let Some(slot) = slot(number) {
                slot.start.store(0, Ordering::Release);
                slot.end.store(0, Ordering::Release);
            }
            FREE.lock().unwrap_or_else(PoisonError::into_inner).0.push(number);
        }
    }
}

fn install() {
    // SAFETY: the structures are zeroed as C programs do, and live as long as they are used; the handler is
    // async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = handle;
        action.sa_sigaction = handler as usize;
        // On the stack that threads have for that, where they have one, as Rust's own handler of overflows
        // wants it.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGBUS, ptr::null(), BEFORE.0.get().cast());
        libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut());
    }
}

extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the system gives the address for SIGBUS; `mmap` replaces one page of a map that is ours and
    // only read.
    unsafe {
        let address = (*info).si_addr() as usize;
        let errno = *libc::__errno_location();
        let is_ours = mark(address).is_some_and(|()| {
            let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
            let at = (address & !(page - 1)) as *mut libc::c_void;
            let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(at, page, libc::PROT_READ, flags, -1, 0) == at
        });
        *libc::__errno_location() = errno;
        if is_ours {
            return;
        }
        let before: *const libc::sigaction = BEFORE.0.get().cast();
        match (*before).sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                // It comes again at once, and ends the process.
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &raw const action, ptr::null_mut());
            }
            other if (*before).sa_flags & libc::SA_SIGINFO != 0 => {
                let other: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(other);
                other(signal, info, context);
            }
            other => {
                let other: extern "C" fn(libc::c_int) = std::mem::transmute(other);
                other(signal);
            }
        }
    }
}

/// Marks the map that `address` is in, if it is in one.
fn mark(address: usize) -> Option<()> {
    let chunks =
        CHUNKS.iter().map(|chunk| chunk.load(Ordering::Acquire)).take_while(|chunk| !chunk.is_null());
    // SAFETY: chunks are leaked boxes, and only read.
    let mut slots = chunks.flat_map(|chunk| unsafe { &*chunk });
    let slot = slots.find(|slot| {
        let start = slot.start.load(Ordering::Acquire);
        start != 0 && (start..slot.end.load(Ordering::Acquire)).contains(&address)
    })?;
    slot.is_marked.store(true, Ordering::Relaxed);
    Some(())
}
