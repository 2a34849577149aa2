//! Identifiers that a device hands out. They are plain numbers: holding one keeps nothing alive, and an id
//! that outlives its object is answered with an error.

use std::fmt;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident, $text:literal;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
            pub struct $name(pub(crate) u64);

            impl fmt::Display for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    write!(f, concat!($text, " {}"), self.0)
                }
            }
        )*
    };
}

ids! {
    /// A device buffer.
    BufferId, "buffer";
    /// A recorded event. Ids are never reused.
    EventId, "event";
    /// A compiled program.
    ProgramId, "program";
    /// A captured trace.
    TraceId, "trace";
}

/// A command queue. Commands on one queue run in order; queues run independently of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cq(pub u8);

impl Cq {
    /// The queue that launches and replays.
    pub const COMPUTE: Self = Self(0);
    /// The queue that uploads and reads while queue 0 computes.
    pub const IO: Self = Self(1);
}

impl fmt::Display for Cq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CQ{}", self.0)
    }
}
