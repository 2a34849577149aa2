//! Products of matrices over random shapes, views and types, against f64.

use sensorium::device::cpu::kernels::{Isa, prepare};
use sensorium::device::{Activation, DeviceError, MatMulDesc, OpDesc, Operand, Scalar};
use sensorium::tensor::{DType, HostTensor};

use crate::kernels::convolution::{SMOOTH, activate};
use crate::kernels::harness::{
    Random, dense, element, positions, random, run_everywhere, tensor, values, zeros,
};

/// An operand of these dimensions, its axes stored in a random order, with gaps and an offset now and then.
fn operand(r: &mut Random, dtype: DType, dims: &[usize]) -> (Operand, usize) {
    let mut order: Vec<usize> = (0..dims.len()).collect();
    for i in (1..order.len()).rev() {
        if r.range(0, 1) == 0 {
            order.swap(i, r.range(0, i));
        }
    }
    let gap = r.pick(&[0, 0, 3]);
    let mut stored: Vec<usize> = order.iter().map(|&axis| dims[axis]).collect();
    if let Some(last) = stored.last_mut() {
        *last += gap;
    }
    let mut operand = dense(dtype, &stored);
    let len = stored.iter().product();
    let mut back = vec![0; order.len()];
    for (place, &axis) in order.iter().enumerate() {
        back[axis] = place;
    }
    operand.view = operand.view.transpose(&back).unwrap();
    let last = *order.last().unwrap();
    operand.view = operand.view.slice(last, gap / 2, dims[last], 1).unwrap();
    (operand, len)
}

fn check(r: &mut Random, batch: &[usize], [m, k, n]: [usize; 3], shared: bool) {
    let types = [DType::F32, DType::F32, DType::Bf16];
    let [left_type, right_type, out_type] = [(); 3].map(|()| r.pick(&types));
    let dims = |last: [usize; 2]| [batch, &last].concat();
    let (lhs, lhs_len) = operand(r, left_type, &dims([m, k]));
    let right_dims = if shared { vec![k, n] } else { dims([k, n]) };
    let (mut rhs, rhs_len) = operand(r, right_type, &right_dims);
    if shared {
        rhs.view = rhs
            .view
            .broadcast_to(dense(DType::F32, &dims([k, n])).view.shape)
            .unwrap();
    }
    let (output, output_len) = operand(r, out_type, &dims([m, n]));
    let bias = match r.range(0, 3) {
        0 => None,
        1 => Some(operand(r, DType::F32, &dims([m, n]))),
        2 => Some(operand(r, DType::Bf16, &[n])),
        _ => Some(operand(r, DType::F32, &[m, 1])),
    };
    let bias = bias.map(|(mut bias, len)| {
        bias.view = bias.view.broadcast_to(output.view.shape).unwrap();
        (bias, random(r, bias.dtype, len, 1.0))
    });
    let desc = MatMulDesc {
        lhs,
        rhs,
        output,
        bias: bias.as_ref().map(|(bias, _)| *bias),
        scale: Scalar::new(r.pick(&[1.0, 0.25, -1.7])),
        activation: if r.range(0, 1) == 0 {
            Activation::Identity
        } else {
            r.pick(&SMOOTH)
        },
    };
    let (left, right) = (
        random(r, lhs.dtype, lhs_len, 1.0),
        random(r, rhs.dtype, rhs_len, 1.0),
    );
    let op = OpDesc::MatMul(desc.clone());
    let found = run_everywhere(&op, 2, |_| {
        let mut buffers = vec![left.clone(), right.clone(), zeros(output.dtype, output_len)];
        buffers.extend(bias.as_ref().map(|(_, values)| values.clone()));
        buffers
    });
    let (left, right, found) = (values(&left), values(&right), values(&found));
    let added = bias.as_ref().map(|(_, tensor)| values(tensor));
    for at in positions(&output.view.shape) {
        let front = &at[..batch.len()];
        let (row, column) = (at[batch.len()], at[batch.len() + 1]);
        let place = |last: [usize; 2]| [front, &last].concat();
        let (mut sum, mut size) = (0.0, 0.0_f64);
        for i in 0..k {
            let product =
                left[element(&lhs.view, &place([row, i]))] * right[element(&rhs.view, &place([i, column]))];
            sum += product;
            size += product.abs();
        }
        sum *= f64::from(desc.scale.get());
        if let (Some((bias, _)), Some(added)) = (&bias, &added) {
            sum += added[element(&bias.view, &at)];
        }
        let exact = activate(desc.activation, sum);
        let y = found[element(&output.view, &at)];
        // The activations have slopes of at most about 1 but for exp, whose slope is its value.
        let slope = 1.2_f64.max(if desc.activation == Activation::Exp {
            exact
        } else {
            0.0
        });
        let mut allowed = slope * 1e-6 * (1.0 + size.max(sum.abs()) * 2.0) + 1e-6 * exact.abs();
        if output.dtype == DType::Bf16 {
            allowed += exact.abs() / 256.0;
        }
        assert!(
            (y - exact).abs() <= allowed,
            "{y} is not {exact} at {at:?} of {desc:?}"
        );
    }
}

#[test]
fn a_product_equals_its_definition_for_any_shape_view_and_type() {
    let mut r = Random(61);
    for _ in 0..150 {
        let batch: &[usize] = [&[][..], &[3], &[2, 3], &[1, 4]][r.range(0, 3)];
        let size = [r.range(1, 37), r.range(1, 40), r.range(1, 75)];
        let shared = r.range(0, 2) == 0;
        check(&mut r, batch, size, shared);
    }
    for size in [
        [1, 300, 5],
        [300, 7, 1],
        [15, 1, 33],
        [64, 129, 64],
        [29, 260, 131],
    ] {
        check(&mut r, &[], size, false);
    }
}

#[test]
fn sums_do_not_depend_on_what_else_is_computed() {
    let mut r = Random(62);
    let (m, k, n) = (45, 200, 70);
    let left = random(&mut r, DType::F32, m * k, 1.0);
    let right = random(&mut r, DType::F32, k * n, 1.0);
    let product = |rows: usize, columns: usize| {
        let mut rhs = dense(DType::F32, &[k, n]);
        rhs.view = rhs.view.slice(1, 0, columns, 1).unwrap();
        let op = OpDesc::MatMul(MatMulDesc {
            lhs: dense(DType::F32, &[rows, k]),
            rhs,
            output: dense(DType::F32, &[rows, columns]),
            bias: None,
            scale: Scalar::new(1.0),
            activation: Activation::Identity,
        });
        let out = run_everywhere(&op, 2, |_| {
            vec![left.clone(), right.clone(), zeros(DType::F32, rows * columns)]
        });
        out.as_slice::<f32>().unwrap().to_vec()
    };
    let whole = product(m, n);
    for (rows, columns) in [(1, 1), (13, 17), (44, 70), (45, 33)] {
        for (i, row) in product(rows, columns).chunks(columns).enumerate() {
            assert_eq!(row, &whole[i * n..i * n + columns], "{rows} x {columns}, row {i}");
        }
    }
}

#[test]
fn a_product_over_nothing_is_the_bias_and_one_of_nothing_writes_nothing() {
    let op = |m: usize, k: usize| {
        let mut bias = dense(DType::F32, &[2]);
        bias.view = bias
            .view
            .broadcast_to(dense(DType::F32, &[m, 2]).view.shape)
            .unwrap();
        OpDesc::MatMul(MatMulDesc {
            lhs: dense(DType::F32, &[m, k]),
            rhs: dense(DType::F32, &[k, 2]),
            output: dense(DType::F32, &[m, 2]),
            bias: Some(bias),
            scale: Scalar::new(1.0),
            activation: Activation::Identity,
        })
    };
    let bias = || tensor(DType::F32, &[3.0, -4.0]);
    let empty = || HostTensor::from_slice::<f32>(&[0], &[]).unwrap();
    let found = run_everywhere(&op(3, 0), 2, |_| {
        vec![empty(), empty(), zeros(DType::F32, 6), bias()]
    });
    assert_eq!(values(&found), [3.0, -4.0, 3.0, -4.0, 3.0, -4.0]);
    run_everywhere(&op(0, 5), 2, |_| {
        vec![empty(), zeros(DType::F32, 10), empty(), bias()]
    });
}

#[test]
fn products_that_do_not_fit_are_refused() {
    let base = MatMulDesc {
        lhs: dense(DType::F32, &[2, 3, 4]),
        rhs: dense(DType::F32, &[2, 4, 5]),
        output: dense(DType::F32, &[2, 3, 5]),
        bias: None,
        scale: Scalar::new(1.0),
        activation: Activation::Identity,
    };
    type Spoil = fn(&mut MatMulDesc);
    let cases: [(&str, Spoil); 7] = [
        ("do not fit", |d| d.lhs = dense(DType::F32, &[2, 3, 5])),
        ("do not fit", |d| d.rhs = dense(DType::F32, &[1, 4, 5])),
        ("do not fit", |d| d.output = dense(DType::F32, &[3, 5])),
        ("do not fit", |d| {
            d.lhs = dense(DType::F32, &[4]);
            d.rhs = dense(DType::F32, &[4]);
            d.output = dense(DType::F32, &[1]);
        }),
        ("only float32 and bfloat16", |d| d.rhs.dtype = DType::U8),
        ("bias has shape", |d| d.bias = Some(dense(DType::F32, &[5]))),
        ("write one place twice", |d| {
            d.output.view = dense(DType::F32, &[5])
                .view
                .broadcast_to(d.output.view.shape)
                .unwrap();
        }),
    ];
    for (reason, spoil) in cases {
        let mut desc = base.clone();
        spoil(&mut desc);
        match prepare(&OpDesc::MatMul(desc), Isa::detect()) {
            Err(DeviceError::InvalidOp {
                op: "matmul",
                reason: found,
            }) => {
                assert!(found.contains(reason), "expected {reason:?}, found {found:?}");
            }
            other => panic!("{reason}: {other:?}"),
        }
    }
}
