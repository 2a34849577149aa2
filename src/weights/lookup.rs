//! Nodes of a model by name and pattern, and what belongs to them.

use std::sync::Arc;

use super::lookup_error::Reason;
use super::{
    Array, AutoPad, BatchNorm, ConvParams, ElementType, GemmParams, LookupError, Node, OnnxModel, Pattern,
    StateDict, Values, fold_bn_conv, fold_bn_conv_transpose,
};
use crate::tensor::Shape;

/// The most that a name may differ from the one that is advised, in edits.
const NEAR_EDITS: usize = 3;

impl OnnxModel {
    /// The node of a name; nodes without one are called `<op_type>_<index>`.
    ///
    /// # Errors
    /// [`LookupError::NoNode`] with the nearest name, [`LookupError::NameTwice`].
    pub fn node(&self, name: &str) -> Result<&Node, LookupError> {
        let found: Vec<&Node> = self.all_nodes().iter().filter(|n| n.name == name).collect();
        match found[..] {
            [node] => Ok(node),
            [] => Err(LookupError::NoNode {
                model: self.name().to_owned(),
                name: name.to_owned(),
                advice: self.nearest(name),
            }),
            _ => Err(LookupError::NameTwice {
                model: self.name().to_owned(),
                name: name.to_owned(),
                count: found.len(),
            }),
        }
    }

    fn nearest(&self, name: &str) -> String {
        let near = self
            .all_nodes()
            .iter()
            .map(|n| (strsim::levenshtein(name, &n.name), &n.name))
            .min();
        near.filter(|&(edits, _)| edits <= NEAR_EDITS)
            .map_or_else(String::new, |(_, near)| format!("; did you mean `{near}`?"))
    }

    /// The nodes whose name fits a pattern, of one operation where one is named, in order.
    pub fn nodes_like<'a, 'p>(
        &'a self,
        pattern: &'p Pattern,
        op_type: Option<&'p str>,
    ) -> impl Iterator<Item = &'a Node> + use<'a, 'p> {
        self.all_nodes()
            .iter()
            .filter(move |n| op_type.is_none_or(|op| n.op_type == op) && pattern.matches(&n.name))
    }

    /// The one node whose name fits a pattern, of one operation where one is named.
    ///
    /// # Errors
    /// [`LookupError::NotOne`] if none or several fit.
    pub fn find_node(&self, pattern: &Pattern, op_type: Option<&str>) -> Result<&Node, LookupError> {
        let found: Vec<&Node> = self
            .all_nodes()
            .iter()
            .filter(|n| op_type.is_none_or(|op| n.op_type == op) && pattern.matches(&n.name))
            .collect();
        let [node] = found[..] else {
            let first: Vec<String> = found.iter().take(3).map(|n| format!("`{}`", n.name)).collect();
            return Err(LookupError::NotOne {
                model: self.name().to_owned(),
                pattern: op_type.map_or_else(|| pattern.to_string(), |op| format!("{pattern} ({op})")),
                count: found.len(),
                which: match &first[..] {
                    [] => String::new(),
                    some => format!(
                        ": {}{}",
                        some.join(", "),
                        if found.len() > 3 { ", ..." } else { "" }
                    ),
                },
            });
        };
        Ok(node)
    }

    /// The only node that reads a value, of one operation where one is named: `None` if there is none, or several.
    #[must_use]
    pub fn consumer_of(&self, value: &str, op_type: Option<&str>) -> Option<&Node> {
        let readers = self.consumers_of(value).iter().map(|&i| &self.all_nodes()[i]);
        let mut readers = readers.filter(|n| op_type.is_none_or(|op| n.op_type == op));
        readers.next().filter(|_| readers.next().is_none())
    }

    /// A constant: a named one, or what a `Constant` node holds; also through `Identity` nodes.
    #[must_use]
    pub fn constant(&self, value: &str) -> Option<Arc<Array>> {
        let mut value = value;
        loop {
            if let Some(array) = self.array(value) {
                return Some(Arc::clone(array));
            }
            // Nodes were sorted, so that a walk from value to producer ends.
            let node = self.producer_of(value)?;
            match node.op_type.as_str() {
                "Identity" => value = node.input(0)?,
                "Constant" => return constant_of(node),
                _ => return None,
            }
        }
    }

    /// Names of all named constants, in alphabetical order.
    pub fn initializer_names(&self) -> impl Iterator<Item = &str> {
        self.arrays().keys().map(String::as_str)
    }

    /// All named constants as a state dict.
    #[must_use]
    pub fn state_dict(&self) -> StateDict {
        StateDict::new(self.name(), self.arrays().clone())
    }

    /// The constant that a node reads at a position. Finds constants without a telling name by who uses them.
    ///
    /// # Errors
    /// [`LookupError`] if the node has no such input, or it is no constant.
    pub fn param(&self, node: &Node, slot: usize) -> Result<Arc<Array>, LookupError> {
        let value = node.input(slot).ok_or_else(|| LookupError::NoInput {
            model: self.name().to_owned(),
            node: node.name.clone(),
            slot,
        })?;
        self.constant(value).ok_or_else(|| LookupError::NotConstant {
            model: self.name().to_owned(),
            node: node.name.clone(),
            slot,
            value: value.to_owned(),
        })
    }

    /// All constants that a node reads, with their positions.
    #[must_use]
    pub fn params(&self, node: &Node) -> Vec<(usize, Arc<Array>)> {
        let slots = (0..node.inputs.len()).filter_map(|slot| Some((slot, node.input(slot)?)));
        slots
            .filter_map(|(slot, value)| Some((slot, self.constant(value)?)))
            .collect()
    }

    /// What a `Conv` or `ConvTranspose` holds.
    ///
    /// # Errors
    /// [`LookupError`] for another operation, weights that are no constant, or settings that do not fit them.
    pub fn conv(&self, node: &Node) -> Result<ConvParams, LookupError> {
        self.expect_op(node, &["Conv", "ConvTranspose"], "Conv or ConvTranspose")?;
        let weight = self.float_param(node, 1)?;
        let bias = node.input(2).map(|_| self.float_param(node, 2)).transpose()?;
        conv_params(node, weight, bias).map_err(|reason| self.wrong(node, reason))
    }

    /// What a `Gemm` holds.
    ///
    /// # Errors
    /// [`LookupError`] for another operation, or weights that are no constant.
    pub fn gemm(&self, node: &Node) -> Result<GemmParams, LookupError> {
        self.expect_op(node, &["Gemm"], "Gemm")?;
        let weight = self.float_param(node, 1)?;
        let bias = node.input(2).map(|_| self.float_param(node, 2)).transpose()?;
        let settings = || -> Result<_, Reason> {
            Ok((
                node.int("transA")?.unwrap_or(0) != 0,
                node.int("transB")?.unwrap_or(0) != 0,
                node.float("alpha")?.unwrap_or(1.0),
                node.float("beta")?.unwrap_or(1.0),
            ))
        };
        if weight.shape().rank() != 2 {
            let reason = format!("its second factor has shape {}", weight.shape());
            return Err(self.wrong(node, Reason(reason)));
        }
        let (trans_a, trans_b, alpha, beta) = settings().map_err(|reason| self.wrong(node, reason))?;
        Ok(GemmParams {
            weight,
            bias,
            trans_a,
            trans_b,
            alpha,
            beta,
        })
    }

    /// The constant factor of a `MatMul`, and whether it is the second one (`x * weight`) or the first.
    ///
    /// # Errors
    /// [`LookupError`] for another operation, or where not exactly one factor is a constant.
    pub fn matmul_weight(&self, node: &Node) -> Result<(Arc<Array>, usize), LookupError> {
        self.expect_op(node, &["MatMul"], "MatMul")?;
        match &self.params(node)[..] {
            [(slot, _)] => Ok((self.float_param(node, *slot)?, *slot)),
            constants => {
                let reason = format!("{} of its factors are constants, one is wanted", constants.len());
                Err(self.wrong(node, Reason(reason)))
            }
        }
    }

    /// What a `BatchNormalization` holds, in float64.
    ///
    /// # Errors
    /// [`LookupError`] for another operation, a training form, or parameters that are no constants.
    pub fn batchnorm(&self, node: &Node) -> Result<BatchNorm, LookupError> {
        self.expect_op(node, &["BatchNormalization"], "BatchNormalization")?;
        let settings = || -> Result<_, Reason> {
            if node.int("training_mode")?.unwrap_or(0) != 0 || node.output(1).is_some() {
                return Err(Reason("it is of the form for training".to_owned()));
            }
            Ok(node.float("epsilon")?.unwrap_or(1e-5))
        };
        let epsilon = settings().map_err(|reason| self.wrong(node, reason))?;
        let doubles = |slot| Ok(doubles(&*self.float_param(node, slot)?));
        let norm = BatchNorm {
            scale: doubles(1)?,
            shift: doubles(2)?,
            mean: doubles(3)?,
            variance: doubles(4)?,
            epsilon: f64::from(epsilon),
        };
        let fits = norm.affine(norm.channels());
        fits.map_err(|error| self.wrong(node, error.into()))?;
        Ok(norm)
    }

    /// A convolution with a batch normalisation folded into it, in float64 and rounded to f32 once: with `norm`, or
    /// with the one node that reads the convolution's result.
    ///
    /// # Errors
    /// [`LookupError`] as for [`Self::conv`] and [`Self::batchnorm`]; [`LookupError::NotFoldable`] where something
    /// else reads the convolution's result, so that its value before the normalisation is needed.
    pub fn fold_conv_bn(&self, conv: &Node, norm: Option<&Node>) -> Result<ConvParams, LookupError> {
        let params = self.conv(conv)?;
        let not_foldable = |reason: String| LookupError::NotFoldable {
            model: self.name().to_owned(),
            node: conv.name.clone(),
            reason,
        };
        let value = conv.output(0).unwrap_or_default();
        if self.outputs().iter().any(|o| o.name == value) {
            return Err(not_foldable(format!(
                "its result, `{value}`, is an output of the model"
            )));
        }
        let readers: Vec<&Node> = self
            .consumers_of(value)
            .iter()
            .map(|&i| &self.all_nodes()[i])
            .collect();
        let [reader] = readers[..] else {
            return Err(not_foldable(format!("{} nodes read its result", readers.len())));
        };
        if norm.is_some_and(|norm| norm != reader) || reader.op_type != "BatchNormalization" {
            return Err(not_foldable(format!(
                "`{}`, a {}, reads its result",
                reader.name, reader.op_type
            )));
        }
        let norm = self.batchnorm(reader)?;
        let (weight, bias) = (floats(&params.weight), params.bias.as_deref().map(floats));
        let dims = *params.weight.shape();
        let folded = match params.transposed {
            false if norm.channels() != dims[0] => Err(Reason(format!(
                "`{}` has {} channels, the convolution {}",
                reader.name,
                norm.channels(),
                dims[0]
            ))),
            false => fold_bn_conv(&weight, bias.as_deref(), &norm).map_err(Reason::from),
            true => fold_bn_conv_transpose(&weight, &dims, bias.as_deref(), &norm, params.group)
                .map_err(Reason::from),
        };
        let (weight, bias) = folded.map_err(|Reason(reason)| not_foldable(reason))?;
        let array = |dims: &[usize], values| {
            let shape = Shape::new(dims).map_err(|e| not_foldable(e.to_string()))?;
            let array = Array::new(shape, ElementType::F32, Values::F32(values));
            array
                .map(Arc::new)
                .ok_or_else(|| not_foldable("folding changed its shape".to_owned()))
        };
        Ok(ConvParams {
            bias: Some(array(&[bias.len()], bias)?),
            weight: array(&dims, weight)?,
            ..params
        })
    }

    fn expect_op(&self, node: &Node, allowed: &[&str], expected: &'static str) -> Result<(), LookupError> {
        if allowed.contains(&node.op_type.as_str()) && matches!(node.domain.as_str(), "" | "ai.onnx") {
            return Ok(());
        }
        Err(LookupError::Operation {
            model: self.name().to_owned(),
            node: node.name.clone(),
            found: node.op_type.clone(),
            expected,
        })
    }

    fn float_param(&self, node: &Node, slot: usize) -> Result<Arc<Array>, LookupError> {
        let array = self.param(node, slot)?;
        match array.element().is_float() {
            true => Ok(array),
            false => {
                let reason = format!("input {slot} is {}, floats are wanted", array.element());
                Err(self.wrong(node, Reason(reason)))
            }
        }
    }

    fn wrong(&self, node: &Node, Reason(reason): Reason) -> LookupError {
        LookupError::Node {
            model: self.name().to_owned(),
            node: node.name.clone(),
            reason,
        }
    }
}

fn constant_of(node: &Node) -> Option<Arc<Array>> {
    use super::Attribute::{Float, Floats, Int, Ints, Tensor};
    let one = |element, values: Values, dims: &[usize]| Array::new(Shape::new(dims).ok()?, element, values);
    let (_, value) = node.attributes.iter().find(|(key, _)| key.starts_with("value"))?;
    match value {
        Tensor(array) => Some(Arc::clone(array)),
        Float(v) => one(ElementType::F32, Values::F32(vec![*v]), &[]).map(Arc::new),
        Int(v) => one(ElementType::I64, Values::I64(vec![*v]), &[]).map(Arc::new),
        Floats(v) => one(ElementType::F32, Values::F32(v.clone()), &[v.len()]).map(Arc::new),
        Ints(v) => one(ElementType::I64, Values::I64(v.clone()), &[v.len()]).map(Arc::new),
        _ => None,
    }
}

/// Values of a constant of floats.
fn floats(array: &Array) -> Vec<f32> {
    array.to_f32().unwrap_or_default()
}

fn doubles(array: &Array) -> Vec<f64> {
    match array.values() {
        Values::F32(v) => v.iter().map(|&x| f64::from(x)).collect(),
        Values::F64(v) => v.clone(),
        Values::I64(v) => v.iter().map(|&x| x as f64).collect(),
    }
}

fn conv_params(node: &Node, weight: Arc<Array>, bias: Option<Arc<Array>>) -> Result<ConvParams, Reason> {
    let transposed = node.op_type == "ConvTranspose";
    let dims = *weight.shape();
    let Some(space) = dims.rank().checked_sub(2).filter(|&space| space > 0) else {
        return Err(Reason(format!("its weights have shape {dims}")));
    };
    let kernel_shape = sizes(node, "kernel_shape", space)?.unwrap_or_else(|| dims[2..].to_vec());
    if kernel_shape != dims[2..] {
        let reason = format!("its kernel_shape {kernel_shape:?} is not that of its weights, {dims}");
        return Err(Reason(reason));
    }
    let positive = |name: &str| -> Result<Vec<usize>, Reason> {
        let values = sizes(node, name, space)?.unwrap_or_else(|| vec![1; space]);
        match values.contains(&0) {
            true => Err(Reason(format!("its {name} are {values:?}, at least 1 is wanted"))),
            false => Ok(values),
        }
    };
    let group = node.int("group")?.unwrap_or(1);
    let group = usize::try_from(group)
        .ok()
        .filter(|&g| g > 0 && dims[0].is_multiple_of(g));
    let Some(group) = group else {
        return Err(Reason(format!(
            "its groups do not divide the {} channels of its weights",
            dims[0]
        )));
    };
    let auto_pad = node.text("auto_pad")?.unwrap_or("NOTSET");
    let auto_pad =
        AutoPad::named(auto_pad).ok_or_else(|| Reason(format!("no auto_pad is called `{auto_pad}`")))?;
    let params = ConvParams {
        transposed,
        strides: positive("strides")?,
        pads: sizes(node, "pads", 2 * space)?.unwrap_or_else(|| vec![0; 2 * space]),
        dilations: positive("dilations")?,
        group,
        kernel_shape,
        output_padding: sizes(node, "output_padding", space)?.unwrap_or_else(|| vec![0; space]),
        auto_pad,
        output_shape: sizes(node, "output_shape", space)?,
        weight,
        bias,
    };
    if let Some(bias) = &params.bias
        && bias.shape()[..] != [params.output_channels()]
    {
        let (found, channels) = (bias.shape(), params.output_channels());
        return Err(Reason(format!(
            "its bias has shape {found}, it has {channels} output channels"
        )));
    }
    Ok(params)
}

/// An attribute of so many sizes.
fn sizes(node: &Node, name: &str, count: usize) -> Result<Option<Vec<usize>>, Reason> {
    let Some(values) = node.ints(name)? else {
        return Ok(None);
    };
    let sizes: Option<Vec<usize>> = values.iter().map(|&v| usize::try_from(v).ok()).collect();
    match sizes {
        Some(sizes) if sizes.len() == count => Ok(Some(sizes)),
        _ => Err(Reason(format!(
            "its {name} are {values:?}, {count} sizes are wanted"
        ))),
    }
}
