//! The HTTP face: what a run tells whoever watches it.
//!
//! - [`observe`]: metrics, health and status of a run, and changes to it
//!
//! Called by `cli`; calls every room above it.

pub mod observe;
