//! Where the sensors of a vehicle sit: the calibration files of Autoware's `individual_params`.
//!
//! A file maps a parent frame to child frames, each with x, y, z in metres and roll, pitch, yaw in radians about fixed
//! axes: the child is rotated about x, then about y, then about z of the parent, and moved.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::pipeline::load::read;
use crate::pipeline::nearest::{alternatives, suggestion};
use crate::pipeline::problem::Problem;
use crate::pipeline::shape;
use crate::pipeline::source::{Span, source};
use crate::pipeline::tree;

/// The files of a calibration folder, in the order in which they are read.
const FILES: [&str; 2] = ["sensors_calibration.yaml", "sensor_kit_calibration.yaml"];

/// A fixed transform of a vehicle: it takes points of the child's frame to the parent's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mount {
    /// The frame that the child is placed in.
    pub parent: String,
    /// The frame that is placed.
    pub child: String,
    /// Place of the child's origin in metres.
    pub translation_m: [f64; 3],
    /// Unit quaternion x, y, z, w.
    pub rotation: [f64; 4],
}

/// One entry of a calibration file.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Pose")]
struct RawPose {
    /// Metres ahead of the parent's origin.
    #[schemars(range(min = -1_000, max = 1_000))]
    x: f64,
    /// Metres to the left of the parent's origin.
    #[schemars(range(min = -1_000, max = 1_000))]
    y: f64,
    /// Metres above the parent's origin.
    #[schemars(range(min = -1_000, max = 1_000))]
    z: f64,
    /// Radians about x.
    #[schemars(range(min = -6.3, max = 6.3))]
    roll: f64,
    /// Radians about y.
    #[schemars(range(min = -6.3, max = 6.3))]
    pitch: f64,
    /// Radians about z.
    #[schemars(range(min = -6.3, max = 6.3))]
    yaw: f64,
}

type RawFile = BTreeMap<String, BTreeMap<String, RawPose>>;

fn schema() -> Json {
    let generator = SchemaSettings::draft2020_12().into_generator();
    generator.into_root_schema_for::<RawFile>().to_value()
}

/// The rotation of fixed-axis angles: about x, then y, then z.
fn quaternion([roll, pitch, yaw]: [f64; 3]) -> [f64; 4] {
    let [(sr, cr), (sp, cp), (sy, cy)] = [roll, pitch, yaw].map(|angle| (angle / 2.0).sin_cos());
    [
        sr * cp * cy - cr * sp * sy,
        cr * sp * cy + sr * cp * sy,
        cr * cp * sy - sr * sp * cy,
        cr * cp * cy + sr * sp * sy,
    ]
}

/// What the calibration of a vehicle says.
#[derive(Debug, Default)]
pub(super) struct Calibration {
    /// The files that were read.
    pub(super) files: Vec<PathBuf>,
    /// Every transform, with the place that says it.
    placed: Vec<(Mount, Span)>,
}

impl Calibration {
    /// Reads the files of `folder`; `at` is the place that names it.
    pub(super) fn read(folder: &Path, at: &Span, problems: &mut Vec<Problem>) -> Self {
        let mut calibration = Self::default();
        for name in FILES {
            let path = folder.join(name);
            let text = match read(&path) {
                Ok(text) => text,
                Err(error) => {
                    let message =
                        crate::pipeline::problem::told(&error).replacen("pipeline", "calibration", 1);
                    problems.push(
                        Problem::error(message, at, "this vehicle's calibration")
                            .help("expected config/<vehicle_id>/<sensor_model>/ with sensors_calibration.yaml and sensor_kit_calibration.yaml"),
                    );
                    continue;
                }
            };
            calibration.add(&path, text, problems);
            calibration.files.push(path);
        }
        calibration
    }

    fn add(&mut self, path: &Path, text: String, problems: &mut Vec<Problem>) {
        let source = source(&path.display().to_string(), text);
        let tree = match tree::parse(&source, 0) {
            Ok(tree) => tree,
            Err(problem) => return problems.push(*problem),
        };
        let before = problems.len();
        let json = shape::check(&tree, &schema(), problems);
        let raw = json.and_then(|json| serde_json::from_value::<RawFile>(json).ok());
        let Some(raw) = raw.filter(|_| problems.len() == before) else {
            return;
        };
        for parent in tree.entries() {
            for child in parent.value.entries() {
                let Some(pose) = raw.get(&parent.key).and_then(|poses| poses.get(&child.key)) else {
                    continue;
                };
                if let Some((other, first)) = self.placed.iter().find(|(mount, _)| mount.child == child.key) {
                    let (line, column) = first.line_column();
                    problems.push(
                        Problem::error(
                            format!("the frame `{}` has two parents", child.key),
                            &child.key_span,
                            format!("here it is placed in `{}`", parent.key),
                        )
                        .help(format!(
                            "{}:{line}:{column} places it in `{}`",
                            first.source().name(),
                            other.parent
                        ))
                        .related(first, "and here in another"),
                    );
                    continue;
                }
                let mount = Mount {
                    parent: parent.key.clone(),
                    child: child.key.clone(),
                    translation_m: [pose.x, pose.y, pose.z],
                    rotation: quaternion([pose.roll, pose.pitch, pose.yaw]),
                };
                self.placed.push((mount, child.key_span.clone()));
            }
        }
    }

    fn of(&self, child: &str) -> Option<&(Mount, Span)> {
        self.placed.iter().find(|(mount, _)| mount.child == child)
    }

    /// Makes sure that `frame` hangs below `base`; `at` is the place that names it. A frame that the files leave to the
    /// description of the vehicle is hung up: an optical frame turned as ROS has it, the frame of a LiDAR at its base.
    pub(super) fn require(&mut self, frame: &str, base: &str, at: &Span, problems: &mut Vec<Problem>) {
        if frame == base {
            return;
        }
        if self.of(frame).is_none() && !self.hang_up(frame, at) {
            let known = || self.placed.iter().map(|(mount, _)| mount.child.as_str());
            problems.push(
                Problem::error(
                    format!("the calibration does not place the frame `{frame}`"),
                    at,
                    suggestion(frame, known()),
                )
                .help(format!("it places {}", alternatives(known()))),
            );
            return;
        }
        let mut here = frame;
        let mut steps = 0;
        while let Some((mount, span)) = self.of(here) {
            here = &mount.parent;
            steps += 1;
            if here == base {
                return;
            }
            if steps > self.placed.len() {
                let circle = format!("the frames above `{frame}` go round in a circle");
                if !problems.iter().any(|problem| problem.message() == circle) {
                    problems.push(Problem::error(circle, span, format!("`{here}` is above itself")));
                }
                return;
            }
        }
        problems.push(
            Problem::error(
                format!("the frame `{frame}` does not hang below `{base}`"),
                at,
                format!("its topmost frame is `{here}`"),
            )
            .help(format!("the calibration has to place `{here}` in `{base}`")),
        );
    }

    fn hang_up(&mut self, frame: &str, at: &Span) -> bool {
        let optical = frame
            .strip_suffix("_optical_link")
            .map(|stem| format!("{stem}_link"));
        let found = match optical.filter(|parent| self.of(parent).is_some()) {
            // Optical frames look along z, x to the right: roll -90 degrees, yaw -90 degrees.
            Some(parent) => Some((parent, [-0.5, 0.5, -0.5, 0.5])),
            None => Some(format!("{frame}_base_link"))
                .filter(|parent| self.of(parent).is_some())
                .map(|parent| (parent, [0.0, 0.0, 0.0, 1.0])),
        };
        let Some((parent, rotation)) = found else {
            return false;
        };
        let mount = Mount {
            parent,
            child: frame.to_owned(),
            translation_m: [0.0; 3],
            rotation,
        };
        self.placed.push((mount, at.clone()));
        true
    }

    /// The transforms, in the order of the files.
    pub(super) fn into_mounts(self) -> Vec<Mount> {
        self.placed.into_iter().map(|(mount, _)| mount).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    type Matrix = [[f64; 3]; 3];

    fn product(a: Matrix, b: Matrix) -> Matrix {
        std::array::from_fn(|i| std::array::from_fn(|j| (0..3).map(|k| a[i][k] * b[k][j]).sum()))
    }

    /// Rotation by the definition: about x, then y, then z of the parent.
    fn by_definition([roll, pitch, yaw]: [f64; 3]) -> Matrix {
        let ((sr, cr), (sp, cp), (sy, cy)) = (roll.sin_cos(), pitch.sin_cos(), yaw.sin_cos());
        let x = [[1.0, 0.0, 0.0], [0.0, cr, -sr], [0.0, sr, cr]];
        let y = [[cp, 0.0, sp], [0.0, 1.0, 0.0], [-sp, 0.0, cp]];
        let z = [[cy, -sy, 0.0], [sy, cy, 0.0], [0.0, 0.0, 1.0]];
        product(z, product(y, x))
    }

    fn of_quaternion([x, y, z, w]: [f64; 4]) -> Matrix {
        [
            [
                1.0 - 2.0 * (y * y + z * z),
                2.0 * (x * y - z * w),
                2.0 * (x * z + y * w),
            ],
            [
                2.0 * (x * y + z * w),
                1.0 - 2.0 * (x * x + z * z),
                2.0 * (y * z - x * w),
            ],
            [
                2.0 * (x * z - y * w),
                2.0 * (y * z + x * w),
                1.0 - 2.0 * (x * x + y * y),
            ],
        ]
    }

    #[test]
    fn angles_turn_about_x_then_y_then_z() {
        for angles in [
            [0.3, -0.2, 1.1],
            [-3.1, 0.7, 2.5],
            [0.0, 1.5, -0.4],
            [1.0, 0.0, 0.0],
        ] {
            let (found, expected) = (of_quaternion(quaternion(angles)), by_definition(angles));
            for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
                assert!((found - expected).abs() < 1e-12, "{angles:?}: {found} {expected}");
            }
        }
    }

    #[test]
    fn an_optical_frame_looks_along_z() {
        let half = std::f64::consts::FRAC_PI_2;
        let angles = quaternion([-half, 0.0, -half]);
        let optical = [-0.5, 0.5, -0.5, 0.5];
        let same = |sign: f64| {
            angles
                .iter()
                .zip(optical)
                .all(|(a, b)| (a - sign * b).abs() < 1e-12)
        };
        assert!(same(1.0) || same(-1.0), "{angles:?}");
        // The camera's z is ahead, its x to the right.
        let matrix = of_quaternion(optical);
        let column = |j: usize| [matrix[0][j], matrix[1][j], matrix[2][j]];
        assert_eq!(column(2), [1.0, 0.0, 0.0]);
        assert_eq!(column(0), [0.0, -1.0, 0.0]);
    }
}
