//! CenterPoint: objects on the road from LiDAR sweeps, as Autoware's `autoware_lidar_centerpoint` finds them.
//!
//! [`CenterPointParams`] are Autoware's parameters, read from its files as they are; [`CenterPointWeights`] the network of
//! a safetensors file. [`CenterPoint`] is the half on the host, [`CenterPointGraph`] the half on the device;
//! [`CenterPointSource`] loads both.

mod device;
mod host;
mod load;
mod onnx;
mod params;
mod weights;

pub use super::param_file::{MAX_PARAM_FILE_BYTES, ParamError, ParamOrigin};
pub use device::CenterPointGraph;
pub use host::{CenterPoint, CenterPointOptions, HeadLayout, PointRows};
pub use load::{CenterPointSource, LoadError, LoadedCenterPoint};
pub use params::{CenterPointParams, MAX_POINTS_PER_VOXEL, RemapperParams, RuntimeParam, RuntimeValue};
pub use weights::{CenterPointWeights, POINT_LANES, WeightsError};

/// Points of a pillar in the device's memory.
pub const POINTS_PER_PILLAR: usize = 32;

/// Why parameters and network do not make a CenterPoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CenterPointError {
    /// The parameters are wrong in themselves.
    #[error(transparent)]
    Params(#[from] ParamError),
    /// A parameter does not fit the others or the network.
    #[error("`{key}` does not fit: {reason}")]
    Unfit {
        /// The parameter, as Autoware's files spell it.
        key: String,
        /// Why.
        reason: String,
    },
}

impl CenterPointError {
    fn unfit(key: &str, reason: String) -> Self {
        Self::Unfit {
            key: key.to_owned(),
            reason,
        }
    }
}
