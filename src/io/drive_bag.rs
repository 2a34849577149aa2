//! A simulated drive as a recording: clouds, images, transforms, odometry and the truth.
//!
//! Every topic is a ROS 2 message in CDR, for some readers (`rosbags` among them) open no file that holds anything else.
//! `/tf_static` is offered as transient local, so that whoever plays the bag offers it to late subscribers too; the words
//! for it are those of ROS 2 from Jazzy on.

use std::path::Path;

use thiserror::Error;

use super::bag::{BagMessage, BagTopic};
use super::cdr::CdrError;
use super::cloud::{CloudError, encode_cloud};
use super::messages::{
    CAMERA_INFO_TYPE, CLOCK_TYPE, CameraInfoMsg, ClockMsg, DETECTED_OBJECTS_TYPE, DetectedObjectsMsg,
    HeaderMsg, IMAGE_TYPE, ImageMsg, MARKER_ARRAY_TYPE, MarkerArrayMsg, ODOMETRY_TYPE, OdometryMsg,
    POINT_CLOUD_TYPE, PoseMsg, PoseWithCovarianceMsg, QuaternionMsg, RegionOfInterestMsg, TF_TYPE, TfMsg,
    TransformMsg, TransformStampedMsg, TwistMsg, TwistWithCovarianceMsg, Vector3Msg,
};
use super::recorder::{McapRecorder, RecordChannel, RecordCompression, RecordError};
use super::ros::Qos;
use super::sim::{CameraConfig, CameraImage, DriveFrame, Pose};

/// Topic of the clouds (`sensor_msgs/PointCloud2`), where Autoware expects them.
pub const POINTS_TOPIC: &str = "/sensing/lidar/concatenated/pointcloud";
/// Topic of a camera's images (`sensor_msgs/Image`).
#[must_use]
pub fn image_topic(camera: &CameraConfig) -> String {
    format!("/sensing/camera/{}/image_raw", camera.name)
}

/// Topic of a camera's calibration (`sensor_msgs/CameraInfo`), one message for each image.
#[must_use]
pub fn camera_info_topic(camera: &CameraConfig) -> String {
    format!("/sensing/camera/{}/camera_info", camera.name)
}

/// Topic of the transforms that change.
pub const TF_TOPIC: &str = "/tf";
/// Topic of the transforms that do not.
pub const TF_STATIC_TOPIC: &str = "/tf_static";
/// Topic of the time.
pub const CLOCK_TOPIC: &str = "/clock";
/// Topic of the ego car's pose and speed (`nav_msgs/Odometry`), where Autoware has it.
pub const ODOMETRY_TOPIC: &str = "/localization/kinematic_state";
/// Topic of the true objects (`autoware_perception_msgs/DetectedObjects`).
pub const TRUTH_TOPIC: &str = "/ground_truth/objects";
/// Topic of the true objects as boxes that Foxglove and RViz draw (`visualization_msgs/MarkerArray`).
pub const TRUTH_MARKERS_TOPIC: &str = "/ground_truth/markers";
/// Frame of the ground, which does not move.
pub const MAP_FRAME: &str = "map";
/// Frame of the ego car.
pub const BASE_FRAME: &str = "base_link";
/// Frame of the clouds and of the true objects.
pub const LIDAR_FRAME: &str = "velodyne_top";

/// Why a drive cannot be recorded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DriveBagError {
    /// The file cannot be written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A cloud does not fit its message.
    #[error("frame at {stamp_ns} ns: {source}")]
    Cloud {
        /// The frame.
        stamp_ns: u64,
        /// Why.
        source: CloudError,
    },
    /// A message is too long.
    #[error(transparent)]
    Cdr(#[from] CdrError),
    /// A camera that the bag was not made for.
    #[error("the bag was made without topic {topic}; name its camera when it is created")]
    Topic {
        /// The topic.
        topic: String,
    },
    /// ROS 2 has no such time.
    #[error(
        "{stamp_ns} ns since 1970 is beyond January 2038, the last time of ROS 2; start the drive earlier"
    )]
    Stamp {
        /// The stamp.
        stamp_ns: u64,
    },
}

/// Writes the frames of a drive to an MCAP file that `ros2 bag` and Foxglove read.
///
/// A cloud and its truth are stamped with the start of the turn and logged at its end; the pose is logged at its stamp.
#[derive(Debug)]
pub struct DriveBag {
    recorder: McapRecorder,
    channels: Channels,
    mounted: bool,
}

#[derive(Debug)]
struct Channels {
    points: RecordChannel,
    tf: RecordChannel,
    tf_static: RecordChannel,
    odometry: RecordChannel,
    clock: RecordChannel,
    truth: RecordChannel,
    markers: RecordChannel,
    /// Those of the cameras, by topic.
    cameras: Vec<(String, RecordChannel)>,
}

impl Channels {
    fn of(&self, topic: &str) -> Option<RecordChannel> {
        Some(match topic {
            POINTS_TOPIC => self.points,
            TF_TOPIC => self.tf,
            TF_STATIC_TOPIC => self.tf_static,
            ODOMETRY_TOPIC => self.odometry,
            TRUTH_TOPIC => self.truth,
            TRUTH_MARKERS_TOPIC => self.markers,
            CLOCK_TOPIC => self.clock,
            _ => {
                return self
                    .cameras
                    .iter()
                    .find(|(name, _)| name == topic)
                    .map(|&(_, channel)| channel);
            }
        })
    }
}

impl DriveBag {
    /// Creates the file for drives with these cameras, replacing one of that name.
    ///
    /// # Errors
    /// [`DriveBagError::Record`].
    pub fn create(
        path: &Path,
        compression: RecordCompression,
        cameras: &[CameraConfig],
    ) -> Result<Self, DriveBagError> {
        let mut recorder = McapRecorder::create(path, compression)?;
        let mounts = BagTopic::of_type(TF_STATIC_TOPIC, TF_TYPE).offering(Qos::latched(1));
        let tf_static = recorder.add_topic(&mounts)?;
        let mut ros = |topic: &str, type_name: &str| {
            let topic = BagTopic::of_type(topic, type_name);
            recorder.add_topic(&topic)
        };
        let mut of_cameras = Vec::with_capacity(2 * cameras.len());
        for camera in cameras {
            for (topic, type_name) in [
                (camera_info_topic(camera), CAMERA_INFO_TYPE),
                (image_topic(camera), IMAGE_TYPE),
            ] {
                let channel = ros(&topic, type_name)?;
                of_cameras.push((topic, channel));
            }
        }
        let channels = Channels {
            points: ros(POINTS_TOPIC, POINT_CLOUD_TYPE)?,
            tf: ros(TF_TOPIC, TF_TYPE)?,
            tf_static,
            odometry: ros(ODOMETRY_TOPIC, ODOMETRY_TYPE)?,
            clock: ros(CLOCK_TOPIC, CLOCK_TYPE)?,
            truth: ros(TRUTH_TOPIC, DETECTED_OBJECTS_TYPE)?,
            markers: ros(TRUTH_MARKERS_TOPIC, MARKER_ARRAY_TYPE)?,
            cameras: of_cameras,
        };
        Ok(Self {
            recorder,
            channels,
            mounted: false,
        })
    }

    /// Writes one frame; frames come in the order of their stamps.
    ///
    /// # Errors
    /// Any [`DriveBagError`].
    pub fn write(&mut self, frame: &DriveFrame) -> Result<(), DriveBagError> {
        let first = !std::mem::replace(&mut self.mounted, true);
        for message in drive_messages(frame, first)? {
            let channel = self
                .channels
                .of(&message.topic)
                .ok_or_else(|| DriveBagError::Topic {
                    topic: message.topic.to_string(),
                })?;
            self.recorder.write(
                channel,
                message.log_time_ns,
                message.publish_time_ns,
                &message.data,
            )?;
        }
        Ok(())
    }

    /// Writes the index and closes the file.
    ///
    /// # Errors
    /// [`DriveBagError::Record`].
    pub fn finish(self) -> Result<(), DriveBagError> {
        Ok(self.recorder.finish()?)
    }
}

/// The messages of one frame, in the order in which they are recorded: time, transforms (the sensors' mounting with the
/// `first` frame only), odometry, images with their calibration, the cloud, and the truth. What is stamped with the start
/// of a turn and known at its end is logged then.
///
/// # Errors
/// Any [`DriveBagError`] but [`DriveBagError::Record`].
pub fn drive_messages(frame: &DriveFrame, first: bool) -> Result<Vec<BagMessage>, DriveBagError> {
    let (stamp_ns, end_ns) = (frame.stamp_ns, frame.end_ns);
    let header = |frame_id: &'static str| {
        let signed = i64::try_from(stamp_ns).ok();
        let header = signed.and_then(|ns| HeaderMsg::new(ns, frame_id));
        header.ok_or(DriveBagError::Stamp { stamp_ns })
    };
    let message = |topic: &str, type_name: &str, at_ns: u64, data: Vec<u8>| BagMessage {
        topic: topic.into(),
        type_name: type_name.into(),
        log_time_ns: at_ns,
        publish_time_ns: at_ns,
        data,
    };
    let clock = i64::try_from(stamp_ns).ok().and_then(ClockMsg::new);
    let clock = clock.ok_or(DriveBagError::Stamp { stamp_ns })?;
    let mut messages = vec![message(CLOCK_TOPIC, CLOCK_TYPE, stamp_ns, clock.encode())];
    if first {
        let frame_ids: Vec<String> = frame.cameras.iter().map(CameraConfig::frame_id).collect();
        let mut mount = tf(header(BASE_FRAME)?, LIDAR_FRAME, &frame.base_from_lidar);
        for (camera, child_frame_id) in frame.cameras.iter().zip(&frame_ids) {
            mount
                .transforms
                .push(optical(header(BASE_FRAME)?, child_frame_id, camera));
        }
        messages.push(message(TF_STATIC_TOPIC, TF_TYPE, stamp_ns, mount.encode()?));
    }
    let place = tf(header(MAP_FRAME)?, BASE_FRAME, &frame.world_from_base);
    messages.push(message(TF_TOPIC, TF_TYPE, stamp_ns, place.encode()?));
    let odometry = odometry(header(MAP_FRAME)?, frame);
    messages.push(message(
        ODOMETRY_TOPIC,
        ODOMETRY_TYPE,
        stamp_ns,
        odometry.encode()?,
    ));
    for image in &frame.images {
        let camera = &frame.cameras[image.camera];
        let frame_id = camera.frame_id();
        let signed = i64::try_from(stamp_ns).ok();
        let header = signed.and_then(|ns| HeaderMsg::new(ns, &frame_id));
        let header = header.ok_or(DriveBagError::Stamp { stamp_ns })?;
        let info = camera_info(header, camera).encode()?;
        messages.push(message(
            &camera_info_topic(camera),
            CAMERA_INFO_TYPE,
            stamp_ns,
            info,
        ));
        let pixels = image_message(header, camera, image).encode()?;
        messages.push(message(&image_topic(camera), IMAGE_TYPE, stamp_ns, pixels));
    }

    let cloud = encode_cloud(&frame.cloud, header(LIDAR_FRAME)?)
        .map_err(|source| DriveBagError::Cloud { stamp_ns, source })?;
    messages.push(message(POINTS_TOPIC, POINT_CLOUD_TYPE, end_ns, cloud));
    let objects = DetectedObjectsMsg {
        header: header(LIDAR_FRAME)?,
        objects: frame.truth.iter().map(|truth| (&truth.object).into()).collect(),
    };
    messages.push(message(
        TRUTH_TOPIC,
        DETECTED_OBJECTS_TYPE,
        end_ns,
        objects.encode()?,
    ));
    let named = frame.truth.iter().map(|truth| {
        let text = format!("{} {}", truth.object.label.name(), truth.id);
        (truth.id, &truth.object, text)
    });
    let markers = MarkerArrayMsg::of_objects(header(LIDAR_FRAME)?, named).encode()?;
    messages.push(message(TRUTH_MARKERS_TOPIC, MARKER_ARRAY_TYPE, end_ns, markers));
    Ok(messages)
}

fn vector([x, y, z]: [f64; 3]) -> Vector3Msg {
    Vector3Msg { x, y, z }
}

fn upright(yaw_rad: f64) -> QuaternionMsg {
    let (z, w) = (yaw_rad / 2.0).sin_cos();
    QuaternionMsg { x: 0.0, y: 0.0, z, w }
}

fn tf<'a>(header: HeaderMsg<'a>, child_frame_id: &'a str, pose: &Pose) -> TfMsg<'a> {
    TfMsg {
        transforms: vec![TransformStampedMsg {
            header,
            child_frame_id,
            transform: TransformMsg {
                translation: vector([pose.x_m, pose.y_m, pose.z_m]),
                rotation: upright(pose.yaw_rad),
            },
        }],
    }
}

/// Where a camera is mounted: its optical frame in that of the ego car.
fn optical<'a>(
    header: HeaderMsg<'a>,
    child_frame_id: &'a str,
    camera: &CameraConfig,
) -> TransformStampedMsg<'a> {
    let [x, y, z, w] = camera.base_from_optical_xyzw();
    TransformStampedMsg {
        header,
        child_frame_id,
        transform: TransformMsg {
            translation: vector(camera.position_m),
            rotation: QuaternionMsg { x, y, z, w },
        },
    }
}

fn camera_info<'a>(header: HeaderMsg<'a>, camera: &CameraConfig) -> CameraInfoMsg<'a> {
    let ([fx, fy], [cx, cy]) = (camera.focal_px, camera.centre_px);
    CameraInfoMsg {
        header,
        height: camera.height_px,
        width: camera.width_px,
        distortion_model: "plumb_bob",
        d: vec![0.0; 5],
        k: [fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, 1.0],
        r: [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        p: [fx, 0.0, cx, 0.0, 0.0, fy, cy, 0.0, 0.0, 0.0, 1.0, 0.0],
        binning_x: 0,
        binning_y: 0,
        roi: RegionOfInterestMsg::default(),
    }
}

fn image_message<'a>(header: HeaderMsg<'a>, camera: &CameraConfig, image: &'a CameraImage) -> ImageMsg<'a> {
    ImageMsg {
        header,
        height: camera.height_px,
        width: camera.width_px,
        encoding: "rgb8",
        is_bigendian: 0,
        step: camera.width_px * 3,
        data: &image.rgb,
    }
}

fn odometry<'a>(header: HeaderMsg<'a>, frame: &DriveFrame) -> OdometryMsg<'a> {
    let pose = &frame.world_from_base;
    OdometryMsg {
        header,
        child_frame_id: BASE_FRAME,
        pose: PoseWithCovarianceMsg {
            pose: PoseMsg {
                position: vector([pose.x_m, pose.y_m, pose.z_m]),
                orientation: upright(pose.yaw_rad),
            },
            ..PoseWithCovarianceMsg::default()
        },
        twist: TwistWithCovarianceMsg {
            twist: TwistMsg {
                linear: vector([frame.ego_speed_mps, 0.0, 0.0]),
                angular: vector([0.0, 0.0, frame.ego_turn_radps]),
            },
            ..TwistWithCovarianceMsg::default()
        },
    }
}
