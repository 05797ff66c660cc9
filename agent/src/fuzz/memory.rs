//! How much memory one thread holds at most while a function runs.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The most that `of` held beyond what the thread held before, bytes.
pub fn peak<T>(of: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    PEAK.set(before);
    let value = of();
    (value, usize::try_from(PEAK.get() - before).unwrap_or(0))
}

thread_local! {
    /// Allocated minus freed by this thread: negative if it frees what others allocated.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, counting by thread.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(change: isize) {
    // At the end of a thread its counters are gone.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + change);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
}

#[expect(unsafe_code, reason = "the interface of an allocator is unsafe")]
// SAFETY: every call goes to the system's allocator unchanged. Counting neither allocates nor panics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller's promise is the one that the system's allocator needs.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size.cast_signed() - layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[test]
fn the_peak_counts_what_was_freed_again() {
    let ((), peak) = peak(|| drop(std::hint::black_box(vec![0_u8; 1 << 20])));
    assert!((1 << 20..2 << 20).contains(&peak), "{peak}");
}
