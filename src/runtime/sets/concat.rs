//! The stage that makes one cloud of those in a set.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::actor::SetOutlet;
use super::merge::{MergeError, MergeInput, merge_clouds};
use crate::io::cdr::CdrError;
use crate::io::cloud::{self, CloudError, ReadOptions};
use crate::io::messages::{HeaderMsg, POINT_CLOUD_TYPE, PointCloud2Msg, field_type};
use crate::io::tf::{TfBuffer, TfError, Transform};
use crate::lidar::PointCloud;
use crate::pipeline::ConcatSettings;
use crate::runtime::frame::{Message, Part, Sample};
use crate::runtime::poses::Poses;
use crate::runtime::stage::StageLogic;
use crate::runtime::turns::Turns;
use crate::telemetry::{DropReason, Ledger, MonotonicClock, Stage};

/// The stage of one node.
#[derive(Debug)]
pub(super) struct Concat {
    /// Name of the node.
    pub(super) name: String,
    pub(super) settings: ConcatSettings,
    /// Name of the stream of clouds.
    pub(super) stream: Arc<str>,
    pub(super) poses: Arc<Poses>,
    pub(super) outlets: Vec<SetOutlet>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) clock: MonotonicClock,
    /// The order of a deterministic run.
    pub(super) turns: Option<Arc<Turns>>,
    /// Memory of clouds, to be used again.
    pub(super) clouds: Mutex<Vec<PointCloud>>,
    /// Sensors and kinds of trouble that were explained once.
    pub(super) explained: Mutex<HashSet<(Arc<str>, DropReason)>>,
}

/// Why a cloud is not in the merged one.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("messages of type {0} are no point clouds")]
    Type(Arc<str>),
    #[error("the message cannot be read: {0}")]
    Message(#[from] CdrError),
    #[error(transparent)]
    Cloud(#[from] CloudError),
    #[error(transparent)]
    Pose(#[from] TfError),
}

impl Trouble {
    const fn reason(&self) -> DropReason {
        match self {
            Self::Type(_) => DropReason::UnsupportedEncoding,
            Self::Message(_) | Self::Cloud(CloudError::Cdr(_)) => DropReason::DecodeFailed,
            Self::Cloud(_) => DropReason::InvalidCloud,
            Self::Pose(_) => DropReason::NoPose,
        }
    }
}

/// Transforms: those that come, or in a deterministic run those that were there.
struct Known<'a> {
    poses: &'a Poses,
    then: Option<&'a TfBuffer>,
    wait: Duration,
}

impl Known<'_> {
    fn lookup(&self, target: &str, source: &str, stamp_ns: i64) -> Result<Transform, TfError> {
        match self.then {
            Some(then) => then.lookup(target, source, stamp_ns),
            None => self.poses.lookup_within(target, source, stamp_ns, self.wait),
        }
    }
}

/// Where the clouds of a set go: to a frame, and from there to the output frame at the set's stamp, where that is another.
struct Target<'a> {
    frame: &'a str,
    output_from: Option<Transform>,
}

impl Target<'_> {
    /// From a sensor's frame at its stamp to the output frame at the set's stamp.
    fn from(&self, part: &Part, known: &Known<'_>) -> Result<Transform, TfError> {
        let from_sensor = known.lookup(self.frame, &part.frame_id, part.stamp_ns)?;
        Ok(match &self.output_from {
            Some(output_from) => output_from.after(&from_sensor),
            None => from_sensor,
        })
    }
}

impl StageLogic for Concat {
    type In = ();
    type Out = ();
    type Permit = ();

    const MAKES_FRAMES: bool = true;

    fn name(&self) -> &str {
        &self.name
    }

    async fn admit(&self) -> Option<()> {
        Some(())
    }

    fn work(&self, mut sample: Sample<()>, (): ()) -> Result<Sample<()>, DropReason> {
        let then = sample.meta.transforms.take();
        let merged = self.merge(&sample, then.as_deref())?;
        // Of the cloud's own frame, not of the sensor whose message leads the set.
        sample.meta.world_from_sensor = then.and_then(|then| {
            let found = then.lookup(
                self.poses.world(),
                &self.settings.output_frame,
                sample.meta.stamp_ns,
            );
            found.ok().map(|pose| pose.matrix())
        });
        sample.meta.stream = Arc::clone(&self.stream);
        sample.meta.frame_id = self.settings.output_frame.as_str().into();
        sample.meta.times.end(Stage::Ingest, self.clock.now_ns());
        sample.message = Arc::new(merged);
        Ok(sample)
    }

    async fn emit(&self, sample: Sample<()>) {
        for (position, outlet) in self.outlets.iter().enumerate() {
            let place = (self.turns.as_ref(), sample.meta.turn.made(2, position));
            outlet
                .send(&self.ledger, place, &sample.meta, &sample.message)
                .await;
        }
        // After the cloud has come in, so that there is always something under way.
        self.ledger.frame_out(sample.meta.id);
        if let Some(turns) = &self.turns {
            turns.settle(sample.meta.id);
        }
    }
}

impl Concat {
    /// One cloud of all that can be read and whose place is known; the others are missing in it. `then` is what was known
    /// of transforms when the set's last message was released, where nothing else may be asked.
    fn merge(&self, sample: &Sample<()>, then: Option<&TfBuffer>) -> Result<Message, DropReason> {
        let set = &*sample.message;
        let stamp_ns = sample.meta.stamp_ns;
        let known = Known {
            poses: &self.poses,
            then,
            wait: Duration::from_millis(self.settings.pose_wait_ms.into()),
        };
        let target = self.target(&known, stamp_ns).map_err(|error| {
            let trouble = Trouble::Pose(error);
            self.explain(&self.stream, &trouble);
            trouble.reason()
        })?;
        let mut parts = set.parts.clone();
        let mut read: Vec<(PointCloud, Transform, bool)> = Vec::with_capacity(parts.len());
        let mut first_trouble = None;
        for part in &mut parts {
            let Some(message) = &part.message else { continue };
            let mut cloud = self.memory().pop().unwrap_or_default();
            match self.read(message, part, (&known, &target), &mut cloud) {
                Ok((transform, byte_intensity)) => read.push((cloud, transform, byte_intensity)),
                Err(trouble) => {
                    self.explain(&part.topic, &trouble);
                    first_trouble.get_or_insert(trouble.reason());
                    self.memory().push(cloud);
                    part.message = None;
                }
            }
        }
        let merged = match (read.is_empty(), first_trouble) {
            (true, reason) => Err(reason.unwrap_or(DropReason::Unmatched)),
            (false, _) => self.encode(&read, stamp_ns),
        };
        self.memory().extend(read.into_iter().map(|(cloud, ..)| cloud));
        let beside = parts.iter().filter_map(|part| part.message.as_ref());
        Ok(Message {
            topic: Arc::clone(&self.stream),
            type_name: POINT_CLOUD_TYPE.into(),
            log_time_ns: set.log_time_ns,
            data: merged?,
            beside: beside
                .flat_map(|message| message.beside.iter().cloned())
                .collect(),
            parts,
        })
    }

    fn encode(&self, read: &[(PointCloud, Transform, bool)], stamp_ns: i64) -> Result<Vec<u8>, DropReason> {
        let inputs: Vec<MergeInput<'_>> = read
            .iter()
            .map(|(cloud, transform, byte_intensity)| MergeInput {
                cloud,
                transform: *transform,
                byte_intensity: *byte_intensity,
            })
            .collect();
        let header = HeaderMsg::new(stamp_ns, &self.settings.output_frame).ok_or(DropReason::InvalidCloud)?;
        let merged = merge_clouds(&inputs, header, self.settings.max_points as usize);
        merged.map(|merged| merged.message).map_err(|error| {
            let reason = match error {
                MergeError::TooManyPoints { .. } | MergeError::Cdr(_) => DropReason::InvalidCloud,
            };
            if self.is_new(&self.stream, reason) {
                tracing::warn!(actor = self.name, %error, "set dropped");
            }
            reason
        })
    }

    /// Reads a cloud into `cloud`; returns its transform to the target, and whether its intensities are bytes.
    fn read(
        &self,
        message: &Message,
        part: &Part,
        (known, target): (&Known<'_>, &Target<'_>),
        cloud: &mut PointCloud,
    ) -> Result<(Transform, bool), Trouble> {
        if &*message.type_name != POINT_CLOUD_TYPE {
            return Err(Trouble::Type(Arc::clone(&message.type_name)));
        }
        let decoded = PointCloud2Msg::decode(&message.data)?;
        cloud::read_cloud(&decoded, ReadOptions::default(), cloud)?;
        let is_byte = |name: &str| {
            let mut fields = decoded.fields.iter();
            fields.any(|field| field.name == name && field.datatype == field_type::UINT8)
        };
        let byte_intensity = is_byte("intensity") || is_byte("reflectivity");
        Ok((target.from(part, known)?, byte_intensity))
    }

    /// Where the clouds of a set of this stamp go.
    fn target(&self, known: &Known<'_>, stamp_ns: i64) -> Result<Target<'_>, TfError> {
        let output = self.settings.output_frame.as_str();
        Ok(match self.settings.world_frame.as_deref() {
            Some(world) => Target {
                frame: world,
                output_from: Some(known.lookup(world, output, stamp_ns)?.inverse()),
            },
            None => Target {
                frame: output,
                output_from: None,
            },
        })
    }

    /// Tells of a cloud that is left out, once for each sensor and kind of trouble.
    fn explain(&self, topic: &Arc<str>, trouble: &Trouble) {
        if self.is_new(topic, trouble.reason()) {
            tracing::warn!(actor = self.name, %topic, %trouble, "cloud left out");
        } else {
            tracing::debug!(actor = self.name, %topic, %trouble, "cloud left out");
        }
    }

    fn is_new(&self, topic: &Arc<str>, reason: DropReason) -> bool {
        let mut explained = self.explained.lock().unwrap_or_else(PoisonError::into_inner);
        explained.insert((Arc::clone(topic), reason))
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Vec<PointCloud>> {
        self.clouds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
