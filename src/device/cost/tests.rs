//! Costs counted by hand.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::device::{
    Activation, BinaryKind, Conv2dDesc, GridSampleDesc, LayerNormDesc, LocalMaxDesc, MatMulDesc,
    OutsidePixels, Pool2dDesc, PoolKind, ReduceDesc, ResidualOrder, SampleWeights, Scalar, SegmentOp,
    SegmentReduceDesc, SplitIndexDesc, TapTable, TopKDesc, TopKOrder, Unpooled, WeightForm,
};
use crate::precision::Math;
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
        residual_order: ResidualOrder::AfterActivation,
        geometry: Geometry2d {
            kernel: [3, 1],
            stride: [2, 2],
            dilation: [1, 1],
            pad_begin: [1, 0],
        },
        groups,
        activation: Activation::Silu,
        math: Math::Native,
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

#[test]
fn matrices_are_counted_by_hand() {
    // [3, 4, 5] x [3, 5, 7]: 84 results of 5 products, the right side one matrix for all.
    let rhs = operand(&[5, 7], DType::Bf16);
    let matmul = OpDesc::MatMul(MatMulDesc {
        lhs: operand(&[3, 4, 5], DType::F32),
        rhs: Operand {
            view: rhs.view.broadcast_to(Shape::new(&[3, 5, 7]).unwrap()).unwrap(),
            ..rhs
        },
        output: operand(&[3, 4, 7], DType::F32),
        bias: None,
        scale: Scalar::new(1.0),
        activation: Activation::Identity,
    });
    assert_eq!(cost(&matmul), (840, 60 * 4 + 35 * 2, 84 * 4));
    let norm = OpDesc::LayerNorm(LayerNormDesc {
        src: operand(&[6, 10], DType::F32),
        dst: operand(&[6, 10], DType::F32),
        residual: None,
        gamma: Some(operand(&[10], DType::F32)),
        beta: Some(operand(&[10], DType::F32)),
        axes: 1,
        epsilon: Scalar::new(1e-5),
    });
    assert_eq!(cost(&norm), (60 * 7, 240 + 80, 240));
    let reduce = |kind| {
        OpDesc::Reduce(ReduceDesc {
            src: operand(&[6, 10], DType::F32),
            dst: operand(&[6, 1], DType::F32),
            kind,
        })
    };
    assert_eq!(cost(&reduce(ReduceKind::Mean)), (60, 240, 24));
    assert_eq!(cost(&reduce(ReduceKind::L2)), (120, 240, 24));
}

#[test]
fn selections_and_samplings_are_counted_by_hand() {
    let (table, index) = (operand(&[50, 3], DType::F32), operand(&[4, 3], DType::U32));
    let four = operand(&[4, 3], DType::F32);
    let pick = OpDesc::GatherElements {
        src: table,
        index,
        dst: four,
        axis: 0,
    };
    assert_eq!(cost(&pick), (0, 48 + 48, 48));
    let put = |combine| OpDesc::ScatterElements {
        updates: four,
        index,
        dst: table,
        axis: 0,
        combine,
    };
    assert_eq!(cost(&put(None)), (0, 48 + 48, 48));
    assert_eq!(cost(&put(Some(BinaryKind::Add))), (12, 3 * 48, 48));
    let choose = OpDesc::Select {
        condition: four,
        yes: four,
        no: four,
        dst: four,
    };
    assert_eq!(cost(&choose), (12, 3 * 48, 48));
    let taps = |outputs: usize| TapTable {
        taps: 2,
        positions: vec![0; 2 * outputs].into(),
        weights: vec![Scalar::new(0.5); 2 * outputs].into(),
    };
    let resize = OpDesc::ResizeTaps {
        src: operand(&[1, 2, 3, 4], DType::F32),
        dst: operand(&[1, 2, 6, 8], DType::F32),
        rows: taps(6),
        columns: taps(8),
    };
    // 2 channels x 6 rows x 4 columns, then x 8 columns, 2 taps each.
    assert_eq!(cost(&resize), (2 * (48 * 2 + 96 * 2), 96, 384));
    let topk = OpDesc::TopK(TopKDesc {
        src: operand(&[100], DType::F32),
        values: operand(&[5], DType::F32),
        indices: operand(&[5], DType::I64),
        axis: 0,
        order: TopKOrder::Largest,
    });
    assert_eq!(cost(&topk), (0, 400, 20 + 40));
    assert_eq!(topk.summary(), format!("{} [100] -> [5] float32", topk.name()));
    let positions = operand(&[5], DType::U32);
    let split = OpDesc::SplitIndex(SplitIndexDesc {
        index: positions,
        major: positions,
        minor: positions,
        major_len: 10,
        minor_len: 10,
        clamp: true,
    });
    assert_eq!(cost(&split), (0, 20, 40));
    let maps = operand(&[1, 2, 5, 5], DType::F32);
    let maxima = OpDesc::LocalMax(LocalMaxDesc {
        input: maps,
        output: maps,
        kernel: 3,
        pooled: [true, false].into(),
        border: Unpooled::Pass,
        others: Unpooled::Pass,
    });
    assert_eq!(cost(&maxima), (25 * 9, 200, 200));
    let sample = |sampling, outputs| {
        OpDesc::GridSample(GridSampleDesc {
            input: maps,
            grid: operand(&[1, 1, outputs, 2], DType::F32),
            output: operand(&[1, 2, 1, outputs], DType::F32),
            sampling,
            outside: OutsidePixels::Zeros,
            align_corners: false,
            weights: SampleWeights::Exact,
        })
    };
    // 3 places read 4 pixels of 2 channels each; 100 read all that there is.
    assert_eq!(cost(&sample(Sampling::Bilinear, 3)), (48, 24 + 96, 24));
    assert_eq!(cost(&sample(Sampling::Nearest, 100)), (0, 800 + 200, 800));
    let segments = OpDesc::SegmentReduce(SegmentReduceDesc {
        rows: operand(&[9, 4], DType::Bf16),
        offsets: operand(&[3], DType::U32),
        output: operand(&[2, 4], DType::F32),
        kind: SegmentOp::Max,
        empty: Scalar::new(0.0),
    });
    assert_eq!(cost(&segments), (36, 72 + 12, 32));
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
fn attention_is_counted_by_hand() {
    // 3 queries and 7 keys of 4 values, two heads that share keys and values.
    let op = OpDesc::Sdpa(SdpaDesc {
        query: operand(&[1, 2, 3, 4], DType::F32),
        key: operand(&[1, 1, 7, 4], DType::F32),
        value: operand(&[1, 1, 7, 4], DType::F32),
        output: operand(&[1, 2, 3, 4], DType::F32),
        mask: None,
        scale: Scalar::new(0.5),
        key_block: 7,
    });
    let scores = 2 * 3 * 7;
    assert_eq!(cost(&op), (scores * (8 + 5 + 8), (24 + 28 + 28) * 4, 96));
}
