//! A result as text for a person.

use std::fmt::Write as _;

use super::result::p_name;
use super::{BenchResult, Metric, ScenarioKind};

/// A value of a metric with its unit.
pub(in crate::telemetry) fn metric_value(metric: Metric, value: f64) -> String {
    match metric.unit() {
        "us" => milliseconds(value),
        "hz" => format!("{value:.2} Hz"),
        _ => format!("{:.3} %", value * 100.0),
    }
}

fn milliseconds(us: f64) -> String {
    format!("{:.3} ms", us / 1e3)
}

impl BenchResult {
    /// The result as lines of text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let mut line = |head: &str, body: &str| _ = writeln!(text, "{head:<11}{body}");
        let scenario = &self.scenario;
        let quick = if scenario.quick { ", quick" } else { "" };
        line(
            "bench",
            &format!(
                "{}, {} ({}{quick})",
                self.pipeline,
                scenario.name.name(),
                scenario.style
            ),
        );
        line("loop", &scenario.r#loop);
        if !self.device.is_empty() {
            line("device", &self.device);
        }
        line("machine", &self.machine.line());
        if !self.optimized {
            line("build", "not optimized: these numbers say little");
        }
        for change in &scenario.changes {
            line("changed", change);
        }
        let rate = scenario
            .rate_hz
            .map_or_else(String::new, |hz| format!(" at {hz:.2} Hz each"));
        if scenario.name != ScenarioKind::Timers {
            line(
                "load",
                &format!(
                    "{} stream(s){rate}, {:.1} s after {:.1} s of warm-up; {} message(s), {:.1} MiB in memory{}",
                    scenario.streams,
                    scenario.duration_s,
                    scenario.warm_up_s,
                    self.load.messages,
                    self.load.bytes as f64 / f64::from(1 << 20),
                    if self.load.cut_off {
                        ", the source has more"
                    } else {
                        ""
                    }
                ),
            );
            let queries = &self.queries;
            line(
                "queries",
                &format!(
                    "{} offered, {} frame(s), {} completed, {} dropped; {} released late, {} by more than a period, at most {}",
                    queries.offered,
                    queries.frames,
                    queries.completed,
                    queries.dropped,
                    queries.released_late,
                    queries.overruns,
                    milliseconds(queries.max_release_delay_us)
                ),
            );
        }
        // Those of a graph stand beside its nodes.
        for drop in self.drops.iter().filter(|_| self.graph.is_none()) {
            line(
                "drops",
                &format!(
                    "{} x {} at {}, {}",
                    drop.count, drop.reason, drop.place, drop.stream
                ),
            );
        }
        if let Some(hz) = self.throughput_hz {
            line("throughput", &format!("{hz:.2} results a second"));
        }
        if let Some(processors) = self.process.processors {
            let peak = self.process.peak_resident_mib.unwrap_or(0.0);
            line(
                "process",
                &format!("{processors:.2} processor(s), {peak:.0} MiB at most"),
            );
        }
        for percentile in &self.percentiles {
            let interval = percentile.interval_us.map_or_else(
                || "too few for an interval".to_owned(),
                |[low, high]| format!("99 % between {} and {}", milliseconds(low), milliseconds(high)),
            );
            let mark = if percentile.claimed { " " } else { "~" };
            line(
                &p_name(percentile.p),
                &format!("{mark}{:>12}   {interval}", milliseconds(percentile.value_us)),
            );
        }
        if let Some(latency) = &self.latency {
            line("max", &format!(" {:>12}", milliseconds(latency.max_us)));
            line("mean", &format!(" {:>12}", milliseconds(latency.mean_us)));
        }
        if let Some(deadline) = &self.deadline {
            line(
                "deadline",
                &format!(
                    "{} after {}, {} in a row at most",
                    deadline.misses,
                    milliseconds(deadline.deadline_us),
                    deadline.longest_streak
                ),
            );
        }
        if !self.percentiles.is_empty() {
            line("claim", &self.claim.text);
        }
        if self.streams.len() > 1 && scenario.name != ScenarioKind::Timers {
            for stream in &self.streams {
                let latency = stream.total.as_ref().map_or_else(String::new, |total| {
                    format!(
                        ", p50 {}, p99 {}",
                        milliseconds(total.p50_us),
                        milliseconds(total.p99_us)
                    )
                });
                line(
                    "stream",
                    &format!("{}: {} result(s){latency}", stream.name, stream.frames.frames_out),
                );
            }
        }
        if let Some(peak) = &self.peak {
            for point in &peak.points {
                let latency = |us: Option<f64>| us.map_or_else(|| "-".to_owned(), milliseconds);
                line(
                    if point.confirms { "confirm" } else { "trial" },
                    &format!(
                        "{:>9.2} Hz  {:>7.3} % of {} failed  p50 {}  p99 {}  {}",
                        point.rate_hz,
                        point.failed_share * 100.0,
                        point.offered,
                        latency(point.p50_us),
                        latency(point.p99_us),
                        if point.kept_up { "kept up" } else { "too fast" }
                    ),
                );
            }
            let body = match (peak.rate_hz, peak.fails_at_hz) {
                (Some(hz), Some(above)) => format!("{hz:.2} Hz each; {above:.2} Hz is too fast"),
                (Some(hz), None) => format!("{hz:.2} Hz each, and nothing faster was tried"),
                (None, _) => "no rate was confirmed".to_owned(),
            };
            line("peak", &body);
        }
        if let Some(graph) = &self.graph {
            graph.lines(&mut line);
        }
        if let Some(comparison) = &self.comparison {
            line(
                "baseline",
                &format!("{}, version {}", comparison.baseline, comparison.version),
            );
            for difference in &comparison.differences {
                line("differs", difference);
            }
            for change in &comparison.changes {
                let percent = |share: f64| format!("{:+.1} %", share * 100.0);
                let interval = change.interval.map_or_else(
                    || "no interval".to_owned(),
                    |[low, high]| format!("between {} and {}", percent(low), percent(high)),
                );
                line(
                    change.metric.name(),
                    &format!(
                        "{} -> {}  {}  {interval}{}",
                        metric_value(change.metric, change.baseline),
                        metric_value(change.metric, change.value),
                        change.change.map_or_else(|| "-".to_owned(), percent),
                        if change.significant { ", beyond chance" } else { "" }
                    ),
                );
            }
        }
        for condition in &self.conditions {
            line(if condition.fails { "FAILS" } else { "passes" }, &condition.text);
        }
        for reason in &self.incomplete {
            line("incomplete", reason);
        }
        text
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;
    use crate::telemetry::bench::{
        Claim, LoadSummary, Machine, PercentileValue, ProcessUse, QuerySummary, Ros2BenchmarkKeys,
        ScenarioSummary,
    };

    /// A result with these latencies and nothing else of note.
    pub(in crate::telemetry::bench) fn result(latencies_us: Vec<u64>) -> BenchResult {
        let ns: Vec<u64> = latencies_us.iter().map(|us| us * 1_000).collect();
        let percentiles = PercentileValue::all(&ns, 0.99);
        BenchResult {
            form: 1,
            version: "0.1.0".into(),
            optimized: true,
            pipeline: "p".into(),
            model: "m".into(),
            device: "cpu".into(),
            started_at: String::new(),
            settings: serde_json::Value::Null,
            machine: Machine::default(),
            process: ProcessUse::default(),
            scenario: ScenarioSummary {
                name: ScenarioKind::ConstantStream,
                r#loop: ScenarioKind::ConstantStream.loop_words().into(),
                style: "MLPerf-style".into(),
                streams: 1,
                rate_hz: Some(10.0),
                duration_s: 1.0,
                warm_up_s: 0.0,
                percentile: 0.99,
                quick: false,
                changes: Vec::new(),
            },
            load: LoadSummary::default(),
            queries: QuerySummary::default(),
            throughput_hz: None,
            latency: None,
            claim: Claim::of(&percentiles, 0.99, ns.len() as u64),
            percentiles,
            stages: Vec::new(),
            streams: Vec::new(),
            deadline: None,
            drops: Vec::new(),
            incomplete: Vec::new(),
            peak: None,
            graph: None,
            ros2_benchmark: Ros2BenchmarkKeys::default(),
            latencies_us,
            results_per_second: Vec::new(),
            comparison: None,
            conditions: Vec::new(),
        }
    }

    #[test]
    fn the_text_marks_what_is_not_claimed() {
        let text = result((1..=1_000).collect()).text();
        assert!(
            text.contains("p50        ~") && text.contains("not enough samples for p99"),
            "{text}"
        );
        assert!(
            text.contains("MLPerf-style") && !text.to_lowercase().contains("mlperf result"),
            "{text}"
        );
    }
}
