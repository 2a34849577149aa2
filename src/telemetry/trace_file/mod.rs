//! A trace of a run for Perfetto and Chrome (`chrome://tracing`): what every actor did when, how long frames waited in
//! the queues, and each frame's way through all of them.
//!
//! The file is the JSON array format of Chrome's trace viewer
//! (<https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>):
//!
//! - process 1 holds the actors, a track each. Where an actor works on several frames at a time, each worker has a track;
//!   on one track no two slices overlap.
//! - process 2 holds the queues: the frames that wait for an actor as slices, and how many wait as a counter.
//! - a flow joins the slices of one frame, from its source on. Its id is 2^40 times the number of the stream plus the
//!   frame's sequence number. The slice of a frame that was dropped is on the track `dropped` and names the reason.
//!
//! Events are written while the run goes on, by a thread of its own: whoever tells of an event never waits. Where the
//! thread cannot keep up, events are dropped and counted. A file whose end is missing, because the process was killed,
//! can be opened all the same: viewers do not ask for the closing bracket.

mod lanes;
mod writer;

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::thread::JoinHandle;

use super::{DropReason, FrameId, FrameTimes, MonotonicClock, Span, Stage, Streams};
use writer::Writer;

/// Events that wait to be written, at most: 4 MiB of them.
const BACKLOG: usize = 1 << 16;

/// A trace that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("the trace {} cannot be written: {source}", path.display())]
pub struct TraceFileError {
    /// The file.
    pub path: PathBuf,
    /// What the operating system says.
    pub source: std::io::Error,
}

/// What became of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceWritten {
    /// Slices and lengths of queues in the file.
    pub events: u64,
    /// Slices and lengths that are missing, because more came than could be written.
    pub dropped: u64,
}

/// The track of a queue's length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueTrack(u32);

/// A trace that is being written.
#[derive(Debug)]
pub struct TraceFile {
    path: PathBuf,
    events: SyncSender<Event>,
    names: Arc<Names>,
    bound: OnceLock<MonotonicClock>,
    dropped: Arc<AtomicU64>,
    ending: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<Result<u64, std::io::Error>>>>,
}

/// Names that events refer to by number.
#[derive(Debug, Default)]
struct Names {
    tracks: RwLock<Vec<Track>>,
    known: RwLock<[HashMap<Arc<str>, u32>; 3]>,
    streams: OnceLock<Streams>,
}

#[derive(Debug, Clone)]
struct Track {
    kind: Kind,
    name: Arc<str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// What an actor works on.
    Actor,
    /// Frames that wait for an actor.
    Waiting,
    /// Number of items in a channel.
    Length,
}

/// What is written about a frame's slice besides its times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Stage(Stage),
    Wait,
    Sink,
    Dropped(DropReason),
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Slice {
        track: u32,
        what: What,
        frame: FrameId,
        start_ns: u64,
        end_ns: u64,
    },
    Length {
        track: u32,
        at_ns: u64,
        len: u64,
    },
}

impl Names {
    fn track(&self, kind: Kind, name: &str) -> u32 {
        let read = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(&track) = read[kind as usize].get(name) {
            return track;
        }
        drop(read);
        let name: Arc<str> = name.into();
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        *known[kind as usize].entry(Arc::clone(&name)).or_insert_with(|| {
            let mut tracks = self.tracks.write().unwrap_or_else(PoisonError::into_inner);
            tracks.push(Track { kind, name });
            (tracks.len() - 1) as u32
        })
    }

    fn named(&self, track: u32) -> Option<Track> {
        let tracks = self.tracks.read().unwrap_or_else(PoisonError::into_inner);
        tracks.get(track as usize).cloned()
    }
}

impl TraceFile {
    /// Creates the file, replacing one of that name, and starts the thread that writes it.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: &Path) -> Result<Self, TraceFileError> {
        let refuse = |source| TraceFileError {
            path: path.to_owned(),
            source,
        };
        let file = File::create(path).map_err(refuse)?;
        let (events, inbox) = sync_channel(BACKLOG);
        let names = Arc::new(Names::default());
        let (dropped, ending) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let writer = Writer::new(file, inbox, Arc::clone(&names), Arc::clone(&dropped));
        let until = Arc::clone(&ending);
        let thread = std::thread::Builder::new()
            .name("sensorium-trace".into())
            .spawn(move || writer.run(&until))
            .map_err(refuse)?;
        Ok(Self {
            path: path.to_owned(),
            events,
            names,
            bound: OnceLock::new(),
            dropped,
            ending,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Says whose frames are traced, and by which clock. What is told before is not written.
    pub fn begin(&self, clock: MonotonicClock, streams: &Streams) {
        // A second run would have another clock and other streams: a file holds one.
        if self.bound.set(clock).is_ok() {
            let _ = self.names.streams.set(streams.clone());
        }
    }

    /// The present on the clock of the run; 0 before the run.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.bound.get().map_or(0, MonotonicClock::now_ns)
    }

    /// An actor is through with a stage of a frame. If it had to wait for the actor, that is told too.
    pub fn passed(&self, actor: &str, frame: FrameId, stage: Stage, span: Span) {
        if stage != Stage::Ingest {
            self.waited(actor, frame, span.enqueued_ns, span.started_ns);
        }
        self.slice(
            Kind::Actor,
            actor,
            What::Stage(stage),
            frame,
            span.started_ns,
            span.finished_ns,
        );
    }

    /// An actor is through with the last stage that these times tell of.
    pub fn passed_last(&self, actor: &str, frame: FrameId, times: &FrameTimes) {
        if let Some((stage, span)) = times.spans().last() {
            self.passed(actor, frame, stage, span);
        }
    }

    /// A frame came back from the device. Its steps overlap with those of its neighbours, so each has a track.
    pub fn passed_device(&self, frame: FrameId, times: &FrameTimes) {
        for (stage, span) in times.spans() {
            let track = match stage {
                Stage::Upload => {
                    self.waited("device", frame, span.enqueued_ns, span.started_ns);
                    "device upload"
                }
                Stage::Replay => "device replay",
                Stage::Readback => "device readback",
                _ => continue,
            };
            self.slice(
                Kind::Actor,
                track,
                What::Stage(stage),
                frame,
                span.started_ns,
                span.finished_ns,
            );
        }
    }

    /// A sink wrote the result of a frame, from `started_ns` to now.
    pub fn written(&self, sink: &str, frame: FrameId, times: &FrameTimes, started_ns: u64) {
        if let Some(sent_ns) = times.started_ns(Stage::Publish) {
            self.waited(sink, frame, sent_ns, started_ns);
        }
        self.slice(Kind::Actor, sink, What::Sink, frame, started_ns, self.now_ns());
    }

    /// A frame will not come out.
    pub fn dropped(&self, frame: FrameId, reason: DropReason) {
        let now_ns = self.now_ns();
        // A viewer joins no flow to a slice without a length.
        self.slice(
            Kind::Actor,
            "dropped",
            What::Dropped(reason),
            frame,
            now_ns,
            now_ns + 1_000,
        );
    }

    /// The track of the channel between two actors.
    #[must_use]
    pub fn queue(&self, from: &str, to: &str) -> QueueTrack {
        QueueTrack(self.names.track(Kind::Length, &format!("{from} → {to}")))
    }

    /// So many items wait in a channel.
    pub fn queue_length(&self, track: QueueTrack, at_ns: u64, len: usize) {
        self.tell(Event::Length {
            track: track.0,
            at_ns,
            len: len as u64,
        });
    }

    /// Writes what is still to be written, and closes the file. Called again, it tells of nothing.
    ///
    /// # Errors
    /// Something could not be written; the file ends there.
    pub fn finish(&self) -> Result<TraceWritten, TraceFileError> {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.ending.store(true, Ordering::Release);
        let events = match thread {
            None => 0,
            Some(thread) => {
                thread.thread().unpark();
                let gone = |_| Err(std::io::Error::other("its thread panicked"));
                thread
                    .join()
                    .unwrap_or_else(gone)
                    .map_err(|source| TraceFileError {
                        path: self.path.clone(),
                        source,
                    })?
            }
        };
        Ok(TraceWritten {
            events,
            dropped: self.dropped.load(Ordering::Relaxed),
        })
    }

    fn waited(&self, actor: &str, frame: FrameId, from_ns: u64, to_ns: u64) {
        if to_ns > from_ns {
            self.slice(Kind::Waiting, actor, What::Wait, frame, from_ns, to_ns);
        }
    }

    fn slice(&self, kind: Kind, name: &str, what: What, frame: FrameId, start_ns: u64, end_ns: u64) {
        let track = self.names.track(kind, name);
        self.tell(Event::Slice {
            track,
            what,
            frame,
            start_ns,
            end_ns: end_ns.max(start_ns),
        });
    }

    fn tell(&self, event: Event) {
        if self.bound.get().is_some() && self.events.try_send(event).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            tracing::warn!(%error, "the trace is not whole");
        }
    }
}
