//! Convolution with the arithmetic of a matrix engine, as an emulation: what a fidelity, narrow sums and block-float
//! weights cost in accuracy can be seen without the engine.
//!
//! The sum of an output is a row times a column of length `K = taps * input channels of the group`, taps (rows, columns)
//! outside, channels inside. It is computed in tiles of 32 positions, each a block of its own:
//!
//! - A pass multiplies one part of each weight with one part of each activation
//!   ([`MatrixOperand`]): pass 0 high with high, pass 1 the weights' low part, pass 2 the activations' low part, pass 3
//!   low with low. A [`crate::precision::Fidelity`] is the number of passes.
//! - One step takes 16 positions: it sums their products in fp32, in order, and adds the sum to the engine's register,
//!   fp32 or bf16 (to nearest even). A tile takes all steps of one pass, then those of the next.
//! - Partial sums between tiles: with accumulation in the packer the register starts at zero for each tile and is added
//!   to a sum of its own type; without, it is stored in the output's type behind each tile and read back for the next.
//!
//! The rest is as in the other convolutions: bias, activation and residual in fp32, one rounding on store.
//!
//! Weights are rounded to their format once. Block floats share an exponent among 16 neighbouring output channels of one
//! group and position, which is how tiles of the weight matrix hold them. The bias is rounded to bf16, unless weights are
//! fp32.
//!
//! What is known of the engine is in [`MatrixOperand::parts`]; the steps of 16 and their order are those of `MVMUL` in the same
//! documentation and of tt-llk's matrix product, the types of partial sums those of tt-metal's `conv2d` programs
//! (`packer_l1_acc ? (fp32_dest_acc ? fp32 : bf16) : output`). The documentation calls its own model of the sums a
//! rough guide: the engine aligns and cuts products inside a step, and orders them in other ways. How many tiles a
//! block has depends on how an accelerator divides the work; one is the least, at which partial sums are rounded most often.

use std::fmt;
use std::sync::Arc;

use half::bf16;

use super::check::{ensure, invalid, required_bytes};
use super::conv::{OP, Problem, scratch_bytes};
use super::conv_matrix_sum::{AT_ONCE, Row, SumRule, WIDTH, Weights};
use super::nest::share;
use super::ops::Ops;
use super::{BufferRef, Kernel};
use crate::device::cpu::pool::ComputePool;
use crate::device::{Conv2dDesc, DeviceError, ResidualOrder};
use crate::numeric::blockfloat::{decode_block, encode_block};
use crate::precision::{MatrixMath, MatrixOperand, OperandFormat};
use crate::tensor::{DType, HostTensor, TensorSpec};

/// Output pixels whose activations are gathered at a time.
const PIXELS: usize = 8;

/// The sizes of the prepared weights: for each panel of [`WIDTH`] channels of a group the biases, then two rows for each
/// position. Channels past the group's last are zeros.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    positions: usize,
    panels_in_group: usize,
    panel_len: usize,
    len: usize,
}

impl Sizes {
    fn new(problem: &Problem) -> Result<Self, DeviceError> {
        let panels_in_group = problem.group_out.div_ceil(WIDTH);
        let sizes = || {
            let positions = problem.window.taps().checked_mul(problem.group_in)?;
            let panel_len = positions.checked_mul(2)?.checked_add(1)?.checked_mul(WIDTH)?;
            let len = panel_len.checked_mul(panels_in_group.checked_mul(problem.groups)?)?;
            (len <= isize::MAX as usize / size_of::<f32>()).then_some(Self {
                positions,
                panels_in_group,
                panel_len,
                len,
            })
        };
        sizes().ok_or_else(|| invalid(OP, "the weights are larger than the address space"))
    }
}

/// The content of the weight buffer for the kernel that [`prepare`] makes. The lengths of `weight` and `bias` have been
/// checked.
pub(super) fn pack(
    problem: &Problem,
    math: MatrixMath,
    weight: &[f32],
    bias: Option<&[f32]>,
) -> Result<HostTensor, DeviceError> {
    let sizes = Sizes::new(problem)?;
    ensure(
        math.weights.block().is_none() || weight.iter().all(|w| w.is_finite()),
        OP,
        || format!("{} cannot hold infinite weights or NaN", math.weights),
    )?;
    let mut packed = HostTensor::zeros(TensorSpec::new(&[sizes.len], DType::F32)?);
    let (cin, taps) = (problem.group_in, problem.window.taps());
    let panels = packed.as_mut_slice()?.chunks_exact_mut(sizes.panel_len);
    for (index, panel) in panels.enumerate() {
        let (group, part) = (index / sizes.panels_in_group, index % sizes.panels_in_group);
        let first = group * problem.group_out + part * WIDTH;
        let channels = (problem.group_out - part * WIDTH).min(WIDTH);
        let (biases, rows) = panel.split_at_mut(WIDTH);
        for (place, bias) in biases
            .iter_mut()
            .zip(bias.iter().flat_map(|bias| &bias[first..][..channels]))
        {
            *place = match math.weights {
                OperandFormat::F32 => *bias,
                _ => bf16::from_f32(*bias).to_f32(),
            };
        }
        for (position, parts) in rows.chunks_exact_mut(2 * WIDTH).enumerate() {
            let mut row = [0.0; WIDTH];
            for (lane, place) in row[..channels].iter_mut().enumerate() {
                *place = weight[((first + lane) * cin + position % cin) * taps + position / cin];
            }
            for (lane, value) in stored(math.weights, row).into_iter().enumerate() {
                [parts[lane], parts[WIDTH + lane]] = MatrixOperand::Weight.parts(value);
            }
        }
    }
    Ok(packed)
}

/// Weights as their format holds them.
fn stored(format: OperandFormat, row: Row) -> Row {
    match format.block() {
        Some(block) => decode_block(block, &encode_block(block, &row)),
        None if format == OperandFormat::Bf16 => row.map(|x| bf16::from_f32(x).to_f32()),
        None => row,
    }
}

/// Prepares a convolution.
pub(super) fn prepare(
    problem: Problem,
    desc: &Conv2dDesc,
    math: MatrixMath,
    ops: &'static Ops,
) -> Result<Arc<dyn Kernel>, DeviceError> {
    let sizes = Sizes::new(&problem)?;
    let mut required = vec![
        required_bytes(OP, "input", &desc.input)?,
        sizes.len * size_of::<f32>(),
        required_bytes(OP, "output", &desc.output)?,
    ];
    if let Some(residual) = &desc.residual {
        required.push(required_bytes(OP, "residual", residual)?);
    }
    let pixels = problem.output.w.min(PIXELS);
    let gathered = sizes.positions.checked_mul(2 * pixels * size_of::<f32>());
    let scratch = scratch_bytes(&[gathered, problem.group_in.checked_mul(size_of::<f32>())])?;
    Ok(Arc::new(MatrixConv {
        rule: SumRule {
            passes: math.fidelity.passes(),
            narrow: !math.fp32_acc,
            in_packer: math.packer_l1_acc,
            narrow_store: problem.out_dtype == DType::Bf16,
        },
        problem,
        math,
        sizes,
        required,
        ops,
        pixels,
        scratch,
    }))
}

/// A prepared convolution with a matrix engine's arithmetic.
struct MatrixConv {
    problem: Problem,
    math: MatrixMath,
    rule: SumRule,
    sizes: Sizes,
    required: Vec<usize>,
    ops: &'static Ops,
    /// Pixels of a full run of columns.
    pixels: usize,
    scratch: usize,
}

impl MatrixConv {
    /// Splits the activations that one output pixel reads of a group, in the order of positions.
    ///
    /// # Safety
    /// As [`Kernel::run`]; `channels` has room for the group's channels.
    unsafe fn gather(
        &self,
        input: BufferRef,
        (row, column, group): (usize, usize, usize),
        channels: &mut [f32],
        to: &mut [[f32; 2]],
    ) {
        let Problem {
            input: image,
            window,
            dtype,
            ..
        } = &self.problem;
        let (n, y) = (row / self.problem.output.h, row % self.problem.output.h);
        let [_, columns] = window.kernel;
        for (tap, to) in to.chunks_exact_mut(channels.len()).enumerate() {
            let iy = window.tap(0, y, tap / columns, image.h);
            let ix = window.tap(1, column, tap % columns, image.w);
            let Some((iy, ix)) = iy.zip(ix) else {
                to.fill([0.0; 2]);
                continue;
            };
            let pixel = image.row(n * image.h + iy) + ix as isize * image.pixel_step;
            let first = pixel + (group * channels.len()) as isize;
            let from = input.at::<u8>(first * dtype.size_bytes() as isize);
            // SAFETY: the tap lies inside the image, whose channels are inside the buffer.
            unsafe { (self.ops.of(*dtype).widen)(from, channels.as_mut_ptr(), channels.len()) };
            for (parts, &value) in to.iter_mut().zip(&*channels) {
                *parts = MatrixOperand::Activation.parts(value);
            }
        }
    }

    /// Finishes the sums of one pixel's panel and stores them.
    ///
    /// # Safety
    /// As [`Kernel::run`].
    unsafe fn finish(
        &self,
        buffers: &[BufferRef],
        (row, column): (usize, usize),
        (channel, channels): (usize, usize),
        mut sums: Row,
    ) {
        let Problem {
            output,
            residual,
            out_dtype,
            activation,
            order,
            ..
        } = &self.problem;
        let size = out_dtype.size_bytes() as isize;
        let place = |image: &super::check::Image| {
            (image.row(row) + column as isize * image.pixel_step + channel as isize) * size
        };
        let storage = self.ops.of(*out_dtype);
        // SAFETY: the instruction set is that of the prepared kernel; the views lie inside their buffers, and the arrays
        // have room for `channels` values.
        unsafe {
            if *order == ResidualOrder::AfterActivation {
                (self.ops.activate)(*activation, &mut sums[..channels]);
            }
            if let Some(image) = residual {
                let mut added = [0.0; WIDTH];
                (storage.widen)(buffers[3].at(place(image)), added.as_mut_ptr(), channels);
                for (sum, added) in sums.iter_mut().zip(added) {
                    *sum += added;
                }
            }
            if *order == ResidualOrder::BeforeActivation {
                (self.ops.activate)(*activation, &mut sums[..channels]);
            }
            (storage.narrow)(sums.as_ptr(), buffers[2].at(place(output)), channels);
        }
    }

    /// Computes some neighbouring pixels of one output row.
    ///
    /// # Safety
    /// As [`Kernel::run`]; `gathered` has room for [`Self::pixels`] pixels.
    unsafe fn pixels(
        &self,
        buffers: &[BufferRef],
        row: usize,
        columns: std::ops::Range<usize>,
        channels: &mut [f32],
        gathered: &mut [[f32; 2]],
    ) {
        let Sizes {
            positions,
            panels_in_group,
            panel_len,
            len,
        } = self.sizes;
        // SAFETY: the buffer holds the packed weights, on a 64-byte boundary; nobody writes them.
        let packed = unsafe { std::slice::from_raw_parts(buffers[1].at::<f32>(0).cast_const(), len) };
        for group in 0..self.problem.groups {
            for (column, to) in columns.clone().zip(gathered.chunks_exact_mut(positions)) {
                // SAFETY: the caller's contract.
                unsafe { self.gather(buffers[0], (row, column, group), channels, to) };
            }
            for part in 0..panels_in_group {
                let panel = &packed[(group * panels_in_group + part) * panel_len..][..panel_len];
                let (biases, rows) = panel.split_at(WIDTH);
                let weights: &[Weights] = bytemuck::cast_slice(rows);
                let within = part * WIDTH;
                let count = (self.problem.group_out - within).min(WIDTH);
                let channel = group * self.problem.group_out + within;
                for first in (0..columns.len()).step_by(AT_ONCE) {
                    let pixels = (columns.len() - first).min(AT_ONCE);
                    let mut sums = [[0.0; WIDTH]; AT_ONCE];
                    let sum = self.ops.matrix_sum[pixels - 1];
                    // SAFETY: the activations of so many pixels were gathered; there is a sum for each.
                    unsafe { sum(&self.rule, &gathered[first * positions..], weights, &mut sums) };
                    for (pixel, mut sums) in sums.into_iter().take(pixels).enumerate() {
                        for (sum, bias) in sums.iter_mut().zip(biases) {
                            *sum += bias;
                        }
                        let column = columns.start + first + pixel;
                        // SAFETY: the caller's contract.
                        unsafe { self.finish(buffers, (row, column), (channel, count), sums) };
                    }
                }
            }
        }
    }
}

impl Kernel for MatrixConv {
    fn scratch_bytes(&self) -> usize {
        self.scratch
    }

    fn required_bytes(&self) -> &[usize] {
        &self.required
    }

    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool) {
        let output = &self.problem.output;
        let runs = output.w.div_ceil(self.pixels);
        let work =
            self.pixels * self.sizes.positions * output.c.div_ceil(WIDTH) * self.math.fidelity.passes();
        share(pool, output.n * output.h * runs, work, &|units, scratch| {
            let values: &mut [f32] = bytemuck::cast_slice_mut(&mut scratch[..self.scratch]);
            let (gathered, channels) = values.split_at_mut(values.len() - self.channels_room());
            let gathered: &mut [[f32; 2]] =
                bytemuck::cast_slice_mut(&mut gathered[..2 * self.pixels * self.sizes.positions]);
            let channels = &mut channels[..self.problem.group_in];
            for unit in units {
                let (row, first) = (unit / runs, unit % runs * self.pixels);
                let columns = first..(first + self.pixels).min(output.w);
                // SAFETY: the caller's contract; different units write different pixels.
                unsafe { self.pixels(buffers, row, columns, channels, gathered) };
            }
        });
    }
}

impl MatrixConv {
    /// Values at the end of the scratch for the channels of one pixel.
    const fn channels_room(&self) -> usize {
        (self.problem.group_in * size_of::<f32>()).next_multiple_of(64) / size_of::<f32>()
    }
}

impl fmt::Debug for MatrixConv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem {
            input,
            output,
            window,
            groups,
            dtype,
            ..
        } = &self.problem;
        write!(
            f,
            "Conv2d({dtype}, {}x{}x{} to {}x{}x{}, kernel {:?}, {groups} groups, {:?})",
            input.h, input.w, input.c, output.h, output.w, output.c, window.kernel, self.math
        )
    }
}
