//! A class for every point or pixel.

use std::sync::Arc;

/// A class for every point of a cloud.
#[derive(Debug, Clone, PartialEq)]
pub struct Segmentation3D {
    /// Number of the class of each point.
    pub label_ids: Vec<u16>,
    /// Class names by number.
    pub class_names: Arc<[String]>,
    /// Confidence of each point, 0 to 1; as many as points, or none.
    pub scores: Option<Vec<f32>>,
    /// Name of the model.
    pub model: Arc<str>,
    /// Coordinate frame of the points.
    pub frame_id: Arc<str>,
}

/// A class for every pixel of an image.
#[derive(Debug, Clone, PartialEq)]
pub struct Mask2D {
    labels: Vec<u16>,
    size_px: [usize; 2],
    /// Class names by number.
    pub class_names: Arc<[String]>,
    /// Name of the model.
    pub model: Arc<str>,
    /// Coordinate frame of the camera.
    pub frame_id: Arc<str>,
}

impl Mask2D {
    /// A mask of `width * height` classes, row by row; `None` if there are more or fewer.
    #[must_use]
    pub fn new(
        labels: Vec<u16>,
        size_px: [usize; 2],
        class_names: Arc<[String]>,
        model: Arc<str>,
        frame_id: Arc<str>,
    ) -> Option<Self> {
        let [width, height] = size_px;
        (width.checked_mul(height) == Some(labels.len())).then_some(Self {
            labels,
            size_px,
            class_names,
            model,
            frame_id,
        })
    }

    /// Classes row by row.
    #[must_use]
    pub fn labels(&self) -> &[u16] {
        &self.labels
    }

    /// Width and height in pixels.
    #[must_use]
    pub const fn size_px(&self) -> [usize; 2] {
        self.size_px
    }
}

/// How often each class is there, by number: as many counts as the greatest number needs, and at least `classes`.
#[must_use]
pub fn class_counts(labels: &[u16], classes: usize) -> Vec<u64> {
    let most = labels.iter().max().map_or(0, |&label| usize::from(label) + 1);
    let mut counts = vec![0; classes.max(most)];
    for &label in labels {
        counts[usize::from(label)] += 1;
    }
    counts
}
