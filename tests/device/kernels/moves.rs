//! Copies, conversions, fills, gathers and resizes.

use half::{bf16, f16};
use sensorium::device::cpu::kernels::Isa;
use sensorium::device::{OpDesc, Operand, Scalar};
use sensorium::tensor::{DType, Element, HostTensor, Shape, View};

use crate::kernels::harness::{
    Random, dense, element, image, positions, random, run, run_everywhere, values, zeros,
};

/// Copies values of one type to another.
fn convert<S: Element, D: Element>(source: &[S]) -> Vec<D> {
    let len = [source.len()];
    let op = OpDesc::Copy {
        src: dense(S::DTYPE, &len),
        dst: dense(D::DTYPE, &len),
    };
    let mut buffers = [
        HostTensor::from_slice(&len, source).unwrap(),
        zeros(D::DTYPE, source.len()),
    ];
    run(&op, Isa::detect(), 2, &mut buffers);
    buffers[1].as_slice::<D>().unwrap().to_vec()
}

/// Nearest value of a short float format by search over all of them: ties go to the even bit pattern.
fn nearest(exact: f64, all: &[(f64, u16)]) -> u16 {
    let above = all.partition_point(|&(v, _)| v < exact).clamp(1, all.len() - 1);
    let (low, high) = (all[above - 1], all[above]);
    match (exact - low.0).total_cmp(&(high.0 - exact)) {
        std::cmp::Ordering::Less => low.1,
        std::cmp::Ordering::Greater => high.1,
        std::cmp::Ordering::Equal => {
            if low.1 % 2 == 0 {
                low.1
            } else {
                high.1
            }
        }
    }
}

#[test]
fn floats_become_integers_by_rounding_to_even_and_saturating() {
    let x = [
        0.5,
        1.5,
        2.5,
        -0.5,
        -1.5,
        254.5,
        255.5,
        300.0,
        -7.0,
        f32::NAN,
        f32::INFINITY,
        3e9,
        -3e9,
    ];
    let as_u8: Vec<u8> = convert(&x);
    assert_eq!(as_u8, [0, 2, 2, 0, 0, 254, 255, 255, 0, 0, 255, 255, 0]);
    let as_i8: Vec<i8> = convert(&x);
    assert_eq!(as_i8, [0, 2, 2, 0, -2, 127, 127, 127, -7, 0, 127, 127, -128]);
    let as_i32: Vec<i32> = convert(&x);
    assert_eq!(as_i32[5..], [254, 256, 300, -7, 0, i32::MAX, i32::MAX, i32::MIN]);
    let as_u32: Vec<u32> = convert(&x);
    assert_eq!(as_u32[7..], [300, 0, 0, u32::MAX, 3_000_000_000, 0]);
}

#[test]
fn integers_saturate_and_become_the_nearest_float() {
    assert_eq!(
        convert::<i32, u8>(&[-1, 0, 255, 256, i32::MAX]),
        [0, 0, 255, 255, 255]
    );
    assert_eq!(convert::<u32, i32>(&[0, u32::MAX, 5]), [0, i32::MAX, 5]);
    assert_eq!(convert::<i8, u32>(&[-128, 127]), [0, 127]);
    assert_eq!(convert::<u8, f32>(&[0, 1, 255]), [0.0, 1.0, 255.0]);
    // Rounding through fp32 would tie the wrong way here.
    let mut all: Vec<(f64, u16)> = (0..=u16::MAX)
        .map(|bits| (bf16::from_bits(bits).to_f64(), bits))
        .filter(|(v, bits)| v.is_finite() && *bits != 0x8000)
        .collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut r = Random(31);
    let mut numbers: Vec<i32> = (0..5000).map(|_| r.bits() as i32 >> r.range(0, 24)).collect();
    numbers.extend([
        0x4040_0001,
        0x4040_0000,
        0x403f_ffff,
        -0x4040_0001,
        i32::MIN,
        i32::MAX,
    ]);
    for (&x, y) in numbers.iter().zip(convert::<i32, bf16>(&numbers)) {
        assert_eq!(y.to_bits(), nearest(x.into(), &all), "{x}");
    }
}

#[test]
fn half_formats_round_to_nearest_even() {
    let mut r = Random(32);
    let mut all: Vec<(f64, u16)> = (0..=u16::MAX)
        .map(|bits| (f16::from_bits(bits).to_f64(), bits))
        .filter(|(v, bits)| v.is_finite() && *bits != 0x8000)
        .collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let numbers: Vec<f32> = (0..5000)
        .map(|_| r.unit() * 2_f32.powi(r.range(0, 40) as i32 - 26))
        .collect();
    for (&x, y) in numbers.iter().zip(convert::<f32, f16>(&numbers)) {
        let expected = nearest(x.into(), &all);
        assert!(
            y.to_bits() == expected || y.to_f32() == 0.0 && expected == 0,
            "{x}"
        );
    }
    assert_eq!(
        convert::<f16, f32>(&[f16::from_f32(0.1), f16::INFINITY]),
        [0.099_975_586, f32::INFINITY]
    );
    assert_eq!(
        convert::<bf16, f16>(&[bf16::from_f32(1e6), bf16::from_f32(3.0)]),
        [f16::INFINITY, f16::from_f32(3.0)]
    );
}

#[test]
fn strided_copies_move_every_element_and_nothing_else() {
    let mut r = Random(33);
    for _ in 0..80 {
        let dims: Vec<usize> = (0..r.range(1, 5)).map(|_| r.range(1, 7)).collect();
        // Each view is a permuted, possibly reversed window of a larger dense buffer.
        let window = |r: &mut Random| {
            let mut order: Vec<usize> = (0..dims.len()).collect();
            for i in (1..order.len()).rev() {
                order.swap(i, r.range(0, i));
            }
            let room: Vec<usize> = order.iter().map(|&axis| dims[axis] * 2 + 1).collect();
            let whole = View::contiguous(Shape::new(&room).unwrap());
            let mut inverse = vec![0; order.len()];
            for (at, &axis) in order.iter().enumerate() {
                inverse[axis] = at;
            }
            let mut view = whole.transpose(&inverse).unwrap();
            for (axis, &dim) in dims.iter().enumerate() {
                let (start, step) = r.pick(&[(0, 1), (1, 2), (dim, -1), (2 * dim, -2)]);
                view = view.slice(axis, start, dim, step).unwrap();
            }
            (view, room.iter().product::<usize>())
        };
        let (src, src_len) = window(&mut r);
        let (dst, dst_len) = window(&mut r);
        let types = [DType::F32, DType::Bf16];
        let (from, to) = (r.pick(&types), r.pick(&types));
        let source = random(&mut r, from, src_len, 1.0);
        let before = random(&mut r, to, dst_len, 1.0);
        let op = OpDesc::Copy {
            src: Operand {
                dtype: from,
                view: src,
            },
            dst: Operand { dtype: to, view: dst },
        };
        let found = values(&run_everywhere(&op, 1, |_| vec![source.clone(), before.clone()]));
        let source = values(&source);
        let mut expected = values(&before);
        for at in positions(&dims) {
            let value = source[element(&src, &at)];
            let value = if to == DType::Bf16 {
                bf16::from_f64(value).to_f64()
            } else {
                value
            };
            expected[element(&dst, &at)] = value;
        }
        assert_eq!(found, expected, "{op:?}");
    }
}

#[test]
fn bytes_of_a_planar_image_become_channels_last_floats() {
    let (h, w) = (37, 53);
    let bytes: Vec<u8> = (0..3 * h * w).map(|i| (i * 7 % 251) as u8).collect();
    let src = dense(DType::U8, &[1, 3, h, w]);
    let (dst, len) = image(DType::F32, [1, 3, h, w], 8, 2);
    let mut buffers = [
        HostTensor::from_slice(&[bytes.len()], &bytes).unwrap(),
        zeros(DType::F32, len),
    ];
    run(&OpDesc::Copy { src, dst }, Isa::detect(), 2, &mut buffers);
    let found = buffers[1].as_slice::<f32>().unwrap();
    for (i, &y) in found.iter().enumerate() {
        let expected = match i % 8 {
            c @ 2..5 => f32::from(bytes[(c - 2) * h * w + i / 8]),
            _ => 0.0,
        };
        assert_eq!(y, expected);
    }
}

#[test]
fn fills_write_the_converted_value_into_the_view_only() {
    let mut dst = dense(DType::U8, &[9, 10]);
    dst.view = dst.view.slice(1, 3, 4, 1).unwrap();
    let op = OpDesc::Fill {
        dst,
        value: Scalar::new(114.4),
    };
    let mut buffers = [zeros(DType::U8, 90)];
    run(&op, Isa::detect(), 1, &mut buffers);
    for (i, &y) in buffers[0].bytes().iter().enumerate() {
        assert_eq!(y, if (3..7).contains(&(i % 10)) { 114 } else { 0 });
    }
    let op = OpDesc::Fill {
        dst: dense(DType::Bf16, &[1500]),
        value: Scalar::new(-2.5),
    };
    let found = run_everywhere(&op, 0, |_| vec![zeros(DType::Bf16, 1500)]);
    assert!(values(&found).iter().all(|&y| y == -2.5));
}

#[test]
fn gathers_pick_positions_of_any_axis() {
    let mut r = Random(34);
    for axis in 0..4 {
        let mut out_dims = [2, 12, 5, 6];
        let (src, src_len) = image(DType::F32, out_dims, 13, 1);
        let indices: Vec<u32> = (0..17).map(|_| r.range(0, out_dims[axis] - 1) as u32).collect();
        out_dims[axis] = indices.len();
        let (dst, dst_len) = image(DType::F32, out_dims, out_dims[1] + 1, 0);
        let source = random(&mut r, DType::F32, src_len, 1.0);
        let op = OpDesc::Gather {
            src,
            dst,
            axis,
            indices: indices.clone().into(),
        };
        let found = values(&run_everywhere(&op, 1, |_| {
            vec![source.clone(), zeros(DType::F32, dst_len)]
        }));
        let source = values(&source);
        for at in positions(&out_dims) {
            let mut from = at.clone();
            from[axis] = indices[at[axis]] as usize;
            assert_eq!(found[element(&dst.view, &at)], source[element(&src.view, &from)]);
        }
    }
}

#[test]
fn every_element_type_is_moved_bit_for_bit() {
    let mut r = Random(36);
    for &dtype in DType::ALL {
        let size = dtype.size_bytes();
        let mut src = dense(dtype, &[7, 30]);
        src.view = src.view.transpose(&[1, 0]).unwrap();
        let dst = dense(dtype, &[30, 7]);
        let mut source = zeros(dtype, 7 * 30);
        source.bytes_mut().fill_with(|| r.bits() as u8);
        let indices: Vec<u32> = (0..30).rev().collect();
        let gather = OpDesc::Gather {
            src,
            dst,
            axis: 0,
            indices: indices.clone().into(),
        };
        for (op, is_gather) in [(OpDesc::Copy { src, dst }, false), (gather, true)] {
            let mut buffers = [source.clone(), zeros(dtype, 7 * 30)];
            run(&op, Isa::detect(), 2, &mut buffers);
            for at in positions(&[30, 7]) {
                let row = if is_gather { indices[at[0]] as usize } else { at[0] };
                let from = element(&src.view, &[row, at[1]]) * size;
                let to = element(&dst.view, &at) * size;
                assert_eq!(
                    buffers[1].bytes()[to..to + size],
                    source.bytes()[from..from + size],
                    "{dtype} {at:?}"
                );
            }
        }
    }
}

#[test]
fn nearest_resize_follows_its_tables() {
    let mut r = Random(35);
    for dtype in [DType::F32, DType::Bf16, DType::U8] {
        let (src, src_len) = image(dtype, [2, 19, 4, 5], 24, 3);
        let (dst, dst_len) = image(dtype, [2, 19, 8, 10], 38, 19);
        let rows: Vec<u32> = (0..8).map(|y| y / 2).collect();
        let columns: Vec<u32> = (0..10).map(|x| x / 2).collect();
        let size = dtype.size_bytes();
        let source: Vec<u8> = (0..src_len * size).map(|_| r.bits() as u8).collect();
        let op = OpDesc::ResizeNearest {
            src,
            dst,
            rows: rows.clone().into(),
            columns: columns.clone().into(),
        };
        let mut buffers = [
            HostTensor::from_slice(&[source.len()], &source).unwrap(),
            zeros(dtype, dst_len),
        ];
        run(&op, Isa::detect(), 3, &mut buffers);
        for at in positions(&dst.view.shape) {
            let from = [at[0], at[1], rows[at[2]] as usize, columns[at[3]] as usize];
            let (from, to) = (element(&src.view, &from) * size, element(&dst.view, &at) * size);
            assert_eq!(buffers[1].bytes()[to..to + size], source[from..from + size]);
        }
    }
}
