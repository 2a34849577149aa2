//! Whole networks on the CPU device, captured and replayed, against ONNX Runtime on camera images; and the same
//! bits whatever the threads, queues and instruction set.

use crate::support;
use crate::tiny;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sensorium::device::cpu::kernels::{Bf16Dot, Isa};
use sensorium::device::{CpuConfig, CpuDevice, Device};
use sensorium::image::{BackMap, Preset, PresetOptions, decode_image};
use sensorium::outputs::Detection2D;
use sensorium::perception::{
    BoxExtent, Detector, DetectorGraph, DeviceModel, FrameKey, Head, HeadKind, ModelTrace, PixelInput,
    Thresholds, coco_80, iou,
};
use sensorium::tensor::{DType, HostTensor};
use sensorium::trace::TraceOptions;
use sensorium::weights::{OnnxModel, WeightFormat};

const NANO: Family = Family {
    file: "models/yolox_nano_416.onnx",
    kind: HeadKind::Yolox,
    preset: Preset::YoloxOpencv,
    scale: 1.0,
    oracle: "yolox",
};
const FASTEST: Family = Family {
    file: "models/FastestDet_352.onnx",
    kind: HeadKind::FastestDet,
    preset: Preset::FastestDetOpencv,
    scale: 1.0 / 255.0,
    oracle: "fastestdet",
};

/// A public network and how it is fed.
#[derive(Debug, Clone, Copy)]
struct Family {
    file: &'static str,
    kind: HeadKind,
    preset: Preset,
    scale: f32,
    /// Its name in `detect.py`.
    oracle: &'static str,
}

/// A captured network on a device of its own.
struct Network {
    device: CpuDevice,
    trace: ModelTrace,
}

impl Network {
    /// Without an instruction set the device takes what is fastest; with one, it widens bf16, whose sums are then the same
    /// on all of them.
    fn open(graph: &DetectorGraph, threads: usize, queues: u8, isa: Option<Isa>) -> Self {
        let config = CpuConfig {
            bf16_dot: isa.map(|_| Bf16Dot::Off),
            threads,
            queues,
            arena_bytes: 128 << 20,
            isa,
            ..CpuConfig::default()
        };
        let mut device = CpuDevice::open(&config).unwrap();
        let options = match queues {
            1 => TraceOptions::default(),
            _ => TraceOptions::two_queues(),
        };
        // One lane, hardly optimised, on a busy machine.
        let options = TraceOptions {
            deadline: Duration::from_secs(300),
            ..options
        };
        let mut trace = graph.build(&mut device, options).unwrap();
        trace.capture(&mut device).unwrap();
        Self { device, trace }
    }

    /// The network's output for one input, through upload, replay and read.
    fn replay(&mut self, pixels: &[u8]) -> Vec<f32> {
        let Self { device, trace } = self;
        let mut input = device.host_slot(trace.input_specs()[0].bytes()).unwrap();
        let mut output = device.host_slot(trace.output_bytes()).unwrap();
        input.bytes_mut().unwrap()[..pixels.len()].copy_from_slice(pixels);
        let key = FrameKey::default();
        let pending = trace.submit(device, 0, [&input], &key).unwrap().pending;
        trace.runner().0.wait(device, pending.done).unwrap();
        let read = trace.read(device, pending, &mut output).unwrap();
        trace.runner().0.wait(device, read).unwrap();
        floats(&output.bytes().unwrap()[..trace.output_bytes()])
    }

    /// The same without a trace.
    fn eager(&mut self, pixels: &[u8], input_px: [usize; 2]) -> Vec<f32> {
        let tensor = HostTensor::from_slice(&[1, input_px[1], input_px[0], 3], pixels).unwrap();
        let (runner, variants, inputs) = self.trace.runner();
        let (variant, input) = (variants[0], inputs[0]);
        let outputs = runner
            .run_eager(&mut self.device, variant, &[(input, &tensor)])
            .unwrap();
        outputs[0].1.as_slice::<f32>().unwrap().to_vec()
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let (chunks, rest) = bytes.as_chunks::<4>();
    assert!(rest.is_empty());
    chunks.iter().map(|&b| f32::from_le_bytes(b)).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// Every photo and road frame of the test data.
fn camera_files() -> Option<Vec<PathBuf>> {
    let root = support::data("camera")?;
    let mut files: Vec<PathBuf> = [".", "photos", "nuscenes_n015"]
        .iter()
        .flat_map(|folder| root.join(folder).read_dir().unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "jpg"))
        .collect();
    files.sort();
    assert!(files.len() >= 14);
    Some(files)
}

/// A network, its host half, and every camera image brought to its input.
struct Bench {
    family: Family,
    model: PathBuf,
    onnx: OnnxModel,
    detector: Detector,
    files: Vec<PathBuf>,
    inputs: Vec<(Vec<u8>, BackMap)>,
}

impl Bench {
    fn new(family: Family) -> Option<Self> {
        let (model, files) = (support::data(family.file)?, camera_files()?);
        let onnx = OnnxModel::open(&model).unwrap();
        let graph = DetectorGraph::lower(
            "net".into(),
            &onnx,
            DType::F32,
            WeightFormat::Fp32,
            PixelInput::scaled_bytes(family.scale),
        )
        .unwrap();
        let thresholds = Thresholds {
            score: 0.3,
            nms_iou: 0.45,
            max_detections: 300,
        };
        let head = Head::new(family.kind, graph.input_px(), graph.output_dims(), thresholds).unwrap();
        let detector = Detector::new(
            "net".into(),
            family.preset,
            PresetOptions::DEPLOYED,
            graph.input_px(),
            head,
            coco_80(),
        )
        .unwrap();
        let inputs = files
            .iter()
            .map(|file| {
                let image = decode_image(&std::fs::read(file).unwrap()).unwrap();
                let mut pixels = vec![0; detector.input_bytes()];
                let back = detector.prepare(&image.view(), &mut pixels).unwrap();
                (pixels, back)
            })
            .collect();
        Some(Self {
            family,
            model,
            onnx,
            detector,
            files,
            inputs,
        })
    }

    fn graph(&self, storage: DType) -> DetectorGraph {
        DetectorGraph::lower(
            "net".into(),
            &self.onnx,
            storage,
            WeightFormat::Fp32,
            PixelInput::scaled_bytes(self.family.scale),
        )
        .unwrap()
    }

    /// What the captured network makes of every input.
    fn ours(&self, storage: DType) -> Vec<Vec<f32>> {
        let mut network = Network::open(&self.graph(storage), 2, 2, None);
        self.inputs
            .iter()
            .map(|(pixels, _)| network.replay(pixels))
            .collect()
    }

    /// What ONNX Runtime makes of the same bytes; `bf16` rounds weights and activations.
    fn theirs(&self, precision: &str) -> Option<Vec<Vec<f32>>> {
        let mut oracle = support::oracle("run_pixels.py")?;
        let folder = tempfile::tempdir().unwrap();
        let place = |i: usize, ending: &str| folder.path().join(format!("{i}.{ending}"));
        oracle
            .arg(&self.model)
            .arg(precision)
            .arg(self.family.scale.to_string())
            .arg(folder.path());
        for (i, (pixels, _)) in self.inputs.iter().enumerate() {
            std::fs::write(place(i, "bgr"), pixels).unwrap();
            oracle.arg(place(i, "bgr"));
        }
        support::run(&mut oracle);
        let heads = (0..self.inputs.len()).map(|i| floats(&std::fs::read(place(i, "head")).unwrap()));
        Some(heads.collect())
    }

    /// Boxes of every image that OpenCV decoded and resized and ONNX Runtime and NumPy worked on.
    fn their_boxes(&self) -> Option<Vec<Vec<Detection2D>>> {
        let mut oracle = support::oracle("detect.py")?;
        let folder = tempfile::tempdir().unwrap();
        oracle.arg(self.family.oracle).arg(&self.model).arg(folder.path());
        support::run(oracle.args(&self.files));
        let boxes = |i: usize| {
            let text = std::fs::read_to_string(folder.path().join(format!("{i}.boxes"))).unwrap();
            let aware = text.lines().filter_map(|line| line.strip_prefix("aware "));
            aware
                .map(|line| {
                    let words: Vec<f32> = line.split(' ').map(|w| w.parse().unwrap()).collect();
                    Detection2D {
                        label_id: words[0] as u32,
                        score: words[1],
                        box_xyxy: words[2..].try_into().unwrap(),
                    }
                })
                .collect()
        };
        Some((0..self.files.len()).map(boxes).collect())
    }

    fn boxes(&self, head: &[f32], image: usize) -> Vec<Detection2D> {
        let frame_id = Arc::from("camera");
        let found = self
            .detector
            .finish(head, &self.inputs[image].1, &frame_id)
            .unwrap();
        found.detections
    }

    fn name(&self, image: usize) -> String {
        self.files[image]
            .file_name()
            .unwrap()
            .to_string_lossy()
            .into_owned()
    }
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    // NaN never compares as the larger one, so it is looked for.
    assert!(a.iter().chain(b).all(|x| x.is_finite()));
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Pearson correlation, in double precision.
fn correlation(a: &[f32], b: &[f32]) -> f64 {
    let mean = |v: &[f32]| v.iter().map(|&x| f64::from(x)).sum::<f64>() / v.len() as f64;
    let (ma, mb) = (mean(a), mean(b));
    let product = |x: &[f32], mx: f64, y: &[f32], my: f64| -> f64 {
        x.iter()
            .zip(y)
            .map(|(&x, &y)| (f64::from(x) - mx) * (f64::from(y) - my))
            .sum()
    };
    product(a, ma, b, mb) / (product(a, ma, a, ma) * product(b, mb, b, mb)).sqrt()
}

/// What two detections of one object may differ by.
#[derive(Debug, Clone, Copy)]
struct Tolerance {
    iou: f32,
    score: f32,
}

impl Tolerance {
    fn same(self, a: &Detection2D, b: &Detection2D) -> bool {
        a.label_id == b.label_id
            && (a.score - b.score).abs() <= self.score
            && iou(&a.box_xyxy, &b.box_xyxy, BoxExtent::Continuous) >= self.iou
    }

    /// Detections of `wanted` without a partner of their own in `found`, leaving out those so close to the
    /// threshold that their partner may be below it.
    fn missing(self, wanted: &[Detection2D], found: &[Detection2D]) -> Vec<Detection2D> {
        let mut used = vec![false; found.len()];
        let mut has_partner = |detection: &Detection2D| {
            let partner = (0..found.len()).find(|&i| !used[i] && self.same(detection, &found[i]));
            if let Some(i) = partner {
                used[i] = true;
            }
            partner.is_some()
        };
        let sure = wanted
            .iter()
            .filter(|d| !has_partner(d) && d.score > 0.3 + self.score);
        sure.copied().collect()
    }
}

/// Boxes of one network on equal pixels: far within an IoU of 0.99 and 0.01 of the score.
const EQUAL_PIXELS: Tolerance = Tolerance {
    iou: 0.999,
    score: 1e-4,
};

/// Boxes on the pixels of two JPEG decoders, which differ by a few levels.
const OWN_PIXELS: Tolerance = Tolerance {
    iou: 0.97,
    score: 0.02,
};

/// Outputs within `bound` of the largest value of the head, and the same boxes.
fn fp32_equals_onnx_runtime(bench: &Bench, ours: &[Vec<f32>], bound: f32) {
    let Some(theirs) = bench.theirs("fp32") else {
        return;
    };
    let (mut worst, mut lowest, mut boxes) = (0.0_f32, 1.0_f64, 0);
    for (i, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        let name = bench.name(i);
        let top = theirs.iter().fold(1.0_f32, |top, x| top.max(x.abs()));
        let error = largest_difference(ours, theirs);
        let pcc = correlation(ours, theirs);
        // Both sides round every sum of some thousand products to single precision, in another order.
        assert!(error <= bound * top, "{name}: {error} of {top}");
        assert!(pcc >= 0.999_999_99, "{name}: {pcc}");
        (worst, lowest) = (worst.max(error / top), lowest.min(pcc));
        let (found, wanted) = (bench.boxes(ours, i), bench.boxes(theirs, i));
        for (wanted, found) in [(&wanted, &found), (&found, &wanted)] {
            assert_eq!(EQUAL_PIXELS.missing(wanted, found), [], "{name}");
        }
        boxes += found.len();
    }
    println!(
        "{}: {boxes} boxes, largest difference {worst:e} of the largest value, correlation {lowest}",
        bench.family.file
    );
    assert!(boxes > 30, "only {boxes} boxes compared");
}

#[test]
fn yolox_in_fp32_equals_onnx_runtime_on_every_camera_image() {
    let Some(bench) = Bench::new(NANO) else { return };
    let ours = bench.ours(DType::F32);
    fp32_equals_onnx_runtime(&bench, &ours, 4e-4);
    // And with everything from the JPEG file to the boxes done by others.
    let Some(theirs) = bench.their_boxes() else { return };
    for (i, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        let found = bench.boxes(ours, i);
        for (wanted, found) in [(theirs, &found), (&found, theirs)] {
            assert_eq!(OWN_PIXELS.missing(wanted, found), [], "{}", bench.name(i));
        }
    }
}

#[test]
fn fastestdet_in_fp32_equals_onnx_runtime_on_every_camera_image() {
    let Some(bench) = Bench::new(FASTEST) else { return };
    fp32_equals_onnx_runtime(&bench, &bench.ours(DType::F32), 2e-4);
}

/// Objectness times class of every cell of a YOLOX head of 80 classes.
fn scores(head: &[f32]) -> Vec<f32> {
    let rows = head.chunks_exact(85);
    rows.flat_map(|row| row[5..].iter().map(move |class| row[4] * class))
        .collect()
}

/// How far two heads are from full correlation, raw and in the scores that detections are made of.
fn losses(a: &[f32], b: &[f32]) -> [f64; 2] {
    [1.0 - correlation(a, b), 1.0 - correlation(&scores(a), &scores(b))]
}

/// bf16 keeps 8 bits, and that costs YOLOX-nano more than a correlation of 0.999. With its weights rounded to them,
/// and everything else exact, the raw head comes down to 0.9965 to 0.9998 of these images, with its activations
/// rounded as well to 0.9940 to 0.9996, and the scores to 0.9908 to 0.9998: most values are those of cells that see
/// nothing, which training left free. So ONNX Runtime with rounded weights and activations is the measure: every raw
/// head may lose half as much again, and so may the scores on average over the images. The boxes count one by one: a
/// box must come out with its label, an IoU of 0.9 and a score within 0.05, unless its score is less than 0.05 above
/// the threshold. Of all boxes on both sides, 95 % must.
#[test]
fn yolox_in_bf16_loses_what_rounding_costs_and_finds_the_same_objects() {
    let Some(bench) = Bench::new(NANO) else { return };
    let (Some(exact), Some(rounded)) = (bench.theirs("fp32"), bench.theirs("bf16")) else {
        return;
    };
    let ours = bench.ours(DType::Bf16);
    let tolerance = Tolerance {
        iou: 0.9,
        score: 0.05,
    };
    let (mut lost, mut unavoidable, mut lowest) = (0.0, 0.0, [1.0_f64; 2]);
    let (mut missing, mut total) = (Vec::new(), 0);
    for (i, ours) in ours.iter().enumerate() {
        let (found, measure) = (losses(ours, &exact[i]), losses(&rounded[i], &exact[i]));
        let context = format!("{}: {found:?} against {measure:?}", bench.name(i));
        assert!(found[0] <= 1.5 * measure[0], "{context}");
        assert!(found[0] <= 0.007 && found[1] <= 0.012, "{context}");
        lost += found[1];
        unavoidable += measure[1];
        lowest = [0, 1].map(|k| lowest[k].min(1.0 - found[k]));
        let (found, wanted) = (bench.boxes(ours, i), bench.boxes(&exact[i], i));
        for (wanted, found) in [(&wanted, &found), (&found, &wanted)] {
            missing.extend(tolerance.missing(wanted, found));
            total += wanted.len();
        }
    }
    println!(
        "bf16: correlation down to {} raw and {} scores, scores lose {:.2} of what rounding costs; {} of {total} boxes without partner",
        lowest[0],
        lowest[1],
        lost / unavoidable,
        missing.len()
    );
    assert!(lost <= 1.5 * unavoidable, "{lost} against {unavoidable}");
    assert!(total > 100, "only {total} boxes compared");
    assert!(
        missing.len() * 20 <= total,
        "{} of {total}: {missing:?}",
        missing.len()
    );
}

/// The bits of one output must be those of `pixels` in every other way to compute them. Sums of bf16 that is not widened
/// are the same on any threads and queues, not on any instruction set.
fn same_bits_everywhere(graph: &DetectorGraph, storage: DType, pixels: &[u8], isas: &[Isa]) {
    let mut network = Network::open(graph, 1, 1, None);
    let expected = bits(&network.replay(pixels));
    assert!(
        expected.iter().any(|b| *b != expected[0]),
        "an output of one value proves nothing"
    );
    let equal = |what: &str, found: &[f32], expected: &[u32]| {
        let differing = bits(found).iter().zip(expected).filter(|(a, b)| a != b).count();
        assert_eq!(differing, 0, "{what}: values of {}", expected.len());
    };
    let same = |what: &str, found: &[f32]| equal(what, found, &expected);
    same("second replay", &network.replay(pixels));
    same("eager", &network.eager(pixels, graph.input_px()));
    same("replay after eager", &network.replay(pixels));
    for (threads, queues) in [(2, 1), (3, 1), (2, 2)] {
        let mut other = Network::open(graph, threads, queues, None);
        let what = format!("{threads} threads, {queues} queues");
        same(&what, &other.replay(pixels));
        same(&format!("{what}, again"), &other.replay(pixels));
    }
    let mut widened = (storage == DType::F32).then(|| expected.clone());
    for &isa in isas.iter().filter(|isa| isa.is_available()) {
        let found = Network::open(graph, 2, 1, Some(isa)).replay(pixels);
        equal(
            &format!("{isa:?}"),
            &found,
            widened.get_or_insert_with(|| bits(&found)),
        );
    }
}

const EVERY_ISA: [Isa; 3] = [Isa::Scalar, Isa::Avx2, Isa::Avx512];

fn same_bits_on_a_photo(family: Family, storage: DType, isas: &[Isa]) {
    let Some(bench) = Bench::new(family) else { return };
    let photo = bench.files.iter().position(|f| f.ends_with("dog.jpg")).unwrap();
    same_bits_everywhere(&bench.graph(storage), storage, &bench.inputs[photo].0, isas);
}

#[test]
fn yolox_gives_the_same_bits_on_any_threads_queues_and_instruction_set() {
    same_bits_on_a_photo(NANO, DType::F32, &EVERY_ISA);
    // One lane takes its time; in bf16 it has its turn on the small network.
    same_bits_on_a_photo(NANO, DType::Bf16, &EVERY_ISA[1..]);
}

#[test]
fn fastestdet_gives_the_same_bits_on_any_threads_queues_and_instruction_set() {
    same_bits_on_a_photo(FASTEST, DType::F32, &EVERY_ISA);
}

fn small_network(storage: DType) -> DetectorGraph {
    let onnx = OnnxModel::from_bytes(&tiny::network(), "squares.onnx", None::<&Path>).unwrap();
    DetectorGraph::lower(
        "squares".into(),
        &onnx,
        storage,
        WeightFormat::Fp32,
        PixelInput::BYTES,
    )
    .unwrap()
}

/// Pixels of every value, without a pattern.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 56) as u8
    };
    (0..count).map(next).collect()
}

#[test]
fn a_small_network_gives_the_same_bits_everywhere() {
    for storage in [DType::F32, DType::Bf16] {
        let pixels = noise(tiny::SIDE * tiny::SIDE * 3);
        same_bits_everywhere(&small_network(storage), storage, &pixels, &EVERY_ISA);
    }
}

/// Each cell of the small network in double precision, written out.
#[test]
fn a_small_network_computes_its_formula() {
    let side = tiny::SIDE;
    let pixels = noise(side * side * 3);
    let head = Network::open(&small_network(DType::F32), 2, 2, None).replay(&pixels);
    let logistic = |x: f64| 1.0 / (1.0 + (-x).exp());
    let mut rows = head.chunks_exact(8);
    for class in [2, 1, 0] {
        let stride = tiny::side_of(class);
        let cells = side / stride;
        for cell in 0..cells * cells {
            let [left, top] = [cell % cells * stride, cell / cells * stride];
            let mut sum = 0.0;
            for (y, x) in (0..stride * stride).map(|i| (top + i / stride, left + i % stride)) {
                for channel in 0..3 {
                    let value = f64::from(pixels[(y * side + x) * 3 + channel]);
                    sum += if channel == class { value } else { -value };
                }
            }
            let objectness = logistic(8.0 / 255.0 * sum / (stride * stride) as f64 - 4.0);
            let classes = [0, 1, 2].map(|c| logistic(if c == class { 4.0 } else { -4.0 }));
            let expected = [0.5, 0.5, 0.0, 0.0, objectness, classes[0], classes[1], classes[2]];
            let row = rows.next().unwrap();
            for (found, expected) in row.iter().zip(expected) {
                assert!(
                    (f64::from(*found) - expected).abs() < 2e-6,
                    "stride {stride}, cell {cell}: {row:?}, {expected:?}"
                );
            }
        }
    }
    assert!(rows.next().is_none());
}
