//! Autoware's parameter files of CenterPoint: every generation as it is, and every way in which one can be wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use sensorium::outputs::ObjectLabel;
use sensorium::perception::centerpoint::{
    CenterPointParams, MAX_PARAM_FILE_BYTES, ParamError, ParamOrigin, RemapperParams, RuntimeParam,
};
use tempfile::TempDir;

// The files of a node of 2026-06, with values of their own.

const NODE: &str = "\
/**:
  ros__parameters:
    encoder_onnx_path: \"$(var model_path)/encoder.onnx\"
    trt_precision: fp16
    cloud_capacity: 1000000
    post_process_params:
      circle_nms_dist_threshold: 0.5
      iou_nms_search_distance_2d: 10.0
      iou_nms_threshold: 0.1
      yaw_norm_thresholds: [0.3, 0.0]
    densification_params:
      world_frame_id: map
      num_past_frames: 1
";

const MODEL: &str = "\
/**:
  ros__parameters:
    model_params:
      class_names: [\"CAR\", \"PEDESTRIAN\"]
      point_feature_size: 4
      max_voxel_size: 2000
      point_cloud_range: [-6.4, -3.2, -3.0, 6.4, 3.2, 5.0]
      voxel_size: [0.32, 0.32, 8.0]
      downsample_factor: 2
      encoder_in_feature_size: 9
      has_variance: false
      has_twist: true
      detection_score_thresholds:
        distance_bin_upper_limits: [50.0, 90.0, .inf]
        min_confidence_scores:
          CAR: [0.3, 0.4, 0.5]
          PEDESTRIAN: [0.6, 0.7, 0.8]
";

fn remapper_text() -> String {
    let list = |value: &str| vec![value; 64].join(", ");
    format!(
        "/**:\n  ros__parameters:\n    allow_remapping_by_area_matrix: [{}]\n    min_area_matrix: [{}]\n    \
         max_area_matrix: [{}]\n",
        list("1"),
        list("2.5"),
        list("7.5"),
    )
}

/// Files in a folder of their own.
struct Files {
    folder: TempDir,
    paths: Vec<PathBuf>,
}

impl Files {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let paths = files
            .iter()
            .map(|(name, text)| {
                let path = folder.path().join(name);
                std::fs::write(&path, text).unwrap();
                path
            })
            .collect();
        Self { folder, paths }
    }

    fn load(&self) -> Result<(CenterPointParams, Vec<String>), ParamError> {
        CenterPointParams::from_files(&self.paths)
    }

    /// The text without the folder, which has another name every time.
    fn short(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.folder.path().display()), "")
    }

    fn error(&self) -> String {
        match self.load() {
            Ok(_) => panic!("loaded, though damaged"),
            Err(error) => self.short(&error.to_string()),
        }
    }

    fn warnings(&self) -> Vec<String> {
        let (_, warnings) = self.load().unwrap();
        warnings.iter().map(|warning| self.short(warning)).collect()
    }
}

/// The error of a node and a model file.
fn error_of(node: &str, model: &str) -> String {
    Files::new(&[("node.yaml", node), ("model.yaml", model)]).error()
}

fn params() -> CenterPointParams {
    Files::new(&[("node.yaml", NODE), ("model.yaml", MODEL)])
        .load()
        .unwrap()
        .0
}

/// Number of the line, from 1, in which `key:` stands.
fn line_of(text: &str, key: &str) -> usize {
    1 + text
        .lines()
        .position(|line| line.trim_start().starts_with(&format!("{key}:")))
        .unwrap()
}

/// The text with what stands behind `key:` replaced.
fn with(text: &str, key: &str, value: &str) -> String {
    replaced(text, key, |line| {
        let (before, _) = line.split_once(':').unwrap();
        format!("{before}: {value}\n")
    })
}

fn without(text: &str, key: &str) -> String {
    replaced(text, key, |_| String::new())
}

fn replaced(text: &str, key: &str, change: impl Fn(&str) -> String) -> String {
    let at = line_of(text, key);
    text.lines()
        .zip(1..)
        .map(|(line, number)| {
            if number == at {
                change(line)
            } else {
                format!("{line}\n")
            }
        })
        .collect()
}

/// Every key of [`NODE`] and [`MODEL`] that is needed: file, last name, whole name.
const NEEDED: [(&str, &str, &str); 19] = [
    ("node.yaml", "cloud_capacity", "cloud_capacity"),
    (
        "node.yaml",
        "circle_nms_dist_threshold",
        "post_process_params.circle_nms_dist_threshold",
    ),
    (
        "node.yaml",
        "iou_nms_search_distance_2d",
        "post_process_params.iou_nms_search_distance_2d",
    ),
    (
        "node.yaml",
        "iou_nms_threshold",
        "post_process_params.iou_nms_threshold",
    ),
    (
        "node.yaml",
        "yaw_norm_thresholds",
        "post_process_params.yaw_norm_thresholds",
    ),
    (
        "node.yaml",
        "world_frame_id",
        "densification_params.world_frame_id",
    ),
    (
        "node.yaml",
        "num_past_frames",
        "densification_params.num_past_frames",
    ),
    ("model.yaml", "class_names", "model_params.class_names"),
    (
        "model.yaml",
        "point_feature_size",
        "model_params.point_feature_size",
    ),
    ("model.yaml", "max_voxel_size", "model_params.max_voxel_size"),
    (
        "model.yaml",
        "point_cloud_range",
        "model_params.point_cloud_range",
    ),
    ("model.yaml", "voxel_size", "model_params.voxel_size"),
    (
        "model.yaml",
        "downsample_factor",
        "model_params.downsample_factor",
    ),
    (
        "model.yaml",
        "encoder_in_feature_size",
        "model_params.encoder_in_feature_size",
    ),
    ("model.yaml", "has_variance", "model_params.has_variance"),
    ("model.yaml", "has_twist", "model_params.has_twist"),
    (
        "model.yaml",
        "distance_bin_upper_limits",
        "model_params.detection_score_thresholds.distance_bin_upper_limits",
    ),
    (
        "model.yaml",
        "CAR",
        "model_params.detection_score_thresholds.min_confidence_scores.CAR",
    ),
    (
        "model.yaml",
        "PEDESTRIAN",
        "model_params.detection_score_thresholds.min_confidence_scores.PEDESTRIAN",
    ),
];

/// Both texts, one of them changed.
fn changed(file: &str, change: impl Fn(&str) -> String) -> (String, String) {
    match file {
        "node.yaml" => (change(NODE), MODEL.to_owned()),
        _ => (NODE.to_owned(), change(MODEL)),
    }
}

// Whole files.

fn autoware(generation: &str, names: &[&str]) -> Option<Vec<PathBuf>> {
    let folder = match generation {
        "2023-04" => "autoware_params/2023-04/lidar_centerpoint/config".to_owned(),
        _ => format!("autoware_params/{generation}/perception/autoware_lidar_centerpoint/config"),
    };
    let folder = support::data(&folder)?;
    Some(
        names
            .iter()
            .map(|name| folder.join(format!("{name}.param.yaml")))
            .collect(),
    )
}

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// `centerpoint` of 2025-03 and what all newer models share with it.
fn centerpoint_2025() -> CenterPointParams {
    let zeros = vec![0.0; 64];
    let mut remapper = RemapperParams {
        allow: vec![0; 64],
        min_area_m2: zeros.clone(),
        max_area_m2: zeros,
    };
    // Cars become trucks or trailers, trucks and buses become trailers.
    for (from, to, least, most) in [
        (1, 2, 12.1, 36.0),
        (1, 4, 36.0, 999.999),
        (2, 4, 36.0, 999.999),
        (3, 4, 36.0, 999.999),
    ] {
        remapper.allow[from * 8 + to] = 1;
        remapper.min_area_m2[from * 8 + to] = least;
        remapper.max_area_m2[from * 8 + to] = most;
    }
    CenterPointParams {
        class_names: strings(&["CAR", "TRUCK", "BUS", "BICYCLE", "PEDESTRIAN"]),
        point_feature_size: 4,
        max_voxels: 40_000,
        point_cloud_range_m: [-76.8, -76.8, -4.0, 76.8, 76.8, 6.0],
        voxel_size_m: [0.32, 0.32, 10.0],
        downsample_factor: 1,
        encoder_in_feature_size: 9,
        max_points_per_voxel: 32,
        has_variance: false,
        has_twist: false,
        distance_bin_upper_limits_m: vec![f64::INFINITY],
        score_thresholds: vec![vec![0.35; 5]],
        yaw_norm_thresholds: vec![0.3, 0.3, 0.3, 0.3, 0.0],
        circle_nms_dist_threshold_m: 0.5,
        iou_nms_search_distance_m: 10.0,
        iou_nms_threshold: 0.1,
        world_frame_id: "map".to_owned(),
        num_past_frames: 1,
        cloud_capacity: 2_000_000,
        remapper: Some(remapper),
    }
}

fn centerpoint_2026() -> CenterPointParams {
    CenterPointParams {
        distance_bin_upper_limits_m: vec![50.0, 90.0, 121.0, 200.0],
        score_thresholds: vec![vec![0.35; 5]; 4],
        ..centerpoint_2025()
    }
}

fn centerpoint_2023() -> CenterPointParams {
    CenterPointParams {
        class_names: strings(&["CAR", "PEDESTRIAN", "BICYCLE"]),
        point_cloud_range_m: [-89.6, -89.6, -3.0, 89.6, 89.6, 5.0],
        voxel_size_m: [0.32, 0.32, 8.0],
        score_thresholds: vec![vec![0.35; 3]],
        yaw_norm_thresholds: vec![0.3, 0.0, 0.3],
        remapper: None,
        ..centerpoint_2025()
    }
}

#[test]
fn files_of_2026_06_load_as_they_are() {
    let models = [
        ("centerpoint", centerpoint_2026()),
        ("centerpoint_sigma", centerpoint_2026()),
        (
            "centerpoint_tiny",
            CenterPointParams {
                downsample_factor: 2,
                ..centerpoint_2026()
            },
        ),
        (
            "centerpoint_short_range",
            CenterPointParams {
                point_cloud_range_m: [-51.2, -51.2, -3.0, 51.2, 51.2, 5.0],
                voxel_size_m: [0.16, 0.16, 8.0],
                downsample_factor: 4,
                encoder_in_feature_size: 10,
                ..centerpoint_2026()
            },
        ),
    ];
    for (model, expected) in models {
        let package = format!("{model}_ml_package");
        let names = [model, &package, "detection_class_remapper", "centerpoint_common"];
        let Some(files) = autoware("2026-06", &names) else {
            return;
        };
        let (params, warnings) = CenterPointParams::from_files(&files).unwrap();
        assert_eq!(params, expected, "{model}");
        assert!(warnings.is_empty(), "{warnings:?}");
        // The order of the files makes no difference, as no two say the same.
        let reversed: Vec<&PathBuf> = files.iter().rev().collect();
        assert_eq!(CenterPointParams::from_files(&reversed).unwrap().0, expected);
    }
}

#[test]
fn files_of_2025_03_load_as_they_are_with_one_bin_without_end() {
    for (model, downsample_factor) in [
        ("centerpoint", 1),
        ("centerpoint_sigma", 1),
        ("centerpoint_tiny", 2),
    ] {
        let package = format!("{model}_ml_package");
        let Some(files) = autoware("2025-03", &[model, &package, "detection_class_remapper"]) else {
            return;
        };
        let (params, warnings) = CenterPointParams::from_files(&files).unwrap();
        let expected = CenterPointParams {
            downsample_factor,
            ..centerpoint_2025()
        };
        assert_eq!(params, expected, "{model}");
        assert!(warnings.is_empty(), "{warnings:?}");
        let (params, _) = CenterPointParams::from_files(&files[..2]).unwrap();
        assert_eq!(params.remapper, None);
    }
}

#[test]
fn files_of_2023_04_load_as_they_are_with_the_defaults_of_their_code_told() {
    for (model, downsample_factor) in [("centerpoint", 1), ("centerpoint_tiny", 2)] {
        let Some(files) = autoware("2023-04", &[model]) else {
            return;
        };
        let (params, warnings) = CenterPointParams::from_files(&files).unwrap();
        let expected = CenterPointParams {
            downsample_factor,
            ..centerpoint_2023()
        };
        assert_eq!(params, expected, "{model}");
        assert_eq!(
            warnings,
            [
                format!(
                    "{}:12: `iou_nms_target_class_names` is not followed: overlap suppression takes every pair of \
                     objects without a pedestrian, as Autoware does since 2024-12",
                    files[0].display()
                ),
                "the files are of Autoware 2023-04, whose code or launch file said the rest: taken are \
                 `score_threshold` 0.35, `model_params.has_variance` false, `has_twist` false, \
                 `densification_world_frame_id` map, `densification_num_past_frames` 1, `cloud_capacity` 2000000"
                    .to_owned(),
            ]
        );
    }
}

#[test]
fn a_model_file_older_than_the_node_is_named_with_the_key_and_its_generation() {
    let Some(mut files) = autoware(
        "2026-06",
        &["centerpoint", "detection_class_remapper", "centerpoint_common"],
    ) else {
        return;
    };
    let old = autoware("2025-03", &["centerpoint_ml_package"])
        .unwrap()
        .remove(0);
    files.insert(1, old.clone());
    let error = CenterPointParams::from_files(&files).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "{}: `model_params.detection_score_thresholds.distance_bin_upper_limits` is missing; the file seems to be \
             from Autoware 2025-03; expected a list of numbers: where each distance bin ends in metres, ascending, \
             such as [50.0, 90.0, 121.0, 200.0]",
            old.display()
        )
    );
}

#[test]
fn a_node_file_older_than_the_model_loads_and_its_threshold_gives_way() {
    let Some(mut files) = autoware("2025-03", &["centerpoint", "detection_class_remapper"]) else {
        return;
    };
    files.insert(
        0,
        autoware("2026-06", &["centerpoint_ml_package"])
            .unwrap()
            .remove(0),
    );
    let (params, warnings) = CenterPointParams::from_files(&files).unwrap();
    assert_eq!(params, centerpoint_2026());
    assert_eq!(
        warnings,
        [format!(
            "{}:15: `post_process_params.score_threshold` is an older form of \
             `model_params.detection_score_thresholds.distance_bin_upper_limits`, which is there too and holds",
            files[1].display()
        )]
    );
}

#[test]
fn no_parameter_file_of_the_three_generations_is_left_out() {
    let mut found = Vec::new();
    for generation in ["2023-04", "2025-03", "2026-06"] {
        let Some(files) = autoware(generation, &["centerpoint"]) else {
            return;
        };
        for entry in std::fs::read_dir(files[0].parent().unwrap()).unwrap() {
            let path = entry.unwrap().path();
            // Alone, no file is enough but those of 2023-04; none is misunderstood.
            match CenterPointParams::from_files(&[&path]) {
                Ok(_) => assert_eq!(generation, "2023-04"),
                Err(ParamError::Missing { .. }) => assert_ne!(generation, "2023-04"),
                Err(error) => panic!("{error}"),
            }
            found.push(path);
        }
    }
    assert_eq!(found.len(), 19);
}

#[test]
fn a_file_of_2022_is_refused_with_what_it_lacks() {
    let old = "\
/**:
  ros__parameters:
    class_names: [\"CAR\", \"PEDESTRIAN\", \"BICYCLE\"]
    rename_car_to_truck_and_bus: false
    point_feature_size: 4
    max_num_voxels: 40000
    point_cloud_range: [-89.6, -89.6, -3.0, 89.6, 89.6, 5.0]
    voxel_size: [0.32, 0.32, 8.0]
    downsample_factor: 2
    encoder_in_feature_size: 9
";
    assert_eq!(
        Files::new(&[("old.yaml", old)]).error(),
        "old.yaml: `yaw_norm_thresholds` is missing; the file seems to be from Autoware before 2023-04; expected a list \
         of numbers, one for every class, such as 0.3 (Autoware has it in `centerpoint.param.yaml`)"
    );
    let renames = with(old, "rename_car_to_truck_and_bus", "true");
    assert_eq!(
        Files::new(&[("old.yaml", &renames)]).error(),
        "old.yaml:4: `rename_car_to_truck_and_bus` is of Autoware before 2023-04 and has no equivalent; expected the \
         matrices of `detection_class_remapper.param.yaml`, which change classes by area"
    );
    let rest = "\
/**:
  ros__parameters:
    circle_nms_dist_threshold: 0.5
    iou_nms_search_distance_2d: 10.0
    iou_nms_threshold: 0.1
    yaw_norm_thresholds: [0.3, 0.0, 0.3]
";
    let (params, _) = Files::new(&[("old.yaml", old), ("rest.yaml", rest)])
        .load()
        .unwrap();
    assert_eq!(params.max_voxels, 40_000);
}

// Forms between the three.

/// [`MODEL`] without thresholds.
fn bare_model() -> String {
    let at = MODEL.find("      detection_score_thresholds").unwrap();
    MODEL[..at].to_owned()
}

#[test]
fn every_form_of_score_thresholds_becomes_a_table_of_bins_and_classes() {
    let load = |node: &str, model: &str| {
        let files = Files::new(&[("node.yaml", node), ("model.yaml", model)]);
        let (params, warnings) = files.load().unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        (params.distance_bin_upper_limits_m, params.score_thresholds)
    };
    let post = |line: &str| {
        NODE.replace(
            "      iou_nms_threshold",
            &format!("      {line}\n      iou_nms_threshold"),
        )
    };
    assert_eq!(
        load(NODE, MODEL),
        (
            vec![50.0, 90.0, f64::INFINITY],
            vec![vec![0.3, 0.6], vec![0.4, 0.7], vec![0.5, 0.8]]
        )
    );
    let older_names = MODEL
        .replace("detection_score_thresholds", "score_thresholds")
        .replace("distance_bin_upper_limits", "upper_bounds")
        .replace("min_confidence_scores", "thresholds");
    assert_eq!(load(NODE, &older_names), load(NODE, MODEL));
    assert_eq!(
        load(&post("score_thresholds: [0.2, 0.4]"), &bare_model()),
        (vec![f64::INFINITY], vec![vec![0.2, 0.4]])
    );
    assert_eq!(
        load(&post("score_threshold: 0.2"), &bare_model()),
        (vec![f64::INFINITY], vec![vec![0.2, 0.2]])
    );
    // Mistakes in an old form are told where that form stands.
    let line = line_of(&post("score_threshold: 0.2"), "score_threshold");
    assert_eq!(
        error_of(&post("score_thresholds: [0.2]"), &bare_model()),
        format!(
            "node.yaml:{line}: `post_process_params.score_thresholds` has 1 entries; expected 2, one for every class"
        )
    );
    assert_eq!(
        error_of(&post("score_threshold: 1.0"), &bare_model()),
        format!(
            "node.yaml:{line}: `post_process_params.score_threshold` is 1 for CAR in bin 0; expected 0 to below 1"
        )
    );
}

#[test]
fn thresholds_of_the_heading_may_stand_with_the_model() {
    let node = without(NODE, "yaw_norm_thresholds");
    let model = MODEL.replace(
        "      has_twist",
        "      yaw_norm_thresholds: [0.1, 0.2]\n      has_twist",
    );
    let (params, warnings) = Files::new(&[("node.yaml", &node), ("model.yaml", &model)])
        .load()
        .unwrap();
    assert_eq!(params.yaw_norm_thresholds, [0.1, 0.2]);
    assert!(warnings.is_empty(), "{warnings:?}");
    // The newer spelling holds, in whichever file it is.
    let files = Files::new(&[("model.yaml", &model), ("node.yaml", NODE)]);
    assert_eq!(files.load().unwrap().0.yaw_norm_thresholds, [0.1, 0.2]);
    assert_eq!(
        files.warnings(),
        [
            "`model_params.yaw_norm_thresholds` is said twice: a list of 2 at model.yaml:12 holds over a list of 2 at \
          node.yaml:10"
        ]
    );
}

// Damaged keys.

#[test]
fn every_key_that_is_removed_is_named_with_its_file() {
    for (file, last, key) in NEEDED {
        let (node, model) = changed(file, |text| without(text, last));
        let error = error_of(&node, &model);
        let start = format!("{file}: `{key}` is missing; the file seems to be from Autoware ");
        assert!(error.starts_with(&start), "{error}");
        assert!(error[start.len()..].starts_with("2026-06; expected "), "{error}");
    }
}

#[test]
fn every_key_that_is_misspelled_is_named_with_the_spelling_that_is_there() {
    for (file, last, key) in NEEDED {
        // A letter is doubled.
        let slip = format!("{}{last}", &last[..1]);
        let (node, model) = changed(file, |text| {
            text.replace(&format!(" {last}:"), &format!(" {slip}:"))
        });
        let error = error_of(&node, &model);
        assert!(error.contains(&format!("`{key}` is missing")), "{error}");
        let line = line_of(if file == "node.yaml" { &node } else { &model }, &slip);
        if matches!(last, "CAR" | "PEDESTRIAN") {
            // The name of a class that the model does not have: a key as any other.
            assert!(error.starts_with("model.yaml: "), "{error}");
        } else {
            assert!(error.ends_with(&format!("{slip}` at {file}:{line}?)")), "{error}");
        }
    }
}

#[test]
fn every_value_of_a_wrong_type_is_named_with_its_line() {
    for (file, last, key) in NEEDED {
        let wrong: &[&str] = match last {
            "class_names" => &["CAR", "3", "{a: 1}", "", "[CAR, 3]", "[CAR, [BUS]]"],
            "world_frame_id" => &["3", "[map]", "true", ""],
            "has_variance" | "has_twist" => &["1", "maybe", "[true]", ""],
            "point_cloud_range"
            | "voxel_size"
            | "yaw_norm_thresholds"
            | "distance_bin_upper_limits"
            | "CAR"
            | "PEDESTRIAN" => &[
                "0.3",
                "text",
                "true",
                "",
                "[0.3, text]",
                "[0.3, {a: 1}]",
                "[0.3, ~]",
            ],
            "cloud_capacity"
            | "num_past_frames"
            | "point_feature_size"
            | "max_voxel_size"
            | "downsample_factor"
            | "encoder_in_feature_size" => &["4.0", "text", "[4]", "true", "", "\"4\""],
            _ => &["text", "[0.3]", "true", "", "\"0.3\"", "$(var x)"],
        };
        for value in wrong {
            let (node, model) = changed(file, |text| with(text, last, value));
            let files = Files::new(&[("node.yaml", &node), ("model.yaml", &model)]);
            let line = line_of(if file == "node.yaml" { NODE } else { MODEL }, last);
            let error = files.error();
            if *value == "{a: 1}" {
                // A map is taken apart, and the key itself is then missing.
                assert!(error.contains(&format!("`{key}` is missing")), "{error}");
                continue;
            }
            assert!(
                matches!(files.load(), Err(ParamError::Type { .. })),
                "{value}: {error}"
            );
            assert!(error.starts_with(&format!("{file}:{line}: `{key}")), "{error}");
            assert!(error.contains("; expected "), "{error}");
        }
    }
}

#[test]
fn messages_say_what_is_there_and_what_is_expected() {
    let node = |key, value| error_of(&with(NODE, key, value), MODEL);
    let model = |key, value| error_of(NODE, &with(MODEL, key, value));
    assert_eq!(
        model("max_voxel_size", "40000.0"),
        "model.yaml:6: `model_params.max_voxel_size` is the number 40000; expected an integer, the most pillars that \
         the network takes, such as 40000"
    );
    assert_eq!(
        node("iou_nms_threshold", "$(var iou)"),
        "node.yaml:9: `post_process_params.iou_nms_threshold` is the text \"$(var iou)\"; expected a number between 0 \
         and 1, such as 0.1 (launch substitutions are not replaced here, write the value)"
    );
    assert_eq!(
        model("CAR", "[0.3, \"high\", 0.5]"),
        "model.yaml:16: `model_params.detection_score_thresholds.min_confidence_scores.CAR[1]` is the text \"high\"; \
         expected for every class a list of numbers, one for every distance bin, 0 to below 1"
    );
    // In a list over several lines, the line of the entry.
    assert!(
        model("voxel_size", "[\n        0.32,\n        yes,\n        8.0]")
            .starts_with("model.yaml:10: `model_params.voxel_size[1]` is the boolean true;")
    );
    // Nothing that a terminal would obey is repeated.
    let escape = node("iou_nms_threshold", "\"\\e[31m\"");
    assert!(!escape.contains('\u{1b}'), "{escape:?}");
}

#[test]
fn values_that_cannot_be_are_refused_where_they_stand() {
    let tables: [(&str, &str, &str, &str); 34] = [
        (
            "node.yaml",
            "cloud_capacity",
            "0",
            "is 0; expected 1 to 1073741824",
        ),
        (
            "node.yaml",
            "cloud_capacity",
            "-1",
            "is -1; expected an integer, such as 2000000",
        ),
        (
            "node.yaml",
            "circle_nms_dist_threshold",
            "0.0",
            "is 0; expected finite metres above 0",
        ),
        (
            "node.yaml",
            "circle_nms_dist_threshold",
            ".nan",
            "is NaN; expected finite metres above 0",
        ),
        (
            "node.yaml",
            "iou_nms_search_distance_2d",
            "-0.5",
            "is -0.5; expected finite metres, 0 or more",
        ),
        (
            "node.yaml",
            "iou_nms_search_distance_2d",
            ".inf",
            "is inf; expected finite metres, 0 or more",
        ),
        ("node.yaml", "iou_nms_threshold", "1.5", "is 1.5; expected 0 to 1"),
        (
            "node.yaml",
            "yaw_norm_thresholds",
            "[0.3]",
            "has 1 entries; expected 2, one for every class",
        ),
        (
            "node.yaml",
            "yaw_norm_thresholds",
            "[0.3, 1.0]",
            "is 1 in entry 1; expected 0 to below 1",
        ),
        (
            "node.yaml",
            "world_frame_id",
            "\"\"",
            "is \"\"; expected the name of a frame, such as `map`",
        ),
        (
            "node.yaml",
            "num_past_frames",
            "-1",
            "is -1; expected an integer, 0 or more",
        ),
        (
            "node.yaml",
            "num_past_frames",
            "99999999999999999999",
            "is the number 100000000000000000000; expected",
        ),
        (
            "model.yaml",
            "class_names",
            "[]",
            "has 0 entries; expected 1 to 256 classes",
        ),
        (
            "model.yaml",
            "class_names",
            "[CAR, CAR]",
            "is \"CAR\" a second time in entry 1; expected every class once",
        ),
        ("model.yaml", "point_feature_size", "3", "is 3; expected 4 to 5"),
        (
            "model.yaml",
            "encoder_in_feature_size",
            "11",
            "is 11; expected 9 or 10 with a `point_feature_size` of 4",
        ),
        (
            "model.yaml",
            "max_voxel_size",
            "0",
            "is 0; expected 1 to 16777216",
        ),
        (
            "model.yaml",
            "point_cloud_range",
            "[1, 2, 3]",
            "has 3 entries; expected a list of 6 numbers",
        ),
        (
            "model.yaml",
            "point_cloud_range",
            "[6.4, -3.2, -3.0, -6.4, 3.2, 5.0]",
            "is 6.4 to -6.4 in x; expected finite metres, the least below the greatest",
        ),
        (
            "model.yaml",
            "point_cloud_range",
            "[-6.4, 0, -3.0, 6.4, 1e99, 5.0]",
            "is 0 to inf in y; expected finite",
        ),
        (
            "model.yaml",
            "voxel_size",
            "[0.32, 0.32]",
            "has 2 entries; expected a list of 3 numbers in metres",
        ),
        (
            "model.yaml",
            "voxel_size",
            "[0.32, 0.0, 8.0]",
            "is 0 in y; expected finite metres above 0",
        ),
        (
            "model.yaml",
            "voxel_size",
            "[-0.32, 0.32, 8.0]",
            "is -0.32 in x; expected finite metres above 0",
        ),
        (
            "model.yaml",
            "voxel_size",
            "[0.3, 0.32, 8.0]",
            "is 0.3 in x; expected a size that divides the range of 12.8 m",
        ),
        (
            "model.yaml",
            "voxel_size",
            "[0.0001, 0.32, 8.0]",
            "is 0.0001 in x; expected a size that divides",
        ),
        (
            "model.yaml",
            "voxel_size",
            "[0.32, 0.32, 4.0]",
            "is 4 in z; expected 8: a pillar is as high as the range",
        ),
        (
            "model.yaml",
            "downsample_factor",
            "0",
            "is 0; expected a divisor of the 40 by 20 pillars",
        ),
        (
            "model.yaml",
            "downsample_factor",
            "3",
            "is 3; expected a divisor of the 40 by 20 pillars",
        ),
        (
            "model.yaml",
            "distance_bin_upper_limits",
            "[]",
            "has 0 entries; expected 1 to 256 ends of distance bins",
        ),
        (
            "model.yaml",
            "distance_bin_upper_limits",
            "[50.0, 40.0, 60.0]",
            "is 40 in entry 1; expected metres above 50",
        ),
        (
            "model.yaml",
            "distance_bin_upper_limits",
            "[50.0, .inf, .inf]",
            "is inf in entry 1; expected metres above 50",
        ),
        (
            "model.yaml",
            "distance_bin_upper_limits",
            "[.nan, 40.0, 60.0]",
            "is NaN in entry 0; expected metres above 0",
        ),
        (
            "model.yaml",
            "CAR",
            "[0.3, 0.4]",
            "has 2 entries; expected 3, one for every bin of `model_params.detection",
        ),
        (
            "model.yaml",
            "PEDESTRIAN",
            "[0.3, -0.1, 0.4]",
            "is -0.1 for PEDESTRIAN in bin 1; expected 0 to below 1",
        ),
    ];
    for (file, last, value, message) in tables {
        let (node, model) = changed(file, |text| match (last, value) {
            // The thresholds would have the wrong length first.
            ("distance_bin_upper_limits", "[]") => {
                with(&with(&with(text, last, value), "CAR", "[]"), "PEDESTRIAN", "[]")
            }
            _ => with(text, last, value),
        });
        let key = NEEDED.iter().find(|(_, it, _)| *it == last).unwrap().2;
        let line = line_of(if file == "node.yaml" { NODE } else { MODEL }, last);
        let error = error_of(&node, &model);
        assert!(
            error.starts_with(&format!("{file}:{line}: `{key}` {message}")),
            "{error}\nis not {message}"
        );
    }
}

#[test]
fn intensity_makes_eleven_features() {
    let model = with(
        &with(MODEL, "point_feature_size", "5"),
        "encoder_in_feature_size",
        "11",
    );
    let (params, _) = Files::new(&[("node.yaml", NODE), ("model.yaml", &model)])
        .load()
        .unwrap();
    assert_eq!(
        (params.point_feature_size, params.encoder_in_feature_size),
        (5, 11)
    );
}

#[test]
fn a_damaged_remapper_is_refused_where_it_is_damaged() {
    let text = remapper_text();
    let load = |text: &str| {
        let files = Files::new(&[("node.yaml", NODE), ("model.yaml", MODEL), ("remap.yaml", text)]);
        files
            .load()
            .map(|(params, _)| params)
            .map_err(|error| files.short(&error.to_string()))
    };
    let expected = RemapperParams {
        allow: vec![1; 64],
        min_area_m2: vec![2.5; 64],
        max_area_m2: vec![7.5; 64],
    };
    assert_eq!(load(&text).unwrap().remapper, Some(expected));
    let damages = [
        (
            text.replacen("[1, ", "[", 1),
            ":3: `allow_remapping_by_area_matrix` has 63 entries; expected 64: 8 rows of 8 classes",
        ),
        (
            text.replacen("[2.5, ", "[", 1),
            ":4: `min_area_matrix` has 63 entries; expected 64",
        ),
        (
            text.replacen("[7.5, ", "[7.5, 7.5, ", 1),
            ":5: `max_area_matrix` has 65 entries; expected 64",
        ),
        (
            text.replacen("[1, ", "[2, ", 1),
            ":3: `allow_remapping_by_area_matrix` is 2 in row 0, column 0; expected 0 or 1",
        ),
        (
            text.replacen("[1, ", "[1.0, ", 1),
            ":3: `allow_remapping_by_area_matrix[0]` is the number 1; expected",
        ),
        (
            text.replacen("[2.5, 2.5", "[2.5, -1", 1),
            ":4: `min_area_matrix` is -1 in row 0, column 1; expected finite m²",
        ),
        (
            text.replacen("[2.5, ", "[8, ", 1),
            ":5: `max_area_matrix` is 7.5 in row 0, column 0; expected at least the 8 of",
        ),
        (
            text.replace("min_area_matrix", "min_aera_matrix"),
            ": `min_area_matrix` is missing; the file seems to be from Autoware 2023-04 to 2026-06; expected a list of 64 \
             numbers in m²: 8 rows of 8 classes (is it `min_aera_matrix` at remap.yaml:4?)",
        ),
    ];
    for (text, message) in damages {
        let error = load(&text).unwrap_err();
        assert!(error.starts_with(&format!("remap.yaml{message}")), "{error}");
    }
    // Where a change is not allowed, its areas may be anything finite.
    let allowed = text.replacen("[1, ", "[0, ", 1).replacen("[2.5, ", "[8, ", 1);
    assert!(load(&allowed).is_ok());
}

// Several files, several spellings.

#[test]
fn a_later_file_holds_over_an_earlier_one_and_differences_are_told() {
    let later = "/**:\n  ros__parameters:\n    cloud_capacity: 500\n    post_process_params:\n      iou_nms_threshold: 0.10\n";
    let names = [("node.yaml", NODE), ("model.yaml", MODEL), ("later.yaml", later)];
    let files = Files::new(&names);
    let (params, _) = files.load().unwrap();
    assert_eq!(params.cloud_capacity, 500);
    assert_eq!(
        files.warnings(),
        [
            "`cloud_capacity` is said twice: the integer 500 at later.yaml:3 holds over the integer 1000000 at node.yaml:5"
        ]
    );
    let files = Files::new(&[names[2], names[0], names[1]]);
    assert_eq!(files.load().unwrap().0.cloud_capacity, 1_000_000);
    // One class changes, the others stay.
    let car = "/**:\n  ros__parameters:\n    model_params.detection_score_thresholds.min_confidence_scores.CAR: [0, 0.1, 0.2]\n";
    let (params, warnings) = Files::new(&[names[0], names[1], ("car.yaml", car)])
        .load()
        .unwrap();
    assert_eq!(params.score_thresholds, [[0.0, 0.6], [0.1, 0.7], [0.2, 0.8]]);
    assert_eq!(warnings.len(), 1);
}

#[test]
fn a_value_that_gives_way_is_not_judged() {
    let wrong = "/**:\n  ros__parameters:\n    cloud_capacity: -1\n";
    let files = Files::new(&[("wrong.yaml", wrong), ("node.yaml", NODE), ("model.yaml", MODEL)]);
    assert_eq!(files.load().unwrap().0.cloud_capacity, 1_000_000);
}

#[test]
fn keys_that_are_not_known_give_warnings_with_the_nearest_one() {
    let node = NODE.replace(
        "    trt_precision: fp16\n",
        "    trt_precision: fp16\n    trt_presicion: fp16\n    post_process_params.score_treshold: 0.3\n    \
         wholly_different: 1\n    diagnostics:\n      max_allowed_processing_time_ms: 200.0\n    build_only: false\n",
    );
    let model = MODEL.replace(
        "          CAR:",
        "          TRAM: [0.1, 0.1, 0.1]\n          CAR:",
    );
    let files = Files::new(&[("node.yaml", &node), ("model.yaml", &model)]);
    assert_eq!(
        files.warnings(),
        [
            "model.yaml:16: `model_params.detection_score_thresholds.min_confidence_scores.TRAM` is not used: the model \
             has no such class, only CAR, PEDESTRIAN",
            "node.yaml:5: `trt_presicion` is not known and not used; did you mean `trt_precision`?",
            "node.yaml:6: `post_process_params.score_treshold` is not known and not used; did you mean \
             `post_process_params.score_threshold`?",
            "node.yaml:7: `wholly_different` is not known and not used",
        ]
    );
    assert_eq!(files.load().unwrap().0, params());
    let many: String = (0..30).map(|i| format!("    unheard_of_{i}: 1\n")).collect();
    let files = Files::new(&[("node.yaml", &format!("{NODE}{many}")), ("model.yaml", MODEL)]);
    assert_eq!(files.warnings().len(), 21);
    assert_eq!(files.warnings()[20], "10 more keys are not known and not used");
}

#[test]
fn classes_that_autoware_does_not_know_are_told() {
    let model = MODEL
        .replace("\"CAR\"", "\"TRICYCLE\"")
        .replace(" CAR:", " TRICYCLE:");
    let files = Files::new(&[("node.yaml", NODE), ("model.yaml", &model)]);
    assert_eq!(
        files.load().unwrap().0.labels(),
        [ObjectLabel::Unknown, ObjectLabel::Pedestrian]
    );
    assert_eq!(
        files.warnings(),
        [
            "class `TRICYCLE` is published as UNKNOWN; Autoware knows CAR, TRUCK, BUS, TRAILER, BICYCLE, MOTORBIKE, PEDESTRIAN"
        ]
    );
}

// The frame of a file.

#[test]
fn parameters_may_be_those_of_a_node_by_name() {
    let load = |node: &str| Files::new(&[("node.yaml", node), ("model.yaml", MODEL)]).load();
    for name in [
        "lidar_centerpoint:",
        "/perception/lidar_centerpoint:",
        "\"/**/lidar_centerpoint\":",
    ] {
        assert_eq!(load(&NODE.replace("/**:", name)).unwrap().0, params());
    }
    let nested: String = NODE.lines().skip(1).map(|line| format!("  {line}\n")).collect();
    let nested = format!("/perception:\n  lidar_centerpoint:\n{nested}");
    assert_eq!(load(&nested).unwrap().0, params());
    // To every node and to one: the latter holds.
    let both = format!("{NODE}lidar_centerpoint:\n  ros__parameters:\n    cloud_capacity: 7\n");
    let (both, warnings) = load(&both).unwrap();
    assert_eq!(both.cloud_capacity, 7);
    assert_eq!(warnings.len(), 1);
    let two = format!(
        "{}other_node:\n  ros__parameters:\n    cloud_capacity: 7\n",
        NODE.replace("/**:", "lidar_centerpoint:")
    );
    assert_eq!(
        error_of(&two, MODEL),
        "node.yaml:15: parameters of a second node, `other_node` after `lidar_centerpoint`; expected those of one node or \
         of `/**`"
    );
}

#[test]
fn names_may_be_joined_by_dots_and_truth_may_be_spelled_as_yaml_1_1_does() {
    let node = NODE
        .replace("    densification_params:\n", "")
        .replace("      world_frame_id", "    densification_params.world_frame_id")
        .replace(
            "      num_past_frames",
            "    densification_params.num_past_frames",
        );
    let model = with(&with(MODEL, "has_twist", "yes"), "has_variance", "Off");
    let (read, _) = Files::new(&[("node.yaml", &node), ("model.yaml", &model)])
        .load()
        .unwrap();
    assert_eq!(read, params());
}

#[test]
fn launch_substitutions_in_text_stay_as_they_are() {
    let node = with(NODE, "world_frame_id", "$(var frame)");
    let (params, warnings) = Files::new(&[("node.yaml", &node), ("model.yaml", MODEL)])
        .load()
        .unwrap();
    assert_eq!(params.world_frame_id, "$(var frame)");
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[test]
fn files_that_are_no_parameter_files_are_refused() {
    let of = |text: &str| error_of(text, MODEL);
    let frame = "node.yaml: no `ros__parameters`; expected a ROS 2 parameter file,";
    for text in [
        "",
        "3",
        "[1, 2]",
        "/**:\n",
        "/**:\n  ros__parameters:\n",
        "a: {b: 1}\n",
    ] {
        assert!(of(text).starts_with(frame), "{text}");
    }
    assert!(
        of("/**:\n  ros__parameters: {a: [1\n").starts_with("node.yaml:2: this is no YAML")
            || of("/**:\n  ros__parameters: {a: [1\n").starts_with("node.yaml:3: this is no YAML")
    );
    assert_eq!(
        of(&NODE.replace("    trt_precision: fp16\n", "    cloud_capacity: 1\n")),
        "node.yaml:5: `cloud_capacity` is said a second time, first in line 4; expected once"
    );
    assert_eq!(
        of(&format!(
            "{NODE}/**:\n  ros__parameters:\n    cloud_capacity: 1\n"
        )),
        "node.yaml:14: `/**` is said a second time, first in line 1; expected once"
    );
    let long = " ".repeat(usize::try_from(MAX_PARAM_FILE_BYTES).unwrap() + 1);
    assert!(of(&long).starts_with("node.yaml is longer than 1048576 bytes"));
    let deep = format!("/**: {}1{}", "{a: ".repeat(100), "}".repeat(100));
    assert!(of(&deep).contains("this is no YAML that can be read"));
    let bomb = "a: &a [1, 1, 1, 1, 1, 1, 1, 1]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b, \
                *b, *b]\nd: &d [*c, *c, *c, *c, *c, *c, *c, *c]\ne: [*d, *d, *d, *d, *d, *d, *d, *d]\n";
    assert!(of(bomb).contains("this is no YAML that can be read"));
    let missing = [Path::new("/no/such/file.yaml")];
    assert!(
        CenterPointParams::from_files(&missing)
            .unwrap_err()
            .to_string()
            .starts_with("cannot read /no/such/file.yaml: ")
    );
    let none: [&Path; 0] = [];
    assert!(matches!(
        CenterPointParams::from_files(&none),
        Err(ParamError::NoFiles)
    ));
}

proptest! {
    #[test]
    fn any_damage_gives_parameters_that_can_be_or_an_error(
        damage in prop::collection::vec((0..(NODE.len() + MODEL.len()), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = [NODE.as_bytes(), MODEL.as_bytes()].concat();
        for (at, byte) in damage {
            bytes[at] = byte;
        }
        let (node, model) = bytes.split_at(NODE.len());
        let model = &model[..model.len() - cut.index(40)];
        let folder = tempfile::tempdir().unwrap();
        let paths = [folder.path().join("node.yaml"), folder.path().join("model.yaml")];
        std::fs::write(&paths[0], node).unwrap();
        std::fs::write(&paths[1], model).unwrap();
        match CenterPointParams::from_files(&paths) {
            Ok((params, _)) => prop_assert!(params.validate().is_ok()),
            Err(error) => prop_assert!(!error.to_string().contains(|c: char| c.is_control())),
        }
    }
}

// Parameters without files.

#[test]
fn parameters_of_a_program_are_judged_by_the_same_rules() {
    assert!(params().validate().is_ok());
    assert!(centerpoint_2025().validate().is_ok());
    type Damage = fn(&mut CenterPointParams);
    let damages: [(Damage, &str); 14] = [
        (|p| p.class_names.clear(), "model_params.class_names"),
        (
            |p| p.class_names[0] = "A.B".to_owned(),
            "model_params.class_names",
        ),
        (|p| p.point_feature_size = 6, "model_params.point_feature_size"),
        (|p| p.max_points_per_voxel = 0, "max_points_per_voxel"),
        (|p| p.max_voxels = usize::MAX, "model_params.max_voxel_size"),
        (|p| p.cloud_capacity = usize::MAX, "cloud_capacity"),
        (
            |p| p.num_past_frames = usize::MAX,
            "densification_params.num_past_frames",
        ),
        (
            |p| p.point_cloud_range_m[4] = f32::NAN,
            "model_params.point_cloud_range",
        ),
        (|p| p.voxel_size_m[2] = f32::NAN, "model_params.voxel_size"),
        (|p| p.score_thresholds.truncate(1), "score_thresholds"),
        (|p| p.score_thresholds[1].push(0.1), "score_thresholds[1]"),
        (
            |p| p.score_thresholds[1][0] = f64::NAN,
            "model_params.detection_score_thresholds.min_confidence_scores.CAR",
        ),
        (
            |p| p.iou_nms_threshold = f64::NAN,
            "post_process_params.iou_nms_threshold",
        ),
        (
            |p| p.world_frame_id.clear(),
            "densification_params.world_frame_id",
        ),
    ];
    for (damage, expected) in damages {
        let mut damaged = params();
        damage(&mut damaged);
        match damaged.validate() {
            Err(ParamError::Value { at, key, .. } | ParamError::Length { at, key, .. }) => {
                assert_eq!((at, key.as_str()), (ParamOrigin::Program, expected));
            }
            other => panic!("{expected}: {other:?}"),
        }
    }
}

#[test]
fn grids_are_those_that_autoware_gets_in_float32() {
    for (params, expected, head) in [
        (centerpoint_2025(), [480, 480, 1], [480, 480]),
        (centerpoint_2023(), [560, 560, 1], [560, 560]),
        (params(), [40, 20, 1], [20, 10]),
    ] {
        assert_eq!(params.grid_size(), expected);
        assert_eq!(params.head_grid_size(), head);
        let range = params.point_cloud_range_m;
        let truncated = [0, 1, 2].map(|i| ((range[i + 3] - range[i]) / params.voxel_size_m[i]) as usize);
        assert_eq!(truncated, expected);
    }
    let mut broken = params();
    broken.voxel_size_m = [0.0; 3];
    broken.downsample_factor = 0;
    assert_eq!((broken.grid_size(), broken.head_grid_size()), ([0; 3], [0; 2]));
}

#[test]
fn reports_have_every_parameter_and_say_where_a_bin_has_no_end() {
    let json = serde_json::to_value(params()).unwrap();
    assert_eq!(
        json["distance_bin_upper_limits_m"],
        serde_json::json!([50.0, 90.0, "inf"])
    );
    assert_eq!(
        json["score_thresholds"],
        serde_json::json!([[0.3, 0.6], [0.4, 0.7], [0.5, 0.8]])
    );
    assert_eq!(json.as_object().unwrap().len(), 19);
    assert_eq!(
        serde_json::to_value(centerpoint_2025())
            .unwrap()
            .as_object()
            .unwrap()
            .len(),
        20
    );
}

// Changes while a model runs.

#[test]
fn live_parameters_change_under_their_names() {
    let mut params = params();
    params
        .set("post_process_params.circle_nms_dist_threshold", 0.7)
        .unwrap();
    params.set("iou_nms_threshold", 0.2).unwrap();
    params.set("iou_nms_search_distance_2d", 12.0).unwrap();
    params.set("yaw_norm_thresholds", vec![0.1, 0.2]).unwrap();
    assert_eq!(params.circle_nms_dist_threshold_m, 0.7);
    assert_eq!(params.iou_nms_threshold, 0.2);
    assert_eq!(params.iou_nms_search_distance_m, 12.0);
    assert_eq!(params.yaw_norm_thresholds, [0.1, 0.2]);
    params.set("model_params.yaw_norm_thresholds", 0.5).unwrap();
    assert_eq!(params.yaw_norm_thresholds, [0.5, 0.5]);
    params.set("score_threshold", 0.25).unwrap();
    assert_eq!(params.score_thresholds, [[0.25; 2]; 3]);
    params.set("score_thresholds", vec![0.1, 0.2]).unwrap();
    assert_eq!(params.score_thresholds, [[0.1, 0.2]; 3]);
    params
        .set("min_confidence_scores.PEDESTRIAN", vec![0.3, 0.4, 0.5])
        .unwrap();
    assert_eq!(params.score_thresholds, [[0.1, 0.3], [0.1, 0.4], [0.1, 0.5]]);
    params
        .set(
            "model_params.detection_score_thresholds.min_confidence_scores.CAR",
            0.0,
        )
        .unwrap();
    assert_eq!(params.score_thresholds, [[0.0, 0.3], [0.0, 0.4], [0.0, 0.5]]);
    assert_eq!(
        RuntimeParam::parse("min_confidence_scores.PEDESTRIAN", &params.class_names).unwrap(),
        RuntimeParam::ScoreThresholdsOf(1)
    );
}

#[test]
fn a_live_value_that_is_refused_changes_nothing() {
    let before = params();
    let mut params = before.clone();
    let mut error = |name: &str, value: &[f64]| {
        let result = match value {
            [one] => params.set(name, *one),
            _ => params.set(name, value.to_vec()),
        };
        assert_eq!(params, before);
        result.unwrap_err().to_string()
    };
    assert_eq!(
        error("circle_nms_dist_threshold", &[-1.0]),
        "CenterPoint parameters: `post_process_params.circle_nms_dist_threshold` is -1; expected finite metres above 0"
    );
    assert_eq!(
        error("circle_nms_dist_threshold", &[1.0, 2.0]),
        "CenterPoint parameters: `circle_nms_dist_threshold` is a list of 2; expected one number"
    );
    assert!(error("iou_nms_threshold", &[1.1]).ends_with("is 1.1; expected 0 to 1"));
    assert!(
        error("iou_nms_search_distance_2d", &[f64::NAN])
            .ends_with("is NaN; expected finite metres, 0 or more")
    );
    assert!(error("score_threshold", &[1.0]).ends_with("is 1 for CAR in bin 0; expected 0 to below 1"));
    assert!(
        error("score_thresholds", &[0.1, 0.2, 0.3])
            .ends_with("has 3 entries; expected 2, one for every class")
    );
    assert!(
        error("min_confidence_scores.CAR", &[0.1, 0.2])
            .ends_with("has 2 entries; expected 3, one for every distance bin")
    );
    assert!(
        error("yaw_norm_thresholds", &[0.1, f64::INFINITY])
            .ends_with("is inf in entry 1; expected 0 to below 1")
    );
    assert_eq!(
        error("min_confidence_scores.TRAM", &[0.1]),
        "no parameter `min_confidence_scores.TRAM`: the classes are CAR, PEDESTRIAN"
    );
    assert_eq!(
        error("circle_nms_dist_treshold", &[0.1]),
        "no parameter `circle_nms_dist_treshold`: did you mean `circle_nms_dist_threshold`?"
    );
    assert_eq!(
        error("brightness", &[0.1]),
        "no parameter `brightness`: those that may change are score_threshold, score_thresholds, \
         circle_nms_dist_threshold, iou_nms_search_distance_2d, iou_nms_threshold, yaw_norm_thresholds, \
         min_confidence_scores.<class>"
    );
    for fixed in [
        "voxel_size",
        "model_params.voxel_size",
        "cloud_capacity",
        "has_twist",
    ] {
        assert_eq!(
            error(fixed, &[1.0]),
            format!(
                "`{fixed}` cannot change while the model runs; set it in the parameter file and start again"
            )
        );
    }
}
