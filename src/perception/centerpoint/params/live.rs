//! Parameters that may change while a model runs.

use super::keys::{self, Param};
use super::{CenterPointParams, check};
use crate::perception::param_file::{ParamError, ParamOrigin, distance};

/// A parameter that may change while a model runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuntimeParam {
    /// Score thresholds of every class in every distance bin: a number for all, or a list with one for every class.
    ScoreThresholds,
    /// Score thresholds of one class (its index): a number for all distance bins, or a list with one for each.
    ScoreThresholdsOf(usize),
    /// Metres.
    CircleNmsDistThreshold,
    /// Metres.
    IouNmsSearchDistance,
    /// 0 to 1.
    IouNmsThreshold,
    /// A number for all classes, or a list with one for each.
    YawNormThresholds,
}

/// What a live parameter is set to.
#[derive(Debug, Clone, PartialEq)]
pub enum RuntimeValue {
    /// One number.
    Number(f64),
    /// Several.
    List(Vec<f64>),
}

impl From<f64> for RuntimeValue {
    fn from(value: f64) -> Self {
        Self::Number(value)
    }
}

impl From<Vec<f64>> for RuntimeValue {
    fn from(values: Vec<f64>) -> Self {
        Self::List(values)
    }
}

/// Names of live parameters, the class of the last one left out.
const LIVE: [(&str, RuntimeParam); 7] = [
    (
        "post_process_params.score_threshold",
        RuntimeParam::ScoreThresholds,
    ),
    (
        "post_process_params.score_thresholds",
        RuntimeParam::ScoreThresholds,
    ),
    (Param::CircleNms.key(), RuntimeParam::CircleNmsDistThreshold),
    (Param::IouSearch.key(), RuntimeParam::IouNmsSearchDistance),
    (Param::IouThreshold.key(), RuntimeParam::IouNmsThreshold),
    (Param::YawNorm.key(), RuntimeParam::YawNormThresholds),
    (
        "model_params.yaw_norm_thresholds",
        RuntimeParam::YawNormThresholds,
    ),
];

impl RuntimeParam {
    /// The parameter of that name: as in Autoware's files, or its last part alone
    /// (`circle_nms_dist_threshold`, `min_confidence_scores.CAR`).
    ///
    /// # Errors
    /// [`ParamError::NotLive`] for names that only files say, [`ParamError::UnknownName`] for all others.
    pub fn parse(name: &str, class_names: &[String]) -> Result<Self, ParamError> {
        let short = |key: &'static str| key.rsplit('.').next().unwrap_or(key);
        if let Some((_, param)) = LIVE.iter().find(|(key, _)| name == *key || name == short(key)) {
            return Ok(*param);
        }
        let prefixes = [Param::Scores.key(), short(Param::Scores.key())];
        for prefix in prefixes {
            let Some(class) = name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('.')) else {
                continue;
            };
            let found = class_names.iter().position(|it| it == class);
            return found
                .map(Self::ScoreThresholdsOf)
                .ok_or_else(|| ParamError::UnknownName {
                    name: printable(name),
                    advice: format!("the classes are {}", printable(&class_names.join(", "))),
                });
        }
        if keys::find(name).is_some() || keys::is_last_name(name) {
            return Err(ParamError::NotLive {
                name: printable(name),
            });
        }
        let nearest = LIVE
            .iter()
            .filter_map(|(key, _)| Some((distance(name, key)?, key)))
            .min_by_key(|(distance, _)| *distance);
        let advice = match nearest {
            Some((_, key)) => format!("did you mean `{}`?", short(key)),
            None => {
                let names: Vec<&str> = LIVE[..6].iter().map(|(key, _)| short(key)).collect();
                format!(
                    "those that may change are {}, {}.<class>",
                    names.join(", "),
                    prefixes[1]
                )
            }
        };
        Err(ParamError::UnknownName {
            name: printable(name),
            advice,
        })
    }
}

/// Names come from outside, and messages go to terminals.
fn printable(name: &str) -> String {
    name.chars()
        .take(128)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

impl CenterPointParams {
    /// Changes one parameter of a running model. A value that is refused changes nothing.
    ///
    /// ```no_run
    /// # use sensorium::perception::centerpoint::{CenterPointParams, ParamError};
    /// # fn change(params: &mut CenterPointParams) -> Result<(), ParamError> {
    /// params.set("score_threshold", 0.4)?;
    /// params.set("min_confidence_scores.PEDESTRIAN", vec![0.3, 0.3, 0.4, 0.5])?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Self::validate`] and [`RuntimeParam::parse`]; [`ParamError::Length`] and [`ParamError::Value`] for values
    /// that cannot be, and [`ParamError::Type`] for a list where one number is expected.
    pub fn set(&mut self, name: &str, value: impl Into<RuntimeValue>) -> Result<(), ParamError> {
        self.validate()?;
        let param = RuntimeParam::parse(name, &self.class_names)?;
        let value = value.into();
        let mut changed = self.clone();
        let classes = self.class_names.len();
        match param {
            RuntimeParam::ScoreThresholds => {
                let row = value.spread(name, classes, "one for every class")?;
                changed.score_thresholds.fill(row);
            }
            RuntimeParam::ScoreThresholdsOf(class) => {
                let bins = changed.score_thresholds.len();
                let thresholds = value.spread(name, bins, "one for every distance bin")?;
                for (row, threshold) in changed.score_thresholds.iter_mut().zip(thresholds) {
                    row[class] = threshold;
                }
            }
            RuntimeParam::CircleNmsDistThreshold => {
                changed.circle_nms_dist_threshold_m = value.number(name)?
            }
            RuntimeParam::IouNmsSearchDistance => changed.iou_nms_search_distance_m = value.number(name)?,
            RuntimeParam::IouNmsThreshold => changed.iou_nms_threshold = value.number(name)?,
            RuntimeParam::YawNormThresholds => {
                changed.yaw_norm_thresholds = value.spread(name, classes, "one for every class")?;
            }
        }
        check::check(&changed, &check::Places::default())?;
        *self = changed;
        Ok(())
    }
}

impl RuntimeValue {
    fn number(self, name: &str) -> Result<f64, ParamError> {
        match self {
            Self::Number(value) => Ok(value),
            Self::List(values) => Err(ParamError::Type {
                at: ParamOrigin::Program,
                key: printable(name),
                found: format!("a list of {}", values.len()),
                expected: "one number".to_owned(),
            }),
        }
    }

    /// The list, or the number as often as is needed.
    fn spread(self, name: &str, count: usize, what: &str) -> Result<Vec<f64>, ParamError> {
        match self {
            Self::Number(value) => Ok(vec![value; count]),
            Self::List(values) if values.len() == count => Ok(values),
            Self::List(values) => Err(ParamError::Length {
                at: ParamOrigin::Program,
                key: printable(name),
                found: values.len(),
                expected: format!("{count}, {what}"),
            }),
        }
    }
}
