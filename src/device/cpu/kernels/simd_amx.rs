//! Tiles of bf16 products: AMX-BF16 of x86.
//!
//! The instructions are written as assembly, because the language has no stable functions for them. Each tile function is
//! one block, so that nothing has to survive in a tile register between blocks.

use std::arch::asm;
use std::sync::OnceLock;

use super::dot::{DOT_DEPTH, DOT_LANES, DOT_ROWS, DotFn, DotOps, DotTile};

/// The functions.
pub(super) static OPS: DotOps = DotOps {
    most_rows: DOT_ROWS,
    tile: |vectors, _| [one_vector as DotFn, two_vectors][vectors - 1],
    begin,
    end,
};

/// Whether the processor has the tiles and the system lets this process use them; asked once.
pub(super) fn is_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| processor_has_tiles() && system_permits_tiles())
}

/// Whether the processor has AMX-BF16 and the system saves its registers.
#[allow(
    unused_unsafe,
    reason = "asking the processor became safe in a later version of the language"
)]
fn processor_has_tiles() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    const OSXSAVE: u32 = 1 << 27;
    const AMX_BF16: u32 = 1 << 22;
    const AMX_TILE: u32 = 1 << 24;
    const TILE_STATE: u32 = 0b11 << 17;
    // SAFETY: every processor of this architecture has CPUID, and XGETBV where OSXSAVE is set.
    unsafe {
        if __cpuid(0).eax < 7 || __cpuid(1).ecx & OSXSAVE == 0 {
            return false;
        }
        let tiles = __cpuid_count(7, 0).edx & (AMX_BF16 | AMX_TILE) == AMX_BF16 | AMX_TILE;
        let saved: u32;
        asm!("xgetbv", in("ecx") 0, out("eax") saved, out("edx") _, options(nomem, nostack, preserves_flags));
        tiles && saved & TILE_STATE == TILE_STATE
    }
}

/// Asks Linux for the tile registers, which a process must before it uses them: `arch_prctl(ARCH_REQ_XCOMP_PERM,
/// XFEATURE_XTILEDATA)`. The answer holds for all threads of the process.
#[cfg(target_os = "linux")]
fn system_permits_tiles() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
    const XFEATURE_XTILEDATA: u64 = 18;
    let answer: i64;
    // SAFETY: the call takes two numbers and touches no memory of this process.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => answer,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XFEATURE_XTILEDATA,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    answer == 0
}

#[cfg(not(target_os = "linux"))]
fn system_permits_tiles() -> bool {
    false
}

/// Shapes of the eight tile registers, as `LDTILECFG` reads them.
#[repr(C, align(64))]
struct TileShapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// Shapes the registers: 0 to 3 are sums, 4 and 5 pixels, 6 and 7 weights.
///
/// # Safety
/// The tiles are there; `rows` and `chunk` are in their ranges.
unsafe fn begin(rows: usize, chunk: usize) {
    debug_assert!((1..=DOT_ROWS).contains(&rows) && (2..=DOT_DEPTH).contains(&chunk));
    let mut shapes = TileShapes {
        palette: 1,
        start_row: 0,
        reserved: [0; 14],
        row_bytes: [0; 16],
        rows: [0; 16],
    };
    // Sums and weights have a row of 64 bytes: 16 sums, or 16 pairs.
    for register in 0..8 {
        let is_pixels = register == 4 || register == 5;
        shapes.row_bytes[register] = if is_pixels {
            2 * chunk as u16
        } else {
            4 * DOT_LANES as u16
        };
        shapes.rows[register] = if register < 6 { rows as u8 } else { chunk as u8 / 2 };
    }
    // SAFETY: the shapes are valid and 64 bytes long; the caller vouches for the instruction.
    unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const shapes, options(nostack, preserves_flags, readonly)) };
}

/// Gives the registers back, so that the system need not save them.
///
/// # Safety
/// The tiles are there.
unsafe fn end() {
    // SAFETY: the caller vouches for the instruction.
    unsafe { asm!("tilerelease", options(nostack, preserves_flags, nomem)) };
}

/// What a tile function reads from memory, so that it needs fewer registers.
#[repr(C)]
struct InMemory {
    chunks: usize,
    sums: *mut f32,
}

/// One tile function: `bias` loads the sums' beginning, `step` multiplies one chunk, `store` writes the sums.
macro_rules! tile_function {
    ($tile:ident, $vectors:literal, $bias:literal, $step:literal, $store:literal) => {{
        let DotTile { runs, end, panel, sums, chunks, chunk, .. } = *$tile;
        let memory = InMemory { chunks, sums };
        // SAFETY: the block reads the runs, the values that they point at, and the panel, and writes the sums, all
        // inside what the caller promises; it uses no stack.
        unsafe {
            asm!(
                "xor {n:e}, {n:e}",
                $bias,
                "add {w}, {width}",
                "2:",
                "mov {a}, [{runs}]",
                "mov {a_step}, [{runs} + 8]",
                "mov {b}, [{runs} + 16]",
                "mov {b_step}, [{runs} + 24]",
                "mov {n}, [{memory}]",
                "3:",
                $step,
                "add {a}, {chunk}",
                "add {b}, {chunk}",
                "add {w}, {weights}",
                "dec {n}",
                "jnz 3b",
                "add {runs}, 32",
                "cmp {runs}, {end}",
                "jne 2b",
                "mov {a}, [{memory} + 8]",
                $store,
                runs = inout(reg) runs => _,
                end = in(reg) end,
                w = inout(reg) panel => _,
                width = in(reg) $vectors * 4 * DOT_LANES,
                chunk = in(reg) 2 * chunk,
                weights = in(reg) chunk / 2 * $vectors * 4 * DOT_LANES,
                memory = in(reg) &raw const memory,
                a = out(reg) _,
                a_step = out(reg) _,
                b = out(reg) _,
                b_step = out(reg) _,
                n = out(reg) _,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }};
}

/// # Safety
/// As [`DotFn`].
unsafe fn one_vector(tile: &DotTile) {
    if tile.strips == 2 {
        tile_function!(
            tile,
            1,
            "tileloadd tmm0, [{w} + {n}*1]\n tileloadd tmm2, [{w} + {n}*1]",
            "tileloadd tmm4, [{a} + {a_step}*1]\n tileloadd tmm6, [{w} + {width}*1]\n tdpbf16ps tmm0, tmm4, tmm6\n \
             tileloadd tmm5, [{b} + {b_step}*1]\n tdpbf16ps tmm2, tmm5, tmm6",
            "tilestored [{a} + {width}*1], tmm0\n tilestored [{a} + {width}*1 + 1024], tmm2"
        );
    } else {
        tile_function!(
            tile,
            1,
            "tileloadd tmm0, [{w} + {n}*1]",
            "tileloadd tmm4, [{a} + {a_step}*1]\n tileloadd tmm6, [{w} + {width}*1]\n tdpbf16ps tmm0, tmm4, tmm6",
            "tilestored [{a} + {width}*1], tmm0"
        );
    }
}

/// # Safety
/// As [`DotFn`].
unsafe fn two_vectors(tile: &DotTile) {
    if tile.strips == 2 {
        tile_function!(
            tile,
            2,
            "tileloadd tmm0, [{w} + {n}*1]\n tileloadd tmm1, [{w} + {n}*1 + 64]\n tileloadd tmm2, [{w} + {n}*1]\n \
             tileloadd tmm3, [{w} + {n}*1 + 64]",
            "tileloadd tmm4, [{a} + {a_step}*1]\n tileloadd tmm6, [{w} + {width}*1]\n tdpbf16ps tmm0, tmm4, tmm6\n \
             tileloadd tmm7, [{w} + {width}*1 + 64]\n tdpbf16ps tmm1, tmm4, tmm7\n \
             tileloadd tmm5, [{b} + {b_step}*1]\n tdpbf16ps tmm2, tmm5, tmm6\n tdpbf16ps tmm3, tmm5, tmm7",
            "tilestored [{a} + {width}*1], tmm0\n tilestored [{a} + {width}*1 + 64], tmm1\n \
             tilestored [{a} + {width}*1 + 2048], tmm2\n tilestored [{a} + {width}*1 + 2112], tmm3"
        );
    } else {
        tile_function!(
            tile,
            2,
            "tileloadd tmm0, [{w} + {n}*1]\n tileloadd tmm1, [{w} + {n}*1 + 64]",
            "tileloadd tmm4, [{a} + {a_step}*1]\n tileloadd tmm6, [{w} + {width}*1]\n tdpbf16ps tmm0, tmm4, tmm6\n \
             tileloadd tmm7, [{w} + {width}*1 + 64]\n tdpbf16ps tmm1, tmm4, tmm7",
            "tilestored [{a} + {width}*1], tmm0\n tilestored [{a} + {width}*1 + 64], tmm1"
        );
    }
}
