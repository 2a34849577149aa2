//! Vertical half of a resize, and the exact halving, scalar forms.

use super::columns::Sampler;

/// Blends two rows of columns into `CHANNELS` bytes a pixel; lanes beyond them are left out.
///
/// `out = (((upper * w0) >> 16) + ((lower * w1) >> 16) + 2) >> 2`, clamped to 0..=255. Each product is cut
/// on its own: that, not the rounded sum, is what OpenCV's 16-bit vector code computes.
pub(super) fn blend_rows<const LANES: usize, const CHANNELS: usize>(
    [upper, lower]: [&[i16]; 2],
    [w0, w1]: [i16; 2],
    first: usize,
    out: &mut [u8],
) {
    let (upper, lower) = (upper.as_chunks::<LANES>().0, lower.as_chunks::<LANES>().0);
    let pixels = out.as_chunks_mut::<CHANNELS>().0;
    for ((pixel, upper), lower) in pixels.iter_mut().zip(upper).zip(lower).skip(first) {
        for ((value, &u), &l) in pixel.iter_mut().zip(upper).zip(lower) {
            let sum = ((i32::from(u) * i32::from(w0)) >> 16) + ((i32::from(l) * i32::from(w1)) >> 16);
            *value = ((sum + 2) >> 2).clamp(0, 255) as u8;
        }
    }
}

/// Means of 2 x 2 pixels, `(a + b + c + d + 2) >> 2`: what `INTER_LINEAR` becomes where both sides are
/// exactly halved; from output pixel `first` on.
pub(super) fn halve_rows<const LANES: usize, const CHANNELS: usize>(
    [upper, lower]: [&[u8]; 2],
    sampler: &Sampler<LANES>,
    first: usize,
    out: &mut [u8],
) {
    let pair_bytes = 2 * sampler.pixel_bytes;
    let pairs = upper.chunks_exact(pair_bytes).zip(lower.chunks_exact(pair_bytes));
    for (pixel, (upper, lower)) in out
        .as_chunks_mut::<CHANNELS>()
        .0
        .iter_mut()
        .zip(pairs)
        .skip(first)
    {
        for (value, &byte) in pixel.iter_mut().zip(&sampler.lane_byte) {
            let sum: u16 = [upper, lower]
                .iter()
                .flat_map(|pair| [pair[byte], pair[byte + sampler.pixel_bytes]])
                .map(u16::from)
                .sum();
            *value = ((sum + 2) >> 2) as u8;
        }
    }
}
