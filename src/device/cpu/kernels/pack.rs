//! The form in which the weights of convolutions and dense layers are stored.

use half::bf16;

use super::check::{ensure, invalid};
use super::conv::{OP, Problem};
use super::division::Division;
use super::dot::DOT_LANES;
use super::ops::PANEL_VECTORS;
use super::{KernelSet, conv_matrix, gather_conv, ops, pillars};
use crate::device::{Conv2dDesc, DeviceError, WeightDesc};
use crate::precision::Math;
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

/// All panels of a convolution or of a dense layer.
#[derive(Debug, Clone)]
pub(super) struct Panels {
    pub(super) list: Vec<Panel>,
    /// Rows of each panel: the biases, then one for each tap and input channel of the group.
    rows: usize,
    lanes: usize,
    len: usize,
}

impl Panels {
    /// Lays out the panels of a convolution. Depth-wise convolutions have no panel that spans groups of channels,
    /// but one for each vector of channels.
    pub(super) fn new(problem: &Problem, lanes: usize) -> Result<Self, DeviceError> {
        let inputs = problem.window.taps().checked_mul(problem.group_in);
        let inputs = inputs.ok_or_else(|| too_large(OP))?;
        if problem.is_depthwise() {
            Self::lay(OP, inputs, (1, problem.output.c, 1), lanes)
        } else {
            Self::lay(
                OP,
                inputs,
                (problem.groups, problem.group_out, PANEL_VECTORS),
                lanes,
            )
        }
    }

    /// Lays out the panels of a convolution that multiplies bf16: as for fp32, but a row holds two neighbouring values
    /// of each channel, and a vector always has [`DOT_LANES`] channels.
    pub(super) fn of_pairs(problem: &Problem) -> Result<Self, DeviceError> {
        let pairs = Division::new(problem).pairs().ok_or_else(|| too_large(OP))?;
        Self::lay(OP, pairs, (1, problem.output.c, PANEL_VECTORS), DOT_LANES)
    }

    /// Lays out the panels of a dense layer.
    pub(super) fn dense(
        op: &'static str,
        [inputs, outputs]: [usize; 2],
        lanes: usize,
    ) -> Result<Self, DeviceError> {
        Self::lay(op, inputs, (1, outputs, PANEL_VECTORS), lanes)
    }

    fn lay(
        op: &'static str,
        inputs: usize,
        (groups, group_out, most_vectors): (usize, usize, usize),
        lanes: usize,
    ) -> Result<Self, DeviceError> {
        let rows = inputs.checked_add(1).ok_or_else(|| too_large(op))?;
        let mut list = Vec::new();
        let mut len = 0_usize;
        for group in 0..groups {
            for first in (0..group_out).step_by(most_vectors * lanes) {
                let channels = (group_out - first).min(most_vectors * lanes);
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
                    .ok_or_else(|| too_large(op))?;
            }
        }
        Ok(Self {
            list,
            rows,
            lanes,
            len,
        })
    }

    /// Number of values of all panels.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Size of the weight buffer in bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.len * size_of::<f32>()
    }

    /// Writes every panel: `value(channel, row)` is what an output channel has in a row.
    pub(super) fn fill<T>(&self, values: &mut [T], value: impl Fn(usize, usize) -> T) {
        for panel in &self.list {
            let width = panel.vectors * self.lanes;
            let values = &mut values[panel.offset..][..self.rows * width];
            for (row, line) in values.chunks_exact_mut(width).enumerate() {
                for (lane, place) in line[..panel.channels].iter_mut().enumerate() {
                    *place = value(panel.channel + lane, row);
                }
            }
        }
    }
}

fn too_large(op: &'static str) -> DeviceError {
    invalid(op, "the weights are larger than the address space")
}

/// The content of a weight buffer for the kernel that [`super::prepare`] makes of the same description and
/// kernel set: values of four bytes on a 64-byte boundary. Equal arguments give equal bytes.
///
/// # Errors
/// [`DeviceError::InvalidOp`] if the description is refused or the sizes do not fit it.
pub fn pack_weights(weights: &WeightDesc<'_>, set: impl Into<KernelSet>) -> Result<HostTensor, DeviceError> {
    let set = set.into();
    let lanes = |op| match ops::for_isa(set.isa) {
        Some(ops) => Ok(ops.lanes),
        None => Err(invalid(
            op,
            format!("this processor has no {} instructions", set.isa),
        )),
    };
    match *weights {
        WeightDesc::Conv2d { desc, weight, bias } => pack_conv(desc, weight, bias, (set, lanes(OP)?)),
        WeightDesc::Pillars { desc, first, second } => {
            pillars::pack(desc, &first, second.as_ref(), lanes(pillars::OP)?)
        }
        WeightDesc::GatherConv { desc, weight, bias } => {
            gather_conv::pack(desc, weight, bias, (set, lanes(gather_conv::OP)?))
        }
    }
}

fn pack_conv(
    desc: &Conv2dDesc,
    weight: &[f32],
    bias: Option<&[f32]>,
    (set, lanes): (KernelSet, usize),
) -> Result<HostTensor, DeviceError> {
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
    if let Math::Matrix(math) = desc.math {
        return conv_matrix::pack(&problem, math, weight, bias);
    }
    let cin = problem.group_in;
    if problem.dot(set).is_some() {
        let division = Division::new(&problem);
        let panels = Panels::of_pairs(&problem)?;
        let mut packed = HostTensor::zeros(TensorSpec::new(&[panels.len], DType::U32)?);
        panels.fill(packed.as_mut_slice()?, |channel, row| match row.checked_sub(1) {
            None => bias.map_or(0.0, |b| b[channel]).to_bits(),
            Some(pair) => {
                let value = |index: usize| {
                    let (tap, input) = division.tap_and_channel(index);
                    let value = (input < cin).then(|| weight[(channel * cin + input) * taps + tap]);
                    u32::from(bf16::from_f32(value.unwrap_or(0.0)).to_bits())
                };
                value(2 * pair) | value(2 * pair + 1) << 16
            }
        });
        return Ok(packed);
    }
    let round = |value: f32| match problem.dtype {
        DType::Bf16 => bf16::from_f32(value).to_f32(),
        _ => value,
    };
    let panels = Panels::new(&problem, lanes)?;
    let mut packed = HostTensor::zeros(TensorSpec::new(&[panels.len], DType::F32)?);
    panels.fill(packed.as_mut_slice()?, |channel, row| match row.checked_sub(1) {
        None => bias.map_or(0.0, |b| b[channel]),
        Some(input) => round(weight[(channel * cin + input % cin) * taps + input / cin]),
    });
    Ok(packed)
}
