//! Transposed convolutions as ordinary ones.
//!
//! Output rows that lie a stride apart read the same taps of the kernel, so each such phase is a convolution of stride
//! 1 over the input, written through a view with the stride's step. No product with an inserted zero is computed, and a
//! kernel as large as the stride becomes one product per pixel and phase: depth-to-space is the view.

use crate::device::Geometry2d;
use crate::tensor::{TensorError, View};

/// Sizes of a transposed convolution along one axis: output `o` gets `input[i] * kernel[k]` wherever
/// `o = i * stride + k * dilation - pad`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Axis {
    pub(super) kernel: usize,
    pub(super) stride: usize,
    /// Elements cut off in front of the output.
    pub(super) pad: usize,
    pub(super) input: usize,
    pub(super) output: usize,
}

impl Axis {
    /// The axis that a line does not have: one element, left as it is.
    pub(super) const SINGLE: Self = Self {
        kernel: 1,
        stride: 1,
        pad: 0,
        input: 1,
        output: 1,
    };
}

/// The outputs `first, first + stride, ...` along one axis.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AxisPhase {
    first: usize,
    count: usize,
    /// What is read for them; `None` where no tap of the kernel meets an input.
    reads: Option<AxisReads>,
}

/// What a phase reads, as a convolution of stride 1.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct AxisReads {
    /// First input element that is read, and how many.
    input: (usize, usize),
    pad: usize,
    dilation: usize,
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
    input_first: [usize; 2],
    /// Input elements; none where no tap of the kernel meets one, so that nothing but the bias is left.
    input_count: [usize; 2],
    /// Geometry of the convolution.
    pub(super) geometry: Geometry2d,
    /// Positions in the kernel, in the order of the convolution's taps.
    taps: [Vec<usize>; 2],
}

impl Axis {
    fn phases(&self, dilation: usize) -> Vec<AxisPhase> {
        (0..self.stride.min(self.output))
            .map(|first| AxisPhase {
                first,
                count: (self.output - first).div_ceil(self.stride),
                reads: self.reads(first, dilation),
            })
            .collect()
    }

    /// What the outputs from `first` on read. Their taps lie at equal distances in the kernel, each one reading a fixed
    /// number of inputs before the last.
    fn reads(&self, first: usize, dilation: usize) -> Option<AxisReads> {
        let (place, stride) = (first + self.pad, self.stride);
        let mut taps: Vec<usize> = (0..self.kernel)
            .filter(|&k| (k * dilation) % stride == place % stride)
            .collect();
        // The last tap reads the first of a window's inputs.
        taps.reverse();
        let begins = |k: usize| (place as i64 - (k * dilation) as i64).div_euclid(stride as i64);
        let (low, high) = (begins(*taps.first()?), begins(*taps.last()?));
        let count = (self.output - first).div_ceil(stride) as i64;
        let begin = low.max(0);
        let end = (count + high).min(self.input as i64);
        (begin < end).then(|| AxisReads {
            input: (begin as usize, (end - begin) as usize),
            pad: (begin - low) as usize,
            dilation: match taps[..] {
                [a, b, ..] => (begins(b) - begins(a)) as usize,
                _ => 1,
            },
            taps,
        })
    }
}

/// The phases of a transposed convolution over `[rows, columns]` with a dilation of 1, each of which reads something, or
/// what of it is not supported.
pub(super) fn phases(axes: [Axis; 2]) -> Result<Vec<Phase>, String> {
    if let Some(axis) = axes
        .iter()
        .find(|axis| axis.kernel < axis.stride || axis.stride == 0)
    {
        return Err(format!(
            "a kernel of {}, which leaves gaps at stride {}",
            axis.kernel, axis.stride
        ));
    }
    let phases = dilated_phases(axes, [1; 2]);
    match phases.iter().find(|phase| phase.is_empty()) {
        Some(_) => Err(format!("{} outputs of {} inputs", axes[1].output, axes[1].input)),
        None => Ok(phases),
    }
}

/// The phases of a transposed convolution over `[rows, columns]`.
pub(super) fn dilated_phases(axes: [Axis; 2], dilation: [usize; 2]) -> Vec<Phase> {
    let (rows, columns) = (axes[0].phases(dilation[0]), axes[1].phases(dilation[1]));
    let pairs = rows
        .iter()
        .flat_map(|row| columns.iter().map(move |column| [row, column]));
    pairs.map(Phase::new).collect()
}

impl Phase {
    fn new(pair: [&AxisPhase; 2]) -> Self {
        let reads = pair.map(|p| p.reads.clone().unwrap_or_default());
        Self {
            first: pair.map(|p| p.first),
            count: pair.map(|p| p.count),
            input_first: [reads[0].input.0, reads[1].input.0],
            input_count: [reads[0].input.1, reads[1].input.1],
            geometry: Geometry2d {
                kernel: [reads[0].taps.len(), reads[1].taps.len()],
                stride: [1; 2],
                dilation: [reads[0].dilation, reads[1].dilation],
                pad_begin: [reads[0].pad, reads[1].pad],
            },
            taps: reads.map(|reads| reads.taps),
        }
    }

    /// Whether no tap meets an input: nothing but the bias is left.
    pub(super) fn is_empty(&self) -> bool {
        self.input_count.contains(&0)
    }

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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// What the definition scatters, along one axis.
    fn scattered(axis: &Axis, dilation: usize, input: &[i64], kernel: &[i64]) -> Vec<i64> {
        let mut output = vec![0; axis.output];
        for (i, x) in input.iter().enumerate() {
            for (k, w) in kernel.iter().enumerate() {
                let place = (i * axis.stride + k * dilation).wrapping_sub(axis.pad);
                if place < axis.output {
                    output[place] += x * w;
                }
            }
        }
        output
    }

    fn convolved(axis: &Axis, dilation: usize, input: &[i64], kernel: &[i64]) -> Vec<i64> {
        let mut output = vec![i64::MIN; axis.output];
        for phase in axis.phases(dilation) {
            for t in 0..phase.count {
                let sum = phase.reads.as_ref().map_or(0, |reads| {
                    let input = &input[reads.input.0..][..reads.input.1];
                    let taps = reads.taps.iter().enumerate();
                    let products = taps.map(|(tap, &k)| {
                        let place = (t + tap * reads.dilation).wrapping_sub(reads.pad);
                        input.get(place).copied().unwrap_or(0) * kernel[k]
                    });
                    products.sum()
                });
                let place = &mut output[phase.first + t * axis.stride];
                assert_eq!(*place, i64::MIN, "written twice");
                *place = sum;
            }
        }
        output
    }

    #[test]
    fn the_phases_together_are_the_transposed_convolution() {
        let sizes = (1..=4)
            .flat_map(|stride| (1..=6).flat_map(move |kernel| (1..=4).map(move |d| (stride, kernel, d))));
        let mut seen = 0;
        for (stride, kernel, dilation) in sizes {
            let reach = (kernel - 1) * dilation + 1;
            for pad in 0..reach.min(5) {
                for extra in 0..stride {
                    let input = 5_usize;
                    let output = (input - 1) * stride + reach + extra;
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
                    let found = convolved(&axis, dilation, &x, &w);
                    assert_eq!(found, scattered(&axis, dilation, &x, &w), "{axis:?}, {dilation}");
                    seen += 1;
                }
            }
        }
        assert!(seen > 500);
    }

    #[test]
    fn a_kernel_shorter_than_the_stride_is_refused_where_every_phase_must_read() {
        let axis = Axis {
            kernel: 1,
            stride: 2,
            pad: 0,
            input: 3,
            output: 5,
        };
        assert!(phases([axis; 2]).unwrap_err().contains("gaps"));
        assert_eq!(
            dilated_phases([axis; 2], [1; 2])
                .iter()
                .filter(|p| p.is_empty())
                .count(),
            3
        );
    }
}
