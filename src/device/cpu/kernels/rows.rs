//! Functions of rows of fp32 values: reductions in a fixed order, normalisation, and the last step of a matrix product.
//!
//! A reduction has [`PARTIALS`] partial results: value `i` goes to the partial result `i mod PARTIALS`, and they are
//! combined by halves at the end. A vector holds neighbouring partial results, so every instruction set gives the same
//! bits.

use super::Isa;
use super::formula::exp;
use super::lanes::Lanes;
use crate::device::ReduceKind;

/// Partial results of a reduction.
pub(super) const PARTIALS: usize = 64;

/// What is done with a value and a partial result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fold {
    Add,
    AddMagnitude,
    AddSquare,
    Multiply,
    Larger,
    Smaller,
}

impl Fold {
    pub(super) const fn of(kind: ReduceKind) -> Self {
        match kind {
            ReduceKind::Sum | ReduceKind::Mean => Self::Add,
            ReduceKind::L1 => Self::AddMagnitude,
            ReduceKind::L2 | ReduceKind::SumSquare => Self::AddSquare,
            ReduceKind::Prod => Self::Multiply,
            ReduceKind::Max => Self::Larger,
            ReduceKind::Min => Self::Smaller,
        }
    }

    /// What a partial result starts with.
    pub(super) const fn start(self) -> f32 {
        match self {
            Self::Add | Self::AddMagnitude | Self::AddSquare => 0.0,
            Self::Multiply => 1.0,
            Self::Larger => f32::NEG_INFINITY,
            Self::Smaller => f32::INFINITY,
        }
    }

    /// How partial results are combined.
    const fn of_partials(self) -> Self {
        match self {
            Self::AddMagnitude | Self::AddSquare => Self::Add,
            other => other,
        }
    }

    #[inline(always)]
    fn apply<V: Lanes>(self, partial: V, x: V) -> V {
        match self {
            Self::Add => partial.add(x),
            Self::AddMagnitude => partial.add(x.abs()),
            Self::AddSquare => x.fma(x, partial),
            Self::Multiply => partial.mul(x),
            Self::Larger => x.if_nan(x, x.larger(partial)),
            Self::Smaller => x.if_nan(x, x.smaller(partial)),
        }
    }
}

pub(super) type NormaliseFn = unsafe fn(&mut [f32], [f32; 2], &[f32], &[f32]);

/// One instruction set's functions.
pub(super) struct RowOps {
    /// See [`fold_rows`].
    pub(super) fold_rows: unsafe fn(Fold, &mut [f32], &[f32]),
    /// See [`fold`].
    pub(super) fold: unsafe fn(Fold, &mut [f32; PARTIALS], &[f32]),
    /// See [`add_squares`].
    pub(super) add_squares: unsafe fn(f32, &mut [f32; PARTIALS], &[f32]),
    /// See [`normalise`].
    pub(super) normalise: NormaliseFn,
    /// See [`scale_bias`].
    pub(super) scale_bias: unsafe fn(&mut [f32], usize, f32, &[f32], usize),
    /// See [`scores`].
    pub(super) scores: unsafe fn(&Scores),
    /// See [`softmax_step`].
    pub(super) softmax_step: unsafe fn(&mut [f32], f32) -> SoftmaxStep,
    /// See [`carry`].
    pub(super) carry: unsafe fn(&mut [f32], f32, &[f32]),
}

/// Instantiates everything for one vector type, as a static `ROW_OPS`.
macro_rules! instantiate_rows {
    ($(#[$feature:meta])? $lanes:ident) => {
        mod row_instances {
            use super::$lanes;
            use $crate::device::cpu::kernels::rows::{self, Fold, PARTIALS, RowOps, Scores, SoftmaxStep};

            $(#[$feature])?
            unsafe fn fold_rows(fold: Fold, partials: &mut [f32], values: &[f32]) {
                // SAFETY: the same contract.
                unsafe { rows::fold_rows::<$lanes>(fold, partials, values) }
            }

            $(#[$feature])?
            unsafe fn fold(fold: Fold, partials: &mut [f32; PARTIALS], values: &[f32]) {
                // SAFETY: the same contract.
                unsafe { rows::fold::<$lanes>(fold, partials, values) }
            }

            $(#[$feature])?
            unsafe fn add_squares(mean: f32, partials: &mut [f32; PARTIALS], values: &[f32]) {
                // SAFETY: the same contract.
                unsafe { rows::add_squares::<$lanes>(mean, partials, values) }
            }

            $(#[$feature])?
            unsafe fn normalise(values: &mut [f32], moments: [f32; 2], gamma: &[f32], beta: &[f32]) {
                // SAFETY: the same contract.
                unsafe { rows::normalise::<$lanes>(values, moments, gamma, beta) }
            }

            $(#[$feature])?
            unsafe fn scale_bias(sums: &mut [f32], width: usize, scale: f32, bias: &[f32], bias_step: usize) {
                // SAFETY: the same contract.
                unsafe { rows::scale_bias::<$lanes>(sums, width, scale, bias, bias_step) }
            }

            $(#[$feature])?
            unsafe fn scores(tile: &Scores) {
                // SAFETY: the same contract.
                unsafe { rows::scores::<$lanes>(tile) }
            }

            $(#[$feature])?
            unsafe fn softmax_step(scores: &mut [f32], largest: f32) -> SoftmaxStep {
                // SAFETY: the same contract.
                unsafe { rows::softmax_step::<$lanes>(scores, largest) }
            }

            $(#[$feature])?
            unsafe fn carry(to: &mut [f32], factor: f32, sums: &[f32]) {
                // SAFETY: the same contract.
                unsafe { rows::carry::<$lanes>(to, factor, sums) }
            }

            pub(in $crate::device::cpu::kernels) static ROW_OPS: RowOps = RowOps {
                fold_rows,
                fold,
                add_squares,
                normalise,
                scale_bias,
                scores,
                softmax_step,
                carry,
            };
        }
        pub(super) use row_instances::ROW_OPS;
    };
}
pub(super) use instantiate_rows;

mod scalar {
    /// One lane.
    type Scalar = f32;
    super::instantiate_rows! { Scalar }
}

/// The functions of an instruction set, which the processor has.
pub(super) const fn for_isa(isa: Isa) -> &'static RowOps {
    match isa {
        Isa::Scalar => &scalar::ROW_OPS,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => &super::simd_avx2::ROW_OPS,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => &super::simd_avx512::ROW_OPS,
        #[cfg(not(target_arch = "x86_64"))]
        Isa::Avx2 | Isa::Avx512 => &scalar::ROW_OPS,
    }
}

/// Runs `$body` for each vector of `$count` values, with the position `$i` and the number `$n` of values in it.
macro_rules! for_vectors {
    ($lanes:ty, $count:expr, $i:ident, $n:ident => $body:expr) => {{
        let count = $count;
        let mut $i = 0;
        while $i < count {
            let $n = <$lanes as Lanes>::N.min(count - $i);
            $body;
            $i += $n;
        }
    }};
}

/// `partials[i] = fold(partials[i], values[i])`
///
/// # Safety
/// The processor has `V`'s instruction set.
#[inline(always)]
pub(super) unsafe fn fold_rows<V: Lanes>(fold: Fold, partials: &mut [f32], values: &[f32]) {
    let count = partials.len().min(values.len());
    for_vectors!(V, count, i, n => {
        // SAFETY: `i + n <= count`; the caller vouches for the instruction set.
        unsafe {
            let to = partials.as_mut_ptr().add(i);
            let x = V::load_first(values.as_ptr().add(i), n);
            fold.apply(V::load_first(to, n), x).store_first(to, n);
        }
    });
}

/// Brings each value of `$values` to its partial result by `$apply`, the first value to the first one. Written out
/// where it is used: what a closure computes would not surely be compiled for the instruction set.
///
/// # Safety
/// The processor has the instruction set of the lanes.
macro_rules! fold_values {
    ($lanes:ty, $partials:expr, $values:expr, |$partial:ident, $x:ident| $apply:expr) => {{
        let (partials, values): (&mut [f32; PARTIALS], &[f32]) = ($partials, $values);
        let whole = values.len() - values.len() % PARTIALS;
        let mut first = 0;
        while first < PARTIALS {
            let to = partials.as_mut_ptr().add(first);
            let mut $partial = <$lanes>::load(to);
            for i in (first..whole).step_by(PARTIALS) {
                let $x = <$lanes>::load(values.as_ptr().add(i));
                $partial = $apply;
            }
            $partial.store(to);
            first += <$lanes>::N;
        }
        let rest = &values[whole..];
        for_vectors!($lanes, rest.len(), i, n => {
            let to = partials.as_mut_ptr().add(i);
            let $partial = <$lanes>::load_first(to, n);
            let $x = <$lanes>::load_first(rest.as_ptr().add(i), n);
            $apply.store_first(to, n);
        });
    }};
}

/// Folds values into partial results. All calls for one reduction but the last bring a multiple of [`PARTIALS`].
///
/// # Safety
/// The processor has `V`'s instruction set.
#[inline(always)]
pub(super) unsafe fn fold<V: Lanes>(fold: Fold, partials: &mut [f32; PARTIALS], values: &[f32]) {
    // A choice for each kind, so that none is made for each vector.
    // SAFETY: vectors of partial results and values lie inside the slices; the caller vouches for the instruction set.
    unsafe {
        match fold {
            Fold::Add => fold_values!(V, partials, values, |p, x| p.add(x)),
            Fold::AddMagnitude => fold_values!(V, partials, values, |p, x| p.add(x.abs())),
            Fold::AddSquare => fold_values!(V, partials, values, |p, x| x.fma(x, p)),
            Fold::Multiply => fold_values!(V, partials, values, |p, x| p.mul(x)),
            Fold::Larger => fold_values!(V, partials, values, |p, x| x.if_nan(x, x.larger(p))),
            Fold::Smaller => fold_values!(V, partials, values, |p, x| x.if_nan(x, x.smaller(p))),
        }
    }
}

/// Folds the squares of the distances to `mean` into partial results.
///
/// # Safety
/// The processor has `V`'s instruction set.
#[inline(always)]
pub(super) unsafe fn add_squares<V: Lanes>(mean: f32, partials: &mut [f32; PARTIALS], values: &[f32]) {
    // SAFETY: as `fold`.
    unsafe {
        fold_values!(V, partials, values, |p, x| {
            let distance = x.sub(x.like(mean));
            distance.fma(distance, p)
        });
    }
}

/// One value from the partial results.
pub(super) fn finish_fold(fold: Fold, partials: &mut [f32; PARTIALS]) -> f32 {
    // SAFETY: one lane needs no instruction set.
    unsafe { finish_fold_with::<f32>(fold, partials) }
}

/// As [`finish_fold`].
///
/// # Safety
/// The processor has `V`'s instruction set.
#[inline(always)]
unsafe fn finish_fold_with<V: Lanes>(fold: Fold, partials: &mut [f32; PARTIALS]) -> f32 {
    let fold = fold.of_partials();
    let mut half = PARTIALS / 2;
    while half >= V::N && half > 0 {
        for i in (0..half).step_by(V::N) {
            // SAFETY: `i + half + V::N <= PARTIALS`; the caller vouches for the instruction set.
            unsafe {
                let at = partials.as_mut_ptr().add(i);
                fold.apply(V::load(at), V::load(at.add(half))).store(at);
            }
        }
        half /= 2;
    }
    while half > 0 {
        for i in 0..half {
            partials[i] = fold.apply(partials[i], partials[i + half]);
        }
        half /= 2;
    }
    partials[0]
}

/// The reduction of one row.
///
/// # Safety
/// The processor has the instruction set of `ops`.
pub(super) unsafe fn fold_row(ops: &RowOps, fold: Fold, values: &[f32]) -> f32 {
    let mut partials = [fold.start(); PARTIALS];
    // SAFETY: the same contract.
    unsafe { (ops.fold)(fold, &mut partials, values) };
    finish_fold(fold, &mut partials)
}

/// `(x - mean) * factor`, then `* gamma + beta` (rounded once) where they are given; an empty slice stands for none.
///
/// # Safety
/// The processor has `V`'s instruction set; `gamma` and `beta` are empty or as long as the values.
#[inline(always)]
pub(super) unsafe fn normalise<V: Lanes>(
    values: &mut [f32],
    [mean, factor]: [f32; 2],
    gamma: &[f32],
    beta: &[f32],
) {
    for_vectors!(V, values.len(), i, n => {
        // SAFETY: `i + n` is at most the length of each slice that is not empty; the caller vouches for the
        // instruction set.
        unsafe {
            let at = values.as_mut_ptr().add(i);
            let x = V::load_first(at, n);
            let y = x.sub(x.like(mean)).mul(x.like(factor));
            let y = match (gamma.is_empty(), beta.is_empty()) {
                (true, true) => y,
                (false, true) => y.mul(V::load_first(gamma.as_ptr().add(i), n)),
                (true, false) => y.add(V::load_first(beta.as_ptr().add(i), n)),
                (false, false) => y.fma(
                    V::load_first(gamma.as_ptr().add(i), n),
                    V::load_first(beta.as_ptr().add(i), n),
                ),
            };
            y.store_first(at, n);
        }
    });
}

/// `sums = scale * sums + bias` for rows of `width` values; row `r` of the bias starts at `r * bias_step`. An empty bias
/// stands for none.
///
/// # Safety
/// The processor has `V`'s instruction set; a bias that is not empty has a row of `width` values for each of the sums'.
#[inline(always)]
pub(super) unsafe fn scale_bias<V: Lanes>(
    sums: &mut [f32],
    width: usize,
    scale: f32,
    bias: &[f32],
    bias_step: usize,
) {
    if bias.is_empty() {
        for_vectors!(V, sums.len(), i, n => {
            // SAFETY: `i + n` is at most the length; the caller vouches for the instruction set.
            unsafe {
                let at = sums.as_mut_ptr().add(i);
                let x = V::load_first(at, n);
                x.mul(x.like(scale)).store_first(at, n);
            }
        });
        return;
    }
    for (row, sums) in sums.chunks_exact_mut(width).enumerate() {
        for_vectors!(V, width, i, n => {
            // SAFETY: `i + n` is at most the width; the caller vouches for the bias and the instruction set.
            unsafe {
                let at = sums.as_mut_ptr().add(i);
                let x = V::load_first(at, n);
                x.fma(x.like(scale), V::load_first(bias.as_ptr().add(row * bias_step + i), n)).store_first(at, n);
            }
        });
    }
}

/// A tile of products on its way to the scores of attention.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scores {
    /// `[rows][width]`
    pub(super) sums: *const f32,
    pub(super) width: usize,
    pub(super) rows: usize,
    /// Values of a row that count.
    pub(super) count: usize,
    pub(super) scale: f32,
    /// Added to the first row's values, and elements to the next; null where nothing is.
    pub(super) mask: *const f32,
    pub(super) mask_step: isize,
    /// Where the first row's scores go, and elements to the next.
    pub(super) to: *mut f32,
    pub(super) to_step: usize,
}

/// `to = scale * sums + mask`, rounded once.
///
/// # Safety
/// The processor has `V`'s instruction set; all addresses are valid for the rows and values stated.
#[inline(always)]
pub(super) unsafe fn scores<V: Lanes>(tile: &Scores) {
    // SAFETY: every address lies inside what the caller promises; a mask pointer is only moved, never read, while it
    // is null.
    unsafe {
        let scale = V::splat(tile.scale);
        for row in 0..tile.rows {
            let sums = tile.sums.add(row * tile.width);
            let mask = tile.mask.wrapping_offset(row as isize * tile.mask_step);
            let to = tile.to.add(row * tile.to_step);
            for_vectors!(V, tile.count, i, n => {
                let x = V::load_first(sums.add(i), n);
                let y = if tile.mask.is_null() { x.mul(scale) } else { x.fma(scale, V::load_first(mask.add(i), n)) };
                y.store_first(to.add(i), n);
            });
        }
    }
}

/// What a step of an online softmax leaves beside the exponentials.
#[derive(Debug, Clone, Copy)]
pub(super) struct SoftmaxStep {
    /// The largest score so far.
    pub(super) largest: f32,
    /// The factor that earlier sums are carried over with.
    pub(super) factor: f32,
    /// The sum of the step's exponentials.
    pub(super) sum: f32,
}

/// `scores = exp(scores - largest)` with the largest score so far. As long as all are `-inf` the exponentials are 0.
///
/// # Safety
/// The processor has `V`'s instruction set.
#[inline(always)]
pub(super) unsafe fn softmax_step<V: Lanes>(scores: &mut [f32], before: f32) -> SoftmaxStep {
    // SAFETY: the same contract.
    unsafe {
        let mut partials = [f32::NEG_INFINITY; PARTIALS];
        fold_values!(V, &mut partials, scores, |p, x| x.if_nan(x, x.larger(p)));
        let largest = Fold::Larger.apply(before, finish_fold_with::<V>(Fold::Larger, &mut partials));
        let shift = if largest == f32::NEG_INFINITY {
            0.0
        } else {
            largest
        };
        let mut partials = [0.0; PARTIALS];
        let whole = scores.len() - scores.len() % PARTIALS;
        let mut first = 0;
        while first < PARTIALS {
            let to = partials.as_mut_ptr().add(first);
            let mut partial = V::splat(0.0);
            for i in (first..whole).step_by(PARTIALS) {
                let at = scores.as_mut_ptr().add(i);
                let y = exp(V::load(at).sub(partial.like(shift)));
                y.store(at);
                partial = partial.add(y);
            }
            partial.store(to);
            first += V::N;
        }
        let rest = &mut scores[whole..];
        for_vectors!(V, rest.len(), i, n => {
            let at = rest.as_mut_ptr().add(i);
            let x = V::load_first(at, n);
            let y = exp(x.sub(x.like(shift)));
            y.store_first(at, n);
            let to = partials.as_mut_ptr().add(i);
            V::load_first(to, n).add(y).store_first(to, n);
        });
        SoftmaxStep {
            largest,
            factor: exp(before - shift),
            sum: finish_fold_with::<V>(Fold::Add, &mut partials),
        }
    }
}

/// `to = to * factor + sums`, rounded once.
///
/// # Safety
/// The processor has `V`'s instruction set.
#[inline(always)]
pub(super) unsafe fn carry<V: Lanes>(to: &mut [f32], factor: f32, sums: &[f32]) {
    let count = to.len().min(sums.len());
    for_vectors!(V, count, i, n => {
        // SAFETY: `i + n <= count`; the caller vouches for the instruction set.
        unsafe {
            let at = to.as_mut_ptr().add(i);
            let x = V::load_first(at, n);
            x.fma(x.like(factor), V::load_first(sums.as_ptr().add(i), n)).store_first(at, n);
        }
    });
}
