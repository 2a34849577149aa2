//! Compute nodes: busy work of a stated cost, to measure a runtime by itself.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::raw::RawInput;
use super::words::words;

words! {
    /// What a compute node does with its inputs.
    ComputeRole {
        /// Sends a message each period; has no input.
        Sensor = "sensor",
        /// Works on each message of its one input.
        Transform = "transform",
        /// Works once every input has a new message.
        Fusion = "fusion",
        /// Works each period, on what has come since.
        Cyclic = "cyclic",
        /// Works on each message of each input, and sends on by input.
        Intersection = "intersection",
        /// Takes messages and sends none.
        Command = "command",
    }
}

/// Does busy work of a stated cost on messages of a stated size, in place of an algorithm: what is measured is the runtime.
/// Compute nodes are joined with each other only.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Compute")]
pub(super) struct RawCompute {
    /// What it does with its inputs.
    pub(super) role: ComputeRole,
    /// The compute node or nodes that feed it. Left out: none, for a sensor.
    #[expect(dead_code, reason = "names are read from the tree, where their places are")]
    pub(super) input: Option<RawInput>,
    /// Time between two messages of a sensor, or two runs of a cyclic node, in milliseconds. Left out: for the other roles.
    #[schemars(range(min = 1, max = 3_600_000))]
    pub(super) period_ms: Option<u32>,
    /// Work of each run.
    #[serde(default)]
    pub(super) cost: RawCost,
    /// Bytes of each message that it sends; it writes all of them, and whoever gets the message reads them.
    #[serde(default = "default_payload")]
    #[schemars(range(min = 8, max = 67_108_864))]
    pub(super) payload_bytes: u32,
    /// Of an intersection: for each input the node or nodes that get what is made of it. Left out: for the other roles.
    #[expect(dead_code, reason = "names are read from the tree, where their places are")]
    #[serde(default)]
    pub(super) routes: BTreeMap<String, RawInput>,
    /// A sensor: the latency from when its sample was due until this node has worked on it is measured, and samples that
    /// never get here are counted. Left out: nothing is measured.
    pub(super) latency_from: Option<String>,
}

const fn default_payload() -> u32 {
    4_096
}

/// Work of a run; one of these keys, or none for no work.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Cost")]
pub(super) struct RawCost {
    /// Counts the primes up to this number by division by every smaller number. Left out: does not.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(super) primes: Option<u32>,
    /// Divides for about so many microseconds of an idle processor, as measured when the run starts. Left out: does not.
    #[schemars(range(min = 1, max = 60_000_000))]
    pub(super) micros: Option<u32>,
}

/// Settings of a compute node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ComputeSettings {
    /// What it does with its inputs.
    pub role: ComputeRole,
    /// Time between two runs of a sensor or a cyclic node, in milliseconds.
    pub period_ms: Option<u32>,
    /// Work of each run.
    pub cost: ComputeCost,
    /// Bytes of each message that it sends.
    pub payload_bytes: u32,
    /// Of an intersection: the nodes that get what is made of each input.
    pub routes: BTreeMap<String, Vec<String>>,
    /// The sensor from which latency is measured.
    pub latency_from: Option<String>,
}

/// Work of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ComputeCost {
    /// None.
    Free,
    /// Counts the primes up to a number by division by every smaller number.
    Primes(u32),
    /// Divides for so many microseconds of an idle processor.
    Micros(u32),
}

impl fmt::Display for ComputeCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free => f.write_str("no work"),
            Self::Primes(limit) => write!(f, "primes up to {limit}"),
            Self::Micros(micros) => write!(f, "{micros} µs"),
        }
    }
}

impl ComputeSettings {
    /// In words.
    #[must_use]
    pub fn describe(&self) -> String {
        let period = self
            .period_ms
            .map_or_else(String::new, |ms| format!(" every {ms} ms"));
        format!("{}{period}, {}", self.role, self.cost)
    }
}
