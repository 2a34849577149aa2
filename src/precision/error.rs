//! What can be wrong with a precision as text.

use super::UnknownOperandFormat;

/// Why a text is no precision, or no rule of a policy. Each says what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrecisionError {
    /// Neither a fidelity nor a preset in front.
    #[error(
        "`{text}` begins with neither a fidelity (LoFi, HiFi2, HiFi3, HiFi4) nor a preset (accurate, balanced, fast)"
    )]
    Head {
        /// The text.
        text: String,
    },
    /// Nothing says how products are computed.
    #[error(
        "`{text}` names no fidelity: begin with LoFi, HiFi2, HiFi3, HiFi4 or a preset (accurate, balanced, fast)"
    )]
    NoFidelity {
        /// The text.
        text: String,
    },
    /// A `+word` that means nothing.
    #[error("`{text}`: `+{flag}` is not an option: expected +fp32, +approx, +l1acc or +fullsync")]
    Flag {
        /// The text.
        text: String,
        /// The word.
        flag: String,
    },
    /// A `:key=value` with an unknown key, or without a value.
    #[error("`{text}`: `:{field}` is not a setting: expected :w=FORMAT (weights) or :a=FORMAT (activations)")]
    Field {
        /// The text.
        text: String,
        /// The part.
        field: String,
    },
    /// Something said twice.
    #[error("`{text}` says `{what}` twice")]
    Twice {
        /// The text.
        text: String,
        /// What.
        what: String,
    },
    /// A format that weights do not have.
    #[error("`{text}`: {source}")]
    Weights {
        /// The text.
        text: String,
        /// What was written.
        source: UnknownOperandFormat,
    },
    /// A type that activations do not have.
    #[error("`{text}`: activations are not stored as `{found}`: expected bf16 (bfloat16) or fp32 (float32)")]
    Activations {
        /// The text.
        text: String,
        /// What was written.
        found: String,
    },
    /// A rule without a pattern or without a precision.
    #[error("rule `{rule}`: expected PATTERN=PRECISION, for example `backbone.*=HiFi2+fp32:w=bfp8`")]
    Rule {
        /// The rule.
        rule: String,
    },
    /// A pattern that cannot be read.
    #[error("pattern `{pattern}`: {reason}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An environment variable that holds no valid override.
    #[error("{variable}: {source}")]
    Environment {
        /// The variable.
        variable: String,
        /// What is wrong with its value.
        source: Box<PrecisionError>,
    },
}
