//! The threads that share a kernel's work.
//!
//! A launch publishes one job; the calling thread and every worker that is awake take task numbers from an
//! atomic counter until none is left. A worker that wakes too late finds the job closed and is not waited
//! for, so a descheduled worker costs parallelism and never a stall. Launching allocates nothing and takes
//! no lock.

use std::any::Any;
use std::cell::UnsafeCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long an idle worker spins before it parks. The launches of one trace follow each other within a few
/// microseconds, frames within milliseconds: spinning spans the former and not the latter.
pub const SPIN: Duration = Duration::from_micros(50);

/// `pause` instructions between two looks at the clock (or, on the caller's side, two yields).
const PAUSES: u32 = 64;

/// Low half of [`Shared::state`]: workers inside the job, and whether more may join.
const ACTIVE: u64 = 0xffff;
const OPEN: u64 = 1 << 16;
const EPOCH: u64 = 1 << 17;

type Task<'a> = dyn Fn(usize, &mut [u8]) + Sync + 'a;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// One thread's scratch memory, on cache lines of its own.
struct Scratch(UnsafeCell<Vec<Line>>);

/// The published job. Written by the caller while no worker is inside a job.
#[derive(Clone, Copy)]
struct Job {
    task: *const Task<'static>,
    tasks: usize,
}

struct Shared {
    /// Job number (upper bits), [`OPEN`], and the count of workers inside ([`ACTIVE`]).
    state: AtomicU64,
    job: UnsafeCell<Job>,
    next: AtomicUsize,
    stop: AtomicBool,
    /// One flag a worker: set before it parks, cleared by whoever wakes it.
    parked: Box<[AtomicBool]>,
    /// One area a thread, the caller's first.
    scratch: Box<[Scratch]>,
    /// The first panic of a job.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `job` is written only by the pool's one caller while no worker is inside a job (`state` closed
// and ACTIVE zero) and read only by workers that joined an open job; the state's acquire/release pairs order
// the two. `scratch[i]` is touched by thread `i` inside a job and by `&mut ComputePool` outside of jobs.
unsafe impl Sync for Shared {}
// SAFETY: the task pointer is the only member bound to a thread, and its target is `Sync`.
unsafe impl Send for Shared {}

/// Threads that share one kernel's work: the calling thread and `threads - 1` workers.
///
/// One thread at a time may launch (the type is `Send`, not `Sync`).
pub struct ComputePool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    wake: Vec<Thread>,
    /// Keeps the type from being `Sync`: a launch uses the caller's scratch without a lock.
    _one_caller: std::marker::PhantomData<std::cell::Cell<()>>,
}

impl ComputePool {
    /// A pool of `threads` threads (at least one: the caller).
    ///
    /// If the system refuses a thread, the pool runs with those it has; [`Self::threads`] tells.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let wanted = threads.clamp(1, ACTIVE as usize);
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            job: UnsafeCell::new(Job {
                task: &|_: usize, _: &mut [u8]| {},
                tasks: 0,
            }),
            next: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            parked: (1..wanted).map(|_| AtomicBool::new(false)).collect(),
            scratch: (0..wanted)
                .map(|_| Scratch(UnsafeCell::new(Vec::new())))
                .collect(),
            panic: Mutex::new(None),
        });
        let workers: Vec<_> = (0..wanted - 1)
            .map_while(|worker| {
                let shared = Arc::clone(&shared);
                thread::Builder::new()
                    .name(format!("compute-{}", worker + 1))
                    .spawn(move || shared.work(worker))
                    .ok()
            })
            .collect();
        let wake = workers.iter().map(|w| w.thread().clone()).collect();
        Self {
            shared,
            workers,
            wake,
            _one_caller: std::marker::PhantomData,
        }
    }

    /// Number of threads, the caller included.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Grows every thread's scratch memory to at least `bytes_per_thread` bytes (rounded up to 64).
    pub fn reserve_scratch(&mut self, bytes_per_thread: usize) {
        let lines = bytes_per_thread.div_ceil(64);
        for scratch in &self.shared.scratch {
            // SAFETY: `&mut self` proves that no job runs, and outside of jobs only this method touches it.
            let memory = unsafe { &mut *scratch.0.get() };
            if memory.len() < lines {
                memory.resize(lines, Line([0; 64]));
            }
        }
    }

    /// Calls `task(number, scratch)` once for every number below `tasks`, on any of the pool's threads and
    /// in any order, and returns when all are done. `scratch` starts on a 64-byte boundary and holds what
    /// [`Self::reserve_scratch`] asked for; its contents are arbitrary.
    ///
    /// # Panics
    /// With the panic of a task, after the others ended; tasks not yet begun are then skipped.
    pub fn run(&self, tasks: usize, task: &Task<'_>) {
        let shared = &*self.shared;
        if tasks <= 1 || self.workers.is_empty() {
            // SAFETY: this thread is the pool's only caller and no job is running.
            let scratch = unsafe { shared.scratch_of(0) };
            for number in 0..tasks {
                task(number, scratch);
            }
            return;
        }
        // SAFETY: the lifetime is erased only until this function returns: it closes the job and waits for
        // every worker inside before it does, also when a task panics.
        let task = unsafe { std::mem::transmute::<*const Task<'_>, *const Task<'static>>(task) };
        // SAFETY: no job is open and no worker is inside one, so nobody reads the cell.
        unsafe { *shared.job.get() = Job { task, tasks } };
        shared.next.store(0, Ordering::Relaxed);
        let state = shared.state.load(Ordering::Relaxed);
        shared.state.store(
            (state & !(EPOCH - 1)).wrapping_add(EPOCH) | OPEN,
            Ordering::Release,
        );
        // Pairs with the fence in `wait`: either a parking worker sees the job, or its flag is seen here.
        fence(Ordering::SeqCst);
        for (parked, worker) in shared.parked.iter().zip(&self.wake) {
            if parked.load(Ordering::Relaxed) && parked.swap(false, Ordering::Relaxed) {
                worker.unpark();
            }
        }
        // SAFETY: the job is open and this thread is thread 0.
        unsafe { shared.take_tasks(0) };
        shared.state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut spins = 0_u32;
        while shared.state.load(Ordering::Acquire) & ACTIVE != 0 {
            spins += 1;
            if spins.is_multiple_of(PAUSES) {
                // The worker may have lost its core to another process; let it have this one.
                thread::yield_now();
            }
            std::hint::spin_loop();
        }
        if shared.next.load(Ordering::Relaxed) >= PANICKED {
            let payload = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(payload) = payload {
                resume_unwind(payload);
            }
        }
    }
}

/// Value of the task counter after a panic: above any task number, and far from wrapping.
const PANICKED: usize = usize::MAX / 2;

impl Shared {
    /// The scratch of one thread.
    ///
    /// # Safety
    /// Only thread `thread` calls this, and drops the borrow before its job ends.
    #[expect(
        clippy::mut_from_ref,
        reason = "each thread has an area of its own, see Safety"
    )]
    unsafe fn scratch_of(&self, thread: usize) -> &mut [u8] {
        // SAFETY: the caller promises exclusive use; `Line` is plain bytes.
        unsafe {
            let lines = &mut *self.scratch[thread].0.get();
            std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), lines.len() * 64)
        }
    }

    /// Runs tasks of the open job until none is left.
    ///
    /// # Safety
    /// The caller is thread `thread` and keeps the job from ending (it published or joined it).
    unsafe fn take_tasks(&self, thread: usize) {
        // SAFETY: the job is open, so the cell is not written.
        let job = unsafe { *self.job.get() };
        // SAFETY: `run` keeps the closure alive until every thread has left the job.
        let task = unsafe { &*job.task };
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: as promised by the caller.
            let scratch = unsafe { self.scratch_of(thread) };
            loop {
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                if number >= job.tasks {
                    break;
                }
                task(number, scratch);
            }
        }));
        if let Err(payload) = outcome {
            let mut first = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert(payload);
            self.next.store(PANICKED, Ordering::Relaxed);
        }
    }

    /// A worker's life.
    fn work(&self, worker: usize) {
        let mut last = 0;
        while let Some(epoch) = self.join(last, worker) {
            last = epoch;
            // SAFETY: `join` counted this worker in; the job cannot end before it counts itself out.
            unsafe { self.take_tasks(worker + 1) };
            self.state.fetch_sub(1, Ordering::Release);
        }
    }

    /// Waits for an open job other than `last` and enters it; `None` when the pool ends.
    fn join(&self, last: u64, worker: usize) -> Option<u64> {
        loop {
            let state = self.wait(last, worker)?;
            if self
                .state
                .compare_exchange(state, state + 1, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return Some(state & !(EPOCH - 1));
            }
        }
    }

    fn wait(&self, last: u64, worker: usize) -> Option<u64> {
        let is_new = |state: u64| state & OPEN != 0 && state & !(EPOCH - 1) != last;
        loop {
            let begin = Instant::now();
            loop {
                for _ in 0..PAUSES {
                    let state = self.state.load(Ordering::Acquire);
                    if is_new(state) {
                        return Some(state);
                    }
                    std::hint::spin_loop();
                }
                if self.stop.load(Ordering::Acquire) {
                    return None;
                }
                if begin.elapsed() >= SPIN {
                    break;
                }
            }
            let parked = &self.parked[worker];
            parked.store(true, Ordering::Relaxed);
            // Pairs with the fence in `run` and in `drop`.
            fence(Ordering::SeqCst);
            if !is_new(self.state.load(Ordering::Acquire)) && !self.stop.load(Ordering::Acquire) {
                thread::park();
            }
            parked.store(false, Ordering::Relaxed);
        }
    }
}

impl Drop for ComputePool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker catches the panics of its tasks, so joining can only succeed.
            let _ = worker.join();
        }
    }
}

impl fmt::Debug for ComputePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ComputePool({} threads)", self.threads())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once_whatever_the_number_of_threads() {
        for threads in 1..=4 {
            let pool = ComputePool::new(threads);
            assert_eq!(pool.threads(), threads);
            for tasks in [0, 1, 2, 7, 100] {
                let counts: Vec<_> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                for _ in 0..50 {
                    pool.run(tasks, &|task, _| {
                        counts[task].fetch_add(1, Ordering::Relaxed);
                    });
                }
                assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 50));
            }
        }
    }

    #[test]
    fn workers_that_parked_wake_for_the_next_job() {
        let pool = ComputePool::new(3);
        for _ in 0..20 {
            thread::sleep(SPIN * 4);
            let seen = Mutex::new(std::collections::HashSet::new());
            let begin = Instant::now();
            pool.run(64, &|_, _| {
                seen.lock().unwrap().insert(thread::current().id());
                thread::sleep(Duration::from_millis(1));
            });
            if seen.lock().unwrap().len() == 3 && begin.elapsed() < Duration::from_millis(60) {
                return;
            }
        }
        panic!("no job was ever shared by all three threads");
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let pool = ComputePool::new(3);
        for round in 0..20 {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                pool.run(40, &|task, _| assert_ne!(task, 2 * round, "task {task} fails"));
            }));
            let payload = outcome.unwrap_err();
            assert_eq!(
                payload
                    .downcast_ref::<String>()
                    .map(|s| s.contains(&format!("task {} fails", 2 * round))),
                Some(true)
            );
            let done = AtomicUsize::new(0);
            pool.run(40, &|_, _| {
                done.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(done.into_inner(), 40);
        }
    }

    #[test]
    fn scratch_is_aligned_and_only_grows() {
        let mut pool = ComputePool::new(2);
        pool.reserve_scratch(100);
        pool.reserve_scratch(10);
        pool.run(8, &|_, scratch| {
            assert!(scratch.len() >= 100 && scratch.as_ptr().addr().is_multiple_of(64));
            scratch.fill(1);
        });
    }
}
