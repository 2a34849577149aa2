//! A simulated drive as a source: the sweeps, the transforms, and what is really there.

use std::sync::{Arc, Mutex, PoisonError};

use super::frame::Message;
use super::source::{Feed, Playback};
use crate::io::bag::BagMessage;
use crate::io::drive_bag::drive_messages;
use crate::io::messages::TF_TYPE;
use crate::io::sim::{Drive, DriveConfig, TrueObject};
use crate::pipeline::SimulateSettings;

pub(crate) use crate::io::drive_bag::POINTS_TOPIC;

/// What was really there when a sweep was taken.
#[derive(Debug, Clone)]
pub struct TruthFrame {
    /// Stamp of the sweep in nanoseconds.
    pub stamp_ns: i64,
    /// The road users that the sensor saw.
    pub objects: Vec<TrueObject>,
}

/// The truth of all frames that were played. Clones share one log.
#[derive(Debug, Clone, Default)]
pub(crate) struct TruthLog(Arc<Mutex<Vec<TruthFrame>>>);

impl TruthLog {
    fn push(&self, frame: TruthFrame) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(frame);
    }

    /// All frames so far.
    pub(crate) fn take(&self) -> Vec<TruthFrame> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A drive that is simulated while it plays.
pub(crate) struct DriveFeed {
    drive: Drive,
    frames: u64,
    truth: TruthLog,
}

impl DriveFeed {
    /// Sets a drive up; its truth goes into the log.
    pub(crate) fn new(settings: &SimulateSettings, truth: TruthLog) -> Self {
        Self {
            drive: Drive::new(&DriveConfig::default(), settings.seed),
            frames: Self::frames(settings),
            truth,
        }
    }

    /// Sweeps of a drive.
    pub(crate) fn frames(settings: &SimulateSettings) -> u64 {
        (settings.seconds / DriveConfig::default().lidar.period_s())
            .round()
            .max(1.0) as u64
    }
}

impl Feed for DriveFeed {
    fn play(mut self: Box<Self>, stage: &Playback) {
        for number in 0..self.frames {
            let frame = self.drive.next_frame();
            let messages = match drive_messages(&frame, number == 0) {
                Ok(messages) => messages,
                Err(error) => return stage.damaged(error.to_string()),
            };
            self.truth.push(TruthFrame {
                stamp_ns: i64::try_from(frame.stamp_ns).unwrap_or(i64::MAX),
                objects: frame.truth,
            });
            let (points, beside): (Vec<_>, Vec<_>) = messages
                .into_iter()
                .partition(|message| &*message.topic == POINTS_TOPIC);
            let transforms = beside.iter().filter(|message| &*message.type_name == TF_TYPE);
            for transforms in transforms.cloned() {
                if !stage.hand_over(plain(transforms, Vec::new())) {
                    return;
                }
            }
            let mut beside = Some(beside);
            for points in points {
                if !stage.hand_over(plain(points, beside.take().unwrap_or_default())) {
                    return;
                }
            }
        }
    }
}

fn plain(message: BagMessage, beside: Vec<BagMessage>) -> Message {
    Message {
        topic: message.topic,
        type_name: message.type_name,
        log_time_ns: message.log_time_ns,
        data: message.data,
        beside,
    }
}
