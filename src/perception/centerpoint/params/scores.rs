//! Score thresholds, in the four forms that they have had.

use super::given::Given;
use super::keys::Param;
use super::load::Merged;
use crate::perception::param_file::{ParamError, ParamOrigin};

/// Score thresholds by distance and class.
pub(super) struct Scores {
    pub(super) limits_m: Vec<f64>,
    /// For every bin every class.
    pub(super) thresholds: Vec<Vec<f64>>,
    /// Where the limits stand, and under which key.
    pub(super) limits_place: Option<(ParamOrigin, String)>,
    /// The same of the thresholds of every class.
    pub(super) places: Vec<(ParamOrigin, String)>,
}

impl Scores {
    /// One threshold everywhere.
    pub(super) fn of_all(threshold: f64, classes: usize) -> Self {
        Self {
            limits_m: vec![f64::INFINITY],
            thresholds: vec![vec![threshold; classes]],
            limits_place: None,
            places: Vec::new(),
        }
    }
}

/// The newest form in which the files say thresholds; `None` where they say none. Older forms beside it give a
/// warning.
pub(super) fn read(merged: &mut Merged, classes: &[String]) -> Result<Option<Scores>, ParamError> {
    let has = |param| merged.of_classes(param).next().is_some();
    let forms = [
        [Param::Limits, Param::Scores],
        [Param::Bounds, Param::ScoresByBounds],
        [Param::ScoreOfClasses, Param::ScoreOfClasses],
        [Param::ScoreOfAll, Param::ScoreOfAll],
    ];
    let mut present = forms
        .into_iter()
        .filter(|form| form.iter().any(|&param| has(param)));
    let Some(newest) = present.next() else {
        // Files of 2023 say none and mean the default of their code; all others must say them.
        return if merged.is_flat() {
            Ok(None)
        } else {
            Err(merged.missing(Param::Limits, None))
        };
    };
    let mut warnings = Vec::new();
    for given in present
        .flatten()
        .filter_map(|param| merged.of_classes(param).next())
    {
        let warning = format!(
            "{}: `{}` is an older form of `{}`, which is there too and holds",
            given.origin(),
            given.key,
            newest[0].key(),
        );
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
    let scores = match newest {
        [Param::ScoreOfAll, _] => of_all(merged.get(Param::ScoreOfAll), classes)?,
        [Param::ScoreOfClasses, _] => of_classes(merged.get(Param::ScoreOfClasses), classes)?,
        [limits, thresholds] => {
            for given in merged.of_classes(thresholds) {
                if !classes.iter().any(|class| class == given.last_name()) {
                    warnings.push(format!(
                        "{}: `{}` is not used: the model has no such class, only {}",
                        given.origin(),
                        given.key,
                        classes.join(", ").escape_debug(),
                    ));
                }
            }
            Some(by_distance(merged, limits, thresholds, classes)?)
        }
    };
    merged.warnings.append(&mut warnings);
    Ok(scores)
}

fn of_all(given: Option<&Given>, classes: &[String]) -> Result<Option<Scores>, ParamError> {
    given
        .map(|given| {
            let mut scores = Scores::of_all(given.number()?, classes.len());
            scores.places = vec![(given.origin(), given.key.clone()); classes.len()];
            Ok(scores)
        })
        .transpose()
}

fn of_classes(given: Option<&Given>, classes: &[String]) -> Result<Option<Scores>, ParamError> {
    given
        .map(|given| {
            let thresholds = given.numbers()?;
            if thresholds.len() != classes.len() {
                return Err(ParamError::Length {
                    at: given.origin(),
                    key: given.key.clone(),
                    found: thresholds.len(),
                    expected: format!("{}, one for every class", classes.len()),
                });
            }
            Ok(Scores {
                thresholds: vec![thresholds],
                places: vec![(given.origin(), given.key.clone()); classes.len()],
                ..Scores::of_all(0.0, 0)
            })
        })
        .transpose()
}

fn by_distance(
    merged: &Merged,
    limits: Param,
    thresholds: Param,
    classes: &[String],
) -> Result<Scores, ParamError> {
    let limits = merged.get(limits).ok_or_else(|| merged.missing(limits, None))?;
    let limits_m = limits.numbers()?;
    let mut by_class = Vec::with_capacity(classes.len());
    let mut places = Vec::with_capacity(classes.len());
    for class in classes {
        let given = merged
            .of_class(thresholds, class)
            .ok_or_else(|| merged.missing(thresholds, Some(class)))?;
        let values = given.numbers()?;
        if values.len() != limits_m.len() {
            return Err(ParamError::Length {
                at: given.origin(),
                key: given.key.clone(),
                found: values.len(),
                expected: format!("{}, one for every bin of `{}`", limits_m.len(), limits.key),
            });
        }
        by_class.push(values);
        places.push((given.origin(), given.key.clone()));
    }
    let bins = 0..limits_m.len();
    Ok(Scores {
        thresholds: bins
            .map(|bin| by_class.iter().map(|class| class[bin]).collect())
            .collect(),
        limits_place: Some((limits.origin(), limits.key.clone())),
        limits_m,
        places,
    })
}
