//! Parameter files of Autoware's tensorrt_yolox, given to a model of a pipeline file.

use std::path::{Path, PathBuf};

use sensorium::perception::{YoloxParams, read_labels};
use sensorium::pipeline::{Labels, Overrides, Pipeline, PipelineError};
use tempfile::TempDir;

use crate::pipeline_files::{GOOD, camera, lines, parse, set, support};

/// A file of the node with every key that it must have in 2026-06, and two of older generations.
const PARAMS: &str = "\
/**:
  ros__parameters:
    score_threshold: 0.25
    nms_threshold: 0.6
    precision: \"fp32\"
    calibration_algorithm: Entropy
    calibration_image_list_path: \"\"
    dla_core_id: -1
    gpu_id: $(var gpu_id)
    quantize_first_layer: false
    quantize_last_layer: no
    profile_per_layer: false
    clip_value: 6
    preprocess_on_gpu: true
    is_roi_overlap_segment: true
    is_roi_overlap_segmentation: true
    overlap_roi_score_threshold: 0.3
    is_publish_color_mask: false
    model_path: $(var data_path)/yolox.onnx
    label_path: $(var data_path)/label.txt
    roi_overlay_segment_label:
      CAR : false
    roi_overlay_segmentation_label:
      CAR : false
      ANIMAL: true
";

/// The good pipeline file with parameter files and without thresholds of its own.
fn pipeline(params: &str) -> String {
    GOOD.replace("    score_threshold: 0.3\n    nms_threshold: 0.45\n", "")
        .replace(
            "    weights: \"\"\n",
            &format!("    weights: \"\"\n    params: [{params}]\n"),
        )
}

/// A file in a folder of its own.
fn file(text: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("y.param.yaml");
    std::fs::write(&path, text).unwrap();
    let path = path.display().to_string();
    (folder, path)
}

fn thresholds(pipeline: &Pipeline) -> (f32, f32) {
    let model = camera(&pipeline.models["nano"]);
    (model.score_threshold, model.nms_threshold)
}

/// What is said of a damaged file.
fn error(text: &str) -> Vec<String> {
    let (_folder, path) = file(text);
    let error: PipelineError = parse(&pipeline(&path), &Overrides::default()).expect_err(text);
    lines(&error)
        .iter()
        .map(|line| line.replace(&path, "y.yaml"))
        .collect()
}

#[test]
fn every_parameter_file_of_autoware_loads_as_it_is() {
    let mut precisions = Vec::new();
    for generation in ["2025-03", "2026-06"] {
        let folder = format!("autoware_params/{generation}/perception/autoware_tensorrt_yolox/config");
        let Some(folder) = support::data(&folder) else {
            return;
        };
        let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
            .collect();
        files.sort();
        for file in files {
            let loaded = parse(&pipeline(&file.display().to_string()), &Overrides::default());
            let loaded = loaded.unwrap_or_else(|error| panic!("{:?}", lines(&error)));
            assert_eq!(thresholds(&loaded), (0.35, 0.7), "{}", file.display());
            // Each asks for a precision of TensorRT, and that is all there is to say of it.
            let [warning] = loaded.warnings.as_slice() else {
                panic!("{:?}", loaded.warnings);
            };
            precisions.push(warning.message().replace(&file.display().to_string(), ""));
        }
    }
    let told = |line| {
        format!(":{line}: `precision` is TensorRT's and not followed; `precision` of the pipeline file holds")
    };
    assert_eq!(precisions, [28, 28, 8, 27, 27, 7].map(told));
}

#[test]
fn a_label_file_in_autowares_words_reads() {
    if let Some(path) = support::data("autoware_params/2023-04/tensorrt_yolox/data/label.txt") {
        let names = [
            "UNKNOWN",
            "CAR",
            "TRUCK",
            "BUS",
            "BICYCLE",
            "MOTORBIKE",
            "PEDESTRIAN",
            "ANIMAL",
        ];
        assert_eq!(*read_labels(&path).unwrap(), names);
        let changes = [("models.nano.labels", path.to_str().unwrap())];
        let loaded = parse(GOOD, &set(&changes)).unwrap();
        assert_eq!(camera(&loaded.models["nano"]).labels, Labels::File(path));
    }
}

#[test]
fn keys_of_every_generation_are_accepted_and_substitutions_left_to_the_launch_file() {
    let (_folder, path) = file(PARAMS);
    let loaded = parse(&pipeline(&path), &Overrides::default()).unwrap();
    assert_eq!(thresholds(&loaded), (0.25, 0.6));
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    let model = &loaded.models["nano"];
    assert_eq!((&model.weights, &camera(model).labels), (&None, &Labels::Coco80));
}

#[test]
fn the_pipeline_file_goes_before_parameter_files_and_later_ones_before_earlier() {
    let (_folder, first) = file(PARAMS);
    let (_other, second) = file("/**:\n  ros__parameters:\n    nms_threshold: 1\n");
    let both = pipeline(&format!("{first}, {second}"));
    assert_eq!(
        thresholds(&parse(&both, &Overrides::default()).unwrap()),
        (0.25, 1.0)
    );
    let turned = pipeline(&format!("{second}, {first}"));
    assert_eq!(
        thresholds(&parse(&turned, &Overrides::default()).unwrap()),
        (0.25, 0.6)
    );
    let own = both.replace(
        "    labels: coco80\n",
        "    labels: coco80\n    score_threshold: 0.9\n",
    );
    assert_eq!(
        thresholds(&parse(&own, &Overrides::default()).unwrap()),
        (0.9, 1.0)
    );
    // A launch file takes back what the pipeline file says.
    let list = format!("[{first}]");
    let changes = [
        ("models.nano.params", list.as_str()),
        ("models.nano.score_threshold", "null"),
    ];
    assert_eq!(thresholds(&parse(GOOD, &set(&changes)).unwrap()), (0.25, 0.45));
}

#[test]
fn paths_of_a_parameter_file_hold_where_the_pipeline_file_names_none() {
    let text = PARAMS.replace("$(var data_path)/", "");
    let (folder, path) = file(&text);
    let unlabelled = pipeline(&path).replace("    labels: coco80\n", "");
    let said = lines(&parse(&unlabelled, &Overrides::default()).unwrap_err());
    let at = |name: &str| folder.path().join(name);
    let missing = |what, name| {
        format!(
            "p.yaml:7:13: the {what} {} cannot be found | no such file",
            at(name).display()
        )
    };
    assert_eq!(
        said,
        [missing("weights", "yolox.onnx"), missing("labels", "label.txt")]
    );

    for name in ["yolox.onnx", "label.txt", "own.onnx"] {
        std::fs::write(at(name), "").unwrap();
    }
    let loaded = parse(&unlabelled, &Overrides::default()).unwrap();
    let model = &loaded.models["nano"];
    assert_eq!(model.weights, Some(at("yolox.onnx")));
    assert_eq!(camera(model).labels, Labels::File(at("label.txt")));

    let own = at("own.onnx").display().to_string();
    let changes = [
        ("models.nano.weights", own.as_str()),
        ("models.nano.labels", "coco80"),
    ];
    let loaded = parse(&unlabelled, &set(&changes)).unwrap();
    let model = &loaded.models["nano"];
    assert_eq!(model.weights.as_deref(), Some(Path::new(&own)));
    assert_eq!(camera(model).labels, Labels::Coco80);
    // What a later file leaves to the launch file does not take back an earlier path.
    let (_other, later) = file(PARAMS);
    let list = format!("[{path}, {later}]");
    let loaded = parse(&unlabelled, &set(&[("models.nano.params", &list)])).unwrap();
    assert_eq!(loaded.models["nano"].weights, Some(at("yolox.onnx")));
}

#[test]
fn what_is_wrong_with_a_parameter_file_is_told_with_file_line_and_key() {
    let refused = |message: &str| {
        vec![format!(
            "p.yaml:7:14: {message} | this parameter file cannot be used"
        )]
    };
    for (from, to, message) in [
        (
            "score_threshold: 0.25",
            "score_thresh: 0.25",
            "y.yaml:3: `score_thresh` is no parameter of tensorrt_yolox; did you mean `score_threshold`?",
        ),
        (
            "is_roi_overlap_segmentation",
            "is_roi_overlap_semseg",
            "y.yaml:16: `is_roi_overlap_semseg` is no parameter of tensorrt_yolox; did you mean \
             `is_roi_overlap_segment`?",
        ),
        (
            "roi_overlay_segmentation_label:",
            "roi_overlay_segmentation_labels:",
            "y.yaml:24: `roi_overlay_segmentation_labels.CAR` is no parameter of tensorrt_yolox; did you mean \
             `roi_overlay_segmentation_label.*`?",
        ),
        (
            "gpu_id",
            "circle_nms_dist_threshold",
            "y.yaml:9: `circle_nms_dist_threshold` is no parameter of tensorrt_yolox; remove it, or give the file to \
             the node that it is for",
        ),
        (
            "nms_threshold: 0.6",
            "nms_threshold: \"0.6\"",
            "y.yaml:4: `nms_threshold` is the text \"0.6\"; expected a number from 0 to 1",
        ),
        (
            "nms_threshold: 0.6",
            "nms_threshold: $(var nms)",
            "y.yaml:4: `nms_threshold` is the text \"$(var nms)\"; expected a number from 0 to 1 (launch substitutions \
             are not replaced here, write the value)",
        ),
        (
            "nms_threshold: 0.6",
            "nms_threshold: 1.5",
            "y.yaml:4: `nms_threshold` is the number 1.5; expected a number from 0 to 1",
        ),
        (
            "nms_threshold: 0.6",
            "nms_threshold: .nan",
            "y.yaml:4: `nms_threshold` is the number NaN; expected a number from 0 to 1",
        ),
        (
            "\"fp32\"",
            "\"fp8\"",
            "y.yaml:5: `precision` is the text \"fp8\"; expected \"fp32\", \"fp16\" or \"int8\"",
        ),
        (
            "\"fp32\"",
            "32",
            "y.yaml:5: `precision` is the integer 32; expected \"fp32\", \"fp16\" or \"int8\"",
        ),
        (
            "clip_value: 6",
            "clip_value: []",
            "y.yaml:13: `clip_value` is a list of 0; expected a number",
        ),
        (
            "preprocess_on_gpu: true",
            "preprocess_on_gpu: 1",
            "y.yaml:14: `preprocess_on_gpu` is the integer 1; expected true or false",
        ),
        (
            "dla_core_id: -1",
            "dla_core_id: -1.5",
            "y.yaml:8: `dla_core_id` is the number -1.5; expected an integer",
        ),
        (
            "label_path: $(var data_path)/label.txt",
            "label_path: 7",
            "y.yaml:20: `label_path` is the integer 7; expected the path of a file",
        ),
        (
            "label_path: $(var data_path)/label.txt",
            "label_path: \"a\\eb\"",
            "y.yaml:20: `label_path` is the text \"a b\"; expected the path of a file",
        ),
    ] {
        let damaged = PARAMS.replacen(from, to, 1);
        assert_ne!(damaged, PARAMS, "{from}");
        assert_eq!(error(&damaged), refused(message));
    }
}

#[test]
fn any_damage_gives_thresholds_that_can_be_or_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("y.param.yaml");
    let (mut good, mut bad) = (0, 0);
    // Not every place: reading a file takes milliseconds.
    for at in (0..PARAMS.len()).step_by(23) {
        let cut = PARAMS.as_bytes()[..at].to_vec();
        let changed = b"\x00\xff-.:9[{".map(|byte| {
            let mut bytes = PARAMS.as_bytes().to_vec();
            bytes[at] = byte;
            bytes
        });
        for bytes in std::iter::once(cut).chain(changed) {
            std::fs::write(&path, bytes).unwrap();
            let mut params = YoloxParams::default();
            match params.add_file(&path) {
                Ok(()) => {
                    good += 1;
                    for value in [params.score_threshold, params.nms_threshold]
                        .into_iter()
                        .flatten()
                    {
                        assert!((0.0..=1.0).contains(&value), "{value}");
                    }
                }
                Err(error) => {
                    bad += 1;
                    let message = error.to_string();
                    assert!(message.contains("y.param.yaml"), "{message}");
                    assert!(!message.contains(char::is_control), "{message:?}");
                }
            }
        }
    }
    assert!(good > 20 && bad > 20, "{good} good, {bad} bad");
}

#[test]
fn what_neither_file_says_is_told_with_its_key() {
    assert_eq!(
        error(&PARAMS.replace("    nms_threshold: 0.6\n", "")),
        [
            "p.yaml:4:3: `models.nano` has no `nms_threshold`, and y.yaml no `nms_threshold` | expected `nms_threshold:` \
          with a number from 0 to 1"
        ]
    );
    let neither = parse(&pipeline(""), &Overrides::default()).unwrap_err();
    assert_eq!(
        lines(&neither),
        ["score_threshold", "nms_threshold"].map(|key| format!(
            "p.yaml:4:3: `models.nano` has no `{key}` | expected `{key}:` with a number from 0 to 1"
        ))
    );
}

#[test]
fn a_fastestdet_has_no_parameter_files() {
    let (_folder, path) = file(PARAMS);
    let text = pipeline(&path)
        .replace("type: yolox", "type: fastestdet")
        .replace("yolox_opencv", "fastestdet_opencv");
    assert_eq!(
        lines(&parse(&text, &Overrides::default()).unwrap_err()),
        ["p.yaml:7:13: a fastestdet network has no parameter files | expected no `params`"]
    );
}
