//! Sinks: where results leave.

mod json_lines;
mod outputs;
mod publisher;
mod recorder;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use kameo::actor::{ActorRef, WeakActorRef};
use kameo::error::Infallible;
use kameo::mailbox::{MailboxReceiver, Signal};

pub(crate) use json_lines::JsonLinesSink;
pub(crate) use outputs::check_outputs;
pub(crate) use publisher::PublisherSink;
pub(crate) use recorder::RecorderSink;

use super::RuntimeError;
use super::channel::Receiver;
use super::finish::SinkItem;
use super::frame::{Detected, Sample};
use super::shutdown::Shutdown;
use crate::telemetry::jsonl::FrameLine;
use crate::telemetry::{DropReason, Ledger};

/// A place that results go to.
pub(crate) trait Sink: Send + Sized + 'static {
    /// Whether results may still be written after one could not be.
    const GOES_ON: bool;

    /// Takes one result.
    ///
    /// # Errors
    /// What went wrong, in words; the result counts as dropped.
    fn write(&mut self, sample: &Arc<Sample<Detected>>) -> impl Future<Output = Result<(), String>> + Send;

    /// Ends the output properly.
    ///
    /// # Errors
    /// What went wrong, in words.
    fn finish(self) -> impl Future<Output = Result<(), String>> + Send;
}

/// A sink as an actor.
pub(crate) struct SinkActor<S: Sink> {
    node: String,
    /// Taken by the end.
    sink: Option<S>,
    input: Receiver<SinkItem>,
    ledger: Arc<Ledger>,
    shutdown: Shutdown,
    failed: bool,
}

impl<S: Sink> SinkActor<S> {
    /// A sink that is not started yet.
    pub(crate) fn new(
        node: &str,
        sink: S,
        input: Receiver<SinkItem>,
        ledger: Arc<Ledger>,
        shutdown: Shutdown,
    ) -> Self {
        Self {
            node: node.into(),
            sink: Some(sink),
            input,
            ledger,
            shutdown,
            failed: false,
        }
    }

    /// The first failure is the user's business; the ones after it are counted only.
    fn failure(&mut self, reason: String) {
        if !std::mem::replace(&mut self.failed, true) {
            tracing::error!(sink = self.node, %reason, "a sink failed; results for it are dropped");
            self.shutdown.note(RuntimeError::Sink {
                node: self.node.clone(),
                reason,
            });
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
            let (account, sample) = tokio::select! {
                biased;
                signal = mailbox.recv() => return Ok(signal),
                item = self.input.recv() => match item {
                    Some(item) => item,
                    None => return Ok(Some(Signal::Stop)),
                },
            };
            let Some(sink) = &mut self.sink else {
                return Ok(Some(Signal::Stop));
            };
            // The run is given up: what still waits here is dropped, so that a slow file cannot hold it.
            if self.shutdown.is_aborting() {
                self.ledger
                    .frame_dropped(account, &self.node, DropReason::ShuttingDown);
                continue;
            }
            if self.failed && !S::GOES_ON {
                self.ledger
                    .frame_dropped(account, &self.node, DropReason::SinkFailed);
                continue;
            }
            match sink.write(&sample).await {
                Ok(()) => {
                    self.ledger.frame_out(account);
                }
                Err(reason) => {
                    self.ledger
                        .frame_dropped(account, &self.node, DropReason::SinkFailed);
                    self.failure(reason);
                }
            }
        }
    }

    async fn on_stop(
        &mut self,
        _: WeakActorRef<Self>,
        _: kameo::error::ActorStopReason,
    ) -> Result<(), Infallible> {
        // Empty after a normal end; whatever else stopped this actor, no result goes unaccounted.
        while let Some((account, _)) = self.input.try_recv() {
            self.ledger
                .frame_dropped(account, &self.node, DropReason::ShuttingDown);
        }
        if let Some(sink) = self.sink.take()
            && let Err(reason) = sink.finish().await
        {
            self.failure(reason);
        }
        Ok(())
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
        fresh: sample.meta.fresh && sample.meta.device_restarts > 0,
        missing: sample.message.missing().map(|topic| &**topic).collect(),
    }
}
