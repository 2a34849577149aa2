//! Stages that work on several frames at once and keep their order.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use kameo::actor::{ActorRef, WeakActorRef};
use kameo::error::ActorStopReason;
use kameo::mailbox::{MailboxReceiver, Signal};
use tokio::task::{JoinError, JoinHandle};

use super::channel::Receiver;
use super::frame::Sample;
use super::health::{Reason, ReasonKind};
use super::shutdown::Shutdown;
use super::supervision::{ActorWatch, Supervised};
use crate::telemetry::{DropReason, FrameId, Ledger};

/// Panics of workers in a row after which the stage is started again, for it may be broken.
const PANICS_IN_A_ROW: u32 = 3;

/// What a stage does with a frame. `work` runs on a blocking thread; a panic in it costs that frame only.
pub trait StageLogic: Send + Sync + 'static {
    /// Payload that comes in.
    type In: Send + 'static;
    /// Payload that goes out.
    type Out: Send + 'static;

    /// Whether a frame ends here and others are made of it, whose ways begin where they are handed on.
    const MAKES_FRAMES: bool = false;

    /// Name of the actor, for accounting and logs.
    fn name(&self) -> &str;

    /// What the work needs beside the frame, such as a free slot.
    type Permit: Send + 'static;

    /// Waits until a frame may be worked on; `None` if that will never be. The future may be dropped and asked for anew.
    fn admit(&self) -> impl Future<Output = Option<Self::Permit>> + Send;

    /// The work on one frame.
    ///
    /// # Errors
    /// The reason why the frame is dropped.
    fn work(&self, sample: Sample<Self::In>, permit: Self::Permit) -> Result<Sample<Self::Out>, DropReason>;

    /// Hands a finished frame on.
    fn emit(&self, sample: Sample<Self::Out>) -> impl Future<Output = ()> + Send;

    /// Lets go of the ways to those after it: nothing is handed on any more. A worker that stands still keeps the logic
    /// alive, and must not keep them waiting.
    fn close(&self) {}
}

type Finished<T> = Result<Sample<T>, DropReason>;

/// A stage as an actor: takes frames from a channel, works on up to `workers` of them at a time, hands them
/// on in the order in which they came.
///
/// A worker that stands still cannot be stopped: its frame is lost, what it still makes of it is thrown away, and
/// another worker takes its place, as often as there are workers.
pub struct Stage<L: StageLogic> {
    logic: Arc<L>,
    input: Receiver<Sample<L::In>>,
    workers: usize,
    ledger: Arc<Ledger>,
    shutdown: Shutdown,
    watch: ActorWatch,
    /// The frame that is admitted next: it waits for what its work needs, and the stage goes on meanwhile.
    next: Option<Sample<L::In>>,
    /// In the order in which the frames came.
    under_way: VecDeque<Work<L::Out>>,
    /// Workers that were given up, until they come back.
    stuck: Vec<JoinHandle<Finished<L::Out>>>,
    /// The frame that is handed on.
    emitting: Option<FrameId>,
    panics_in_a_row: u32,
    exhausted: bool,
}

/// Why a stage cannot go on as it is.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// One worker after the other panicked.
    #[error("{PANICS_IN_A_ROW} frames in a row made its workers panic: {last}")]
    WorkersPanic {
        /// What the last one said.
        last: String,
    },
    /// As many workers as there are stand still, and as many that took their places.
    #[error("{count} of its workers stand still")]
    WorkersStuck {
        /// Workers that stand still.
        count: usize,
    },
}

impl<L: StageLogic> Stage<L> {
    /// A stage that is not started yet.
    pub fn new(
        logic: L,
        input: Receiver<Sample<L::In>>,
        workers: usize,
        ledger: Arc<Ledger>,
        shutdown: Shutdown,
    ) -> Self {
        Self {
            watch: ActorWatch::none(logic.name()),
            logic: Arc::new(logic),
            input,
            workers: workers.max(1),
            ledger,
            shutdown,
            next: None,
            under_way: VecDeque::new(),
            stuck: Vec::new(),
            emitting: None,
            panics_in_a_row: 0,
            exhausted: false,
        }
    }

    /// The same stage, watched over.
    pub(crate) fn watched(self, watch: &ActorWatch) -> Self {
        Self {
            watch: watch.clone(),
            ..self
        }
    }

    /// Has a worker work on the next frame, or accounts for it where there is no permit.
    fn take_up(&mut self, permit: Option<L::Permit>) {
        let Some(sample) = self.next.take() else { return };
        let id = sample.meta.id;
        let Some(permit) = permit.filter(|_| !self.shutdown.is_aborting()) else {
            self.lose(id, DropReason::ShuttingDown);
            return;
        };
        let logic = Arc::clone(&self.logic);
        let watch = self.watch.clone();
        let handle = tokio::task::spawn_blocking(move || {
            let _holding = watch.begin();
            watch.worker_meets_frame();
            logic.work(sample, permit)
        });
        self.under_way.push_back(Work {
            id,
            handle,
            since: Instant::now(),
        });
    }

    fn takes_another(&self) -> bool {
        !self.exhausted && self.next.is_none() && self.under_way.len() < self.workers
    }

    fn lose(&self, id: FrameId, reason: DropReason) {
        self.ledger.frame_dropped(id, self.logic.name(), reason);
    }

    /// Hands on what a worker made of the oldest frame, or accounts for its loss.
    async fn settle(&mut self, outcome: Result<Finished<L::Out>, JoinError>) -> Result<(), StageError> {
        let Some(Work { id, .. }) = self.under_way.pop_front() else {
            return Ok(());
        };
        match outcome {
            Ok(finished) => {
                if std::mem::take(&mut self.panics_in_a_row) > 0 {
                    self.watch.clear(ReasonKind::Restarting);
                }
                match finished {
                    Ok(sample) => {
                        if let Some(trace) = self.ledger.trace().filter(|_| !L::MAKES_FRAMES) {
                            trace.passed_last(self.logic.name(), id, &sample.meta.times);
                        }
                        self.emitting = Some(id);
                        self.watch.actor_meets_frame().await;
                        self.logic.emit(sample).await;
                        self.emitting = None;
                        self.watch.pulse().frame_done();
                    }
                    Err(reason) => self.lose(id, reason),
                }
                Ok(())
            }
            Err(error) => {
                tracing::error!(actor = self.logic.name(), frame = %id, %error, "a worker panicked; its frame is lost");
                self.lose(id, DropReason::Panicked);
                self.watch.pulse().panicked();
                self.watch.raise(Reason::Restarting {
                    actor: self.logic.name().to_owned(),
                    cause: error.to_string(),
                });
                self.panics_in_a_row += 1;
                if self.panics_in_a_row < PANICS_IN_A_ROW {
                    return Ok(());
                }
                self.panics_in_a_row = 0;
                Err(StageError::WorkersPanic {
                    last: error.to_string(),
                })
            }
        }
    }

    /// Gives the oldest frame up if its worker has been at it for too long.
    fn give_up_stuck(&mut self) -> Result<(), StageError> {
        let (Some(limit), Some(oldest)) = (self.watch.limit(), self.under_way.front()) else {
            return Ok(());
        };
        if oldest.since.elapsed() <= limit || oldest.handle.is_finished() {
            return Ok(());
        }
        self.stuck.retain(|worker| !worker.is_finished());
        let Some(Work { id, handle, .. }) = self.under_way.pop_front() else {
            return Ok(());
        };
        tracing::error!(actor = self.logic.name(), frame = %id, "a worker stands still; its frame is lost");
        self.lose(id, DropReason::Stalled);
        self.stuck.push(handle);
        match self.stuck.len() {
            count if count > self.workers => Err(StageError::WorkersStuck { count }),
            _ => Ok(()),
        }
    }
}

impl<L: StageLogic> kameo::Actor for Stage<L> {
    type Args = Self;
    type Error = StageError;

    async fn on_start(stage: Self, _: ActorRef<Self>) -> Result<Self, StageError> {
        Ok(stage)
    }

    async fn on_stop(&mut self, _: WeakActorRef<Self>, reason: ActorStopReason) -> Result<(), StageError> {
        if matches!(reason, ActorStopReason::Normal) {
            self.logic.close();
        }
        Ok(())
    }

    async fn next(
        &mut self,
        _: WeakActorRef<Self>,
        mailbox: &mut MailboxReceiver<Self>,
    ) -> Result<Option<Signal<Self>>, StageError> {
        let pulse = Arc::clone(self.watch.pulse());
        let logic = Arc::clone(&self.logic);
        loop {
            if self.exhausted && self.next.is_none() && self.under_way.is_empty() {
                return Ok(Some(Signal::Stop));
            }
            tokio::select! {
                biased;
                signal = mailbox.recv() => return Ok(signal),
                outcome = oldest(&mut self.under_way), if !self.under_way.is_empty() => self.settle(outcome).await?,
                () = pulse.alarm.notified() => self.give_up_stuck()?,
                () = self.shutdown.aborting(), if self.next.is_some() => self.take_up(None),
                permit = logic.admit(), if self.next.is_some() => self.take_up(permit),
                sample = self.input.recv(), if self.takes_another() => match sample {
                    Some(sample) => self.next = Some(sample),
                    None => self.exhausted = true,
                },
            }
        }
    }
}

impl<L: StageLogic> Supervised for Stage<L> {
    async fn mend(&mut self) {
        if let Some(id) = self.emitting.take() {
            self.ledger
                .frame_abandoned(id, self.logic.name(), DropReason::Panicked);
        }
    }

    async fn give_up(mut self) {
        self.logic.close();
        // Workers cannot be stopped; what they hold is accounted for without waiting for them.
        for work in std::mem::take(&mut self.under_way) {
            self.lose(work.id, DropReason::ShuttingDown);
        }
        if let Some(sample) = self.next.take() {
            self.lose(sample.meta.id, DropReason::ShuttingDown);
        }
        while let Some(sample) = self.input.recv().await {
            self.lose(sample.meta.id, DropReason::ShuttingDown);
        }
    }

    fn is_hopeless(&self) -> bool {
        self.stuck.iter().filter(|worker| !worker.is_finished()).count() > self.workers
    }
}

impl<L: StageLogic> fmt::Debug for Stage<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stage")
            .field("name", &self.logic.name())
            .field("workers", &self.workers)
            .finish()
    }
}

/// One frame on a blocking thread.
struct Work<T> {
    id: FrameId,
    handle: JoinHandle<Finished<T>>,
    since: Instant,
}

/// What becomes of the oldest frame. Dropping the future loses nothing.
async fn oldest<T>(under_way: &mut VecDeque<Work<T>>) -> Result<Finished<T>, JoinError> {
    poll_fn(|context| match under_way.front_mut() {
        Some(work) => Pin::new(&mut work.handle).poll(context),
        None => std::task::Poll::Pending,
    })
    .await
}
