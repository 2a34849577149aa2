//! Autoware's parameter files of CenterPoint: every generation as it is, and every way in which one can be wrong.

mod damage;
mod files;
mod generations;
mod program;

use crate::support;
use std::path::PathBuf;

use sensorium::perception::centerpoint::{CenterPointParams, ParamError};
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
#[rustfmt::skip]
const NEEDED: [(&str, &str, &str); 19] = [
    ("node.yaml", "cloud_capacity", "cloud_capacity"),
    ("node.yaml", "circle_nms_dist_threshold", "post_process_params.circle_nms_dist_threshold"),
    ("node.yaml", "iou_nms_search_distance_2d", "post_process_params.iou_nms_search_distance_2d"),
    ("node.yaml", "iou_nms_threshold", "post_process_params.iou_nms_threshold"),
    ("node.yaml", "yaw_norm_thresholds", "post_process_params.yaw_norm_thresholds"),
    ("node.yaml", "world_frame_id", "densification_params.world_frame_id"),
    ("node.yaml", "num_past_frames", "densification_params.num_past_frames"),
    ("model.yaml", "class_names", "model_params.class_names"),
    ("model.yaml", "point_feature_size", "model_params.point_feature_size"),
    ("model.yaml", "max_voxel_size", "model_params.max_voxel_size"),
    ("model.yaml", "point_cloud_range", "model_params.point_cloud_range"),
    ("model.yaml", "voxel_size", "model_params.voxel_size"),
    ("model.yaml", "downsample_factor", "model_params.downsample_factor"),
    ("model.yaml", "encoder_in_feature_size", "model_params.encoder_in_feature_size"),
    ("model.yaml", "has_variance", "model_params.has_variance"),
    ("model.yaml", "has_twist", "model_params.has_twist"),
    ("model.yaml", "distance_bin_upper_limits", "model_params.detection_score_thresholds.distance_bin_upper_limits"),
    ("model.yaml", "CAR", "model_params.detection_score_thresholds.min_confidence_scores.CAR"),
    ("model.yaml", "PEDESTRIAN", "model_params.detection_score_thresholds.min_confidence_scores.PEDESTRIAN"),
];

/// Both texts, one of them changed.
fn changed(file: &str, change: impl Fn(&str) -> String) -> (String, String) {
    match file {
        "node.yaml" => (change(NODE), MODEL.to_owned()),
        _ => (NODE.to_owned(), change(MODEL)),
    }
}
