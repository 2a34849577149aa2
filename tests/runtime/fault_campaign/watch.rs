//! Runs that are watched while they run.

use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::fault_campaign::Row;
use crate::tiny::{Lab, Outcome, await_end};

/// How long a run may take before it counts as hung.
const PATIENCE: Duration = Duration::from_secs(120);

/// Notes when each line of a file of JSON lines comes.
pub(crate) struct Watch {
    over: Arc<AtomicBool>,
    reader: JoinHandle<Vec<Instant>>,
}

impl Watch {
    /// Watches a file that may not be there yet.
    pub(crate) fn file(path: &Path) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (path, stop) = (path.to_owned(), Arc::clone(&over));
        let reader = std::thread::spawn(move || {
            let mut came = Vec::new();
            loop {
                let last = stop.load(Ordering::Acquire);
                let text = std::fs::read(&path).unwrap_or_default();
                let lines = text.iter().filter(|&&byte| byte == b'\n').count();
                came.resize(lines.max(came.len()), Instant::now());
                if last {
                    return came;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Self { over, reader }
    }

    /// The times at which results came.
    pub(crate) fn end(self) -> Vec<Instant> {
        self.over.store(true, Ordering::Release);
        self.reader.join().unwrap()
    }
}

/// The longest time between two results that came one after the other, in milliseconds.
pub(crate) fn longest_pause_ms(came: &[Instant]) -> u128 {
    let pauses = came.windows(2).map(|pair| pair[1] - pair[0]);
    pauses.max().unwrap_or_default().as_millis()
}

/// Waits for the end of a run, and kills one that hangs.
pub(crate) fn within_reason(mut child: Child) -> Outcome {
    // Somebody has to read what it prints meanwhile, so the waiting is done by a thread with the process's number alone.
    let id = child.id();
    let over = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&over);
    let guard = std::thread::spawn(move || {
        let start = Instant::now();
        while !ended.load(Ordering::Acquire) {
            if start.elapsed() > PATIENCE {
                let _ = std::process::Command::new("kill")
                    .args(["-KILL", &id.to_string()])
                    .status();
                panic!("the run did not end within {PATIENCE:?}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    child.stdin.take();
    let outcome = await_end(child);
    over.store(true, Ordering::Release);
    guard.join().expect("the run ended in time");
    outcome
}

/// The bag of the lab in real time with JSON lines into `out.jsonl`, and when its results came.
pub(crate) fn watched(lab: &Lab, arguments: &[&str]) -> (Outcome, Vec<Instant>) {
    let watch = Watch::file(&lab.path("out.jsonl"));
    let mut all = vec!["--rate", "1", "--jsonl", "out.jsonl"];
    all.extend(arguments);
    let outcome = within_reason(lab.start(&all));
    (outcome, watch.end())
}

/// The row of a run.
pub(crate) fn row(fault: &'static str, place: String, outcome: &Outcome, recovery_ms: Option<u128>) -> Row {
    let drops: Vec<String> = outcome
        .drops()
        .into_iter()
        .map(|(place, reason, count)| format!("{count} {reason} at {place}"))
        .collect();
    Row {
        fault,
        place,
        frames: outcome.frames(),
        recovery_ms,
        drops: if drops.is_empty() {
            "-".into()
        } else {
            drops.join(", ")
        },
    }
}
