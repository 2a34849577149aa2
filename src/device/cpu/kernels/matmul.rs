//! Products of matrices, both of which come with the launch.
//!
//! The right matrix is copied panel by panel (a few vectors of columns, all of `K`) into the thread's scratch, as many
//! panels at a time as the second-level cache holds; then every tile of rows of the left matrix meets them. Rows of the
//! left matrix are read where they lie if they are fp32 without gaps, else they are widened once a tile.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::check::{
    MAX_CHANNELS, MAX_SCRATCH, ensure, invalid, required_bytes, same_shape, storage, writes_each_place_once,
};
use super::elementwise::{load_run, store_run};
use super::matrix::Matrix;
use super::nest::share;
use super::ops::{Ops, PANEL_VECTORS};
use super::rows::RowOps;
use super::tile::Finish;
use super::{BufferRef, Kernel};
use crate::device::cpu::pool::ComputePool;
use crate::device::{Activation, DeviceError, MatMulDesc, ResidualOrder};

const OP: &str = "matmul";

/// Bytes of packed panels at a time: half of a common second-level cache.
const GROUP_BYTES: usize = 512 << 10;

/// A batch axis: its length, and the steps of left, right, output and bias.
type Batch = (usize, [isize; 4]);

struct MatMul {
    batches: Vec<Batch>,
    lhs: Matrix,
    rhs: Matrix,
    output: Matrix,
    bias: Option<Matrix>,
    m: usize,
    k: usize,
    n: usize,
    scale: f32,
    activation: Activation,
    required: Vec<usize>,
    /// Panels that are packed at a time.
    group: usize,
    ops: &'static Ops,
    rows: &'static RowOps,
}

/// A thread's scratch, in fp32 values.
struct Areas<'a> {
    panels: &'a mut [f32],
    left: &'a mut [f32],
    sums: &'a mut [f32],
    bias: &'a mut [f32],
}

/// Prepares a product.
pub(super) fn prepare(
    desc: &MatMulDesc,
    ops: &'static Ops,
    rows: &'static RowOps,
) -> Result<Arc<dyn Kernel>, DeviceError> {
    let shapes = [desc.lhs.view.shape, desc.rhs.view.shape, desc.output.view.shape];
    let [left, right, out] = &shapes;
    let rank = left.rank();
    let fits = rank >= 2 && right.rank() == rank && out.rank() == rank && {
        let last = rank - 2;
        left[..last] == right[..last]
            && left[..last] == out[..last]
            && left[last + 1] == right[last]
            && left[last] == out[last]
            && right[last + 1] == out[last + 1]
    };
    ensure(fits, OP, || {
        format!(
            "left {left}, right {right} and output {out} do not fit: expected [.., M, K], [.., K, N] and \
             [.., M, N] with equal batch axes"
        )
    })?;
    let (m, k, n) = (left[rank - 2], left[rank - 1], right[rank - 1]);
    ensure(k <= MAX_CHANNELS, OP, || {
        format!("K is {k}, above the supported {MAX_CHANNELS}")
    })?;
    for (name, operand) in [
        ("left", &desc.lhs),
        ("right", &desc.rhs),
        ("output", &desc.output),
    ] {
        storage(OP, &[(name, operand)])?;
    }
    writes_each_place_once(OP, "output", &desc.output)?;
    let mut required = vec![
        required_bytes(OP, "left", &desc.lhs)?,
        required_bytes(OP, "right", &desc.rhs)?,
        required_bytes(OP, "output", &desc.output)?,
    ];
    if let Some(bias) = &desc.bias {
        storage(OP, &[("bias", bias)])?;
        same_shape(OP, ("bias", &bias.view), ("output", &desc.output.view))?;
        required.push(required_bytes(OP, "bias", bias)?);
    }
    let batch = |axis: usize| -> Batch {
        let [lhs, rhs, output] =
            [&desc.lhs, &desc.rhs, &desc.output].map(|operand| operand.view.strides[axis]);
        let bias = desc.bias.as_ref().map_or(0, |bias| bias.view.strides[axis]);
        (out[axis], [lhs, rhs, output, bias])
    };
    let mut kernel = MatMul {
        batches: (0..rank - 2).map(batch).filter(|&(dim, _)| dim != 1).collect(),
        lhs: Matrix::new(&desc.lhs),
        rhs: Matrix::new(&desc.rhs),
        output: Matrix::new(&desc.output),
        bias: desc.bias.as_ref().map(Matrix::new),
        m,
        k,
        n,
        scale: desc.scale.get(),
        activation: desc.activation,
        required,
        group: 1,
        ops,
        rows,
    };
    kernel.join_batches();
    let width = kernel.width();
    kernel.group = (GROUP_BYTES / size_of::<f32>() / ((k + 1) * width)).clamp(1, n.div_ceil(width).max(1));
    ensure(kernel.scratch_bytes() <= MAX_SCRATCH, OP, || {
        format!("K is {k}: one panel of the right matrix exceeds the scratch memory of {MAX_SCRATCH} bytes")
    })?;
    m.checked_mul(kernel.batches.iter().map(|&(dim, _)| dim).product())
        .ok_or_else(|| invalid(OP, "too many rows"))?;
    Ok(Arc::new(kernel))
}

impl MatMul {
    /// Makes batch axes that share the right matrix part of `M`, as far as the rows of all others run on.
    fn join_batches(&mut self) {
        while let Some(&(dim, [lhs, rhs, output, bias])) = self.batches.last() {
            let rows = self.m as isize;
            let runs_on = |step: isize, matrix: &Matrix| step == rows.wrapping_mul(matrix.row_step);
            let joins = rhs == 0
                && runs_on(lhs, &self.lhs)
                && runs_on(output, &self.output)
                && self.bias.is_none_or(|matrix| runs_on(bias, &matrix));
            if !joins {
                return;
            }
            self.m *= dim;
            self.batches.pop();
        }
    }

    /// Columns of a full panel.
    const fn width(&self) -> usize {
        PANEL_VECTORS * self.ops.lanes
    }

    /// Values of the scratch areas.
    const fn sizes(&self) -> [usize; 4] {
        let (rows, width) = (self.ops.tile_rows(), self.width());
        [
            self.group * (self.k + 1) * width,
            if self.lhs.is_direct() { 0 } else { rows * self.k },
            rows * width,
            if self.bias.is_some() { rows * width } else { 0 },
        ]
    }

    fn areas<'a>(&self, scratch: &'a mut [u8]) -> Areas<'a> {
        let mut rest: &mut [f32] = bytemuck::cast_slice_mut(scratch);
        let [panels, left, sums, bias] = self.sizes().map(|size| {
            let (area, tail) = std::mem::take(&mut rest).split_at_mut(size.next_multiple_of(16));
            rest = tail;
            &mut area[..size]
        });
        Areas {
            panels,
            left,
            sums,
            bias,
        }
    }

    /// The matrices of one batch index.
    fn matrices(&self, batch: usize) -> [Matrix; 4] {
        let mut moves = [0; 4];
        let mut rest = batch;
        for &(dim, steps) in self.batches.iter().rev() {
            let index = (rest % dim) as isize;
            rest /= dim;
            for (to, step) in moves.iter_mut().zip(steps) {
                *to += index * step;
            }
        }
        [
            self.lhs.moved(moves[0]),
            self.rhs.moved(moves[1]),
            self.output.moved(moves[2]),
            self.bias.unwrap_or(self.output).moved(moves[3]),
        ]
    }

    /// Vectors and columns of a panel.
    fn panel(&self, panel: usize) -> (usize, Range<usize>) {
        let columns = panel * self.width()..((panel + 1) * self.width()).min(self.n);
        (columns.len().div_ceil(self.ops.lanes), columns)
    }

    /// Scales, adds the bias, activates and stores a tile of sums.
    ///
    /// # Safety
    /// As [`Kernel::run`].
    unsafe fn finish(
        &self,
        buffers: &[BufferRef],
        [output, bias]: [&Matrix; 2],
        (rows, columns): (&Range<usize>, &Range<usize>),
        sums: &mut [f32],
        spare: &mut [f32],
    ) {
        let width = sums.len() / rows.len();
        let count = columns.len();
        let mut added: &[f32] = &[];
        let mut added_step = 0;
        if self.bias.is_some() {
            let repeats = bias.row_step == 0;
            let lines = if repeats { 1 } else { rows.len() };
            for (row, to) in rows.clone().zip(spare.chunks_exact_mut(width)).take(lines) {
                let place = (bias.at(row, columns.start), bias.step);
                // SAFETY: the row lies inside the checked view.
                unsafe { load_run(self.ops, bias.dtype, buffers[3], place, &mut to[..count]) };
                to[count..].fill(0.0);
            }
            added = &spare[..lines * width];
            added_step = if repeats { 0 } else { width };
        }
        // SAFETY: the bias has a row for each of the sums', or one that repeats; the places written lie inside the
        // checked view.
        unsafe {
            if self.scale != 1.0 || !added.is_empty() {
                (self.rows.scale_bias)(sums, width, self.scale, added, added_step);
            }
            if output.step == 1 {
                let size = output.dtype.size_bytes() as isize;
                (self.ops.of(output.dtype).finish)(&Finish {
                    sums: sums.as_ptr(),
                    sum_step: width,
                    rows: rows.len(),
                    channels: count,
                    activation: self.activation,
                    out: buffers[2].at(output.at(rows.start, columns.start) * size),
                    out_step: output.row_step,
                    residual: std::ptr::null(),
                    residual_step: 0,
                    order: ResidualOrder::AfterActivation,
                });
                return;
            }
            (self.ops.activate)(self.activation, sums);
            for (row, sums) in rows.clone().zip(sums.chunks_exact(width)) {
                let place = (output.at(row, columns.start), output.step);
                store_run(self.ops, output.dtype, buffers[2], place, &sums[..count]);
            }
        }
    }

    /// Computes some rows for the panels of a group, which are packed.
    ///
    /// # Safety
    /// As [`Kernel::run`].
    unsafe fn rows(
        &self,
        buffers: &[BufferRef],
        [lhs, output, bias]: [&Matrix; 3],
        panels: Range<usize>,
        rows: Range<usize>,
        areas: &mut Areas<'_>,
    ) {
        let most = self.ops.tile_rows();
        let tiles = rows.len().div_ceil(most);
        let bound = |tile: usize| rows.start + rows.len() * tile / tiles;
        for tile in 0..tiles {
            let rows = bound(tile)..bound(tile + 1);
            // SAFETY: the same contract.
            let tap = unsafe { lhs.rows(self.ops, buffers[0], rows.clone(), self.k, areas.left) };
            for (i, panel) in panels.clone().enumerate() {
                let (vectors, columns) = self.panel(panel);
                let packed = &areas.panels[i * (self.k + 1) * self.width()..];
                let sums = &mut areas.sums[..rows.len() * vectors * self.ops.lanes];
                let dense = self.ops.dense[vectors - 1][rows.len() - 1];
                // SAFETY: the tap covers the tile's rows, the panel is packed, the sums have room for the tile.
                unsafe {
                    dense(&[tap], self.k, packed.as_ptr(), sums.as_mut_ptr());
                    self.finish(buffers, [output, bias], (&rows, &columns), sums, areas.bias);
                }
            }
        }
    }
}

impl Kernel for MatMul {
    fn scratch_bytes(&self) -> usize {
        let values = self.sizes().map(|size| size.next_multiple_of(16));
        values.iter().sum::<usize>() * size_of::<f32>()
    }

    fn required_bytes(&self) -> &[usize] {
        &self.required
    }

    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool) {
        let batches: usize = self.batches.iter().map(|&(dim, _)| dim).product();
        let panels = self.n.div_ceil(self.width());
        let groups = panels.div_ceil(self.group);
        if batches * groups * self.m == 0 {
            return;
        }
        // Few groups are also divided by rows, so that every thread is busy; each part packs the group anew.
        let wanted = match pool.threads() {
            1 => 1,
            threads => (4 * threads).div_ceil(batches * groups),
        };
        let parts = wanted.min(self.m.div_ceil(self.ops.tile_rows()));
        let work = self.m.div_ceil(parts) * (self.k + 1) * self.group * PANEL_VECTORS;
        share(pool, batches * groups * parts, work, &|units, scratch| {
            let mut areas = self.areas(scratch);
            let mut packed = usize::MAX;
            for unit in units {
                let (group, part) = (unit / parts, unit % parts);
                let [lhs, rhs, output, bias] = self.matrices(group / groups);
                let first = group % groups * self.group;
                let panels = first..(first + self.group).min(panels);
                if packed != group {
                    for (i, panel) in panels.clone().enumerate() {
                        let to = &mut areas.panels[i * (self.k + 1) * self.width()..];
                        // SAFETY: the caller's contract.
                        unsafe { rhs.pack(self.ops, buffers[1], 0..self.k, self.panel(panel).1, to) };
                    }
                    packed = group;
                }
                let rows = self.m * part / parts..self.m * (part + 1) / parts;
                // SAFETY: the caller's contract; different units write different rows or columns.
                unsafe { self.rows(buffers, [&lhs, &output, &bias], panels, rows, &mut areas) };
            }
        });
    }
}

impl fmt::Debug for MatMul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "MatMul({} x {} to {}, {} of {} x {} x {}, {} lanes)",
            self.lhs.dtype,
            self.rhs.dtype,
            self.output.dtype,
            self.batches.iter().map(|&(dim, _)| dim).product::<usize>(),
            self.m,
            self.k,
            self.n,
            self.ops.lanes
        )
    }
}
