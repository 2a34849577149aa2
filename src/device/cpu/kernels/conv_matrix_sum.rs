//! The sums of a matrix engine, as `conv_matrix` describes them.

use half::bf16;

use super::lanes::Lanes;
use crate::numeric::blockfloat::BLOCK_VALUES;

/// Output channels that are computed together, and that share an exponent in block floats.
pub(super) const WIDTH: usize = BLOCK_VALUES;
/// Most output pixels that are computed together: as many sums run beside each other.
pub(super) const AT_ONCE: usize = 4;
/// Positions of one step.
const STEP: usize = 16;
/// Positions of one tile.
const TILE: usize = 32;

/// One value for each channel of a panel.
pub(super) type Row = [f32; WIDTH];
/// The `[high, low]` parts of the weights of one position.
pub(super) type Weights = [Row; 2];

/// How products are summed.
#[derive(Debug, Clone, Copy)]
pub(super) struct SumRule {
    pub(super) passes: usize,
    /// Whether the engine's register is bf16.
    pub(super) narrow: bool,
    /// Whether partial sums are added up outside of the register, in its type.
    pub(super) in_packer: bool,
    /// Whether partial sums that are stored between tiles are bf16.
    pub(super) narrow_store: bool,
}

/// To nearest even where the type is bf16.
///
/// # Safety
/// The processor has `V`'s instruction set.
#[inline(always)]
unsafe fn rounded<V: Lanes>(narrow: bool, x: V) -> V {
    if !narrow {
        return x;
    }
    let mut places = [bf16::ZERO; WIDTH];
    // SAFETY: no vector is wider than `WIDTH`; the caller vouches for the instruction set.
    unsafe {
        x.store_bf16(places.as_mut_ptr());
        V::load_bf16(places.as_ptr())
    }
}

/// Sums over all positions for `P` pixels. `activations` holds the `[high, low]` parts of each position, pixel by pixel.
///
/// # Safety
/// The processor has `V`'s instruction set; there are activations of `P` pixels and as many sums.
#[inline(always)]
pub(super) unsafe fn sum<V: Lanes, const P: usize>(
    rule: &SumRule,
    activations: &[[f32; 2]],
    weights: &[Weights],
    sums: &mut [Row],
) {
    let positions = weights.len();
    assert!(
        V::N <= WIDTH && WIDTH.is_multiple_of(V::N) && sums.len() >= P && activations.len() >= P * positions
    );
    let (activations, weights) = (activations.as_ptr(), weights.as_ptr());
    for first in (0..WIDTH).step_by(V::N) {
        // SAFETY: positions are below those of the weights, pixels below `P`, and `first` is a whole number of vectors
        // inside a row; the caller vouches for the instruction set.
        unsafe {
            let zero = V::splat(0.0);
            let mut partial = [zero; P];
            for tile in (0..positions).step_by(TILE) {
                let end = positions.min(tile + TILE);
                let mut register = if rule.in_packer { [zero; P] } else { partial };
                for pass in 0..rule.passes {
                    let (of_weight, of_activation) = (pass & 1, pass >> 1);
                    for step in (tile..end).step_by(STEP) {
                        let mut products = [zero; P];
                        for position in step..end.min(step + STEP) {
                            let weight = &*weights.add(position);
                            let weight = V::load(weight[of_weight].as_ptr().add(first));
                            for (pixel, product) in products.iter_mut().enumerate() {
                                let parts = &*activations.add(pixel * positions + position);
                                *product = product.add(weight.mul(weight.like(parts[of_activation])));
                            }
                        }
                        for (register, product) in register.iter_mut().zip(products) {
                            *register = rounded(rule.narrow, register.add(product));
                        }
                    }
                }
                for (partial, register) in partial.iter_mut().zip(register) {
                    *partial = match rule.in_packer {
                        true => rounded(rule.narrow, partial.add(register)),
                        false => rounded(rule.narrow_store, register),
                    };
                }
            }
            for (sums, partial) in sums.iter_mut().zip(partial) {
                partial.store(sums.as_mut_ptr().add(first));
            }
        }
    }
}
