//! What a loaded graph asks of a device, and what it leaves behind.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::unimplemented,
    reason = "tests"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::Message;

use super::*;
use crate::device::{
    CaptureKind, DeviceCaps, DeviceHealth, DeviceMemory, EventId, HostSlot, MissPolicy, OpDesc, ProgramId,
    TraceId, UnsafeLive,
};
use crate::models::{LowerOptions, lower};
use crate::tensor::{DType, TensorSpec};
use crate::weights::OnnxModel;
use crate::weights::proto::{
    DimensionProto, DimensionValue, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};

/// A device that keeps a list of its buffers and refuses everything after a number of calls.
struct Ledger {
    caps: DeviceCaps,
    live: BTreeMap<BufferId, BufferClass>,
    next: u64,
    calls_left: usize,
    launched: Vec<&'static str>,
    programs: Vec<OpDesc>,
}

impl Ledger {
    fn new(calls_left: usize) -> Self {
        Self {
            caps: DeviceCaps {
                backend: "ledger",
                description: String::new(),
                queues: 1,
                alignment: 64,
                memory_bytes: 0,
                trace_region_bytes: 0,
                queue_depth: 1,
                capture: CaptureKind::Recorded,
                device_side_wait: true,
                dtypes: &[DType::F32],
            },
            live: BTreeMap::new(),
            next: 0,
            calls_left,
            launched: Vec::new(),
            programs: Vec::new(),
        }
    }

    fn call(&mut self) -> Result<(), DeviceError> {
        let left = self.calls_left.checked_sub(1);
        self.calls_left = left.ok_or(DeviceError::OutOfMemory {
            requested: 1,
            largest_free: 0,
        })?;
        Ok(())
    }

    fn add(&mut self, class: BufferClass) -> Result<BufferId, DeviceError> {
        self.call()?;
        self.next += 1;
        self.live.insert(BufferId(self.next), class);
        Ok(BufferId(self.next))
    }
}

impl Device for Ledger {
    fn caps(&self) -> &DeviceCaps {
        &self.caps
    }
    fn alloc(&mut self, _: &TensorSpec, class: BufferClass) -> Result<BufferId, DeviceError> {
        self.add(class)
    }
    fn free(&mut self, buffer: BufferId) -> Result<(), DeviceError> {
        self.live
            .remove(&buffer)
            .map(|_| ())
            .ok_or(DeviceError::UnknownBuffer(buffer))
    }
    fn host_slot(&mut self, bytes: usize) -> Result<HostSlot, DeviceError> {
        self.call()?;
        Ok(HostSlot::new(bytes))
    }
    fn write(&mut self, _: Cq, _: BufferId, _: usize, _: &HostSlot, _: usize) -> Result<(), DeviceError> {
        self.call()
    }
    fn prepare_weights(&mut self, _: &WeightDesc<'_>) -> Result<BufferId, DeviceError> {
        self.add(BufferClass::Weight)
    }
    fn compile(&mut self, op: &OpDesc) -> Result<ProgramId, DeviceError> {
        self.call()?;
        self.programs.push(op.clone());
        Ok(ProgramId(self.programs.len() as u64 - 1))
    }
    fn launch(&mut self, _: Cq, program: ProgramId, buffers: &[BufferId]) -> Result<(), DeviceError> {
        self.call()?;
        let dead = buffers.iter().find(|b| !self.live.contains_key(b));
        if let Some(&dead) = dead {
            return Err(DeviceError::UnknownBuffer(dead));
        }
        self.launched.push(self.programs[program.0 as usize].name());
        Ok(())
    }
    fn address(&self, _: BufferId) -> Result<u64, DeviceError> {
        unimplemented!()
    }
    fn read(&mut self, _: Cq, _: BufferId, _: usize, _: &mut HostSlot, _: usize) -> Result<(), DeviceError> {
        unimplemented!()
    }
    fn copy(&mut self, _: Cq, _: BufferId, _: BufferId) -> Result<(), DeviceError> {
        unimplemented!()
    }
    fn record_event(&mut self, _: Cq) -> Result<EventId, DeviceError> {
        unimplemented!()
    }
    fn wait_event(&mut self, _: Cq, _: EventId) -> Result<(), DeviceError> {
        unimplemented!()
    }
    fn poll_event(&self, _: EventId) -> Result<bool, DeviceError> {
        unimplemented!()
    }
    fn sync_event(&self, _: EventId, _: Instant) -> Result<(), DeviceError> {
        unimplemented!()
    }
    fn begin_capture(&mut self, _: Cq) -> Result<(), DeviceError> {
        unimplemented!()
    }
    fn end_capture(&mut self) -> Result<TraceId, DeviceError> {
        unimplemented!()
    }
    fn abort_capture(&mut self) -> Result<(), DeviceError> {
        unimplemented!()
    }
    fn replay(&mut self, _: Cq, _: TraceId) -> Result<(), DeviceError> {
        unimplemented!()
    }
    fn release_trace(&mut self, _: TraceId) -> Result<(), DeviceError> {
        unimplemented!()
    }
    fn set_misses(&mut self, _: MissPolicy) {}
    fn program_count(&self) -> usize {
        self.programs.len()
    }
    fn memory(&self) -> DeviceMemory {
        DeviceMemory::default()
    }
    fn unsafe_live(&self, _: TraceId) -> Result<UnsafeLive, DeviceError> {
        unimplemented!()
    }
    fn acknowledge(&mut self, _: BufferId) -> Result<(), DeviceError> {
        unimplemented!()
    }
    fn drain(&mut self, _: Duration) -> Result<(), DeviceError> {
        unimplemented!()
    }
    fn set_completion_hook(&mut self, _: Arc<dyn Fn() + Send + Sync>) {}
    fn health(&self) -> DeviceHealth {
        DeviceHealth::Healthy
    }
    fn close(&mut self) {}
}

/// `z = Exp(k * Relu(Conv(x)))` and `y = Sigmoid(Relu(Conv(x)))`.
fn graph() -> LoweredGraph {
    let node = |op: &str, inputs: &[&str], output: &str| NodeProto {
        op_type: op.to_owned(),
        input: inputs.iter().map(ToString::to_string).collect(),
        output: vec![output.to_owned()],
        ..NodeProto::default()
    };
    let value = |name: &str, dims: &[i64]| {
        let dim = |&d: &i64| DimensionProto {
            value: Some(DimensionValue::Size(d)),
        };
        let shape = Some(TensorShapeProto {
            dim: dims.iter().map(dim).collect(),
        });
        let tensor_type = Some(TensorTypeProto { elem_type: 1, shape });
        ValueInfoProto {
            name: name.to_owned(),
            r#type: Some(TypeProto { tensor_type }),
        }
    };
    let constant = |name: &str, dims: &[i64]| TensorProto {
        name: name.to_owned(),
        dims: dims.to_vec(),
        data_type: 1,
        float_data: vec![0.5; dims.iter().product::<i64>() as usize],
        ..TensorProto::default()
    };
    let model = ModelProto {
        graph: Some(GraphProto {
            node: vec![
                node("Conv", &["x", "w"], "c"),
                node("Relu", &["c"], "r"),
                node("Mul", &["r", "k"], "m"),
                node("Exp", &["m"], "z"),
                node("Sigmoid", &["r"], "y"),
            ],
            initializer: vec![constant("w", &[2, 3, 1, 1]), constant("k", &[2, 1, 1])],
            input: vec![value("x", &[1, 3, 4, 4])],
            output: vec![value("y", &[1, 2, 4, 4]), value("z", &[1, 2, 4, 4])],
            ..GraphProto::default()
        }),
        opset_import: vec![OperatorSetIdProto {
            domain: String::new(),
            version: 13,
        }],
        ..ModelProto::default()
    };
    let model = OnnxModel::from_bytes(&model.encode_to_vec(), "net.onnx", None).unwrap();
    lower(&model, &LowerOptions::default()).unwrap()
}

fn input(device: &mut Ledger, loaded: &LoadedGraph) -> DeviceTensor {
    let spec = loaded.inputs()[0].spec;
    DeviceTensor::whole(device.add(BufferClass::Input).unwrap(), &spec)
}

#[test]
fn a_pass_leaves_its_outputs_and_nothing_else() {
    let mut device = Ledger::new(usize::MAX);
    let loaded = LoadedGraph::prepare(graph(), &mut device, Cq::COMPUTE).unwrap();
    assert_eq!(
        device
            .live
            .values()
            .filter(|&&c| c == BufferClass::Weight)
            .count(),
        2
    );
    let x = input(&mut device, &loaded);
    let before = device.live.len();
    let mut context = OpContext {
        device: &mut device,
        cq: Cq::COMPUTE,
    };
    let outputs = loaded.forward(&mut context, &[x]).unwrap();
    assert_eq!(&outputs[1].view.shape[..], [1, 2, 4, 4]);
    for (output, plan) in outputs.iter().zip(loaded.outputs()) {
        assert_eq!(
            device.live.get(&output.buffer),
            Some(&BufferClass::Output),
            "{}",
            plan.name
        );
    }
    assert_eq!(device.live.len(), before + 2);
    assert_eq!(device.launched, ["copy", "conv2d", "binary", "unary", "unary"]);
    loaded.release(&mut device);
    assert!(!device.live.values().any(|&c| c == BufferClass::Weight));
}

#[test]
fn a_refusal_at_any_call_leaves_nothing_behind() {
    let mut calls = 0;
    loop {
        let mut device = Ledger::new(usize::MAX);
        let loaded = LoadedGraph::prepare(graph(), &mut device, Cq::COMPUTE).unwrap();
        let x = input(&mut device, &loaded);
        let before = device.live.clone();
        device.calls_left = calls;
        let mut context = OpContext {
            device: &mut device,
            cq: Cq::COMPUTE,
        };
        match loaded.forward(&mut context, &[x]) {
            Ok(_) => break,
            Err(error) => assert!(matches!(error, ForwardError::Device { .. }), "{error}"),
        }
        assert_eq!(device.live, before, "after {calls} calls");
        calls += 1;
    }
    assert!(calls > 10, "{calls}");
    for calls in 0..4 {
        let mut device = Ledger::new(calls);
        assert!(LoadedGraph::prepare(graph(), &mut device, Cq::COMPUTE).is_err());
        assert!(device.live.is_empty(), "after {calls} calls");
    }
}

#[test]
fn inputs_that_do_not_fit_are_refused_before_anything_is_reserved() {
    let mut device = Ledger::new(usize::MAX);
    let loaded = LoadedGraph::prepare(graph(), &mut device, Cq::COMPUTE).unwrap();
    let x = input(&mut device, &loaded);
    let before = device.live.len();
    let mut context = OpContext {
        device: &mut device,
        cq: Cq::COMPUTE,
    };
    let text = |result: Result<Vec<DeviceTensor>, ForwardError>| result.unwrap_err().to_string();
    assert_eq!(
        text(loaded.forward(&mut context, &[])),
        "net.onnx: 1 inputs are needed, 0 were given"
    );
    let wrong = DeviceTensor {
        dtype: DType::Bf16,
        ..x
    };
    assert_eq!(
        text(loaded.forward(&mut context, &[wrong])),
        "net.onnx: input `x` must be the whole of a row-major float32 [1, 3, 4, 4], found bfloat16 [1, 3, 4, 4]"
    );
    let turned = DeviceTensor {
        view: x.view.transpose(&[0, 1, 3, 2]).unwrap(),
        ..x
    };
    assert!(loaded.forward(&mut context, &[turned]).is_err());
    assert_eq!(device.live.len(), before);
}
