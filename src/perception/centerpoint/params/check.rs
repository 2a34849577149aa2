//! Which parameters can be.

use std::collections::BTreeMap;

use super::keys::Param;
use super::{CenterPointParams, RemapperParams};
use crate::lidar::EncoderInput;
use crate::perception::param_file::{ParamError, ParamOrigin};

/// Most classes, pillars, cells in one direction, points and past sweeps; far beyond any sensor, and small enough
/// that nothing computed from them overflows.
const MAX_CLASSES: usize = 256;
const MAX_BINS: usize = 256;
const MAX_VOXELS: usize = 1 << 24;
const MAX_CELLS: usize = 1 << 12;
const MAX_CLOUD_CAPACITY: usize = 1 << 30;
const MAX_PAST_FRAMES: usize = 1_000;
const MAX_POINTS: usize = 255;
/// Rows, and columns, of a remapper.
const REMAPPER_CLASSES: usize = 8;
/// How far from a whole number of pillars a range may be: what float32 leaves of a range in metres is far less.
const CELL_TOLERANCE: f64 = 1e-3;

/// Where parameters stand; empty for those that a program made.
#[derive(Default)]
pub(super) struct Places {
    pub(super) params: BTreeMap<Param, (ParamOrigin, String)>,
    pub(super) limits: Option<(ParamOrigin, String)>,
    /// For every class.
    pub(super) thresholds: Vec<(ParamOrigin, String)>,
}

impl Places {
    fn of(&self, param: Param) -> (ParamOrigin, String) {
        let known = match param {
            Param::Limits => self.limits.as_ref(),
            _ => self.params.get(&param),
        };
        known
            .cloned()
            .unwrap_or_else(|| (ParamOrigin::Program, param.key().to_owned()))
    }

    fn of_class(&self, class: usize, name: &str) -> (ParamOrigin, String) {
        self.thresholds
            .get(class)
            .cloned()
            .unwrap_or_else(|| (ParamOrigin::Program, format!("{}.{name}", Param::Scores.key())))
    }
}

fn refuse(place: (ParamOrigin, String), found: impl Into<String>, expected: impl Into<String>) -> ParamError {
    let (at, key) = place;
    ParamError::Value {
        at,
        key,
        found: found.into(),
        expected: expected.into(),
    }
}

fn length(place: (ParamOrigin, String), found: usize, expected: impl Into<String>) -> ParamError {
    let (at, key) = place;
    ParamError::Length {
        at,
        key,
        found,
        expected: expected.into(),
    }
}

/// Pillars along an axis, if they are close to a whole number: the whole part of the float32 quotient, which is one
/// less than that number where float32 falls short of it.
pub(super) fn cells(params: &CenterPointParams, axis: usize) -> Option<usize> {
    let span = params.point_cloud_range_m[axis + 3] - params.point_cloud_range_m[axis];
    let size = params.voxel_size_m[axis];
    let exact = f64::from(span) / f64::from(size);
    let whole = exact.round();
    let fits = whole >= 1.0 && whole <= MAX_CELLS as f64 && (exact - whole).abs() <= CELL_TOLERANCE;
    let cells = (span / size) as usize;
    (size > 0.0 && fits && cells > 0).then_some(cells)
}

pub(super) fn check(params: &CenterPointParams, places: &Places) -> Result<(), ParamError> {
    check_classes(params, places)?;
    check_sizes(params, places)?;
    check_grid(params, places)?;
    check_scores(params, places)?;
    check_suppression(params, places)?;
    match &params.remapper {
        Some(remapper) => check_remapper(remapper, places),
        None => Ok(()),
    }
}

fn check_classes(params: &CenterPointParams, places: &Places) -> Result<(), ParamError> {
    let names = &params.class_names;
    let place = || places.of(Param::ClassNames);
    if names.is_empty() || names.len() > MAX_CLASSES {
        return Err(length(
            place(),
            names.len(),
            format!("1 to {MAX_CLASSES} classes"),
        ));
    }
    for (i, name) in names.iter().enumerate() {
        if name.is_empty() || name.contains(|c: char| c == '.' || c.is_control()) {
            return Err(refuse(
                place(),
                format!("\"{}\" in entry {i}", name.escape_debug()),
                "names without dots, such as CAR",
            ));
        }
        if names[..i].contains(name) {
            return Err(refuse(
                place(),
                format!("\"{}\" a second time in entry {i}", name.escape_debug()),
                "every class once",
            ));
        }
    }
    Ok(())
}

fn check_sizes(params: &CenterPointParams, places: &Places) -> Result<(), ParamError> {
    let within = |param, value: usize, least: usize, most: usize| {
        if (least..=most).contains(&value) {
            return Ok(());
        }
        Err(refuse(
            places.of(param),
            value.to_string(),
            format!("{least} to {most}"),
        ))
    };
    within(Param::PointFeatureSize, params.point_feature_size, 4, 5)?;
    let encoder = params.encoder_in_feature_size;
    let fits =
        EncoderInput::from_size(encoder).is_ok_and(|it| it.point_features() == params.point_feature_size);
    if !fits {
        return Err(refuse(
            places.of(Param::EncoderFeatures),
            encoder.to_string(),
            "9 or 10 with a `point_feature_size` of 4, 11 with 5 (intensity)",
        ));
    }
    within(Param::MaxVoxels, params.max_voxels, 1, MAX_VOXELS)?;
    within(Param::CloudCapacity, params.cloud_capacity, 1, MAX_CLOUD_CAPACITY)?;
    within(Param::PastFrames, params.num_past_frames, 0, MAX_PAST_FRAMES)?;
    if !(1..=MAX_POINTS).contains(&params.max_points_per_voxel) {
        return Err(refuse(
            (ParamOrigin::Program, "max_points_per_voxel".to_owned()),
            params.max_points_per_voxel.to_string(),
            format!("1 to {MAX_POINTS}"),
        ));
    }
    let frame = &params.world_frame_id;
    if frame.is_empty() || frame.contains(char::is_control) {
        let found = format!("\"{}\"", frame.escape_debug());
        return Err(refuse(
            places.of(Param::WorldFrame),
            found,
            Param::WorldFrame.expected(),
        ));
    }
    Ok(())
}

fn check_grid(params: &CenterPointParams, places: &Places) -> Result<(), ParamError> {
    const AXES: [&str; 3] = ["x", "y", "z"];
    let range = || places.of(Param::Range);
    let voxel = || places.of(Param::VoxelSize);
    let (low, high) = params.point_cloud_range_m.split_at(3);
    for axis in 0..3 {
        let name = AXES[axis];
        let size = params.voxel_size_m[axis];
        if !low[axis].is_finite() || !high[axis].is_finite() || low[axis] >= high[axis] {
            return Err(refuse(
                range(),
                format!("{} to {} in {name}", low[axis], high[axis]),
                "finite metres, the least below the greatest",
            ));
        }
        if !size.is_finite() || size <= 0.0 {
            return Err(refuse(
                voxel(),
                format!("{size} in {name}"),
                "finite metres above 0",
            ));
        }
        if axis < 2 && cells(params, axis).is_none() {
            let found = format!("{size} in {name}");
            let span = high[axis] - low[axis];
            return Err(refuse(
                voxel(),
                found,
                format!("a size that divides the range of {span} m into 1 to {MAX_CELLS} whole pillars"),
            ));
        }
    }
    let height = high[2] - low[2];
    if (params.voxel_size_m[2] - height).abs() > CELL_TOLERANCE as f32 * height {
        return Err(refuse(
            voxel(),
            format!("{} in z", params.voxel_size_m[2]),
            format!("{height}: a pillar is as high as the range"),
        ));
    }
    let [x, y] = params.grid_size();
    let factor = params.downsample_factor;
    if factor == 0 || !x.is_multiple_of(factor) || !y.is_multiple_of(factor) {
        return Err(refuse(
            places.of(Param::Downsample),
            factor.to_string(),
            format!("a divisor of the {x} by {y} pillars"),
        ));
    }
    Ok(())
}

fn check_scores(params: &CenterPointParams, places: &Places) -> Result<(), ParamError> {
    let limits = &params.distance_bin_upper_limits_m;
    let place = || places.of(Param::Limits);
    if limits.is_empty() || limits.len() > MAX_BINS {
        return Err(length(
            place(),
            limits.len(),
            format!("1 to {MAX_BINS} ends of distance bins"),
        ));
    }
    let mut below = 0.0;
    for (bin, &limit) in limits.iter().enumerate() {
        // Not `limit <= below`, which NaN would pass.
        let ascends = limit > below;
        if !ascends || (limit.is_infinite() && bin + 1 < limits.len()) {
            return Err(refuse(
                place(),
                format!("{limit} in entry {bin}"),
                format!("metres above {below}, ascending, only the last may be infinite"),
            ));
        }
        below = limit;
    }
    if params.score_thresholds.len() != limits.len() {
        return Err(length(
            (ParamOrigin::Program, "score_thresholds".to_owned()),
            params.score_thresholds.len(),
            format!("{}, one for every distance bin", limits.len()),
        ));
    }
    for (bin, row) in params.score_thresholds.iter().enumerate() {
        if row.len() != params.class_names.len() {
            return Err(length(
                (ParamOrigin::Program, format!("score_thresholds[{bin}]")),
                row.len(),
                format!("{}, one for every class", params.class_names.len()),
            ));
        }
        for (class, (&threshold, name)) in row.iter().zip(&params.class_names).enumerate() {
            if !(0.0..1.0).contains(&threshold) {
                return Err(refuse(
                    places.of_class(class, name),
                    format!("{threshold} for {} in bin {bin}", name.escape_debug()),
                    "0 to below 1",
                ));
            }
        }
    }
    Ok(())
}

fn check_suppression(params: &CenterPointParams, places: &Places) -> Result<(), ParamError> {
    let yaw = &params.yaw_norm_thresholds;
    if yaw.len() != params.class_names.len() {
        return Err(length(
            places.of(Param::YawNorm),
            yaw.len(),
            format!("{}, one for every class", params.class_names.len()),
        ));
    }
    if let Some((i, threshold)) = yaw.iter().enumerate().find(|(_, it)| !(0.0..1.0).contains(*it)) {
        let found = format!("{threshold} in entry {i}");
        return Err(refuse(places.of(Param::YawNorm), found, "0 to below 1"));
    }
    let circle = params.circle_nms_dist_threshold_m;
    if !circle.is_finite() || circle <= 0.0 {
        return Err(refuse(
            places.of(Param::CircleNms),
            circle.to_string(),
            "finite metres above 0",
        ));
    }
    let search = params.iou_nms_search_distance_m;
    if !search.is_finite() || search < 0.0 {
        return Err(refuse(
            places.of(Param::IouSearch),
            search.to_string(),
            "finite metres, 0 or more",
        ));
    }
    let iou = params.iou_nms_threshold;
    if !(0.0..=1.0).contains(&iou) {
        return Err(refuse(places.of(Param::IouThreshold), iou.to_string(), "0 to 1"));
    }
    Ok(())
}

fn check_remapper(remapper: &RemapperParams, places: &Places) -> Result<(), ParamError> {
    let classes = REMAPPER_CLASSES;
    let cell = |i: usize| format!("row {}, column {}", i / classes, i % classes);
    let lengths = [
        (Param::Allow, remapper.allow.len()),
        (Param::MinArea, remapper.min_area_m2.len()),
        (Param::MaxArea, remapper.max_area_m2.len()),
    ];
    for (param, found) in lengths {
        if found != classes * classes {
            return Err(length(
                places.of(param),
                found,
                format!("{}: {classes} rows of {classes} classes", classes * classes),
            ));
        }
    }
    if let Some((i, allow)) = remapper
        .allow
        .iter()
        .enumerate()
        .find(|(_, it)| !matches!(it, 0 | 1))
    {
        return Err(refuse(
            places.of(Param::Allow),
            format!("{allow} in {}", cell(i)),
            "0 or 1",
        ));
    }
    for (param, areas) in [
        (Param::MinArea, &remapper.min_area_m2),
        (Param::MaxArea, &remapper.max_area_m2),
    ] {
        if let Some((i, area)) = areas
            .iter()
            .enumerate()
            .find(|(_, it)| !it.is_finite() || **it < 0.0)
        {
            return Err(refuse(
                places.of(param),
                format!("{area} in {}", cell(i)),
                "finite m², 0 or more",
            ));
        }
    }
    let inverted = (0..remapper.allow.len())
        .find(|&i| remapper.allow[i] == 1 && remapper.min_area_m2[i] > remapper.max_area_m2[i]);
    match inverted {
        Some(i) => Err(refuse(
            places.of(Param::MaxArea),
            format!("{} in {}", remapper.max_area_m2[i], cell(i)),
            format!(
                "at least the {} of `min_area_matrix`, as the change is allowed",
                remapper.min_area_m2[i]
            ),
        )),
        None => Ok(()),
    }
}
