//! Faults in mapped files: pages that the disk can no longer read, or that were cut off. A read of such a
//! page gives zeroes and marks the map. Without this, SIGBUS would end the whole process. Readers check the
//! mark before they use what they have read.
//!
//! The handler is installed with the first map, and passes on signals that concern no registered map. It
//! touches nothing but atomics, and calls `sysconf`, `mmap` and `sigaction`.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, Once, PoisonError};

/// Slots for maps are allocated in chunks of this many.
const CHUNK_SLOTS: usize = 1024;
/// The maximum number of chunks. Further maps are not registered: a fault in one of them ends the process, as
/// it does without a handler.
const CHUNKS_MAX: usize = 256;

/// A slot for a registered map.
struct MapSlot {
    /// Its first address, and the one behind its last; 0 for a free slot.
    start: AtomicUsize,
    end: AtomicUsize,
    is_marked: AtomicBool,
}

type Chunk = [MapSlot; CHUNK_SLOTS];

/// Chunks are never freed, because the handler may read them at any time.
static CHUNKS: [AtomicPtr<Chunk>; CHUNKS_MAX] = [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS_MAX];
/// The slots that were used and are free again, and how many were used at all.
static FREE: Mutex<(Vec<usize>, usize)> = Mutex::new((Vec::new(), 0));
static INSTALLED: Once = Once::new();

/// The handler of SIGBUS that was installed before ours.
struct Before(UnsafeCell<MaybeUninit<libc::sigaction>>);
// SAFETY: written once, before the handler that reads it is installed.
unsafe impl Sync for Before {}
static BEFORE: Before = Before(UnsafeCell::new(MaybeUninit::zeroed()));

/// Keeps a map registered as long as it lives. It must not outlive the map.
#[derive(Debug)]
pub(crate) struct Noted(Option<usize>);

fn slot(number: usize) -> Option<&'static MapSlot> {
    let chunk = CHUNKS.get(number / CHUNK_SLOTS)?.load(Ordering::Acquire);
    // SAFETY: chunks are leaked boxes, and only read.
    unsafe { chunk.as_ref() }.map(|chunk| &chunk[number % CHUNK_SLOTS])
}

impl Noted {
    /// Registers the map of `len` bytes at `start`.
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

    /// Returns whether some of the map could not be read.
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
        // Run on the thread's signal stack, if it has one, as Rust's own handler of stack overflows requires.
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
                // The signal comes again at once, and ends the process.
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

/// Marks the map that contains `address`, if there is one.
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
