//! Why a bag cannot be played.

use thiserror::Error;

use crate::io::bag::BagError;

/// Why a bag cannot be played.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PlayerError {
    /// The bag cannot be read, or has no such topic.
    #[error(transparent)]
    Bag(#[from] BagError),
    /// A rate that is none.
    #[error(
        "{rate} is no rate: between 0.001 and 1000 times the recorded speed are possible, or \"as fast as possible\""
    )]
    Rate {
        /// The rate asked for.
        rate: f64,
    },
    /// A rate of `/clock` that is none.
    #[error("{hz} Hz is no rate for /clock: between 0.01 and 100000 Hz are possible")]
    ClockRate {
        /// The rate asked for, in hertz.
        hz: f64,
    },
    /// The bag is shorter than the offset.
    #[error("the start lies {:.3} s into the bag, which has {:.3} s", *offset_ns as f64 * 1e-9, *duration_ns as f64 * 1e-9)]
    StartBeyond {
        /// The offset asked for, in nanoseconds.
        offset_ns: u64,
        /// Length of the bag, in nanoseconds.
        duration_ns: u64,
    },
    /// Nothing would be played.
    #[error("a duration of 0 plays nothing")]
    NoDuration,
    /// A topic to be renamed is not played.
    #[error("topic {topic} is to be renamed but is not played")]
    Renamed {
        /// The topic.
        topic: String,
    },
    /// Two topics of different types would get one name.
    #[error("topics of types {first} and {second} would both be called {topic}")]
    TwoTypes {
        /// The name.
        topic: String,
        /// One type.
        first: String,
        /// The other type.
        second: String,
    },
    /// The bag is larger than may be loaded before it is played.
    #[error(
        "the messages have more than the {limit} bytes that may be loaded beforehand; read ahead instead"
    )]
    Preload {
        /// Most bytes of messages.
        limit: u64,
    },
    /// A time that `/clock` cannot carry.
    #[error("{time_ns} ns since 1970 is beyond January 2038, the last time that /clock can carry")]
    ClockTime {
        /// The time.
        time_ns: u64,
    },
    /// The system has no thread for the reader.
    #[error("no thread for reading ahead: {0}")]
    Thread(std::io::Error),
    /// The reader ended by a panic; what was read before it was played.
    #[error("reading the bag ended by a fault of this program")]
    Reader,
}
