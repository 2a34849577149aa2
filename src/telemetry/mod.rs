//! Latency told honestly, every drop accounted for, and the report of a run.
//!
//! - Latency counts from the *intended* release of a frame ([`FrameTimes`]), so a stalled consumer shows in
//!   the numbers instead of slowing the clock that measures it. Nothing is ever left out of a histogram.
//! - Every frame that comes in is settled once, as out or as dropped with a reason and a place. The
//!   [`Ledger`] is the only place that counts, and it names the frames that were never settled.
//! - [`LatencyRecorder`] and [`Ledger`] become a [`RunSummary`], which prints itself as a table and is the
//!   body of the [`report`].
//! - [`live`] is what is known of a run while it runs: queues, device, the last frames, and their metrics.
//! - [`trace_file`] writes every frame's way through actors and queues for Perfetto.
//! - [`mod@bench`] tells what a benchmark of a whole pipeline came to, [`graph`] what its compute nodes did.
//! - [`profile`] measures a model on a device by itself: stages, launches, and what the machine can do at best.
//!
//! Recording is cheap (no allocation once a stream has been seen) and may happen on any thread. May be called
//! by `io`, `runtime` and `cli`; calls `outputs`, and [`profile`] calls `tensor`, `device` and `trace`.

mod balance;
pub mod bench;
mod clock;
mod frame;
mod frame_sizes;
pub mod graph;
mod histogram;
pub mod jsonl;
mod ledger;
pub mod live;
pub mod profile;
mod recorder;
mod regularity;
pub mod report;
mod stage;
mod stream;
mod summary;
mod table;
mod timeline;
pub mod trace_file;

pub use balance::{Balance, BalanceError, DropCount, DropReason, Imbalance, StreamAccount};
pub use clock::MonotonicClock;
pub use frame::{FrameTimes, Span};
pub use frame_sizes::FrameSizes;
pub use histogram::{CurvePoint, LatencyHistogram, LatencyStats, Percentile};
pub use ledger::Ledger;
pub use recorder::{LatencyOptions, LatencyRecorder, Observation};
pub use regularity::JitterStats;
pub use stage::{Part, Stage};
pub use stream::{FrameId, StreamId, Streams};
pub use summary::{
    ClockKind, DeadlineSummary, FrameCounts, RunInfo, RunSummary, StageSummary, StreamSummary,
};
pub use timeline::{Timeline, TimelineFrame};
