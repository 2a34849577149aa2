//! The page.

use std::fmt::Write as _;

use super::markup::{count, duration, escape, ms};
use super::moments::Moments;
use super::{QualityTable, ReportPictures, birds_eye, charts, gallery, timeline_svg};
use crate::telemetry::{LatencyStats, Percentile, RunSummary, Timeline};

pub(super) const STYLE: &str = include_str!("page.css");

/// The whole page. Nothing in it refers to anything outside, and the policy in its head forbids that anything
/// could.
pub(super) fn page(summary: &RunSummary, pictures: &ReportPictures, timeline: &Timeline) -> String {
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>{0} - run report</title>\n<style>{1}{STYLE}</style></head>\n<body><main>\n",
        escape(&summary.run.pipeline),
        timeline_svg::STYLE
    );
    header(&mut html, summary);
    if !pictures.quality.is_empty() {
        let tables: String = pictures.quality.iter().map(quality).collect();
        section(&mut html, "Detection quality", &tables);
    }
    let moments = Moments::of(&pictures.sweeps, &pictures.frames);
    if !moments.shared.is_empty() {
        let body = format!("{}{}", birds_eye::LEGEND, moments.figures());
        section(&mut html, "Moments", &body);
    }
    if !moments.sweeps.is_empty() {
        let figures: String = moments.sweeps.iter().copied().map(birds_eye::figure).collect();
        let body = format!("{}<div class=\"gallery\">{figures}</div>", birds_eye::LEGEND);
        section(&mut html, "Sweeps", &body);
    }
    section(&mut html, "Latency", &latency(summary));
    section(&mut html, "Timeline", &timeline_body(timeline));
    section(&mut html, "Streams", &streams(summary));
    section(&mut html, "Dropped frames", &drops(summary));
    if !moments.frames.is_empty() {
        let figures: String = moments.frames.iter().copied().map(gallery::figure).collect();
        section(
            &mut html,
            "Frames",
            &format!("<div class=\"gallery\">{figures}</div>"),
        );
    }
    html.push_str(concat!(
        "<footer>Latency counts from the time at which a frame was due, not from the time at which the pipeline got ",
        "round to it. Wait is the time since the previous stage ended. Histograms keep three digits and every ",
        "value.</footer>\n</main></body></html>\n"
    ));
    html
}

fn quality(table: &QualityTable) -> String {
    let mut html = format!(
        "<h3>{}</h3><div class=\"scroll\"><table><thead><tr>",
        escape(&table.title)
    );
    for (column, name) in table.head.iter().enumerate() {
        let class = if column == 0 { "" } else { " class=\"n\"" };
        _ = write!(html, "<th{class}>{}</th>", escape(name));
    }
    html.push_str("</tr></thead><tbody>");
    for row in &table.rows {
        html.push_str("<tr>");
        for (column, value) in row.iter().enumerate() {
            match column {
                0 => _ = write!(html, "<th>{}</th>", escape(value)),
                _ => _ = write!(html, "<td class=\"n\">{}</td>", escape(value)),
            }
        }
        html.push_str("</tr>");
    }
    _ = writeln!(
        html,
        "</tbody></table></div>\n<p class=\"note\">{}</p>",
        escape(&table.note)
    );
    html
}

pub(super) fn section(html: &mut String, title: &str, body: &str) {
    _ = writeln!(html, "<section><h2>{title}</h2>\n{body}</section>");
}

fn header(html: &mut String, summary: &RunSummary) {
    let run = &summary.run;
    let complete = summary.incomplete.is_empty();
    _ = writeln!(
        html,
        "<header><h1>{}</h1><span class=\"badge {}\">{}</span></header>",
        escape(&run.pipeline),
        if complete { "good" } else { "bad" },
        if complete { "complete" } else { "incomplete" }
    );
    if !complete {
        html.push_str("<ul class=\"faults\">");
        for reason in &summary.incomplete {
            _ = write!(html, "<li>{}</li>", escape(reason));
        }
        html.push_str("</ul>\n");
    }
    html.push_str("<dl class=\"facts\">");
    let mut fact =
        |name: &str, value: &str| _ = write!(html, "<div><dt>{name}</dt><dd>{}</dd></div>", escape(value));
    fact("Model", &run.model);
    fact("Device", &run.device);
    let rate = run
        .rate
        .map_or_else(|| "as fast as possible".to_owned(), |rate| format!("rate {rate}"));
    fact("Clock", &format!("{}, {rate}", run.clock.name()));
    if let Some(started_at) = &run.started_at {
        fact("Started", started_at);
    }
    if let Some(wall_s) = run.wall_s {
        fact("Duration", &format!("{wall_s:.1} s"));
    }
    if let Some(restarts) = summary.restarts_text() {
        fact("Restarts", &restarts);
    }
    html.push_str("</dl>\n<div class=\"tiles\">");
    let mut tile = |name: &str, value: &str, unit: &str, class: &str| {
        _ = write!(
            html,
            "<div class=\"tile {class}\"><span>{name}</span><b>{value}</b> <small>{unit}</small></div>"
        );
    };
    let frames = &summary.frames;
    tile("Frames in", &count(frames.frames_in), "", "");
    tile("Frames out", &count(frames.frames_out), "", "");
    tile(
        "Dropped",
        &count(frames.dropped),
        "",
        if frames.dropped > 0 { "warn" } else { "" },
    );
    if let Some(fps) = summary.throughput_fps {
        tile("Throughput", &format!("{fps:.1}"), "fps", "");
    }
    if let Some(total) = &summary.total {
        let p50 = duration(total.p50_us);
        let p99 = duration(total.p99_us);
        let (p50_value, p50_unit) = p50.split_once(' ').unwrap_or((&p50, ""));
        let (p99_value, p99_unit) = p99.split_once(' ').unwrap_or((&p99, ""));
        tile("Latency p50", p50_value, p50_unit, "");
        tile("Latency p99", p99_value, p99_unit, "");
    }
    if let Some(deadline) = &summary.deadline {
        let unit = format!("over {}", duration(deadline.deadline_us));
        tile(
            "Deadline misses",
            &count(deadline.misses),
            &unit,
            if deadline.misses > 0 { "warn" } else { "" },
        );
    }
    html.push_str("</div>\n");
}

fn latency(summary: &RunSummary) -> String {
    if summary.stages.is_empty() && summary.total.is_none() {
        return "<p class=\"none\">No frame came out.</p>\n".to_owned();
    }
    let mut html = String::from(
        "<div class=\"scroll\"><table><thead><tr><th>Stage</th><th>Part</th><th class=\"n\">n</th><th class=\"n\">p50, ms</th>\
         <th class=\"n\">p90, ms</th><th class=\"n\">p99, ms</th><th class=\"n\">p99.9, ms</th><th class=\"n\">max, ms</th>\
         <th class=\"n\">mean, ms</th></tr></thead><tbody>",
    );
    for stage in &summary.stages {
        let name = stage.stage.name();
        let head = format!("<th rowspan=\"2\"><i class=\"key bg-{name}\"></i>{name}</th><td>service</td>");
        _ = write!(
            html,
            "<tr class=\"first\">{head}{}</tr>",
            latency_cells(&stage.service)
        );
        _ = write!(
            html,
            "<tr class=\"faint\"><td>wait</td>{}</tr>",
            latency_cells(&stage.wait)
        );
    }
    if let Some(total) = &summary.total {
        _ = write!(
            html,
            "<tr class=\"sum\"><th>total</th><td>due to published</td>{}</tr>",
            latency_cells(total)
        );
    }
    if let Some(age) = &summary.age {
        _ = write!(
            html,
            "<tr class=\"sum\"><th>age</th><td>stamp to published</td>{}</tr>",
            latency_cells(age)
        );
    }
    html.push_str("</tbody></table></div>\n");
    if summary.has_thin_percentile() {
        html.push_str(
            "<p class=\"note\">~ too few frames to tell this percentile from the maximum: p90 takes 10, p99 100, \
             p99.9 1000.</p>\n",
        );
    }
    if summary.stamped_in_future > 0 {
        _ = writeln!(
            html,
            "<p class=\"note\">{} frames carry a stamp later than their publishing and have no age: the clocks \
             disagree.</p>",
            count(summary.stamped_in_future)
        );
    }
    _ = write!(
        html,
        "<h3>By stage</h3><p class=\"note\">Full colour up to the median, fainter to p90 and p99, a line to the maximum; \
         waits below in grey; medians at the right. Logarithmic.</p>\n{}\n",
        charts::stage_bars(summary)
    );
    _ = write!(
        html,
        "<h3>Total, towards the tail</h3><p class=\"note\">Share of frames that were at most this slow; each tenfold \
         rarer frame takes the same room.</p>\n{}\n",
        charts::tail(summary)
    );
    html
}

pub(super) fn latency_cells(stats: &LatencyStats) -> String {
    let mut cells = format!("<td class=\"n\">{}</td>", count(stats.n));
    for percentile in [
        Percentile::P50,
        Percentile::P90,
        Percentile::P99,
        Percentile::P999,
    ] {
        cells += &percentile_cell(stats, percentile);
    }
    _ = write!(
        cells,
        "<td class=\"n\">{}</td><td class=\"n\">{}</td>",
        ms(stats.max_us),
        ms(stats.mean_us)
    );
    cells
}

fn percentile_cell(stats: &LatencyStats, percentile: Percentile) -> String {
    let (value_us, enough) = stats.percentile_us(percentile);
    let (class, mark) = if enough { ("n", "") } else { ("n thin", "~") };
    format!("<td class=\"{class}\">{mark}{}</td>", ms(value_us))
}

fn timeline_body(timeline: &Timeline) -> String {
    if timeline.first().is_empty() {
        return "<p class=\"none\">No frame came out.</p>\n".to_owned();
    }
    let mut html = format!(
        "<p class=\"note\">The first {} frames to come out. A block is one frame at one stage, the thin line before it is its \
         wait; numbers are sequence numbers. A grey band stands for a longer time without any frame.",
        timeline.first().len()
    );
    if let Some(share) = timeline_svg::upload_overlap(timeline) {
        _ = write!(
            html,
            " <strong>{:.0} %</strong> of the upload time passes while another frame is being replayed.",
            share * 100.0
        );
    }
    _ = writeln!(html, "</p>\n{}", timeline_svg::inline(timeline));
    html
}

fn streams(summary: &RunSummary) -> String {
    if summary.streams.is_empty() {
        return "<p class=\"none\">No stream.</p>\n".to_owned();
    }
    let mut html = String::from(
        "<div class=\"scroll\"><table><thead><tr><th>Stream</th><th class=\"n\">in</th><th class=\"n\">out</th>\
         <th class=\"n\">dropped</th><th class=\"n\">p50, ms</th><th class=\"n\">p99, ms</th><th class=\"n\">p99.9, ms</th><th class=\"n\">max, ms</th>\
         <th class=\"n\">missed</th><th class=\"n\">in a row</th><th class=\"n\">jitter, ms</th>\
         <th class=\"n\">&sigma;, ms</th><th class=\"n\">worst, ms</th><th class=\"n\">longest gap, ms</th></tr></thead><tbody>",
    );
    const ABSENT: &str = "<td class=\"n\">-</td>";
    let number = |value: String| format!("<td class=\"n\">{value}</td>");
    for stream in &summary.streams {
        _ = write!(html, "<tr><th>{}</th>", escape(&stream.name));
        html += &number(count(stream.frames.frames_in));
        html += &number(count(stream.frames.frames_out));
        html += &number(count(stream.frames.dropped));
        match &stream.total {
            Some(total) => {
                html += &percentile_cell(total, Percentile::P50);
                html += &percentile_cell(total, Percentile::P99);
                html += &percentile_cell(total, Percentile::P999);
                html += &number(ms(total.max_us));
            }
            None => html += &ABSENT.repeat(4),
        }
        match &stream.deadline {
            Some(deadline) => {
                html += &number(count(deadline.misses));
                html += &number(count(deadline.longest_streak));
            }
            None => html += &ABSENT.repeat(2),
        }
        match &stream.jitter {
            Some(jitter) => {
                html += &number(ms(jitter.mean_abs_us));
                html += &number(ms(jitter.std_us));
                html += &number(ms(jitter.max_abs_us));
                html += &number(ms(jitter.max_interval_us));
            }
            None => html += &ABSENT.repeat(4),
        }
        html.push_str("</tr>");
    }
    html.push_str(
        "</tbody></table></div>\n<p class=\"note\">Missed: frames over the deadline, and the longest run of them. \
         Jitter: how far the time between two results is from the time between their stamps (mean, &sigma;, worst).</p>\n",
    );
    html
}

fn drops(summary: &RunSummary) -> String {
    if summary.drops.is_empty() {
        return "<p class=\"none\">None.</p>\n".to_owned();
    }
    let mut html = String::from(
        "<div class=\"scroll\"><table class=\"narrow\"><thead><tr><th class=\"n\">Frames</th><th>Reason</th><th>Place</th>\
         <th>Stream</th></tr></thead><tbody>",
    );
    for drop in &summary.drops {
        _ = write!(
            html,
            "<tr><td class=\"n\">{}</td><td><code>{}</code></td><td>{}</td><td>{}</td></tr>",
            count(drop.count),
            drop.reason,
            escape(&drop.place),
            escape(&drop.stream)
        );
    }
    html.push_str("</tbody></table></div>\n");
    html
}
