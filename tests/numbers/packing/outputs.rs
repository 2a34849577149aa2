//! Packing on a device, one read, unpacking.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use half::bf16;
use sensorium::device::{BufferClass, CpuConfig, CpuDevice, Cq};
use sensorium::ops::{DeviceTensor, OpContext};
use sensorium::tensor::{DType, Element, HostTensor, PackError, PackLayout, PackOptions, TensorSpec};
use sensorium::trace::{
    PackOutputsError, TraceOptions, TraceRunner, VariantFn, pack_outputs, pack_outputs_into,
};

use crate::packing::plan;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn values<T: Element>(&mut self, dims: &[usize], mut make: impl FnMut(u64) -> T) -> HostTensor {
        let values: Vec<T> = (0..dims.iter().product()).map(|_| make(self.next())).collect();
        HostTensor::from_slice(dims, &values).unwrap()
    }
}

fn open() -> CpuDevice {
    CpuDevice::open(&CpuConfig {
        queues: 1,
        threads: 2,
        arena_bytes: 64 << 20,
        ..CpuConfig::default()
    })
    .unwrap()
}

/// Inputs of every type, and what a variant packs of them: the whole, turned, sliced, a column.
fn sources(random: &mut Random) -> Vec<(&'static str, HostTensor)> {
    vec![
        (
            "heat",
            random.values(&[1, 40, 13], |x| f32::from_bits((x as u32) & 0x7F7F_FFFF)),
        ),
        (
            "bev",
            random.values(&[8, 9, 10], |x| bf16::from_bits((x as u16) & 0x7F7F)),
        ),
        ("pixels", random.values(&[7, 11, 3], |x| x as u8)),
        ("index", random.values(&[300], |x| (x % (1 << 24)) as i32)),
        ("count", random.values(&[5, 1], |x| (x % (1 << 24)) as u32)),
    ]
}

fn windows(sources: &[(&'static str, DeviceTensor)]) -> Vec<(&'static str, DeviceTensor)> {
    sources
        .iter()
        .map(|&(name, mut tensor)| {
            tensor.view = match name {
                "bev" => tensor.view.transpose(&[2, 0, 1]).unwrap(),
                "pixels" => tensor.view.slice(1, 10, 6, -2).unwrap().select(2, 1).unwrap(),
                _ => tensor.view,
            };
            (name, tensor)
        })
        .collect()
}

/// What the windows above show of a host tensor, in order, as fp32.
fn shown(name: &str, tensor: &HostTensor) -> Vec<f32> {
    match name {
        "heat" => tensor.as_slice::<f32>().unwrap().to_vec(),
        "bev" => {
            let values = tensor.array::<bf16>().unwrap();
            (0..10)
                .flat_map(|k| (0..8).flat_map(move |i| (0..9).map(move |j| [i, j, k])))
                .map(|at| values[at].to_f32())
                .collect()
        }
        "pixels" => {
            let values = tensor.array::<u8>().unwrap();
            (0..7)
                .flat_map(|y| (0..6).map(move |x| [y, 10 - 2 * x, 1]))
                .map(|at| f32::from(values[at]))
                .collect()
        }
        "index" => tensor
            .as_slice::<i32>()
            .unwrap()
            .iter()
            .map(|&x| x as f32)
            .collect(),
        _ => tensor
            .as_slice::<u32>()
            .unwrap()
            .iter()
            .map(|&x| x as f32)
            .collect(),
    }
}

fn zero_places(layout: &PackLayout, flat: &[f32]) -> usize {
    let mut elements = vec![false; layout.total];
    let places: Vec<usize> = (0..layout.total).collect();
    for (_, view) in layout.unpack(&places).unwrap() {
        view.iter().for_each(|&place| elements[place] = true);
    }
    let padding = || flat.iter().zip(&elements).filter(|(_, used)| !**used);
    assert!(
        padding().all(|(value, _)| value.to_bits() == 0),
        "padding is not zero"
    );
    padding().count()
}

#[test]
fn one_read_of_a_replay_brings_every_output_bit_for_bit() {
    for (row_elems, dtype) in [
        (None, DType::F32),
        (Some(1024), DType::F32),
        (Some(32), DType::F32),
        (Some(96), DType::F32),
        (None, DType::Bf16),
        (Some(64), DType::Bf16),
    ] {
        let options = PackOptions {
            dtype,
            row_elems,
            ..PackOptions::default()
        };
        let mut random = Random(7);
        let mut device = open();
        let mut runner = TraceRunner::new("test", TraceOptions::default()).unwrap();
        let first = sources(&mut random);
        let inputs: Vec<_> = first
            .iter()
            .map(|(name, tensor)| {
                runner
                    .add_input(&mut device, name, *tensor.spec(), Some(tensor))
                    .unwrap()
            })
            .collect();
        let planned = Arc::new(OnceLock::new());
        let layout_of_variant = Arc::clone(&planned);
        let forward: VariantFn = Box::new(move |context| {
            let names = ["heat", "bev", "pixels", "index", "count"];
            let sources: Result<Vec<_>, _> = names
                .map(|n| context.input(n).map(|t| (n, t)))
                .into_iter()
                .collect();
            let packed = pack_outputs(context.ops(), &windows(&sources?), &options)?;
            layout_of_variant.get_or_init(|| packed.layout.clone());
            Ok(vec![("packed".into(), packed.tensor)])
        });
        let variant = runner.add_variant(&mut device, "default", forward).unwrap();
        runner.capture(&mut device).unwrap();
        let layout = planned.get().unwrap();
        for _ in 0..5 {
            let frame = sources(&mut random);
            let given: Vec<_> = inputs.iter().copied().zip(frame.iter().map(|(_, t)| t)).collect();
            let read = runner.call(&mut device, variant, &given).unwrap();
            assert_eq!(read.len(), 1, "one output, one read");
            assert_eq!(*read[0].1.spec(), layout.spec);
            let flat: Vec<f32> = match dtype {
                DType::F32 => read[0].1.as_slice::<f32>().unwrap().to_vec(),
                _ => read[0]
                    .1
                    .as_slice::<bf16>()
                    .unwrap()
                    .iter()
                    .map(|x| x.to_f32())
                    .collect(),
            };
            assert!(zero_places(layout, &flat) > 0);
            for ((name, tensor), (unpacked_name, view)) in frame.iter().zip(layout.unpack(&flat).unwrap()) {
                assert_eq!(*name, unpacked_name);
                let found: Vec<u32> = view.iter().map(|x| x.to_bits()).collect();
                let expected: Vec<u32> = shown(name, tensor)
                    .into_iter()
                    .map(|x| match dtype {
                        DType::F32 => x.to_bits(),
                        _ => bf16::from_f32(x).to_f32().to_bits(),
                    })
                    .collect();
                assert!(found == expected, "{name}, rows of {row_elems:?}, {dtype}");
            }
        }
        runner.release(&mut device).unwrap();
    }
}

#[test]
fn pitched_tensors_and_large_buffers_come_back_as_they_were() {
    let mut device = open();
    let mut random = Random(11);
    let tensors = [
        (
            "awkward",
            random.values(&[1, 1, 2, 20001], |x| f32::from_bits(x as u32 & 0x7F7F_FFFF)),
        ),
        ("narrow", random.values(&[11, 100, 33], |x| x as f32)),
        ("head", random.values(&[1, 14400, 13], |x| x as u8)),
        (
            "vector",
            random.values(&[1, 1, 1, 50_001], |x| (x % (1 << 24)) as i32),
        ),
    ];
    let mut ops = OpContext::new(&mut device, Cq::COMPUTE);
    let on_device: Vec<_> = tensors
        .iter()
        .map(|(name, tensor)| (*name, ops.upload(tensor, BufferClass::Input).unwrap()))
        .collect();
    // What the buffer held before must not show.
    let stale = ops
        .upload(&random.values(&[4_000_000], |_| 7.0_f32), BufferClass::Input)
        .unwrap();
    ops.free(&stale).unwrap();
    let packed = pack_outputs(&mut ops, &on_device, &PackOptions::default()).unwrap();
    let layout = &packed.layout;
    let pitches: Vec<_> = layout.entries.iter().map(|entry| entry.pitch).collect();
    assert_eq!(pitches, [20480, 36, 0, 0]);
    assert_eq!(layout.rows, 40 + 45 + 195 + 49);
    let read = ops.download(&packed.tensor, Duration::from_secs(10)).unwrap();
    let flat = read.as_slice::<f32>().unwrap();
    assert_eq!(
        zero_places(layout, flat),
        layout.total - 40002 - 36300 - 187_200 - 50_001
    );
    let views = layout.unpack(flat).unwrap();
    let equal = |index: usize, expected: Vec<f32>| {
        views[index]
            .1
            .iter()
            .map(|x| x.to_bits())
            .eq(expected.iter().map(|x| x.to_bits()))
    };
    assert!(equal(0, tensors[0].1.as_slice::<f32>().unwrap().to_vec()));
    assert!(equal(1, tensors[1].1.as_slice::<f32>().unwrap().to_vec()));
    assert!(equal(
        2,
        tensors[2]
            .1
            .as_slice::<u8>()
            .unwrap()
            .iter()
            .map(|&x| x.into())
            .collect()
    ));
    assert!(equal(
        3,
        tensors[3]
            .1
            .as_slice::<i32>()
            .unwrap()
            .iter()
            .map(|&x| x as f32)
            .collect()
    ));
    assert_eq!(views[1].1.shape(), [11, 100, 33]);
}

#[test]
fn a_persistent_output_is_packed_into_by_variants_of_different_layouts() {
    let mut device = open();
    let mut runner = TraceRunner::new("test", TraceOptions::default()).unwrap();
    let spec = TensorSpec::new(&[3, 5], DType::F32).unwrap();
    let x = runner.add_input(&mut device, "x", spec, None).unwrap();
    // Both layouts have 64 elements; what is padding in one is an element in the other.
    let whole = plan(&[("a", &[3, 5]), ("b", &[5, 3])], &PackOptions::default()).unwrap();
    let dense = PackOptions {
        align: 16,
        ..PackOptions::default()
    };
    let parts: [(&str, &[usize]); 4] = [("a", &[3, 5]), ("b", &[5, 3]), ("c", &[15]), ("d", &[3, 5])];
    let many = plan(&parts, &dense).unwrap();
    assert_eq!((whole.total, many.total), (64, 64));
    runner.add_output(&mut device, "packed", whole.spec).unwrap();
    let variant = |layout: PackLayout| -> VariantFn {
        Box::new(move |context| {
            let (x, packed) = (context.input("x")?, context.output("packed")?);
            let tensors: Vec<_> = layout
                .entries
                .iter()
                .map(|entry| {
                    let view = match entry.name.as_str() {
                        "b" => x.view.transpose(&[1, 0]).unwrap(),
                        _ => x.view.reshape(entry.shape).unwrap(),
                    };
                    (entry.name.as_str(), DeviceTensor { view, ..x })
                })
                .collect();
            pack_outputs_into(context.ops(), &tensors, &layout, &packed)?;
            Ok(vec![("packed".into(), packed)])
        })
    };
    let first = runner
        .add_variant(&mut device, "whole", variant(whole.clone()))
        .unwrap();
    let second = runner
        .add_variant(&mut device, "many", variant(many.clone()))
        .unwrap();
    runner.capture(&mut device).unwrap();
    for (frame, (id, layout)) in [(first, &whole), (second, &many), (first, &whole), (second, &many)]
        .into_iter()
        .enumerate()
    {
        let values: Vec<f32> = (0..15).map(|i| (i + 1 + 100 * frame) as f32).collect();
        let input = HostTensor::from_slice(&[3, 5], &values).unwrap();
        let read = runner.call(&mut device, id, &[(x, &input)]).unwrap();
        let flat = read[0].1.as_slice::<f32>().unwrap();
        assert_eq!(zero_places(layout, flat), 64 - 15 * layout.entries.len());
        for (name, view) in layout.unpack(flat).unwrap() {
            let expected: Vec<f32> = match name {
                "b" => (0..5)
                    .flat_map(|c| (0..3).map(move |r| 5 * r + c))
                    .map(|i| values[i])
                    .collect(),
                _ => values.clone(),
            };
            assert!(view.iter().eq(&expected), "{name}");
        }
    }
}

type Given<'a> = &'a [(&'static str, DeviceTensor)];

#[test]
fn what_does_not_fit_the_layout_or_the_target_is_refused_before_anything_is_launched() {
    let mut device = open();
    let mut ops = OpContext::new(&mut device, Cq::COMPUTE);
    let spec = TensorSpec::new(&[3, 5], DType::F32).unwrap();
    let a = ops.alloc(&spec, BufferClass::Input).unwrap();
    let b = ops.alloc(&spec, BufferClass::Input).unwrap();
    let layout = plan(&[("a", &[3, 5]), ("b", &[3, 5])], &PackOptions::default()).unwrap();
    let target = ops.alloc(&layout.spec, BufferClass::Output).unwrap();
    let before = ops.device.memory();
    let short = TensorSpec::new(&[1, 1, 1, 63], DType::F32).unwrap();
    let narrow = TensorSpec::new(&[1, 1, 1, 64], DType::Bf16).unwrap();
    let mut turned = a;
    turned.view = turned.view.transpose(&[1, 0]).unwrap();
    let mut strided = target;
    strided.view.strides[3] = 2;
    let cases: [(Given<'_>, DeviceTensor, &str); 8] = [
        (&[("a", a)], target, "planned for 2 tensors, 1 were given"),
        (
            &[("a", a), ("c", b)],
            target,
            "tensor 1 is c (float32 [3, 5]), the layout was planned for b",
        ),
        (&[("b", b), ("a", a)], target, "tensor 0 is b"),
        (
            &[("a", turned), ("b", b)],
            target,
            "tensor 0 is a (float32 [5, 3])",
        ),
        (
            &[("a", target), ("b", b)],
            target,
            "tensor 0 is a (float32 [1, 1, 1, 64])",
        ),
        (
            &[("a", a), ("b", b)],
            DeviceTensor::whole(target.buffer, &short),
            "float32 [1, 1, 1, 63]",
        ),
        (
            &[("a", a), ("b", b)],
            DeviceTensor::whole(target.buffer, &narrow),
            "bfloat16 [1, 1, 1, 64]",
        ),
        (&[("a", a), ("b", b)], strided, "with strides [64, 64, 64, 2]"),
    ];
    for (tensors, target, text) in cases {
        let error = pack_outputs_into(&mut ops, tensors, &layout, &target).unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    }
    let inside = DeviceTensor::whole(target.buffer, &spec);
    assert!(matches!(
        pack_outputs_into(&mut ops, &[("a", a), ("b", inside)], &layout, &target),
        Err(PackOutputsError::SameBuffer { .. })
    ));
    assert!(matches!(
        pack_outputs(&mut ops, &[], &PackOptions::default()),
        Err(PackOutputsError::Plan(PackError::NoTensors))
    ));
    assert_eq!(ops.device.program_count(), 0);
    // A refusal by the device gives the new buffer back.
    let mut outside = b;
    outside.buffer = a.buffer;
    outside.view.offset = 1;
    let error = pack_outputs(&mut ops, &[("outside", outside)], &PackOptions::default()).unwrap_err();
    assert!(matches!(error, PackOutputsError::Device(_)), "{error}");
    assert_eq!(ops.device.memory(), before);
    assert!(pack_outputs_into(&mut ops, &[("a", a), ("b", b)], &layout, &target).is_ok());
}
