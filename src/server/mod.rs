//! The HTTP face: what a run tells whoever watches it.
//!
//! - [`observe`]: metrics, health and status of a run
//! - [`token`]: the secret that a client shows
//! - [`listen`]: addresses, and connections that are bounded in number and time
//!
//! Called by `cli`; calls every room above it.

pub mod listen;
pub mod observe;
pub mod token;
