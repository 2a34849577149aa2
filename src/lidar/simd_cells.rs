//! The cell of every point, on the vectors that the processor has.
//!
//! One loop serves all instruction sets; the compiler makes it as wide as each allows. It holds additions, divisions
//! and comparisons only, none contracted, so the width changes no bit.

use super::grid::{CellOrder, PillarGridSpec};
use super::points::PointColumns;
use crate::numeric::Isa;

/// Cell numbers of points without a cell.
#[derive(Debug, Clone, Copy)]
pub(super) struct Nowhere {
    /// Outside the range.
    pub(super) out_of_range: u32,
    /// With a value that is NaN or infinite.
    pub(super) not_finite: u32,
}

impl Nowhere {
    /// The two numbers after those of the cells.
    pub(super) const fn after(num_cells: usize) -> Self {
        // Fits: a grid has at most 2²⁴ cells.
        Self {
            out_of_range: num_cells as u32,
            not_finite: num_cells as u32 + 1,
        }
    }
}

/// Writes, for the first `cells.len()` points, the rank of their cell in the grid's order, or why there is none.
pub(super) fn assign_cells(isa: Isa, points: &PointColumns<'_>, spec: &PillarGridSpec, cells: &mut [u32]) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an `Isa` other than `Scalar` is one that `Isa::detect` or `Isa::is_available` found.
        Isa::Avx512 if isa.is_available() => unsafe { assign_avx512(points, spec, cells) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx2 if isa.is_available() => unsafe { assign_avx2(points, spec, cells) },
        _ => assign(points, spec, cells),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2")]
fn assign_avx512(points: &PointColumns<'_>, spec: &PillarGridSpec, cells: &mut [u32]) {
    assign(points, spec, cells);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn assign_avx2(points: &PointColumns<'_>, spec: &PillarGridSpec, cells: &mut [u32]) {
    assign(points, spec, cells);
}

/// Points handled at once, so that their cells stay in the nearest cache while the columns after z are looked at.
const AT_ONCE: usize = 1024;

#[inline(always)]
fn assign(points: &PointColumns<'_>, spec: &PillarGridSpec, cells: &mut [u32]) {
    let nowhere = Nowhere::after(spec.num_cells());
    let ([min_x, min_y, min_z], [max_x, max_y, max_z]) = (spec.range_min_m(), spec.range_max_m());
    let [voxel_x, voxel_y, _] = spec.voxel_size_m();
    // Fit: sizes of a grid are u16.
    let (last_x, last_y) = (spec.grid_x() as i32 - 1, spec.grid_y() as i32 - 1);
    let (first, step_x, step_y) = match spec.order() {
        CellOrder::FlippedX => (last_x * (last_y + 1), -(last_y + 1), 1),
        CellOrder::Raster => (0, 1, last_x + 1),
    };

    for (chunk, cells) in cells.chunks_mut(AT_ONCE).enumerate() {
        let from = chunk * AT_ONCE;
        let [x, y, z] = points.xyz.map(|column| &column[from..from + cells.len()]);
        for (((cell, &x), &y), &z) in cells.iter_mut().zip(x).zip(y).zip(z) {
            let inside = (x >= min_x) & (x < max_x) & (y >= min_y) & (y < max_y) & (z >= min_z) & (z < max_z);
            // Inside, the quotients are not negative, so the whole part is the floor.
            let ix = (((x - min_x) / voxel_x) as i32).min(last_x);
            let iy = (((y - min_y) / voxel_y) as i32).min(last_y);
            let rank = first
                .wrapping_add(step_x.wrapping_mul(ix))
                .wrapping_add(step_y.wrapping_mul(iy));
            let finite = is_finite(x) & is_finite(y) & is_finite(z);
            let placed = if inside { rank as u32 } else { nowhere.out_of_range };
            *cell = if finite { placed } else { nowhere.not_finite };
        }
        for column in points.extra() {
            for (cell, &value) in cells.iter_mut().zip(&column[from..]) {
                *cell = if is_finite(value) {
                    *cell
                } else {
                    nowhere.not_finite
                };
            }
        }
    }
}

/// As `f32::is_finite`, in integers.
#[inline(always)]
fn is_finite(value: f32) -> bool {
    value.to_bits() & 0x7f80_0000 != 0x7f80_0000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_find_the_cells_that_one_lane_finds() {
        let spec = PillarGridSpec::new([-6.4, -3.2, -3.0], [6.4, 3.2, 5.0], [0.32, 0.32, 8.0]).unwrap();
        let specials = [
            f32::NAN,
            f32::INFINITY,
            -6.4,
            6.4,
            6.399_999_6,
            -0.0,
            3.2,
            3.199_999_8,
            1e30,
        ];
        let value = |i: usize| match i % 7 {
            0 => specials[i / 7 % specials.len()],
            _ => (i * 2_654_435_761 % 16_000) as f32 / 1000.0 - 8.0,
        };
        let column = |shift: usize| (0..3001).map(|i| value(i + shift)).collect::<Vec<f32>>();
        let (x, y, z, lag) = (column(0), column(1), column(5), column(11));
        for order in [CellOrder::FlippedX, CellOrder::Raster] {
            let spec = spec.with_order(order);
            for length in [0, 1, 15, 1024, 1025, 3001] {
                let points = PointColumns::new(&x, &y, &z, &[&lag]).unwrap();
                let mut scalar = vec![7; length];
                assign_cells(Isa::Scalar, &points, &spec, &mut scalar);
                for isa in [Isa::Avx2, Isa::Avx512]
                    .into_iter()
                    .filter(|isa| isa.is_available())
                {
                    let mut wide = vec![9; length];
                    assign_cells(isa, &points, &spec, &mut wide);
                    assert_eq!(scalar, wide, "{isa}");
                }
            }
        }
    }
}
