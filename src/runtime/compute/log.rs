//! What compute nodes do, taken down while they do it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::Origin;
use crate::pipeline::{ComputeRole, ComputeSettings};
use crate::telemetry::graph::{ChainKpis, GraphKpis, NodeKpis, TimerKpis};
use crate::telemetry::{LatencyHistogram, Ledger};

/// Most runs of a timer that are kept one by one; a graph that runs on is measured by its first ones.
const MOST_TICKS: usize = 1 << 20;

/// What all nodes of a graph did.
pub(in crate::runtime) struct GraphLog {
    pub(super) nodes: Vec<NodeLog>,
    pub(super) measured_from_ns: u64,
    pub(super) sink: Arc<Ledger>,
}

impl fmt::Debug for GraphLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphLog")
            .field("nodes", &self.nodes.len())
            .finish_non_exhaustive()
    }
}

/// What one node did.
pub(super) struct NodeLog {
    name: String,
    role: ComputeRole,
    period_ns: Option<u64>,
    /// The sensor from which latency is measured, by the place of its node.
    chain_from: Option<usize>,
    done: Mutex<Done>,
}

#[derive(Default)]
struct Done {
    runs: u64,
    service: Option<LatencyHistogram>,
    chain: Option<LatencyHistogram>,
    /// Samples of the chain's sensor that got here.
    reached: u64,
    /// The last of them.
    newest: Option<u64>,
    /// When runs were due and when they began.
    ticks: Vec<(u64, u64)>,
    last_end_ns: u64,
}

/// One run of a node, on the clock of the run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run<'a> {
    /// When its timer was due, if that started it.
    pub(super) due_ns: Option<u64>,
    pub(super) began_ns: u64,
    pub(super) ended_ns: u64,
    /// What went into it.
    pub(super) origins: &'a [Origin],
}

impl NodeLog {
    pub(super) fn new(name: &str, settings: &ComputeSettings, chain_from: Option<usize>) -> Self {
        Self {
            name: name.to_owned(),
            role: settings.role,
            period_ns: settings.period_ms.map(|ms| u64::from(ms) * 1_000_000),
            chain_from,
            done: Mutex::default(),
        }
    }
}

impl GraphLog {
    /// Takes a run down, unless it belongs to the warm-up.
    pub(super) fn ran(&self, place: usize, run: Run<'_>) {
        let node = &self.nodes[place];
        let mut done = node.done.lock().unwrap_or_else(PoisonError::into_inner);
        let sample = node
            .chain_from
            .and_then(|sensor| run.origins.iter().find(|origin| origin.sensor == sensor));
        if let Some(sample) = sample
            && sample.due_ns >= self.measured_from_ns
            && done.newest.is_none_or(|newest| sample.seq > newest)
        {
            done.newest = Some(sample.seq);
            done.reached += 1;
            let latency_ns = run.ended_ns.saturating_sub(sample.due_ns);
            done.chain.get_or_insert_default().record(latency_ns);
        }
        if run.due_ns.unwrap_or(run.began_ns) < self.measured_from_ns {
            return;
        }
        done.runs += 1;
        done.last_end_ns = done.last_end_ns.max(run.ended_ns);
        let service_ns = run.ended_ns.saturating_sub(run.began_ns);
        done.service.get_or_insert_default().record(service_ns);
        if let Some(due_ns) = run.due_ns
            && done.ticks.len() < MOST_TICKS
        {
            done.ticks.push((due_ns, run.began_ns));
        }
    }

    /// The graph in numbers.
    pub(in crate::runtime) fn kpis(&self) -> GraphKpis {
        let accounts = self.sink.accounts();
        let drops_into = |name: &str| -> u64 {
            let suffix = format!(" -> {name}");
            let into = accounts.iter().filter(|account| account.name.ends_with(&suffix));
            into.map(|account| account.dropped()).sum()
        };
        let runs_of = |place: usize| {
            let done = self.nodes[place]
                .done
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            done.runs
        };
        let mut nodes = Vec::new();
        let mut last_end_ns = 0;
        for node in &self.nodes {
            let samples = node.chain_from.map(runs_of);
            let done = node.done.lock().unwrap_or_else(PoisonError::into_inner);
            last_end_ns = last_end_ns.max(done.last_end_ns);
            nodes.push(NodeKpis {
                name: node.name.clone(),
                role: node.role.to_string(),
                runs: done.runs,
                drops: drops_into(&node.name),
                service: done.service.as_ref().and_then(LatencyHistogram::stats),
                chain: node.chain_from.zip(samples).map(|(from, samples)| ChainKpis {
                    from: self.nodes[from].name.clone(),
                    samples,
                    reached: done.reached,
                    lost: samples.saturating_sub(done.reached),
                    latency: done.chain.as_ref().and_then(LatencyHistogram::stats),
                }),
                timer: node
                    .period_ns
                    .and_then(|period_ns| TimerKpis::of(period_ns, &done.ticks)),
            });
        }
        let transforms = nodes
            .iter()
            .filter(|node| node.role == ComputeRole::Transform.as_str());
        GraphKpis {
            transform_drops: transforms.map(|node| node.drops).sum(),
            seconds: last_end_ns.saturating_sub(self.measured_from_ns) as f64 / 1e9,
            nodes,
        }
    }
}
