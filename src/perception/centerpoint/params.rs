//! What a CenterPoint model and its node are told.

pub(super) mod call;
mod check;
mod given;
mod keys;
mod live;
mod load;
mod scores;

pub use live::{RuntimeParam, RuntimeValue};

use std::path::Path;

use serde::{Serialize, Serializer};

use crate::lidar::semantic_label;
use crate::outputs::ObjectLabel;
use crate::perception::ParamError;

/// Points that a pillar keeps. Autoware's kernels fix it; no file says it.
pub const MAX_POINTS_PER_VOXEL: usize = 32;

/// Parameters of one CenterPoint model, the names and meanings of `autoware_lidar_centerpoint`.
///
/// ```
/// use sensorium::perception::centerpoint::{CenterPointParams, ParamError};
///
/// // No file: nothing to read.
/// let none: [&str; 0] = [];
/// assert!(matches!(CenterPointParams::from_files(&none), Err(ParamError::NoFiles)));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CenterPointParams {
    /// Class of every channel of the heat map, such as `CAR`; [`Self::labels`] says what is published.
    pub class_names: Vec<String>,
    /// Numbers of a point: 4 (x, y, z, age) or 5 (x, y, z, intensity, age).
    pub point_feature_size: usize,
    /// Pillars that the network takes at most.
    pub max_voxels: usize,
    /// Least x, y, z, then greatest x, y, z of the points that count, in metres in the frame of the cloud.
    pub point_cloud_range_m: [f32; 6],
    /// Extent of a pillar in x, y and z in metres. A pillar is as high as the range.
    pub voxel_size_m: [f32; 3],
    /// Pillars, in x and in y, behind one cell of the head.
    pub downsample_factor: usize,
    /// Numbers of a point that the encoder takes: 9, 10 (height above the pillar's middle) or 11 (intensity too).
    pub encoder_in_feature_size: usize,
    /// Points that a pillar keeps; [`MAX_POINTS_PER_VOXEL`] from files.
    pub max_points_per_voxel: usize,
    /// The head has a channel of log variance beside each of its values.
    pub has_variance: bool,
    /// The head's velocities mean something.
    pub has_twist: bool,
    /// Where each distance bin ends, in metres from the origin of the cloud in x and y, ascending. The first begins
    /// at 0; beyond the last, objects are dropped. The last may be infinite (`inf` as text in reports).
    #[serde(serialize_with = "limits")]
    pub distance_bin_upper_limits_m: Vec<f64>,
    /// Least score of an object, for every distance bin every class, 0 to below 1.
    pub score_thresholds: Vec<Vec<f64>>,
    /// Least length of the (sin, cos) pair of the heading for every class, 0 to below 1.
    pub yaw_norm_thresholds: Vec<f64>,
    /// Of two objects whose middles are nearer than this in metres, the better one stays.
    pub circle_nms_dist_threshold_m: f64,
    /// Objects whose middles are farther apart than this in metres do not suppress each other by overlap.
    pub iou_nms_search_distance_m: f64,
    /// Overlap (intersection over union, from above) over which the better of two objects stays, 0 to 1.
    pub iou_nms_threshold: f64,
    /// Frame in which past sweeps are aligned with the newest. Launch substitutions stay as they are written.
    pub world_frame_id: String,
    /// Past sweeps that are added to the newest.
    pub num_past_frames: usize,
    /// Points that a sweep with its past ones may have.
    pub cloud_capacity: usize,
    /// Changes of class by area, where a file says them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remapper: Option<RemapperParams>,
}

/// Which objects change their class by the area they cover, in Autoware's `detection_class_remapper`. Each list is a
/// matrix by rows: row the class that the network says, column the class it becomes, both in the order of the
/// numbers of [`ObjectLabel`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RemapperParams {
    /// 1 where the change is allowed, else 0.
    pub allow: Vec<i64>,
    /// Least area (length by width) in m².
    pub min_area_m2: Vec<f64>,
    /// Greatest area in m².
    pub max_area_m2: Vec<f64>,
}

impl CenterPointParams {
    /// Reads the files of one model as Autoware gives them to its node: `centerpoint.param.yaml`,
    /// `centerpoint_ml_package.param.yaml`, `detection_class_remapper.param.yaml`, `centerpoint_common.param.yaml`, in
    /// any number and of the generations 2023-04 to 2026-06. What a later file says holds over an earlier one, what a
    /// newer spelling says over an older one.
    ///
    /// Beside the parameters come warnings, one line each: keys that are not known (with the nearest that is), keys
    /// with two different values, keys that are no longer followed, values of an old generation that stood in its
    /// code and not in its files.
    ///
    /// # Errors
    /// [`ParamError`]: the first thing that is wrong, in the order of the files, then of this structure.
    pub fn from_files<P: AsRef<Path>>(files: &[P]) -> Result<(Self, Vec<String>), ParamError> {
        load::from_files(files)
    }

    /// Checks parameters that were not read from files.
    ///
    /// # Errors
    /// [`ParamError::Length`] and [`ParamError::Value`], the keys spelled as in Autoware's newest files.
    pub fn validate(&self) -> Result<(), ParamError> {
        check::check(self, &check::Places::default())
    }

    /// Pillars in x and y: the whole part of range by size in float32, as Autoware computes it. 0 where the sizes are
    /// none that [`Self::validate`] accepts.
    #[must_use]
    pub fn grid_size(&self) -> [usize; 2] {
        [0, 1].map(|axis| check::cells(self, axis).unwrap_or(0))
    }

    /// Cells of the head in x and y. 0 where the sizes are none that [`Self::validate`] accepts.
    #[must_use]
    pub fn head_grid_size(&self) -> [usize; 2] {
        self.grid_size()
            .map(|cells| cells.checked_div(self.downsample_factor).unwrap_or(0))
    }

    /// What is published for every class.
    #[must_use]
    pub fn labels(&self) -> Vec<ObjectLabel> {
        self.class_names.iter().map(|name| semantic_label(name)).collect()
    }
}

/// JSON has no infinity, and a report must not say `null` for a bin without end.
fn limits<S: Serializer>(limits: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    #[serde(untagged)]
    enum Limit {
        Metres(f64),
        Endless(&'static str),
    }
    serializer.collect_seq(limits.iter().map(|&limit| match limit {
        f64::INFINITY => Limit::Endless("inf"),
        _ => Limit::Metres(limit),
    }))
}
