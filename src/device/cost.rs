//! What an operation costs by its description: arithmetic and memory traffic, whatever kernel does it.

use std::collections::BTreeSet;

use smallvec::{SmallVec, smallvec};

use super::{GatherConvDesc, OpDesc, Operand, PillarsDesc};
use crate::tensor::{DType, View};

/// Arithmetic and memory traffic of an operation.
///
/// Arithmetic is what the formula names: 2 for each multiply-add of a convolution or dense layer (taps in the padding
/// included; bias, activation and residual not), 1 for each tap of a pooling and for each element of an element-wise
/// function, 5 for each element of a softmax (maximum, difference, exponential, sum, quotient), 0 where values only move.
/// A sparse convolution is counted as if every tap of every row had an input: which do, the data say.
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
        let (inputs, output) = self.operands();
        let tensors: u64 = inputs.iter().map(|operand| touched_bytes(operand)).sum();
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
                Self::GatherRows { index, dst, .. } => touched_bytes(index) + touched_bytes(dst),
                _ => tensors + self.weight_bytes(),
            },
            written_bytes: match self {
                Self::GatherConv(desc) => desc.results().map(touched_bytes).sum(),
                _ => touched_bytes(output),
            },
        }
    }

    /// The operation with its shapes, for reports: `conv2d 3x3/2 [1, 64, 104, 104] -> [1, 128, 52, 52] bfloat16`.
    #[must_use]
    pub fn summary(&self) -> String {
        let (inputs, output) = self.operands();
        let window = match self {
            Self::Conv2d(desc) => {
                let [rows, columns] = desc.geometry.kernel;
                let groups = match desc.groups {
                    1 => String::new(),
                    groups => format!(" in {groups} groups"),
                };
                format!(" {rows}x{columns}/{}{groups}", desc.geometry.stride[0])
            }
            Self::Pool2d(desc) => {
                let [rows, columns] = desc.geometry.kernel;
                format!(" {rows}x{columns}/{}", desc.geometry.stride[0])
            }
            _ => String::new(),
        };
        let source = match inputs.first() {
            Some(input) => format!(" {} ->", input.view.shape),
            None => String::new(),
        };
        format!(
            "{}{window}{source} {} {}",
            self.name(),
            output.view.shape,
            output.dtype
        )
    }

    /// Tensors read, in the order of the bound buffers without weights, and the tensor written.
    fn operands(&self) -> (SmallVec<[&Operand; 3]>, &Operand) {
        match self {
            Self::Copy { src, dst }
            | Self::Gather { src, dst, .. }
            | Self::ResizeNearest { src, dst, .. } => (smallvec![src], dst),
            Self::Unary { src, dst, .. } | Self::Softmax { src, dst, .. } => (smallvec![src], dst),
            Self::Fill { dst, .. } => (SmallVec::new(), dst),
            Self::Binary { lhs, rhs, dst, .. } => (smallvec![lhs, rhs], dst),
            Self::GatherRows { table, index, dst } => (smallvec![table, index], dst),
            Self::Conv2d(desc) => {
                let inputs = std::iter::once(&desc.input).chain(&desc.residual);
                (inputs.collect(), &desc.output)
            }
            Self::Pool2d(desc) => (smallvec![&desc.input], &desc.output),
            Self::Pillars(desc) => (smallvec![&desc.points], &desc.output),
            Self::GatherConv(desc) => {
                let inputs = [&desc.table, &desc.index].into_iter().chain(&desc.residual);
                // A description without results is refused; its cost is nobody's.
                (inputs.collect(), desc.results().next().unwrap_or(&desc.table))
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
            | Self::GatherRows { .. } => 0,
            Self::Unary { dst, .. } | Self::Binary { dst, .. } => elements(dst),
            Self::Softmax { dst, .. } => 5 * elements(dst),
            Self::Pool2d(desc) => elements(&desc.output) * product(&desc.geometry.kernel),
            Self::Conv2d(desc) => {
                let inputs = (desc.input.view.shape[1] / desc.groups.max(1)) as u64;
                2 * elements(&desc.output) * inputs * product(&desc.geometry.kernel)
            }
            Self::Pillars(desc) => pillars_flop(desc),
            Self::GatherConv(desc) => 2 * elements(&desc.index) * channels_product(desc),
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
    use crate::device::{
        Activation, BinaryKind, Conv2dDesc, Geometry2d, Pool2dDesc, PoolKind, Scalar, WeightForm,
    };
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
