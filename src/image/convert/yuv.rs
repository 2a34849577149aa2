//! BT.601 with limited range (Y from 16 to 235) to blue, green, red, scalar form.
//!
//! The integers are those of OpenCV's `cvtColor` for `COLOR_YUV2BGR_UYVY`, `_YUY2`, `_NV12` and `_NV21`:
//! coefficients in 20-bit fixed point, all products and sums exact in 32 bits, one shift at the end.

/// Fraction bits of the coefficients.
pub(in super::super) const SHIFT: i32 = 20;
/// Y to every channel: 1.164.
pub(in super::super) const LUMA: i32 = 1_220_542;
/// U to blue: 2.018.
pub(in super::super) const BLUE_OF_U: i32 = 2_116_026;
/// U to green: -0.391.
pub(in super::super) const GREEN_OF_U: i32 = -409_993;
/// V to green: -0.813.
pub(in super::super) const GREEN_OF_V: i32 = -852_492;
/// V to red: 1.596.
pub(in super::super) const RED_OF_V: i32 = 1_673_527;
/// Y of black.
pub(in super::super) const BLACK: u8 = 16;
/// U and V of grey.
pub(in super::super) const GREY: u8 = 128;

/// Which of a pair of chroma bytes comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum ChromaOrder {
    /// U, then V: NV12.
    Uv,
    /// V, then U: NV21.
    Vu,
}

/// Two pixels that share one U and one V.
///
/// `channel = clamp((LUMA * max(y - 16, 0) + chroma + 2^19) >> 20)`, `chroma` being the sum of the
/// coefficients times `u - 128` and `v - 128`.
fn pair([y0, y1]: [u8; 2], u: u8, v: u8) -> [[u8; 3]; 2] {
    let (u, v) = (i32::from(u) - i32::from(GREY), i32::from(v) - i32::from(GREY));
    let half = 1 << (SHIFT - 1);
    let chroma = [
        BLUE_OF_U * u + half,
        GREEN_OF_V * v + GREEN_OF_U * u + half,
        RED_OF_V * v + half,
    ];
    [y0, y1].map(|y| {
        let luma = i32::from(y.saturating_sub(BLACK)) * LUMA;
        chroma.map(|c| ((luma + c) >> SHIFT).clamp(0, 255) as u8)
    })
}

/// A row of pairs of pixels in four bytes, Y at bytes `LUMA_AT` and `LUMA_AT + 2`, from pair `first` on.
pub(in super::super) fn packed_row<const LUMA_AT: usize>(row: &[u8], first: usize, out: &mut [u8]) {
    let pairs = row.as_chunks::<4>().0.iter();
    for (out, bytes) in out.as_chunks_mut::<6>().0.iter_mut().zip(pairs).skip(first) {
        let chroma_at = 1 - LUMA_AT;
        let y = [bytes[LUMA_AT], bytes[LUMA_AT + 2]];
        out.copy_from_slice(pair(y, bytes[chroma_at], bytes[chroma_at + 2]).as_flattened());
    }
}

/// A row of Y and its row of chroma pairs, from pair `first` on.
pub(in super::super) fn planar_row(
    luma: &[u8],
    chroma: &[u8],
    order: ChromaOrder,
    first: usize,
    out: &mut [u8],
) {
    let pairs = luma.as_chunks::<2>().0.iter().zip(chroma.as_chunks::<2>().0);
    for (out, (&y, &[a, b])) in out.as_chunks_mut::<6>().0.iter_mut().zip(pairs).skip(first) {
        let (u, v) = match order {
            ChromaOrder::Uv => (a, b),
            ChromaOrder::Vu => (b, a),
        };
        out.copy_from_slice(pair(y, u, v).as_flattened());
    }
}
