//! Conditions under which a benchmark fails: `p99>+5%`, `p99.9>80ms`, `drops>0.1%`.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a condition speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Metric {
    /// Median latency.
    #[serde(rename = "p50")]
    P50,
    /// 90th percentile of latency.
    #[serde(rename = "p90")]
    P90,
    /// 95th percentile of latency.
    #[serde(rename = "p95")]
    P95,
    /// 99th percentile of latency.
    #[serde(rename = "p99")]
    P99,
    /// 99.9th percentile of latency.
    #[serde(rename = "p99.9")]
    P999,
    /// Largest latency.
    #[serde(rename = "max")]
    Max,
    /// Mean latency.
    #[serde(rename = "mean")]
    Mean,
    /// Results a second.
    #[serde(rename = "throughput")]
    Throughput,
    /// Share of frames that did not come out.
    #[serde(rename = "drops")]
    Drops,
    /// Share of results after their deadline.
    #[serde(rename = "misses")]
    Misses,
    /// Highest rate that the pipeline keeps up with.
    #[serde(rename = "peak")]
    Peak,
}

/// What a value of a metric is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Latency,
    Rate,
    Share,
}

impl Metric {
    /// Every metric.
    pub const ALL: [Self; 11] = [
        Self::P50,
        Self::P90,
        Self::P95,
        Self::P99,
        Self::P999,
        Self::Max,
        Self::Mean,
        Self::Throughput,
        Self::Drops,
        Self::Misses,
        Self::Peak,
    ];

    /// The word that a condition uses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P95 => "p95",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
            Self::Max => "max",
            Self::Mean => "mean",
            Self::Throughput => "throughput",
            Self::Drops => "drops",
            Self::Misses => "misses",
            Self::Peak => "peak",
        }
    }

    /// The share that a percentile is of.
    #[must_use]
    pub const fn share(self) -> Option<f64> {
        match self {
            Self::P50 => Some(0.5),
            Self::P90 => Some(0.9),
            Self::P95 => Some(0.95),
            Self::P99 => Some(0.99),
            Self::P999 => Some(0.999),
            _ => None,
        }
    }

    const fn kind(self) -> Kind {
        match self {
            Self::Throughput | Self::Peak => Kind::Rate,
            Self::Drops | Self::Misses => Kind::Share,
            _ => Kind::Latency,
        }
    }

    /// Unit of its values: `us`, `hz`, or a `share` of 1.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self.kind() {
            Kind::Latency => "us",
            Kind::Rate => "hz",
            Kind::Share => "share",
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How a value stands to its limit where a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// Above it.
    Above,
    /// At or above it.
    AtLeast,
    /// Below it.
    Below,
    /// At or below it.
    AtMost,
}

impl Operator {
    /// Whether a value stands so to a limit.
    #[must_use]
    pub fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Self::Above => value > limit,
            Self::AtLeast => value >= limit,
            Self::Below => value < limit,
            Self::AtMost => value <= limit,
        }
    }

    /// Of an interval, the end at which the operator holds last.
    #[must_use]
    pub fn hardest(self, [low, high]: [f64; 2]) -> f64 {
        match self {
            Self::Above | Self::AtLeast => low,
            Self::Below | Self::AtMost => high,
        }
    }
}

/// What a value is held against.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// A change of the value since the earlier result, as a share: 0.05 is 5 % more.
    Change(f64),
    /// A value in the unit of the metric.
    Value(f64),
}

/// A condition under which a benchmark fails.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// As it was written.
    pub text: String,
    /// What it speaks of.
    pub metric: Metric,
    /// How the value stands to the limit.
    pub operator: Operator,
    /// What it is held against.
    pub limit: Limit,
}

/// A condition that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// No `>`, `>=`, `<` or `<=`.
    #[error("expected METRIC, then one of > >= < <=, then a limit, such as p99>+5%")]
    NoOperator,
    /// A metric that is none.
    #[error(
        "there is no metric `{0}`; the metrics are p50, p90, p95, p99, p99.9, max, mean, throughput, drops, misses and peak"
    )]
    UnknownMetric(String),
    /// A limit that is no number.
    #[error("`{0}` is no limit: expected a change such as +5%, or {1}")]
    NoLimit(String, &'static str),
    /// A limit without a sign where the percentage could be a share or a change.
    #[error(
        "`{0}` is no limit of {1}: a change has a sign (+5% or -5%), and a value has a unit, such as {2}"
    )]
    Unit(String, Metric, &'static str),
}

/// A value of a kind, for error messages.
const fn example(kind: Kind) -> &'static str {
    match kind {
        Kind::Latency => "a latency such as 80ms",
        Kind::Rate => "a rate such as 30hz",
        Kind::Share => "a share such as 0.1%",
    }
}

impl FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let at = compact.find(['<', '>']).ok_or(ConditionError::NoOperator)?;
        let (name, rest) = compact.split_at(at);
        let operators = [
            (">=", Operator::AtLeast),
            ("<=", Operator::AtMost),
            (">", Operator::Above),
            ("<", Operator::Below),
        ];
        let found = operators
            .iter()
            .find_map(|(sign, operator)| Some((*operator, rest.strip_prefix(sign)?)));
        let (operator, limit) = found.ok_or(ConditionError::NoOperator)?;
        let metric = Metric::ALL
            .into_iter()
            .find(|metric| metric.name() == name)
            .ok_or_else(|| ConditionError::UnknownMetric(name.to_owned()))?;
        Ok(Self {
            text: compact.clone(),
            metric,
            operator,
            limit: limit_of(metric, limit)?,
        })
    }
}

fn limit_of(metric: Metric, text: &str) -> Result<Limit, ConditionError> {
    let kind = metric.kind();
    let number = |digits: &str| {
        let value = digits.parse::<f64>().ok().filter(|value| value.is_finite());
        value.ok_or_else(|| ConditionError::NoLimit(text.to_owned(), example(kind)))
    };
    let signed = text.starts_with(['+', '-']);
    if let Some(digits) = text.strip_suffix('%') {
        return match (signed, kind) {
            (true, _) => Ok(Limit::Change(number(digits)? / 100.0)),
            (false, Kind::Share) => Ok(Limit::Value(number(digits)? / 100.0)),
            (false, _) => {
                number(digits)?;
                Err(ConditionError::Unit(text.to_owned(), metric, example(kind)))
            }
        };
    }
    let units: &[(&str, f64)] = match kind {
        Kind::Latency => &[("us", 1.0), ("ms", 1e3), ("s", 1e6)],
        Kind::Rate => &[("hz", 1.0), ("fps", 1.0)],
        Kind::Share => &[],
    };
    let with_unit = units
        .iter()
        .find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)));
    match with_unit {
        Some((digits, scale)) if !signed => Ok(Limit::Value(number(digits)? * scale)),
        _ => {
            let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            number(digits)?;
            Err(ConditionError::Unit(text.to_owned(), metric, example(kind)))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;

    #[test]
    fn conditions_say_metric_operator_and_limit() {
        let read = |text: &str| {
            let condition: Condition = text.parse().unwrap();
            (condition.metric, condition.operator, condition.limit)
        };
        assert_eq!(
            read("p99>+5%"),
            (Metric::P99, Operator::Above, Limit::Change(0.05))
        );
        assert_eq!(
            read("p99.9 >= 80 ms"),
            (Metric::P999, Operator::AtLeast, Limit::Value(80_000.0))
        );
        assert_eq!(
            read("throughput<-2.5%"),
            (Metric::Throughput, Operator::Below, Limit::Change(-0.025))
        );
        assert_eq!(
            read("drops>0.1%"),
            (Metric::Drops, Operator::Above, Limit::Value(0.001))
        );
        assert_eq!(
            read("peak<=30hz"),
            (Metric::Peak, Operator::AtMost, Limit::Value(30.0))
        );
        assert_eq!(read("max>2s"), (Metric::Max, Operator::Above, Limit::Value(2e6)));
        assert_eq!(
            read("mean<900us"),
            (Metric::Mean, Operator::Below, Limit::Value(900.0))
        );
    }

    #[test]
    fn what_is_no_condition_is_told_with_what_would_be() {
        let told = |text: &str| text.parse::<Condition>().unwrap_err().to_string();
        assert!(told("p99").contains("one of > >= < <="));
        assert!(told("p98>+5%").contains("no metric `p98`"));
        assert!(told("p99>5%").contains("+5% or -5%"), "{}", told("p99>5%"));
        assert!(told("p99>80").contains("80ms"));
        assert!(told("p99>fast").contains("no limit"));
        assert!(told("drops>3ms").contains("0.1%"));
        assert!(told("p99>+80ms").contains("+5% or -5%"));
        assert!(told("p99>nan%").contains("no limit"));
        assert!(told("").contains("such as p99>+5%"));
    }
}
