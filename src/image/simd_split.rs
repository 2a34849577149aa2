//! AVX-512 and AVX2 forms of `byte_map::split_row`: interleaved bytes to planes of floats or bytes, sixteen pixels at a
//! time. The arithmetic is one conversion and one subtraction, or a table, so the bits are those of the scalar form.

use super::byte_map::{self, ByteMap};
use super::simd::Kernels;

/// Every byte as it is.
const BYTES: [u8; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        table[i] = i as u8;
        i += 1;
    }
    table
};

impl Kernels {
    /// The channels of a row to planes of floats, by `map`. Channel `i` is byte `channel_byte[i]` of a pixel.
    pub(super) fn split_floats(
        self,
        row: &[u8],
        pixel_bytes: usize,
        channel_byte: [usize; 3],
        map: &ByteMap,
        planes: [&mut [f32]; 3],
    ) {
        #[cfg(target_arch = "x86_64")]
        if self.has_avx2() {
            let [a, b, c] = planes;
            let wide = self.has_avx512();
            // SAFETY: the processor was found to have AVX2, and AVX-512 where `wide` says so.
            let done = unsafe {
                x86::split_floats(
                    row,
                    pixel_bytes,
                    channel_byte,
                    map,
                    [&mut *a, &mut *b, &mut *c],
                    wide,
                )
            };
            let tables = map.floats().each_ref();
            return byte_map::split_row(row, pixel_bytes, channel_byte, tables, done, [a, b, c]);
        }
        let tables = map.floats().each_ref();
        byte_map::split_row(row, pixel_bytes, channel_byte, tables, 0, planes);
    }

    /// The channels of a row to planes of bytes.
    pub(super) fn split_bytes(
        self,
        row: &[u8],
        pixel_bytes: usize,
        channel_byte: [usize; 3],
        planes: [&mut [u8]; 3],
    ) {
        #[cfg(target_arch = "x86_64")]
        if self.has_avx2() {
            let [a, b, c] = planes;
            // SAFETY: the processor was found to have AVX2.
            let done =
                unsafe { x86::split_bytes(row, pixel_bytes, channel_byte, [&mut *a, &mut *b, &mut *c]) };
            return byte_map::split_row(row, pixel_bytes, channel_byte, [&BYTES; 3], done, [a, b, c]);
        }
        byte_map::split_row(row, pixel_bytes, channel_byte, [&BYTES; 3], 0, planes);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::super::byte_map::{ByteMap, MapForm};

    /// Pixels of a round.
    const PIXELS: usize = 16;
    /// Most bytes of a pixel, and so most vectors of a round.
    const MOST_BYTES: usize = 4;

    /// Picks byte `byte` of sixteen pixels out of each of the vectors that they fill.
    fn picks(pixel_bytes: usize, byte: usize) -> [[i8; PIXELS]; MOST_BYTES] {
        std::array::from_fn(|vector| {
            std::array::from_fn(|pixel| {
                let at = pixel * pixel_bytes + byte;
                if at / 16 == vector { (at % 16) as i8 } else { -1 }
            })
        })
    }

    /// Sixteen bytes of each channel.
    ///
    /// # Safety
    /// The processor must have AVX2, and `from` sixteen pixels of `pixel_bytes` bytes to read.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn load(
        from: *const u8,
        pixel_bytes: usize,
        picks: &[[[i8; PIXELS]; MOST_BYTES]; 3],
    ) -> [__m128i; 3] {
        let mut channels = [_mm_setzero_si128(); 3];
        for vector in 0..pixel_bytes {
            // SAFETY: the caller vouches for `16 * pixel_bytes` bytes; a pick is 16 bytes long.
            let bytes = unsafe { _mm_loadu_si128(from.add(16 * vector).cast()) };
            for (channel, picks) in channels.iter_mut().zip(picks) {
                // SAFETY: as above.
                let pick = unsafe { _mm_loadu_si128(picks[vector].as_ptr().cast()) };
                *channel = _mm_or_si128(*channel, _mm_shuffle_epi8(bytes, pick));
            }
        }
        channels
    }

    /// Whole rounds within a row and its planes.
    fn whole(row: &[u8], pixel_bytes: usize, lens: [usize; 3]) -> usize {
        let pixels = lens.into_iter().min().unwrap_or(0).min(row.len() / pixel_bytes);
        match pixel_bytes {
            1..=MOST_BYTES => pixels / PIXELS * PIXELS,
            _ => 0,
        }
    }

    /// Returns how many pixels were done.
    ///
    /// # Safety
    /// The processor must have AVX2, and AVX-512F where `wide` is set.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn split_floats(
        row: &[u8],
        pixel_bytes: usize,
        channel_byte: [usize; 3],
        map: &ByteMap,
        planes: [&mut [f32]; 3],
        wide: bool,
    ) -> usize {
        let whole = whole(row, pixel_bytes, planes.each_ref().map(|plane| plane.len()));
        let picks = channel_byte.map(|byte| picks(pixel_bytes, byte));
        let planes = planes.map(<[f32]>::as_mut_ptr);
        for x in (0..whole).step_by(PIXELS) {
            // SAFETY: sixteen pixels from `x` on are within the row.
            let channels = unsafe { load(row.as_ptr().add(x * pixel_bytes), pixel_bytes, &picks) };
            for (i, &bytes) in channels.iter().enumerate() {
                // SAFETY: sixteen values from `x` on are within the plane, and the caller vouches for AVX-512.
                unsafe {
                    let to = planes[i].add(x);
                    match (map.form(), wide) {
                        (MapForm::Less(less), true) => store_less_512(bytes, less[i], to),
                        (MapForm::Less(less), false) => store_less_256(bytes, less[i], to),
                        (MapForm::Table, _) => store_table(bytes, &map.floats()[i], to),
                    }
                }
            }
        }
        whole
    }

    /// Returns how many pixels were done.
    ///
    /// # Safety
    /// The processor must have AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn split_bytes(
        row: &[u8],
        pixel_bytes: usize,
        channel_byte: [usize; 3],
        planes: [&mut [u8]; 3],
    ) -> usize {
        let whole = whole(row, pixel_bytes, planes.each_ref().map(|plane| plane.len()));
        let picks = channel_byte.map(|byte| picks(pixel_bytes, byte));
        let [a, b, c] = planes;
        for x in (0..whole).step_by(PIXELS) {
            // SAFETY: sixteen pixels from `x` on are within the row, sixteen bytes within every plane.
            unsafe {
                let channels = load(row.as_ptr().add(x * pixel_bytes), pixel_bytes, &picks);
                _mm_storeu_si128(a.as_mut_ptr().add(x).cast(), channels[0]);
                _mm_storeu_si128(b.as_mut_ptr().add(x).cast(), channels[1]);
                _mm_storeu_si128(c.as_mut_ptr().add(x).cast(), channels[2]);
            }
        }
        whole
    }

    /// # Safety
    /// The processor must have AVX-512F, and `to` room for sixteen values.
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn store_less_512(bytes: __m128i, less: f32, to: *mut f32) {
        let floats = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
        // SAFETY: the caller vouches for the room.
        unsafe { _mm512_storeu_ps(to, _mm512_sub_ps(floats, _mm512_set1_ps(less))) };
    }

    /// # Safety
    /// The processor must have AVX2, and `to` room for sixteen values.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn store_less_256(bytes: __m128i, less: f32, to: *mut f32) {
        let less = _mm256_set1_ps(less);
        for (half, bytes) in [bytes, _mm_srli_si128::<8>(bytes)].into_iter().enumerate() {
            let floats = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
            // SAFETY: the caller vouches for the room.
            unsafe { _mm256_storeu_ps(to.add(8 * half), _mm256_sub_ps(floats, less)) };
        }
    }

    /// # Safety
    /// The processor must have AVX2, and `to` room for sixteen values.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn store_table(bytes: __m128i, table: &[f32; 256], to: *mut f32) {
        for (half, bytes) in [bytes, _mm_srli_si128::<8>(bytes)].into_iter().enumerate() {
            let index = _mm256_cvtepu8_epi32(bytes);
            // SAFETY: an index is a byte, and the table has 256 values; the caller vouches for the room.
            unsafe {
                let floats = _mm256_i32gather_ps::<4>(table.as_ptr(), index);
                _mm256_storeu_ps(to.add(8 * half), floats);
            }
        }
    }
}
