//! Sparse convolutions against their definition: bit for bit in the stated order of operations, and in f64.

use half::bf16;
use sensorium::device::cpu::kernels::{Bf16Dot, Isa, KernelSet, pack_weights, prepare};
use sensorium::device::{Activation, DeviceError, GatherConvDesc, OpDesc, Operand, WeightDesc, WeightForm};
use sensorium::tensor::{DType, HostTensor};

use crate::kernels::harness::{Random, dense, element, random, run_everywhere, run_on, tensor, values};

/// Rows of some pitch and offset, and the elements of their buffer.
fn rows(r: &mut Random, dtype: DType, count: usize, columns: usize) -> (Operand, usize) {
    let mut operand = dense(dtype, &[count, columns]);
    let pitch = columns + r.pick(&[0, 0, 3]);
    operand.view.strides[0] = pitch as isize;
    operand.view.offset = r.pick(&[0, 2]);
    (operand, count * pitch + 2)
}

/// A weight as a form keeps it.
fn rounded(form: WeightForm, weight: f32) -> f32 {
    let high = bf16::from_f32(weight).to_f32();
    match form {
        WeightForm::Float32 => weight,
        WeightForm::Bfloat16 => high,
        WeightForm::TwoTerms => high + bf16::from_f32(weight - high).to_f32(),
    }
}

struct Layer {
    desc: GatherConvDesc,
    weight: Vec<f32>,
    bias: Option<Vec<f32>>,
    table: HostTensor,
    index: HostTensor,
    residual: Option<HostTensor>,
    /// Elements of the buffers of output and terms.
    results: Vec<(DType, usize)>,
}

impl Layer {
    fn random(r: &mut Random) -> Self {
        let (known, count, taps) = (r.range(0, 60), r.range(0, 1300), r.pick(&[1, 3, 9, 27]));
        let count = if r.range(0, 3) == 0 { count } else { count % 90 };
        let widths = [1, 2, 5, 8, 15, 16, 17, 32, 33, 40, 48, 64, 70];
        let (cin, cout) = (r.pick(&widths), r.pick(&widths));
        let (table, table_len) = {
            let dtype = r.pick(&[DType::F32, DType::Bf16]);
            rows(r, dtype, known, cin)
        };
        let mut index = dense(DType::U32, &[count, taps]);
        index.view.strides[0] = (taps + r.pick(&[0, 2])) as isize;
        let len = count * (taps + 2);
        let density = r.range(0, 4);
        let entries: Vec<u32> = (0..len)
            .map(|_| match r.range(0, 4) < density && known > 0 {
                true => r.range(0, known - 1) as u32,
                false => r.pick(&[known as u32, known as u32 + 7, u32::MAX, 1 << 31]),
            })
            .collect();
        let (with_output, terms) = r.pick(&[(true, 0), (true, 1), (true, 2), (false, 1), (false, 2)]);
        let output = with_output.then(|| rows(r, DType::F32, count, cout));
        let terms: Vec<_> = (0..terms).map(|_| rows(r, DType::Bf16, count, cout)).collect();
        let residual = (r.range(0, 1) == 1).then(|| {
            let dtype = r.pick(&[DType::F32, DType::Bf16]);
            rows(r, dtype, count, cout)
        });
        let scale = 1.0 / (cin as f32 * taps as f32).sqrt();
        let results = output.iter().chain(&terms).map(|(o, len)| (o.dtype, *len));
        Self {
            results: results.collect(),
            weight: (0..cout * taps * cin).map(|_| r.unit() * scale).collect(),
            bias: (r.range(0, 2) > 0).then(|| (0..cout).map(|_| r.unit()).collect()),
            table: random(r, table.dtype, table_len, 2.0),
            index: HostTensor::from_slice(&[len], &entries).unwrap(),
            residual: residual.map(|(operand, len)| random(r, operand.dtype, len, 1.0)),
            desc: GatherConvDesc {
                table,
                index,
                residual: residual.map(|(operand, _)| operand),
                output: output.map(|(operand, _)| operand),
                terms: terms.iter().map(|(operand, _)| *operand).collect(),
                weights: r.pick(&[WeightForm::Float32, WeightForm::Bfloat16, WeightForm::TwoTerms]),
                activation: r.pick(&[Activation::Identity, Activation::Relu]),
            },
        }
    }

    fn buffers(&self, set: impl Into<KernelSet>) -> Vec<HostTensor> {
        let weights = WeightDesc::GatherConv {
            desc: &self.desc,
            weight: &self.weight,
            bias: self.bias.as_deref(),
        };
        let packed = pack_weights(&weights, set).unwrap();
        let mut buffers = vec![self.table.clone(), self.index.clone(), packed];
        buffers.extend(self.residual.clone());
        buffers.extend(self.results.iter().map(|&(dtype, len)| {
            let mut untouched = Random(5);
            random(&mut untouched, dtype, len, 1.0)
        }));
        buffers
    }

    fn shape(&self) -> [usize; 4] {
        let (table, index) = (&self.desc.table.view.shape, &self.desc.index.view.shape);
        let result = self.desc.output.iter().chain(&self.desc.terms).next().unwrap();
        [index[0], index[1], table[1], result.view.shape[1]]
    }

    /// Values of one output row: in f64, and in fp32 by the stated chain. The entries of the index say which rows count.
    fn row(&self, row: usize, o: usize, table: &[f64], residual: Option<&[f64]>) -> (f64, f32) {
        let [_, taps, cin, _] = self.shape();
        let bias = self.bias.as_ref().map_or(0.0, |bias| bias[o]);
        let (mut exact, mut chain) = (f64::from(bias), bias);
        for k in 0..taps {
            let entry = self.index.as_slice::<u32>().unwrap()[element(&self.desc.index.view, &[row, k])];
            if entry as usize >= self.desc.table.view.shape[0] {
                continue;
            }
            for c in 0..cin {
                let x = table[element(&self.desc.table.view, &[entry as usize, c])];
                let w = rounded(self.desc.weights, self.weight[(o * taps + k) * cin + c]);
                exact += x * f64::from(w);
                chain = (x as f32).mul_add(w, chain);
            }
        }
        if let (Some(values), Some(operand)) = (residual, &self.desc.residual) {
            let identity = values[element(&operand.view, &[row, o])];
            exact += identity;
            chain += identity as f32;
        }
        if self.desc.activation == Activation::Relu {
            (exact, chain) = (exact.max(0.0), chain.max(0.0));
        }
        (exact, chain)
    }
}

#[test]
fn sums_follow_their_definition_and_nothing_else_is_written() {
    let mut r = Random(41);
    for _ in 0..60 {
        let layer = Layer::random(&mut r);
        let op = OpDesc::GatherConv(layer.desc.clone());
        let [count, .., cout] = layer.shape();
        let (table, residual) = (values(&layer.table), layer.residual.as_ref().map(values));
        let first = 3 + usize::from(residual.is_some());
        let forms: Vec<Operand> = layer
            .desc
            .output
            .iter()
            .chain(&layer.desc.terms)
            .copied()
            .collect();
        let mut expected: Vec<Vec<f64>> = layer.buffers(Isa::Scalar)[first..].iter().map(values).collect();
        let mut worst = 0.0_f64;
        for (row, o) in (0..count).flat_map(|row| (0..cout).map(move |o| (row, o))) {
            let (exact, chain) = layer.row(row, o, &table, residual.as_deref());
            worst = worst.max((exact - f64::from(chain)).abs());
            let mut left = chain;
            for (form, buffer) in forms.iter().zip(&mut expected) {
                let value = match form.dtype {
                    DType::F32 => chain,
                    _ => {
                        let term = bf16::from_f32(left).to_f32();
                        left -= term;
                        term
                    }
                };
                buffer[element(&form.view, &[row, o])] = value.into();
            }
        }
        assert!(worst < 2e-5, "the chain is off by {worst}");
        for (at, expected) in expected.iter().enumerate() {
            let found = run_everywhere(&op, first + at, |isa| layer.buffers(isa));
            assert_eq!(&values(&found), expected, "{op:?}, form {at}");
        }
    }
}

/// Kernel sets of one way to sum bf16: plain code first, then what the processor has.
fn sets(bf16_dot: Bf16Dot) -> [KernelSet; 2] {
    [Isa::Scalar, Isa::detect()].map(|isa| KernelSet { isa, bf16_dot })
}

#[test]
fn products_of_bf16_are_near_their_definition_and_the_same_on_every_processor() {
    let mut r = Random(43);
    let mut compared = 0;
    while compared < 40 {
        let mut layer = Layer::random(&mut r);
        let [count, .., cout] = layer.shape();
        layer.desc.weights = r.pick(&[WeightForm::Bfloat16, WeightForm::TwoTerms]);
        if layer.desc.table.dtype != DType::Bf16 || layer.desc.output.is_none() || count > 400 {
            continue;
        }
        compared += 1;
        let op = OpDesc::GatherConv(layer.desc.clone());
        let (table, residual) = (values(&layer.table), layer.residual.as_ref().map(values));
        let first = 3 + usize::from(residual.is_some());
        let results = layer.buffers(Isa::Scalar).len();
        for kind in [Bf16Dot::Pairs, Bf16Dot::Tiles] {
            let output = run_on(&sets(kind), &op, first, |set| layer.buffers(set));
            for term in first + 1..results {
                run_on(&sets(kind), &op, term, |set| layer.buffers(set));
            }
            let (output, view) = (values(&output), layer.desc.output.unwrap().view);
            for (row, o) in (0..count).flat_map(|row| (0..cout).map(move |o| (row, o))) {
                let (exact, _) = layer.row(row, o, &table, residual.as_deref());
                let found = output[element(&view, &[row, o])];
                assert!((found - exact).abs() < 2e-5, "{kind:?}: {found}, {exact}");
            }
        }
    }
}

#[test]
fn products_of_whole_numbers_are_exact_in_every_way_to_sum() {
    let mut r = Random(44);
    for (taps, cin, cout, form) in [
        (27, 5, 16, WeightForm::TwoTerms),
        (27, 33, 70, WeightForm::TwoTerms),
        (3, 128, 40, WeightForm::Bfloat16),
        (9, 64, 17, WeightForm::TwoTerms),
    ] {
        let (known, count) = (300, 700);
        let bits = if form == WeightForm::TwoTerms { 12 } else { 7 };
        let whole = |r: &mut Random, bits: usize| r.range(0, 1 << bits) as f32 - (1 << (bits - 1)) as f32;
        let table: Vec<f32> = (0..known * cin).map(|_| r.range(0, 6) as f32 - 3.0).collect();
        let index: Vec<u32> = (0..count * taps).map(|_| r.range(0, 600) as u32).collect();
        let weight: Vec<f32> = (0..cout * taps * cin).map(|_| whole(&mut r, bits)).collect();
        let desc = GatherConvDesc {
            table: dense(DType::Bf16, &[known, cin]),
            index: dense(DType::U32, &[count, taps]),
            residual: None,
            output: Some(dense(DType::F32, &[count, cout])),
            terms: vec![],
            weights: form,
            activation: Activation::Identity,
        };
        let op = OpDesc::GatherConv(desc.clone());
        let mut all = sets(Bf16Dot::Tiles).to_vec();
        all.extend(sets(Bf16Dot::Pairs));
        all.extend(sets(Bf16Dot::Off));
        let found = run_on(&all, &op, 3, |set| {
            let weights = WeightDesc::GatherConv {
                desc: &desc,
                weight: &weight,
                bias: None,
            };
            vec![
                tensor(DType::Bf16, &table),
                HostTensor::from_slice(&[count * taps], &index).unwrap(),
                pack_weights(&weights, set).unwrap(),
                random(&mut Random(1), DType::F32, count * cout, 1.0),
            ]
        });
        for (row, o) in (0..count).flat_map(|row| (0..cout).map(move |o| (row, o))) {
            let mut sum = 0.0;
            for k in 0..taps {
                let entry = index[row * taps + k] as usize;
                if entry < known {
                    let x = &table[entry * cin..][..cin];
                    let w = &weight[(o * taps + k) * cin..][..cin];
                    sum += x.iter().zip(w).map(|(x, w)| x * w).sum::<f32>();
                }
            }
            assert_eq!(found.as_slice::<f32>().unwrap()[row * cout + o], sum);
        }
    }
}

#[test]
fn rows_that_are_missing_are_not_multiplied() {
    // An infinite weight times the zeros of a missing row would be no number.
    let desc = GatherConvDesc {
        table: dense(DType::F32, &[1, 1]),
        index: dense(DType::U32, &[2, 2]),
        residual: None,
        output: Some(dense(DType::F32, &[2, 1])),
        terms: vec![],
        weights: WeightForm::Float32,
        activation: Activation::Identity,
    };
    let op = OpDesc::GatherConv(desc.clone());
    let found = run_everywhere(&op, 3, |isa| {
        let weights = WeightDesc::GatherConv {
            desc: &desc,
            weight: &[f32::INFINITY, 2.0],
            bias: Some(&[-0.0]),
        };
        vec![
            HostTensor::from_slice(&[1], &[3.0_f32]).unwrap(),
            HostTensor::from_slice(&[4], &[1_u32, 0, u32::MAX, 1]).unwrap(),
            pack_weights(&weights, isa).unwrap(),
            HostTensor::from_slice(&[2], &[9.0_f32; 2]).unwrap(),
        ]
    });
    let bits: Vec<u32> = found
        .as_slice::<f32>()
        .unwrap()
        .iter()
        .map(|v| v.to_bits())
        .collect();
    assert_eq!(bits, [6.0_f32.to_bits(), (-0.0_f32).to_bits()]);
}

/// The reason of a refusal.
fn refusal(change: impl FnOnce(&mut GatherConvDesc)) -> String {
    let mut desc = GatherConvDesc {
        table: dense(DType::F32, &[10, 4]),
        index: dense(DType::U32, &[20, 27]),
        residual: Some(dense(DType::Bf16, &[20, 8])),
        output: Some(dense(DType::F32, &[20, 8])),
        terms: vec![dense(DType::Bf16, &[20, 8]); 2],
        weights: WeightForm::Float32,
        activation: Activation::Relu,
    };
    assert!(prepare(&OpDesc::GatherConv(desc.clone()), Isa::detect()).is_ok());
    change(&mut desc);
    match prepare(&OpDesc::GatherConv(desc), Isa::detect()) {
        Err(DeviceError::InvalidOp {
            op: "gather_conv",
            reason,
        }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn descriptions_that_do_not_hold_together_are_refused() {
    let says = |reason: String, part: &str| assert!(reason.contains(part), "{reason}");
    says(
        refusal(|d| (d.output, d.terms) = (None, vec![])),
        "there must be one of either",
    );
    says(
        refusal(|d| d.terms.push(dense(DType::Bf16, &[20, 8]))),
        "at most two terms",
    );
    says(
        refusal(|d| d.table = dense(DType::F32, &[10, 4, 1])),
        "must be [V, Cin]",
    );
    says(
        refusal(|d| d.table = dense(DType::U8, &[10, 4])),
        "table holds uint8",
    );
    says(
        refusal(|d| d.index = dense(DType::I32, &[20, 27])),
        "index holds int32, expected uint32",
    );
    says(
        refusal(|d| d.output = Some(dense(DType::F32, &[21, 8]))),
        "as the index has rows",
    );
    says(
        refusal(|d| d.residual = Some(dense(DType::F32, &[20, 9]))),
        "of one Cout",
    );
    says(
        refusal(|d| d.residual = Some(dense(DType::U32, &[20, 8]))),
        "residual holds uint32",
    );
    says(
        refusal(|d| d.output = Some(dense(DType::Bf16, &[20, 8]))),
        "output holds bfloat16, expected float32",
    );
    says(
        refusal(|d| d.terms[1] = dense(DType::F32, &[20, 8])),
        "a term holds float32, expected bfloat16",
    );
    says(refusal(|d| d.table.view.strides[1] = 2), "channel stride 2");
    says(
        refusal(|d| d.terms[0].view.strides[0] = 7),
        "may write one place twice",
    );
    says(
        refusal(|d| d.index = dense(DType::U32, &[20, 5000])),
        "taps from 1 to 4096",
    );
    says(
        refusal(|d| d.table = dense(DType::F32, &[10, 0])),
        "0 input channels",
    );

    let desc = GatherConvDesc {
        table: dense(DType::F32, &[10, 4]),
        index: dense(DType::U32, &[20, 2]),
        residual: None,
        output: Some(dense(DType::F32, &[20, 3])),
        terms: vec![],
        weights: WeightForm::Float32,
        activation: Activation::Relu,
    };
    let pack = |weight: &[f32], bias: Option<&[f32]>| {
        let weights = WeightDesc::GatherConv {
            desc: &desc,
            weight,
            bias,
        };
        pack_weights(&weights, Isa::detect()).map_err(|error| error.to_string())
    };
    assert!(pack(&[0.0; 24], Some(&[0.0; 3])).is_ok());
    says(
        pack(&[0.0; 23], None).unwrap_err(),
        "23 weights given for 3 output channels of 2 taps and 4",
    );
    says(pack(&[0.0; 24], Some(&[0.0; 2])).unwrap_err(), "2 biases given");
}
