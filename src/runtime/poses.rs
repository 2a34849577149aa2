//! Where the sensors are in the world: what the transforms of the sources say.

use std::collections::HashSet;
use std::mem::{Discriminant, discriminant};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::io::cdr::CdrError;
pub(crate) use crate::io::drive_bag::{TF_STATIC_TOPIC, TF_TOPIC};
use crate::io::messages::TfMsg;
use crate::io::tf::{TfBuffer, TfError};

/// How long a trouble is told of after it was met.
const RECENT: Duration = Duration::from_secs(1);

/// The transforms that the sources have played so far.
#[derive(Debug)]
pub(crate) struct Poses {
    world: String,
    buffer: Mutex<TfBuffer>,
    troubles: Mutex<Troubles>,
}

/// Lookups that failed.
#[derive(Debug, Default)]
struct Troubles {
    /// The last one.
    last: Option<(Instant, String)>,
    /// Kinds that were logged: a cause is told once, not once a sweep.
    logged: HashSet<Discriminant<TfError>>,
}

impl Poses {
    /// No transform yet; `world` is the frame in which vehicles move.
    pub(crate) fn new(world: &str) -> Self {
        Self {
            world: world.to_owned(),
            buffer: Mutex::new(TfBuffer::default()),
            troubles: Mutex::default(),
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
        let found = buffer.lookup(&self.world, frame_id, stamp_ns);
        drop(buffer);
        match found {
            Ok(pose) => Some(pose.matrix()),
            Err(error) => {
                let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
                if troubles.logged.insert(discriminant(&error)) {
                    tracing::warn!(frame_id, %error, "it is not known where a sensor was");
                }
                troubles.last = Some((Instant::now(), error.to_string()));
                None
            }
        }
    }

    /// What kept the last lookup from being answered, if that was just now.
    pub(crate) fn recent_trouble(&self) -> Option<String> {
        let troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, text) = troubles.last.as_ref()?;
        (at.elapsed() < RECENT).then(|| text.clone())
    }
}
