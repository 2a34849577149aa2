//! Host memory that pre-processing writes and a device uploads from.
//!
//! In this room because a staging buffer is a device's host slots, which `tensor` does not know, and because whoever
//! prepares data, with a trace or without one, comes after it.

use ndarray::ArrayViewMutD;

use crate::device::{Device, DeviceError, HostSlot};
use crate::tensor::{CastError, DType, Element, Layout, TensorSpec, cast_into};

/// What is wrong with a write to a [`HostStaging`]. The data of the last write is still there, and the next write may
/// succeed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StagingError {
    /// No slots asked for.
    #[error("a staging buffer needs at least one slot")]
    NoSlots,
    /// A layout that host code does not write.
    #[error("a staging buffer is row-major, not in {0} layout")]
    Layout(Layout),
    /// The slot whose turn it is has not been given back.
    #[error(
        "staging slot {slot} of {count} still belongs to the device: wait for the event recorded after its upload, or \
         open the staging buffer with more slots"
    )]
    OnLoan {
        /// The slot.
        slot: usize,
        /// How many there are.
        count: usize,
    },
    /// A view of another type than the buffer holds.
    #[error("the staging buffer holds {expected}, not {found}; only write() converts")]
    DType {
        /// Type of the buffer.
        expected: DType,
        /// Type of the view.
        found: DType,
    },
    /// Values that do not fit the buffer.
    #[error("staging {spec}: {source}")]
    Values {
        /// Type and shape of the buffer.
        spec: Box<TensorSpec>,
        /// What does not fit.
        source: Box<CastError>,
    },
    /// The device has no memory for slots.
    #[error(transparent)]
    Device(Box<DeviceError>),
}

/// A row-major host tensor in memory that the device copies from, several times over: while the device still uploads one,
/// the next is written. Writes take the slots in turn.
#[derive(Debug)]
pub struct HostStaging {
    spec: TensorSpec,
    slots: Vec<HostSlot>,
    /// Slot of the last write.
    written: Option<usize>,
}

impl HostStaging {
    /// A staging buffer of `count` slots: one where every upload is waited for, two where the next tensor is prepared
    /// during the upload.
    ///
    /// # Errors
    /// [`StagingError::NoSlots`], [`StagingError::Layout`], [`StagingError::Device`].
    pub fn new(device: &mut dyn Device, spec: TensorSpec, count: usize) -> Result<Self, StagingError> {
        if count == 0 {
            return Err(StagingError::NoSlots);
        }
        if spec.layout != Layout::RowMajor {
            return Err(StagingError::Layout(spec.layout));
        }
        let slots: Result<Vec<_>, _> = (0..count).map(|_| device.host_slot(spec.bytes())).collect();
        Ok(Self {
            spec,
            slots: slots.map_err(|error| StagingError::Device(Box::new(error)))?,
            written: None,
        })
    }

    /// Shape and type of the tensor.
    #[must_use]
    pub const fn spec(&self) -> &TensorSpec {
        &self.spec
    }

    /// Number of slots.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.slots.len()
    }

    /// The slot of the last write; `None` before the first.
    #[must_use]
    pub fn slot(&self) -> Option<&HostSlot> {
        self.written.map(|slot| &self.slots[slot])
    }

    /// Whether the next write would be refused because its slot is on loan.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.slots[self.next_slot()].is_busy()
    }

    /// Copies values, in row-major order, into the next slot and returns it for an upload. Values of another type are
    /// converted on the way, as [`crate::tensor::HostTensor::cast`] does: fp32 to bf16 to nearest even, integers
    /// exactly.
    ///
    /// # Errors
    /// [`StagingError::OnLoan`]; [`StagingError::Values`] for another number of values than the shape has, or a value that
    /// the type does not have.
    pub fn write<T: Element>(&mut self, values: &[T]) -> Result<&HostSlot, StagingError> {
        let (next, dtype) = (self.next_slot(), self.spec.dtype);
        let written = cast_into(values, dtype, self.borrow(next)?);
        written.map_err(|source| StagingError::Values {
            spec: Box::new(self.spec),
            source: Box::new(source),
        })?;
        self.written = Some(next);
        Ok(&self.slots[next])
    }

    /// Lets a function write the next slot in place, and returns the slot for an upload. The view has the tensor's shape.
    /// It holds what an earlier write left, zeros at first: the function writes every element.
    ///
    /// # Errors
    /// [`StagingError::OnLoan`]; [`StagingError::DType`] if `T` is not the tensor's type.
    pub fn write_with<T: Element>(
        &mut self,
        fill: impl FnOnce(ArrayViewMutD<'_, T>),
    ) -> Result<&HostSlot, StagingError> {
        let (next, spec) = (self.next_slot(), self.spec);
        if T::DTYPE != spec.dtype {
            return Err(StagingError::DType {
                expected: spec.dtype,
                found: T::DTYPE,
            });
        }
        self.borrow(next)?;
        if self.written == Some(next) {
            // Half a tensor is none, should the function panic.
            self.written = None;
        }
        let places = bytemuck::cast_slice_mut(self.borrow(next)?);
        let found = places.len();
        let view = ArrayViewMutD::from_shape(&spec.shape[..], places).map_err(|_| StagingError::Values {
            spec: Box::new(spec),
            source: Box::new(CastError::Length {
                expected: spec.shape.elements(),
                found,
            }),
        })?;
        fill(view);
        self.written = Some(next);
        Ok(&self.slots[next])
    }

    /// Number of the slot that the next write takes, below [`HostStaging::count`].
    #[must_use]
    pub fn next_slot(&self) -> usize {
        self.written.map_or(0, |slot| (slot + 1) % self.slots.len())
    }

    fn borrow(&mut self, slot: usize) -> Result<&mut [u8], StagingError> {
        let count = self.slots.len();
        let bytes = self.slots[slot].bytes_mut();
        bytes.map_err(|_| StagingError::OnLoan { slot, count })
    }
}
