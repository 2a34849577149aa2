//! What a model file is, without running it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::emit::is_known;
use super::facts::{Facts, NodeContext, fixed_shape, input_shapes};
use super::fold::folds;
use super::infer;
use super::lower::lower;
use super::passes::Passes;
use super::plan::LowerOptions;
use crate::weights::{Dim, Node, OnnxModel, ValueInfo, Values};

/// A dimension of an input or output: a number or a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum SurveyedDim {
    /// A size.
    Size(usize),
    /// A symbol, or `?`.
    Open(String),
}

impl fmt::Display for SurveyedDim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(size) => size.fmt(f),
            Self::Open(name) => name.fmt(f),
        }
    }
}

/// Name, type and shape of an input or output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SurveyedValue {
    /// Name.
    pub name: String,
    /// Element type, for example `float32`; `?` if the file does not say.
    pub dtype: String,
    /// Dimensions; absent if the rank is not known.
    pub shape: Option<Vec<SurveyedDim>>,
}

/// What a model file is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Survey {
    /// File name.
    pub model: String,
    /// Program that wrote the file.
    pub producer: String,
    /// Version of the file format.
    pub ir_version: i64,
    /// Version of the ONNX operator set.
    pub opset: i64,
    /// Inputs without constants.
    pub inputs: Vec<SurveyedValue>,
    /// Outputs.
    pub outputs: Vec<SurveyedValue>,
    /// Number of nodes of each operation.
    pub ops: BTreeMap<String, usize>,
    /// Floating-point constants, element by element.
    pub parameters: u64,
    /// Two for each multiplication of convolutions and matrix products, in billions; absent where a shape is
    /// not known.
    pub gflop: Option<f64>,
    /// Files beside the model that hold constants.
    pub external_data: Vec<String>,
    /// Why the importer would refuse the model; empty if it would not.
    pub not_importable: Vec<String>,
}

/// Reads off a model what can be known without running it.
#[must_use]
pub fn survey(model: &OnnxModel) -> Survey {
    let mut ops = BTreeMap::new();
    for node in model.all_nodes() {
        *ops.entry(node.op_type.clone()).or_insert(0) += 1;
    }
    let shapes = input_shapes(model, &BTreeMap::new(), &BTreeMap::new());
    let facts = Facts::new(model, &shapes.unwrap_or_default(), Passes::ALL);
    Survey {
        model: model.name().to_owned(),
        producer: model.producer().to_owned(),
        ir_version: model.ir_version(),
        opset: model.opset(),
        inputs: model.inputs().iter().map(value).collect(),
        outputs: model.outputs().iter().map(|info| output(info, &facts)).collect(),
        ops,
        parameters: parameters(model),
        gflop: multiplications(model, &facts).map(|n| 2.0 * n as f64 / 1e9),
        external_data: model.external_files().to_vec(),
        not_importable: obstacles(model),
    }
}

fn value(info: &ValueInfo) -> SurveyedValue {
    SurveyedValue {
        name: info.name.clone(),
        dtype: info.element.map_or_else(|| "?".to_owned(), |e| e.to_string()),
        shape: info.dims.as_ref().map(|dims| dims.iter().map(surveyed).collect()),
    }
}

fn surveyed(dim: &Dim) -> SurveyedDim {
    match dim {
        Dim::Fixed(size) => SurveyedDim::Size(*size),
        Dim::Symbol(_) | Dim::Unknown => SurveyedDim::Open(dim.to_string()),
    }
}

/// An output as declared, or as inferred where the declaration leaves it open.
fn output(info: &ValueInfo, facts: &Facts) -> SurveyedValue {
    let declared = value(info);
    match (fixed_shape(info), facts.shape(&info.name)) {
        (None, Some(shape)) => SurveyedValue {
            shape: Some(shape.iter().map(|&size| SurveyedDim::Size(size)).collect()),
            ..declared
        },
        _ => declared,
    }
}

/// Elements of all floating-point constants, named or in Constant nodes.
pub(super) fn parameters(model: &OnnxModel) -> u64 {
    let in_nodes = model
        .nodes("Constant")
        .filter_map(|n| n.tensor("value").ok().flatten());
    let arrays = model.arrays().values().chain(in_nodes);
    let floats = arrays.filter(|a| !matches!(a.values(), Values::I64(_)));
    floats.map(|a| a.shape().elements() as u64).sum()
}

/// Multiplications of convolutions and matrix products, or `None` where a shape is not known.
pub(super) fn multiplications(model: &OnnxModel, facts: &Facts) -> Option<u64> {
    let count = |node| -> Option<u64> {
        let context = NodeContext {
            node,
            opset: model.opset(),
            facts,
        };
        let taps = match node.op_type.as_str() {
            "Conv" => {
                let weight = facts.shape(node.input(1)?)?;
                infer::conv_window(&context).ok()?;
                weight[1..].iter().product::<usize>()
            }
            // Every input element meets the kernel once, whatever the stride.
            "ConvTranspose" => {
                infer::conv_transpose(&context).ok()?;
                let taps = facts.shape(node.input(1)?)?[1..].iter().product::<usize>() as u64;
                return (facts.shape(node.input(0)?)?.elements() as u64).checked_mul(taps);
            }
            "MatMul" => *facts.shape(node.input(0)?)?.last()?,
            "Gemm" => {
                let columns = node.int("transA").ok()?.unwrap_or(0) == 0;
                facts.shape(node.input(0)?)?.get(usize::from(columns)).copied()?
            }
            _ => return Some(0),
        };
        (facts.shape(node.output(0)?)?.elements() as u64).checked_mul(taps as u64)
    };
    model
        .all_nodes()
        .iter()
        .try_fold(0_u64, |sum, node| sum.checked_add(count(node)?))
}

/// Every operation that is not known, or else the first thing that the importer stumbles over.
fn obstacles(model: &OnnxModel) -> Vec<String> {
    let unknown: BTreeSet<String> = model
        .all_nodes()
        .iter()
        .filter(|node| !is_known(node) && !folds(node))
        .map(|node| {
            format!(
                "operation {} (first at node `{}`)",
                node.op_type,
                first_of(model, node)
            )
        })
        .collect();
    if !unknown.is_empty() {
        return unknown.into_iter().collect();
    }
    lower(model, &LowerOptions::default())
        .err()
        .map(|e| e.to_string())
        .into_iter()
        .collect()
}

fn first_of<'a>(model: &'a OnnxModel, node: &'a Node) -> &'a str {
    model
        .nodes(&node.op_type)
        .next()
        .map_or(&node.name, |first| &first.name)
}
