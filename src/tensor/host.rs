//! Tensors in host memory.

use ndarray::ArrayViewD;

use super::{DType, Element, Shape, TensorError, TensorSpec};

/// One cache line; storage is a vector of these so that every host tensor starts on a 64-byte boundary.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// A row-major tensor in host memory, aligned to 64 bytes.
#[derive(Clone)]
pub struct HostTensor {
    spec: TensorSpec,
    lines: Vec<Line>,
}

impl HostTensor {
    /// A tensor of zeros.
    #[must_use]
    pub fn zeros(spec: TensorSpec) -> Self {
        Self {
            spec,
            lines: vec![Line([0; 64]); spec.bytes().div_ceil(64)],
        }
    }

    /// A tensor holding a copy of `values`.
    ///
    /// # Errors
    /// A shape that is refused, or whose element count differs from `values.len()`.
    pub fn from_slice<T: Element>(dims: &[usize], values: &[T]) -> Result<Self, TensorError> {
        let spec = TensorSpec::new(dims, T::DTYPE)?;
        let bytes: &[u8] = bytemuck::cast_slice(values);
        if bytes.len() != spec.bytes() {
            return Err(TensorError::LengthMismatch {
                expected: spec.bytes(),
                found: bytes.len(),
            });
        }
        let mut tensor = Self::zeros(spec);
        tensor.bytes_mut().copy_from_slice(bytes);
        Ok(tensor)
    }

    /// Shape, type and layout.
    #[must_use]
    pub const fn spec(&self) -> &TensorSpec {
        &self.spec
    }

    /// Dimensions, outermost first.
    #[must_use]
    pub const fn shape(&self) -> &Shape {
        &self.spec.shape
    }

    /// Element type.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        self.spec.dtype
    }

    /// The storage as bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.lines)[..self.spec.bytes()]
    }

    /// The storage as bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = self.spec.bytes();
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..bytes]
    }

    /// The elements in row-major order.
    ///
    /// # Errors
    /// [`TensorError::DTypeMismatch`] if the tensor holds another type than `T`.
    pub fn as_slice<T: Element>(&self) -> Result<&[T], TensorError> {
        if T::DTYPE != self.spec.dtype {
            return Err(TensorError::DTypeMismatch {
                expected: T::DTYPE,
                found: self.spec.dtype,
            });
        }
        Ok(bytemuck::cast_slice(self.bytes()))
    }

    /// The tensor as an n-dimensional array.
    ///
    /// # Errors
    /// [`TensorError::DTypeMismatch`] if the tensor holds another type than `T`.
    pub fn array<T: Element>(&self) -> Result<ArrayViewD<'_, T>, TensorError> {
        let values = self.as_slice::<T>()?;
        ArrayViewD::from_shape(&self.spec.shape[..], values).map_err(|_| TensorError::LengthMismatch {
            expected: self.spec.bytes(),
            found: self.bytes().len(),
        })
    }

    /// The elements in row-major order, to be written.
    ///
    /// # Errors
    /// [`TensorError::DTypeMismatch`] if the tensor holds another type than `T`.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T], TensorError> {
        if T::DTYPE != self.spec.dtype {
            return Err(TensorError::DTypeMismatch {
                expected: T::DTYPE,
                found: self.spec.dtype,
            });
        }
        Ok(bytemuck::cast_slice_mut(self.bytes_mut()))
    }
}

impl std::fmt::Debug for HostTensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HostTensor({})", self.spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_is_aligned_typed_and_indexed_by_its_dimensions() {
        let values: Vec<f32> = (0..6).map(|i| i as f32).collect();
        let tensor = HostTensor::from_slice(&[2, 3], &values).unwrap();
        assert_eq!(tensor.bytes().as_ptr().align_offset(64), 0);
        assert_eq!(tensor.array::<f32>().unwrap()[[1, 2]], 5.0);
        assert_eq!(
            tensor.array::<u8>().unwrap_err(),
            TensorError::DTypeMismatch {
                expected: DType::U8,
                found: DType::F32
            }
        );
        assert!(HostTensor::from_slice(&[4], &values).is_err());
    }
}
