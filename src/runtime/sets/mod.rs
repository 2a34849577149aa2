//! Sets of what several sensors saw at one time, and clouds made of them.
//!
//! - [`Matcher`]: which messages belong together, by their stamps; plain and synchronous.
//! - `clocks`: which sensors share a clock, and when time jumps back.
//! - `nearest`, `latest`: the two rules of matching.
//! - `actor`: the matcher between sources and what takes sets.
//! - `merge`: one cloud of several; `concat`: the stage that does it.
//! - `waiting`: how many members wait for others.
//! - `start`: the nodes of a pipeline as actors.

mod actor;
mod clocks;
mod concat;
mod latest;
mod matcher;
mod merge;
mod nearest;
mod start;
mod waiting;

pub use matcher::{MatchSettings, MatchedSet, Matcher, Outcome, Placed, Unused};
pub use merge::{MergeError, MergeInput, Merged, merge_clouds};

pub(super) use start::{StartedSets, members_of, results_of_messages, start_sets, streams, world_frame};
