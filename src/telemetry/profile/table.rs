//! A profile as tables for a terminal.

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};

use super::{BenchStage, LaunchRow, ModelProfile, OpsProfile, PeakShare, Spread};

/// The profile, with the `top` longest launches.
pub(super) fn render(profile: &ModelProfile, top: usize) -> String {
    let ops = &profile.ops;
    let mut parts = vec![format!(
        "{} | {} | {}",
        profile.model, profile.device, profile.storage
    )];
    parts.push(stages(profile));
    if profile.stages.iter().all(|row| row.stage != BenchStage::Post) {
        parts.push(
            "post: a model file alone makes no results of its outputs, so there is nothing to measure".into(),
        );
    }
    parts.push(by_op(ops));
    parts.push(format!(
        "the {} longest of {} launches",
        top.min(ops.launches.len()),
        ops.launches.len()
    ));
    parts.push(longest(ops, top));
    parts.push(totals(ops));
    if !ops.top_gaps.is_empty() {
        parts.push(gaps(ops));
    }
    parts.push(processor(profile));
    parts.join("\n")
}

fn stages(profile: &ModelProfile) -> String {
    let mut table = table(["stage", "p50 ms", "p99 ms", "mean ms", "min ms", "max ms", "n"]);
    for row in &profile.stages {
        let stats = row.stats;
        let times = [
            stats.p50_us,
            stats.p99_us,
            stats.mean_us,
            stats.min_us,
            stats.max_us,
        ];
        let mut cells = vec![row.stage.name().to_owned()];
        cells.extend(times.map(ms));
        cells.push(stats.n.to_string());
        table.add_row(cells);
    }
    table.to_string()
}

fn by_op(ops: &OpsProfile) -> String {
    let mut table = table([
        "operation",
        "launches",
        "ms",
        "share",
        "GFLOP",
        "MB",
        "GFLOP/s",
        "of peak",
    ]);
    for row in &ops.by_op {
        table.add_row([
            row.op.to_owned(),
            row.launches.to_string(),
            ms(row.time_us),
            percent(row.share),
            giga(row.flop),
            mega(row.bytes),
            rate(row.flop, row.time_us),
            peak(row.peak),
        ]);
    }
    table.to_string()
}

fn longest(ops: &OpsProfile, top: usize) -> String {
    let mut table = table([
        "launch", "#", "node", "ms", "share", "GFLOP", "MB", "GFLOP/s", "of peak",
    ]);
    for row in ops.longest(top) {
        table.add_row([
            row.summary.clone(),
            row.index.to_string(),
            node(row),
            ms(row.time_us),
            percent(row.share),
            giga(row.flop),
            mega(row.bytes),
            rate(row.flop, row.time_us),
            peak(row.peak),
        ]);
    }
    table.to_string()
}

/// The end of a long name: there it differs from others.
fn node(row: &LaunchRow) -> String {
    const LETTERS: usize = 28;
    let name = row.name.as_deref().unwrap_or("-");
    match name.char_indices().rev().nth(LETTERS) {
        None => name.to_owned(),
        Some((cut, letter)) => format!("\u{2026}{}", &name[cut + letter.len_utf8()..]),
    }
}

fn totals(ops: &OpsProfile) -> String {
    let mut text = format!(
        "launches {} ms, gaps {} ms, first to last {} ms; medians of {} replays; {} GFLOP/s",
        ms(ops.launches_us),
        ms(ops.gaps_us),
        ms(ops.span_us),
        ops.replays,
        rate(ops.flop(), ops.span_us)
    );
    if let Some(machine) = &ops.peak {
        text += &format!(
            "\npeak measured on {} thread(s): {:.1} GFLOP/s (multiply-adds of fp32), {:.1} GB/s (copies); of peak: f arithmetic, \
             m memory, the larger",
            machine.threads,
            machine.flop_per_s / 1e9,
            machine.bytes_per_s / 1e9
        );
    }
    text
}

fn gaps(ops: &OpsProfile) -> String {
    let mut table = table(["gap", "us"]);
    for gap in &ops.top_gaps {
        let name = |index: usize| ops.launches.get(index).map_or("", |row| row.op);
        let between = format!(
            "{} #{} to {} #{}",
            name(gap.before - 1),
            gap.before - 1,
            name(gap.before),
            gap.before
        );
        table.add_row([between, format!("{:.2}", gap.gap_us)]);
    }
    table.to_string()
}

fn processor(profile: &ModelProfile) -> String {
    let told = |what: &str, spread: Option<Spread>, unit: &str| match spread {
        Some(Spread { min, mean, max }) => format!("{what} {mean:.0} {unit} ({min:.0} to {max:.0})"),
        None => format!("{what} not shown by this system"),
    };
    format!(
        "processor: {}, {}",
        told("frequency", profile.cpu.frequency_mhz, "MHz"),
        told("temperature", profile.cpu.temperature_c, "\u{b0}C")
    )
}

/// All but the first column to the right.
fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY);
    table.set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn ms(time_us: f64) -> String {
    format!("{:.3}", time_us / 1e3)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn giga(flop: u64) -> String {
    match flop {
        0 => "-".to_owned(),
        flop => format!("{:.3}", flop as f64 / 1e9),
    }
}

fn mega(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / 1e6)
}

fn rate(flop: u64, time_us: f64) -> String {
    if flop == 0 || time_us <= 0.0 {
        return "-".to_owned();
    }
    format!("{:.1}", flop as f64 / time_us / 1e3)
}

fn peak(share: Option<PeakShare>) -> String {
    match share {
        None => "-".to_owned(),
        Some(share) if share.flop >= share.bytes => format!("{:.0} % f", share.flop * 100.0),
        Some(share) => format!("{:.0} % m", share.bytes * 100.0),
    }
}
