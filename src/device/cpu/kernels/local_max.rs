//! Local maxima of maps.

use std::fmt;
use std::sync::Arc;

use super::check::{Image, MAX_SCRATCH, ensure, required_bytes, same_shape, storage, writes_each_place_once};
use super::nest::share;
use super::ops::Ops;
use super::{BufferRef, Kernel};
use crate::device::cpu::pool::ComputePool;
use crate::device::{DeviceError, LocalMaxDesc, Unpooled};
use crate::tensor::DType;

const OP: &str = "local_max";

/// Largest window side.
const MAX_KERNEL: usize = 63;

/// All bits or none.
const fn mask(set: bool) -> u32 {
    if set { u32::MAX } else { 0 }
}

/// A prepared local maximum. A row of pixels is one run of `W * C` numbers, whose neighbours to the left and right are
/// `C` places away.
struct LocalMax {
    input: Image,
    output: Image,
    kernel: usize,
    /// Which numbers of a row away from the border are compared, as masks.
    compared: Box<[u32]>,
    /// Which numbers of such a row pass whatever they are.
    passing: Box<[u32]>,
    /// The same for rows of the border, where nothing is compared.
    border_passing: Box<[u32]>,
    dtype: DType,
    required: [usize; 2],
    ops: &'static Ops,
}

/// Prepares a local maximum.
pub(super) fn prepare(desc: &LocalMaxDesc, ops: &'static Ops) -> Result<Arc<dyn Kernel>, DeviceError> {
    let input = Image::new(OP, "input", &desc.input)?;
    let output = Image::new(OP, "output", &desc.output)?;
    let dtype = storage(OP, &[("input", &desc.input), ("output", &desc.output)])?;
    same_shape(OP, ("input", &desc.input.view), ("output", &desc.output.view))?;
    writes_each_place_once(OP, "output", &desc.output)?;
    let kernel = desc.kernel;
    ensure(kernel % 2 == 1 && kernel <= MAX_KERNEL, OP, || {
        format!("a window of {kernel}: sides are odd and at most {MAX_KERNEL}")
    })?;
    ensure(desc.pooled.len() == input.c, OP, || {
        format!("{} flags for {} channels", desc.pooled.len(), input.c)
    })?;
    let row = input.w.checked_mul(input.c).filter(|row| {
        row.checked_mul((kernel + 1) * size_of::<f32>())
            .is_some_and(|bytes| bytes <= MAX_SCRATCH)
    });
    let row = row.ok_or_else(|| {
        super::check::invalid(
            OP,
            format!("{kernel} rows of {} are too large to hold", desc.input.view.shape),
        )
    })?;
    let margin = kernel / 2;
    let inside = |x: usize| x >= margin && x + margin < input.w;
    let of_row = |choose: &dyn Fn(usize, bool) -> bool| -> Box<[u32]> {
        (0..row)
            .map(|i| mask(choose(i / input.c, desc.pooled[i % input.c])))
            .collect()
    };
    let passes = |pooled: bool| match pooled {
        true => desc.border == Unpooled::Pass,
        false => desc.others == Unpooled::Pass,
    };
    Ok(Arc::new(LocalMax {
        compared: of_row(&|x, pooled| pooled && inside(x)),
        passing: of_row(&|x, pooled| passes(pooled) && !(pooled && inside(x))),
        border_passing: of_row(&|_, pooled| passes(pooled)),
        input,
        output,
        kernel,
        dtype,
        required: [
            required_bytes(OP, "input", &desc.input)?,
            required_bytes(OP, "output", &desc.output)?,
        ],
        ops,
    }))
}

impl LocalMax {
    /// Length of a row of numbers.
    const fn row_len(&self) -> usize {
        self.compared.len()
    }

    /// Widens a row of pixels.
    ///
    /// # Safety
    /// As [`Kernel::run`]; the row exists.
    unsafe fn load(&self, buffer: BufferRef, row: usize, to: &mut [f32]) {
        let size = self.dtype.size_bytes() as isize;
        let (begin, c) = (self.input.row(row), self.input.c);
        let widen = self.ops.of(self.dtype).widen;
        // SAFETY: the pixels lie inside the view; `to` has room for a row.
        unsafe {
            if self.input.pixel_step == c as isize {
                widen(buffer.at(begin * size), to.as_mut_ptr(), to.len());
                return;
            }
            for (x, pixel) in to.chunks_exact_mut(c).enumerate() {
                let from = begin + x as isize * self.input.pixel_step;
                widen(buffer.at(from * size), pixel.as_mut_ptr(), c);
            }
        }
    }

    /// # Safety
    /// As [`LocalMax::load`].
    unsafe fn store(&self, buffer: BufferRef, row: usize, from: &[f32]) {
        let size = self.dtype.size_bytes() as isize;
        let (begin, c) = (self.output.row(row), self.output.c);
        let narrow = self.ops.of(self.dtype).narrow;
        // SAFETY: the pixels lie inside the view; `from` holds a row.
        unsafe {
            if self.output.pixel_step == c as isize {
                narrow(from.as_ptr(), buffer.at(begin * size), from.len());
                return;
            }
            for (x, pixel) in from.chunks_exact(c).enumerate() {
                let to = begin + x as isize * self.output.pixel_step;
                narrow(pixel.as_ptr(), buffer.at(to * size), c);
            }
        }
    }

    /// # Safety
    /// As [`Kernel::run`]; the row exists.
    unsafe fn row(&self, buffers: &[BufferRef], row: usize, scratch: &mut [u8]) {
        let len = self.row_len();
        let (keep, rows) =
            scratch[..(self.kernel + 1) * len * size_of::<f32>()].split_at_mut(len * size_of::<u32>());
        let (keep, rows): (&mut [u32], &mut [f32]) =
            (bytemuck::cast_slice_mut(keep), bytemuck::cast_slice_mut(rows));
        let margin = self.kernel / 2;
        let y = row % self.input.h;
        let whole = y >= margin && y + margin < self.input.h;
        if whole {
            for (i, to) in rows.chunks_exact_mut(len).enumerate() {
                // SAFETY: the window is whole, so its rows exist.
                unsafe { self.load(buffers[0], row + i - margin, to) };
            }
            self.compare(rows, keep);
        } else {
            // SAFETY: the row exists.
            unsafe { self.load(buffers[0], row, &mut rows[margin * len..][..len]) };
            keep.copy_from_slice(&self.border_passing);
        }
        let result = &mut rows[margin * len..][..len];
        for (value, &keep) in result.iter_mut().zip(&*keep) {
            *value *= f32::from_bits(keep & 1.0_f32.to_bits());
        }
        // SAFETY: the row exists.
        unsafe { self.store(buffers[1], row, result) };
    }

    /// Which numbers of the middle row stay.
    fn compare(&self, rows: &[f32], keep: &mut [u32]) {
        let (len, c, margin) = (self.row_len(), self.input.c, self.kernel / 2);
        keep.fill(u32::MAX);
        if self.input.w >= self.kernel {
            // The first and last pixels have no whole window and are never compared.
            let inner = margin * c..len - margin * c;
            let middle = &rows[margin * len..][..len][inner.clone()];
            for row in rows.chunks_exact(len) {
                for dx in 0..self.kernel {
                    let beside = &row[dx * c..][..inner.len()];
                    let places = keep[inner.clone()].iter_mut();
                    for ((keep, &value), &other) in places.zip(middle).zip(beside) {
                        *keep &= mask(other <= value);
                    }
                }
            }
        }
        for ((keep, compared), passing) in keep.iter_mut().zip(&self.compared).zip(&self.passing) {
            *keep = *keep & compared | passing;
        }
    }
}

impl Kernel for LocalMax {
    fn scratch_bytes(&self) -> usize {
        (self.kernel + 1) * self.row_len() * size_of::<f32>()
    }

    fn required_bytes(&self) -> &[usize] {
        &self.required
    }

    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool) {
        let work = self.row_len().div_ceil(4) * self.kernel * self.kernel;
        share(pool, self.input.n * self.input.h, work, &|rows, scratch| {
            for row in rows {
                // SAFETY: the caller's contract; different rows write different pixels.
                unsafe { self.row(buffers, row, scratch) };
            }
        });
    }
}

impl fmt::Debug for LocalMax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "LocalMax({}, {}x{}x{}, window {})",
            self.dtype, self.output.h, self.output.w, self.output.c, self.kernel
        )
    }
}
