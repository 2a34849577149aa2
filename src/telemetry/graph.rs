//! What compute nodes came to: runs, drops, latency along a chain, regularity of timers.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LatencyStats;

/// The graph of compute nodes in numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GraphKpis {
    /// Nodes of the graph.
    pub nodes: Vec<NodeKpis>,
    /// Messages that transform nodes did not get because newer ones took their place: these should be none.
    pub transform_drops: u64,
    /// Seconds that the graph ran, without the warm-up.
    pub seconds: f64,
}

/// One compute node in numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeKpis {
    /// Its name.
    pub name: String,
    /// What it does with its inputs.
    pub role: String,
    /// How often it ran.
    pub runs: u64,
    /// Messages for it that were dropped on the way.
    pub drops: u64,
    /// Time of one run.
    pub service: Option<LatencyStats>,
    /// From when the sensor's sample was due until this node had worked on it; absent unless the file asks.
    pub chain: Option<ChainKpis>,
    /// Regularity of its timer; absent unless it has one.
    pub timer: Option<TimerKpis>,
}

/// A chain of nodes from a sensor to a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChainKpis {
    /// The sensor.
    pub from: String,
    /// Samples of the sensor.
    pub samples: u64,
    /// Samples that the node worked on.
    pub reached: u64,
    /// Samples that it never worked on.
    pub lost: u64,
    /// From when a sample was due until the node had worked on it.
    pub latency: Option<LatencyStats>,
}

/// How regularly a timer fired.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimerKpis {
    /// Its period in microseconds.
    pub period_us: f64,
    /// Mean time between two runs.
    pub mean_interval_us: f64,
    /// Standard deviation of the time between two runs.
    pub std_interval_us: f64,
    /// Shortest time between two runs.
    pub min_interval_us: f64,
    /// Longest time between two runs.
    pub max_interval_us: f64,
    /// How much later the last run was than so many periods after the first: what the timer drifted.
    pub drift_us: f64,
    /// Longest delay of a run behind its time.
    pub max_delay_us: f64,
}

impl TimerKpis {
    /// From the times of the runs and of when they were due, in nanoseconds. `None` for fewer than two runs.
    #[must_use]
    pub fn of(period_ns: u64, runs: &[(u64, u64)]) -> Option<Self> {
        let us = |ns: f64| ns / 1e3;
        let intervals: Vec<f64> = runs
            .windows(2)
            .map(|pair| pair[1].1.saturating_sub(pair[0].1) as f64)
            .collect();
        let n = intervals.len() as f64;
        let (first, last) = (runs.first()?, runs.last()?);
        if intervals.is_empty() {
            return None;
        }
        let mean = intervals.iter().sum::<f64>() / n;
        let variance = intervals
            .iter()
            .map(|interval| (interval - mean).powi(2))
            .sum::<f64>()
            / n;
        let delay = |&(due, run): &(u64, u64)| run as f64 - due as f64;
        Some(Self {
            period_us: us(period_ns as f64),
            mean_interval_us: us(mean),
            std_interval_us: us(variance.sqrt()),
            min_interval_us: us(intervals.iter().copied().fold(f64::INFINITY, f64::min)),
            max_interval_us: us(intervals.iter().copied().fold(0.0, f64::max)),
            drift_us: us(delay(last) - delay(first)),
            max_delay_us: us(runs.iter().map(delay).fold(0.0, f64::max)),
        })
    }
}

impl GraphKpis {
    /// The graph as text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        self.lines(&mut |head, body| _ = writeln!(text, "{head:<11}{body}"));
        text
    }

    /// The graph as lines of text, each with a heading.
    pub(super) fn lines(&self, line: &mut impl FnMut(&str, &str)) {
        let ms = |us: f64| format!("{:.3} ms", us / 1e3);
        line(
            "graph",
            &format!("{} compute nodes, {:.1} s", self.nodes.len(), self.seconds),
        );
        for node in &self.nodes {
            let service = node.service.as_ref().map_or_else(String::new, |service| {
                format!(", {} each (p50)", ms(service.p50_us))
            });
            line(
                "node",
                &format!(
                    "{:<28}{:<14}{:>6} runs, {} dropped{service}",
                    node.name, node.role, node.runs, node.drops
                ),
            );
        }
        line(
            "kpi",
            &format!(
                "messages that transform nodes did not get: {}",
                self.transform_drops
            ),
        );
        for node in &self.nodes {
            if let Some(chain) = &node.chain {
                line(
                    "kpi",
                    &format!(
                        "samples of {} without a run of {}: {} of {}",
                        chain.from, node.name, chain.lost, chain.samples
                    ),
                );
                if let Some(latency) = &chain.latency {
                    line(
                        "kpi",
                        &format!(
                            "latency {} -> {}: mean {}, p99 {}, worst {}",
                            chain.from,
                            node.name,
                            ms(latency.mean_us),
                            ms(latency.p99_us),
                            ms(latency.max_us)
                        ),
                    );
                }
            }
            if let Some(timer) = &node.timer
                && node.role == "cyclic"
            {
                line(
                    "kpi",
                    &format!(
                        "period of {}: {} for {}, standard deviation {}, {} to {}, drift {}",
                        node.name,
                        ms(timer.mean_interval_us),
                        ms(timer.period_us),
                        ms(timer.std_interval_us),
                        ms(timer.min_interval_us),
                        ms(timer.max_interval_us),
                        ms(timer.drift_us)
                    ),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_timer_is_measured_by_its_intervals_and_its_drift() {
        // Due every 100 us; the runs are 1, 6, 1 and 3 us late.
        let runs = [
            (0, 1_000),
            (100_000, 106_000),
            (200_000, 201_000),
            (300_000, 303_000),
        ];
        let timer = TimerKpis::of(100_000, &runs).unwrap();
        assert_eq!((timer.min_interval_us, timer.max_interval_us), (95.0, 105.0));
        assert!((timer.mean_interval_us - 302.0 / 3.0).abs() < 1e-9, "{timer:?}");
        let mean = 302.0 / 3.0;
        let variance = [105.0_f64, 95.0, 102.0]
            .iter()
            .map(|i| (i - mean).powi(2))
            .sum::<f64>()
            / 3.0;
        assert!((timer.std_interval_us - variance.sqrt()).abs() < 1e-9);
        assert_eq!((timer.drift_us, timer.max_delay_us), (2.0, 6.0));
        assert_eq!(TimerKpis::of(1, &runs[..1]), None);
    }
}
