//! Maps sampled at given places.

use std::fmt;
use std::sync::Arc;

use half::bf16;

use super::check::{Image, MAX_SCRATCH, ensure, required_bytes, storage, writes_each_place_once};
use super::nest::share;
use super::ops::Ops;
use super::{BufferRef, Kernel};
use crate::device::cpu::pool::ComputePool;
use crate::device::{DeviceError, GridSampleDesc, OutsidePixels, SampleWeights, Sampling};
use crate::tensor::DType;

const OP: &str = "grid_sample";

/// The largest side: pixel coordinates are exact in fp32.
const MAX_SIDE: usize = 1 << 23;

/// One side of the image.
#[derive(Debug, Clone, Copy)]
struct Side {
    len: usize,
    sampling: Sampling,
    outside: OutsidePixels,
    align_corners: bool,
}

/// Up to two pixels of a side and their weights.
type Taps = [(usize, f32); 2];

impl Side {
    /// Coordinate of a normalised place, in pixels.
    fn coordinate(&self, place: f32) -> f32 {
        let len = self.len as f32;
        let x = if self.align_corners {
            (place + 1.0) / 2.0 * (len - 1.0)
        } else {
            place * (len / 2.0) + (len - 1.0) / 2.0
        };
        match self.outside {
            OutsidePixels::Zeros => x,
            OutsidePixels::Border => x.clamp(0.0, len - 1.0),
            OutsidePixels::Reflection => self.reflect(x).clamp(0.0, len - 1.0),
        }
    }

    fn reflect(&self, x: f32) -> f32 {
        let len = self.len as f32;
        let (low, high) = if self.align_corners {
            (0.0, len - 1.0)
        } else {
            (-0.5, len - 0.5)
        };
        let range = high - low;
        let past = if x < low { low - x } else { x - high };
        if past <= 0.0 {
            return x;
        }
        if range <= 0.0 {
            return low;
        }
        let turns = (past / range).floor();
        let rest = past - turns * range;
        if (turns % 2.0 == 0.0) == (x < low) {
            low + rest
        } else {
            high - rest
        }
    }

    /// The pixels that a place is made of; a weight of 0 where there is none.
    fn taps(&self, place: f32) -> Taps {
        let x = self.coordinate(place);
        let inside = |x: f32| (0.0..self.len as f32).contains(&x);
        if !x.is_finite() {
            return [(0, 0.0); 2];
        }
        match self.sampling {
            Sampling::Nearest => {
                let x = x.round_ties_even() + 0.0;
                [(x as usize, f32::from(inside(x))), (0, 0.0)]
            }
            Sampling::Bilinear => {
                let low = x.floor();
                let fraction = x - low;
                [(low, 1.0 - fraction), (low + 1.0, fraction)].map(|(x, weight)| {
                    if inside(x) { (x as usize, weight) } else { (0, 0.0) }
                })
            }
        }
    }
}

/// A stored number that fp32 has.
trait Wide: Copy {
    fn wide(self) -> f32;
}

impl Wide for f32 {
    #[inline(always)]
    fn wide(self) -> f32 {
        self
    }
}

impl Wide for bf16 {
    #[inline(always)]
    fn wide(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
}

/// A pixel and its weight.
#[derive(Debug, Clone, Copy)]
struct Tap {
    pixel: *const u8,
    weight: f32,
}

/// The weighted sum of the channels of up to four pixels, in their order.
///
/// # Safety
/// Every pixel is readable and has as many channels as there are sums.
unsafe fn blend<T: Wide>(taps: &[Tap], sums: &mut [f32]) {
    // SAFETY: the caller's contract.
    unsafe {
        match *taps {
            [] => sums.fill(0.0),
            [a] => blend_of::<T, 1>([a], sums),
            [a, b] => blend_of::<T, 2>([a, b], sums),
            [a, b, c] => blend_of::<T, 3>([a, b, c], sums),
            [a, b, c, d, ..] => blend_of::<T, 4>([a, b, c, d], sums),
        }
    }
}

/// # Safety
/// As [`blend`].
#[inline(always)]
unsafe fn blend_of<T: Wide, const N: usize>(taps: [Tap; N], sums: &mut [f32]) {
    for (channel, sum) in sums.iter_mut().enumerate() {
        let mut total = 0.0;
        for (index, tap) in taps.iter().enumerate() {
            // SAFETY: the pixel has such a channel.
            let product = tap.weight * unsafe { tap.pixel.cast::<T>().add(channel).read() }.wide();
            // The first is not added to 0, which would make a -0 of it 0.
            total = if index == 0 { product } else { total + product };
        }
        *sum = total;
    }
}

/// A prepared sampling.
struct GridSample {
    input: Image,
    output: Image,
    grid_offset: isize,
    grid_steps: [isize; 4],
    rows: Side,
    columns: Side,
    weights: SampleWeights,
    dtype: DType,
    required: [usize; 3],
    ops: &'static Ops,
}

/// Prepares a sampling.
pub(super) fn prepare(desc: &GridSampleDesc, ops: &'static Ops) -> Result<Arc<dyn Kernel>, DeviceError> {
    let input = Image::new(OP, "input", &desc.input)?;
    let output = Image::new(OP, "output", &desc.output)?;
    let dtype = storage(OP, &[("input", &desc.input), ("output", &desc.output)])?;
    ensure(desc.grid.dtype == DType::F32, OP, || {
        format!(
            "the grid holds {}: places need float32, in bfloat16 they are off by pixels",
            desc.grid.dtype
        )
    })?;
    let grid = &desc.grid.view;
    ensure(grid.shape[..] == [output.n, output.h, output.w, 2], OP, || {
        format!(
            "grid {} does not fit output {}: expected [N, OH, OW, 2]; one grid for several images is repeated by its \
             view",
            grid.shape, desc.output.view.shape
        )
    })?;
    ensure(input.n == output.n && input.c == output.c, OP, || {
        format!(
            "input {} and output {} differ in images or channels",
            desc.input.view.shape, desc.output.view.shape
        )
    })?;
    ensure(input.h <= MAX_SIDE && input.w <= MAX_SIDE, OP, || {
        format!("input {}: sides are at most {MAX_SIDE}", desc.input.view.shape)
    })?;
    ensure(input.c * size_of::<f32>() <= MAX_SCRATCH, OP, || {
        format!("{} channels are too many to hold", input.c)
    })?;
    writes_each_place_once(OP, "output", &desc.output)?;
    let side = |len| Side {
        len,
        sampling: desc.sampling,
        outside: desc.outside,
        align_corners: desc.align_corners,
    };
    Ok(Arc::new(GridSample {
        rows: side(input.h),
        columns: side(input.w),
        input,
        output,
        grid_offset: grid.offset as isize,
        grid_steps: [0, 1, 2, 3].map(|axis| grid.strides[axis]),
        weights: desc.weights,
        dtype,
        required: [
            required_bytes(OP, "input", &desc.input)?,
            required_bytes(OP, "grid", &desc.grid)?,
            required_bytes(OP, "output", &desc.output)?,
        ],
        ops,
    }))
}

impl GridSample {
    /// Weight of a pixel from the weights of its row and its column.
    fn weight(&self, row: f32, column: f32) -> f32 {
        let weight = row * column;
        match self.weights {
            SampleWeights::Exact => weight,
            SampleWeights::TruncatedBf16 => f32::from_bits(weight.to_bits() & 0xffff_0000),
        }
    }

    /// One output row.
    ///
    /// # Safety
    /// As [`Kernel::run`]; the row exists.
    unsafe fn row(&self, buffers: &[BufferRef], row: usize, sums: &mut [f32]) {
        let size = self.dtype.size_bytes() as isize;
        let narrow = self.ops.of(self.dtype).narrow;
        let (n, y) = (row / self.output.h, row % self.output.h);
        let [image_step, row_step, column_step, xy_step] = self.grid_steps;
        let line = self.grid_offset + n as isize * image_step + y as isize * row_step;
        for x in 0..self.output.w {
            let place = buffers[1].at::<f32>(line + x as isize * column_step);
            // SAFETY: the place lies inside the checked view. Read once: whoever writes it meanwhile must not change what was
            // checked.
            let [px, py] = unsafe { [place.read_volatile(), place.offset(xy_step).read_volatile()] };
            let mut taps = [Tap {
                pixel: std::ptr::null(),
                weight: 0.0,
            }; 4];
            let mut count = 0;
            let columns = self.columns.taps(px);
            for (iy, row_weight) in self.rows.taps(py) {
                for (ix, column_weight) in columns {
                    let weight = self.weight(row_weight, column_weight);
                    // Leaving these out keeps a copy exact: `0 * inf` is not 0, and `-0 + 0` is not -0.
                    if weight != 0.0 {
                        let from =
                            self.input.row(n * self.input.h + iy) + ix as isize * self.input.pixel_step;
                        let pixel = buffers[0].at::<u8>(from * size);
                        taps[count] = Tap { pixel, weight };
                        count += 1;
                    }
                }
            }
            let to = self.output.row(row) + x as isize * self.output.pixel_step;
            // SAFETY: the pixels lie inside the input and the output.
            unsafe {
                match self.dtype {
                    DType::Bf16 => blend::<bf16>(&taps[..count], sums),
                    _ => blend::<f32>(&taps[..count], sums),
                }
                narrow(sums.as_ptr(), buffers[2].at::<u8>(to * size), sums.len());
            }
        }
    }
}

impl Kernel for GridSample {
    fn scratch_bytes(&self) -> usize {
        self.input.c * size_of::<f32>()
    }

    fn required_bytes(&self) -> &[usize] {
        &self.required
    }

    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool) {
        let c = self.input.c;
        let work = self.output.w * (c + 16);
        share(pool, self.output.n * self.output.h, work, &|rows, scratch| {
            let sums: &mut [f32] = &mut bytemuck::cast_slice_mut(scratch)[..c];
            for row in rows {
                // SAFETY: the caller's contract; different rows write different pixels.
                unsafe { self.row(buffers, row, sums) };
            }
        });
    }
}

impl fmt::Debug for GridSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "GridSample({}, {:?}, {:?}, {}x{}x{} from {}x{})",
            self.dtype,
            self.rows.sampling,
            self.rows.outside,
            self.output.h,
            self.output.w,
            self.output.c,
            self.input.h,
            self.input.w
        )
    }
}
