//! Quality of service of ROS 2 endpoints.

use std::fmt;

/// Whether lost messages are sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Reliability {
    /// They are.
    #[default]
    Reliable,
    /// They are not.
    BestEffort,
}

/// Whether a late subscription gets what was published before it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Durability {
    /// It does not.
    #[default]
    Volatile,
    /// It gets as many messages as the publisher's history keeps ("latched").
    TransientLocal,
}

/// How many messages an endpoint keeps for the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum History {
    /// The newest ones, at least 1.
    KeepLast(u32),
    /// All, whatever that takes.
    KeepAll,
}

/// A quality of service profile. Deadline, lifespan and lease are left at their default, infinite, and liveliness is
/// automatic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Qos {
    /// Whether lost messages are sent again.
    pub reliability: Reliability,
    /// Whether a late subscription gets what was published before.
    pub durability: Durability,
    /// How many messages are kept.
    pub history: History,
}

impl Qos {
    /// Reliable, volatile, and keeps the newest `depth` messages (at least 1): what Autoware's nodes publish their
    /// objects with, at depth 1.
    #[must_use]
    pub const fn reliable(depth: u32) -> Self {
        Self {
            reliability: Reliability::Reliable,
            durability: Durability::Volatile,
            history: History::KeepLast(if depth == 0 { 1 } else { depth }),
        }
    }

    /// Best effort, volatile: ROS 2's sensor data profile, which has depth 5; Autoware's nodes subscribe to sensors
    /// with depth 1.
    #[must_use]
    pub const fn sensor_data(depth: u32) -> Self {
        Self {
            reliability: Reliability::BestEffort,
            ..Self::reliable(depth)
        }
    }

    /// Reliable and transient local: what `/tf_static` is published with, at depth 1.
    #[must_use]
    pub const fn latched(depth: u32) -> Self {
        Self {
            durability: Durability::TransientLocal,
            ..Self::reliable(depth)
        }
    }

    /// Messages kept; 0 for "all".
    #[must_use]
    pub const fn depth(&self) -> u32 {
        match self.history {
            History::KeepLast(depth) => depth,
            History::KeepAll => 0,
        }
    }
}

impl fmt::Display for Qos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reliability = match self.reliability {
            Reliability::Reliable => "reliable",
            Reliability::BestEffort => "best effort",
        };
        let durability = match self.durability {
            Durability::Volatile => "volatile",
            Durability::TransientLocal => "transient local",
        };
        write!(f, "{reliability}, {durability}, ")?;
        match self.history {
            History::KeepLast(depth) => write!(f, "keep last {depth}"),
            History::KeepAll => f.write_str("keep all"),
        }
    }
}
