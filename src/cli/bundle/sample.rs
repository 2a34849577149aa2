//! Samples of a bundle: what a model makes of them, and whether that is what was stored.

use std::path::Path;

use miette::{IntoDiagnostic, WrapErr, miette};
use serde_json::{Value, json};

use crate::device::DeviceConfig;
use crate::image::decode_image;
use crate::io::cloud_file::{self, CloudFileOptions};
use crate::lidar::Columns;
use crate::outputs::Detections;
use crate::perception::{Model, ModelOptions, Sensor, SensorData, Sweep};
use crate::pipeline::{Family, ModelSettings, Precision, WeightFormat};
use crate::runtime::load_model;

/// Largest sample that is read, in bytes.
const MAX_SAMPLE_BYTES: u64 = 1 << 30;
/// Scores may differ by this much between processors.
const SCORE_TOLERANCE: f64 = 2e-3;
/// Edges of boxes may differ by so many pixels, and places and sizes of objects by so many hundredths of a metre.
const PLACE_TOLERANCE: f64 = 0.5;
/// Samples were taken where the vehicle stood at the origin of the world.
const IDENTITY: [f64; 16] = [
    1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0,
];

/// The model of `settings` in fp32, as references are made.
pub(super) fn open(name: &str, settings: &ModelSettings, device: &DeviceConfig) -> miette::Result<Model> {
    let mut settings = settings.clone();
    settings.precision = Precision::Fp32;
    if let Family::Yolox(camera) | Family::FastestDet(camera) = &mut settings.family {
        camera.weight_format = WeightFormat::Fp32;
    }
    let parts = load_model(name, &settings).into_diagnostic()?;
    Model::open(parts, device, ModelOptions::default()).into_diagnostic()
}

/// What a model makes of a file: a picture (PNG, JPEG), or a point cloud.
///
/// # Errors
/// A file that cannot be read, or a model that does not take it.
pub(super) fn reference(model: &mut Model, settings: &ModelSettings, path: &Path) -> miette::Result<Value> {
    let wrong = || format!("the sample {}", path.display());
    let bytes = std::fs::metadata(path)
        .into_diagnostic()
        .wrap_err_with(wrong)?
        .len();
    if bytes > MAX_SAMPLE_BYTES {
        return Err(miette!(
            "the sample {} is larger than {MAX_SAMPLE_BYTES} bytes",
            path.display()
        ));
    }
    let outcome = match settings.family.sensor() {
        Sensor::Camera => {
            let bytes = std::fs::read(path).into_diagnostic().wrap_err_with(wrong)?;
            let image = decode_image(&bytes).into_diagnostic().wrap_err_with(wrong)?;
            model.run(&SensorData::Image(image.view().into()), "camera", [])
        }
        _ => {
            let file = cloud_file::read(path, &CloudFileOptions::default()).into_diagnostic();
            let mut cloud = file.wrap_err_with(wrong)?.cloud;
            if cloud.intensity.is_empty() {
                cloud.intensity.resize(cloud.x.len(), 0.0);
            }
            let name = path.display().to_string();
            let sweep = Sweep {
                // Each sample is a stream of its own: none is added to another.
                stream: &name,
                stamp_ns: 0,
                points: Columns {
                    x: &cloud.x,
                    y: &cloud.y,
                    z: &cloud.z,
                    intensity: &cloud.intensity,
                },
                world_from_sensor: Some(IDENTITY),
            };
            model.run(&SensorData::Sweep(sweep), "lidar", [])
        }
    };
    let detections = outcome.into_diagnostic().wrap_err_with(wrong)?.detections;
    Ok(json!({ "precision": "fp32", "detections": plain(&detections)? }))
}

/// Detections as plain data, numbers as short as they can be written.
fn plain(detections: &Detections) -> miette::Result<Value> {
    let text = match detections {
        Detections::Image(found) => {
            let named = found.detections.iter().map(|detection| {
                json!({
                    "label": found.label(detection),
                    "score": short(detection.score),
                    "box_xyxy": detection.box_xyxy.map(short),
                })
            });
            return Ok(Value::Array(named.collect()));
        }
        Detections::Objects(found) => serde_json::to_string(&found.objects).into_diagnostic()?,
    };
    serde_json::from_str(&text).into_diagnostic()
}

/// The shortest number that is this one in single precision.
fn short(value: f32) -> f64 {
    value.to_string().parse().unwrap_or_else(|_| value.into())
}

/// What is different between two references; none if they agree within what processors may differ by.
pub(super) fn differences(stored: &Value, found: &Value) -> Vec<String> {
    let list = |value: &Value| value["detections"].as_array().cloned();
    let (Some(stored), Some(mut found)) = (list(stored), list(found)) else {
        return vec!["is no reference of detections".to_owned()];
    };
    let mut told = Vec::new();
    if stored.len() != found.len() {
        told.push(format!(
            "{} detections, and {} are stored",
            found.len(),
            stored.len()
        ));
    }
    for (index, expected) in stored.iter().enumerate() {
        let same = found.iter().position(|it| agree(expected, it));
        match same {
            Some(position) => {
                found.swap_remove(position);
            }
            None => told.push(format!(
                "detection {index} ({}, score {}) is not found again",
                expected["label"], expected["score"]
            )),
        }
    }
    told
}

/// Whether two detections are the same object with the same score.
fn agree(one: &Value, other: &Value) -> bool {
    let near = |key: &str, tolerance: f64| match (&one[key], &other[key]) {
        (Value::Array(a), Value::Array(b)) => {
            let pairs = a.iter().zip(b).map(|(a, b)| a.as_f64().zip(b.as_f64()));
            a.len() == b.len()
                && pairs
                    .into_iter()
                    .all(|pair| pair.is_some_and(|(a, b)| (a - b).abs() <= tolerance))
        }
        (a, b) => match a.as_f64().zip(b.as_f64()) {
            Some((a, b)) => (a - b).abs() <= tolerance,
            None => a == b,
        },
    };
    one["label"] == other["label"]
        && near("score", SCORE_TOLERANCE)
        && near("box_xyxy", PLACE_TOLERANCE)
        && near("position_m", PLACE_TOLERANCE / 10.0)
        && near("size_m", PLACE_TOLERANCE / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(objects: &[(&str, f64, [f64; 4])]) -> Value {
        let objects = objects
            .iter()
            .map(|(label, score, edges)| json!({ "label": label, "score": score, "box_xyxy": edges }));
        json!({ "detections": objects.collect::<Vec<_>>() })
    }

    #[test]
    fn references_agree_in_any_order_and_differ_in_label_score_place_and_number() {
        let car = ("car", 0.9, [1.0, 2.0, 30.0, 40.0]);
        let bus = ("bus", 0.9, [50.0, 2.0, 90.0, 40.0]);
        let stored = reference(&[car, bus]);
        assert!(differences(&stored, &reference(&[bus, car])).is_empty());
        let nearly = ("car", 0.901, [1.2, 2.0, 30.0, 40.3]);
        assert!(differences(&stored, &reference(&[nearly, bus])).is_empty());
        for other in [
            ("bus", 0.9, [1.0, 2.0, 30.0, 40.0]),
            ("car", 0.8, [1.0, 2.0, 30.0, 40.0]),
            ("car", 0.9, [1.0, 2.0, 31.0, 40.0]),
        ] {
            assert_eq!(
                differences(&stored, &reference(&[other, bus])).len(),
                1,
                "{other:?}"
            );
        }
        assert_eq!(differences(&stored, &reference(&[car])).len(), 2);
        assert_eq!(differences(&stored, &json!({})).len(), 1);
    }
}
