//! MCAP recordings that Foxglove opens: images as they came, boxes as annotations.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Sink;
use crate::io::bag::BagMessage;
use crate::io::foxglove::{IMAGE_ANNOTATIONS, image_annotations, image_annotations_schema};
use crate::io::messages::{HeaderMsg, MARKER_ARRAY_TYPE, MarkerArrayMsg, definition};
use crate::io::recorder::{McapRecorder, RecordChannel, RecordCompression};
use crate::outputs::{DetectedObjects, Detections};
use crate::runtime::RuntimeError;
use crate::runtime::error::told;
use crate::runtime::frame::{Detected, Message, SET_TYPE, Sample};

/// Records results, and the images they belong to.
#[derive(Debug)]
pub(crate) struct RecorderSink {
    recorder: McapRecorder,
    path: PathBuf,
    /// Number of the file: after a failure, or where it is opened again, the recording goes on in another one.
    parts: u32,
    /// Whether the last of them has taken a result.
    begun: bool,
    include_images: bool,
    /// Messages are logged at the stamps of their sensors.
    log_at_stamps: bool,
    /// Image and annotation channel of each topic.
    channels: HashMap<Arc<str>, (Option<RecordChannel>, RecordChannel)>,
    /// Channel of each topic that goes with them.
    beside: HashMap<Arc<str>, RecordChannel>,
    /// What was recorded last of each member of sets: one may be in several sets.
    members: HashMap<Arc<str>, Arc<Message>>,
}

/// Boxes that Foxglove and RViz draw.
fn markers(found: &DetectedObjects, stamp_ns: i64) -> Result<Vec<u8>, String> {
    let header = HeaderMsg::new(stamp_ns, &found.frame_id)
        .ok_or_else(|| format!("{stamp_ns} ns is no time that ROS 2 knows"))?;
    let named = (0..).zip(&found.objects).map(|(id, object)| {
        let text = format!("{} {:.2}", object.label.name(), object.score);
        (id, object, text)
    });
    MarkerArrayMsg::of_objects(header, named)
        .encode()
        .map_err(|e| e.to_string())
}

/// The file in which a recording goes on: `drive.mcap`, `drive.part2.mcap`, `drive.part3.mcap`.
fn part_of(path: &Path, number: u32) -> PathBuf {
    if number == 1 {
        return path.to_owned();
    }
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    path.with_extension(format!("part{number}.{extension}"))
}

impl RecorderSink {
    /// Creates the file.
    ///
    /// # Errors
    /// [`RuntimeError::Unwritable`].
    pub(crate) fn create(
        path: &Path,
        include_images: bool,
        log_at_stamps: bool,
    ) -> Result<Self, RuntimeError> {
        Self::begin(path, 1, include_images, log_at_stamps)
    }

    /// Goes on beside the files of the recording that are there.
    ///
    /// # Errors
    /// [`RuntimeError::Unwritable`].
    pub(crate) fn go_on(
        path: &Path,
        include_images: bool,
        log_at_stamps: bool,
    ) -> Result<Self, RuntimeError> {
        let mut number = 2;
        while part_of(path, number).exists() {
            number += 1;
        }
        Self::begin(path, number, include_images, log_at_stamps)
    }

    fn begin(
        path: &Path,
        number: u32,
        include_images: bool,
        log_at_stamps: bool,
    ) -> Result<Self, RuntimeError> {
        let part = part_of(path, number);
        let recorder =
            McapRecorder::create(&part, RecordCompression::Zstd).map_err(|e| RuntimeError::Unwritable {
                path: part,
                reason: e.to_string(),
            })?;
        Ok(Self {
            recorder,
            path: path.to_owned(),
            parts: number,
            begun: false,
            include_images,
            log_at_stamps,
            channels: HashMap::new(),
            beside: HashMap::new(),
            members: HashMap::new(),
        })
    }

    fn channels_of(
        &mut self,
        sample: &Sample<Detected>,
    ) -> Result<(Option<RecordChannel>, RecordChannel), String> {
        let message = &sample.message;
        if let Some(&channels) = self.channels.get(&message.topic) {
            return Ok(channels);
        }
        // A set has no bytes of its own: its members are recorded.
        let image = match self.include_images && &*message.type_name != SET_TYPE {
            true => {
                let text = definition(&message.type_name)
                    .ok_or_else(|| format!("no message definition of {} is known", message.type_name))?;
                let channel = self
                    .recorder
                    .add_ros_channel(&message.topic, &message.type_name, &text);
                Some(channel.map_err(|e| told(&e))?)
            }
            false => None,
        };
        let annotations = format!("{}/detections", message.topic.trim_end_matches('/'));
        let boxes = match &sample.payload.detections {
            Detections::Image(_) => {
                self.recorder
                    .add_json_channel(&annotations, IMAGE_ANNOTATIONS, &image_annotations_schema())
            }
            Detections::Objects(_) => {
                let text = definition(MARKER_ARRAY_TYPE).unwrap_or_default();
                self.recorder
                    .add_ros_channel(&annotations, MARKER_ARRAY_TYPE, &text)
            }
        };
        let boxes = boxes.map_err(|e| told(&e))?;
        self.channels.insert(Arc::clone(&message.topic), (image, boxes));
        Ok((image, boxes))
    }

    /// The channel of a topic that goes with frames.
    fn channel_beside(&mut self, topic: &Arc<str>, type_name: &str) -> Result<RecordChannel, String> {
        if let Some(&channel) = self.beside.get(topic) {
            return Ok(channel);
        }
        let text =
            definition(type_name).ok_or_else(|| format!("no message definition of {type_name} is known"))?;
        let channel = self.recorder.add_ros_channel(topic, type_name, &text);
        let channel = channel.map_err(|e| told(&e))?;
        self.beside.insert(Arc::clone(topic), channel);
        Ok(channel)
    }

    /// Records the members of a set, and what goes with each, that are not recorded yet.
    fn record_members(&mut self, set: &Message) -> Result<(), String> {
        for part in &set.parts {
            let Some(message) = &part.message else { continue };
            let last = self.members.get(&part.topic);
            if last.is_some_and(|last| Arc::ptr_eq(last, message)) {
                continue;
            }
            if self.include_images {
                let channel = self.channel_beside(&message.topic, &message.type_name)?;
                let stamp_ns = u64::try_from(part.stamp_ns).unwrap_or(message.log_time_ns);
                let log_time_ns = match self.log_at_stamps {
                    true => stamp_ns,
                    false => message.log_time_ns,
                };
                self.recorder
                    .write(channel, log_time_ns, stamp_ns, &message.data)
                    .map_err(|e| told(&e))?;
            }
            for beside in &message.beside {
                self.record_beside(beside)?;
            }
            self.members.insert(Arc::clone(&part.topic), Arc::clone(message));
        }
        Ok(())
    }

    /// Records what goes with a frame.
    fn record_beside(&mut self, message: &BagMessage) -> Result<(), String> {
        let channel = self.channel_beside(&message.topic, &message.type_name)?;
        let log_time_ns = match self.log_at_stamps {
            true => message.publish_time_ns,
            false => message.log_time_ns,
        };
        self.recorder
            .write(channel, log_time_ns, message.publish_time_ns, &message.data)
            .map_err(|e| told(&e))
    }
}

impl Sink for RecorderSink {
    // A chunk that is half written hides all that comes after it from readers.
    const GOES_ON: bool = false;

    async fn write(&mut self, sample: &Arc<Sample<Detected>>) -> Result<(), String> {
        let (image, boxes) = self.channels_of(sample)?;
        let message = &sample.message;
        // Foxglove pairs an annotation with the image of the same stamp.
        let stamp_ns = u64::try_from(sample.meta.stamp_ns).unwrap_or(message.log_time_ns);
        let log_time_ns = match self.log_at_stamps {
            true => stamp_ns,
            false => message.log_time_ns,
        };
        if let Some(image) = image {
            self.recorder
                .write(image, log_time_ns, stamp_ns, &message.data)
                .map_err(|e| told(&e))?;
        }
        for message in &message.beside {
            self.record_beside(message)?;
        }
        if &*message.type_name == SET_TYPE {
            self.record_members(message)?;
        }
        let found = match &sample.payload.detections {
            Detections::Image(found) => image_annotations(found, stamp_ns).map_err(|e| e.to_string())?,
            Detections::Objects(found) => markers(found, sample.meta.stamp_ns)?,
        };
        self.recorder
            .write(boxes, log_time_ns, stamp_ns, &found)
            .map_err(|e| told(&e))?;
        self.begun = true;
        Ok(())
    }

    async fn recover(&mut self) -> Result<(), String> {
        let number = self.parts + u32::from(self.begun);
        let part = part_of(&self.path, number);
        let recorder = McapRecorder::create(&part, RecordCompression::Zstd).map_err(|e| told(&e))?;
        tracing::info!(path = %part.display(), "the recording goes on in another file");
        // The one before closes its file as far as the disk lets it.
        self.recorder = recorder;
        (self.parts, self.begun) = (number, false);
        self.channels.clear();
        self.beside.clear();
        self.members.clear();
        Ok(())
    }

    async fn finish(self) -> Result<(), String> {
        self.recorder.finish().map_err(|e| told(&e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::bag::Bag;
    use crate::io::messages::IMAGE_TYPE;
    use crate::outputs::Detections2D;
    use crate::runtime::frame::{FrameMeta, Part};
    use crate::runtime::turns::Turn;
    use crate::telemetry::{FrameId, FrameTimes, Streams};

    /// A set of two images, received at 100 and stamped when it is said.
    fn set(stamps_ns: [i64; 2]) -> Arc<Sample<Detected>> {
        let message = |topic: &Arc<str>, type_name: &str, parts| Message {
            topic: Arc::clone(topic),
            type_name: type_name.into(),
            log_time_ns: 100,
            data: Vec::new(),
            beside: Vec::new(),
            parts,
        };
        let nobody: Arc<str> = "".into();
        let part = |(name, stamp_ns): (&str, i64)| {
            let topic: Arc<str> = name.into();
            Part {
                stamp_ns,
                frame_id: Arc::clone(&nobody),
                message: Some(Arc::new(message(&topic, IMAGE_TYPE, Vec::new()))),
                world_from_sensor: None,
                topic,
            }
        };
        let parts = ["/left", "/right"].into_iter().zip(stamps_ns).map(part).collect();
        let stream: Arc<str> = "pair".into();
        Arc::new(Sample {
            meta: FrameMeta {
                id: FrameId {
                    stream: Streams::default().register(&stream),
                    seq: 0,
                },
                stream: Arc::clone(&stream),
                stamp_ns: stamps_ns[0],
                frame_id: Arc::clone(&nobody),
                times: FrameTimes::new(0),
                deadline_ns: None,
                fresh: false,
                freshness: None,
                within_capacity: None,
                device_restarts: 0,
                turn: Turn::default(),
                world_from_sensor: None,
                transforms: None,
            },
            message: Arc::new(message(&stream, SET_TYPE, parts)),
            payload: Detected {
                detections: Detections::Image(Detections2D {
                    detections: Vec::new(),
                    labels: Arc::default(),
                    model: Arc::clone(&nobody),
                    frame_id: nobody,
                    image_size_px: [1, 1],
                }),
                dropped_before: 0,
            },
        })
    }

    #[tokio::test]
    async fn members_of_sets_are_logged_at_their_stamps_in_deterministic_runs_and_as_received_in_others() {
        let folder = tempfile::tempdir().unwrap();
        for (log_at_stamps, expected) in [(true, [40, 44]), (false, [100, 100])] {
            let path = folder.path().join(format!("{log_at_stamps}.mcap"));
            let mut sink = RecorderSink::create(&path, true, log_at_stamps).unwrap();
            sink.write(&set([40, 44])).await.unwrap();
            sink.finish().await.unwrap();
            let bag = Bag::open(&path).unwrap();
            let messages = bag.messages(&["/left", "/right"]).unwrap().map(Result::unwrap);
            let mut times: Vec<u64> = messages.map(|message| message.log_time_ns).collect();
            times.sort_unstable();
            assert_eq!(times, expected);
        }
    }
}
