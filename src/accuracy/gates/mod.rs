//! Thresholds that a result must keep, and that nobody lowers by accident.
//!
//! A [`Gate`] is a threshold of a metric with the side that is good. A [`GateRegistry`] keeps the gates of a test in a file
//! beside it: a gate is frozen when it first passes, a looser declaration is refused from then on, a tighter one takes its
//! place once it passes. To loosen a gate somebody edits the file, which a review sees.

mod error;
mod gate;
mod registry;
mod spec;

pub use error::GateError;
pub use gate::Gate;
pub use registry::{GATES_READONLY_VARIABLE, GateRegistry, GateResult, GatesWrite};
pub use spec::{GateSpec, NamedGate, gates_of, parse_gates};
