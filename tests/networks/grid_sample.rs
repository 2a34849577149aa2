//! Sampling of maps: against its definition in f64, the host's emulation bit for bit, and ONNX Runtime.

use crate::blocks;
use crate::graphs;
use crate::support;
use std::sync::Arc;

use half::bf16;
use ndarray::{Array4, ArrayView4};
use sensorium::device::{BufferClass, Cq, OutsidePixels, SampleWeights, Sampling};
use sensorium::ops::deform::{
    GridSampleOptions, OUTSIDE, affine_grid, affine_pixel_coords, emulate_grid_sample, grid_sample,
    kernel_pixels, pad_channels, padded_channels, pixel_to_grid, resize_grid, resize_pixel_coords,
};
use sensorium::ops::{OpContext, OpRefusal, PortRule};
use sensorium::tensor::{DType, HostTensor};
use sensorium::trace::TraceContext;

use blocks::{as_rows, cpu, everywhere, numbers, stored, unit};
use graphs::Random;

fn images(r: &mut Random, dims: (usize, usize, usize, usize)) -> Array4<f32> {
    // Exact in bf16, so that both types sample the same images.
    Array4::from_shape_simple_fn(dims, || bf16::from_f32(unit(r)).to_f32())
}

/// Samples on every device; the result as `[N, OH, OW, C]`.
fn sample(dtype: DType, x: &Array4<f32>, grid: &Array4<f32>, options: GridSampleOptions) -> HostTensor {
    let (n, h, w, c) = x.dim();
    let places = grid.shape().to_vec();
    let inputs = [
        ("x", stored(dtype, &[n, h, w, c], x.as_slice().unwrap())),
        (
            "grid",
            HostTensor::from_slice(&places, grid.as_slice().unwrap()).unwrap(),
        ),
    ];
    let mut found = everywhere(&inputs, || {
        Arc::new(move |context: &mut TraceContext<'_>| {
            let x = context.input("x")?.as_feature_map([n, h, w, c]).unwrap();
            let grid = context.input("grid")?;
            let y = grid_sample(context.ops(), &x, &grid, &options)?;
            Ok(vec![("y".to_owned(), as_rows(&y))])
        })
    });
    found.remove(0)
}

/// Bilinear sampling with zeros outside in f64, each pixel weighted by how near it is: `max(0, 1 - |distance|)`.
fn tent(
    x: ArrayView4<'_, f32>,
    pixel: impl Fn(usize, usize, usize) -> [f64; 2],
    out: [usize; 2],
) -> Array4<f64> {
    let (images, h, w, c) = x.dim();
    let near = |len: usize, p: f64| -> Vec<(usize, f64)> {
        let weight = |at: usize| (at, (1.0 - (at as f64 - p).abs()).max(0.0));
        (0..len).map(weight).filter(|&(_, weight)| weight > 0.0).collect()
    };
    let mut y = Array4::zeros((images, out[0], out[1], c));
    for (n, oy, ox) in
        (0..images).flat_map(|n| (0..out[0]).flat_map(move |y| (0..out[1]).map(move |x| (n, y, x))))
    {
        let [px, py] = pixel(n, oy, ox);
        let columns = near(w, px);
        for (iy, wy) in near(h, py) {
            for &(ix, wx) in &columns {
                for c in 0..c {
                    y[[n, oy, ox, c]] += wy * wx * f64::from(x[[n, iy, ix, c]]);
                }
            }
        }
    }
    y
}

fn worst(found: &HostTensor, exact: &Array4<f64>) -> f64 {
    let found = numbers(found);
    assert_eq!(found.len(), exact.len());
    found
        .iter()
        .zip(exact)
        .fold(0.0, |top, (a, b)| f64::max(top, (a - b).abs()))
}

fn random_grid(r: &mut Random, dims: [usize; 3], reach: f32) -> Array4<f32> {
    Array4::from_shape_simple_fn((dims[0], dims[1], dims[2], 2), || unit(r) * reach)
}

#[test]
fn samples_follow_the_definition_with_zeros_outside() {
    let mut r = Random(1);
    for (dims, out) in [
        ((2, 9, 14, 5), [7, 11]),
        ((1, 16, 16, 32), [4, 40]),
        ((3, 1, 6, 1), [5, 5]),
    ] {
        let x = images(&mut r, dims);
        let grid = random_grid(&mut r, [dims.0, out[0], out[1]], 1.4);
        for align_corners in [false, true] {
            let options = GridSampleOptions {
                align_corners,
                ..GridSampleOptions::default()
            };
            let pixel = |n: usize, y: usize, ox: usize| {
                [(0, dims.2), (1, dims.1)].map(|(axis, size)| {
                    let (g, size) = (f64::from(grid[[n, y, ox, axis]]), size as f64);
                    if align_corners {
                        (g + 1.0) / 2.0 * (size - 1.0)
                    } else {
                        ((g + 1.0) * size - 1.0) / 2.0
                    }
                })
            };
            let exact = tent(x.view(), pixel, out);
            let found = sample(DType::F32, &x, &grid, options);
            assert!(worst(&found, &exact) < 5e-6, "{}", worst(&found, &exact));
            let found = sample(DType::Bf16, &x, &grid, options);
            assert!(worst(&found, &exact) < 4e-3, "{}", worst(&found, &exact));
        }
    }
}

#[test]
fn cut_weights_give_the_bits_of_the_host_emulation() {
    let mut r = Random(2);
    for (dims, out) in [((2, 12, 10, 32), [9, 13]), ((1, 128, 128, 32), [24, 24])] {
        let x = images(&mut r, dims);
        let grid = random_grid(&mut r, [dims.0, out[0], out[1]], 1.2);
        let emulated = emulate_grid_sample(x.view(), grid.view()).unwrap();
        let found = sample(DType::Bf16, &x, &grid, GridSampleOptions::accelerator());
        let expected: Vec<bf16> = emulated.iter().map(|&v| bf16::from_f32(v)).collect();
        assert_eq!(found.as_slice::<bf16>().unwrap(), expected);
        let options = GridSampleOptions {
            weights: SampleWeights::TruncatedBf16,
            ..GridSampleOptions::default()
        };
        let found = sample(DType::F32, &x, &grid, options);
        assert_eq!(found.as_slice::<f32>().unwrap(), emulated.as_slice().unwrap());
    }
}

#[test]
fn an_identity_is_a_copy_an_outside_slot_zeros_and_padding_channels_stay_zeros() {
    let mut r = Random(3);
    let mut x = images(&mut r, (3, 16, 32, 20));
    x[[0, 0, 0, 0]] = -0.0;
    x[[0, 3, 4, 1]] = f32::INFINITY;
    let padded = pad_channels(x.view());
    assert_eq!(
        (padded.dim(), padded_channels(20), padded_channels(64)),
        ((3, 16, 32, 32), 32, 64)
    );
    let identity = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0];
    let turned = [0.8, -0.6, 3.0, 0.6, 0.8, -2.25];
    let transforms = [identity, turned, turned];
    let grid = affine_grid(&transforms, [16, 32], [16, 32], Some(&[true, false, true])).unwrap();
    assert!(grid.index_axis(ndarray::Axis(0), 1).iter().all(|&g| g == OUTSIDE));
    let found = sample(DType::Bf16, &padded, &grid, GridSampleOptions::accelerator());
    let values = found.as_slice::<bf16>().unwrap();
    let slot = 16 * 32 * 32;
    let copy: Vec<u16> = padded
        .iter()
        .take(slot)
        .map(|&v| bf16::from_f32(v).to_bits())
        .collect();
    let bits: Vec<u16> = values.iter().map(|v| v.to_bits()).collect();
    assert_eq!(bits[..slot], copy);
    assert!(bits[slot..2 * slot].iter().all(|&b| b == 0));
    assert!(
        values
            .chunks_exact(32)
            .all(|pixel| pixel[20..].iter().all(|&v| v == bf16::ZERO))
    );
    // The moved slot, against the affine map in f64.
    let exact = tent(
        padded.slice(ndarray::s![2..3, .., .., ..]),
        |_, y, x| {
            let (x, y) = (x as f64, y as f64);
            [0.8 * x - 0.6 * y + 3.0, 0.6 * x + 0.8 * y - 2.25]
        },
        [16, 32],
    );
    for (found, exact) in values[2 * slot..].iter().zip(&exact) {
        assert!((found.to_f64() - exact).abs() < 0.02, "{found} {exact}");
    }
}

#[test]
fn resizes_are_interpolations_and_corners_are_exact() {
    let mut r = Random(4);
    for (input, out) in [
        ([16, 12], [64, 45]),
        ([32, 16], [64, 48]),
        ([5, 7], [3, 2]),
        ([3, 4], [1, 1]),
    ] {
        let x = images(&mut r, (2, input[0], input[1], 32));
        for align_corners in [true, false] {
            let grid = resize_grid(input, out, align_corners, 2).unwrap();
            let found = sample(DType::F32, &x, &grid, GridSampleOptions::default());
            let source = |i: usize, axis: usize| {
                let (from, to) = (input[axis] as f64, out[axis] as f64);
                let pixel = match align_corners {
                    true if out[axis] == 1 => 0.0,
                    true => i as f64 * (from - 1.0) / (to - 1.0),
                    false => ((i as f64 + 0.5) * from / to - 0.5).max(0.0),
                };
                pixel.min(from - 1.0)
            };
            let exact = tent(x.view(), |_, y, x| [source(x, 1), source(y, 0)], out);
            assert!(
                worst(&found, &exact) < 2e-5,
                "{input:?} {out:?}: {}",
                worst(&found, &exact)
            );
            if align_corners && out[0] > 1 && input[0].is_power_of_two() {
                let values = found.as_slice::<f32>().unwrap();
                assert_eq!(values[..32], x.as_slice().unwrap()[..32]);
            }
        }
    }
    assert_eq!(resize_pixel_coords(3, 5, true), [0.0, 0.5, 1.0, 1.5, 2.0]);
    assert_eq!(resize_pixel_coords(2, 4, false), [0.0, 0.25, 0.75, 1.0]);
}

#[test]
fn places_of_whole_pixels_are_exact_for_powers_of_two() {
    for size in [1, 2, 8, 128, 1024] {
        for px in 0..size {
            assert_eq!(kernel_pixels(pixel_to_grid(px as f32, size), size), px as f32);
        }
    }
    for size in [3, 100, 180] {
        for px in 0..size {
            let back = kernel_pixels(pixel_to_grid(px as f32, size), size);
            assert!((back - px as f32).abs() < 2e-5, "{px} of {size}: {back}");
        }
    }
    assert_eq!(pixel_to_grid(0.0, 4), -0.75);
    let coords = affine_pixel_coords(&[[2.0, 3.0, 5.0, 7.0, 11.0, 13.0]], [2, 2]);
    assert_eq!(
        coords.as_slice().unwrap(),
        [5.0, 13.0, 7.0, 20.0, 8.0, 24.0, 10.0, 31.0]
    );
}

#[test]
fn every_mode_is_that_of_onnx_runtime() {
    let mut r = Random(5);
    let modes = [("bilinear", Sampling::Bilinear), ("nearest", Sampling::Nearest)];
    let paddings = [
        ("zeros", OutsidePixels::Zeros),
        ("border", OutsidePixels::Border),
        ("reflection", OutsidePixels::Reflection),
    ];
    for ((mode, sampling), (padding, outside)) in modes.into_iter().flat_map(|m| paddings.map(|p| (m, p))) {
        for align_corners in [false, true] {
            let x = images(&mut r, (2, 7, 10, 3));
            let grid = random_grid(&mut r, [2, 40, 30], 3.1);
            let options = GridSampleOptions {
                sampling,
                outside,
                align_corners,
                ..GridSampleOptions::default()
            };
            let found = sample(DType::F32, &x, &grid, options);
            let Some(mut command) = support::oracle("grid_sample.py") else {
                return;
            };
            let folder = tempfile::tempdir().unwrap();
            let planes: Vec<f32> = x.view().permuted_axes([0, 3, 1, 2]).iter().copied().collect();
            std::fs::write(folder.path().join("x"), bytemuck::cast_slice(&planes)).unwrap();
            std::fs::write(
                folder.path().join("grid"),
                bytemuck::cast_slice(grid.as_slice().unwrap()),
            )
            .unwrap();
            let align = u8::from(align_corners).to_string();
            let sizes = ["2", "3", "7", "10", "40", "30"];
            command
                .arg(folder.path())
                .args([mode, padding, &align])
                .args(sizes);
            let reference = support::floats(&support::run(&mut command));
            let mut off = 0;
            for (i, &found) in found.as_slice::<f32>().unwrap().iter().enumerate() {
                let (image, c, place) = (i / 3600, i % 3, i % 3600 / 3);
                let reference = reference[(image * 3 + c) * 1200 + place];
                if (found - reference).abs() > 1e-4 {
                    off += 1;
                    assert_eq!(
                        mode, "nearest",
                        "{padding} {align_corners} {i}: {found} for {reference}"
                    );
                }
            }
            // A place between two pixels may go to either after another rounding.
            assert!(
                off <= 6,
                "{off} of 7200 values differ, {mode} {padding} {align_corners}"
            );
        }
    }
}

#[test]
fn places_that_are_no_numbers_are_outside() {
    let x = Array4::from_elem((1, 4, 4, 2), 1.0_f32);
    let bad = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3e38, -3e38];
    let places: Vec<f32> = bad.iter().flat_map(|&b| [b, 0.0, 0.0, b]).collect();
    let grid = Array4::from_shape_vec((1, 1, 10, 2), places).unwrap();
    let found = sample(DType::F32, &x, &grid, GridSampleOptions::default());
    assert!(found.as_slice::<f32>().unwrap().iter().all(|&v| v == 0.0));
    for outside in [OutsidePixels::Border, OutsidePixels::Reflection] {
        let options = GridSampleOptions {
            outside,
            ..GridSampleOptions::default()
        };
        let found = sample(DType::F32, &x, &grid, options);
        let values = found.as_slice::<f32>().unwrap();
        assert!(
            values.iter().all(|v| (0.0..=1.0).contains(v)),
            "{outside:?}: {values:?}"
        );
    }
}

#[test]
fn what_a_port_or_any_device_cannot_sample_is_refused_with_the_reason() {
    let mut device = cpu(1);
    let mut ops = OpContext::new(&mut device, Cq::COMPUTE);
    let mut upload = |dtype, dims: [usize; 4]| {
        let values = vec![0.0; dims.iter().product()];
        ops.upload(&stored(dtype, &dims, &values), BufferClass::Input)
            .unwrap()
    };
    let map = |t: &sensorium::ops::DeviceTensor| t.as_feature_map([2, 4, 4, 32]).unwrap();
    let x = map(&upload(DType::Bf16, [2, 4, 4, 32]));
    let wide = map(&upload(DType::F32, [2, 4, 4, 32]));
    let odd = upload(DType::Bf16, [2, 4, 4, 33])
        .as_feature_map([2, 4, 4, 33])
        .unwrap();
    let grid = upload(DType::F32, [2, 3, 3, 2]);
    let single = upload(DType::F32, [1, 3, 3, 2]);
    let short = upload(DType::Bf16, [2, 3, 3, 2]);
    let triples = upload(DType::F32, [2, 3, 3, 3]);
    let here = GridSampleOptions::default();
    let port = GridSampleOptions::accelerator();
    let used = ops.device.memory().used_bytes;
    let mut refused =
        |x, grid, options: GridSampleOptions| grid_sample(&mut ops, x, grid, &options).unwrap_err();
    for options in [here, port] {
        let error = refused(&x, &short, options);
        assert!(matches!(error, OpRefusal::DType { .. }), "{error}");
        assert!(error.to_string().contains("off by pixels"));
        let error = refused(&x, &single, options);
        assert!(
            error.to_string().contains("one grid for each of 2 maps"),
            "{error}"
        );
        assert!(matches!(refused(&x, &triples, options), OpRefusal::Shape { .. }));
    }
    let error = refused(&odd, &grid, port);
    assert!(matches!(error, OpRefusal::Unportable { .. }));
    assert!(
        error.to_string().contains("33 channels: pad them to 64"),
        "{error}"
    );
    assert!(
        refused(&wide, &grid, port)
            .to_string()
            .contains("sampled wrongly")
    );
    let aligned = GridSampleOptions {
        align_corners: true,
        ..port
    };
    assert!(
        refused(&x, &grid, aligned)
            .to_string()
            .contains("corners not aligned")
    );
    assert_eq!(ops.device.memory().used_bytes, used);
    for x in [&odd, &wide] {
        let y = grid_sample(&mut ops, x, &grid, &here).unwrap();
        ops.free(&y).unwrap();
    }
    assert_eq!(port.port_rule, PortRule::Accelerator);
    assert!(affine_grid(&[[0.0; 6]; 2], [4, 4], [4, 4], Some(&[true])).is_err());
    assert!(affine_grid(&[[0.0; 6]], [0, 4], [4, 4], None).is_err());
    assert!(resize_grid([4, 0], [4, 4], true, 1).is_err());
    let x = Array4::zeros((2, 4, 4, 1));
    assert!(emulate_grid_sample(x.view(), Array4::zeros((1, 2, 2, 2)).view()).is_err());
}
