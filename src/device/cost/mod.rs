//! What an operation costs by its description: arithmetic and memory traffic, whatever kernel does it.

use std::collections::BTreeSet;

use smallvec::SmallVec;

use super::{GatherConvDesc, Geometry2d, OpDesc, Operand, PillarsDesc, ReduceKind, Sampling, SdpaDesc};
use crate::tensor::{DType, View};

/// Arithmetic and memory traffic of an operation.
///
/// Arithmetic is what the formula names:
///
/// - 2 for each multiply-add of a convolution, matrix product, dense layer, resize or bilinear sampling (taps in the padding
///   included; bias, activation and residual not);
/// - 1 for each tap of a pooling or local maximum, for each element of an element-wise function or choice, for each element
///   that is reduced or combined, and 1 more where its square or magnitude is;
/// - 5 for each element of a softmax (maximum, difference, exponential, sum, quotient) and of a normalisation (sum,
///   difference, square, sum, scale), there 1 more for each of residual, gamma and beta;
/// - attention as two matrix products and the softmax between them; a sparse convolution as if every tap of every row had
///   an input, for which do, the data say;
/// - nothing where values only move or are sorted, nor for indices.
///
/// Traffic is what must move at least once: every element that the operation touches in its tensors and weights. Broadcast
/// elements count once, and of a tensor from which an index on the device picks, as many as are picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpCost {
    /// Arithmetic operations.
    pub flop: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl OpCost {
    /// Bytes read and written.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.read_bytes + self.written_bytes
    }
}

impl OpDesc {
    /// What the operation costs.
    #[must_use]
    pub fn cost(&self) -> OpCost {
        let Operands { reads, writes } = self.operands();
        let bytes = |operands: &[&Operand]| operands.iter().map(|operand| touched_bytes(operand)).sum();
        OpCost {
            flop: self.flop(),
            read_bytes: match self {
                Self::ResizeNearest {
                    src, rows, columns, ..
                } => picked_bytes(src, &[(2, &**rows), (3, &**columns)]),
                Self::Gather {
                    src, axis, indices, ..
                } => picked_bytes(src, &[(*axis, &**indices)]),
                // Which rows, the data say: as many as are asked for.
                Self::GatherRows { index, dst, .. } | Self::GatherElements { index, dst, .. } => {
                    touched_bytes(index) + touched_bytes(dst)
                }
                Self::ScatterElements {
                    updates,
                    index,
                    combine,
                    ..
                } => {
                    let there = if combine.is_some() {
                        touched_bytes(updates)
                    } else {
                        0
                    };
                    touched_bytes(updates) + touched_bytes(index) + there
                }
                Self::GridSample(desc) => {
                    let picked = sample_taps(desc.sampling) * touched_bytes(&desc.output);
                    touched_bytes(&desc.grid) + touched_bytes(&desc.input).min(picked)
                }
                _ => bytes(&reads) + self.weight_bytes(),
            },
            written_bytes: match self {
                Self::ScatterElements { updates, .. } => touched_bytes(updates),
                _ => bytes(&writes),
            },
        }
    }

    /// The operation with its shapes, for reports: `conv2d 3x3/2 [1, 64, 104, 104] -> [1, 128, 52, 52] bfloat16`.
    #[must_use]
    pub fn summary(&self) -> String {
        let window = match self {
            Self::Conv2d(desc) => {
                let groups = match desc.groups {
                    1 => String::new(),
                    groups => format!(" in {groups} groups"),
                };
                format!("{}{groups}", window_text(&desc.geometry))
            }
            Self::Pool2d(desc) => window_text(&desc.geometry),
            _ => String::new(),
        };
        let Operands { reads, writes } = self.operands();
        let source = reads
            .first()
            .map_or_else(String::new, |read| format!(" {} ->", read.view.shape));
        let result = writes.first().map_or_else(String::new, |write| {
            format!(" {} {}", write.view.shape, write.dtype)
        });
        format!("{}{window}{source}{result}", self.name())
    }

    fn operands(&self) -> Operands<'_> {
        match self {
            Self::Fill { dst, .. } => Operands::new([], [dst]),
            Self::Copy { src, dst }
            | Self::Gather { src, dst, .. }
            | Self::ResizeNearest { src, dst, .. }
            | Self::Unary { src, dst, .. }
            | Self::Softmax { src, dst, .. } => Operands::new([src], [dst]),
            Self::Binary { lhs, rhs, dst, .. } => Operands::new([lhs, rhs], [dst]),
            Self::GatherRows { table, index, dst } => Operands::new([table, index], [dst]),
            Self::Conv2d(desc) => {
                let reads = std::iter::once(&desc.input).chain(&desc.residual);
                Operands::new(reads, [&desc.output])
            }
            Self::Pool2d(desc) => Operands::new([&desc.input], [&desc.output]),
            Self::Pillars(desc) => Operands::new([&desc.points], [&desc.output]),
            Self::Select {
                condition,
                yes,
                no,
                dst,
            } => Operands::new([condition, yes, no], [dst]),
            Self::GatherElements { src, index, dst, .. } => Operands::new([src, index], [dst]),
            Self::ScatterElements {
                updates, index, dst, ..
            } => Operands::new([updates, index], [dst]),
            Self::ResizeTaps { src, dst, .. } => Operands::new([src], [dst]),
            Self::MatMul(desc) => {
                let reads = [&desc.lhs, &desc.rhs].into_iter().chain(&desc.bias);
                Operands::new(reads, [&desc.output])
            }
            Self::LayerNorm(desc) => {
                let more = [&desc.residual, &desc.gamma, &desc.beta];
                let reads = std::iter::once(&desc.src).chain(more.into_iter().flatten());
                Operands::new(reads, [&desc.dst])
            }
            Self::Reduce(desc) => Operands::new([&desc.src], [&desc.dst]),
            Self::TopK(desc) => Operands::new([&desc.src], [&desc.values, &desc.indices]),
            Self::SplitIndex(desc) => Operands::new([&desc.index], [&desc.major, &desc.minor]),
            Self::LocalMax(desc) => Operands::new([&desc.input], [&desc.output]),
            Self::GridSample(desc) => Operands::new([&desc.input, &desc.grid], [&desc.output]),
            Self::SegmentReduce(desc) => Operands::new([&desc.rows, &desc.offsets], [&desc.output]),
            Self::GatherConv(desc) => {
                let reads = [&desc.table, &desc.index].into_iter().chain(&desc.residual);
                Operands::new(reads, desc.results())
            }
            Self::Sdpa(desc) => {
                let reads = [&desc.query, &desc.key, &desc.value]
                    .into_iter()
                    .chain(&desc.mask);
                Operands::new(reads, [&desc.output])
            }
        }
    }

    fn flop(&self) -> u64 {
        let elements = |operand: &Operand| operand.view.shape.elements() as u64;
        match self {
            Self::Copy { .. }
            | Self::Fill { .. }
            | Self::ResizeNearest { .. }
            | Self::Gather { .. }
            | Self::GatherRows { .. }
            | Self::GatherElements { .. }
            | Self::TopK(_)
            | Self::SplitIndex(_) => 0,
            Self::Unary { dst, .. } | Self::Binary { dst, .. } | Self::Select { dst, .. } => elements(dst),
            Self::ScatterElements { updates, combine, .. } => {
                elements(updates) * u64::from(combine.is_some())
            }
            Self::ResizeTaps {
                src,
                dst,
                rows,
                columns,
            } => {
                // Rows first: each source column of every output row, then every output element.
                let [n, c, oh, _] = [0, 1, 2, 3].map(|axis| dst.view.shape[axis] as u64);
                let first = n * c * oh * src.view.shape[3] as u64 * rows.taps as u64;
                2 * (first + elements(dst) * columns.taps as u64)
            }
            Self::MatMul(desc) => {
                let inner = desc.lhs.view.shape.last().copied().unwrap_or(0) as u64;
                2 * elements(&desc.output) * inner
            }
            Self::LayerNorm(desc) => {
                let more = [&desc.residual, &desc.gamma, &desc.beta];
                elements(&desc.dst) * (5 + more.into_iter().flatten().count() as u64)
            }
            Self::Reduce(desc) => {
                let each = match desc.kind {
                    ReduceKind::L1 | ReduceKind::L2 | ReduceKind::SumSquare => 2,
                    ReduceKind::Sum
                    | ReduceKind::Mean
                    | ReduceKind::Max
                    | ReduceKind::Min
                    | ReduceKind::Prod => 1,
                };
                each * elements(&desc.src)
            }
            Self::LocalMax(desc) => {
                let channels = desc.pooled.len().max(1) as u64;
                let pooled = desc.pooled.iter().filter(|pooled| **pooled).count() as u64;
                elements(&desc.output) / channels * pooled * product(&[desc.kernel; 2])
            }
            Self::GridSample(desc) => match desc.sampling {
                Sampling::Bilinear => 2 * sample_taps(desc.sampling) * elements(&desc.output),
                Sampling::Nearest => 0,
            },
            Self::SegmentReduce(desc) => elements(&desc.rows),
            Self::Softmax { dst, .. } => 5 * elements(dst),
            Self::Pool2d(desc) => elements(&desc.output) * product(&desc.geometry.kernel),
            Self::Conv2d(desc) => {
                let inputs = (desc.input.view.shape[1] / desc.groups.max(1)) as u64;
                2 * elements(&desc.output) * inputs * product(&desc.geometry.kernel)
            }
            Self::Pillars(desc) => pillars_flop(desc),
            Self::GatherConv(desc) => 2 * elements(&desc.index) * channels_product(desc),
            Self::Sdpa(desc) => sdpa_flop(desc),
        }
    }

    /// Bytes of weights and bias: weights in the type of the input, bias in fp32.
    fn weight_bytes(&self) -> u64 {
        let (weights, bias, dtype) = match self {
            Self::Conv2d(desc) => {
                let outputs = desc.output.view.shape[1] as u64;
                let inputs = (desc.input.view.shape[1] / desc.groups.max(1)) as u64;
                let weights = outputs * inputs * product(&desc.geometry.kernel);
                (weights, outputs, desc.input.dtype)
            }
            Self::Pillars(desc) => {
                let (features, outputs) =
                    (desc.points.view.shape[2] as u64, desc.output.view.shape[1] as u64);
                match desc.hidden {
                    None => (features * outputs, outputs, DType::F32),
                    Some(hidden) => {
                        let hidden = hidden as u64;
                        (
                            features * hidden + 2 * hidden * outputs,
                            hidden + outputs,
                            DType::F32,
                        )
                    }
                }
            }
            Self::GatherConv(desc) => {
                let taps = desc.index.view.shape.last().map_or(0, |&taps| taps as u64);
                let outputs = desc.results().next().and_then(|result| result.view.shape.last());
                // The table's type says nothing of the weights, whose terms are bf16.
                let values = taps * channels_product(desc);
                let (weights, dtype) = match desc.weights.terms() as u64 {
                    0 => (values, DType::F32),
                    terms => (terms * values, DType::Bf16),
                };
                (weights, outputs.map_or(0, |&outputs| outputs as u64), dtype)
            }
            _ => return 0,
        };
        weights * dtype.size_bytes() as u64 + bias * DType::F32.size_bytes() as u64
    }
}

/// Pixels that one place of a sampling reads.
const fn sample_taps(sampling: Sampling) -> u64 {
    match sampling {
        Sampling::Bilinear => 4,
        Sampling::Nearest => 1,
    }
}

/// The tensors of an operation without its weights, in the order of its bound buffers.
struct Operands<'a> {
    reads: SmallVec<[&'a Operand; 4]>,
    writes: SmallVec<[&'a Operand; 2]>,
}

impl<'a> Operands<'a> {
    fn new(
        reads: impl IntoIterator<Item = &'a Operand>,
        writes: impl IntoIterator<Item = &'a Operand>,
    ) -> Self {
        Self {
            reads: reads.into_iter().collect(),
            writes: writes.into_iter().collect(),
        }
    }
}

fn window_text(geometry: &Geometry2d) -> String {
    let [rows, columns] = geometry.kernel;
    format!(" {rows}x{columns}/{}", geometry.stride[0])
}

/// The first layer for every point; the second, where there is one, for every point and for every pillar's maximum.
fn pillars_flop(desc: &PillarsDesc) -> u64 {
    let [pillars, points, features] = [0, 1, 2].map(|axis| desc.points.view.shape[axis] as u64);
    let outputs = desc.output.view.shape[1] as u64;
    match desc.hidden {
        None => 2 * pillars * points * features * outputs,
        Some(hidden) => {
            let hidden = hidden as u64;
            2 * pillars * (points * features * hidden + points * hidden * outputs + hidden * outputs)
        }
    }
}

/// Input channels times output channels.
fn channels_product(desc: &GatherConvDesc) -> u64 {
    let channels = |operand: &Operand| operand.view.shape.last().map_or(0, |&channels| channels as u64);
    channels(&desc.table) * desc.results().next().map_or(0, channels)
}

/// `[B, H, Sq, D]` on `[B, H, Sk, D]`: a product for the scores, the softmax of each, a product for the values.
fn sdpa_flop(desc: &SdpaDesc) -> u64 {
    let size = |operand: &Operand, axis: usize| operand.view.shape[axis] as u64;
    let [batch, heads, queries, depth] = [0, 1, 2, 3].map(|axis| size(&desc.query, axis));
    let (keys, values) = (size(&desc.key, 2), size(&desc.value, 3));
    batch * heads * queries * keys * (2 * depth + 5 + 2 * values)
}

fn product(sizes: &[usize]) -> u64 {
    sizes.iter().map(|&size| size as u64).product()
}

fn touched_bytes(operand: &Operand) -> u64 {
    distinct(&operand.view, &[]) * operand.dtype.size_bytes() as u64
}

/// Bytes of what index tables pick along their axes.
fn picked_bytes(operand: &Operand, tables: &[(usize, &[u32])]) -> u64 {
    distinct(&operand.view, tables) * operand.dtype.size_bytes() as u64
}

/// Elements of a view that lie at places of their own: those along a stride of 0 are one, and along an axis with a table
/// those count that it names.
fn distinct(view: &View, tables: &[(usize, &[u32])]) -> u64 {
    let axes = view.shape.iter().zip(view.steps()).enumerate();
    axes.map(
        |(axis, (&dim, &step))| match tables.iter().find(|(of, _)| *of == axis) {
            Some((_, table)) => table.iter().collect::<BTreeSet<_>>().len() as u64,
            None if step == 0 => dim.min(1) as u64,
            None => dim as u64,
        },
    )
    .product()
}

#[cfg(test)]
mod tests;
