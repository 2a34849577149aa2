//! Nodes of kind `sync` and `concat`: what several sensors sent becomes one sample.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::raw::RawInput;
use super::words::words;
use crate::perception::Sensor;

/// Most members of a set.
pub(super) const MAX_MEMBERS: usize = 64;

/// Puts together what several sensors saw at one time: one set for each time, in the order of time.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Sync")]
pub(super) struct RawSync {
    /// The source or sources of the members.
    #[expect(dead_code, reason = "names are read from the tree, where their places are")]
    pub(super) input: RawInput,
    /// The sensors, in the order in which a model is given them.
    #[schemars(length(min = 1))]
    pub(super) members: Vec<RawMember>,
    /// Which messages belong together.
    #[serde(default)]
    pub(super) policy: MatchBy,
    /// approximate: longest time between two members of a set, in milliseconds; less than half of the sensors' period.
    /// Left out: 20.
    #[schemars(range(min = 0.0, max = 10_000.0))]
    pub(super) tolerance_ms: Option<f64>,
    /// latest: topic of the member whose every message makes a set. Left out: the first member.
    #[schemars(length(min = 1))]
    pub(super) reference: Option<String>,
    /// latest: longest time between a member and the reference, in milliseconds. Left out: 100.
    #[schemars(range(min = 0.0, max = 60_000.0))]
    pub(super) max_age_ms: Option<f64>,
    /// Longest time that a set waits for its members after the first of them came, in milliseconds of the sensors' time.
    #[serde(default = "default_timeout_ms")]
    #[schemars(range(min = 0.0, max = 60_000.0))]
    pub(super) timeout_ms: f64,
    /// What becomes of a set that a member is missing in.
    #[serde(default)]
    pub(super) on_partial: OnPartial,
    /// Fewest members of a set that is released.
    #[serde(default = "default_min_members")]
    #[schemars(range(min = 1, max = MAX_MEMBERS))]
    pub(super) min_members: u16,
    /// Most sets that wait for members; beyond it the oldest waits no longer.
    #[serde(default = "default_max_waiting")]
    #[schemars(range(min = 1, max = 256))]
    pub(super) max_waiting: u16,
    /// Name of the stream of sets. Left out: the name of the node.
    #[schemars(length(min = 1))]
    pub(super) stream: Option<String>,
}

/// A sensor of a set.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Member")]
pub(super) struct RawMember {
    /// Topic of the sensor, one of those of the sources.
    #[schemars(length(min = 1))]
    pub(super) topic: String,
    /// What it sends. Left out: as the type of the topic says; needed where messages are live.
    pub(super) sensor: Option<MemberSensor>,
    /// How much later than the other sensors it stamps the same moment, in milliseconds.
    #[serde(default)]
    #[schemars(range(min = -10_000.0, max = 10_000.0))]
    pub(super) offset_ms: f64,
}

/// Makes one point cloud of those in a set.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Concat")]
pub(super) struct RawConcat {
    /// The node of kind `sync` whose members are LiDARs.
    #[expect(dead_code, reason = "names are read from the tree, where their places are")]
    pub(super) input: RawInput,
    /// Frame that all points are brought to by the transforms of the sources.
    #[serde(default = "default_output_frame")]
    #[schemars(length(min = 1))]
    pub(super) output_frame: String,
    /// Frame in which the vehicle moves, such as map: clouds taken at other times than the set's stamp are brought there
    /// through it. Left out: they are taken as if the vehicle stood still.
    #[schemars(length(min = 1))]
    pub(super) world_frame: Option<String>,
    /// Longest time to wait for a transform that comes later than its cloud, in milliseconds.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1_000))]
    pub(super) pose_wait_ms: u32,
    /// Most points of the merged cloud; a set with more is dropped.
    #[serde(default = "default_max_points")]
    #[schemars(range(min = 1, max = 50_000_000))]
    pub(super) max_points: u32,
    /// Name of the stream of clouds. Left out: the name of the node.
    #[schemars(length(min = 1))]
    pub(super) stream: Option<String>,
}

const fn default_timeout_ms() -> f64 {
    200.0
}

const fn default_min_members() -> u16 {
    1
}

const fn default_max_waiting() -> u16 {
    8
}

const fn default_max_points() -> u32 {
    2_000_000
}

fn default_output_frame() -> String {
    "base_link".to_owned()
}

pub(super) const DEFAULT_TOLERANCE_MS: f64 = 20.0;
pub(super) const DEFAULT_MAX_AGE_MS: f64 = 100.0;

/// Which messages belong to one set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum MatchBy {
    /// Those with the same stamp.
    Exact,
    /// Those whose stamps are at most `tolerance_ms` apart; of two sets that a message fits, the nearer one.
    #[default]
    Approximate,
    /// A message of the reference with the newest of each other sensor, which may be in several sets.
    Latest,
}

impl fmt::Display for MatchBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Exact => "exact",
            Self::Approximate => "approximate",
            Self::Latest => "latest",
        })
    }
}

words! {
    /// What becomes of a set that a member is missing in.
    #[derive(Default)]
    OnPartial {
        /// It is released, and says what is missing.
        #[default]
        Release = "release",
        /// It is dropped, and its members with it.
        Drop = "drop",
    }
}
words! {
    /// What a member of a set sends.
    MemberSensor {
        /// Images.
        Camera = "camera",
        /// Point clouds.
        Lidar = "lidar",
    }
}

impl MemberSensor {
    /// The same in the words of models.
    #[must_use]
    pub const fn sensor(self) -> Sensor {
        match self {
            Self::Camera => Sensor::Camera,
            Self::Lidar => Sensor::Lidar,
        }
    }
}

/// Settings of a node that puts sets together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SyncSettings {
    /// The sensors, in the order in which a model is given them.
    pub members: Vec<SyncMember>,
    /// Which messages belong together.
    pub policy: MatchRule,
    /// Longest time that a set waits after its first member came, in nanoseconds.
    pub timeout_ns: i64,
    /// What becomes of a set that a member is missing in.
    pub on_partial: OnPartial,
    /// Fewest members of a set that is released, at least 1.
    pub min_members: u16,
    /// Most sets that wait for members, at least 1.
    pub max_waiting: u16,
    /// Name of the stream of sets.
    pub stream: String,
}

impl SyncSettings {
    /// Members and rule in a few words.
    #[must_use]
    pub fn summary(&self) -> String {
        let ms = |ns: i64| ns as f64 / 1e6;
        let rule = match self.policy {
            MatchRule::Within { tolerance_ns: 0 } => "same stamp".to_owned(),
            MatchRule::Within { tolerance_ns } => format!("within {} ms", ms(tolerance_ns)),
            MatchRule::Latest {
                reference,
                max_age_ns,
            } => {
                let reference = self.members.get(reference).map_or("", |member| &member.topic);
                format!("at each {reference}, {} ms around it", ms(max_age_ns))
            }
        };
        format!("{} members, {rule}", self.members.len())
    }
}

/// A sensor of a set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SyncMember {
    /// Topic.
    pub topic: String,
    /// What it sends; `None`: as the type of the topic says.
    pub sensor: Option<MemberSensor>,
    /// Subtracted from its stamps before they are compared, in nanoseconds.
    pub offset_ns: i64,
}

/// Which messages belong to one set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "match")]
pub enum MatchRule {
    /// Those whose stamps, less the sensors' offsets, are at most this far apart; 0 for equal ones.
    Within {
        /// Longest time between two members of a set in nanoseconds.
        tolerance_ns: i64,
    },
    /// A message of the reference with the newest of each other sensor.
    Latest {
        /// Position of the reference among the members.
        reference: usize,
        /// Longest time between a member and the reference in nanoseconds.
        max_age_ns: i64,
    },
}

/// Settings of a node that makes one cloud of those in a set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConcatSettings {
    /// Frame that all points are brought to.
    pub output_frame: String,
    /// Frame in which the vehicle moves; `None`: it is taken to stand still.
    pub world_frame: Option<String>,
    /// Longest wait for a transform in milliseconds.
    pub pose_wait_ms: u32,
    /// Most points of the merged cloud.
    pub max_points: u32,
    /// Name of the stream of clouds.
    pub stream: String,
}
