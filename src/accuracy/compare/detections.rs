//! Detections of a run beside those of another: which are there again, and how far they moved.

use std::collections::BTreeMap;
use std::io::BufRead;

use serde_json::Value;

use super::{CompareReport, Gates};
use crate::accuracy::gates::GateError;
use crate::accuracy::metrics::{greedy, overlap};
use crate::accuracy::{
    FrameObjects, LabelledBox, LineError, ReportedImage, SeenObject, Side, read_frames, read_images,
};

/// Largest distance and least overlap of what counts as the same detection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MatchLimits {
    /// Of objects on the road: distance of the centres seen from above, in metres.
    pub max_dist_m: f64,
    /// Of boxes in images: intersection over union.
    pub min_iou: f64,
}

impl Default for MatchLimits {
    /// 0.5 m and 0.5.
    fn default() -> Self {
        Self {
            max_dist_m: 0.5,
            min_iou: 0.5,
        }
    }
}

/// The values of a comparison of detections: names with their metrics.
const ROWS: [(&str, &str); 10] = [
    ("objects.recall", "recall"),
    ("objects.precision", "precision"),
    ("objects.center_err_mean", "center_err_mean"),
    ("objects.center_err_max", "center_err_max"),
    ("objects.score_err_max", "score_err_max"),
    ("boxes.recall", "recall"),
    ("boxes.precision", "precision"),
    ("boxes.iou", "iou"),
    ("boxes.iou_min", "iou"),
    ("boxes.score_err_max", "score_err_max"),
];

/// The metric of a value that [`compare_detections`] tells; `None` for a name that it does not tell.
#[must_use]
pub fn detection_metric(name: &str) -> Option<&'static str> {
    let row = ROWS.iter().find(|(known, _)| *known == name);
    row.map(|(_, metric)| *metric)
}

/// What a run found, as it wrote it: JSON lines of objects, of boxes in images, or of both.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DetectionLines {
    frames: Vec<FrameObjects>,
    images: Vec<ReportedImage>,
}

impl DetectionLines {
    /// Reads lines, which may hold objects and images mixed.
    ///
    /// # Errors
    /// [`LineError`] for the first line that cannot be used.
    pub fn read(text: impl BufRead + Clone) -> Result<Self, LineError> {
        Ok(Self {
            frames: read_frames(text.clone(), Side::Detections)?,
            images: read_images(text)?,
        })
    }

    /// Whether there is no frame and no image.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.images.is_empty()
    }
}

/// Compares what two runs found, frame by frame (by stamp) and image by image (by stream and stamp). All of a frame that
/// only one side has is missed, or too much. The rows are, where either side has objects,
///
/// - `objects.recall`, `objects.precision`: shares of the reference and of the run that are in the other
///   ([`match_detections`](crate::accuracy::metrics::match_detections));
/// - `objects.center_err_mean`, `objects.center_err_max` in metres, `objects.score_err_max`
///
/// and, where either side has images, `boxes.recall`, `boxes.precision`, `boxes.iou` (the mean of the pairs),
/// `boxes.iou_min`, `boxes.score_err_max`, matched in the same order by the largest overlap. Errors and overlaps of no
/// pairs have no value.
///
/// # Errors
/// [`GateError`] of a registry that cannot freeze.
pub fn compare_detections(
    run: &DetectionLines,
    reference: &DetectionLines,
    limits: &MatchLimits,
    gates: &mut Gates<'_>,
    title: &str,
) -> Result<CompareReport, GateError> {
    let mut values: Vec<f64> = Vec::new();
    let mut names: Vec<(&str, &str)> = Vec::new();
    if !(run.frames.is_empty() && reference.frames.is_empty()) {
        let frames = |lines: &'_ DetectionLines| -> BTreeMap<i64, Vec<SeenObject>> {
            let frames = lines.frames.iter();
            frames
                .map(|frame| (frame.stamp_ns, frame.objects.clone()))
                .collect()
        };
        let score = |seen: &SeenObject| f64::from(seen.object.score);
        let totals = Totals::of(&frames(run), &frames(reference), score, |a, b| {
            let [x, y] = [0, 1].map(|dim| a.object.position_m[dim] - b.object.position_m[dim]);
            let distance = x.hypot(y);
            (a.object.label == b.object.label && distance <= limits.max_dist_m).then_some(distance)
        });
        names.extend(&ROWS[..5]);
        values.extend([
            totals.recall(),
            totals.precision(),
            mean(&totals.costs),
            largest(&totals.costs),
            largest(&totals.score_errors),
        ]);
    }
    if !(run.images.is_empty() && reference.images.is_empty()) {
        let images = |lines: &'_ DetectionLines| -> BTreeMap<(String, i64), Vec<LabelledBox>> {
            let images = lines.images.iter();
            let key = |image: &ReportedImage| (image.stream.clone(), image.stamp_ns);
            images.map(|image| (key(image), image.boxes.clone())).collect()
        };
        let score = |found: &LabelledBox| f64::from(found.score);
        let totals = Totals::of(&images(run), &images(reference), score, |a, b| {
            let iou = overlap(a.box_xyxy.map(f64::from), b.box_xyxy.map(f64::from));
            (a.label == b.label && iou >= limits.min_iou).then_some(1.0 - iou)
        });
        names.extend(&ROWS[5..]);
        values.extend([
            totals.recall(),
            totals.precision(),
            1.0 - mean(&totals.costs),
            1.0 - largest(&totals.costs),
            largest(&totals.score_errors),
        ]);
    }
    let mut report = CompareReport::new(title, Value::Null);
    for ((name, metric), value) in names.into_iter().zip(values) {
        report.add_value(name, metric, Ok(value), gates)?;
    }
    let told: Vec<String> = report.rows().iter().map(|row| row.name.clone()).collect();
    for (name, gate) in gates.all() {
        if !told.contains(&name) {
            let problem = format!("there is no such value; there are {}", told.join(", "));
            report.add_missing(&name, gate.metric(), &problem, gates)?;
        }
    }
    Ok(report)
}

/// All pairs of a run, and how many there could be.
#[derive(Debug, Default)]
struct Totals {
    found: usize,
    expected: usize,
    costs: Vec<f64>,
    score_errors: Vec<f64>,
}

impl Totals {
    /// Matches what has the same key on both sides.
    fn of<K: Ord, T>(
        run: &BTreeMap<K, Vec<T>>,
        reference: &BTreeMap<K, Vec<T>>,
        score: impl Fn(&T) -> f64,
        cost: impl Fn(&T, &T) -> Option<f64>,
    ) -> Self {
        let mut totals = Self {
            found: run.values().map(Vec::len).sum(),
            expected: reference.values().map(Vec::len).sum(),
            ..Self::default()
        };
        for (key, found) in run {
            let expected = reference.get(key).map_or(&[][..], Vec::as_slice);
            let scores: Vec<f64> = found.iter().map(&score).collect();
            for ([one, other], cost) in greedy(&scores, expected.len(), |one, other| {
                cost(&found[one], &expected[other])
            }) {
                totals.costs.push(cost);
                totals
                    .score_errors
                    .push((scores[one] - score(&expected[other])).abs());
            }
        }
        totals
    }

    fn recall(&self) -> f64 {
        share(self.costs.len(), self.expected)
    }

    fn precision(&self) -> f64 {
        share(self.costs.len(), self.found)
    }
}

/// 1 where there is nothing to have a part of.
fn share(part: usize, all: usize) -> f64 {
    if all == 0 { 1.0 } else { part as f64 / all as f64 }
}

/// NaN for no values.
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// NaN for no values.
fn largest(values: &[f64]) -> f64 {
    values.iter().copied().reduce(f64::max).unwrap_or(f64::NAN)
}
