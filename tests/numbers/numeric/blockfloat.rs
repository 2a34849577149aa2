//! Block floats against the definition in numpy integers, and what must hold for any input.

mod buffers;

use std::fmt::Write as _;
use std::path::Path;

use sensorium::numeric::blockfloat::{
    BLOCK_VALUES, Block, BlockFormat, Kernels, decode_block, decode_tiles, encode_block, encode_tiles,
};

use crate::support;

const FORMATS: [BlockFormat; 2] = [BlockFormat::Bfp8, BlockFormat::Bfp4];

/// A small generator of repeatable pseudo-random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u32) -> u32 {
        (self.bits() >> 32) as u32 % n
    }
}

fn fp32(sign: u32, field: u32, fraction: u32) -> f32 {
    f32::from_bits(sign << 31 | field << 23 | fraction)
}

/// Every bit pattern is as likely as any other.
fn any_bits(count: usize, random: &mut Random) -> Vec<f32> {
    (0..count).map(|_| f32::from_bits(random.bits() as u32)).collect()
}

/// Blocks around an exponent of their own: values down to 2^-30 of it, zeros, a few infinities and NaN where
/// the exponent is at its end, subnormals where it is at its beginning.
fn mixed_magnitudes(count: usize, random: &mut Random) -> Vec<f32> {
    let mut base = 0;
    (0..count)
        .map(|i| {
            if i % BLOCK_VALUES == 0 {
                base = match random.below(4) {
                    0 => random.below(12),
                    1 => 244 + random.below(12),
                    _ => random.below(256),
                };
            }
            let field = base.saturating_sub(random.below(31));
            let fraction = if random.below(16) == 0 {
                0
            } else {
                random.below(1 << 23)
            };
            fp32(random.below(2), field, fraction)
        })
        .collect()
}

/// Blocks whose values lie on a tie of the grid, or a few units of their last place beside it, at every
/// distance from the shared exponent. Units below the alignment shift must not break the tie.
fn near_ties(format: BlockFormat, count: usize, random: &mut Random) -> Vec<f32> {
    let dropped_bits = 24 - format.magnitude_bits();
    let mut base = 0;
    (0..count)
        .map(|i| {
            if i % BLOCK_VALUES == 0 {
                base = 30 + random.below(225);
                return fp32(random.below(2), base, random.below(1 << 23));
            }
            let distance = random.below(format.magnitude_bits() + 2);
            // An odd number of half steps, seen from the shared exponent.
            let whole = random.below(1 << format.magnitude_bits());
            let tie = (2 * whole + 1) << (dropped_bits - 1);
            let significand = u64::from(tie) << distance;
            let beside = i64::from(random.below(9)) - 4;
            let significand = (significand as i64 + beside).clamp(1 << 23, (1 << 24) - 1) as u32;
            fp32(random.below(2), base - distance, significand & 0x7f_ffff)
        })
        .collect()
}

/// One block for each rule.
fn edges() -> Vec<f32> {
    let subnormal = f32::from_bits(1);
    let largest_subnormal = f32::from_bits(0x7f_ffff);
    let quiet = f32::from_bits(0x7fc0_0000);
    let thin_nan = f32::from_bits(0xff80_0001);
    let blocks: &[&[f32]] = &[
        &[],
        &[-0.0, 0.0, -0.0],
        &[subnormal, -subnormal, largest_subnormal, -largest_subnormal, -0.0],
        &[
            f32::MIN_POSITIVE,
            -largest_subnormal,
            subnormal,
            -f32::MIN_POSITIVE,
        ],
        &[
            f32::MIN_POSITIVE * 8.0,
            f32::MIN_POSITIVE * 1.5,
            -largest_subnormal,
        ],
        &[f32::MAX, f32::MIN, 1.0, -1.0, f32::MAX / 2.0, f32::MAX / 200.0],
        &[255.6, -255.6, 254.0, 253.0, 251.0, 1.0, 0.999, -1.0, 3.0, -3.0],
        &[63.5, 62.5, -63.5, 0.5, 0.50001, -0.5, 1.5, 2.5, 3.5, f32::EPSILON],
        &[
            f32::INFINITY,
            f32::MAX,
            f32::MIN,
            1.0,
            f32::MAX * 0.875,
            f32::MAX * 0.8,
        ],
        &[f32::NEG_INFINITY, quiet, -quiet, thin_nan, -thin_nan, 1e38, -1e36],
        &[quiet, thin_nan],
    ];
    let mut all = Vec::new();
    for block in blocks {
        all.extend_from_slice(block);
        all.resize(all.len().next_multiple_of(BLOCK_VALUES), 0.0);
    }
    all
}

fn encoded(kernels: Kernels, format: BlockFormat, values: &[f32]) -> (Vec<u8>, Vec<u8>) {
    let blocks = values.len().div_ceil(BLOCK_VALUES);
    // Dirty memory: every byte has to be written.
    let mut exponents = vec![0xa5; blocks];
    let mut mantissas = vec![0xa5; blocks * format.mantissa_bytes()];
    kernels
        .encode_into(format, values, &mut exponents, &mut mantissas)
        .unwrap();
    (exponents, mantissas)
}

fn decoded(
    kernels: Kernels,
    format: BlockFormat,
    exponents: &[u8],
    mantissas: &[u8],
    count: usize,
) -> Vec<f32> {
    let mut values = vec![f32::NAN; count];
    kernels
        .decode_into(format, exponents, mantissas, &mut values)
        .unwrap();
    values
}

/// There and back on the kernels of this processor.
fn round_trip(format: BlockFormat, values: &[f32]) -> Vec<f32> {
    let (exponents, mantissas) = encoded(Kernels::detect(), format, values);
    decoded(Kernels::detect(), format, &exponents, &mantissas, values.len())
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// The first place where two equally long lists differ.
fn assert_same<T: PartialEq + std::fmt::Debug>(found: &[T], expected: &[T], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    if let Some(at) = (0..found.len()).find(|&i| found[i] != expected[i]) {
        panic!("{what}: {:x?} at {at}, expected {:x?}", found[at], expected[at]);
    }
}

fn read_words(path: &Path) -> Vec<u32> {
    let bytes = std::fs::read(path).unwrap();
    let (words, rest) = bytes.as_chunks();
    assert!(rest.is_empty());
    words.iter().map(|&word| u32::from_le_bytes(word)).collect()
}

/// All codes of a format, packed: the same for each of the 256 exponents.
fn all_codes(format: BlockFormat) -> (Vec<u8>, Vec<u8>) {
    let codes = 2 << format.magnitude_bits();
    let one: Vec<u8> = match format {
        BlockFormat::Bfp8 => (0..=255).collect(),
        BlockFormat::Bfp4 => (0..8).map(|i| (2 * i + 1) << 4 | (2 * i)).collect(),
    };
    let exponents = (0..=255).flat_map(|e| std::iter::repeat_n(e, codes / BLOCK_VALUES));
    (exponents.collect(), one.repeat(256))
}

#[test]
fn codes_tiles_and_values_equal_the_integers_of_numpy() {
    let Some(mut oracle) = support::oracle("blockfloat.py") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let random = &mut Random(1);
    let edges = edges();
    let cases = [
        ("noise", 512, any_bits(1 << 18, random)),
        ("mixed", 1024, mixed_magnitudes(1 << 18, random)),
        ("ties8", 64, near_ties(BlockFormat::Bfp8, 1 << 17, random)),
        ("ties4", 32, near_ties(BlockFormat::Bfp4, 1 << 17, random)),
        ("edges", 16, edges),
        ("one", 1, vec![-3.25]),
        ("row", 1000, mixed_magnitudes(1000, random)),
        ("column", 1, mixed_magnitudes(65, random)),
        ("odd", 45, mixed_magnitudes(70 * 45, random)),
        ("faces", 33, any_bits(31 * 33, random)),
    ];
    let mut list = String::new();
    for (name, cols, values) in &cases {
        writeln!(list, "{name} {} {cols}", values.len() / cols).unwrap();
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        std::fs::write(folder.path().join(format!("{name}.f32")), bytes).unwrap();
    }
    std::fs::write(folder.path().join("cases.txt"), list).unwrap();
    support::run(oracle.arg(folder.path()));

    for format in FORMATS {
        let written = |name: &str, what: &str| folder.path().join(format!("{name}.{format}.{what}"));
        for (name, cols, values) in &cases {
            let rows = values.len() / cols;
            let bytes = |what| std::fs::read(written(name, what)).unwrap();
            for kernels in Kernels::available() {
                let label = |what| format!("{name} {format} {} {what}", kernels.name());
                let (exponents, mantissas) = encoded(kernels, format, values);
                assert_same(&exponents, &bytes("exponents"), &label("exponents"));
                assert_same(&mantissas, &bytes("mantissas"), &label("mantissas"));
                let values = decoded(kernels, format, &exponents, &mantissas, values.len());
                assert_same(
                    &bits(&values),
                    &read_words(&written(name, "decoded")),
                    &label("decoded"),
                );
            }
            let tiles = encode_tiles(format, rows, *cols, values).unwrap();
            assert_same(&tiles, &bytes("tiles"), &format!("{name} {format} tiles"));
            let values = decode_tiles(format, rows, *cols, &tiles).unwrap();
            assert_same(
                &bits(&values),
                &read_words(&written(name, "untiled")),
                &format!("{name} {format} untiled"),
            );
        }
        let (exponents, mantissas) = all_codes(format);
        for kernels in Kernels::available() {
            let values = decoded(
                kernels,
                format,
                &exponents,
                &mantissas,
                exponents.len() * BLOCK_VALUES,
            );
            assert_same(
                &bits(&values),
                &read_words(&written("codes", "decoded")),
                &format!("{format} {} codes", kernels.name()),
            );
        }
    }
}

#[test]
fn every_code_has_the_value_of_its_definition() {
    for format in FORMATS {
        let magnitude_bits = format.magnitude_bits();
        for exponent in 0..=255_u8 {
            for code in 0..2_u32 << magnitude_bits {
                let block = Block {
                    exponent,
                    codes: [code as u8; BLOCK_VALUES],
                };
                let value = decode_block(format, &block)[3];
                let sign = if code >> magnitude_bits == 1 { -1.0 } else { 1.0 };
                let magnitude = code % (1 << magnitude_bits);
                let scale = 2_f64.powi(i32::from(exponent) - 126 - magnitude_bits as i32);
                let expected = sign * f64::from(magnitude) * scale;
                let what = format!("{format} {exponent} {code:#x}");
                if magnitude == 0 {
                    assert_eq!(value.to_bits(), 0, "{what}");
                } else if expected.abs() >= 2_f64.powi(128) {
                    assert!(
                        !value.is_finite() && value.is_sign_negative() == (sign < 0.0),
                        "{what}"
                    );
                } else if expected.abs() >= f64::from(f32::MIN_POSITIVE) {
                    assert_eq!(f64::from(value), expected, "{what}");
                } else if expected.abs() >= f64::from(f32::MIN_POSITIVE) / 2.0 {
                    // The exponent field is 0: the fraction is kept, the leading one is not.
                    let leading_one = sign * f64::from(f32::MIN_POSITIVE) / 2.0;
                    assert_eq!(f64::from(value), 2.0 * (expected - leading_one), "{what}");
                } else {
                    assert_eq!(value.to_bits(), 0, "{what}");
                }
            }
        }
    }
}

#[test]
fn values_round_as_written_down_here() {
    // The first value sets the exponent to that of 64..128, a grid of whole numbers for Bfp8.
    for (value, code, result) in [
        (64.4, 64, 64.0),
        (64.5, 64, 64.0),
        (65.5, 66, 66.0),
        (-65.5, 0x80 | 66, -66.0),
        (127.4, 127, 127.0),
        (127.6, 127, 127.0),
        (-127.9, 0xff, -127.0),
        (0.5, 0, 0.0),
        (-0.5, 0, 0.0),
        (-0.51, 0x80 | 1, -1.0),
        // 0.5 is shifted right by 7 bits; what they drop does not break the tie.
        (f32::from_bits(0.5_f32.to_bits() + 1), 0, 0.0),
        (f32::from_bits(0.5_f32.to_bits() + 127), 0, 0.0),
        (f32::from_bits(0.5_f32.to_bits() + 128), 1, 1.0),
        (f32::from_bits(1.5_f32.to_bits() - 1), 1, 1.0),
        (1.5, 2, 2.0),
        (2.5, 2, 2.0),
        (f32::from_bits(2.5_f32.to_bits() + 31), 2, 2.0),
        (f32::from_bits(2.5_f32.to_bits() + 32), 3, 3.0),
        (-f32::MIN_POSITIVE / 2.0, 0, 0.0),
    ] {
        let mut values = [0.0; BLOCK_VALUES];
        values[0] = 100.0;
        values[5] = value;
        let block = encode_block(BlockFormat::Bfp8, &values);
        assert_eq!((block.exponent, block.codes[5]), (133, code), "{value}");
        let decoded = decode_block(BlockFormat::Bfp8, &block);
        assert_eq!(decoded[5].to_bits(), f32::to_bits(result), "{value}");
        assert_eq!(decoded[0], 100.0);
    }
}

#[test]
fn two_values_share_a_byte_with_the_first_in_the_low_half() {
    let mut values = [0.0; BLOCK_VALUES];
    values[..4].copy_from_slice(&[4.0, -5.0, 7.6, -1.0]);
    let (exponents, mantissas) = encoded(Kernels::detect(), BlockFormat::Bfp4, &values);
    assert_eq!(exponents, [129]);
    assert_eq!(mantissas, [0xd4, 0x97, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn every_kernel_gives_the_bits_of_the_scalar_form_at_every_length_and_alignment() {
    let random = &mut Random(2);
    let values = mixed_magnitudes(4096, random);
    let bytes: Vec<u8> = (0..4096).map(|_| random.bits() as u8).collect();
    let names: Vec<_> = Kernels::available().iter().map(|k| k.name()).collect();
    println!("kernels: {names:?}");
    assert_eq!(names[0], "scalar");
    assert_eq!(*names.last().unwrap(), Kernels::detect().name());
    for format in FORMATS {
        for kernels in Kernels::available() {
            for count in (0..=67).chain([4000]) {
                let values = &values[count % 5..][..count];
                let what = format!("{format} {} {count}", kernels.name());
                let scalar = encoded(Kernels::scalar(), format, values);
                assert_eq!(encoded(kernels, format, values), scalar, "{what}");

                let blocks = count.div_ceil(BLOCK_VALUES);
                let exponents = &bytes[count % 7..][..blocks];
                let mantissas = &bytes[count % 3..][..blocks * format.mantissa_bytes()];
                assert_same(
                    &bits(&decoded(kernels, format, exponents, mantissas, count)),
                    &bits(&decoded(Kernels::scalar(), format, exponents, mantissas, count)),
                    &what,
                );
            }
        }
    }
}

#[test]
fn encoding_what_was_decoded_gives_the_same_bytes() {
    let random = &mut Random(3);
    let mut values = any_bits(1 << 16, random);
    values.extend(mixed_magnitudes(1 << 18, random));
    values.extend(edges());
    for format in FORMATS {
        values.extend(near_ties(format, 1 << 16, random));
    }
    // Blocks of one exponent whose largest value saturates: the grid must not grow.
    for field in 1..=255 {
        values.extend((0..16).map(|i| fp32(i % 2, field, 0x7f_ffff - i)));
    }
    for format in FORMATS {
        let once = encoded(Kernels::detect(), format, &values);
        let back = decoded(Kernels::detect(), format, &once.0, &once.1, values.len());
        let twice = encoded(Kernels::detect(), format, &back);
        assert_same(&twice.0, &once.0, &format!("{format} exponents"));
        assert_same(&twice.1, &once.1, &format!("{format} mantissas"));
        // No encoder writes what decodes to a subnormal or to -0.
        let normal = |v: &f32| v.to_bits() == 0 || v.is_normal() || !v.is_finite();
        assert!(back.iter().all(normal), "{format}");
    }
}

#[test]
fn an_error_is_half_a_step_and_what_alignment_drops_or_less_than_a_step_at_the_top() {
    let random = &mut Random(4);
    let mut values = mixed_magnitudes(1 << 18, random);
    values.extend(near_ties(BlockFormat::Bfp8, 1 << 16, random));
    values.extend(near_ties(BlockFormat::Bfp4, 1 << 16, random));
    for format in FORMATS {
        let (mut largest, mut saturated) = (0.0_f64, 0);
        for block in values.as_chunks::<BLOCK_VALUES>().0 {
            let encoded = encode_block(format, block);
            if encoded.exponent == 255 {
                continue;
            }
            let scale = i32::from(encoded.exponent) - 126;
            let step = 2_f64.powi(scale - format.magnitude_bits() as i32);
            let last_place = 2_f64.powi(scale - 24);
            for (&value, result) in block.iter().zip(decode_block(format, &encoded)) {
                let error = (f64::from(value) - f64::from(result)).abs();
                if !value.is_normal() {
                    assert_eq!(result.to_bits(), 0, "{value:e}");
                    continue;
                }
                let top = step * f64::from((1 << format.magnitude_bits()) - 1);
                if f64::from(value).abs() > top + step / 2.0 {
                    assert!(error < step, "{format} {value:e}");
                    assert_eq!(f64::from(result).abs(), top);
                    saturated += 1;
                } else {
                    assert!(error < step / 2.0 + last_place, "{format} {value:e}: {error:e}");
                    largest = largest.max(error / step);
                }
            }
        }
        // Both bounds are reached; the alignment does push an error beyond half a step.
        assert!(saturated > 100, "{saturated}");
        assert!(largest > 0.5, "{largest}");
    }
}

#[test]
fn larger_magnitudes_of_a_block_stay_at_least_as_large() {
    let random = &mut Random(5);
    let mut values = mixed_magnitudes(1 << 17, random);
    values.extend(near_ties(BlockFormat::Bfp8, 1 << 15, random));
    for format in FORMATS {
        for block in values.as_chunks_mut::<BLOCK_VALUES>().0 {
            // By their bits, so that NaN come last, as an encoder sees them.
            block.sort_by_key(|v| v.to_bits() & 0x7fff_ffff);
            let magnitudes = encode_block(format, block)
                .codes
                .map(|code| code & ((1 << format.magnitude_bits()) - 1));
            assert!(magnitudes.is_sorted(), "{format} {block:?}: {magnitudes:?}");
        }
    }
}

#[test]
fn infinities_and_nan_do_what_the_arithmetic_does_with_an_exponent_of_255() {
    let mut values = [0.0; BLOCK_VALUES];
    values[..6].copy_from_slice(&[
        f32::NEG_INFINITY,
        f32::NAN,
        f32::from_bits(0x7f80_0001),
        f32::MAX,
        1e38,
        1.0,
    ]);
    let block = encode_block(BlockFormat::Bfp8, &values);
    assert_eq!(block.exponent, 255);
    assert_eq!(block.codes[..6], [0x80 | 64, 96, 64, 64, 19, 0]);
    let decoded = decode_block(BlockFormat::Bfp8, &block);
    assert_eq!(decoded[0], f32::NEG_INFINITY);
    assert!(decoded[1].is_nan());
    // A NaN whose payload is gone, and the largest finite value rounded up.
    assert_eq!(decoded[2..4], [f32::INFINITY; 2]);
    assert_eq!(decoded[4], 19.0 * 2_f32.powi(122));
    assert_eq!(decoded[5].to_bits(), 0);
}
