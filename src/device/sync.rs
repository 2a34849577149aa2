//! What queues and slots synchronise with. The package in `tests/loom` compiles their files with types of a
//! checker in place of these, and runs them in every order that the memory model allows; so those files take
//! from here what synchronises, and order by fences what has to be seen by all in one order.

pub(super) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

pub(super) mod atomic {
    pub(in crate::device) use std::sync::atomic::{
        AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
}
