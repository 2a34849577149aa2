//! Convolutions with what follows them.

use super::super::error::{NodeError, form, invalid};
use super::super::facts::NodeContext;
use super::super::fuse::{Group, GroupKind};
use super::super::infer;
use super::super::lower::{Located, Lowerer};
use super::super::plan::{Slot, WeightPlan};
use super::super::transposed::{self, Phase};
use super::one_channel_step;
use crate::device::{Activation, Conv2dDesc, Geometry2d, OpDesc};
use crate::tensor::Shape;
use crate::weights::{BatchNorm, fold_bn_conv};

/// A convolution or transposed convolution with its followers.
pub(in crate::models) fn conv(lowerer: &mut Lowerer<'_>, group: &Group) -> Result<(), NodeError> {
    let GroupKind::Conv {
        conv,
        norm,
        bias,
        activation,
        residual,
    } = &group.kind
    else {
        return invalid("a convolution was expected");
    };
    let context = lowerer.context(*conv);
    let form = Form::new(&context)?;
    let Some(mut weight) = context.float_input(1)? else {
        return invalid("the weights are missing");
    };
    if let Form::Transposed { .. } = form {
        let dims = context.shape(1)?;
        let dims = [dims[0], dims[1], dims[2], dims[3]];
        weight = transposed::by_output(&weight, dims, infer::conv_groups(&context)?);
    }
    let channels = form.shape()[1];
    let norm = norm.map(|norm| norm_parameters(&lowerer.context(norm)));
    let added = (bias.as_ref()).and_then(|name| lowerer.facts.array(name)?.to_f32());
    let (weight, offsets) = folded(
        weight,
        context.float_input(2)?,
        norm.transpose()?.as_ref(),
        added.as_deref(),
        channels,
    )?;
    let input = lowerer.channels_last(context.input(0)?)?;
    let residual = residual.as_ref().map(|r| lowerer.channels_last(r)).transpose()?;
    let output = match lowerer.place(&group.output) {
        Some(_) => lowerer.destination(&group.output, form.shape())?,
        None => lowerer.fresh_channels_last(&group.output, form.shape())?,
    };
    let output = one_channel_step(output);
    let layer = Layer {
        name: &context.node.name,
        weights: context.input(1)?,
        groups: infer::conv_groups(&context)?,
        activation: *activation,
        offsets,
    };
    match &form {
        Form::Plain { geometry, .. } => {
            let place = [Some(input), Some(output), residual].map(|l| l.map(as_image).transpose());
            let [input, output, residual] = place;
            launch(lowerer, &layer, *geometry, &weight, [input?, output?, residual?])?;
        }
        Form::Transposed {
            phases,
            stride,
            kernel,
            ..
        } => {
            for phase in phases {
                let [reads, writes] = transposed::phase_views(phase, *stride, &input.view, &output.view)?;
                let added = match &residual {
                    Some(residual) => Some(residual.with_view(phase.writes(*stride, &residual.view)?)),
                    None => None,
                };
                let places = [
                    Some(input.with_view(reads)),
                    Some(output.with_view(writes)),
                    added,
                ];
                let weight = transposed::phase_weights(phase, &weight, *kernel);
                launch(lowerer, &layer, phase.geometry, &weight, places)?;
            }
        }
    }
    lowerer.set(&group.output, output);
    Ok(())
}

/// What kind of convolution a node is, and its output's shape.
enum Form {
    Plain {
        geometry: Geometry2d,
        shape: Shape,
    },
    Transposed {
        phases: Vec<Phase>,
        stride: [usize; 2],
        kernel: [usize; 2],
        shape: Shape,
    },
}

impl Form {
    fn new(context: &NodeContext<'_>) -> Result<Self, NodeError> {
        if context.node.op_type == "ConvTranspose" {
            let (axes, shape) = infer::conv_transpose(context)?;
            return match transposed::phases(axes) {
                Ok(phases) => Ok(Self::Transposed {
                    phases,
                    stride: axes.map(|axis| axis.stride),
                    kernel: axes.map(|axis| axis.kernel),
                    shape,
                }),
                Err(reason) => form(reason),
            };
        }
        let window = infer::conv_window(context)?;
        let front = [context.shape(0)?[0], context.shape(1)?[0]];
        let shape = Shape::new(&[&front, window.output.as_slice()].concat())?;
        // Along one axis: an image of one row.
        let geometry = match window.output.len() {
            1 => window.with_row().geometry()?,
            _ => window.geometry()?,
        };
        Ok(Self::Plain { geometry, shape })
    }

    const fn shape(&self) -> Shape {
        match self {
            Self::Plain { shape, .. } | Self::Transposed { shape, .. } => *shape,
        }
    }
}

/// What all launches of a convolution share.
struct Layer<'a> {
    name: &'a str,
    /// Name of the weights.
    weights: &'a str,
    groups: usize,
    activation: Activation,
    offsets: Option<Vec<f32>>,
}

/// One launch on input, output and residual, with weights `[Cout, Cin / groups, KH, KW]`.
fn launch(
    lowerer: &mut Lowerer<'_>,
    layer: &Layer<'_>,
    geometry: Geometry2d,
    weight: &[f32],
    [input, output, residual]: [Option<Located>; 3],
) -> Result<(), NodeError> {
    let (Some(input), Some(output)) = (input, output) else {
        return invalid("an operand is missing");
    };
    let desc = Conv2dDesc {
        input: input.operand(),
        output: output.operand(),
        residual: residual.map(|r| r.operand()),
        geometry,
        groups: layer.groups,
        activation: layer.activation,
    };
    let row_len = weight.len() / output.view.shape[1].max(1);
    let weight = lowerer.stored(layer.weights, weight, row_len)?;
    let slot = Slot::Weight(lowerer.weights.len());
    lowerer.weights.push(WeightPlan::Conv2d {
        name: layer.weights.to_owned(),
        desc: Box::new(desc.clone()),
        weight,
        bias: layer.offsets.clone(),
    });
    let mut slots = vec![input.slot, slot, output.slot];
    slots.extend(residual.map(|r| r.slot));
    lowerer.launch(layer.name, OpDesc::Conv2d(desc), &slots);
    Ok(())
}

/// `[N, C, L]` as an image of one row; an image as it is.
fn as_image(located: Located) -> Result<Located, NodeError> {
    let [n, c, length] = located.view.shape[..] else {
        return Ok(located);
    };
    let mut view = located.view;
    view.shape = Shape::new(&[n, c, 1, length])?;
    view.strides[..4].copy_from_slice(&[
        located.view.strides[0],
        located.view.strides[1],
        0,
        located.view.strides[2],
    ]);
    Ok(located.with_view(view))
}

/// Weights (a row for each output channel) and offsets with a normalisation folded in and a constant added.
pub(super) fn folded(
    weight: Vec<f32>,
    offsets: Option<Vec<f32>>,
    norm: Option<&NormParameters>,
    added: Option<&[f32]>,
    channels: usize,
) -> Result<(Vec<f32>, Option<Vec<f32>>), NodeError> {
    if offsets.as_ref().is_some_and(|o| o.len() != channels) {
        return invalid(format!(
            "a bias of other length than the {channels} output channels"
        ));
    }
    let (weight, mut offsets) = match norm {
        Some(norm) => {
            let (folded, shifted) = fold_bn_conv(&weight, offsets.as_deref(), &norm.widened())?;
            (folded, Some(shifted))
        }
        None => (weight, offsets),
    };
    if let Some(addend) = added {
        let added = |c: usize| f64::from(if addend.len() == 1 { addend[0] } else { addend[c] });
        let before = |c: usize| offsets.as_ref().map_or(0.0, |o| f64::from(o[c]));
        offsets = Some((0..channels).map(|c| (before(c) + added(c)) as f32).collect());
    }
    Ok((weight, offsets))
}

/// Parameters of a BatchNormalization node.
pub(super) struct NormParameters {
    values: [Vec<f32>; 4],
    epsilon: f32,
}

impl NormParameters {
    pub(super) fn widened(&self) -> BatchNorm {
        let [scale, shift, mean, variance] = &self.values;
        let f64s = |values: &[f32]| values.iter().map(|&v| f64::from(v)).collect();
        BatchNorm {
            scale: f64s(scale),
            shift: f64s(shift),
            mean: f64s(mean),
            variance: f64s(variance),
            epsilon: f64::from(self.epsilon),
        }
    }
}

pub(super) fn norm_parameters(context: &NodeContext<'_>) -> Result<NormParameters, NodeError> {
    if context.node.int("training_mode")?.unwrap_or(0) != 0 || context.node.output(1).is_some() {
        return form("training");
    }
    let value = |index: usize| match context.float_input(index)? {
        Some(values) => Ok(values),
        None => invalid(format!("input {index} is missing")),
    };
    Ok(NormParameters {
        values: [value(1)?, value(2)?, value(3)?, value(4)?],
        epsilon: context.node.float("epsilon")?.unwrap_or(1e-5),
    })
}
