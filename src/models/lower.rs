//! The walk over the graph that makes launches out of groups of nodes.

mod buffers;

use std::collections::{BTreeMap, HashMap};

use super::emit;
use super::error::{ImportError, NodeError, form};
use super::facts::{Facts, NodeContext, input_shapes};
use super::fuse::{self, Group, GroupKind};
use super::launches::{join_copies, with_lifetimes};
use super::passes::{self, Passes};
use super::place::{Places, as_rows, is_channels_last, own_layout};
use super::plan::{
    InputFormat, InputPlan, Launch, LowerOptions, LowerStats, LoweredGraph, OutputPlan, Slot, Step,
    WeightPlan,
};
use super::survey;
use crate::device::{BufferClass, OpDesc, Operand};
use crate::tensor::{DType, HostTensor, Shape, TensorSpec, View};
use crate::weights::{
    Array, ElementType, Node, OnnxModel, StoreError, StoredWeights, Values, WeightCache, WeightFormat,
};

/// Lowers a model to device operations.
///
/// # Errors
/// [`ImportError`], naming the node, operation and model.
pub fn lower(model: &OnnxModel, options: &LowerOptions) -> Result<LoweredGraph, ImportError> {
    lower_cached(model, options, &WeightCache::off())
}

/// As [`lower`], with stored weights out of a cache where they were stored before.
///
/// # Errors
/// As [`lower`].
pub fn lower_cached(
    model: &OnnxModel,
    options: &LowerOptions,
    cache: &WeightCache,
) -> Result<LoweredGraph, ImportError> {
    let refused = |reason: String| ImportError::Options {
        model: model.name().to_owned(),
        reason,
    };
    if !matches!(options.storage, DType::F32 | DType::Bf16) {
        return Err(refused(format!("storage {} is not supported", options.storage)));
    }
    if let Some(name) = options
        .formats
        .keys()
        .find(|n| model.inputs().iter().all(|i| i.name != **n))
    {
        return Err(refused(format!(
            "a format is given for `{name}`, which is no input"
        )));
    }
    let shapes = input_shapes(model, &options.symbols, &options.shapes)?;
    let facts = Facts::new(model, &shapes, options.passes);
    let groups = fuse::groups(model, &facts, options.passes);
    let at = |index: usize, error: NodeError| error.at(&model.all_nodes()[index], model);
    // The first node that cannot be understood, before any that suffers from it.
    for group in &groups {
        emit::check_known(model, group).map_err(|(index, e)| at(index, e))?;
        if let Some(problem) = facts.problem(group.at) {
            return Err(at(group.at, problem.clone()));
        }
    }
    let places = Places::new(model, &facts, &groups, options).map_err(|(i, e)| at(i, e))?;
    let mut lowerer = Lowerer {
        model,
        facts: &facts,
        storage: options.storage,
        weight_format: options.weights,
        passes: options.passes,
        cache,
        places,
        values: HashMap::new(),
        converted: HashMap::new(),
        channels_last: HashMap::new(),
        weights: Vec::new(),
        launches: Vec::new(),
    };
    let inputs = lowerer.inputs(options, &shapes)?;
    for group in &groups {
        lowerer.group(group).map_err(|e| at(group.at, e))?;
    }
    let outputs = lowerer.outputs()?;
    let Lowerer {
        places,
        weights,
        launches,
        ..
    } = lowerer;
    let mut launches = join_copies(launches);
    let reused = match options.passes.in_place {
        true => passes::in_place(&mut launches, &places.buffers),
        false => passes::Reused::default(),
    };
    let steps = with_lifetimes(launches, &places.buffers);
    let stats = LowerStats {
        in_place: reused.launches,
        in_place_bytes: reused.bytes,
        peak_bytes: passes::peak_bytes(&steps, &places.buffers),
        ..statistics(model, &facts, &groups, &steps)
    };
    Ok(LoweredGraph {
        model: model.name().to_owned(),
        inputs,
        outputs,
        buffers: places.buffers,
        weights,
        steps,
        stats,
    })
}

fn statistics(model: &OnnxModel, facts: &Facts, groups: &[Group], steps: &[Step]) -> LowerStats {
    let mut stats = LowerStats {
        parameters: survey::parameters(model),
        // Every shape is known once a graph is lowered.
        gflop: survey::multiplications(model, facts).map_or(0.0, |n| 2.0 * n as f64 / 1e9),
        fused: fuse::fused_kinds(groups),
        ..LowerStats::default()
    };
    for node in model.all_nodes() {
        *stats.nodes.entry(node.op_type.clone()).or_insert(0) += 1;
    }
    for step in steps {
        if let Step::Launch(launch) = step {
            *stats.launches.entry(launch.op.name()).or_insert(0) += 1;
        }
    }
    stats
}

/// Largest magnitude of whole numbers: float32 holds every one up to here.
const WHOLE_NUMBERS: u64 = 1 << 24;

/// The type that values of an element type are computed in: whole numbers in float32, which holds them up to 2^24,
/// floats and truth values (0 and 1) in the storage type.
fn computed_in(element: Option<ElementType>, storage: DType) -> DType {
    match element {
        Some(element) if !element.is_float() && element != ElementType::Bool => DType::F32,
        _ => storage,
    }
}

/// A value: the buffer it lies in and how it is seen there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Located {
    pub(super) slot: Slot,
    pub(super) dtype: DType,
    pub(super) view: View,
}

impl Located {
    pub(super) const fn operand(&self) -> Operand {
        Operand {
            dtype: self.dtype,
            view: self.view,
        }
    }

    pub(super) const fn with_view(self, view: View) -> Self {
        Self { view, ..self }
    }
}

pub(super) struct Lowerer<'a> {
    pub(super) model: &'a OnnxModel,
    pub(super) facts: &'a Facts,
    pub(super) storage: DType,
    /// How weights of convolutions are stored.
    weight_format: WeightFormat,
    pub(super) passes: Passes,
    /// Where weights that were stored once are.
    cache: &'a WeightCache,
    places: Places,
    values: HashMap<String, Located>,
    /// Copies of values in the storage type.
    converted: HashMap<String, Located>,
    /// Copies of values in channels-last order.
    channels_last: HashMap<String, Located>,
    pub(super) weights: Vec<WeightPlan>,
    launches: Vec<Launch>,
}

impl<'a> Lowerer<'a> {
    /// Weights in the format that was asked for.
    pub(super) fn stored(
        &self,
        name: &str,
        weights: &[f32],
        row_len: usize,
    ) -> Result<StoredWeights, StoreError> {
        StoredWeights::pack_cached(self.weight_format, weights, row_len, name, self.cache)
    }

    pub(super) fn node(&self, index: usize) -> &'a Node {
        &self.model.all_nodes()[index]
    }

    pub(super) fn context(&self, index: usize) -> NodeContext<'a> {
        NodeContext {
            node: self.node(index),
            opset: self.model.opset(),
            facts: self.facts,
        }
    }

    fn inputs(
        &mut self,
        options: &LowerOptions,
        shapes: &BTreeMap<String, Shape>,
    ) -> Result<Vec<InputPlan>, ImportError> {
        let mut plans = Vec::new();
        for (index, info) in self.model.inputs().iter().enumerate() {
            let refused = |reason: String| ImportError::Options {
                model: self.model.name().to_owned(),
                reason: format!("input `{}`: {reason}", info.name),
            };
            let shape = shapes[&info.name];
            let format = options.formats.get(&info.name).copied().unwrap_or_default();
            let declared = match info.element {
                None => return Err(refused("its element type is not given".to_owned())),
                Some(ElementType::U8 | ElementType::Bool) => DType::U8,
                Some(ElementType::I8) => DType::I8,
                Some(ElementType::I32 | ElementType::I64) => DType::I32,
                Some(element) if element.is_float() && !element.is_storage_only() => DType::F32,
                Some(element) => return Err(refused(format!("type {element} is not supported"))),
            };
            let (dims, dtype, view) = match (format, &shape[..]) {
                (InputFormat::Tensor, _) => (shape, declared, View::contiguous(shape)),
                (InputFormat::Storage, _) => (shape, self.storage, View::contiguous(shape)),
                (InputFormat::U8ChannelsLast | InputFormat::F32ChannelsLast, &[n, c, h, w])
                    if declared != DType::I8 =>
                {
                    let layout = own_layout(shape).map_err(|_| refused(format!("shape {shape}")))?;
                    debug_assert_eq!(&layout.0[..], &[n, h, w, c]);
                    let floats = format == InputFormat::F32ChannelsLast;
                    (layout.0, if floats { DType::F32 } else { DType::U8 }, layout.1)
                }
                (InputFormat::U8ChannelsLast | InputFormat::F32ChannelsLast, _) => {
                    return Err(refused(format!("pixels need [N, C, H, W], the input is {shape}")));
                }
            };
            let spec = TensorSpec::new(&dims, dtype).map_err(|e| refused(e.to_string()))?;
            let slot = Slot::Input(index);
            self.values
                .insert(info.name.clone(), Located { slot, dtype, view });
            plans.push(InputPlan {
                name: info.name.clone(),
                format,
                spec,
                shape,
            });
        }
        Ok(plans)
    }

    fn outputs(&mut self) -> Result<Vec<OutputPlan>, ImportError> {
        let mut plans: Vec<OutputPlan> = Vec::new();
        for info in self.model.outputs() {
            let plan = self.output(&info.name, &plans).map_err(|error| {
                let reason = match error {
                    NodeError::UnknownOp => "unknown operation".to_owned(),
                    NodeError::Form(reason) => format!("{reason} is not supported"),
                    NodeError::Invalid(reason) => reason,
                };
                ImportError::Options {
                    model: self.model.name().to_owned(),
                    reason: format!("output `{}`: {reason}", info.name),
                }
            })?;
            plans.push(plan);
        }
        Ok(plans)
    }

    /// The output as a row-major f32 buffer of its own, by a copy unless it was made in one.
    fn output(&mut self, name: &str, earlier: &[OutputPlan]) -> Result<OutputPlan, NodeError> {
        let value = self.located(name)?;
        let shape = value.view.shape;
        if let Slot::Buffer(buffer) = value.slot
            && earlier.iter().all(|o| o.buffer != buffer)
            && value.dtype == DType::F32
            && self.places.buffers[buffer].class == BufferClass::Output
            && self.places.buffers[buffer].spec.shape == shape
            && value.view.is_contiguous()
        {
            return Ok(OutputPlan {
                name: name.to_owned(),
                spec: self.places.buffers[buffer].spec,
                buffer,
            });
        }
        let spec = TensorSpec::new(&shape, DType::F32)?;
        let buffer = self.places.reserve(name, spec, BufferClass::Output);
        let target = Located {
            slot: Slot::Buffer(buffer),
            dtype: DType::F32,
            view: View::contiguous(shape),
        };
        self.copy(name, value, target);
        Ok(OutputPlan {
            name: name.to_owned(),
            spec,
            buffer,
        })
    }

    fn group(&mut self, group: &Group) -> Result<(), NodeError> {
        match &group.kind {
            GroupKind::Conv { .. } => emit::conv(self, group),
            GroupKind::Dense(dense) => emit::dense(self, dense, &group.output),
            GroupKind::Pillars { input, first, second } => {
                emit::pillars(self, input, first, second.as_ref(), group)
            }
            GroupKind::Activation { input, activation } => {
                emit::unary(self, self.node(group.at), input, *activation, &group.output)
            }
            GroupKind::Node(index) => emit::node(self, *index),
        }
    }

    pub(super) fn launch(&mut self, name: &str, op: OpDesc, slots: &[Slot]) {
        self.launches.push(Launch {
            name: name.to_owned(),
            op,
            slots: slots.to_vec(),
        });
    }

    pub(super) fn copy(&mut self, name: &str, from: Located, to: Located) {
        let op = OpDesc::Copy {
            src: from.operand(),
            dst: to.operand(),
        };
        self.launch(&format!("copy of {name}"), op, &[from.slot, to.slot]);
    }

    /// Says where a value is.
    pub(super) fn set(&mut self, value: &str, located: Located) {
        self.values.insert(value.to_owned(), located);
    }

    /// Where a value is; a constant is planned as an operand on first use.
    pub(super) fn located(&mut self, value: &str) -> Result<Located, NodeError> {
        if let Some(located) = self.values.get(value) {
            return Ok(*located);
        }
        let Some(array) = self.facts.array(value) else {
            return form(format!("a value `{value}` that no launch makes"));
        };
        let array = std::sync::Arc::clone(array);
        let located = self.constant(value, &array)?;
        self.set(value, located);
        Ok(located)
    }

    /// A constant operand: floats and truth values in the storage type, whole numbers in float32.
    pub(super) fn constant(&mut self, name: &str, array: &Array) -> Result<Located, NodeError> {
        let dtype = computed_in(Some(array.element()), self.storage);
        let values = match array.values() {
            Values::I64(whole) => match whole.iter().find(|n| n.unsigned_abs() > WHOLE_NUMBERS) {
                Some(large) => return form(format!("a whole number {large} in `{name}`, beyond 2^24,")),
                None => whole.iter().map(|&n| n as f32).collect(),
            },
            Values::F32(values) => values.clone(),
            Values::F64(values) => values.iter().map(|&x| x as f32).collect(),
        };
        let shape = *array.shape();
        let values = match dtype {
            DType::F32 => HostTensor::from_slice(&shape, &values)?,
            _ => {
                let rounded: Vec<half::bf16> = values.iter().map(|&v| half::bf16::from_f32(v)).collect();
                HostTensor::from_slice(&shape, &rounded)?
            }
        };
        self.weights.push(WeightPlan::Constant {
            name: name.to_owned(),
            values,
        });
        Ok(Located {
            slot: Slot::Weight(self.weights.len() - 1),
            dtype,
            view: View::contiguous(shape),
        })
    }

    /// The type that a value is computed in.
    pub(super) fn dtype_of(&self, value: &str) -> DType {
        computed_in(self.facts.get(value).and_then(|f| f.element), self.storage)
    }

    fn require_float(&self, value: &str) -> Result<(), NodeError> {
        match self.facts.get(value).and_then(|f| f.element) {
            Some(element) if !element.is_float() => form(format!("a value `{value}` of type {element}")),
            _ => Ok(()),
        }
    }

    /// A value in the type that it is computed in, under any strides.
    pub(super) fn operand(&mut self, value: &str) -> Result<Located, NodeError> {
        let dtype = self.dtype_of(value);
        let located = self.located(value)?;
        if located.dtype == dtype {
            return Ok(located);
        }
        if let Some(copy) = self
            .converted
            .get(value)
            .or_else(|| self.channels_last.get(value))
        {
            return Ok(*copy);
        }
        let copy = self.fresh_as(value, located.view.shape, dtype)?;
        self.copy(value, located, copy);
        self.converted.insert(value.to_owned(), copy);
        Ok(copy)
    }

    /// A value as it is where its type is this one, else a copy.
    pub(super) fn operand_as(&mut self, value: &str, dtype: DType) -> Result<Located, NodeError> {
        let located = self.located(value)?;
        if located.dtype == dtype {
            return Ok(located);
        }
        let copy = self.fresh_as(value, located.view.shape, dtype)?;
        self.copy(value, located, copy);
        Ok(copy)
    }

    /// A value `[N, C, H, W]` or `[N, C, L]` in the storage type with channel step 1.
    pub(super) fn channels_last(&mut self, value: &str) -> Result<Located, NodeError> {
        self.require_float(value)?;
        let located = self.located(value)?;
        let shape = located.view.shape;
        if !matches!(shape.rank(), 3 | 4) {
            return form(format!("an operand `{value}` of shape {shape}"));
        }
        let known = [
            Some(located),
            self.converted.get(value).copied(),
            self.channels_last.get(value).copied(),
        ];
        let fits = |l: &Located| l.dtype == self.storage && is_channels_last(&l.view);
        if let Some(mut fitting) = known.into_iter().flatten().find(fits) {
            // One channel may have any step; kernels are promised 1.
            fitting.view.strides[1] = 1;
            return Ok(fitting);
        }
        let copy = self.fresh_channels_last(value, shape)?;
        self.copy(value, located, copy);
        self.channels_last.insert(value.to_owned(), copy);
        Ok(copy)
    }

    /// A value in the storage type whose rows `[.., R, C]` lie at equal distances with columns next to each other, and
    /// those rows as `[R, C]`.
    pub(super) fn rows(&mut self, value: &str) -> Result<Located, NodeError> {
        let located = self.operand(value)?;
        if let Some(rows) = as_rows(&located.view) {
            return Ok(located.with_view(rows));
        }
        let copy = self.row_major(value)?;
        match as_rows(&copy.view) {
            Some(rows) => Ok(copy.with_view(rows)),
            None => form(format!("an operand `{value}` of shape {}", located.view.shape)),
        }
    }

    /// A value in row-major order in a buffer of its own.
    pub(super) fn row_major(&mut self, value: &str) -> Result<Located, NodeError> {
        let located = self.located(value)?;
        let shape = located.view.shape;
        let dtype = self.dtype_of(value);
        let copy = self.reserve_as(value, shape, View::contiguous(shape), dtype)?;
        self.copy(value, located, copy);
        Ok(copy)
    }
}
