//! The actor that puts sets together.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kameo::actor::{ActorRef, WeakActorRef};
use kameo::error::Infallible;
use kameo::mailbox::{MailboxReceiver, Signal};
use metrics::Counter;

use super::matcher::{MatchedSet, Matcher, Outcome, Unused};
use super::waiting::Waiting;
use crate::io::tf::TfBuffer;
use crate::runtime::channel::{Receiver, Sender};
use crate::runtime::control::{Board, Places, StreamFlow, StreamSwitch};
use crate::runtime::frame::{FrameMeta, Message, Part, SET_TYPE, Sample};
use crate::runtime::ros::Audience;
use crate::runtime::shutdown::Shutdown;
use crate::runtime::supervision::{ActorWatch, Supervised};
use crate::runtime::turns::{LastTurn, Turn, Turns};
use crate::telemetry::{DropReason, FrameId, Ledger, MonotonicClock, Stage};

/// One receiver of sets, or of the clouds made of them.
#[derive(Debug)]
pub(super) struct SetOutlet {
    /// Channel to the receiver's first actor.
    pub(super) channel: Sender<Sample<()>>,
    /// The stream of what goes there.
    pub(super) stream: Arc<StreamSwitch>,
    /// Places of the receiver's model, where it is a detector.
    pub(super) places: Option<Arc<Places>>,
    /// Told of a stream that is rejected.
    pub(super) board: Arc<Board>,
    /// Who would see the results, where frames are skipped while nobody does.
    pub(super) audience: Option<Arc<Audience>>,
}

impl SetOutlet {
    /// Opens a frame's account for this receiver, and sends it, unless the stream was drained. `turn` is its place in the
    /// order of the run.
    pub(super) async fn send(
        &self,
        ledger: &Ledger,
        (turns, turn): (Option<&Arc<Turns>>, Turn),
        meta: &FrameMeta,
        message: &Arc<Message>,
    ) {
        if self.stream.flow() == StreamFlow::Removed {
            return;
        }
        self.stream.arrived(self.board.now_ns());
        let node = &self.stream.detector;
        let id = ledger.frame_in(self.stream.id);
        if let Some(turns) = turns {
            turns.begin(id, turn);
        }
        // Asked once the account is open, so that whoever drains the stream sees the frame or stops it here.
        if self.stream.flow() != StreamFlow::Flowing {
            return ledger.frame_dropped(id, &self.stream.source, DropReason::StreamPaused);
        }
        let placed = |places: &Arc<Places>| self.board.has_place(places, &self.stream);
        if !self.places.as_ref().is_none_or(placed) {
            return ledger.frame_dropped(id, node, DropReason::StreamRejected);
        }
        let ignored = |audience: &Arc<Audience>| !audience.listens_to(&message.topic);
        if self.audience.as_ref().is_some_and(ignored) {
            return ledger.frame_dropped(id, node, DropReason::NoSubscriber);
        }
        if let Some(trace) = ledger.trace() {
            trace.passed_last(&self.stream.source, id, &meta.times);
        }
        let sample = Sample {
            meta: FrameMeta {
                id,
                turn,
                ..meta.clone()
            },
            message: Arc::clone(message),
            payload: (),
        };
        if let Some((lost, reason)) = self.channel.send(sample).await.lost() {
            ledger.frame_dropped(lost.meta.id, node, reason);
        }
    }
}

/// A message of a member, shared by the sets that have it.
type Item = Arc<Sample<()>>;

/// The actor of one node.
pub(super) struct Synchroniser {
    /// Name of the node.
    pub(super) name: Arc<str>,
    /// Topics of the members, in order.
    pub(super) members: Vec<Arc<str>>,
    /// The member whose message makes a set, where one does.
    pub(super) reference: Option<usize>,
    pub(super) matcher: Matcher<Item>,
    pub(super) input: Receiver<Sample<()>>,
    /// In a deterministic run: what was taken from the channels at once, in order.
    pub(super) in_turn: VecDeque<Sample<()>>,
    /// Name of the stream of sets.
    pub(super) stream: Arc<str>,
    pub(super) outlets: Vec<SetOutlet>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) clock: MonotonicClock,
    pub(super) shutdown: Shutdown,
    /// Sensor time over wall time; `None` where only messages tell the time.
    pub(super) pace: Option<f64>,
    /// Time of the last message on the clock of arrival, and when it came.
    pub(super) last: Option<(i64, Instant)>,
    /// The order of a deterministic run.
    pub(super) turns: Option<Arc<Turns>>,
    /// Turn of the newest message, and how many sets were made since it came.
    pub(super) turn: (Turn, usize),
    /// The turn of what is made when nothing comes any more, in a deterministic run.
    pub(super) last_turn: Option<LastTurn>,
    /// The transforms that were known when the newest message was released, in a deterministic run.
    pub(super) transforms: Option<Arc<TfBuffer>>,
    /// Members that wait for others.
    pub(super) waiting: Waiting,
    pub(super) watch: ActorWatch,
    /// The frame that is being taken up.
    pub(super) held: Option<FrameId>,
    /// What is still to be done.
    pub(super) outcomes: VecDeque<Outcome<Item>>,
    pub(super) exhausted: bool,
    pub(super) counts: SetCounters,
}

/// What became of sets, for the metrics.
pub(super) struct SetCounters {
    complete: Counter,
    partial: Counter,
    missing: Vec<Counter>,
}

impl SetCounters {
    /// Counters of a node with these members.
    pub(super) fn new(node: &Arc<str>, members: &[Arc<str>]) -> Self {
        let sets = |kind: &'static str| metrics::counter!("sensorium_sets_total", "node" => Arc::clone(node), "kind" => kind);
        let missing = |member: &Arc<str>| metrics::counter!("sensorium_set_members_missing_total", "node" => Arc::clone(node), "member" => Arc::clone(member));
        Self {
            complete: sets("complete"),
            partial: sets("partial"),
            missing: members.iter().map(missing).collect(),
        }
    }
}

impl kameo::Actor for Synchroniser {
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
            if self.exhausted {
                return Ok(Some(Signal::Stop));
            }
            let expiry = self.expiry();
            let expires = tokio::time::sleep_until(expiry.unwrap_or_else(Instant::now).into());
            tokio::select! {
                // What has come is looked at before it is said not to have come.
                biased;
                signal = mailbox.recv() => return Ok(signal),
                sample = next_member(&mut self.input, &mut self.in_turn, self.turns.is_some()) => match sample {
                    Some(sample) => self.take(sample).await,
                    None => {
                        let mut outcomes = Vec::new();
                        self.matcher.flush(&mut outcomes);
                        self.exhausted = true;
                        self.outcomes.extend(outcomes);
                        if let Some(last) = &self.last_turn {
                            self.turn = (last.turn(), 0);
                        }
                        self.settle().await;
                        self.last_turn = None;
                    }
                },
                () = expires, if expiry.is_some() => self.expire().await,
            }
        }
    }
}

impl Synchroniser {
    /// When the next set stops waiting, if wall time tells.
    fn expiry(&self) -> Option<Instant> {
        let (pace, (arrival_ns, came)) = (self.pace?, self.last?);
        let left_ns = self.matcher.next_expiry_ns()?.saturating_sub(arrival_ns).max(0);
        came.checked_add(Duration::from_secs_f64(left_ns as f64 / 1e9 / pace))
    }

    async fn expire(&mut self) {
        let mut outcomes = Vec::new();
        if let Some(expiry_ns) = self.matcher.next_expiry_ns() {
            self.matcher.expire(expiry_ns, &mut outcomes);
        }
        self.outcomes.extend(outcomes);
        self.settle().await;
    }

    async fn take(&mut self, mut sample: Sample<()>) {
        if self.shutdown.is_aborting() {
            self.drop_item(&sample, DropReason::ShuttingDown);
            return;
        }
        let topic = &sample.message.topic;
        let Some(member) = self.members.iter().position(|member| member == topic) else {
            // Not reached: only the topics of members are sent here.
            self.drop_item(&sample, DropReason::Unmatched);
            return;
        };
        let id = sample.meta.id;
        self.held = Some(id);
        self.watch.actor_meets_frame().await;
        self.held = None;
        self.turn = (sample.meta.turn, 0);
        // Of those that wait, only the newest one's are of use.
        self.transforms = sample.meta.transforms.take();
        self.waiting.taken();
        let stamp_ns = sample.meta.stamp_ns;
        let arrival_ns = i64::try_from(sample.message.log_time_ns).unwrap_or(i64::MAX);
        self.last = Some((arrival_ns, Instant::now()));
        let mut outcomes = Vec::new();
        self.matcher
            .push(member, stamp_ns, arrival_ns, Arc::new(sample), &mut outcomes);
        self.outcomes.extend(outcomes);
        self.settle().await;
        // What is made of it has turns of its own; that it waits for others must not hold the run up.
        if let Some(turns) = &self.turns {
            turns.settle(id);
        }
        self.watch.pulse().frame_done();
    }

    /// Does what comes of messages and of time.
    async fn settle(&mut self) {
        self.waiting.begin(self.outcomes.iter());
        while let Some(outcome) = self.outcomes.pop_front() {
            match outcome {
                Outcome::Set(set) if self.shutdown.is_aborting() => {
                    for placed in set.members.into_iter().flatten().filter(|placed| placed.first) {
                        self.drop_item(&placed.item, DropReason::ShuttingDown);
                    }
                }
                Outcome::Set(set) => self.release(set).await,
                Outcome::Unused { item, why, .. } => {
                    let reason = match why {
                        Unused::Unmatched => DropReason::Unmatched,
                        Unused::Superseded => DropReason::Superseded,
                        Unused::Unsynchronised => DropReason::Unsynchronised,
                    };
                    self.drop_item(&item, reason);
                }
                Outcome::ClockOff {
                    member,
                    stamp_ns,
                    others_ns,
                } => {
                    let topic = self.members.get(member);
                    tracing::warn!(
                        actor = %self.name,
                        topic = topic.map_or("", |topic| topic),
                        "the sensor stamps {} where the others have {}: its clock is not synchronised, and it is left \
                         out of sets until it is",
                        seconds(stamp_ns),
                        seconds(others_ns)
                    );
                }
                Outcome::ClockBack { member } => {
                    let topic = self.members.get(member).map_or("", |topic| topic);
                    tracing::info!(actor = %self.name, topic, "the sensor's clock agrees with the others' again");
                }
                Outcome::JumpedBack {
                    member,
                    from_ns,
                    to_ns,
                } => {
                    let topic = self.members.get(member).map_or("", |topic| topic);
                    tracing::warn!(
                        actor = %self.name,
                        topic,
                        "stamps jumped back from {} to {}: sets start over",
                        seconds(from_ns),
                        seconds(to_ns)
                    );
                }
            }
        }
        self.waiting.done();
    }

    fn drop_item(&self, item: &Sample<()>, reason: DropReason) {
        self.ledger.frame_dropped(item.meta.id, &self.name, reason);
    }

    /// Sends a set on; with it its members come out.
    async fn release(&mut self, set: MatchedSet<Item>) {
        let MatchedSet { stamp_ns, members } = set;
        let complete = members.iter().all(Option::is_some);
        if complete {
            self.counts.complete.increment(1);
        } else {
            self.counts.partial.increment(1);
        }
        let there = || members.iter().flatten();
        // A set is as old as its oldest message, but for those that a reference finds waiting.
        let lead = match self.reference.and_then(|reference| members.get(reference)) {
            Some(Some(placed)) => Some(placed),
            _ => there().min_by_key(|placed| placed.item.meta.times.released_ns()),
        };
        let (Some(lead), Some(first)) = (lead, there().next()) else {
            return;
        };
        let meta = FrameMeta {
            stream: Arc::clone(&self.stream),
            stamp_ns,
            frame_id: Arc::clone(&first.item.meta.frame_id),
            times: {
                let mut times = lead.item.meta.times;
                times.end(Stage::Ingest, self.clock.now_ns());
                times
            },
            transforms: self.transforms.clone(),
            ..lead.item.meta.clone()
        };
        let log_time_ns = there().map(|placed| placed.item.message.log_time_ns).max();
        let nobody: Arc<str> = Arc::from("");
        let parts = self.members.iter().zip(&members).zip(&self.counts.missing);
        let message = Message {
            topic: Arc::clone(&self.stream),
            type_name: SET_TYPE.into(),
            log_time_ns: log_time_ns.unwrap_or_default(),
            data: Vec::new(),
            beside: Vec::new(),
            parts: parts
                .map(|((topic, placed), missing)| match placed {
                    Some(placed) => Part {
                        topic: Arc::clone(topic),
                        stamp_ns: placed.stamp_ns,
                        frame_id: Arc::clone(&placed.item.meta.frame_id),
                        message: Some(Arc::clone(&placed.item.message)),
                        world_from_sensor: placed.item.meta.world_from_sensor,
                    },
                    None => {
                        missing.increment(1);
                        Part {
                            topic: Arc::clone(topic),
                            stamp_ns,
                            frame_id: Arc::clone(&nobody),
                            message: None,
                            world_from_sensor: None,
                        }
                    }
                })
                .collect(),
        };
        let message = Arc::new(message);
        if !complete {
            let missing: Vec<&str> = message.missing().map(|topic| &**topic).collect();
            tracing::debug!(actor = %self.name, stamp_ns, missing = missing.join(", "), "partial set");
        }
        let (turn, sets) = self.turn;
        self.turn.1 += 1;
        for (position, outlet) in self.outlets.iter().enumerate() {
            let place = (self.turns.as_ref(), turn.made(0, sets).made(1, position));
            outlet.send(&self.ledger, place, &meta, &message).await;
        }
        // After the set has come in, so that there is always something under way.
        for placed in there().filter(|placed| placed.first) {
            self.ledger.frame_out(placed.item.meta.id);
        }
    }
}

impl Supervised for Synchroniser {
    async fn mend(&mut self) {
        if let Some(id) = self.held.take() {
            self.ledger.frame_abandoned(id, &self.name, DropReason::Panicked);
        }
    }

    async fn give_up(mut self) {
        let mut outcomes = Vec::new();
        self.matcher.flush(&mut outcomes);
        for outcome in self.outcomes.drain(..).chain(outcomes) {
            match outcome {
                Outcome::Set(set) => {
                    let first = set.members.into_iter().flatten().filter(|placed| placed.first);
                    for placed in first {
                        self.ledger
                            .frame_dropped(placed.item.meta.id, &self.name, DropReason::ShuttingDown);
                    }
                }
                Outcome::Unused { item, .. } => {
                    self.ledger
                        .frame_dropped(item.meta.id, &self.name, DropReason::ShuttingDown);
                }
                _ => {}
            }
        }
        while let Some(sample) = next_member(&mut self.input, &mut self.in_turn, false).await {
            self.drop_item(&sample, DropReason::ShuttingDown);
        }
    }
}

/// The next message of a member, in the order of its turns where that is asked for. Dropping the future loses nothing.
async fn next_member(
    input: &mut Receiver<Sample<()>>,
    in_turn: &mut VecDeque<Sample<()>>,
    ordered: bool,
) -> Option<Sample<()>> {
    if in_turn.is_empty() {
        let first = input.recv().await?;
        if !ordered {
            return Some(first);
        }
        // Sources release one message after the other, each once the one before is in its channels: all that comes
        // before this one is there, whichever channel it is in.
        in_turn.push_back(first);
        while let Some(sample) = input.try_recv() {
            in_turn.push_back(sample);
        }
        in_turn.make_contiguous().sort_by_key(|sample| sample.meta.turn);
    }
    in_turn.pop_front()
}

/// A time in seconds, all of its digits.
fn seconds(ns: i64) -> String {
    let (whole, rest) = (ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000));
    format!("{whole}.{rest:09}")
}

impl fmt::Debug for Synchroniser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Synchroniser")
            .field("name", &self.name)
            .field("members", &self.members)
            .finish_non_exhaustive()
    }
}
