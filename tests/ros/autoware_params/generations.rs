//! The files of every generation, mixed too, and the forms between them.

use std::path::PathBuf;

use sensorium::perception::centerpoint::{CenterPointParams, ParamError, RemapperParams};

use super::support;
use super::{Files, MODEL, NODE, error_of, line_of, with, without};

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
pub(super) fn centerpoint_2025() -> CenterPointParams {
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

pub(super) fn centerpoint_2026() -> CenterPointParams {
    CenterPointParams {
        distance_bin_upper_limits_m: vec![50.0, 90.0, 121.0, 200.0],
        score_thresholds: vec![vec![0.35; 5]; 4],
        ..centerpoint_2025()
    }
}

pub(super) fn centerpoint_2023() -> CenterPointParams {
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
