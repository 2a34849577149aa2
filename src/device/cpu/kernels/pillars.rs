//! The feature net of pillars: a pillar's points stay in the first-level cache from the first layer to the last
//! maximum, so that only points are read and only features written.
//!
//! Layers run on the tiles of the dense convolution. A thread takes a few pillars at a time: layer by layer over the
//! points of one, then what depends on the pillar alone for all of them together.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::check::{
    MAX_CHANNELS, MAX_SCRATCH, ensure, invalid, required_bytes, storage, writes_each_place_once,
};
use super::nest::share;
use super::ops::{Ops, PANEL_VECTORS};
use super::pack::{Panel, Panels};
use super::tile::{Finish, Tap};
use super::{BufferRef, Kernel};
use crate::device::cpu::pool::ComputePool;
use crate::device::{Activation, BinaryKind, DenseLayer, DeviceError, PillarsDesc, ResidualOrder};
use crate::tensor::{DType, HostTensor, TensorSpec};

pub(super) const OP: &str = "pillars";

/// Largest number of points in a pillar.
const MAX_POINTS: usize = 1 << 12;

/// A feature net whose description holds together.
#[derive(Debug, Clone, Copy)]
struct Problem {
    pillars: usize,
    points: usize,
    features: usize,
    hidden: Option<usize>,
    outputs: usize,
    dtype: DType,
    /// Elements from one pillar to the next, and from one point to the next.
    steps: [isize; 2],
    offset: isize,
    out_step: isize,
    out_offset: isize,
}

impl Problem {
    fn new(desc: &PillarsDesc) -> Result<Self, DeviceError> {
        let (points, output) = (&desc.points.view, &desc.output.view);
        let shapes = || {
            format!(
                "points {} and output {} do not fit: expected [pillars, points, features] and [pillars, outputs], \
                 none of them 0",
                points.shape, output.shape
            )
        };
        let fits = points.rank() == 3
            && output.rank() == 2
            && points.shape[0] == output.shape[0]
            && points.shape.elements() > 0
            && output.shape.elements() > 0;
        ensure(fits, OP, shapes)?;
        let dtype = storage(OP, &[("points", &desc.points), ("output", &desc.output)])?;
        let (features, outputs) = (points.shape[2], output.shape[1]);
        ensure(
            (features == 1 || points.strides[2] == 1) && (outputs == 1 || output.strides[1] == 1),
            OP,
            || {
                format!(
                    "feature stride {} and output stride {}: both must be 1",
                    points.strides[2], output.strides[1]
                )
            },
        )?;
        let widths = [features, desc.hidden.unwrap_or(1), outputs];
        ensure(
            points.shape[1] <= MAX_POINTS && widths.iter().all(|&w| w > 0 && w <= MAX_CHANNELS),
            OP,
            || {
                format!(
                    "{} points a pillar and layers of {widths:?}: points up to {MAX_POINTS} and widths from 1 to \
                     {MAX_CHANNELS} are supported",
                    points.shape[1]
                )
            },
        )?;
        writes_each_place_once(OP, "output", &desc.output)?;
        Ok(Self {
            pillars: points.shape[0],
            points: points.shape[1],
            features,
            hidden: desc.hidden,
            outputs,
            dtype,
            steps: [points.strides[0], points.strides[1]],
            offset: points.offset as isize,
            out_step: output.strides[0],
            out_offset: output.offset as isize,
        })
    }
}

/// The layers in the order of the weight buffer: the first; where there are two, what the second does to each point
/// (without a bias), and what it does to the maximum.
struct Layers {
    first: Panels,
    second: Option<[Panels; 2]>,
}

impl Layers {
    fn new(problem: &Problem, lanes: usize) -> Result<Self, DeviceError> {
        let width = problem.hidden.unwrap_or(problem.outputs);
        let second = match problem.hidden {
            None => None,
            Some(hidden) => {
                let half = Panels::dense(OP, [hidden, problem.outputs], lanes)?;
                Some([half.clone(), half])
            }
        };
        let layers = Self {
            first: Panels::dense(OP, [problem.features, width], lanes)?,
            second,
        };
        let sizes = layers.each().map(Panels::bytes);
        let total = sizes.into_iter().try_fold(0_usize, usize::checked_add);
        match total.filter(|&bytes| isize::try_from(bytes).is_ok()) {
            Some(_) => Ok(layers),
            None => Err(invalid(OP, "the weights are larger than the address space")),
        }
    }

    fn each(&self) -> impl Iterator<Item = &Panels> {
        std::iter::once(&self.first).chain(self.second.iter().flatten())
    }

    fn len(&self) -> usize {
        self.each().map(Panels::len).sum()
    }
}

/// Packs the weights. Equal arguments give equal bytes.
pub(super) fn pack(
    desc: &PillarsDesc,
    first: &DenseLayer<'_>,
    second: Option<&DenseLayer<'_>>,
    lanes: usize,
) -> Result<HostTensor, DeviceError> {
    let problem = Problem::new(desc)?;
    let layers = Layers::new(&problem, lanes)?;
    let fits = |name: &str, layer: &DenseLayer<'_>, [inputs, outputs]: [usize; 2]| {
        ensure(
            inputs.checked_mul(outputs) == Some(layer.weight.len()) && layer.bias.len() == outputs,
            OP,
            || {
                format!(
                    "{name} layer: {} weights and {} biases given for {inputs} inputs and {outputs} outputs",
                    layer.weight.len(),
                    layer.bias.len()
                )
            },
        )
    };
    let width = problem.hidden.unwrap_or(problem.outputs);
    fits("first", first, [problem.features, width])?;
    let mut packed = HostTensor::zeros(TensorSpec::new(&[layers.len()], DType::F32)?);
    let values: &mut [f32] = packed.as_mut_slice()?;
    let (head, tail) = values.split_at_mut(layers.first.len());
    layers.first.fill(head, |output, row| match row.checked_sub(1) {
        None => first.bias[output],
        Some(input) => first.weight[input * width + output],
    });
    match (&layers.second, second) {
        (None, None) => {}
        (Some([of_points, of_maxima]), Some(second)) => {
            let outputs = problem.outputs;
            fits("second", second, [2 * width, outputs])?;
            let (points, maxima) = tail.split_at_mut(of_points.len());
            of_points.fill(points, |output, row| match row.checked_sub(1) {
                None => 0.0,
                Some(input) => second.weight[input * outputs + output],
            });
            of_maxima.fill(maxima, |output, row| match row.checked_sub(1) {
                None => second.bias[output],
                Some(input) => second.weight[(width + input) * outputs + output],
            });
        }
        (expected, _) => {
            let count = |two: bool| if two { "two layers" } else { "one layer" };
            return Err(invalid(
                OP,
                format!(
                    "{} described, weights for {} given",
                    count(expected.is_some()),
                    count(second.is_some())
                ),
            ));
        }
    }
    Ok(packed)
}

/// A prepared feature net.
struct Pillars {
    problem: Problem,
    layers: Layers,
    required: [usize; 3],
    ops: &'static Ops,
    /// Values of each part of the scratch.
    parts: Parts<usize>,
    scratch: usize,
}

/// One thread's scratch, or the sizes of its parts.
#[derive(Debug, Clone, Copy)]
struct Parts<T> {
    /// Points of one pillar as fp32, where they are stored otherwise.
    points: T,
    /// What the first layer makes of them.
    hidden: T,
    /// Sums of one tile.
    sums: T,
    /// Maxima of the first layer, a row for each pillar of a block.
    maxima: T,
    /// Maxima of the last layer: for each panel, a row for each pillar of a block.
    best: T,
}

/// Prepares a feature net.
pub(super) fn prepare(desc: &PillarsDesc, ops: &'static Ops) -> Result<Arc<dyn Kernel>, DeviceError> {
    let problem = Problem::new(desc)?;
    let layers = Layers::new(&problem, ops.lanes)?;
    let required = [
        required_bytes(OP, "points", &desc.points)?,
        layers.len() * size_of::<f32>(),
        required_bytes(OP, "output", &desc.output)?,
    ];
    let (block, hidden) = (ops.tile_rows(), problem.hidden.unwrap_or(0));
    // Widths are at most 2^20 and points 2^12, so none of these overflows.
    let parts = Parts {
        points: match problem.dtype {
            DType::F32 => 0,
            _ => problem.points * problem.features,
        },
        hidden: problem.points * hidden,
        sums: block * PANEL_VECTORS * ops.lanes,
        maxima: block * hidden,
        best: block * problem.outputs.next_multiple_of(ops.lanes),
    };
    let Parts {
        points,
        hidden,
        sums,
        maxima,
        best,
    } = parts;
    let sizes = [points, hidden, sums, maxima, best];
    let scratch: usize = sizes.iter().map(|&values| Pillars::part_bytes(values)).sum();
    ensure(scratch <= MAX_SCRATCH, OP, || {
        "a pillar is too large to hold".to_owned()
    })?;
    Ok(Arc::new(Pillars {
        problem,
        layers,
        required,
        ops,
        parts,
        scratch,
    }))
}

impl Pillars {
    const fn part_bytes(values: usize) -> usize {
        (values * size_of::<f32>()).next_multiple_of(64)
    }

    fn areas(&self, scratch: &mut [u8]) -> Parts<*mut f32> {
        assert!(scratch.len() >= self.scratch);
        let mut next = scratch.as_mut_ptr();
        let mut part = |values: usize| {
            let begin = next;
            next = next.wrapping_add(Self::part_bytes(values));
            begin.cast()
        };
        Parts {
            points: part(self.parts.points),
            hidden: part(self.parts.hidden),
            sums: part(self.parts.sums),
            maxima: part(self.parts.maxima),
            best: part(self.parts.best),
        }
    }

    /// Points of a pillar as fp32, read in place or widened.
    ///
    /// # Safety
    /// As [`Kernel::run`]; `to` has room for a pillar unless points are fp32.
    unsafe fn points(&self, points: BufferRef, pillar: usize, to: *mut f32) -> Tap {
        let Problem {
            points: count,
            features,
            dtype,
            steps: [pillar_step, point_step],
            offset,
            ..
        } = self.problem;
        let first = offset + pillar as isize * pillar_step;
        if dtype == DType::F32 {
            return Tap {
                base: points.at(first),
                step: point_step,
            };
        }
        let size = dtype.size_bytes() as isize;
        let widen = self.ops.of(dtype).widen;
        // SAFETY: the points lie inside the checked view, and `to` has room for all of them.
        unsafe {
            if point_step == features as isize {
                widen(points.at(first * size), to, count * features);
            } else {
                for point in 0..count {
                    let from = points.at((first + point as isize * point_step) * size);
                    widen(from, to.add(point * features), features);
                }
            }
        }
        Tap {
            base: to,
            step: features as isize,
        }
    }

    /// Applies a layer to some rows, a tile and a panel at a time: `use_sums(panel, rows)` sees each tile of sums
    /// (`[rows][vectors * lanes]`).
    ///
    /// # Safety
    /// The rows are readable for `inputs` values each; `weights` is where the layer's panels begin; `sums` has room for
    /// the largest tile.
    unsafe fn layer(
        &self,
        rows: Tap,
        count: usize,
        inputs: usize,
        (panels, weights): (&Panels, *const f32),
        sums: *mut f32,
        mut use_sums: impl FnMut(&Panel, Range<usize>),
    ) {
        let tiles = count.div_ceil(self.ops.tile_rows());
        for panel in &panels.list {
            for tile in 0..tiles {
                let range = count * tile / tiles..count * (tile + 1) / tiles;
                let tap = Tap {
                    base: rows.base.wrapping_offset(range.start as isize * rows.step),
                    ..rows
                };
                let dense = self.ops.dense[panel.vectors - 1][range.len() - 1];
                // SAFETY: the caller's contract.
                unsafe { dense(&[tap], inputs, weights.add(panel.offset), sums) };
                use_sums(panel, range);
            }
        }
    }

    /// Both maxima of one pillar, number `at` of its block.
    ///
    /// # Safety
    /// As [`Kernel::run`]; `areas` is this thread's.
    unsafe fn pillar(&self, buffers: &[BufferRef], pillar: usize, at: usize, areas: &Parts<*mut f32>) {
        let Problem {
            points: count,
            features,
            outputs,
            ..
        } = self.problem;
        let weights: *const f32 = buffers[1].at::<f32>(0);
        let max_rows = self.ops.max_rows;
        let block = self.ops.tile_rows();
        // SAFETY: the caller's contract; all areas have the room that `prepare` computed.
        unsafe {
            let points = self.points(buffers[0], pillar, areas.points);
            let into_best = |panel: &Panel, rows: Range<usize>| {
                let width = panel.vectors * self.ops.lanes;
                let best = areas.best.add(block * panel.channel + at * width);
                max_rows(areas.sums, width, rows.len(), width, best);
            };
            for panel in &self.last().list {
                let width = panel.vectors * self.ops.lanes;
                let best = areas.best.add(block * panel.channel + at * width);
                std::slice::from_raw_parts_mut(best, width).fill(f32::NEG_INFINITY);
            }
            debug_assert!(outputs <= self.parts.best);
            let first = (&self.layers.first, weights);
            let (Some([of_points, _]), Some(hidden)) = (&self.layers.second, self.problem.hidden) else {
                self.layer(points, count, features, first, areas.sums, into_best);
                return;
            };
            self.layer(points, count, features, first, areas.sums, |panel, rows| {
                (self.ops.of(DType::F32).finish)(&Finish {
                    sums: areas.sums,
                    sum_step: panel.vectors * self.ops.lanes,
                    rows: rows.len(),
                    channels: panel.channels,
                    activation: Activation::Relu,
                    out: areas.hidden.add(rows.start * hidden + panel.channel).cast(),
                    out_step: hidden as isize,
                    residual: std::ptr::null(),
                    residual_step: 0,
                    order: ResidualOrder::AfterActivation,
                });
            });
            let maxima = areas.maxima.add(at * hidden);
            std::slice::from_raw_parts_mut(maxima, hidden).fill(f32::NEG_INFINITY);
            max_rows(areas.hidden, hidden, count, hidden, maxima);
            let rows = Tap {
                base: areas.hidden,
                step: hidden as isize,
            };
            let second = (of_points, weights.add(self.layers.first.len()));
            self.layer(rows, count, hidden, second, areas.sums, into_best);
        }
    }

    /// The layer behind which the last maximum is taken.
    fn last(&self) -> &Panels {
        match &self.layers.second {
            Some([of_points, _]) => of_points,
            None => &self.layers.first,
        }
    }

    /// Some pillars, at most as many as a tile has rows.
    ///
    /// # Safety
    /// As [`Kernel::run`]; `areas` is this thread's.
    unsafe fn block(&self, buffers: &[BufferRef], pillars: Range<usize>, areas: &Parts<*mut f32>) {
        let Problem {
            dtype,
            out_step,
            out_offset,
            ..
        } = self.problem;
        let count = pillars.len();
        let size = dtype.size_bytes() as isize;
        let finish = |panel: &Panel, sums: *const f32| {
            let out = out_offset + pillars.start as isize * out_step + panel.channel as isize;
            let tile = Finish {
                sums,
                sum_step: panel.vectors * self.ops.lanes,
                rows: count,
                channels: panel.channels,
                activation: Activation::Relu,
                out: buffers[2].at(out * size),
                out_step,
                residual: std::ptr::null(),
                residual_step: 0,
                order: ResidualOrder::AfterActivation,
            };
            // SAFETY: the rows lie inside the checked output, and the sums have a row for each.
            unsafe { (self.ops.of(dtype).finish)(&tile) };
        };
        let best = |panel: &Panel| areas.best.wrapping_add(self.ops.tile_rows() * panel.channel);
        // SAFETY: the caller's contract; all areas have the room that `prepare` computed.
        unsafe {
            for (at, pillar) in pillars.clone().enumerate() {
                self.pillar(buffers, pillar, at, areas);
            }
            let (Some([of_points, of_maxima]), Some(hidden)) = (&self.layers.second, self.problem.hidden)
            else {
                for panel in &self.layers.first.list {
                    finish(panel, best(panel));
                }
                return;
            };
            let rows = Tap {
                base: areas.maxima,
                step: hidden as isize,
            };
            let weights = buffers[1].at::<f32>((self.layers.first.len() + of_points.len()) as isize);
            self.layer(
                rows,
                count,
                hidden,
                (of_maxima, weights),
                areas.sums,
                |panel, _| {
                    let len = count * panel.vectors * self.ops.lanes;
                    let sums = std::slice::from_raw_parts_mut(areas.sums, len);
                    let best = std::slice::from_raw_parts(best(panel), len);
                    (self.ops.combine)(BinaryKind::Add, sums, best);
                    finish(panel, areas.sums);
                },
            );
        }
    }
}

impl Kernel for Pillars {
    fn scratch_bytes(&self) -> usize {
        self.scratch
    }

    fn required_bytes(&self) -> &[usize] {
        &self.required
    }

    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool) {
        let (pillars, block) = (self.problem.pillars, self.ops.tile_rows());
        let work = self.problem.points * self.layers.len() / self.ops.lanes * block;
        share(pool, pillars.div_ceil(block), work, &|blocks, scratch| {
            let areas = self.areas(scratch);
            for first in blocks.map(|unit| unit * block) {
                // SAFETY: the caller's contract; different blocks write different rows.
                unsafe { self.block(buffers, first..pillars.min(first + block), &areas) };
            }
        });
    }
}

impl fmt::Debug for Pillars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem {
            pillars,
            points,
            features,
            hidden,
            outputs,
            dtype,
            ..
        } = self.problem;
        write!(
            f,
            "Pillars({dtype}, {pillars} of {points} points, {features} to {hidden:?} to {outputs}, {} lanes)",
            self.ops.lanes
        )
    }
}
