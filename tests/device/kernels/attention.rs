//! Attention over random shapes, views and types, on every instruction set, against f64.

use sensorium::device::cpu::kernels::{Isa, prepare};
use sensorium::device::{DeviceError, OpDesc, Operand, Scalar, SdpaDesc};
use sensorium::tensor::{DType, View};

use crate::kernels::harness::{
    Random, dense, element, positions, random, run_everywhere, tensor, values, zeros,
};

/// `[B, H, S, D]`, stored so or with the heads of a row side by side, now and then with the values of a head apart.
fn heads(r: &mut Random, dtype: DType, [b, h, s, d]: [usize; 4]) -> Operand {
    let view = |dims: &[usize], order: &[usize]| dense(dtype, dims).view.transpose(order).unwrap();
    let view: View = match r.range(0, 3) {
        0 | 1 => view(&[b, s, h, d], &[0, 2, 1, 3]),
        2 => view(&[b, h, s, d], &[0, 1, 2, 3]),
        _ => view(&[b, h, d, s], &[0, 1, 3, 2]),
    };
    Operand { dtype, view }
}

#[test]
fn attention_equals_its_definition_for_any_shape_view_and_type() {
    let mut r = Random(91);
    for _ in 0..80 {
        let (b, kv) = (r.range(1, 2), r.range(1, 2));
        let h = kv * r.range(1, 3);
        let (queries, keys) = (r.range(1, 50), r.range(1, 150));
        let (size, value_size) = (r.range(1, 40), r.range(1, 70));
        let dtypes = [DType::F32, DType::F32, DType::Bf16];
        let [qt, kt, vt, ot, mt] = [(); 5].map(|()| r.pick(&dtypes));
        let desc = SdpaDesc {
            query: heads(&mut r, qt, [b, h, queries, size]),
            key: heads(&mut r, kt, [b, kv, keys, size]),
            value: heads(&mut r, vt, [b, kv, keys, value_size]),
            output: heads(&mut r, ot, [b, h, queries, value_size]),
            mask: match r.range(0, 2) {
                0 => None,
                1 => Some(heads(&mut r, mt, [b, h, queries, keys])),
                _ => {
                    let mut row = dense(mt, &[1, 1, 1, keys]);
                    let scores = dense(mt, &[b, h, queries, keys]).view.shape;
                    row.view = row.view.broadcast_to(scores).unwrap();
                    Some(row)
                }
            },
            scale: Scalar::new(r.pick(&[0.3, 1.0, 2.0])),
            key_block: r.pick(&[1, 16, 33, 64, 1000]),
        };
        let count = |operand: &Operand| operand.view.shape.elements();
        let mut inputs = Vec::new();
        for operand in [&desc.query, &desc.key, &desc.value] {
            inputs.push(random(&mut r, operand.dtype, count(operand), 2.0));
        }
        if let Some(mask) = &desc.mask {
            let numbers: Vec<f32> = (0..count(mask))
                .map(|_| {
                    if r.range(0, 4) == 0 {
                        f32::NEG_INFINITY
                    } else {
                        r.unit()
                    }
                })
                .collect();
            inputs.push(tensor(mask.dtype, &numbers));
        }
        let found = run_everywhere(&OpDesc::Sdpa(desc.clone()), 3, |_| {
            let mut buffers = inputs.clone();
            buffers.insert(3, zeros(ot, count(&desc.output)));
            buffers
        });
        let read: Vec<Vec<f64>> = inputs.iter().map(values).collect();
        let found = values(&found);
        for at in positions(&[b, h, queries]) {
            let (batch, head, query) = (at[0], at[1], at[2]);
            let group = head / (h / kv);
            let scores: Vec<f64> = (0..keys)
                .map(|key| {
                    let product: f64 = (0..size)
                        .map(|i| {
                            read[0][element(&desc.query.view, &[batch, head, query, i])]
                                * read[1][element(&desc.key.view, &[batch, group, key, i])]
                        })
                        .sum();
                    let bias = desc.mask.map_or(0.0, |mask| {
                        read[3][element(&mask.view, &[batch, head, query, key])]
                    });
                    product * f64::from(desc.scale.get()) + bias
                })
                .collect();
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = match largest {
                f64::NEG_INFINITY => vec![0.0; keys],
                _ => scores.iter().map(|score| (score - largest).exp()).collect(),
            };
            let total = weights.iter().sum::<f64>().max(f64::MIN_POSITIVE);
            for i in 0..value_size {
                let exact: f64 = (0..keys)
                    .map(|key| {
                        weights[key] / total * read[2][element(&desc.value.view, &[batch, group, key, i])]
                    })
                    .sum();
                let y = found[element(&desc.output.view, &[batch, head, query, i])];
                let storage = if ot == DType::Bf16 {
                    exact.abs() / 256.0
                } else {
                    0.0
                };
                assert!(
                    (y - exact).abs() <= 1e-4 + storage,
                    "{y} is not {exact} at {at:?} of {desc:?}"
                );
            }
        }
    }
}

#[test]
fn attention_to_nothing_gives_zeros() {
    let desc = SdpaDesc {
        query: dense(DType::F32, &[1, 2, 3, 4]),
        key: dense(DType::F32, &[1, 2, 0, 4]),
        value: dense(DType::F32, &[1, 2, 0, 4]),
        output: dense(DType::F32, &[1, 2, 3, 4]),
        mask: None,
        scale: Scalar::new(1.0),
        key_block: 32,
    };
    let found = run_everywhere(&OpDesc::Sdpa(desc), 3, |_| {
        let empty = || tensor(DType::F32, &[]);
        vec![
            zeros(DType::F32, 24),
            empty(),
            empty(),
            tensor(DType::F32, &[7.0; 24]),
        ]
    });
    assert!(values(&found).iter().all(|&y| y == 0.0));
}

#[test]
fn attention_that_does_not_fit_is_refused() {
    let base = SdpaDesc {
        query: dense(DType::F32, &[2, 4, 10, 8]),
        key: dense(DType::F32, &[2, 2, 12, 8]),
        value: dense(DType::F32, &[2, 2, 12, 6]),
        output: dense(DType::F32, &[2, 4, 10, 6]),
        mask: None,
        scale: Scalar::new(1.0),
        key_block: 32,
    };
    prepare(&OpDesc::Sdpa(base.clone()), Isa::detect()).unwrap();
    type Spoil = fn(&mut SdpaDesc);
    let cases: [(&str, Spoil); 9] = [
        ("expected [batch, heads", |d| {
            d.query = dense(DType::F32, &[4, 10, 8])
        }),
        ("do not fit", |d| d.key = dense(DType::F32, &[2, 3, 12, 8])),
        ("do not fit", |d| d.key = dense(DType::F32, &[2, 2, 12, 7])),
        ("do not fit", |d| d.value = dense(DType::F32, &[2, 2, 11, 6])),
        ("do not fit", |d| d.output = dense(DType::F32, &[2, 4, 10, 8])),
        ("mask has shape", |d| {
            d.mask = Some(dense(DType::F32, &[2, 4, 10, 13]))
        }),
        ("only float32 and bfloat16", |d| d.value.dtype = DType::F16),
        ("a block of no keys", |d| d.key_block = 0),
        ("exceed the scratch memory", |d| {
            let dims = [2, 2, 1 << 22, 8];
            d.key.view = dense(DType::F32, &[2, 2, 1, 8])
                .view
                .broadcast_to(dense(DType::F32, &dims).view.shape)
                .unwrap();
            d.value.view = d.key.view;
            d.output.view = d.query.view;
            d.key_block = usize::MAX;
        }),
    ];
    for (reason, spoil) in cases {
        let mut desc = base.clone();
        spoil(&mut desc);
        match prepare(&OpDesc::Sdpa(desc), Isa::detect()) {
            Err(DeviceError::InvalidOp {
                op: "sdpa",
                reason: found,
            }) => {
                assert!(found.contains(reason), "expected {reason:?}, found {found:?}");
            }
            other => panic!("{reason}: {other:?}"),
        }
    }
}
