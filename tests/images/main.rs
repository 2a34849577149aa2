//! Images: decoding, conversion, resizing and what detectors are fed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tiny.rs"]
mod tiny;

mod camera_detector;
mod image;
mod image_decode;
mod image_formats;
mod image_kernels;
mod image_messages;
mod image_presets;
mod image_resize;
