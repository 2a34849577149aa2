//! What a queue does after its device was lost, and what a host that waits does in its place. Beside `queue.rs` and not in it: that file is also compiled on its
//! own, by the models of its threads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::kernels::{BufferRef, Kernel};
use super::pool::ComputePool;
use super::queue::{BoundLaunch, Command, Shared, run};
use crate::device::{Cq, HostSlot};

#[derive(Debug)]
struct Panics;

impl Kernel for Panics {
    fn required_bytes(&self) -> &[usize] {
        &[]
    }

    unsafe fn run(&self, _: &[BufferRef], _: &ComputePool) {
        panic!("the kernel is broken");
    }
}

#[test]
fn a_queue_that_lost_its_device_lets_go_of_every_slot_by_its_end() {
    let shared = Arc::new(Shared::new([ComputePool::new(1)], Duration::ZERO, 16));
    let mut slots = [HostSlot::new(64), HostSlot::new(64)];
    let mut memory = [7_u8; 64];
    let device = BufferRef {
        ptr: memory.as_mut_ptr(),
        bytes: memory.len(),
    };
    let [up, down] = &mut slots;
    let commands = [
        Command::Launch(BoundLaunch {
            kernel: Arc::new(Panics),
            buffers: SmallVec::new(),
        }),
        Command::Download {
            src: device,
            dst: down.lend_destination().unwrap(),
        },
        Command::Upload {
            src: up.lend_source().unwrap(),
            dst: device,
        },
        Command::Record(1),
    ];
    for command in commands {
        shared.push(Cq::COMPUTE, command, Duration::ZERO).unwrap();
    }
    shared.push_stop(Cq::COMPUTE);
    assert!(slots.iter().all(HostSlot::is_busy));
    let queue = Arc::clone(&shared);
    std::thread::spawn(move || run(&queue, 0)).join().unwrap();
    assert!(!slots.iter().any(HostSlot::is_busy));
    let reason = shared.lost_reason().unwrap();
    assert_eq!(reason, "a kernel on CQ0 panicked: the kernel is broken");
    assert_eq!(slots[1].bytes().unwrap(), [0; 64], "nothing runs after the loss");
    assert_eq!(memory, [7; 64]);
    assert!(shared.event_done(0, 1), "whoever waits is woken");
}

/// A time that a test never reaches.
const FAR: Duration = Duration::from_secs(1000);

/// One queue, whose thread never runs.
fn queue_with(commands: impl IntoIterator<Item = Command>) -> Shared {
    let shared = Shared::new([ComputePool::new(1)], Duration::ZERO, 16);
    for command in commands {
        shared.push(Cq::COMPUTE, command, Duration::ZERO).unwrap();
    }
    shared
}

/// Waits for an event of queue 0.
fn wait(shared: &Shared, event: u64, time: Duration) -> bool {
    shared.wait_until(Instant::now().checked_add(time), || shared.event_done(0, event))
}

fn waits_alone(command: Command, time: Duration) -> bool {
    wait(&queue_with([command, Command::Record(1)]), 1, time)
}

#[test]
fn a_host_that_waits_does_small_commands_itself_and_leaves_large_ones_to_the_queue() {
    let mut memory = [0_u8; 64 << 10];
    let (from, to) = memory.split_at_mut(32 << 10);
    from.fill(3);
    let (from, into) = (from.as_mut_ptr(), to.as_mut_ptr());
    let copy = |bytes| Command::Copy {
        src: BufferRef { ptr: from, bytes },
        dst: BufferRef { ptr: into, bytes },
    };
    assert!(waits_alone(copy(32 << 10), FAR));
    let soon = Duration::from_millis(1);
    assert!(!waits_alone(copy((32 << 10) + 1), soon));
    assert!(!waits_alone(Command::ReserveScratch(64), soon));
    assert!(
        !waits_alone(Command::Wait { queue: 0, event: 9 }, soon),
        "not recorded yet"
    );
    assert!(to.iter().all(|&byte| byte == 3));
}

#[test]
fn a_host_that_waits_does_nothing_beyond_what_it_waits_for_or_its_deadline() {
    let shared = queue_with([Command::Record(1), Command::Record(2), Command::Record(3)]);
    assert!(wait(&shared, 1, FAR));
    assert!(!shared.event_done(0, 2), "nobody waited for it");
    assert!(!wait(&shared, 2, Duration::ZERO));
    assert!(!shared.event_done(0, 2), "the deadline had passed");
    assert!(wait(&shared, 3, FAR));
}

#[test]
fn what_a_host_cannot_do_itself_waits_for_the_queue_and_keeps_its_order() {
    // Behind something large nothing is done ahead of its turn.
    let shared = queue_with([Command::ReserveScratch(64), Command::Record(1)]);
    assert!(!wait(&shared, 1, Duration::from_millis(1)));
    let shared = Arc::new(shared);
    let queue = Arc::clone(&shared);
    let thread = std::thread::spawn(move || run(&queue, 0));
    assert!(wait(&shared, 1, FAR));
    shared.push_stop(Cq::COMPUTE);
    thread.join().unwrap();
}
