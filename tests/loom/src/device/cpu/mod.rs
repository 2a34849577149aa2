//! The CPU device's queues with kernels that models define.

pub mod kernels;
pub mod pool;
#[path = "../../../../../src/device/cpu/queue.rs"]
#[allow(dead_code, unreachable_pub, reason = "the library uses all of it, and more")]
mod queue;

use std::sync::Arc;
use std::time::{Duration, Instant};

use kernels::Kernel;
use loom::thread;
use queue::{BoundLaunch, Command, Shared};

use super::{Cq, DeviceError, Lease};
use pool::ComputePool;

/// So far away that only a lost wake-up gets there.
const FAR: Duration = Duration::from_secs(1 << 20);

/// Queues and their threads, as `CpuDevice` has them.
#[derive(Debug)]
pub struct Queues {
    shared: Arc<Shared>,
    threads: Vec<thread::JoinHandle<()>>,
}

/// An event: the queue, and its number there.
pub type Event = (usize, u64);

impl Queues {
    /// Starts as many queues that hold `depth` commands each.
    #[must_use]
    pub fn start(queues: u8, depth: usize) -> Self {
        let shared = Arc::new(Shared::new(
            (0..queues).map(|_| ComputePool),
            Duration::ZERO,
            depth,
        ));
        let threads = (0..queues.into())
            .map(|queue| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || queue::run(&shared, queue))
            })
            .collect();
        Self { shared, threads }
    }

    /// Enqueues a kernel.
    ///
    /// # Errors
    /// The queue stays full.
    pub fn launch(&self, queue: u8, kernel: impl Kernel + 'static) -> Result<(), DeviceError> {
        let launch = BoundLaunch {
            kernel: Arc::new(kernel),
            buffers: smallvec::SmallVec::new(),
        };
        self.shared.push(Cq(queue), Command::Launch(launch), FAR)
    }

    /// Enqueues a transfer of no bytes from a slot on loan.
    ///
    /// # Errors
    /// The queue stays full.
    pub fn upload(&self, queue: u8, src: Lease) -> Result<(), DeviceError> {
        let dst = kernels::BufferRef {
            ptr: std::ptr::NonNull::dangling().as_ptr(),
            bytes: 0,
        };
        self.shared
            .push(Cq(queue), Command::Upload { src: src.0, dst }, FAR)
    }

    /// Enqueues the recording of a queue's event; the numbers begin with 1.
    ///
    /// # Errors
    /// The queue stays full.
    pub fn record(&self, queue: u8, number: u64) -> Result<Event, DeviceError> {
        self.shared.push(Cq(queue), Command::Record(number), FAR)?;
        Ok((queue.into(), number))
    }

    /// Enqueues a wait for an event of another queue.
    ///
    /// # Errors
    /// The queue stays full.
    pub fn wait(&self, queue: u8, (other, event): Event) -> Result<(), DeviceError> {
        let command = Command::Wait { queue: other, event };
        self.shared.push(Cq(queue), command, FAR)
    }

    /// Waits on the host for an event; the checker reports a deadlock if nobody wakes it.
    #[must_use]
    pub fn sync(&self, (queue, event): Event) -> bool {
        let done = || self.shared.event_done(queue, event);
        self.shared.wait_until(Instant::now().checked_add(FAR), done)
    }

    /// Waits on the host until all is done.
    #[must_use]
    pub fn drain(&self) -> bool {
        self.shared
            .wait_until(Instant::now().checked_add(FAR), || self.shared.idle())
    }

    /// Whether an event is complete.
    #[must_use]
    pub fn poll(&self, (queue, event): Event) -> bool {
        self.shared.event_done(queue, event)
    }

    /// Why the device is lost, if it is.
    #[must_use]
    pub fn lost(&self) -> Option<String> {
        self.shared.lost_reason()
    }

    /// Sets what completed events are told to.
    pub fn set_hook(&self, hook: impl Fn() + Send + Sync + 'static) {
        self.shared.set_hook(Arc::new(hook));
    }

    /// Stops the queues after what is in them.
    pub fn close(self) {
        for queue in 0..self.threads.len() {
            self.shared.push_stop(Cq(queue as u8));
        }
        for thread in self.threads {
            // As in the library: a queue that died has nothing more to tell.
            let _ = thread.join();
        }
    }
}
