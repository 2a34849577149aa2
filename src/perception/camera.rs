//! From files to both halves of a camera detector.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{
    Detector, DetectorGraph, GraphError, Head, HeadError, HeadKind, LabelError, PixelInput, Thresholds,
    coco_80, read_labels,
};
use crate::image::{ImageError, Preset, PresetOptions, SampleType};
use crate::tensor::DType;
use crate::weights::{OnnxError, OnnxModel, WeightCache, WeightFormat};

/// Version of what is kept of a network's weights: the crate's, and one that grows whenever they are stored in another way.
const STORED_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), ".stored1");

/// What a camera detector is loaded from, and what is said over it.
#[derive(Debug, Clone)]
pub struct CameraSource {
    /// Name of the model.
    pub name: Arc<str>,
    /// The network: an ONNX file with one image in and one head out.
    pub weights: PathBuf,
    /// Family of the network's output.
    pub head: HeadKind,
    /// How images become the network's input.
    pub preset: Preset,
    /// What is said over the preset.
    pub options: PresetOptions,
    /// Names of the classes, one a line; `None`: the 80 of COCO.
    pub labels: Option<PathBuf>,
    /// What is reported where a caller says nothing else.
    pub thresholds: Thresholds,
    /// Storage of weights and activations on the device: float32 or bfloat16.
    pub storage: DType,
    /// How weights are stored until the device takes them.
    pub weight_format: WeightFormat,
    /// Whether compressed images may be decoded at a fraction of their size: faster, and not the same to the bit.
    pub decode_to_scale: bool,
    /// Numbers of frames for which the network is captured beside the single one, 2 and more, ascending.
    pub batch_sizes: Vec<usize>,
}

impl CameraSource {
    /// A network of a family with what its authors do to images, the classes of COCO, float32, and thresholds of 0.35
    /// (score), 0.7 (overlap) and 100 detections.
    #[must_use]
    pub fn new(name: &str, weights: &Path, head: HeadKind, preset: Preset) -> Self {
        Self {
            name: name.into(),
            weights: weights.to_owned(),
            head,
            preset,
            options: PresetOptions::DEPLOYED,
            labels: None,
            thresholds: Thresholds {
                score: 0.35,
                nms_iou: 0.7,
                max_detections: 100,
            },
            storage: DType::F32,
            weight_format: WeightFormat::Fp32,
            decode_to_scale: false,
            batch_sizes: Vec::new(),
        }
    }

    /// Loads both halves.
    ///
    /// # Errors
    /// [`CameraLoadError`].
    pub fn load(&self) -> Result<LoadedCamera, CameraLoadError> {
        let onnx = OnnxModel::open(&self.weights)?;
        let (layout, samples) = self.preset.deployed_form();
        let samples = self.options.samples.unwrap_or(samples);
        let scale = match samples {
            SampleType::U8 => self.preset.byte_scale().ok_or(CameraLoadError::Bytes {
                preset: self.preset.name(),
            })?,
            _ => 1.0,
        };
        let input = PixelInput {
            samples,
            layout: self.options.layout.unwrap_or(layout),
            scale,
        };
        let name = Arc::clone(&self.name);
        let cache = WeightCache::new("camera", onnx.sha256(), STORED_VERSION);
        let (storage, format) = (self.storage, self.weight_format);
        let graph = DetectorGraph::lower_cached(name, &onnx, storage, format, input, &cache)?;
        tracing::debug!(hits = cache.hits(), misses = cache.misses(), "stored weights");
        let graph = graph.with_batches(&onnx, &self.batch_sizes);
        let head = Head::new(self.head, graph.input_px(), graph.output_dims(), self.thresholds)?;
        let labels = match &self.labels {
            None => coco_80(),
            Some(path) => read_labels(path)?,
        };
        if labels.len() != head.classes() {
            return Err(CameraLoadError::Classes {
                network: head.classes(),
                labels: labels.len(),
            });
        }
        let name = Arc::clone(&self.name);
        let host = Detector::new(name, self.preset, self.options, graph.input_px(), head, labels)?
            .with_decode_to_scale(self.decode_to_scale);
        Ok(LoadedCamera { host, device: graph })
    }
}

/// Both halves of a camera detector.
#[derive(Debug)]
pub struct LoadedCamera {
    /// What runs on the host.
    pub host: Detector,
    /// What runs on the device.
    pub device: DetectorGraph,
}

/// Why a camera detector cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CameraLoadError {
    /// The file of the network.
    #[error(transparent)]
    File(#[from] OnnxError),
    /// A network that is no detector, or that cannot be lowered.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// An output of another form than the family's.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// The file of the class names.
    #[error(transparent)]
    Labels(#[from] LabelError),
    /// Another number of class names than the network has classes.
    #[error(
        "the network has {network} classes, the label list {labels} names: set `labels` to a file with one name a line"
    )]
    Classes {
        /// Classes of the network.
        network: usize,
        /// Names in the list.
        labels: usize,
    },
    /// Bytes for a network whose preset normalises pixels.
    #[error("`{preset}` normalises pixels, which bytes leave out: set `upload` to bf16 or fp32")]
    Bytes {
        /// Name of the preset.
        preset: &'static str,
    },
    /// A preset that does not suit the network or its options.
    #[error(transparent)]
    Preset(#[from] ImageError),
}
