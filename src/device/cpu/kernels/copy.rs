//! Moving, converting and filling strided views.

use std::fmt;
use std::sync::Arc;

use half::{bf16, f16};

use super::check::{invalid, required_bytes, same_shape, writes_each_place_once};
use super::nest::{Nest, share};
use super::{BufferRef, Kernel};
use crate::device::cpu::pool::ComputePool;
use crate::device::{DeviceError, Operand};
use crate::tensor::DType;

/// Copies `count` elements from `src` to `dst`, each with its step in elements.
pub(super) type RunFn = unsafe fn(*const u8, isize, *mut u8, isize, usize);

/// A number that can be read as the intermediate types of a conversion.
trait Source: Copy {
    /// Nearest fp32 value.
    fn to_f32(self) -> f32;
    /// fp32 value whose last bit is set where the conversion was inexact, so that rounding it once more to
    /// a shorter format gives the nearest value of that format.
    fn to_f32_odd(self) -> f32;
    /// Nearest integer, ties to even, saturating; NaN is 0.
    fn to_i64(self) -> i64;
}

/// A number that can be made by a conversion.
trait Target: Copy {
    /// Nearest representable value, ties to even; integers saturate.
    fn from_source(x: impl Source) -> Self;
}

macro_rules! integers {
    ($($type:ty)*) => {
        $(
            impl Source for $type {
                #[inline(always)]
                fn to_f32(self) -> f32 {
                    self as f32
                }
                #[inline(always)]
                fn to_f32_odd(self) -> f32 {
                    let nearest = self as f32;
                    if size_of::<Self>() < 4 || f64::from(nearest) == f64::from(self) {
                        return nearest;
                    }
                    let toward_zero = if f64::from(nearest).abs() > f64::from(self).abs() {
                        f32::from_bits(nearest.to_bits() - 1)
                    } else {
                        nearest
                    };
                    f32::from_bits(toward_zero.to_bits() | 1)
                }
                #[inline(always)]
                fn to_i64(self) -> i64 {
                    i64::from(self)
                }
            }
            impl Target for $type {
                #[inline(always)]
                fn from_source(x: impl Source) -> Self {
                    x.to_i64().clamp(i64::from(Self::MIN), i64::from(Self::MAX)) as Self
                }
            }
        )*
    };
}
integers!(u8 i8 i32 u32);

macro_rules! floats {
    ($($type:ty: |$value:ident| $widen:expr, |$source:ident| $narrow:expr;)*) => {
        $(
            impl Source for $type {
                #[inline(always)]
                fn to_f32(self) -> f32 {
                    let $value = self;
                    $widen
                }
                #[inline(always)]
                fn to_f32_odd(self) -> f32 {
                    self.to_f32()
                }
                #[inline(always)]
                fn to_i64(self) -> i64 {
                    Source::to_f32(self).round_ties_even() as i64
                }
            }
            impl Target for $type {
                #[inline(always)]
                fn from_source($source: impl Source) -> Self {
                    $narrow
                }
            }
        )*
    };
}
floats! {
    f32: |x| x, |source| source.to_f32();
    bf16: |x| bf16::to_f32(x), |source| bf16::from_f32(source.to_f32_odd());
    f16: |x| f16::to_f32(x), |source| f16::from_f32(source.to_f32_odd());
}

/// Converts a run.
///
/// # Safety
/// Both runs are valid for `count` elements and do not overlap.
unsafe fn convert<S: Source, D: Target>(
    src: *const u8,
    src_step: isize,
    dst: *mut u8,
    dst_step: isize,
    count: usize,
) {
    let (src, dst) = (src.cast::<S>(), dst.cast::<D>());
    // SAFETY: the caller's contract. Constant steps let the compiler vectorise the common cases.
    unsafe {
        if src_step == 1 && dst_step == 1 {
            for i in 0..count {
                dst.add(i).write(D::from_source(src.add(i).read()));
            }
        } else {
            for i in 0..count as isize {
                let value = src.offset(i * src_step).read();
                dst.offset(i * dst_step).write(D::from_source(value));
            }
        }
    }
}

/// Moves a run without looking at the values.
///
/// # Safety
/// As [`convert`].
pub(super) unsafe fn relocate<T: Copy>(
    src: *const u8,
    src_step: isize,
    dst: *mut u8,
    dst_step: isize,
    count: usize,
) {
    let (src, dst) = (src.cast::<T>(), dst.cast::<T>());
    // SAFETY: the caller's contract.
    unsafe {
        if src_step == 1 && dst_step == 1 {
            std::ptr::copy_nonoverlapping(src, dst, count);
        } else {
            for i in 0..count as isize {
                dst.offset(i * dst_step).write(src.offset(i * src_step).read());
            }
        }
    }
}

/// [`relocate`] for elements of a type.
pub(super) fn relocation(dtype: DType) -> RunFn {
    match dtype.size_bytes() {
        1 => relocate::<u8>,
        2 => relocate::<u16>,
        4 => relocate::<u32>,
        _ => relocate::<u64>,
    }
}

/// Between equal types a move; `None` where there is no conversion. The 8-bit floats, whose values depend on a
/// policy that the device does not have, and the integers of 16 and of 64 bits are only moved.
fn conversion(from: DType, to: DType) -> Option<RunFn> {
    fn to_target<D: Target>(from: DType) -> Option<RunFn> {
        Some(match from {
            DType::U8 => convert::<u8, D>,
            DType::I8 => convert::<i8, D>,
            DType::I32 => convert::<i32, D>,
            DType::U32 => convert::<u32, D>,
            DType::F16 => convert::<f16, D>,
            DType::Bf16 => convert::<bf16, D>,
            DType::F32 => convert::<f32, D>,
            DType::U16
            | DType::I16
            | DType::I64
            | DType::U64
            | DType::F8E3M4
            | DType::F8E4M3
            | DType::F8E5M2 => return None,
        })
    }
    match to {
        _ if from == to => Some(relocation(from)),
        DType::U8 => to_target::<u8>(from),
        DType::I8 => to_target::<i8>(from),
        DType::I32 => to_target::<i32>(from),
        DType::U32 => to_target::<u32>(from),
        DType::F16 => to_target::<f16>(from),
        DType::Bf16 => to_target::<bf16>(from),
        DType::F32 => to_target::<f32>(from),
        DType::U16 | DType::I16 | DType::I64 | DType::U64 | DType::F8E3M4 | DType::F8E4M3 | DType::F8E5M2 => {
            None
        }
    }
}

struct Copy2 {
    nest: Nest<2>,
    run: RunFn,
    types: [DType; 2],
    required: [usize; 2],
}

/// Prepares a copy.
pub(super) fn prepare(src: &Operand, dst: &Operand) -> Result<Arc<dyn Kernel>, DeviceError> {
    const OP: &str = "copy";
    same_shape(OP, ("source", &src.view), ("destination", &dst.view))?;
    let required = [
        required_bytes(OP, "source", src)?,
        required_bytes(OP, "destination", dst)?,
    ];
    writes_each_place_once(OP, "destination", dst)?;
    let run = conversion(src.dtype, dst.dtype)
        .ok_or_else(|| invalid(OP, format!("no conversion from {} to {}", src.dtype, dst.dtype)))?;
    Ok(Arc::new(Copy2 {
        nest: Nest::new([&src.view, &dst.view]),
        run,
        types: [src.dtype, dst.dtype],
        required,
    }))
}

impl Kernel for Copy2 {
    fn required_bytes(&self) -> &[usize] {
        &self.required
    }

    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool) {
        let [src_step, dst_step] = self.nest.steps();
        let [src_size, dst_size] = self.types.map(|t| t.size_bytes() as isize);
        let work = self.nest.unit_len().div_ceil(4);
        share(pool, self.nest.units(), work, &|units, _| {
            self.nest.visit(units, |[src, dst], count| {
                // SAFETY: the nest stays inside the checked views.
                unsafe {
                    (self.run)(
                        buffers[0].at(src * src_size),
                        src_step,
                        buffers[1].at(dst * dst_size),
                        dst_step,
                        count,
                    );
                }
            });
        });
    }
}

impl fmt::Debug for Copy2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Copy({} to {}, {:?})", self.types[0], self.types[1], self.nest)
    }
}

struct Fill {
    nest: Nest<1>,
    /// The value's bytes, from the start.
    value: [u8; 8],
    dtype: DType,
    required: [usize; 1],
}

/// Prepares a fill. The value is converted as a copy from fp32 would.
pub(super) fn prepare_fill(dst: &Operand, value: f32) -> Result<Arc<dyn Kernel>, DeviceError> {
    const OP: &str = "fill";
    let required = [required_bytes(OP, "destination", dst)?];
    writes_each_place_once(OP, "destination", dst)?;
    let convert = conversion(DType::F32, dst.dtype)
        .ok_or_else(|| invalid(OP, format!("no conversion from {} to {}", DType::F32, dst.dtype)))?;
    let mut holder = 0_u64;
    // SAFETY: one fp32 value is read, one value of at most eight bytes written (unaligned types are avoided by
    // the aligned holder).
    unsafe { convert((&raw const value).cast(), 1, (&raw mut holder).cast(), 1, 1) };
    Ok(Arc::new(Fill {
        nest: Nest::new([&dst.view]),
        value: holder.to_ne_bytes(),
        dtype: dst.dtype,
        required,
    }))
}

impl Kernel for Fill {
    fn required_bytes(&self) -> &[usize] {
        &self.required
    }

    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool) {
        let [step] = self.nest.steps();
        let size = self.dtype.size_bytes();
        let run = relocation(self.dtype);
        let holder = u64::from_ne_bytes(self.value);
        share(
            pool,
            self.nest.units(),
            self.nest.unit_len().div_ceil(4),
            &|units, _| {
                self.nest.visit(units, |[dst], count| {
                    let to = buffers[0].at::<u8>(dst * size as isize);
                    // SAFETY: the nest stays inside the checked view; the source has step 0.
                    unsafe { run((&raw const holder).cast(), 0, to, step, count) };
                });
            },
        );
    }
}

impl fmt::Debug for Fill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fill({}, {:?})", self.dtype, self.nest)
    }
}
