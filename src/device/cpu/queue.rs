//! Command queues: a bounded ring and a thread each.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::kernels::{BufferRef, Kernel};
use super::pool::ComputePool;
use crate::device::slot::SlotLease;
use crate::device::{Cq, DeviceError};

/// Commands that a queue holds before the owner has to wait.
pub(super) const RING_CAPACITY: usize = 1024;

/// A kernel with its buffers bound.
#[derive(Debug)]
pub(in crate::device) struct BoundLaunch {
    pub(in crate::device) kernel: Arc<dyn Kernel>,
    pub(in crate::device) buffers: SmallVec<[BufferRef; 4]>,
}

impl BoundLaunch {
    /// What a recorded launch takes in the trace region: the launch itself and its buffers' addresses.
    pub(in crate::device) fn trace_bytes(&self) -> usize {
        size_of::<Self>() + self.buffers.len() * size_of::<BufferRef>()
    }
}

/// One entry of a queue.
#[derive(Debug)]
pub(in crate::device) enum Command {
    Upload {
        src: SlotLease,
        dst: BufferRef,
    },
    Download {
        src: BufferRef,
        dst: SlotLease,
    },
    Copy {
        src: BufferRef,
        dst: BufferRef,
    },
    Launch(BoundLaunch),
    Replay(Arc<[BoundLaunch]>),
    ReserveScratch(usize),
    /// Completes the queue's event of this number.
    Record(u64),
    /// Waits until the given queue completed its event of this number.
    Wait {
        queue: usize,
        event: u64,
    },
    Stop,
}

/// What queues and the owner share.
pub(super) struct Shared {
    queues: Box<[Ring]>,
    /// Guards sleeping only; all state is in atomics.
    sleep: Mutex<()>,
    wake: Condvar,
    sleepers: AtomicUsize,
    lost: AtomicBool,
    lost_reason: Mutex<Option<String>>,
    hook: Mutex<Option<Arc<dyn Fn() + Send + Sync>>>,
    spin: Duration,
}

struct Ring {
    commands: Mutex<VecDeque<Command>>,
    not_empty: Condvar,
    not_full: Condvar,
    /// Commands enqueued and not yet finished.
    pending: AtomicUsize,
    /// Number of the last completed event.
    events_done: AtomicU64,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("queues", &self.queues.len())
            .field("lost", &self.lost)
            .finish()
    }
}

/// A lock that survives a panicking holder: the data is plain and always consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(queues: u8, spin: Duration) -> Self {
        Self {
            queues: (0..queues)
                .map(|_| Ring {
                    commands: Mutex::new(VecDeque::with_capacity(RING_CAPACITY)),
                    not_empty: Condvar::new(),
                    not_full: Condvar::new(),
                    pending: AtomicUsize::new(0),
                    events_done: AtomicU64::new(0),
                })
                .collect(),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
            sleepers: AtomicUsize::new(0),
            lost: AtomicBool::new(false),
            lost_reason: Mutex::new(None),
            hook: Mutex::new(None),
            spin,
        }
    }

    /// Appends a command, waiting for room until the deadline.
    pub(super) fn push(&self, cq: Cq, command: Command, deadline: Duration) -> Result<(), DeviceError> {
        let ring = &self.queues[cq.0 as usize];
        let start = Instant::now();
        let mut commands = lock(&ring.commands);
        while commands.len() >= RING_CAPACITY {
            let left = deadline.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(DeviceError::QueueFull {
                    cq,
                    depth: RING_CAPACITY,
                    waited: deadline,
                });
            }
            commands = ring
                .not_full
                .wait_timeout(commands, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        ring.pending.fetch_add(1, Ordering::SeqCst);
        commands.push_back(command);
        drop(commands);
        ring.not_empty.notify_one();
        Ok(())
    }

    /// Tells a queue to end after what is in it. Always finds room: a queue that is never told would be waited
    /// for without end.
    pub(super) fn push_stop(&self, cq: Cq) {
        let ring = &self.queues[cq.0 as usize];
        ring.pending.fetch_add(1, Ordering::SeqCst);
        lock(&ring.commands).push_back(Command::Stop);
        ring.not_empty.notify_one();
    }

    /// Whether a queue has completed its event of this number.
    pub(super) fn event_done(&self, queue: usize, event: u64) -> bool {
        self.queues[queue].events_done.load(Ordering::SeqCst) >= event
    }

    /// Waits until `done()`; `false` if the deadline passed first.
    pub(super) fn wait_until(&self, deadline: Option<Instant>, done: impl Fn() -> bool) -> bool {
        let spin_end = Instant::now() + self.spin;
        while Instant::now() < spin_end {
            for _ in 0..32 {
                if done() {
                    return true;
                }
                std::hint::spin_loop();
            }
        }
        let mut guard = lock(&self.sleep);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let outcome = loop {
            if done() {
                break true;
            }
            guard = match deadline {
                None => self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner),
                Some(end) => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break false;
                    }
                    self.wake
                        .wait_timeout(guard, left)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
        };
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        outcome
    }

    /// Whether every queue has finished everything.
    pub(super) fn idle(&self) -> bool {
        self.queues
            .iter()
            .all(|ring| ring.pending.load(Ordering::SeqCst) == 0)
    }

    pub(super) fn set_hook(&self, hook: Arc<dyn Fn() + Send + Sync>) {
        *lock(&self.hook) = Some(hook);
    }

    /// The reason why the device is lost, if it is.
    pub(super) fn lost_reason(&self) -> Option<String> {
        if !self.lost.load(Ordering::SeqCst) {
            return None;
        }
        lock(&self.lost_reason).clone()
    }

    fn lose(&self, reason: String) {
        lock(&self.lost_reason).get_or_insert(reason);
        self.lost.store(true, Ordering::SeqCst);
        self.wake_sleepers();
    }

    fn wake_sleepers(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.sleep));
            self.wake.notify_all();
        }
    }

    /// The next command: spins for a bounded time, then sleeps.
    fn pop(&self, queue: usize) -> Command {
        let ring = &self.queues[queue];
        if ring.pending.load(Ordering::SeqCst) == 0 {
            let spin_end = Instant::now() + self.spin;
            while ring.pending.load(Ordering::SeqCst) == 0 && Instant::now() < spin_end {
                for _ in 0..32 {
                    std::hint::spin_loop();
                }
            }
        }
        let mut commands = lock(&ring.commands);
        loop {
            if let Some(command) = commands.pop_front() {
                drop(commands);
                ring.not_full.notify_one();
                return command;
            }
            commands = ring
                .not_empty
                .wait(commands)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Body of a queue's thread.
pub(super) fn run(shared: &Shared, queue: usize, mut pool: ComputePool) {
    loop {
        let command = shared.pop(queue);
        let stop = matches!(command, Command::Stop);
        // A lost device does no more work, but events still complete so that nobody waits for ever.
        let work = !shared.lost.load(Ordering::SeqCst);
        match command {
            Command::Record(event) => {
                let ring = &shared.queues[queue];
                ring.events_done.store(event, Ordering::SeqCst);
                ring.pending.fetch_sub(1, Ordering::SeqCst);
                shared.wake_sleepers();
                let hook = lock(&shared.hook).clone();
                if let Some(hook) = hook {
                    hook();
                }
                continue;
            }
            Command::Wait { queue: other, event } => {
                // The event was recorded before this wait was enqueued, so its queue gets there.
                shared.wait_until(None, || shared.event_done(other, event));
            }
            command if work => {
                let outcome = catch_unwind(AssertUnwindSafe(|| execute(command, &mut pool)));
                if let Err(panic) = outcome {
                    shared.lose(format!("a kernel on CQ{queue} panicked: {}", panic_text(&*panic)));
                }
            }
            command => drop(command),
        }
        shared.queues[queue].pending.fetch_sub(1, Ordering::SeqCst);
        shared.wake_sleepers();
        if stop {
            return;
        }
    }
}

/// Does the work of one command; those that only order others have none.
pub(in crate::device) fn execute(command: Command, pool: &mut ComputePool) {
    match command {
        Command::Upload { src, dst } => {
            // SAFETY: the owner checked that the slot holds `dst.bytes` bytes; the lease keeps the host from
            // writing it, and slot and arena do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(src.as_ptr(), dst.ptr, dst.bytes) };
        }
        Command::Download { src, dst } => {
            // SAFETY: as for an upload, with the lease keeping the host out altogether.
            unsafe { std::ptr::copy_nonoverlapping(src.ptr, dst.as_ptr(), src.bytes) };
        }
        Command::Copy { src, dst } => {
            // SAFETY: both ranges lie in the arena and have one length; `copy` allows equal ranges.
            unsafe { std::ptr::copy(src.ptr, dst.ptr, src.bytes) };
        }
        Command::Launch(launch) => run_launch(&launch, pool),
        Command::Replay(launches) => {
            for launch in &*launches {
                run_launch(launch, pool);
            }
        }
        Command::ReserveScratch(bytes) => pool.reserve_scratch(bytes),
        Command::Record(_) | Command::Wait { .. } | Command::Stop => {}
    }
}

fn run_launch(launch: &BoundLaunch, pool: &ComputePool) {
    // SAFETY: the owner checked the buffers against the kernel's needs when it bound them. That no other
    // queue touches them meanwhile is the order that the caller states with events: it is the device
    // contract, and `device::cpu` explains what a violation can and cannot do.
    unsafe { launch.kernel.run(&launch.buffers, pool) };
}

/// Text of a panic payload.
fn panic_text(payload: &(dyn std::any::Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::HostSlot;

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
        let shared = Arc::new(Shared::new(1, Duration::ZERO));
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
        std::thread::spawn(move || run(&queue, 0, ComputePool::new(1)))
            .join()
            .unwrap();
        assert!(!slots.iter().any(HostSlot::is_busy));
        let reason = shared.lost_reason().unwrap();
        assert_eq!(reason, "a kernel on CQ0 panicked: the kernel is broken");
        assert_eq!(slots[1].bytes().unwrap(), [0; 64], "nothing runs after the loss");
        assert_eq!(memory, [7; 64]);
        assert!(shared.event_done(0, 1), "whoever waits is woken");
    }
}
