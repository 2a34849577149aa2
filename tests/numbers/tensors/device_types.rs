//! Element types on the device, uploads and downloads.

use std::time::Duration;

use half::{bf16, f16};
use sensorium::device::{Activation, BufferClass, Cq, DeviceError, MissPolicy, OpDesc};
use sensorium::ops::{DeviceTensor, OpContext};
use sensorium::tensor::{DType, HostTensor, TensorError};
use sensorium::trace::{TraceOptions, TraceRunner, VariantFn};

use crate::tensors::{open, read, spec};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[test]
fn bytes_are_widened_on_the_device_exactly() {
    let mut device = open(1);
    let all: Vec<u8> = (0..=u8::MAX).collect();
    let bytes = HostTensor::from_slice(&[2, 128], &all).unwrap();
    let mut ops = OpContext::new(&mut device, Cq::COMPUTE);
    let before = ops.device.memory().used_bytes;
    for dtype in [
        DType::U8,
        DType::F32,
        DType::Bf16,
        DType::F16,
        DType::I32,
        DType::U32,
    ] {
        let tensor = ops.upload_u8(&bytes, dtype, BufferClass::Input).unwrap();
        assert_eq!((tensor.dtype, tensor.view.shape), (dtype, *bytes.shape()));
        let seen: Vec<i64> = match dtype {
            DType::U8 => read::<u8>(&mut ops, &tensor).iter().map(|&x| x.into()).collect(),
            DType::F32 => read::<f32>(&mut ops, &tensor).iter().map(|&x| x as i64).collect(),
            DType::Bf16 => read::<bf16>(&mut ops, &tensor)
                .iter()
                .map(|x| x.to_f32() as i64)
                .collect(),
            DType::F16 => read::<f16>(&mut ops, &tensor)
                .iter()
                .map(|x| x.to_f32() as i64)
                .collect(),
            DType::I32 => read::<i32>(&mut ops, &tensor).iter().map(|&x| x.into()).collect(),
            _ => read::<u32>(&mut ops, &tensor).iter().map(|&x| x.into()).collect(),
        };
        assert!(seen.into_iter().eq(0..256), "{dtype}");
        ops.free(&tensor).unwrap();
        assert_eq!(ops.device.memory().used_bytes, before, "{dtype}");
    }
    let narrow = ops.upload_u8(&bytes, DType::I8, BufferClass::Input).unwrap_err();
    assert_eq!(
        narrow.to_string(),
        "upload_u8: int8 does not hold every value from 0 to 255"
    );
    let floats = HostTensor::zeros(spec(&[2], DType::F32));
    assert!(matches!(
        ops.upload_u8(&floats, DType::F32, BufferClass::Input),
        Err(DeviceError::Tensor(TensorError::DTypeMismatch { .. }))
    ));
    // The device's own refusal: it converts nothing to 64-bit integers.
    assert!(matches!(
        ops.upload_u8(&bytes, DType::I64, BufferClass::Input),
        Err(DeviceError::InvalidOp { .. })
    ));
    assert_eq!(ops.device.memory().used_bytes, before);
}

#[test]
fn a_typecast_that_changes_nothing_is_no_operation() {
    let mut device = open(1);
    let mut ops = OpContext::new(&mut device, Cq::COMPUTE);
    let words = [(1_u32 << 24) + 1, i32::MAX as u32, 5, 0];
    let tensor = ops
        .upload(&HostTensor::from_slice(&[4], &words).unwrap(), BufferClass::Input)
        .unwrap();
    let before = ops.device.memory();
    assert_eq!(ops.typecast(&tensor, DType::U32).unwrap(), tensor);
    assert_eq!((ops.device.memory(), ops.device.program_count()), (before, 0));
    // Integers do not go through a float.
    let signed = ops.typecast(&tensor, DType::I32).unwrap();
    assert_eq!(read::<i32>(&mut ops, &signed), words.map(|x| x as i32));
    let back = ops.typecast(&signed, DType::U32).unwrap();
    assert_eq!(read::<u32>(&mut ops, &back), words);
    // A strided view becomes a dense tensor.
    let mut odd = signed;
    odd.view = odd.view.slice(0, 3, 2, -2).unwrap();
    let dense = ops.to_f32(&odd).unwrap();
    assert!(dense.view.is_contiguous());
    assert_eq!(read::<f32>(&mut ops, &dense), [0.0, i32::MAX as f32]);
    assert_eq!(ops.to_f32(&dense).unwrap(), dense);
    let short = ops.to_bf16(&dense).unwrap();
    assert_eq!(ops.to_bf16(&short).unwrap(), short);
    for tensor in [signed, back, dense, short] {
        ops.free(&tensor).unwrap();
    }
    ops.device.set_misses(MissPolicy::Forbid);
    assert!(ops.typecast(&tensor, DType::F16).is_err());
    assert_eq!(ops.device.memory(), before, "a refused cast keeps nothing");
}

#[test]
fn bytes_are_the_input_of_a_trace_whose_first_operation_widens_them() {
    let mut device = open(2);
    let mut runner = TraceRunner::new("test", TraceOptions::two_queues()).unwrap();
    let pixels = spec(&[64, 48, 3], DType::U8);
    let x = runner.add_input(&mut device, "pixels", pixels, None).unwrap();
    let forward: VariantFn = Box::new(|context| {
        let pixels = context.input("pixels")?;
        let wide = context.ops().to_bf16(&pixels)?;
        Ok(vec![("wide".into(), wide)])
    });
    let variant = runner.add_variant(&mut device, "default", forward).unwrap();
    runner.capture(&mut device).unwrap();
    for frame in 0..3_usize {
        let values: Vec<u8> = (0..64 * 48 * 3).map(|i| (i * 7 + frame) as u8).collect();
        let input = HostTensor::from_slice(&[64, 48, 3], &values).unwrap();
        let read = runner.call(&mut device, variant, &[(x, &input)]).unwrap();
        let seen = read[0].1.as_slice::<bf16>().unwrap();
        assert!(
            seen.iter()
                .map(|x| x.to_f32())
                .eq(values.iter().map(|&x| f32::from(x)))
        );
    }
}

#[test]
fn a_download_shows_the_view_and_not_the_buffer() {
    let mut device = open(1);
    let mut ops = OpContext::new(&mut device, Cq::COMPUTE);
    let values: Vec<i32> = (0..24).collect();
    let tensor = ops
        .upload(
            &HostTensor::from_slice(&[2, 3, 4], &values).unwrap(),
            BufferClass::Input,
        )
        .unwrap();
    let before = ops.device.memory();
    let of = |view| DeviceTensor { view, ..tensor };
    assert_eq!(read::<i32>(&mut ops, &tensor), values);
    let second = of(tensor.view.select(0, 1).unwrap());
    assert_eq!(read::<i32>(&mut ops, &second), values[12..]);
    assert_eq!(ops.device.program_count(), 0, "what is dense is read as it lies");
    let columns = of(second.view.transpose(&[1, 0]).unwrap());
    assert_eq!(
        read::<i32>(&mut ops, &columns),
        [12, 16, 20, 13, 17, 21, 14, 18, 22, 15, 19, 23]
    );
    let every_other = of(tensor.view.slice(2, 3, 2, -2).unwrap());
    assert_eq!(
        read::<i32>(&mut ops, &every_other),
        [3, 1, 7, 5, 11, 9, 15, 13, 19, 17, 23, 21]
    );
    let mut outside = second;
    outside.view.offset = 13;
    assert!(matches!(
        ops.download(&outside, Duration::from_secs(10)),
        Err(DeviceError::OutOfRange {
            start: 52,
            end: 100,
            size: 96,
            ..
        })
    ));
    let mut outside = columns;
    outside.view.offset = 13;
    assert!(ops.download(&outside, Duration::from_secs(10)).is_err());
    assert_eq!(ops.device.memory(), before);
}

/// `exp(x)` of fp32 tensors, each into a new one.
fn exponentials(ops: &mut OpContext<'_>, tensors: &[DeviceTensor]) -> Result<Vec<DeviceTensor>, Failure> {
    let mut results = Vec::new();
    for tensor in tensors {
        assert_eq!(tensor.dtype, DType::F32);
        let out = ops.alloc(&spec(&tensor.view.shape, DType::F32), BufferClass::Intermediate)?;
        let op = OpDesc::Unary {
            src: tensor.operand(),
            dst: out.operand(),
            activation: Activation::Exp,
        };
        ops.run(&op, &[tensor.buffer, out.buffer])?;
        results.push(out);
    }
    Ok(results)
}

#[test]
fn an_island_computes_in_fp32_and_leaves_only_its_results() {
    let mut device = open(1);
    let mut ops = OpContext::new(&mut device, Cq::COMPUTE);
    let short: Vec<bf16> = (0..100).map(|i| bf16::from_f32(i as f32 / 40.0 - 1.0)).collect();
    let wide: Vec<f32> = (0..100).map(|i| i as f32 / 33.0 - 2.0).collect();
    let a = ops
        .upload(
            &HostTensor::from_slice(&[100], &short).unwrap(),
            BufferClass::Input,
        )
        .unwrap();
    let b = ops
        .upload(
            &HostTensor::from_slice(&[100], &wide).unwrap(),
            BufferClass::Input,
        )
        .unwrap();
    let before = ops.device.memory().used_bytes;
    let results = ops.fp32_island(&[a, b], DType::Bf16, exponentials).unwrap();
    // Once rounded: fp32 inside, bf16 at the end. Within one unit of the device's own exp.
    for (tensor, inputs) in results
        .iter()
        .zip([short.iter().map(|x| x.to_f32()).collect(), wide.clone()])
    {
        let seen: Vec<bf16> = read(&mut ops, tensor);
        for (x, seen) in inputs.iter().zip(seen) {
            let exact = f64::from(*x).exp();
            assert!(
                (seen.to_f64() - exact).abs() <= exact / 256.0 * 1.001,
                "exp({x}) is {seen}"
            );
        }
    }
    assert_eq!(
        ops.device.memory().used_bytes,
        before + 2 * 256,
        "two results of 200 bytes"
    );
    for tensor in &results {
        ops.free(tensor).unwrap();
    }
    assert_eq!(ops.device.memory().used_bytes, before);
    assert_eq!(read::<f32>(&mut ops, &b), wide, "what was given is still there");
}

#[test]
fn an_island_frees_each_tensor_once_whatever_its_function_returns() {
    let mut device = open(1);
    let mut ops = OpContext::new(&mut device, Cq::COMPUTE);
    let short = HostTensor::from_slice(&[4], &[1.0, 2.0, 3.0, 4.0].map(bf16::from_f32)).unwrap();
    let wide = HostTensor::from_slice(&[4], &[5.0_f32, 6.0, 7.0, 8.0]).unwrap();
    let a = ops.upload(&short, BufferClass::Input).unwrap();
    let b = ops.upload(&wide, BufferClass::Input).unwrap();
    let before = ops.device.memory().used_bytes;
    let given = |_: &mut OpContext<'_>, tensors: &[DeviceTensor]| Ok::<_, DeviceError>(tensors.to_vec());

    // A copy that is handed through stays, a tensor from outside is not touched.
    let results = ops.fp32_island(&[a, b], DType::F32, given).unwrap();
    assert_eq!(results[1], b);
    assert_eq!(read::<f32>(&mut ops, &results[0]), [1.0, 2.0, 3.0, 4.0]);
    ops.free(&results[0]).unwrap();
    assert_eq!(ops.device.memory().used_bytes, before);

    // The same tensor twice, and half of it.
    let twice = |_: &mut OpContext<'_>, tensors: &[DeviceTensor]| {
        let mut half = tensors[0];
        half.view = half.view.slice(0, 2, 2, 1)?;
        Ok::<_, Failure>(vec![tensors[0], tensors[0], half])
    };
    let results = ops.fp32_island(&[a, a], DType::Bf16, twice).unwrap();
    assert_eq!(
        read::<bf16>(&mut ops, &results[2]),
        [3.0, 4.0].map(bf16::from_f32)
    );
    assert_eq!(ops.device.memory().used_bytes, before + 3 * 64);
    for tensor in &results {
        ops.free(tensor).unwrap();
    }
    let results = ops.fp32_island(&[b], DType::F32, twice).unwrap();
    assert!(results.iter().all(|tensor| tensor.buffer == b.buffer));
    assert_eq!(ops.device.memory().used_bytes, before);
    assert_eq!(read::<f32>(&mut ops, &b), [5.0, 6.0, 7.0, 8.0]);

    // Whoever fails, the copies are gone.
    let fails = |_: &mut OpContext<'_>, _: &[DeviceTensor]| Err::<Vec<_>, Failure>("no".into());
    assert_eq!(
        ops.fp32_island(&[a, b], DType::Bf16, fails)
            .unwrap_err()
            .to_string(),
        "no"
    );
    assert_eq!(ops.device.memory().used_bytes, before);
    let outside = ops.fp32_island(&[a], DType::I64, exponentials);
    assert!(
        outside
            .unwrap_err()
            .to_string()
            .contains("no conversion from float32 to int64")
    );
    assert_eq!(ops.device.memory().used_bytes, before);
}

#[test]
fn an_island_can_be_part_of_a_trace() {
    let mut device = open(1);
    let mut runner = TraceRunner::new("test", TraceOptions::default()).unwrap();
    let x = runner
        .add_input(&mut device, "x", spec(&[100], DType::Bf16), None)
        .unwrap();
    let forward: VariantFn = Box::new(|context| {
        let x = context.input("x")?;
        let results = context.ops().fp32_island(&[x], DType::Bf16, exponentials)?;
        Ok(vec![("y".into(), results[0])])
    });
    let variant = runner.add_variant(&mut device, "default", forward).unwrap();
    runner.capture(&mut device).unwrap();
    for frame in 0..5 {
        let values: Vec<bf16> = (0..100)
            .map(|i| bf16::from_f32((i + frame) as f32 / 50.0))
            .collect();
        let input = HostTensor::from_slice(&[100], &values).unwrap();
        let replayed = runner.call(&mut device, variant, &[(x, &input)]).unwrap();
        let eager = runner.run_eager(&mut device, variant, &[(x, &input)]).unwrap();
        assert_eq!(replayed[0].1.bytes(), eager[0].1.bytes());
        let seen = replayed[0].1.as_slice::<bf16>().unwrap();
        for (x, y) in values.iter().zip(seen) {
            let exact = x.to_f64().exp();
            assert!(
                (y.to_f64() - exact).abs() <= exact / 256.0 * 1.001,
                "exp({x}) is {y}"
            );
        }
    }
}
