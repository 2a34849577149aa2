//! A hand on a run: what it is doing, and changes while frames flow.
//!
//! - `board`: where the parts of a run tell of themselves
//! - `pulse`, `streams`, `params`: actors, streams and parameters, each shared with the part that it is of
//! - `status`: what is told of them

mod board;
mod error;
mod params;
mod pulse;
mod reload;
mod status;
mod streams;

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::watch;

pub(crate) use board::{Board, DetectorLink, RunLink, SourceLink};
pub use error::ControlError;
pub(crate) use params::LiveParams;
pub(crate) use pulse::{Holding, Pulse};
pub use reload::{FailedStep, ReloadReport};
pub use status::{DeviceStatus, PipelineStatus, QueueStatus, RunPhase, StageStatus, StreamStatus};
pub use streams::StreamFlow;
pub(crate) use streams::{OutletStreams, Places, StampEvent, StreamSwitch};

use super::health::{HealthReport, PipelineState, ReasonKind};
use super::owner::ForgetStream;

/// Longest time that frames of a drained stream may take to come out.
const DRAIN_DEADLINE: Duration = Duration::from_secs(30);

/// Pause between two looks at whether a stream's frames have come out.
const DRAIN_POLL: Duration = Duration::from_millis(2);

/// A hand on one run: made before it, given to it in [`super::RunOptions::control`], and kept by whoever watches or
/// changes it. Clones are the same hand.
#[derive(Debug, Clone, Default)]
pub struct Control {
    board: Arc<Board>,
}

impl Control {
    /// What the run reports to.
    pub(crate) fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// The run as it is now. Before it has begun, it is starting and has no parts.
    #[must_use]
    pub fn status(&self) -> PipelineStatus {
        self.board.status()
    }

    /// The state and the reasons, now and at every change.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<HealthReport> {
        self.board.subscribe()
    }

    /// Waits until the state is one of these; the report with which it was.
    ///
    /// # Errors
    /// [`ControlError::NotRunning`] if the run ends before.
    pub async fn wait_for(&self, states: &[PipelineState]) -> Result<HealthReport, ControlError> {
        let mut told = self.subscribe();
        loop {
            let report = told.borrow_and_update().clone();
            if states.contains(&report.state) {
                return Ok(report);
            }
            if self.board.is_over() {
                return Err(ControlError::NotRunning);
            }
            told.changed().await.map_err(|_| ControlError::NotRunning)?;
        }
    }

    /// Sets a parameter of a detector's model for all frames from the next one on that leaves the device.
    ///
    /// # Errors
    /// [`ControlError::Node`], [`ControlError::Param`]; nothing is changed.
    pub async fn set_param(&self, node: &str, name: &str, value: Value) -> Result<(), ControlError> {
        self.changeable()?;
        let known = |detector: &DetectorLink| detector.node.to_string();
        let detector = self.board.detector(node).ok_or_else(|| ControlError::Node {
            kind: "detector",
            name: node.to_owned(),
            known: self.board.detectors().iter().map(known).collect(),
        })?;
        detector.params.set(name, value)?;
        tracing::info!(detector = node, parameter = name, "parameter set");
        Ok(())
    }

    /// Holds a stream back: its frames are dropped and counted as `stream_paused` until it is resumed.
    ///
    /// # Errors
    /// [`ControlError::Stream`], [`ControlError::Ambiguous`], [`ControlError::Flow`].
    pub async fn pause(&self, stream: &str) -> Result<(), ControlError> {
        let stream = self.stream(stream)?;
        match stream.flow() {
            StreamFlow::Flowing => stream.set_flow(StreamFlow::Paused),
            StreamFlow::Paused => return Ok(()),
            StreamFlow::Draining | StreamFlow::Removed => return Err(refused(&stream, "is being drained")),
        }
        self.board.clear(ReasonKind::SourceSilent, &stream.name);
        tracing::info!(stream = %stream.name, "paused");
        Ok(())
    }

    /// Lets a stream that was paused flow again.
    ///
    /// # Errors
    /// As [`Self::pause`].
    pub async fn resume(&self, stream: &str) -> Result<(), ControlError> {
        let stream = self.stream(stream)?;
        match stream.flow() {
            StreamFlow::Paused => {
                stream.arrived(self.board.now_ns());
                stream.set_flow(StreamFlow::Flowing);
                tracing::info!(stream = %stream.name, "resumed");
                Ok(())
            }
            StreamFlow::Flowing => Ok(()),
            StreamFlow::Draining | StreamFlow::Removed => Err(refused(&stream, "is being drained")),
        }
    }

    /// Takes no new frames of a stream, waits until those under way have come out, has the model forget what it kept of
    /// the stream, and gives its place there back. It stays in the accounts. Frames that come meanwhile are counted as
    /// `stream_paused`.
    ///
    /// # Errors
    /// As [`Self::pause`], and [`ControlError::StillUnderWay`].
    pub async fn drain(&self, stream: &str) -> Result<(), ControlError> {
        let stream = self.stream(stream)?;
        stream.set_flow(StreamFlow::Draining);
        let run = self.board.run().ok_or(ControlError::NotRunning)?;
        let since = Instant::now();
        loop {
            let left = run.ledger.frames_open(stream.id);
            if left == 0 {
                break;
            }
            if since.elapsed() > DRAIN_DEADLINE {
                return Err(ControlError::StillUnderWay {
                    stream: stream.name.to_string(),
                    left,
                    waited_s: DRAIN_DEADLINE.as_secs(),
                });
            }
            tokio::time::sleep(DRAIN_POLL).await;
        }
        stream.set_flow(StreamFlow::Removed);
        self.leave_detector(&stream).await;
        self.board.remove_stream(&stream);
        tracing::info!(stream = %stream.name, "drained");
        Ok(())
    }

    /// Gives up what a detector keeps of a stream without frames under way.
    async fn leave_detector(&self, stream: &StreamSwitch) {
        // A node that makes sets or clouds keeps nothing of it.
        let Some(detector) = self.board.detector(&stream.detector) else {
            return;
        };
        detector.model.forget(&stream.name);
        if let Some(owner) = self.board.owner() {
            let forget = ForgetStream {
                detector: Arc::clone(&stream.detector),
                stream: stream.id,
            };
            // An error says that the owner has ended, and the states with it.
            let _ = owner.ask(forget).await;
        }
        // Last, so that whoever gets the place finds a free bank.
        detector.places.leave(stream.id);
    }

    /// Drains every stream of a source's topic, and plays the topic no more.
    ///
    /// # Errors
    /// As [`Self::drain`], and [`ControlError::Node`].
    pub async fn remove_stream(&self, source: &str, topic: &str) -> Result<(), ControlError> {
        let link = self.source(source)?;
        let streams = self.board.streams();
        let own = |stream: &&Arc<StreamSwitch>| *stream.source == *link.node && *stream.topic == *topic;
        let names: Vec<Arc<str>> = streams.iter().filter(own).map(|s| Arc::clone(&s.name)).collect();
        if names.is_empty() {
            return Err(self.unknown(topic));
        }
        for name in names {
            self.drain(&name).await?;
        }
        link.desk.remove(topic);
        Ok(())
    }

    /// Plays one more topic of a source: one that its bag has, or that is subscribed to. It becomes a stream of every
    /// detector behind the source that takes such data. A bag is played on from where it is.
    ///
    /// # Errors
    /// [`ControlError::Node`], [`ControlError::Topic`], [`ControlError::Flow`].
    pub async fn add_stream(&self, source: &str, topic: &str) -> Result<(), ControlError> {
        let link = self.source(source)?;
        let refuse = |reason: String| ControlError::Topic {
            source_node: source.to_owned(),
            topic: topic.to_owned(),
            reason,
        };
        let sensors = link
            .outlets
            .iter()
            .map(|outlet| outlet.sensor)
            .collect::<Vec<_>>();
        let found = link.desk.find(topic, &sensors).map_err(refuse)?;
        let known = self.board.streams();
        let playing =
            |stream: &Arc<StreamSwitch>| *stream.source == *link.node && *stream.topic == *found.name;
        if let Some(stream) = known.iter().find(|stream| playing(stream)) {
            return Err(refused(stream, "is played already"));
        }
        let run = self.board.lasting().ok_or(ControlError::NotRunning)?;
        for outlet in link.outlets.iter().filter(|outlet| outlet.sensor == found.sensor) {
            let stream = outlet.stream(&link.node, &found.name, &run.ledger);
            stream.arrived(self.board.now_ns());
            outlet.streams.add(Arc::clone(&stream));
            self.board.add_stream(&stream);
        }
        link.desk.add(found);
        tracing::info!(source, topic, "stream added");
        Ok(())
    }

    /// Whether a topic of a source is played.
    fn plays(&self, source: &str, topic: &str) -> bool {
        let streams = self.board.streams();
        streams
            .iter()
            .any(|stream| *stream.source == *source && *stream.topic == *topic)
    }

    /// The stream of this name, or the only one of this topic.
    fn stream(&self, name: &str) -> Result<Arc<StreamSwitch>, ControlError> {
        self.changeable()?;
        let streams = self.board.streams();
        if let Some(stream) = streams.iter().find(|stream| *stream.name == *name) {
            return Ok(Arc::clone(stream));
        }
        let of_topic: Vec<_> = streams.iter().filter(|stream| *stream.topic == *name).collect();
        match of_topic[..] {
            [] => Err(self.unknown(name)),
            [only] => Ok(Arc::clone(only)),
            _ => Err(ControlError::Ambiguous {
                name: name.to_owned(),
                streams: of_topic.iter().map(|stream| stream.name.to_string()).collect(),
            }),
        }
    }

    fn unknown(&self, name: &str) -> ControlError {
        ControlError::Stream {
            name: name.to_owned(),
            known: self.board.streams().iter().map(|s| s.name.to_string()).collect(),
        }
    }

    fn source(&self, name: &str) -> Result<SourceLink, ControlError> {
        self.changeable()?;
        let sources = self.board.sources();
        let found = sources.iter().find(|source| *source.node == *name);
        found.cloned().ok_or_else(|| ControlError::Node {
            kind: "source",
            name: name.to_owned(),
            known: sources.iter().map(|source| source.node.to_string()).collect(),
        })
    }

    fn changeable(&self) -> Result<(), ControlError> {
        match self.board.lasting() {
            None => Err(ControlError::NotRunning),
            Some(run) if run.lossless => Err(ControlError::Deterministic),
            Some(_) => Ok(()),
        }
    }
}

fn refused(stream: &StreamSwitch, reason: &str) -> ControlError {
    ControlError::Flow {
        stream: stream.name.to_string(),
        reason: reason.to_owned(),
    }
}
