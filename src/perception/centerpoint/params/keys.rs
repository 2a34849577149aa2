//! The keys that Autoware's nodes have read since 2022, and what each has become.

use crate::perception::param_file::{Leaf, distance};

/// Generations of Autoware, by what their node reads. Oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Generation {
    /// Flat keys, no overlap suppression.
    Before2023,
    /// Flat keys; what is not in the file has a default in the code or comes from the launch file.
    Y2023,
    /// Keys in groups, classes of overlap suppression still listed.
    Y2024,
    /// Keys in groups, one score threshold.
    Y2025,
    /// A score threshold for every class.
    ByClass,
    /// A score threshold for every class and distance, `upper_bounds`.
    ByBounds,
    /// A score threshold for every class and distance, `distance_bin_upper_limits`.
    Y2026,
    /// Thresholds of the heading among the facts of the model.
    After2026,
}

impl Generation {
    const ALL: [Self; 8] = [
        Self::Before2023,
        Self::Y2023,
        Self::Y2024,
        Self::Y2025,
        Self::ByClass,
        Self::ByBounds,
        Self::Y2026,
        Self::After2026,
    ];

    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Before2023 => "before 2023-04",
            Self::Y2023 => "2023-04",
            Self::Y2024 => "between 2023-04 and 2025-03",
            Self::Y2025 => "2025-03",
            Self::ByClass | Self::ByBounds => "between 2025-03 and 2026-06",
            Self::Y2026 => "2026-06",
            Self::After2026 => "after 2026-06",
        }
    }

    const fn is_release(self) -> bool {
        matches!(self, Self::Y2023 | Self::Y2025 | Self::Y2026)
    }
}

/// One parameter, whatever it has been called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Param {
    ClassNames,
    PointFeatureSize,
    MaxVoxels,
    Range,
    VoxelSize,
    Downsample,
    EncoderFeatures,
    HasVariance,
    HasTwist,
    CircleNms,
    IouSearch,
    IouThreshold,
    YawNorm,
    WorldFrame,
    PastFrames,
    CloudCapacity,
    Allow,
    MinArea,
    MaxArea,
    /// One score threshold for all.
    ScoreOfAll,
    /// A list, one score threshold a class.
    ScoreOfClasses,
    /// Ends of the distance bins, older name.
    Bounds,
    /// Score thresholds of one class, one a bin, older name.
    ScoresByBounds,
    /// Ends of the distance bins.
    Limits,
    /// Score thresholds of one class, one a bin.
    Scores,
}

/// Which of Autoware's files a parameter stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Home {
    Node,
    Model,
    Remapper,
}

impl Home {
    pub(super) const fn file(self) -> &'static str {
        match self {
            Self::Node => "centerpoint.param.yaml",
            Self::Model => "centerpoint_ml_package.param.yaml",
            Self::Remapper => "detection_class_remapper.param.yaml",
        }
    }
}

impl Param {
    /// As the generation 2026-06 spells it, or the last one that had it.
    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::ClassNames => "model_params.class_names",
            Self::PointFeatureSize => "model_params.point_feature_size",
            Self::MaxVoxels => "model_params.max_voxel_size",
            Self::Range => "model_params.point_cloud_range",
            Self::VoxelSize => "model_params.voxel_size",
            Self::Downsample => "model_params.downsample_factor",
            Self::EncoderFeatures => "model_params.encoder_in_feature_size",
            Self::HasVariance => "model_params.has_variance",
            Self::HasTwist => "model_params.has_twist",
            Self::CircleNms => "post_process_params.circle_nms_dist_threshold",
            Self::IouSearch => "post_process_params.iou_nms_search_distance_2d",
            Self::IouThreshold => "post_process_params.iou_nms_threshold",
            Self::YawNorm => "post_process_params.yaw_norm_thresholds",
            Self::WorldFrame => "densification_params.world_frame_id",
            Self::PastFrames => "densification_params.num_past_frames",
            Self::CloudCapacity => "cloud_capacity",
            Self::Allow => "allow_remapping_by_area_matrix",
            Self::MinArea => "min_area_matrix",
            Self::MaxArea => "max_area_matrix",
            Self::ScoreOfAll => "post_process_params.score_threshold",
            Self::ScoreOfClasses => "post_process_params.score_thresholds",
            Self::Bounds => "model_params.score_thresholds.upper_bounds",
            Self::ScoresByBounds => "model_params.score_thresholds.thresholds",
            Self::Limits => "model_params.detection_score_thresholds.distance_bin_upper_limits",
            Self::Scores => "model_params.detection_score_thresholds.min_confidence_scores",
        }
    }

    /// What the key is to say, where it is missing or has another type.
    pub(super) const fn expected(self) -> &'static str {
        match self {
            Self::ClassNames => {
                "a list of class names, such as [\"CAR\", \"TRUCK\", \"BUS\", \"BICYCLE\", \"PEDESTRIAN\"]"
            }
            Self::PointFeatureSize => "an integer, 4 or 5",
            Self::MaxVoxels => "an integer, the most pillars that the network takes, such as 40000",
            Self::Range => "a list of 6 numbers in metres: least x, y, z, then greatest x, y, z",
            Self::VoxelSize => "a list of 3 numbers in metres: extent of a pillar in x, y, z",
            Self::Downsample => "an integer, pillars behind one cell of the head, such as 1",
            Self::EncoderFeatures => "an integer: 9, 10 or 11",
            Self::HasVariance => "true or false: whether the head has variances",
            Self::HasTwist => "true or false: whether the velocities mean something",
            Self::CircleNms => "a number of metres, such as 0.5",
            Self::IouSearch => "a number of metres, such as 10.0",
            Self::IouThreshold => "a number between 0 and 1, such as 0.1",
            Self::YawNorm => "a list of numbers, one for every class, such as 0.3",
            Self::WorldFrame => "the name of a frame, such as `map`",
            Self::PastFrames => "an integer, 0 or more",
            Self::CloudCapacity => "an integer, such as 2000000",
            Self::Allow => "a list of 64 integers, 0 or 1: 8 rows of 8 classes",
            Self::MinArea | Self::MaxArea => "a list of 64 numbers in m²: 8 rows of 8 classes",
            Self::ScoreOfAll => "a number, 0 to below 1",
            Self::ScoreOfClasses => "a list of numbers, one for every class, 0 to below 1",
            Self::Bounds | Self::Limits => {
                "a list of numbers: where each distance bin ends in metres, ascending, such as [50.0, 90.0, 121.0, 200.0]"
            }
            Self::ScoresByBounds | Self::Scores => {
                "for every class a list of numbers, one for every distance bin, 0 to below 1"
            }
        }
    }

    pub(super) const fn home(self) -> Home {
        match self {
            Self::CircleNms
            | Self::IouSearch
            | Self::IouThreshold
            | Self::YawNorm
            | Self::WorldFrame
            | Self::PastFrames
            | Self::CloudCapacity
            | Self::ScoreOfAll
            | Self::ScoreOfClasses => Home::Node,
            Self::Allow | Self::MinArea | Self::MaxArea => Home::Remapper,
            _ => Home::Model,
        }
    }
}

/// What becomes of a key.
#[derive(Debug, Clone, Copy)]
pub(super) enum Role {
    Param(Param),
    /// Autoware's, and nothing to do with what is computed here.
    Ignored,
    /// No longer followed; why not.
    Dropped(&'static str),
    /// No equivalent, unless it is false; what does its job since.
    Gone(&'static str),
}

/// A key of some generation.
#[derive(Debug)]
pub(super) struct Known {
    /// Names joined by dots; `*` at the end is any one name.
    pub(super) key: &'static str,
    pub(super) role: Role,
    pub(super) since: Generation,
    pub(super) until: Generation,
}

const fn known(key: &'static str, role: Role, since: Generation, until: Generation) -> Known {
    Known {
        key,
        role,
        since,
        until,
    }
}

use Generation::{After2026, Before2023, ByBounds, ByClass, Y2023, Y2024, Y2025, Y2026};
use Role::{Dropped, Gone, Ignored};

/// Every key that is known.
#[rustfmt::skip]
const KEYS: &[Known] = &[
    // Facts of the model.
    known("class_names", Role::Param(Param::ClassNames), Before2023, Y2023),
    known("point_feature_size", Role::Param(Param::PointFeatureSize), Before2023, Y2023),
    known("max_num_voxels", Role::Param(Param::MaxVoxels), Before2023, Before2023),
    known("max_voxel_size", Role::Param(Param::MaxVoxels), Y2023, Y2023),
    known("point_cloud_range", Role::Param(Param::Range), Before2023, Y2023),
    known("voxel_size", Role::Param(Param::VoxelSize), Before2023, Y2023),
    known("downsample_factor", Role::Param(Param::Downsample), Before2023, Y2023),
    known("encoder_in_feature_size", Role::Param(Param::EncoderFeatures), Before2023, Y2023),
    known("has_twist", Role::Param(Param::HasTwist), Y2023, Y2023),
    known("post_process_params.has_twist", Role::Param(Param::HasTwist), Y2024, Y2024),
    known("model_params.class_names", Role::Param(Param::ClassNames), Y2024, After2026),
    known("model_params.point_feature_size", Role::Param(Param::PointFeatureSize), Y2024, After2026),
    known("model_params.max_voxel_size", Role::Param(Param::MaxVoxels), Y2024, After2026),
    known("model_params.point_cloud_range", Role::Param(Param::Range), Y2024, After2026),
    known("model_params.voxel_size", Role::Param(Param::VoxelSize), Y2024, After2026),
    known("model_params.downsample_factor", Role::Param(Param::Downsample), Y2024, After2026),
    known("model_params.encoder_in_feature_size", Role::Param(Param::EncoderFeatures), Y2024, After2026),
    known("model_params.has_variance", Role::Param(Param::HasVariance), Y2024, After2026),
    known("model_params.has_twist", Role::Param(Param::HasTwist), Y2024, After2026),
    // Score thresholds.
    known("score_threshold", Role::Param(Param::ScoreOfAll), Before2023, Y2023),
    known("post_process_params.score_threshold", Role::Param(Param::ScoreOfAll), Y2024, Y2025),
    known("post_process_params.score_thresholds", Role::Param(Param::ScoreOfClasses), ByClass, ByClass),
    known("model_params.score_thresholds.upper_bounds", Role::Param(Param::Bounds), ByBounds, ByBounds),
    known("model_params.score_thresholds.thresholds.*", Role::Param(Param::ScoresByBounds), ByBounds, ByBounds),
    known("model_params.detection_score_thresholds.distance_bin_upper_limits", Role::Param(Param::Limits), Y2026, After2026),
    known("model_params.detection_score_thresholds.min_confidence_scores.*", Role::Param(Param::Scores), Y2026, After2026),
    // The rest of what follows the network.
    known("circle_nms_dist_threshold", Role::Param(Param::CircleNms), Y2023, Y2023),
    known("iou_nms_search_distance_2d", Role::Param(Param::IouSearch), Y2023, Y2023),
    known("iou_nms_threshold", Role::Param(Param::IouThreshold), Y2023, Y2023),
    known("yaw_norm_thresholds", Role::Param(Param::YawNorm), Y2023, Y2023),
    known("post_process_params.circle_nms_dist_threshold", Role::Param(Param::CircleNms), Y2024, After2026),
    known("post_process_params.iou_nms_search_distance_2d", Role::Param(Param::IouSearch), Y2024, After2026),
    known("post_process_params.iou_nms_threshold", Role::Param(Param::IouThreshold), Y2024, After2026),
    known("post_process_params.yaw_norm_thresholds", Role::Param(Param::YawNorm), Y2024, Y2026),
    known("model_params.yaw_norm_thresholds", Role::Param(Param::YawNorm), After2026, After2026),
    known("iou_nms_target_class_names", Dropped(ALL_CLASSES), Y2023, Y2023),
    known("post_process_params.iou_nms_target_class_names", Dropped(ALL_CLASSES), Y2024, Y2024),
    known("rename_car_to_truck_and_bus", Gone(REMAPPER), Before2023, Before2023),
    known("allow_remapping_by_area_matrix", Role::Param(Param::Allow), Y2023, After2026),
    known("min_area_matrix", Role::Param(Param::MinArea), Y2023, After2026),
    known("max_area_matrix", Role::Param(Param::MaxArea), Y2023, After2026),
    // Past sweeps.
    known("densification_world_frame_id", Role::Param(Param::WorldFrame), Before2023, Y2023),
    known("densification_num_past_frames", Role::Param(Param::PastFrames), Before2023, Y2023),
    known("densification_params.world_frame_id", Role::Param(Param::WorldFrame), Y2024, After2026),
    known("densification_params.num_past_frames", Role::Param(Param::PastFrames), Y2024, After2026),
    known("cloud_capacity", Role::Param(Param::CloudCapacity), Y2025, After2026),
    // How Autoware runs the network and tells of itself.
    known("trt_precision", Ignored, Before2023, After2026),
    known("encoder_onnx_path", Ignored, Before2023, After2026),
    known("encoder_engine_path", Ignored, Before2023, After2026),
    known("head_onnx_path", Ignored, Before2023, After2026),
    known("head_engine_path", Ignored, Before2023, After2026),
    known("build_only", Ignored, Before2023, After2026),
    known("use_sim_time", Ignored, Before2023, After2026),
    known("logger_name", Ignored, Y2025, After2026),
    known("diagnostics.max_allowed_processing_time_ms", Ignored, ByClass, After2026),
    known("diagnostics.max_acceptable_consecutive_delay_ms", Ignored, ByClass, After2026),
    known("diagnostics.validation_callback_interval_ms", Ignored, ByClass, After2026),
    known("version", Ignored, After2026, After2026),
    known("model_path", Ignored, After2026, After2026),
    known("class_remapper_param_path", Dropped(GIVE_REMAPPER), After2026, After2026),
];

const ALL_CLASSES: &str =
    "overlap suppression takes every pair of objects without a pedestrian, as Autoware does since 2024-12";
const REMAPPER: &str = "the matrices of `detection_class_remapper.param.yaml`, which change classes by area";
const GIVE_REMAPPER: &str = "give that file beside this one";

/// Where the table knows the key.
pub(super) fn find(key: &str) -> Option<&'static Known> {
    KEYS.iter().find(|known| match known.key.strip_suffix('*') {
        None => known.key == key,
        Some(above) => key
            .strip_prefix(above)
            .is_some_and(|name| !name.is_empty() && !name.contains('.')),
    })
}

/// Whether `name` is the last name of a key.
pub(super) fn is_last_name(name: &str) -> bool {
    KEYS.iter()
        .any(|known| known.key.rsplit('.').next() == Some(name) && name != "*")
}

/// How a file with flat keys, or one with groups, spells a parameter.
pub(super) fn spelled(param: Param, flat: bool) -> &'static str {
    KEYS.iter()
        .find(|known| {
            flat && matches!(known.role, Role::Param(it) if it == param) && !known.key.contains('.')
        })
        .map_or(param.key(), |known| known.key)
}

/// The known key that `key` was most likely meant to be: first by its last name, about one letter in three of which
/// may be wrong, then by the names above it.
pub(super) fn nearest(key: &str) -> Option<&'static str> {
    KEYS.iter()
        .filter(|known| !known.key.ends_with('*'))
        .filter_map(|known| Some((distance(key, known.key)?, known)))
        // Of two that are equally near, the newer one.
        .min_by_key(|(distance, known)| (*distance, std::cmp::Reverse(known.until)))
        .map(|(_, known)| known.key)
}

/// Which generations can have written a file with these keys, in words.
pub(super) fn generation(leaves: &[&Leaf]) -> String {
    let found: Vec<&Known> = leaves.iter().filter_map(|leaf| find(&leaf.key)).collect();
    let has = |group: &str| found.iter().any(|known| known.key.starts_with(group));
    let mut since = found.iter().map(|known| known.since).max().unwrap_or(Before2023);
    let mut until = found.iter().map(|known| known.until).min().unwrap_or(After2026);
    // What is not there tells as much: thresholds have moved from the node to the model.
    if has("model_params.")
        && !has("model_params.detection_score_thresholds.")
        && !has("model_params.score_thresholds.")
    {
        until = until.min(ByClass);
    }
    if has("post_process_params.") && !has("post_process_params.score_threshold") {
        since = since.max(ByBounds);
    }
    if since > until {
        return format!("{} mixed with {}", until.label(), since.label());
    }
    let possible = || {
        Generation::ALL
            .into_iter()
            .filter(|g| (since..=until).contains(g))
    };
    let releases: Vec<&str> = possible()
        .filter(|g| g.is_release())
        .map(Generation::label)
        .collect();
    match releases.as_slice() {
        [] => since.label().to_owned(),
        [one] => (*one).to_owned(),
        [first, .., last] => format!("{first} to {last}"),
    }
}
