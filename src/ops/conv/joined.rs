//! What joins and divides feature maps.

use ndarray::{Array4, ArrayView4, Axis, concatenate};

use super::LayerError;
use super::maps::{made, new_map};
use crate::device::{Activation, BinaryKind, OpDesc};
use crate::ops::{DeviceTensor, OpContext};

/// Convolutions of one input as one: what each computes is exactly what it computed alone.
#[derive(Debug, Clone, PartialEq)]
pub struct MergedConvs {
    /// Weights of all, one behind the other, `[Cout, Cin, KH, KW]`.
    pub weight: Array4<f32>,
    /// Biases of all.
    pub bias: Vec<f32>,
    /// Output channels of each, for [`split_channels`].
    pub sizes: Vec<usize>,
}

/// Merges convolutions of one group that read the same input with one geometry. A convolution without biases gets zeros.
///
/// # Errors
/// [`LayerError::Weights`] for no convolutions, or ones of different input channels or kernels.
pub fn merge_sibling_convs(
    convs: &[(ArrayView4<'_, f32>, Option<&[f32]>)],
) -> Result<MergedConvs, LayerError> {
    const LAYER: &str = "merged convolutions";
    let Some((first, _)) = convs.first() else {
        return Err(LayerError::weights(LAYER, "there are none"));
    };
    let mut bias = Vec::new();
    for (index, (weight, own)) in convs.iter().enumerate() {
        let outputs = weight.dim().0;
        if weight.shape()[1..] != first.shape()[1..] {
            let reason = format!(
                "convolution {index} has weights {:?}, which share no input and kernel with {:?}",
                weight.shape(),
                first.shape()
            );
            return Err(LayerError::weights(LAYER, reason));
        }
        match own {
            Some(own) if own.len() != outputs => {
                let reason = format!(
                    "convolution {index} has {} biases for {outputs} output channels",
                    own.len()
                );
                return Err(LayerError::weights(LAYER, reason));
            }
            Some(own) => bias.extend_from_slice(own),
            None => bias.resize(bias.len() + outputs, 0.0),
        }
    }
    let weights: Vec<_> = convs.iter().map(|(weight, _)| *weight).collect();
    let weight =
        concatenate(Axis(0), &weights).map_err(|error| LayerError::weights(LAYER, error.to_string()))?;
    Ok(MergedConvs {
        weight,
        bias,
        sizes: convs.iter().map(|(weight, _)| weight.dim().0).collect(),
    })
}

/// Some channels each of one map, in order, as views of its buffer: nothing is moved, and freeing one frees all.
///
/// # Errors
/// [`LayerError::Shape`] where the sizes are not those of all channels together.
pub fn split_channels(map: &DeviceTensor, sizes: &[usize]) -> Result<Vec<DeviceTensor>, LayerError> {
    const LAYER: &str = "split of channels";
    let shape = map.view.shape;
    let channels = sizes.iter().try_fold(0_usize, |sum, &size| sum.checked_add(size));
    if shape.rank() != 4 || Some(shape[1]) != channels {
        let expected = format!("[N, C, H, W] with channels for {sizes:?}");
        return Err(LayerError::shape(LAYER, "the map", shape, expected));
    }
    let mut first = 0;
    let parts = sizes.iter().map(|&size| {
        let view = map
            .view
            .slice(1, first, size, 1)
            .map_err(LayerError::tensor(LAYER))?;
        first += size;
        Ok(DeviceTensor { view, ..*map })
    });
    parts.collect()
}

/// Maps of one type and size with their channels one behind the other, as a new map that the caller frees. Where the maps
/// can be written into parts of one map at once ([`split_channels`]), this is not needed.
///
/// # Errors
/// [`LayerError::Weights`] for no maps, [`LayerError::Shape`], [`LayerError::DType`]; nothing stays allocated.
pub fn concat_channels(ops: &mut OpContext<'_>, maps: &[DeviceTensor]) -> Result<DeviceTensor, LayerError> {
    const LAYER: &str = "concatenation of channels";
    let Some(first) = maps.first() else {
        return Err(LayerError::weights(LAYER, "there are no maps"));
    };
    let mut sizes = Vec::with_capacity(maps.len());
    let mut pixels: Option<[usize; 3]> = None;
    for map in maps {
        let dims = match map.view.shape[..] {
            [n, c, h, w] if pixels.is_none_or(|pixels| pixels == [n, h, w]) => [n, c, h, w],
            _ => {
                let [n, h, w] = pixels.map_or(["N", "H", "W"].map(String::from), |p| {
                    p.map(|size| size.to_string())
                });
                let expected = format!("[{n}, C, {h}, {w}]");
                return Err(LayerError::shape(LAYER, "a map", map.view.shape, expected));
            }
        };
        if map.dtype != first.dtype {
            return Err(LayerError::dtype(LAYER, "a map", map.dtype, first.dtype));
        }
        pixels = Some([dims[0], dims[2], dims[3]]);
        sizes.push(dims[1]);
    }
    let [n, h, w] = pixels.unwrap_or_default();
    let joined = new_map(ops, LAYER, [n, sizes.iter().sum(), h, w], first.dtype)?;
    made(ops, joined, |ops, joined| {
        for (map, part) in maps.iter().zip(split_channels(joined, &sizes)?) {
            ops.copy(map, &part).map_err(LayerError::device(LAYER))?;
        }
        Ok(())
    })
}

/// `act(a + b)` of maps of one shape and type, as a new map that the caller frees. The sum is rounded to the type before the
/// activation, which changes nothing for those that are allowed: none, ReLU and clips to numbers that the type has, ReLU6
/// among them.
///
/// # Errors
/// [`LayerError::Refused`] for any other activation; [`LayerError::Shape`], [`LayerError::DType`]; nothing stays
/// allocated.
pub fn residual_add(
    ops: &mut OpContext<'_>,
    a: &DeviceTensor,
    b: &DeviceTensor,
    activation: Activation,
) -> Result<DeviceTensor, LayerError> {
    const LAYER: &str = "residual addition";
    let whole = |x: f32| half::bf16::from_f32(x).to_f32() == x;
    match activation {
        Activation::Identity | Activation::Relu => {}
        Activation::Clip { low, high } if whole(low.get()) && whole(high.get()) => {}
        other => {
            let reason = format!(
                "{other:?} is not fused behind an addition, where only ReLU and clips are: apply it as an operation of its own"
            );
            return Err(LayerError::refused(LAYER, reason));
        }
    }
    if a.view.shape != b.view.shape {
        let expected = format!("{}, as the first", a.view.shape);
        return Err(LayerError::shape(LAYER, "the second map", b.view.shape, expected));
    }
    if a.dtype != b.dtype {
        return Err(LayerError::dtype(LAYER, "the second map", b.dtype, a.dtype));
    }
    let [n, c, h, w] = a.view.shape[..] else {
        return Err(LayerError::shape(
            LAYER,
            "the first map",
            a.view.shape,
            "[N, C, H, W]",
        ));
    };
    let map = new_map(ops, LAYER, [n, c, h, w], a.dtype)?;
    made(ops, map, |ops, map| {
        let op = OpDesc::Binary {
            lhs: a.operand(),
            rhs: b.operand(),
            dst: map.operand(),
            kind: BinaryKind::Add,
        };
        ops.run(&op, &[a.buffer, b.buffer, map.buffer])
            .map_err(LayerError::device(LAYER))?;
        activate(ops, LAYER, activation, map)
    })
}

/// Applies an activation in place; none costs nothing.
pub(super) fn activate(
    ops: &mut OpContext<'_>,
    layer: &str,
    activation: Activation,
    map: &DeviceTensor,
) -> Result<(), LayerError> {
    if activation == Activation::Identity {
        return Ok(());
    }
    let op = OpDesc::Unary {
        src: map.operand(),
        dst: map.operand(),
        activation,
    };
    ops.run(&op, &[map.buffer, map.buffer])
        .map_err(LayerError::device(layer))
}
