//! The page of a benchmark.

use std::fmt::Write as _;

use super::html::{STYLE, latency_cells, section};
use super::markup::{count, duration, escape};
use super::{bench_charts, charts, timeline_svg};
use crate::telemetry::bench::{BenchResult, Collected, ScenarioKind};
use crate::telemetry::graph::GraphKpis;

/// The whole page; it loads nothing and needs no scripts.
pub(super) fn page(result: &BenchResult, collected: &Collected) -> String {
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>{0} - benchmark</title>\n<style>{1}{STYLE}</style></head>\n<body><main>\n",
        escape(&result.pipeline),
        timeline_svg::STYLE
    );
    header(&mut html, result);
    if !result.conditions.is_empty() || result.comparison.is_some() {
        section(&mut html, "Since the baseline", &changes(result));
    }
    if let Some(peak) = &result.peak {
        let words = match (peak.rate_hz, peak.fails_at_hz) {
            (Some(hz), Some(above)) => {
                format!("<b>{hz:.2} Hz</b> of each stream were confirmed; {above:.2} Hz are too fast.")
            }
            (Some(hz), None) => {
                format!("<b>{hz:.2} Hz</b> of each stream were confirmed, and nothing faster was tried.")
            }
            (None, _) => "No rate was confirmed.".to_owned(),
        };
        let body = format!(
            "<p>{words}</p><p class=\"note\">Each point is a trial: green kept up, red failed {} % of its queries or more; a \
             ring marks the long trials that confirm. Everything else on this page is of the confirming trial.</p>\n{}\n",
            peak.permitted_share * 100.0,
            bench_charts::peak(peak)
        );
        section(&mut html, "Search for the highest rate", &body);
    }
    if let Some(graph) = &result.graph {
        section(&mut html, "Graph", &graph_tables(graph));
    }
    if result.scenario.name != ScenarioKind::Timers {
        section(&mut html, "Latency", &latency(result, collected));
        section(&mut html, "Streams", &streams(result));
    }
    let drops = match bench_charts::drops(result) {
        none if none.is_empty() => "<p class=\"none\">None.</p>\n".to_owned(),
        drawing => format!("<p class=\"note\">The warm-up included.</p>{drawing}"),
    };
    section(&mut html, "Dropped frames", &drops);
    html.push_str(
        "<footer>MLPerf-style scenarios, and no submission to that benchmark. Latency counts from the time at which a \
         query was due, not from the time at which the pipeline got round to it. Percentiles are by nearest rank over every \
         frame; nothing is left out but the warm-up.</footer>\n</main></body></html>\n",
    );
    html
}

fn header(html: &mut String, result: &BenchResult) {
    let (class, word) = match (result.fails(), result.incomplete.is_empty()) {
        (true, _) => ("bad", "fails"),
        (false, false) => ("bad", "incomplete"),
        (false, true) => ("good", "complete"),
    };
    let scenario = &result.scenario;
    _ = writeln!(
        html,
        "<header><h1>{}</h1><span class=\"badge {class}\">{word}</span>{}</header>",
        escape(&result.pipeline),
        if scenario.quick {
            "<span class=\"badge bad\">quick</span>"
        } else {
            ""
        }
    );
    if !result.incomplete.is_empty() {
        html.push_str("<ul class=\"faults\">");
        for reason in &result.incomplete {
            _ = write!(html, "<li>{}</li>", escape(reason));
        }
        html.push_str("</ul>\n");
    }
    html.push_str("<dl class=\"facts\">");
    let mut fact =
        |name: &str, value: &str| _ = write!(html, "<div><dt>{name}</dt><dd>{}</dd></div>", escape(value));
    fact(
        "Scenario",
        &format!("{}, {}", scenario.name.name(), scenario.r#loop),
    );
    if !result.model.is_empty() {
        fact("Model", &result.model);
    }
    if !result.device.is_empty() {
        fact("Device", &result.device);
    }
    fact("Machine", &result.machine.line());
    fact("Started", &result.started_at);
    let build = if result.optimized { "" } else { ", not optimized" };
    fact("Version", &format!("{}{build}", result.version));
    if !scenario.changes.is_empty() {
        fact("Changed for this", &scenario.changes.join("; "));
    }
    if scenario.name != ScenarioKind::Timers {
        let bytes = result.load.bytes as f64 / f64::from(1 << 20);
        let more = if result.load.cut_off {
            ", the source has more"
        } else {
            ""
        };
        fact(
            "In memory",
            &format!("{} messages, {bytes:.1} MiB{more}", result.load.messages),
        );
    }
    html.push_str("</dl>\n<div class=\"tiles\">");
    let mut tile = |name: &str, value: &str, unit: &str, class: &str| {
        _ = write!(
            html,
            "<div class=\"tile {class}\"><span>{name}</span><b>{value}</b> <small>{unit}</small></div>"
        );
    };
    let warn = |is_bad: bool| if is_bad { "warn" } else { "" };
    if let Some(peak) = result.peak.as_ref().and_then(|peak| peak.rate_hz) {
        tile("Peak rate", &format!("{peak:.1}"), "Hz each", "");
    }
    if scenario.name == ScenarioKind::Timers {
        if let Some(graph) = &result.graph {
            tile("Duration", &format!("{:.1}", graph.seconds), "s", "");
            tile(
                "Transform drops",
                &count(graph.transform_drops),
                "",
                warn(graph.transform_drops > 0),
            );
        }
    } else {
        let queries = &result.queries;
        tile("Streams", &scenario.streams.to_string(), "", "");
        if let Some(hz) = scenario.rate_hz {
            tile("Rate", &format!("{hz:.2}"), "Hz each", "");
        }
        tile("Measured", &format!("{:.1}", scenario.duration_s), "s", "");
        tile("Queries", &count(queries.offered), "", "");
        tile("Dropped", &count(queries.dropped), "", warn(queries.dropped > 0));
        tile(
            "Overruns",
            &count(queries.overruns),
            "",
            warn(queries.overruns > 0),
        );
        for percentile in result
            .percentiles
            .iter()
            .filter(|value| [0.5, 0.99].contains(&value.p))
        {
            let text = duration(percentile.value_us);
            let (value, unit) = text.split_once(' ').unwrap_or((&text, ""));
            tile(
                if percentile.p == 0.5 {
                    "Latency p50"
                } else {
                    "Latency p99"
                },
                value,
                unit,
                "",
            );
        }
        if let Some(hz) = result.throughput_hz {
            tile("Throughput", &format!("{hz:.1}"), "results/s", "");
        }
        if let Some(deadline) = &result.deadline {
            let unit = format!("over {}", duration(deadline.deadline_us));
            tile(
                "Deadline misses",
                &count(deadline.misses),
                &unit,
                warn(deadline.misses > 0),
            );
        }
    }
    if let Some(processors) = result.process.processors {
        tile("Processors", &format!("{processors:.2}"), "in use", "");
    }
    if let Some(mib) = result.process.peak_resident_mib {
        tile("Memory", &format!("{mib:.0}"), "MiB at most", "");
    }
    html.push_str("</div>\n");
}

fn changes(result: &BenchResult) -> String {
    let mut html = String::new();
    for condition in &result.conditions {
        _ = writeln!(
            html,
            "<p><span class=\"badge {}\">{}</span> <code>{}</code></p>",
            if condition.fails { "bad" } else { "good" },
            if condition.fails { "fails" } else { "passes" },
            escape(&condition.text)
        );
    }
    let Some(comparison) = &result.comparison else {
        return html;
    };
    if !comparison.differences.is_empty() {
        html.push_str("<ul class=\"faults\">");
        for difference in &comparison.differences {
            _ = write!(html, "<li>{}</li>", escape(difference));
        }
        html.push_str("</ul>\n");
    }
    _ = writeln!(
        html,
        "<p class=\"note\">Compared with {} (version {}). A point is the change, the line its interval: 95 %, by a bootstrap \
         over blocks of successive queries. Grey is within chance, red is worse, green is better.</p>",
        escape(&comparison.baseline),
        escape(&comparison.version)
    );
    html += &bench_charts::changes(comparison);
    html
}

fn latency(result: &BenchResult, collected: &Collected) -> String {
    if result.latency.is_none() {
        return "<p class=\"none\">No frame came out.</p>\n".to_owned();
    }
    let mut html = String::from(
        "<div class=\"scroll\"><table class=\"narrow\"><thead><tr><th>Percentile</th><th class=\"n\">Latency</th>\
         <th class=\"n\">99 % interval</th><th class=\"n\">Samples needed</th><th>Claimed</th></tr></thead><tbody>",
    );
    for value in &result.percentiles {
        let interval = value.interval_us.map_or_else(
            || "too few".to_owned(),
            |[low, high]| format!("{} to {}", duration(low), duration(high)),
        );
        _ = write!(
            html,
            "<tr><th>{}</th><td class=\"n\">{}</td><td class=\"n\">{interval}</td><td class=\"n\">{}</td><td>{}</td></tr>",
            crate::telemetry::bench::p_name(value.p),
            duration(value.value_us),
            count(value.required),
            if value.claimed { "yes" } else { "no" }
        );
    }
    html.push_str("</tbody></table></div>\n");
    _ = writeln!(html, "<p class=\"note\">{}</p>", escape(&result.claim.text));
    let deadline_us = result.deadline.map(|deadline| deadline.deadline_us);
    _ = write!(
        html,
        "<h3>Towards the tail</h3><p class=\"note\">Share of frames that were at most this slow; each tenfold rarer frame \
         takes the same room.</p>\n{}\n",
        charts::tail_of(
            result.latency.as_ref(),
            &collected.recorder.total_curve(),
            deadline_us
        )
    );
    _ = write!(
        html,
        "<h3>Over time</h3><p class=\"note\">The median of each stretch as a line, from its fastest to its slowest frame as a \
         band.</p>\n{}\n",
        bench_charts::over_time(&collected.samples, deadline_us)
    );
    _ = write!(
        html,
        "<h3>By stage</h3><p class=\"note\">Full colour up to the median, fainter to p90 and p99, a line to the maximum; \
         waits below in grey; medians at the right. Logarithmic.</p>\n{}\n",
        charts::bars(&result.stages, result.latency.as_ref())
    );
    html
}

fn streams(result: &BenchResult) -> String {
    let mut html = String::from(
        "<div class=\"scroll\"><table><thead><tr><th>Stream</th><th class=\"n\">n</th><th class=\"n\">p50, ms</th>\
         <th class=\"n\">p90, ms</th><th class=\"n\">p99, ms</th><th class=\"n\">p99.9, ms</th><th class=\"n\">max, ms</th>\
         <th class=\"n\">mean, ms</th></tr></thead><tbody>",
    );
    for stream in &result.streams {
        let cells = stream.total.as_ref().map_or_else(
            || "<td colspan=\"7\">No frame came out.</td>".to_owned(),
            latency_cells,
        );
        _ = write!(html, "<tr><th>{}</th>{cells}</tr>", escape(&stream.name));
    }
    html.push_str("</tbody></table></div>\n");
    html
}

fn graph_tables(graph: &GraphKpis) -> String {
    let mut html = String::from(
        "<div class=\"scroll\"><table class=\"narrow\"><thead><tr><th>Key figure</th><th class=\"n\">Value</th></tr></thead><tbody>",
    );
    let mut row = |name: &str, value: &str| {
        _ = write!(
            html,
            "<tr><th>{}</th><td class=\"n\">{value}</td></tr>",
            escape(name)
        );
    };
    row(
        "Messages that transform nodes did not get",
        &count(graph.transform_drops),
    );
    for node in &graph.nodes {
        if let Some(chain) = &node.chain {
            let name = format!("Samples of {} without a run of {}", chain.from, node.name);
            row(
                &name,
                &format!("{} of {}", count(chain.lost), count(chain.samples)),
            );
            if let Some(latency) = &chain.latency {
                let way = format!("{} to {}", chain.from, node.name);
                row(&format!("Mean latency, {way}"), &duration(latency.mean_us));
                row(&format!("Worst latency, {way}"), &duration(latency.max_us));
            }
        }
        if let Some(timer) = node.timer.filter(|_| node.role == "cyclic") {
            row(
                &format!("Period of {}, mean and standard deviation", node.name),
                &format!(
                    "{} ± {}",
                    duration(timer.mean_interval_us),
                    duration(timer.std_interval_us)
                ),
            );
            row(
                &format!("Shortest and longest period of {}", node.name),
                &format!(
                    "{} to {}",
                    duration(timer.min_interval_us),
                    duration(timer.max_interval_us)
                ),
            );
        }
    }
    html.push_str("</tbody></table></div>\n");
    html.push_str(
        "<h3>Nodes</h3><div class=\"scroll\"><table><thead><tr><th>Node</th><th>Role</th><th class=\"n\">Runs</th>\
         <th class=\"n\">Dropped</th><th class=\"n\">One run, p50</th><th class=\"n\">p99</th><th class=\"n\">max</th></tr></thead><tbody>",
    );
    for node in &graph.nodes {
        let cells = node.service.as_ref().map_or_else(
            || "<td></td><td></td><td></td>".to_owned(),
            |service| {
                [service.p50_us, service.p99_us, service.max_us]
                    .map(|us| format!("<td class=\"n\">{}</td>", duration(us)))
                    .concat()
            },
        );
        _ = write!(
            html,
            "<tr><th>{}</th><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>{cells}</tr>",
            escape(&node.name),
            escape(&node.role),
            count(node.runs),
            count(node.drops)
        );
    }
    html.push_str("</tbody></table></div>\n");
    html
}
