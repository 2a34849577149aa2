//! From files to both halves of a model.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{
    CenterPoint, CenterPointError, CenterPointGraph, CenterPointOptions, CenterPointParams,
    CenterPointWeights, HeadLayout, POINT_LANES, POINTS_PER_PILLAR, ParamError, WeightsError,
};
use crate::lidar::SlotFill;
use crate::models::BlockError;
use crate::models::pillars::FrameShape;
use crate::tensor::DType;
use crate::weights::{Safetensors, SafetensorsError};

/// Numbers of pillars that get a variant of their own: less is computed for a thin frame.
const BUCKETS: usize = 4;

/// What a model is loaded from, and what is said over its parameters.
#[derive(Debug, Clone)]
pub struct CenterPointSource {
    /// Name of the model.
    pub name: Arc<str>,
    /// A safetensors file of this project.
    pub weights: PathBuf,
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
}

impl CenterPointSource {
    /// Everything else as the weights say, in float32.
    #[must_use]
    pub fn new(name: &str, weights: &Path) -> Self {
        Self {
            name: name.into(),
            weights: weights.to_owned(),
            params: Vec::new(),
            storage: DType::F32,
            score_threshold: None,
            world_frame: None,
            shuffle_seed: 0,
            max_streams: 8,
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
        let (weights, own) = CenterPointWeights::read(&Safetensors::open(&self.weights)?)?;
        let (mut params, warnings) = from_files.unwrap_or((own, Vec::new()));
        if let Some(world) = &self.world_frame {
            params.world_frame_id.clone_from(world);
        }
        if let Some(threshold) = self.score_threshold {
            for bin in &mut params.score_thresholds {
                bin.fill(threshold.into());
            }
        }
        params.validate()?;
        let [grid_x, grid_y, _] = params.grid_size();
        let most = params.max_voxels.min(grid_x * grid_y);
        params.max_voxels = most;
        let buckets: Vec<usize> = (1..=BUCKETS)
            .map(|part| (most * part).div_ceil(BUCKETS))
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
        let layout = HeadLayout {
            cells: device.cells(),
            columns: device.columns(),
        };
        let options = CenterPointOptions {
            dtype: self.storage,
            fill: SlotFill::FirstPoint,
            shuffle_seed: Some(self.shuffle_seed),
            max_streams: self.max_streams,
            buckets,
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
    /// Parameters that do not fit the network.
    #[error(transparent)]
    Model(#[from] CenterPointError),
}
