//! Convolutions with what follows them.

use super::super::error::{NodeError, form, invalid};
use super::super::facts::NodeContext;
use super::super::fuse::{Group, GroupKind};
use super::super::infer;
use super::super::lower::{Located, Lowerer};
use super::super::plan::{Slot, WeightPlan};
use super::super::transposed::{self, Phase};
use super::one_channel_step;
use super::resize::as_image;
use crate::device::{Activation, BinaryKind, Conv2dDesc, Geometry2d, OpDesc, ResidualOrder};
use crate::precision::Math;
use crate::tensor::Shape;
use crate::weights::{Array, BatchNorm, ElementType, Values, fold_bn_conv};

/// A convolution or transposed convolution with its followers.
pub(in crate::models) fn conv(lowerer: &mut Lowerer<'_>, group: &Group) -> Result<(), NodeError> {
    let GroupKind::Conv {
        conv,
        norm,
        bias,
        activation,
        residual,
        order,
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
        let shape = context.shape(1)?;
        let dims = [
            shape[0],
            shape[1],
            shape[2..shape.rank() - 1].iter().product(),
            shape[shape.rank() - 1],
        ];
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
        order: *order,
        offsets,
    };
    let place = [Some(input), Some(output), residual].map(|l| l.map(as_image).transpose());
    let [images, made, residual] = place;
    let (Some(images), Some(made), residual) = (images?, made?, residual?) else {
        return invalid("an operand is missing");
    };
    match &form {
        Form::Plain { geometry, .. } => {
            launch(lowerer, &layer, *geometry, &weight, [images, made], residual)?;
        }
        Form::Transposed {
            phases,
            stride,
            kernel,
            ..
        } => {
            for phase in phases {
                let part = made.with_view(phase.writes(*stride, &made.view)?);
                let added = match &residual {
                    Some(residual) => Some(residual.with_view(phase.writes(*stride, &residual.view)?)),
                    None => None,
                };
                if phase.is_empty() {
                    bias_alone(lowerer, &layer, part, added)?;
                    continue;
                }
                let [reads, _] = transposed::phase_views(phase, *stride, &images.view, &made.view)?;
                let weight = transposed::phase_weights(phase, &weight, *kernel);
                launch(
                    lowerer,
                    &layer,
                    phase.geometry,
                    &weight,
                    [images.with_view(reads), part],
                    added,
                )?;
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
            let infer::Transposed {
                axes,
                dilation,
                shape,
            } = infer::conv_transpose(context)?;
            return Ok(Self::Transposed {
                phases: transposed::dilated_phases(axes, dilation),
                stride: axes.map(|axis| axis.stride),
                kernel: axes.map(|axis| axis.kernel),
                shape,
            });
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
    /// Where the residual is added.
    order: ResidualOrder,
    offsets: Option<Vec<f32>>,
}

/// One launch on input, output and residual, with weights `[Cout, Cin / groups, KH, KW]`.
fn launch(
    lowerer: &mut Lowerer<'_>,
    layer: &Layer<'_>,
    geometry: Geometry2d,
    weight: &[f32],
    [input, output]: [Located; 2],
    residual: Option<Located>,
) -> Result<(), NodeError> {
    let desc = Conv2dDesc {
        input: input.operand(),
        output: output.operand(),
        residual: residual.map(|r| r.operand()),
        residual_order: layer.order,
        geometry,
        groups: layer.groups,
        activation: layer.activation,
        math: Math::Native,
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

/// The outputs of a transposed convolution that no tap reaches: the bias, activated, and the residual.
fn bias_alone(
    lowerer: &mut Lowerer<'_>,
    layer: &Layer<'_>,
    output: Located,
    residual: Option<Located>,
) -> Result<(), NodeError> {
    let channels = output.view.shape[1];
    let bias = layer.offsets.clone().unwrap_or_else(|| vec![0.0; channels]);
    let array = Array::new(
        Shape::new(&[channels, 1, 1])?,
        ElementType::F32,
        Values::F32(bias),
    );
    let Some(array) = array else {
        return invalid("a bias of another length");
    };
    let bias = lowerer.constant(&format!("{}.bias", layer.name), &array)?;
    let bias = bias.spread(output.view.shape)?;
    match (residual, layer.order) {
        (None, _) => lowerer.apply_to(layer.name, layer.activation, bias, output),
        (Some(residual), ResidualOrder::AfterActivation) => {
            lowerer.apply_to(layer.name, layer.activation, bias, output);
            lowerer.combine_to(layer.name, BinaryKind::Add, [output, residual], output)?;
        }
        (Some(residual), ResidualOrder::BeforeActivation) => {
            lowerer.combine_to(layer.name, BinaryKind::Add, [bias, residual], output)?;
            lowerer.apply_to(layer.name, layer.activation, output, output);
        }
    }
    Ok(())
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
