//! A network of every builder, captured with cache misses forbidden, replayed, and run eagerly.

use ndarray::Array4;
use sensorium::device::cpu::kernels::Bf16Dot;
use sensorium::device::{Activation, CpuConfig, CpuDevice, Device, SimConfig, SimDevice};
use sensorium::ops::conv::{
    Conv2d, Conv2dSpec, ConvTranspose2d, ConvTranspose2dSpec, KSplitConv, KSplitSpec, Slicing,
    TransposeMethod, WeightTerms, concat_channels, residual_add, split_channels,
};
use sensorium::ops::{DeviceTensor, Interpolation, OpContext, Resize2d, Resize2dSpec, upsample_nearest};
use sensorium::precision::{Math, Precision};
use sensorium::tensor::{DType, HostTensor, TensorSpec};
use sensorium::trace::{TraceOptions, TraceRunner, WorkError};

use crate::ops_dense::reference::{Random, array4, unit, vector};

const DIMS: [usize; 4] = [1, 12, 10, 3];

/// Every builder, one behind the other.
struct Network {
    stem: Conv2d,
    block: Conv2d,
    whole: Conv2d,
    up: [ConvTranspose2d; 2],
    split: KSplitConv,
    resize: Resize2d,
}

impl Network {
    fn new(math: Math) -> Self {
        let mut r = Random(51);
        let mut conv = |cin: usize, cout: usize, k: usize| {
            let scale = 1.5 / ((cin * k * k) as f32).sqrt();
            (
                array4(&mut r, [cout, cin, k, k], scale),
                vector(&mut Random(52), cout),
            )
        };
        let spec =
            |(weight, bias): &(Array4<f32>, Vec<f32>)| Conv2dSpec::new(weight.view(), Some(bias), math);
        let stem = spec(&conv(3, 16, 3)).stride([2, 2]).activation(Activation::Relu);
        let block = spec(&conv(16, 16, 3))
            .slicing(Slicing::Height(3))
            .activation(Activation::Silu);
        let whole = spec(&conv(16, 16, 3))
            .weight_terms(WeightTerms::Two)
            .activation(Activation::Relu);
        let split = spec(&conv(24, 10, 3))
            .activation(Activation::Relu)
            .output(DType::F32);
        let up = |method| {
            let (weight, bias) = (
                array4(&mut Random(53), [16, 4, 2, 2], 0.4),
                vector(&mut Random(54), 4),
            );
            let spec = ConvTranspose2dSpec::new(weight.view(), Some(&bias), math).method(method);
            ConvTranspose2d::new("up", spec).unwrap()
        };
        let fp32 = match math {
            Math::Native => Math::Native,
            Math::Matrix(_) => "HiFi4+fp32:w=f32".parse::<Precision>().unwrap().into(),
        };
        let linear = Interpolation::Linear { align_corners: true };
        Self {
            stem: Conv2d::new("stem", stem).unwrap(),
            block: Conv2d::new("block", block).unwrap(),
            whole: Conv2d::new("whole", whole).unwrap(),
            up: [TransposeMethod::Direct, TransposeMethod::Linear].map(up),
            split: KSplitConv::new("split", KSplitSpec::new(split, &[4, 4, 16], DType::F32)).unwrap(),
            resize: Resize2d::new("resize", Resize2dSpec::new([12, 10], [7, 19], linear, fp32)).unwrap(),
        }
    }

    fn forward(&self, ops: &mut OpContext<'_>, x: &DeviceTensor) -> Result<DeviceTensor, WorkError> {
        let stem = self.stem.forward(ops, x)?;
        let block = self.block.forward(ops, &stem)?;
        let sum = residual_add(ops, &block, &stem, Activation::Relu)?;
        let whole = self.whole.forward(ops, &sum)?;
        let ups = [self.up[0].forward(ops, &sum)?, self.up[1].forward(ops, &whole)?];
        let larger = upsample_nearest(ops, &whole, 2)?;
        let joined = concat_channels(ops, &[ups[0], ups[1], larger])?;
        let parts = split_channels(&joined, &[4, 4, 16])?;
        let split = self.split.forward(ops, &parts)?;
        let resized = self.resize.forward(ops, &split)?;
        for map in [stem, block, sum, whole, ups[0], ups[1], larger, joined, split] {
            ops.free(&map)?;
        }
        Ok(resized)
    }
}

fn cpu(threads: usize, bf16_dot: Option<Bf16Dot>) -> Box<dyn Device> {
    let config = CpuConfig {
        threads,
        bf16_dot,
        ..CpuConfig::default()
    };
    Box::new(CpuDevice::open(&config).unwrap())
}

fn simulator(seed: u64) -> Box<dyn Device> {
    let config = SimConfig {
        arena_bytes: 16 << 20,
        seed,
        ..SimConfig::default()
    };
    Box::new(SimDevice::open(&config).unwrap())
}

fn image(seed: u64) -> HostTensor {
    let mut r = Random(seed);
    let values: Vec<f32> = (0..DIMS.iter().product()).map(|_| unit(&mut r)).collect();
    HostTensor::from_slice(&DIMS, &values)
        .unwrap()
        .cast(DType::Bf16)
        .unwrap()
        .into_owned()
}

#[test]
fn a_replay_of_every_builder_has_the_bits_of_an_eager_run() {
    for text in ["native", "HiFi2+l1acc", "LoFi+fp32"] {
        let math = match text {
            "native" => Math::Native,
            _ => text.parse::<Precision>().unwrap().into(),
        };
        // Fast sums of bf16 have bits of their own, the same for any number of threads.
        let mut first: [Option<Vec<Vec<u8>>>; 2] = [None, None];
        for (sums, mut device, options) in [
            (0, cpu(1, None), TraceOptions::default()),
            (0, cpu(2, None), TraceOptions::two_queues()),
            (1, cpu(2, Some(Bf16Dot::Off)), TraceOptions::default()),
            (1, simulator(1), TraceOptions::default()),
            (1, simulator(2), TraceOptions::two_queues()),
        ] {
            let device = device.as_mut();
            let mut runner = TraceRunner::new("dense", options).unwrap();
            let spec = TensorSpec::new(&DIMS, DType::Bf16).unwrap();
            let x = runner.add_input(device, "x", spec, None).unwrap();
            let network = Network::new(math);
            let work = move |context: &mut sensorium::trace::TraceContext<'_>| -> Result<Vec<_>, WorkError> {
                let mut x = context.input("x")?;
                x.view = x.view.transpose(&[0, 3, 1, 2])?;
                let mut y = network.forward(context.ops(), &x)?;
                y.view = y.view.transpose(&[0, 2, 3, 1])?;
                Ok(vec![("y".to_owned(), y)])
            };
            let variant = runner.add_variant(device, "default", Box::new(work)).unwrap();
            runner.capture(device).unwrap();
            let programs = device.program_count();
            let mut outputs = Vec::new();
            for seed in [1, 2, 1] {
                let replayed = runner.call(device, variant, &[(x, &image(seed))]).unwrap();
                outputs.push(replayed[0].1.bytes().to_vec());
            }
            assert_eq!(device.program_count(), programs, "a replay compiles nothing");
            for (seed, replayed) in [1, 2].into_iter().zip(&outputs) {
                let eager = runner.run_eager(device, variant, &[(x, &image(seed))]).unwrap();
                assert!(eager[0].1.bytes() == replayed, "{text}: eager differs");
            }
            assert_eq!(
                device.program_count(),
                programs,
                "nor does an eager run that was captured"
            );
            assert_ne!(outputs[0], outputs[1]);
            assert_eq!(outputs[0], outputs[2], "a second replay differs");
            if let Some(first) = &first[sums] {
                assert!(&outputs == first, "{text}: devices differ");
            }
            first[sums].get_or_insert(outputs);
            runner.release(device).unwrap();
            device.close();
        }
    }
}
