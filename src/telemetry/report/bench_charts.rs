//! Drawings of a benchmark: latency over time, drops by reason, the search for the peak, what changed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::charts::{LABEL_WIDTH, WIDTH, nice_step, open_svg};
use super::markup::{count, duration, escape};
use crate::telemetry::bench::{BenchResult, Comparison, MetricChange, PeakSummary, Sample, percentile};

const RIGHT: f64 = WIDTH - 20.0;
/// Most columns of the drawing over time.
const COLUMNS: u64 = 240;
/// Frames that a column stands for, at least, so that its median means something.
const COLUMN_FRAMES: u64 = 8;

/// Lines across a drawing at round values, with their labels; the height of a value.
fn value_grid(svg: &mut String, top: f64, height: f64, high: f64, label: impl Fn(f64) -> String) -> f64 {
    let step = nice_step(high.max(1e-9) / 4.0);
    let steps = (high / step).ceil().max(1.0);
    for i in 0..=(steps as u32) {
        let value = f64::from(i) * step;
        let y = top + height * (1.0 - value / (steps * step));
        let text = if i == 0 { "0".to_owned() } else { label(value) };
        _ = write!(
            svg,
            r#"<line class="grid" x1="{LABEL_WIDTH}" x2="{RIGHT}" y1="{y:.1}" y2="{y:.1}"/><text class="tick" x="{:.1}" y="{:.1}" text-anchor="end">{text}</text>"#,
            LABEL_WIDTH - 8.0,
            y + 4.0
        );
    }
    steps * step
}

/// Latency over the time at which frames were due: the median of each stretch as a line, everything up to its largest as a
/// band. Empty without frames.
pub(super) fn over_time(samples: &[Sample], deadline_us: Option<f64>) -> String {
    const TOP: f64 = 12.0;
    const HEIGHT: f64 = 200.0;
    let (Some(first_ns), Some(last_ns)) = (
        samples.iter().map(|sample| sample.due_ns).min(),
        samples.iter().map(|sample| sample.due_ns).max(),
    ) else {
        return String::new();
    };
    let span_ns = (last_ns - first_ns).max(1);
    let columns = (samples.len() as u64 / COLUMN_FRAMES).clamp(1, COLUMNS);
    let mut by_column: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for sample in samples {
        let column = u128::from(sample.due_ns - first_ns) * u128::from(columns) / (u128::from(span_ns) + 1);
        by_column
            .entry(column as u64)
            .or_default()
            .push(sample.latency_ns());
    }
    let us = |ns: u64| ns as f64 / 1e3;
    let stretches: Vec<(u64, [f64; 3])> = by_column
        .into_iter()
        .filter_map(|(column, mut values)| {
            values.sort_unstable();
            let (low, high) = (*values.first()?, *values.last()?);
            Some((column, [us(low), us(percentile(&values, 0.5)?), us(high)]))
        })
        .collect();
    let largest = stretches.iter().map(|(_, values)| values[2]).fold(1.0, f64::max);
    let mut svg = String::new();
    open_svg(&mut svg, TOP + HEIGHT + 24.0, "Latency over time");
    let high = value_grid(
        &mut svg,
        TOP,
        HEIGHT,
        largest.max(deadline_us.unwrap_or(0.0)) * 1.05,
        duration,
    );
    let y = |value: f64| TOP + HEIGHT * (1.0 - value / high);
    let x = |column: u64| {
        let at = if columns == 1 {
            0.5
        } else {
            column as f64 / (columns - 1) as f64
        };
        LABEL_WIDTH + (RIGHT - LABEL_WIDTH) * at
    };
    let span_s = span_ns as f64 / 1e9;
    let step_s = nice_step(span_s / 8.0);
    let mut at_s = 0.0;
    while at_s <= span_s * 1.0001 {
        let x = LABEL_WIDTH + (RIGHT - LABEL_WIDTH) * at_s / span_s;
        _ = write!(
            svg,
            r#"<text class="tick" x="{x:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
            TOP + HEIGHT + 16.0,
            if at_s == 0.0 {
                "0".to_owned()
            } else {
                duration(at_s * 1e6)
            }
        );
        at_s += step_s;
    }
    let mut band = String::new();
    for (column, values) in &stretches {
        _ = write!(band, "{:.1},{:.1} ", x(*column), y(values[2]));
    }
    for (column, values) in stretches.iter().rev() {
        _ = write!(band, "{:.1},{:.1} ", x(*column), y(values[0]));
    }
    let mut line = String::new();
    for (column, values) in &stretches {
        _ = write!(line, "{:.1},{:.1} ", x(*column), y(values[1]));
    }
    _ = write!(
        svg,
        r#"<polygon class="band" points="{}"/><polyline class="curve" points="{}"/>"#,
        band.trim_end(),
        line.trim_end()
    );
    if let Some(deadline_us) = deadline_us {
        let y = y(deadline_us);
        _ = write!(
            svg,
            r#"<line class="deadline" x1="{LABEL_WIDTH}" x2="{RIGHT}" y1="{y:.1}" y2="{y:.1}"/><text class="deadline-label" x="{:.1}" y="{:.1}">deadline {}</text>"#,
            LABEL_WIDTH + 6.0,
            y - 5.0,
            duration(deadline_us)
        );
    }
    svg.push_str("</svg>");
    svg
}

/// One bar a reason for which frames were dropped. Empty without drops.
pub(super) fn drops(result: &BenchResult) -> String {
    const ROW: f64 = 26.0;
    let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
    for drop in &result.drops {
        *reasons
            .entry(format!("{} at {}", drop.reason, drop.place))
            .or_default() += drop.count;
    }
    let mut reasons: Vec<(String, u64)> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, drops)| std::cmp::Reverse(*drops));
    let Some(most) = reasons.first().map(|(_, drops)| *drops) else {
        return String::new();
    };
    let label_width = 370.0;
    let mut svg = String::new();
    open_svg(&mut svg, ROW * reasons.len() as f64 + 6.0, "Drops by reason");
    for (i, (reason, drops)) in reasons.iter().enumerate() {
        let y = ROW * i as f64 + 4.0;
        let width = (WIDTH - label_width - 90.0) * *drops as f64 / most as f64;
        _ = write!(
            svg,
            r#"<text class="lane" x="0" y="{:.1}">{}</text><rect class="drop-bar" x="{label_width}" y="{y:.1}" width="{:.1}" height="16"/><text class="value" x="{:.1}" y="{:.1}">{}</text>"#,
            y + 13.0,
            escape(reason),
            width.max(1.0),
            label_width + width.max(1.0) + 8.0,
            y + 13.0,
            count(*drops)
        );
    }
    svg.push_str("</svg>");
    svg
}

/// The trials of a search: p99 over the rate, logarithmic in both.
pub(super) fn peak(peak: &PeakSummary) -> String {
    const TOP: f64 = 16.0;
    const HEIGHT: f64 = 220.0;
    let shown: Vec<_> = peak
        .points
        .iter()
        .filter_map(|point| Some((point, point.p99_us?)))
        .filter(|(point, p99_us)| point.rate_hz > 0.0 && *p99_us > 0.0)
        .collect();
    if shown.is_empty() {
        return String::new();
    }
    let range = |values: &[f64]| {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(0.0, f64::max);
        // Room at both ends, also for a single value.
        [(low / 1.25).log10(), (high * 1.25).log10()]
    };
    let rates: Vec<f64> = shown.iter().map(|(point, _)| point.rate_hz).collect();
    let latencies: Vec<f64> = shown.iter().map(|(_, p99_us)| *p99_us).collect();
    let ([x_low, x_high], [y_low, y_high]) = (range(&rates), range(&latencies));
    let x = |rate: f64| LABEL_WIDTH + (RIGHT - LABEL_WIDTH) * (rate.log10() - x_low) / (x_high - x_low);
    let y = |us: f64| TOP + HEIGHT * (1.0 - (us.log10() - y_low) / (y_high - y_low));
    let mut svg = String::new();
    open_svg(&mut svg, TOP + HEIGHT + 26.0, "p99 of the trials over their rate");
    for us in round_values(y_low, y_high) {
        let at = y(us);
        _ = write!(
            svg,
            r#"<line class="grid" x1="{LABEL_WIDTH}" x2="{RIGHT}" y1="{at:.1}" y2="{at:.1}"/><text class="tick" x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
            LABEL_WIDTH - 8.0,
            at + 4.0,
            duration(us)
        );
    }
    for hz in round_values(x_low, x_high) {
        let at = x(hz);
        _ = write!(
            svg,
            r#"<line class="grid" x1="{at:.1}" x2="{at:.1}" y1="{TOP}" y2="{:.1}"/><text class="tick" x="{at:.1}" y="{:.1}" text-anchor="middle">{hz} Hz</text>"#,
            TOP + HEIGHT,
            TOP + HEIGHT + 16.0
        );
    }
    if let Some(hz) = peak.rate_hz {
        let at = x(hz);
        _ = write!(
            svg,
            r#"<line class="limit" x1="{at:.1}" x2="{at:.1}" y1="{TOP}" y2="{:.1}"/><text class="value" x="{:.1}" y="{:.1}" text-anchor="end">{hz:.2} Hz</text>"#,
            TOP + HEIGHT,
            at - 6.0,
            TOP + 12.0
        );
    }
    for (point, p99_us) in shown {
        let (at_x, at_y) = (x(point.rate_hz), y(p99_us));
        let class = if point.kept_up { "dot-good" } else { "dot-bad" };
        _ = write!(
            svg,
            r#"<g><title>{:.2} Hz: {:.3} % of {} failed, p99 {}</title><circle class="{class}" cx="{at_x:.1}" cy="{at_y:.1}" r="4"/>"#,
            point.rate_hz,
            point.failed_share * 100.0,
            point.offered,
            duration(p99_us)
        );
        if point.confirms {
            _ = write!(
                svg,
                r#"<circle class="mark" cx="{at_x:.1}" cy="{at_y:.1}" r="8"/>"#
            );
        }
        svg.push_str("</g>");
    }
    svg.push_str("</svg>");
    svg
}

/// 1, 2 and 5 times powers of ten between two powers, or fewer of them where they would crowd.
fn round_values(low: f64, high: f64) -> Vec<f64> {
    let factors: &[f64] = if high - low > 2.5 {
        &[1.0]
    } else {
        &[1.0, 2.0, 5.0]
    };
    let mut values = Vec::new();
    for power in (low.floor() as i32)..=(high.ceil() as i32) {
        for factor in factors {
            let value = factor * 10_f64.powi(power);
            if (low..=high).contains(&value.log10()) {
                // Powers below one are not exact.
                values.push((value * 1e9).round() / 1e9);
            }
        }
    }
    values
}

/// What changed, metric by metric: the change as a point, its interval as a line.
pub(super) fn changes(comparison: &Comparison) -> String {
    const ROW: f64 = 26.0;
    let shown: Vec<(&MetricChange, f64)> = comparison
        .changes
        .iter()
        .filter_map(|change| Some((change, change.change?)))
        .collect();
    if shown.is_empty() {
        return String::new();
    }
    let ends = |(change, at): &(&MetricChange, f64)| change.interval.unwrap_or([*at, *at]);
    let reach = shown
        .iter()
        .flat_map(|row| ends(row).into_iter().chain([row.1]))
        .map(f64::abs)
        .fold(0.02, f64::max)
        * 1.1;
    let x = |share: f64| LABEL_WIDTH + (RIGHT - 170.0 - LABEL_WIDTH) * (share / reach + 1.0) / 2.0;
    let bottom = ROW * shown.len() as f64 + 6.0;
    let mut svg = String::new();
    open_svg(&mut svg, bottom + 22.0, "Changes since the baseline");
    let step = nice_step(reach / 3.0);
    let steps = (reach / step).floor() as i32;
    for i in -steps..=steps {
        let share = f64::from(i) * step;
        let at = x(share);
        let class = if i == 0 { "zero" } else { "grid" };
        _ = write!(
            svg,
            r#"<line class="{class}" x1="{at:.1}" x2="{at:.1}" y1="0" y2="{bottom:.1}"/><text class="tick" x="{at:.1}" y="{:.1}" text-anchor="middle">{}%</text>"#,
            bottom + 15.0,
            // Steps are decimal, their sums in binary are not.
            match i {
                0 => "0 ".to_owned(),
                _ => format!("{:+} ", (share * 1e5).round() / 1e3),
            }
        );
    }
    for (i, row) in shown.iter().enumerate() {
        let (change, at) = row;
        let y = ROW * i as f64 + 14.0;
        let more_is_better = change.unit == "hz";
        let class = match (change.significant, (*at > 0.0) == more_is_better) {
            (false, _) => "change-none",
            (true, true) => "change-good",
            (true, false) => "change-bad",
        };
        let [low, high] = ends(row).map(x);
        _ = write!(
            svg,
            r#"<text class="lane" x="0" y="{:.1}">{}</text><g class="{class}"><line x1="{low:.1}" x2="{high:.1}" y1="{y:.1}" y2="{y:.1}" stroke-width="3"/><circle cx="{:.1}" cy="{y:.1}" r="4"/></g><text class="value" x="{WIDTH}" y="{:.1}" text-anchor="end">{:+.1} %{}</text>"#,
            y + 4.0,
            change.metric,
            x(*at),
            y + 4.0,
            at * 100.0,
            if change.interval.is_none() {
                ", no interval"
            } else {
                ""
            }
        );
    }
    svg.push_str("</svg>");
    svg
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;

    #[test]
    fn round_values_lie_within_their_range() {
        assert_eq!(round_values(0.5, 1.5), [5.0, 10.0, 20.0]);
        assert_eq!(round_values(-1.1, 0.1), [0.1, 0.2, 0.5, 1.0]);
        assert_eq!(round_values(0.0, 4.0), [1.0, 10.0, 100.0, 1_000.0, 10_000.0]);
    }

    #[test]
    fn every_frame_is_in_the_drawing_over_time() {
        let samples: Vec<Sample> = (0..100)
            .map(|i| Sample {
                stream: 0,
                due_ns: i * 10_000_000,
                published_ns: i * 10_000_000 + if i == 57 { 90_000_000 } else { 5_000_000 },
            })
            .collect();
        let svg = over_time(&samples, Some(50_000.0));
        // The slow frame decides the height, and the band reaches it.
        assert!(svg.contains("100 ms") && svg.contains("deadline 50 ms"), "{svg}");
        assert_eq!(over_time(&[], None), "");
    }
}
