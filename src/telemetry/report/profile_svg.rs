//! A model's profile as a picture: the stages of a frame, the launches of its trace in order, and the longest of them.

use std::fmt::Write as _;

use super::markup::{duration, escape};
use crate::telemetry::profile::{BenchStage, ModelProfile, OpsProfile};

const WIDTH: f64 = 1000.0;
const MARGIN: f64 = 24.0;
/// Where drawings end.
const RIGHT: f64 = WIDTH - MARGIN;
/// Where bars begin: behind their names.
const BARS: f64 = 400.0;
const ROW: f64 = 22.0;

/// Colours by place: of stages, and of operations by their time. The last one stands for all others.
const COLOURS: [&str; 8] = [
    "#4269d0", "#efb118", "#3ca951", "#ff725c", "#a463f2", "#6cc5b0", "#9c6b4e", "#9498a0",
];

const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#1c1e21}.title{font-size:18px;font-weight:600}\
    .head{font-size:14px;font-weight:600}.small{font-size:11px;fill:#5f6570}.back{fill:#fff}.rail{fill:#eceef1}";

/// Draws a profile as an SVG image of its own, with the `top` longest launches.
#[must_use]
pub fn profile_svg(profile: &ModelProfile, top: usize) -> String {
    let mut picture = Picture::default();
    picture.text("title", MARGIN, &profile.model, 34.0);
    let device = format!("{}, {}", profile.device, profile.storage);
    picture.text("small", MARGIN, &device, 18.0);
    stages(&mut picture, profile);
    launches(&mut picture, &profile.ops);
    by_op(&mut picture, &profile.ops);
    longest(&mut picture, &profile.ops, top);
    footer(&mut picture, profile);
    let height = picture.y + MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" \
         height=\"{height:.0}\" role=\"img\"><style>{STYLE}</style><rect class=\"back\" width=\"{WIDTH}\" \
         height=\"{height:.0}\"/>{}</svg>\n",
        picture.body
    )
}

/// What is drawn so far, from the top down.
#[derive(Debug, Default)]
struct Picture {
    body: String,
    /// Where the next thing goes.
    y: f64,
}

impl Picture {
    /// Goes down and writes a line there.
    fn text(&mut self, class: &str, x: f64, text: &str, down: f64) {
        self.y += down;
        self.label(class, x, self.y, "start", text);
    }

    fn label(&mut self, class: &str, x: f64, y: f64, anchor: &str, text: &str) {
        // Writing to a string cannot fail.
        let _ = write!(
            self.body,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
            escape(text)
        );
    }

    fn bar(&mut self, [x, y, width, height]: [f64; 4], fill: &str, title: &str) {
        let _ = write!(
            self.body,
            "<rect x=\"{x:.2}\" y=\"{y:.1}\" width=\"{:.2}\" height=\"{height:.1}\" fill=\"{fill}\"><title>{}</title></rect>",
            width.max(0.0),
            escape(title)
        );
    }

    /// Coloured squares with names, in as many lines as they need.
    fn legend(&mut self, entries: &[(&str, String)]) {
        self.y += 20.0;
        let mut x = MARGIN;
        for (colour, name) in entries {
            // About the width of a letter of this size.
            let width = 34.0 + 6.6 * name.chars().count() as f64;
            if x + width > RIGHT {
                x = MARGIN;
                self.y += 18.0;
            }
            self.bar([x, self.y - 10.0, 11.0, 11.0], colour, name);
            self.label("small", x + 16.0, self.y, "start", name);
            x += width;
        }
        self.y += 10.0;
    }
}

fn stages(picture: &mut Picture, profile: &ModelProfile) {
    let parts: Vec<_> = profile
        .stages
        .iter()
        .filter(|row| !matches!(row.stage, BenchStage::EndToEnd | BenchStage::BackToBack))
        .collect();
    let whole: f64 = parts.iter().map(|row| row.stats.p50_us).sum();
    picture.text("head", MARGIN, "Stages of a frame, medians", 34.0);
    picture.y += 10.0;
    let mut x = MARGIN;
    let mut entries = Vec::new();
    for (row, colour) in parts.iter().zip(COLOURS) {
        let width = (RIGHT - MARGIN) * row.stats.p50_us / whole.max(1e-3);
        let name = format!("{} {}", row.stage.name(), duration(row.stats.p50_us));
        picture.bar([x, picture.y, width, 26.0], colour, &name);
        entries.push((colour, name));
        x += width;
    }
    picture.y += 26.0;
    let others = profile
        .stages
        .iter()
        .filter(|row| row.stage >= BenchStage::EndToEnd);
    let told: Vec<String> = others
        .map(|row| {
            let stats = row.stats;
            format!(
                "{} p50 {}, p99 {}",
                row.stage.name(),
                duration(stats.p50_us),
                duration(stats.p99_us)
            )
        })
        .collect();
    picture.legend(&entries);
    picture.text("small", MARGIN, &told.join("   |   "), 12.0);
}

/// The colour of an operation: by its place among the operations, the longest first.
fn colour_of(ops: &OpsProfile, op: &str) -> &'static str {
    let place = ops.by_op.iter().position(|row| row.op == op);
    COLOURS[place.unwrap_or(COLOURS.len()).min(COLOURS.len() - 1)]
}

fn launches(picture: &mut Picture, ops: &OpsProfile) {
    let title = format!(
        "{} launches in order: {} and {} between them",
        ops.launches.len(),
        duration(ops.launches_us),
        duration(ops.gaps_us)
    );
    picture.text("head", MARGIN, &title, 34.0);
    picture.y += 10.0;
    let whole = ops.launches_us.max(1e-3);
    let mut x = MARGIN;
    for row in &ops.launches {
        let width = (RIGHT - MARGIN) * row.time_us / whole;
        let node = row.name.as_deref().unwrap_or_default();
        let title = format!("#{} {node} {}: {}", row.index, row.summary, duration(row.time_us));
        // A hair between neighbours of one colour, where there is room for it.
        let hair = if width > 2.0 { 0.5 } else { 0.0 };
        picture.bar([x, picture.y, width - hair, 40.0], colour_of(ops, row.op), &title);
        x += width;
    }
    picture.y += 40.0;
    let shown = ops.by_op.iter().take(COLOURS.len() - 1);
    let mut entries: Vec<(&str, String)> = shown
        .map(|row| {
            let name = format!("{} {:.1} %", row.op, row.share * 100.0);
            (colour_of(ops, row.op), name)
        })
        .collect();
    let rest = &ops.by_op[entries.len()..];
    if !rest.is_empty() {
        let share: f64 = rest.iter().map(|row| row.share).sum();
        entries.push((
            COLOURS[COLOURS.len() - 1],
            format!("others {:.1} %", share * 100.0),
        ));
    }
    picture.legend(&entries);
}

fn by_op(picture: &mut Picture, ops: &OpsProfile) {
    picture.text("head", MARGIN, "By operation", 28.0);
    picture.y += 8.0;
    let most = ops.by_op.first().map_or(1.0, |row| row.time_us).max(1e-3);
    for row in &ops.by_op {
        let name = format!("{} ({})", row.op, row.launches);
        bar_row(
            picture,
            &name,
            row.time_us / most,
            colour_of(ops, row.op),
            &format!(
                "{}{}",
                duration(row.time_us),
                speed(row.flop, row.bytes, row.time_us)
            ),
        );
    }
}

fn longest(picture: &mut Picture, ops: &OpsProfile, top: usize) {
    let rows = ops.longest(top);
    picture.text(
        "head",
        MARGIN,
        &format!("The {} longest launches", rows.len()),
        30.0,
    );
    picture.y += 8.0;
    let most = rows.first().map_or(1.0, |row| row.time_us).max(1e-3);
    for row in rows {
        let peak = row.peak.map_or_else(String::new, |peak| {
            format!(", {:.0} % of peak", peak.larger() * 100.0)
        });
        let value = format!(
            "{}{}{peak}",
            duration(row.time_us),
            speed(row.flop, row.bytes, row.time_us)
        );
        let name = format!("#{} {}", row.index, row.summary);
        bar_row(picture, &name, row.time_us / most, colour_of(ops, row.op), &value);
    }
}

/// A name, a bar of a share of the room, and its value behind it.
fn bar_row(picture: &mut Picture, name: &str, share: f64, colour: &str, value: &str) {
    const VALUE: f64 = 250.0;
    /// Letters that fit before the bars.
    const LETTERS: usize = 62;
    let short: String = match name.char_indices().nth(LETTERS) {
        None => name.to_owned(),
        Some((end, _)) => format!("{}\u{2026}", &name[..end]),
    };
    let width = (RIGHT - VALUE - BARS) * share;
    picture.label("small", MARGIN, picture.y + 14.0, "start", &short);
    picture.bar([BARS, picture.y + 4.0, width, 13.0], colour, name);
    picture.label("small", BARS + width + 6.0, picture.y + 14.0, "start", value);
    picture.y += ROW;
}

/// What is worth telling of a speed: arithmetic, or bytes where there is none.
fn speed(flop: u64, bytes: u64, time_us: f64) -> String {
    match (flop, time_us > 0.0) {
        (_, false) => String::new(),
        (0, true) => format!(", {:.1} GB/s", bytes as f64 / time_us / 1e3),
        (flop, true) => format!(", {:.1} GFLOP/s", flop as f64 / time_us / 1e3),
    }
}

fn footer(picture: &mut Picture, profile: &ModelProfile) {
    let mut lines = Vec::new();
    if let Some(peak) = &profile.ops.peak {
        lines.push(format!(
            "peak of {} thread(s), measured: {:.1} GFLOP/s of fp32 multiply-adds, {:.1} GB/s of copies; of peak: the larger of \
             both shares",
            peak.threads,
            peak.flop_per_s / 1e9,
            peak.bytes_per_s / 1e9
        ));
    }
    let mut processor = Vec::new();
    if let Some(frequency) = profile.cpu.frequency_mhz {
        processor.push(format!("{:.0} MHz", frequency.mean));
    }
    if let Some(temperature) = profile.cpu.temperature_c {
        processor.push(format!("up to {:.0} \u{b0}C", temperature.max));
    }
    if !processor.is_empty() {
        lines.push(format!("processor: {}", processor.join(", ")));
    }
    picture.y += 10.0;
    for line in lines {
        picture.text("small", MARGIN, &line, 16.0);
    }
}
