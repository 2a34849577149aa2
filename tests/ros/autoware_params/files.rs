//! Several files, what frames parameters, files that are none.

use std::path::Path;

use proptest::prelude::*;
use sensorium::outputs::ObjectLabel;
use sensorium::perception::centerpoint::{CenterPointParams, MAX_PARAM_FILE_BYTES, ParamError};

use super::{Files, MODEL, NODE, error_of, params, with};

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
            "class `TRICYCLE` is published as UNKNOWN; expected CAR, TRUCK, BUS, TRAILER, BICYCLE, MOTORBIKE or PEDESTRIAN"
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
    let open = of("/**:\n  ros__parameters: {a: [1\n");
    assert!(
        open.starts_with("node.yaml:2: this is no YAML that can be read: "),
        "{open}"
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
