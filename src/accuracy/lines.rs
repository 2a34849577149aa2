//! Detections and truth as JSON lines.

use std::collections::HashMap;
use std::io::{self, BufRead};

use serde::Deserialize;
use serde::de::{Error as _, IgnoredAny};

use super::matching::{FrameObjects, SeenObject};
use crate::outputs::{DetectedObject, ObjectLabel, OrientationAvailability, PoseVariance, Twist2D};

/// Which file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// What a detector said: every object has a score.
    Detections,
    /// What is there: scores may be left out.
    Truth,
}

/// A line that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct LineError {
    /// Number of the line, from 1.
    pub line: usize,
    /// What is wrong with it.
    #[source]
    pub problem: LineProblem,
}

/// What is wrong with a line.
#[derive(Debug, thiserror::Error)]
pub enum LineProblem {
    /// The file cannot be read on.
    #[error("the file cannot be read: {0}")]
    Read(#[source] io::Error),
    /// Not a frame.
    #[error("not a frame of objects: {0}")]
    Form(#[source] serde_json::Error),
    /// Not an image.
    #[error("not an image with detections: {0}")]
    ImageForm(#[source] serde_json::Error),
    /// Two lines of one image.
    #[error("image {stamp_ns} of {stream} is that of line {first} already")]
    ImageTwice {
        /// Its stream.
        stream: String,
        /// Its stamp in nanoseconds.
        stamp_ns: i64,
        /// Line that had it first.
        first: usize,
    },
    /// An object without a score.
    #[error("object {object} has no score; every detection needs one")]
    NoScore {
        /// Number of the object in its line, from 0.
        object: usize,
    },
    /// A number outside its range.
    #[error("object {object} has {name} {value}; {expected}")]
    Value {
        /// Number of the object in its line, from 0.
        object: usize,
        /// The field.
        name: &'static str,
        /// Its value.
        value: f64,
        /// What it may be.
        expected: &'static str,
    },
    /// Two lines of one frame.
    #[error("stamp_ns {stamp_ns} is that of line {first} already; write all objects of a frame in one line")]
    Twice {
        /// The stamp.
        stamp_ns: i64,
        /// The first line with it.
        first: usize,
    },
}

#[derive(Deserialize)]
struct Line {
    stamp_ns: i64,
    objects: Option<Vec<LineObject>>,
    /// Boxes in an image: not what is read here.
    detections: Option<IgnoredAny>,
}

/// A `DetectedObject` with what only an evaluation needs, and without what the truth need not say.
#[derive(Deserialize)]
struct LineObject {
    label: ObjectLabel,
    score: Option<f32>,
    position_m: [f64; 3],
    yaw_rad: f64,
    size_m: [f64; 3],
    orientation: Option<OrientationAvailability>,
    twist: Option<Twist2D>,
    pose_variance: Option<PoseVariance>,
    twist_variance: Option<[f64; 2]>,
    points: Option<u32>,
    velocity_mps: Option<[f64; 2]>,
}

/// Reads frames, one a line: `{"stamp_ns":..,"objects":[..]}`, an object being a
/// [`DetectedObject`](crate::outputs::DetectedObject) as it is written, with two fields more: `points`, the number of
/// LiDAR points on it, and `velocity_mps`, its speed `[x, y]` in the frame of the cloud (taken from the twist where it is
/// left out). Truth needs no `score`, and `orientation` is `available` where it is left out. Empty lines and those of images
/// (`detections`) are passed over.
///
/// # Errors
/// [`LineError`] for the first line that cannot be used.
pub fn read_frames(input: impl BufRead, side: Side) -> Result<Vec<FrameObjects>, LineError> {
    let mut frames = Vec::new();
    let mut lines_of_stamps = HashMap::new();
    for (number, text) in (1..).zip(input.lines()) {
        let at_line = |problem| LineError {
            line: number,
            problem,
        };
        let text = text.map_err(|e| at_line(LineProblem::Read(e)))?;
        if text.trim().is_empty() {
            continue;
        }
        let line: Line = serde_json::from_str(&text).map_err(|e| at_line(LineProblem::Form(e)))?;
        let objects = match (line.objects, line.detections) {
            (Some(objects), _) => objects,
            (None, Some(_)) => continue,
            (None, None) => {
                let missing = serde_json::Error::missing_field("objects");
                return Err(at_line(LineProblem::Form(missing)));
            }
        };
        if let Some(first) = lines_of_stamps.insert(line.stamp_ns, number) {
            return Err(at_line(LineProblem::Twice {
                stamp_ns: line.stamp_ns,
                first,
            }));
        }
        let objects = objects
            .into_iter()
            .enumerate()
            .map(|(object, seen)| checked(object, seen, side))
            .collect::<Result<_, _>>()
            .map_err(at_line)?;
        frames.push(FrameObjects {
            stamp_ns: line.stamp_ns,
            objects,
        });
    }
    Ok(frames)
}

fn checked(object: usize, seen: LineObject, side: Side) -> Result<SeenObject, LineProblem> {
    let score = match (seen.score, side) {
        (Some(score), _) => score,
        (None, Side::Truth) => 1.0,
        (None, Side::Detections) => return Err(LineProblem::NoScore { object }),
    };
    if !(0.0..=1.0).contains(&score) {
        return Err(LineProblem::Value {
            object,
            name: "score",
            value: f64::from(score),
            expected: "a score is from 0 to 1",
        });
    }
    if let Some(&value) = seen.size_m.iter().find(|size| **size < 0.0) {
        return Err(LineProblem::Value {
            object,
            name: "size_m",
            value,
            expected: "a length is not below 0",
        });
    }
    let said = SeenObject::new(DetectedObject {
        label: seen.label,
        score,
        position_m: seen.position_m,
        yaw_rad: seen.yaw_rad,
        size_m: seen.size_m,
        orientation: seen.orientation.unwrap_or(OrientationAvailability::Available),
        twist: seen.twist,
        pose_variance: seen.pose_variance,
        twist_variance: seen.twist_variance,
    });
    Ok(SeenObject {
        points: seen.points,
        velocity_mps: seen.velocity_mps.or(said.velocity_mps),
        ..said
    })
}
