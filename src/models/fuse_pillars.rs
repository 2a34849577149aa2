//! The feature net of pillars, as exporters write it, found in groups of nodes: a dense layer over `[P, K, F]` with a
//! ReLU, the maximum over `K`, and once more with the maximum beside every point.

use std::collections::HashSet;

use super::facts::NodeContext;
use super::facts::{Facts, normal_axis};
use super::fuse::{Dense, Group, GroupKind};
use super::infer;
use crate::device::Activation;
use crate::weights::{Node, OnnxModel};

/// Joins the groups of every feature net into one.
pub(super) fn join_pillars(model: &OnnxModel, facts: &Facts, groups: Vec<Group>) -> Vec<Group> {
    let finder = Finder {
        model,
        facts,
        groups: &groups,
    };
    let mut joined: HashSet<usize> = HashSet::new();
    let mut nets = Vec::new();
    for position in 0..groups.len() {
        if let Some((net, parts)) = finder
            .net(position)
            .filter(|(_, parts)| parts.iter().all(|p| !joined.contains(p)))
        {
            joined.extend(parts);
            nets.push(net);
        }
    }
    let rest = groups
        .into_iter()
        .enumerate()
        .filter(|(position, _)| !joined.contains(position))
        .map(|(_, group)| group);
    let mut all: Vec<Group> = rest.chain(nets).collect();
    all.sort_by_key(|group| group.at);
    all
}

struct Finder<'a> {
    model: &'a OnnxModel,
    facts: &'a Facts,
    groups: &'a [Group],
}

impl<'a> Finder<'a> {
    /// The net whose first layer is the group at `position`, and the positions of its groups.
    fn net(&self, position: usize) -> Option<(Group, Vec<usize>)> {
        let first = self.layer(position)?;
        let input = self.node(first.product).input(0)?;
        let value = &*self.groups[position].output;
        let last = |reduce: usize, first: &Dense, second: Option<&Dense>, mut parts: Vec<usize>| {
            parts.push(reduce);
            let group = &self.groups[reduce];
            let kind = GroupKind::Pillars {
                input: input.to_owned(),
                first: first.clone(),
                second: second.cloned(),
            };
            let net = Group {
                kind,
                at: group.at,
                output: group.output.clone(),
            };
            Some((net, parts))
        };
        match self.readers(value)?[..] {
            [reduce] if self.is_maximum(reduce) => last(reduce, first, None, vec![position]),
            [a, b] => {
                let (reduce, concat) = if self.is_maximum(a) { (a, b) } else { (b, a) };
                if !self.is_maximum(reduce) {
                    return None;
                }
                let mut parts = vec![position, reduce];
                // The maximum, repeated for every point.
                let mut top = self.groups[reduce].output.as_str();
                loop {
                    let [next] = self.readers(top)?[..] else {
                        return None;
                    };
                    if next == concat {
                        break;
                    }
                    let repeats = self.single(next).is_some_and(|node| {
                        matches!(node.op_type.as_str(), "Expand" | "Tile") && node.input(0) == Some(top)
                    });
                    if !repeats {
                        return None;
                    }
                    parts.push(next);
                    top = self.groups[next].output.as_str();
                }
                let joins = self.single(concat).filter(|node| {
                    let axis = node.int("axis").ok().flatten();
                    let last = axis.and_then(|axis| normal_axis(axis, 3).ok()) == Some(2);
                    node.op_type == "Concat" && last && node.inputs == [value, top]
                });
                joins?;
                let [second_at] = self.readers(&self.groups[concat].output)?[..] else {
                    return None;
                };
                let second = self.layer(second_at)?;
                let [reduce] = self.readers(&self.groups[second_at].output)?[..] else {
                    return None;
                };
                if !self.is_maximum(reduce) {
                    return None;
                }
                parts.extend([concat, second_at]);
                last(reduce, first, Some(second), parts)
            }
            _ => None,
        }
    }

    fn node(&self, index: usize) -> &'a Node {
        &self.model.all_nodes()[index]
    }

    /// A dense layer with a ReLU over a value of three axes.
    fn layer(&self, position: usize) -> Option<&'a Dense> {
        let GroupKind::Dense(dense) = &self.groups[position].kind else {
            return None;
        };
        let node = self.node(dense.product);
        let rank = self.facts.shape(node.input(0)?)?.rank();
        let fits = rank == 3 && node.op_type == "MatMul" && dense.activation == Activation::Relu;
        (fits && self.facts.array(node.input(1)?).is_some()).then_some(dense)
    }

    /// The node of a group that is a single one.
    fn single(&self, position: usize) -> Option<&'a Node> {
        match self.groups[position].kind {
            GroupKind::Node(index) => Some(self.node(index)),
            _ => None,
        }
    }

    /// Whether a group is the maximum over the second of three axes.
    fn is_maximum(&self, position: usize) -> bool {
        let Some(node) = self.single(position).filter(|node| node.op_type == "ReduceMax") else {
            return false;
        };
        let context = NodeContext {
            node,
            opset: self.model.opset(),
            facts: self.facts,
        };
        infer::reduce_axes(&context, 3).is_ok_and(|(axes, _)| axes == Some(vec![1]))
    }

    /// Groups that read a value which is no output of the graph.
    fn readers(&self, value: &str) -> Option<Vec<usize>> {
        if self.model.outputs().iter().any(|output| output.name == value) {
            return None;
        }
        let reads = |group: &Group| match &group.kind {
            GroupKind::Node(index) => self.node(*index).inputs.iter().any(|i| i == value),
            GroupKind::Dense(dense) => self.node(dense.product).input(0) == Some(value),
            GroupKind::Conv { conv, residual, .. } => {
                self.node(*conv).input(0) == Some(value) || residual.as_deref() == Some(value)
            }
            GroupKind::Activation { input, .. } | GroupKind::Pillars { input, .. } => input == value,
        };
        let groups = self.groups.iter().enumerate();
        Some(
            groups
                .filter(|(_, group)| reads(group))
                .map(|(at, _)| at)
                .collect(),
        )
    }
}
