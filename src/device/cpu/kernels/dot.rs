//! How convolutions of bf16 storage sum their products, and the set of kernels that a device computes with.
//!
//! Widened to fp32, every sum is one chain of fused multiply-adds and has the same bits on every processor. The
//! instructions that multiply bf16 sum otherwise; what each does is written here lane by lane, and that text is also
//! what runs where the instruction is not there, so that a result can be had again on any machine.

use std::fmt;

use super::Isa;
use half::bf16;

/// How a dense convolution of bf16 storage (one group), and one over gathered rows, sums products. Every other operation,
/// grouped and depth-wise convolutions among them, widens bf16 to fp32.
///
/// Both instructions round to nearest even and take subnormal numbers, of fp32 sums too, for zeros; whatever
/// becomes subnormal is a zero of its sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bf16Dot {
    /// Values are widened: one chain of fp32 fused multiply-adds over taps and channels, bias first.
    Off,
    /// Two neighbouring values at a time, as `VDPBF16PS` (AVX512_BF16) adds them: the second product is fused into the
    /// sum, then the first.
    Pairs,
    /// Up to 32 neighbouring values at a time, as `TDPBF16PS` (AMX-BF16) adds them: one fused chain from zero over the
    /// values of even index, one over those of odd index; their sum is added to the sum so far.
    Tiles,
}

impl Bf16Dot {
    /// What is fastest here: tiles where the processor has them and the system lets this process use them; pairs on
    /// processors of AMD, which take twice as many products at a time that way as widened, where those of Intel
    /// take fewer; else off. Asked once per process.
    #[must_use]
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if super::simd_amx::is_available() {
                return Self::Tiles;
            }
            if super::simd_pairs::is_available() && super::simd_pairs::is_fast() {
                return Self::Pairs;
            }
        }
        Self::Off
    }
}

impl fmt::Display for Bf16Dot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Off => "widened to fp32",
            Self::Pairs => "in pairs (AVX512_BF16)",
            Self::Tiles => "in tiles (AMX-BF16)",
        })
    }
}

/// What a device's kernels are made of: the instruction set changes speed alone, [`Bf16Dot`] what bf16 sums are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KernelSet {
    /// Instruction set.
    pub isa: Isa,
    /// How bf16 products are summed. Where `isa` is not [`Isa::Avx512`], or the processor lacks the instruction, they
    /// are summed so in plain code, far more slowly.
    pub bf16_dot: Bf16Dot,
}

impl KernelSet {
    /// The fastest of this machine.
    #[must_use]
    pub fn detect() -> Self {
        Self {
            isa: Isa::detect(),
            bf16_dot: Bf16Dot::detect(),
        }
    }
}

impl From<Isa> for KernelSet {
    /// The kernels of an instruction set whose results are the same on every processor.
    fn from(isa: Isa) -> Self {
        Self {
            isa,
            bf16_dot: Bf16Dot::Off,
        }
    }
}

impl fmt::Display for KernelSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} kernels, bf16 {}", self.isa, self.bf16_dot)
    }
}

/// Output channels of one vector or tile in [`DotTile`].
pub(super) const DOT_LANES: usize = 16;

/// Most pixels of a strip.
pub(super) const DOT_ROWS: usize = 16;

/// Most bf16 values of a chunk, the depth of a tile.
pub(super) const DOT_DEPTH: usize = 32;

/// Where the values of one run lie for the pixels of a strip: `base`, `base + step` and so on, in bytes.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Run {
    pub(super) base: *const u8,
    pub(super) step: isize,
}

/// One or two strips of pixels times 16 or 32 output channels.
///
/// `sums[strip][pixel][channel] = bias[channel] + sum over runs and their chunks`, as [`Bf16Dot`] says. `panel` begins
/// with the biases, fp32, then has for each pair of values `[channel][2]` bf16. `sums` is
/// `[strips][DOT_ROWS][vectors * DOT_LANES]`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct DotTile {
    /// Runs of both strips; without a second strip that of it is not read.
    pub(super) runs: *const [Run; 2],
    /// Behind the last run.
    pub(super) end: *const [Run; 2],
    pub(super) panel: *const f32,
    pub(super) sums: *mut f32,
    /// Chunks of a run.
    pub(super) chunks: usize,
    /// Values of a chunk: even, at most [`DOT_DEPTH`].
    pub(super) chunk: usize,
    /// Pixels of a strip, at most [`DOT_ROWS`].
    pub(super) rows: usize,
    pub(super) strips: usize,
}

/// Computes a tile.
///
/// # Safety
/// The instructions are there; every run is readable for `rows` pixels of `chunks * chunk` values; `panel` and `sums`
/// are valid for their sizes; [`DotOps::begin`] came before on this thread.
pub(super) type DotFn = unsafe fn(&DotTile);

/// The functions of one way to sum.
pub(super) struct DotOps {
    /// Most pixels of a strip.
    pub(super) most_rows: usize,
    /// The function for so many vectors of output channels (1 or 2) and pixels.
    pub(super) tile: fn(usize, usize) -> DotFn,
    /// Readies the thread for tiles of so many pixels and values of a chunk.
    pub(super) begin: unsafe fn(usize, usize),
    /// Undoes that.
    pub(super) end: unsafe fn(),
}

/// The functions of a kernel set, or `None` where bf16 is widened.
pub(super) fn ops_of(set: KernelSet) -> Option<&'static DotOps> {
    #[cfg(target_arch = "x86_64")]
    match set.bf16_dot {
        Bf16Dot::Tiles if set.isa == Isa::Avx512 && super::simd_amx::is_available() => {
            return Some(&super::simd_amx::OPS);
        }
        Bf16Dot::Pairs if set.isa == Isa::Avx512 && super::simd_pairs::is_available() => {
            return Some(&super::simd_pairs::OPS);
        }
        _ => {}
    }
    match set.bf16_dot {
        Bf16Dot::Off => None,
        Bf16Dot::Pairs => Some(&PLAIN_PAIRS),
        Bf16Dot::Tiles => Some(&PLAIN_TILES),
    }
}

static PLAIN_PAIRS: DotOps =
    plain(|vectors, _| [plain_tile::<Pairs, 1>, plain_tile::<Pairs, 2>][vectors - 1]);
static PLAIN_TILES: DotOps =
    plain(|vectors, _| [plain_tile::<Tiles, 1>, plain_tile::<Tiles, 2>][vectors - 1]);

const fn plain(tile: fn(usize, usize) -> DotFn) -> DotOps {
    DotOps {
        most_rows: DOT_ROWS,
        tile,
        begin: nothing_to_ready,
        end: nothing_to_undo,
    }
}

/// # Safety
/// None needed.
pub(super) unsafe fn nothing_to_ready(_rows: usize, _chunk: usize) {}

/// # Safety
/// None needed.
pub(super) unsafe fn nothing_to_undo() {}

/// A subnormal number is a zero of its sign.
fn flushed(x: f32) -> f32 {
    if x.abs() < f32::MIN_POSITIVE {
        0.0_f32.copysign(x)
    } else {
        x
    }
}

/// `a * b + c`, rounded once, subnormal numbers taken and given as zeros.
fn fused(a: f32, b: f32, c: f32) -> f32 {
    // What rounds to the smallest normal number from below as if there were no smaller ones is not flushed; the
    // sum in f64 is exact where it is that small.
    const SMALLEST: f64 = f32::MIN_POSITIVE as f64 * (1.0 - 1.0 / (1_u64 << 25) as f64);
    let (a, b, c) = (flushed(a), flushed(b), flushed(c));
    let rounded = a.mul_add(b, c);
    let exact = f64::from(a) * f64::from(b) + f64::from(c);
    if exact.abs() < SMALLEST {
        0.0_f32.copysign(rounded)
    } else {
        rounded
    }
}

/// Sums one chunk of products `(x[0] w[0], x[1] w[1])` onto a sum.
trait ChunkSum {
    fn onto(sum: f32, products: impl Iterator<Item = [[f32; 2]; 2]>) -> f32;
}

/// [`Bf16Dot::Pairs`]
struct Pairs;

impl ChunkSum for Pairs {
    fn onto(sum: f32, products: impl Iterator<Item = [[f32; 2]; 2]>) -> f32 {
        products.fold(sum, |sum, [x, w]| fused(x[0], w[0], fused(x[1], w[1], sum)))
    }
}

/// [`Bf16Dot::Tiles`]
struct Tiles;

impl ChunkSum for Tiles {
    fn onto(sum: f32, products: impl Iterator<Item = [[f32; 2]; 2]>) -> f32 {
        let (even, odd) = products.fold((0.0, 0.0), |(even, odd), [x, w]| {
            (fused(x[0], w[0], even), fused(x[1], w[1], odd))
        });
        flushed(flushed(sum) + flushed(even + odd))
    }
}

/// The formula of [`DotTile`], sum by sum.
///
/// # Safety
/// As [`DotFn`].
unsafe fn plain_tile<S: ChunkSum, const VECTORS: usize>(tile: &DotTile) {
    let width = VECTORS * DOT_LANES;
    let pairs = tile.chunk / 2;
    // SAFETY: every address lies inside what the caller promises.
    unsafe {
        let count = tile.end.offset_from(tile.runs) as usize;
        let runs = std::slice::from_raw_parts(tile.runs, count);
        for (strip, row) in (0..tile.strips).flat_map(|strip| (0..tile.rows).map(move |row| (strip, row))) {
            for channel in 0..width {
                let mut sum = tile.panel.add(channel).read();
                let mut weights = tile.panel.add(width).cast::<[bf16; 2]>().add(channel);
                for run in runs {
                    let pixel = run[strip].base.wrapping_offset(row as isize * run[strip].step);
                    let mut values = pixel.cast::<[bf16; 2]>();
                    for _ in 0..tile.chunks {
                        let (w, x) = (weights, values);
                        sum = S::onto(
                            sum,
                            (0..pairs).map(|k| {
                                [x.add(k).read_unaligned(), w.add(k * width).read()]
                                    .map(|pair| pair.map(bf16::to_f32))
                            }),
                        );
                        weights = weights.wrapping_add(pairs * width);
                        values = values.wrapping_add(pairs);
                    }
                }
                let place = (strip * DOT_ROWS + row) * width + channel;
                tile.sums.add(place).write(sum);
            }
        }
    }
}
