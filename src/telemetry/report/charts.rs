//! Drawings of latency: graded bars per stage, and the tail of the total.

use std::fmt::Write as _;

use super::markup::{duration, ms};
use crate::telemetry::{CurvePoint, LatencyStats, RunSummary, StageSummary};

pub(super) const WIDTH: f64 = 1000.0;
pub(super) const LABEL_WIDTH: f64 = 90.0;

/// A logarithmic axis over whole decades of microseconds.
struct LogAxis {
    low_decade: i32,
    high_decade: i32,
    x0: f64,
    x1: f64,
}

impl LogAxis {
    /// An axis that holds all of `values_us`; below 1 µs everything is at its left end.
    fn over(values_us: impl Iterator<Item = f64>, x0: f64, x1: f64) -> Self {
        let (low, high) = values_us
            .map(|v| v.max(1.0))
            .fold((f64::MAX, 1.0_f64), |(low, high), v| (low.min(v), high.max(v)));
        let low_decade = low.min(high).log10().floor() as i32;
        Self {
            low_decade,
            high_decade: (high.log10().ceil() as i32).max(low_decade + 1),
            x0,
            x1,
        }
    }

    fn x(&self, value_us: f64) -> f64 {
        let decades = f64::from(self.high_decade - self.low_decade);
        let position = (value_us.max(1.0).log10() - f64::from(self.low_decade)) / decades;
        self.x0 + (self.x1 - self.x0) * position.clamp(0.0, 1.0)
    }
}

/// One bar a stage, logarithmic: full colour to the median, then fainter to p90 and p99, a line to the maximum;
/// the waits as thinner bars below. Empty if no stage has values.
pub(super) fn stage_bars(summary: &RunSummary) -> String {
    bars(&summary.stages, summary.total.as_ref())
}

/// [`stage_bars`] of these stages and this total.
pub(super) fn bars(stages: &[StageSummary], total: Option<&LatencyStats>) -> String {
    const ROW: f64 = 34.0;
    const TOP: f64 = 8.0;
    let rows: Vec<(&str, Option<&LatencyStats>, &LatencyStats)> = stages
        .iter()
        .map(|s| (s.stage.name(), Some(&s.wait), &s.service))
        .chain(total.map(|total| ("total", None, total)))
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let all = rows
        .iter()
        .flat_map(|(_, wait, main)| wait.iter().copied().chain([*main]));
    let axis = LogAxis::over(
        all.flat_map(|stats| [stats.min_us, stats.max_us]),
        LABEL_WIDTH,
        WIDTH - 100.0,
    );
    let bottom = TOP + ROW * rows.len() as f64;
    let mut svg = String::new();
    open_svg(
        &mut svg,
        bottom + 24.0,
        "Latency of every stage, logarithmic scale",
    );
    for decade in axis.low_decade..=axis.high_decade {
        let value_us = 10_f64.powi(decade);
        let x = axis.x(value_us);
        let label = match decade {
            0..3 => format!("{value_us:.0} µs"),
            3..6 => format!("{:.0} ms", value_us / 1e3),
            _ => format!("{:.0} s", value_us / 1e6),
        };
        let y = bottom + 16.0;
        _ = write!(
            svg,
            r#"<line class="grid" x1="{x:.1}" x2="{x:.1}" y1="{TOP}" y2="{bottom}"/><text class="tick" x="{x:.1}" y="{y}" text-anchor="middle">{label}</text>"#
        );
    }
    for (i, (name, wait, main)) in rows.iter().enumerate() {
        let y = TOP + ROW * i as f64;
        _ = write!(
            svg,
            r#"<text class="lane" x="0" y="{:.1}">{name}</text>"#,
            y + 18.0
        );
        graded_bar(&mut svg, &axis, main, y + 7.0, 12.0, name, "service");
        if let Some(wait) = wait {
            graded_bar(&mut svg, &axis, wait, y + 22.0, 4.0, "wait", "wait");
        }
        _ = write!(
            svg,
            r#"<text class="value" x="{WIDTH}" y="{:.1}" text-anchor="end">{}</text>"#,
            y + 18.0,
            duration(main.p50_us)
        );
    }
    svg.push_str("</svg>");
    svg
}

fn graded_bar(
    svg: &mut String,
    axis: &LogAxis,
    stats: &LatencyStats,
    y: f64,
    height: f64,
    class: &str,
    part: &str,
) {
    let edges = [
        axis.x0,
        axis.x(stats.p50_us),
        axis.x(stats.p90_us),
        axis.x(stats.p99_us),
    ];
    let max_x = axis.x(stats.max_us);
    let middle = y + height / 2.0;
    _ = write!(
        svg,
        r#"<g class="st-{class}"><title>{part}: p50 {} ms, p90 {} ms, p99 {} ms, max {} ms, n {}</title>"#,
        ms(stats.p50_us),
        ms(stats.p90_us),
        ms(stats.p99_us),
        ms(stats.max_us),
        stats.n
    );
    for (pair, opacity) in edges.windows(2).zip([1.0, 0.55, 0.28]) {
        _ = write!(
            svg,
            r#"<rect x="{:.1}" y="{y:.1}" width="{:.1}" height="{height}" opacity="{opacity}"/>"#,
            pair[0],
            (pair[1] - pair[0]).max(0.0)
        );
    }
    _ = write!(
        svg,
        r#"<rect x="{:.1}" y="{:.1}" width="{:.1}" height="1"/><rect x="{:.1}" y="{y:.1}" width="1.5" height="{height}"/></g>"#,
        edges[3],
        middle - 0.5,
        (max_x - edges[3]).max(0.0),
        max_x - 0.75
    );
}

/// Total latency over percentiles, with as much room for each decade of the tail as for the one before. Empty
/// if no frame came out.
pub(super) fn tail(summary: &RunSummary) -> String {
    let deadline_us = summary.deadline.map(|d| d.deadline_us);
    tail_of(summary.total.as_ref(), &summary.total_curve, deadline_us)
}

/// [`tail`] of this total and its distribution.
pub(super) fn tail_of(
    total: Option<&LatencyStats>,
    curve: &[CurvePoint],
    deadline_us: Option<f64>,
) -> String {
    const HEIGHT: f64 = 240.0;
    const TOP: f64 = 12.0;
    const RIGHT: f64 = WIDTH - 20.0;
    let Some(total) = total else {
        return String::new();
    };
    // A little room above, for the label of the deadline.
    let high_us = total.max_us.max(deadline_us.unwrap_or(0.0)).max(1.0) * 1.06;
    let step_us = nice_step(high_us / 4.0);
    let top_us = (high_us / step_us).ceil() * step_us;
    let decades = (total.n as f64).log10().max(1.0);
    // The maximum has no share of values above it; it stands a little beyond the last decade.
    let x_of = |fraction: f64| {
        let position = if fraction < 1.0 {
            -(1.0 - fraction).log10()
        } else {
            decades + 0.1
        };
        LABEL_WIDTH + (RIGHT - LABEL_WIDTH) * position / (decades + 0.1)
    };
    let y_of = |value_us: f64| TOP + HEIGHT * (1.0 - value_us / top_us);

    let mut svg = String::new();
    open_svg(&mut svg, TOP + HEIGHT + 24.0, "Total latency over percentiles");
    let steps = (top_us / step_us).round() as u32;
    for step in 0..=steps {
        let value_us = f64::from(step) * step_us;
        let y = y_of(value_us);
        _ = write!(
            svg,
            r#"<line class="grid" x1="{LABEL_WIDTH}" x2="{RIGHT}" y1="{y:.1}" y2="{y:.1}"/><text class="tick" x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
            LABEL_WIDTH - 8.0,
            y + 4.0,
            if step == 0 {
                "0".to_owned()
            } else {
                duration(value_us)
            }
        );
    }
    let marks = [
        (0.0, "0"),
        (0.5, "50 %"),
        (0.9, "90 %"),
        (0.99, "99 %"),
        (0.999, "99.9 %"),
        (0.9999, "99.99 %"),
    ];
    let shown = marks
        .iter()
        .filter(|(fraction, _)| -(1.0_f64 - fraction).log10() <= decades - 0.15);
    for &(fraction, label) in shown.chain(&[(1.0, "max")]) {
        let x = x_of(fraction);
        _ = write!(
            svg,
            r#"<line class="grid" x1="{x:.1}" x2="{x:.1}" y1="{TOP}" y2="{:.1}"/><text class="tick" x="{x:.1}" y="{:.1}" text-anchor="middle">{label}</text>"#,
            TOP + HEIGHT,
            TOP + HEIGHT + 16.0
        );
    }
    let mut points = format!("{:.1},{:.1}", x_of(0.0), y_of(total.min_us));
    for point in curve {
        _ = write!(
            points,
            " {:.1},{:.1}",
            x_of(point.fraction),
            y_of(point.latency_us)
        );
    }
    _ = write!(svg, r#"<polyline class="curve" points="{points}"/>"#);
    if let Some(deadline_us) = deadline_us {
        let y = y_of(deadline_us);
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

/// The smallest of 1, 2, 5 times a power of ten that is at least `value`.
pub(super) fn nice_step(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= value * 0.999)
        .unwrap_or(10.0 * power)
}

pub(super) fn open_svg(svg: &mut String, height: f64, label: &str) {
    _ = write!(
        svg,
        r#"<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">"#
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_one_two_or_five() {
        let steps: Vec<f64> = [0.9, 1.0, 1.1, 2.5, 70.0, 1234.0].map(nice_step).to_vec();
        assert_eq!(steps, [1.0, 1.0, 2.0, 5.0, 100.0, 2000.0]);
    }

    #[test]
    fn a_decade_is_as_wide_as_the_next() {
        let axis = LogAxis::over([3.0, 40_000.0].into_iter(), 100.0, 600.0);
        assert_eq!((axis.low_decade, axis.high_decade), (0, 5));
        let xs = [1.0, 10.0, 100.0, 100_000.0].map(|v| axis.x(v).round());
        assert_eq!(xs, [100.0, 200.0, 300.0, 600.0]);
        assert_eq!(axis.x(0.0), 100.0);
    }
}
