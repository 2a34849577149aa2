//! What cannot be compared.

/// Why a metric has no value.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MetricError {
    /// Two arrays that must have one shape do not.
    #[error("{metric}: {what} has shape {found:?}, but {like} has {expected:?}")]
    Shapes {
        /// The metric.
        metric: &'static str,
        /// The array whose shape is wrong.
        what: &'static str,
        /// Its shape.
        found: Vec<usize>,
        /// The array that it is compared with.
        like: &'static str,
        /// The shape it must have.
        expected: Vec<usize>,
    },
    /// An array of another form than the metric is defined for.
    #[error("{metric}: {what} has shape {found:?}; it must be {expected}")]
    Form {
        /// The metric.
        metric: &'static str,
        /// The array.
        what: &'static str,
        /// Its shape.
        found: Vec<usize>,
        /// The shapes that are allowed.
        expected: &'static str,
    },
    /// Nothing to compare: empty arrays, or a mask or selection that leaves nothing.
    #[error("{metric}: there is nothing to compare: {reason}")]
    Nothing {
        /// The metric.
        metric: &'static str,
        /// Why not.
        reason: &'static str,
    },
    /// An argument or element outside what is allowed.
    #[error("{metric}: {what} is {value}; it must be {expected}")]
    Value {
        /// The metric.
        metric: &'static str,
        /// The argument or element.
        what: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        expected: String,
    },
    /// A mask given to a metric that has none, or missing where the metric is one of masked values.
    #[error("{metric}: {problem}")]
    Mask {
        /// The metric.
        metric: &'static str,
        /// What is wrong.
        problem: &'static str,
    },
}

/// Refuses two arrays of different shape.
pub(super) fn same_shape(metric: &'static str, [test, reference]: [&[usize]; 2]) -> Result<(), MetricError> {
    if test == reference {
        return Ok(());
    }
    Err(MetricError::Shapes {
        metric,
        what: "the result",
        found: test.to_vec(),
        like: "the reference",
        expected: reference.to_vec(),
    })
}
