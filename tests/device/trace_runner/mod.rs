//! Warm-up, capture and replay through `TraceRunner`, on every device.

use crate::spy;
use crate::temporal_model as temporal;

mod failures;
mod inputs;
mod misuse;
mod order;
mod outputs;
mod random;
mod refusals;
mod replay;
mod states;
