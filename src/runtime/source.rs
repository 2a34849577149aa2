//! Sources: play the streams of a bag, or of a drive that is simulated meanwhile.
//!
//! A thread is one message ahead and keeps the schedule; the actor takes up what it hands over, opens the frame's
//! account and sends it on. Transforms go to the poses that the detectors share. A frame that has to wait for a full channel is late against its
//! schedule, and is measured so.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use kameo::actor::{ActorRef, WeakActorRef};
use kameo::error::ActorStopReason;
use kameo::mailbox::{MailboxReceiver, Signal};

use super::RuntimeError;
use super::channel::Sender;
use super::control::{Board, OutletStreams, Places, StampEvent, StreamFlow, StreamSwitch};
use super::frame::{FrameMeta, Message, Sample};
use super::health::{Reason, ReasonKind};
pub(crate) use super::playback::{Feed, Place, Playback};
use super::playback::{Handover, Schedule};
use super::poses::{Poses, TF_STATIC_TOPIC};
use super::ros::Audience;
use super::shutdown::Shutdown;
use super::supervision::{ActorWatch, SourcesOver, Supervised};
use super::topics::PlayedTopic;
use super::turns::{Release, Turn};
use crate::io::cdr::CdrReader;
use crate::io::messages::{HeaderMsg, TF_TYPE};
use crate::perception::Sensor;
use crate::pipeline::Rate;
use crate::telemetry::{DropReason, FrameId, FrameTimes, Ledger, MonotonicClock, Stage};

/// Troubles of a bag that are told one by one; a bag that is broken throughout has more than anyone reads.
const TROUBLES_TOLD: u64 = 5;

/// One receiver of a source's frames.
#[derive(Debug)]
pub(crate) struct Outlet {
    /// Channel to the receiver's first actor.
    pub channel: Sender<Sample<()>>,
    /// Streams of the receiver, by topic: those without a place are accounted for as such.
    pub streams: Arc<OutletStreams>,
    /// Places of the receiver.
    pub places: Arc<Places>,
    /// Name of the receiving node.
    pub node: Arc<str>,
    /// Who would see the results, where frames are skipped while nobody does.
    pub audience: Option<Arc<Audience>>,
    /// It looks transforms up that a deterministic run has to keep for it.
    pub keeps_transforms: bool,
}

/// A receiver of a source's frames, as those see it who add streams.
#[derive(Debug, Clone)]
pub(crate) struct OutletLink {
    /// Name of the receiving node.
    pub detector: Arc<str>,
    /// Its streams.
    pub streams: Arc<OutletStreams>,
    /// What it takes.
    pub sensor: Sensor,
    /// What goes before a topic in a stream's name, so that streams can be told apart.
    pub prefix: String,
    /// Whether messages come at times of their own.
    pub timed: bool,
}

impl OutletLink {
    /// A new stream of a topic.
    pub(crate) fn stream(&self, source: &Arc<str>, topic: &Arc<str>, ledger: &Ledger) -> Arc<StreamSwitch> {
        let name = format!("{}{topic}", self.prefix);
        let id = ledger.streams().register(&name);
        let parts = [Arc::clone(source), Arc::clone(&self.detector), Arc::clone(topic)];
        Arc::new(StreamSwitch::new((id, name.into()), parts, self.timed))
    }
}

/// Decides which topics a source plays.
pub(crate) trait TopicDesk: fmt::Debug + Send + Sync {
    /// The topic of that name, if the source can play it for detectors that take these.
    ///
    /// # Errors
    /// What is in the way, in words.
    fn find(&self, topic: &str, sensors: &[Sensor]) -> Result<PlayedTopic, String>;

    /// Plays it from now on.
    fn add(&self, topic: PlayedTopic);

    /// Plays it no more.
    fn remove(&self, topic: &str);
}

/// The actor.
pub(crate) struct Source {
    node: Arc<str>,
    /// Away while it plays.
    feed: Option<Box<dyn Feed>>,
    player: Option<Player>,
    rate: Rate,
    schedule: Schedule,
    outlets: Vec<Outlet>,
    ledger: Arc<Ledger>,
    clock: MonotonicClock,
    shutdown: Shutdown,
    watch: ActorWatch,
    board: Arc<Board>,
    over: Arc<SourcesOver>,
    /// The message that is sent on.
    releasing: Option<Releasing>,
    /// Places at which the bag could not be read.
    troubles: u64,
    progress: Arc<dyn Fn() + Send + Sync>,
    poses: Option<Arc<Poses>>,
    /// Its place in the order of a deterministic run.
    order: Option<Place>,
    deadline_ns: Option<u64>,
}

/// A thread that plays.
struct Player {
    messages: flume::Receiver<Handover>,
    /// Gives the feed back, and what it said if it panicked.
    thread: tokio::task::JoinHandle<(Box<dyn Feed>, Option<String>)>,
}

/// How far a message has got.
#[derive(Debug)]
struct Releasing {
    topic: Arc<str>,
    /// The outlet that it is sent to, or will be sent to next.
    outlet: usize,
    /// Its frame there, once it is open.
    frame: Option<FrameId>,
}

/// Why a source cannot go on as it is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    /// The thread that plays panicked.
    #[error("{0}")]
    Feed(String),
    /// The thread that plays is gone with what it played.
    #[error("its thread is gone")]
    Gone,
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
    /// Its place in the order of a deterministic run.
    pub order: Option<Place>,
    /// Its supervision.
    pub watch: ActorWatch,
    /// Told of streams that are rejected or whose clocks jump.
    pub board: Arc<Board>,
    /// Told when everything is played.
    pub over: Arc<SourcesOver>,
    /// From a frame's release until its result is due, in nanoseconds.
    pub deadline_ns: Option<u64>,
}

impl kameo::Actor for Source {
    type Args = Self;
    type Error = SourceError;

    async fn on_start(mut source: Self, _: ActorRef<Self>) -> Result<Self, SourceError> {
        if let Some(feed) = source.feed.take() {
            source.player = Some(source.play(feed));
        }
        Ok(source)
    }

    async fn next(
        &mut self,
        _: WeakActorRef<Self>,
        mailbox: &mut MailboxReceiver<Self>,
    ) -> Result<Option<Signal<Self>>, SourceError> {
        loop {
            if self.shutdown.is_draining() {
                return Ok(Some(Signal::Stop));
            }
            let Some(player) = &self.player else {
                return Err(SourceError::Gone);
            };
            let handed = tokio::select! {
                biased;
                signal = mailbox.recv() => return Ok(signal),
                () = self.shutdown.draining() => continue,
                handed = player.messages.recv_async() => handed,
            };
            match handed {
                Ok(Handover::Message {
                    message,
                    released_ns,
                    release,
                    handled,
                }) => {
                    self.release(message, released_ns, release.as_ref()).await;
                    drop(handled);
                }
                Ok(Handover::Lost { topic, count, reason }) => self.lost(&topic, count, reason),
                Ok(Handover::Damaged(reason)) => self.damaged(reason),
                Err(flume::RecvError::Disconnected) => return self.played().await,
            }
        }
    }

    async fn on_stop(&mut self, _: WeakActorRef<Self>, reason: ActorStopReason) -> Result<(), SourceError> {
        if !matches!(reason, ActorStopReason::Normal) {
            return Ok(());
        }
        self.over.add(&self.node);
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

impl Supervised for Source {
    async fn mend(&mut self) {
        let Some(Releasing { topic, outlet, frame }) = self.releasing.take() else {
            return;
        };
        if let Some(frame) = frame {
            self.ledger
                .frame_abandoned(frame, &self.node, DropReason::Panicked);
        }
        // The others did not see it either.
        let first = outlet + usize::from(frame.is_some());
        for outlet in self.outlets.iter().skip(first) {
            if let Some(stream) = outlet.streams.of(&topic) {
                self.ledger
                    .frames_lost(stream.id, 1, &self.node, DropReason::Panicked);
            }
        }
    }

    async fn give_up(self) {
        // The thread that plays finds that nobody takes its messages, and ends.
        self.over.add(&self.node);
    }
}

impl Source {
    /// A source that does not play yet.
    pub(crate) fn new(args: SourceArgs) -> Self {
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
            order,
            watch,
            board,
            over,
            deadline_ns,
        } = args;
        Self {
            node,
            feed: Some(feed),
            player: None,
            rate,
            schedule: Schedule::default(),
            outlets,
            ledger,
            clock,
            shutdown,
            watch,
            board,
            over,
            releasing: None,
            troubles: 0,
            progress,
            poses,
            order,
            deadline_ns,
        }
    }

    /// Has a thread play.
    fn play(&self, mut feed: Box<dyn Feed>) -> Player {
        // A rendezvous: the thread is one message ahead, no more.
        let (hand_over, messages) = flume::bounded(0);
        let playback = Playback {
            rate: self.rate,
            clock: self.clock,
            shutdown: self.shutdown.clone(),
            hand_over,
            schedule: Arc::clone(&self.schedule),
            watch: self.watch.clone(),
            order: self.order.clone(),
            ledger: Some(Arc::clone(&self.ledger)),
            handed: AtomicU64::default(),
            handled: Arc::default(),
        };
        let thread = tokio::task::spawn_blocking(move || {
            // A feed keeps count of what it has handed over, so it can go on after a panic anywhere in it.
            let played = catch_unwind(AssertUnwindSafe(|| feed.play(&playback)));
            drop(playback);
            let said = |panic: &(dyn Any + Send)| {
                let text = panic.downcast_ref::<&str>().map(ToString::to_string);
                text.or_else(|| panic.downcast_ref::<String>().cloned())
                    .unwrap_or_else(|| "the thread that plays panicked".to_owned())
            };
            (feed, played.err().map(|panic| said(&*panic)))
        });
        Player { messages, thread }
    }

    /// After the last message: whether it was the last one, or the thread panicked.
    async fn played(&mut self) -> Result<Option<Signal<Self>>, SourceError> {
        let Some(player) = self.player.take() else {
            return Err(SourceError::Gone);
        };
        match player.thread.await {
            Ok((_, None)) => Ok(Some(Signal::Stop)),
            Ok((feed, Some(said))) => {
                self.feed = Some(feed);
                Err(SourceError::Feed(said))
            }
            Err(_) => Err(SourceError::Gone),
        }
    }

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
            .any(|outlet| outlet.streams.of(topic).is_some())
        {
            let stream = self.ledger.streams().register(topic);
            self.ledger.frames_lost(stream, count, &self.node, reason);
        }
        for outlet in &self.outlets {
            if let Some(stream) = outlet.streams.of(topic) {
                self.ledger.frames_lost(stream.id, count, &self.node, reason);
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
    async fn release(&mut self, message: Message, released_ns: Option<u64>, turn: Option<&Release>) {
        let taken_ns = self.clock.now_ns();
        let message = Arc::new(message);
        if &*message.type_name == TF_TYPE {
            self.take_transforms(&message);
            return;
        }
        (self.progress)();
        for outlet in 0..self.outlets.len() {
            self.releasing = Some(Releasing {
                topic: Arc::clone(&message.topic),
                outlet,
                frame: None,
            });
            self.release_to(
                outlet,
                &message,
                (released_ns.unwrap_or(taken_ns), taken_ns),
                turn,
            )
            .await;
        }
        self.releasing = None;
        self.watch.pulse().frame_done();
    }

    /// Opens the frame's account for one receiver and sends it.
    async fn release_to(
        &mut self,
        outlet: usize,
        message: &Arc<Message>,
        (released_ns, taken_ns): (u64, u64),
        turn: Option<&Release>,
    ) {
        let receiver = outlet;
        let outlet = &self.outlets[outlet];
        let Some(stream) = outlet.streams.of(&message.topic) else {
            return;
        };
        stream.arrived(taken_ns);
        let holding = self.watch.begin();
        let id = self.ledger.frame_in(stream.id);
        let turn = turn.map_or_else(Turn::default, |release| release.open(id, receiver));
        if let Some(releasing) = &mut self.releasing {
            releasing.frame = Some(id);
        }
        self.watch.actor_meets_frame().await;
        if stream.flow() != StreamFlow::Flowing {
            self.ledger
                .frame_dropped(id, &self.node, DropReason::StreamPaused);
            return;
        }
        if !self.board.has_place(&outlet.places, &stream) {
            self.ledger
                .frame_dropped(id, &outlet.node, DropReason::StreamRejected);
            return;
        }
        let ignored = |audience: &Arc<Audience>| !audience.listens_to(&message.topic);
        if outlet.audience.as_ref().is_some_and(ignored) {
            self.ledger
                .frame_dropped(id, &outlet.node, DropReason::NoSubscriber);
            return;
        }
        let mut times = FrameTimes::new(released_ns);
        times.begin(Stage::Ingest, taken_ns);
        let header = match CdrReader::new(&message.data).and_then(|mut reader| HeaderMsg::read(&mut reader)) {
            Ok(header) => header,
            Err(error) => {
                tracing::debug!(source = %self.node, frame = %id, %error, "message without a header");
                self.ledger
                    .frame_dropped(id, &self.node, DropReason::DecodeFailed);
                return;
            }
        };
        let stamp_ns = header.stamp_ns();
        self.note_stamp(&stream, stamp_ns, message.log_time_ns);
        let poses = self.poses.as_ref().filter(|_| self.order.is_some());
        let meta = FrameMeta {
            id,
            stream: Arc::clone(&message.topic),
            stamp_ns,
            frame_id: header.frame_id.into(),
            times: {
                times.end(Stage::Ingest, self.clock.now_ns());
                times
            },
            deadline_ns: self.deadline_ns.map(|after| released_ns.saturating_add(after)),
            fresh: false,
            freshness: None,
            within_capacity: None,
            device_restarts: 0,
            turn,
            world_from_sensor: poses
                .and_then(|poses| poses.world_from(header.frame_id, stamp_ns, Duration::ZERO)),
            transforms: poses
                .filter(|_| outlet.keeps_transforms)
                .map(|poses| poses.shown()),
        };
        if let Some(trace) = self.ledger.trace() {
            trace.passed_last(&self.node, id, &meta.times);
        }
        let sample = Sample {
            meta,
            message: Arc::clone(message),
            payload: (),
        };
        // To wait for a full channel is not to stand still: whoever does stands after it.
        drop(holding);
        if let Some((lost, reason)) = outlet.channel.send(sample).await.lost() {
            self.ledger.frame_dropped(lost.meta.id, &outlet.node, reason);
        }
    }

    /// Says when the stamps of a stream jump, and when they are regular again.
    fn note_stamp(&self, stream: &StreamSwitch, stamp_ns: i64, received_ns: u64) {
        match stream.stamped(stamp_ns, received_ns) {
            Some(StampEvent::Jumped { from_ns, to_ns }) => self.board.raise(Reason::ClockJump {
                stream: stream.name.to_string(),
                from_ns,
                to_ns,
            }),
            Some(StampEvent::Regular) => self.board.clear(ReasonKind::ClockJump, &stream.name),
            None => {}
        }
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
