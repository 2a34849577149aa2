//! Detections of two runs matched by their centres.

use serde::Serialize;

use super::greedy::greedy;
use super::{MetricError, Values};

const METRIC: &str = "match_detections";

/// Detections of one side.
#[derive(Debug, Clone, Copy)]
pub struct Centres<'a> {
    /// `[n, d]`: centres, or boxes that begin with their centre, in metres.
    pub centres: &'a Values,
    /// One a detection.
    pub labels: &'a [i64],
    /// One a detection.
    pub scores: &'a [f64],
}

/// What counts as the same object.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MatchOptions {
    /// Largest distance of two centres, in metres.
    pub max_dist: f64,
    /// Dimensions of the centre that count: 2 is seen from above.
    pub dims: usize,
    /// Only detections of one class are the same object.
    pub same_label: bool,
}

impl Default for MatchOptions {
    /// 0.5 m seen from above, of one class.
    fn default() -> Self {
        Self {
            max_dist: 0.5,
            dims: 2,
            same_label: true,
        }
    }
}

/// Which detections of a run are those of its reference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DetectionMatch {
    /// Index in the result, index in the reference; in the order in which they were matched.
    pub pairs: Vec<[usize; 2]>,
    /// Distance of the centres of every pair, in metres.
    pub center_errors: Vec<f64>,
    /// Difference of the scores of every pair, without sign.
    pub score_errors: Vec<f64>,
    /// Share of the reference that was matched; 1 where the reference is empty.
    pub recall: f64,
    /// Share of the result that was matched; 1 where the result is empty.
    pub precision: f64,
}

impl DetectionMatch {
    /// Number of pairs.
    #[must_use]
    pub const fn matched(&self) -> usize {
        self.pairs.len()
    }
}

/// Matches greedily: by falling score of the result (the earlier of equals first), each detection takes the nearest one
/// of the reference that is free, of its label and within the distance; of equally near ones the earlier. A detection
/// whose centre is not finite matches nothing.
///
/// # Errors
/// [`MetricError`] for centres that are not `[n, d]` with `d` of at least `dims`, other numbers of labels or scores, `dims`
/// of 0, and a distance that is negative or not finite.
pub fn match_detections(
    test: &Centres<'_>,
    reference: &Centres<'_>,
    options: &MatchOptions,
) -> Result<DetectionMatch, MetricError> {
    let refused = |what, value: String, expected: &str| MetricError::Value {
        metric: METRIC,
        what,
        value,
        expected: expected.into(),
    };
    if options.dims == 0 {
        return Err(refused("dims", "0".into(), "at least 1"));
    }
    if !(options.max_dist >= 0.0 && options.max_dist.is_finite()) {
        let value = options.max_dist.to_string();
        return Err(refused("max_dist", value, "a length that is not negative"));
    }
    check("centres of the result", test, options.dims)?;
    check("centres of the reference", reference, options.dims)?;

    let pairs = greedy(test.scores, reference.scores.len(), |t, r| {
        let distance = distance(test.centres, t, reference.centres, r, options.dims);
        let same = !options.same_label || test.labels[t] == reference.labels[r];
        (same && distance <= options.max_dist).then_some(distance)
    });
    let share = |all: usize| match all {
        0 => 1.0,
        all => pairs.len() as f64 / all as f64,
    };
    let score_error = |&([t, r], _): &([usize; 2], f64)| (test.scores[t] - reference.scores[r]).abs();
    Ok(DetectionMatch {
        recall: share(reference.labels.len()),
        precision: share(test.labels.len()),
        score_errors: pairs.iter().map(score_error).collect(),
        center_errors: pairs.iter().map(|(_, distance)| *distance).collect(),
        pairs: pairs.into_iter().map(|(pair, _)| pair).collect(),
    })
}

fn check(what: &'static str, side: &Centres<'_>, dims: usize) -> Result<(), MetricError> {
    let found = side.centres.shape();
    let &[count, columns] = found else {
        return Err(MetricError::Form {
            metric: METRIC,
            what,
            found: found.to_vec(),
            expected: "[n, d]",
        });
    };
    if columns < dims {
        return Err(MetricError::Value {
            metric: METRIC,
            what: "dims",
            value: dims.to_string(),
            expected: format!("at most {columns}, the columns of the {what}"),
        });
    }
    for (name, length) in [("labels", side.labels.len()), ("scores", side.scores.len())] {
        if length != count {
            return Err(MetricError::Shapes {
                metric: METRIC,
                what: name,
                found: vec![length],
                like: what,
                expected: vec![count],
            });
        }
    }
    Ok(())
}

fn distance(a: &Values, i: usize, b: &Values, j: usize, dims: usize) -> f64 {
    let squares = (0..dims).map(|dim| (a[[i, dim]] - b[[j, dim]]).powi(2));
    squares.sum::<f64>().sqrt()
}
