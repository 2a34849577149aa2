//! Where the sensors are in the world: what the transforms of the sources say.

use std::sync::{Mutex, PoisonError};

use crate::io::cdr::CdrError;
pub(crate) use crate::io::drive_bag::{TF_STATIC_TOPIC, TF_TOPIC};
use crate::io::messages::TfMsg;
use crate::io::tf::TfBuffer;

/// The transforms that the sources have played so far.
#[derive(Debug)]
pub(crate) struct Poses {
    world: String,
    buffer: Mutex<TfBuffer>,
}

impl Poses {
    /// No transform yet; `world` is the frame in which vehicles move.
    pub(crate) fn new(world: &str) -> Self {
        Self {
            world: world.to_owned(),
            buffer: Mutex::new(TfBuffer::default()),
        }
    }

    /// Takes the transforms of a message. What cannot be believed is left out and counted by the buffer.
    ///
    /// # Errors
    /// The message cannot be read.
    pub(crate) fn take(&self, message: &[u8], fixed: bool) -> Result<(), CdrError> {
        let message = TfMsg::decode(message)?;
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        let update = buffer.insert(&message, fixed);
        if update.jumps_back > 0 {
            tracing::warn!("transforms jumped back in time; those before are forgotten");
        }
        Ok(())
    }

    /// The rigid transform from a sensor's frame to the world's, row by row; `None` where it is not known.
    pub(crate) fn world_from(&self, frame_id: &str, stamp_ns: i64) -> Option<[f64; 16]> {
        let buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        buffer
            .lookup(&self.world, frame_id, stamp_ns)
            .ok()
            .map(|pose| pose.matrix())
    }
}
