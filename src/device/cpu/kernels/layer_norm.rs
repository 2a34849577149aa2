//! Layer normalisation over the last axes.

use std::fmt;
use std::sync::Arc;

use super::check::{
    MAX_CHANNELS, ensure, invalid, required_bytes, same_shape, storage, writes_each_place_once,
};
use super::elementwise::{load_run, store_run};
use super::nest::{Nest, share};
use super::ops::Ops;
use super::rows::{Fold, PARTIALS, RowOps, finish_fold, fold_row};
use super::{BufferRef, Kernel};
use crate::device::cpu::pool::ComputePool;
use crate::device::{BinaryKind, DeviceError, LayerNormDesc, Operand};
use crate::tensor::{DType, Shape};

const OP: &str = "layer_norm";

/// The normalised axes of an operand as one run.
#[derive(Debug, Clone, Copy)]
struct Run {
    dtype: DType,
    step: isize,
}

/// Factors or summands.
#[derive(Debug, Clone, Copy)]
struct Constant {
    run: Run,
    offset: isize,
    /// Which of the bound buffers.
    buffer: usize,
}

struct LayerNorm {
    /// The axes in front: source, residual (or the source again), destination.
    nest: Nest<3>,
    src: Run,
    residual: Option<Run>,
    dst: Run,
    gamma: Option<Constant>,
    beta: Option<Constant>,
    len: usize,
    epsilon: f32,
    required: Vec<usize>,
    ops: &'static Ops,
    rows: &'static RowOps,
}

/// The last `axes` axes as one run, without which rows would have to be gathered element by element.
fn run(name: &str, operand: &Operand, axes: usize) -> Result<Run, DeviceError> {
    let view = &operand.view;
    let dims = &view.shape[view.rank() - axes..];
    let steps = &view.steps()[view.rank() - axes..];
    let long: Vec<(usize, isize)> = dims
        .iter()
        .copied()
        .zip(steps.iter().copied())
        .filter(|&(dim, _)| dim != 1)
        .collect();
    let even = long
        .windows(2)
        .all(|pair| pair[0].1 == pair[1].1.wrapping_mul(pair[1].0 as isize));
    ensure(even, OP, || {
        format!(
            "the normalised axes of {name} do not lie at equal distances (strides {steps:?}): copy it first"
        )
    })?;
    Ok(Run {
        dtype: operand.dtype,
        step: long.last().map_or(1, |&(_, step)| step),
    })
}

/// Prepares a normalisation.
pub(super) fn prepare(
    desc: &LayerNormDesc,
    ops: &'static Ops,
    rows: &'static RowOps,
) -> Result<Arc<dyn Kernel>, DeviceError> {
    let (src, dst, axes) = (&desc.src, &desc.dst, desc.axes);
    storage(OP, &[("source", src)])?;
    storage(OP, &[("destination", dst)])?;
    same_shape(OP, ("source", &src.view), ("destination", &dst.view))?;
    let rank = src.view.rank();
    ensure((1..=rank).contains(&axes), OP, || {
        format!("{axes} axes of shape {}", src.view.shape)
    })?;
    let epsilon = desc.epsilon.get();
    ensure(epsilon > 0.0 && epsilon.is_finite(), OP, || {
        format!("epsilon is {epsilon}, expected a positive number: the model states which")
    })?;
    let last = Shape::new(&src.view.shape[rank - axes..]).map_err(|error| invalid(OP, error.to_string()))?;
    let len = last.elements();
    ensure(len <= MAX_CHANNELS, OP, || {
        format!("the normalised axes have {len} elements, above the supported {MAX_CHANNELS}")
    })?;
    writes_each_place_once(OP, "destination", dst)?;
    let mut required = vec![
        required_bytes(OP, "source", src)?,
        required_bytes(OP, "destination", dst)?,
    ];
    let mut residual = None;
    if let Some(operand) = &desc.residual {
        storage(OP, &[("residual", operand)])?;
        same_shape(OP, ("residual", &operand.view), ("source", &src.view))?;
        required.push(required_bytes(OP, "residual", operand)?);
        residual = Some(run("the residual", operand, axes)?);
    }
    let mut constant = |name: &str, operand: &Option<Operand>| -> Result<Option<Constant>, DeviceError> {
        let Some(operand) = operand else {
            return Ok(None);
        };
        storage(OP, &[(name, operand)])?;
        ensure(operand.view.shape == last, OP, || {
            format!(
                "{name} has shape {}, the normalised axes {last}",
                operand.view.shape
            )
        })?;
        required.push(required_bytes(OP, name, operand)?);
        Ok(Some(Constant {
            run: run(name, operand, axes)?,
            offset: operand.view.offset as isize,
            buffer: required.len() - 1,
        }))
    };
    let (gamma, beta) = (constant("gamma", &desc.gamma)?, constant("beta", &desc.beta)?);
    let front: Vec<usize> = (0..rank - axes).collect();
    let between = desc.residual.as_ref().unwrap_or(src);
    Ok(Arc::new(LayerNorm {
        nest: Nest::over(&front, [&src.view, &between.view, &dst.view]),
        src: run("the source", src, axes)?,
        residual,
        dst: run("the destination", dst, axes)?,
        gamma,
        beta,
        len,
        epsilon,
        required,
        ops,
        rows,
    }))
}

impl LayerNorm {
    /// Values of one scratch area.
    const fn area(&self) -> usize {
        self.len.next_multiple_of(16)
    }

    /// # Safety
    /// As [`Kernel::run`].
    unsafe fn load(&self, buffers: &[BufferRef], constant: Option<Constant>, to: &mut [f32]) -> usize {
        let Some(Constant { run, offset, buffer }) = constant else {
            return 0;
        };
        // SAFETY: the run lies inside the checked view.
        unsafe { load_run(self.ops, run.dtype, buffers[buffer], (offset, run.step), to) };
        to.len()
    }
}

impl Kernel for LayerNorm {
    fn scratch_bytes(&self) -> usize {
        4 * self.area() * size_of::<f32>()
    }

    fn required_bytes(&self) -> &[usize] {
        &self.required
    }

    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool) {
        if self.len == 0 {
            return;
        }
        let steps = self.nest.steps();
        let work = self.nest.unit_len() * self.len / 4;
        share(pool, self.nest.units(), work, &|units, scratch| {
            let mut areas = bytemuck::cast_slice_mut::<u8, f32>(scratch).chunks_exact_mut(self.area());
            let [values, other, gamma, beta] =
                std::array::from_fn(|_| areas.next().map_or(&mut [][..], |area| &mut area[..self.len]));
            // SAFETY: nest and runs together stay inside the checked views; a row is read before it is written.
            unsafe {
                let scales = self.load(buffers, self.gamma, gamma);
                let shifts = self.load(buffers, self.beta, beta);
                let (gamma, beta) = (&gamma[..scales], &beta[..shifts]);
                self.nest.visit(units, |offsets, count| {
                    for i in 0..count as isize {
                        let [src, residual, dst]: [isize; 3] =
                            std::array::from_fn(|k| offsets[k] + i * steps[k]);
                        load_run(self.ops, self.src.dtype, buffers[0], (src, self.src.step), values);
                        if let Some(run) = &self.residual {
                            load_run(self.ops, run.dtype, buffers[2], (residual, run.step), other);
                            (self.ops.combine)(BinaryKind::Add, values, other);
                        }
                        let mean = fold_row(self.rows, Fold::Add, values) / self.len as f32;
                        let mut partials = [0.0; PARTIALS];
                        (self.rows.add_squares)(mean, &mut partials, values);
                        let variance = finish_fold(Fold::Add, &mut partials) / self.len as f32;
                        let factor = 1.0 / (variance + self.epsilon).sqrt();
                        (self.rows.normalise)(values, [mean, factor], gamma, beta);
                        store_run(self.ops, self.dst.dtype, buffers[1], (dst, self.dst.step), values);
                    }
                });
            }
        });
    }
}

impl fmt::Debug for LayerNorm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "LayerNorm({} to {}, {} elements, {:?})",
            self.src.dtype, self.dst.dtype, self.len, self.nest
        )
    }
}
