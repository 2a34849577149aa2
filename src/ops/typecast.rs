//! Element types on the device.

use super::{DeviceTensor, OpContext};
use crate::device::{BufferClass, BufferId, DeviceError};
use crate::tensor::{DType, HostTensor, TensorError, TensorSpec};

impl OpContext<'_> {
    /// The tensor with elements of another type: a new dense tensor of class [`BufferClass::Intermediate`], which the
    /// caller frees; or the tensor itself, and no operation, where that is the type it has. The two cases differ in
    /// [`DeviceTensor::buffer`]. Integers stay what they are or saturate, and never go through a float; floats are
    /// rounded to nearest even.
    ///
    /// # Errors
    /// As [`OpContext::alloc`] and [`OpContext::copy`]; nothing stays allocated.
    pub fn typecast(&mut self, tensor: &DeviceTensor, dtype: DType) -> Result<DeviceTensor, DeviceError> {
        self.typecast_to_class(tensor, dtype, BufferClass::Intermediate)
    }

    /// [`OpContext::typecast`] to fp32.
    ///
    /// # Errors
    /// As [`OpContext::typecast`].
    pub fn to_f32(&mut self, tensor: &DeviceTensor) -> Result<DeviceTensor, DeviceError> {
        self.typecast(tensor, DType::F32)
    }

    /// [`OpContext::typecast`] to bf16.
    ///
    /// # Errors
    /// As [`OpContext::typecast`].
    pub fn to_bf16(&mut self, tensor: &DeviceTensor) -> Result<DeviceTensor, DeviceError> {
        self.typecast(tensor, DType::Bf16)
    }

    /// Stores bytes on the device and widens them there, so that one byte an element is transferred. Exact: types that
    /// do not hold every value from 0 to 255 are refused. This is for work outside of traces; in a variant, keep the
    /// bytes as the input and let [`OpContext::typecast`] be the first operation.
    ///
    /// # Errors
    /// [`TensorError::DTypeMismatch`] for a tensor of another type than uint8, [`DeviceError::InvalidOp`] for a type that
    /// is refused; as [`OpContext::upload`]; nothing stays allocated.
    pub fn upload_u8(
        &mut self,
        values: &HostTensor,
        dtype: DType,
        class: BufferClass,
    ) -> Result<DeviceTensor, DeviceError> {
        if values.dtype() != DType::U8 {
            return Err(DeviceError::Tensor(TensorError::DTypeMismatch {
                expected: DType::U8,
                found: values.dtype(),
            }));
        }
        if dtype == DType::U8 {
            return self.upload(values, class);
        }
        if dtype.size_bytes() == 1 {
            return Err(DeviceError::InvalidOp {
                op: "upload_u8",
                reason: format!("{dtype} does not hold every value from 0 to 255"),
            });
        }
        let bytes = self.upload(values, BufferClass::Intermediate)?;
        let widened = self.typecast_to_class(&bytes, dtype, class);
        self.free(&bytes)?;
        widened
    }

    /// Runs a function on fp32 copies of tensors and casts what it returns to `dtype`. Tensors that are fp32 already are
    /// handed over as they are; the copies are freed behind the function.
    ///
    /// What the function returns becomes the island's: tensors of its own (which are freed once they are cast), or some
    /// of those that it was given. The caller frees the result, but for tensors of its own that came through unchanged.
    ///
    /// # Errors
    /// The function's, and those of [`OpContext::typecast`]. The copies are freed; what the function itself holds when it
    /// fails is its own affair.
    pub fn fp32_island<E: From<DeviceError>>(
        &mut self,
        tensors: &[DeviceTensor],
        dtype: DType,
        island: impl FnOnce(&mut Self, &[DeviceTensor]) -> Result<Vec<DeviceTensor>, E>,
    ) -> Result<Vec<DeviceTensor>, E> {
        let outside: Vec<BufferId> = tensors.iter().map(|tensor| tensor.buffer).collect();
        let mut copies = Vec::with_capacity(tensors.len());
        let mut results = Vec::new();
        let mut casts = Vec::new();
        let outcome = self.through_fp32(tensors, dtype, island, [&mut copies, &mut results, &mut casts]);
        let mut kept = outside;
        let mut gone: Vec<BufferId> = copies
            .iter()
            .chain(&results)
            .map(|tensor| tensor.buffer)
            .collect();
        match &outcome {
            Ok(()) => kept.extend(casts.iter().map(|tensor| tensor.buffer)),
            Err(_) => gone.extend(casts.iter().map(|tensor| tensor.buffer)),
        }
        gone.sort_unstable();
        gone.dedup();
        let mut freed = Ok(());
        for buffer in gone.into_iter().filter(|buffer| !kept.contains(buffer)) {
            freed = freed.and(self.device.free(buffer));
        }
        outcome?;
        freed?;
        Ok(casts)
    }

    /// The steps of an island. What each made is in the lists, also after an error.
    fn through_fp32<E: From<DeviceError>>(
        &mut self,
        tensors: &[DeviceTensor],
        dtype: DType,
        island: impl FnOnce(&mut Self, &[DeviceTensor]) -> Result<Vec<DeviceTensor>, E>,
        [copies, results, casts]: [&mut Vec<DeviceTensor>; 3],
    ) -> Result<(), E> {
        for tensor in tensors {
            copies.push(self.to_f32(tensor)?);
        }
        results.extend(island(self, copies)?);
        for result in &*results {
            casts.push(self.typecast(result, dtype)?);
        }
        Ok(())
    }

    fn typecast_to_class(
        &mut self,
        tensor: &DeviceTensor,
        dtype: DType,
        class: BufferClass,
    ) -> Result<DeviceTensor, DeviceError> {
        if tensor.dtype == dtype {
            return Ok(*tensor);
        }
        let spec = TensorSpec::new(&tensor.view.shape, dtype)?;
        let cast = self.alloc(&spec, class)?;
        if let Err(error) = self.copy(tensor, &cast) {
            self.free(&cast)?;
            return Err(error);
        }
        Ok(cast)
    }
}
