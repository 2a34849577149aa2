//! Camera pre-processing: plain functions on plain data.
//!
//! Pixels come in as an [`ImageRef`] (raw sensor bytes of any [`PixelFormat`], any row padding) or are decoded from JPEG and PNG
//! with [`decode_image`]; a [`LetterboxPlan`] turns them into the tensor a detector was trained on. Resizing
//! equals OpenCV 4.x `INTER_LINEAR` bit for bit on every path, so boxes can be compared with the public
//! Python demos to the last digit. Nothing here knows a thread, a clock or a file; any room below may call it.

mod columns;
mod convert;
mod decode;
mod decode_jpeg;
mod decode_png;
mod encode;
mod error;
mod format;
mod frame;
mod jpeg_scan;
mod letterbox;
mod preset;
mod resize;
mod rows;
mod simd;
mod simd_convert;
mod sink;
mod source_rows;
mod taps;

pub use decode::{DecodeError, DecodeOptions, Decoded, decode_image, decode_into};
pub use encode::{EncodeError, encode_jpeg, encode_png};
pub use error::ImageError;
pub use format::PixelFormat;
pub use frame::{Image, ImageRef, MAX_SIDE_PX};
pub use letterbox::{BackMap, LetterboxPlan, PAD_VALUE};
pub use preset::Preset;
pub use resize::{ResizePlan, Workspace};
pub use simd::Kernels;
