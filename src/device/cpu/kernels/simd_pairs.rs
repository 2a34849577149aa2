//! Pairs of bf16 products: AVX512_BF16.

use std::arch::x86_64::*;
use std::mem::transmute;

use super::dot::{DOT_LANES, DOT_ROWS, DotFn, DotOps, DotTile, Run, nothing_to_ready, nothing_to_undo};
use super::tile::for_pixels;

/// The functions.
pub(super) static OPS: DotOps = DotOps {
    most_rows: MOST_ROWS,
    tile: |vectors, rows| TILES[vectors - 1][rows - 1],
    begin: nothing_to_ready,
    end: nothing_to_undo,
};

/// Pixels whose sums, with weights, fill the registers.
const MOST_ROWS: usize = 14;

/// Whether the processor has the instruction.
pub(super) fn is_available() -> bool {
    super::Isa::Avx512.is_available() && is_x86_feature_detected!("avx512bf16")
}

/// Whether the instruction multiplies faster than fp32 does: on AMD's processors (from Zen 4 on) it starts as often as a
/// fused multiply-add of fp32, on Intel's a quarter to half as often.
#[allow(
    unused_unsafe,
    reason = "asking the processor became safe in a later version of the language"
)]
pub(super) fn is_fast() -> bool {
    // SAFETY: every processor of this architecture has CPUID.
    let vendor = unsafe { __cpuid(0) };
    [vendor.ebx, vendor.edx, vendor.ecx]
        .map(u32::to_le_bytes)
        .concat()
        == b"AuthenticAMD"
}

macro_rules! tiles {
    ($($rows:literal)*) => {
        static TILES: [[DotFn; MOST_ROWS]; 2] = [[$(tile::<$rows, 1>),*], [$(tile::<$rows, 2>),*]];
    };
}
tiles! { 1 2 3 4 5 6 7 8 9 10 11 12 13 14 }

/// # Safety
/// As [`DotFn`].
#[expect(clippy::needless_range_loop, reason = "vectors are an index of the formula")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
unsafe fn tile<const ROWS: usize, const VECTORS: usize>(tile: &DotTile) {
    let width = VECTORS * DOT_LANES;
    // SAFETY: every address lies inside what the caller promises.
    unsafe {
        let count = tile.end.offset_from(tile.runs) as usize;
        let runs = std::slice::from_raw_parts(tile.runs, count);
        for strip in 0..tile.strips {
            let mut w = [_mm512_setzero_ps(); VECTORS];
            for v in 0..VECTORS {
                w[v] = _mm512_loadu_ps(tile.panel.add(v * DOT_LANES));
            }
            let mut sums = [w; ROWS];
            let mut weights = tile.panel.add(width);
            for run in runs {
                let Run { base, step } = run[strip];
                for pair in 0..tile.chunks * tile.chunk / 2 {
                    for v in 0..VECTORS {
                        w[v] = _mm512_loadu_ps(weights.add(v * DOT_LANES));
                    }
                    let first = base.wrapping_add(4 * pair);
                    for_pixels!(ROWS, p => {
                        let two = first.wrapping_offset(p as isize * step).cast::<i32>().read_unaligned();
                        let two = _mm512_set1_epi32(two);
                        for v in 0..VECTORS {
                            sums[p][v] = _mm512_dpbf16_ps(
                                sums[p][v],
                                transmute::<__m512i, __m512bh>(two),
                                transmute::<__m512, __m512bh>(w[v]),
                            );
                        }
                    });
                    weights = weights.add(width);
                }
            }
            let to = tile.sums.add(strip * DOT_ROWS * width);
            for_pixels!(ROWS, p => {
                for v in 0..VECTORS {
                    _mm512_storeu_ps(to.add(p * width + v * DOT_LANES), sums[p][v]);
                }
            });
        }
    }
}
