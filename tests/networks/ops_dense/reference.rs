//! Definitions in f64, random data, and a device.

use std::time::Duration;

use half::bf16;
use ndarray::Array4;
use sensorium::device::{Activation, BufferClass, CpuConfig, CpuDevice, Cq};
use sensorium::ops::conv::{LayerError, map_from_host, map_to_host};
use sensorium::ops::{DeviceTensor, OpContext};
use sensorium::tensor::DType;

pub(crate) use crate::graphs::Random;

pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) fn unit(r: &mut Random) -> f32 {
    (r.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
}

pub(crate) fn array4(r: &mut Random, dims: [usize; 4], scale: f32) -> Array4<f32> {
    Array4::from_shape_simple_fn(dims, || unit(r) * scale)
}

pub(crate) fn vector(r: &mut Random, len: usize) -> Vec<f32> {
    (0..len).map(|_| unit(r)).collect()
}

/// The values that a type keeps.
pub(crate) fn stored(values: &Array4<f32>, dtype: DType) -> Array4<f32> {
    match dtype {
        DType::Bf16 => values.mapv(|x| bf16::from_f32(x).to_f32()),
        _ => values.clone(),
    }
}

pub(crate) fn cpu(threads: usize) -> CpuDevice {
    CpuDevice::open(&CpuConfig {
        threads,
        ..CpuConfig::default()
    })
    .unwrap()
}

/// Runs work on a feature map with two threads and returns its results to the host; the map and results are freed.
pub(crate) fn run(
    image: &Array4<f32>,
    dtype: DType,
    work: impl FnOnce(&mut OpContext<'_>, &DeviceTensor) -> Result<Vec<DeviceTensor>, LayerError>,
) -> Result<Vec<Array4<f32>>, LayerError> {
    let mut device = cpu(2);
    let mut ops = OpContext::new(&mut device, Cq(0));
    let x = map_from_host(&mut ops, image.view(), dtype, BufferClass::Input)?;
    let results = work(&mut ops, &x)?;
    let host = results
        .iter()
        .map(|map| map_to_host(&mut ops, map, DEADLINE))
        .collect();
    for map in results {
        ops.free(&map).unwrap();
    }
    ops.free(&x).unwrap();
    host
}

pub(crate) fn activate(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Identity => x,
        Activation::Relu => x.max(0.0),
        Activation::Clip { low, high } => x.clamp(low.get().into(), high.get().into()),
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Activation::HardSwish => x * (x / 6.0 + 0.5).clamp(0.0, 1.0),
        other => panic!("no formula for {other:?}"),
    }
}

/// Geometry of a convolution, pairs `[rows, columns]`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) stride: [usize; 2],
    pub(crate) dilation: [usize; 2],
    /// `[begin, end]` of rows and columns.
    pub(crate) pads: [[usize; 2]; 2],
    pub(crate) groups: usize,
}

impl Window {
    pub(crate) fn plain(pad: usize) -> Self {
        Self {
            stride: [1; 2],
            dilation: [1; 2],
            pads: [[pad; 2]; 2],
            groups: 1,
        }
    }
}

/// A convolution from its definition: the sum over taps and channels of the padded image.
pub(crate) fn convolve(
    x: &Array4<f32>,
    w: &Array4<f32>,
    bias: Option<&[f32]>,
    window: Window,
) -> Array4<f64> {
    let (n, cin, h, width) = x.dim();
    let (cout, group_in, kh, kw) = w.dim();
    let [[top, bottom], [left, right]] = window.pads;
    let mut padded = Array4::<f64>::zeros((n, cin, h + top + bottom, width + left + right));
    for ((i, c, y, column), &value) in x.indexed_iter() {
        padded[[i, c, y + top, column + left]] = value.into();
    }
    let size = |length: usize, kernel: usize, axis: usize| {
        (length - (kernel - 1) * window.dilation[axis] - 1) / window.stride[axis] + 1
    };
    let out = (n, cout, size(padded.dim().2, kh, 0), size(padded.dim().3, kw, 1));
    let (rows, columns) = (padded.dim().2, padded.dim().3);
    // Plain indices: those of arrays take most of a test's time.
    let (padded, weights) = (padded.into_raw_vec_and_offset().0, w.as_standard_layout());
    let weights = weights.as_slice().unwrap();
    Array4::from_shape_fn(out, |(i, o, y, column)| {
        let first = o / (cout / window.groups) * group_in;
        let (top, left) = (y * window.stride[0], column * window.stride[1]);
        let mut sum = bias.map_or(0.0, |bias| bias[o].into());
        for c in 0..group_in {
            for ky in 0..kh {
                let row = (i * cin + first + c) * rows + top + ky * window.dilation[0];
                for kx in 0..kw {
                    let weight = weights[((o * group_in + c) * kh + ky) * kw + kx];
                    sum += padded[row * columns + left + kx * window.dilation[1]] * f64::from(weight);
                }
            }
        }
        sum
    })
}

/// Pearson's correlation.
pub(crate) fn correlation(found: &Array4<f32>, exact: &Array4<f64>) -> f64 {
    assert_eq!(found.dim(), exact.dim());
    let count = exact.len() as f64;
    let (mean_f, mean_e) = (
        found.iter().map(|&x| f64::from(x)).sum::<f64>() / count,
        exact.sum() / count,
    );
    let (mut both, mut ff, mut ee) = (0.0, 0.0, 0.0);
    for (&f, &e) in found.iter().zip(exact) {
        let (f, e) = (f64::from(f) - mean_f, e - mean_e);
        both += f * e;
        ff += f * f;
        ee += e * e;
    }
    both / (ff * ee).sqrt()
}

/// Largest difference.
pub(crate) fn worst(found: &Array4<f32>, exact: &Array4<f64>) -> f64 {
    assert_eq!(found.dim(), exact.dim());
    found
        .iter()
        .zip(exact)
        .map(|(&f, e)| (f64::from(f) - e).abs())
        .fold(0.0, f64::max)
}

pub(crate) fn bits(array: &Array4<f32>) -> Vec<u32> {
    array.iter().map(|x| x.to_bits()).collect()
}
