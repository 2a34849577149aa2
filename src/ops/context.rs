//! Running operations on a device.

use crate::device::{BufferClass, BufferId, Cq, Device, DeviceError, OpDesc, Operand};
use crate::tensor::{DType, TensorSpec, View};

/// A tensor in device memory: a buffer and how it is seen. Copying it copies the handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceTensor {
    /// The buffer.
    pub buffer: BufferId,
    /// Element type.
    pub dtype: DType,
    /// Window onto the buffer.
    pub view: View,
}

impl DeviceTensor {
    /// The whole of a buffer that was allocated for `spec`.
    #[must_use]
    pub fn contiguous(buffer: BufferId, spec: &TensorSpec) -> Self {
        Self {
            buffer,
            dtype: spec.dtype,
            view: View::contiguous(spec.shape),
        }
    }

    /// Type and view, as an operation describes them.
    #[must_use]
    pub const fn operand(&self) -> Operand {
        Operand {
            dtype: self.dtype,
            view: self.view,
        }
    }
}

/// A device and the queue that operations go to. The same calls run eagerly or are recorded, depending on
/// whether the queue is capturing.
pub struct OpContext<'a> {
    /// The device.
    pub device: &'a mut dyn Device,
    /// The queue.
    pub cq: Cq,
}

impl<'a> OpContext<'a> {
    /// Operations on one queue of a device.
    pub fn new(device: &'a mut dyn Device, cq: Cq) -> Self {
        Self { device, cq }
    }

    /// Allocates a row-major tensor.
    ///
    /// # Errors
    /// Those of [`Device::alloc`].
    pub fn alloc(&mut self, spec: &TensorSpec, class: BufferClass) -> Result<DeviceTensor, DeviceError> {
        Ok(DeviceTensor::contiguous(self.device.alloc(spec, class)?, spec))
    }

    /// Frees a tensor's buffer.
    ///
    /// # Errors
    /// Those of [`Device::free`].
    pub fn free(&mut self, tensor: DeviceTensor) -> Result<(), DeviceError> {
        self.device.free(tensor.buffer)
    }

    /// Compiles an operation (or finds its program) and launches it on `buffers`, in the order that
    /// [`OpDesc`] states.
    ///
    /// # Errors
    /// Those of [`Device::compile`] and [`Device::launch`].
    pub fn run(&mut self, op: &OpDesc, buffers: &[BufferId]) -> Result<(), DeviceError> {
        let program = self.device.compile(op)?;
        self.device.launch(self.cq, program, buffers)
    }

    /// Moves elements, converting the type: see [`OpDesc::Copy`].
    ///
    /// # Errors
    /// Those of [`OpContext::run`].
    pub fn copy(&mut self, src: DeviceTensor, dst: DeviceTensor) -> Result<(), DeviceError> {
        self.run(
            &OpDesc::Copy {
                src: src.operand(),
                dst: dst.operand(),
            },
            &[src.buffer, dst.buffer],
        )
    }
}

impl std::fmt::Debug for OpContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpContext")
            .field("cq", &self.cq)
            .finish_non_exhaustive()
    }
}
