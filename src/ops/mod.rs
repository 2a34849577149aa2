//! Checked launches of single operations on device tensors, and the way of host data to them.
//!
//! May be called by every room below it; calls `device`, `precision` and `tensor`.

pub mod attention;
pub mod conv;
pub mod deform;
pub mod gather;
pub mod heatmap;
mod interpolation;
mod matrix;
pub mod pool;
mod port_rule;
mod refusal;
mod resize2d;
mod results;
pub mod segment;
mod staging;
pub mod topk;
mod typecast;
mod upsample;

pub use interpolation::{Interpolation, InterpolationError, interp_matrix, resize_matrices};
pub use matrix::{LayerNormOptions, MatMulOptions};
pub use port_rule::PortRule;
pub use refusal::OpRefusal;
pub use resize2d::{Resize2d, Resize2dSpec};
pub use staging::{HostStaging, StagingError};
pub use upsample::upsample_nearest;

use std::time::Duration;

use crate::device::{BufferClass, BufferId, Cq, Device, DeviceError, OpDesc, Operand, moment_after};
use crate::tensor::{DType, HostTensor, TensorSpec, View};

/// A tensor on a device: a buffer and how it is seen. Holding one keeps nothing alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceTensor {
    /// Where the elements lie.
    pub buffer: BufferId,
    /// Element type of the buffer.
    pub dtype: DType,
    /// Window onto the buffer.
    pub view: View,
}

impl DeviceTensor {
    /// The whole of a row-major buffer.
    #[must_use]
    pub fn whole(buffer: BufferId, spec: &TensorSpec) -> Self {
        Self {
            buffer,
            dtype: spec.dtype,
            view: View::contiguous(spec.shape),
        }
    }

    /// What an [`OpDesc`] needs to know of it.
    #[must_use]
    pub const fn operand(&self) -> Operand {
        Operand {
            dtype: self.dtype,
            view: self.view,
        }
    }
}

/// A device and the queue on which operations are launched.
pub struct OpContext<'a> {
    /// The device.
    pub device: &'a mut dyn Device,
    /// The queue.
    pub cq: Cq,
}

impl std::fmt::Debug for OpContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpContext({}, {})", self.device.caps().backend, self.cq)
    }
}

impl<'a> OpContext<'a> {
    /// Operations on one queue of a device.
    pub fn new(device: &'a mut dyn Device, cq: Cq) -> Self {
        Self { device, cq }
    }

    /// Reserves a row-major tensor. Contents are undefined.
    ///
    /// # Errors
    /// As [`Device::alloc`].
    pub fn alloc(&mut self, spec: &TensorSpec, class: BufferClass) -> Result<DeviceTensor, DeviceError> {
        let buffer = self.device.alloc(spec, class)?;
        Ok(DeviceTensor::whole(buffer, spec))
    }

    /// Returns a tensor's memory.
    ///
    /// # Errors
    /// As [`Device::free`].
    pub fn free(&mut self, tensor: &DeviceTensor) -> Result<(), DeviceError> {
        self.device.free(tensor.buffer)
    }

    /// Compiles an operation (once; later calls find it) and launches it on bound buffers.
    ///
    /// # Errors
    /// As [`Device::compile`] and [`Device::launch`].
    pub fn run(&mut self, op: &OpDesc, buffers: &[BufferId]) -> Result<(), DeviceError> {
        let program = self.device.compile(op)?;
        self.device.launch(self.cq, program, buffers)
    }

    /// Moves elements between tensors of one shape, converting the type.
    ///
    /// # Errors
    /// As [`OpContext::run`]; [`DeviceError::InvalidOp`] if the shapes differ.
    pub fn copy(&mut self, src: &DeviceTensor, dst: &DeviceTensor) -> Result<(), DeviceError> {
        let op = OpDesc::Copy {
            src: src.operand(),
            dst: dst.operand(),
        };
        if src.view.shape != dst.view.shape {
            return Err(DeviceError::InvalidOp {
                op: op.name(),
                reason: format!(
                    "source {} and destination {} differ",
                    src.view.shape, dst.view.shape
                ),
            });
        }
        self.run(&op, &[src.buffer, dst.buffer])
    }

    /// Stores a constant on the device. The transfer is enqueued on the context's queue.
    ///
    /// # Errors
    /// As [`Device::alloc`], [`Device::host_slot`] and [`Device::write`]; nothing stays allocated.
    pub fn upload(&mut self, values: &HostTensor, class: BufferClass) -> Result<DeviceTensor, DeviceError> {
        let bytes = values.bytes();
        let mut slot = self.device.host_slot(bytes.len())?;
        slot.bytes_mut()?.copy_from_slice(bytes);
        let tensor = self.alloc(values.spec(), class)?;
        if let Err(error) = self.device.write(self.cq, tensor.buffer, 0, &slot, bytes.len()) {
            self.free(&tensor)?;
            return Err(error);
        }
        Ok(tensor)
    }

    /// Waits for what the queue does to a tensor and returns it to the host, dense whatever the view.
    ///
    /// # Errors
    /// As [`Device::read`]; [`DeviceError::Timeout`] after the deadline; nothing stays allocated.
    pub fn download(&mut self, tensor: &DeviceTensor, deadline: Duration) -> Result<HostTensor, DeviceError> {
        if tensor.view.is_contiguous() {
            return self.download_dense(tensor, deadline);
        }
        let spec = TensorSpec::new(&tensor.view.shape, tensor.dtype)?;
        let dense = self.alloc(&spec, BufferClass::Intermediate)?;
        let copied = self.copy(tensor, &dense);
        let downloaded = copied.and_then(|()| self.download_dense(&dense, deadline));
        self.free(&dense)?;
        downloaded
    }

    fn download_dense(
        &mut self,
        tensor: &DeviceTensor,
        deadline: Duration,
    ) -> Result<HostTensor, DeviceError> {
        let mut host = HostTensor::zeros(TensorSpec::new(&tensor.view.shape, tensor.dtype)?);
        let bytes = host.bytes_mut();
        let mut slot = self.device.host_slot(bytes.len())?;
        let offset = tensor.view.offset * tensor.dtype.size_bytes();
        self.device
            .read(self.cq, tensor.buffer, offset, &mut slot, bytes.len())?;
        let done = self.device.record_event(self.cq)?;
        self.device.sync_event(done, moment_after(deadline))?;
        bytes.copy_from_slice(slot.bytes()?);
        Ok(host)
    }
}
