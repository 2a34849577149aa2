//! What the node's ROS parameters make of a pipeline file. Needs no ROS 2.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../../../tests/support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};

use sensorium::perception::centerpoint::CenterPointParams;
use sensorium_ros2::overlay;
use sensorium_ros2::settings::{Family, ParameterError, Parameters, Settings, Value};

fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

fn parameters(pairs: &[(&str, Value)]) -> Parameters {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect()
}

fn settings(pairs: &[(&str, Value)]) -> Result<Settings, ParameterError> {
    Settings::from_parameters(parameters(pairs))
}

/// Changes of the pipeline file, as `KEY=VALUE`.
fn changes(pairs: &[(&str, Value)]) -> Vec<String> {
    let (overrides, file) = overlay::overrides(&settings(pairs).unwrap()).unwrap();
    let path = file.map_or_else(PathBuf::new, |file| file.path().to_owned());
    let said = |value: &str| value.replace(&*path.to_string_lossy(), "FILE");
    let set = overrides.set.iter();
    set.map(|(key, value)| {
        format!(
            "{key}={}",
            if path == Path::new("") {
                value.clone()
            } else {
                said(value)
            }
        )
    })
    .collect()
}

/// A parameter file as rcl reads it: names with dots, lists of one type.
fn as_rcl_reads(file: &Path) -> Parameters {
    let yaml = std::fs::read_to_string(file).unwrap();
    let root: serde_json::Value = serde_saphyr::from_str(&yaml).unwrap();
    let mut found = Parameters::new();
    flatten("", &root["/**"]["ros__parameters"], &mut found);
    assert!(!found.is_empty(), "{}", file.display());
    found
}

fn flatten(prefix: &str, value: &serde_json::Value, found: &mut Parameters) {
    use serde_json::Value as Json;
    let read = match value {
        Json::Object(group) => {
            for (name, inner) in group {
                let separator = if prefix.is_empty() { "" } else { "." };
                flatten(&format!("{prefix}{separator}{name}"), inner, found);
            }
            return;
        }
        Json::Null => Value::NotSet,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => match number.as_i64() {
            Some(integer) => Value::Integer(integer),
            None => Value::Double(number.as_f64().unwrap()),
        },
        Json::String(value) => text(value),
        Json::Array(items) if items.iter().all(Json::is_string) => Value::Texts(
            items
                .iter()
                .map(|item| item.as_str().unwrap().to_owned())
                .collect(),
        ),
        Json::Array(items) if items.iter().all(Json::is_i64) => {
            Value::Integers(items.iter().map(|item| item.as_i64().unwrap()).collect())
        }
        Json::Array(items) if items.iter().all(Json::is_boolean) => {
            Value::Bools(items.iter().map(|item| item.as_bool().unwrap()).collect())
        }
        Json::Array(items) => Value::Doubles(items.iter().map(|item| item.as_f64().unwrap()).collect()),
    };
    found.push((prefix.to_owned(), read));
}

/// What the library reads from the file that is written for the model.
fn through_the_node(files: &[PathBuf]) -> CenterPointParams {
    let mut all = parameters(&[
        ("pipeline", text("p.yaml")),
        ("family", text("centerpoint")),
        ("model", text("centerpoint")),
        ("build_only", Value::Bool(false)),
    ]);
    all.extend(files.iter().flat_map(|file| as_rcl_reads(file)));
    let settings = Settings::from_parameters(all).unwrap();
    let (overrides, file) = overlay::overrides(&settings).unwrap();
    let file = file.unwrap();
    let list = serde_json::json!([file.path()]).to_string();
    assert!(
        overrides
            .set
            .contains(&("models.centerpoint.params".to_owned(), list)),
        "{:?}",
        overrides.set
    );
    CenterPointParams::from_files(&[file.path()]).unwrap().0
}

#[test]
fn parameter_files_of_autoware_say_the_same_through_the_node() {
    for (generation, names) in [
        (
            "2026-06/perception/autoware_lidar_centerpoint",
            &[
                "",
                "_ml_package",
                "_tiny",
                "_tiny_ml_package",
                "_sigma",
                "_sigma_ml_package",
            ][..],
        ),
        (
            "2025-03/perception/autoware_lidar_centerpoint",
            &["", "_ml_package", "_tiny", "_tiny_ml_package"][..],
        ),
    ] {
        let Some(folder) = support::data(&format!("autoware_params/{generation}/config")) else {
            return;
        };
        for pair in names.chunks_exact(2) {
            let mut files: Vec<PathBuf> = pair
                .iter()
                .map(|name| folder.join(format!("centerpoint{name}.param.yaml")))
                .collect();
            files.push(folder.join("detection_class_remapper.param.yaml"));
            files.extend(Some(folder.join("centerpoint_common.param.yaml")).filter(|file| file.exists()));
            let (expected, _) = CenterPointParams::from_files(&files).unwrap();
            assert_eq!(through_the_node(&files), expected, "{generation} {pair:?}");
        }
    }
}

#[test]
fn the_parameters_of_centerpoint_name_its_weights() {
    let given = [
        ("pipeline", text("/p.yaml")),
        ("family", text("centerpoint")),
        ("model", text("lidar")),
        ("encoder_onnx_path", text("/data/encoder: 1.onnx")),
        ("head_onnx_path", text("/data/head.onnx")),
        ("cloud_capacity", Value::Integer(1000)),
        (
            "set",
            Value::Texts(vec!["models.lidar.precision=bf16".into(), String::new()]),
        ),
        ("use_sim_time", Value::Bool(true)),
        ("logger_name", text("lidar_centerpoint")),
        ("qos_overrides./tf.subscription.depth", Value::Integer(3)),
    ];
    assert_eq!(
        changes(&given),
        [
            "ros2.remap={}",
            "models.lidar.weights=\"/data/head.onnx\"",
            "models.lidar.encoder=\"/data/encoder: 1.onnx\"",
            "models.lidar.params=[\"FILE\"]",
            "models.lidar.precision=bf16",
            "ros2.use_sim_time=true",
        ]
    );
    let settings = settings(&given).unwrap();
    assert_eq!(settings.pipeline, Path::new("/p.yaml"));
    assert_eq!(settings.model, Some(("lidar".to_owned(), Family::CenterPoint)));
    assert!(!settings.build_only);
}

#[test]
fn the_parameters_of_yolox_are_keys_of_its_model() {
    let given = [
        ("pipeline", text("p.yaml")),
        ("build_only", Value::Bool(true)),
        ("family", text("yolox")),
        ("model", text("yolox")),
        ("model_path", text("m.onnx")),
        ("label_path", text("label.txt")),
        ("score_threshold", Value::Double(0.35)),
        ("nms_threshold", Value::Integer(1)),
        ("set", text("nodes.image.topics=[~/in/image]")),
        ("is_roi_overlap_segmentation", Value::Bool(true)),
        ("roi_overlay_segmentation_label.CAR", Value::Bool(false)),
    ];
    assert_eq!(
        changes(&given),
        [
            "ros2.remap={}",
            "models.yolox.weights=\"m.onnx\"",
            "models.yolox.labels=\"label.txt\"",
            "models.yolox.score_threshold=0.35",
            "models.yolox.nms_threshold=1",
            "nodes.image.topics=[~/in/image]",
        ]
    );
    assert!(settings(&given).unwrap().build_only);
}

#[test]
fn what_is_missing_or_wrong_is_told_by_name() {
    let told = |pairs: &[(&str, Value)]| settings(pairs).unwrap_err().to_string();
    let pipeline = ("pipeline", text("p.yaml"));
    assert_eq!(
        told(&[]),
        "the parameter `pipeline` is missing: the path of a pipeline file"
    );
    assert_eq!(told(&[("pipeline", Value::NotSet)]), told(&[]));
    assert_eq!(
        told(&[("pipeline", Value::Integer(1))]),
        "the parameter `pipeline` is of type integer; expected the path of a pipeline file"
    );
    assert_eq!(
        told(&[pipeline.clone(), ("set", Value::Texts(vec!["a".into()]))]),
        "the parameter `set` is \"a\"; expected KEY=VALUE, such as device.threads=4"
    );
    assert_eq!(
        told(&[pipeline.clone(), ("family", text("bevfusion"))]),
        "the parameter `family` is \"bevfusion\"; expected centerpoint or yolox"
    );
    assert_eq!(
        told(&[pipeline.clone(), ("family", text("yolox"))]),
        "the parameter `model` is missing: the name in the pipeline file of the model that takes the parameters"
    );
    assert_eq!(
        told(&[pipeline.clone(), ("cloud_capacity", Value::Integer(1))]),
        "the parameter `cloud_capacity` is none of this node's own; expected `family` and `model` to say which model it is for"
    );
    let clash = [
        pipeline,
        ("family", text("centerpoint")),
        ("model", text("m")),
        ("a", Value::Integer(1)),
        ("a.b", Value::Integer(2)),
    ];
    let error = overlay::overrides(&settings(&clash).unwrap()).unwrap_err();
    assert_eq!(error, ParameterError::Clash("a.b".to_owned()));
}
