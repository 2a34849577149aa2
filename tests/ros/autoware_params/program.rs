//! Parameters without files, and changes while a model runs.

use proptest::prelude::*;
use sensorium::lidar::PillarGridSpec;
use sensorium::perception::centerpoint::{CenterPointParams, ParamError, ParamOrigin, RuntimeParam};

use super::generations::{centerpoint_2023, centerpoint_2025, centerpoint_2026};
use super::params;

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

/// The grid that points are sorted into.
fn pillars(params: &CenterPointParams) -> [usize; 2] {
    let [x0, y0, z0, x1, y1, z1] = params.point_cloud_range_m.map(f64::from);
    let spec = PillarGridSpec::new([x0, y0, z0], [x1, y1, z1], params.voxel_size_m.map(f64::from)).unwrap();
    [spec.grid_x(), spec.grid_y()]
}

#[test]
fn grids_are_those_that_points_are_sorted_into() {
    for (params, expected, head) in [
        (centerpoint_2026(), [480, 480], [480, 480]),
        (centerpoint_2023(), [560, 560], [560, 560]),
        (params(), [40, 20], [20, 10]),
    ] {
        assert_eq!(params.grid_size(), expected);
        assert_eq!(params.head_grid_size(), head);
        assert_eq!(pillars(&params), expected);
    }
    let mut broken = params();
    broken.voxel_size_m = [0.0; 3];
    broken.downsample_factor = 0;
    assert_eq!((broken.grid_size(), broken.head_grid_size()), ([0; 2], [0; 2]));
}

proptest! {
    #[test]
    fn a_size_that_divides_the_range_is_accepted_and_makes_the_grid_of_the_points(
        hundredths in 1_u16..100,
        cells in 1_u16..1000,
        low_tenths in -1000_i16..1000,
    ) {
        let size = f64::from(hundredths) / 100.0;
        let low = f64::from(low_tenths) / 10.0;
        let mut params = params();
        params.downsample_factor = 1;
        params.voxel_size_m[0] = size as f32;
        params.point_cloud_range_m[0] = low as f32;
        params.point_cloud_range_m[3] = (low + size * f64::from(cells)) as f32;
        let exact = usize::from(cells);
        // A bound far from zero and a small pillar: float32 may then be off by more than a thousandth of a pillar.
        prop_assume!(low.abs() * 2.0 + size * f64::from(cells) < size * 5_000.0);
        if params.validate().is_ok() {
            prop_assert_eq!(params.grid_size(), pillars(&params));
            prop_assert!(params.grid_size()[0] == exact || params.grid_size()[0] + 1 == exact);
        } else {
            // Only a single pillar can fall short of one.
            prop_assert_eq!(exact, 1);
        }
        // Half a pillar more fits no grid.
        params.point_cloud_range_m[3] = (low + size * (f64::from(cells) + 0.5)) as f32;
        prop_assert!(params.validate().is_err());
        prop_assert_eq!(params.grid_size()[0], 0);
    }
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
