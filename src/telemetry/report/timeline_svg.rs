//! The timeline: which frame was at which stage when.
//!
//! One lane a stage; a lane with several workers has several rows. Time runs on from line to line like text, so
//! that the drawing fits a page; stretches in which no frame was under way are cut short.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::charts::nice_step;
use super::markup::{duration, escape};
use super::time_axis::{TimeAxis, last_end_ns};
use crate::telemetry::{FrameId, Span, Stage, Timeline, TimelineFrame};

const WIDTH: f64 = 1000.0;
const LABEL_WIDTH: f64 = 76.0;
const LINE_WIDTH: f64 = WIDTH - LABEL_WIDTH;
const ROW: f64 = 17.0;
const LANE_GAP: f64 = 4.0;

/// Colours and type of the timeline, shared by the page and the separate file.
pub(super) const STYLE: &str = include_str!("timeline.css");

/// A block of one frame at one stage.
struct Block {
    frame: FrameId,
    stage: Stage,
    span: Span,
    row: usize,
}

/// The timeline as a file of its own.
pub(super) fn standalone(timeline: &Timeline) -> String {
    let (body, height) = draw(timeline);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-16 -16 {} {}\" width=\"{}\" role=\"img\" \
         aria-label=\"Timeline\"><style>{STYLE}</style><rect class=\"tl-paper\" x=\"-16\" y=\"-16\" \
         width=\"{}\" height=\"{}\"/>{body}</svg>\n",
        WIDTH + 32.0,
        height + 32.0,
        WIDTH + 32.0,
        WIDTH + 32.0,
        height + 32.0
    )
}

/// The timeline inside a page; empty without frames.
pub(super) fn inline(timeline: &Timeline) -> String {
    if timeline.first().is_empty() {
        return String::new();
    }
    let (body, height) = draw(timeline);
    format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"Timeline of the first \
         {} frames and of the slowest one\">{body}</svg>",
        timeline.first().len()
    )
}

/// Share of the upload time during which another frame was being replayed; `None` without uploads.
pub(super) fn upload_overlap(timeline: &Timeline) -> Option<f64> {
    let spans = |stage| timeline.first().iter().filter_map(move |f| f.times.span(stage));
    let mut replays: Vec<(u64, u64)> = spans(Stage::Replay)
        .map(|s| (s.started_ns, s.finished_ns))
        .collect();
    replays.sort_unstable();
    let (mut hidden_ns, mut upload_ns) = (0, 0);
    for upload in spans(Stage::Upload) {
        upload_ns += upload.service_ns();
        let mut from_ns = upload.started_ns;
        for &(start_ns, end_ns) in &replays {
            let (start_ns, end_ns) = (start_ns.max(from_ns), end_ns.min(upload.finished_ns));
            if start_ns < end_ns {
                hidden_ns += end_ns - start_ns;
                from_ns = end_ns;
            }
        }
    }
    (upload_ns > 0).then(|| hidden_ns as f64 / upload_ns as f64)
}

/// The drawing and its height.
fn draw(timeline: &Timeline) -> (String, f64) {
    let mut svg = String::new();
    if timeline.first().is_empty() {
        svg.push_str("<text class=\"tl-label\" x=\"0\" y=\"14\">No frame came out.</text>");
        return (svg, 20.0);
    }
    let names = Names::of(timeline);
    let axis = TimeAxis::new(timeline.first(), LINE_WIDTH);
    let blocks = blocks(timeline.first());
    let lines = (axis.width() / LINE_WIDTH - 1e-6).ceil().max(1.0) as usize;
    let mut y = names.legend(&mut svg);
    for line in 0..lines {
        y = draw_line(&mut svg, &axis, &blocks, &names, line, y) + 14.0;
    }
    if let Some(worst) = timeline.worst() {
        y = draw_worst(&mut svg, worst, &names, y + 8.0);
    }
    (svg, y)
}

/// Short names of frames: the number alone, or with a letter for the stream if there are several.
struct Names {
    streams: BTreeMap<usize, (String, String)>,
}

impl Names {
    fn of(timeline: &Timeline) -> Self {
        let mut streams = BTreeMap::new();
        for shown in timeline.first().iter().chain(timeline.worst()) {
            let name = || escape(&timeline.stream_name(shown.frame)).into_owned();
            streams
                .entry(shown.frame.stream.index())
                .or_insert_with(|| (String::new(), name()));
        }
        if streams.len() > 1 {
            for (i, (short, _)) in streams.values_mut().enumerate() {
                *short = match u8::try_from(i) {
                    Ok(i @ 0..26) => char::from(b'A' + i).to_string(),
                    _ => format!("S{i}:"),
                };
            }
        }
        Self { streams }
    }

    fn short(&self, frame: FrameId) -> String {
        let prefix = self
            .streams
            .get(&frame.stream.index())
            .map_or("", |(short, _)| short);
        format!("{prefix}{}", frame.seq)
    }

    /// Name of the stream and number, escaped.
    fn long(&self, frame: FrameId) -> String {
        let name = self
            .streams
            .get(&frame.stream.index())
            .map_or("", |(_, name)| name);
        format!("{name} #{}", frame.seq)
    }

    /// Says which letter is which stream; returns the height used.
    fn legend(&self, svg: &mut String) -> f64 {
        if self.streams.len() < 2 {
            return 0.0;
        }
        let texts: Vec<String> = self
            .streams
            .values()
            .map(|(short, name)| format!("{short} = {name}"))
            .collect();
        for (i, text) in texts.iter().enumerate() {
            _ = write!(
                svg,
                r#"<text class="tl-tick" x="{LABEL_WIDTH}" y="{}">{text}</text>"#,
                10 + 14 * i
            );
        }
        8.0 + 14.0 * texts.len() as f64
    }
}

/// One block for each frame and stage, in rows that keep overlapping ones of a stage apart.
fn blocks(frames: &[TimelineFrame]) -> Vec<Block> {
    let mut blocks: Vec<Block> = frames
        .iter()
        .flat_map(|shown| {
            shown.times.spans().map(|(stage, span)| Block {
                frame: shown.frame,
                stage,
                span,
                row: 0,
            })
        })
        .collect();
    blocks.sort_by_key(|b| (b.stage, b.span.started_ns, b.span.finished_ns));
    let mut rows: Vec<u64> = Vec::new();
    let mut stage = None;
    for block in &mut blocks {
        if stage != Some(block.stage) {
            stage = Some(block.stage);
            rows.clear();
        }
        let free = rows.iter().position(|&end_ns| end_ns <= block.span.started_ns);
        block.row = free.unwrap_or(rows.len());
        if block.row == rows.len() {
            rows.push(0);
        }
        rows[block.row] = block.span.finished_ns;
    }
    blocks
}

/// One line of the timeline from `y` on; returns where it ends.
fn draw_line(svg: &mut String, axis: &TimeAxis, blocks: &[Block], names: &Names, line: usize, y: f64) -> f64 {
    let from = line as f64 * LINE_WIDTH;
    let to = from + LINE_WIDTH;
    let mut tops = [None; Stage::COUNT];
    let mut bottom = y;
    for stage in Stage::ALL {
        let rows = blocks
            .iter()
            .filter(|b| b.stage == stage)
            .map(|b| b.row + 1)
            .max();
        if let Some(rows) = rows {
            tops[stage.index()] = Some(bottom);
            _ = write!(
                svg,
                r#"<rect class="tl-lane" x="{LABEL_WIDTH}" y="{bottom:.1}" width="{LINE_WIDTH}" height="{:.1}"/><text class="tl-label" x="0" y="{:.1}">{stage}</text>"#,
                rows as f64 * ROW,
                bottom + 12.5
            );
            bottom += rows as f64 * ROW + LANE_GAP;
        }
    }
    draw_axis(svg, axis, from, to, y, bottom);
    for block in blocks {
        let Some(top) = tops[block.stage.index()] else {
            continue;
        };
        let top = top + block.row as f64 * ROW;
        let clipped = |start_ns, end_ns| {
            let (x0, x1) = (axis.x(start_ns), axis.x(end_ns));
            let x1 = x1.max(x0 + 1.0);
            (x0 < to && x1 > from).then(|| {
                let x0 = x0.max(from) - from + LABEL_WIDTH;
                (x0, x1.min(to) - from + LABEL_WIDTH - x0)
            })
        };
        let span = &block.span;
        if span.wait_ns() > 0
            && let Some((x, width)) = clipped(span.enqueued_ns, span.started_ns)
        {
            _ = write!(
                svg,
                r#"<rect class="tl-{} tl-wait" x="{x:.1}" y="{:.1}" width="{width:.1}" height="2"/>"#,
                block.stage,
                top + ROW - 3.0
            );
        }
        let Some((x, width)) = clipped(span.started_ns, span.finished_ns) else {
            continue;
        };
        let odd = if block.frame.seq % 2 == 1 { " tl-odd" } else { "" };
        _ = write!(
            svg,
            r#"<g><title>{} {}: {} (waited {})</title><rect class="tl-{}{odd}" x="{x:.1}" y="{:.1}" width="{width:.1}" height="{}" rx="1.5"/>"#,
            names.long(block.frame),
            block.stage,
            duration_ns(span.service_ns()),
            duration_ns(span.wait_ns()),
            block.stage,
            top + 1.0,
            ROW - 4.0
        );
        let label = names.short(block.frame);
        if width > 6.0 * label.len() as f64 + 4.0 {
            _ = write!(
                svg,
                r#"<text class="tl-in" x="{:.1}" y="{:.1}">{label}</text>"#,
                x + width / 2.0,
                top + 11.0
            );
        }
        svg.push_str("</g>");
    }
    bottom + 12.0
}

/// Time marks, and bands where idle time was cut.
fn draw_axis(svg: &mut String, axis: &TimeAxis, from: f64, to: f64, top: f64, bottom: f64) {
    let step_ns = nice_step(90.0 / axis.px_per_ns).max(1.0) as u64;
    let mut free_from = f64::MIN;
    for pair in axis.stretches.windows(2) {
        let idle_ns = pair[1].start_ns - pair[0].end_ns;
        let x0 = axis.x(pair[0].end_ns);
        let width = pair[1].x0 - x0;
        let was_cut = idle_ns as f64 * axis.px_per_ns > width + 0.5;
        if was_cut && x0 >= from && x0 + width <= to {
            _ = write!(
                svg,
                r#"<g><title>no frame under way for {}</title><rect class="tl-idle" x="{:.1}" y="{top:.1}" width="{width:.1}" height="{:.1}"/></g>"#,
                duration_ns(idle_ns),
                x0 - from + LABEL_WIDTH,
                bottom - top - LANE_GAP
            );
        }
    }
    for stretch in &axis.stretches {
        let offset_ns = stretch.start_ns - axis.start_ns();
        let mut tick_ns = offset_ns.div_ceil(step_ns) * step_ns;
        // A stretch shorter than a step still says when it was.
        if tick_ns > stretch.end_ns - axis.start_ns() {
            tick_ns = offset_ns;
        }
        while tick_ns <= stretch.end_ns - axis.start_ns() {
            let x = axis.x(tick_ns + axis.start_ns());
            if x >= from && x < to - 46.0 && x >= free_from {
                free_from = x + 64.0;
                let x = x - from + LABEL_WIDTH;
                _ = write!(
                    svg,
                    r#"<line class="tl-grid" x1="{x:.1}" x2="{x:.1}" y1="{top:.1}" y2="{bottom:.1}"/><text class="tl-tick" x="{:.1}" y="{:.1}">{}</text>"#,
                    x + 2.0,
                    bottom + 8.0,
                    tick_label(tick_ns)
                );
            }
            tick_ns += step_ns;
        }
    }
}

/// The slowest frame, each stage on a row of its own; returns where the drawing ends.
fn draw_worst(svg: &mut String, worst: &TimelineFrame, names: &Names, y: f64) -> f64 {
    let total_ns = last_end_ns(worst) - worst.times.released_ns();
    let scale = (LINE_WIDTH - 190.0) / total_ns.max(1) as f64;
    let x_of = |at_ns: u64| LABEL_WIDTH + at_ns.saturating_sub(worst.times.released_ns()) as f64 * scale;
    _ = write!(
        svg,
        r#"<text class="tl-title" x="0" y="{:.1}">Slowest frame: {}, {}</text>"#,
        y + 12.0,
        names.long(worst.frame),
        duration_ns(total_ns)
    );
    let mut top = y + 22.0;
    for (stage, span) in worst.times.spans() {
        let (wait_x, start_x, end_x) = (
            x_of(span.enqueued_ns),
            x_of(span.started_ns),
            x_of(span.finished_ns),
        );
        _ = write!(
            svg,
            r#"<rect class="tl-lane" x="{LABEL_WIDTH}" y="{top:.1}" width="{LINE_WIDTH}" height="{ROW}"/><text class="tl-label" x="0" y="{:.1}">{stage}</text><rect class="tl-{stage} tl-wait" x="{wait_x:.1}" y="{:.1}" width="{:.1}" height="2"/><rect class="tl-{stage}" x="{start_x:.1}" y="{:.1}" width="{:.1}" height="{}" rx="1.5"/><text class="tl-tick" x="{:.1}" y="{:.1}">{}, waited {}</text>"#,
            top + 12.5,
            top + ROW - 3.0,
            (start_x - wait_x).max(0.0),
            top + 1.0,
            (end_x - start_x).max(1.0),
            ROW - 4.0,
            end_x.max(start_x + 1.0) + 5.0,
            top + 12.0,
            duration_ns(span.service_ns()),
            duration_ns(span.wait_ns())
        );
        top += ROW + LANE_GAP;
    }
    top
}

fn duration_ns(ns: u64) -> String {
    duration(ns as f64 / 1000.0)
}

fn tick_label(ns: u64) -> String {
    let value_ms = ns as f64 / 1e6;
    if value_ms >= 10_000.0 {
        format!("{} s", value_ms / 1e3)
    } else {
        format!("{} ms", (value_ms * 1e3).round() / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::{FrameTimes, Streams};

    /// A stage of a frame with its start and end in microseconds.
    type Step = (Stage, u64, u64);

    /// A timeline of one stream from releases (in microseconds) and steps.
    fn timeline(frames: &[(u64, &[Step])]) -> Timeline {
        let streams = Streams::default();
        let stream = streams.register("cam");
        let mut timeline = Timeline::new(streams, 60);
        for (seq, (released_us, steps)) in (0..).zip(frames) {
            let mut times = FrameTimes::new(released_us * 1000);
            for &(stage, start_us, end_us) in *steps {
                times.begin(stage, start_us * 1000);
                times.end(stage, end_us * 1000);
            }
            timeline.offer(FrameId { stream, seq }, &times);
        }
        timeline
    }

    #[test]
    fn the_share_of_uploads_beside_replays_is_measured() {
        use Stage::{Replay, Upload};
        // Upload 0 runs alone; 6 of the 10 us of upload 1 and all of upload 2 lie in replays.
        let shown = timeline(&[
            (0, &[(Upload, 0, 10), (Replay, 10, 30)]),
            (0, &[(Upload, 24, 34), (Replay, 40, 60)]),
            (0, &[(Upload, 45, 55), (Replay, 60, 80)]),
        ]);
        assert_eq!(upload_overlap(&shown), Some(16.0 / 30.0));
        assert_eq!(upload_overlap(&timeline(&[(0, &[(Replay, 0, 1)])])), None);
    }

    #[test]
    fn frames_at_the_same_stage_at_once_get_rows_of_their_own() {
        use Stage::{Finish, Prepare};
        let shown = timeline(&[
            (0, &[(Prepare, 0, 10)]),
            (0, &[(Prepare, 5, 15)]),
            (0, &[(Prepare, 10, 20), (Finish, 20, 30)]),
        ]);
        let rows: Vec<(u64, Stage, usize)> = blocks(shown.first())
            .iter()
            .map(|b| (b.frame.seq, b.stage, b.row))
            .collect();
        assert_eq!(
            rows,
            [(0, Prepare, 0), (1, Prepare, 1), (2, Prepare, 0), (2, Finish, 0)]
        );
    }
}
