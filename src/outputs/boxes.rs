//! Boxes in space with classes of any model's own.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::{DetectedObjects, Detections2D, Mask2D, ObjectLabel, label_name};

/// One box in space.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Detection3D {
    /// Index into the class names.
    pub label_id: u32,
    /// Confidence, 0 to 1.
    pub score: f32,
    /// x, y, z of the middle, length, width and height in metres, and yaw in radians.
    pub box_xyzlwhy: [f32; 7],
    /// Speed along x and y of the frame in m/s, where it is known.
    pub velocity_mps: Option<[f32; 2]>,
}

/// Boxes in space, best score first.
#[derive(Debug, Clone, PartialEq)]
pub struct Detections3D {
    detections: Vec<Detection3D>,
    /// Class names, indexed by `label_id`.
    pub labels: Arc<[String]>,
    /// Name of the model that made them.
    pub model: Arc<str>,
    /// Coordinate frame of the boxes.
    pub frame_id: Arc<str>,
}

impl Detections3D {
    /// Sorts by falling score; equal scores keep their order.
    #[must_use]
    pub fn new(
        mut detections: Vec<Detection3D>,
        labels: Arc<[String]>,
        model: Arc<str>,
        frame_id: Arc<str>,
    ) -> Self {
        detections.sort_by(|a, b| b.score.total_cmp(&a.score));
        Self {
            detections,
            labels,
            model,
            frame_id,
        }
    }

    /// The boxes, best score first.
    #[must_use]
    pub fn detections(&self) -> &[Detection3D] {
        &self.detections
    }

    /// Class name of a box.
    #[must_use]
    pub fn label(&self, detection: &Detection3D) -> Cow<'_, str> {
        label_name(&self.labels, detection.label_id)
    }
}

impl From<&DetectedObjects> for Detections3D {
    /// Classes keep Autoware's numbers; the speed in the object's own frame becomes one in the cloud's.
    fn from(found: &DetectedObjects) -> Self {
        let boxes = found.objects.iter().map(|object| {
            let [x, y, z] = object.position_m.map(|v| v as f32);
            let [length, width, height] = object.size_m.map(|v| v as f32);
            let (sin, cos) = object.yaw_rad.sin_cos();
            let velocity_mps = object.twist.map(|twist| {
                let (forward, left) = (twist.linear_x_mps, twist.linear_y_mps);
                [
                    (cos * forward - sin * left) as f32,
                    (sin * forward + cos * left) as f32,
                ]
            });
            Detection3D {
                label_id: object.label as u32,
                score: object.score,
                box_xyzlwhy: [x, y, z, length, width, height, object.yaw_rad as f32],
                velocity_mps,
            }
        });
        let labels = ObjectLabel::ALL
            .iter()
            .map(|label| label.name().to_owned())
            .collect();
        Self::new(
            boxes.collect(),
            labels,
            Arc::clone(&found.model),
            Arc::clone(&found.frame_id),
        )
    }
}

/// Boxes in an image, and what else a model says of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Detections2DWithMasks {
    /// The boxes.
    pub detections: Detections2D,
    /// Masks by name, such as `semseg`.
    pub masks: BTreeMap<String, Mask2D>,
}
