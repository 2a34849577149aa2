//! Transposed convolutions as ordinary ones.
//!
//! Output rows that lie a stride apart read the same taps of the kernel, so each such phase is a convolution of stride
//! 1 over the input, written through a view with the stride's step. No product with an inserted zero is computed, and a
//! kernel as large as the stride becomes one product per pixel and phase: depth-to-space is the view.

use crate::device::Geometry2d;
use crate::tensor::{TensorError, View};

/// Sizes of a transposed convolution along one axis: output `o` gets `input[i] * kernel[k]` wherever
/// `o = i * stride + k - pad`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Axis {
    pub(super) kernel: usize,
    pub(super) stride: usize,
    /// Elements cut off in front of the output.
    pub(super) pad: usize,
    pub(super) input: usize,
    pub(super) output: usize,
}

/// The outputs `first, first + stride, ...` along one axis, as a convolution of stride 1.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AxisPhase {
    first: usize,
    count: usize,
    /// First input element that is read, and how many.
    input: (usize, usize),
    pad: usize,
    /// Positions in the kernel, in the order of the convolution's taps.
    taps: Vec<usize>,
}

/// One phase of a transposed convolution over rows and columns; pairs are `[rows, columns]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Phase {
    /// First output element.
    pub(super) first: [usize; 2],
    /// Output elements, a stride apart.
    pub(super) count: [usize; 2],
    /// First input element that is read.
    pub(super) input_first: [usize; 2],
    /// Input elements.
    pub(super) input_count: [usize; 2],
    /// Geometry of the convolution.
    pub(super) geometry: Geometry2d,
    /// Positions in the kernel, in the order of the convolution's taps.
    pub(super) taps: [Vec<usize>; 2],
}

impl Axis {
    fn phases(&self) -> Result<Vec<AxisPhase>, String> {
        let Self {
            kernel,
            stride,
            pad,
            input,
            output,
        } = *self;
        if kernel < stride || stride == 0 {
            return Err(format!(
                "a kernel of {kernel}, which leaves gaps at stride {stride}"
            ));
        }
        let mut phases = Vec::new();
        for first in 0..stride.min(output) {
            // Taps of this phase: `least, least + stride, ...`, the last of them read first.
            let (least, shift) = ((first + pad) % stride, (first + pad) / stride);
            let taps: Vec<usize> = (least..kernel).step_by(stride).rev().collect();
            let count = (output - first).div_ceil(stride);
            let reach = taps.len() - 1;
            let begin = shift.saturating_sub(reach);
            let end = (count + shift).min(input);
            if begin >= end {
                return Err(format!("{output} outputs of {input} inputs"));
            }
            phases.push(AxisPhase {
                first,
                count,
                input: (begin, end - begin),
                pad: reach.saturating_sub(shift),
                taps,
            });
        }
        Ok(phases)
    }
}

/// The phases of a transposed convolution over `[rows, columns]`, or what of it is not supported.
pub(super) fn phases(axes: [Axis; 2]) -> Result<Vec<Phase>, String> {
    let (rows, columns) = (axes[0].phases()?, axes[1].phases()?);
    let pairs = rows
        .iter()
        .flat_map(|row| columns.iter().map(move |column| [row, column]));
    Ok(pairs
        .map(|pair| Phase {
            first: pair.map(|p| p.first),
            count: pair.map(|p| p.count),
            input_first: pair.map(|p| p.input.0),
            input_count: pair.map(|p| p.input.1),
            geometry: Geometry2d {
                kernel: pair.map(|p| p.taps.len()),
                stride: [1; 2],
                dilation: [1; 2],
                pad_begin: pair.map(|p| p.pad),
            },
            taps: pair.map(|p| p.taps.clone()),
        })
        .collect())
}

/// Weights `[Cin, Cout / groups, KH, KW]` in the order of an ordinary convolution, `[Cout, Cin / groups, KH, KW]`, taps
/// left where they are.
pub(super) fn by_output(
    weight: &[f32],
    [cin, group_out, kernel_rows, kernel_columns]: [usize; 4],
    groups: usize,
) -> Vec<f32> {
    let (group_in, taps) = (cin / groups, kernel_rows * kernel_columns);
    let mut made = Vec::with_capacity(weight.len());
    for group in 0..groups {
        for out in 0..group_out {
            for input in group * group_in..(group + 1) * group_in {
                made.extend_from_slice(&weight[(input * group_out + out) * taps..][..taps]);
            }
        }
    }
    made
}

/// Weights `[.., taps of the phase]` out of `[.., KH, KW]`.
pub(super) fn phase_weights(phase: &Phase, weight: &[f32], [rows, columns]: [usize; 2]) -> Vec<f32> {
    let [of_rows, of_columns] = &phase.taps;
    let mut made = Vec::with_capacity(weight.len() / (rows * columns) * of_rows.len() * of_columns.len());
    for kernel in weight.chunks_exact(rows * columns) {
        for &row in of_rows {
            made.extend(of_columns.iter().map(|&column| kernel[row * columns + column]));
        }
    }
    made
}

/// What a phase reads of the input `[N, C, H, W]` and where it writes.
pub(super) fn phase_views(
    phase: &Phase,
    stride: [usize; 2],
    input: &View,
    output: &View,
) -> Result<[View; 2], TensorError> {
    Ok([phase.reads(input)?, phase.writes(stride, output)?])
}

impl Phase {
    fn reads(&self, input: &View) -> Result<View, TensorError> {
        let rows = input.slice(2, self.input_first[0], self.input_count[0], 1)?;
        rows.slice(3, self.input_first[1], self.input_count[1], 1)
    }

    /// The places of this phase in an output `[N, C, H, W]`.
    pub(super) fn writes(&self, stride: [usize; 2], output: &View) -> Result<View, TensorError> {
        // With one element the step has no effect, and may reach beyond the axis.
        let step = |side: usize| match self.count[side] {
            1 => 1,
            _ => stride[side] as isize,
        };
        let rows = output.slice(2, self.first[0], self.count[0], step(0))?;
        rows.slice(3, self.first[1], self.count[1], step(1))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// What the definition scatters, along one axis.
    fn scattered(axis: &Axis, input: &[i64], kernel: &[i64]) -> Vec<i64> {
        let mut output = vec![0; axis.output];
        for (i, x) in input.iter().enumerate() {
            for (k, w) in kernel.iter().enumerate() {
                let place = (i * axis.stride + k).wrapping_sub(axis.pad);
                if place < axis.output {
                    output[place] += x * w;
                }
            }
        }
        output
    }

    fn convolved(axis: &Axis, input: &[i64], kernel: &[i64]) -> Vec<i64> {
        let mut output = vec![i64::MIN; axis.output];
        for phase in axis.phases().unwrap() {
            let input = &input[phase.input.0..][..phase.input.1];
            for t in 0..phase.count {
                let taps = phase.taps.iter().enumerate();
                let sum = taps.map(|(tap, &k)| {
                    let x = input.get((t + tap).wrapping_sub(phase.pad)).copied().unwrap_or(0);
                    x * kernel[k]
                });
                let place = &mut output[phase.first + t * axis.stride];
                assert_eq!(*place, i64::MIN, "written twice");
                *place = sum.sum();
            }
        }
        output
    }

    #[test]
    fn the_phases_together_are_the_transposed_convolution() {
        for stride in 1..=4 {
            for kernel in stride..=7 {
                for pad in 0..kernel {
                    for extra in 0..stride {
                        let input = 5_usize;
                        let output = (input - 1) * stride + kernel + extra;
                        let Some(output) = output.checked_sub(2 * pad).filter(|&o| o > 0) else {
                            continue;
                        };
                        let axis = Axis {
                            kernel,
                            stride,
                            pad,
                            input,
                            output,
                        };
                        let x: Vec<i64> = (0..input as i64).map(|i| 3 * i + 1).collect();
                        let w: Vec<i64> = (0..kernel as i64).map(|k| 100 * k + 7).collect();
                        assert_eq!(convolved(&axis, &x, &w), scattered(&axis, &x, &w), "{axis:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_kernel_shorter_than_the_stride_is_refused() {
        let axis = Axis {
            kernel: 1,
            stride: 2,
            pad: 0,
            input: 3,
            output: 5,
        };
        assert!(axis.phases().unwrap_err().contains("gaps"));
    }
}
