//! Launch files, read as ROS 2 reads them: variables, conditions and the command line of an `executable`. No ROS 2 is
//! needed; what a tag means is written down once more below.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use roxmltree::{Document, Node};
use sensorium::pipeline::{Family, Overrides, Pipeline};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("launch")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap()
}

/// One process that a launch file starts.
#[derive(Debug, Default)]
struct Process {
    /// `executable` or `node`.
    tag: String,
    /// The command line of an `executable`.
    args: Vec<String>,
    /// Other attributes of a `node`.
    package: String,
    name: String,
    remaps: Vec<(String, String)>,
    /// Parameters of a `node`; files are under the name `from`.
    params: Vec<(String, String)>,
}

/// A part of a text with substitutions.
enum Part {
    Text(String),
    Replaced(String),
}

struct Launch<'a> {
    given: BTreeMap<&'a str, &'a str>,
    variables: BTreeMap<String, String>,
    processes: Vec<Process>,
}

impl Launch<'_> {
    /// What `$(...)` stands for.
    fn replaced(&self, inside: &str) -> String {
        match inside.split_once(' ') {
            Some(("var", name)) => {
                let value = self.variables.get(name);
                value
                    .unwrap_or_else(|| panic!("$(var {name}) is not declared"))
                    .clone()
            }
            Some(("env", name)) => std::env::var(name).unwrap(),
            Some(("find-pkg-share", package)) => format!("/opt/ros/share/{package}"),
            None if inside == "dirname" => folder().display().to_string(),
            _ => panic!("unknown substitution $({inside})"),
        }
    }

    fn parts(&self, text: &str) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("$(") {
            let (inside, after) = after.split_once(')').expect("a closing bracket");
            parts.push(Part::Text(before.to_owned()));
            parts.push(Part::Replaced(self.replaced(inside)));
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        parts
    }

    fn text(&self, text: &str) -> String {
        self.parts(text)
            .into_iter()
            .map(|part| match part {
                Part::Text(text) | Part::Replaced(text) => text,
            })
            .collect()
    }

    /// A command line: only what is written in the file is split, never what a variable holds.
    fn command_line(&self, text: &str) -> Vec<String> {
        let mut args: Vec<String> = Vec::new();
        let mut open = false;
        let mut push = |piece: &str, open: &mut bool| {
            match args.last_mut().filter(|_| *open) {
                Some(last) => last.push_str(piece),
                None => args.push(piece.to_owned()),
            }
            *open = true;
        };
        for part in self.parts(text) {
            match part {
                Part::Replaced(value) => push(&value, &mut open),
                Part::Text(text) => {
                    for (i, word) in text.split(char::is_whitespace).enumerate() {
                        open &= i == 0;
                        if !word.is_empty() {
                            push(word, &mut open);
                        }
                    }
                }
            }
        }
        args
    }

    fn holds(&self, node: Node<'_, '_>) -> bool {
        let is_true = |text| match self.text(text).as_str() {
            "true" => true,
            "false" => false,
            other => panic!("{other:?} is no condition"),
        };
        node.attribute("if").is_none_or(is_true) && !node.attribute("unless").is_some_and(is_true)
    }

    fn run(&mut self, parent: Node<'_, '_>) {
        for node in parent.children().filter(Node::is_element) {
            if !self.holds(node) {
                continue;
            }
            let attribute = |name: &str| {
                node.attribute(name)
                    .unwrap_or_else(|| panic!("{name} of {node:?}"))
            };
            match node.tag_name().name() {
                "arg" => {
                    let name = attribute("name");
                    let value = match (self.given.get(name), node.attribute("default")) {
                        (Some(value), _) => (*value).to_owned(),
                        (None, Some(default)) => self.text(default),
                        (None, None) => panic!("the argument {name} must be given"),
                    };
                    self.variables.insert(name.to_owned(), value);
                }
                "let" => {
                    let value = self.text(attribute("value"));
                    self.variables.insert(attribute("name").to_owned(), value);
                }
                "group" => self.run(node),
                "executable" => {
                    let args = self.command_line(attribute("cmd"));
                    self.processes.push(Process {
                        tag: "executable".to_owned(),
                        args,
                        name: self.text(attribute("name")),
                        ..Process::default()
                    });
                }
                "node" => {
                    let process = self.node(node);
                    self.processes.push(process);
                }
                tag => panic!("unknown tag {tag}"),
            }
        }
    }

    fn node(&self, node: Node<'_, '_>) -> Process {
        let mut process = Process {
            tag: "node".to_owned(),
            package: node.attribute("pkg").unwrap().to_owned(),
            args: vec![node.attribute("exec").unwrap().to_owned()],
            name: self.text(node.attribute("name").unwrap()),
            ..Process::default()
        };
        for child in node.children().filter(Node::is_element) {
            let text = |name| self.text(child.attribute(name).unwrap());
            match (child.tag_name().name(), child.attribute("from")) {
                ("remap", Some(_)) => process.remaps.push((text("from"), text("to"))),
                ("param", Some(_)) => process.params.push(("from".to_owned(), text("from"))),
                ("param", None) => process.params.push((text("name"), text("value"))),
                (tag, _) => panic!("unknown tag {tag}"),
            }
        }
        process
    }
}

/// Variables and processes of a launch file with arguments.
fn launch(name: &str, given: &[(&str, &str)]) -> (BTreeMap<String, String>, Vec<Process>) {
    let text = read(name);
    let document = Document::parse(&text).unwrap();
    let mut launch = Launch {
        given: given.iter().copied().collect(),
        variables: BTreeMap::new(),
        processes: Vec::new(),
    };
    launch.run(document.root_element());
    (launch.variables, launch.processes)
}

/// The only process.
fn process(name: &str, given: &[(&str, &str)]) -> Process {
    let mut processes = launch(name, given).1;
    assert_eq!(processes.len(), 1, "{processes:?}");
    processes.remove(0)
}

/// Values of an option that may be given several times, split at a separator.
fn options(args: &[String], option: &str, separator: &str) -> Vec<(String, String)> {
    args.windows(2)
        .filter(|pair| pair[0] == option)
        .map(|pair| {
            let (key, value) = pair[1].split_once(separator).unwrap();
            (key.to_owned(), value.to_owned())
        })
        .collect()
}

/// The pipeline that a command line runs, after the command itself has accepted the line.
fn pipeline_of(args: &[String]) -> Pipeline {
    assert_eq!(args[1], "run");
    // Asking for help last shows that everything before it was understood.
    let mut command = crate::tiny::sensorium();
    let output = command.args(&args[1..]).arg("--help").output().unwrap();
    assert!(
        output.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let overrides = Overrides {
        set: options(args, "--set", "="),
        remap: options(args, "--remap", ":="),
        ..Overrides::default()
    };
    Pipeline::load(Path::new(&args[2]), &overrides).unwrap_or_else(|error| panic!("{error:?}"))
}

/// A folder with empty files, whose names are given.
fn files(names: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in names {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    folder
}

#[test]
fn every_launch_file_declares_what_it_uses() {
    let mut count = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".launch.xml") {
            // `launch` panics for a variable that is not declared before its use.
            for use_r2r_node in ["false", "true"] {
                let given = [
                    ("use_r2r_node", use_r2r_node),
                    ("pipeline", "p"),
                    ("bag", "b"),
                    ("model", "m"),
                ];
                assert_eq!(launch(&name, &given).1.len(), 1, "{name}");
            }
            count += 1;
        }
    }
    assert_eq!(count, 3);
}

#[test]
fn arguments_of_autoware_have_its_defaults() {
    let home = std::env::var("HOME").unwrap();
    let data = format!("{home}/autoware_data");
    // As autoware_universe's launch files of 2026 say, written down once more.
    let centerpoint = [
        ("input/pointcloud", "/sensing/lidar/pointcloud".to_owned()),
        ("output/objects", "objects".to_owned()),
        ("data_path", data.clone()),
        ("model_name", "centerpoint_tiny".to_owned()),
        ("model_path", format!("{data}/lidar_centerpoint")),
        (
            "model_param_path",
            "/opt/ros/share/autoware_lidar_centerpoint/config/centerpoint_tiny.param.yaml".to_owned(),
        ),
        (
            "ml_package_param_path",
            format!("{data}/lidar_centerpoint/centerpoint_tiny_ml_package.param.yaml"),
        ),
        (
            "class_remapper_param_path",
            format!("{data}/lidar_centerpoint/detection_class_remapper.param.yaml"),
        ),
        (
            "common_param_path",
            "/opt/ros/share/autoware_lidar_centerpoint/config/centerpoint_common.param.yaml".to_owned(),
        ),
        ("build_only", "false".to_owned()),
        ("node_name", "lidar_centerpoint".to_owned()),
    ];
    let yolox = [
        ("camera_id", "0".to_owned()),
        ("image_topic_name", "image_raw".to_owned()),
        ("yolox_node_name", "tensorrt_yolox0".to_owned()),
        ("data_path", data.clone()),
        ("input/image", "/sensing/camera/camera0/image_raw".to_owned()),
        (
            "output/objects",
            "/perception/object_recognition/detection/rois0".to_owned(),
        ),
        (
            "yolox_param_path",
            "/opt/ros/share/autoware_tensorrt_yolox/config/yolox_s_plus_opt.param.yaml".to_owned(),
        ),
        (
            "model_path",
            format!("{data}/tensorrt_yolox/yolox-sPlus-opt-pseudoV2-T4-960x960-T4-seg16cls.onnx"),
        ),
        ("label_path", format!("{data}/tensorrt_yolox/label.txt")),
        ("use_decompress", "true".to_owned()),
        ("build_only", "false".to_owned()),
    ];
    for (file, expected) in [
        ("lidar_centerpoint.launch.xml", &centerpoint),
        ("tensorrt_yolox.launch.xml", &yolox),
    ] {
        let (variables, _) = launch(file, &[]);
        for (name, value) in expected {
            assert_eq!(variables.get(*name), Some(value), "{file}: {name}");
        }
    }
}

#[test]
fn the_command_for_centerpoint_takes_files_and_topics_of_the_arguments() {
    let folder = files(&[
        "pts_backbone_neck_head_centerpoint.onnx",
        "pts_voxel_encoder_centerpoint.onnx",
        "centerpoint_ml_package.param.yaml",
        "detection_class_remapper.param.yaml",
        "node.param.yaml",
        "common.param.yaml",
    ]);
    let at = |name: &str| folder.path().join(name);
    let text = |name: &str| at(name).display().to_string();
    let process = process(
        "lidar_centerpoint.launch.xml",
        &[
            ("model_name", "centerpoint"),
            ("model_path", &folder.path().display().to_string()),
            ("model_param_path", &text("node.param.yaml")),
            ("common_param_path", &text("common.param.yaml")),
            ("input/pointcloud", "/sensing/lidar/concatenated/pointcloud"),
            (
                "namespace",
                "/perception/object_recognition/detection/centerpoint",
            ),
            ("build_only", "true"),
        ],
    );
    assert_eq!(
        (process.tag.as_str(), process.args[0].as_str()),
        ("executable", "sensorium")
    );
    assert!(
        process.args.contains(&"--build-only=true".to_owned()),
        "{:?}",
        process.args
    );

    let pipeline = pipeline_of(&process.args);
    let node = "/perception/object_recognition/detection/centerpoint";
    assert_eq!(pipeline.ros2.node, "lidar_centerpoint");
    assert_eq!(pipeline.ros2.namespace, node);
    assert!(!pipeline.ros2.use_sim_time);
    let remap = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    assert_eq!(
        pipeline.ros2.remap[..2],
        [
            remap("~/input/pointcloud", "/sensing/lidar/concatenated/pointcloud"),
            remap("~/output/objects", "objects"),
        ]
    );
    let model = &pipeline.models["centerpoint"];
    assert_eq!(model.weights, Some(at("pts_backbone_neck_head_centerpoint.onnx")));
    let Family::CenterPoint(model) = &model.family else {
        panic!("{model:?}");
    };
    assert_eq!(model.encoder, Some(at("pts_voxel_encoder_centerpoint.onnx")));
    assert_eq!(
        model.params,
        [
            "node.param.yaml",
            "centerpoint_ml_package.param.yaml",
            "detection_class_remapper.param.yaml",
            "common.param.yaml"
        ]
        .map(at)
    );
}

#[test]
fn the_command_for_centerpoint_runs_the_model_of_the_pipeline_file_as_well() {
    let given = [("use_pipeline_model", "true"), ("use_sim_time", "true")];
    let pipeline = pipeline_of(&process("lidar_centerpoint.launch.xml", &given).args);
    let weights = pipeline.models["centerpoint"].weights.clone().unwrap();
    assert!(
        weights.ends_with("pipelines/weights/centerpoint_sim.safetensors"),
        "{weights:?}"
    );
    assert!(pipeline.ros2.use_sim_time);
    assert_eq!(pipeline.ros2.namespace, "/");
}

#[test]
fn the_command_for_yolox_takes_compressed_images_or_raw_ones() {
    let folder = files(&["m.onnx", "label.txt"]);
    let text = |name: &str| folder.path().join(name).display().to_string();
    let (model, labels, params) = (text("m.onnx"), text("label.txt"), text("yolox.param.yaml"));
    // Neither is what the pipeline file says.
    let thresholds = "/**:\n  ros__parameters:\n    score_threshold: 0.5\n    nms_threshold: 0.25\n";
    std::fs::write(&params, thresholds).unwrap();
    for (use_decompress, name, topic) in [
        (
            "true",
            "~/in/image/compressed",
            "/sensing/camera/camera2/image_raw/compressed",
        ),
        ("false", "~/in/image", "/sensing/camera/camera2/image_raw"),
    ] {
        let given = [
            ("camera_id", "2"),
            ("model_path", model.as_str()),
            ("label_path", labels.as_str()),
            ("use_decompress", use_decompress),
            ("yolox_param_path", params.as_str()),
        ];
        let pipeline = pipeline_of(&process("tensorrt_yolox.launch.xml", &given).args);
        assert_eq!(pipeline.ros2.node, "tensorrt_yolox2");
        let objects = "/perception/object_recognition/detection/rois2";
        assert_eq!(
            pipeline.ros2.remap[..2],
            [(name, topic), ("~/out/objects", objects)].map(|(from, to)| (from.to_owned(), to.to_owned()))
        );
        assert_eq!(pipeline.models["yolox"].weights, Some(PathBuf::from(&model)));
        let Family::Yolox(settings) = &pipeline.models["yolox"].family else {
            panic!("a model of another family");
        };
        assert_eq!((settings.score_threshold, settings.nms_threshold), (0.5, 0.25));
        let settings = format!("{:?}", pipeline.nodes);
        assert!(settings.contains(&format!("[\"{name}\"]")), "{settings}");
    }
}

#[test]
fn the_node_on_ros_2s_own_libraries_gets_the_same_arguments() {
    let given = [
        ("use_r2r_node", "true"),
        ("input/pointcloud", "/points"),
        ("build_only", "true"),
    ];
    let node = process("lidar_centerpoint.launch.xml", &given);
    assert_eq!(
        (
            node.tag.as_str(),
            node.package.as_str(),
            node.args[0].as_str(),
            node.name.as_str()
        ),
        ("node", "sensorium_ros2", "sensorium_ros2", "lidar_centerpoint")
    );
    let remap = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    assert_eq!(
        node.remaps,
        [
            remap("~/input/pointcloud", "/points"),
            remap("~/output/objects", "objects")
        ]
    );
    let (variables, _) = launch("lidar_centerpoint.launch.xml", &given);
    let files = ["model", "ml_package", "class_remapper", "common"];
    let mut expected: Vec<(String, String)> = files
        .iter()
        .map(|name| {
            (
                "from".to_owned(),
                variables[&format!("{name}_param_path")].clone(),
            )
        })
        .collect();
    for (name, value) in [
        ("family", "centerpoint"),
        ("model", "centerpoint"),
        ("head_onnx_path", &variables["weights"]),
        ("encoder_onnx_path", &variables["encoder"]),
        ("pipeline", &variables["pipeline"]),
        ("build_only", "true"),
        ("use_sim_time", "false"),
    ] {
        expected.push(remap(name, value));
    }
    assert_eq!(node.params, expected);

    let node = process("tensorrt_yolox.launch.xml", &[("use_r2r_node", "true")]);
    assert_eq!(
        node.remaps[0],
        remap(
            "~/in/image/compressed",
            "/sensing/camera/camera0/image_raw/compressed"
        )
    );
    assert!(
        node.params
            .contains(&remap("set", "nodes.image.topics=[~/in/image/compressed]")),
        "{:?}",
        node.params
    );
}

#[test]
fn the_package_is_installed_where_ros_2_looks_for_it() {
    let prefix = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("nodes/ros2/install.sh");
    let binary = env!("CARGO_BIN_EXE_sensorium");
    let status = Command::new(script)
        .arg(prefix.path())
        .arg(binary)
        .status()
        .unwrap();
    assert!(status.success());
    let at = |path: &str| prefix.path().join(path);
    assert!(at("share/ament_index/resource_index/packages/sensorium_ros2").exists());
    assert!(at("lib/sensorium_ros2/sensorium_ros2").exists());
    // Launch files find their pipelines, pipelines their weights.
    for (launch, pipeline) in [
        ("lidar_centerpoint.launch.xml", "lidar_centerpoint.yaml"),
        ("tensorrt_yolox.launch.xml", "tensorrt_yolox.yaml"),
    ] {
        let launch = std::fs::read_to_string(at("share/sensorium_ros2/launch").join(launch)).unwrap();
        assert!(launch.contains(&format!("$(dirname)/../pipelines/{pipeline}")));
        let pipeline = at("share/sensorium_ros2/launch/../pipelines").join(pipeline);
        Pipeline::load(&pipeline, &Overrides::default()).unwrap();
    }
    let manifest = std::fs::read_to_string(at("share/sensorium_ros2/package.xml")).unwrap();
    let manifest = Document::parse(&manifest).unwrap();
    let text = |tag| {
        let mut found = manifest.descendants();
        found
            .find(|node| node.has_tag_name(tag))
            .and_then(|node| node.text())
            .unwrap()
    };
    assert_eq!(
        (text("name"), text("version")),
        ("sensorium_ros2", env!("CARGO_PKG_VERSION"))
    );
}
