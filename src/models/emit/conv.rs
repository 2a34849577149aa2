//! Convolutions with what follows them.

use super::super::error::{NodeError, form, invalid};
use super::super::facts::NodeContext;
use super::super::fuse::{Group, GroupKind};
use super::super::infer;
use super::super::lower::Lowerer;
use super::super::plan::{Slot, WeightPlan};
use super::one_channel_step;
use crate::device::{Conv2dDesc, OpDesc};
use crate::tensor::Shape;
use crate::weights::{BatchNorm, StoredWeights, fold_bn_conv};

/// A convolution with its followers.
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
    let window = infer::conv_window(&context)?;
    let geometry = window.geometry()?;
    let (mut weight, mut offsets) = match (context.float_input(1)?, context.float_input(2)?) {
        (Some(weight), offsets) => (weight, offsets),
        (None, _) => return invalid("the weights are missing"),
    };
    let channels = context.shape(1)?[0];
    if offsets.as_ref().is_some_and(|o| o.len() != channels) {
        return invalid(format!(
            "a bias of other length than the {channels} output channels"
        ));
    }
    if let Some(norm) = norm {
        let norm = norm_parameters(&lowerer.context(*norm))?;
        let (folded, shifted) = fold_bn_conv(&weight, offsets.as_deref(), &norm.borrowed())?;
        (weight, offsets) = (folded, Some(shifted));
    }
    if let Some(addend) = bias.as_ref().and_then(|name| lowerer.facts.array(name)?.to_f32()) {
        let added = |c: usize| f64::from(if addend.len() == 1 { addend[0] } else { addend[c] });
        let before = |c: usize| offsets.as_ref().map_or(0.0, |o| f64::from(o[c]));
        offsets = Some((0..channels).map(|c| (before(c) + added(c)) as f32).collect());
    }
    let shape = Shape::new(&[context.shape(0)?[0], channels, window.output[0], window.output[1]])?;
    let input = lowerer.channels_last(context.input(0)?)?;
    let residual = residual.as_ref().map(|r| lowerer.channels_last(r)).transpose()?;
    let output = one_channel_step(lowerer.destination(&group.output, shape)?);
    let desc = Conv2dDesc {
        input: input.operand(),
        output: output.operand(),
        residual: residual.map(|r| r.operand()),
        geometry,
        groups: infer::conv_groups(&context)?,
        activation: *activation,
    };
    let row_len = weight.len() / channels.max(1);
    let weight = StoredWeights::pack(lowerer.weight_format, &weight, row_len)?;
    let slot = Slot::Weight(lowerer.weights.len());
    lowerer.weights.push(WeightPlan::Conv2d {
        name: context.input(1)?.to_owned(),
        desc: Box::new(desc.clone()),
        weight,
        bias: offsets,
    });
    let mut slots = vec![input.slot, slot, output.slot];
    slots.extend(residual.map(|r| r.slot));
    lowerer.launch(&context.node.name, OpDesc::Conv2d(desc), &slots);
    lowerer.set(&group.output, output);
    Ok(())
}

/// Parameters of a BatchNormalization node.
pub(super) struct NormParameters {
    values: [Vec<f32>; 4],
    epsilon: f32,
}

impl NormParameters {
    pub(super) fn borrowed(&self) -> BatchNorm<'_> {
        let [scale, shift, mean, variance] = &self.values;
        BatchNorm {
            scale,
            shift,
            mean,
            variance,
            epsilon: self.epsilon,
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
