//! The table at the end of a run.

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::{LatencyStats, Percentile, RunSummary};

/// The run in lines and tables for a terminal.
pub(super) fn render(summary: &RunSummary) -> String {
    let mut sections = vec![heading(summary)];
    if let Some(latency) = latency_table(summary) {
        sections.push(latency);
    }
    if !summary.streams.is_empty() {
        sections.push(stream_table(summary));
    }
    if !summary.drops.is_empty() {
        sections.push(drop_table(summary));
    }
    let notes = notes(summary);
    if !notes.is_empty() {
        sections.push(notes.join("\n"));
    }
    sections.join("\n\n") + "\n"
}

fn heading(summary: &RunSummary) -> String {
    let run = &summary.run;
    let rate = run.rate.map_or_else(|| "max".to_owned(), |rate| rate.to_string());
    let mut lines = vec![format!(
        "{} | {} | {} | {} clock, rate {rate}",
        run.pipeline,
        run.model,
        run.device,
        run.clock.name()
    )];
    let frames = &summary.frames;
    let mut counts = format!(
        "{} frames in, {} out, {} dropped",
        frames.frames_in, frames.frames_out, frames.dropped
    );
    if let Some(fps) = summary.throughput_fps {
        counts += &format!(", {fps:.2} frames/s");
    }
    if let Some(wall_s) = run.wall_s {
        counts += &format!(", {wall_s:.1} s");
    }
    lines.push(counts);
    lines.extend(summary.restarts_text());
    lines.extend(
        summary
            .incomplete
            .iter()
            .map(|reason| format!("INCOMPLETE: {reason}")),
    );
    lines.join("\n")
}

fn latency_table(summary: &RunSummary) -> Option<String> {
    let mut table = new_table(&["latency, µs", "n", "p50", "p90", "p99", "p99.9", "max"]);
    for stage in &summary.stages {
        table.add_row(latency_row(&format!("{} wait", stage.stage), &stage.wait));
        table.add_row(latency_row(&format!("{} service", stage.stage), &stage.service));
    }
    if let Some(total) = &summary.total {
        table.add_row(latency_row("total", total));
    }
    // A single stream is the total.
    for stream in summary.streams.iter().filter(|_| summary.streams.len() > 1) {
        if let Some(total) = &stream.total {
            table.add_row(latency_row(&format!("total {}", stream.name), total));
        }
    }
    if let Some(age) = &summary.age {
        table.add_row(latency_row("age", age));
    }
    (table.row_count() > 0).then(|| aligned(table))
}

fn latency_row(name: &str, stats: &LatencyStats) -> Vec<String> {
    let at = |percentile| {
        let (value_us, enough) = stats.percentile_us(percentile);
        format!("{}{value_us:.1}", if enough { "" } else { "~" })
    };
    vec![
        name.to_owned(),
        stats.n.to_string(),
        at(Percentile::P50),
        at(Percentile::P90),
        at(Percentile::P99),
        at(Percentile::P999),
        format!("{:.1}", stats.max_us),
    ]
}

fn stream_table(summary: &RunSummary) -> String {
    let mut table = new_table(&[
        "stream",
        "in",
        "out",
        "dropped",
        "missed",
        "in a row",
        "jitter, µs",
        "worst, µs",
    ]);
    let absent = || "-".to_owned();
    for stream in &summary.streams {
        table.add_row(vec![
            stream.name.clone(),
            stream.frames.frames_in.to_string(),
            stream.frames.frames_out.to_string(),
            stream.frames.dropped.to_string(),
            stream.deadline.map_or_else(absent, |d| d.misses.to_string()),
            stream
                .deadline
                .map_or_else(absent, |d| d.longest_streak.to_string()),
            stream
                .jitter
                .map_or_else(absent, |j| format!("{:.1}", j.mean_abs_us)),
            stream
                .jitter
                .map_or_else(absent, |j| format!("{:.1}", j.max_abs_us)),
        ]);
    }
    aligned(table)
}

fn drop_table(summary: &RunSummary) -> String {
    let mut table = new_table(&["dropped", "reason", "place", "stream"]);
    for drop in &summary.drops {
        table.add_row(vec![
            drop.count.to_string(),
            drop.reason.to_string(),
            drop.place.clone(),
            drop.stream.clone(),
        ]);
    }
    let mut table = styled(table);
    if let Some(count) = table.column_mut(0) {
        count.set_cell_alignment(CellAlignment::Right);
    }
    trimmed(&table)
}

fn notes(summary: &RunSummary) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(deadline) = &summary.deadline {
        notes.push(format!(
            "deadline {} µs: {} of {} frames missed it, at most {} in a row",
            deadline.deadline_us, deadline.misses, summary.frames.frames_out, deadline.longest_streak
        ));
    }
    if summary.stamped_in_future > 0 {
        notes.push(format!(
            "{} frames carry a stamp later than their publishing and have no age: the clocks disagree",
            summary.stamped_in_future
        ));
    }
    if summary.has_thin_percentile() {
        notes.push(
            "~ too few frames to tell this percentile from the maximum (p99.9 takes 1000, p99 100, p90 10)"
                .to_owned(),
        );
    }
    notes
}

fn new_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.set_header(header.iter().map(Cell::new));
    table
}

fn styled(mut table: Table) -> Table {
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    // Rows are not ruled off from each other; only the header is.
    table.remove_style(comfy_table::TableComponent::HorizontalLines);
    table.remove_style(comfy_table::TableComponent::MiddleIntersections);
    table.remove_style(comfy_table::TableComponent::LeftBorderIntersections);
    table.remove_style(comfy_table::TableComponent::RightBorderIntersections);
    table
}

/// First column left, the others right.
fn aligned(table: Table) -> String {
    let mut table = styled(table);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    trimmed(&table)
}

/// The table without blanks at the ends of its lines.
fn trimmed(table: &Table) -> String {
    table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect::<Vec<_>>()
        .join("\n")
}
