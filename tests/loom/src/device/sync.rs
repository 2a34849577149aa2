//! The checker's types, in place of those of `src/device/sync.rs`.

pub(super) use std::sync::PoisonError;

pub(super) use loom::sync::{Condvar, Mutex, MutexGuard};

/// Atomics, and fences that a model can leave out.
pub mod atomic {
    use std::cell::Cell;

    pub(in crate::device) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

    thread_local! {
        static FENCES: Cell<bool> = const { Cell::new(true) };
    }

    /// A fence, unless [`without_fences`] is under way: the checker runs all threads of a model on one thread.
    pub(in crate::device) fn fence(order: Ordering) {
        if FENCES.get() {
            loom::sync::atomic::fence(order);
        }
    }

    /// Runs a model without its fences, to show that it needs them.
    pub fn without_fences(model: impl FnOnce()) {
        FENCES.set(false);
        model();
        FENCES.set(true);
    }
}
