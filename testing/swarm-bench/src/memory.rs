//! Counts the allocated bytes, and their peak.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator with a counter.
#[derive(Debug)]
pub(crate) struct Counting;

#[expect(unsafe_code, reason = "every call is handed on to the system's allocator as it is")]
// SAFETY: as for `System`, which receives every call with unchanged arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: the caller keeps the contract of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: the caller keeps the contract of `System`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract of `System`.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // A growing allocation may be copied, so it exists twice for a moment. A shrinking one
        // stays in place.
        if size > layout.size() {
            grown(size);
            NOW.fetch_sub(layout.size(), Relaxed);
        } else {
            NOW.fetch_sub(layout.size() - size, Relaxed);
        }
        // SAFETY: the caller keeps the contract of `System`.
        unsafe { System.realloc(memory, layout, size) }
    }
}

fn grown(bytes: usize) {
    let now = NOW.fetch_add(bytes, Relaxed) + bytes;
    PEAK.fetch_max(now, Relaxed);
}

/// Forgets the peak and returns the bytes allocated now.
pub(crate) fn start() -> usize {
    let now = NOW.load(Relaxed);
    PEAK.store(now, Relaxed);
    now
}

/// The peak of allocated bytes since [`start`].
pub(crate) fn peak() -> usize {
    PEAK.load(Relaxed)
}
