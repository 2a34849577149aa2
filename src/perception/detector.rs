//! The host half of a detector: images in, network inputs out; network outputs in, detections out.

use std::sync::{Arc, Mutex, PoisonError};

use super::{
    CallParam, CallParamKind, CallParams, CallValue, Head, HeadError, HostModel, Placement, PrepareError,
    PreparedFrame, Sensor, SensorData, Thresholds,
};
use crate::image::{
    BackMap, DEFAULT_PLANS, ImageError, ImageRef, PlanCache, Preset, PresetOptions, TensorForm, Workspace,
};
use crate::outputs::{Detection2D, Detections, Detections2D};

/// Parameters of a call.
const SCORE: &str = "score_threshold";
const OVERLAP: &str = "nms_threshold";
const MOST: &str = "max_detections";

/// The most detections of an image that can be asked for.
const MAX_DETECTIONS: i64 = 30_000;

/// A detector's host half. Shared by all workers; every method takes `&self`.
#[derive(Debug)]
pub struct Detector {
    model: Arc<str>,
    form: TensorForm,
    head: Head,
    labels: Arc<[String]>,
    plans: PlanCache,
    decode_to_scale: bool,
    workspaces: Mutex<Vec<Workspace>>,
}

impl Detector {
    /// A detector whose network takes `input_px` (width, height), prepared by a preset. A target size in `options` is
    /// overruled.
    ///
    /// # Errors
    /// [`ImageError::PresetOption`] for options that the preset does not have, [`ImageError::PresetSize`] where it makes
    /// another size than the network takes.
    pub fn new(
        model: Arc<str>,
        preset: Preset,
        options: PresetOptions,
        input_px: [usize; 2],
        head: Head,
        labels: Arc<[String]>,
    ) -> Result<Self, ImageError> {
        if let Some(found) = preset.deployed_px()
            && !preset.takes_target()
            && found != input_px
        {
            return Err(ImageError::PresetSize {
                preset: preset.name(),
                expected: input_px,
                found,
            });
        }
        let options = PresetOptions {
            target_px: preset.takes_target().then_some(input_px),
            ..options
        };
        let (layout, samples) = preset.deployed_form();
        Ok(Self {
            model,
            form: TensorForm {
                size_px: input_px,
                layout: options.layout.unwrap_or(layout),
                samples: options.samples.unwrap_or(samples),
                order: options.order.unwrap_or(preset.deployed_order()),
            },
            head,
            labels,
            plans: PlanCache::new(preset, options, DEFAULT_PLANS)?,
            decode_to_scale: false,
            workspaces: Mutex::new(Vec::new()),
        })
    }

    /// The same detector; `decode_to_scale` lets compressed images be decoded at a fraction of their size that is no
    /// smaller than the network's input. Faster, and not the same to the bit.
    #[must_use]
    pub fn with_decode_to_scale(mut self, decode_to_scale: bool) -> Self {
        self.decode_to_scale = decode_to_scale;
        self
    }

    /// Form of one network input.
    #[must_use]
    pub const fn form(&self) -> TensorForm {
        self.form
    }

    /// Bytes of one network input.
    #[must_use]
    pub const fn input_bytes(&self) -> usize {
        self.form.bytes()
    }

    /// Writes the network's input for one image into `input` (at least [`Detector::input_bytes`] long) and
    /// returns the way back from its pixels to the image's.
    ///
    /// # Errors
    /// [`ImageError`] for an image that cannot be brought to the input size.
    pub fn prepare(&self, image: &ImageRef<'_>, input: &mut [u8]) -> Result<BackMap, ImageError> {
        self.prepare_planned(image, input).map(|(back, _)| back)
    }

    /// As [`Detector::prepare`]; also says whether the plan had to be made.
    fn prepare_planned(&self, image: &ImageRef<'_>, input: &mut [u8]) -> Result<(BackMap, bool), ImageError> {
        let (plan, planned) = self.plans.get([image.width(), image.height()])?;
        let (expected, found) = (self.input_bytes(), input.len());
        let input = input
            .get_mut(..expected)
            .ok_or(ImageError::OutputLength { expected, found })?;
        let mut workspace = self
            .workspaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
            .unwrap_or_default();
        let applied = plan.apply(image, input, std::slice::from_mut(&mut workspace));
        self.workspaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(workspace);
        applied.map(|()| (plan.geometry().back, planned))
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
        Ok(self.detections(detections, back, frame_id))
    }

    fn detections(&self, found: Vec<Detection2D>, back: &BackMap, frame_id: &Arc<str>) -> Detections2D {
        Detections2D::new(
            found,
            Arc::clone(&self.labels),
            Arc::clone(&self.model),
            Arc::clone(frame_id),
            back.size_px(),
        )
    }
}

impl HostModel for Detector {
    fn name(&self) -> &Arc<str> {
        &self.model
    }

    fn sensor(&self) -> Sensor {
        Sensor::Camera
    }

    fn labels(&self) -> Vec<String> {
        self.labels.to_vec()
    }

    fn decode_at_least_px(&self) -> Option<[usize; 2]> {
        self.decode_to_scale.then_some(self.form.size_px)
    }

    fn prepare(
        &self,
        data: &SensorData<'_>,
        inputs: &mut [&mut [u8]],
    ) -> Result<PreparedFrame, PrepareError> {
        let SensorData::Image(picture) = data else {
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
        let pixels = &picture.pixels;
        let (back, planned) = self.prepare_planned(pixels, input)?;
        let back = back.from_decoded([pixels.width(), pixels.height()], picture.full_size_px);
        Ok(PreparedFrame {
            variant: 0,
            placement: Placement::Image(back),
            within_capacity: None,
            planned: Some(planned),
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

    fn call_params(&self) -> Vec<CallParam> {
        let Thresholds {
            score,
            nms_iou,
            max_detections,
        } = self.head.thresholds();
        let share = |name, now: f32, about| CallParam {
            name,
            kind: CallParamKind::Float {
                min: Some(0.0),
                max: Some(1.0),
            },
            default: Some(CallValue::Float(shortest(now))),
            about,
        };
        vec![
            share(SCORE, score, "lowest score that is reported"),
            share(OVERLAP, nms_iou, "largest overlap of two boxes of a class"),
            CallParam {
                name: MOST,
                kind: CallParamKind::Int {
                    min: Some(1),
                    max: Some(MAX_DETECTIONS),
                },
                default: Some(CallValue::Int(max_detections as i64)),
                about: "most detections of one image",
            },
        ]
    }

    fn finish_with(
        &self,
        output: &[f32],
        placement: &Placement,
        frame_id: &Arc<str>,
        params: &CallParams,
    ) -> Result<Detections, HeadError> {
        let Placement::Image(back) = placement else {
            return Err(HeadError::Placement);
        };
        let usual = self.head.thresholds();
        let share = |name, usual: f32| params.number(name).map_or(usual, |value| value as f32);
        let thresholds = Thresholds {
            score: share(SCORE, usual.score),
            nms_iou: share(OVERLAP, usual.nms_iou),
            max_detections: params
                .whole(MOST)
                .and_then(|most| usize::try_from(most).ok())
                .unwrap_or(usual.max_detections),
        };
        let found = self.head.decode_with(output, back, thresholds)?;
        Ok(Detections::Image(self.detections(found, back, frame_id)))
    }
}

/// The float64 that is written as the float32 is: 0.35 and not 0.3499999940395355.
fn shortest(value: f32) -> f64 {
    value.to_string().parse().unwrap_or_else(|_| value.into())
}
