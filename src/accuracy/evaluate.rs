//! All numbers of an evaluation.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::average_precision::PrecisionRecall;
use super::errors::{HeadingErrors, VelocityErrors, heading_errors, velocity_errors};
use super::matching::{Frame, FrameObjects, SeenObject, Verdict, counts, matched};
use crate::outputs::ObjectLabel;

/// What decides in [`evaluate`].
#[derive(Debug, Clone, PartialEq)]
pub struct EvaluationParams {
    /// Distances of centres, from above, within which a detection is a hit, in metres.
    pub distances_m: Vec<f64>,
    /// The distance at which recall by range and the errors are taken, in metres. (nuScenes takes its errors at 2 m.)
    pub match_distance_m: f64,
    /// Recall up to which nuScenes' average precision is left out.
    pub min_recall: f64,
    /// Precision that nuScenes' average precision takes off.
    pub min_precision: f64,
    /// Truth with fewer LiDAR points is neither hit nor missed.
    pub min_points: u32,
    /// Borders of the range bins from the origin in metres, ascending; a last bin holds what is beyond.
    pub range_borders_m: Vec<f64>,
}

impl Default for EvaluationParams {
    /// nuScenes' distances (0.5, 1, 2, 4 m), recall and precision (0.1); matches at 1 m; 5 points; bins of 20 m to 80 m.
    fn default() -> Self {
        Self {
            distances_m: vec![0.5, 1.0, 2.0, 4.0],
            match_distance_m: 1.0,
            min_recall: 0.1,
            min_precision: 0.1,
            min_points: 5,
            range_borders_m: vec![20.0, 40.0, 60.0, 80.0],
        }
    }
}

/// Why parameters are refused.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum EvaluationParamsError {
    /// No distance.
    #[error("no distance to match at; give at least one in metres")]
    NoDistance,
    /// A distance that is none.
    #[error("{0} m is no distance to match at; give a finite one above 0")]
    Distance(f64),
    /// A recall or precision to leave out that is none.
    #[error("{name} is {value}; give a share from 0 to below 1")]
    Share {
        /// The parameter.
        name: &'static str,
        /// Its value.
        value: f64,
    },
    /// Borders that do not ascend.
    #[error("range border {0} m does not ascend; sort the borders, above 0 and each one once")]
    Range(f64),
}

impl EvaluationParams {
    fn check(&self) -> Result<(), EvaluationParamsError> {
        if self.distances_m.is_empty() {
            return Err(EvaluationParamsError::NoDistance);
        }
        for &distance in self.distances_m.iter().chain([&self.match_distance_m]) {
            if !(distance.is_finite() && distance > 0.0) {
                return Err(EvaluationParamsError::Distance(distance));
            }
        }
        for (name, value) in [
            ("min_recall", self.min_recall),
            ("min_precision", self.min_precision),
        ] {
            if !(0.0..1.0).contains(&value) {
                return Err(EvaluationParamsError::Share { name, value });
            }
        }
        let mut last = 0.0;
        for &border in &self.range_borders_m {
            if border.is_nan() || border <= last {
                return Err(EvaluationParamsError::Range(border));
            }
            last = border;
        }
        Ok(())
    }
}

/// How good the detections of a class are at one distance.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DistanceAccuracy {
    /// Distance of centres below which a detection is a hit, in metres.
    pub distance_m: f64,
    /// Average precision as nuScenes' devkit computes it (101 steps, recall and precision clipped).
    pub ap_nuscenes: f64,
    /// Area under the curve of precision against recall, all points, nothing clipped.
    pub ap_all_points: f64,
    /// Share of the objects that was found, whatever the score.
    pub recall: f64,
    /// Detections that found an object.
    pub hits: usize,
    /// Detections where none is.
    pub false_alarms: usize,
}

/// Recall of objects at a range from the origin.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RangeRecall {
    /// From this range on, in metres.
    pub from_m: f64,
    /// To below this one; `None` in the last bin.
    pub to_m: Option<f64>,
    /// Objects there.
    pub objects: usize,
    /// Those that were found.
    pub hits: usize,
    /// Their share; `None` without objects.
    pub recall: Option<f64>,
}

/// How good the detections of one class are.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassAccuracy {
    /// The class.
    pub label: ObjectLabel,
    /// Objects that count.
    pub objects: usize,
    /// Objects with too few points.
    pub ignored: usize,
    /// Detections.
    pub detections: usize,
    /// At each distance; empty where no object counts.
    pub at: Vec<DistanceAccuracy>,
    /// Recall by range at the match distance.
    pub range_recall: Vec<RangeRecall>,
    /// Errors of the headings of hits at the match distance.
    pub heading: Option<HeadingErrors>,
    /// Errors of their speeds.
    pub velocity: Option<VelocityErrors>,
}

/// How good detections are.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evaluation {
    /// Frames of the truth.
    pub frames: usize,
    /// Frames of the truth without a line of detections: all of their objects are missed.
    pub frames_without_detections: usize,
    /// Frames of detections without truth; they are left out.
    pub frames_without_truth: usize,
    /// Distance of recall by range and of the errors, in metres.
    pub match_distance_m: f64,
    /// Classes that the truth or the detections name, in the order of their numbers.
    pub classes: Vec<ClassAccuracy>,
    /// Means over the classes that have objects which count, at each distance: nuScenes' average precision.
    pub mean_ap_nuscenes: Vec<(f64, f64)>,
    /// The same for the plain average precision.
    pub mean_ap_all_points: Vec<(f64, f64)>,
}

/// Compares detections with the truth, frame by frame. Frames belong together that have the same stamp, and no side has a
/// stamp twice; the order of frames and objects matters only between detections of equal score.
///
/// # Errors
/// [`EvaluationParamsError`].
pub fn evaluate(
    detections: &[FrameObjects],
    truth: &[FrameObjects],
    params: &EvaluationParams,
) -> Result<Evaluation, EvaluationParamsError> {
    params.check()?;
    let by_stamp: BTreeMap<i64, &[SeenObject]> = detections
        .iter()
        .map(|frame| (frame.stamp_ns, frame.objects.as_slice()))
        .collect();
    let stamps: BTreeSet<i64> = truth.iter().map(|frame| frame.stamp_ns).collect();
    let frames: Vec<Frame<'_>> = truth
        .iter()
        .map(|frame| Frame {
            detections: by_stamp.get(&frame.stamp_ns).copied().unwrap_or_default(),
            truth: &frame.objects,
        })
        .collect();
    let labels: BTreeSet<ObjectLabel> = frames
        .iter()
        .flat_map(|frame| frame.truth.iter().chain(frame.detections))
        .map(|seen| seen.object.label)
        .collect();
    let classes: Vec<ClassAccuracy> = labels
        .into_iter()
        .map(|label| class_accuracy(&frames, label, params))
        .collect();
    let mean = |of: fn(&DistanceAccuracy) -> f64| {
        let mean_at = |(i, &distance): (usize, &f64)| {
            let values: Vec<f64> = classes
                .iter()
                .filter_map(|class| class.at.get(i))
                .map(of)
                .collect();
            (!values.is_empty()).then(|| (distance, values.iter().sum::<f64>() / values.len() as f64))
        };
        params
            .distances_m
            .iter()
            .enumerate()
            .filter_map(mean_at)
            .collect()
    };
    Ok(Evaluation {
        frames: truth.len(),
        frames_without_detections: truth
            .iter()
            .filter(|frame| !by_stamp.contains_key(&frame.stamp_ns))
            .count(),
        frames_without_truth: detections
            .iter()
            .filter(|frame| !stamps.contains(&frame.stamp_ns))
            .count(),
        match_distance_m: params.match_distance_m,
        mean_ap_nuscenes: mean(|at| at.ap_nuscenes),
        mean_ap_all_points: mean(|at| at.ap_all_points),
        classes,
    })
}

fn class_accuracy(frames: &[Frame<'_>], label: ObjectLabel, params: &EvaluationParams) -> ClassAccuracy {
    let of_class = |seen: &&SeenObject| seen.object.label == label;
    let truth = || frames.iter().flat_map(|frame| frame.truth).filter(of_class);
    let objects = truth().filter(|t| counts(t, params.min_points)).count();
    let at = if objects == 0 {
        Vec::new()
    } else {
        let at_distance = |&distance_m: &f64| {
            let verdicts = matched(frames, label, distance_m, params.min_points);
            let hits = verdicts.iter().map(|(_, verdict)| *verdict != Verdict::Miss);
            let curve = PrecisionRecall::new(hits, objects);
            DistanceAccuracy {
                distance_m,
                ap_nuscenes: curve.nuscenes_ap(params.min_recall, params.min_precision),
                ap_all_points: curve.all_point_ap(),
                recall: curve.recall(),
                hits: curve.hits(),
                false_alarms: verdicts.len() - curve.hits(),
            }
        };
        params.distances_m.iter().map(at_distance).collect()
    };

    let pairs: Vec<(&SeenObject, &SeenObject)> =
        matched(frames, label, params.match_distance_m, params.min_points)
            .into_iter()
            .filter_map(|(_, verdict)| match verdict {
                Verdict::Hit {
                    frame,
                    detection,
                    truth,
                } => Some((&frames[frame].detections[detection], &frames[frame].truth[truth])),
                Verdict::Miss => None,
            })
            .collect();
    let bin = |seen: &SeenObject| {
        let [x, y, _] = seen.object.position_m;
        let range = x.hypot(y);
        params.range_borders_m.partition_point(|border| *border <= range)
    };
    let bins = params.range_borders_m.len() + 1;
    let (mut in_bin, mut found) = (vec![0_usize; bins], vec![0_usize; bins]);
    for seen in truth().filter(|t| counts(t, params.min_points)) {
        in_bin[bin(seen)] += 1;
    }
    for (_, seen) in &pairs {
        found[bin(seen)] += 1;
    }
    let range_recall = (0..bins)
        .map(|i| RangeRecall {
            from_m: if i == 0 {
                0.0
            } else {
                params.range_borders_m[i - 1]
            },
            to_m: params.range_borders_m.get(i).copied(),
            objects: in_bin[i],
            hits: found[i],
            recall: (in_bin[i] > 0).then(|| found[i] as f64 / in_bin[i] as f64),
        })
        .collect();
    ClassAccuracy {
        label,
        objects,
        ignored: truth().count() - objects,
        detections: frames
            .iter()
            .flat_map(|frame| frame.detections)
            .filter(of_class)
            .count(),
        at,
        range_recall,
        heading: heading_errors(&pairs),
        velocity: velocity_errors(&pairs),
    }
}
