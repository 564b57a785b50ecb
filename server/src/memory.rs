//! How much memory a piece of work holds, so that a script can be held to a bound.
//!
//! The allocator of every program with this library counts, for each thread, the bytes that were
//! allocated less those that were freed. Counting touches nothing but a cell of the thread.
#![expect(unsafe_code, reason = "the trait of allocators is unsafe; all calls are passed on")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Bytes that the system's allocator takes for itself with each block: its header and padding.
const OVERHEAD: isize = 16;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    // Constant and without a destructor: to touch it never allocates.
    static HELD: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that ends may have no cell any more; nobody asks for its count then.
    let _ = HELD.try_with(|held| held.set(held.get().wrapping_add(bytes)));
}

// SAFETY: every call goes to the system's allocator as it came, and its answer comes back as it
// is. Counting in between neither allocates nor panics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps what this function asks, which is the same.
        let block = unsafe { System.alloc(layout) };
        if !block.is_null() {
            count(layout.size() as isize + OVERHEAD);
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps what this function asks, which is the same.
        let block = unsafe { System.alloc_zeroed(layout) };
        if !block.is_null() {
            count(layout.size() as isize + OVERHEAD);
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps what this function asks, which is the same; the block is the
        // system's, as all of this allocator are.
        unsafe { System.dealloc(block, layout) };
        count(-(layout.size() as isize + OVERHEAD));
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller keeps what this function asks, which is the same; the block is the
        // system's, as all of this allocator are.
        let moved = unsafe { System.realloc(block, layout, size) };
        if !moved.is_null() {
            count(size as isize - layout.size() as isize);
        }
        moved
    }
}

/// Begins to count anew on this thread.
pub(crate) fn begin() {
    HELD.set(0);
}

/// Bytes that this thread has allocated since it began to count, less those that it freed.
pub(crate) fn held() -> isize {
    HELD.get()
}

/// Does what is not to be counted on this thread: its blocks come from others, or go to others.
pub(crate) fn uncounted<T>(work: impl FnOnce() -> T) -> T {
    let held = HELD.get();
    let result = work();
    HELD.set(held);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_counted_and_what_is_freed_is_not() {
        begin();
        let mut bytes: Vec<u8> = Vec::with_capacity(1000);
        assert_eq!(held(), 1000 + OVERHEAD);
        bytes.reserve_exact(5000);
        assert_eq!(held(), 5000 + OVERHEAD);
        bytes.shrink_to(2000);
        assert_eq!(held(), 2000 + OVERHEAD);
        let zeros = vec![0_u64; 100];
        assert_eq!(held(), 2000 + 800 + 2 * OVERHEAD);
        drop((bytes, zeros));
        assert_eq!(held(), 0);
    }

    #[test]
    fn each_thread_counts_for_itself() {
        begin();
        let elsewhere = std::thread::spawn(|| {
            begin();
            (vec![1_u8; 1 << 20], held())
        });
        let (block, there) = elsewhere.join().expect("it does not panic");
        assert_eq!(there, (1 << 20) + OVERHEAD);
        // The thread itself took a little; its block did not come from here, but is freed here.
        assert!(held() < 1 << 16);
        drop(block);
        assert!(held() < -(1 << 19));
    }

    #[test]
    fn what_is_uncounted_changes_nothing() {
        begin();
        let kept = uncounted(|| vec![1_u8; 1000]);
        assert_eq!(held(), 0);
        uncounted(|| drop(kept));
        assert_eq!(held(), 0);
    }
}
