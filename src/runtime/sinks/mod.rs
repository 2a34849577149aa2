//! Sinks: where results leave.

mod json_lines;
mod outputs;
mod publisher;
mod recorder;
mod viewer;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kameo::actor::{ActorRef, WeakActorRef};
use kameo::error::{ActorStopReason, Infallible};
use kameo::mailbox::{MailboxReceiver, Signal};

pub(crate) use json_lines::JsonLinesSink;
pub(crate) use outputs::{BegunFiles, check_output, check_outputs};
pub(crate) use publisher::PublisherSink;
pub(crate) use recorder::RecorderSink;
pub(crate) use viewer::ViewerSink;

use super::RuntimeError;
use super::finish::SinkItem;
use super::frame::{Detected, Sample};
use super::health::{Reason, ReasonKind};
use super::shutdown::Shutdown;
use super::supervision::{ActorWatch, Backoff, Supervised};
use super::turns::SinkInput;
use crate::telemetry::jsonl::FrameLine;
use crate::telemetry::trace_file::TraceFile;
use crate::telemetry::{DropReason, FrameId, Ledger};

/// Longest time that a sink may take to become able to write again; what comes meanwhile waits in its channel.
const RECOVERY_DEADLINE: Duration = Duration::from_secs(2);

/// Failures in a row after which a sink that may go on is opened again.
const FAILURES_IN_A_ROW: u32 = 3;

/// A place that results go to.
pub(crate) trait Sink: Send + Sized + 'static {
    /// Whether results may still be written after one could not be, with nothing put in order before.
    const GOES_ON: bool;

    /// Takes one result.
    ///
    /// # Errors
    /// What went wrong, in words; the result counts as dropped.
    fn write(&mut self, sample: &Arc<Sample<Detected>>) -> impl Future<Output = Result<(), String>> + Send;

    /// Makes it able to write again after it could not: what a failed write left behind is put in order.
    ///
    /// # Errors
    /// What is still wrong, in words.
    fn recover(&mut self) -> impl Future<Output = Result<(), String>> + Send;

    /// Ends the output properly.
    ///
    /// # Errors
    /// What went wrong, in words.
    fn finish(self) -> impl Future<Output = Result<(), String>> + Send;
}

/// A sink as an actor.
///
/// One that cannot write drops and counts its results and tries again after pauses that double; that degrades the
/// pipeline and does not end it.
pub(crate) struct SinkActor<S: Sink> {
    node: String,
    /// Taken by the end.
    sink: Option<S>,
    input: SinkInput,
    ledger: Arc<Ledger>,
    shutdown: Shutdown,
    watch: ActorWatch,
    /// The result that is written.
    writing: Option<FrameId>,
    /// A failure has been told of.
    told: bool,
    failing: Option<Failing>,
    backoff: Backoff,
    trace: Option<Arc<TraceFile>>,
}

/// A sink that cannot write.
#[derive(Debug)]
struct Failing {
    failures_in_a_row: u32,
    /// When it is put in order at the earliest.
    retry_at: Instant,
    /// It has been put in order since it failed.
    recovered: bool,
}

impl<S: Sink> SinkActor<S> {
    /// A sink that is not started yet.
    pub(crate) fn new(
        node: &str,
        sink: S,
        input: SinkInput,
        (ledger, shutdown): (Arc<Ledger>, Shutdown),
        (watch, backoff): (ActorWatch, Duration),
        trace: Option<Arc<TraceFile>>,
    ) -> Self {
        Self {
            node: node.into(),
            sink: Some(sink),
            input,
            ledger,
            shutdown,
            watch,
            writing: None,
            told: false,
            failing: None,
            backoff: Backoff::new(backoff),
            trace,
        }
    }

    /// The first failure is the user's business; the ones after it are counted only.
    fn tell(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.told, true) {
            self.shutdown.note(RuntimeError::Sink {
                node: self.node.clone(),
                reason: reason.to_owned(),
            });
        }
    }

    fn lose(&self, account: FrameId, reason: DropReason) {
        self.ledger.frame_dropped(account, &self.node, reason);
    }

    /// A result could not be written, or the sink could not be put in order.
    fn failed(&mut self, reason: String) {
        if self.failing.is_none() {
            tracing::error!(sink = self.node, %reason, "a sink failed; results for it are dropped until it can write again");
        }
        self.tell(&reason);
        let pause = self.backoff.pause();
        let before = self.failing.take().map_or(0, |failing| failing.failures_in_a_row);
        self.failing = Some(Failing {
            failures_in_a_row: before.saturating_add(1),
            retry_at: Instant::now() + pause,
            recovered: false,
        });
        self.watch.raise(Reason::SinkFailing {
            sink: self.node.clone(),
            cause: reason,
        });
    }

    /// A result was written.
    fn worked(&mut self) {
        self.watch.pulse().frame_done();
        if self.failing.take().is_some() {
            self.backoff.worked();
            self.watch.clear(ReasonKind::SinkFailing);
            tracing::info!(sink = self.node, "the sink writes again");
        }
    }

    /// Whether the next result may be written: a sink that failed is put in order first, when it is time.
    async fn is_able(&mut self) -> bool {
        let (Some(failing), Some(sink)) = (&mut self.failing, &mut self.sink) else {
            return true;
        };
        let must_recover = !S::GOES_ON || failing.failures_in_a_row >= FAILURES_IN_A_ROW;
        if failing.recovered || !must_recover {
            return true;
        }
        if Instant::now() < failing.retry_at {
            // What goes on may be tried all the same.
            return S::GOES_ON;
        }
        let recovered = tokio::time::timeout(RECOVERY_DEADLINE, sink.recover()).await;
        match recovered.unwrap_or_else(|_| Err(format!("it is not ready after {RECOVERY_DEADLINE:?}"))) {
            Ok(()) => {
                failing.recovered = true;
                true
            }
            Err(reason) => {
                self.failed(reason);
                false
            }
        }
    }

    /// Writes one result, or accounts for its loss.
    async fn take(&mut self, (account, sample): SinkItem) {
        // The run is given up: what still waits here is dropped, so that a slow file cannot hold it.
        if self.shutdown.is_aborting() {
            return self.lose(account, DropReason::ShuttingDown);
        }
        let _holding = self.watch.begin();
        self.writing = Some(account);
        let fails = self.watch.actor_meets_frame().await;
        let written = match (fails, self.is_able().await, &mut self.sink) {
            (true, ..) => Some(Err("the pipeline file says that it fails".to_owned())),
            (false, true, Some(sink)) => {
                let started_ns = self.trace.as_ref().map(|trace| trace.now_ns());
                let written = sink.write(&sample).await;
                if let (Some(trace), Some(started_ns)) = (&self.trace, started_ns) {
                    trace.written(&self.node, sample.meta.id, &sample.meta.times, started_ns);
                }
                Some(written)
            }
            (false, ..) => None,
        };
        self.writing = None;
        match written {
            Some(Ok(())) => {
                self.ledger.frame_out(account);
                self.worked();
            }
            Some(Err(reason)) => {
                self.lose(account, DropReason::SinkFailed);
                self.failed(reason);
            }
            None => self.lose(account, DropReason::SinkFailed),
        }
    }
}

impl<S: Sink> kameo::Actor for SinkActor<S> {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(actor: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(actor)
    }

    async fn next(
        &mut self,
        _: WeakActorRef<Self>,
        mailbox: &mut MailboxReceiver<Self>,
    ) -> Result<Option<Signal<Self>>, Infallible> {
        loop {
            let item = tokio::select! {
                biased;
                signal = mailbox.recv() => return Ok(signal),
                item = self.input.recv() => match item {
                    Some(item) => item,
                    None => return Ok(Some(Signal::Stop)),
                },
            };
            self.take(item).await;
        }
    }

    async fn on_stop(&mut self, _: WeakActorRef<Self>, reason: ActorStopReason) -> Result<(), Infallible> {
        // After a failure it is started again with what it has.
        if matches!(reason, ActorStopReason::Normal)
            && let Some(sink) = self.sink.take()
            && let Err(reason) = sink.finish().await
        {
            self.tell(&reason);
        }
        Ok(())
    }
}

impl<S: Sink> Supervised for SinkActor<S> {
    async fn mend(&mut self) {
        if let Some(account) = self.writing.take() {
            self.ledger
                .frame_abandoned(account, &self.node, DropReason::Panicked);
        }
        // Half of what it wrote may be there.
        let failing = Failing {
            failures_in_a_row: FAILURES_IN_A_ROW,
            retry_at: Instant::now(),
            recovered: false,
        };
        self.failing.get_or_insert(failing);
    }

    async fn give_up(mut self) {
        while let Some((account, _)) = self.input.recv().await {
            let reason = match self.shutdown.is_aborting() {
                true => DropReason::ShuttingDown,
                false => DropReason::SinkFailed,
            };
            self.lose(account, reason);
        }
    }
}

impl<S: Sink> fmt::Debug for SinkActor<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SinkActor")
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

/// The JSON of one result, as JSON lines and zenoh carry it.
fn frame_line(sample: &Sample<Detected>, with_latency: bool) -> FrameLine<'_> {
    FrameLine {
        stream: &sample.meta.stream,
        seq: sample.meta.id.seq,
        stamp_ns: sample.meta.stamp_ns,
        frame_id: &sample.meta.frame_id,
        found: (&sample.payload.detections).into(),
        latency_us: with_latency.then_some(&sample.meta.times),
        dropped_before: sample.payload.dropped_before,
        // Models without states have no past to lose, so of theirs only restarts are told.
        fresh: sample.meta.fresh && (sample.meta.freshness.is_some() || sample.meta.device_restarts > 0),
        missing: sample.message.missing().map(|topic| &**topic).collect(),
    }
}
