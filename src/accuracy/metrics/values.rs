//! Arrays as metrics see them.

use half::{bf16, f16};
use ndarray::{ArrayD, ArrayRef, ArrayViewD, Axis, IxDyn};

use super::MetricError;
use crate::numeric::Fp8Policy;
use crate::tensor::{DType, HostTensor};

/// An array or view of any shape, float64.
pub type Values = ArrayRef<f64, IxDyn>;

/// Which elements count.
pub type Mask = ArrayRef<bool, IxDyn>;

/// The elements of a host tensor as float64, in its shape: exact for every float and for integers up to 2^53, the nearest
/// value for larger ones. 8-bit floats are read by the default policy.
#[must_use]
pub fn values_of(tensor: &HostTensor) -> ArrayD<f64> {
    let bytes = tensor.bytes();
    let values = match tensor.dtype() {
        DType::U8 => widened(bytes, |x: u8| f64::from(x)),
        DType::I8 => widened(bytes, |x: i8| f64::from(x)),
        DType::U16 => widened(bytes, |x: u16| f64::from(x)),
        DType::I16 => widened(bytes, |x: i16| f64::from(x)),
        DType::I32 => widened(bytes, |x: i32| f64::from(x)),
        DType::U32 => widened(bytes, |x: u32| f64::from(x)),
        DType::I64 => widened(bytes, |x: i64| x as f64),
        DType::U64 => widened(bytes, |x: u64| x as f64),
        DType::F16 => widened(bytes, |x: f16| x.to_f64()),
        DType::Bf16 => widened(bytes, |x: bf16| x.to_f64()),
        DType::F32 => widened(bytes, |x: f32| f64::from(x)),
        DType::F8E3M4 | DType::F8E4M3 | DType::F8E5M2 => {
            let narrow = tensor.to_f32(&Fp8Policy::default());
            narrow.into_iter().map(f64::from).collect()
        }
    };
    #[expect(
        clippy::expect_used,
        reason = "a host tensor has one element for each place of its shape"
    )]
    ArrayD::from_shape_vec(IxDyn(tensor.shape()), values).expect("as many elements as places")
}

fn widened<T: bytemuck::Pod>(bytes: &[u8], widen: impl Fn(T) -> f64) -> Vec<f64> {
    bytemuck::cast_slice::<u8, T>(bytes)
        .iter()
        .map(|&x| widen(x))
        .collect()
}

/// A mask in the shape of what it masks: missing dimensions and those of size 1 are repeated.
pub(super) fn broadcast_mask<'a>(
    metric: &'static str,
    mask: &'a Mask,
    shape: &[usize],
) -> Result<ArrayViewD<'a, bool>, MetricError> {
    mask.broadcast(IxDyn(shape)).ok_or_else(|| MetricError::Shapes {
        metric,
        what: "the mask",
        found: mask.shape().to_vec(),
        like: "what it masks",
        expected: shape.to_vec(),
    })
}

/// An axis of an array; negative ones count from the last.
pub(super) fn axis_of(metric: &'static str, axis: isize, shape: &[usize]) -> Result<Axis, MetricError> {
    let rank = shape.len() as isize;
    let found = if axis < 0 { axis + rank } else { axis };
    if (0..rank).contains(&found) {
        return Ok(Axis(found as usize));
    }
    Err(MetricError::Value {
        metric,
        what: "the axis",
        value: axis.to_string(),
        expected: format!("from {} to {} for shape {shape:?}", -rank, rank - 1),
    })
}
