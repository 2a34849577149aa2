//! The vector type that the formulas are written for, and its one-lane form.

use half::bf16;

/// A vector of `N` fp32 lanes of one instruction set.
///
/// A value is the proof that the processor has the set: making one from nothing is unsafe, computing with
/// one is not. All operations round like IEEE single precision, so every set gives the same bits.
pub(super) trait Lanes: Copy {
    /// Number of lanes.
    const N: usize;

    /// `x` in every lane.
    ///
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn splat(x: f32) -> Self;

    /// Loads `N` values.
    ///
    /// # Safety
    /// As [`Self::splat`], and `p` is valid for `N` reads.
    unsafe fn load(p: *const f32) -> Self;

    /// Loads `n <= N` values; the other lanes are 0.
    ///
    /// # Safety
    /// As [`Self::splat`], and `p` is valid for `n` reads.
    unsafe fn load_first(p: *const f32, n: usize) -> Self;

    /// Loads `N` bf16 values.
    ///
    /// # Safety
    /// As [`Self::load`].
    unsafe fn load_bf16(p: *const bf16) -> Self;

    /// Loads `n <= N` bf16 values; the other lanes are 0.
    ///
    /// # Safety
    /// As [`Self::load_first`].
    unsafe fn load_bf16_first(p: *const bf16, n: usize) -> Self;

    /// Stores all lanes.
    ///
    /// # Safety
    /// `p` is valid for `N` writes.
    unsafe fn store(self, p: *mut f32);

    /// Stores the first `n <= N` lanes.
    ///
    /// # Safety
    /// `p` is valid for `n` writes.
    unsafe fn store_first(self, p: *mut f32, n: usize);

    /// Stores all lanes as bf16, rounded to nearest even; a NaN stays one (quiet).
    ///
    /// # Safety
    /// `p` is valid for `N` writes.
    unsafe fn store_bf16(self, p: *mut bf16);

    /// Stores the first `n <= N` lanes as [`Self::store_bf16`] does.
    ///
    /// # Safety
    /// `p` is valid for `n` writes.
    unsafe fn store_bf16_first(self, p: *mut bf16, n: usize);

    /// `x` in every lane, given that this value exists.
    fn like(self, x: f32) -> Self;

    /// `self + y`
    fn add(self, y: Self) -> Self;

    /// `self - y`
    fn sub(self, y: Self) -> Self;

    /// `self * y`
    fn mul(self, y: Self) -> Self;

    /// `self / y`
    fn div(self, y: Self) -> Self;

    /// `self * y + z`, rounded once.
    fn fma(self, y: Self, z: Self) -> Self;

    /// `z - self * y`, rounded once.
    fn neg_fma(self, y: Self, z: Self) -> Self;

    /// `self > y ? self : y`; `y` where either is NaN.
    fn larger(self, y: Self) -> Self;

    /// `self < y ? self : y`; `y` where either is NaN.
    fn smaller(self, y: Self) -> Self;

    /// `self < y ? yes : no`; `no` where either is NaN.
    fn if_less(self, y: Self, yes: Self, no: Self) -> Self;

    /// `yes` where `self` is NaN, else `no`.
    fn if_nan(self, yes: Self, no: Self) -> Self;

    /// Magnitude.
    fn abs(self) -> Self;

    /// Magnitude of `self`, sign of `y`.
    fn with_sign_of(self, y: Self) -> Self;

    /// Adds the low bits of `shift` to the exponent: `self * 2^k`, where `shift` is the float
    /// `1.5 * 2^23 + k`. Only for results in the normal range.
    fn scale(self, shift: Self) -> Self;

    /// An approximation of `1 / self` with a relative error below 0.0506, for normal positive values below
    /// 2^125: the exponent negated and the mantissa approximated linearly by one integer subtraction.
    fn reciprocal_seed(self) -> Self;

    /// Square root, rounded once.
    fn sqrt(self) -> Self;

    /// The next integer at or below.
    fn floor(self) -> Self;

    /// The nearest integer; of two, the even one.
    fn round_even(self) -> Self;

    /// `floor(log2(self))` of a normal positive value.
    fn exponent(self) -> Self;

    /// `self / 2^exponent`, in `[1, 2)`, of a normal positive value.
    fn mantissa(self) -> Self;
}

/// Bits from which [`Lanes::reciprocal_seed`] subtracts: balances the error of the linear approximation.
pub(super) const RECIPROCAL_MAGIC: u32 = 0x7ef3_11c3;

/// The bits of the mantissa.
pub(super) const MANTISSA: u32 = 0x007f_ffff;

/// The bits of 1.
pub(super) const ONE: u32 = 0x3f80_0000;

/// One lane.
impl Lanes for f32 {
    const N: usize = 1;

    unsafe fn splat(x: f32) -> Self {
        x
    }

    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: the caller promises one readable value.
        unsafe { p.read() }
    }

    unsafe fn load_first(p: *const f32, n: usize) -> Self {
        // SAFETY: the caller promises `n` readable values.
        if n == 0 { 0.0 } else { unsafe { p.read() } }
    }

    unsafe fn load_bf16(p: *const bf16) -> Self {
        // SAFETY: the caller promises one readable value.
        unsafe { p.read() }.to_f32()
    }

    unsafe fn load_bf16_first(p: *const bf16, n: usize) -> Self {
        // SAFETY: the caller promises `n` readable values.
        if n == 0 { 0.0 } else { unsafe { p.read() }.to_f32() }
    }

    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the caller promises one writable value.
        unsafe { p.write(self) }
    }

    unsafe fn store_first(self, p: *mut f32, n: usize) {
        if n > 0 {
            // SAFETY: the caller promises `n` writable values.
            unsafe { p.write(self) }
        }
    }

    unsafe fn store_bf16(self, p: *mut bf16) {
        // SAFETY: the caller promises one writable value.
        unsafe { p.write(bf16::from_f32(self)) }
    }

    unsafe fn store_bf16_first(self, p: *mut bf16, n: usize) {
        if n > 0 {
            // SAFETY: the caller promises `n` writable values.
            unsafe { p.write(bf16::from_f32(self)) }
        }
    }

    fn like(self, x: f32) -> Self {
        x
    }

    fn add(self, y: Self) -> Self {
        self + y
    }

    fn sub(self, y: Self) -> Self {
        self - y
    }

    fn mul(self, y: Self) -> Self {
        self * y
    }

    fn div(self, y: Self) -> Self {
        self / y
    }

    fn fma(self, y: Self, z: Self) -> Self {
        self.mul_add(y, z)
    }

    fn neg_fma(self, y: Self, z: Self) -> Self {
        (-self).mul_add(y, z)
    }

    fn larger(self, y: Self) -> Self {
        if self > y { self } else { y }
    }

    fn smaller(self, y: Self) -> Self {
        if self < y { self } else { y }
    }

    fn if_less(self, y: Self, yes: Self, no: Self) -> Self {
        if self < y { yes } else { no }
    }

    fn if_nan(self, yes: Self, no: Self) -> Self {
        if self.is_nan() { yes } else { no }
    }

    fn abs(self) -> Self {
        f32::abs(self)
    }

    fn with_sign_of(self, y: Self) -> Self {
        self.copysign(y)
    }

    fn scale(self, shift: Self) -> Self {
        Self::from_bits(self.to_bits().wrapping_add(shift.to_bits() << 23))
    }

    fn reciprocal_seed(self) -> Self {
        Self::from_bits(RECIPROCAL_MAGIC.wrapping_sub(self.to_bits()))
    }

    fn sqrt(self) -> Self {
        f32::sqrt(self)
    }

    fn floor(self) -> Self {
        f32::floor(self)
    }

    fn round_even(self) -> Self {
        self.round_ties_even()
    }

    fn exponent(self) -> Self {
        (self.to_bits() as i32 >> 23) as Self - 127.0
    }

    fn mantissa(self) -> Self {
        Self::from_bits(self.to_bits() & MANTISSA | ONE)
    }
}

/// Asks for one cache line ahead of its use. Any address is allowed: nothing is read.
#[inline(always)]
pub(super) fn prefetch_line(from: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch faults on no address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(from.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = from;
}

/// Asks for the cache lines of some bytes ahead of their use.
#[inline(always)]
pub(super) fn prefetch(from: *const u8, bytes: isize) {
    let mut line = 0;
    while line < bytes {
        prefetch_line(from.wrapping_offset(line));
        line += 64;
    }
}

/// Asks for the cache lines of some rows of `bytes` bytes that will be written. Any address is allowed: nothing is read.
#[inline(always)]
pub(super) fn prefetch_rows(to: *const u8, rows: usize, step: isize, bytes: isize) {
    #[cfg(target_arch = "x86_64")]
    for row in 0..rows as isize {
        let mut byte = 0;
        while byte < bytes {
            // SAFETY: a prefetch faults on no address.
            unsafe {
                use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_ET0>(to.wrapping_offset(row * step + byte).cast());
            }
            byte += 64;
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (to, rows, step, bytes);
}

/// How a buffer stores fp32 values.
pub(super) trait Storage: Copy + 'static {
    /// Loads `V::N` values.
    ///
    /// # Safety
    /// As [`Lanes::load`].
    unsafe fn load<V: Lanes>(p: *const Self) -> V;

    /// Loads `n <= V::N` values; the other lanes are 0.
    ///
    /// # Safety
    /// As [`Lanes::load_first`].
    unsafe fn load_first<V: Lanes>(p: *const Self, n: usize) -> V;

    /// Stores all lanes.
    ///
    /// # Safety
    /// As [`Lanes::store`].
    unsafe fn store<V: Lanes>(v: V, p: *mut Self);

    /// Stores the first `n <= V::N` lanes.
    ///
    /// # Safety
    /// As [`Lanes::store_first`].
    unsafe fn store_first<V: Lanes>(v: V, p: *mut Self, n: usize);
}

macro_rules! storage {
    ($type:ty: $load:ident, $load_first:ident, $store:ident, $store_first:ident) => {
        impl Storage for $type {
            #[inline(always)]
            unsafe fn load<V: Lanes>(p: *const Self) -> V {
                // SAFETY: the caller keeps the contract of `Lanes`.
                unsafe { V::$load(p) }
            }
            #[inline(always)]
            unsafe fn load_first<V: Lanes>(p: *const Self, n: usize) -> V {
                // SAFETY: the caller keeps the contract of `Lanes`.
                unsafe { V::$load_first(p, n) }
            }
            #[inline(always)]
            unsafe fn store<V: Lanes>(v: V, p: *mut Self) {
                // SAFETY: the caller keeps the contract of `Lanes`.
                unsafe { v.$store(p) }
            }
            #[inline(always)]
            unsafe fn store_first<V: Lanes>(v: V, p: *mut Self, n: usize) {
                // SAFETY: the caller keeps the contract of `Lanes`.
                unsafe { v.$store_first(p, n) }
            }
        }
    };
}
storage!(f32: load, load_first, store, store_first);
storage!(bf16: load_bf16, load_bf16_first, store_bf16, store_bf16_first);
