//! What an operation costs by its description: arithmetic and memory traffic, whatever kernel does it.

use std::collections::BTreeSet;

use smallvec::SmallVec;

use super::{GatherConvDesc, Geometry2d, OpDesc, Operand, PillarsDesc, Sampling, SdpaDesc};
use crate::tensor::{DType, View};

/// Arithmetic and memory traffic of an operation.
///
/// Arithmetic is what the formula names: 2 for each multiply-add of a convolution or dense layer (taps in the padding
/// included; bias, activation and residual not), 1 for each tap of a pooling and for each element of an element-wise
/// function, 5 for each element of a softmax (maximum, difference, exponential, sum, quotient), 1 for each element that a
/// selection or a reduction of segments looks at and for each tap of a local maximum, 8 for each element of a bilinear
/// sampling, 8 for each element of a layer normalisation (mean, difference, square, sum, root, quotient, factor, shift), 2
/// for each multiply-add of a sparse convolution as if every tap were there, 0 where values only move. Attention is two
/// matrix products and the softmax between them.
/// Traffic is what must move at least once: every element that the operation touches in its operands, its weights and
/// tables. Broadcast elements count once.
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
                // Which of them, the data say: as many as are asked for.
                Self::GatherRows { index, dst, .. } | Self::GatherElements { index, dst, .. } => {
                    touched_bytes(index) + touched_bytes(dst)
                }
                _ => bytes(&reads) + self.weight_bytes(),
            },
            written_bytes: match self {
                // At most one place for each update.
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
            Self::GatherConv(desc) => {
                let reads = [&desc.table, &desc.index].into_iter().chain(&desc.residual);
                Operands::new(reads, desc.output.iter().chain(&desc.terms))
            }
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
                let others = [&desc.residual, &desc.gamma, &desc.beta];
                let reads = std::iter::once(&desc.src).chain(others.into_iter().flatten());
                Operands::new(reads, [&desc.dst])
            }
            Self::Reduce(desc) => Operands::new([&desc.src], [&desc.dst]),
            Self::TopK(desc) => Operands::new([&desc.src], [&desc.values, &desc.indices]),
            Self::SplitIndex(desc) => Operands::new([&desc.index], [&desc.major, &desc.minor]),
            Self::LocalMax(desc) => Operands::new([&desc.input], [&desc.output]),
            Self::GridSample(desc) => Operands::new([&desc.input, &desc.grid], [&desc.output]),
            Self::SegmentReduce(desc) => Operands::new([&desc.rows, &desc.offsets], [&desc.output]),
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
            | Self::SplitIndex(_) => 0,
            Self::Unary { dst, .. } | Self::Binary { dst, .. } | Self::Select { dst, .. } => elements(dst),
            Self::ScatterElements { updates, combine, .. } => match combine {
                Some(_) => elements(updates),
                None => 0,
            },
            // Rows are summed for every column of the source, then columns.
            Self::ResizeTaps {
                src,
                dst,
                rows,
                columns,
            } => {
                let summed_rows =
                    elements(src) / (src.view.shape[2] as u64).max(1) * dst.view.shape[2] as u64;
                2 * (summed_rows * rows.taps as u64 + elements(dst) * columns.taps as u64)
            }
            Self::MatMul(desc) => {
                let inner = desc.lhs.view.shape.last().copied().unwrap_or(1) as u64;
                2 * elements(&desc.output) * inner
            }
            Self::LayerNorm(desc) => 8 * elements(&desc.dst),
            Self::Reduce(desc) => elements(&desc.src),
            Self::Sdpa(desc) => sdpa_flop(desc),
            Self::Softmax { dst, .. } => 5 * elements(dst),
            Self::Pool2d(desc) => elements(&desc.output) * product(&desc.geometry.kernel),
            Self::Conv2d(desc) => {
                let inputs = (desc.input.view.shape[1] / desc.groups.max(1)) as u64;
                2 * elements(&desc.output) * inputs * product(&desc.geometry.kernel)
            }
            Self::Pillars(desc) => pillars_flop(desc),
            Self::GatherConv(desc) => 2 * elements(&desc.index) * channels_product(desc),
            Self::TopK(desc) => elements(&desc.src),
            Self::LocalMax(desc) => elements(&desc.output) * (desc.kernel * desc.kernel) as u64,
            Self::GridSample(desc) => match desc.sampling {
                Sampling::Bilinear => 8 * elements(&desc.output),
                Sampling::Nearest => 0,
            },
            Self::SegmentReduce(desc) => elements(&desc.rows),
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
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::device::{Activation, BinaryKind, Conv2dDesc, Pool2dDesc, PoolKind, Scalar};
    use crate::tensor::Shape;

    fn operand(dims: &[usize], dtype: DType) -> Operand {
        Operand {
            dtype,
            view: View::contiguous(Shape::new(dims).unwrap()),
        }
    }

    fn cost(op: &OpDesc) -> (u64, u64, u64) {
        let cost = op.cost();
        assert_eq!(cost.bytes(), cost.read_bytes + cost.written_bytes);
        (cost.flop, cost.read_bytes, cost.written_bytes)
    }

    fn conv(groups: usize, residual: bool, dtype: DType) -> OpDesc {
        let output = operand(&[1, 8, 5, 6], dtype);
        OpDesc::Conv2d(Conv2dDesc {
            input: operand(&[1, 4, 10, 12], dtype),
            output,
            residual: residual.then_some(output),
            geometry: Geometry2d {
                kernel: [3, 1],
                stride: [2, 2],
                dilation: [1, 1],
                pad_begin: [1, 0],
            },
            groups,
            activation: Activation::Silu,
            math: crate::precision::Math::Native,
        })
    }

    #[test]
    fn a_convolution_is_counted_by_hand() {
        // 240 results of 4 channels x 3 taps; 480 inputs; 96 weights; 8 biases.
        assert_eq!(
            cost(&conv(1, false, DType::F32)),
            (5760, 480 * 4 + 96 * 4 + 32, 960)
        );
        // In bf16 half of all but the bias; the residual is read as well.
        assert_eq!(
            cost(&conv(1, true, DType::Bf16)),
            (5760, 480 * 2 + 96 * 2 + 32 + 480, 480)
        );
        // Two groups: half the channels a result.
        assert_eq!(
            cost(&conv(2, false, DType::F32)),
            (2880, 480 * 4 + 48 * 4 + 32, 960)
        );
        assert_eq!(
            conv(2, false, DType::F32).summary(),
            "conv2d 3x1/2 in 2 groups [1, 4, 10, 12] -> [1, 8, 5, 6] float32"
        );
    }

    #[test]
    fn a_feature_net_of_pillars_is_counted_by_hand() {
        let desc = |hidden| {
            OpDesc::Pillars(PillarsDesc {
                points: operand(&[3, 5, 7], DType::F32),
                output: operand(&[3, 11], DType::F32),
                hidden,
            })
        };
        assert_eq!(cost(&desc(None)), (2 * 3 * 5 * 7 * 11, (105 + 77 + 11) * 4, 132));
        // 7 -> 2 for 15 points, [2 | 2] -> 11: two of the four inputs for 15 points, two for 3 pillars.
        let flop = 2 * (15 * 7 * 2 + 15 * 2 * 11 + 3 * 2 * 11);
        assert_eq!(cost(&desc(Some(2))), (flop, (105 + 14 + 44 + 2 + 11) * 4, 132));
    }

    #[test]
    fn a_sparse_convolution_is_counted_with_all_its_taps() {
        let term = operand(&[20, 7], DType::Bf16);
        let op = OpDesc::GatherConv(GatherConvDesc {
            table: operand(&[30, 5], DType::Bf16),
            index: operand(&[20, 27], DType::U32),
            residual: Some(operand(&[20, 7], DType::F32)),
            output: Some(operand(&[20, 7], DType::F32)),
            terms: vec![term, term],
            weights: WeightForm::TwoTerms,
            activation: Activation::Relu,
        });
        let read = 30 * 5 * 2 + 20 * 27 * 4 + 20 * 7 * 4 + 27 * 5 * 7 * 2 * 2 + 7 * 4;
        assert_eq!(cost(&op), (2 * 20 * 27 * 5 * 7, read, 20 * 7 * (4 + 2 + 2)));
        assert_eq!(op.summary(), "gather_conv [30, 5] -> [20, 7] float32");
    }

    #[test]
    fn what_moves_is_counted_once() {
        let (four, row) = (operand(&[4, 6], DType::F32), operand(&[6], DType::Bf16));
        let broadcast = Operand {
            view: row.view.broadcast_to(four.view.shape).unwrap(),
            ..row
        };
        let add = OpDesc::Binary {
            lhs: four,
            rhs: broadcast,
            dst: four,
            kind: BinaryKind::Add,
        };
        assert_eq!(cost(&add), (24, 96 + 12, 96));
        let softmax = OpDesc::Softmax {
            src: four,
            dst: four,
            axis: 1,
        };
        assert_eq!(cost(&softmax), (120, 96, 96));
        let fill = OpDesc::Fill {
            dst: four,
            value: Scalar::new(1.0),
        };
        assert_eq!(cost(&fill), (0, 0, 96));
        assert_eq!(fill.summary(), "fill [4, 6] float32");
        let gather = OpDesc::Gather {
            src: operand(&[9, 6], DType::F32),
            dst: four,
            axis: 0,
            indices: [8, 1, 8, 1].into(),
        };
        assert_eq!(cost(&gather), (0, 2 * 6 * 4, 96));
        let rows = OpDesc::GatherRows {
            table: operand(&[900, 6], DType::F32),
            index: operand(&[4], DType::U32),
            dst: four,
        };
        assert_eq!(cost(&rows), (0, 16 + 96, 96));
        let resize = OpDesc::ResizeNearest {
            src: operand(&[1, 5, 2, 3], DType::U8),
            dst: operand(&[1, 5, 4, 6], DType::U8),
            rows: [0, 0, 1, 1].into(),
            columns: [0, 0, 1, 1, 1, 1].into(),
        };
        assert_eq!(cost(&resize), (0, 5 * 2 * 2, 120));
        let pool = OpDesc::Pool2d(Pool2dDesc {
            input: operand(&[1, 2, 8, 8], DType::F32),
            output: operand(&[1, 2, 4, 4], DType::F32),
            geometry: Geometry2d {
                kernel: [2, 2],
                stride: [2, 2],
                dilation: [1, 1],
                pad_begin: [0, 0],
            },
            kind: PoolKind::Max,
        });
        assert_eq!(cost(&pool), (32 * 4, 512, 128));
        assert_eq!(
            pool.summary(),
            "pool2d 2x2/2 [1, 2, 8, 8] -> [1, 2, 4, 4] float32"
        );
    }
}
