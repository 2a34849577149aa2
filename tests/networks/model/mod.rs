//! Models with their devices: parameters and inputs that are checked, variants, and every way in which they end.

mod endings;
mod parameters;
mod results;

use std::path::{Path, PathBuf};
use std::time::Duration;

use sensorium::device::{CpuConfig, CpuDevice, Device};
use sensorium::image::{ImageRef, PixelFormat, Preset};
use sensorium::lidar::PointCloud;
use sensorium::outputs::Detections;
use sensorium::perception::centerpoint::CenterPointSource;
use sensorium::perception::{
    CallValue, CameraSource, DeviceModel, FrameKey, HeadKind, HostModel, ModelOptions, SensorData, Sweep,
    Thresholds,
};
use sensorium::trace::TraceOptions;

const NO_PARAMS: [(&str, CallValue); 0] = [];
const IDENTITY: [f64; 16] = [
    1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0,
];
const WIDTH: usize = 320;
const HEIGHT: usize = 200;

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("pipelines/weights")
        .join(name)
}

fn camera(thresholds: Thresholds) -> CameraSource {
    CameraSource {
        labels: Some(shipped("yolox_sim.labels")),
        thresholds,
        ..CameraSource::new(
            "yolox",
            &shipped("yolox_sim.onnx"),
            HeadKind::Yolox,
            Preset::YoloxOpencv,
        )
    }
}

const LOW: Thresholds = Thresholds {
    score: 0.001,
    nms_iou: 0.45,
    max_detections: 50,
};

fn lidar() -> CenterPointSource {
    CenterPointSource {
        variants: 3,
        ..CenterPointSource::new("centerpoint", &shipped("centerpoint_sim.safetensors"))
    }
}

fn cpu() -> Box<dyn Device> {
    let config = CpuConfig {
        arena_bytes: 512 << 20,
        ..CpuConfig::default()
    };
    Box::new(CpuDevice::open(&config).unwrap())
}

/// Hardly optimised, on a busy machine.
fn patient() -> ModelOptions {
    ModelOptions {
        deadline: Duration::from_secs(300),
        ..ModelOptions::default()
    }
}

fn only(names: &[&str]) -> ModelOptions {
    ModelOptions {
        variants: Some(names.iter().map(|&name| name.to_owned()).collect()),
        ..patient()
    }
}

/// Repeatable bytes without a pattern, in blocks so that there is something to see.
fn pixels() -> Vec<u8> {
    let at = |x: usize, y: usize, c: usize| ((x / 16 * 7919 + y / 16 * 104_729 + c * 31) % 251) as u8;
    let rows = (0..HEIGHT).flat_map(|y| (0..WIDTH).map(move |x| (x, y)));
    rows.flat_map(|(x, y)| [at(x, y, 0), at(x, y, 1), at(x, y, 2)])
        .collect()
}

/// Boxes of points on a plane.
fn cloud(points: usize) -> PointCloud {
    let mut cloud = PointCloud::default();
    for i in 0..points {
        let (box_at, within) = (i / 64 % 40, i % 64);
        cloud
            .x
            .push((box_at % 8) as f32 * 5.0 - 18.0 + (within % 8) as f32 * 0.5);
        cloud
            .y
            .push((box_at / 8) as f32 * 6.0 - 14.0 + (within / 8) as f32 * 0.25);
        cloud.z.push(-1.5 + (i * 37 % 100) as f32 / 60.0);
        cloud.intensity.push((i % 255) as f32);
    }
    cloud
}

fn sweep(cloud: &PointCloud, stamp_ns: i64) -> SensorData<'_> {
    SensorData::Sweep(Sweep {
        stream: "top",
        stamp_ns,
        points: cloud.columns(),
        world_from_sensor: Some(IDENTITY),
    })
}

fn image(pixels: &[u8]) -> ImageRef<'_> {
    ImageRef::new(pixels, WIDTH, HEIGHT, 3 * WIDTH, PixelFormat::Rgb8).unwrap()
}

/// What a camera detector finds, put together by hand.
fn by_hand(thresholds: Thresholds, pixels: &[u8]) -> Detections {
    let loaded = camera(thresholds).load().unwrap();
    let mut device = cpu();
    let options = TraceOptions {
        deadline: Duration::from_secs(300),
        ..TraceOptions::two_queues()
    };
    let mut trace = loaded.device.build(device.as_mut(), options).unwrap();
    trace.capture(device.as_mut()).unwrap();
    let mut input = device.host_slot(trace.input_specs()[0].bytes()).unwrap();
    let mut output = device.host_slot(trace.output_bytes()).unwrap();
    let data = SensorData::Image(image(pixels).into());
    let frame = HostModel::prepare(&loaded.host, &data, &mut [input.bytes_mut().unwrap()]).unwrap();
    let key = FrameKey::default();
    let submitted = trace.submit(device.as_mut(), frame.variant, [&input], &key);
    let pending = submitted.unwrap().pending;
    trace.read(device.as_mut(), pending, &mut output).unwrap();
    device.drain(Duration::from_secs(300)).unwrap();
    let floats: &[f32] = bytemuck::cast_slice(output.bytes().unwrap());
    HostModel::finish(&loaded.host, floats, &frame.placement, &"camera".into()).unwrap()
}
