//! Sparse convolution in gather form, with work for the pairs of rows that exist and no others.
//!
//! A thread takes a block of output rows, whose sums stay in the second-level cache. Tap by tap it lists the rows of the
//! block that have an input there, gathers the inputs (widened where they are bf16) and adds their products to the sums,
//! a tile of rows and a panel of output channels at a time; [`super::gather_conv_dot`] multiplies bf16 without widening
//! it. A row's sums thus do not depend on which rows share its
//! tiles: every block size, tile size and number of threads gives the same bits.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::check::{MAX_CHANNELS, MAX_SCRATCH, ensure, required_bytes, writes_each_place_once};
use super::dot::DOT_LANES;
use super::gather_conv_dot::{DotProducts, GatheredRows};
use super::nest::share;
use super::ops::Ops;
use super::pack::Panels;
use super::{BufferRef, Kernel, KernelSet};
use crate::device::cpu::pool::ComputePool;
use crate::device::{Activation, BinaryKind, DeviceError, GatherConvDesc, Operand, WeightForm};
use crate::tensor::{DType, HostTensor, TensorSpec};

pub(super) const OP: &str = "gather_conv";

/// Largest number of taps of a kernel.
const MAX_TAPS: usize = 1 << 12;

/// Values that the sums and the gathered rows of a block may have together: half of a usual second-level cache.
const BLOCK_VALUES: usize = 1 << 17;

/// Rows of a block: fewer make short tiles, because a tap is found in some of the rows only.
const BLOCK_ROWS: Range<usize> = 64..513;

/// Rows of channels that lie next to each other.
#[derive(Debug, Clone, Copy)]
struct Rows {
    offset: isize,
    step: isize,
    dtype: DType,
}

impl Rows {
    fn new(name: &str, operand: &Operand) -> Result<Self, DeviceError> {
        let view = &operand.view;
        ensure(matches!(operand.dtype, DType::F32 | DType::Bf16), OP, || {
            format!(
                "{name} holds {}; only float32 and bfloat16 are computed with",
                operand.dtype
            )
        })?;
        ensure(view.shape[1] == 1 || view.strides[1] == 1, OP, || {
            format!("{name} has channel stride {}, which must be 1", view.strides[1])
        })?;
        Ok(Self {
            offset: view.offset as isize,
            step: view.strides[0],
            dtype: operand.dtype,
        })
    }

    /// First byte of a row.
    fn at(&self, buffer: BufferRef, row: usize) -> *mut u8 {
        buffer.at((self.offset + row as isize * self.step) * self.dtype.size_bytes() as isize)
    }

    /// Whether rows of `channels` values follow each other without gaps.
    const fn is_dense(&self, channels: usize) -> bool {
        self.step == channels as isize
    }
}

/// A convolution whose description holds together.
#[derive(Debug, Clone)]
struct Problem {
    rows: usize,
    taps: usize,
    /// Rows of the table.
    known: usize,
    cin: usize,
    cout: usize,
    table: Rows,
    index_offset: isize,
    index_steps: [isize; 2],
    residual: Option<Rows>,
    output: Option<Rows>,
    terms: Vec<Rows>,
    weights: WeightForm,
    activation: Activation,
}

impl Problem {
    fn new(desc: &GatherConvDesc) -> Result<Self, DeviceError> {
        let (table, index) = (&desc.table.view, &desc.index.view);
        ensure(
            desc.results().next().is_some() && desc.terms.len() <= 2,
            OP,
            || {
                format!(
                    "{} outputs and {} terms; there must be one of either, and at most two terms",
                    usize::from(desc.output.is_some()),
                    desc.terms.len()
                )
            },
        )?;
        ensure(table.rank() == 2 && index.rank() == 2, OP, || {
            format!(
                "table {} and index {} must be [V, Cin] and [rows, K]",
                table.shape, index.shape
            )
        })?;
        ensure(desc.index.dtype == DType::U32, OP, || {
            format!("index holds {}, expected {}", desc.index.dtype, DType::U32)
        })?;
        let (rows, taps) = (index.shape[0], index.shape[1]);
        let mut cout = None;
        for operand in desc.results().chain(&desc.residual) {
            let shape = operand.view.shape;
            let fits = shape.rank() == 2 && shape[0] == rows && *cout.get_or_insert(shape[1]) == shape[1];
            ensure(fits, OP, || {
                format!(
                    "outputs, terms and residual must be [{rows}, Cout] of one Cout, as the index has rows; one is \
                     {shape}"
                )
            })?;
        }
        let (cin, cout) = (table.shape[1], cout.unwrap_or(0));
        let limits = [(cin, MAX_CHANNELS), (cout, MAX_CHANNELS), (taps, MAX_TAPS)];
        ensure(
            limits.iter().all(|&(value, most)| (1..=most).contains(&value)),
            OP,
            || {
                format!(
                    "{cin} input channels, {cout} output channels and {taps} taps: channels from 1 to {MAX_CHANNELS} and taps \
                 from 1 to {MAX_TAPS} are supported"
                )
            },
        )?;
        let typed = |name: &str, operand: &Operand, dtype: DType| {
            ensure(operand.dtype == dtype, OP, || {
                format!("{name} holds {}, expected {dtype}", operand.dtype)
            })?;
            writes_each_place_once(OP, name, operand)?;
            Rows::new(name, operand)
        };
        let output = desc
            .output
            .iter()
            .map(|output| typed("output", output, DType::F32));
        let terms = desc.terms.iter().map(|term| typed("a term", term, DType::Bf16));
        Ok(Self {
            rows,
            taps,
            known: table.shape[0],
            cin,
            cout,
            table: Rows::new("table", &desc.table)?,
            index_offset: index.offset as isize,
            index_steps: [index.strides[0], index.strides[1]],
            residual: desc
                .residual
                .iter()
                .map(|r| Rows::new("residual", r))
                .next()
                .transpose()?,
            output: output.into_iter().next().transpose()?,
            terms: terms.collect::<Result<_, _>>()?,
            weights: desc.weights,
            activation: desc.activation,
        })
    }

    /// The products of bf16 without widening, where all of it is bf16 and the kernel set has a way.
    fn dot(&self, set: KernelSet) -> Result<Option<DotProducts>, DeviceError> {
        match self.table.dtype {
            DType::Bf16 => DotProducts::new([self.taps, self.cin, self.cout], self.weights, set),
            _ => Ok(None),
        }
    }

    fn panels(&self, lanes: usize) -> Result<Panels, DeviceError> {
        // Fits: taps are at most 2¹² and channels 2²⁰.
        Panels::dense(OP, [self.taps * self.cin, self.cout], lanes)
    }
}

/// Packs the weights. Equal arguments give equal bytes.
pub(super) fn pack(
    desc: &GatherConvDesc,
    weight: &[f32],
    bias: Option<&[f32]>,
    (set, lanes): (KernelSet, usize),
) -> Result<HostTensor, DeviceError> {
    let problem = Problem::new(desc)?;
    let (fan_in, cout) = (problem.taps * problem.cin, problem.cout);
    ensure(fan_in.checked_mul(cout) == Some(weight.len()), OP, || {
        format!(
            "{} weights given for {cout} output channels of {} taps and {} input channels",
            weight.len(),
            problem.taps,
            problem.cin
        )
    })?;
    ensure(bias.is_none_or(|b| b.len() == cout), OP, || {
        format!(
            "{} biases given for {cout} output channels",
            bias.map_or(0, <[f32]>::len)
        )
    })?;
    let bias = |channel: usize| bias.map_or(0.0, |b| b[channel]);
    if let Some(dot) = problem.dot(set)? {
        return dot.pack(
            |channel, tap, input| weight[channel * fan_in + tap * problem.cin + input],
            bias,
        );
    }
    let panels = problem.panels(lanes)?;
    let mut packed = HostTensor::zeros(TensorSpec::new(&[panels.len()], DType::F32)?);
    panels.fill(packed.as_mut_slice()?, |channel, row| match row.checked_sub(1) {
        None => bias(channel),
        Some(input) => problem
            .weights
            .split(weight[channel * fan_in + input])
            .iter()
            .sum(),
    });
    Ok(packed)
}

/// How products are made and summed.
enum Products {
    /// In fp32, fused.
    Fused(Panels),
    /// In bf16.
    Dot(DotProducts),
}

impl Products {
    const fn panels(&self) -> &Panels {
        match self {
            Self::Fused(panels) => panels,
            Self::Dot(dot) => dot.panels(),
        }
    }
}

/// A prepared sparse convolution.
struct GatherConv {
    problem: Problem,
    products: Products,
    /// Lanes of a panel's vector.
    lanes: usize,
    required: Vec<usize>,
    ops: &'static Ops,
    /// Output rows of a block.
    block: usize,
    /// Values from one row of sums to the next.
    sum_step: usize,
    /// Values of the parts of the scratch: sums, rows, a tile, and each list.
    sizes: [usize; 4],
    scratch: usize,
}

/// One thread's scratch.
#[derive(Debug, Clone, Copy)]
struct Areas {
    /// `[block][sum_step]`
    sums: *mut f32,
    /// Gathered inputs, a row for each of the block; residuals and rounded results `[block][sum_step]` once all taps are
    /// done.
    rows: *mut f32,
    /// Sums of one tile of bf16 products.
    tile: *mut f32,
    /// Rows of the table, and rows of the block, that a tap connects.
    inputs: *mut u32,
    places: *mut u32,
}

/// Prepares a sparse convolution.
pub(super) fn prepare(
    desc: &GatherConvDesc,
    ops: &'static Ops,
    set: KernelSet,
) -> Result<Arc<dyn Kernel>, DeviceError> {
    let problem = Problem::new(desc)?;
    let (products, lanes) = match problem.dot(set)? {
        Some(dot) => (Products::Dot(dot), DOT_LANES),
        None => (Products::Fused(problem.panels(ops.lanes)?), ops.lanes),
    };
    let mut required = vec![
        required_bytes(OP, "table", &desc.table)?,
        required_bytes(OP, "index", &desc.index)?,
        products.panels().bytes(),
    ];
    for (name, operand) in (desc.residual.iter().map(|r| ("residual", r)))
        .chain(desc.output.iter().map(|o| ("output", o)))
        .chain(desc.terms.iter().map(|t| ("a term", t)))
    {
        required.push(required_bytes(OP, name, operand)?);
    }
    let sum_step = problem.cout.next_multiple_of(lanes);
    let (row, more, tile) = match &products {
        Products::Fused(_) => (problem.cin, 0, 0),
        Products::Dot(dot) => (dot.row_values(), dot.most_rows(), dot.tile_values()),
    };
    // None of these overflows: channels are at most 2²⁰.
    let wide = row.max(sum_step);
    let block = (BLOCK_VALUES / (wide + sum_step)).clamp(BLOCK_ROWS.start, BLOCK_ROWS.end - 1);
    let sizes = [block * sum_step, (block + more) * wide, tile, block];
    let scratch = sizes.map(GatherConv::part_bytes).iter().sum::<usize>() + GatherConv::part_bytes(block);
    ensure(scratch <= MAX_SCRATCH, OP, || {
        format!(
            "rows of {} and {} channels are too long to hold",
            problem.cin, problem.cout
        )
    })?;
    Ok(Arc::new(GatherConv {
        problem,
        products,
        lanes,
        required,
        ops,
        block,
        sum_step,
        sizes,
        scratch,
    }))
}

impl GatherConv {
    /// Bytes of some 32-bit values, up to the next cache line.
    const fn part_bytes(values: usize) -> usize {
        (values * size_of::<f32>()).next_multiple_of(64)
    }

    fn areas(&self, scratch: &mut [u8]) -> Areas {
        assert!(scratch.len() >= self.scratch);
        let mut next = scratch.as_mut_ptr();
        let [sums, rows, tile, list] = self.sizes;
        let mut part = |values: usize| {
            let begin = next;
            next = next.wrapping_add(Self::part_bytes(values));
            begin
        };
        Areas {
            sums: part(sums).cast(),
            rows: part(rows).cast(),
            tile: part(tile).cast(),
            inputs: part(list).cast(),
            places: part(list).cast(),
        }
    }

    /// Lists the rows of a block that have an input at a tap; returns how many.
    ///
    /// # Safety
    /// As [`Kernel::run`]; `areas` is this thread's, the rows lie inside the index and are at most a block.
    unsafe fn list(&self, index: BufferRef, tap: usize, rows: &Range<usize>, areas: &Areas) -> usize {
        let Problem {
            known,
            index_offset,
            index_steps: [row_step, tap_step],
            ..
        } = self.problem;
        let first = index_offset + rows.start as isize * row_step + tap as isize * tap_step;
        let mut count = 0;
        for place in 0..rows.len() {
            // SAFETY: the index has an entry for every row and tap. It is read once: what is compared is what is used.
            // The lists have room for a block, and at most `place` entries so far.
            unsafe {
                let entry = index.at::<u32>(first + place as isize * row_step).read_volatile();
                areas.inputs.add(count).write(entry);
                areas.places.add(count).write(place as u32);
                count += usize::from((entry as usize) < known);
            }
        }
        count
    }

    /// Gathers the listed rows of the table: as fp32, or as they are with zeros behind their channels.
    ///
    /// # Safety
    /// As [`Kernel::run`]; `areas` is this thread's, with `count` rows listed.
    unsafe fn gather(&self, table: BufferRef, count: usize, areas: &Areas) {
        let cin = self.problem.cin;
        let widen = self.ops.of(self.problem.table.dtype).widen;
        for at in 0..count {
            // SAFETY: listed rows are below the table's number of rows, and there is room for a block of them.
            unsafe {
                let row = self.problem.table.at(table, *areas.inputs.add(at) as usize);
                match &self.products {
                    Products::Fused(_) => widen(row, areas.rows.add(at * cin), cin),
                    Products::Dot(dot) => dot.take_row(row, areas.rows, at),
                }
            }
        }
    }

    /// Adds the products of the gathered rows with a tap's weights to the sums.
    ///
    /// # Safety
    /// As [`Kernel::run`]; `areas` is this thread's, with `count` rows listed and gathered.
    unsafe fn add_tap(&self, weights: BufferRef, tap: usize, count: usize, areas: &Areas) {
        let panels = match &self.products {
            Products::Fused(panels) => panels,
            Products::Dot(dot) => {
                let rows = GatheredRows {
                    rows: areas.rows.cast(),
                    count,
                    places: areas.places,
                };
                // SAFETY: the rows were gathered, the weights are as large as the panels need, places are different rows
                // of the block, and a row of sums has room for every panel.
                unsafe {
                    dot.add_tap(
                        weights,
                        tap,
                        &rows,
                        self.ops,
                        areas.tile,
                        (areas.sums, self.sum_step),
                    )
                };
                return;
            }
        };
        let cin = self.problem.cin;
        let tiles = count.div_ceil(self.ops.tile_rows());
        for panel in &panels.list {
            let width = panel.vectors * self.lanes;
            let weights: *const f32 = weights.at((panel.offset + (1 + tap * cin) * width) as isize);
            for tile in 0..tiles {
                let rows = count * tile / tiles..count * (tile + 1) / tiles;
                let gathered = self.ops.gathered[panel.vectors - 1][rows.len() - 1];
                // SAFETY: as above.
                unsafe {
                    gathered(
                        areas.rows.add(rows.start * cin),
                        cin,
                        weights,
                        areas.places.add(rows.start),
                        areas.sums.add(panel.channel),
                        self.sum_step,
                    );
                }
            }
        }
    }

    /// One block of output rows.
    ///
    /// # Safety
    /// As [`Kernel::run`]; `areas` is this thread's, the rows lie inside the output and are at most a block.
    unsafe fn block(&self, buffers: &[BufferRef], rows: Range<usize>, areas: &Areas) {
        // SAFETY: the caller's contract; the sums have room for a block of rows.
        unsafe {
            for panel in &self.products.panels().list {
                let width = panel.vectors * self.lanes;
                let bias: *const f32 = buffers[2].at(panel.offset as isize);
                for row in 0..rows.len() {
                    let sums = areas.sums.add(row * self.sum_step + panel.channel);
                    bias.copy_to_nonoverlapping(sums, width);
                }
            }
            for tap in 0..self.problem.taps {
                let count = self.list(buffers[1], tap, &rows, areas);
                self.gather(buffers[0], count, areas);
                self.add_tap(buffers[2], tap, count, areas);
            }
            self.finish(&buffers[3..], rows, areas);
        }
    }

    /// Residual, activation and the forms of the result. Rows without gaps are one long row.
    ///
    /// # Safety
    /// As [`Kernel::run`], with the buffers behind the weights; `areas` is this thread's, with all taps added.
    unsafe fn finish(&self, buffers: &[BufferRef], rows: Range<usize>, areas: &Areas) {
        let Problem {
            cout,
            residual,
            output,
            terms,
            activation,
            ..
        } = &self.problem;
        let mut each = residual.iter().chain(output).chain(terms);
        let is_long = self.sum_step == *cout && each.all(|rows| rows.is_dense(*cout));
        let (count, len) = match is_long {
            true => (1, rows.len() * cout),
            false => (rows.len(), *cout),
        };
        let (f32, bf16) = (&self.ops.f32, &self.ops.bf16);
        for row in 0..count {
            let mut next = buffers.iter();
            let mut place = |form: &Rows| next.next().map(|&buffer| form.at(buffer, rows.start + row));
            // SAFETY: `len` values of every form lie inside its checked view from the row's first on, and both areas have
            // room for as many. The sums and the other area do not overlap.
            unsafe {
                let sums = std::slice::from_raw_parts_mut(areas.sums.add(row * self.sum_step), len);
                let other = std::slice::from_raw_parts_mut(areas.rows, len);
                if let Some((from, dtype)) = residual.iter().find_map(|form| Some((place(form)?, form.dtype)))
                {
                    (self.ops.of(dtype).widen)(from, other.as_mut_ptr(), len);
                    (self.ops.combine)(BinaryKind::Add, sums, other);
                }
                (self.ops.activate)(*activation, sums);
                if let Some(to) = output.iter().find_map(&mut place) {
                    (f32.narrow)(sums.as_ptr(), to, len);
                }
                for (term, form) in terms.iter().enumerate() {
                    let Some(to) = place(form) else { continue };
                    (bf16.narrow)(sums.as_ptr(), to, len);
                    if term + 1 < terms.len() {
                        (bf16.widen)(to, other.as_mut_ptr(), len);
                        (self.ops.combine)(BinaryKind::Sub, sums, other);
                    }
                }
            }
        }
    }
}

impl Kernel for GatherConv {
    fn scratch_bytes(&self) -> usize {
        self.scratch
    }

    fn required_bytes(&self) -> &[usize] {
        &self.required
    }

    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool) {
        let rows = self.problem.rows;
        let vectors = self.sum_step / self.lanes;
        // About a third of the taps have an input.
        let work = (self.problem.taps * self.problem.cin * vectors * self.block / 3).max(1);
        share(pool, rows.div_ceil(self.block), work, &|blocks, scratch| {
            let areas = self.areas(scratch);
            let dot = match &self.products {
                Products::Fused(_) => None,
                Products::Dot(dot) => Some(dot),
            };
            // SAFETY: the kernel set vouches for the instructions.
            dot.inspect(|dot| unsafe { dot.begin() });
            for first in blocks.map(|unit| unit * self.block) {
                // SAFETY: the caller's contract; different blocks write different rows.
                unsafe { self.block(buffers, first..rows.min(first + self.block), &areas) };
            }
            // SAFETY: as for the beginning.
            dot.inspect(|dot| unsafe { dot.end() });
        });
    }
}

impl fmt::Debug for GatherConv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem {
            rows,
            taps,
            known,
            cin,
            cout,
            table,
            ..
        } = &self.problem;
        let how = match &self.products {
            Products::Fused(_) => format!("{} lanes", self.lanes),
            Products::Dot(dot) => dot.kind().to_string(),
        };
        write!(
            f,
            "GatherConv({}, {rows} rows of {taps} taps, {known} x {cin} to {cout}, {how})",
            table.dtype
        )
    }
}
