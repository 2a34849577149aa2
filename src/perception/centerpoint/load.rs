//! From files to both halves of a model.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{
    CenterPoint, CenterPointError, CenterPointGraph, CenterPointOptions, CenterPointParams,
    CenterPointWeights, HeadLayout, POINT_LANES, POINTS_PER_PILLAR, ParamError, PointRows, WeightsError,
    onnx::OnnxNetwork,
};
use crate::lidar::SlotFill;
use crate::models::pillars::FrameShape;
use crate::models::{BlockError, ImportError};
use crate::tensor::DType;
use crate::weights::{Safetensors, SafetensorsError};

/// What a model is loaded from, and what is said over its parameters.
#[derive(Debug, Clone)]
pub struct CenterPointSource {
    /// Name of the model.
    pub name: Arc<str>,
    /// A safetensors file of this project, or Autoware's `pts_backbone_neck_head_*.onnx`.
    pub weights: PathBuf,
    /// Autoware's `pts_voxel_encoder_*.onnx`, for weights in ONNX.
    pub encoder: Option<PathBuf>,
    /// Autoware's parameter files in place of those that the weights bring, the later ones over the earlier.
    pub params: Vec<PathBuf>,
    /// Storage of points, weights and activations: float32 or bfloat16.
    pub storage: DType,
    /// One threshold for every class and distance.
    pub score_threshold: Option<f32>,
    /// Frame in which the vehicle moves.
    pub world_frame: Option<String>,
    /// Seed of the choice of points where a pillar has more than it holds.
    pub shuffle_seed: u64,
    /// Most streams whose earlier sweeps are kept.
    pub max_streams: usize,
    /// Numbers of pillars that get a variant of their own, at equal distances: a thin frame computes less. At least 1.
    pub variants: usize,
}

impl CenterPointSource {
    /// Everything else as the weights say, in float32.
    #[must_use]
    pub fn new(name: &str, weights: &Path) -> Self {
        Self {
            name: name.into(),
            weights: weights.to_owned(),
            encoder: None,
            params: Vec::new(),
            storage: DType::F32,
            score_threshold: None,
            world_frame: None,
            shuffle_seed: 0,
            max_streams: 8,
            variants: 4,
        }
    }

    /// Loads both halves. Parameters are judged before anything is built of the weights.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn load(&self) -> Result<LoadedCenterPoint, LoadError> {
        let from_files = match self.params.is_empty() {
            true => None,
            false => Some(CenterPointParams::from_files(&self.params)?),
        };
        let is_onnx = self.weights.extension().is_some_and(|ending| ending == "onnx");
        match (&self.encoder, is_onnx, from_files) {
            (Some(encoder), true, Some((params, warnings))) => self.load_onnx(encoder, params, warnings),
            (Some(_), true, None) => Err(LoadError::Form(
                "networks out of ONNX do not say their parameters: give Autoware's parameter files".into(),
            )),
            (None, true, _) => Err(LoadError::Form(format!(
                "{} is one of two files: give pts_voxel_encoder_*.onnx as the encoder",
                self.weights.display()
            ))),
            (Some(encoder), false, _) => Err(LoadError::Form(format!(
                "{} is given as the encoder, but {} is no ONNX file and brings its own",
                encoder.display(),
                self.weights.display()
            ))),
            (None, false, from_files) => self.load_blocks(from_files),
        }
    }

    fn load_onnx(
        &self,
        encoder: &Path,
        params: CenterPointParams,
        warnings: Vec<String>,
    ) -> Result<LoadedCenterPoint, LoadError> {
        let params = self.adjusted(params)?;
        let [grid_x, grid_y] = params.grid_size();
        let network = OnnxNetwork::open(encoder, &self.weights, &params, params.max_voxels, self.storage)?;
        let shape = FrameShape {
            pillars: params.max_voxels,
            points: params.max_points_per_voxel,
            features: params.encoder_in_feature_size,
            cells: grid_x * grid_y,
            dtype: DType::F32,
        };
        let device = CenterPointGraph::of_onnx(Arc::clone(&self.name), network, shape, [grid_y, grid_x])
            .map_err(|error| LoadError::Form(error.to_string()))?;
        let options = CenterPointOptions {
            rows: PointRows::Dense,
            fill: SlotFill::Zeros,
            shuffle_seed: Some(self.shuffle_seed),
            max_streams: self.max_streams,
            buckets: vec![params.max_voxels],
        };
        self.put_together(params, options, device, warnings)
    }

    fn load_blocks(
        &self,
        from_files: Option<(CenterPointParams, Vec<String>)>,
    ) -> Result<LoadedCenterPoint, LoadError> {
        let (weights, own) = CenterPointWeights::read(&Safetensors::open(&self.weights)?)?;
        let (params, warnings) = from_files.unwrap_or((own, Vec::new()));
        let params = self.adjusted(params)?;
        let [grid_x, grid_y] = params.grid_size();
        let (most, variants) = (params.max_voxels, self.variants.max(1));
        let buckets: Vec<usize> = (1..=variants)
            .map(|part| (most * part).div_ceil(variants))
            .collect();
        let shape = FrameShape {
            pillars: most,
            points: POINTS_PER_PILLAR,
            features: POINT_LANES,
            cells: grid_x * grid_y,
            dtype: self.storage,
        };
        let canvas = [grid_y, grid_x];
        let device = CenterPointGraph::new(Arc::clone(&self.name), &weights, shape, canvas, buckets.clone())?;
        let options = CenterPointOptions {
            rows: match self.storage {
                DType::Bf16 => PointRows::WideBf16,
                _ => PointRows::Wide32,
            },
            fill: SlotFill::FirstPoint,
            shuffle_seed: Some(self.shuffle_seed),
            max_streams: self.max_streams,
            buckets,
        };
        self.put_together(params, options, device, warnings)
    }

    /// The parameters with what is said over them, and no more pillars than there are cells.
    fn adjusted(&self, mut params: CenterPointParams) -> Result<CenterPointParams, LoadError> {
        if let Some(world) = &self.world_frame {
            params.world_frame_id.clone_from(world);
        }
        if let Some(threshold) = self.score_threshold {
            for bin in &mut params.score_thresholds {
                bin.fill(threshold.into());
            }
        }
        params.validate()?;
        let [grid_x, grid_y] = params.grid_size();
        params.max_voxels = params.max_voxels.min(grid_x * grid_y);
        Ok(params)
    }

    fn put_together(
        &self,
        params: CenterPointParams,
        options: CenterPointOptions,
        device: CenterPointGraph,
        warnings: Vec<String>,
    ) -> Result<LoadedCenterPoint, LoadError> {
        let layout = HeadLayout {
            cells: device.cells(),
            columns: device.columns(),
        };
        Ok(LoadedCenterPoint {
            host: CenterPoint::new(Arc::clone(&self.name), params, options, layout)?,
            device,
            warnings,
        })
    }
}

/// Both halves of a model.
#[derive(Debug)]
pub struct LoadedCenterPoint {
    /// What runs on the host.
    pub host: CenterPoint,
    /// What runs on the device.
    pub device: CenterPointGraph,
    /// What is odd about the parameter files, one line each.
    pub warnings: Vec<String>,
}

/// Why a model cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The parameter files.
    #[error(transparent)]
    Params(#[from] ParamError),
    /// The file of the weights.
    #[error(transparent)]
    File(#[from] SafetensorsError),
    /// What is in it.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// Layers that do not follow each other.
    #[error(transparent)]
    Network(#[from] BlockError),
    /// A network of ONNX that cannot be lowered.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// Files that do not make a model.
    #[error("{0}")]
    Form(String),
    /// Parameters that do not fit the network.
    #[error(transparent)]
    Model(#[from] CenterPointError),
}
