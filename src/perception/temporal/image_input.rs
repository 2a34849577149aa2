//! Images at the size of the network.

use std::sync::{Arc, Mutex, PoisonError};

use crate::image::{ImageError, ImageRef, LetterboxPlan, Workspace};

/// Width and height of the network's input in pixels.
pub const QUERY_IMAGE_PX: [usize; 2] = [160, 96];

/// Stretches images to [`QUERY_IMAGE_PX`].
#[derive(Debug, Default)]
pub(super) struct ImageInput {
    /// The plan of the last size, `[width, height]`: cameras keep theirs.
    plan: Mutex<Option<([usize; 2], Arc<LetterboxPlan>)>>,
    spare: Mutex<Vec<(Vec<u8>, Workspace, Vec<f32>)>>,
}

impl ImageInput {
    /// Shows `use_values` the image as `[96, 160, 3]` of blue, green and red, each `(v - 127.5) / 127.5`.
    pub(super) fn with_values<T>(
        &self,
        image: &ImageRef<'_>,
        use_values: impl FnOnce(&[f32]) -> T,
    ) -> Result<T, ImageError> {
        let plan = self.plan([image.width(), image.height()])?;
        let spare = || self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut bytes, mut workspace, mut values) = spare().pop().unwrap_or_default();
        bytes.resize(plan.output_bytes(), 0);
        let outcome = plan.apply(image, &mut bytes, &mut workspace).map(|()| {
            values.clear();
            values.extend(bytes.iter().map(|&v| (f32::from(v) - 127.5) / 127.5));
            use_values(&values)
        });
        spare().push((bytes, workspace, values));
        outcome
    }

    fn plan(&self, size: [usize; 2]) -> Result<Arc<LetterboxPlan>, ImageError> {
        let mut last = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, plan)) = &*last
            && *known == size
        {
            return Ok(Arc::clone(plan));
        }
        let [width, height] = QUERY_IMAGE_PX;
        let plan = Arc::new(LetterboxPlan::stretch(size[0], size[1], width, height)?);
        *last = Some((size, Arc::clone(&plan)));
        Ok(plan)
    }
}
