//! What travels between actors.

use std::sync::Arc;

use smallvec::SmallVec;

use super::admission::Admitted;
use super::slots::PooledSlot;
use super::turns::Turn;
use crate::io::bag::BagMessage;
use crate::io::tf::TfBuffer;
use crate::outputs::Detections;
use crate::perception::Placement;
use crate::telemetry::{FrameId, FrameTimes};
use crate::trace::Freshness;

/// Facts of one frame that every hop needs.
#[derive(Debug, Clone)]
pub struct FrameMeta {
    /// Stream and sequence number.
    pub id: FrameId,
    /// Name of the stream: the topic.
    pub stream: Arc<str>,
    /// Sensor stamp in nanoseconds since the epoch of the sensor's clock.
    pub stamp_ns: i64,
    /// Coordinate frame of the sensor.
    pub frame_id: Arc<str>,
    /// When the frame passed each stage so far.
    pub times: FrameTimes,
    /// When its result is due, on the clock of the run: its release and the source's `deadline_ms`. `None` where the
    /// source has none.
    pub deadline_ns: Option<u64>,
    /// Whether no result of this stream came from the device before, as it is open now: the first frame of the
    /// stream, or the first one after a restart. Of models that keep states of a stream: whether this frame started
    /// from none. Known once the frame is back from the device.
    pub fresh: bool,
    /// Whether the stream's states go on or start afresh, and why; `None` for models without states, and until the
    /// frame is on the device.
    pub freshness: Option<Freshness>,
    /// Whether all that the sensor saw fitted into the network's input; `None` where nothing can be too much, and until
    /// it is known.
    pub within_capacity: Option<bool>,
    /// How often a lost device had been opened again when this frame came back from it.
    pub device_restarts: u32,
    /// Place in the order of a deterministic run.
    pub turn: Turn,
    /// Where the sensor was when the frame was released, as far as was known then: rigid transform from its frame to the
    /// world's, row by row. Looked up in deterministic runs, which must not ask how much came after the frame.
    pub world_from_sensor: Option<[f64; 16]>,
    /// The transforms that were known when the frame was released, for those that look up more than where the sensor was.
    /// Kept in deterministic runs only, likewise.
    pub transforms: Option<Arc<TfBuffer>>,
}

/// The message a frame came in, shared and never copied.
#[derive(Debug, Clone)]
pub struct Message {
    /// Topic.
    pub topic: Arc<str>,
    /// ROS type, for example `sensor_msgs/msg/Image`.
    pub type_name: Arc<str>,
    /// When the recorder received it, in nanoseconds since the epoch.
    pub log_time_ns: u64,
    /// CDR bytes with their four-byte header.
    pub data: Vec<u8>,
    /// What goes with it and is recorded where it is: transforms and the truth of a simulated drive.
    pub beside: Vec<BagMessage>,
    /// What it is made of, where it is of several sensors: one for each member of the set, in the configured order.
    pub parts: Vec<Part>,
}

/// ROS-like type name of a message that is a set of others: it has no bytes of its own, all is in its parts.
pub const SET_TYPE: &str = "sensorium/FrameSet";

/// One member of a message that is made of several.
#[derive(Debug, Clone)]
pub struct Part {
    /// Topic of the sensor.
    pub topic: Arc<str>,
    /// Sensor stamp in nanoseconds; that of the set where the member is missing.
    pub stamp_ns: i64,
    /// Coordinate frame of the sensor; empty where the member is missing.
    pub frame_id: Arc<str>,
    /// What it sent; `None` where it is missing.
    pub message: Option<Arc<Message>>,
    /// Where the sensor was, as [`FrameMeta::world_from_sensor`] has it.
    pub world_from_sensor: Option<[f64; 16]>,
}

impl Message {
    /// Topics of the sensors that are missing in it; none for a message of one sensor.
    pub fn missing(&self) -> impl Iterator<Item = &Arc<str>> {
        let missing = self.parts.iter().filter(|part| part.message.is_none());
        missing.map(|part| &part.topic)
    }
}

/// A frame on its way; `T` is what the last stage made of it.
#[derive(Debug)]
pub struct Sample<T> {
    /// Facts of the frame.
    pub meta: FrameMeta,
    /// The message that it came in.
    pub message: Arc<Message>,
    /// What the last stage made of it.
    pub payload: T,
}

impl<T> Sample<T> {
    /// The same frame with another payload, and the payload it had.
    pub fn replace<U>(self, payload: U) -> (Sample<U>, T) {
        (
            Sample {
                meta: self.meta,
                message: self.message,
                payload,
            },
            self.payload,
        )
    }
}

/// One slot for each input of a network.
pub(crate) type Slots = SmallVec<[PooledSlot; 2]>;

/// Ready for the device.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Which detector it is for.
    pub detector: usize,
    /// Which of its variants is to run.
    pub variant: usize,
    /// The network's inputs.
    pub inputs: Slots,
    /// Its place among the detector's frames under way.
    pub admitted: Admitted,
    /// Where results belong.
    pub placement: Placement,
}

/// Back from the device.
#[derive(Debug)]
pub(crate) struct Inferred {
    /// The network's output.
    pub output: PooledSlot,
    /// Its place among the detector's frames under way, until the result is there.
    pub admitted: Admitted,
    /// Where results belong.
    pub placement: Placement,
}

/// The result of a frame, as sinks receive it.
#[derive(Debug)]
pub struct Detected {
    /// The objects.
    pub detections: Detections,
    /// Frames of this stream that were dropped since the one that came out before.
    pub dropped_before: u64,
}
