//! Tensors out of their storages: places are held against the storage before memory is reserved.

use super::error::TorchTensorFault;
use super::value::{StorageRef, TensorRef};
use crate::tensor::Shape;
use crate::weights::widen::from_raw;
use crate::weights::{Array, ElementType};

/// Elements of a storage, little-endian.
#[derive(Debug, Clone)]
pub(super) struct Storage {
    pub(super) element: ElementType,
    pub(super) elements: usize,
    pub(super) bytes: Vec<u8>,
}

impl Storage {
    /// Takes the bytes of a storage, which must be as long as it says.
    pub(super) fn new(
        reference: &StorageRef,
        mut bytes: Vec<u8>,
        big_endian: bool,
    ) -> Result<Self, TorchTensorFault> {
        let needed = reference.element.bytes_of(reference.elements);
        if needed != Some(bytes.len()) {
            return Err(TorchTensorFault::Length {
                storage: reference.key.clone(),
                needed: needed.map_or(u64::MAX, |needed| needed as u64),
                found: bytes.len() as u64,
            });
        }
        if big_endian {
            let unit = reference.element.bits() / 8;
            bytes.chunks_exact_mut(unit).for_each(<[u8]>::reverse);
        }
        Ok(Self {
            element: reference.element,
            elements: reference.elements,
            bytes,
        })
    }
}

/// A tensor in row-major order, whatever its strides. `room` is how many elements more may be made.
pub(super) fn array(
    tensor: &TensorRef,
    storage: &Storage,
    room: &mut usize,
) -> Result<Array, TorchTensorFault> {
    let sizes = tensor
        .sizes
        .iter()
        .map(|&size| usize::try_from(size).unwrap_or(usize::MAX));
    let shape = Shape::new(&sizes.collect::<Vec<_>>())?;
    let outside = || TorchTensorFault::Outside {
        shape,
        strides: tensor.strides.clone(),
        offset: tensor.offset,
        elements: storage.elements,
    };
    let strides: Option<Vec<usize>> = tensor.strides.iter().map(|&s| usize::try_from(s).ok()).collect();
    let strides = strides.filter(|s| s.len() == shape.rank()).ok_or_else(outside)?;
    let offset = usize::try_from(tensor.offset).map_err(|_| outside())?;
    let last = shape
        .iter()
        .zip(&strides)
        .try_fold(offset, |place, (&size, &stride)| {
            place.checked_add(size.saturating_sub(1).checked_mul(stride)?)
        });
    let elements = shape.elements();
    if elements > 0 && last.is_none_or(|last| last >= storage.elements) {
        return Err(outside());
    }
    // Elements in their order follow each other in most tensors; others may repeat them.
    if elements > storage.elements {
        return Err(TorchTensorFault::Repeats);
    }
    *room = room.checked_sub(elements).ok_or(TorchTensorFault::Repeats)?;
    let element = storage.element;
    let unit = element.bits() / 8;
    let mut raw = Vec::with_capacity(elements * unit);
    let mut index = vec![0; shape.rank()];
    let mut place = offset;
    for _ in 0..elements {
        raw.extend_from_slice(&storage.bytes[place * unit..][..unit]);
        for axis in (0..shape.rank()).rev() {
            index[axis] += 1;
            place += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            place -= strides[axis] * shape[axis];
            index[axis] = 0;
        }
    }
    let refused = |value| TorchTensorFault::ValueRange { value, element };
    let values = from_raw(element, &raw, elements).map_err(refused)?;
    Array::new(shape, element, values).ok_or_else(outside)
}
