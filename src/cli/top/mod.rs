//! `sensorium top`: a run at a glance.

mod feed;
mod view;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::ValueHint;
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use miette::{IntoDiagnostic, WrapErr, miette};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::Widget;

use self::feed::Feed;
use self::view::{Order, View};
use super::report;
use super::token;
use crate::telemetry::live::LiveStatus;

/// Columns and rows of what `--once` prints, unless it is told otherwise.
const ONCE_COLUMNS: u16 = 80;
/// Rows that no status fills.
const MOST_ROWS: u16 = 500;

/// Shows a run that listens (`sensorium run --listen`): streams with rates, latencies and drops, stages, queues, the device
/// and the state of the pipeline, at this moment.
///
/// Keys: q ends, p pauses, s sorts the streams by name, latency or drops.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sensorium run pipelines/centerpoint.yaml --listen 127.0.0.1:9100
  sensorium top
  sensorium top http://127.0.0.1:9200 --once")]
pub(super) struct Args {
    /// Where the run listens.
    #[arg(value_name = "URL", default_value = "http://127.0.0.1:9100", value_hint = ValueHint::Url)]
    url: String,
    /// Prints one look as text and ends.
    #[arg(long)]
    once: bool,
    /// Columns of what `--once` prints.
    #[arg(long, default_value_t = ONCE_COLUMNS, value_parser = clap::value_parser!(u16).range(60..=400), requires = "once")]
    columns: u16,
    /// Time between two looks in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    interval: u64,
    /// File with the token of the run [default: what SENSORIUM_HTTP_TOKEN holds, or none].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    token_file: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// Nothing listens there, or what answers is no run.
pub(super) fn run(args: &Args) -> miette::Result<ExitCode> {
    let token = token::token(args.token_file.as_deref(), token::RUN)?;
    let feed = Feed::new(&args.url, token);
    // What is wrong with the address is told before the screen is taken.
    let first = feed
        .look()
        .map_err(|error| miette!(help = error.help(), "{error}"))?;
    if args.once {
        report::print(&text_of(&first, args.columns))?;
        return Ok(ExitCode::SUCCESS);
    }
    if !std::io::stdout().is_terminal() {
        return Err(miette!(
            help = "`sensorium top --once` prints one look as text",
            "standard output is no terminal"
        ));
    }
    let mut terminal = ratatui::try_init()
        .into_diagnostic()
        .wrap_err("the terminal cannot be used")?;
    let outcome = watch(&mut terminal, &feed, first, Duration::from_millis(args.interval));
    ratatui::restore();
    outcome.into_diagnostic()?;
    Ok(ExitCode::SUCCESS)
}

/// One look as text, without blanks at the ends of lines.
fn text_of(status: &LiveStatus, columns: u16) -> String {
    let view = View::of(status);
    let area = Rect::new(0, 0, columns, view.rows().min(MOST_ROWS));
    let mut buffer = Buffer::empty(area);
    view.render(area, &mut buffer);
    let line = |row: u16| {
        let cells = (0..columns).filter_map(|column| buffer.cell((column, row)));
        let line: String = cells.map(|cell| cell.symbol()).collect();
        line.trim_end().to_owned() + "\n"
    };
    let text: String = (0..area.height).map(line).collect();
    text.trim_end().to_owned() + "\n"
}

/// Shows looks until the user has seen enough.
fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    feed: &Feed,
    first: LiveStatus,
    interval: Duration,
) -> std::io::Result<()> {
    let mut looked_at = Instant::now();
    let (mut now, mut before) = (first, None);
    let (mut order, mut paused, mut trouble) = (Order::default(), false, None);
    loop {
        let view = View::of(&now)
            .since(before.as_ref())
            .sorted(order)
            .paused(paused)
            .troubled(trouble.as_deref());
        terminal.draw(|frame| frame.render_widget(view, frame.area()))?;
        let left = interval.saturating_sub(looked_at.elapsed());
        if event::poll(left)? {
            match event::read()? {
                Event::Key(key) if is_end(key) => return Ok(()),
                Event::Key(KeyEvent {
                    code: KeyCode::Char(key),
                    kind: KeyEventKind::Press,
                    ..
                }) => match key {
                    'p' => paused = !paused,
                    's' => order = order.next(),
                    _ => {}
                },
                _ => {}
            }
            continue;
        }
        looked_at = Instant::now();
        if paused {
            continue;
        }
        match feed.look() {
            Ok(status) => {
                trouble = None;
                before = Some(std::mem::replace(&mut now, status));
            }
            Err(error) => trouble = Some(error.to_string()),
        }
    }
}

fn is_end(key: KeyEvent) -> bool {
    let interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press && (interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc))
}
