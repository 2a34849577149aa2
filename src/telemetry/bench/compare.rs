//! Two results beside each other, and conditions on what changed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::statistics::middle;
use super::{BenchResult, Condition, Limit, Metric, Resampled, share_interval};

/// Seeds of the resamples: fixed, so that a comparison can be repeated to the digit.
const SEEDS: [u64; 2] = [0x5E45_0817, 0xBA5E_117E];

/// How an interval was made.
const BLOCKS: &str = "95 % by bootstrap over blocks of successive queries";
const SECONDS: &str = "95 % by bootstrap over blocks of seconds";
const WILSON: &str = "95 % by Wilson's score";
const BRACKET: &str = "from the rate confirmed to the lowest that failed";
const POINT: &str = "none: compared as it is";

/// What changed between two results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// The earlier result's file.
    pub baseline: String,
    /// Version of Sensorium that made it.
    pub version: String,
    /// What differs between the two besides the numbers, so that they may not be comparable.
    pub differences: Vec<String>,
    /// The metrics that both have.
    pub changes: Vec<MetricChange>,
}

/// One metric of two results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricChange {
    /// The metric.
    pub metric: Metric,
    /// Its unit: `us`, `hz`, or a `share` of 1.
    pub unit: String,
    /// Its value in the earlier result.
    pub baseline: f64,
    /// Its value now.
    pub value: f64,
    /// The change as a share of the earlier value; absent where that is 0.
    pub change: Option<f64>,
    /// Interval of the change; absent where none can be given.
    pub interval: Option<[f64; 2]>,
    /// How the interval was made.
    pub method: String,
    /// Whether the interval leaves 0 out.
    pub significant: bool,
}

/// A condition and whether it holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConditionOutcome {
    /// As it was written.
    pub condition: String,
    /// What it speaks of.
    pub metric: Metric,
    /// What the limit is held against: the value in the unit of the metric, or its change as a share.
    pub measured: Option<f64>,
    /// The limit, in the same unit.
    pub limit: f64,
    /// Interval of what is measured; absent where none can be given.
    pub interval: Option<[f64; 2]>,
    /// How the interval was made.
    pub method: String,
    /// Whether the value itself fulfils the condition.
    pub holds: bool,
    /// Whether the whole interval does, or the value where there is no interval: then the benchmark fails.
    pub fails: bool,
    /// In words.
    pub text: String,
}

/// The value of a metric.
fn value_of(result: &BenchResult, metric: Metric) -> Option<f64> {
    match metric {
        Metric::Max => result.latencies_us.iter().max().map(|&us| us as f64),
        Metric::Mean => {
            let n = result.latencies_us.len();
            (n > 0).then(|| result.latencies_us.iter().map(|&us| us as f64).sum::<f64>() / n as f64)
        }
        Metric::Throughput => result.throughput_hz,
        Metric::Drops => {
            (result.queries.frames > 0).then(|| result.queries.dropped as f64 / result.queries.frames as f64)
        }
        Metric::Misses => {
            let n = result.latencies_us.len();
            result
                .deadline
                .filter(|_| n > 0)
                .map(|deadline| deadline.misses as f64 / n as f64)
        }
        Metric::Peak => result.peak.as_ref()?.rate_hz,
        _ => {
            let mut sorted = result.latencies_us.clone();
            sorted.sort_unstable();
            super::percentile(&sorted, metric.share()?).map(|us| us as f64)
        }
    }
}

/// Resamples of a metric, of the latencies or of the results of each second.
fn resamples(result: &BenchResult, metric: Metric, seed: u64) -> Option<(Vec<f64>, &'static str)> {
    match metric {
        Metric::Mean => Some((Resampled::of(&result.latencies_us, &[], seed)?.means, BLOCKS)),
        Metric::Throughput => Some((
            Resampled::of(&result.results_per_second, &[], seed)?.means,
            SECONDS,
        )),
        _ => {
            let share = metric.share()?;
            let mut resampled = Resampled::of(&result.latencies_us, &[share], seed)?;
            Some((resampled.percentiles.pop()?, BLOCKS))
        }
    }
}

/// The interval of a value by itself.
fn interval_of(result: &BenchResult, metric: Metric) -> (Option<[f64; 2]>, &'static str) {
    match metric {
        Metric::Drops => (
            Some(share_interval(result.queries.dropped, result.queries.frames)),
            WILSON,
        ),
        Metric::Misses => match result.deadline {
            Some(deadline) => (
                Some(share_interval(deadline.misses, result.latencies_us.len() as u64)),
                WILSON,
            ),
            None => (None, POINT),
        },
        Metric::Peak => {
            let bracket = result
                .peak
                .as_ref()
                .and_then(|peak| Some([peak.rate_hz?, peak.fails_at_hz?]));
            (bracket, if bracket.is_some() { BRACKET } else { POINT })
        }
        _ => match resamples(result, metric, SEEDS[0]) {
            Some((values, method)) => (middle(values), method),
            None => (None, POINT),
        },
    }
}

/// Whether there are samples enough for an interval of a percentile by itself; without them resampling shows no more than
/// the few largest again and again.
fn has_samples(result: &BenchResult, metric: Metric) -> bool {
    let own = result
        .percentiles
        .iter()
        .find(|percentile| Some(percentile.p) == metric.share());
    own.is_none_or(|percentile| percentile.interval_us.is_some())
}

/// How a metric changed from one result to another; `None` where one of them does not have it.
fn change_of(baseline: &BenchResult, result: &BenchResult, metric: Metric) -> Option<MetricChange> {
    let (before, after) = (value_of(baseline, metric)?, value_of(result, metric)?);
    let change = (before != 0.0).then(|| after / before - 1.0);
    let (interval, method) = match metric {
        Metric::Peak => match (interval_of(baseline, metric), interval_of(result, metric)) {
            ((Some(old), method), (Some(new), _)) if old[0] > 0.0 => {
                (Some([new[0] / old[1] - 1.0, new[1] / old[0] - 1.0]), method)
            }
            _ => (None, POINT),
        },
        _ => match (
            resamples(baseline, metric, SEEDS[0]),
            resamples(result, metric, SEEDS[1]),
        ) {
            // The two runs are independent, so their resamples are paired as they come.
            (Some((old, method)), Some((new, _))) => {
                let changes = old.iter().zip(&new).map(|(old, new)| new / old - 1.0);
                (middle(changes.collect()), method)
            }
            _ => (None, POINT),
        },
    };
    Some(MetricChange {
        metric,
        unit: metric.unit().to_owned(),
        baseline: before,
        value: after,
        change,
        interval,
        method: method.to_owned(),
        significant: interval.is_some_and(|[low, high]| low > 0.0 || high < 0.0)
            && has_samples(baseline, metric)
            && has_samples(result, metric),
    })
}

/// Compares a result to an earlier one, which was read from the file `name`.
#[must_use]
pub fn compare(baseline: &BenchResult, name: &str, result: &BenchResult) -> Comparison {
    let mut differences = Vec::new();
    let mut differ = |what: &str, before: &str, after: &str| {
        if before != after {
            differences.push(format!("{what}: {before} before, {after} now"));
        }
    };
    differ("pipeline", &baseline.pipeline, &result.pipeline);
    differ("model", &baseline.model, &result.model);
    differ("device", &baseline.device, &result.device);
    let scenario = |result: &BenchResult| result.scenario.name.name();
    differ("scenario", scenario(baseline), scenario(result));
    let streams = |result: &BenchResult| result.scenario.streams.to_string();
    differ("streams", &streams(baseline), &streams(result));
    let rate = |result: &BenchResult| match (result.scenario.name, result.scenario.rate_hz) {
        (super::ScenarioKind::PeakRate, _) | (_, None) => "free".to_owned(),
        (_, Some(hz)) => format!("{hz:.3} Hz"),
    };
    differ("rate", &rate(baseline), &rate(result));
    let machine = |result: &BenchResult| {
        let machine = &result.machine;
        format!(
            "{} with {} processor(s)",
            machine.processor.as_deref().unwrap_or("unknown"),
            machine.processors.unwrap_or(0)
        )
    };
    differ("machine", &machine(baseline), &machine(result));
    let build = |result: &BenchResult| {
        if result.optimized {
            "optimized"
        } else {
            "not optimized"
        }
    };
    differ("build", build(baseline), build(result));
    Comparison {
        baseline: name.to_owned(),
        version: baseline.version.clone(),
        differences,
        changes: Metric::ALL
            .into_iter()
            .filter_map(|metric| change_of(baseline, result, metric))
            .collect(),
    }
}

/// Whether a condition holds, and whether it does so beyond chance.
///
/// # Errors
/// In words, a condition that cannot be decided: a change without an earlier result, or a metric that is not there.
pub fn evaluate(
    condition: &Condition,
    result: &BenchResult,
    comparison: Option<&Comparison>,
) -> Result<ConditionOutcome, String> {
    let metric = condition.metric;
    let missing = || {
        let why = match metric {
            Metric::Peak => "it takes --scenario peak-rate",
            Metric::Misses => "the source has no deadline_ms",
            _ => "no frame came out",
        };
        format!(
            "`{}` cannot be decided: there is no {metric} ({why})",
            condition.text
        )
    };
    let (measured, limit, interval, method) = match condition.limit {
        Limit::Value(limit) => {
            let value = value_of(result, metric).ok_or_else(missing)?;
            let (interval, method) = interval_of(result, metric);
            (Some(value), limit, interval, method.to_owned())
        }
        Limit::Change(limit) => {
            let comparison = comparison.ok_or_else(|| {
                format!(
                    "`{}` speaks of a change: name the earlier result with --baseline",
                    condition.text
                )
            })?;
            let change = comparison
                .changes
                .iter()
                .find(|change| change.metric == metric)
                .ok_or_else(missing)?;
            // From nothing, any increase is beyond every limit.
            let share = change.change.unwrap_or(match change.value {
                0.0 => 0.0,
                _ => f64::INFINITY,
            });
            (Some(share), limit, change.interval, change.method.clone())
        }
    };
    let holds = measured.is_some_and(|value| condition.operator.holds(value, limit));
    let fails = match interval {
        Some(interval) => {
            holds
                && condition
                    .operator
                    .holds(condition.operator.hardest(interval), limit)
        }
        None => holds,
    };
    let shown = |value: f64| match condition.limit {
        Limit::Change(_) => format!("{:+.1} %", value * 100.0),
        Limit::Value(_) => super::text::metric_value(metric, value),
    };
    let interval_text = interval.map_or_else(String::new, |[low, high]| {
        format!(", between {} and {}", shown(low), shown(high))
    });
    let verdict = match (holds, fails) {
        (true, true) => "holds",
        (true, false) => "holds, but not beyond chance",
        (false, _) => "does not hold",
    };
    let text = format!(
        "{} {verdict}: {}{interval_text}",
        condition.text,
        measured.map_or_else(String::new, shown)
    );
    Ok(ConditionOutcome {
        condition: condition.text.clone(),
        metric,
        // JSON has no infinity.
        measured: measured.filter(|value| value.is_finite()),
        limit,
        interval,
        method,
        holds,
        fails,
        text,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;
    use crate::telemetry::bench::text::tests::result;

    /// Latencies around a value, spread by a fixed pattern.
    fn spread(around_us: u64, n: u64) -> Vec<u64> {
        (0..n).map(|i| around_us + (i * 7_919) % 1_000).collect()
    }

    #[test]
    fn a_percentile_of_too_few_samples_is_never_said_to_change() {
        let changed = |n: u64| {
            let comparison = compare(&result(spread(10_000, n)), "old.json", &result(spread(20_000, n)));
            let of = |metric: Metric| {
                let found = comparison.changes.iter().find(|change| change.metric == metric);
                found.unwrap().significant
            };
            [of(Metric::P50), of(Metric::P99)]
        };
        assert_eq!(changed(30), [true, false]);
        assert_eq!(changed(4_000), [true, true]);
    }

    #[test]
    fn a_slower_run_fails_and_one_within_chance_does_not() {
        let mut old = result(spread(10_000, 4_000));
        old.version = "0.0.9".into();
        let slower = result(spread(11_500, 4_000));
        let comparison = compare(&old, "old.json", &slower);
        assert!(comparison.differences.is_empty(), "{:?}", comparison.differences);
        assert_eq!(comparison.version, "0.0.9");
        let p99 = comparison
            .changes
            .iter()
            .find(|c| c.metric == Metric::P99)
            .unwrap();
        let change = 12_490.0_f64 / 10_990.0 - 1.0;
        assert!((p99.change.unwrap() - change).abs() < 2e-3, "{p99:?}");
        let [low, high] = p99.interval.unwrap();
        assert!(
            low <= change + 2e-3 && change - 2e-3 <= high && p99.significant,
            "{p99:?}"
        );
        let fails = |text: &str, result: &BenchResult, comparison: &Comparison| {
            let outcome = evaluate(&text.parse().unwrap(), result, Some(comparison)).unwrap();
            (outcome.holds, outcome.fails)
        };
        assert_eq!(fails("p99>+5%", &slower, &comparison), (true, true));
        assert_eq!(fails("p99>+50%", &slower, &comparison), (false, false));
        assert_eq!(fails("p50<-5%", &slower, &comparison), (false, false));
        let same = result(spread(10_000, 4_000).into_iter().rev().collect());
        let comparison = compare(&old, "old.json", &same);
        assert_eq!(fails("p99>+5%", &same, &comparison), (false, false));
    }

    #[test]
    fn a_change_within_the_interval_holds_without_failing() {
        // Few values, widely spread: 6 % more may be chance.
        let wide =
            |factor: f64| (0..40_u64).map(move |i| ((5_000 + (i * 7_919) % 9_000) as f64 * factor) as u64);
        let old = result(wide(1.0).collect());
        let new = result(wide(1.06).collect());
        let comparison = compare(&old, "old.json", &new);
        let outcome = evaluate(&"mean>+5%".parse().unwrap(), &new, Some(&comparison)).unwrap();
        assert!(outcome.holds && !outcome.fails, "{outcome:?}");
        assert!(outcome.text.contains("not beyond chance"), "{}", outcome.text);
    }

    #[test]
    fn values_are_held_against_limits_with_units() {
        let mut run = result(spread(10_000, 1_000));
        run.queries.frames = 1_010;
        run.queries.dropped = 10;
        let evaluated = |text: &str| evaluate(&text.parse().unwrap(), &run, None);
        assert!(evaluated("p99>10ms").unwrap().fails);
        assert!(!evaluated("p99>12ms").unwrap().holds);
        let drops = evaluated("drops>0.1%").unwrap();
        assert!(
            drops.fails && (drops.measured.unwrap() - 10.0 / 1_010.0).abs() < 1e-12,
            "{drops:?}"
        );
        assert!(
            !evaluated("drops>0.9%").unwrap().fails,
            "9.9 in a thousand, but not beyond chance"
        );
        assert!(evaluated("max>10ms").unwrap().fails);
        assert!(evaluated("p99>+5%").unwrap_err().contains("--baseline"));
        assert!(evaluated("peak<30hz").unwrap_err().contains("peak-rate"));
        assert!(evaluated("misses>1%").unwrap_err().contains("deadline_ms"));
    }

    #[test]
    fn what_cannot_be_compared_is_told() {
        let old = result(spread(10_000, 100));
        let mut new = result(spread(10_000, 100));
        new.scenario.streams = 8;
        new.pipeline = "other".into();
        let differences = compare(&old, "old.json", &new).differences.join("\n");
        assert!(differences.contains("streams: 1 before, 8 now") && differences.contains("pipeline"));
    }
}
