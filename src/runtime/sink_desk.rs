//! Opening and closing sinks while results flow.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use tokio::sync::watch;

use super::ending::{Crew, Ending};
use super::error::RuntimeError;
use super::finish::{SinkList, SinkOutlet};
use super::health::ReasonKind;
use super::outlets::{Audiences, detectors_of, start_sink};
use super::run::Shared;
use crate::pipeline::{Node, Pipeline};

/// Opens and closes the sinks of a run.
pub(crate) struct SinkDesk {
    shared: Shared,
    with_latency: bool,
    crew: Crew,
    /// The sinks of each detector, by the name of the actor that finishes for it, while there is one.
    lists: Vec<(String, Weak<SinkList>)>,
    /// Who takes the results of detectors that rest while nobody does.
    audiences: OnceLock<Audiences>,
    /// Told when a sink has ended, by the name of its node.
    ends: Mutex<BTreeMap<String, watch::Receiver<bool>>>,
}

impl SinkDesk {
    /// The desk of a run with these detectors.
    pub(super) fn new(
        shared: &Shared,
        with_latency: bool,
        crew: Crew,
        lists: Vec<(String, Weak<SinkList>)>,
    ) -> Self {
        Self {
            shared: shared.clone(),
            with_latency,
            crew,
            lists,
            audiences: OnceLock::new(),
            ends: Mutex::default(),
        }
    }

    /// Sinks that are opened and closed from now on are told to these.
    pub(super) fn tell(&self, audiences: &Audiences) {
        // A run starts its sinks once.
        let _ = self.audiences.set(audiences.clone());
    }

    /// Takes note of when a sink ends.
    pub(super) fn follow(&self, node: &str, ending: Ending) -> Ending {
        let (tell, told) = watch::channel(false);
        self.ends().insert(node.to_owned(), told);
        let board = Arc::clone(&self.shared.board);
        let node = node.to_owned();
        Box::pin(async move {
            let ended = ending.await;
            board.remove_pulse(&node);
            tell.send_replace(true);
            ended
        })
    }

    /// Opens a sink of `pipeline` and lets results flow into it.
    ///
    /// # Errors
    /// What keeps it from being opened; nothing is changed then.
    pub(crate) async fn open(&self, pipeline: &Pipeline, node: &Node) -> Result<(), RuntimeError> {
        let account = self.shared.sink_ledger.streams().register(&node.name);
        let (senders, input) = self.shared.channel_into_of(&pipeline.plan(), &node.name);
        let started = start_sink(node, input, None, self.with_latency, &self.shared).await;
        let in_graph = || RuntimeError::Sink {
            node: node.name.clone(),
            reason: "a sink of the ROS 2 graph is opened with the run".into(),
        };
        let ending = match started.and_then(|started| started.ok_or_else(in_graph)) {
            Ok(ending) => ending,
            Err(error) => {
                self.forget_queues_into(&node.name);
                return Err(error);
            }
        };
        let over = || RuntimeError::Incomplete("the run is over".into());
        if !self.crew.join(self.follow(&node.name, ending)).await {
            return Err(over());
        }
        for (from, channel) in senders {
            let list = self.lists.iter().find(|(name, _)| *name == from);
            let list = list.and_then(|(_, list)| list.upgrade()).ok_or_else(over)?;
            list.add(SinkOutlet {
                channel,
                account,
                node: node.name.clone(),
            });
        }
        for detector in detectors_of(pipeline, &node.name) {
            if let Some(audience) = self.audiences.get().and_then(|all| all.get(detector)) {
                audience.joined_by(&node.name);
            }
        }
        Ok(())
    }

    /// Lets no more results flow into a sink, and waits until it has written those that it has and is closed. What was
    /// told of it is told no more.
    pub(crate) async fn close(&self, node: &str) {
        for audience in self.audiences.get().into_iter().flat_map(Audiences::values) {
            audience.left_by(node);
        }
        for (_, list) in &self.lists {
            if let Some(list) = list.upgrade() {
                list.remove(node);
            }
        }
        let told = self.ends().remove(node);
        if let Some(mut told) = told {
            // An error says that the run is over, and with it the sink.
            let _ = told.wait_for(|ended| *ended).await;
        }
        self.forget_queues_into(node);
        for kind in [
            ReasonKind::SinkFailing,
            ReasonKind::Restarting,
            ReasonKind::GivenUp,
            ReasonKind::Stalled,
        ] {
            self.shared.board.clear(kind, node);
        }
    }

    fn forget_queues_into(&self, node: &str) {
        self.shared.live.forget_queues_of(node);
        self.shared.board.remove_queues_into(node);
    }

    fn ends(&self) -> MutexGuard<'_, BTreeMap<String, watch::Receiver<bool>>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SinkDesk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SinkDesk").finish_non_exhaustive()
    }
}
