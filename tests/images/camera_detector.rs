//! The camera detector that comes with the demo, on drives that it was not trained on.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sensorium::accuracy::{ImageBoxes, LabelledBox, evaluate_boxes};
use sensorium::device::{CpuConfig, CpuDevice, Device};
use sensorium::image::{ImageRef, PixelFormat, Preset, PresetOptions};
use sensorium::io::sim::{CameraConfig, CameraImage, Drive, DriveConfig, TrueBox};
use sensorium::outputs::{Detections2D, ObjectLabel};
use sensorium::perception::{
    Detector, DetectorGraph, DeviceModel, FrameKey, Head, HeadKind, ModelTrace, PixelInput, Thresholds,
    read_labels,
};
use sensorium::tensor::DType;
use sensorium::trace::TraceOptions;
use sensorium::weights::{OnnxModel, WeightFormat};

/// Worlds that are looked at, three images each.
const WORLDS: u64 = 30;

fn weights(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("pipelines/weights")
        .join(name)
}

/// The detector with its network on a device.
struct Bench {
    detector: Detector,
    device: CpuDevice,
    trace: ModelTrace,
}

impl Bench {
    fn open() -> Self {
        let onnx = OnnxModel::open(weights("yolox_sim.onnx")).unwrap();
        let name = || "yolox".into();
        let graph =
            DetectorGraph::lower(name(), &onnx, DType::F32, WeightFormat::Fp32, PixelInput::BYTES).unwrap();
        let thresholds = Thresholds {
            score: 0.05,
            nms_iou: 0.45,
            max_detections: 300,
        };
        let head = Head::new(HeadKind::Yolox, graph.input_px(), graph.output_dims(), thresholds).unwrap();
        let labels = read_labels(&weights("yolox_sim.labels")).unwrap();
        let options = PresetOptions::DEPLOYED;
        let detector = Detector::new(
            name(),
            Preset::YoloxOpencv,
            options,
            graph.input_px(),
            head,
            labels,
        );
        let mut device = CpuDevice::open(&CpuConfig::default()).unwrap();
        let options = TraceOptions {
            deadline: Duration::from_secs(300),
            ..TraceOptions::two_queues()
        };
        let mut trace = graph.build(&mut device, options).unwrap();
        trace.capture(&mut device).unwrap();
        Self {
            detector: detector.unwrap(),
            device,
            trace,
        }
    }

    fn find(&mut self, camera: &CameraConfig, image: &CameraImage) -> Detections2D {
        let [width, height] = [camera.width_px, camera.height_px].map(|side| side as usize);
        let frame = ImageRef::new(&image.rgb, width, height, 3 * width, PixelFormat::Rgb8).unwrap();
        let (device, trace) = (&mut self.device, &mut self.trace);
        let mut input = device.host_slot(trace.input_specs()[0].bytes()).unwrap();
        let mut output = device.host_slot(trace.output_bytes()).unwrap();
        let back = self.detector.prepare(&frame, input.bytes_mut().unwrap()).unwrap();
        let key = FrameKey::default();
        let pending = trace.submit(device, 0, [&input], &key).unwrap().pending;
        trace.runner().0.wait(device, pending.done).unwrap();
        let read = trace.read(device, pending, &mut output).unwrap();
        trace.runner().0.wait(device, read).unwrap();
        let bytes = &output.bytes().unwrap()[..trace.output_bytes()];
        let values: Vec<f32> = bytes
            .as_chunks()
            .0
            .iter()
            .map(|&b| f32::from_le_bytes(b))
            .collect();
        self.detector.finish(&values, &back, &"camera".into()).unwrap()
    }
}

/// Whether a road user can be expected to be found: as in the training's goals.
fn counts(truth: &TrueBox) -> bool {
    let [_, top, _, bottom] = truth.box_px;
    let least_px = match truth.label {
        ObjectLabel::Pedestrian => 20.0,
        _ => 12.0,
    };
    truth.visible_share() >= 0.25 && bottom - top >= least_px
}

#[test]
fn cars_and_pedestrians_of_unseen_drives_are_found_well_enough_to_be_shipped() {
    let mut bench = Bench::open();
    let config = DriveConfig {
        cameras: CameraConfig::three(),
        ..DriveConfig::default()
    };
    let mut images = Vec::new();
    for world in 0..WORLDS {
        let frame = Drive::new(&config, 990_000 + world).next_frame();
        for image in &frame.images {
            let found = bench.find(&frame.cameras[image.camera], image);
            images.push(ImageBoxes {
                found: found
                    .detections
                    .iter()
                    .map(|detection| LabelledBox {
                        label: found.label(detection).to_string(),
                        box_xyxy: detection.box_xyxy,
                        score: detection.score,
                        counts: true,
                    })
                    .collect(),
                truth: image
                    .truth
                    .iter()
                    .map(|truth| LabelledBox {
                        label: truth.label.name().to_owned(),
                        box_xyxy: truth.box_px,
                        score: 1.0,
                        counts: counts(truth),
                    })
                    .collect(),
            });
        }
    }
    assert_eq!(images.len(), 3 * WORLDS as usize);
    let classes = evaluate_boxes(&images, 0.5);
    // The floors below which `export.py` writes no file.
    for (label, floor) in [("CAR", 0.6), ("PEDESTRIAN", 0.4)] {
        let class = classes.iter().find(|class| class.label == label).unwrap();
        assert!(class.objects >= 50, "{class:?} are too few to tell");
        assert!(class.average_precision >= floor, "{class:?}");
    }
}
