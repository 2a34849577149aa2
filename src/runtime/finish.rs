//! The finish stage: decode the network's output, settle the frame, hand the result to all sinks.

use std::sync::{Arc, PoisonError, RwLock};

use super::channel::Sender;
use super::control::LiveParams;
use super::frame::{Detected, Inferred, Sample};
use super::meter::Meter;
use super::stage::StageLogic;
use super::turns::Turns;
use crate::outputs::Detections;
use crate::perception::HostModel;
use crate::telemetry::{DropReason, FrameId, Ledger, MonotonicClock, Stage, StreamId};

/// A result and its account at one sink.
pub(crate) type SinkItem = (FrameId, Arc<Sample<Detected>>);

/// One sink of a detector.
#[derive(Debug, Clone)]
pub(crate) struct SinkOutlet {
    /// Channel to the sink.
    pub channel: Sender<SinkItem>,
    /// The sink's account.
    pub account: StreamId,
    /// Name of the sink's node.
    pub node: String,
}

/// The sinks of a detector. May change while frames flow: a frame goes to those that there are when it is handed on.
#[derive(Debug, Default)]
pub(crate) struct SinkList(RwLock<Arc<[SinkOutlet]>>);

impl SinkList {
    /// These sinks.
    pub(crate) fn new(sinks: Vec<SinkOutlet>) -> Arc<Self> {
        Arc::new(Self(RwLock::new(sinks.into())))
    }

    /// The sinks that there are now.
    pub(crate) fn now(&self) -> Arc<[SinkOutlet]> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a sink.
    pub(crate) fn add(&self, sink: SinkOutlet) {
        let mut sinks = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *sinks = sinks.iter().cloned().chain([sink]).collect();
    }

    /// Takes the sink of a node away: it gets no more results.
    pub(crate) fn remove(&self, node: &str) {
        let mut sinks = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *sinks = sinks.iter().filter(|sink| sink.node != node).cloned().collect();
    }
}

/// The stage of one detector.
#[derive(Debug)]
pub(crate) struct Finish {
    /// Name of the actor.
    pub name: String,
    /// Host half of the model.
    pub model: Arc<dyn HostModel>,
    /// Floats of one network output.
    pub output_len: usize,
    /// Where results go.
    pub sinks: Arc<SinkList>,
    /// Parameters of the model that were set while the run lasts.
    pub params: Arc<LiveParams>,
    /// Accounts of frames.
    pub ledger: Arc<Ledger>,
    /// Accounts of sinks.
    pub sink_ledger: Arc<Ledger>,
    /// Measures the frame if no publisher does.
    pub meter: Option<Arc<Meter>>,
    /// Clock of the run.
    pub clock: MonotonicClock,
    /// The order of a deterministic run.
    pub turns: Option<Arc<Turns>>,
}

impl StageLogic for Finish {
    type In = Inferred;
    type Out = Detections;
    type Permit = ();

    fn name(&self) -> &str {
        &self.name
    }

    async fn admit(&self) -> Option<()> {
        Some(())
    }

    fn work(&self, sample: Sample<Inferred>, (): ()) -> Result<Sample<Detections>, DropReason> {
        let (
            mut sample,
            Inferred {
                output,
                placement,
                admitted,
            },
        ) = sample.replace(());
        sample.meta.times.begin(Stage::Finish, self.clock.now_ns());
        let bytes = output.bytes().map_err(|_| DropReason::DeviceError)?;
        let values: &[f32] = bytemuck::cast_slice(&bytes[..self.output_len * 4]);
        let detections = self
            .model
            .finish_with(values, &placement, &sample.meta.frame_id, &self.params.current())
            .map_err(|error| {
                tracing::error!(actor = self.name, frame = %sample.meta.id, %error, "network output refused");
                DropReason::DeviceError
            })?;
        drop((output, admitted));
        sample.meta.times.end(Stage::Finish, self.clock.now_ns());
        Ok(sample.replace(detections).0)
    }

    async fn emit(&self, sample: Sample<Detections>) {
        let dropped_before = self.ledger.frame_out(sample.meta.id);
        let (mut sample, detections) = sample.replace(());
        sample.meta.times.begin(Stage::Publish, self.clock.now_ns());
        let sample = Arc::new(
            sample
                .replace(Detected {
                    detections,
                    dropped_before,
                })
                .0,
        );
        for sink in self.sinks.now().iter() {
            let account = self.sink_ledger.frame_in(sink.account);
            if let Some(((lost, _), reason)) = sink.channel.send((account, Arc::clone(&sample))).await.lost()
            {
                self.sink_ledger.frame_dropped(lost, &sink.node, reason);
            }
        }
        if let Some(turns) = &self.turns {
            turns.settle(sample.meta.id);
        }
        if let Some(meter) = &self.meter {
            meter.published(&sample);
        }
    }
}
