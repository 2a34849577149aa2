//! Descriptions that no kernel may be prepared for.

use sensorium::device::cpu::kernels::{Isa, prepare};
use sensorium::device::{
    Activation, BinaryKind, Conv2dDesc, DeviceError, Geometry2d, OpDesc, Operand, PillarsDesc, Pool2dDesc,
    PoolKind, ResidualOrder, Scalar, TapTable,
};
use sensorium::precision::Math;
use sensorium::tensor::{DType, Shape, View};

use crate::kernels::harness::{dense, image};

/// The reason of a refusal.
fn refusal(op: &OpDesc) -> String {
    match prepare(op, Isa::detect()) {
        Err(DeviceError::InvalidOp { op: name, reason }) => {
            assert_eq!(name, op.name());
            reason
        }
        other => panic!("{op:?} gave {other:?}"),
    }
}

fn conv() -> Conv2dDesc {
    Conv2dDesc {
        input: image(DType::F32, [1, 8, 10, 12], 8, 0).0,
        output: image(DType::F32, [1, 4, 10, 12], 4, 0).0,
        residual: None,
        residual_order: ResidualOrder::AfterActivation,
        geometry: Geometry2d {
            kernel: [3, 3],
            stride: [1, 1],
            dilation: [1, 1],
            pad_begin: [1, 1],
        },
        groups: 1,
        activation: Activation::Relu,
        math: Math::Native,
    }
}

#[test]
fn a_sound_convolution_states_the_bytes_it_needs() {
    let kernel = prepare(&OpDesc::Conv2d(conv()), Isa::Scalar).unwrap();
    let weights = 4 * (1 + 9 * 8) * 4;
    assert_eq!(
        kernel.required_bytes(),
        [10 * 12 * 8 * 4, weights, 10 * 12 * 4 * 4]
    );
}

#[test]
fn convolutions_that_do_not_hold_together_are_refused() {
    type Spoil = fn(&mut Conv2dDesc);
    let cases: [(&str, Spoil); 13] = [
        ("groups do not divide", |d| d.groups = 3),
        ("groups do not divide", |d| d.groups = 0),
        ("do not follow from", |d| {
            d.output = image(DType::F32, [1, 4, 11, 15], 4, 0).0
        }),
        ("do not follow from", |d| {
            d.output = image(DType::F32, [1, 4, 7, 12], 4, 0).0
        }),
        ("images", |d| d.output = image(DType::F32, [2, 4, 10, 12], 4, 0).0),
        ("must be at least 1", |d| d.geometry.stride = [0, 1]),
        ("above the supported", |d| d.geometry.dilation = [1, usize::MAX]),
        ("only float32 and bfloat16", |d| d.input.dtype = DType::U8),
        ("convert with a copy", |d| d.output.dtype = DType::Bf16),
        ("channel stride", |d| d.input = dense(DType::F32, &[1, 8, 10, 12])),
        ("residual has shape", |d| {
            d.residual = Some(image(DType::F32, [1, 4, 10, 11], 4, 0).0)
        }),
        ("without a residual", |d| {
            d.residual_order = ResidualOrder::BeforeActivation
        }),
        ("write one place twice", |d| {
            d.output = image(DType::F32, [1, 4, 10, 12], 3, 0).0
        }),
    ];
    for (reason, spoil) in cases {
        let mut desc = conv();
        spoil(&mut desc);
        let found = refusal(&OpDesc::Conv2d(desc));
        assert!(found.contains(reason), "expected {reason:?}, found {found:?}");
    }
}

#[test]
fn views_below_their_buffer_are_refused() {
    let mut src = dense(DType::F32, &[4]);
    src.view.strides[0] = -1;
    let op = OpDesc::Copy {
        src,
        dst: dense(DType::F32, &[4]),
    };
    assert!(refusal(&op).contains("before its buffer"));
}

#[test]
fn steps_beyond_the_address_space_are_refused() {
    for step in [isize::MAX, isize::MIN] {
        let mut src = dense(DType::F32, &[4]);
        src.view.strides[0] = step;
        src.view.offset = usize::MAX;
        refusal(&OpDesc::Copy {
            src,
            dst: dense(DType::F32, &[4]),
        });
    }
}

#[test]
fn tables_and_axes_outside_the_source_are_refused() {
    let (src, dst) = (dense(DType::F32, &[3, 4]), dense(DType::F32, &[3, 2]));
    let gather = |axis, indices: &[u32]| OpDesc::Gather {
        src,
        dst,
        axis,
        indices: indices.into(),
    };
    assert!(prepare(&gather(1, &[3, 0]), Isa::Scalar).is_ok());
    assert!(refusal(&gather(1, &[4, 0])).contains("holds 4"));
    assert!(refusal(&gather(1, &[0])).contains("1 entries"));
    refusal(&gather(2, &[0, 1]));
    refusal(&OpDesc::Softmax {
        src,
        dst: src,
        axis: 2,
    });
}

#[test]
fn a_pooling_window_of_padding_only_is_refused() {
    let input = image(DType::F32, [1, 4, 1, 1], 4, 0).0;
    let output = image(DType::F32, [1, 4, 3, 3], 4, 0).0;
    let geometry = Geometry2d {
        kernel: [1, 1],
        stride: [1, 1],
        dilation: [1, 1],
        pad_begin: [1, 1],
    };
    let op = OpDesc::Pool2d(Pool2dDesc {
        input,
        output,
        geometry,
        kind: PoolKind::Max,
    });
    assert!(refusal(&op).contains("padding only"));
}

#[test]
fn a_destination_that_repeats_elements_is_refused() {
    let shape = Shape::new(&[3, 4]).unwrap();
    let view = View::contiguous(Shape::new(&[1, 4]).unwrap())
        .broadcast_to(shape)
        .unwrap();
    let dst = Operand {
        dtype: DType::F32,
        view,
    };
    assert!(
        refusal(&OpDesc::Fill {
            dst,
            value: Scalar::new(0.0)
        })
        .contains("twice")
    );
    let unary = OpDesc::Unary {
        src: dense(DType::F32, &[3, 4]),
        dst,
        activation: Activation::Relu,
    };
    assert!(refusal(&unary).contains("twice"));
}

#[test]
fn types_without_a_conversion_are_refused() {
    let copy = |from, to| OpDesc::Copy {
        src: dense(from, &[4]),
        dst: dense(to, &[4]),
    };
    assert!(refusal(&copy(DType::I64, DType::F32)).contains("no conversion"));
    assert!(prepare(&copy(DType::I64, DType::I64), Isa::Scalar).is_ok());
}

/// Types that are moved and nothing else.
const ONLY_MOVED: [DType; 7] = [
    DType::U16,
    DType::I16,
    DType::I64,
    DType::U64,
    DType::F8E3M4,
    DType::F8E4M3,
    DType::F8E5M2,
];

#[test]
fn types_that_are_only_moved_are_refused_wherever_values_count() {
    for dtype in ONLY_MOVED {
        let name = dtype.to_string();
        let refused = |op: OpDesc| {
            let reason = refusal(&op);
            assert!(reason.contains(&name), "{}: {reason}", op.name());
        };
        let flat = dense(dtype, &[4]);
        let picture = image(dtype, [1, 4, 8, 8], 4, 0).0;
        for &other in DType::ALL.iter().filter(|&&other| other != dtype) {
            refused(OpDesc::Copy {
                src: flat,
                dst: dense(other, &[4]),
            });
            refused(OpDesc::Copy {
                src: dense(other, &[4]),
                dst: flat,
            });
        }
        refused(OpDesc::Fill {
            dst: flat,
            value: Scalar::new(1.0),
        });
        refused(OpDesc::Unary {
            src: flat,
            dst: flat,
            activation: Activation::Relu,
        });
        refused(OpDesc::Binary {
            lhs: flat,
            rhs: flat,
            dst: flat,
            kind: BinaryKind::Add,
        });
        refused(OpDesc::Softmax {
            src: flat,
            dst: flat,
            axis: 0,
        });
        refused(OpDesc::Pool2d(Pool2dDesc {
            input: picture,
            output: picture,
            geometry: Geometry2d {
                kernel: [1, 1],
                stride: [1, 1],
                dilation: [1, 1],
                pad_begin: [0, 0],
            },
            kind: PoolKind::Max,
        }));
        type Spoil = fn(&mut Conv2dDesc, DType);
        let spoils: [Spoil; 3] = [
            |d, dtype| d.input.dtype = dtype,
            |d, dtype| d.output.dtype = dtype,
            |d, dtype| {
                d.residual = Some(Operand { dtype, ..d.output });
            },
        ];
        for spoil in spoils {
            let mut desc = conv();
            spoil(&mut desc, dtype);
            refused(OpDesc::Conv2d(desc));
        }
    }
}

#[test]
fn gathers_of_rows_that_do_not_fit_are_refused() {
    let gather =
        |table: Operand, index: Operand, dst: Operand| refusal(&OpDesc::GatherRows { table, index, dst });
    let (table, index, dst) = (
        dense(DType::F32, &[9, 4]),
        dense(DType::U32, &[5]),
        dense(DType::F32, &[5, 4]),
    );
    assert!(gather(table, index, dense(DType::F32, &[6, 4])).contains("do not fit"));
    assert!(gather(table, index, dense(DType::F32, &[5, 3])).contains("do not fit"));
    assert!(gather(dense(DType::F32, &[36]), index, dst).contains("do not fit"));
    assert!(gather(table, dense(DType::I32, &[5]), dst).contains("index holds int32"));
    assert!(gather(table, index, dense(DType::Bf16, &[5, 4])).contains("destination bfloat16"));
    let mut twice = dst;
    twice.view.strides[0] = 0;
    assert!(gather(table, index, twice).contains("twice"));
}

#[test]
fn feature_nets_that_do_not_hold_together_are_refused() {
    type Spoil = fn(&mut PillarsDesc);
    let cases: [(&str, Spoil); 8] = [
        ("do not fit", |d| d.output = dense(DType::F32, &[6, 8])),
        ("do not fit", |d| d.points = dense(DType::F32, &[5, 12])),
        ("none of them 0", |d| d.points = dense(DType::F32, &[5, 0, 3])),
        ("convert with a copy", |d| d.points.dtype = DType::Bf16),
        ("only float32 and bfloat16", |d| d.points.dtype = DType::U8),
        ("must be 1", |d| {
            d.points.view = d.points.view.transpose(&[0, 2, 1]).unwrap()
        }),
        ("widths from 1", |d| d.hidden = Some(0)),
        ("twice", |d| d.output.view.strides[0] = 4),
    ];
    for (reason, spoil) in cases {
        let mut desc = PillarsDesc {
            points: dense(DType::F32, &[5, 4, 3]),
            output: dense(DType::F32, &[5, 8]),
            hidden: Some(6),
        };
        spoil(&mut desc);
        let found = refusal(&OpDesc::Pillars(desc));
        assert!(found.contains(reason), "{found}: {reason}");
    }
}

#[test]
fn choices_picks_and_tap_tables_that_do_not_fit_are_refused() {
    let (flags, wide) = (dense(DType::F32, &[4, 6]), dense(DType::F32, &[4, 7]));
    let select = |condition, yes, no, dst| {
        refusal(&OpDesc::Select {
            condition,
            yes,
            no,
            dst,
        })
    };
    assert!(select(flags, wide, flags, flags).contains("yes has shape [4, 7], destination [4, 6]"));
    let narrow = dense(DType::Bf16, &[4, 6]);
    assert!(select(flags, narrow, flags, flags).contains("convert with a copy first"));
    assert!(select(dense(DType::U8, &[4, 6]), flags, flags, flags).contains("condition holds uint8"));
    let gather = |src, index, dst, axis| {
        refusal(&OpDesc::GatherElements {
            src,
            index,
            dst,
            axis,
        })
    };
    let index = dense(DType::U32, &[4, 6]);
    assert!(gather(wide, index, flags, 2).contains("axis 2 of source of shape [4, 7]"));
    assert!(gather(wide, dense(DType::U8, &[4, 6]), flags, 1).contains("index holds uint8"));
    assert!(gather(wide, index, narrow, 1).contains("source holds float32, destination bfloat16"));
    assert!(
        gather(dense(DType::F32, &[3, 6]), index, flags, 1).contains("it may be longer along axis 1 only")
    );
    let scatter = |updates, index, dst, combine| {
        refusal(&OpDesc::ScatterElements {
            updates,
            index,
            dst,
            axis: 0,
            combine,
        })
    };
    let bytes = dense(DType::U8, &[4, 6]);
    assert!(scatter(bytes, index, bytes, Some(BinaryKind::Add)).contains("updates holds uint8"));
    assert!(scatter(flags, dense(DType::U32, &[4, 5]), flags, None).contains("index has shape [4, 5]"));
    let table = |taps: usize, positions: &[u32]| TapTable {
        taps,
        positions: positions.into(),
        weights: vec![Scalar::new(1.0); positions.len()].into(),
    };
    let resize = |rows: TapTable| {
        refusal(&OpDesc::ResizeTaps {
            src: image(DType::F32, [1, 4, 2, 1], 4, 0).0,
            dst: image(DType::F32, [1, 4, 3, 1], 4, 0).0,
            rows,
            columns: table(1, &[0]),
        })
    };
    assert!(resize(table(1, &[0, 1])).contains("rows: 2 positions and 2 weights for 3 outputs of 1 taps"));
    assert!(resize(table(1, &[0, 1, 2])).contains("rows: a position Some(2) of 2"));
    assert!(resize(table(0, &[])).contains("of 0 taps"));
}
