//! The CPU device's memory: one block, handed out in pieces with addresses.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ptr::NonNull;

use crate::device::DeviceError;

/// Alignment of every buffer in bytes: one cache line, one AVX-512 register.
pub(in crate::device) const ALIGNMENT: usize = 64;

/// Bytes of a page of memory.
const PAGE: usize = 4096;

/// A block of zeroed memory and the list of its free ranges. First fit from the lowest address, so a freed
/// range is reused as early as possible, as accelerator allocators do: stale contents show up in tests.
#[derive(Debug)]
pub(in crate::device) struct Arena {
    /// What was allocated, with `layout`.
    block: NonNull<u8>,
    layout: Layout,
    /// First byte handed out: the block's first on a page of its own.
    base: NonNull<u8>,
    bytes: usize,
    /// Free ranges by start: start -> length, never adjacent to each other.
    free: BTreeMap<usize, usize>,
}

// SAFETY: the arena owns its block; the pointer is not tied to a thread.
unsafe impl Send for Arena {}

impl Arena {
    /// An arena of at least `bytes` bytes. The operating system commits pages as they are touched.
    pub(in crate::device) fn new(bytes: usize) -> Result<Self, DeviceError> {
        let impossible = || DeviceError::Config(format!("an arena of {bytes} bytes is not possible"));
        let size = bytes
            .checked_next_multiple_of(PAGE)
            .filter(|&size| size > 0)
            .ok_or_else(impossible)?;
        // With the alignment asked for here, an allocator would write every byte to zero it; without, it takes
        // fresh pages, which are zero and not there yet. So the block is a page larger and begins anywhere.
        let layout = size
            .checked_add(PAGE)
            .and_then(|size| Layout::array::<u8>(size).ok())
            .ok_or_else(impossible)?;
        // SAFETY: the layout has a non-zero size.
        let block = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(DeviceError::OutOfMemory {
            requested: size,
            largest_free: 0,
        })?;
        let skipped = block.addr().get().next_multiple_of(PAGE) - block.addr().get();
        Ok(Self {
            block,
            layout,
            // SAFETY: fewer than `PAGE` bytes are skipped, and the block has that many more than `size`.
            base: unsafe { block.add(skipped) },
            bytes: size,
            free: BTreeMap::from([(0, size)]),
        })
    }

    /// Total bytes.
    pub(in crate::device) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes in ranges that were handed out.
    pub(in crate::device) fn used(&self) -> usize {
        self.bytes() - self.free.values().sum::<usize>()
    }

    /// Longest free range.
    pub(in crate::device) fn largest_free(&self) -> usize {
        self.free.values().copied().max().unwrap_or(0)
    }

    /// Reserves `bytes` (rounded up to the alignment) and returns the offset.
    pub(in crate::device) fn alloc(&mut self, bytes: usize) -> Result<usize, DeviceError> {
        let size = padded(bytes);
        let start = self
            .free
            .iter()
            .find(|&(_, &length)| length >= size)
            .map(|(&start, _)| start)
            .ok_or(DeviceError::OutOfMemory {
                requested: bytes,
                largest_free: self.largest_free(),
            })?;
        if let Some(length) = self.free.remove(&start)
            && length > size
        {
            self.free.insert(start + size, length - size);
        }
        Ok(start)
    }

    /// Reserves `bytes` (rounded up to the alignment) at `start`; `false` if any of them is in use.
    pub(in crate::device) fn claim(&mut self, start: usize, bytes: usize) -> bool {
        let end = start + padded(bytes);
        let Some((&before, &length)) = self.free.range(..=start).next_back() else {
            return false;
        };
        let free_end = before + length;
        if end > free_end {
            return false;
        }
        self.free.remove(&before);
        if before < start {
            self.free.insert(before, start - before);
        }
        if end < free_end {
            self.free.insert(end, free_end - end);
        }
        true
    }

    /// Returns a range that [`Arena::alloc`] or [`Arena::claim`] handed out.
    pub(in crate::device) fn free(&mut self, start: usize, bytes: usize) {
        let (mut start, mut length) = (start, padded(bytes));
        if let Some((&before, &before_length)) = self.free.range(..start).next_back()
            && before + before_length == start
        {
            self.free.remove(&before);
            start = before;
            length += before_length;
        }
        if let Some(after_length) = self.free.remove(&(start + length)) {
            length += after_length;
        }
        self.free.insert(start, length);
    }

    /// Host pointer of an offset that [`Arena::alloc`] handed out.
    pub(in crate::device) fn ptr(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.bytes);
        // SAFETY: offsets come from `alloc` and lie inside the block.
        unsafe { self.base.as_ptr().add(offset) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout. The device joins its queues before it drops the arena.
        unsafe { dealloc(self.block.as_ptr(), self.layout) };
    }
}

/// Bytes that a buffer really takes; an empty one still has an address of its own.
fn padded(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_ranges_merge_and_are_reused_from_the_lowest_address() {
        let mut arena = Arena::new(4096).unwrap();
        let a = arena.alloc(100).unwrap();
        let b = arena.alloc(64).unwrap();
        let c = arena.alloc(1).unwrap();
        assert_eq!((a, b, c), (0, 128, 192));
        arena.free(a, 100);
        arena.free(b, 64);
        assert_eq!(arena.alloc(192).unwrap(), 0, "neighbours merged");
        arena.free(0, 192);
        arena.free(c, 1);
        assert_eq!(arena.free.len(), 1);
        assert_eq!(
            arena.alloc(5000),
            Err(DeviceError::OutOfMemory {
                requested: 5000,
                largest_free: 4096
            })
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_that_nobody_touched_is_not_taken() {
        let resident_pages = || {
            let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
            let pages = statm.split_whitespace().nth(1).unwrap();
            pages.parse::<usize>().unwrap()
        };
        let before = resident_pages();
        let mut arena = Arena::new(1 << 30).unwrap();
        let start = arena.alloc(1 << 29).unwrap();
        assert!(arena.ptr(start).addr().is_multiple_of(PAGE));
        let taken = (resident_pages().saturating_sub(before)) * PAGE;
        assert!(taken < 1 << 28, "{taken} bytes");
    }

    #[test]
    fn sizes_that_no_machine_has_are_errors() {
        for bytes in [0, usize::MAX, isize::MAX as usize] {
            assert!(Arena::new(bytes).is_err(), "{bytes}");
        }
    }

    #[test]
    fn a_claim_takes_free_bytes_only_and_leaves_the_rest_free() {
        let mut arena = Arena::new(4096).unwrap();
        assert!(arena.claim(128, 100));
        assert!(!arena.claim(64, 128) && !arena.claim(192, 1) && !arena.claim(4032, 65));
        assert_eq!(arena.free, BTreeMap::from([(0, 128), (256, 3840)]));
        assert!(arena.claim(0, 128) && arena.claim(256, 3840));
        assert_eq!((arena.largest_free(), arena.claim(0, 0)), (0, false));
        arena.free(128, 100);
        assert_eq!(arena.alloc(1).unwrap(), 128);
    }

    #[test]
    fn random_allocations_never_overlap() {
        let mut arena = Arena::new(1 << 16).unwrap();
        let mut live: Vec<(usize, usize)> = Vec::new();
        let mut seed = 1_u64;
        for _ in 0..5000 {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let draw = (seed >> 33) as usize;
            if draw.is_multiple_of(3) && !live.is_empty() {
                let (start, bytes) = live.swap_remove(draw % live.len());
                arena.free(start, bytes);
            } else if let Ok(start) = arena.alloc(draw % 3000) {
                let bytes = draw % 3000;
                assert!(
                    live.iter()
                        .all(|&(s, b)| start + padded(bytes) <= s || s + padded(b) <= start)
                );
                live.push((start, bytes));
            }
        }
        for (start, bytes) in live {
            arena.free(start, bytes);
        }
        assert_eq!(arena.free, BTreeMap::from([(0, 1 << 16)]));
    }
}
