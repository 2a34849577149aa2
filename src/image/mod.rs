//! Camera pre-processing: plain functions on plain data.
//!
//! Pixels come in as an [`ImageRef`] (raw sensor bytes of any [`PixelFormat`], any row padding) or are decoded
//! from JPEG and PNG with [`decode_image`]; a [`PresetPlan`] turns them into the tensor a network was trained
//! on, as a deployed node would. Colour conversion, JPEG and resizing equal OpenCV 4.x bit for bit on every path,
//! so boxes can be compared with the public Python demos to the last digit. Nothing here knows a clock or a
//! file; any room below may call it.

mod area;
mod autoware_letterbox;
mod byte_map;
mod columns;
mod contraction;
mod convert;
mod decode;
mod decode_jpeg;
mod decode_png;
mod encode;
mod error;
mod format;
mod frame;
mod intrinsics;
mod jpeg_scan;
mod letterbox;
mod linear_f32;
mod nearest;
mod nearest_crop;
mod plans;
mod preset;
mod raster;
mod resize;
mod row_pair;
mod rows;
mod simd;
mod simd_area;
mod simd_convert;
mod simd_halve;
mod simd_letterbox;
mod simd_linear_f32;
mod simd_split;
mod simd_triangle;
mod sink;
mod source_rows;
mod staged_rows;
mod taps;
mod tensor_form;
mod tensor_rows;
mod triangle;
mod workspace;

pub use autoware_letterbox::AutowareLetterboxPlan;
pub use contraction::Contraction;
pub use decode::{DecodeError, DecodeOptions, Decoded, decode_image, decode_image_within, decode_into};
pub use encode::{EncodeError, encode_jpeg, encode_png};
pub use error::{ImageError, PresetOption};
pub use format::PixelFormat;
pub use frame::{Image, ImageRef, MAX_SIDE_PX};
pub use intrinsics::scale_intrinsics;
pub use letterbox::{BackMap, LetterboxPlan, PAD_VALUE};
pub use linear_f32::LinearF32Plan;
pub use nearest::NearestPlan;
pub use nearest_crop::NearestCropPlan;
pub use plans::{DEFAULT_PLANS, PlanCache, PlanCounts};
pub use preset::{Geometry, Preset, PresetOptions, PresetPlan};
pub use raster::{MAX_CHANNELS, Raster};
pub use resize::ResizePlan;
pub use simd::Kernels;
pub use tensor_form::{ChannelOrder, Layout, SampleType, TensorForm};
pub use triangle::{BevfusionCameraPlan, StreampetrPlan, TriangleGeometry};
pub use workspace::Workspace;
