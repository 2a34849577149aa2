//! The form in which convolution weights are stored.

use half::bf16;

use super::check::{ensure, invalid};
use super::conv::{OP, Problem};
use super::ops::PANEL_VECTORS;
use super::{Isa, ops};
use crate::device::{DeviceError, WeightDesc};
use crate::tensor::{DType, HostTensor, TensorSpec};

/// The weights of some neighbouring output channels of one group:
/// `[1 + taps * input channels of the group][vectors * lanes]` fp32, the biases first. Channels past the
/// last are zeros.
#[derive(Debug, Clone, Copy)]
pub(super) struct Panel {
    /// First output channel.
    pub(super) channel: usize,
    /// Output channels that are stored.
    pub(super) channels: usize,
    /// Vectors that are computed.
    pub(super) vectors: usize,
    /// Group of the channels.
    pub(super) group: usize,
    /// First value in the weight buffer.
    pub(super) offset: usize,
}

/// All panels of a convolution.
#[derive(Debug, Clone)]
pub(super) struct Panels {
    pub(super) list: Vec<Panel>,
    /// Rows of each panel: 1 + taps * input channels of the group.
    rows: usize,
    lanes: usize,
    len: usize,
}

impl Panels {
    /// Lays the panels out. Depth-wise convolutions have no panel that spans groups of channels, but one for
    /// each vector of channels.
    pub(super) fn new(problem: &Problem, lanes: usize) -> Result<Self, DeviceError> {
        let too_large = || invalid(OP, "the weights are larger than the address space");
        let rows = problem
            .window
            .taps()
            .checked_mul(problem.group_in)
            .ok_or_else(too_large)?
            + 1;
        let depthwise = problem.is_depthwise();
        let (groups, group_out, vectors) = if depthwise {
            (1, problem.output.c, 1)
        } else {
            (problem.groups, problem.group_out, PANEL_VECTORS)
        };
        let mut list = Vec::new();
        let mut len = 0_usize;
        for group in 0..groups {
            for first in (0..group_out).step_by(vectors * lanes) {
                let channels = (group_out - first).min(vectors * lanes);
                let vectors = channels.div_ceil(lanes);
                list.push(Panel {
                    channel: group * group_out + first,
                    channels,
                    vectors,
                    group,
                    offset: len,
                });
                len = rows
                    .checked_mul(vectors * lanes)
                    .and_then(|values| len.checked_add(values))
                    .filter(|&values| values <= isize::MAX as usize / size_of::<f32>())
                    .ok_or_else(too_large)?;
            }
        }
        Ok(Self {
            list,
            rows,
            lanes,
            len,
        })
    }

    /// Size of the weight buffer in bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.len * size_of::<f32>()
    }
}

/// The content of a weight buffer for the kernel that [`super::prepare`] makes of the same description and
/// instruction set: fp32 values on a 64-byte boundary. Equal arguments give equal bytes.
///
/// # Errors
/// [`DeviceError::InvalidOp`] if the description is refused or the sizes do not fit it.
pub fn pack_weights(weights: &WeightDesc<'_>, isa: Isa) -> Result<HostTensor, DeviceError> {
    let WeightDesc::Conv2d { desc, weight, bias } = *weights;
    let lanes = ops::for_isa(isa)
        .ok_or_else(|| invalid(OP, format!("this processor has no {isa} instructions")))?
        .lanes;
    let problem = Problem::new(desc)?;
    let taps = problem.window.taps();
    let fan_in = taps.checked_mul(problem.group_in);
    let expected = fan_in.and_then(|fan_in| fan_in.checked_mul(problem.output.c));
    ensure(expected == Some(weight.len()), OP, || {
        format!(
            "{} weights given for {} output channels of {} input channels and {taps} taps",
            weight.len(),
            problem.output.c,
            problem.group_in
        )
    })?;
    ensure(bias.is_none_or(|b| b.len() == problem.output.c), OP, || {
        format!(
            "{} biases given for {} output channels",
            bias.map_or(0, <[f32]>::len),
            problem.output.c
        )
    })?;
    let round = |value: f32| match problem.dtype {
        DType::Bf16 => bf16::from_f32(value).to_f32(),
        _ => value,
    };
    let panels = Panels::new(&problem, lanes)?;
    let spec = TensorSpec::new(&[panels.len], DType::F32)?;
    let mut packed = HostTensor::zeros(spec);
    let values = packed.as_mut_slice::<f32>()?;
    let cin = problem.group_in;
    for panel in &panels.list {
        let width = panel.vectors * panels.lanes;
        let values = &mut values[panel.offset..][..panels.rows * width];
        for lane in 0..panel.channels {
            let channel = panel.channel + lane;
            values[lane] = bias.map_or(0.0, |b| b[channel]);
            for tap in 0..taps {
                for ci in 0..cin {
                    let row = 1 + tap * cin + ci;
                    values[row * width + lane] = round(weight[(channel * cin + ci) * taps + tap]);
                }
            }
        }
    }
    Ok(packed)
}
