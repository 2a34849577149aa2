//! The host half of a detector: images in, network inputs out; network outputs in, detections out.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Head, HeadError, HostModel, Placement, PrepareError, PreparedFrame, Sensor, SensorData};
use crate::image::{BackMap, ImageError, ImageRef, LetterboxPlan, Preset, Workspace};
use crate::outputs::{Detections, Detections2D};

/// Image sizes whose plan is kept. A vehicle has a handful of cameras; more sizes than this only cost time.
const PLANS: usize = 16;

/// A detector's host half. Shared by all workers; every method takes `&self`.
#[derive(Debug)]
pub struct Detector {
    model: Arc<str>,
    preset: Preset,
    input_px: [usize; 2],
    head: Head,
    labels: Arc<[String]>,
    /// Plans by source size, most recently used last.
    plans: Mutex<VecDeque<([usize; 2], Arc<LetterboxPlan>)>>,
    workspaces: Mutex<Vec<Workspace>>,
}

impl Detector {
    /// A detector whose network takes `input_px` (width, height) BGR bytes.
    #[must_use]
    pub fn new(
        model: Arc<str>,
        preset: Preset,
        input_px: [usize; 2],
        head: Head,
        labels: Arc<[String]>,
    ) -> Self {
        Self {
            model,
            preset,
            input_px,
            head,
            labels,
            plans: Mutex::new(VecDeque::with_capacity(PLANS)),
            workspaces: Mutex::new(Vec::new()),
        }
    }

    /// Bytes of one network input: `[1, height, width, 3]` uint8.
    #[must_use]
    pub const fn input_bytes(&self) -> usize {
        self.input_px[0] * self.input_px[1] * 3
    }

    /// Writes the network's input for one image into `input` (at least [`Detector::input_bytes`] long) and
    /// returns the way back from its pixels to the image's.
    ///
    /// # Errors
    /// [`ImageError`] for an image that cannot be brought to the input size.
    pub fn prepare(&self, image: &ImageRef<'_>, input: &mut [u8]) -> Result<BackMap, ImageError> {
        let plan = self.plan([image.width(), image.height()])?;
        let mut workspace = self
            .workspaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
            .unwrap_or_default();
        let found = input.len();
        let expected = self.input_bytes();
        let input = input
            .get_mut(..expected)
            .ok_or(ImageError::OutputLength { expected, found })?;
        let applied = plan.apply(image, input, &mut workspace);
        self.workspaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(workspace);
        applied.map(|()| plan.back_map())
    }

    /// Decodes a network output into detections in pixels of the source image.
    ///
    /// # Errors
    /// [`HeadError`] if the output has another size than the head expects.
    pub fn finish(
        &self,
        output: &[f32],
        back: &BackMap,
        frame_id: &Arc<str>,
    ) -> Result<Detections2D, HeadError> {
        let detections = self.head.decode(output, back)?;
        Ok(Detections2D::new(
            detections,
            Arc::clone(&self.labels),
            Arc::clone(&self.model),
            Arc::clone(frame_id),
            back.size_px(),
        ))
    }

    fn plan(&self, source_px: [usize; 2]) -> Result<Arc<LetterboxPlan>, ImageError> {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(position) = plans.iter().position(|(size, _)| *size == source_px)
            && let Some(entry) = plans.remove(position)
        {
            let plan = Arc::clone(&entry.1);
            plans.push_back(entry);
            return Ok(plan);
        }
        let [width, height] = source_px;
        let plan = Arc::new(
            self.preset
                .plan(width, height, self.input_px[0], self.input_px[1])?,
        );
        if plans.len() == PLANS {
            plans.pop_front();
        }
        plans.push_back((source_px, Arc::clone(&plan)));
        Ok(plan)
    }
}

impl HostModel for Detector {
    fn name(&self) -> &Arc<str> {
        &self.model
    }

    fn sensor(&self) -> Sensor {
        Sensor::Camera
    }

    fn prepare(
        &self,
        data: &SensorData<'_>,
        inputs: &mut [&mut [u8]],
    ) -> Result<PreparedFrame, PrepareError> {
        let SensorData::Image(image) = data else {
            return Err(PrepareError::WrongSensor {
                expected: self.sensor(),
            });
        };
        let [input] = inputs else {
            return Err(PrepareError::InputLength {
                input: 0,
                expected: self.input_bytes(),
                found: 0,
            });
        };
        let placement = Placement::Image(self.prepare(image, input)?);
        Ok(PreparedFrame {
            variant: 0,
            placement,
            within_capacity: None,
        })
    }

    fn finish(
        &self,
        output: &[f32],
        placement: &Placement,
        frame_id: &Arc<str>,
    ) -> Result<Detections, HeadError> {
        let Placement::Image(back) = placement else {
            return Err(HeadError::Placement);
        };
        self.finish(output, back, frame_id).map(Detections::Image)
    }
}
