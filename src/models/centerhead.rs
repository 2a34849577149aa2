//! The head of CenterPoint: one shared convolution, then two small layers for each kind of output.

use std::collections::BTreeMap;
use std::ops::Range;

use ndarray::{Array2, Array3, ArrayView3, s};

use super::block_error::BlockError;
use super::layers::{ConvKind, ConvLayer, ConvSpec, RowLinear, free, new_map};
use crate::device::{Activation, BufferClass, Device, OpDesc};
use crate::ops::{DeviceTensor, OpContext};
use crate::tensor::{DType, TensorSpec};

/// Size in bytes up to which a strip of the heads' hidden channels is made before it is used up, so that it is still in
/// a cache then.
const STRIP_BYTES: usize = 1 << 20;

/// One output of the head: a 1 x 1 convolution with a ReLU, and one without.
#[derive(Debug, Clone)]
pub struct HeadSpec {
    /// Name of the output.
    pub name: String,
    /// Hidden layer.
    pub hidden: ConvSpec,
    /// Last layer.
    pub output: ConvSpec,
}

/// Two dense layers that do what the two layers of several heads do.
#[derive(Debug, Clone, PartialEq)]
pub struct MergedHeads {
    /// Hidden layers beside each other, `[inputs, sum of hidden]`.
    pub hidden_weight: Array2<f32>,
    /// Their biases.
    pub hidden_bias: Vec<f32>,
    /// Last layers as blocks on the diagonal, `[sum of hidden, outputs]`.
    pub output_weight: Array2<f32>,
    /// Their biases.
    pub output_bias: Vec<f32>,
    /// Names and output channels.
    pub slices: Vec<(String, Range<usize>)>,
}

/// Merges heads on the same input; the outputs are padded with zeros to a multiple of `pad_to` channels. Exact for
/// finite values: every product that is added is one with zero.
///
/// # Errors
/// [`BlockError::Weights`] if there are no heads, or layers are not 1 x 1, do not follow each other, or lack or have a
/// ReLU where they should not.
pub fn merge_heads(heads: &[HeadSpec], pad_to: usize) -> Result<MergedHeads, BlockError> {
    let Some(first) = heads.first() else {
        return Err(BlockError::weights("head", "there are no heads"));
    };
    let inputs = first.hidden.inputs();
    for head in heads {
        check_head(head, inputs)?;
    }
    let width: usize = heads.iter().map(|head| head.hidden.outputs()).sum();
    let outputs: usize = heads.iter().map(|head| head.output.outputs()).sum();
    let padded = outputs.next_multiple_of(pad_to.max(1));
    let mut merged = MergedHeads {
        hidden_weight: Array2::zeros((inputs, width)),
        hidden_bias: Vec::with_capacity(width),
        output_weight: Array2::zeros((width, padded)),
        output_bias: Vec::with_capacity(padded),
        slices: Vec::with_capacity(heads.len()),
    };
    for head in heads {
        let hidden = merged.hidden_bias.len()..merged.hidden_bias.len() + head.hidden.outputs();
        let output = merged.output_bias.len()..merged.output_bias.len() + head.output.outputs();
        let place = |spec: &ConvSpec, mut to: ndarray::ArrayViewMut2<'_, f32>| {
            to.assign(&spec.weight().slice(s![.., .., 0, 0]).t());
        };
        place(
            &head.hidden,
            merged.hidden_weight.slice_mut(s![.., hidden.clone()]),
        );
        place(
            &head.output,
            merged.output_weight.slice_mut(s![hidden, output.clone()]),
        );
        merged.hidden_bias.extend(head.hidden.bias());
        merged.output_bias.extend(head.output.bias());
        merged.slices.push((head.name.clone(), output));
    }
    merged.output_bias.resize(padded, 0.0);
    Ok(merged)
}

fn check_head(head: &HeadSpec, inputs: usize) -> Result<(), BlockError> {
    let (hidden, output) = (&head.hidden, &head.output);
    let form = |spec: &ConvSpec| {
        spec.kind() == ConvKind::Conv && spec.weight().dim().2 == 1 && spec.weight().dim().3 == 1
    };
    let reason = if !form(hidden) || !form(output) {
        "heads of 1 x 1 convolutions are expected".to_owned()
    } else if hidden.inputs() != inputs || output.inputs() != hidden.outputs() {
        format!(
            "{} channels to {}, then {} to {}, on an input of {inputs}",
            hidden.inputs(),
            hidden.outputs(),
            output.inputs(),
            output.outputs()
        )
    } else if hidden.bias().len() != hidden.outputs() || output.bias().len() != output.outputs() {
        "one bias per output channel is expected".to_owned()
    } else if !hidden.has_relu() || output.has_relu() {
        "the hidden layer has a ReLU, the last one has none".to_owned()
    } else {
        return Ok(());
    };
    Err(BlockError::weights(&format!("head.{}", head.name), reason))
}

/// `relu(conv(concat(inputs)))` and the merged heads. Weights are brought to the device in the first run.
///
/// Inputs that are neighbouring channels of one map, as a neck makes them, are read in place; others are copied beside
/// each other first. With `k_split` the convolution is taken of each input and the results are added instead, in fp32:
/// the same sum in another order, for inputs that cannot lie in one map.
#[derive(Debug)]
pub struct CenterHead {
    /// One layer, or one for each input.
    shared: Vec<ConvLayer>,
    split: Vec<usize>,
    hidden: RowLinear,
    output: RowLinear,
    hidden_channels: usize,
    channels: usize,
    slices: Vec<(String, Range<usize>)>,
}

impl CenterHead {
    /// A head on inputs with `split` channels each.
    ///
    /// # Errors
    /// [`BlockError::Weights`].
    pub fn new(
        shared: ConvSpec,
        split: &[usize],
        heads: &[HeadSpec],
        k_split: bool,
    ) -> Result<Self, BlockError> {
        const SHARED: &str = "head.shared";
        let merged = merge_heads(heads, 1)?;
        let sum: usize = split.iter().sum();
        let reason = if sum != shared.inputs() || split.contains(&0) {
            format!("inputs of {split:?} channels for a layer of {}", shared.inputs())
        } else if shared.outputs() != merged.hidden_weight.nrows() {
            format!(
                "{} channels for heads of {}",
                shared.outputs(),
                merged.hidden_weight.nrows()
            )
        } else if shared.kind() != ConvKind::Conv || !shared.has_relu() {
            "a convolution with a ReLU is expected".to_owned()
        } else {
            String::new()
        };
        if !reason.is_empty() {
            return Err(BlockError::weights(SHARED, reason));
        }
        let shared = match k_split && split.len() > 1 {
            true => split_inputs(&shared, split)
                .into_iter()
                .enumerate()
                .map(|(part, spec)| ConvLayer::new(format!("{SHARED}.part{part}"), spec))
                .collect::<Result<_, _>>()?,
            false => vec![ConvLayer::new(SHARED.into(), shared)?],
        };
        let hidden_bias = Some(&*merged.hidden_bias);
        let output_bias = Some(&*merged.output_bias);
        Ok(Self {
            shared,
            split: split.to_vec(),
            hidden: RowLinear::new("head.hidden", merged.hidden_weight.view(), hidden_bias, true)?,
            output: RowLinear::new("head.out", merged.output_weight.view(), output_bias, false)?,
            hidden_channels: merged.hidden_bias.len(),
            channels: merged.output_bias.len(),
            slices: merged.slices,
        })
    }

    /// Names of the outputs and their channels in the result.
    #[must_use]
    pub fn slices(&self) -> &[(String, Range<usize>)] {
        &self.slices
    }

    /// What a run makes: fp32 `[n, height, width, channels]`, row-major.
    ///
    /// # Errors
    /// [`BlockError::Tensor`].
    pub fn out_spec(&self, [n, height, width]: [usize; 3]) -> Result<TensorSpec, BlockError> {
        TensorSpec::new(&[n, height, width, self.channels], DType::F32).map_err(BlockError::tensor("head"))
    }

    /// Runs on the neck's outputs: all of them as one map, or one map each. The result, fp32 as
    /// [`CenterHead::out_spec`] says, is freed by the caller; the inputs stay.
    ///
    /// # Errors
    /// [`BlockError`]; nothing stays allocated but weights.
    pub fn forward(
        &self,
        ops: &mut OpContext<'_>,
        inputs: &[DeviceTensor],
    ) -> Result<DeviceTensor, BlockError> {
        let shared = self.shared_forward(ops, inputs)?;
        let output = self.new_output(ops, &shared).and_then(|output| {
            let made = self.heads_forward(ops, &shared, &output);
            if made.is_err() {
                free(ops, &[output]);
            }
            made.map(|()| output)
        });
        free(ops, &[shared]);
        output
    }

    /// As [`CenterHead::forward`], into a result that exists.
    ///
    /// # Errors
    /// [`BlockError`]; nothing stays allocated but weights.
    pub fn forward_into(
        &self,
        ops: &mut OpContext<'_>,
        inputs: &[DeviceTensor],
        output: &DeviceTensor,
    ) -> Result<(), BlockError> {
        let shared = self.shared_forward(ops, inputs)?;
        let made = self.heads_forward(ops, &shared, output);
        free(ops, &[shared]);
        made
    }

    fn new_output(&self, ops: &mut OpContext<'_>, shared: &DeviceTensor) -> Result<DeviceTensor, BlockError> {
        let shape = shared.view.shape;
        let spec = self.out_spec([shape[0], shape[2], shape[3]])?;
        ops.alloc(&spec, BufferClass::Output)
            .map_err(BlockError::device("head"))
    }

    /// The shared convolution alone: a feature map, freed by the caller.
    ///
    /// # Errors
    /// [`BlockError`]; nothing stays allocated but weights.
    pub fn shared_forward(
        &self,
        ops: &mut OpContext<'_>,
        inputs: &[DeviceTensor],
    ) -> Result<DeviceTensor, BlockError> {
        const SHARED: &str = "head.shared";
        let parts = self.parts(inputs)?;
        if let [whole] = &*self.shared {
            if let Some(joined) = join_channels(&parts) {
                return whole.run_new(ops, &joined);
            }
            let joined = concat(ops, SHARED, &parts)?;
            let made = whole.run_new(ops, &joined);
            free(ops, &[joined]);
            return made;
        }
        let sum = self.add_parts(ops, &parts)?;
        let dtype = parts[0].dtype;
        if dtype == DType::F32 {
            return Ok(sum);
        }
        let shape = sum.view.shape;
        let made =
            new_map(ops, SHARED, [shape[0], shape[1], shape[2], shape[3]], dtype).and_then(|rounded| {
                let copied = ops.copy(&sum, &rounded).map_err(BlockError::device(SHARED));
                if copied.is_err() {
                    free(ops, &[rounded]);
                }
                copied.map(|()| rounded)
            });
        free(ops, &[sum]);
        made
    }

    /// The sum of one convolution for each part, in fp32 and with the ReLU behind it.
    fn add_parts(&self, ops: &mut OpContext<'_>, parts: &[DeviceTensor]) -> Result<DeviceTensor, BlockError> {
        let mut last: Option<DeviceTensor> = None;
        let outcome = self.shared.iter().zip(parts).try_for_each(|(layer, part)| {
            let shape = layer.out_shape(&part.view.shape)?;
            let next = new_map(ops, layer.name(), shape, DType::F32)?;
            let before = last.replace(next);
            let ran = layer.run(ops, part, &next, before.as_ref());
            free(ops, before.as_slice());
            ran
        });
        let Some(sum) = last else {
            return Err(BlockError::weights("head.shared", "there are no inputs"));
        };
        let outcome = outcome.and_then(|()| {
            let relu = OpDesc::Unary {
                src: sum.operand(),
                dst: sum.operand(),
                activation: Activation::Relu,
            };
            ops.run(&relu, &[sum.buffer, sum.buffer])
                .map_err(BlockError::device("head.shared"))
        });
        if outcome.is_err() {
            free(ops, &[sum]);
        }
        outcome.map(|()| sum)
    }

    /// The merged heads alone, into a result that exists: strip by strip, so that what the hidden layer makes is read
    /// before it leaves the cache.
    ///
    /// # Errors
    /// [`BlockError`]; nothing stays allocated but weights.
    pub fn heads_forward(
        &self,
        ops: &mut OpContext<'_>,
        shared: &DeviceTensor,
        output: &DeviceTensor,
    ) -> Result<(), BlockError> {
        const HEAD: &str = "head";
        let shape = shared.view.shape;
        let [n, _, height, width] = shape[..] else {
            return Err(BlockError::shape(HEAD, "the input", shape, "[N, C, H, W]"));
        };
        let expected = self.out_spec([n, height, width])?;
        if output.view.shape != expected.shape {
            let expected = expected.shape.to_string();
            return Err(BlockError::shape(HEAD, "the result", output.view.shape, expected));
        }
        if output.dtype != expected.dtype {
            return Err(BlockError::DType {
                block: HEAD.into(),
                tensor: "the result".into(),
                found: output.dtype,
                expected: expected.dtype,
            });
        }
        let rows = shared.view.transpose(&[0, 2, 3, 1]);
        let rows = DeviceTensor {
            view: rows.map_err(BlockError::tensor(HEAD))?,
            ..*shared
        };
        let line_bytes = width * self.hidden_channels * shared.dtype.size_bytes();
        let lines = (STRIP_BYTES / line_bytes.max(1)).clamp(1, height);
        let spec = TensorSpec::new(&[lines, width, self.hidden_channels], shared.dtype);
        let spec = spec.map_err(BlockError::tensor(HEAD))?;
        let strip = ops
            .alloc(&spec, BufferClass::Intermediate)
            .map_err(BlockError::device(HEAD))?;
        let places = (0..n).flat_map(|image| (0..height).step_by(lines).map(move |line| (image, line)));
        let mut made = Ok(());
        for (image, line) in places {
            let count = lines.min(height - line);
            let part = |tensor: &DeviceTensor| -> Result<DeviceTensor, BlockError> {
                let view = tensor.view.slice(0, image, 1, 1);
                let view = view.and_then(|view| view.slice(1, line, count, 1));
                Ok(DeviceTensor {
                    view: view.map_err(BlockError::tensor(HEAD))?,
                    ..*tensor
                })
            };
            made = self.strip(ops, [part(&rows), part(output)], &strip, count);
            if made.is_err() {
                break;
            }
        }
        free(ops, &[strip]);
        made
    }

    fn strip(
        &self,
        ops: &mut OpContext<'_>,
        [rows, output]: [Result<DeviceTensor, BlockError>; 2],
        strip: &DeviceTensor,
        count: usize,
    ) -> Result<(), BlockError> {
        let (rows, output) = (rows?, output?);
        let view = strip.view.slice(0, 0, count, 1);
        let hidden = DeviceTensor {
            view: view.map_err(BlockError::tensor("head"))?,
            ..*strip
        };
        self.hidden.forward_into(ops, &rows, &hidden)?;
        self.output.forward_into(ops, &hidden, &output)
    }

    /// The outputs of one image out of what a run made: `[channels, height, width]` by name.
    ///
    /// # Errors
    /// [`BlockError::Count`] if there is another number of values.
    pub fn unpack(
        &self,
        rows: &[f32],
        [height, width]: [usize; 2],
    ) -> Result<BTreeMap<String, Array3<f32>>, BlockError> {
        let wrong = |_| BlockError::Count {
            block: "head".into(),
            found: rows.len(),
            expected: height * width * self.channels,
        };
        let maps = ArrayView3::from_shape((height, width, self.channels), rows).map_err(wrong)?;
        let maps = maps.permuted_axes([2, 0, 1]);
        let map = |(name, channels): &(String, Range<usize>)| {
            let map = maps.slice(s![channels.clone(), .., ..]);
            (name.clone(), map.as_standard_layout().into_owned())
        };
        Ok(self.slices.iter().map(map).collect())
    }

    /// Returns the weights' memory. The head may run again.
    pub fn release(&self, device: &mut dyn Device) {
        for layer in &self.shared {
            layer.release(device);
        }
        self.hidden.release(device);
        self.output.release(device);
    }

    /// The inputs one by one, checked against each other.
    fn parts(&self, inputs: &[DeviceTensor]) -> Result<Vec<DeviceTensor>, BlockError> {
        const HEAD: &str = "head";
        let parts = match inputs {
            [joined] if self.split.len() > 1 => divide(joined, &self.split)?,
            _ => inputs.to_vec(),
        };
        if parts.len() != self.split.len() || parts.is_empty() {
            return Err(BlockError::Count {
                block: HEAD.into(),
                found: parts.len(),
                expected: self.split.len(),
            });
        }
        let first = parts[0];
        for (part, &channels) in parts.iter().zip(&self.split) {
            let (shape, reference) = (part.view.shape, first.view.shape);
            let fits = shape.rank() == 4
                && shape[1] == channels
                && shape[0] == reference[0]
                && shape[2..] == reference[2..];
            if !fits {
                let expected = format!("[N, {channels}, H, W] of one size with {reference}");
                return Err(BlockError::shape(HEAD, "an input", shape, expected));
            }
            if part.dtype != first.dtype {
                return Err(BlockError::DType {
                    block: HEAD.into(),
                    tensor: "an input".into(),
                    found: part.dtype,
                    expected: first.dtype,
                });
            }
        }
        Ok(parts)
    }
}

/// A convolution for each part of the input channels; the first has the bias, none has the ReLU.
fn split_inputs(whole: &ConvSpec, split: &[usize]) -> Vec<ConvSpec> {
    let mut first = 0;
    let parts = split.iter().map(|&channels| {
        let part = whole.part(first..first + channels);
        first += channels;
        part
    });
    parts.collect()
}

/// Some channels each of one map.
fn divide(joined: &DeviceTensor, split: &[usize]) -> Result<Vec<DeviceTensor>, BlockError> {
    let shape = joined.view.shape;
    let channels: usize = split.iter().sum();
    if shape.rank() != 4 || shape[1] != channels {
        let expected = format!("[N, {channels}, H, W]");
        return Err(BlockError::shape("head", "the input", shape, expected));
    }
    let mut first = 0;
    let parts = split.iter().map(|&channels| {
        let view = joined.view.slice(1, first, channels, 1);
        first += channels;
        let view = view.map_err(BlockError::tensor("head"))?;
        Ok(DeviceTensor { view, ..*joined })
    });
    parts.collect()
}

/// The maps as one, where they are neighbouring channels of one buffer.
fn join_channels(parts: &[DeviceTensor]) -> Option<DeviceTensor> {
    let first = parts.first()?;
    let mut channels = 0;
    for part in parts {
        let beside = part.buffer == first.buffer
            && part.view.strides == first.view.strides
            && part.view.offset == first.view.offset + channels;
        if !beside {
            return None;
        }
        channels += part.view.shape[1];
    }
    let mut view = first.view;
    let [n, _, h, w] = view.shape[..] else {
        return None;
    };
    view.shape = crate::tensor::Shape::new(&[n, channels, h, w]).ok()?;
    Some(DeviceTensor { view, ..*first })
}

/// The maps beside each other in a new one.
fn concat(ops: &mut OpContext<'_>, block: &str, parts: &[DeviceTensor]) -> Result<DeviceTensor, BlockError> {
    let shape = parts[0].view.shape;
    let split: Vec<usize> = parts.iter().map(|part| part.view.shape[1]).collect();
    let dims = [shape[0], split.iter().sum(), shape[2], shape[3]];
    let joined = new_map(ops, block, dims, parts[0].dtype)?;
    let copied = divide(&joined, &split).and_then(|places| {
        let mut pairs = parts.iter().zip(&places);
        pairs.try_for_each(|(from, to)| ops.copy(from, to).map_err(BlockError::device(block)))
    });
    if copied.is_err() {
        free(ops, &[joined]);
    }
    copied.map(|()| joined)
}
