//! What is on the screen.

use std::cmp::Reverse;

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, Widget};

use crate::telemetry::live::{LiveState, LiveStatus, QueueReading, StageReading, StreamReading};

/// Columns of the numbers of a stream, with the gaps between them.
const STREAM_NUMBERS: usize = 6 + 8 + 8 + 8 + 6 + 6;
/// Columns that a stream's name has at least.
const NAME_LEAST: usize = 6;
/// From so many rows on, there is room for what is not needed every time.
const ROOMY_ROWS: u16 = 30;
/// Cells of a bar.
const BAR: usize = 10;

/// Order of the streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// As they were registered.
    #[default]
    Name,
    /// The slowest first, by p99.
    Latency,
    /// Those that lose most first.
    Drops,
}

impl Order {
    /// The order after this one.
    pub(super) const fn next(self) -> Self {
        match self {
            Self::Name => Self::Latency,
            Self::Latency => Self::Drops,
            Self::Drops => Self::Name,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Latency => "latency",
            Self::Drops => "drops",
        }
    }
}

/// One look at a run.
#[derive(Debug, Clone)]
pub(super) struct View<'a> {
    now: &'a LiveStatus,
    before: Option<&'a LiveStatus>,
    order: Order,
    paused: bool,
    trouble: Option<&'a str>,
}

impl<'a> View<'a> {
    pub(super) fn of(now: &'a LiveStatus) -> Self {
        Self {
            now,
            before: None,
            order: Order::default(),
            paused: false,
            trouble: None,
        }
    }

    /// The look before it, for what is told by differences.
    pub(super) fn since(self, before: Option<&'a LiveStatus>) -> Self {
        Self { before, ..self }
    }

    pub(super) fn sorted(self, order: Order) -> Self {
        Self { order, ..self }
    }

    pub(super) fn paused(self, paused: bool) -> Self {
        Self { paused, ..self }
    }

    /// Why there is no newer look.
    pub(super) fn troubled(self, trouble: Option<&'a str>) -> Self {
        Self { trouble, ..self }
    }

    /// Rows in which everything finds room.
    pub(super) fn rows(&self) -> u16 {
        let tables = [
            self.streams_rows(),
            self.stages_rows(),
            self.queues_rows(),
            self.sinks_rows(),
        ];
        let rows = self.head(true).len() + tables.iter().sum::<usize>() + 1;
        u16::try_from(rows).unwrap_or(u16::MAX)
    }

    fn streams_rows(&self) -> usize {
        self.now.streams.len() + 1
    }

    fn stages_rows(&self) -> usize {
        self.now.stages.len() + 1
    }

    fn queues_rows(&self) -> usize {
        self.now.queues.len() + 1
    }

    fn sinks_rows(&self) -> usize {
        usize::from(!self.now.sinks.is_empty())
    }

    /// What stands above the tables; where there is `room`, with what is not needed every time.
    fn head(&self, room: bool) -> Vec<Line<'a>> {
        let now = self.now;
        let color = match now.state {
            LiveState::Ready => Color::Green,
            LiveState::Failed => Color::Red,
            LiveState::Starting | LiveState::Degraded => Color::Yellow,
            LiveState::Ended => Color::DarkGray,
        };
        let process = &now.process;
        let rest = format!(
            "  up {}  cpu {:.0} %  memory {:.0} MiB  threads {}",
            clock(now.uptime_s),
            self.cpu_percent(),
            process.resident_bytes as f64 / f64::from(1 << 20),
            process.threads
        );
        let strong = Style::new().add_modifier(Modifier::BOLD);
        let name = match now.pipeline.as_str() {
            "" => "sensorium",
            name => name,
        };
        let mut lines = vec![Line::from(vec![
            Span::styled(name.to_owned(), strong),
            Span::raw("  "),
            Span::styled(now.state.name(), strong.fg(color)),
            Span::raw(rest),
        ])];
        let used = &now.device_use;
        let restarts: u64 = now.device_restarts + now.actor_restarts.values().sum::<u64>();
        let mut device = format!(
            "replay {} {:>3.0} %  transfer {} {:>3.0} %  restarts {restarts}",
            bar(used.replay_utilisation),
            used.replay_utilisation * 100.0,
            bar(used.transfer_utilisation),
            used.transfer_utilisation * 100.0,
        );
        for bank in &now.banks {
            device += &format!("  banks {} {}/{}", bank.model, bank.used, bank.capacity);
        }
        lines.push(Line::from(device));
        if room && !now.device.is_empty() {
            lines.push(Line::styled(
                now.device.as_str(),
                Style::new().fg(Color::DarkGray),
            ));
        }
        let warning = Style::new().fg(Color::Yellow);
        lines.extend(
            now.reasons
                .iter()
                .map(|reason| Line::styled(reason.as_str(), warning)),
        );
        lines.extend(
            self.trouble
                .map(|trouble| Line::styled(trouble, Style::new().fg(Color::Red))),
        );
        lines
    }

    /// Processor time over wall time, since the look before or since the start.
    fn cpu_percent(&self) -> f64 {
        let (cpu_s, uptime_s) = self.before.map_or((0.0, 0.0), |b| (b.process.cpu_s, b.uptime_s));
        let wall_s = self.now.uptime_s - uptime_s;
        if wall_s > 0.0 {
            ((self.now.process.cpu_s - cpu_s) / wall_s * 100.0).max(0.0)
        } else {
            0.0
        }
    }

    fn ordered_streams(&self) -> Vec<&'a StreamReading> {
        let mut streams: Vec<&StreamReading> = self.now.streams.iter().collect();
        let latency = |stream: &StreamReading| stream.latency.map_or(0.0, |latency| latency.p99_ms);
        match self.order {
            Order::Name => {}
            Order::Latency => streams.sort_by(|a, b| latency(b).total_cmp(&latency(a))),
            Order::Drops => streams.sort_by_key(|stream| Reverse(stream.dropped())),
        }
        streams
    }
}

impl Widget for View<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let head = self.head(area.height >= ROOMY_ROWS);
        // What is needed most is shown first where the screen is small.
        let mut left = usize::from(area.height).saturating_sub(head.len() + 1 + self.sinks_rows());
        let streams = self.streams_rows().min((left / 3).max(4)).min(left);
        left -= streams;
        let queues = self.queues_rows().min((left / 2).max(3)).min(left);
        left -= queues;
        let stages = self.stages_rows().min(left);
        left -= stages;
        // Room that is left over goes where rows are missing.
        let more_queues = (self.queues_rows() - queues).min(left);
        let more_streams = (self.streams_rows() - streams).min(left - more_queues);
        let lengths = [
            head.len(),
            streams + more_streams,
            stages,
            queues + more_queues,
            self.sinks_rows(),
        ];
        let constraints = lengths.map(|rows| Constraint::Length(rows as u16));
        let areas = Layout::vertical(
            constraints
                .into_iter()
                .chain([Constraint::Min(0), Constraint::Length(1)]),
        );
        let [top, streams, stages, queues, sinks, _, foot] = areas.areas(area);
        Paragraph::new(head).render(top, buffer);
        stream_table(&self.ordered_streams(), streams).render(streams, buffer);
        stage_table(&self.now.stages, stages.height).render(stages, buffer);
        queue_table(&self.now.queues, queues.height).render(queues, buffer);
        self.sink_line().render(sinks, buffer);
        let paused = if self.paused { "  PAUSED" } else { "" };
        let keys = format!("q quit  p pause  s sort: {}{paused}", self.order.name());
        Line::styled(keys, Style::new().fg(Color::DarkGray)).render(foot, buffer);
    }
}

impl View<'_> {
    fn sink_line(&self) -> Line<'static> {
        let sinks = self.now.sinks.iter().map(|sink| match sink.dropped {
            0 => format!("{} {}", sink.name, sink.written),
            dropped => format!("{} {} ({dropped} dropped)", sink.name, sink.written),
        });
        Line::from(format!("written: {}", sinks.collect::<Vec<_>>().join("  ")))
    }
}

fn stream_table(streams: &[&StreamReading], area: Rect) -> Table<'static> {
    let longest = streams
        .iter()
        .map(|stream| stream.name.chars().count())
        .max()
        .unwrap_or(0);
    // The end of a name tells streams apart, and half of what is left is for the reasons of drops.
    let free = usize::from(area.width).saturating_sub(STREAM_NUMBERS);
    let named = longest.clamp(NAME_LEAST, (free * 11 / 20).max(NAME_LEAST));
    let rows = streams.iter().map(|stream| {
        let latency = |pick: fn(&crate::telemetry::live::Quantiles) -> f64| {
            right(
                stream
                    .latency
                    .as_ref()
                    .map_or_else(|| "-".into(), |l| ms(pick(l))),
            )
        };
        let dropped = match stream.dropped() {
            0 => Cell::from("0"),
            _ => Cell::from(drops(stream)).style(Style::new().fg(Color::Yellow)),
        };
        let late = match stream.deadline_misses {
            0 => right("0".into()),
            misses => right(misses.to_string()).style(Style::new().fg(Color::Yellow)),
        };
        Row::new([
            Cell::from(shortened(&stream.name, named)),
            right(
                stream
                    .rate_hz
                    .map_or_else(|| "-".into(), |rate| format!("{rate:.1}")),
            ),
            latency(|l| l.p50_ms),
            latency(|l| l.p99_ms),
            right(stream.frames_out.to_string()),
            late,
            dropped,
        ])
    });
    let widths = [
        Constraint::Length(named as u16),
        Constraint::Length(6),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(6),
        Constraint::Fill(1),
    ];
    table(
        ["stream", "Hz", "p50 ms", "p99 ms", "out", "late", "dropped"],
        [1, 2, 3, 4, 5],
        widths,
        rows.collect(),
        area.height,
    )
}

/// The end of a text, if it is too long.
fn shortened(text: &str, longest: usize) -> String {
    let count = text.chars().count();
    if count <= longest {
        return text.to_owned();
    }
    let end: String = text.chars().skip(count + 1 - longest.max(1)).collect();
    format!("…{end}")
}

/// How many were dropped, and why, the most frequent reason first.
fn drops(stream: &StreamReading) -> String {
    let mut kinds: Vec<_> = stream.drops.iter().collect();
    kinds.sort_by_key(|drop| Reverse(drop.count));
    let kinds: Vec<String> = kinds
        .iter()
        .map(|drop| format!("{} {}", drop.count, drop.reason))
        .collect();
    kinds.join(", ")
}

fn stage_table(stages: &[StageReading], height: u16) -> Table<'static> {
    let rows = stages.iter().map(|stage| {
        Row::new([
            Cell::from(stage.stage.name()),
            right(ms(stage.wait.p50_ms)),
            right(ms(stage.wait.p99_ms)),
            right(ms(stage.service.p50_ms)),
            right(ms(stage.service.p99_ms)),
            right(ms(stage.service.max_ms)),
        ])
    });
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(12),
        Constraint::Length(12),
        Constraint::Length(14),
        Constraint::Length(14),
        Constraint::Length(14),
    ];
    let header = [
        "stage, ms",
        "wait p50",
        "wait p99",
        "service p50",
        "service p99",
        "service max",
    ];
    table(header, [1, 2, 3, 4, 5], widths, rows.collect(), height)
}

fn queue_table(queues: &[QueueReading], height: u16) -> Table<'static> {
    let rows = queues.iter().map(|queue| {
        let share = queue.len as f64 / queue.capacity as f64;
        let color = match share {
            share if share >= 1.0 => Color::Red,
            share if share >= 0.5 => Color::Yellow,
            _ => Color::Green,
        };
        Row::new([
            Cell::from(format!("{} → {}", queue.from, queue.to)),
            Cell::from(bar(share)).style(Style::new().fg(color)),
            right(format!("{}/{}", queue.len, queue.capacity)),
            right(ms(queue.oldest_age_s * 1e3)),
            right(ms(queue.taken_age_s * 1e3)),
            right(queue.dropped.to_string()),
        ])
    });
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(BAR as u16),
        Constraint::Length(7),
        Constraint::Length(10),
        Constraint::Length(9),
        Constraint::Length(8),
    ];
    table(
        ["queue", "", "items", "oldest ms", "taken ms", "dropped"],
        [2, 3, 4, 5],
        widths,
        rows.collect(),
        height,
    )
}

/// A table of so many rows; what does not fit is counted in the last one.
fn table<const N: usize, const R: usize>(
    header: [&'static str; N],
    to_the_right: [usize; R],
    widths: [Constraint; N],
    mut rows: Vec<Row<'static>>,
    height: u16,
) -> Table<'static> {
    let room = usize::from(height.saturating_sub(1));
    if rows.len() > room && room > 0 {
        let hidden = rows.len() - (room - 1);
        rows.truncate(room - 1);
        rows.push(Row::new([format!("… {hidden} more")]));
    }
    let cells = header
        .into_iter()
        .enumerate()
        .map(|(i, title)| match to_the_right.contains(&i) {
            true => right(title.to_owned()),
            false => Cell::from(title),
        });
    let style = Style::new().add_modifier(Modifier::REVERSED);
    Table::new(rows, widths)
        .header(Row::new(cells).style(style))
        .column_spacing(1)
}

fn right(text: String) -> Cell<'static> {
    Cell::from(Line::from(text).right_aligned())
}

/// A time that takes six characters at most.
fn ms(ms: f64) -> String {
    match ms {
        ms if ms >= 10_000.0 => format!("{:.0} s", ms / 1e3),
        ms if ms >= 100.0 => format!("{ms:.0}"),
        ms if ms >= 10.0 => format!("{ms:.1}"),
        _ => format!("{ms:.2}"),
    }
}

/// A share as a bar.
fn bar(share: f64) -> String {
    let full = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    // Something is never shown as nothing.
    let full = if share > 0.0 { full.max(1) } else { full };
    "█".repeat(full) + &"░".repeat(BAR - full)
}

/// Hours, minutes and seconds.
fn clock(seconds: f64) -> String {
    let seconds = seconds as u64;
    format!("{}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests;
