//! Samples of a bundle: what a model makes of them, and whether that is what was stored.

use std::path::Path;

use miette::{IntoDiagnostic, WrapErr, miette};
use serde_json::{Map, Value};

use crate::device::DeviceConfig;
use crate::image::decode_image;
use crate::io::cloud_file::{self, CloudFileOptions};
use crate::io::forms::{BodyForm, BodyTiming, ToBody};
use crate::lidar::Columns;
use crate::perception::{Model, ModelOptions, Sensor, SensorData, Sweep};
use crate::pipeline::{Family, ModelSettings, Precision, WeightFormat};
use crate::runtime::load_model;
use crate::server::client::{Gates, compare_with_reference};

/// Largest sample that is read, in bytes.
const MAX_SAMPLE_BYTES: u64 = 1 << 30;
/// What processors may differ by: scores by this much, edges of boxes by half a pixel, and places and sizes of objects by
/// five hundredths of a metre.
const GATES: Gates = Gates {
    max_center_dist: 0.05,
    max_height_err: 0.05,
    max_size_err: 0.05,
    max_yaw_err: 0.05,
    max_box_err: Some(0.5),
    min_recall: 1.0,
    min_precision: 1.0,
    max_score_err: 2e-3,
    ..Gates::DEFAULT
};
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

/// What a model makes of a file, a picture (PNG, JPEG) or a point cloud: the body with which a service answers, without
/// times.
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
            model.run(&SensorData::Sweep(sweep), "base_link", [])
        }
    };
    let detections = outcome.into_diagnostic().wrap_err_with(wrong)?.detections;
    let body = detections.to_body(BodyForm::Json, &BodyTiming::default(), Map::new());
    let mut body = body.into_diagnostic().wrap_err_with(wrong)?;
    if let Some(body) = body.as_object_mut() {
        // How long it took is no part of what was found.
        body.remove("timing_ms");
        body.insert("precision".to_owned(), "fp32".into());
    }
    Ok(body)
}

/// What is different between two references; none if they agree within what processors may differ by.
pub(super) fn differences(stored: &Value, found: &Value) -> Vec<String> {
    if !stored["detections"].is_array() {
        return vec!["the reference has no detections".to_owned()];
    }
    compare_with_reference(found, stored, &GATES).1
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
            assert!(
                !differences(&stored, &reference(&[other, bus])).is_empty(),
                "{other:?}"
            );
        }
        assert_eq!(differences(&stored, &reference(&[car])).len(), 1);
        assert_eq!(differences(&stored, &json!({})).len(), 1);
        assert_eq!(differences(&json!({}), &stored).len(), 1);
    }

    #[test]
    fn objects_differ_in_place_size_and_heading() {
        let object = |center: [f64; 3], size: [f64; 3], yaw: f64| json!({ "detections": [{ "label": "CAR", "score": 0.5, "center": center, "size": size, "yaw": yaw }] });
        let stored = object([10.0, 2.0, 0.5], [4.0, 2.0, 1.5], 3.13);
        // Headings are compared around the circle.
        let nearly = object([10.01, 2.0, 0.52], [4.02, 2.0, 1.5], -3.13);
        assert_eq!(differences(&stored, &nearly), Vec::<String>::new());
        for (other, told) in [
            (object([10.1, 2.0, 0.5], [4.0, 2.0, 1.5], 3.13), "recall"),
            (object([10.0, 2.0, 0.7], [4.0, 2.0, 1.5], 3.13), "height_err_max"),
            (object([10.0, 2.0, 0.5], [4.0, 2.2, 1.5], 3.13), "size_err_max"),
            (object([10.0, 2.0, 0.5], [4.0, 2.0, 1.5], 0.0), "yaw_err_max"),
        ] {
            let found = differences(&stored, &other);
            assert!(
                found.iter().any(|line| line.starts_with(told)),
                "{told}: {found:?}"
            );
        }
    }
}
