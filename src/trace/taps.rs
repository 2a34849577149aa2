//! Looking at values inside a variant's function.

use std::time::Duration;

use super::WorkError;
use crate::device::moment_after;
use crate::ops::{DeviceTensor, OpContext};
use crate::tensor::{HostTensor, TensorSpec, View};

/// Longest wait for a value.
const DEADLINE: Duration = Duration::from_secs(10);

/// Who looks at values inside the functions of variants ([`TraceContext::tap`](super::TraceContext::tap)).
///
/// Given to a runner with [`TraceRunner::set_taps`](super::TraceRunner::set_taps). Nobody looks during a warm-up, whose
/// values are of no meaning, and nobody can during a capture: a value that is wanted there is refused.
pub trait Taps: Send {
    /// Whether the value of this name is wanted. What is not is not read.
    fn wants(&self, name: &str) -> bool;

    /// Takes a value, dense and row-major.
    ///
    /// # Errors
    /// What the taps object to; the run fails with it.
    fn take(&mut self, name: &str, value: HostTensor) -> Result<(), WorkError>;
}

/// What a context knows of taps: who looks, and where in the network the function is.
pub(super) struct TapPoint<'a> {
    pub(super) taps: &'a mut dyn Taps,
    /// Prefixes of the scopes around, each with a dot behind it.
    pub(super) scope: String,
}

impl std::fmt::Debug for TapPoint<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TapPoint")
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

/// Waits for a value and brings it to the host, dense. The device reads the whole stretch of memory that the view touches
/// and the host picks: a copy on the device would need a program, which may not be compiled once traces exist.
pub(super) fn read_strided(ops: &mut OpContext<'_>, value: &DeviceTensor) -> Result<HostTensor, WorkError> {
    let mut host = HostTensor::zeros(TensorSpec::new(&value.view.shape, value.dtype)?);
    let Some((low, high)) = value.view.bounds() else {
        return Ok(host);
    };
    let size = value.dtype.size_bytes();
    // A view that reaches below the start of its buffer is nobody's value; the device refuses the offset.
    let first = usize::try_from(low).unwrap_or(usize::MAX / size);
    let bytes = (high - low + 1) as usize * size;
    let mut slot = ops.device.host_slot(bytes)?;
    ops.device
        .read(ops.cq, value.buffer, first * size, &mut slot, bytes)?;
    let done = ops.device.record_event(ops.cq)?;
    ops.device.sync_event(done, moment_after(DEADLINE))?;
    let source = slot.bytes()?;
    let places = host.bytes_mut().chunks_exact_mut(size);
    for (place, index) in places.zip(indices(&value.view)) {
        let at = (index - low) as usize * size;
        place.copy_from_slice(&source[at..at + size]);
    }
    Ok(host)
}

/// Element indices of a view in row-major order.
fn indices(view: &View) -> impl Iterator<Item = isize> + '_ {
    let dims = view.shape;
    (0..dims.elements()).map(move |number| {
        let mut rest = number;
        let steps = view.steps().iter().zip(dims.iter()).rev();
        steps.fold(view.offset as isize, |at, (step, dim)| {
            let position = rest % dim;
            rest /= dim;
            at + position as isize * step
        })
    })
}
