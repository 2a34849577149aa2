//! Device memory that shows what must not be relied on.

use std::ops::Range;

use crate::device::DeviceError;
use crate::device::cpu::Arena;
use crate::device::cpu::kernels::BufferRef;

/// What undefined contents look like: every float format reads it as NaN.
pub(super) const POISON: u8 = 0xff;

/// The arena with an allocator that likes to hand out what it should not.
#[derive(Debug)]
pub(super) struct Memory {
    arena: Arena,
}

impl Memory {
    pub(super) fn new(bytes: usize) -> Result<Self, DeviceError> {
        Ok(Self {
            arena: Arena::new(bytes)?,
        })
    }

    pub(super) fn bytes(&self) -> usize {
        self.arena.bytes()
    }

    pub(super) fn used(&self) -> usize {
        self.arena.used()
    }

    pub(super) fn largest_free(&self) -> usize {
        self.arena.largest_free()
    }

    /// Reserves memory at the start of the first preferred range that is free, else where the arena likes.
    pub(super) fn alloc(
        &mut self,
        bytes: usize,
        mut preferred: impl Iterator<Item = Range<usize>>,
    ) -> Result<usize, DeviceError> {
        match preferred.find(|range| self.arena.claim(range.start, bytes)) {
            Some(range) => Ok(range.start),
            None => self.arena.alloc(bytes),
        }
    }

    pub(super) fn free(&mut self, start: usize, bytes: usize) {
        self.arena.free(start, bytes);
    }

    /// Writes to memory that no command uses.
    pub(super) fn store(&mut self, offset: usize, bytes: &[u8]) {
        debug_assert!(bytes.len() <= self.bytes() - offset);
        // SAFETY: callers write what they allocated with this size, and `&mut self` keeps commands, which run on
        // the same thread, from running meanwhile.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.arena.ptr(offset), bytes.len()) };
    }

    /// The bytes from `offset` on, of a buffer that holds that many.
    pub(super) fn range(&self, offset: usize, bytes: usize) -> BufferRef {
        BufferRef {
            ptr: self.arena.ptr(offset),
            bytes,
        }
    }

    /// Everything.
    pub(super) fn whole(&self) -> BufferRef {
        self.range(0, self.bytes())
    }
}

/// Makes bytes undefined.
pub(super) fn poison(arena: BufferRef, range: &Range<usize>) {
    debug_assert!(range.end <= arena.bytes);
    // SAFETY: ranges come from buffers of this arena, which outlives the engine's use of it; everything runs
    // on one thread, and no reference to arena bytes exists outside of a running command.
    unsafe { std::ptr::write_bytes(arena.ptr.add(range.start), POISON, range.len()) };
}
