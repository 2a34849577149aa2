//! Camera calibrations in the form of ROS: the files that `camera_calibration` writes and `camera_info_manager` reads.

use std::path::Path;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::pipeline::load::read;
use crate::pipeline::problem::{Problem, told};
use crate::pipeline::shape;
use crate::pipeline::source::{Span, source};
use crate::pipeline::tree;
use crate::pipeline::words::words;

/// How a camera sees: what its calibration says.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Intrinsics {
    /// Width and height of the image in pixels.
    pub size_px: [u32; 2],
    /// Focal lengths and principal point in pixels: fx, fy, cx, cy.
    pub focal_centre_px: [f64; 4],
    /// The model of the lens.
    pub distortion_model: DistortionModel,
    /// Coefficients of the lens, as its model has them.
    pub distortion: Vec<f64>,
    /// Rotation to the rectified frame, row by row.
    pub rectification: [f64; 9],
    /// Projection of the rectified frame, 3 x 4, row by row.
    pub projection: [f64; 12],
}

words! {
    /// A model of a lens, as ROS names it.
    DistortionModel {
        /// Radial and tangential, 5 coefficients.
        PlumbBob = "plumb_bob",
        /// Radial as a fraction, and tangential, 8 coefficients.
        RationalPolynomial = "rational_polynomial",
        /// Fisheye, 4 coefficients.
        Equidistant = "equidistant",
    }
}

impl DistortionModel {
    const fn coefficients(self) -> usize {
        match self {
            Self::PlumbBob => 5,
            Self::RationalPolynomial => 8,
            Self::Equidistant => 4,
        }
    }
}

/// A matrix, row by row.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Matrix")]
struct RawMatrix {
    /// Rows.
    #[schemars(range(min = 1, max = 3))]
    rows: usize,
    /// Columns.
    #[schemars(range(min = 1, max = 14))]
    cols: usize,
    /// The numbers, row by row.
    #[schemars(inner(range(min = -1e9, max = 1e9)))]
    data: Vec<f64>,
}

/// A camera_info file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "the camera calibration")]
struct RawCameraInfo {
    /// Width of the image in pixels.
    #[schemars(range(min = 1, max = 65_535))]
    image_width: u32,
    /// Height of the image in pixels.
    #[schemars(range(min = 1, max = 65_535))]
    image_height: u32,
    /// Name of the camera.
    #[expect(dead_code, reason = "the vehicle file names its cameras")]
    #[serde(default)]
    camera_name: String,
    /// The intrinsic matrix, 3 x 3.
    camera_matrix: RawMatrix,
    /// The model of the lens.
    distortion_model: DistortionModel,
    /// Coefficients of the lens, one row.
    distortion_coefficients: RawMatrix,
    /// The rectifying rotation, 3 x 3.
    rectification_matrix: RawMatrix,
    /// The projection, 3 x 4.
    projection_matrix: RawMatrix,
}

/// Reads the calibration of a camera whose images are of `size_px`; `at` is the place that names the file.
pub(super) fn read_intrinsics(
    path: &Path,
    size_px: [u32; 2],
    at: &Span,
    problems: &mut Vec<Problem>,
) -> Option<Intrinsics> {
    let text = match read(path) {
        Ok(text) => text,
        Err(error) => {
            let message = told(&error).replacen("pipeline", "calibration", 1);
            problems.push(Problem::error(message, at, "named here"));
            return None;
        }
    };
    let source = source(&path.display().to_string(), text);
    let tree = match tree::parse(&source, 0) {
        Ok(tree) => tree,
        Err(problem) => {
            problems.push(*problem);
            return None;
        }
    };
    let before = problems.len();
    let generator = SchemaSettings::draft2020_12().into_generator();
    let schema: Json = generator.into_root_schema_for::<RawCameraInfo>().to_value();
    let raw: RawCameraInfo = serde_json::from_value(shape::check(&tree, &schema, problems)?).ok()?;
    let mut refuse = |key: &str, message: String, expected: String| {
        let span = tree.entry(key).map_or(&tree.span, |entry| &entry.key_span);
        problems.push(Problem::error(message, span, expected));
    };
    let found_px = [raw.image_width, raw.image_height];
    if found_px != size_px {
        refuse(
            "image_width",
            format!(
                "the calibration is of images of {} x {} pixels",
                found_px[0], found_px[1]
            ),
            format!("the camera sends {} x {}", size_px[0], size_px[1]),
        );
    }
    let coefficients = raw.distortion_model.coefficients();
    let matrices = [
        ("camera_matrix", &raw.camera_matrix, [3, 3]),
        (
            "distortion_coefficients",
            &raw.distortion_coefficients,
            [1, coefficients],
        ),
        ("rectification_matrix", &raw.rectification_matrix, [3, 3]),
        ("projection_matrix", &raw.projection_matrix, [3, 4]),
    ];
    for (key, matrix, [rows, cols]) in matrices {
        if [matrix.rows, matrix.cols, matrix.data.len()] != [rows, cols, rows * cols] {
            let message = format!(
                "`{key}` is {} x {} with {} numbers",
                matrix.rows,
                matrix.cols,
                matrix.data.len()
            );
            let why = if rows == 1 {
                format!(" for `{}`", raw.distortion_model)
            } else {
                String::new()
            };
            refuse(key, message, format!("expected {rows} x {cols}{why}"));
        }
    }
    let camera: Option<[f64; 9]> = raw.camera_matrix.data.as_slice().try_into().ok();
    if let Some([fx, skew, cx, zero, fy, cy, z0, z1, one]) = camera {
        let sound = fx > 0.0 && fy > 0.0 && [skew, zero, z0, z1] == [0.0; 4] && (one - 1.0).abs() < 1e-9;
        let within = (0.0..f64::from(raw.image_width)).contains(&cx)
            && (0.0..f64::from(raw.image_height)).contains(&cy);
        if !sound || !within {
            refuse(
                "camera_matrix",
                "this is no matrix of a camera".to_owned(),
                "expected fx 0 cx, 0 fy cy, 0 0 1 with fx and fy above 0 and cx, cy in the image".to_owned(),
            );
        }
    }
    if problems.len() > before {
        return None;
    }
    let [fx, _, cx, _, fy, cy, ..] = camera?;
    Some(Intrinsics {
        size_px,
        focal_centre_px: [fx, fy, cx, cy],
        distortion_model: raw.distortion_model,
        distortion: raw.distortion_coefficients.data,
        rectification: raw.rectification_matrix.data.try_into().ok()?,
        projection: raw.projection_matrix.data.try_into().ok()?,
    })
}
