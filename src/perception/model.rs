//! What a model is to the runtime: a half on the host and a half on the device.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::{CallParam, CallParams, FrameSet, HeadError, InputSchema, ModelTrace, Taken};
use crate::device::Device;
use crate::image::{BackMap, ImageError, ImageRef};
use crate::lidar::Columns;
use crate::outputs::Detections;
use crate::trace::TraceOptions;

/// A kind of sensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sensor {
    /// Images.
    Camera,
    /// Point clouds.
    Lidar,
    /// Sets of what several sensors saw at one time.
    Set,
}

impl fmt::Display for Sensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Camera => "images",
            Self::Lidar => "point clouds",
            Self::Set => "sets of several sensors",
        })
    }
}

/// What a sensor saw.
#[derive(Debug, Clone, Copy)]
pub enum SensorData<'a> {
    /// An image.
    Image(Picture<'a>),
    /// A sweep.
    Sweep(Sweep<'a>),
    /// What several sensors saw at one time.
    Set(FrameSet<'a>),
}

/// One image of a camera.
#[derive(Debug, Clone, Copy)]
pub struct Picture<'a> {
    /// The pixels.
    pub pixels: ImageRef<'a>,
    /// Width and height of the camera's image in pixels, larger than that of the pixels where it was decoded at a
    /// fraction of its size.
    pub full_size_px: [usize; 2],
}

impl<'a> From<ImageRef<'a>> for Picture<'a> {
    fn from(pixels: ImageRef<'a>) -> Self {
        Self {
            pixels,
            full_size_px: [pixels.width(), pixels.height()],
        }
    }
}

/// One sweep of a LiDAR.
#[derive(Debug, Clone, Copy)]
pub struct Sweep<'a> {
    /// The stream that it belongs to: models keep earlier sweeps of each.
    pub stream: &'a str,
    /// Sensor stamp in nanoseconds.
    pub stamp_ns: i64,
    /// The points, in the sensor's frame.
    pub points: Columns<'a>,
    /// Rigid transform from the sensor's frame to the world's at the stamp, row by row; `None` where it is not known.
    pub world_from_sensor: Option<[f64; 16]>,
}

/// Where the results of a frame belong, kept from `prepare` to `finish`.
#[derive(Debug, Clone)]
pub enum Placement {
    /// The way back to the camera's image.
    Image(BackMap),
    /// The network saw the sensor's frame.
    Sensor,
}

/// What `prepare` made of a frame.
#[derive(Debug, Clone)]
pub struct PreparedFrame {
    /// Which of the model's captured variants is to run.
    pub variant: usize,
    /// Where results belong.
    pub placement: Placement,
    /// Whether all that the sensor saw fits into the network's input; `None` where nothing can be too much.
    pub within_capacity: Option<bool>,
    /// Whether tables for the frame's size had to be made first; `None` where none are needed.
    pub planned: Option<bool>,
}

/// Why a frame cannot be prepared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// An image that cannot be brought to the network's input.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Another kind of sensor.
    #[error("the model takes {expected}")]
    WrongSensor {
        /// What it takes.
        expected: Sensor,
    },
    /// Earlier sweeps are to be added, and it is not known where the vehicle was.
    #[error(
        "where the sensor was at {stamp_ns} ns is not known, and earlier sweeps are to be added to this one: it takes the \
         transform from the sensor's frame to the world's"
    )]
    NoPose {
        /// Stamp of the sweep in nanoseconds.
        stamp_ns: i64,
    },
    /// A sweep that cannot be taken.
    #[error("{0}")]
    Cloud(String),
    /// An input that is not as large as the model's.
    #[error("input {input} has {found} bytes, the model needs {expected}")]
    InputLength {
        /// Position of the input.
        input: usize,
        /// Bytes that the model needs.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
}

/// The host half of a model. Shared by all workers.
pub trait HostModel: fmt::Debug + Send + Sync {
    /// Name of the model.
    fn name(&self) -> &Arc<str>;

    /// What it takes.
    fn sensor(&self) -> Sensor;

    /// Width and height in pixels that are enough for a compressed image, where a decoder may take a short cut to a
    /// smaller image that is not the same to the bit; `None`: every image is decoded in full.
    fn decode_at_least_px(&self) -> Option<[usize; 2]> {
        None
    }

    /// Writes the network's inputs for one frame.
    ///
    /// # Errors
    /// [`PrepareError`]: the frame is lost, the model goes on.
    fn prepare(&self, data: &SensorData<'_>, inputs: &mut [&mut [u8]])
    -> Result<PreparedFrame, PrepareError>;

    /// As [`Self::prepare`] for models that ask where and when images were taken; others do not look at it.
    ///
    /// # Errors
    /// As [`Self::prepare`].
    fn prepare_taken(
        &self,
        data: &SensorData<'_>,
        _taken: &Taken<'_>,
        inputs: &mut [&mut [u8]],
    ) -> Result<PreparedFrame, PrepareError> {
        self.prepare(data, inputs)
    }

    /// Decodes the network's output.
    ///
    /// # Errors
    /// [`HeadError`] if the output has another size than the model expects.
    fn finish(
        &self,
        output: &[f32],
        placement: &Placement,
        frame_id: &Arc<str>,
    ) -> Result<Detections, HeadError>;

    /// Parameters that a caller may set for one frame.
    fn call_params(&self) -> Vec<CallParam> {
        Vec::new()
    }

    /// As [`Self::finish`] with parameters for this frame alone, checked against [`Self::call_params`].
    ///
    /// # Errors
    /// As [`Self::finish`]; [`HeadError::Params`] for values that do not fit each other.
    fn finish_with(
        &self,
        output: &[f32],
        placement: &Placement,
        frame_id: &Arc<str>,
        _params: &CallParams,
    ) -> Result<Detections, HeadError> {
        self.finish(output, placement, frame_id)
    }

    /// Class names by number.
    fn labels(&self) -> Vec<String> {
        Vec::new()
    }

    /// How many earlier sweeps of a stream are added to each: 0 for a model that looks at one frame alone.
    fn past_sweeps(&self) -> usize {
        0
    }

    /// Forgets what was kept of a stream. Nothing happens for one that is not known.
    fn forget(&self, _stream: &str) {}

    /// What the model takes as plain arrays.
    fn input_schema(&self) -> InputSchema {
        InputSchema::of(self.sensor())
    }
}

/// The device half of a model, as long as it is on the host.
pub trait DeviceModel: fmt::Debug + Send + Sync {
    /// Puts weights and persistent tensors on a device and warms the network up. To be done for every model before
    /// the first [`ModelTrace::capture`].
    ///
    /// # Errors
    /// Device errors, or an operation that the device cannot do.
    fn build(
        &self,
        device: &mut dyn Device,
        options: TraceOptions,
    ) -> Result<ModelTrace, Box<dyn std::error::Error + Send + Sync>>;

    /// Names of the variants, in the order in which [`PreparedFrame::variant`] counts them. Each can do what those
    /// before it can.
    fn variants(&self) -> Vec<String> {
        vec!["default".to_owned()]
    }

    /// As [`Self::build`] with only some of the variants, by their positions; the last one is always there. A frame that
    /// is prepared for a variant that is left out runs in the next one that is there.
    ///
    /// # Errors
    /// As [`Self::build`].
    fn build_variants(
        &self,
        device: &mut dyn Device,
        options: TraceOptions,
        _variants: &BTreeSet<usize>,
    ) -> Result<ModelTrace, Box<dyn std::error::Error + Send + Sync>> {
        self.build(device, options)
    }
}

/// What a model has on a device besides its traces.
pub trait DeviceWeights: fmt::Debug + Send {
    /// Frees them.
    fn release(&mut self, device: &mut dyn Device);
}
