//! Order and look-ups of a graph's nodes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use super::{Node, OnnxError};

/// Who makes and who reads each value, by position in the sorted nodes.
#[derive(Debug, Clone, Default)]
pub(super) struct Links {
    pub(super) producers: HashMap<String, usize>,
    pub(super) consumers: HashMap<String, Vec<usize>>,
}

impl Links {
    pub(super) fn new(nodes: &[Node]) -> Self {
        let mut links = Self::default();
        for (index, node) in nodes.iter().enumerate() {
            for output in node.outputs.iter().filter(|n| !n.is_empty()) {
                links.producers.insert(output.clone(), index);
            }
            for input in node.inputs.iter().filter(|n| !n.is_empty()) {
                let readers = links.consumers.entry(input.clone()).or_default();
                if readers.last() != Some(&index) {
                    readers.push(index);
                }
            }
        }
        links
    }
}

/// Orders nodes so that each comes after those that it reads from; among the possible orders the one nearest
/// to the file's. `given` are the values that exist before any node runs.
pub(super) fn sort(model: &str, nodes: Vec<Node>, given: &HashSet<String>) -> Result<Vec<Node>, OnnxError> {
    let mut producers: HashMap<&str, usize> = HashMap::new();
    for (index, node) in nodes.iter().enumerate() {
        for output in node.outputs.iter().filter(|n| !n.is_empty()) {
            if given.contains(output) || producers.insert(output, index).is_some() {
                return Err(OnnxError::DefinedTwice {
                    model: model.to_owned(),
                    value: output.clone(),
                });
            }
        }
    }
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    let mut missing: Vec<usize> = vec![0; nodes.len()];
    for (index, node) in nodes.iter().enumerate() {
        for input in node
            .inputs
            .iter()
            .filter(|n| !n.is_empty() && !given.contains(*n))
        {
            let Some(&producer) = producers.get(input.as_str()) else {
                return Err(OnnxError::Undefined {
                    model: model.to_owned(),
                    value: input.clone(),
                    user: format!("node `{}`", node.name),
                });
            };
            readers[producer].push(index);
            missing[index] += 1;
        }
    }
    let mut ready: BinaryHeap<Reverse<usize>> = (0..nodes.len())
        .filter(|&i| missing[i] == 0)
        .map(Reverse)
        .collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(Reverse(index)) = ready.pop() {
        order.push(index);
        for &reader in &readers[index] {
            missing[reader] -= 1;
            if missing[reader] == 0 {
                ready.push(Reverse(reader));
            }
        }
    }
    if let Some(stuck) = (0..nodes.len()).find(|&i| missing[i] > 0) {
        return Err(OnnxError::Cycle {
            model: model.to_owned(),
            node: nodes[stuck].name.clone(),
        });
    }
    let mut slots: Vec<Option<Node>> = nodes.into_iter().map(Some).collect();
    Ok(order
        .into_iter()
        .filter_map(|index| slots[index].take())
        .collect())
}
