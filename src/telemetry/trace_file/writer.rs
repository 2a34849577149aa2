//! The thread that writes a trace.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use super::lanes::Lanes;
use super::{Event, Kind, Names, What};
use crate::telemetry::{FrameId, Stage, StreamId};

/// Pause between two looks at what there is to write. Waking the thread for each event would cost those who tell of it
/// more than telling.
const PAUSE: Duration = Duration::from_millis(20);

/// Text that is handed to the system at a time.
const BUFFER_BYTES: usize = 64 * 1024;

/// Numbers of the processes that a viewer shows.
const ACTORS: u32 = 1;
const QUEUES: u32 = 2;

/// Number of a track that a viewer shows: the lanes of one follow one another.
const LANES_APART: u32 = 64;

pub(super) struct Writer<W> {
    out: W,
    /// Whole records only: a process that is killed leaves no half of one.
    buffer: Vec<u8>,
    inbox: Receiver<Event>,
    names: Arc<Names>,
    dropped: Arc<AtomicU64>,
    lanes: HashMap<u32, Lanes>,
    lengths: HashMap<u32, u64>,
    /// Names of streams, as JSON.
    streams: HashMap<StreamId, String>,
    events: u64,
    any: bool,
}

impl<W: Write> Writer<W> {
    pub(super) fn new(out: W, inbox: Receiver<Event>, names: Arc<Names>, dropped: Arc<AtomicU64>) -> Self {
        Self {
            out,
            buffer: Vec::with_capacity(2 * BUFFER_BYTES),
            inbox,
            names,
            dropped,
            lanes: HashMap::new(),
            lengths: HashMap::new(),
            streams: HashMap::new(),
            events: 0,
            any: false,
        }
    }

    /// Writes until it is told that nothing more will come. The number of slices and lengths.
    pub(super) fn run(mut self, ending: &AtomicBool) -> io::Result<u64> {
        self.buffer.push(b'[');
        for (pid, name) in [(ACTORS, "actors"), (QUEUES, "queues")] {
            self.record(&format!(
                r#"{{"ph":"M","name":"process_name","pid":{pid},"tid":0,"args":{{"name":"{name}"}}}}"#
            ))?;
        }
        loop {
            // Looked at first: what was told before the end is in the inbox then.
            let is_last = ending.load(Ordering::Acquire);
            while let Ok(event) = self.inbox.try_recv() {
                self.write(event)?;
            }
            self.flush()?;
            if is_last {
                break;
            }
            std::thread::park_timeout(PAUSE);
        }
        self.buffer.extend_from_slice(b"\n]\n");
        self.flush()?;
        Ok(self.events)
    }

    fn write(&mut self, event: Event) -> io::Result<()> {
        match event {
            Event::Length { track, at_ns, len } => self.length(track, at_ns, len),
            Event::Slice {
                track,
                what,
                frame,
                start_ns,
                end_ns,
            } => self.slice(track, what, frame, start_ns, end_ns),
        }
    }

    fn length(&mut self, track: u32, at_ns: u64, len: u64) -> io::Result<()> {
        if self.lengths.insert(track, len) == Some(len) {
            return Ok(());
        }
        let Some(named) = self.names.named(track) else {
            return Ok(());
        };
        let name = json(&named.name);
        self.events += 1;
        let at = micros(at_ns);
        self.record(&format!(
            r#"{{"ph":"C","name":{name},"pid":{QUEUES},"tid":0,"ts":{at},"args":{{"waiting":{len}}}}}"#
        ))
    }

    fn slice(
        &mut self,
        track: u32,
        what: What,
        frame: FrameId,
        start_ns: u64,
        end_ns: u64,
    ) -> io::Result<()> {
        let Some(named) = self.names.named(track) else {
            return Ok(());
        };
        let pid = match named.kind {
            Kind::Actor => ACTORS,
            Kind::Waiting | Kind::Length => QUEUES,
        };
        let Some((lane, is_new)) = self.lanes.entry(track).or_default().place(start_ns, end_ns) else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        };
        let tid = 1 + track * LANES_APART + lane as u32;
        if is_new {
            let mut name = match named.kind {
                Kind::Waiting => format!("→ {}", named.name),
                _ => named.name.to_string(),
            };
            if lane > 0 {
                name += &format!(" {}", lane + 1);
            }
            let name = json(&name);
            self.record(&format!(
                r#"{{"ph":"M","name":"thread_name","pid":{pid},"tid":{tid},"args":{{"name":{name}}}}}"#
            ))?;
            self.record(&format!(
                r#"{{"ph":"M","name":"thread_sort_index","pid":{pid},"tid":{tid},"args":{{"sort_index":{tid}}}}}"#
            ))?;
        }
        let (name, flow) = match what {
            What::Stage(Stage::Ingest) => (Stage::Ingest.name(), 's'),
            What::Stage(stage) => (stage.name(), 't'),
            What::Wait => ("wait", 't'),
            What::Sink => ("write", 't'),
            What::Dropped(reason) => (reason.name(), 'f'),
        };
        let names = &self.names;
        let stream = self.streams.entry(frame.stream).or_insert_with(|| {
            json(
                &names
                    .streams
                    .get()
                    .map_or_else(String::new, |s| s.name(frame.stream).to_string()),
            )
        });
        let (start, length) = (micros(start_ns), micros(end_ns - start_ns));
        let seq = frame.seq;
        let slice = format!(
            r#"{{"ph":"X","name":"{name}","cat":"frame","pid":{pid},"tid":{tid},"ts":{start},"dur":{length},"args":{{"stream":{stream},"seq":{seq}}}}}"#
        );
        self.record(&slice)?;
        let id = ((frame.stream.index() as u64) << 40) | (seq & ((1 << 40) - 1));
        let binding = if flow == 's' { "" } else { r#","bp":"e""# };
        self.events += 1;
        self.record(&format!(
            r#"{{"ph":"{flow}","name":"frame","cat":"frame","id":{id},"pid":{pid},"tid":{tid},"ts":{start}{binding}}}"#
        ))
    }

    fn record(&mut self, json: &str) -> io::Result<()> {
        let separator: &[u8] = if std::mem::replace(&mut self.any, true) {
            b",\n"
        } else {
            b"\n"
        };
        self.buffer.extend_from_slice(separator);
        self.buffer.extend_from_slice(json.as_bytes());
        match self.buffer.len() {
            bytes if bytes < BUFFER_BYTES => Ok(()),
            _ => self.flush(),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        self.out.flush()
    }
}

/// Microseconds, to the nanosecond.
fn micros(ns: u64) -> String {
    format!("{}.{:03}", ns / 1_000, ns % 1_000)
}

fn json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
