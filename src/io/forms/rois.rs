//! Detections in images as an input of a model that paints points with them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::shown;
use super::{InputError, InputFault};

/// Detections that a request may have where nothing else is said.
pub const MAX_ROIS: usize = 4096;

/// A camera by its name or its place in the model's order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum CameraName {
    /// Its place.
    Index(u32),
    /// Its name.
    Name(String),
}

/// A class by its name or its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum LabelName {
    /// Its number.
    Index(u32),
    /// Its name.
    Name(String),
}

/// A detection in an image as it was written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Roi")]
pub struct RoiForm {
    /// The camera.
    pub camera: CameraName,
    /// The class.
    pub label: LabelName,
    /// Confidence, 0 to 1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub score: f32,
    /// Left, top, right, bottom in pixels.
    pub box_xyxy: [f32; 4],
}

/// A detection in an image, checked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Roi {
    /// Place of the camera.
    pub camera: u32,
    /// Number of the class.
    pub label_id: u32,
    /// Confidence, 0 to 1.
    pub score: f32,
    /// Left, top, right, bottom in pixels.
    pub box_xyxy: [f32; 4],
}

/// Checks detections against the cameras and classes of a model.
///
/// # Errors
/// [`InputError`] with paths below `field`.
pub fn decode_rois(
    rois: &[RoiForm],
    cameras: &[&str],
    labels: &[&str],
    max_rois: usize,
    field: &str,
) -> Result<Vec<Roi>, InputError> {
    if rois.len() > max_rois {
        let (what, found, allowed) = ("detections", rois.len(), max_rois);
        return Err(InputError::new(
            field,
            InputFault::TooMany { what, found, allowed },
        ));
    }
    let one = |(at, roi): (usize, &RoiForm)| {
        let within = |name: &str| format!("{field}[{at}].{name}");
        let camera = match &roi.camera {
            CameraName::Index(index) => find(cameras, Err(*index), &within("camera"))?,
            CameraName::Name(name) => find(cameras, Ok(name), &within("camera"))?,
        };
        let label_id = match &roi.label {
            LabelName::Index(index) => find(labels, Err(*index), &within("label"))?,
            LabelName::Name(name) => find(labels, Ok(name), &within("label"))?,
        };
        if !(0.0..=1.0).contains(&roi.score) {
            return Err(InputError::value(
                within("score"),
                roi.score.to_string(),
                "0 to 1",
            ));
        }
        let [left, top, right, bottom] = roi.box_xyxy;
        let finite = roi.box_xyxy.iter().all(|side| side.is_finite());
        if !(finite && left <= right && top <= bottom) {
            let found = format!("{:?}", roi.box_xyxy);
            return Err(InputError::value(
                within("box_xyxy"),
                found,
                "finite left <= right and top <= bottom",
            ));
        }
        Ok(Roi {
            camera,
            label_id,
            score: roi.score,
            box_xyxy: roi.box_xyxy,
        })
    };
    rois.iter().enumerate().map(one).collect()
}

/// The number of a name, or a number that has one.
fn find(names: &[&str], wanted: Result<&String, u32>, field: &str) -> Result<u32, InputError> {
    let (at, found) = match wanted {
        Ok(name) => (
            names.iter().position(|known| known == name),
            format!("`{}`", shown(name)),
        ),
        Err(index) => (
            Some(index as usize).filter(|&at| at < names.len()),
            index.to_string(),
        ),
    };
    let at = at.and_then(|at| u32::try_from(at).ok());
    at.ok_or_else(|| {
        let expected = format!("one of {}, or its place from 0", names.join(", "));
        InputError::value(field, found, expected)
    })
}
