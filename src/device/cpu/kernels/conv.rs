//! 2-D convolution: the checked problem and the choice of its kernel.

use std::sync::Arc;

use super::check::{
    Image, MAX_SCRATCH, ensure, invalid, required_bytes, same_shape, storage, writes_each_place_once,
};
use super::conv_dense::Dense;
use super::conv_depthwise::Depthwise;
use super::conv_dot::Dot;
use super::conv_matrix;
use super::dot::{self, DotOps};
use super::geometry::Window;
use super::ops::Ops;
use super::pack::Panels;
use super::{Kernel, KernelSet};
use crate::device::{Activation, Conv2dDesc, DeviceError, ResidualOrder};
use crate::precision::Math;
use crate::tensor::DType;

pub(super) const OP: &str = "conv2d";

/// A convolution whose description holds together.
#[derive(Debug, Clone)]
pub(super) struct Problem {
    pub(super) input: Image,
    pub(super) output: Image,
    pub(super) residual: Option<Image>,
    pub(super) window: Window,
    pub(super) groups: usize,
    /// Input channels of one group.
    pub(super) group_in: usize,
    /// Output channels of one group.
    pub(super) group_out: usize,
    /// Type of the input; decides how weights are rounded.
    pub(super) dtype: DType,
    /// Type of output and residual: fp32, or the input's.
    pub(super) out_dtype: DType,
    pub(super) activation: Activation,
    /// Where the residual is added.
    pub(super) order: ResidualOrder,
}

impl Problem {
    /// Checks a description.
    pub(super) fn new(desc: &Conv2dDesc) -> Result<Self, DeviceError> {
        let input = Image::new(OP, "input", &desc.input)?;
        let output = Image::new(OP, "output", &desc.output)?;
        let dtype = storage(OP, &[("input", &desc.input)])?;
        let mut outputs = vec![("output", &desc.output)];
        let mut residual = None;
        if let Some(operand) = &desc.residual {
            residual = Some(Image::new(OP, "residual", operand)?);
            same_shape(OP, ("residual", &operand.view), ("output", &desc.output.view))?;
            outputs.push(("residual", operand));
        }
        ensure(
            residual.is_some() || desc.residual_order == ResidualOrder::AfterActivation,
            OP,
            || "an order of adding is given without a residual".to_owned(),
        )?;
        let out_dtype = storage(OP, &outputs)?;
        if out_dtype != DType::F32 {
            storage(OP, &[("input", &desc.input), ("output", &desc.output)])?;
        }
        writes_each_place_once(OP, "output", &desc.output)?;
        ensure(input.n == output.n, OP, || {
            format!("input holds {} images, output {}", input.n, output.n)
        })?;
        let groups = desc.groups;
        ensure(
            groups >= 1 && input.c.is_multiple_of(groups) && output.c.is_multiple_of(groups),
            OP,
            || {
                format!(
                    "{groups} groups do not divide {} input and {} output channels",
                    input.c, output.c
                )
            },
        )?;
        let window = Window::new(OP, &desc.geometry, &input, &output)?;
        Ok(Self {
            group_in: input.c / groups,
            group_out: output.c / groups,
            input,
            output,
            residual,
            window,
            groups,
            dtype,
            out_dtype,
            activation: desc.activation,
            order: desc.residual_order,
        })
    }

    /// Whether every output channel reads just the input channel of the same index.
    pub(super) const fn is_depthwise(&self) -> bool {
        self.group_in == 1 && self.group_out == 1 && self.groups > 1
    }

    /// How products are summed where bf16 is not widened.
    pub(super) fn dot(&self, set: KernelSet) -> Option<&'static DotOps> {
        let fits = self.dtype == DType::Bf16 && self.groups == 1;
        fits.then(|| dot::ops_of(set)).flatten()
    }

    /// The same problem with all pixels in one row, where the geometry and the views allow it.
    fn flattened(self) -> Self {
        let images = [Some(self.input), Some(self.output), self.residual];
        let fits = self.window.is_pointwise() && images.iter().flatten().all(Image::is_one_row);
        if !fits {
            return self;
        }
        Self {
            input: self.input.as_one_row(),
            output: self.output.as_one_row(),
            residual: self.residual.map(|image| image.as_one_row()),
            ..self
        }
    }
}

/// Bytes of one thread's scratch, refused beyond [`MAX_SCRATCH`].
pub(super) fn scratch_bytes(parts: &[Option<usize>]) -> Result<usize, DeviceError> {
    let total = parts.iter().try_fold(0_usize, |sum, &part| {
        sum.checked_add(part?.checked_next_multiple_of(64)?)
    });
    total
        .filter(|&bytes| bytes <= MAX_SCRATCH)
        .ok_or_else(|| invalid(OP, "the window times the channels is too large to gather"))
}

/// Prepares a convolution.
pub(super) fn prepare(
    desc: &Conv2dDesc,
    ops: &'static Ops,
    set: KernelSet,
) -> Result<Arc<dyn Kernel>, DeviceError> {
    let problem = Problem::new(desc)?;
    if let Math::Matrix(math) = desc.math {
        return conv_matrix::prepare(problem.flattened(), desc, math, ops);
    }
    let dot = problem.dot(set);
    let panels = match dot {
        None => Panels::new(&problem, ops.lanes)?,
        Some(_) => Panels::of_pairs(&problem)?,
    };
    let mut required = vec![
        required_bytes(OP, "input", &desc.input)?,
        panels.bytes(),
        required_bytes(OP, "output", &desc.output)?,
    ];
    if let Some(residual) = &desc.residual {
        required.push(required_bytes(OP, "residual", residual)?);
    }
    Ok(if let Some(dot) = dot {
        let ops = (ops, dot, set.bf16_dot);
        Arc::new(Dot::new(problem.flattened(), panels, required, ops)?)
    } else if problem.is_depthwise() {
        Arc::new(Depthwise::new(problem, panels, required, ops)?)
    } else {
        Arc::new(Dense::new(problem.flattened(), panels, required, ops)?)
    })
}
