//! Stages that work on several frames at once and keep their order.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use kameo::actor::{ActorRef, WeakActorRef};
use kameo::error::Infallible;
use kameo::mailbox::{MailboxReceiver, Signal};
use tokio::task::JoinHandle;

use super::channel::Receiver;
use super::frame::Sample;
use super::shutdown::Shutdown;
use crate::telemetry::{DropReason, FrameId, Ledger};

/// What a stage does with a frame. `work` runs on a blocking thread; a panic in it costs that frame only.
pub trait StageLogic: Send + Sync + 'static {
    /// Payload that comes in.
    type In: Send + 'static;
    /// Payload that goes out.
    type Out: Send + 'static;

    /// Name of the actor, for accounting and logs.
    fn name(&self) -> &str;

    /// What the work needs beside the frame, such as a free slot.
    type Permit: Send + 'static;

    /// Waits until a frame may be worked on; `None` if that will never be.
    fn admit(&self) -> impl Future<Output = Option<Self::Permit>> + Send;

    /// The work on one frame.
    ///
    /// # Errors
    /// The reason why the frame is dropped.
    fn work(&self, sample: Sample<Self::In>, permit: Self::Permit) -> Result<Sample<Self::Out>, DropReason>;

    /// Hands a finished frame on.
    fn emit(&self, sample: Sample<Self::Out>) -> impl Future<Output = ()> + Send;
}

type Finished<T> = Result<Sample<T>, DropReason>;

/// A stage as an actor: takes frames from a channel, works on up to `workers` of them at a time, hands them
/// on in the order in which they came.
pub struct Stage<L: StageLogic> {
    logic: Arc<L>,
    input: Receiver<Sample<L::In>>,
    workers: usize,
    ledger: Arc<Ledger>,
    shutdown: Shutdown,
    under_way: FuturesOrdered<Work<L::Out>>,
    exhausted: bool,
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
            logic: Arc::new(logic),
            input,
            workers: workers.max(1),
            ledger,
            shutdown,
            under_way: FuturesOrdered::new(),
            exhausted: false,
        }
    }

    async fn take_up(&mut self, sample: Sample<L::In>) {
        let id = sample.meta.id;
        if self.shutdown.is_aborting() {
            self.ledger
                .frame_dropped(id, self.logic.name(), DropReason::ShuttingDown);
            return;
        }
        let Some(permit) = self.logic.admit().await else {
            self.ledger
                .frame_dropped(id, self.logic.name(), DropReason::ShuttingDown);
            return;
        };
        let logic = Arc::clone(&self.logic);
        let handle = tokio::task::spawn_blocking(move || logic.work(sample, permit));
        self.under_way.push_back(Work { id, handle });
    }
}

/// Hands on what a worker made of a frame, or accounts for its loss.
async fn settle<L: StageLogic>(
    logic: &L,
    ledger: &Ledger,
    id: FrameId,
    outcome: Result<Finished<L::Out>, tokio::task::JoinError>,
) {
    match outcome {
        Ok(Ok(sample)) => {
            if let Some(trace) = ledger.trace() {
                trace.passed_last(logic.name(), id, &sample.meta.times);
            }
            logic.emit(sample).await;
        }
        Ok(Err(reason)) => ledger.frame_dropped(id, logic.name(), reason),
        Err(error) => {
            tracing::error!(actor = logic.name(), frame = %id, %error, "a worker panicked; its frame is lost");
            ledger.frame_dropped(id, logic.name(), DropReason::Panicked);
        }
    }
}

impl<L: StageLogic> kameo::Actor for Stage<L> {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(stage: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(stage)
    }

    async fn next(
        &mut self,
        _: WeakActorRef<Self>,
        mailbox: &mut MailboxReceiver<Self>,
    ) -> Result<Option<Signal<Self>>, Infallible> {
        loop {
            if self.exhausted && self.under_way.is_empty() {
                return Ok(Some(Signal::Stop));
            }
            tokio::select! {
                biased;
                signal = mailbox.recv() => return Ok(signal),
                Some((id, outcome)) = self.under_way.next(), if !self.under_way.is_empty() => {
                    settle(&*self.logic, &self.ledger, id, outcome).await;
                }
                sample = self.input.recv(), if !self.exhausted && self.under_way.len() < self.workers => {
                    match sample {
                        Some(sample) => self.take_up(sample).await,
                        None => self.exhausted = true,
                    }
                }
            }
        }
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
}

impl<T> Future for Work<T> {
    type Output = (FrameId, Result<Finished<T>, tokio::task::JoinError>);

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        let id = self.id;
        std::pin::Pin::new(&mut self.handle)
            .poll(context)
            .map(|outcome| (id, outcome))
    }
}
