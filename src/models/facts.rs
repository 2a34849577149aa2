//! What is known of each value before anything runs: shape, type, constant.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::error::{ImportError, NodeError, form, invalid};
use super::passes::Passes;
use super::{fold, infer};
use crate::tensor::Shape;
use crate::weights::{Array, Dim, ElementType, Node, OnnxModel, ValueInfo};

/// Largest number of elements that one value may have; keeps a damaged file from asking for the impossible.
const MAX_ELEMENTS: usize = 1 << 31;

/// What is known of one value.
#[derive(Debug, Clone, Default)]
pub(super) struct Fact {
    pub(super) shape: Option<Shape>,
    pub(super) element: Option<ElementType>,
    pub(super) constant: Option<Arc<Array>>,
}

impl Fact {
    pub(super) fn constant(array: Arc<Array>) -> Self {
        Self {
            shape: Some(*array.shape()),
            element: Some(array.element()),
            constant: Some(array),
        }
    }
}

/// What is known of all values of a model.
#[derive(Debug)]
pub(super) struct Facts {
    values: HashMap<String, Fact>,
    problems: HashMap<usize, NodeError>,
    passes: Passes,
}

impl Facts {
    /// Walks the graph once. A node that cannot be understood leaves its outputs as the file declares them
    /// and its problem in [`Facts::problem`].
    pub(super) fn new(model: &OnnxModel, inputs: &BTreeMap<String, Shape>, passes: Passes) -> Self {
        let mut facts = Self {
            values: HashMap::new(),
            problems: HashMap::new(),
            passes,
        };
        for (name, array) in model.arrays() {
            facts
                .values
                .insert(name.clone(), Fact::constant(Arc::clone(array)));
        }
        for input in model.inputs() {
            let fact = Fact {
                shape: inputs.get(&input.name).copied(),
                element: input.element,
                constant: None,
            };
            facts.values.insert(input.name.clone(), fact);
        }
        for (index, node) in model.all_nodes().iter().enumerate() {
            let outputs = facts.outputs(model, node).unwrap_or_else(|problem| {
                facts.problems.insert(index, problem);
                Vec::new()
            });
            for (slot, name) in node.outputs.iter().enumerate() {
                if !name.is_empty() {
                    let known = outputs.get(slot).cloned().unwrap_or_default();
                    let declared = model.value_info(name);
                    let fact = Fact {
                        shape: known.shape.or_else(|| declared.and_then(fixed_shape)),
                        element: known.element.or_else(|| declared.and_then(|d| d.element)),
                        constant: known.constant,
                    };
                    facts.values.insert(name.clone(), fact);
                }
            }
        }
        facts
    }

    fn outputs(&self, model: &OnnxModel, node: &Node) -> Result<Vec<Fact>, NodeError> {
        if !matches!(node.domain.as_str(), "" | "ai.onnx") {
            return Ok(Vec::new());
        }
        let context = NodeContext {
            node,
            opset: model.opset(),
            facts: self,
        };
        if let Some(constants) = fold::fold(&context)? {
            return Ok(constants
                .into_iter()
                .map(|a| Fact::constant(Arc::new(a)))
                .collect());
        }
        let outputs = infer::infer(&context)?;
        match outputs
            .iter()
            .filter_map(|f| f.shape)
            .find(|s| s.elements() > MAX_ELEMENTS)
        {
            Some(large) => form(format!("a result of shape {large}")),
            None => Ok(outputs),
        }
    }

    /// What is made simpler on the way.
    pub(super) const fn passes(&self) -> Passes {
        self.passes
    }

    /// What is wrong with a node, if anything.
    pub(super) fn problem(&self, index: usize) -> Option<&NodeError> {
        self.problems.get(&index)
    }

    pub(super) fn get(&self, value: &str) -> Option<&Fact> {
        self.values.get(value)
    }

    pub(super) fn shape(&self, value: &str) -> Option<Shape> {
        self.get(value)?.shape
    }

    pub(super) fn array(&self, value: &str) -> Option<&Arc<Array>> {
        self.get(value)?.constant.as_ref()
    }
}

/// The shape of a declaration without open dimensions.
pub(super) fn fixed_shape(info: &ValueInfo) -> Option<Shape> {
    let dims = info.dims.as_ref()?.iter().map(|d| match d {
        Dim::Fixed(size) => Some(*size),
        Dim::Symbol(_) | Dim::Unknown => None,
    });
    Shape::new(&dims.collect::<Option<Vec<usize>>>()?).ok()
}

/// The shapes of a model's inputs: declared sizes, then sizes of symbols, then sizes given for an input.
pub(super) fn input_shapes(
    model: &OnnxModel,
    symbols: &BTreeMap<String, usize>,
    given: &BTreeMap<String, Vec<usize>>,
) -> Result<BTreeMap<String, Shape>, ImportError> {
    let options = |reason: String| ImportError::Options {
        model: model.name().to_owned(),
        reason,
    };
    let known = |name: &str| model.inputs().iter().any(|i| i.name == name);
    if let Some(name) = given.keys().find(|name| !known(name)) {
        return Err(options(format!(
            "sizes are given for `{name}`, which is no input"
        )));
    }
    let uses = |symbol: &String| {
        let mut dims = model.inputs().iter().filter_map(|i| i.dims.as_ref()).flatten();
        dims.any(|d| matches!(d, Dim::Symbol(name) if name == symbol))
    };
    if let Some(symbol) = symbols.keys().find(|s| !uses(s)) {
        return Err(options(format!(
            "a size is given for `{symbol}`, which no input has"
        )));
    }
    let mut shapes = BTreeMap::new();
    for input in model.inputs() {
        let open = || ImportError::OpenShape {
            model: model.name().to_owned(),
            input: input.name.clone(),
            dims: match &input.dims {
                Some(dims) => {
                    let dims: Vec<String> = dims.iter().map(ToString::to_string).collect();
                    format!("[{}]", dims.join(", "))
                }
                None => "of unknown rank".to_owned(),
            },
        };
        let override_dims = given.get(&input.name);
        let sizes: Vec<usize> = match (&input.dims, override_dims) {
            (None, None) => return Err(open()),
            (None, Some(sizes)) => sizes.clone(),
            (Some(dims), Some(sizes)) if dims.len() != sizes.len() => {
                return Err(options(format!(
                    "input `{}` has rank {}, sizes {sizes:?} are given",
                    input.name,
                    dims.len()
                )));
            }
            (Some(dims), _) => {
                let size = |(axis, dim): (usize, &Dim)| {
                    let wanted = override_dims.map(|sizes| sizes[axis]);
                    match dim {
                        Dim::Fixed(fixed) if wanted.is_some_and(|w| w != *fixed) => Err(options(format!(
                            "input `{}` has {fixed} elements along axis {axis}, {override_dims:?} asks for others",
                            input.name
                        ))),
                        Dim::Fixed(fixed) => Ok(*fixed),
                        Dim::Symbol(name) => wanted.or_else(|| symbols.get(name).copied()).ok_or_else(open),
                        Dim::Unknown => wanted.ok_or_else(open),
                    }
                };
                dims.iter().enumerate().map(size).collect::<Result<_, _>>()?
            }
        };
        let shape = Shape::new(&sizes).map_err(|e| options(format!("input `{}`: {e}", input.name)))?;
        if shape.elements() == 0 || shape.elements() > MAX_ELEMENTS {
            return Err(options(format!(
                "input `{}`: a tensor of shape {shape}",
                input.name
            )));
        }
        shapes.insert(input.name.clone(), shape);
    }
    Ok(shapes)
}

/// A node together with what is known of its inputs.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeContext<'a> {
    pub(super) node: &'a Node,
    pub(super) opset: i64,
    pub(super) facts: &'a Facts,
}

impl<'a> NodeContext<'a> {
    /// Name of an input that must be there.
    pub(super) fn input(&self, index: usize) -> Result<&'a str, NodeError> {
        match self.node.input(index) {
            Some(name) => Ok(name),
            None => invalid(format!("input {index} is missing")),
        }
    }

    /// Shape of an input, or `None` where it is not known.
    pub(super) fn known_shape(&self, index: usize) -> Result<Option<Shape>, NodeError> {
        Ok(self.facts.shape(self.input(index)?))
    }

    /// Shape of an input that must be known.
    pub(super) fn shape(&self, index: usize) -> Result<Shape, NodeError> {
        let name = self.input(index)?;
        match self.facts.shape(name) {
            Some(shape) => Ok(shape),
            None => form(format!("the unknown shape of input `{name}`")),
        }
    }

    /// A constant input; `None` if it was left out.
    pub(super) fn array(&self, index: usize) -> Result<Option<&'a Arc<Array>>, NodeError> {
        let Some(name) = self.node.input(index) else {
            return Ok(None);
        };
        match self.facts.array(name) {
            Some(array) => Ok(Some(array)),
            None => form(format!("an input `{name}` that is no constant")),
        }
    }

    /// A constant input of whole numbers; `None` if it was left out.
    pub(super) fn int_input(&self, index: usize) -> Result<Option<&'a [i64]>, NodeError> {
        let Some(array) = self.array(index)? else {
            return Ok(None);
        };
        match array.as_i64() {
            Some(values) => Ok(Some(values)),
            None => invalid(format!("input {index} must hold whole numbers")),
        }
    }

    /// A constant input of numbers with fractions; `None` if it was left out.
    pub(super) fn float_input(&self, index: usize) -> Result<Option<Vec<f32>>, NodeError> {
        let Some(array) = self.array(index)? else {
            return Ok(None);
        };
        match array.to_f32() {
            Some(values) => Ok(Some(values)),
            None => invalid(format!("input {index} must hold floating-point numbers")),
        }
    }

    /// Whole numbers that older operator sets hold in an attribute and newer ones in an input.
    pub(super) fn ints(&self, attribute: &str, input: usize) -> Result<Option<Vec<i64>>, NodeError> {
        if let Some(values) = self.node.ints(attribute)? {
            return Ok(Some(values.to_vec()));
        }
        Ok(self.int_input(input)?.map(<[i64]>::to_vec))
    }

    /// An axis out of its attribute, counted from the front; `rank` bounds it.
    pub(super) fn axis(&self, default: Option<i64>, rank: usize) -> Result<usize, NodeError> {
        match self.node.int("axis")?.or(default) {
            Some(axis) => normal_axis(axis, rank),
            None => invalid("attribute `axis` is missing"),
        }
    }
}

/// An axis counted from the front.
pub(super) fn normal_axis(axis: i64, rank: usize) -> Result<usize, NodeError> {
    let from_front = if axis < 0 {
        axis.saturating_add(rank as i64)
    } else {
        axis
    };
    match usize::try_from(from_front) {
        Ok(from_front) if from_front < rank => Ok(from_front),
        _ => invalid(format!("axis {axis} does not exist in a tensor of rank {rank}")),
    }
}
