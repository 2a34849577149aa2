//! A 2-D convolution.

use std::ops::Range;

use super::maps::{lent, made, new_map};
use super::prepared::{HostWeights, Prepared};
use super::{Conv2dSpec, LayerError, Padding, PreparedInput, Slicing, WeightTerms, bf16_terms};
use crate::device::{Activation, Conv2dDesc, Device, ResidualOrder};
use crate::ops::{DeviceTensor, OpContext};
use crate::precision::Math;
use crate::tensor::DType;

/// A 2-D convolution whose weights are brought to the device when it first runs.
#[derive(Debug)]
pub struct Conv2d {
    name: String,
    spec: Conv2dSpec,
    /// One for each term of the weights.
    terms: Vec<HostWeights>,
    prepared: Prepared,
}

/// What becomes of the sum of one launch.
#[derive(Clone, Copy)]
struct After<'a> {
    activation: Activation,
    /// Added before the activation.
    residual: Option<&'a DeviceTensor>,
}

impl Conv2d {
    /// A layer; errors and logs name it.
    ///
    /// # Errors
    /// [`LayerError::Weights`] for sizes that do not fit each other; [`LayerError::Refused`] for padding as wide as a window,
    /// and for two-term weights that are not bf16.
    pub fn new(name: &str, spec: Conv2dSpec) -> Result<Self, LayerError> {
        spec.check(name)?;
        let terms = match spec.terms {
            WeightTerms::One => vec![spec.weights.clone()],
            WeightTerms::Two => {
                let weights = bf16_terms(&spec.weights.weight);
                let biases = spec.weights.bias.as_deref().map(bf16_terms);
                let [hi, lo] = biases.map_or([None, None], |terms| terms.map(Some));
                let [weight, rest] = weights;
                vec![
                    HostWeights { weight, bias: hi },
                    HostWeights {
                        weight: rest,
                        bias: lo,
                    },
                ]
            }
        };
        Ok(Self {
            name: name.into(),
            spec,
            terms,
            prepared: Prepared::default(),
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is made of.
    #[must_use]
    pub const fn spec(&self) -> &Conv2dSpec {
        &self.spec
    }

    /// Whether every output pixel depends on the input pixel of the same place alone: one product of matrices.
    #[must_use]
    pub fn is_matmul(&self) -> bool {
        let spec = &self.spec;
        spec.kernel() == [1; 2]
            && spec.stride == [1; 2]
            && spec.pads(0) == [0; 2]
            && spec.pads(1) == [0; 2]
            && spec.groups == 1
    }

    /// Rows and columns of the output for an input of so many; `None` where the kernel does not fit.
    #[must_use]
    pub fn out_hw(&self, [rows, columns]: [usize; 2]) -> Option<[usize; 2]> {
        Some([self.spec.out_size(0, rows)?, self.spec.out_size(1, columns)?])
    }

    /// Shape of the output, `[N, C, H, W]`.
    ///
    /// # Errors
    /// [`LayerError::Shape`].
    pub fn out_shape(&self, input: &DeviceTensor) -> Result<[usize; 4], LayerError> {
        let found = input.view.shape;
        let shape = match found[..] {
            [n, c, h, w] if c == self.spec.inputs() => {
                self.out_hw([h, w]).map(|[h, w]| [n, self.spec.outputs(), h, w])
            }
            _ => None,
        };
        shape.ok_or_else(|| {
            let [rows, columns] = self.spec.kernel();
            let expected = format!(
                "[N, {}, H, W] with room for a kernel of {rows} x {columns}",
                self.spec.inputs()
            );
            LayerError::shape(&self.name, "the input", found, expected)
        })
    }

    /// Runs into a new feature map, which the caller frees.
    ///
    /// # Errors
    /// [`LayerError`]; nothing stays allocated but weights.
    pub fn forward(&self, ops: &mut OpContext<'_>, input: &DeviceTensor) -> Result<DeviceTensor, LayerError> {
        let shape = self.out_shape(input)?;
        let dtype = self.spec.output.unwrap_or(input.dtype);
        let map = new_map(ops, &self.name, shape, dtype)?;
        made(ops, map, |ops, map| self.forward_into(ops, input, map))
    }

    /// Runs into a feature map that exists. A type that the device cannot store from sums of this input (it can store fp32
    /// and the input's) goes through fp32.
    ///
    /// # Errors
    /// [`LayerError`]; nothing stays allocated but weights. [`LayerError::DType`] for an output of another type than the
    /// layer names, [`LayerError::Refused`] for two-term weights on fp32 inputs.
    pub fn forward_into(
        &self,
        ops: &mut OpContext<'_>,
        input: &DeviceTensor,
        output: &DeviceTensor,
    ) -> Result<(), LayerError> {
        self.check_output(input, output)?;
        if let Some(expected) = self.spec.output.filter(|&dtype| dtype != output.dtype) {
            return Err(LayerError::dtype(
                &self.name,
                "the output",
                output.dtype,
                expected,
            ));
        }
        let direct = [DType::F32, input.dtype].contains(&output.dtype);
        let after = After {
            activation: self.spec.activation,
            residual: None,
        };
        match self.spec.terms {
            WeightTerms::One if direct => self.launch(ops, 0, input, output, after)?,
            WeightTerms::One => {
                let sums = self.sums(ops, input)?;
                lent(ops, sums, |ops, sums| {
                    self.launch(ops, 0, input, sums, after)?;
                    ops.copy(sums, output).map_err(LayerError::device(&self.name))
                })?;
            }
            WeightTerms::Two => self.two_terms(ops, input, output)?,
        }
        self.prepared.ran(input);
        Ok(())
    }

    /// Runs without the layer's own activation and adds another map: `output = then(conv(input) + added)`, computed in fp32
    /// and rounded once. Output and added map have one type: fp32, or the input's.
    ///
    /// # Errors
    /// [`LayerError`]; nothing stays allocated but weights. [`LayerError::Refused`] for two-term weights, whose sum is one
    /// of its own.
    pub fn forward_added(
        &self,
        ops: &mut OpContext<'_>,
        input: &DeviceTensor,
        added: &DeviceTensor,
        then: Activation,
        output: &DeviceTensor,
    ) -> Result<(), LayerError> {
        self.check_output(input, output)?;
        if added.view.shape != output.view.shape {
            let expected = output.view.shape.to_string();
            return Err(LayerError::shape(
                &self.name,
                "the added map",
                added.view.shape,
                expected,
            ));
        }
        if self.spec.terms == WeightTerms::Two {
            let reason = "a map is not added to the sum of two terms: add it behind the layer";
            return Err(LayerError::refused(&self.name, reason));
        }
        let after = After {
            activation: then,
            residual: Some(added),
        };
        self.launch(ops, 0, input, output, after)?;
        self.prepared.ran(input);
        Ok(())
    }

    /// The inputs for which weights are ready, in the order in which they came.
    #[must_use]
    pub fn prepared_inputs(&self) -> Vec<PreparedInput> {
        self.prepared.inputs()
    }

    /// Returns the weights' memory. The layer may run again.
    pub fn release(&self, device: &mut dyn Device) {
        self.prepared.release(device);
    }

    /// One line for logs.
    #[must_use]
    pub fn describe(&self) -> String {
        let spec = &self.spec;
        let [rows, columns] = spec.kernel();
        let mut text = format!(
            "{}: {rows} x {columns}, {} -> {}, {}",
            self.name,
            spec.inputs(),
            spec.outputs(),
            spec.math
        );
        let mut add = |differs: bool, part: String| {
            if differs {
                text += ", ";
                text += &part;
            }
        };
        add(spec.stride != [1; 2], format!("stride {:?}", spec.stride));
        add(
            spec.padding != Padding::Same,
            format!("padding {:?} {:?}", spec.pads(0), spec.pads(1)),
        );
        add(spec.dilation != [1; 2], format!("dilation {:?}", spec.dilation));
        add(spec.groups != 1, format!("{} groups", spec.groups));
        add(
            spec.activation != Activation::Identity,
            format!("{:?}", spec.activation),
        );
        add(spec.terms == WeightTerms::Two, "two-term weights".into());
        if let Some(dtype) = spec.output {
            add(true, format!("output {dtype}"));
        }
        if let Slicing::Height(parts) = spec.slicing {
            add(true, format!("{parts} slices of rows"));
        }
        text
    }

    fn check_output(&self, input: &DeviceTensor, output: &DeviceTensor) -> Result<(), LayerError> {
        let expected = self.out_shape(input)?;
        if output.view.shape[..] == expected {
            return Ok(());
        }
        let expected = format!("{expected:?}");
        Err(LayerError::shape(
            &self.name,
            "the output",
            output.view.shape,
            expected,
        ))
    }

    /// A new fp32 map for the sums.
    fn sums(&self, ops: &mut OpContext<'_>, input: &DeviceTensor) -> Result<DeviceTensor, LayerError> {
        new_map(ops, &self.name, self.out_shape(input)?, DType::F32)
    }

    /// `act(conv_hi(x) + conv_lo(x))`: summed in fp32, rounded once behind the activation.
    fn two_terms(
        &self,
        ops: &mut OpContext<'_>,
        input: &DeviceTensor,
        output: &DeviceTensor,
    ) -> Result<(), LayerError> {
        if self.spec.math == Math::Native && input.dtype == DType::F32 {
            let reason = "the device multiplies fp32 inputs with fp32 weights, which are more exact than two terms of bf16";
            return Err(LayerError::refused(&self.name, reason));
        }
        let high = self.sums(ops, input)?;
        lent(ops, high, |ops, high| {
            let plain = After {
                activation: Activation::Identity,
                residual: None,
            };
            self.launch(ops, 0, input, high, plain)?;
            if output.dtype == DType::F32 {
                return self.second_term(ops, input, high, output);
            }
            let both = self.sums(ops, input)?;
            lent(ops, both, |ops, both| {
                self.second_term(ops, input, high, both)?;
                ops.copy(both, output).map_err(LayerError::device(&self.name))
            })
        })
    }

    /// `to = act(conv_lo(x) + high)`
    fn second_term(
        &self,
        ops: &mut OpContext<'_>,
        input: &DeviceTensor,
        high: &DeviceTensor,
        to: &DeviceTensor,
    ) -> Result<(), LayerError> {
        let after = After {
            activation: self.spec.activation,
            residual: Some(high),
        };
        self.launch(ops, 1, input, to, after)
    }

    /// The launches of one term.
    fn launch(
        &self,
        ops: &mut OpContext<'_>,
        term: usize,
        input: &DeviceTensor,
        output: &DeviceTensor,
        after: After<'_>,
    ) -> Result<(), LayerError> {
        let rows = output.view.shape[2];
        let parts = match self.spec.slicing {
            Slicing::Whole => 1,
            Slicing::Height(parts) if parts > rows => {
                let reason = format!("{parts} slices of {rows} rows");
                return Err(LayerError::weights(&self.name, reason));
            }
            Slicing::Height(parts) => parts,
        };
        for part in 0..parts {
            self.launch_rows(
                ops,
                term,
                input,
                output,
                after,
                rows * part / parts..rows * (part + 1) / parts,
            )?;
        }
        Ok(())
    }

    /// One launch for some rows of the output, reading the rows of the input that it needs.
    fn launch_rows(
        &self,
        ops: &mut OpContext<'_>,
        term: usize,
        input: &DeviceTensor,
        output: &DeviceTensor,
        after: After<'_>,
        rows: Range<usize>,
    ) -> Result<(), LayerError> {
        let spec = &self.spec;
        let mut geometry = spec.geometry();
        let windows = |tensor: &DeviceTensor, first: usize, count: usize| {
            let view = tensor
                .view
                .slice(2, first, count, 1)
                .map_err(LayerError::tensor(&self.name))?;
            Ok::<_, LayerError>(DeviceTensor { view, ..*tensor })
        };
        // Rows of the padded input; padding is narrower than a window, so at least one of them is inside.
        let begin = rows.start * spec.stride[0];
        let end = (rows.end - 1) * spec.stride[0] + spec.reach(0);
        let pad = geometry.pad_begin[0];
        let (first, last) = (begin.saturating_sub(pad), (end - pad).min(input.view.shape[2]));
        geometry.pad_begin[0] = pad.saturating_sub(begin);
        let from = windows(input, first, last - first)?;
        let to = windows(output, rows.start, rows.len())?;
        let added = after
            .residual
            .map(|added| windows(added, rows.start, rows.len()))
            .transpose()?;
        let desc = Conv2dDesc {
            input: from.operand(),
            output: to.operand(),
            residual: added.map(|added| added.operand()),
            residual_order: match added {
                Some(_) => ResidualOrder::BeforeActivation,
                None => ResidualOrder::AfterActivation,
            },
            geometry,
            groups: spec.groups,
            activation: after.activation,
            math: spec.math,
        };
        let weights = (term, &self.terms[term]);
        self.prepared
            .run(ops, &self.name, weights, desc, [&from, &to], added.as_ref())
    }
}
