//! The prepare stage: decode a message, bring the image or the sweep to the network's input.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use smallvec::SmallVec;

use super::admission::{Admission, Admitted};
use super::channel::Sender;
use super::frame::{FrameMeta, Message, Part, Prepared, SET_TYPE, Sample, Slots};
use super::poses::Poses;
use super::slots::SlotPool;
use super::stage::StageLogic;
use crate::image::{
    DecodeError, DecodeOptions, Image, ImageError, ImageRef, LetterboxPlan, PixelFormat, Workspace,
    decode_into, encode_jpeg,
};
use crate::io::cdr::CdrError;
use crate::io::cloud::{self, CloudError, ReadOptions};
use crate::io::messages::{CompressedFormat, CompressedImageMsg, ImageMsg, POINT_CLOUD_TYPE, PointCloud2Msg};
use crate::lidar::PointCloud;
use crate::perception::{
    FrameSet, HostModel, MemberData, Picture, Placement, PrepareError, PreparedFrame, Sensor, SensorData,
    SetMember, Sweep, Taken,
};
use crate::telemetry::{DropReason, FrameSizes, Ledger, MonotonicClock, Stage};

/// The stage of one detector.
#[derive(Debug)]
pub(crate) struct Prepare {
    /// Name of the actor.
    pub name: String,
    /// Index of the detector at the device owner.
    pub index: usize,
    /// Host half of the model.
    pub model: Arc<dyn HostModel>,
    /// How many frames of the detector may be under way.
    pub admission: Admission,
    /// Slots of the device, one pool an input.
    pub slots: Vec<SlotPool>,
    /// Channel to the device owner, until the stage has ended.
    pub output: Mutex<Option<Sender<Sample<Prepared>>>>,
    /// Accounts.
    pub ledger: Arc<Ledger>,
    /// Clock of the run.
    pub clock: MonotonicClock,
    /// Where the vehicle was; `None` where no model asks.
    pub poses: Option<Arc<Poses>>,
    /// Longest wait for a transform that comes later than its sweep.
    pub pose_wait: Duration,
    /// Where the sensor was is what was known when the frame was released.
    pub deterministic: bool,
    /// Memory of clouds, to be used again.
    pub clouds: Mutex<Vec<PointCloud>>,
    /// Memory of decoded images, to be used again.
    pub pixels: Mutex<Vec<Vec<u8>>>,
    /// Kinds of trouble that were explained once.
    pub explained: Mutex<HashSet<DropReason>>,
    /// Sizes of the streams' images.
    pub sizes: FrameSizes,
}

/// Why a message cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error("the message cannot be read: {0}")]
    Message(#[from] CdrError),
    #[error("the image cannot be decoded: {0}")]
    Decode(#[from] DecodeError),
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(transparent)]
    Cloud(#[from] CloudError),
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error("messages of type {found} are not {expected}")]
    Type { found: Arc<str>, expected: Sensor },
    #[error("{0}")]
    Slot(#[from] crate::device::SlotError),
}

impl Trouble {
    const fn reason(&self) -> DropReason {
        match self {
            Self::Message(_) | Self::Decode(_) | Self::Cloud(CloudError::Cdr(_)) => DropReason::DecodeFailed,
            Self::Image(ImageError::UnsupportedEncoding { .. }) | Self::Type { .. } => {
                DropReason::UnsupportedEncoding
            }
            Self::Image(_) | Self::Prepare(PrepareError::Image(_)) => DropReason::InvalidImage,
            Self::Cloud(_) => DropReason::InvalidCloud,
            Self::Prepare(PrepareError::NoPose { .. }) => DropReason::NoPose,
            Self::Slot(_) | Self::Prepare(_) => DropReason::DeviceError,
        }
    }
}

impl StageLogic for Prepare {
    type In = ();
    type Out = Prepared;
    type Permit = (Admitted, Slots);

    fn name(&self) -> &str {
        &self.name
    }

    async fn admit(&self) -> Option<(Admitted, Slots)> {
        let admitted = self.admission.admit().await;
        let mut slots = Slots::new();
        for pool in &self.slots {
            slots.push(pool.take().await?);
        }
        Some((admitted, slots))
    }

    fn work(
        &self,
        mut sample: Sample<()>,
        (admitted, mut inputs): (Admitted, Slots),
    ) -> Result<Sample<Prepared>, DropReason> {
        sample.meta.times.begin(Stage::Prepare, self.clock.now_ns());
        match self.prepare(&sample, &mut inputs) {
            Ok(PreparedFrame {
                variant,
                placement,
                within_capacity,
                planned,
            }) => {
                sample.meta.within_capacity = within_capacity;
                if let (Placement::Image(back), Some(planned)) = (&placement, planned) {
                    self.note_size(&sample.meta.stream, back.size_px(), planned);
                }
                sample.meta.times.end(Stage::Prepare, self.clock.now_ns());
                Ok(sample
                    .replace(Prepared {
                        detector: self.index,
                        variant,
                        inputs,
                        admitted,
                        placement,
                    })
                    .0)
            }
            Err(trouble) => {
                let reason = trouble.reason();
                let frame = sample.meta.id;
                if self
                    .explained
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(reason)
                {
                    tracing::warn!(actor = self.name, stream = %sample.meta.stream, %frame, %trouble, "frame refused");
                } else {
                    tracing::debug!(actor = self.name, stream = %sample.meta.stream, %frame, %trouble, "frame refused");
                }
                Err(reason)
            }
        }
    }

    async fn emit(&self, sample: Sample<Prepared>) {
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let lost = match output {
            Some(output) => output.send(sample).await.lost(),
            None => Some((sample, DropReason::ShuttingDown)),
        };
        if let Some((lost, reason)) = lost {
            self.ledger.frame_dropped(lost.meta.id, &self.name, reason);
        }
    }

    fn close(&self) {
        *self.output.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Prepare {
    /// Says when a stream's images change their size.
    fn note_size(&self, stream: &Arc<str>, size_px: [u32; 2], planned: bool) {
        let Some([from_width, from_height]) = self.sizes.note(stream, size_px, planned) else {
            return;
        };
        let [width, height] = size_px;
        // A topic whose sizes take turns has its plans at hand, and would fill the log.
        if planned {
            tracing::info!(
                actor = self.name,
                stream = %stream,
                "images are now {width} x {height} px, {from_width} x {from_height} px before: pre-processing planned anew"
            );
        } else {
            tracing::debug!(
                actor = self.name,
                stream = %stream,
                "images are now {width} x {height} px, {from_width} x {from_height} px before"
            );
        }
    }

    fn prepare(&self, sample: &Sample<()>, slots: &mut Slots) -> Result<PreparedFrame, Trouble> {
        let inputs: Result<SmallVec<[&mut [u8]; 2]>, _> =
            slots.iter_mut().map(|slot| slot.bytes_mut()).collect();
        let mut inputs = inputs?;
        match self.model.sensor() {
            Sensor::Camera => {
                let memory = || self.pixels.lock().unwrap_or_else(PoisonError::into_inner);
                let mut pixels = memory().pop().unwrap_or_default();
                let options = DecodeOptions {
                    at_least_px: self.model.decode_at_least_px(),
                };
                let stream = self.ledger.streams().name(sample.meta.id.stream);
                let taken = Taken {
                    stream: &stream,
                    stamp_ns: sample.meta.stamp_ns,
                    world_from_sensor: self.world_from_sensor(sample),
                    reset: false,
                };
                let prepared = with_image(&sample.message, options, &mut pixels, |picture| {
                    let data = SensorData::Image(picture);
                    Ok(self.model.prepare_taken(&data, &taken, &mut inputs)?)
                });
                memory().push(pixels);
                prepared
            }
            Sensor::Lidar => self.with_sweep(sample, |sweep| {
                Ok(self.model.prepare(&SensorData::Sweep(sweep), &mut inputs)?)
            }),
            Sensor::Set => self.with_set(sample, |set| {
                Ok(self.model.prepare(&SensorData::Set(set), &mut inputs)?)
            }),
        }
    }

    /// Decodes a cloud and shows it, with where the sensor was, to `use_sweep`.
    fn with_sweep<T>(
        &self,
        sample: &Sample<()>,
        use_sweep: impl FnOnce(Sweep<'_>) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        let clouds = || self.clouds.lock().unwrap_or_else(PoisonError::into_inner);
        let mut cloud = clouds().pop().unwrap_or_default();
        let read = read_cloud(&sample.message, &mut cloud);
        // Topics of different sources may have one name, streams have not.
        let stream = self.ledger.streams().name(sample.meta.id.stream);
        let used = read.and_then(|()| {
            use_sweep(Sweep {
                stream: &stream,
                stamp_ns: sample.meta.stamp_ns,
                points: cloud.columns(),
                world_from_sensor: self.world_from_sensor(sample),
            })
        });
        clouds().push(cloud);
        used
    }

    /// Decodes every member of a set and shows the set to `use_set`. One that cannot be decoded costs the set.
    fn with_set<T>(
        &self,
        sample: &Sample<()>,
        use_set: impl FnOnce(FrameSet<'_>) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        let pixels = || self.pixels.lock().unwrap_or_else(PoisonError::into_inner);
        let clouds = || self.clouds.lock().unwrap_or_else(PoisonError::into_inner);
        let count = sample.message.parts.len();
        let mut memory: Vec<(Vec<u8>, PointCloud)> = Vec::with_capacity(count);
        for _ in 0..count {
            memory.push((
                pixels().pop().unwrap_or_default(),
                clouds().pop().unwrap_or_default(),
            ));
        }
        let used = self.members(sample, &mut memory).and_then(|members| {
            use_set(FrameSet {
                stream: &sample.meta.stream,
                stamp_ns: sample.meta.stamp_ns,
                members: &members,
                partial: members.iter().any(|member| member.data.is_none()),
            })
        });
        let (images, points): (Vec<_>, Vec<_>) = memory.into_iter().unzip();
        pixels().extend(images);
        clouds().extend(points);
        used
    }

    /// The members of a set, decoded into `memory`, which has one place for each.
    fn members<'a>(
        &self,
        sample: &'a Sample<()>,
        memory: &'a mut [(Vec<u8>, PointCloud)],
    ) -> Result<Vec<SetMember<'a>>, Trouble> {
        if &*sample.message.type_name != SET_TYPE {
            return Err(Trouble::Type {
                found: Arc::clone(&sample.message.type_name),
                expected: Sensor::Set,
            });
        }
        let options = DecodeOptions {
            at_least_px: self.model.decode_at_least_px(),
        };
        let parts = sample.message.parts.iter().zip(memory);
        let member = |(part, (pixels, cloud)): (&'a Part, &'a mut (Vec<u8>, PointCloud))| {
            let data = match &part.message {
                None => None,
                Some(message) if &*message.type_name == POINT_CLOUD_TYPE => {
                    read_cloud(message, cloud)?;
                    Some(MemberData::Sweep(Sweep {
                        stream: &sample.meta.stream,
                        stamp_ns: part.stamp_ns,
                        points: cloud.columns(),
                        world_from_sensor: self.world_from(
                            &part.frame_id,
                            part.stamp_ns,
                            part.world_from_sensor,
                        ),
                    }))
                }
                Some(message) => Some(MemberData::Image(picture_of(message, options, pixels)?)),
            };
            Ok(SetMember {
                name: &part.topic,
                stamp_ns: part.stamp_ns,
                frame_id: &part.frame_id,
                data,
            })
        };
        parts.map(member).collect()
    }

    /// Where the sensor was; `None` where that is not known, or the model does not ask.
    fn world_from_sensor(&self, sample: &Sample<()>) -> Option<[f64; 16]> {
        let FrameMeta {
            frame_id,
            stamp_ns,
            world_from_sensor,
            ..
        } = &sample.meta;
        self.world_from(frame_id, *stamp_ns, *world_from_sensor)
    }

    /// Where a sensor was; `then` is what was known of that when its message was released.
    fn world_from(&self, frame_id: &str, stamp_ns: i64, then: Option<[f64; 16]>) -> Option<[f64; 16]> {
        if self.deterministic {
            return then;
        }
        let poses = self.poses.as_ref()?;
        poses.world_from(frame_id, stamp_ns, self.pose_wait)
    }
}

/// Decodes the message of a point cloud.
pub(super) fn read_cloud(message: &Message, cloud: &mut PointCloud) -> Result<(), Trouble> {
    if &*message.type_name != POINT_CLOUD_TYPE {
        return Err(Trouble::Type {
            found: Arc::clone(&message.type_name),
            expected: Sensor::Lidar,
        });
    }
    let decoded = PointCloud2Msg::decode(&message.data)?;
    cloud::read_cloud(&decoded, ReadOptions::default(), cloud)?;
    Ok(())
}

/// Decodes an image message and shows the image to `use_image`; compressed ones are decoded into `pixels`.
fn with_image<T>(
    message: &Message,
    options: DecodeOptions,
    pixels: &mut Vec<u8>,
    use_image: impl FnOnce(Picture<'_>) -> Result<T, Trouble>,
) -> Result<T, Trouble> {
    use_image(picture_of(message, options, pixels)?)
}

/// The image of a message; a compressed one is decoded into `pixels`.
fn picture_of<'a>(
    message: &'a Message,
    options: DecodeOptions,
    pixels: &'a mut Vec<u8>,
) -> Result<Picture<'a>, Trouble> {
    match &*message.type_name {
        "sensor_msgs/msg/Image" => {
            let raw = ImageMsg::decode(&message.data)?;
            let format = PixelFormat::from_ros_encoding(raw.encoding)?.in_byte_order(raw.is_bigendian != 0);
            let image = ImageRef::new(
                raw.data,
                raw.width as usize,
                raw.height as usize,
                raw.step as usize,
                format,
            )?;
            Ok(image.into())
        }
        "sensor_msgs/msg/CompressedImage" => {
            let compressed = CompressedImageMsg::decode(&message.data)?;
            let options = match is_mosaic(compressed.format) {
                true => DecodeOptions::default(),
                false => options,
            };
            let decoded = decode_into(compressed.data, options, pixels)?;
            Ok(Picture {
                pixels: as_published(decoded.image, compressed.format)?,
                full_size_px: decoded.full_size_px,
            })
        }
        _ => Err(Trouble::Type {
            found: Arc::clone(&message.type_name),
            expected: Sensor::Camera,
        }),
    }
}

/// Whether a grey file holds a colour mosaic, whose neighbours must not be blended.
fn is_mosaic(format: &str) -> bool {
    let source = CompressedFormat::parse(format).source_encoding;
    source.is_some_and(|source| source.starts_with("bayer_"))
}

/// The image as it was before compression. `image_transport` stores a colour mosaic as a grey file, and only the
/// name of the source's encoding tells; every other grey file is grey, whatever its source was.
fn as_published<'a>(image: ImageRef<'a>, format: &str) -> Result<ImageRef<'a>, ImageError> {
    let format = CompressedFormat::parse(format);
    match (format.source_encoding, format.stored_encoding) {
        (Some(source), None) if image.format() == PixelFormat::Mono8 && source.starts_with("bayer_") => {
            image.read_as(PixelFormat::from_ros_encoding(source)?)
        }
        _ => Ok(image),
    }
}

/// The image of a message as JPEG, at most `max_side_px` wide and high, with its size in pixels; `None` where it
/// cannot be decoded.
pub(super) fn thumbnail(message: &Message, max_side_px: usize) -> Option<(Vec<u8>, [u32; 2])> {
    with_image(message, DecodeOptions::default(), &mut Vec::new(), |picture| {
        let image = picture.pixels;
        let longest = image.width().max(image.height());
        let scale = (max_side_px as f64 / longest as f64).min(1.0);
        let side = |px: usize| ((px as f64 * scale).round() as usize).max(1);
        let (width, height) = (side(image.width()), side(image.height()));
        let plan = LetterboxPlan::stretch(image.width(), image.height(), width, height)?;
        let mut bgr = vec![0; plan.output_bytes()];
        plan.apply(&image, &mut bgr, &mut Workspace::default())?;
        let small = Image::new(bgr, width, height, PixelFormat::Bgr8)?;
        Ok((
            encode_jpeg(&small.view(), 85).ok(),
            [image.width() as u32, image.height() as u32],
        ))
    })
    .ok()
    .and_then(|(jpeg, size_px)| Some((jpeg?, size_px)))
}
