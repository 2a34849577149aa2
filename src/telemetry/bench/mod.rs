//! Benchmarks of whole pipelines: what was offered, how long it took, how sure that is, and what changed.
//!
//! The scenarios are MLPerf-style: one query at a time, a constant stream, several streams, and the highest rate that a
//! pipeline keeps up with. Latency counts from the time at which a query was due. Percentiles are claimed only where
//! there are samples enough ([`required_samples`]), and come with intervals that hold for any distribution
//! ([`rank_interval`]). Two results are compared by a bootstrap over blocks of successive queries ([`Resampled`]),
//! since latencies that follow each other are not independent.

mod collector;
mod compare;
mod condition;
mod hlog;
mod machine;
mod result;
mod statistics;
mod text;

pub use collector::{Collected, Collector, Sample};
pub use compare::{Comparison, ConditionOutcome, MetricChange, compare, evaluate};
pub use condition::{Condition, ConditionError, Limit, Metric, Operator};
pub use hlog::{HlogError, write_hlog};
pub use machine::{Machine, ProcessUse};
pub(in crate::telemetry) use result::p_name;
pub use result::{
    BenchResult, Claim, LoadSummary, PeakPoint, PeakSummary, PercentileValue, QuerySummary,
    Ros2BenchmarkKeys, ScenarioKind, ScenarioSummary, bench_schema,
};
pub use statistics::{Resampled, percentile, rank_interval, required_samples, share_interval};
