//! Command queues: a bounded ring and a thread each.
//!
//! A thread that waits for a queue does its small commands itself: waking another thread costs more than they do. It does
//! so until it has what it waits for or its time is up. What is in a queue is done in order whoever does it, for only who
//! holds the queue's hands takes a command out.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Sender;
use std::sync::{Arc, TryLockError};
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::kernels::{BufferRef, Kernel};
use super::pool::ComputePool;
use crate::device::slot::SlotLease;
use crate::device::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use crate::device::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use crate::device::{Cq, DeviceError};

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
    /// A replay that tells when each launch began and ended.
    Profile {
        launches: Arc<[BoundLaunch]>,
        times: Sender<Vec<[Instant; 2]>>,
    },
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
    /// Guards sleeping for what queues complete; all state is in atomics.
    sleep: Mutex<()>,
    wake: Condvar,
    sleepers: AtomicUsize,
    lost: AtomicBool,
    lost_reason: Mutex<Option<String>>,
    hook: Mutex<Option<Arc<dyn Fn() + Send + Sync>>>,
    spin: Duration,
    /// Commands that a queue holds before the owner has to wait.
    depth: usize,
}

struct Ring {
    backlog: Mutex<Backlog>,
    not_empty: Condvar,
    not_full: Condvar,
    /// Held by whoever takes a command out, until it is done: the queue's thread, or a thread that waits.
    hands: Mutex<ComputePool>,
    /// Commands enqueued and not yet finished.
    pending: AtomicUsize,
    /// Number of the last completed event.
    events_done: AtomicU64,
}

/// Commands to be done, and who sleeps until that changes. Nobody else is woken: that is a system call.
struct Backlog {
    commands: VecDeque<Command>,
    idle: bool,
    blocked: bool,
}

/// Bytes that a command may move, or the buffers of a replay hold, for a waiting thread to do it itself. That takes a few
/// microseconds, but for windows as large as the buffer itself; a deadline is missed by one such command at most.
const SMALL_BYTES: usize = 32 << 10;

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
    /// Queues with the threads that share their work.
    pub(super) fn new(pools: impl IntoIterator<Item = ComputePool>, spin: Duration, depth: usize) -> Self {
        Self {
            queues: pools
                .into_iter()
                .map(|pool| Ring {
                    backlog: Mutex::new(Backlog {
                        commands: VecDeque::with_capacity(depth),
                        idle: false,
                        blocked: false,
                    }),
                    not_empty: Condvar::new(),
                    not_full: Condvar::new(),
                    hands: Mutex::new(pool),
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
            depth,
        }
    }

    /// Appends a command, waiting for room until the deadline.
    pub(super) fn push(&self, cq: Cq, command: Command, deadline: Duration) -> Result<(), DeviceError> {
        let ring = &self.queues[cq.0 as usize];
        let start = Instant::now();
        let mut backlog = lock(&ring.backlog);
        while backlog.commands.len() >= self.depth {
            let left = deadline.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(DeviceError::QueueFull {
                    cq,
                    depth: self.depth,
                    waited: deadline,
                });
            }
            backlog.blocked = true;
            backlog = ring
                .not_full
                .wait_timeout(backlog, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        Self::append(ring, backlog, command);
        Ok(())
    }

    /// Tells a queue to end after what is in it. Always finds room: a queue that is never told would be waited
    /// for without end.
    pub(super) fn push_stop(&self, cq: Cq) {
        let ring = &self.queues[cq.0 as usize];
        Self::append(ring, lock(&ring.backlog), Command::Stop);
    }

    fn append(ring: &Ring, mut backlog: MutexGuard<'_, Backlog>, command: Command) {
        ring.pending.fetch_add(1, Ordering::Relaxed);
        backlog.commands.push_back(command);
        let idle = std::mem::take(&mut backlog.idle);
        drop(backlog);
        if idle {
            ring.not_empty.notify_one();
        }
    }

    /// Whether a queue has completed its event of this number.
    pub(super) fn event_done(&self, queue: usize, event: u64) -> bool {
        self.queues[queue].events_done.load(Ordering::Acquire) >= event
    }

    /// Waits until `done()`, helping the queues meanwhile; `false` if the deadline passed first.
    pub(super) fn wait_until(&self, deadline: Option<Instant>, done: impl Fn() -> bool) -> bool {
        self.help(|| done() || deadline.is_some_and(|end| Instant::now() >= end));
        self.sleep_until(deadline, done)
    }

    /// Does what is small in all queues until `enough()`, or until nothing small is left.
    fn help(&self, enough: impl Fn() -> bool) {
        let mut found = true;
        while found {
            found = false;
            for queue in 0..self.queues.len() {
                let ring = &self.queues[queue];
                if ring.pending.load(Ordering::Relaxed) == 0 {
                    continue;
                }
                let mut hands = match ring.hands.try_lock() {
                    Ok(hands) => hands,
                    Err(TryLockError::Poisoned(hands)) => hands.into_inner(),
                    Err(TryLockError::WouldBlock) => continue,
                };
                loop {
                    if enough() {
                        return;
                    }
                    let Some(command) = self.take(ring, |command| self.is_small(command)) else {
                        break;
                    };
                    self.perform(queue, command, &mut hands);
                    found = true;
                }
            }
        }
    }

    /// Whether a command is done at once.
    fn is_small(&self, command: &Command) -> bool {
        let small = |launches: &[BoundLaunch]| {
            let mut left = SMALL_BYTES;
            let buffers = launches.iter().flat_map(|launch| &launch.buffers);
            buffers.map(|buffer| buffer.bytes).all(|bytes| {
                let fits = bytes <= left;
                left = left.saturating_sub(bytes);
                fits
            })
        };
        match command {
            Command::Upload { dst: moved, .. }
            | Command::Download { src: moved, .. }
            | Command::Copy { src: moved, .. } => moved.bytes <= SMALL_BYTES,
            Command::Launch(launch) => small(std::slice::from_ref(launch)),
            Command::Replay(launches) => small(launches),
            Command::Record(_) => true,
            Command::Wait { queue, event } => self.event_done(*queue, *event),
            Command::Profile { .. } | Command::ReserveScratch(_) | Command::Stop => false,
        }
    }

    /// Waits until `done()`: spins for a bounded time, then sleeps.
    fn sleep_until(&self, deadline: Option<Instant>, done: impl Fn() -> bool) -> bool {
        let start = Instant::now();
        while start.elapsed() < self.spin {
            for _ in 0..32 {
                if done() {
                    return true;
                }
                std::hint::spin_loop();
            }
        }
        let mut guard = lock(&self.sleep);
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        // Pairs with the fence in `wake_sleepers`: either this thread sees what it waits for, or the thread that
        // brings it about sees a sleeper.
        fence(Ordering::SeqCst);
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
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        outcome
    }

    /// Whether every queue has finished everything.
    pub(super) fn idle(&self) -> bool {
        self.queues
            .iter()
            .all(|ring| ring.pending.load(Ordering::Acquire) == 0)
    }

    pub(super) fn set_hook(&self, hook: Arc<dyn Fn() + Send + Sync>) {
        *lock(&self.hook) = Some(hook);
    }

    /// The reason why the device is lost, if it is.
    pub(super) fn lost_reason(&self) -> Option<String> {
        if !self.lost.load(Ordering::Acquire) {
            return None;
        }
        lock(&self.lost_reason).clone()
    }

    fn lose(&self, reason: String) {
        lock(&self.lost_reason).get_or_insert(reason);
        self.lost.store(true, Ordering::Release);
        self.wake_sleepers();
    }

    fn wake_sleepers(&self) {
        // Pairs with the fence in `sleep_until`.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            drop(lock(&self.sleep));
            self.wake.notify_all();
        }
    }

    /// Takes the next command out if it is `wanted`. The caller holds the queue's hands.
    fn take(&self, ring: &Ring, wanted: impl Fn(&Command) -> bool) -> Option<Command> {
        let mut backlog = lock(&ring.backlog);
        if !backlog.commands.front().is_some_and(wanted) {
            return None;
        }
        let command = backlog.commands.pop_front();
        let blocked = std::mem::take(&mut backlog.blocked);
        drop(backlog);
        if blocked {
            ring.not_full.notify_all();
        }
        command
    }

    /// Waits for a command: spins for a bounded time, then sleeps.
    fn await_command(&self, ring: &Ring) {
        let start = Instant::now();
        while ring.pending.load(Ordering::Relaxed) == 0 && start.elapsed() < self.spin {
            for _ in 0..32 {
                std::hint::spin_loop();
            }
        }
        let mut backlog = lock(&ring.backlog);
        while backlog.commands.is_empty() {
            backlog.idle = true;
            backlog = ring
                .not_empty
                .wait(backlog)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Does a command and tells who waits. The caller holds the queue's hands since before it took the command.
    fn perform(&self, queue: usize, command: Command, pool: &mut ComputePool) {
        let ring = &self.queues[queue];
        // A lost device does no more work, but events still complete so that nobody waits for ever.
        let work = !self.lost.load(Ordering::Acquire);
        let recorded = matches!(command, Command::Record(_));
        match command {
            Command::Record(event) => ring.events_done.store(event, Ordering::Release),
            Command::Wait { queue: other, event } => {
                // The event was recorded before this wait was enqueued, so its queue gets there.
                self.sleep_until(None, || self.event_done(other, event));
            }
            command if work => {
                let outcome = catch_unwind(AssertUnwindSafe(|| execute(command, pool)));
                if let Err(panic) = outcome {
                    self.lose(format!("a kernel on CQ{queue} panicked: {}", panic_text(&*panic)));
                }
            }
            command => drop(command),
        }
        ring.pending.fetch_sub(1, Ordering::Release);
        self.wake_sleepers();
        if recorded {
            let hook = lock(&self.hook).clone();
            if let Some(hook) = hook
                && let Err(panic) = catch_unwind(AssertUnwindSafe(|| hook()))
            {
                self.lose(format!("the completion hook panicked: {}", panic_text(&*panic)));
            }
        }
    }
}

/// Body of a queue's thread.
pub(super) fn run(shared: &Shared, queue: usize) {
    let ring = &shared.queues[queue];
    loop {
        shared.await_command(ring);
        let mut hands = lock(&ring.hands);
        // A thread that helps may have been faster.
        let Some(command) = shared.take(ring, |_| true) else {
            continue;
        };
        let stop = matches!(command, Command::Stop);
        shared.perform(queue, command, &mut hands);
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
        Command::Profile { launches, times } => {
            let mut taken = Vec::with_capacity(launches.len());
            for launch in &*launches {
                let start = Instant::now();
                run_launch(launch, pool);
                taken.push([start, Instant::now()]);
            }
            // Whoever asked may have given up waiting.
            let _ = times.send(taken);
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
