//! Queues, events and slots in every order that the memory model allows.
//!
//! A model is a short program for the host and one or two queues. The checker runs it again and again, each
//! time with other choices of who goes on and which of the permitted values a load sees, up to a number of
//! involuntary switches of threads. It reports deadlocks (a wake-up that nobody sends), and accesses to a
//! [`Memory`] that nothing orders.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering};
use sensorium_loom::device::cpu::Queues;
use sensorium_loom::device::cpu::kernels::{BufferRef, Kernel};
use sensorium_loom::device::cpu::pool::ComputePool;
use sensorium_loom::device::slot::HostSlot;
use sensorium_loom::device::sync::atomic::without_fences;
use sensorium_loom::device::{lend_destination, lend_source};

/// Runs a model, with at most `switches` involuntary switches of threads in one run.
fn check(switches: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.check(model);
}

/// Memory whose accesses the checker watches.
#[derive(Clone)]
struct Memory(Arc<Cell>);

struct Cell(UnsafeCell<u64>);

// SAFETY: it is for the checker to say whether threads share it rightly.
unsafe impl Send for Cell {}
// SAFETY: as above.
unsafe impl Sync for Cell {}

impl Memory {
    fn new(value: u64) -> Self {
        Self(Arc::new(Cell(UnsafeCell::new(value))))
    }

    fn get(&self) -> u64 {
        // SAFETY: the checker fails the model if anyone writes at the same time.
        self.0.0.with(|value| unsafe { *value })
    }

    fn set(&self, new: u64) {
        // SAFETY: the checker fails the model if anyone else reads or writes at the same time.
        self.0.0.with_mut(|value| unsafe { *value = new });
    }
}

/// A kernel made of a closure.
struct Work<F>(F);

impl<F> fmt::Debug for Work<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Work")
    }
}

impl<F: Fn() + Send + Sync> Kernel for Work<F> {
    unsafe fn run(&self, _: &[BufferRef], _: &ComputePool) {
        (self.0)();
    }
}

/// A kernel that adds one to a memory.
fn add_one(memory: &Memory) -> impl Kernel + use<> {
    let memory = memory.clone();
    Work(move || memory.set(memory.get() + 1))
}

fn a_host_waits_for_an_event() {
    let queues = Queues::start(1, 8);
    let memory = Memory::new(0);
    queues.launch(0, add_one(&memory)).unwrap();
    let event = queues.record(0, 1).unwrap();
    assert!(queues.sync(event));
    assert_eq!(memory.get(), 1);
    queues.close();
}

#[test]
fn a_host_that_waits_for_an_event_is_woken_and_sees_the_work() {
    check(2, a_host_waits_for_an_event);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_its_fences_a_host_sleeps_for_ever() {
    without_fences(|| check(3, a_host_waits_for_an_event));
}

#[test]
fn a_host_that_drains_is_woken_and_sees_the_work() {
    check(1, || {
        let queues = Queues::start(2, 8);
        let memories = [Memory::new(0), Memory::new(0)];
        for (queue, memory) in (0..).zip(&memories) {
            queues.launch(queue, add_one(memory)).unwrap();
        }
        assert!(queues.drain());
        assert_eq!(memories.map(|memory| memory.get()), [1, 1]);
        queues.close();
    });
}

#[test]
fn a_queue_that_waits_for_another_is_woken_and_sees_its_work() {
    check(1, || {
        let queues = Queues::start(2, 8);
        let memory = Memory::new(1);
        queues.launch(1, add_one(&memory)).unwrap();
        let uploaded = queues.record(1, 1).unwrap();
        queues.wait(0, uploaded).unwrap();
        queues.launch(0, add_one(&memory)).unwrap();
        let computed = queues.record(0, 1).unwrap();
        assert!(queues.sync(computed));
        assert_eq!(memory.get(), 3);
        assert!(queues.poll(uploaded));
        queues.close();
    });
}

#[test]
#[should_panic(expected = "Concurrent")]
fn without_the_event_the_checker_sees_the_race() {
    check(1, || {
        let queues = Queues::start(2, 8);
        let memory = Memory::new(1);
        queues.launch(1, add_one(&memory)).unwrap();
        queues.launch(0, add_one(&memory)).unwrap();
        assert!(queues.drain());
        // A race inside a kernel is one of its panics. In some orders the host does both itself, and there is none.
        let lost = queues.lost();
        queues.close();
        if let Some(race) = lost {
            panic!("{race}");
        }
    });
}

#[test]
fn two_queues_that_wait_for_each_other_in_turn_get_through() {
    check(1, || {
        let queues = Queues::start(2, 8);
        let memory = Memory::new(0);
        queues.launch(1, add_one(&memory)).unwrap();
        let there = queues.record(1, 1).unwrap();
        queues.wait(0, there).unwrap();
        queues.launch(0, add_one(&memory)).unwrap();
        let back = queues.record(0, 1).unwrap();
        queues.wait(1, back).unwrap();
        queues.launch(1, add_one(&memory)).unwrap();
        queues.close();
        assert_eq!(memory.get(), 3);
    });
}

#[test]
fn a_full_queue_takes_the_next_command_once_it_has_room() {
    check(2, || {
        let queues = Queues::start(1, 1);
        let memory = Memory::new(0);
        for _ in 0..3 {
            queues.launch(0, add_one(&memory)).unwrap();
        }
        assert!(queues.drain());
        assert_eq!(memory.get(), 3);
        queues.close();
    });
}

#[test]
fn closing_does_what_is_pending_and_gives_slots_back() {
    check(1, || {
        let queues = Queues::start(2, 8);
        let memory = Memory::new(0);
        let mut slot = HostSlot::new(8);
        queues.launch(1, add_one(&memory)).unwrap();
        queues.upload(1, lend_source(&slot).unwrap()).unwrap();
        let uploaded = queues.record(1, 1).unwrap();
        queues.wait(0, uploaded).unwrap();
        queues.launch(0, add_one(&memory)).unwrap();
        queues.close();
        assert_eq!(memory.get(), 2);
        assert!(slot.bytes_mut().is_ok());
    });
}

#[test]
fn a_lost_device_wakes_the_host_and_the_other_queue() {
    check(1, || {
        let queues = Queues::start(2, 8);
        // Not `panic!`, which would print a message for every order.
        queues
            .launch(1, Work(|| resume_unwind(Box::new("broken"))))
            .unwrap();
        let failed = queues.record(1, 1).unwrap();
        queues.wait(0, failed).unwrap();
        let after = queues.record(0, 1).unwrap();
        assert!(queues.sync(after));
        // Whoever sees an event behind the fault also sees the fault.
        assert_eq!(queues.lost().as_deref(), Some("a kernel on CQ1 panicked: broken"));
        queues.close();
    });
}

#[test]
fn the_hook_hears_of_every_event() {
    check(1, || {
        let queues = Queues::start(2, 8);
        let heard = Arc::new(AtomicUsize::new(0));
        let hook = Arc::clone(&heard);
        queues.set_hook(move || {
            hook.fetch_add(1, Ordering::Relaxed);
        });
        queues.record(0, 1).unwrap();
        queues.record(1, 1).unwrap();
        queues.close();
        assert_eq!(heard.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn the_host_writes_a_slot_only_after_all_its_uploads() {
    check(3, || {
        let mut slot = HostSlot::new(8);
        let contents = Memory::new(7);
        let uploads: Vec<_> = (0..2)
            .map(|_| {
                let lease = lend_source(&slot).unwrap();
                let contents = contents.clone();
                loom::thread::spawn(move || {
                    assert_eq!(contents.get(), 7);
                    drop(lease);
                })
            })
            .collect();
        // Reading meanwhile is allowed.
        if slot.bytes().is_ok() {
            assert_eq!(contents.get(), 7);
        }
        if slot.bytes_mut().is_ok() {
            contents.set(8);
        }
        for upload in uploads {
            upload.join().unwrap();
        }
        assert!(slot.bytes_mut().is_ok());
    });
}

#[test]
fn the_host_reads_a_slot_only_after_its_download() {
    check(3, || {
        let mut slot = HostSlot::new(8);
        let contents = Memory::new(0);
        let lease = lend_destination(&mut slot).unwrap();
        let device = contents.clone();
        let download = loom::thread::spawn(move || {
            device.set(7);
            drop(lease);
        });
        if slot.bytes().is_ok() {
            assert_eq!(contents.get(), 7);
        }
        // A refused loan leaves the slot's state as it was.
        match lend_source(&slot) {
            Ok(lease) => {
                assert_eq!(contents.get(), 7);
                drop(lease);
            }
            Err(_) => assert!(slot.bytes().is_err() || contents.get() == 7),
        }
        download.join().unwrap();
        assert!(!slot.is_busy());
        assert_eq!(contents.get(), 7);
    });
}
