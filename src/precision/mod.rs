//! How exactly a network computes, and its switches.
//!
//! - [`Fidelity`], [`Precision`]: how a matrix engine multiplies and adds, as text and as values
//! - [`Math`]: the same as operations carry it, the device's own arithmetic among the choices
//! - [`MatrixOperand`]: which bits of an operand a pass reads
//! - [`PrecisionPolicy`]: which module computes how, by ordered rules, with an override from the environment
//! - [`Knobs`]: one switch for each optimisation, read once
//!
//! Plain data and text. The process environment is never read here: whoever owns the process hands in a look-up.
//!
//! May be called by every room below it; calls `numeric` and `tensor`.

mod error;
mod fidelity;
mod knob_values;
mod knobs;
mod math;
mod operand;
mod operand_format;
mod policy;
mod spec;

pub use error::PrecisionError;
pub use fidelity::{Fidelity, UnknownFidelity};
pub use knob_values::{KnobSource, KnobValue, KnobValues, parse_bool};
pub use knobs::{Knob, KnobError, Knobs};
pub use math::{Math, MatrixMath};
pub use operand::MatrixOperand;
pub use operand_format::{OperandFormat, UnknownOperandFormat};
pub use policy::{PrecisionPolicy, ResolvedModule};
pub use spec::{PRESETS, Precision, Preset};
