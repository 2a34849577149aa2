//! Nodes that become one launch: convolutions and dense layers with what follows them, and activations spelled out
//! in several nodes.

use std::collections::{BTreeMap, HashSet};

use super::facts::Facts;
use super::fuse_pillars::join_pillars;
use super::passes::Passes;
use crate::device::{Activation, ResidualOrder, Scalar};
use crate::tensor::Shape;
use crate::weights::{Node, OnnxModel};

/// What a group of nodes does.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum GroupKind {
    /// A Conv or ConvTranspose node and its followers.
    Conv {
        /// Position of the convolution.
        conv: usize,
        /// Position of a BatchNormalization.
        norm: Option<usize>,
        /// Name of a constant that is added per channel.
        bias: Option<String>,
        /// Function of the sum.
        activation: Activation,
        /// Value that is added.
        residual: Option<String>,
        /// Whether it is added behind the function or before it.
        order: ResidualOrder,
    },
    /// A MatMul or Gemm node and its followers.
    Dense(Dense),
    /// A feature net of pillars.
    Pillars {
        /// The points.
        input: String,
        /// First layer.
        first: Dense,
        /// Second layer, where there is one.
        second: Option<Dense>,
    },
    /// An element-wise function of one value.
    Activation {
        /// The value.
        input: String,
        /// The function.
        activation: Activation,
    },
    /// Any other node.
    Node(usize),
}

/// A product of rows with a constant matrix, and what follows it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Dense {
    /// Position of the product.
    pub(super) product: usize,
    /// Position of a BatchNormalization.
    pub(super) norm: Option<usize>,
    /// Name of a constant that is added per column.
    pub(super) bias: Option<String>,
    /// Function of the sum.
    pub(super) activation: Activation,
}

/// Nodes that become one launch (or none).
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Group {
    pub(super) kind: GroupKind,
    /// Position of the last node; groups run in this order.
    pub(super) at: usize,
    /// First output of the last node.
    pub(super) output: String,
}

/// A function that several nodes make of one value.
pub(super) struct Pattern {
    pub(super) activation: Activation,
    /// The nodes; the last one makes the result.
    pub(super) nodes: Vec<usize>,
    /// Those of the nodes that read the value itself, in order.
    pub(super) readers: Vec<usize>,
}

/// Groups the nodes that the outputs depend on, in running order.
pub(super) fn groups(model: &OnnxModel, facts: &Facts, passes: Passes) -> Vec<Group> {
    let live = live_nodes(model, facts);
    let mut fuser = Fuser {
        model,
        facts,
        passes,
        outputs: model.outputs().iter().map(|o| o.name.as_str()).collect(),
        claimed: HashSet::new(),
        live: live.iter().copied().collect(),
    };
    let mut groups = Vec::new();
    for &index in &live {
        if fuser.is(index, "Conv") || fuser.is(index, "ConvTranspose") {
            groups.push(fuser.conv(index));
        } else if fuser.is_dense(index) {
            groups.push(fuser.dense(index));
        }
    }
    if passes.patterns {
        for &index in &live {
            groups.extend(fuser.spelled_out(index));
        }
    }
    for &index in &live {
        if !fuser.claimed.contains(&index) {
            groups.push(fuser.group(GroupKind::Node(index), index));
        }
    }
    groups.sort_by_key(|g| g.at);
    match passes.patterns {
        true => join_pillars(model, facts, groups),
        false => groups,
    }
}

/// Positions of the nodes that the outputs depend on and that are no constants, in order.
fn live_nodes(model: &OnnxModel, facts: &Facts) -> Vec<usize> {
    let mut wanted: HashSet<&str> = model.outputs().iter().map(|o| o.name.as_str()).collect();
    let mut live = Vec::new();
    for (index, node) in model.all_nodes().iter().enumerate().rev() {
        let used = node
            .outputs
            .iter()
            .any(|o| wanted.contains(o.as_str()) && facts.array(o).is_none());
        if used {
            live.push(index);
            wanted.extend(node.inputs.iter().filter(|i| !i.is_empty()).map(String::as_str));
        }
    }
    live.reverse();
    live
}

pub(super) struct Fuser<'a> {
    model: &'a OnnxModel,
    pub(super) facts: &'a Facts,
    passes: Passes,
    outputs: HashSet<&'a str>,
    claimed: HashSet<usize>,
    live: HashSet<usize>,
}

impl<'a> Fuser<'a> {
    pub(super) fn node(&self, index: usize) -> &'a Node {
        &self.model.all_nodes()[index]
    }

    fn group(&self, kind: GroupKind, at: usize) -> Group {
        Group {
            kind,
            at,
            output: self.result(at).unwrap_or_default().to_owned(),
        }
    }

    pub(super) fn result(&self, index: usize) -> Option<&'a str> {
        self.node(index).output(0)
    }

    /// Nodes that read a value and count.
    pub(super) fn readers(&self, value: &str) -> Vec<usize> {
        let readers = self.model.consumers_of(value).iter().copied();
        readers.filter(|r| self.live.contains(r)).collect()
    }

    /// The only reader of a value that nobody else sees.
    pub(super) fn only_reader(&self, value: &str) -> Option<usize> {
        match self.readers(value)[..] {
            [reader] if !self.outputs.contains(value) && !self.claimed.contains(&reader) => Some(reader),
            _ => None,
        }
    }

    /// The other input of a two-input node.
    pub(super) fn other(&self, index: usize, value: &str) -> Option<&'a str> {
        match (self.node(index).input(0), self.node(index).input(1)) {
            (Some(a), Some(b)) if a == value && b != value => Some(b),
            (Some(a), Some(b)) if b == value && a != value => Some(a),
            _ => None,
        }
    }

    pub(super) fn is(&self, index: usize, op: &str) -> bool {
        let node = self.node(index);
        node.op_type == op && matches!(node.domain.as_str(), "" | "ai.onnx")
    }

    pub(super) fn constant(&self, value: &str) -> Option<f32> {
        self.facts.array(value)?.scalar_f32()
    }

    /// A convolution and as much of what follows as one launch can do.
    fn conv(&mut self, conv: usize) -> Group {
        self.claimed.insert(conv);
        let (mut at, mut norm, mut bias, mut residual) = (conv, None, None, None);
        let mut activation = Activation::Identity;
        let value = |at: usize, fuser: &Self| fuser.result(at).unwrap_or_default();
        if let Some(next) = self.only_reader(value(at, self)) {
            let addend = self.other(next, value(at, self));
            if self.passes.norms
                && self.is(next, "BatchNormalization")
                && self.node(next).input(0) == Some(value(at, self))
            {
                (norm, at) = (Some(next), next);
            } else if self.passes.biases
                && self.is(next, "Add")
                && let Some(addend) = addend
                && self.adds_per_channel(value(at, self), addend)
            {
                (bias, at) = (Some(addend.to_owned()), next);
            }
            self.claimed.insert(at);
        }
        if let Some((found, last)) = self.activation_of(value(at, self)) {
            (activation, at) = (found, last);
        }
        if self.passes.followers
            && let Some(next) = self.only_reader(value(at, self))
            && self.is(next, "Add")
            && let Some(other) = self.other(next, value(at, self))
            && self.facts.array(other).is_none()
            && self.facts.shape(other).is_some()
            && self.facts.shape(other) == self.facts.shape(value(at, self))
        {
            (residual, at) = (Some(other.to_owned()), next);
            self.claimed.insert(next);
        }
        let mut order = ResidualOrder::AfterActivation;
        if residual.is_some()
            && activation == Activation::Identity
            && let Some((found, last)) = self.activation_of(value(at, self))
        {
            (activation, order, at) = (found, ResidualOrder::BeforeActivation, last);
        }
        let kind = GroupKind::Conv {
            conv,
            norm,
            bias,
            activation,
            residual,
            order,
        };
        self.group(kind, at)
    }

    /// Whether a node multiplies rows by a constant matrix, and adds nothing but a constant row.
    fn is_dense(&self, index: usize) -> bool {
        let node = self.node(index);
        let matrix = node.input(1).and_then(|matrix| self.facts.array(matrix));
        let rows = node.input(0).filter(|rows| self.facts.array(rows).is_none());
        let rank = rows
            .and_then(|rows| self.facts.shape(rows))
            .map_or(0, |shape| shape.rank());
        let of_rows = matrix.is_some_and(|m| m.shape().rank() == 2 && m.element().is_float()) && rank >= 2;
        if self.is(index, "MatMul") {
            return of_rows;
        }
        let addend = match node.input(2) {
            None => true,
            Some(addend) => self.facts.array(addend).is_some_and(|a| {
                let columns = a.shape().last().copied().unwrap_or(1);
                a.element().is_float() && a.shape().elements() == columns
            }),
        };
        let turned = node.int("transA").ok().flatten().unwrap_or(0) != 0;
        self.is(index, "Gemm") && of_rows && addend && !turned
    }

    /// The function that is all that is made of a value, and the position of its last node; its nodes are claimed.
    fn activation_of(&mut self, sum: &str) -> Option<(Activation, usize)> {
        if self.outputs.contains(sum) || !self.passes.followers {
            return None;
        }
        let pattern = self.pattern(sum)?;
        if pattern.readers != self.readers(sum) || pattern.nodes.iter().any(|n| self.claimed.contains(n)) {
            return None;
        }
        let last = *pattern.nodes.last()?;
        self.claimed.extend(pattern.nodes);
        Some((pattern.activation, last))
    }

    /// A product with a constant matrix and as much of what follows as one launch can do. The normalisation of `[P, K, C]`
    /// stands between two transposes, because it wants its channels second.
    fn dense(&mut self, product: usize) -> Group {
        self.claimed.insert(product);
        let (mut at, mut norm, mut bias) = (product, None, None);
        let value = |at: usize, fuser: &Self| fuser.result(at).unwrap_or_default();
        if self.passes.norms
            && let Some((index, last)) = self.norm_of_columns(value(at, self))
        {
            (norm, at) = (Some(index), last);
        } else if self.passes.biases
            && let Some(next) = self.only_reader(value(at, self))
            && self.is(next, "Add")
            && let Some(addend) = self.other(next, value(at, self))
            && self.adds_per_column(value(at, self), addend)
        {
            (bias, at) = (Some(addend.to_owned()), next);
            self.claimed.insert(next);
        }
        let mut activation = Activation::Identity;
        if let Some((found, last)) = self.activation_of(value(at, self)) {
            (activation, at) = (found, last);
        }
        let dense = Dense {
            product,
            norm,
            bias,
            activation,
        };
        self.group(GroupKind::Dense(dense), at)
    }

    /// The normalisation of the last axis of a value that nobody else sees, and the position of the last of its nodes;
    /// they are claimed.
    fn norm_of_columns(&mut self, value: &'a str) -> Option<(usize, usize)> {
        let first = self.only_reader(value)?;
        let swaps = |index: usize| {
            let perm = self.node(index).ints("perm").ok().flatten();
            self.is(index, "Transpose") && perm == Some(&[0, 2, 1])
        };
        let normalises = |index: usize, value: &str| {
            self.is(index, "BatchNormalization") && self.node(index).input(0) == Some(value)
        };
        match self.facts.shape(value)?.rank() {
            2 if normalises(first, value) => {
                self.claimed.insert(first);
                Some((first, first))
            }
            3 if swaps(first) => {
                let turned = self.result(first)?;
                let norm = self.only_reader(turned).filter(|&n| normalises(n, turned))?;
                let last = self.only_reader(self.result(norm)?).filter(|&n| swaps(n))?;
                self.claimed.extend([first, norm, last]);
                Some((norm, last))
            }
            _ => None,
        }
    }

    /// Whether a constant has one value per column of `[.., R, C]` (or one for all).
    fn adds_per_column(&self, value: &str, constant: &str) -> bool {
        let (Some(shape), Some(array)) = (self.facts.shape(value), self.facts.array(constant)) else {
            return false;
        };
        let found = array.shape();
        let (Some((&last, front)), Some(columns)) = (found.split_last(), shape.last()) else {
            return found.rank() == 0 && array.element().is_float();
        };
        found.rank() <= shape.rank()
            && front.iter().all(|&d| d == 1)
            && (last == 1 || last == *columns)
            && array.element().is_float()
    }

    /// Whether a constant has one value per channel of `[N, C, H, W]` (or one for all).
    fn adds_per_channel(&self, value: &str, constant: &str) -> bool {
        let (Some(shape), Some(array)) = (self.facts.shape(value), self.facts.array(constant)) else {
            return false;
        };
        per_channel(&shape, array.shape()) && array.element().is_float()
    }

    /// A function spelled out in several nodes that starts at this one.
    fn spelled_out(&mut self, index: usize) -> Option<Group> {
        let starts = ["Sigmoid", "HardSigmoid", "Add", "Div", "Mul"]
            .iter()
            .any(|op| self.is(index, op));
        if !starts || self.claimed.contains(&index) {
            return None;
        }
        for value in self.node(index).inputs.iter().map(String::as_str) {
            let pattern = self.spelled_pattern(value).filter(|p| p.nodes.contains(&index));
            let Some(pattern) = pattern.filter(|p| !p.nodes.iter().any(|n| self.claimed.contains(n))) else {
                continue;
            };
            let at = pattern.nodes[pattern.nodes.len() - 1];
            self.claimed.extend(pattern.nodes);
            let kind = GroupKind::Activation {
                input: value.to_owned(),
                activation: pattern.activation,
            };
            return Some(self.group(kind, at));
        }
        None
    }

    fn pattern(&self, value: &str) -> Option<Pattern> {
        let single = || match self.readers(value)[..] {
            [reader] => activation(self.node(reader), self.facts).map(|activation| Pattern {
                activation,
                nodes: vec![reader],
                readers: vec![reader],
            }),
            _ => None,
        };
        match self.passes.patterns {
            true => self.spelled_pattern(value).or_else(single),
            false => single(),
        }
    }
}

/// Whether a constant of shape `constant` broadcasts to `[N, C, H, W]` with one value per channel or one in
/// all.
pub(super) fn per_channel(shape: &Shape, constant: &Shape) -> bool {
    let Some(lead) = shape.rank().checked_sub(constant.rank()) else {
        return false;
    };
    (0..constant.rank()).all(|a| constant[a] == 1 || (lead + a == 1 && constant[a] == shape[1]))
}

/// The element-wise function of a node with constant settings, or `None` if it is none or its settings are
/// not known.
pub(super) fn activation(node: &Node, facts: &Facts) -> Option<Activation> {
    if !matches!(node.domain.as_str(), "" | "ai.onnx") {
        return None;
    }
    let float = |name: &str, default: f32| Some(Scalar::new(node.float(name).ok()?.unwrap_or(default)));
    Some(match node.op_type.as_str() {
        "Relu" => Activation::Relu,
        "Abs" => Activation::Abs,
        "Ceil" => Activation::Ceil,
        "Elu" => Activation::Elu {
            alpha: float("alpha", 1.0)?,
        },
        "Erf" => Activation::Erf,
        "Floor" => Activation::Floor,
        "Gelu" => match node.text("approximate").ok()?.unwrap_or("none") {
            "none" => Activation::Gelu,
            "tanh" => Activation::GeluTanh,
            _ => return None,
        },
        "Log" => Activation::Log,
        "Mish" => Activation::Mish,
        "Neg" => Activation::Neg,
        "Reciprocal" => Activation::Reciprocal,
        "Round" => Activation::Round,
        "Softplus" => Activation::Softplus,
        "Sqrt" => Activation::Sqrt,
        "Sigmoid" => Activation::Sigmoid,
        "Tanh" => Activation::Tanh,
        "Exp" => Activation::Exp,
        "HardSwish" => Activation::HardSwish,
        "LeakyRelu" => Activation::LeakyRelu {
            slope: float("alpha", 0.01)?,
        },
        "HardSigmoid" => Activation::HardSigmoid {
            alpha: float("alpha", 0.2)?,
            beta: float("beta", 0.5)?,
        },
        "Clip" => {
            let bound = |name: &str, input: usize, default: f32| match node.input(input) {
                Some(constant) => facts.array(constant)?.scalar_f32().map(Scalar::new),
                None => float(name, default),
            };
            Activation::Clip {
                low: bound("min", 1, f32::NEG_INFINITY)?,
                high: bound("max", 2, f32::INFINITY)?,
            }
        }
        _ => return None,
    })
}

/// Nodes that became part of another launch, by kind.
pub(super) fn fused_kinds(groups: &[Group]) -> BTreeMap<&'static str, usize> {
    let mut kinds = BTreeMap::new();
    let mut count = |parts: &[(&'static str, bool)]| {
        for (kind, _) in parts.iter().filter(|part| part.1) {
            *kinds.entry(*kind).or_insert(0) += 1;
        }
    };
    let active = |activation: &Activation| ("activation", *activation != Activation::Identity);
    for group in groups {
        match &group.kind {
            GroupKind::Conv {
                norm,
                bias,
                activation,
                residual,
                ..
            } => count(&[
                ("norm", norm.is_some()),
                ("bias", bias.is_some()),
                active(activation),
                ("residual", residual.is_some()),
            ]),
            GroupKind::Dense(dense) => count(&[
                ("norm", dense.norm.is_some()),
                ("bias", dense.bias.is_some()),
                active(&dense.activation),
            ]),
            GroupKind::Pillars { .. } => count(&[("pillars", true)]),
            GroupKind::Activation { .. } | GroupKind::Node(_) => {}
        }
    }
    kinds
}
