//! Several outputs in one buffer: the device's half of [`crate::tensor::pack`].

use crate::device::{BufferClass, DeviceError, OpDesc, Operand, Scalar};
use crate::ops::{DeviceTensor, OpContext};
use crate::tensor::{PackError, PackLayout, PackOptions, Shape, TensorSpec, View};

/// Tensors that were packed into one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// All of them: row-major, of [`PackLayout::spec`].
    pub tensor: DeviceTensor,
    /// Where each lies, to unpack what was read.
    pub layout: PackLayout,
}

/// What goes wrong while packing.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PackOutputsError {
    /// Tensors that cannot be laid out.
    #[error("packing outputs: {0}")]
    Plan(#[from] PackError),
    /// Another number of tensors than the layout has entries.
    #[error("packing outputs: the layout was planned for {expected} tensors, {found} were given")]
    Count {
        /// Entries of the layout.
        expected: usize,
        /// Tensors given.
        found: usize,
    },
    /// A tensor that is not the one the layout was planned for.
    #[error("packing outputs: tensor {index} is {found}, the layout was planned for {expected}")]
    Mismatch {
        /// Position in the list.
        index: usize,
        /// Name, shape and type in the layout.
        expected: String,
        /// Name, shape and type given.
        found: String,
    },
    /// A target that is no dense buffer of the layout's type and size.
    #[error("packing outputs: the target must be a dense {expected}, found {found} with strides {strides:?}")]
    Target {
        /// What the layout needs.
        expected: Box<TensorSpec>,
        /// Type and shape of the target.
        found: String,
        /// Strides of the target.
        strides: Vec<isize>,
    },
    /// A tensor in the buffer that is packed into.
    #[error("packing outputs: {name} lies in the buffer that it would be packed into; pack into another one")]
    SameBuffer {
        /// The tensor.
        name: String,
    },
    /// The device refused or failed.
    #[error("packing outputs: {0}")]
    Device(Box<DeviceError>),
}

impl From<DeviceError> for PackOutputsError {
    fn from(error: DeviceError) -> Self {
        Self::Device(Box::new(error))
    }
}

/// Packs tensors of any strides into a new buffer of class [`BufferClass::Output`], by the rules of
/// [`crate::tensor::pack`], and returns it with its layout. The caller owns the buffer; in a variant it becomes an
/// output like any other.
///
/// # Errors
/// [`PackOutputsError`]; nothing stays allocated.
pub fn pack_outputs(
    ops: &mut OpContext<'_>,
    tensors: &[(&str, DeviceTensor)],
    options: &PackOptions,
) -> Result<Packed, PackOutputsError> {
    let specs: Vec<_> = tensors
        .iter()
        .map(|(name, tensor)| (*name, tensor.view.shape, tensor.dtype))
        .collect();
    let layout = PackLayout::plan(&specs, options)?;
    let tensor = ops.alloc(&layout.spec, BufferClass::Output)?;
    match pack_outputs_into(ops, tensors, &layout, &tensor) {
        Ok(()) => Ok(Packed { tensor, layout }),
        Err(error) => {
            // The first error is the better report.
            let _ = ops.free(&tensor);
            Err(error)
        }
    }
}

/// Packs tensors into a buffer that exists, for example a persistent output whose layout was planned before the capture.
/// One copy a tensor, which converts; places of no tensor are filled with zeros each time, for another variant may
/// have packed something else there.
///
/// # Errors
/// [`PackOutputsError`]; tensors and target are checked before the first launch.
pub fn pack_outputs_into(
    ops: &mut OpContext<'_>,
    tensors: &[(&str, DeviceTensor)],
    layout: &PackLayout,
    target: &DeviceTensor,
) -> Result<(), PackOutputsError> {
    check(tensors, layout, target)?;
    let place = |mut view: View| {
        view.offset += target.view.offset;
        Operand {
            dtype: target.dtype,
            view,
        }
    };
    for window in layout.padding() {
        let zeros = OpDesc::Fill {
            dst: place(window),
            value: Scalar::new(0.0),
        };
        ops.run(&zeros, &[target.buffer])?;
    }
    for ((_, tensor), entry) in tensors.iter().zip(&layout.entries) {
        let copy = OpDesc::Copy {
            src: tensor.operand(),
            dst: place(entry.window()),
        };
        ops.run(&copy, &[tensor.buffer, target.buffer])?;
    }
    Ok(())
}

fn check(
    tensors: &[(&str, DeviceTensor)],
    layout: &PackLayout,
    target: &DeviceTensor,
) -> Result<(), PackOutputsError> {
    if tensors.len() != layout.entries.len() {
        return Err(PackOutputsError::Count {
            expected: layout.entries.len(),
            found: tensors.len(),
        });
    }
    let text = |name: &str, shape: &Shape, dtype| format!("{name} ({dtype} {shape})");
    for (index, ((name, tensor), entry)) in tensors.iter().zip(&layout.entries).enumerate() {
        if (*name, tensor.view.shape, tensor.dtype) != (entry.name.as_str(), entry.shape, entry.dtype) {
            return Err(PackOutputsError::Mismatch {
                index,
                expected: text(&entry.name, &entry.shape, entry.dtype),
                found: text(name, &tensor.view.shape, tensor.dtype),
            });
        }
        if tensor.buffer == target.buffer {
            return Err(PackOutputsError::SameBuffer { name: (*name).into() });
        }
    }
    let fits = target.dtype == layout.dtype()
        && target.view.shape.elements() == layout.total
        && target.view.is_contiguous();
    if !fits {
        return Err(PackOutputsError::Target {
            expected: Box::new(layout.spec),
            found: format!("{} {}", target.dtype, target.view.shape),
            strides: target.view.steps().to_vec(),
        });
    }
    Ok(())
}
