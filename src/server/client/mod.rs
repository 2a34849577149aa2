//! The client that checks a service: it waits until the model is there, asks what it is, sends a frame, and holds the answer
//! against a stored one.

mod connection;
mod expect;
mod reference;
mod request;

pub use connection::{Client, ClientError, Reply};
pub use expect::{Expected, check_bad_request, check_service};
pub use reference::{Gates, Metrics, UnknownGate, compare_with_reference, find_reference};
pub use request::{RequestError, RequestParts, build_request};
