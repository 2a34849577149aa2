//! Where values are written: concatenations and outputs reserve their buffer first, and whoever makes a part
//! writes it there.

use std::collections::HashMap;

use super::error::NodeError;
use super::facts::{Facts, NodeContext};
use super::fuse::{Group, GroupKind, activation};
use super::movement;
use super::passes::Passes;
use super::plan::{BufferPlan, LowerOptions};
use crate::device::BufferClass;
use crate::tensor::{DType, Shape, TensorSpec, View};
use crate::weights::OnnxModel;

/// A window of a planned buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) buffer: usize,
    pub(super) view: View,
}

/// Planned buffers and the places of values that have one before they are made.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) buffers: Vec<BufferPlan>,
    places: HashMap<String, Place>,
}

/// The storage of a value of its own: channels-last for rank 4, else row-major.
pub(super) fn own_layout(shape: Shape) -> Result<(Shape, View), NodeError> {
    match shape[..] {
        [n, c, h, w] => Ok((
            Shape::new(&[n, h, w, c])?,
            View::channels_last([n, c, h, w], c, 0)?,
        )),
        _ => Ok((shape, View::contiguous(shape))),
    }
}

/// Whether two views touch the same elements in the same order, whatever the steps of single elements say.
pub(super) fn same_elements(a: &View, b: &View) -> bool {
    a.shape == b.shape
        && a.offset == b.offset
        && (0..a.rank()).all(|axis| a.shape[axis] <= 1 || a.strides[axis] == b.strides[axis])
}

/// `[.., R, C]` as `[R, C]` with columns next to each other, where the strides allow it.
pub(super) fn as_rows(view: &View) -> Option<View> {
    let (&columns, front) = view.shape.split_last()?;
    let mut rows = view.reshape(Shape::new(&[front.iter().product(), columns]).ok()?)?;
    if columns == 1 {
        rows.strides[1] = 1;
    }
    (rows.strides[1] == 1 && (rows.shape[0] == 1 || rows.strides[0] > 0)).then_some(rows)
}

/// Whether kernels that want channels-last can write (or read) here.
pub(super) fn is_channels_last(view: &View) -> bool {
    matches!(view.rank(), 3 | 4)
        && (view.shape[1] == 1 || view.strides[1] == 1)
        && (2..view.rank()).all(|axis| view.shape[axis] == 1 || view.strides[axis] > 0)
        && (view.shape[0] == 1 || view.strides[0] > 0)
}

impl Places {
    /// Plans the buffers of outputs and concatenations. Outputs of f32 networks are written in place; those
    /// of narrower networks are converted at the end.
    pub(super) fn new(
        model: &OnnxModel,
        facts: &Facts,
        groups: &[Group],
        options: &LowerOptions,
    ) -> Result<Self, (usize, NodeError)> {
        let mut planner = Planner {
            model,
            facts,
            groups,
            passes: options.passes,
            makers: groups
                .iter()
                .enumerate()
                .map(|(i, g)| (g.output.as_str(), i))
                .collect(),
            outputs: model.outputs().iter().map(|o| o.name.as_str()).collect(),
            places: Self {
                buffers: Vec::new(),
                places: HashMap::new(),
            },
        };
        for (position, group) in groups.iter().enumerate().rev() {
            planner
                .root(position, group, options.storage)
                .map_err(|e| (group.at, e))?;
        }
        Ok(planner.places)
    }

    /// Where a value was decided to be, if it was.
    pub(super) fn get(&self, value: &str) -> Option<Place> {
        self.places.get(value).copied()
    }

    /// Reserves a buffer; its position comes back.
    pub(super) fn reserve(&mut self, name: &str, spec: TensorSpec, class: BufferClass) -> usize {
        self.buffers.push(BufferPlan {
            name: name.to_owned(),
            spec,
            class,
        });
        self.buffers.len() - 1
    }
}

struct Planner<'a> {
    model: &'a OnnxModel,
    facts: &'a Facts,
    groups: &'a [Group],
    passes: Passes,
    makers: HashMap<&'a str, usize>,
    outputs: Vec<&'a str>,
    places: Places,
}

impl Planner<'_> {
    /// Reserves a buffer for a group's output where that pays: outputs, and concatenations without a place.
    fn root(&mut self, position: usize, group: &Group, storage: DType) -> Result<(), NodeError> {
        let value = group.output.as_str();
        if self.places.places.contains_key(value) {
            return Ok(());
        }
        let Some(shape) = self.facts.shape(value).filter(|s| s.elements() > 0) else {
            return Ok(());
        };
        // Places are in the storage type; whole numbers are not.
        let element = self.facts.get(value).and_then(|fact| fact.element);
        if storage != DType::F32 && element.is_some_and(|element| !element.is_float()) {
            return Ok(());
        }
        let is_concat = self.is_node(position, "Concat");
        if self.outputs.contains(&value) {
            let spec = TensorSpec::new(&shape, storage)?;
            let class = match storage {
                DType::F32 => BufferClass::Output,
                _ => BufferClass::Intermediate,
            };
            // The position is taken only if somebody will write there.
            let next = self.places.buffers.len();
            if self.offer(value, next, View::contiguous(shape), true)? {
                self.places.reserve(value, spec, class);
                return Ok(());
            }
        }
        if is_concat {
            let (storage_shape, view) = own_layout(shape)?;
            let spec = TensorSpec::new(&storage_shape, storage)?;
            let buffer = self.places.reserve(value, spec, BufferClass::Intermediate);
            self.offer(value, buffer, view, true)?;
        }
        Ok(())
    }

    fn is_node(&self, position: usize, op: &str) -> bool {
        match self.groups[position].kind {
            GroupKind::Node(index) => self.model.all_nodes()[index].op_type == op,
            _ => false,
        }
    }

    /// Offers a place to a value; whether it (or what it is a view of) is made there comes back. `root` is
    /// set for the value that the buffer is for.
    fn offer(&mut self, value: &str, buffer: usize, view: View, root: bool) -> Result<bool, NodeError> {
        let taken = self.places.places.contains_key(value) || (!root && self.outputs.contains(&value));
        let Some(&maker) = self.makers.get(value).filter(|_| !taken) else {
            return Ok(false);
        };
        let accepted = match &self.groups[maker].kind {
            GroupKind::Conv { .. } => is_channels_last(&view),
            GroupKind::Dense(_) | GroupKind::Pillars { .. } => as_rows(&view).is_some(),
            GroupKind::Activation { .. } => true,
            GroupKind::Node(index) => return self.offer_node(*index, value, buffer, view),
        };
        if accepted {
            self.places
                .places
                .insert(value.to_owned(), Place { buffer, view });
        }
        Ok(accepted)
    }

    fn offer_node(
        &mut self,
        index: usize,
        value: &str,
        buffer: usize,
        view: View,
    ) -> Result<bool, NodeError> {
        let node = &self.model.all_nodes()[index];
        let context = NodeContext {
            node,
            opset: self.model.opset(),
            facts: self.facts,
        };
        let accepted = match node.op_type.as_str() {
            "MaxPool" | "AveragePool" | "GlobalAveragePool" | "GlobalMaxPool" | "Resize" | "Upsample" => {
                is_channels_last(&view)
            }
            "Add" | "Sub" | "Mul" | "Div" | "Softmax" | "Pad" => true,
            "And" | "Equal" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" | "Mod" | "Not"
            | "Or" | "PRelu" | "Where" | "Xor" => true,
            "LayerNormalization" | "LogSoftmax" | "LpNormalization" | "MatMul" | "Gemm" => true,
            // Several operands make a chain of launches that end at the place.
            "Max" | "Min" | "Sum" => true,
            _ if activation(node, self.facts).is_some() => true,
            // Without a pass that makes it a view, a transpose is a copy to where it likes.
            "Transpose" if !self.passes.transposes => false,
            "Concat" => {
                let axis = context.axis(Some(1), view.rank())?;
                let mut start = 0;
                for input in &node.inputs {
                    if let Some(size) = self.facts.shape(input).and_then(|s| s.get(axis).copied()) {
                        let part = view.slice(axis, start, size, 1)?;
                        self.offer(input, buffer, part, false)?;
                        start += size;
                    }
                }
                true
            }
            _ => match movement::inverse(&context, &view)? {
                // The value itself stays a view of what is made there.
                Some(inverse) => return self.offer(context.input(0)?, buffer, inverse, false),
                None => false,
            },
        };
        if accepted {
            self.places
                .places
                .insert(value.to_owned(), Place { buffer, view });
        }
        Ok(accepted)
    }
}
