//! Compute nodes: messages of a stated size, work of a stated cost, on the channels and actors of every other pipeline.
//!
//! Every message on every connection is a frame of the ledger, in a stream named `sender -> receiver`: it comes out when
//! the receiver takes it up, or it is dropped. A message carries the newest sample of each sensor that went into it, so
//! that latency can be told along any chain.

mod log;
mod node;
mod work;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::FuturesUnordered;
use kameo::actor::Spawn;
use smallvec::SmallVec;

pub(super) use log::GraphLog;

use self::log::NodeLog;
use self::node::{ComputeNode, NodeArgs, Outlet, Timer};
use self::work::Work;
use super::channel::{Receiver, Sender};
use super::ending::{Ending, ending};
use super::load::{Load, Until};
use super::run::Shared;
use crate::pipeline::{ComputeCost, ComputeSettings, NodeKind, Pipeline};
use crate::telemetry::FrameId;

/// Time from the start of the actors to the first message: all of them are there by then.
const HEAD_START: Duration = Duration::from_millis(20);

/// A message between compute nodes.
#[derive(Debug)]
pub(super) struct ComputeMessage {
    payload: Vec<u8>,
    /// The newest sample of each sensor that went into it.
    origins: SmallVec<[Origin; 6]>,
}

/// A sample of a sensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Origin {
    /// The sensor, by the place of its node.
    sensor: usize,
    /// Position among its samples.
    seq: u64,
    /// When it was due, in nanoseconds on the clock of the run.
    due_ns: u64,
}

/// A message on its way to one node.
#[derive(Debug)]
pub(super) struct Item {
    /// The sender, by the place of its node.
    from: usize,
    frame: FrameId,
    message: Arc<ComputeMessage>,
}

/// Adds the samples of a message to others; of each sensor the newest stays.
fn merge_origins(into: &mut SmallVec<[Origin; 6]>, from: &[Origin]) {
    for origin in from {
        match into.iter_mut().find(|known| known.sensor == origin.sensor) {
            Some(known) if known.seq >= origin.seq => {}
            Some(known) => *known = *origin,
            None => into.push(*origin),
        }
    }
}

/// Starts the compute nodes of a pipeline; `None` where it has none. With a load, its warm-up and its duration hold for
/// the sensors; without one they go on until the run is stopped.
pub(super) fn start_compute(
    pipeline: &Pipeline,
    shared: &Shared,
    load: Option<&Load>,
    endings: &mut FuturesUnordered<Ending>,
) -> Option<Arc<GraphLog>> {
    let nodes: Vec<(&str, &ComputeSettings)> = pipeline
        .nodes
        .iter()
        .filter_map(|node| match &node.kind {
            NodeKind::Compute(settings) => Some((node.name.as_str(), settings)),
            _ => None,
        })
        .collect();
    if nodes.is_empty() {
        return None;
    }
    let place_of = |name: &str| nodes.iter().position(|(known, _)| *known == name);
    let mut inputs: Vec<Receiver<Item>> = Vec::new();
    let mut senders: HashMap<(usize, usize), Sender<Item>> = HashMap::new();
    for (to, (name, _)) in nodes.iter().enumerate() {
        let (feeding, input) = shared.channel_into::<Item>(name);
        inputs.push(input);
        for (from, sender) in feeding {
            if let Some(from) = place_of(&from) {
                senders.insert((from, to), sender);
            }
        }
    }
    if nodes
        .iter()
        .any(|(_, node)| matches!(node.cost, ComputeCost::Micros(_)))
    {
        tracing::info!(
            divisions_per_us = work::divisions_per_us(),
            "the processor was measured"
        );
    }
    if load.is_none() {
        tracing::info!(nodes = nodes.len(), "the graph runs until it is stopped");
    }
    let start = Instant::now() + HEAD_START;
    let start_ns = shared.clock.at_ns(start);
    let warm_up = load.map_or(Duration::ZERO, |load| load.warm_up);
    let until = load.and_then(|load| match load.until {
        Until::For(time) => Some(start + load.warm_up + time),
        Until::Queries(_) => None,
    });
    let measured_from_ns = start_ns.saturating_add(u64::try_from(warm_up.as_nanos()).unwrap_or(u64::MAX));
    let log = Arc::new(GraphLog {
        nodes: nodes
            .iter()
            .map(|(name, settings)| {
                NodeLog::new(
                    name,
                    settings,
                    settings.latency_from.as_deref().and_then(place_of),
                )
            })
            .collect(),
        measured_from_ns,
        sink: Arc::clone(&shared.ledger),
    });
    for (place, ((name, settings), input)) in nodes.iter().zip(inputs).enumerate() {
        let mut outlets = Vec::new();
        for edge in pipeline.edges.iter().filter(|edge| edge.from == *name) {
            let Some((to, channel)) =
                place_of(&edge.to).and_then(|to| Some((to, senders.remove(&(place, to))?)))
            else {
                continue;
            };
            // Of an intersection, the inputs whose messages go this way.
            let only_from = settings
                .routes
                .iter()
                .filter(|(_, targets)| targets.contains(&edge.to))
                .filter_map(|(input, _)| place_of(input));
            outlets.push(Outlet {
                channel,
                stream: shared
                    .ledger
                    .streams()
                    .register(&format!("{name} -> {}", nodes[to].0)),
                to: nodes[to].0.into(),
                only_from: (!settings.routes.is_empty()).then(|| only_from.collect()),
            });
        }
        let feeding = pipeline.edges.iter().filter(|edge| edge.to == *name);
        let args = NodeArgs {
            place,
            name: (*name).into(),
            role: settings.role,
            work: Work::of(settings.cost),
            payload_bytes: settings.payload_bytes as usize,
            sources: feeding.filter_map(|edge| place_of(&edge.from)).collect(),
            input,
            outlets,
            timer: settings.period_ms.map(|ms| Timer {
                start,
                period: Duration::from_millis(ms.into()),
                // A cyclic node ends when nothing can come to it any more.
                until: until.filter(|_| settings.role == crate::pipeline::ComputeRole::Sensor),
            }),
            log: Arc::clone(&log),
            ledger: Arc::clone(&shared.ledger),
            clock: shared.clock,
            shutdown: shared.shutdown.clone(),
        };
        endings.push(ending((*name).to_owned(), ComputeNode::spawn(args)));
    }
    Some(log)
}
