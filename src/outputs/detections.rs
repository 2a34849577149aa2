//! Detections in an image.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Serialize;

use super::DetectedObjects;

/// One detected object in an image.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Detection2D {
    /// Index into the detector's class names.
    pub label_id: u32,
    /// Confidence, 0 to 1.
    pub score: f32,
    /// Left, top, right, bottom edge in pixels of the source image, clipped to it.
    pub box_xyxy: [f32; 4],
}

/// The objects detected in one image, best score first.
#[derive(Debug, Clone, PartialEq)]
pub struct Detections2D {
    /// The objects, sorted by falling score.
    pub detections: Vec<Detection2D>,
    /// Class names, indexed by `label_id`.
    pub labels: Arc<[String]>,
    /// Name of the model that made them.
    pub model: Arc<str>,
    /// Coordinate frame of the camera.
    pub frame_id: Arc<str>,
    /// Width and height of the source image in pixels.
    pub image_size_px: [u32; 2],
}

impl Detections2D {
    /// Sorts by falling score; equal scores keep their order.
    #[must_use]
    pub fn new(
        mut detections: Vec<Detection2D>,
        labels: Arc<[String]>,
        model: Arc<str>,
        frame_id: Arc<str>,
        image_size_px: [u32; 2],
    ) -> Self {
        detections.sort_by(|a, b| b.score.total_cmp(&a.score));
        Self {
            detections,
            labels,
            model,
            frame_id,
            image_size_px,
        }
    }

    /// Class name of a detection.
    #[must_use]
    pub fn label(&self, detection: &Detection2D) -> Cow<'_, str> {
        label_name(&self.labels, detection.label_id)
    }
}

/// What a model found in one frame.
#[derive(Debug, Clone, PartialEq)]
pub enum Detections {
    /// Boxes in an image.
    Image(Detections2D),
    /// Objects on the road.
    Objects(DetectedObjects),
}

impl Detections {
    /// Number of objects.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::Image(found) => found.detections.len(),
            Self::Objects(found) => found.objects.len(),
        }
    }

    /// Whether nothing was found.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Name of a class, or its number as text where no name is known.
#[must_use]
pub fn label_name(labels: &[String], id: u32) -> Cow<'_, str> {
    match labels.get(id as usize) {
        Some(name) => Cow::Borrowed(name),
        None => Cow::Owned(id.to_string()),
    }
}
