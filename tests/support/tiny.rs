//! A network of the YOLOX form that fits in a hundred kilobytes and whose detections can be told beforehand,
//! with pictures, bags and a pipeline file for it: end-to-end tests that need nothing but the repository.
//!
//! The network takes 64 x 64 pixels and has three classes, one a stride. A cell of the grid of stride 8 sees
//! red, one of stride 16 green, one of stride 32 blue; it proposes exactly its own square of the image. So a
//! square of its colour's side on a multiple of that side is one detection, at the square, with [`SCORE`].
#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test target includes this file and uses its own part"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use prost::Message;
use sensorium::image::{Image, PixelFormat, encode_png};
use sensorium::io::messages::{
    COMPRESSED_IMAGE_TYPE, CompressedImageMsg, HeaderMsg, IMAGE_TYPE, ImageMsg, definition,
};
use sensorium::io::recorder::{McapRecorder, RecordCompression};
use sensorium::weights::proto::{
    AttributeProto, DimensionProto, DimensionValue, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    TensorProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};
use serde_json::Value;

/// Width and height of the network's input in pixels.
pub const SIDE: usize = 64;
/// Class names; a class's number is its colour's place in a BGR pixel.
pub const LABELS: [&str; 3] = ["blue", "green", "red"];
/// Score of a square: objectness and class probability are the logistic function of 4.
pub const SCORE: f64 = 0.982_013_790_037_908_4 * 0.982_013_790_037_908_4;
/// Stamp of the first frame.
pub const START_NS: u64 = 1_700_000_000_000_000_000;

/// Side of a class's squares in pixels.
pub fn side_of(class: usize) -> usize {
    32 >> class
}

fn constant(name: &str, dims: &[i64], values: Vec<f32>) -> TensorProto {
    TensorProto {
        name: name.to_owned(),
        dims: dims.to_vec(),
        data_type: 1,
        float_data: values,
        ..TensorProto::default()
    }
}

fn node(op_type: &str, inputs: &[&str], output: &str, attributes: Vec<AttributeProto>) -> NodeProto {
    NodeProto {
        op_type: op_type.to_owned(),
        input: inputs.iter().map(ToString::to_string).collect(),
        output: vec![output.to_owned()],
        attribute: attributes,
        ..NodeProto::default()
    }
}

fn ints(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto {
        name: name.to_owned(),
        ints: values.to_vec(),
        r#type: 7,
        ..AttributeProto::default()
    }
}

fn axis(value: i64) -> AttributeProto {
    AttributeProto {
        name: "axis".to_owned(),
        i: value,
        r#type: 2,
        ..AttributeProto::default()
    }
}

fn tensor(name: &str, dims: &[i64]) -> ValueInfoProto {
    let dim = dims
        .iter()
        .map(|&size| DimensionProto {
            value: Some(DimensionValue::Size(size)),
        })
        .collect();
    let tensor_type = TensorTypeProto {
        elem_type: 1,
        shape: Some(TensorShapeProto { dim }),
    };
    ValueInfoProto {
        name: name.to_owned(),
        r#type: Some(TypeProto {
            tensor_type: Some(tensor_type),
        }),
    }
}

/// The ONNX file of the network.
pub fn network() -> Vec<u8> {
    network_of_images(Some(1))
}

/// The ONNX file of the network for so many images; `None`: the file leaves their number open.
pub fn network_of_images(images: Option<i64>) -> Vec<u8> {
    let mut graph = GraphProto {
        name: "squares".to_owned(),
        input: vec![tensor("images", &[1, 3, SIDE as i64, SIDE as i64])],
        output: vec![tensor("output", &[1, 84, 8])],
        ..GraphProto::default()
    };
    for stride in [8_usize, 16, 32] {
        let class = (0..3).find(|&class| side_of(class) == stride).unwrap();
        let area = stride * stride;
        let window = [stride as i64, stride as i64];
        let mut conv = |name: &str, weights: Vec<f32>, bias: Vec<f32>| {
            let (w, b, y) = (
                format!("{name}{stride}.w"),
                format!("{name}{stride}.b"),
                format!("{name}{stride}"),
            );
            let outputs = bias.len() as i64;
            graph
                .initializer
                .push(constant(&w, &[outputs, 3, window[0], window[1]], weights));
            graph.initializer.push(constant(&b, &[outputs], bias));
            let attributes = vec![ints("kernel_shape", &window), ints("strides", &window)];
            graph.node.push(node("Conv", &["images", &w, &b], &y, attributes));
        };
        // The middle of the cell, and a box as large as the cell.
        conv("box", vec![0.0; 4 * 3 * area], vec![0.5, 0.5, 0.0, 0.0]);
        // Mean of the colour less that of the two others, from -4 (grey) to +4 (the pure colour).
        let unit = 8.0 / 255.0 / area as f32;
        let weight = |channel: usize| if channel == class { unit } else { -unit };
        let weights = (0..3).flat_map(|channel| vec![weight(channel); area]).collect();
        conv("object", weights, vec![-4.0]);
        let classes = (0..3).map(|c| if c == class { 4.0 } else { -4.0 }).collect();
        conv("class", vec![0.0; 3 * 3 * area], classes);

        let name = |part: &str| format!("{part}{stride}");
        for part in ["object", "class"] {
            let to = name(&format!("{part}_p"));
            graph.node.push(node("Sigmoid", &[&name(part)], &to, vec![]));
        }
        let parts = [name("box"), name("object_p"), name("class_p")];
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        graph
            .node
            .push(node("Concat", &parts, &name("cells"), vec![axis(1)]));
        graph
            .node
            .push(node("Reshape", &[&name("cells"), "flat"], &name("rows"), vec![]));
    }
    graph.initializer.push(TensorProto {
        name: "flat".to_owned(),
        dims: vec![3],
        data_type: 7,
        int64_data: vec![1, 8, -1],
        ..TensorProto::default()
    });
    graph.node.push(node(
        "Concat",
        &["rows8", "rows16", "rows32"],
        "all",
        vec![axis(2)],
    ));
    graph.node.push(node(
        "Transpose",
        &["all"],
        "output",
        vec![ints("perm", &[0, 2, 1])],
    ));
    let opset = OperatorSetIdProto {
        domain: String::new(),
        version: 13,
    };
    let model = ModelProto {
        ir_version: 8,
        producer_name: "tests".to_owned(),
        graph: Some(graph),
        opset_import: vec![opset],
        ..ModelProto::default()
    };
    let mut model = model;
    if let (None, Some(graph)) = (images, &mut model.graph) {
        let open = DimensionValue::Symbol("images".to_owned());
        for value in graph.input.iter_mut().chain(&mut graph.output) {
            let tensor = value
                .r#type
                .as_mut()
                .and_then(|t| t.tensor_type.as_mut())
                .unwrap();
            tensor.shape.as_mut().unwrap().dim[0].value = Some(open.clone());
        }
        let flat = graph.initializer.iter_mut().find(|t| t.name == "flat").unwrap();
        // 0: as many as there are.
        flat.int64_data[0] = 0;
    }
    model.encode_to_vec()
}

/// A grey 64 x 64 rgb8 picture with a square of the class's colour at each of these places.
pub fn picture(squares: &[(usize, [usize; 2])]) -> Image {
    let mut pixels = vec![60; SIDE * SIDE * 3];
    for &(class, [left, top]) in squares {
        for y in top..top + side_of(class) {
            for x in left..left + side_of(class) {
                let pixel = &mut pixels[(y * SIDE + x) * 3..][..3];
                pixel.fill(0);
                // RGB in the picture, BGR in the class numbers.
                pixel[2 - class] = 255;
            }
        }
    }
    Image::new(pixels, SIDE, SIDE, PixelFormat::Rgb8).unwrap()
}

/// The picture of frame `i` of a long recording: one red square whose place tells the frame, and its box.
pub fn numbered(i: usize) -> (Image, [f64; 4]) {
    let [left, top] = [i % 8 * 8, i / 8 % 8 * 8];
    let square = [left, top, left + 8, top + 8].map(|edge| edge as f64);
    (picture(&[(2, [left, top])]), square)
}

/// One message of a bag.
#[derive(Debug, Clone)]
pub struct Frame {
    pub topic: &'static str,
    pub type_name: &'static str,
    pub time_ns: u64,
    pub data: Vec<u8>,
}

/// `sensor_msgs/Image` with these pixels, at `START_NS + after_ns`.
pub fn raw(topic: &'static str, after_ns: u64, image: &Image) -> Frame {
    raw_as(topic, after_ns, image, |_| {})
}

/// As [`raw`], after a change to the message.
pub fn raw_as<'a>(
    topic: &'static str,
    after_ns: u64,
    image: &'a Image,
    change: impl FnOnce(&mut ImageMsg<'a>),
) -> Frame {
    let time_ns = START_NS + after_ns;
    let mut message = ImageMsg {
        header: HeaderMsg::new(time_ns as i64, "camera").unwrap(),
        height: image.height() as u32,
        width: image.width() as u32,
        encoding: image.format().ros_encoding(),
        is_bigendian: 0,
        step: image.view().step() as u32,
        data: image.data(),
    };
    change(&mut message);
    Frame {
        topic,
        type_name: IMAGE_TYPE,
        time_ns,
        data: message.encode().unwrap(),
    }
}

/// `sensor_msgs/CompressedImage` with these bytes.
pub fn compressed(topic: &'static str, after_ns: u64, format: &str, file: &[u8]) -> Frame {
    let time_ns = START_NS + after_ns;
    let message = CompressedImageMsg {
        header: HeaderMsg::new(time_ns as i64, "camera").unwrap(),
        format,
        data: file,
    };
    Frame {
        topic,
        type_name: COMPRESSED_IMAGE_TYPE,
        time_ns,
        data: message.encode().unwrap(),
    }
}

/// `count` frames of [`numbered`] pictures, `period_ns` apart, as PNG.
pub fn film(topic: &'static str, count: usize, period_ns: u64) -> Vec<Frame> {
    let frame = |i: usize| {
        let png = encode_png(&numbered(i).0.view()).unwrap();
        compressed(topic, i as u64 * period_ns, "png", &png)
    };
    (0..count).map(frame).collect()
}

/// Writes an MCAP file of these messages.
pub fn write_bag(path: &Path, frames: &[Frame]) {
    let mut recorder = McapRecorder::create(path, RecordCompression::None).unwrap();
    let mut channels = std::collections::BTreeMap::new();
    for frame in frames {
        let channel = *channels.entry(frame.topic).or_insert_with(|| {
            let text = definition(frame.type_name).unwrap();
            recorder
                .add_ros_channel(frame.topic, frame.type_name, &text)
                .unwrap()
        });
        recorder
            .write(channel, frame.time_ns, frame.time_ns, &frame.data)
            .unwrap();
    }
    recorder.finish().unwrap();
}

const PIPELINE: &str = "\
pipeline: tiny
device: { threads: 1, queues: 2, arena_mib: 16 }
models:
  squares:
    type: yolox
    weights: squares.onnx
    preprocess: yolox_opencv
    labels: colours.txt
    score_threshold: 0.3
    nms_threshold: 0.45
nodes:
  camera: { kind: source, bag: '', rate: max }
  detector: { kind: detector, model: squares, input: camera, prepare_workers: 2 }
  recorder: { kind: recorder, input: detector }
  jsonl: { kind: jsonl, input: detector }
channels:
  default: { capacity: 4, on_full: block }
  edges:
    - { from: camera, to: detector }
";

/// A folder with the network, its labels and a pipeline file.
pub struct Lab {
    folder: tempfile::TempDir,
}

/// What a run of the program left.
#[derive(Debug)]
pub struct Outcome {
    /// Exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error with frames and line breaks of error messages smoothed away.
    pub told: String,
}

impl Outcome {
    fn new(output: Output) -> Self {
        let smooth = |text: &str| -> String {
            let kept = text.replace(['│', '├', '╰', '╭', '─', '▶'], " ");
            kept.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            told: smooth(&String::from_utf8(output.stderr).unwrap()),
        }
    }

    /// The summary that `--format json` prints.
    pub fn summary(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// Frames in, out, dropped and lost.
    pub fn frames(&self) -> [u64; 4] {
        let frames = &self.summary()["frames"];
        ["in", "out", "dropped", "lost"].map(|key| frames[key].as_u64().unwrap())
    }

    /// Drops by place and reason.
    pub fn drops(&self) -> Vec<(String, String, u64)> {
        let text = |drop: &Value, key: &str| drop[key].as_str().unwrap().to_owned();
        let summary = self.summary();
        let drops = summary["drops"].as_array().unwrap();
        drops
            .iter()
            .map(|d| (text(d, "place"), text(d, "reason"), d["count"].as_u64().unwrap()))
            .collect()
    }
}

/// The program, independent of the environment that the tests run in, and keeping nothing in the user's cache.
pub fn sensorium() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sensorium"));
    command
        .env_remove("SENSORIUM_LOG")
        .env("SENSORIUM_BAG", "")
        .env("SENSORIUM_YOLOX_ONNX", "")
        .env("SENSORIUM_WEIGHT_CACHE", "0")
        .env("NO_COLOR", "1");
    command
}

/// Runs a command to its end.
pub fn outcome(command: &mut Command) -> Outcome {
    Outcome::new(command.output().unwrap())
}

impl Lab {
    /// A new folder.
    pub fn new() -> Self {
        let lab = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        std::fs::write(lab.path("squares.onnx"), network()).unwrap();
        std::fs::write(lab.path("colours.txt"), LABELS.join("\n")).unwrap();
        std::fs::write(lab.path("tiny.yaml"), PIPELINE).unwrap();
        lab
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes `bag.mcap`.
    pub fn bag(&self, frames: &[Frame]) -> PathBuf {
        let path = self.path("bag.mcap");
        write_bag(&path, frames);
        path
    }

    /// `run` on the pipeline file and `bag.mcap` of the folder, working there, with a summary as JSON.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = sensorium();
        command
            .current_dir(self.folder.path())
            .args(["run", "tiny.yaml", "--format", "json"]);
        if !arguments.contains(&"--bag") {
            command.args(["--bag", "bag.mcap"]);
        }
        command.args(arguments);
        command
    }

    /// Runs [`Lab::command`] to its end.
    pub fn run(&self, arguments: &[&str]) -> Outcome {
        outcome(&mut self.command(arguments))
    }

    /// Starts [`Lab::command`].
    pub fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// The objects of a file of JSON lines.
    pub fn lines(&self, name: &str) -> Vec<Value> {
        json_lines(&std::fs::read_to_string(self.path(name)).unwrap())
    }
}

/// Starts `serve` in a lab on a port that is free; the process, and where it listens.
pub fn serve(lab: &Lab, arguments: &[&str]) -> (Child, String) {
    let mut child = sensorium()
        .current_dir(lab.path(""))
        .arg("serve")
        .args(arguments)
        .args(["--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    let url = line.trim().rsplit(' ').next().unwrap().to_owned();
    (child, url)
}

/// Waits for a started run.
pub fn await_end(child: Child) -> Outcome {
    Outcome::new(child.wait_with_output().unwrap())
}

/// One JSON object a line.
pub fn json_lines(text: &str) -> Vec<Value> {
    assert!(text.is_empty() || text.ends_with('\n'), "the last line is whole");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Label, and box, of each detection of a JSON line; checks the score.
pub fn found(line: &Value) -> Vec<(String, [f64; 4])> {
    let detections = line["detections"].as_array().unwrap();
    detections
        .iter()
        .map(|detection| {
            let score = detection["score"].as_f64().unwrap();
            assert!((score - SCORE).abs() < 1e-5, "{detection}");
            let edges = detection["box_xyxy"].as_array().unwrap();
            let square = std::array::from_fn(|i| edges[i].as_f64().unwrap());
            (detection["label"].as_str().unwrap().to_owned(), square)
        })
        .collect()
}
