//! Which detection found which object.

use crate::outputs::{DetectedObject, ObjectLabel};

/// One object of a frame: detected, or known to be there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeenObject {
    /// Class, box and score.
    pub object: DetectedObject,
    /// LiDAR points on it; `None` where nobody counted.
    pub points: Option<u32>,
    /// Speed in x and y of the cloud's frame in m/s.
    pub velocity_mps: Option<[f64; 2]>,
}

impl SeenObject {
    /// The object as a detector says it: its speed is that of its twist.
    #[must_use]
    pub fn new(object: DetectedObject) -> Self {
        let velocity_mps = object.twist.map(|twist| {
            let (sin, cos) = object.yaw_rad.sin_cos();
            let (forward, left) = (twist.linear_x_mps, twist.linear_y_mps);
            [cos * forward - sin * left, sin * forward + cos * left]
        });
        Self {
            object,
            points: None,
            velocity_mps,
        }
    }
}

/// The objects of one frame.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FrameObjects {
    /// Time of the frame in nanoseconds; what a detection and the truth of one frame have in common.
    pub stamp_ns: i64,
    /// In no order.
    pub objects: Vec<SeenObject>,
}

/// Frames of both sides, brought together.
pub(super) struct Frame<'a> {
    pub(super) detections: &'a [SeenObject],
    pub(super) truth: &'a [SeenObject],
}

/// What one detection turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It found truth `truth` of frame `frame`.
    Hit {
        frame: usize,
        detection: usize,
        truth: usize,
    },
    /// Nothing is there.
    Miss,
}

/// Truth of a class by whether it counts.
pub(super) fn counts(truth: &SeenObject, min_points: u32) -> bool {
    truth.points.is_none_or(|points| points >= min_points)
}

/// Matches the detections of a class with its truth, best score first, each with the nearest object of its frame that
/// is not taken and lies closer than `distance_m`. Of equal scores the later one comes first, as in nuScenes' devkit.
/// Where no object that counts is near, one that does not count is taken instead, and the detection is left out.
/// Returns scores and verdicts in that order.
pub(super) fn matched(
    frames: &[Frame<'_>],
    label: ObjectLabel,
    distance_m: f64,
    min_points: u32,
) -> Vec<(f32, Verdict)> {
    let of_class = |object: &SeenObject| object.object.label == label;
    let mut order: Vec<(usize, usize)> = frames
        .iter()
        .enumerate()
        .flat_map(|(f, frame)| {
            let of_this = frame.detections.iter().enumerate().filter(|(_, d)| of_class(d));
            of_this.map(move |(d, _)| (f, d))
        })
        .collect();
    let score = |&(f, d): &(usize, usize)| frames[f].detections[d].object.score;
    order.sort_by(|a, b| score(b).total_cmp(&score(a)).then(b.cmp(a)));

    let mut taken: Vec<Vec<bool>> = frames
        .iter()
        .map(|frame| vec![false; frame.truth.len()])
        .collect();
    let mut verdicts = Vec::with_capacity(order.len());
    for at in order {
        let (f, d) = at;
        let frame = &frames[f];
        let [x, y, _] = frame.detections[d].object.position_m;
        let nearest = |counting: bool| {
            let mut best: Option<(f64, usize)> = None;
            for (t, truth) in frame.truth.iter().enumerate() {
                if !of_class(truth) || taken[f][t] || counts(truth, min_points) != counting {
                    continue;
                }
                let [truth_x, truth_y, _] = truth.object.position_m;
                let distance = ((x - truth_x) * (x - truth_x) + (y - truth_y) * (y - truth_y)).sqrt();
                if best.is_none_or(|(nearest, _)| distance < nearest) {
                    best = Some((distance, t));
                }
            }
            best.filter(|(distance, _)| *distance < distance_m)
        };
        let verdict = if let Some((_, truth)) = nearest(true) {
            taken[f][truth] = true;
            Verdict::Hit {
                frame: f,
                detection: d,
                truth,
            }
        } else if let Some((_, ignored)) = nearest(false) {
            taken[f][ignored] = true;
            continue;
        } else {
            Verdict::Miss
        };
        verdicts.push((score(&at), verdict));
    }
    verdicts
}
