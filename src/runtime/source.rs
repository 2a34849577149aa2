//! Sources: play the streams of a bag, or of a drive that is simulated meanwhile.
//!
//! A thread is one message ahead and keeps the schedule; the actor takes up what it hands over, opens the frame's
//! account and sends it on. Transforms go to the poses that the detectors share. A frame that has to wait for a full channel is late against its
//! schedule, and is measured so.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kameo::actor::{ActorRef, WeakActorRef};
use kameo::error::Infallible;
use kameo::mailbox::{MailboxReceiver, Signal};

use super::RuntimeError;
use super::channel::Sender;
use super::frame::{FrameMeta, Message, Sample};
use super::poses::{Poses, TF_STATIC_TOPIC};
use super::ros::Audience;
use super::shutdown::Shutdown;
use crate::io::bag::{Bag, BagMessage};
use crate::io::cdr::CdrReader;
use crate::io::messages::{HeaderMsg, TF_TYPE};
use crate::pipeline::Rate;
use crate::telemetry::{DropReason, FrameTimes, Ledger, MonotonicClock, Stage, StreamId};

/// Longest sleep between two looks at whether the run is over.
const NAP: Duration = Duration::from_millis(50);

/// Troubles of a bag that are told one by one; a bag that is broken throughout has more than anyone reads.
const TROUBLES_TOLD: u64 = 5;

/// One receiver of a source's frames.
#[derive(Debug)]
pub(crate) struct Outlet {
    /// Channel to the receiver's first actor.
    pub channel: Sender<Sample<()>>,
    /// Streams of the receiver, by topic: rejected ones are accounted for as such.
    pub streams: HashMap<Arc<str>, StreamId>,
    /// Topics that the receiver has no room for.
    pub rejected: Vec<Arc<str>>,
    /// Name of the receiving node.
    pub node: Arc<str>,
    /// Who would see the results, where frames are skipped while nobody does.
    pub audience: Option<Arc<Audience>>,
}

/// What a source plays.
pub(crate) trait Feed: Send {
    /// Hands over every message in its turn, until there is none left or nobody takes them any more.
    fn play(self: Box<Self>, stage: &Playback);
}

/// Where a feed hands over, and when.
pub(crate) struct Playback {
    rate: Rate,
    clock: MonotonicClock,
    shutdown: Shutdown,
    hand_over: flume::Sender<Handover>,
    schedule: Cell<Option<(Instant, u64)>>,
}

/// What the feed's thread hands over.
#[derive(Debug)]
enum Handover {
    /// A message and the time at which it should enter the pipeline.
    Message {
        message: Message,
        released_ns: Option<u64>,
    },
    /// Messages that never got here.
    Lost {
        topic: Arc<str>,
        count: u64,
        reason: DropReason,
    },
    /// The bag is damaged from here on.
    Damaged(String),
}

/// The actor.
pub(crate) struct Source {
    node: Arc<str>,
    messages: flume::Receiver<Handover>,
    outlets: Vec<Outlet>,
    ledger: Arc<Ledger>,
    clock: MonotonicClock,
    shutdown: Shutdown,
    /// Places at which the bag could not be read.
    troubles: u64,
    progress: Arc<dyn Fn() + Send + Sync>,
    poses: Option<Arc<Poses>>,
}

/// What a source is made of.
pub(crate) struct SourceArgs {
    /// Name of the node.
    pub node: Arc<str>,
    /// What it plays.
    pub feed: Box<dyn Feed>,
    /// Speed.
    pub rate: Rate,
    /// Receivers.
    pub outlets: Vec<Outlet>,
    /// Accounts.
    pub ledger: Arc<Ledger>,
    /// Clock of the run.
    pub clock: MonotonicClock,
    /// End of the run.
    pub shutdown: Shutdown,
    /// Called once a frame.
    pub progress: Arc<dyn Fn() + Send + Sync>,
    /// Where transforms go; `None` where no detector asks for poses.
    pub poses: Option<Arc<Poses>>,
}

impl kameo::Actor for Source {
    type Args = SourceArgs;
    type Error = Infallible;

    async fn on_start(args: SourceArgs, _: ActorRef<Self>) -> Result<Self, Infallible> {
        let SourceArgs {
            node,
            feed,
            rate,
            outlets,
            ledger,
            clock,
            shutdown,
            progress,
            poses,
        } = args;
        // A rendezvous: the thread is one message ahead, no more.
        let (hand_over, messages) = flume::bounded(0);
        let playback = Playback {
            rate,
            clock,
            shutdown: shutdown.clone(),
            hand_over,
            schedule: Cell::new(None),
        };
        tokio::task::spawn_blocking(move || feed.play(&playback));
        Ok(Self {
            node,
            messages,
            outlets,
            ledger,
            clock,
            shutdown,
            troubles: 0,
            progress,
            poses,
        })
    }

    async fn next(
        &mut self,
        _: WeakActorRef<Self>,
        mailbox: &mut MailboxReceiver<Self>,
    ) -> Result<Option<Signal<Self>>, Infallible> {
        loop {
            if self.shutdown.is_draining() {
                return Ok(Some(Signal::Stop));
            }
            tokio::select! {
                biased;
                signal = mailbox.recv() => return Ok(signal),
                () = self.shutdown.draining() => {}
                handed = self.messages.recv_async() => match handed {
                    Ok(Handover::Message { message, released_ns }) => {
                        self.release(message, released_ns).await;
                    }
                    Ok(Handover::Lost { topic, count, reason }) => self.lost(&topic, count, reason),
                    Ok(Handover::Damaged(reason)) => self.damaged(reason),
                    Err(flume::RecvError::Disconnected) => return Ok(Some(Signal::Stop)),
                },
            }
        }
    }

    async fn on_stop(
        &mut self,
        _: WeakActorRef<Self>,
        _: kameo::error::ActorStopReason,
    ) -> Result<(), Infallible> {
        if self.troubles > TROUBLES_TOLD {
            self.shutdown.note(RuntimeError::Source {
                node: self.node.to_string(),
                reason: format!(
                    "{} more places of the bag cannot be read",
                    self.troubles - TROUBLES_TOLD
                ),
            });
        }
        Ok(())
    }
}

impl Source {
    /// Keeps what the bag turned out to lack for the end of the run.
    fn damaged(&mut self, reason: String) {
        self.troubles += 1;
        tracing::debug!(source = %self.node, reason, "the bag cannot be read here");
        if self.troubles <= TROUBLES_TOLD {
            self.shutdown.note(RuntimeError::Source {
                node: self.node.to_string(),
                reason,
            });
        }
    }

    /// Counts messages that never got here, those of a topic without a stream under its own name.
    fn lost(&self, topic: &Arc<str>, count: u64, reason: DropReason) {
        if !self
            .outlets
            .iter()
            .any(|outlet| outlet.streams.contains_key(topic))
        {
            let stream = self.ledger.streams().register(topic);
            self.ledger.frames_lost(stream, count, &self.node, reason);
        }
        for outlet in &self.outlets {
            if let Some(&stream) = outlet.streams.get(topic) {
                self.ledger.frames_lost(stream, count, &self.node, reason);
            }
        }
    }

    fn take_transforms(&self, message: &Message) {
        let Some(poses) = &self.poses else { return };
        if let Err(error) = poses.take(&message.data, &*message.topic == TF_STATIC_TOPIC) {
            tracing::debug!(source = %self.node, topic = %message.topic, %error, "transforms that cannot be read");
        }
    }

    /// Opens the frame's account for each receiver and sends it.
    async fn release(&self, message: Message, released_ns: Option<u64>) {
        let taken_ns = self.clock.now_ns();
        let message = Arc::new(message);
        if &*message.type_name == TF_TYPE {
            self.take_transforms(&message);
            return;
        }
        (self.progress)();
        for outlet in &self.outlets {
            let Some(&stream) = outlet.streams.get(&message.topic) else {
                continue;
            };
            let id = self.ledger.frame_in(stream);
            if outlet.rejected.contains(&message.topic) {
                self.ledger
                    .frame_dropped(id, &outlet.node, DropReason::StreamRejected);
                continue;
            }
            let ignored = |audience: &Arc<Audience>| !audience.listens_to(&message.topic);
            if outlet.audience.as_ref().is_some_and(ignored) {
                self.ledger
                    .frame_dropped(id, &outlet.node, DropReason::NoSubscriber);
                continue;
            }
            let mut times = FrameTimes::new(released_ns.unwrap_or(taken_ns));
            times.begin(Stage::Ingest, taken_ns);
            let header =
                match CdrReader::new(&message.data).and_then(|mut reader| HeaderMsg::read(&mut reader)) {
                    Ok(header) => header,
                    Err(error) => {
                        tracing::debug!(source = %self.node, frame = %id, %error, "message without a header");
                        self.ledger
                            .frame_dropped(id, &self.node, DropReason::DecodeFailed);
                        continue;
                    }
                };
            let meta = FrameMeta {
                id,
                stream: Arc::clone(&message.topic),
                stamp_ns: header.stamp_ns(),
                frame_id: header.frame_id.into(),
                times: {
                    times.end(Stage::Ingest, self.clock.now_ns());
                    times
                },
                fresh: false,
                within_capacity: None,
                device_restarts: 0,
            };
            let sample = Sample {
                meta,
                message: Arc::clone(&message),
                payload: (),
            };
            if let Some((lost, reason)) = outlet.channel.send(sample).await.lost() {
                self.ledger.frame_dropped(lost.meta.id, &outlet.node, reason);
            }
        }
    }
}

impl Playback {
    /// Hands a message over when it is due; `false` if nobody takes it any more.
    pub(crate) fn hand_over(&self, message: Message) -> bool {
        let released_ns = match self.rate {
            Rate::Max => None,
            Rate::Times(speed) => {
                let schedule = self.schedule.get();
                let (start, first_ns) = schedule.unwrap_or((Instant::now(), message.log_time_ns));
                self.schedule.set(Some((start, first_ns)));
                let offset_ns = message.log_time_ns.saturating_sub(first_ns) as f64 / speed;
                let due = start + Duration::from_nanos(offset_ns as u64);
                if !sleep_until(due, &self.shutdown) {
                    return false;
                }
                Some(self.clock.at_ns(due))
            }
        };
        let message = Handover::Message { message, released_ns };
        self.hand_over.send(message).is_ok()
    }

    /// Hands a message over that came just now; `false` if nobody takes it any more.
    pub(crate) fn hand_over_live(&self, message: Message, arrived: Instant) -> bool {
        let released_ns = Some(self.clock.at_ns(arrived));
        self.hand_over
            .send(Handover::Message { message, released_ns })
            .is_ok()
    }

    /// Tells of messages that never got here; `false` if nobody counts them any more.
    pub(crate) fn lost(&self, topic: &Arc<str>, count: u64, reason: DropReason) -> bool {
        let topic = Arc::clone(topic);
        count == 0
            || self
                .hand_over
                .send(Handover::Lost { topic, count, reason })
                .is_ok()
    }

    /// Whether the run is over.
    pub(crate) fn is_over(&self) -> bool {
        self.shutdown.is_draining() || self.hand_over.is_disconnected()
    }

    /// Tells that something cannot be read.
    pub(crate) fn damaged(&self, reason: String) {
        // The receiver is gone only if the run is over.
        let _ = self.hand_over.send(Handover::Damaged(reason));
    }
}

/// A bag, and the topics of it to play.
pub(crate) struct BagFeed {
    /// The bag.
    pub bag: Bag,
    /// Topics that are played.
    pub topics: Vec<Arc<str>>,
}

impl Feed for BagFeed {
    fn play(self: Box<Self>, stage: &Playback) {
        let names: Vec<&str> = self.topics.iter().map(|topic| &**topic).collect();
        let messages = match self.bag.messages(&names) {
            Ok(messages) => messages,
            Err(error) => return stage.damaged(error.to_string()),
        };
        for message in messages {
            match message {
                Ok(message) => {
                    let BagMessage {
                        topic,
                        type_name,
                        log_time_ns,
                        data,
                        ..
                    } = message;
                    let message = Message {
                        topic,
                        type_name,
                        log_time_ns,
                        data,
                        beside: Vec::new(),
                        parts: Vec::new(),
                    };
                    if !stage.hand_over(message) {
                        return;
                    }
                }
                Err(error) => stage.damaged(error.to_string()),
            }
        }
    }
}

/// Sleeps until `due`; `false` if the run ended meanwhile.
fn sleep_until(due: Instant, shutdown: &Shutdown) -> bool {
    loop {
        if shutdown.is_draining() {
            return false;
        }
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(NAP));
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for SourceArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceArgs")
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}
