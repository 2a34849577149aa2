//! CenterPoint whole: sweeps in, objects out, on the weights that come with the project and simulated drives.

use crate::support;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sensorium::device::{CpuConfig, CpuDevice, Device, HostSlot};
use sensorium::io::sim::{Drive, DriveConfig, DriveFrame};
use sensorium::lidar::{Columns, PointCloud};
use sensorium::outputs::{DetectedObject, Detections, ObjectLabel};
use sensorium::perception::centerpoint::{CenterPoint, CenterPointSource, LoadError, POINT_LANES};
use sensorium::perception::{
    DeviceModel, FrameKey, HostModel, ModelTrace, Placement, PrepareError, SensorData, Sweep,
};
use sensorium::tensor::{DType, HostTensor};
use sensorium::trace::TraceOptions;

fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("pipelines/weights/centerpoint_sim.safetensors")
}

/// A model on a device of its own.
struct Bench {
    host: CenterPoint,
    device: CpuDevice,
    trace: ModelTrace,
    inputs: Vec<HostSlot>,
    output: HostSlot,
}

impl Bench {
    fn open(storage: DType) -> Self {
        Self::with_variants(storage, 1)
    }

    fn with_variants(storage: DType, variants: usize) -> Self {
        Self::of(&CenterPointSource {
            storage,
            variants,
            ..CenterPointSource::new("centerpoint", &shipped())
        })
    }

    fn of(source: &CenterPointSource) -> Self {
        let loaded = source.load().unwrap();
        let mut device = CpuDevice::open(&CpuConfig {
            arena_bytes: 512 << 20,
            ..CpuConfig::default()
        })
        .unwrap();
        // Hardly optimised, on a busy machine.
        let options = TraceOptions {
            deadline: Duration::from_secs(300),
            ..TraceOptions::two_queues()
        };
        let mut trace = loaded.device.build(&mut device, options).unwrap();
        trace.capture(&mut device).unwrap();
        let specs = trace.input_specs().to_vec();
        let slots = specs.iter().map(|spec| device.host_slot(spec.bytes()).unwrap());
        Self {
            inputs: slots.collect(),
            output: device.host_slot(trace.output_bytes()).unwrap(),
            host: loaded.host,
            device,
            trace,
        }
    }

    fn prepare(&mut self, sweep: Sweep<'_>) -> Result<usize, PrepareError> {
        let slots = self.inputs.iter_mut();
        let mut inputs: Vec<&mut [u8]> = slots.map(|slot| slot.bytes_mut().unwrap()).collect();
        let prepared = self.host.prepare(&SensorData::Sweep(sweep), &mut inputs)?;
        Ok(prepared.variant)
    }

    /// What the device makes of the inputs as they are.
    fn heads(&mut self, variant: usize) -> Vec<f32> {
        let pending = self
            .trace
            .submit(&mut self.device, variant, &self.inputs, &FrameKey::default())
            .unwrap()
            .pending;
        self.trace
            .runner()
            .0
            .wait(&mut self.device, pending.done)
            .unwrap();
        let read = self
            .trace
            .read(&mut self.device, pending, &mut self.output)
            .unwrap();
        self.trace.runner().0.wait(&mut self.device, read).unwrap();
        support::floats(&self.output.bytes().unwrap()[..self.trace.output_bytes()])
    }

    fn objects(&mut self, sweep: Sweep<'_>) -> Vec<DetectedObject> {
        let variant = self.prepare(sweep).unwrap();
        let heads = self.heads(variant);
        objects(&self.host, &heads)
    }
}

fn objects(host: &CenterPoint, heads: &[f32]) -> Vec<DetectedObject> {
    let frame: Arc<str> = "lidar".into();
    match host.finish(heads, &Placement::Sensor, &frame).unwrap() {
        Detections::Objects(found) => found.objects,
        Detections::Image(_) => panic!("objects on the road are expected"),
    }
}

fn sweep<'a>(cloud: &'a PointCloud, frame: &DriveFrame) -> Sweep<'a> {
    let sensor = frame.world_from_base.then(&frame.base_from_lidar);
    let (sin, cos) = sensor.yaw_rad.sin_cos();
    Sweep {
        stream: "lidar",
        stamp_ns: frame.stamp_ns as i64,
        points: cloud.columns(),
        world_from_sensor: Some([
            cos, -sin, 0.0, sensor.x_m, sin, cos, 0.0, sensor.y_m, 0.0, 0.0, 1.0, sensor.z_m, 0.0, 0.0, 0.0,
            1.0,
        ]),
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Correlation of two lists.
fn correlation(a: &[f32], b: &[f32]) -> f64 {
    let mean = |values: &[f32]| values.iter().map(|&v| f64::from(v)).sum::<f64>() / values.len() as f64;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (&a, &b) in a.iter().zip(b) {
        let (a, b) = (f64::from(a) - mean_a, f64::from(b) - mean_b);
        ab += a * b;
        aa += a * a;
        bb += b * b;
    }
    ab / (aa * bb).sqrt()
}

/// The heads of the reference as rows of cells, from the float32 inputs of a frame.
fn reference(inputs: &[HostSlot], folder: &Path) -> Option<Vec<f32>> {
    let mut command = support::oracle("centerpoint_reference.py")?;
    let points = support::floats(inputs[0].bytes().unwrap());
    let (words, _) = inputs[1].bytes().unwrap().as_chunks::<4>();
    let index: Vec<u32> = words.iter().map(|&word| u32::from_le_bytes(word)).collect();
    let mut placed: Vec<(u32, u32)> = (0..).zip(&index).map(|(cell, &pillar)| (pillar, cell)).collect();
    let capacity = points.len() / (32 * POINT_LANES);
    placed.retain(|&(pillar, _)| (pillar as usize) < capacity);
    placed.sort_unstable();
    let rows = points.chunks_exact(POINT_LANES).take(32 * placed.len());
    let features: Vec<f32> = rows.flat_map(|row| row[..9].to_vec()).collect();
    let cells: Vec<u32> = placed.iter().map(|&(_, cell)| cell).collect();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    command.arg(shipped());
    command.arg(write("features", bytemuck::cast_slice(&features)));
    command.arg(write("cells", bytemuck::cast_slice(&cells)));
    let planes = support::floats(&support::run(&mut command));
    let cells = 160 * 160;
    let channels = planes.len() / cells;
    assert_eq!(channels, 15);
    let rows = (0..cells).flat_map(|cell| (0..channels).map(move |channel| (channel, cell)));
    Some(
        rows.map(|(channel, cell)| planes[channel * cells + cell])
            .collect(),
    )
}

#[test]
fn heads_and_objects_equal_a_float32_reference_of_the_network() {
    let mut drive = Drive::new(&DriveConfig::default(), 4711);
    let frames = [drive.next_frame(), drive.next_frame()];
    let folder = tempfile::tempdir().unwrap();
    let mut expected = None;
    for (storage, least, most_different) in [(DType::F32, 1.0 - 1e-9, 0), (DType::Bf16, 0.999, 2)] {
        let mut bench = Bench::open(storage);
        let variant = frames
            .each_ref()
            .map(|frame| bench.prepare(sweep(&frame.cloud, frame)).unwrap())[1];
        let heads = bench.heads(variant);
        if storage == DType::F32 {
            expected = reference(&bench.inputs, folder.path());
        }
        let Some(expected) = &expected else { return };
        let found = correlation(&heads, expected);
        assert!(found >= least, "{storage}: correlation {found}");
        let (ours, theirs) = (objects(&bench.host, &heads), objects(&bench.host, expected));
        assert!(theirs.len() >= 5, "a street with hardly anything on it");
        let same = |a: &DetectedObject, b: &DetectedObject| {
            a.label == b.label && (0..2).all(|axis| (a.position_m[axis] - b.position_m[axis]).abs() < 0.1)
        };
        let lone = ours.iter().filter(|a| !theirs.iter().any(|b| same(a, b))).count();
        let missed = theirs.iter().filter(|a| !ours.iter().any(|b| same(a, b))).count();
        assert!(
            lone.max(missed) <= most_different,
            "{storage}: {lone} lone, {missed} missed of {}",
            theirs.len()
        );
    }
}

#[test]
fn a_replay_gives_the_bits_of_the_eager_run_in_every_variant() {
    let mut drive = Drive::new(&DriveConfig::default(), 5);
    let frame = drive.next_frame();
    let mut bench = Bench::with_variants(DType::Bf16, 2);
    bench.prepare(sweep(&frame.cloud, &frame)).unwrap();
    let specs = bench.trace.input_specs().to_vec();
    let tensors: Vec<HostTensor> = specs
        .iter()
        .zip(&bench.inputs)
        .map(|(spec, slot)| {
            let mut tensor = HostTensor::zeros(*spec);
            let bytes = tensor.bytes().len();
            tensor
                .bytes_mut()
                .copy_from_slice(&slot.bytes().unwrap()[..bytes]);
            tensor
        })
        .collect();
    let variants = bench.trace.runner().1.len();
    assert_eq!(variants, 2);
    for variant in 0..variants {
        let replayed = bench.heads(variant);
        let (runner, ids, inputs) = bench.trace.runner();
        let given: Vec<_> = inputs.iter().copied().zip(&tensors).collect();
        let id = ids[variant];
        let eager = runner.run_eager(&mut bench.device, id, &given).unwrap();
        assert!(
            bits(eager[0].1.as_slice::<f32>().unwrap()) == bits(&replayed),
            "variant {variant}"
        );
    }
}

#[test]
fn most_near_cars_of_a_drive_are_found_where_they_are() {
    let mut bench = Bench::open(DType::Bf16);
    let (mut there, mut found) = (0, 0);
    for seed in [900, 901, 902] {
        let mut drive = Drive::new(&DriveConfig::default(), seed);
        let frames = [drive.next_frame(), drive.next_frame()];
        let mut objects = Vec::new();
        for frame in &frames {
            objects = bench.objects(sweep(&frame.cloud, frame));
        }
        for truth in &frames[1].truth {
            let [x, y, _] = truth.object.position_m;
            if truth.object.label != ObjectLabel::Car || truth.points < 30 || x.hypot(y) > 35.0 {
                continue;
            }
            there += 1;
            let near = |object: &DetectedObject| {
                let [a, b, _] = object.position_m;
                object.label == ObjectLabel::Car && (a - x).hypot(b - y) < 1.0
            };
            found += usize::from(objects.iter().any(near));
        }
    }
    assert!(there >= 8, "{there} cars are too few to tell");
    assert!(found * 10 >= there * 8, "{found} of {there}");
}

#[test]
fn a_sweep_without_a_pose_is_refused_and_the_stream_goes_on() {
    let mut drive = Drive::new(&DriveConfig::default(), 1);
    let frame = drive.next_frame();
    let mut bench = Bench::open(DType::F32);
    let lost = Sweep {
        world_from_sensor: None,
        ..sweep(&frame.cloud, &frame)
    };
    assert!(matches!(bench.prepare(lost), Err(PrepareError::NoPose { .. })));
    let first = bench.prepare(sweep(&frame.cloud, &frame)).unwrap();
    let inputs = bench.inputs[1].bytes().unwrap().to_vec();
    let mut fresh = Bench::open(DType::F32);
    assert_eq!(fresh.prepare(sweep(&frame.cloud, &frame)).unwrap(), first);
    assert!(
        fresh.inputs[1].bytes().unwrap() == inputs,
        "the refused sweep left something behind"
    );
}

#[test]
fn empty_and_useless_sweeps_give_no_objects_and_no_trouble() {
    let nan = [f32::NAN; 3];
    let far = [1e6_f32; 3];
    let mut bench = Bench::open(DType::F32);
    for (stamp_ns, column) in [(0, &[] as &[f32]), (1, &nan), (2, &far)] {
        let sweep = Sweep {
            stream: "odd",
            stamp_ns,
            points: Columns {
                x: column,
                y: column,
                z: column,
                intensity: &[],
            },
            world_from_sensor: Some(std::array::from_fn(|i| if i % 5 == 0 { 1.0 } else { 0.0 })),
        };
        assert_eq!(bench.objects(sweep), [], "{column:?}");
    }
    let uneven = Sweep {
        stream: "odd",
        stamp_ns: 3,
        points: Columns {
            x: &nan,
            ..Columns::default()
        },
        world_from_sensor: Some(std::array::from_fn(|i| if i % 5 == 0 { 1.0 } else { 0.0 })),
    };
    assert!(matches!(bench.prepare(uneven), Err(PrepareError::Cloud(_))));
}

#[test]
fn thresholds_change_between_frames_and_wrong_ones_change_nothing() {
    let mut drive = Drive::new(&DriveConfig::default(), 33);
    let mut bench = Bench::open(DType::F32);
    let frame = drive.next_frame();
    let variant = bench.prepare(sweep(&frame.cloud, &frame)).unwrap();
    let heads = bench.heads(variant);
    let before = objects(&bench.host, &heads);
    let all = |value: f64| {
        move |params: &mut sensorium::perception::centerpoint::CenterPointParams| {
            params.score_thresholds.iter_mut().for_each(|bin| bin.fill(value));
            Ok(())
        }
    };
    bench.host.tune(all(0.95)).unwrap();
    let strict = objects(&bench.host, &heads);
    assert!(strict.len() < before.len());
    assert!(strict.iter().all(|object| object.score >= 0.95));
    let wrong = bench.host.tune(|params| {
        params.iou_nms_threshold = f64::NAN;
        Ok(())
    });
    assert!(wrong.is_err());
    assert_eq!(objects(&bench.host, &heads), strict);
}

#[test]
fn a_file_of_another_kind_is_told_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.safetensors");
    let header = br#"{"__metadata__":{"model":"yolox"}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header);
    std::fs::write(&path, bytes).unwrap();
    let error = CenterPointSource::new("c", &path).load().unwrap_err();
    assert!(matches!(error, LoadError::Weights(_)));
    let text = error.to_string();
    assert!(
        text.contains("other.safetensors") && text.contains("`model`"),
        "{text}"
    );
}

/// Parameters in the form of Autoware's files, for a grid of 24 x 32 cells.
const SMALL_GRID: &str = "/**:
  ros__parameters:
    model_params:
      class_names: [CAR, TRUCK, BUS, BICYCLE, PEDESTRIAN]
      point_feature_size: 4
      max_voxel_size: 600
      point_cloud_range: [-16.0, -12.0, -3.0, 16.0, 12.0, 5.0]
      voxel_size: [1.0, 1.0, 8.0]
      downsample_factor: 2
      encoder_in_feature_size: 9
      has_variance: false
      has_twist: false
      detection_score_thresholds:
        distance_bin_upper_limits: [50.0, 200.0]
        min_confidence_scores:
          CAR: [0.6, 0.6]
          TRUCK: [0.6, 0.6]
          BUS: [0.6, 0.6]
          BICYCLE: [0.6, 0.6]
          PEDESTRIAN: [0.6, 0.6]
    post_process_params:
      circle_nms_dist_threshold: 0.5
      iou_nms_search_distance_2d: 10.0
      iou_nms_threshold: 0.1
      yaw_norm_thresholds: [0.3, 0.3, 0.3, 0.3, 0.0]
    densification_params:
      world_frame_id: map
      num_past_frames: 1
    cloud_capacity: 2000000
";

#[test]
fn the_two_onnx_files_of_autoware_equal_onnx_runtime_from_sweeps_to_objects() {
    let (Some(mut exporter), Some(mut runtime)) = (
        support::oracle("centerpoint_onnx.py"),
        support::oracle("run_centerpoint_onnx.py"),
    ) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    support::run(exporter.arg(folder.path()));
    std::fs::write(path("small.param.yaml"), SMALL_GRID).unwrap();
    let source = CenterPointSource {
        encoder: Some(path("pts_voxel_encoder_centerpoint.onnx")),
        params: vec![path("small.param.yaml")],
        ..CenterPointSource::new("autoware", &path("pts_backbone_neck_head_centerpoint.onnx"))
    };
    let mut bench = Bench::of(&source);
    let mut drive = Drive::new(&DriveConfig::default(), 12);
    let frames = [drive.next_frame(), drive.next_frame()];
    for frame in &frames {
        bench.prepare(sweep(&frame.cloud, frame)).unwrap();
    }
    let (points, index) = (bench.inputs[0].bytes().unwrap(), bench.inputs[1].bytes().unwrap());
    let rows = 600 * 32 * 9;
    std::fs::write(path("points"), &points[..4 * rows]).unwrap();
    std::fs::write(path("index"), &index[..4 * 24 * 32]).unwrap();
    let used = index
        .as_chunks::<4>()
        .0
        .iter()
        .filter(|&&word| u32::from_le_bytes(word) < 600)
        .count();
    assert!(used > 100, "{used} pillars");
    runtime.args([
        &source.encoder.clone().unwrap(),
        &source.weights,
        &path("points"),
        &path("index"),
    ]);
    let planes = support::floats(&support::run(runtime.args(["24", "32"])));
    let (cells, channels) = (12 * 16, 15);
    assert_eq!(planes.len(), cells * channels);
    let rows = (0..cells).flat_map(|cell| (0..channels).map(move |channel| (channel, cell)));
    let expected: Vec<f32> = rows
        .map(|(channel, cell)| planes[channel * cells + cell])
        .collect();
    let heads = bench.heads(0);
    let top = expected.iter().fold(0.0_f32, |top, v| top.max(v.abs()));
    for (ours, theirs) in heads.iter().zip(&expected) {
        assert!((ours - theirs).abs() <= 2e-5 * top, "{ours} for {theirs}");
    }
    assert_eq!(
        objects(&bench.host, &heads).len(),
        objects(&bench.host, &expected).len()
    );
}

#[test]
fn files_that_do_not_belong_together_are_told() {
    let told = |source: CenterPointSource| source.load().unwrap_err().to_string();
    let onnx = CenterPointSource::new("c", Path::new("heads.onnx"));
    assert!(told(onnx.clone()).contains("pts_voxel_encoder"), "no encoder");
    let without_params = CenterPointSource {
        encoder: Some("encoder.onnx".into()),
        ..onnx
    };
    assert!(told(without_params).contains("parameter files"));
    let both = CenterPointSource {
        encoder: Some("encoder.onnx".into()),
        ..CenterPointSource::new("c", &shipped())
    };
    assert!(told(both).contains("brings its own"));
}
