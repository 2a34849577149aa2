//! How a check ends.

use std::any::Any;
use std::fmt::{self, Debug, Display};
use std::panic::Location;

use crate::device::DeviceError;

/// How a check ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The promise holds.
    Passed,
    /// The device cannot do what the check is about; the reason.
    Skipped(String),
    /// The promise does not hold.
    Failed(Failure),
}

/// What was found instead of what was promised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What was found.
    pub what: String,
    /// Where in the suite that was.
    pub place: String,
}

impl Failure {
    #[track_caller]
    fn new(what: String) -> Self {
        let place = Location::caller();
        let file = place.file().rsplit(['/', '\\']).next().unwrap_or_default();
        Self {
            what,
            place: format!("conformance/{file}:{}", place.line()),
        }
    }

    /// The failure of a device that panicked.
    pub(super) fn of_panic(payload: &(dyn Any + Send)) -> Self {
        let text = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self::new(format!("it panicked: {}", text.unwrap_or("no message")))
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.what, self.place)
    }
}

/// A check that found what must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stop(pub(super) Failure);

impl From<DeviceError> for Stop {
    /// A call that had to succeed and did not.
    #[track_caller]
    fn from(error: DeviceError) -> Self {
        fail(format!("refused what has to work: {error}"))
    }
}

/// A failure here.
#[track_caller]
pub(super) fn fail(what: impl Into<String>) -> Stop {
    Stop(Failure::new(what.into()))
}

/// Fails with `what` unless `holds`.
#[track_caller]
pub(super) fn ensure(holds: bool, what: &str) -> Result<(), Stop> {
    if holds { Ok(()) } else { Err(fail(what)) }
}

/// Fails unless both are equal.
#[track_caller]
pub(super) fn equal<T: PartialEq + Debug>(what: &str, found: &T, expected: &T) -> Result<(), Stop> {
    if found == expected {
        return Ok(());
    }
    Err(fail(format!("{what}: expected {expected:?}, found {found:?}")))
}

/// Fails unless both hold the same bits.
#[track_caller]
pub(super) fn same_bits(what: &str, found: &[f32], expected: &[f32]) -> Result<(), Stop> {
    if found.len() != expected.len() {
        return Err(fail(format!(
            "{what}: expected {} values, found {}",
            expected.len(),
            found.len()
        )));
    }
    let differs = |&at: &usize| found[at].to_bits() != expected[at].to_bits();
    match (0..found.len()).find(differs) {
        None => Ok(()),
        Some(at) => Err(fail(format!(
            "{what}: element {at} should be {} and is {}",
            expected[at], found[at]
        ))),
    }
}

/// Leaves the check as failed unless the outcome is the named refusal.
macro_rules! refused {
    ($what:expr, $outcome:expr, $($refusal:tt)+) => {
        match $outcome {
            Err(DeviceError::$($refusal)+) => {}
            other => {
                let expected = stringify!($($refusal)+);
                return Err($crate::device::conformance::verdict::fail(format!(
                    "{}: expected the refusal {expected}, got {other:?}",
                    $what
                )));
            }
        }
    };
}
pub(super) use refused;
