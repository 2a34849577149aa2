//! CenterPoint, the LiDAR detector of Autoware: its parameters, read from Autoware's files as they are.
//!
//! Called by whoever builds a model; calls nothing but `outputs`. Files are read and judged before any weight is
//! loaded, and every error names file, line, key and what is expected.

mod params;

pub use params::{
    CenterPointParams, MAX_PARAM_FILE_BYTES, MAX_POINTS_PER_VOXEL, ParamError, ParamOrigin, REMAPPER_CLASSES,
    RemapperParams, RuntimeParam, RuntimeValue, class_label,
};
