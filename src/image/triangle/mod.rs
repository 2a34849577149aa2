//! The triangle filter that Autoware's camera networks resize with on the GPU, bit for bit.
//!
//! One kernel in two packages of `autoware_universe`: `camera_streampetr` (`preprocess_kernel.cu`) normalises
//! the result, `bevfusion` (`camera_preprocess_kernel.cu`) cuts it to bytes. Every value is a weighted mean of
//! a window of source pixels, wider the more the image shrinks, in single precision, pixel after pixel and row
//! after row. A sum in another order, or of columns first and rows later, has other bits.
//!
//! [`TriangleGeometry`] places the result in the resized image, `taps` holds the windows and weights of both axes,
//! [`TriangleResize`] computes the means, and the plans finish them.

mod bevfusion;
mod geometry;
mod resize;
mod streampetr;
mod taps;

pub use bevfusion::BevfusionCameraPlan;
pub use geometry::TriangleGeometry;
pub use streampetr::StreampetrPlan;

pub(super) use resize::{SUMS, Share, TriangleScratch, accumulate};
pub(super) use taps::{BLOCK, ColumnTaps};
