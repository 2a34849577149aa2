//! A simulated drive as a source: the sweeps, the images, the transforms, and what is really there.

use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use super::RuntimeError;
use super::frame::Message;
use super::source::{Feed, Playback, TopicDesk};
use super::topics::PlayedTopic;
use crate::io::bag::BagMessage;
use crate::io::drive_bag::{DriveBagError, POINTS_TOPIC, drive_messages, image_topic};
use crate::io::messages::{CAMERA_INFO_TYPE, IMAGE_TYPE, TF_TYPE};
use crate::io::sim::{CameraRig, Drive, DriveConfig, DriveFrame, TrueBox, TrueObject};
use crate::perception::Sensor;
use crate::pipeline::{SimulateSettings, SimulatedCameras, Topics};

/// What was really there when a sweep was taken.
#[derive(Debug, Clone)]
pub struct TruthFrame {
    /// Stamp of the sweep in nanoseconds.
    pub stamp_ns: i64,
    /// The road users that the sensor saw.
    pub objects: Vec<TrueObject>,
}

/// What was really there on an image.
#[derive(Debug, Clone)]
pub struct TruthImage {
    /// Topic of the image.
    pub stream: Arc<str>,
    /// Stamp of the image in nanoseconds.
    pub stamp_ns: i64,
    /// The road users that can be seen on it.
    pub boxes: Vec<TrueBox>,
}

#[derive(Debug, Default)]
struct Truth {
    frames: Vec<TruthFrame>,
    images: Vec<TruthImage>,
}

/// The truth of all frames that were played. Clones share one log.
#[derive(Debug, Clone, Default)]
pub(crate) struct TruthLog(Arc<Mutex<Truth>>);

impl TruthLog {
    fn push(&self, frame: DriveFrame) {
        let stamp_ns = i64::try_from(frame.stamp_ns).unwrap_or(i64::MAX);
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for image in frame.images {
            let camera = &frame.cameras[image.camera];
            log.images.push(TruthImage {
                stream: image_topic(camera).into(),
                stamp_ns,
                boxes: image.truth,
            });
        }
        log.frames.push(TruthFrame {
            stamp_ns,
            objects: frame.truth,
        });
    }

    /// All sweeps and all images so far.
    pub(crate) fn take(&self) -> (Vec<TruthFrame>, Vec<TruthImage>) {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Truth { frames, images } = std::mem::take(&mut *log);
        (frames, images)
    }
}

/// The topics of a drive that are played: the listed ones, or every one of these sensors.
///
/// # Errors
/// [`RuntimeError::Source`] naming the topics that the drive has.
pub(crate) fn drive_topics(
    node: &str,
    settings: &SimulateSettings,
    wanted: &Topics,
    sensors: &[Sensor],
) -> Result<Vec<PlayedTopic>, RuntimeError> {
    let mut topics = vec![PlayedTopic::new(POINTS_TOPIC, Sensor::Lidar)];
    let cameras = rig_of(settings).cameras();
    topics.extend(
        cameras
            .iter()
            .map(|camera| PlayedTopic::new(&image_topic(camera), Sensor::Camera)),
    );
    let names: Vec<String> = topics.iter().map(|topic| topic.name.to_string()).collect();
    let refuse = |reason: String| RuntimeError::Source {
        node: node.into(),
        reason: format!("{reason}; the drive has {}", names.join(", ")),
    };
    // Without a detector there is nothing to choose for.
    topics.retain(|topic| sensors.is_empty() || sensors.contains(&topic.sensor));
    if let Topics::Listed(listed) = wanted {
        for name in listed {
            if !topics.iter().any(|topic| *topic.name == **name) {
                return Err(refuse(match names.iter().any(|known| **known == **name) {
                    true => format!("topic {name} is none that its detectors take"),
                    false => format!("topic {name} is none of the drive"),
                }));
            }
        }
        topics.retain(|topic| listed.iter().any(|name| *topic.name == **name));
    }
    for sensor in sensors {
        if !topics.iter().any(|topic| topic.sensor == *sensor) {
            let cameras = match sensor {
                Sensor::Camera if cameras.is_empty() => " (give it some with `cameras: front` or `three`)",
                _ => "",
            };
            return Err(refuse(format!("no topic of {sensor} to play{cameras}")));
        }
    }
    Ok(topics)
}

const fn rig_of(settings: &SimulateSettings) -> CameraRig {
    match settings.cameras {
        SimulatedCameras::None => CameraRig::None,
        SimulatedCameras::Front => CameraRig::Front,
        SimulatedCameras::Three => CameraRig::Three,
    }
}

/// A drive that is simulated while it plays.
pub(crate) struct DriveFeed {
    config: DriveConfig,
    seed: u64,
    frames: u64,
    messages: u64,
    /// Whether sweeps are played.
    with_points: bool,
    truth: TruthLog,
    /// Messages that were handed over, and frames that were handed over whole.
    handed: u64,
    whole: u64,
}

/// A frame of a drive with its messages.
type Made = (DriveFrame, Result<Vec<BagMessage>, DriveBagError>);

impl DriveFeed {
    /// Sets a drive up that plays these topics; its truth goes into the log.
    pub(crate) fn new(settings: &SimulateSettings, topics: &[PlayedTopic], truth: TruthLog) -> Self {
        let played = |name: &str| topics.iter().any(|topic| *topic.name == *name);
        // Images that nobody takes are not made.
        let mut cameras = rig_of(settings).cameras();
        cameras.retain(|camera| played(&image_topic(camera)));
        let config = DriveConfig {
            cameras,
            camera_hz: settings.camera_hz,
            ..DriveConfig::default()
        };
        let frames = (settings.seconds / config.lidar.period_s()).round().max(1.0) as u64;
        let with_points = played(POINTS_TOPIC);
        let sweeps = if with_points { frames } else { 0 };
        let images = frames.div_ceil(config.sweeps_per_image()) * config.cameras.len() as u64;
        Self {
            config,
            seed: settings.seed,
            frames,
            messages: sweeps + images,
            with_points,
            truth,
            handed: 0,
            whole: 0,
        }
    }

    /// Sweeps and images of the drive that are played.
    pub(crate) const fn messages(&self) -> u64 {
        self.messages
    }
}

impl Feed for DriveFeed {
    fn play(&mut self, stage: &Playback) {
        // After a panic it is the same drive again, and what was handed over is passed by.
        let (mut drive, frames) = (Drive::new(&self.config, self.seed), self.frames);
        // The next frame is made while this one waits for its time: its images are due when this one's sweep is.
        let (ahead, made) = sync_channel::<Made>(1);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..frames {
                    let frame = drive.next_frame();
                    let messages = drive_messages(&frame, number == 0);
                    if ahead.send((frame, messages)).is_err() {
                        break;
                    }
                }
            });
            self.play_frames(made, stage);
        });
    }
}

impl DriveFeed {
    /// Plays frames as they are made. What is not played itself goes beside what is: calibrations beside their images, the
    /// rest beside the sweep, or without sweeps beside the next image.
    fn play_frames(&mut self, made: Receiver<Made>, stage: &Playback) {
        let with_points = self.with_points;
        let mut waiting = Vec::new();
        let mut passed = 0;
        let handed = &mut self.handed;
        let mut hand_over = |message: Message| {
            passed += 1;
            if passed <= *handed {
                return true;
            }
            let taken = stage.hand_over(message);
            *handed += u64::from(taken);
            taken
        };
        for (number, (frame, messages)) in (0..).zip(made) {
            let messages = match messages {
                Ok(messages) => messages,
                Err(error) => return stage.damaged(error.to_string()),
            };
            let (played, beside): (Vec<_>, Vec<_>) = messages.into_iter().partition(|message| {
                &*message.type_name == IMAGE_TYPE || with_points && &*message.topic == POINTS_TOPIC
            });
            let transforms = beside.iter().filter(|message| &*message.type_name == TF_TYPE);
            for transforms in transforms.cloned() {
                if !hand_over(plain(transforms, Vec::new())) {
                    return;
                }
            }
            let (calibrations, beside): (Vec<_>, Vec<_>) = beside
                .into_iter()
                .partition(|message| &*message.type_name == CAMERA_INFO_TYPE);
            // One for each image, in the order of the images.
            let mut calibrations = calibrations.into_iter();
            // A sweep that nobody takes is not recorded beside an image either.
            waiting.extend(
                beside
                    .into_iter()
                    .filter(|message| &*message.topic != POINTS_TOPIC),
            );
            for message in played {
                let mut beside = Vec::new();
                if &*message.type_name == IMAGE_TYPE {
                    beside.extend(calibrations.next());
                }
                if !with_points || &*message.topic == POINTS_TOPIC {
                    beside.append(&mut waiting);
                }
                if !hand_over(plain(message, beside)) {
                    return;
                }
            }
            // What was not handed over was not there for the run.
            if number >= self.whole {
                self.truth.push(frame);
                self.whole = number + 1;
            }
        }
    }
}

/// The topics of a simulated drive are decided before it begins.
#[derive(Debug)]
pub(crate) struct DriveDesk;

impl TopicDesk for DriveDesk {
    fn find(&self, _: &str, _: &[Sensor]) -> Result<PlayedTopic, String> {
        Err("what a simulated drive plays is decided before it begins".into())
    }

    fn add(&self, _: PlayedTopic) {}

    fn remove(&self, _: &str) {}
}

fn plain(message: BagMessage, beside: Vec<BagMessage>) -> Message {
    Message {
        topic: message.topic,
        type_name: message.type_name,
        log_time_ns: message.log_time_ns,
        data: message.data,
        beside,
        parts: Vec::new(),
    }
}
