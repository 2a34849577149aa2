//! One compute node as an actor.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kameo::actor::{ActorRef, WeakActorRef};
use kameo::error::Infallible;
use kameo::mailbox::{MailboxReceiver, Signal};
use smallvec::SmallVec;

use super::log::{GraphLog, Run};
use super::work::Work;
use super::{ComputeMessage, Item, Origin, merge_origins};
use crate::pipeline::ComputeRole;
use crate::runtime::channel::{Receiver, Sender};
use crate::runtime::playback::sleep_until;
use crate::runtime::shutdown::Shutdown;
use crate::telemetry::{DropReason, Ledger, MonotonicClock, StreamId};

/// One receiver of a node's messages.
#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) channel: Sender<Item>,
    /// The connection's account.
    pub(super) stream: StreamId,
    /// Name of the receiving node.
    pub(super) to: Arc<str>,
    /// Nodes whose messages go this way; `None`: all.
    pub(super) only_from: Option<Vec<usize>>,
}

/// When a node runs by itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timer {
    pub(super) start: Instant,
    pub(super) period: Duration,
    /// End of the schedule; `None` for none.
    pub(super) until: Option<Instant>,
}

/// What a node is made of.
pub(super) struct NodeArgs {
    pub(super) place: usize,
    pub(super) name: Arc<str>,
    pub(super) role: ComputeRole,
    pub(super) work: Work,
    pub(super) payload_bytes: usize,
    /// The nodes that feed it.
    pub(super) sources: Vec<usize>,
    pub(super) input: Receiver<Item>,
    pub(super) outlets: Vec<Outlet>,
    pub(super) timer: Option<Timer>,
    pub(super) log: Arc<GraphLog>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) clock: MonotonicClock,
    pub(super) shutdown: Shutdown,
}

/// The actor.
pub(super) struct ComputeNode {
    args: NodeArgs,
    ticks: Option<flume::Receiver<Instant>>,
    /// The newest message of each source that was not worked on yet, where it is kept.
    kept: Vec<Option<Item>>,
    seq: u64,
}

impl fmt::Debug for ComputeNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ComputeNode")
            .field("name", &self.args.name)
            .field("role", &self.args.role)
            .finish_non_exhaustive()
    }
}

/// Tells a node when it is due, from a thread of its own: a timer of the asynchronous runtime is a millisecond coarse.
fn tick(timer: Timer, ticks: &flume::Sender<Instant>, shutdown: &Shutdown) {
    let mut due = timer.start;
    while timer.until.is_none_or(|until| due < until) && sleep_until(due, shutdown) && ticks.send(due).is_ok()
    {
        due += timer.period;
    }
}

impl kameo::Actor for ComputeNode {
    type Args = NodeArgs;
    type Error = Infallible;

    async fn on_start(args: NodeArgs, _: ActorRef<Self>) -> Result<Self, Infallible> {
        let ticks = args.timer.map(|timer| {
            let (send, ticks) = flume::bounded(1);
            let shutdown = args.shutdown.clone();
            tokio::task::spawn_blocking(move || tick(timer, &send, &shutdown));
            ticks
        });
        Ok(Self {
            kept: args.sources.iter().map(|_| None).collect(),
            args,
            ticks,
            seq: 0,
        })
    }

    async fn next(
        &mut self,
        _: WeakActorRef<Self>,
        mailbox: &mut MailboxReceiver<Self>,
    ) -> Result<Option<Signal<Self>>, Infallible> {
        loop {
            let has_inputs = !self.args.sources.is_empty();
            let ticks = self.ticks.as_ref();
            let tick = async {
                match ticks {
                    Some(ticks) => ticks.recv_async().await.ok(),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                signal = mailbox.recv() => return Ok(signal),
                // Before the timer: a cyclic node works on what has come, and one that is always late must see the end.
                item = self.args.input.recv(), if has_inputs => match item {
                    Some(item) => self.take(item).await,
                    None => return Ok(Some(Signal::Stop)),
                },
                due = tick => match due {
                    Some(due) => self.timer_fired(due).await,
                    // The schedule is over: a sensor ends, a cyclic node still takes what comes.
                    None if has_inputs => self.ticks = None,
                    None => return Ok(Some(Signal::Stop)),
                },
            }
        }
    }

    async fn on_stop(
        &mut self,
        _: WeakActorRef<Self>,
        _: kameo::error::ActorStopReason,
    ) -> Result<(), Infallible> {
        // Empty after a normal end; whatever else stopped this actor, no message goes unaccounted.
        while let Some(item) = self.args.input.try_recv() {
            self.give_up(&item);
        }
        Ok(())
    }
}

impl ComputeNode {
    fn give_up(&self, item: &Item) {
        self.args
            .ledger
            .frame_dropped(item.frame, &self.args.name, DropReason::ShuttingDown);
    }

    async fn timer_fired(&mut self, due: Instant) {
        let due_ns = self.args.clock.at_ns(due);
        let began_ns = self.args.clock.now_ns();
        let items: Vec<Item> = self.kept.iter_mut().filter_map(Option::take).collect();
        let mut origins = SmallVec::new();
        if self.args.role == ComputeRole::Sensor {
            origins.push(Origin {
                sensor: self.args.place,
                seq: self.seq,
                due_ns,
            });
        }
        self.run(items, origins, Some(due_ns), began_ns).await;
    }

    async fn take(&mut self, item: Item) {
        if self.args.shutdown.is_aborting() {
            return self.give_up(&item);
        }
        let keeps = matches!(self.args.role, ComputeRole::Fusion | ComputeRole::Cyclic);
        if !keeps {
            let began_ns = self.args.clock.now_ns();
            return self.run(vec![item], SmallVec::new(), None, began_ns).await;
        }
        let Some(place) = self.args.sources.iter().position(|&source| source == item.from) else {
            return self.give_up(&item);
        };
        // It has arrived; whether a newer one takes its place before the node runs is the node's way of working.
        self.args.ledger.frame_out(item.frame);
        self.kept[place] = Some(item);
        if self.args.role == ComputeRole::Fusion && self.kept.iter().all(Option::is_some) {
            let began_ns = self.args.clock.now_ns();
            let items = self.kept.iter_mut().filter_map(Option::take).collect();
            self.run(items, SmallVec::new(), None, began_ns).await;
        }
    }

    /// Works on messages and sends what comes of it.
    async fn run(
        &mut self,
        items: Vec<Item>,
        mut origins: SmallVec<[Origin; 6]>,
        due_ns: Option<u64>,
        began_ns: u64,
    ) {
        let froms: SmallVec<[usize; 2]> = items.iter().map(|item| item.from).collect();
        // Messages that a node keeps were settled when they came.
        let keeps = matches!(self.args.role, ComputeRole::Fusion | ComputeRole::Cyclic);
        let unsettled = items.iter().filter(|_| !keeps).map(|item| item.frame);
        let frames: SmallVec<[_; 2]> = unsettled.collect();
        for item in &items {
            merge_origins(&mut origins, &item.message.origins);
        }
        let (work, payload_bytes) = (self.args.work, self.args.payload_bytes);
        let with_output = !self.args.outlets.is_empty();
        let job = move || {
            let read: u64 = items
                .iter()
                .flat_map(|item| item.message.payload.chunks_exact(8))
                .fold(0, |sum, word| {
                    sum ^ word.iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
                });
            let result = std::hint::black_box(work.run() ^ read);
            if with_output {
                result
                    .to_le_bytes()
                    .into_iter()
                    .cycle()
                    .take(payload_bytes)
                    .collect()
            } else {
                Vec::new()
            }
        };
        // Free nodes would spend more on the hand-over to a worker than on their work.
        let made = if work == Work::Free {
            Ok(job())
        } else {
            tokio::task::spawn_blocking(job).await
        };
        let payload: Vec<u8> = match made {
            Ok(payload) => payload,
            Err(error) => {
                tracing::error!(actor = %self.args.name, %error, "the work panicked; its messages are lost");
                for frame in frames {
                    self.args
                        .ledger
                        .frame_dropped(frame, &self.args.name, DropReason::Panicked);
                }
                return;
            }
        };
        for frame in frames {
            self.args.ledger.frame_out(frame);
        }
        let ended_ns = self.args.clock.now_ns();
        self.args.log.ran(
            self.args.place,
            Run {
                due_ns,
                began_ns,
                ended_ns,
                origins: &origins,
            },
        );
        self.seq += 1;
        let message = Arc::new(ComputeMessage { payload, origins });
        for outlet in &self.args.outlets {
            let goes_here = |only: &Vec<usize>| froms.iter().any(|from| only.contains(from));
            if outlet.only_from.as_ref().is_some_and(|only| !goes_here(only)) {
                continue;
            }
            let item = Item {
                from: self.args.place,
                frame: self.args.ledger.frame_in(outlet.stream),
                message: Arc::clone(&message),
            };
            if let Some((lost, reason)) = outlet.channel.send(item).await.lost() {
                self.args.ledger.frame_dropped(lost.frame, &outlet.to, reason);
            }
        }
    }
}
