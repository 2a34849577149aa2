//! Rows of every pixel format as interleaved pixels: the `cvtColor` of this room, one row at a time.

pub(super) mod bayer;
pub(super) mod mono;
pub(super) mod yuv;

use self::bayer::Mosaic;
use self::yuv::ChromaOrder;
use super::{ImageRef, Kernels, PixelFormat};

/// Writes row `y` of `image` into `out` as pixels of [`PixelFormat::interleaved`].
///
/// # Panics
/// If `y` is not below the height or `out` is not one row long.
pub(super) fn convert_row(image: &ImageRef<'_>, y: usize, kernels: Kernels, out: &mut [u8]) {
    let chroma = || image.row(image.height() + y / 2);
    let mut mosaic = |at| bayer_row(image, y, Mosaic { red_at: at }, kernels, out);
    match image.format() {
        PixelFormat::Rgb8
        | PixelFormat::Bgr8
        | PixelFormat::Rgba8
        | PixelFormat::Bgra8
        | PixelFormat::Mono8 => out.copy_from_slice(image.row(y)),
        PixelFormat::Mono16 => mono::narrow(image.row(y), u16::from_le_bytes, out),
        PixelFormat::Mono16Be => mono::narrow(image.row(y), u16::from_be_bytes, out),
        PixelFormat::Yuv422 => kernels.packed_yuv_row::<1>(image.row(y), out),
        PixelFormat::Yuv422Yuy2 => kernels.packed_yuv_row::<0>(image.row(y), out),
        PixelFormat::Nv12 => kernels.planar_yuv_row(image.row(y), chroma(), ChromaOrder::Uv, out),
        PixelFormat::Nv21 => kernels.planar_yuv_row(image.row(y), chroma(), ChromaOrder::Vu, out),
        PixelFormat::BayerRggb8 => mosaic([0, 0]),
        PixelFormat::BayerBggr8 => mosaic([1, 1]),
        PixelFormat::BayerGbrg8 => mosaic([0, 1]),
        PixelFormat::BayerGrbg8 => mosaic([1, 0]),
    }
}

/// A row of a colour mosaic; the outermost rows and columns repeat their inner neighbours.
fn bayer_row(image: &ImageRef<'_>, y: usize, mosaic: Mosaic, kernels: Kernels, out: &mut [u8]) {
    let inner_y = y.clamp(1, image.height() - 2);
    let rows = [inner_y - 1, inner_y, inner_y + 1].map(|y| image.row(y));
    kernels.bayer_row(rows, mosaic.row(inner_y), out);
    let (end, pixel) = (out.len(), 3);
    out.copy_within(pixel..2 * pixel, 0);
    out.copy_within(end - 2 * pixel..end - pixel, end - pixel);
}
