//! Every key removed, misspelled, of a wrong type, of a value that cannot be.

use sensorium::perception::centerpoint::{ParamError, RemapperParams};

use super::{Files, MODEL, NEEDED, NODE, changed, error_of, line_of, with, without};

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
