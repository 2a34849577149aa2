//! The cameras of the ego car: plain shaded images, and where each road user is in them.
//!
//! Bodies are those that the LiDAR's beams meet, drawn face by face with a depth for every pixel; each pixel is then
//! coloured once. Light, colours and textures follow from the world's seed and from what each body is.

mod backdrop;
mod body;
mod config;
mod draw;
mod frames;
mod light;
mod mesh;
mod raster;
mod render;
mod shadow;
mod texture;
mod view;

pub use config::{CameraConfig, CameraRig};
pub use frames::{FrameError, FrameSet, FrameTotals};
pub(super) use light::Light;
pub(super) use render::Camera;

use crate::outputs::ObjectLabel;

/// An image of the world, and what is on it.
#[derive(Debug, Clone, PartialEq)]
pub struct CameraImage {
    /// Index of the camera.
    pub camera: usize,
    /// Red, green, blue; row by row from the top left.
    pub rgb: Vec<u8>,
    /// Road users with at least one visible pixel.
    pub truth: Vec<TrueBox>,
}

/// A road user in an image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrueBox {
    /// The same in every image and sweep, and no other's.
    pub id: u32,
    /// What it is.
    pub label: ObjectLabel,
    /// Left, top, right and bottom edge of all its pixels, also of those that something else hides, clipped to the
    /// image. A pixel i reaches from i to i + 1 here, as for detectors.
    pub box_px: [f32; 4],
    /// Pixels on which it is seen.
    pub visible_px: u32,
    /// Pixels on which it would be seen if nothing stood before it.
    pub silhouette_px: u32,
    /// Level distance of its middle from the camera, in metres.
    pub distance_m: f64,
}

impl TrueBox {
    /// Share of its pixels that are seen, 0 to 1.
    #[must_use]
    pub fn visible_share(&self) -> f32 {
        self.visible_px as f32 / self.silhouette_px.max(1) as f32
    }
}
