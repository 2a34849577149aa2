//! Horizontal half of a resize, scalar form: one source row becomes one row of blended columns.

use super::PixelFormat;
use super::taps::ColumnTaps;

/// How pixels are read from a source row: bytes from pixel to pixel, and the byte of each output lane.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sampler<const LANES: usize> {
    /// Bytes from one source pixel to the next.
    pub(super) pixel_bytes: usize,
    /// Byte of the source pixel that feeds each lane.
    pub(super) lane_byte: [usize; LANES],
}

impl<const LANES: usize> Sampler<LANES> {
    /// Picks these bytes of every pixel of a format.
    pub(super) const fn new(format: PixelFormat, lane_byte: [usize; LANES]) -> Self {
        Self {
            pixel_bytes: format.channels(),
            lane_byte,
        }
    }
}

impl<const LANES: usize> Sampler<LANES> {
    /// The same sampler where it has four lanes, for which there are vector kernels.
    pub(super) fn of_four(&self) -> Option<Sampler<4>> {
        let lane_byte = <[usize; 4]>::try_from(self.lane_byte.as_slice()).ok()?;
        Some(Sampler {
            pixel_bytes: self.pixel_bytes,
            lane_byte,
        })
    }
}

impl Sampler<4> {
    /// Picks blue, green and red; the fourth lane is to be left out.
    pub(super) const fn bgr(format: PixelFormat) -> Self {
        let [blue, green, red] = format.bgr_bytes();
        Self::new(format, [blue, green, red, red])
    }
}

/// `out[x][lane] = (left * w0 + right * w1) >> 4`: the 11-bit weights leave 19 bits, and dropping four
/// makes the blend fit 16 bits for the vertical half.
pub(super) fn blend_columns<const LANES: usize>(
    row: &[u8],
    sampler: &Sampler<LANES>,
    taps: &ColumnTaps,
    first: usize,
    out: &mut [i16],
) {
    let last_pixel = row.len() - sampler.pixel_bytes;
    let pixels = out.as_chunks_mut::<LANES>().0;
    for ((pixel, &left), &[w0, w1]) in pixels.iter_mut().zip(&taps.left).zip(&taps.weights).skip(first) {
        let left = left as usize * sampler.pixel_bytes;
        let right = (left + sampler.pixel_bytes).min(last_pixel);
        for (value, &byte) in pixel.iter_mut().zip(&sampler.lane_byte) {
            let blend =
                i32::from(row[left + byte]) * i32::from(w0) + i32::from(row[right + byte]) * i32::from(w1);
            *value = (blend >> 4) as i16;
        }
    }
}
