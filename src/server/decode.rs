//! From a request to a frame.

use std::time::{SystemTime, UNIX_EPOCH};

use super::answers::ProblemPlace;
use super::engine::{Frame, ModelFacts, PastSweep, SweepFrame};
use super::options::{ServeOptions, ServiceFacts};
use super::problem::Problem;
use super::request::{PredictRequest, StreamForm, SweepForm};
use crate::io::forms::{
    BodyForm, CameraRules, ImageLimits, PointLimits, PointsForm, decode_cameras, decode_named_arrays,
    parse_transform, shown,
};
use crate::perception::{CallParams, CallValue, Sensor};

/// Columns of a sweep.
const COLUMNS: [&str; 4] = ["x", "y", "z", "intensity"];
/// Most characters of a stream's name.
const MAX_STREAM_CHARS: usize = 128;
/// Most characters of a coordinate frame's name.
const MAX_FRAME_CHARS: usize = 256;
/// Most parts of the path to a problem that are told.
const MAX_LOC_PARTS: usize = 16;
/// Seconds that fit into nanoseconds of 64 bits.
const MAX_TIMESTAMP_S: f64 = 9.2e9;
/// Earliest that an earlier sweep may be, in seconds before the request's.
const MAX_LAG_S: f64 = 3600.0;

/// What an engine needs of a request.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) frame: Frame,
    pub(super) stream: String,
    pub(super) stamp_ns: i64,
    pub(super) world_from_sensor: Option<[f64; 16]>,
    pub(super) reset: bool,
    pub(super) last: bool,
    pub(super) frame_id: String,
    pub(super) params: Vec<(&'static str, CallValue)>,
    pub(super) form: BodyForm,
    /// Points that were left out, where there are points.
    pub(super) dropped: Option<usize>,
}

/// The request in a body.
pub(super) fn parse(bytes: &[u8]) -> Result<PredictRequest, Problem> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let request = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        // Names of fields are the caller's.
        let path = error.path().iter().take(MAX_LOC_PARTS);
        let path = path.map(|part| shown(&part.to_string()));
        let loc = std::iter::once("body".to_owned()).chain(path).collect();
        place(loc, error.inner())
    })?;
    json.end()
        .map_err(|error| place(vec!["body".to_owned()], &error))?;
    Ok(request)
}

fn place(loc: Vec<String>, error: &serde_json::Error) -> Problem {
    let kind = if error.is_data() { "schema" } else { "json" };
    // Messages quote what came in.
    let msg = error
        .to_string()
        .chars()
        .filter(|c| !c.is_control())
        .take(512)
        .collect();
    Problem::Schema(ProblemPlace {
        loc,
        msg,
        kind: kind.to_owned(),
    })
}

/// The frame of a request, for a model.
pub(super) fn decode(
    request: PredictRequest,
    facts: &ModelFacts,
    options: &ServeOptions,
    service: &ServiceFacts,
) -> Result<Decoded, Problem> {
    let params = CallParams::check_json(&facts.params, &request.params);
    let params = params.map_err(|error| Problem::Input(format!("params: {error}")))?;
    let params = params.iter().map(|(name, value)| (name, value.clone())).collect();
    let stream = request.stream.as_ref();
    let id = stream.map_or("", |stream| stream.id.as_str());
    check_name(
        stream.map(|stream| stream.id.as_str()),
        "stream.id",
        MAX_STREAM_CHARS,
    )?;
    check_name(request.frame_id.as_deref(), "frame_id", MAX_FRAME_CHARS)?;
    one_input(&request, facts.sensor)?;
    let (stamp_ns, world_from_sensor) = taken(stream)?;
    let (frame, said, dropped) = if let Some(inputs) = &request.inputs {
        let arrays = decode_named_arrays(inputs, &facts.schema, "inputs", options.max_body_bytes)?;
        (Frame::Arrays(arrays), None, None)
    } else if let Some(points) = &request.points {
        let limits = PointLimits {
            max_points: options.max_points,
            max_bytes: options.max_body_bytes,
            ..PointLimits::default()
        };
        let table = points.decode("points", &limits)?;
        check_name(table.frame_id.as_deref(), "points.frame_id", MAX_FRAME_CHARS)?;
        let sweep = SweepFrame {
            columns: columns(&table, "points")?,
            past: past(&request.sweeps, stream.is_some(), facts, &limits)?,
        };
        (Frame::Sweep(sweep), table.frame_id, Some(table.dropped))
    } else {
        let rules = CameraRules {
            limits: ImageLimits {
                max_side_px: options.max_side_px,
                max_bytes: options.max_body_bytes,
            },
            ..CameraRules::default()
        };
        let calibration = request.calibration.as_ref();
        let images = decode_cameras(&request.images, calibration, &service.presets, rules)?;
        let image = images.into_iter().next();
        // `one_input` saw that there is one.
        let image = image.ok_or_else(|| Problem::Input("images: missing: expected one image".to_owned()))?;
        (Frame::Image(image.image), image.camera, None)
    };
    let default_frame = match facts.sensor {
        Sensor::Camera => "camera",
        Sensor::Lidar | Sensor::Set => "base_link",
    };
    Ok(Decoded {
        frame,
        stream: id.to_owned(),
        stamp_ns,
        world_from_sensor,
        reset: stream.is_some_and(|stream| stream.reset),
        last: stream.is_some_and(|stream| stream.last),
        frame_id: request
            .frame_id
            .or(said)
            .unwrap_or_else(|| default_frame.to_owned()),
        params,
        form: request.output_format.unwrap_or_default(),
        dropped,
    })
}

/// The field of a request that a model's input is in. Models of other sensors are not opened.
pub(super) fn input_of(sensor: Sensor) -> &'static str {
    match sensor == Sensor::Camera {
        true => "images",
        false => "points",
    }
}

/// Whether a request has exactly the input that a model takes.
fn one_input(request: &PredictRequest, sensor: Sensor) -> Result<(), Problem> {
    let given = [
        ("points", request.points.is_some()),
        ("images", !request.images.is_empty()),
        ("inputs", request.inputs.is_some()),
    ];
    let wanted = input_of(sensor);
    let input = |text: String| Err(Problem::Input(text));
    let mut there = given.iter().filter(|(_, there)| *there).map(|(name, _)| *name);
    let first = there.next();
    if let Some(second) = there.next() {
        return input(format!(
            "{second}: not expected beside {}: a frame is one of both",
            first.unwrap_or(wanted)
        ));
    }
    match first {
        None => return input(format!("{wanted}: missing: the model takes {sensor}")),
        Some(name) if name != wanted && name != "inputs" => {
            return input(format!(
                "{name}: not expected: the model takes {sensor}, as `{wanted}` or `inputs`"
            ));
        }
        Some(_) => {}
    }
    if request.images.len() > 1 {
        return input(format!(
            "images: {} images; the model takes one",
            request.images.len()
        ));
    }
    if !request.sweeps.is_empty() && first != Some("points") {
        return input("sweeps: not expected without `points`".to_owned());
    }
    if request.calibration.is_some() && first != Some("images") {
        return input("calibration: not expected without `images`".to_owned());
    }
    Ok(())
}

/// When and where a frame was taken.
fn taken(stream: Option<&StreamForm>) -> Result<(i64, Option<[f64; 16]>), Problem> {
    let now = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
    };
    let Some(stream) = stream else {
        return Ok((now(), None));
    };
    let pose = stream.world_from_sensor.as_ref();
    let pose = pose
        .map(|form| parse_transform(&form.0, "stream.T_world_from_sensor"))
        .transpose()?;
    let stamp_ns = match (stream.stamp_ns, stream.timestamp_s) {
        (Some(_), Some(_)) => {
            return Err(Problem::Input(
                "stream.timestamp_s: not expected beside `stamp_ns`".to_owned(),
            ));
        }
        (stamp_ns, None) => stamp_ns.unwrap_or_else(now),
        (None, Some(at_s)) if at_s.abs() < MAX_TIMESTAMP_S => (at_s * 1e9).round() as i64,
        (None, Some(at_s)) => {
            return Err(Problem::Input(format!(
                "stream.timestamp_s: {at_s}; expected less than {MAX_TIMESTAMP_S} s either way"
            )));
        }
    };
    Ok((stamp_ns, pose))
}

/// Earlier sweeps, oldest first.
fn past(
    sweeps: &[SweepForm],
    in_stream: bool,
    facts: &ModelFacts,
    limits: &PointLimits<'_>,
) -> Result<Vec<PastSweep>, Problem> {
    if sweeps.is_empty() {
        return Ok(Vec::new());
    }
    let input = |text: String| Err(Problem::Input(text));
    if in_stream {
        return input("sweeps: not expected beside `stream`: the service keeps those of a stream".to_owned());
    }
    if sweeps.len() > facts.past_sweeps {
        return input(match facts.past_sweeps {
            0 => "sweeps: the model looks at one sweep alone".to_owned(),
            most => format!("sweeps: {} sweeps; the model adds {most}", sweeps.len()),
        });
    }
    let mut past = Vec::with_capacity(sweeps.len());
    for (at, sweep) in sweeps.iter().enumerate() {
        let field = format!("sweeps[{at}]");
        if !(sweep.time_lag_s > 0.0 && sweep.time_lag_s <= MAX_LAG_S) {
            return input(format!(
                "{field}.time_lag_s: {}; expected above 0, at most {MAX_LAG_S} s",
                sweep.time_lag_s
            ));
        }
        let points: &PointsForm = &sweep.points;
        let table = points.decode(&format!("{field}.points"), limits)?;
        past.push(PastSweep {
            columns: columns(&table, &format!("{field}.points"))?,
            lag_ns: (sweep.time_lag_s * 1e9) as i64,
            ref_from_sweep: parse_transform(&sweep.ref_from_sweep.0, &format!("{field}.T_ref_from_sweep"))?,
        });
    }
    past.sort_by_key(|sweep| std::cmp::Reverse(sweep.lag_ns));
    Ok(past)
}

/// The columns that models take; a missing intensity is 0.
fn columns(table: &crate::io::forms::PointTable, field: &str) -> Result<[Vec<f32>; 4], Problem> {
    let mut all = table.select(&COLUMNS[..3], None, field)?;
    all.extend(table.select(&COLUMNS[3..], Some(0.0), field)?);
    // One such number would spread over the whole of a network's output.
    if all.iter().flatten().any(|value| !value.is_finite()) {
        return Err(Problem::Input(format!("{field}: an intensity is not finite")));
    }
    let columns: Result<[Vec<f32>; 4], _> = all.try_into();
    // Four names were asked for.
    columns.map_err(|_| Problem::Failed("columns of points are missing".to_owned()))
}

fn check_name(name: Option<&str>, field: &str, most: usize) -> Result<(), Problem> {
    let fits = |name: &str| {
        let chars = name.chars().count();
        (1..=most).contains(&chars) && !name.chars().any(char::is_control)
    };
    match name.is_none_or(fits) {
        true => Ok(()),
        false => Err(Problem::Input(format!(
            "{field}: expected 1 to {most} characters, none a control character"
        ))),
    }
}
