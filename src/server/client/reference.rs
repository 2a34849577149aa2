//! An answer beside a stored one of the same input.

use std::collections::BTreeMap;
use std::f64::consts::{PI, TAU};
use std::path::{Path, PathBuf};

use ndarray::{Array2, ArrayD};
use serde_json::Value;

use crate::accuracy::metrics::{ade_fde, greedy, overlap};
use crate::image::decode_image;
use crate::io::forms::{ArrayForm, decode_array, decode_base64};
use crate::weights::{Array, Values};

/// Most bytes of an array of an answer.
const MAX_ARRAY_BYTES: usize = 1 << 30;

/// What is measured, by name.
pub type Metrics = BTreeMap<String, f64>;

/// What an answer has to keep to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gates {
    /// Longest distance of the centres of two boxes in space that are the same, in metres, seen from above.
    pub max_center_dist: f64,
    /// Largest difference of the heights of the centres of a pair, in metres.
    pub max_height_err: f64,
    /// Largest difference of a side of a pair of boxes in space, in metres.
    pub max_size_err: f64,
    /// Largest difference of the headings of a pair, in radians, around the circle.
    pub max_yaw_err: f64,
    /// Largest difference of an edge of a pair of boxes in an image, in pixels; `None`: it is only told.
    pub max_box_err: Option<f64>,
    /// Least overlap of two boxes in an image that are the same.
    pub min_iou: f64,
    /// Least share of the reference that is there.
    pub min_recall: f64,
    /// Least share of the answer that is in the reference.
    pub min_precision: f64,
    /// Largest difference of the scores of a pair.
    pub max_score_err: f64,
    /// Least share of equal elements of an array of whole numbers.
    pub min_label_agreement: f64,
    /// Largest difference of an element of an array of floats; `None`: it is only told.
    pub max_abs_err: Option<f64>,
    /// Largest mean distance of a trajectory's positions.
    pub max_ade: f64,
    /// Largest distance of a trajectory's last positions.
    pub max_fde: f64,
}

impl Gates {
    /// What an answer in reduced precision keeps to.
    pub const DEFAULT: Self = Self {
        max_center_dist: 0.5,
        max_height_err: 0.5,
        max_size_err: 0.5,
        max_yaw_err: 0.2,
        max_box_err: None,
        min_iou: 0.5,
        min_recall: 0.95,
        min_precision: 0.95,
        max_score_err: 0.05,
        min_label_agreement: 0.99,
        max_abs_err: None,
        max_ade: 0.5,
        max_fde: 1.0,
    };
}

impl Default for Gates {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A gate that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no gate `{0}`; there are max_center_dist, max_height_err, max_size_err, max_yaw_err, max_box_err, min_iou, \
     min_recall, min_precision, max_score_err, min_label_agreement, max_abs_err, max_ade, max_fde"
)]
pub struct UnknownGate(pub String);

impl Gates {
    /// Sets a gate by its name.
    ///
    /// # Errors
    /// [`UnknownGate`].
    pub fn set(&mut self, name: &str, value: f64) -> Result<(), UnknownGate> {
        let gate = match name {
            "max_center_dist" => &mut self.max_center_dist,
            "max_height_err" => &mut self.max_height_err,
            "max_size_err" => &mut self.max_size_err,
            "max_yaw_err" => &mut self.max_yaw_err,
            "max_box_err" => self.max_box_err.insert(value),
            "min_iou" => &mut self.min_iou,
            "min_recall" => &mut self.min_recall,
            "min_precision" => &mut self.min_precision,
            "max_score_err" => &mut self.max_score_err,
            "min_label_agreement" => &mut self.min_label_agreement,
            "max_abs_err" => self.max_abs_err.insert(value),
            "max_ade" => &mut self.max_ade,
            "max_fde" => &mut self.max_fde,
            _ => return Err(UnknownGate(name.to_owned())),
        };
        *gate = value;
        Ok(())
    }
}

/// The first that exists of `<stem>.<key>.reference.json`, in the order of the keys, and `<stem>.reference.json`, beside a
/// sample.
#[must_use]
pub fn find_reference(sample: &Path, keys: &[&str]) -> Option<PathBuf> {
    let stem = sample.file_stem()?.to_str()?;
    let named = keys
        .iter()
        .filter(|key| !key.is_empty())
        .map(|key| format!("{stem}.{key}.reference.json"));
    let mut names = named.chain([format!("{stem}.reference.json")]);
    names.find_map(|name| Some(sample.with_file_name(name)).filter(|path| path.is_file()))
}

/// Measures an answer against a stored one, by what the stored one has, and says what does not keep to the gates:
///
/// - `model` and `frame_id` are equal;
/// - `detections` are matched by label, in falling order of the reference's score, each with what is nearest: boxes in space by
///   the distance of their centres, boxes in an image by their overlap; the heights, sizes and headings of pairs, as far as
///   the reference has them, are compared, too;
/// - `trajectory` by its columns x and y, each side's where its own `columns` say;
/// - every encoded array by its elements: whole numbers by the share of equal ones, floats by the largest difference, where
///   equal infinities agree and NaN agrees with nothing.
///
/// What cannot be read is a failure, and so is a reference that has nothing of this but names.
#[must_use]
pub fn compare_with_reference(body: &Value, reference: &Value, gates: &Gates) -> (Metrics, Vec<String>) {
    let mut told = Told::default();
    for name in ["model", "frame_id"] {
        if let Some(expected) = reference.get(name)
            && body.get(name) != Some(expected)
        {
            let found = body.get(name).unwrap_or(&Value::Null);
            told.failures
                .push(format!("{name} is {found}, the reference has {expected}"));
        }
    }
    if let Some(expected) = reference.get("detections") {
        told.compared = true;
        match (rows(body.get("detections")), rows(Some(expected))) {
            (Ok(found), Ok(expected)) => detections(&found, &expected, gates, &mut told),
            (found, expected) => {
                told.failures
                    .extend(found.err().map(|error| format!("detections: {error}")));
                told.failures.extend(
                    expected
                        .err()
                        .map(|error| format!("detections of the reference: {error}")),
                );
            }
        }
    }
    if reference.get("trajectory").is_some_and(Value::is_array) {
        told.compared = true;
        if let Err(error) = trajectory(body, reference, gates, &mut told) {
            told.failures.push(format!("trajectory: {error}"));
        }
    }
    arrays(body, reference, "", gates, &mut told);
    if !told.compared {
        let reason =
            "nothing was compared: the reference has no detections, no trajectory and no encoded array";
        told.failures.push(reason.to_owned());
    }
    (told.metrics, told.failures)
}

#[derive(Debug, Default)]
struct Told {
    /// Whether the reference has anything beside names.
    compared: bool,
    metrics: Metrics,
    failures: Vec<String>,
}

impl Told {
    fn at_least(&mut self, name: &str, value: f64, least: f64) {
        self.metrics.insert(name.to_owned(), value);
        if value.is_nan() || value < least {
            self.failures.push(format!("{name} {value:.4} is below {least}"));
        }
    }

    fn at_most(&mut self, name: &str, value: f64, most: f64) {
        self.metrics.insert(name.to_owned(), value);
        if value.is_nan() || value > most {
            self.failures.push(format!("{name} {value:.4} is above {most}"));
        }
    }
}

/// One detection of a body.
#[derive(Debug)]
struct Row {
    label: String,
    score: f64,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Space(Space),
    Box([f64; 4]),
}

/// A box in space, as far as it is told.
#[derive(Debug)]
struct Space {
    centre: [f64; 2],
    height: Option<f64>,
    size: Option<[f64; 3]>,
    yaw: Option<f64>,
}

fn rows(value: Option<&Value>) -> Result<Vec<Row>, String> {
    let items = value.and_then(Value::as_array).ok_or("they are no list")?;
    let row = |(at, item): (usize, &Value)| {
        let numbers = |name: &str| -> Option<Vec<f64>> {
            let items = item.get(name)?.as_array()?;
            items.iter().map(Value::as_f64).collect()
        };
        let place = match (numbers("center").as_deref(), numbers("box_xyxy").as_deref()) {
            (Some(&[x, y, ref rest @ ..]), None) => Some(Place::Space(Space {
                centre: [x, y],
                height: rest.first().copied(),
                size: numbers("size").and_then(|size| size.try_into().ok()),
                yaw: item.get("yaw").and_then(Value::as_f64),
            })),
            (None, Some(&[left, top, right, bottom])) => Some(Place::Box([left, top, right, bottom])),
            _ => None,
        };
        let label = item.get("label").and_then(Value::as_str);
        let score = item.get("score").and_then(Value::as_f64);
        match (label, score, place) {
            (Some(label), Some(score), Some(place)) => Ok(Row {
                label: label.to_owned(),
                score,
                place,
            }),
            _ => Err(format!("row {at} has no label, score, and center or box_xyxy")),
        }
    };
    items.iter().enumerate().map(row).collect()
}

fn detections(found: &[Row], expected: &[Row], gates: &Gates, told: &mut Told) {
    let scores: Vec<f64> = expected.iter().map(|row| row.score).collect();
    let pairs = greedy(&scores, found.len(), |one, other| {
        let (one, other) = (&expected[one], &found[other]);
        if one.label != other.label {
            return None;
        }
        match (&one.place, &other.place) {
            (Place::Space(a), Place::Space(b)) => {
                let distance = (a.centre[0] - b.centre[0]).hypot(a.centre[1] - b.centre[1]);
                (distance <= gates.max_center_dist).then_some(distance)
            }
            (Place::Box(a), Place::Box(b)) => {
                let iou = overlap(*a, *b);
                (iou >= gates.min_iou).then_some(1.0 - iou)
            }
            _ => None,
        }
    });
    let share = |all: usize| {
        if all == 0 {
            1.0
        } else {
            pairs.len() as f64 / all as f64
        }
    };
    told.at_least("recall", share(expected.len()), gates.min_recall);
    told.at_least("precision", share(found.len()), gates.min_precision);
    let difference =
        |([one, other], _): &([usize; 2], f64)| (expected[*one].score - found[*other].score).abs();
    told.at_most(
        "score_err_max",
        pairs.iter().map(difference).fold(0.0, f64::max),
        gates.max_score_err,
    );
    let places = pairs
        .iter()
        .map(|([one, other], _)| (&expected[*one].place, &found[*other].place));
    for (name, gate, error) in PLACE_ERRORS {
        let errors = places
            .clone()
            .filter_map(|(expected, found)| error(expected, found));
        // A part that the answer lacks is NaN, which no maximum keeps.
        let most = errors.reduce(|a, b| if a.is_nan() || a > b { a } else { b });
        let Some(most) = most else { continue };
        match gate(gates) {
            Some(gate) => told.at_most(name, most, gate),
            None => drop(told.metrics.insert(name.to_owned(), most)),
        }
    }
    told.metrics.insert("detections".to_owned(), found.len() as f64);
    told.metrics
        .insert("detections_reference".to_owned(), expected.len() as f64);
}

/// A difference of a pair of boxes: its name, its gate, and how it is measured; NaN where only the reference has it.
type PlaceError = (
    &'static str,
    fn(&Gates) -> Option<f64>,
    fn(&Place, &Place) -> Option<f64>,
);

const PLACE_ERRORS: [PlaceError; 4] = [
    (
        "height_err_max",
        |gates| Some(gates.max_height_err),
        |expected, found| {
            let (expected, found) = in_space(expected, found)?;
            Some((expected.height? - found.height.unwrap_or(f64::NAN)).abs())
        },
    ),
    (
        "size_err_max",
        |gates| Some(gates.max_size_err),
        |expected, found| {
            let (expected, found) = in_space(expected, found)?;
            Some(largest(&expected.size?, &found.size.unwrap_or([f64::NAN; 3])))
        },
    ),
    (
        "yaw_err_max",
        |gates| Some(gates.max_yaw_err),
        |expected, found| {
            let (expected, found) = in_space(expected, found)?;
            let turned = (expected.yaw? - found.yaw.unwrap_or(f64::NAN)).rem_euclid(TAU);
            // The shorter way around; NaN stays what it is.
            Some(if turned > PI { TAU - turned } else { turned })
        },
    ),
    (
        "box_err_max",
        |gates| gates.max_box_err,
        |expected, found| match (expected, found) {
            (Place::Box(expected), Place::Box(found)) => Some(largest(expected, found)),
            _ => None,
        },
    ),
];

fn in_space<'a>(expected: &'a Place, found: &'a Place) -> Option<(&'a Space, &'a Space)> {
    match (expected, found) {
        (Place::Space(expected), Place::Space(found)) => Some((expected, found)),
        _ => None,
    }
}

/// The largest difference of two rows of numbers; NaN where one is.
fn largest(one: &[f64], other: &[f64]) -> f64 {
    let differences = one.iter().zip(other).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, |a: f64, b| if a.is_nan() || a > b { a } else { b })
}

fn trajectory(body: &Value, reference: &Value, gates: &Gates, told: &mut Told) -> Result<(), String> {
    let found = positions(body)?;
    let expected = positions(reference).map_err(|error| format!("of the reference: {error}"))?;
    let errors = ade_fde(&found, &expected, 2).map_err(|error| error.to_string())?;
    told.at_most("ade", errors.ade, gates.max_ade);
    told.at_most("fde", errors.fde, gates.max_fde);
    Ok(())
}

/// x and y of every pose of a body.
fn positions(body: &Value) -> Result<ArrayD<f64>, String> {
    let columns = body.get("columns").and_then(Value::as_array);
    let columns = columns.ok_or("its `columns` are no list")?;
    let column = |name: &str| {
        let at = columns.iter().position(|column| column.as_str() == Some(name));
        at.ok_or_else(|| format!("its `columns` have no `{name}`"))
    };
    let columns = [column("x")?, column("y")?];
    let rows = body.get("trajectory").and_then(Value::as_array);
    let rows = rows.ok_or("it is no list")?;
    let mut flat = Vec::with_capacity(2 * rows.len());
    for row in rows {
        for at in columns {
            let value = row.get(at).and_then(Value::as_f64);
            flat.push(value.ok_or("a pose has no x and y")?);
        }
    }
    let rows = Array2::from_shape_vec((rows.len(), 2), flat);
    Ok(rows.map_err(|error| error.to_string())?.into_dyn())
}

/// Compares every encoded array of the reference with the one at the same place.
fn arrays(body: &Value, reference: &Value, path: &str, gates: &Gates, told: &mut Told) {
    let Some(entries) = reference.as_object() else {
        return;
    };
    if entries.contains_key("encoding") && entries.contains_key("data") {
        told.compared = true;
        match (decoded(body), decoded(reference)) {
            (Ok(found), Ok(expected)) => array(&found, &expected, path, gates, told),
            (found, expected) => {
                told.failures
                    .extend(found.err().map(|error| format!("{path}: {error}")));
                told.failures.extend(
                    expected
                        .err()
                        .map(|error| format!("{path} of the reference: {error}")),
                );
            }
        }
        return;
    }
    for (name, expected) in entries {
        let path = match path {
            "" => name.clone(),
            path => format!("{path}.{name}"),
        };
        arrays(
            body.get(name).unwrap_or(&Value::Null),
            expected,
            &path,
            gates,
            told,
        );
    }
}

fn decoded(value: &Value) -> Result<Array, String> {
    if value.get("encoding").and_then(Value::as_str) == Some("png") {
        let data = value
            .get("data")
            .and_then(Value::as_str)
            .ok_or("it has no data")?;
        let bytes = decode_base64(data, "data", MAX_ARRAY_BYTES).map_err(|error| error.to_string())?;
        let image = decode_image(&bytes).map_err(|error| error.to_string())?;
        let channels = image.format().channels();
        let dims = [image.height(), image.width(), channels];
        let dims = if channels == 1 { &dims[..2] } else { &dims[..] };
        let shape = crate::tensor::Shape::new(dims).map_err(|error| error.to_string())?;
        let values = Values::I64(image.data().iter().map(|&value| value.into()).collect());
        let array = Array::new(shape, crate::weights::ElementType::U8, values);
        return array.ok_or_else(|| "its pixels are not as many as its size says".to_owned());
    }
    let form: ArrayForm = serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
    decode_array(&form, "array", MAX_ARRAY_BYTES).map_err(|error| error.to_string())
}

fn array(found: &Array, expected: &Array, path: &str, gates: &Gates, told: &mut Told) {
    if found.shape() != expected.shape() {
        let (found, expected) = (&found.shape()[..], &expected.shape()[..]);
        told.failures.push(format!(
            "{path} has shape {found:?}, the reference has {expected:?}"
        ));
        return;
    }
    let floats = |values: &Values| -> Option<Vec<f64>> {
        match values {
            Values::F32(values) => Some(values.iter().map(|&v| v.into()).collect()),
            Values::F64(values) => Some(values.clone()),
            Values::I64(_) => None,
        }
    };
    match (found.values(), expected.values()) {
        (Values::I64(found), Values::I64(expected)) => {
            let equal = found.iter().zip(expected).filter(|(a, b)| a == b).count();
            let share = if expected.is_empty() {
                1.0
            } else {
                equal as f64 / expected.len() as f64
            };
            told.at_least(&format!("{path}.agreement"), share, gates.min_label_agreement);
        }
        (found, expected) => {
            let (Some(found), Some(expected)) = (floats(found), floats(expected)) else {
                told.failures
                    .push(format!("{path} has whole numbers on one side alone"));
                return;
            };
            let mut most = 0.0_f64;
            for (a, b) in found.iter().zip(&expected) {
                let difference = if a == b { 0.0 } else { (a - b).abs() };
                if difference.is_nan() {
                    told.failures.push(format!("{path} has a NaN"));
                    return;
                }
                most = most.max(difference);
            }
            let name = format!("{path}.max_abs_err");
            match gates.max_abs_err {
                Some(gate) => told.at_most(&name, most, gate),
                None => drop(told.metrics.insert(name, most)),
            }
        }
    }
}
