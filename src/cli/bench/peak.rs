//! The search for the highest rate that a pipeline keeps up with.
//!
//! Rates are doubled until one is too high, then the gap between the highest good and the lowest bad one is halved
//! (geometrically) until it is below two in a hundred. The rate that remains is confirmed by a run of the full duration;
//! where that fails, a lower one is, up to five times.

use std::time::Duration;

use super::trial::{Trial, run_trial};
use super::{Args, period_ns};
use crate::device::DeviceLayer;
use crate::pipeline::Pipeline;
use crate::runtime::{Arrivals, Load, Until};
use crate::telemetry::bench::{PeakPoint, PeakSummary};

/// Share of failed queries at or above which a rate is too high.
const PERMITTED_SHARE: f64 = 0.001;
/// Length of a trial that does not confirm, at most.
const TRIAL: Duration = Duration::from_secs(5);
/// Warm-up of such a trial, at most.
const TRIAL_WARM_UP: Duration = Duration::from_secs(1);
/// Ratio of the lowest bad rate to the highest good one at which the search ends.
const CLOSE: f64 = 1.02;
/// Trials at most, the confirming ones not counted.
const MOST_TRIALS: usize = 40;
/// Confirming runs at most, each at a rate lower by [`STEP_DOWN`].
const MOST_CONFIRMATIONS: usize = 5;
/// What a rate is multiplied by that was not confirmed.
const STEP_DOWN: f64 = 0.95;
/// Rates that are tried, in Hz.
const LOWEST_HZ: f64 = 0.01;
const HIGHEST_HZ: f64 = 1e6;

/// Where the search stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bracket {
    /// Highest rate that was kept up with.
    good_hz: Option<f64>,
    /// Lowest rate that was not.
    bad_hz: Option<f64>,
}

impl Bracket {
    /// Nothing is known yet.
    pub(super) const fn new() -> Self {
        Self {
            good_hz: None,
            bad_hz: None,
        }
    }

    /// Takes the outcome of a trial in.
    pub(super) fn note(&mut self, rate_hz: f64, kept_up: bool) {
        if kept_up {
            self.good_hz = Some(self.good_hz.map_or(rate_hz, |good| good.max(rate_hz)));
        } else {
            self.bad_hz = Some(self.bad_hz.map_or(rate_hz, |bad| bad.min(rate_hz)));
        }
    }

    /// The next rate to try; `None` once the two are close, or at a bound of the search.
    pub(super) fn next_hz(&self) -> Option<f64> {
        let next = match (self.good_hz, self.bad_hz) {
            (Some(good), Some(bad)) if bad / good <= CLOSE => return None,
            (Some(good), Some(bad)) => (good * bad).sqrt(),
            (Some(good), None) => good * 2.0,
            (None, Some(bad)) => bad / 2.0,
            (None, None) => return None,
        };
        (LOWEST_HZ..=HIGHEST_HZ).contains(&next).then_some(next)
    }
}

/// Searches; the trial that confirmed, or the last one.
pub(super) async fn search(
    pipeline: &Pipeline,
    environment: &DeviceLayer,
    load: &Load,
    args: &Args,
) -> miette::Result<(Trial, Option<PeakSummary>)> {
    let full = match load.until {
        Until::For(time) => format!("for {:.0} s", time.as_secs_f64()),
        Until::Queries(queries) => format!("with {queries} messages"),
    };
    let short = Load {
        warm_up: load.warm_up.min(TRIAL_WARM_UP),
        until: match load.until {
            Until::For(time) => Until::For(time.min(TRIAL)),
            queries => queries,
        },
        ..load.clone()
    };
    let mut points = Vec::new();
    let mut bracket = Bracket::new();
    let mut rate_hz = args.rate;
    for _ in 0..MOST_TRIALS {
        let trial = run_trial(pipeline, environment, at_rate(&short, rate_hz), false).await?;
        let point = point_of(&trial, false);
        tell(&point);
        bracket.note(point.rate_hz, point.kept_up);
        points.push(point);
        if trial.stopped || !trial.faults.is_empty() {
            return Ok((trial, Some(summary(None, &bracket, points))));
        }
        rate_hz = bracket.next_hz();
        if rate_hz.is_none() {
            break;
        }
    }
    let mut candidate_hz = bracket.good_hz;
    let mut last = None;
    for _ in 0..MOST_CONFIRMATIONS {
        let Some(hz) = candidate_hz else { break };
        eprintln!("confirming {hz:.2} Hz {full}");
        let trial = run_trial(pipeline, environment, at_rate(load, Some(hz)), true).await?;
        let point = point_of(&trial, true);
        tell(&point);
        let kept_up = point.kept_up && !trial.stopped;
        let rate_hz = point.rate_hz;
        bracket.note(rate_hz, kept_up);
        points.push(point);
        if kept_up {
            return Ok((trial, Some(summary(Some(rate_hz), &bracket, points))));
        }
        candidate_hz = (!trial.stopped).then_some(hz * STEP_DOWN);
        last = Some(trial);
    }
    let trial = match last {
        Some(trial) => trial,
        // No rate was good: the numbers are those of the lowest.
        None => run_trial(pipeline, environment, at_rate(&short, bracket.bad_hz), false).await?,
    };
    Ok((trial, Some(summary(None, &bracket, points))))
}

fn at_rate(load: &Load, rate_hz: Option<f64>) -> Load {
    let arrivals = match rate_hz {
        Some(hz) => Arrivals::Every {
            period_ns: period_ns(hz),
        },
        None => Arrivals::AsRecorded,
    };
    let planned = match load.until {
        Until::Queries(queries) => queries as f64,
        Until::For(time) => rate_hz.unwrap_or(0.0) * f64::from(load.copies) * time.as_secs_f64(),
    };
    Load {
        arrivals,
        // So many overruns cannot be made up for; the rest of the trial would only take time.
        give_up_after: Some((planned * PERMITTED_SHARE * 2.0).ceil() as u64 + 5),
        ..load.clone()
    }
}

fn point_of(trial: &Trial, confirms: bool) -> PeakPoint {
    let queries = trial.queries();
    let total = trial.collected.recorder.total();
    PeakPoint {
        rate_hz: trial.rate_hz().unwrap_or(0.0),
        confirms,
        offered: queries.offered,
        failed_share: queries.failed_share,
        p50_us: total.as_ref().map(|total| total.p50_us),
        p99_us: total.as_ref().map(|total| total.p99_us),
        kept_up: queries.frames > 0 && queries.failed_share < PERMITTED_SHARE && !trial.tally.gave_up(),
    }
}

fn tell(point: &PeakPoint) {
    eprintln!(
        "{:>10.2} Hz: {:.3} % of {} failed, {}",
        point.rate_hz,
        point.failed_share * 100.0,
        point.offered,
        if point.kept_up { "kept up" } else { "too fast" }
    );
}

fn summary(rate_hz: Option<f64>, bracket: &Bracket, points: Vec<PeakPoint>) -> PeakSummary {
    PeakSummary {
        rate_hz,
        fails_at_hz: bracket.bad_hz,
        permitted_share: PERMITTED_SHARE,
        points,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;

    /// The highest good rate that a search finds where everything up to `limit_hz` is kept up with.
    fn found(start_hz: f64, limit_hz: f64) -> (f64, usize) {
        let mut bracket = Bracket::new();
        bracket.note(start_hz, start_hz <= limit_hz);
        let mut trials = 1;
        while let Some(hz) = bracket.next_hz() {
            bracket.note(hz, hz <= limit_hz);
            trials += 1;
        }
        (bracket.good_hz.unwrap(), trials)
    }

    #[test]
    fn the_search_ends_within_two_in_a_hundred_below_the_limit() {
        for (start_hz, limit_hz) in [(10.0, 137.0), (10.0, 3.3), (10.0, 10.0), (1.0, 25_000.0)] {
            let (good_hz, trials) = found(start_hz, limit_hz);
            assert!(
                good_hz <= limit_hz && good_hz * CLOSE >= limit_hz / CLOSE,
                "{good_hz} for {limit_hz}"
            );
            assert!(trials < MOST_TRIALS, "{trials}");
        }
    }

    #[test]
    fn a_trial_of_so_many_messages_gives_up_by_their_number() {
        let load = |until| Load {
            arrivals: Arrivals::AsRecorded,
            copies: 2,
            warm_up: Duration::ZERO,
            until,
            most_queries: 1,
            give_up_after: None,
            memory_bytes: 1,
            messages: std::sync::Arc::default(),
            tally: std::sync::Arc::default(),
        };
        let give_up = |until| at_rate(&load(until), Some(100.0)).give_up_after;
        assert_eq!(give_up(Until::Queries(10_000)), Some(25));
        assert_eq!(give_up(Until::For(Duration::from_secs(50))), Some(25));
    }

    #[test]
    fn a_search_without_a_limit_ends_at_its_bounds() {
        assert!(found(10.0, f64::INFINITY).0 > HIGHEST_HZ / 2.0);
        let mut bracket = Bracket::new();
        bracket.note(1.0, false);
        while let Some(hz) = bracket.next_hz() {
            bracket.note(hz, false);
        }
        assert_eq!(bracket.good_hz, None);
    }
}
