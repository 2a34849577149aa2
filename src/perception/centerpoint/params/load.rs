//! Files of one model, merged into parameters.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::check::{Places, check};
use super::given::Given;
use super::keys::{self, Generation, Param, Role};
use super::scores::{self, Scores};
use super::{CenterPointParams, MAX_POINTS_PER_VOXEL, RemapperParams};
use crate::lidar::semantic_label;
use crate::outputs::ObjectLabel;
use crate::perception::param_file::{Leaf, ParamError, ParamOrigin, Value, distance, read};

/// Keys that are not known, told one by one; of more, the number is told.
const MAX_UNKNOWN_TOLD: usize = 20;

/// What node and launch file of 2023-04 took where no parameter file says it, and the capacity that came later.
const SCORE_THRESHOLD_2023: f64 = 0.35;
const WORLD_FRAME_2023: &str = "map";
const PAST_FRAMES_2023: usize = 1;
const CLOUD_CAPACITY: usize = 2_000_000;

pub(super) fn from_files<P: AsRef<Path>>(
    files: &[P],
) -> Result<(CenterPointParams, Vec<String>), ParamError> {
    if files.is_empty() {
        return Err(ParamError::NoFiles);
    }
    let mut merged = Merged::default();
    for path in files {
        merged.add(path.as_ref())?;
    }
    merged.build()
}

/// What stands in all files, the newest and last of every parameter.
#[derive(Default)]
pub(super) struct Merged {
    files: Vec<(Arc<Path>, Vec<Leaf>)>,
    /// By parameter, and for thresholds of classes by class.
    given: BTreeMap<(Param, String), Given>,
    /// File, line and key of what is not known.
    unknown: Vec<(Arc<Path>, u64, String)>,
    pub(super) warnings: Vec<String>,
    /// Defaults that were taken, in words.
    defaults: Vec<String>,
}

impl Merged {
    fn add(&mut self, path: &Path) -> Result<(), ParamError> {
        let leaves = read(path)?;
        let path: Arc<Path> = path.into();
        for leaf in &leaves {
            self.add_leaf(&path, leaf)?;
        }
        self.files.push((path, leaves));
        Ok(())
    }

    fn add_leaf(&mut self, path: &Arc<Path>, leaf: &Leaf) -> Result<(), ParamError> {
        let at = || ParamOrigin::file(path, leaf.line);
        let Some(known) = keys::find(&leaf.key) else {
            self.unknown.push((path.clone(), leaf.line, leaf.key.clone()));
            return Ok(());
        };
        match known.role {
            Role::Ignored => {}
            Role::Dropped(why) => {
                self.warnings
                    .push(format!("{}: `{}` is not followed: {why}", at(), leaf.key));
            }
            Role::Gone(_) if leaf.value == Value::Bool(false) => {}
            Role::Gone(instead) => {
                return Err(ParamError::Gone {
                    at: at(),
                    key: leaf.key.clone(),
                    generation: known.until.label().to_owned(),
                    expected: instead.to_owned(),
                });
            }
            Role::Param(param) => self.put(Given {
                param,
                key: leaf.key.clone(),
                since: known.since,
                file: path.clone(),
                line: leaf.line,
                value: leaf.value.clone(),
            }),
        }
        Ok(())
    }

    /// A newer spelling holds over an older one; of one spelling, the last holds.
    fn put(&mut self, new: Given) {
        let class = match new.param {
            Param::Scores | Param::ScoresByBounds => new.last_name().to_owned(),
            _ => String::new(),
        };
        let slot = (new.param, class);
        let Some(old) = self.given.remove(&slot) else {
            self.given.insert(slot, new);
            return;
        };
        let (holds, not) = if new.since >= old.since {
            (new, old)
        } else {
            (old, new)
        };
        if holds.value != not.value {
            self.warnings.push(format!(
                "`{}` is said twice: {} at {} holds over {} at {}",
                holds.key,
                holds.value.shown(),
                holds.origin(),
                not.value.shown(),
                not.origin(),
            ));
        }
        self.given.insert(slot, holds);
    }

    pub(super) fn get(&self, param: Param) -> Option<&Given> {
        self.of_class(param, "")
    }

    pub(super) fn of_class(&self, param: Param, class: &str) -> Option<&Given> {
        self.given.get(&(param, class.to_owned()))
    }

    /// Every class for which `param` is given.
    pub(super) fn of_classes(&self, param: Param) -> impl Iterator<Item = &Given> {
        self.given
            .iter()
            .filter(move |((it, _), _)| *it == param)
            .map(|(_, given)| given)
    }

    fn need(&self, param: Param) -> Result<&Given, ParamError> {
        self.get(param).ok_or_else(|| self.missing(param, None))
    }

    /// Whether the facts of the model are spelled as they were up to 2023.
    pub(super) fn is_flat(&self) -> bool {
        [
            Param::ClassNames,
            Param::PointFeatureSize,
            Param::Range,
            Param::VoxelSize,
        ]
        .into_iter()
        .filter_map(|param| self.get(param))
        .any(|given| given.since <= Generation::Y2023)
    }

    /// The value, or where files of 2023 leave it to the code, what the code took.
    fn or_2023<T: std::fmt::Display>(
        &mut self,
        param: Param,
        read: impl Fn(&Given) -> Result<T, ParamError>,
        default: T,
    ) -> Result<T, ParamError> {
        match self.get(param) {
            Some(given) => read(given),
            None if self.is_flat() => {
                self.defaults
                    .push(format!("`{}` {default}", keys::spelled(param, true)));
                Ok(default)
            }
            None => Err(self.missing(param, None)),
        }
    }

    /// That `param`, or its entry for `class`, is in none of the files.
    pub(super) fn missing(&self, param: Param, class: Option<&str>) -> ParamError {
        let at_home = |leaves: &[Leaf]| {
            leaves
                .iter()
                .filter_map(|leaf| keys::find(&leaf.key))
                .filter(|known| matches!(known.role, Role::Param(it) if it.home() == param.home()))
                .count()
        };
        let home = self
            .files
            .iter()
            .map(|file| (at_home(&file.1), file))
            .filter(|(count, _)| *count > 0)
            .max_by_key(|(count, _)| *count)
            .map(|(_, file)| file);
        let mut key = keys::spelled(param, self.is_flat()).to_owned();
        if let Some(class) = class {
            key = format!("{}.{class}", param.key());
        }
        let mut hint = self
            .unknown
            .iter()
            .filter_map(|(path, line, unknown)| Some((distance(unknown, &key)?, path, line, unknown)))
            .min_by_key(|(distance, ..)| *distance)
            .map(|(_, path, line, unknown)| format!(" (is it `{unknown}` at {}:{line}?)", path.display()))
            .unwrap_or_default();
        let (files, leaves): (Vec<PathBuf>, Vec<&Leaf>) = match home {
            Some((path, leaves)) => (vec![path.to_path_buf()], leaves.iter().collect()),
            None => {
                hint = format!(" (Autoware has it in `{}`){hint}", param.home().file());
                let all = self.files.iter();
                (
                    all.clone().map(|(path, _)| path.to_path_buf()).collect(),
                    all.flat_map(|(_, leaves)| leaves).collect(),
                )
            }
        };
        ParamError::Missing {
            files,
            key,
            generation: keys::generation(&leaves),
            expected: param.expected().to_owned(),
            hint,
        }
    }

    fn build(mut self) -> Result<(CenterPointParams, Vec<String>), ParamError> {
        let class_names = self.need(Param::ClassNames)?.texts()?;
        let scores = match scores::read(&mut self, &class_names)? {
            Some(scores) => scores,
            None => {
                let all = self.or_2023(Param::ScoreOfAll, Given::number, SCORE_THRESHOLD_2023)?;
                Scores::of_all(all, class_names.len())
            }
        };
        let params = CenterPointParams {
            point_feature_size: self.need(Param::PointFeatureSize)?.size()?,
            max_voxels: self.need(Param::MaxVoxels)?.size()?,
            point_cloud_range_m: self.need(Param::Range)?.array()?,
            voxel_size_m: self.need(Param::VoxelSize)?.array()?,
            downsample_factor: self.need(Param::Downsample)?.size()?,
            encoder_in_feature_size: self.need(Param::EncoderFeatures)?.size()?,
            max_points_per_voxel: MAX_POINTS_PER_VOXEL,
            has_variance: self.or_2023(Param::HasVariance, Given::boolean, false)?,
            has_twist: self.or_2023(Param::HasTwist, Given::boolean, false)?,
            distance_bin_upper_limits_m: scores.limits_m,
            score_thresholds: scores.thresholds,
            yaw_norm_thresholds: self.need(Param::YawNorm)?.numbers()?,
            circle_nms_dist_threshold_m: self.need(Param::CircleNms)?.number()?,
            iou_nms_search_distance_m: self.need(Param::IouSearch)?.number()?,
            iou_nms_threshold: self.need(Param::IouThreshold)?.number()?,
            world_frame_id: self.or_2023(Param::WorldFrame, Given::text, WORLD_FRAME_2023.to_owned())?,
            num_past_frames: self.or_2023(Param::PastFrames, Given::size, PAST_FRAMES_2023)?,
            cloud_capacity: self.or_2023(Param::CloudCapacity, Given::size, CLOUD_CAPACITY)?,
            remapper: self.remapper()?,
            class_names,
        };
        let places = Places {
            params: self
                .given
                .values()
                .map(|given| (given.param, (given.origin(), given.key.clone())))
                .collect(),
            limits: scores.limits_place,
            thresholds: scores.places,
        };
        check(&params, &places)?;
        self.warn(&params.class_names);
        Ok((params, self.warnings))
    }

    fn remapper(&self) -> Result<Option<RemapperParams>, ParamError> {
        let parts = [Param::Allow, Param::MinArea, Param::MaxArea];
        if parts.iter().all(|&part| self.get(part).is_none()) {
            return Ok(None);
        }
        Ok(Some(RemapperParams {
            allow: self.need(Param::Allow)?.integers()?,
            min_area_m2: self.need(Param::MinArea)?.numbers()?,
            max_area_m2: self.need(Param::MaxArea)?.numbers()?,
        }))
    }

    /// What can only be said when everything is read.
    fn warn(&mut self, class_names: &[String]) {
        for (path, line, key) in self.unknown.iter().take(MAX_UNKNOWN_TOLD) {
            let advice = keys::nearest(key).map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            self.warnings.push(format!(
                "{}:{line}: `{key}` is not known and not used{advice}",
                path.display()
            ));
        }
        if let Some(more @ 1..) = self.unknown.len().checked_sub(MAX_UNKNOWN_TOLD) {
            self.warnings
                .push(format!("{more} more keys are not known and not used"));
        }
        let strangers = class_names
            .iter()
            .filter(|name| semantic_label(name) == ObjectLabel::Unknown && *name != "UNKNOWN");
        for name in strangers {
            self.warnings.push(format!(
                "class `{}` is published as UNKNOWN; expected CAR, TRUCK, BUS, TRAILER, BICYCLE, MOTORBIKE or \
                 PEDESTRIAN",
                name.escape_debug(),
            ));
        }
        if !self.defaults.is_empty() {
            self.warnings.push(format!(
                "the files are of Autoware {}, whose code or launch file said the rest: taken are {}",
                Generation::Y2023.label(),
                self.defaults.join(", ")
            ));
        }
    }
}
