//! Layers in float64, as their definitions say, on weights that are drawn as documented.

use ndarray::{Array2, Array4};
use sensorium::perception::temporal::SeededWeights;

/// A map `[rows, columns, channels]`, or rows `[rows, channels]` with one column.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Map {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) channels: usize,
    pub(crate) values: Vec<f64>,
}

impl Map {
    pub(crate) fn zeros(rows: usize, columns: usize, channels: usize) -> Self {
        Self {
            rows,
            columns,
            channels,
            values: vec![0.0; rows * columns * channels],
        }
    }

    pub(crate) fn of_rows(rows: &[Vec<f64>]) -> Self {
        Self {
            rows: rows.len(),
            columns: 1,
            channels: rows.first().map_or(0, Vec::len),
            values: rows.concat(),
        }
    }

    pub(crate) fn from_f32(rows: usize, columns: usize, channels: usize, values: &[f32]) -> Self {
        assert_eq!(values.len(), rows * columns * channels);
        Self {
            rows,
            columns,
            channels,
            values: values.iter().map(|&v| v.into()).collect(),
        }
    }

    pub(crate) fn pixel(&self, row: usize, column: usize) -> &[f64] {
        let first = (row * self.columns + column) * self.channels;
        &self.values[first..first + self.channels]
    }

    pub(crate) fn pixels(&self) -> impl Iterator<Item = &[f64]> {
        self.values.chunks_exact(self.channels)
    }
}

/// A square convolution: weights `[out, in, k, k]`, padding `k / 2`.
pub(crate) struct Conv {
    pub(crate) weight: Array4<f32>,
    pub(crate) bias: Vec<f32>,
    pub(crate) stride: usize,
    pub(crate) relu: bool,
}

impl Conv {
    /// As the models draw one: the weights, then biases within 0.1.
    pub(crate) fn drawn(
        seed: u64,
        name: &str,
        [inputs, outputs]: [usize; 2],
        kernel: usize,
        stride: usize,
    ) -> Self {
        let mut drawn = SeededWeights::new(seed, name);
        Self {
            weight: drawn.conv(outputs, inputs, kernel),
            bias: drawn.numbers(outputs, 0.1),
            stride,
            relu: true,
        }
    }

    pub(crate) fn run(&self, x: &Map) -> Map {
        let (outputs, inputs, kernel, _) = self.weight.dim();
        assert_eq!(x.channels, inputs);
        let pad = kernel / 2;
        let size = |n: usize| (n + 2 * pad - kernel) / self.stride + 1;
        let mut y = Map::zeros(size(x.rows), size(x.columns), outputs);
        // `[tap, in, out]`, so that the innermost loop runs over what lies together.
        let taps: Vec<f64> = (0..kernel * kernel * inputs * outputs)
            .map(|i| {
                let (out, rest) = (i % outputs, i / outputs);
                let (input, tap) = (rest % inputs, rest / inputs);
                self.weight[[out, input, tap / kernel, tap % kernel]].into()
            })
            .collect();
        for (place, sums) in y.values.chunks_exact_mut(outputs).enumerate() {
            for (sum, &bias) in sums.iter_mut().zip(&self.bias) {
                *sum = bias.into();
            }
            let (row, column) = (place / y.columns, place % y.columns);
            for tap in 0..kernel * kernel {
                let at = [
                    row * self.stride + tap / kernel,
                    column * self.stride + tap % kernel,
                ];
                let [Some(r), Some(c)] = at.map(|v| v.checked_sub(pad)) else {
                    continue;
                };
                if r >= x.rows || c >= x.columns {
                    continue;
                }
                for (input, &value) in x.pixel(r, c).iter().enumerate() {
                    if value != 0.0 {
                        let weights = &taps[(tap * inputs + input) * outputs..][..outputs];
                        sums.iter_mut()
                            .zip(weights)
                            .for_each(|(sum, w)| *sum += value * w);
                    }
                }
            }
            if self.relu {
                sums.iter_mut().for_each(|sum| *sum = sum.max(0.0));
            }
        }
        y
    }
}

/// A dense layer: weights `[in, out]`.
pub(crate) struct Dense {
    pub(crate) weight: Array2<f32>,
    pub(crate) bias: Vec<f32>,
    pub(crate) relu: bool,
}

impl Dense {
    /// As the models draw one: the weights, then biases within 0.1.
    pub(crate) fn drawn(seed: u64, name: &str, [inputs, outputs]: [usize; 2], relu: bool) -> Self {
        let mut drawn = SeededWeights::new(seed, name);
        let gain = if relu { std::f32::consts::SQRT_2 } else { 1.0 };
        Self {
            weight: drawn.dense(inputs, outputs, gain),
            bias: drawn.numbers(outputs, 0.1),
            relu,
        }
    }

    /// With weights that are scaled by input, and biases that are given.
    pub(crate) fn scaled(seed: u64, name: &str, scales: &[f32], bias: &[f32], gain: f32) -> Self {
        let mut weight = SeededWeights::new(seed, name).dense(scales.len(), bias.len(), gain);
        for (mut row, scale) in weight.rows_mut().into_iter().zip(scales) {
            row.mapv_inplace(|w| w * scale);
        }
        Self {
            weight,
            bias: bias.to_vec(),
            relu: false,
        }
    }

    pub(crate) fn run(&self, x: &Map) -> Map {
        let (inputs, outputs) = self.weight.dim();
        assert_eq!(x.channels, inputs);
        let mut y = Map::zeros(x.rows, x.columns, outputs);
        for (sums, row) in y.values.chunks_exact_mut(outputs).zip(x.pixels()) {
            for (out, sum) in sums.iter_mut().enumerate() {
                let products = row
                    .iter()
                    .enumerate()
                    .map(|(i, v)| v * f64::from(self.weight[[i, out]]));
                *sum = f64::from(self.bias[out]) + products.sum::<f64>();
                if self.relu {
                    *sum = sum.max(0.0);
                }
            }
        }
        y
    }
}

/// `norm(a + b)` of rows.
pub(crate) fn normalised(a: &Map, b: &Map) -> Map {
    let mut y = a.clone();
    for (row, more) in y.values.chunks_exact_mut(a.channels).zip(b.pixels()) {
        row.iter_mut().zip(more).for_each(|(a, b)| *a += b);
        let count = row.len() as f64;
        let mean = row.iter().sum::<f64>() / count;
        let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count;
        row.iter_mut()
            .for_each(|v| *v = (*v - mean) / (variance + 1e-5).sqrt());
    }
    y
}

/// `softmax(q k / sqrt(32)) v` in heads of 32.
pub(crate) fn attention(q: &Map, k: &Map, v: &Map) -> Map {
    let mut y = Map::zeros(q.rows, 1, q.channels);
    for head in (0..q.channels).step_by(32) {
        for (out, query) in y.values.chunks_exact_mut(q.channels).zip(q.pixels()) {
            let scores: Vec<f64> = k
                .pixels()
                .map(|key| {
                    let products = query[head..head + 32].iter().zip(&key[head..head + 32]);
                    products.map(|(a, b)| a * b).sum::<f64>() / 32_f64.sqrt()
                })
                .collect();
            let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for (weight, value) in weights.iter().zip(v.pixels()) {
                for i in head..head + 32 {
                    out[i] += weight / sum * value[i];
                }
            }
        }
    }
    y
}

/// `x` and `y` at the place `to` of what has them at the place `from`.
pub(crate) fn moved([x, y]: [f64; 2], from: Option<[f64; 3]>, to: Option<[f64; 3]>) -> [f64; 2] {
    let (Some([fx, fy, f]), Some([tx, ty, t])) = (from, to) else {
        return [x, y];
    };
    let (world_x, world_y) = (f.cos() * x - f.sin() * y + fx, f.sin() * x + f.cos() * y + fy);
    let (dx, dy) = (world_x - tx, world_y - ty);
    [t.cos() * dx + t.sin() * dy, t.cos() * dy - t.sin() * dx]
}

/// That float32 values are within `share` of the largest exact one; prints how far they are.
pub(crate) fn assert_near(what: &str, found: &[u32], exact: &[f64], share: f64) {
    assert_eq!(found.len(), exact.len());
    let top = exact.iter().fold(0.0_f64, |top, v| top.max(v.abs()));
    let found = found.iter().map(|&bits| f64::from(f32::from_bits(bits)));
    let apart = found
        .zip(exact)
        .fold(0.0_f64, |worst, (a, b)| worst.max((a - b).abs()));
    println!("{what}: off by {apart:.2e} of {top:.3}");
    assert!(
        top > 0.1 && apart <= share * top,
        "{what}: off by {apart} of {top}"
    );
}
