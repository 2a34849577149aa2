//! The records that switch a core's conversions to and from 8-bit floats on, as a list to be put before a
//! model's instructions.
//!
//! A data type code says which 8-bit float an operand is; range and saturation are set once, when a model is
//! loaded, by writes to control registers. [`fp8_preamble`] turns the policy of a container
//! ([`Fp8ConvConfig`], `kbin_fp8_conv_cfg_t`) into these writes for one engine, and a read of each register
//! window that it wrote, so that the writes have taken effect before the first instruction.
//!
//! Which registers, in which order, for which engine, and the constant bytes of the records are published and
//! fixed here. Where the registers are, how flags are packed into them, where a record holds its address and
//! value, and which architecture can do it all come from a [`RegisterLayout`]. [`AssumedLayout`] is one to
//! work with; its documentation says which of its numbers are published and which are made up.

mod config;
mod encoder;
mod engine;
mod layout;
mod records;

#[cfg(test)]
mod tests;

pub use config::{FP8_CONV_CONFIG_BYTES, Fp8ConfigError, Fp8ConvConfig};
pub use encoder::{Fp8EnableError, Preamble, fp8_preamble};
pub use engine::{ComputeEngine, EngineType};
pub use layout::{AssumedLayout, ControlFlags, LayoutError, RegisterLayout, Selector};
pub use records::{PreambleRecord, RECORD_BYTES, RecordFieldError, RecordFields};
