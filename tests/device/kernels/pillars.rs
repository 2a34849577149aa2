//! The feature net of pillars against its definition in f64.

use sensorium::device::cpu::kernels::{Isa, pack_weights};
use sensorium::device::{DenseLayer, DeviceError, OpDesc, PillarsDesc, WeightDesc};
use sensorium::tensor::{DType, HostTensor};

use crate::kernels::harness::{Random, dense, element, positions, random, run_everywhere, values};

struct Net {
    first: (Vec<f32>, Vec<f32>),
    second: Option<(Vec<f32>, Vec<f32>)>,
}

impl Net {
    fn random(r: &mut Random, features: usize, hidden: Option<usize>, outputs: usize) -> Self {
        let layer = |r: &mut Random, inputs: usize, outputs: usize| {
            let scale = 1.0 / (inputs as f32).sqrt();
            let weight = (0..inputs * outputs).map(|_| r.unit() * scale).collect();
            (weight, (0..outputs).map(|_| r.unit() * 0.3).collect())
        };
        Self {
            first: layer(r, features, hidden.unwrap_or(outputs)),
            second: hidden.map(|width| layer(r, 2 * width, outputs)),
        }
    }

    fn pack(&self, desc: &PillarsDesc, isa: Isa) -> HostTensor {
        let layer = |(weight, bias): &(Vec<f32>, Vec<f32>)| -> DenseLayer<'static> {
            DenseLayer {
                weight: weight.clone().leak(),
                bias: bias.clone().leak(),
            }
        };
        let weights = WeightDesc::Pillars {
            desc,
            first: layer(&self.first),
            second: self.second.as_ref().map(layer),
        };
        pack_weights(&weights, isa).unwrap()
    }

    /// The definition: every layer on every point, the maximum beside each point.
    fn features(&self, points: &[Vec<f64>]) -> Vec<f64> {
        let first: Vec<Vec<f64>> = points.iter().map(|x| layer(&self.first, x)).collect();
        let Some(second) = &self.second else {
            return maximum(&first);
        };
        let top = maximum(&first);
        let last: Vec<Vec<f64>> = first
            .iter()
            .map(|h| layer(second, &[&h[..], &top[..]].concat()))
            .collect();
        maximum(&last)
    }
}

fn layer((weight, bias): &(Vec<f32>, Vec<f32>), x: &[f64]) -> Vec<f64> {
    let outputs = bias.len();
    assert_eq!(weight.len(), x.len() * outputs);
    let sum = |o: usize| -> f64 {
        let products = x.iter().enumerate();
        products
            .map(|(i, x)| x * f64::from(weight[i * outputs + o]))
            .sum()
    };
    (0..outputs)
        .map(|o| (f64::from(bias[o]) + sum(o)).max(0.0))
        .collect()
}

fn maximum(rows: &[Vec<f64>]) -> Vec<f64> {
    let first = rows[0].clone();
    rows.iter().fold(first, |top, row| {
        top.iter().zip(row).map(|(a, b)| a.max(*b)).collect()
    })
}

#[test]
fn one_and_two_layers_follow_the_definition_on_every_instruction_set() {
    let mut r = Random(77);
    for case in 0..50 {
        let dtype = r.pick(&[DType::F32, DType::Bf16]);
        let hidden = (case % 3 != 0).then(|| r.range(1, 40));
        let (pillars, count) = (r.range(1, 40), r.range(1, 33));
        let (features, outputs) = (r.range(1, 12), r.range(1, 70));
        let mut points = dense(dtype, &[pillars, count, features]);
        let gap = r.pick(&[0, 0, 5]);
        points.view.strides[..2].copy_from_slice(&[
            ((features + gap) * count + gap) as isize,
            (features + gap) as isize,
        ]);
        points.view.offset = gap;
        let mut output = dense(dtype, &[pillars, outputs]);
        output.view.strides[0] += r.pick(&[0, 3]);
        let desc = PillarsDesc {
            points,
            output,
            hidden,
        };
        let net = Net::random(&mut r, features, hidden, outputs);
        let source = random(
            &mut r,
            dtype,
            pillars * ((features + gap) * count + gap) + gap,
            3.0,
        );
        let before = random(&mut r, dtype, pillars * (outputs + 3), 9.0);
        let after = run_everywhere(&OpDesc::Pillars(desc.clone()), 2, |isa| {
            vec![source.clone(), net.pack(&desc, isa), before.clone()]
        });
        let (source, before, after) = (values(&source), values(&before), values(&after));
        let mut untouched = vec![true; after.len()];
        for pillar in 0..pillars {
            let point = |k: usize| -> Vec<f64> {
                let places = (0..features).map(|f| element(&points.view, &[pillar, k, f]));
                places.map(|place| source[place]).collect()
            };
            let all: Vec<Vec<f64>> = (0..count).map(point).collect();
            for (o, exact) in net.features(&all).into_iter().enumerate() {
                let place = element(&output.view, &[pillar, o]);
                untouched[place] = false;
                let storage = if dtype == DType::Bf16 { exact / 256.0 } else { 0.0 };
                let allowed = storage + 1e-5 * exact.max(1.0);
                assert!(
                    (after[place] - exact).abs() <= allowed,
                    "{} is not {exact} at {pillar}, {o} of {desc:?}",
                    after[place]
                );
            }
        }
        for place in (0..after.len()).filter(|&place| untouched[place]) {
            assert_eq!(after[place], before[place], "wrote between the rows of {desc:?}");
        }
    }
}

#[test]
fn the_last_layer_has_the_bits_of_the_concatenated_form() {
    // h_k A summed from 0, then the constant of the pillar, then ReLU and maximum: once a point, in f32.
    let mut r = Random(78);
    let (features, hidden, outputs, count) = (3, 5, 4, 6);
    let desc = PillarsDesc {
        points: dense(DType::F32, &[7, count, features]),
        output: dense(DType::F32, &[7, outputs]),
        hidden: Some(hidden),
    };
    let net = Net::random(&mut r, features, Some(hidden), outputs);
    let source = random(&mut r, DType::F32, 7 * count * features, 3.0);
    let op = OpDesc::Pillars(desc.clone());
    let found = run_everywhere(&op, 2, |isa| {
        vec![
            source.clone(),
            net.pack(&desc, isa),
            random(&mut Random(1), DType::F32, 7 * outputs, 1.0),
        ]
    });
    let chain = |start: f32, x: &[f32], weight: &[f32], o: usize, outputs: usize| {
        let mut terms = x.iter().enumerate();
        terms.try_fold(start, |sum, (i, x)| Some(x.mul_add(weight[i * outputs + o], sum)))
    };
    let points = source.as_slice::<f32>().unwrap();
    let (second, bias) = net.second.as_ref().unwrap();
    let (of_points, of_maxima) = second.split_at(hidden * outputs);
    for at in positions(&[7, outputs]) {
        let first: Vec<Vec<f32>> = (0..count)
            .map(|k| {
                let x = &points[(at[0] * count + k) * features..][..features];
                let sum = |o: usize| chain(net.first.1[o], x, &net.first.0, o, hidden).unwrap();
                (0..hidden).map(|o| sum(o).max(0.0)).collect()
            })
            .collect();
        let top: Vec<f32> = (0..hidden)
            .map(|o| first.iter().map(|h| h[o]).fold(0.0, f32::max))
            .collect();
        let constant = chain(bias[at[1]], &top, of_maxima, at[1], outputs).unwrap();
        let expected = first
            .iter()
            .map(|h| (chain(0.0, h, of_points, at[1], outputs).unwrap() + constant).max(0.0))
            .fold(0.0, f32::max);
        let place = element(&desc.output.view, &at);
        assert_eq!(
            found.as_slice::<f32>().unwrap()[place].to_bits(),
            expected.to_bits()
        );
    }
}

#[test]
fn weights_of_another_size_are_refused() {
    let mut r = Random(79);
    let mut desc = PillarsDesc {
        points: dense(DType::F32, &[2, 4, 3]),
        output: dense(DType::F32, &[2, 6]),
        hidden: Some(5),
    };
    let net = Net::random(&mut r, 3, Some(5), 6);
    let refusal = |desc: &PillarsDesc, second: bool, weights: usize| {
        let layer = |(weight, bias): &'_ (Vec<f32>, Vec<f32>), count: usize| -> DenseLayer<'static> {
            DenseLayer {
                weight: weight[..count].to_vec().leak(),
                bias: bias.clone().leak(),
            }
        };
        let full = net.second.as_ref().unwrap();
        let weights = WeightDesc::Pillars {
            desc,
            first: layer(&net.first, weights),
            second: second.then(|| layer(full, full.0.len())),
        };
        match pack_weights(&weights, Isa::Scalar) {
            Err(DeviceError::InvalidOp {
                op: "pillars",
                reason,
            }) => reason,
            other => panic!("{other:?}"),
        }
    };
    assert!(refusal(&desc, true, 14).contains("14 weights and 5 biases given for 3 inputs and 5 outputs"));
    assert!(refusal(&desc, false, 15).contains("two layers described, weights for one layer given"));
    desc.hidden = None;
    assert!(refusal(&desc, true, 15).contains("5 biases given for 3 inputs and 6 outputs"));
}
