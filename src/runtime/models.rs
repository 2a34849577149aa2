//! Loading the models of a pipeline: ONNX to a lowered graph on the host, then to traces on the device.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::error::{RuntimeError, told};
use super::owner::{OpenDevice, OpenFailure};
use crate::device::{Backends, Device, DeviceConfig, DeviceHealth, FaultDevice, InjectedFaults};
use crate::numeric::Fp8Format;
use crate::perception::centerpoint::{CenterPointSource, LoadedCenterPoint};
use crate::perception::temporal::{
    BevRing, LoadedBevRing, LoadedStreamQueries, StreamQueries, TemporalOptions,
};
use crate::perception::{
    CameraSource, DeviceModel, HeadKind, HostModel, LoadedCamera, ModelParts, ModelTrace, Thresholds,
};
use crate::pipeline::{
    self, CameraSettings, CenterPointSettings, DeviceSettings, Family, Labels, ModelSettings, NodeKind,
    OnStreamsFull, Pipeline, Precision, TemporalSettings,
};
use crate::tensor::DType;
use crate::trace::{BankOptions, OnFull, TraceOptions};
use crate::weights::WeightFormat;

/// Both halves of a detector node.
#[derive(Debug)]
pub(super) struct DetectorParts {
    pub(super) host: HostPart,
    pub(super) device: Box<dyn DeviceModel>,
}

/// What the stages on the host need.
#[derive(Debug)]
pub(super) struct HostPart {
    pub(super) model: Arc<dyn HostModel>,
    /// Floats of one network output.
    pub(super) output_len: usize,
    /// Frame in which the vehicle moves, where the model asks where it was.
    pub(super) world_frame: Option<String>,
}

/// Loads the model of every detector node, in the order of the nodes.
pub(super) fn load_all(pipeline: &Pipeline) -> Result<Vec<DetectorParts>, RuntimeError> {
    pipeline
        .nodes
        .iter()
        .filter_map(|node| match &node.kind {
            NodeKind::Detector(detector) => Some(detector),
            _ => None,
        })
        .map(|detector| load(&detector.model, &pipeline.models[&detector.model]))
        .collect()
}

/// Both halves of one model of a pipeline, for whoever runs it without the pipeline.
///
/// # Errors
/// [`RuntimeError::Model`], [`RuntimeError::Incomplete`].
pub fn load_model(name: &str, settings: &ModelSettings) -> Result<ModelParts, RuntimeError> {
    let DetectorParts { host, device } = load(name, settings)?;
    Ok(ModelParts {
        host: host.model,
        device,
        weights: None,
    })
}

fn load(name: &str, settings: &ModelSettings) -> Result<DetectorParts, RuntimeError> {
    let path = || {
        settings.weights.as_ref().ok_or_else(|| {
            RuntimeError::Incomplete(format!("model {name} has no weights: name a file with --model"))
        })
    };
    let loaded = match &settings.family {
        Family::Yolox(camera) => load_camera(name, settings, camera, path()?, HeadKind::Yolox),
        Family::FastestDet(camera) => load_camera(name, settings, camera, path()?, HeadKind::FastestDet),
        Family::CenterPoint(lidar) => load_center_point(name, settings, lidar, path()?),
        Family::BevRing(temporal) => load_bev_ring(name, settings, temporal),
        Family::StreamQueries(temporal) => load_stream_queries(name, settings, temporal),
    };
    loaded.map_err(|reason| RuntimeError::Model {
        model: name.into(),
        reason,
    })
}

fn load_camera(
    name: &str,
    model: &ModelSettings,
    settings: &CameraSettings,
    path: &Path,
    kind: HeadKind,
) -> Result<DetectorParts, String> {
    let (preset, options) = settings.preset().map_err(|e| e.to_string())?;
    let source = CameraSource {
        options,
        labels: match &settings.labels {
            Labels::Coco80 => None,
            Labels::File(path) => Some(path.clone()),
        },
        thresholds: Thresholds {
            score: settings.score_threshold,
            nms_iou: settings.nms_threshold,
            max_detections: settings.max_detections as usize,
        },
        storage: storage_of(model.precision),
        weight_format: weight_format(settings.weight_format),
        decode_to_scale: settings.decode_to_scale,
        batch_sizes: match &model.batch {
            Some(batch) => batch.sizes.iter().map(|&size| size.into()).collect(),
            None => Vec::new(),
        },
        ..CameraSource::new(name, path, kind, preset)
    };
    let LoadedCamera { host, device } = source.load().map_err(|error| error.to_string())?;
    Ok(DetectorParts {
        host: HostPart {
            model: Arc::new(host),
            output_len: device.output_dims().iter().product(),
            world_frame: None,
        },
        device: Box::new(device),
    })
}

fn load_center_point(
    name: &str,
    settings: &ModelSettings,
    lidar: &CenterPointSettings,
    path: &Path,
) -> Result<DetectorParts, String> {
    let source = CenterPointSource {
        encoder: lidar.encoder.clone(),
        params: lidar.params.clone(),
        storage: storage_of(settings.precision),
        score_threshold: lidar.score_threshold,
        world_frame: lidar.world_frame.clone(),
        shuffle_seed: lidar.shuffle_seed,
        max_streams: settings.max_streams.into(),
        ..CenterPointSource::new(name, path)
    };
    let LoadedCenterPoint {
        host,
        device,
        warnings,
    } = source.load().map_err(|error| told(&error))?;
    for warning in warnings {
        tracing::warn!(model = name, "{warning}");
    }
    let params = host.params();
    let [rows, columns] = device.cells();
    Ok(DetectorParts {
        host: HostPart {
            model: Arc::new(host),
            output_len: rows * columns * device.columns(),
            world_frame: (params.num_past_frames > 0).then_some(params.world_frame_id),
        },
        device: Box::new(device),
    })
}

fn load_bev_ring(
    name: &str,
    settings: &ModelSettings,
    temporal: &TemporalSettings,
) -> Result<DetectorParts, String> {
    let loaded = BevRing::load(temporal_options(name, settings, temporal));
    let LoadedBevRing { host, device } = loaded.map_err(|error| error.to_string())?;
    Ok(DetectorParts {
        host: HostPart {
            model: Arc::new(host),
            output_len: device.output_len(),
            world_frame: temporal.world_frame.clone(),
        },
        device: Box::new(device),
    })
}

fn load_stream_queries(
    name: &str,
    settings: &ModelSettings,
    temporal: &TemporalSettings,
) -> Result<DetectorParts, String> {
    let loaded = StreamQueries::load(temporal_options(name, settings, temporal));
    let LoadedStreamQueries { host, device } = loaded.map_err(|error| error.to_string())?;
    Ok(DetectorParts {
        host: HostPart {
            model: Arc::new(host),
            output_len: device.output_len(),
            world_frame: temporal.world_frame.clone(),
        },
        device: Box::new(device),
    })
}

fn temporal_options(name: &str, settings: &ModelSettings, temporal: &TemporalSettings) -> TemporalOptions {
    TemporalOptions {
        name: name.into(),
        seed: temporal.seed,
        memory_frames: temporal.memory_frames.into(),
        storage: storage_of(settings.precision),
        score_threshold: temporal.score_threshold,
        streams: BankOptions {
            max_streams: settings.max_streams.into(),
            on_full: match settings.on_full {
                OnStreamsFull::Reject => OnFull::Reject,
                OnStreamsFull::Evict => OnFull::Evict,
            },
            max_gap_s: temporal.max_gap_s,
        },
    }
}

const fn storage_of(precision: Precision) -> DType {
    match precision {
        Precision::Bf16 => DType::Bf16,
        Precision::Fp32 => DType::F32,
    }
}

const fn weight_format(word: pipeline::WeightFormat) -> WeightFormat {
    match word {
        pipeline::WeightFormat::Fp32 => WeightFormat::Fp32,
        pipeline::WeightFormat::Bf16 => WeightFormat::Bf16,
        pipeline::WeightFormat::Fp16 => WeightFormat::Fp16,
        pipeline::WeightFormat::Fp8E4M3 => WeightFormat::Fp8(Fp8Format::E4M3),
        pipeline::WeightFormat::Fp8E5M2 => WeightFormat::Fp8(Fp8Format::E5M2),
        pipeline::WeightFormat::Fp8E3M4 => WeightFormat::Fp8(Fp8Format::E3M4),
        pipeline::WeightFormat::Bfp8 => WeightFormat::Bfp8,
        pipeline::WeightFormat::Bfp4 => WeightFormat::Bfp4,
    }
}

/// Opens the device and builds the traces of all models on it, at every call anew. Without restarts it is called
/// once, and the models are not kept.
pub(super) fn open_device(
    config: DeviceConfig,
    settings: &DeviceSettings,
    restarts: bool,
    mut models: Vec<Box<dyn DeviceModel>>,
) -> OpenDevice {
    let frame_deadline_ms = settings.frame_deadline_ms;
    let faults = &settings.faults;
    let faults = (!faults.faults.is_empty()).then(|| InjectedFaults::new(faults));
    Box::new(move || {
        let mut opened = Backends::builtin()
            .open_for_run(&config)
            .map_err(|error| OpenFailure {
                reason: error.to_string(),
                lost: false,
            })?;
        if let Some(faults) = &faults {
            opened.device = Box::new(FaultDevice::new(opened.device, faults.clone()));
        }
        let built = build_all(opened.device.as_mut(), &models, frame_deadline_ms).map_err(|error| {
            let failure = match opened.device.health() {
                DeviceHealth::Lost { reason } => OpenFailure { reason, lost: true },
                _ => OpenFailure {
                    reason: told(&*error),
                    lost: false,
                },
            };
            opened.device.close();
            failure
        });
        if !restarts {
            models.clear();
        }
        Ok((opened, built?))
    })
}

/// How traces are made on a device. A warm-up and a capture take at least a frame's time, so they may take as long as one.
pub(super) fn trace_options(device: &dyn Device, frame_deadline_ms: u32) -> TraceOptions {
    let options = match device.caps().queues {
        1 => TraceOptions {
            output_phases: 2,
            ..TraceOptions::default()
        },
        _ => TraceOptions::two_queues(),
    };
    let frame = Duration::from_millis(frame_deadline_ms.into());
    TraceOptions {
        deadline: options.deadline.max(frame),
        ..options
    }
}

/// All warm-ups first, then all captures, so that nothing is allocated after the first capture.
fn build_all(
    device: &mut dyn Device,
    models: &[Box<dyn DeviceModel>],
    frame_deadline_ms: u32,
) -> Result<Vec<ModelTrace>, Box<dyn std::error::Error + Send + Sync>> {
    let options = trace_options(device, frame_deadline_ms);
    let mut traces = Vec::with_capacity(models.len());
    for model in models {
        traces.push(model.build(device, options.clone())?);
    }
    for trace in &mut traces {
        trace.capture(device)?;
    }
    Ok(traces)
}
