//! The body of an answer for every kind of result.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::encode::EncodeFault;
use super::jsonable::{NonFinite, float_value};
use super::{ArrayEncoding, encode_array, encode_png_form};
use crate::image::{ImageRef, PixelFormat};
use crate::outputs::{
    DetectedObjects, Detections, Detections2D, Detections2DWithMasks, Detections3D, Mask2D, Segmentation3D,
    Trajectory, class_counts, label_name,
};
use crate::tensor::{HostTensor, Shape};
use crate::weights::{Array, ElementType, Values};

/// Form of a body's arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "OutputFormat")]
pub enum BodyForm {
    /// Numbers in JSON; masks as PNG, classes of points as NumPy archives.
    #[default]
    Json,
    /// The same, and arrays as NumPy archives in base64.
    Npz,
}

/// How long the parts of a frame took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BodyTiming {
    /// From the request's data to the network's input.
    pub preprocess: Duration,
    /// Upload, replay, and reading of the output.
    pub device: Duration,
    /// From the output to the result.
    pub postprocess: Duration,
    /// All of it.
    pub total: Duration,
}

/// What has a body.
pub trait ToBody {
    /// The body: an object with `model`, `frame_id`, what was found, `meta` and `timing_ms`. Float32 is rounded to 6
    /// significant digits, float64 is exact, and every number is finite.
    ///
    /// # Errors
    /// [`EncodeFault`]: [`NonFinite`] names the number by its path from `body`.
    fn to_body(
        &self,
        form: BodyForm,
        timing: &BodyTiming,
        meta: Map<String, Value>,
    ) -> Result<Value, EncodeFault>;
}

/// What all bodies have.
fn body(
    model: &str,
    frame_id: &str,
    timing: &BodyTiming,
    meta: Map<String, Value>,
    parts: Vec<(&str, Value)>,
) -> Value {
    let ms = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    let mut body = Map::new();
    body.insert("model".to_owned(), model.into());
    body.insert("frame_id".to_owned(), frame_id.into());
    body.extend(parts.into_iter().map(|(name, value)| (name.to_owned(), value)));
    body.insert("meta".to_owned(), meta.into());
    body.insert(
        "timing_ms".to_owned(),
        json!({
            "preprocess": ms(timing.preprocess),
            "device": ms(timing.device),
            "postprocess": ms(timing.postprocess),
            "total": ms(timing.total),
        }),
    );
    Value::Object(body)
}

/// Rounded numbers under a path.
fn list(values: &[f32], path: &str) -> Result<Value, NonFinite> {
    let item = |(at, &value): (usize, &f32)| float_value(value, || format!("{path}[{at}]"));
    let items: Result<Vec<Value>, NonFinite> = values.iter().enumerate().map(item).collect();
    items.map(Value::Array)
}

/// An array as an archive. Numbers were held to be finite where the body has them as numbers, too.
fn archived(values: Values, dims: &[usize], element: ElementType, name: &str) -> Result<Value, EncodeFault> {
    let odd = match &values {
        Values::F32(values) => values.iter().position(|value| !value.is_finite()),
        Values::F64(values) => values.iter().position(|value| !value.is_finite()),
        Values::I64(_) => None,
    };
    if let Some(at) = odd {
        return Err(NonFinite::at(format!("body.{name}[{at}]")).into());
    }
    let shape = Shape::new(dims).ok();
    let array = shape.and_then(|shape| Array::new(shape, element, values));
    // Callers give as many values as the dimensions have.
    let array = array.ok_or_else(|| NonFinite::at(format!("body.{name}")))?;
    encode_array(&array, ArrayEncoding::NpzCompressed, name)
}

impl ToBody for Detections {
    fn to_body(
        &self,
        form: BodyForm,
        timing: &BodyTiming,
        meta: Map<String, Value>,
    ) -> Result<Value, EncodeFault> {
        match self {
            Self::Image(found) => found.to_body(form, timing, meta),
            Self::Objects(found) => found.to_body(form, timing, meta),
        }
    }
}

impl ToBody for DetectedObjects {
    fn to_body(
        &self,
        form: BodyForm,
        timing: &BodyTiming,
        meta: Map<String, Value>,
    ) -> Result<Value, EncodeFault> {
        Detections3D::from(self).to_body(form, timing, meta)
    }
}

impl ToBody for Detections3D {
    fn to_body(
        &self,
        form: BodyForm,
        timing: &BodyTiming,
        meta: Map<String, Value>,
    ) -> Result<Value, EncodeFault> {
        let found = self.detections();
        let row = |(at, it): (usize, &crate::outputs::Detection3D)| -> Result<Value, NonFinite> {
            let path = format!("body.detections[{at}]");
            let velocity = it
                .velocity_mps
                .map(|velocity| list(&velocity, &format!("{path}.velocity")));
            Ok(json!({
                "label": self.label(it),
                "label_id": it.label_id,
                "score": float_value(it.score, || format!("{path}.score"))?,
                "center": list(&it.box_xyzlwhy[..3], &format!("{path}.center"))?,
                "size": list(&it.box_xyzlwhy[3..6], &format!("{path}.size"))?,
                "yaw": float_value(it.box_xyzlwhy[6], || format!("{path}.yaw"))?,
                "velocity": velocity.transpose()?,
            }))
        };
        let rows: Result<Vec<Value>, NonFinite> = found.iter().enumerate().map(row).collect();
        let mut parts = vec![
            ("num_detections", found.len().into()),
            ("detections", rows?.into()),
        ];
        if form == BodyForm::Npz {
            let n = found.len();
            let boxes = found.iter().flat_map(|it| it.box_xyzlwhy).collect();
            let mut arrays = Map::new();
            let mut add = |name: &str, value: Value| arrays.insert(name.to_owned(), value);
            add(
                "boxes",
                archived(Values::F32(boxes), &[n, 7], ElementType::F32, "boxes")?,
            );
            let scores = found.iter().map(|it| it.score).collect();
            add(
                "scores",
                archived(Values::F32(scores), &[n], ElementType::F32, "scores")?,
            );
            let ids = found.iter().map(|it| it.label_id.into()).collect();
            add(
                "label_ids",
                archived(Values::I64(ids), &[n], ElementType::I64, "label_ids")?,
            );
            let velocities: Option<Vec<[f32; 2]>> = found.iter().map(|it| it.velocity_mps).collect();
            if let Some(velocities) = velocities {
                let values = Values::F32(velocities.into_iter().flatten().collect());
                add(
                    "velocities",
                    archived(values, &[n, 2], ElementType::F32, "velocities")?,
                );
            }
            parts.push(("arrays", arrays.into()));
        }
        Ok(body(&self.model, &self.frame_id, timing, meta, parts))
    }
}

impl ToBody for Detections2D {
    fn to_body(
        &self,
        form: BodyForm,
        timing: &BodyTiming,
        meta: Map<String, Value>,
    ) -> Result<Value, EncodeFault> {
        boxes_body(self, &BTreeMap::new(), form, timing, meta)
    }
}

impl ToBody for Detections2DWithMasks {
    fn to_body(
        &self,
        form: BodyForm,
        timing: &BodyTiming,
        meta: Map<String, Value>,
    ) -> Result<Value, EncodeFault> {
        boxes_body(&self.detections, &self.masks, form, timing, meta)
    }
}

fn boxes_body(
    found: &Detections2D,
    masks: &BTreeMap<String, Mask2D>,
    form: BodyForm,
    timing: &BodyTiming,
    meta: Map<String, Value>,
) -> Result<Value, EncodeFault> {
    let row = |(at, it): (usize, &crate::outputs::Detection2D)| -> Result<Value, NonFinite> {
        let path = format!("body.detections[{at}]");
        Ok(json!({
            "label": found.label(it),
            "label_id": it.label_id,
            "score": float_value(it.score, || format!("{path}.score"))?,
            "box_xyxy": list(&it.box_xyxy, &format!("{path}.box_xyxy"))?,
        }))
    };
    let detections = &found.detections;
    let rows: Result<Vec<Value>, NonFinite> = detections.iter().enumerate().map(row).collect();
    let mut parts = vec![
        ("num_detections", detections.len().into()),
        ("detections", rows?.into()),
        ("image_size", json!(found.image_size_px)),
    ];
    for (name, mask) in masks {
        parts.push((name, mask_value(mask, form)?));
    }
    if form == BodyForm::Npz {
        let n = detections.len();
        let boxes = Values::F32(detections.iter().flat_map(|it| it.box_xyxy).collect());
        let scores = Values::F32(detections.iter().map(|it| it.score).collect());
        let ids = Values::I64(detections.iter().map(|it| it.label_id.into()).collect());
        let arrays = json!({
            "boxes_xyxy": archived(boxes, &[n, 4], ElementType::F32, "boxes_xyxy")?,
            "scores": archived(scores, &[n], ElementType::F32, "scores")?,
            "label_ids": archived(ids, &[n], ElementType::I64, "label_ids")?,
        });
        parts.push(("arrays", arrays));
    }
    Ok(body(&found.model, &found.frame_id, timing, meta, parts))
}

/// Counts by class name, of classes that are there.
fn counts(labels: &[u16], names: &[String]) -> Value {
    let counted = class_counts(labels, 0).into_iter().enumerate();
    let there = counted.filter(|(_, count)| *count > 0);
    let named = there.map(|(id, count)| (label_name(names, id as u32).into_owned(), count.into()));
    Value::Object(named.collect())
}

/// Classes in the shorter of the types that holds them all.
fn classes(labels: &[u16], dims: &[usize], name: &str) -> Result<Value, EncodeFault> {
    let element = match labels.iter().all(|&label| label <= 255) {
        true => ElementType::U8,
        false => ElementType::U16,
    };
    archived(
        Values::I64(labels.iter().map(|&label| label.into()).collect()),
        dims,
        element,
        name,
    )
}

impl ToBody for Segmentation3D {
    fn to_body(
        &self,
        _: BodyForm,
        timing: &BodyTiming,
        meta: Map<String, Value>,
    ) -> Result<Value, EncodeFault> {
        let n = self.label_ids.len();
        let scores = self.scores.clone();
        let scores = scores.map(|scores| {
            let n = scores.len();
            archived(Values::F32(scores), &[n], ElementType::F32, "scores")
        });
        let parts = vec![
            ("num_points", n.into()),
            ("labels", classes(&self.label_ids, &[n], "labels")?),
            ("class_names", json!(self.class_names[..])),
            ("class_counts", counts(&self.label_ids, &self.class_names)),
            ("scores", scores.transpose()?.unwrap_or(Value::Null)),
        ];
        Ok(body(&self.model, &self.frame_id, timing, meta, parts))
    }
}

/// A mask as PNG, or as an archive where that is asked for or a class is above 255.
fn mask_value(mask: &Mask2D, form: BodyForm) -> Result<Value, EncodeFault> {
    let [width, height] = mask.size_px();
    let bytes: Option<Vec<u8>> = mask
        .labels()
        .iter()
        .map(|&label| u8::try_from(label).ok())
        .collect();
    match (form, bytes) {
        (BodyForm::Json, Some(bytes)) => {
            let image = ImageRef::new(&bytes, width, height, width, PixelFormat::Mono8);
            match image {
                Ok(image) => Ok(encode_png_form(&image, "mask")?),
                // An image without pixels is no PNG.
                Err(_) => classes(mask.labels(), &[height, width], "mask"),
            }
        }
        _ => classes(mask.labels(), &[height, width], "mask"),
    }
}

impl ToBody for Mask2D {
    fn to_body(
        &self,
        form: BodyForm,
        timing: &BodyTiming,
        meta: Map<String, Value>,
    ) -> Result<Value, EncodeFault> {
        let parts = vec![
            ("mask", mask_value(self, form)?),
            ("class_names", json!(self.class_names[..])),
            ("class_counts", counts(self.labels(), &self.class_names)),
        ];
        Ok(body(&self.model, &self.frame_id, timing, meta, parts))
    }
}

impl ToBody for Trajectory {
    fn to_body(
        &self,
        form: BodyForm,
        timing: &BodyTiming,
        meta: Map<String, Value>,
    ) -> Result<Value, EncodeFault> {
        let row = |(at, pose): (usize, &[f32])| list(pose, &format!("body.trajectory[{at}]"));
        let rows: Result<Vec<Value>, NonFinite> = self.poses().enumerate().map(row).collect();
        let agents = self.predicted_agents.as_ref().map(predicted).transpose()?;
        let mut parts = vec![
            ("trajectory", rows?.into()),
            ("columns", json!(self.columns())),
            ("num_poses", self.poses().len().into()),
            ("turn_indicator", json!(self.turn_indicator)),
            ("predicted_agents", agents.unwrap_or(Value::Null)),
        ];
        if form == BodyForm::Npz {
            let dims = [self.poses().len(), self.columns().len()];
            let poses = Values::F32(self.poses().flatten().copied().collect());
            let arrays = json!({ "trajectory": archived(poses, &dims, ElementType::F32, "trajectory")? });
            parts.push(("arrays", arrays));
        }
        Ok(body(&self.model, &self.frame_id, timing, meta, parts))
    }
}

fn predicted(agents: &HostTensor) -> Result<Value, EncodeFault> {
    let values = crate::accuracy::metrics::values_of(agents);
    let values = Values::F32(values.iter().map(|&value| value as f32).collect());
    archived(values, &agents.shape()[..], ElementType::F32, "predicted_agents")
}
