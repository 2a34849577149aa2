//! FP8, FP4 and the two halves against ml_dtypes and NumPy.

use std::fmt::Write as _;
use std::path::Path;

use sensorium::numeric::{
    Fp8Format, Fp8Policy, bf16_decode_into, bf16_encode_into, bf16_to_f32, f16_decode_into, f16_encode_into,
    f16_to_f32, fp4_decode, fp4_decode_into, fp4_encode, fp4_encode_into, fp4_packed_bytes, fp8_decode,
    fp8_decode_into, fp8_encode, fp8_encode_into, round_to_bf16, round_to_f16,
};

use super::{hard_values, random_bits};
use crate::support;

/// A format that a peer knows as well.
struct Case {
    name: &'static str,
    dtype: &'static str,
    /// Values are clipped to this before the peer converts them.
    limit: f64,
    exponent_bits: u32,
    mantissa_bits: u32,
    kind: Kind,
}

enum Kind {
    Fp8(Fp8Format, Fp8Policy),
    Fp4,
    Bf16,
    F16,
}

impl Case {
    fn fp8(
        name: &'static str,
        dtype: &'static str,
        limit: f64,
        format: Fp8Format,
        policy: Fp8Policy,
    ) -> Self {
        Self {
            name,
            dtype,
            limit,
            exponent_bits: format.exponent_bits(),
            mantissa_bits: format.mantissa_bits(),
            kind: Kind::Fp8(format, policy),
        }
    }

    fn other(name: &'static str, exponent_bits: u32, mantissa_bits: u32, kind: Kind) -> Self {
        Self {
            name,
            dtype: name,
            limit: f64::INFINITY,
            exponent_bits,
            mantissa_bits,
            kind,
        }
    }

    fn all() -> Vec<Self> {
        use Fp8Format::{E3M4, E4M3, E5M2};
        let [ieee, ocp, nonsat] = [Fp8Policy::IEEE, Fp8Policy::OCP, Fp8Policy::OCP_NONSAT];
        let infinity = f64::INFINITY;
        vec![
            Self::fp8("e3m4", "float8_e3m4", infinity, E3M4, ieee),
            Self::fp8("e4m3", "float8_e4m3", infinity, E4M3, ieee),
            Self::fp8("e5m2", "float8_e5m2", infinity, E5M2, ieee),
            Self::fp8("e4m3fn", "float8_e4m3fn", infinity, E4M3, nonsat),
            Self::fp8("e5m2_ocp", "float8_e5m2", infinity, E5M2, nonsat),
            Self::fp8("e3m4_sat", "float8_e3m4", 15.5, E3M4, ocp),
            Self::fp8("e4m3fn_sat", "float8_e4m3fn", 448.0, E4M3, ocp),
            Self::fp8("e5m2_sat", "float8_e5m2", 57344.0, E5M2, ocp),
            Self::other("float4_e2m1fn", 2, 1, Kind::Fp4),
            Self::other("bfloat16", 8, 7, Kind::Bf16),
            Self::other("float16", 5, 10, Kind::F16),
        ]
    }

    fn hard_values(&self) -> Vec<f32> {
        hard_values(self.exponent_bits, self.mantissa_bits)
    }

    /// Codes of slices; each must be the code of its value alone.
    fn encode(&self, values: &[f32]) -> Vec<u16> {
        match self.kind {
            Kind::Fp8(format, policy) => {
                let mut codes = vec![0; values.len()];
                fp8_encode_into(format, &policy, values, &mut codes).unwrap();
                for (&value, &code) in values.iter().zip(&codes) {
                    assert_eq!(
                        fp8_encode(format, &policy, value),
                        code,
                        "{} {value:e}",
                        self.name
                    );
                }
                codes.into_iter().map(u16::from).collect()
            }
            Kind::Fp4 => {
                let mut packed = vec![0; fp4_packed_bytes(values.len())];
                fp4_encode_into(values, &mut packed).unwrap();
                let codes = packed.into_iter().flat_map(|byte| [byte & 15, byte >> 4]);
                let codes: Vec<u16> = codes.map(u16::from).take(values.len()).collect();
                for (&value, &code) in values.iter().zip(&codes) {
                    assert_eq!(u16::from(fp4_encode(value)), code, "{value:e}");
                }
                codes
            }
            Kind::Bf16 => {
                let mut codes = vec![0; values.len()];
                bf16_encode_into(values, &mut codes).unwrap();
                for (&value, &code) in values.iter().zip(&codes) {
                    assert_eq!(
                        round_to_bf16(value).to_bits(),
                        bf16_to_f32(code).to_bits(),
                        "{value:e}"
                    );
                }
                codes
            }
            Kind::F16 => {
                let mut codes = vec![0; values.len()];
                f16_encode_into(values, &mut codes).unwrap();
                for (&value, &code) in values.iter().zip(&codes) {
                    assert_eq!(
                        round_to_f16(value).to_bits(),
                        f16_to_f32(code).to_bits(),
                        "{value:e}"
                    );
                }
                codes
            }
        }
    }

    /// Values of all codes; each must be the value of its code alone.
    fn decode_all(&self) -> Vec<f32> {
        let bytes: Vec<u8> = (0..=255).collect();
        let shorts: Vec<u16> = (0..=u16::MAX).collect();
        match self.kind {
            Kind::Fp8(format, policy) => {
                let mut values = vec![0.0; 256];
                fp8_decode_into(format, &policy, &bytes, &mut values).unwrap();
                let alone = bytes.iter().map(|&code| fp8_decode(format, &policy, code));
                assert!(alone.map(f32::to_bits).eq(values.iter().map(|x| x.to_bits())));
                values
            }
            Kind::Fp4 => {
                let packed: Vec<u8> = (0..8).map(|i| (2 * i) | ((2 * i + 1) << 4)).collect();
                let mut values = vec![0.0; 16];
                fp4_decode_into(&packed, &mut values).unwrap();
                let alone = bytes[..16].iter().map(|&code| fp4_decode(code));
                assert!(alone.map(f32::to_bits).eq(values.iter().map(|x| x.to_bits())));
                values
            }
            Kind::Bf16 => {
                let mut values = vec![0.0; 1 << 16];
                bf16_decode_into(&shorts, &mut values).unwrap();
                values
            }
            Kind::F16 => {
                let mut values = vec![0.0; 1 << 16];
                f16_decode_into(&shorts, &mut values).unwrap();
                values
            }
        }
    }

    /// Whether two codes are the same, or both NaN of one sign where peers differ in the rest of a NaN.
    fn same_code(&self, a: u16, b: u16) -> bool {
        let nan = match self.kind {
            Kind::Fp8(..) | Kind::Fp4 => return a == b,
            Kind::Bf16 => |code| bf16_to_f32(code).is_nan(),
            Kind::F16 => |code| f16_to_f32(code).is_nan(),
        };
        a == b || nan(a) && nan(b) && a >> 15 == b >> 15
    }
}

/// Numbers of a little-endian file.
fn read<const N: usize, T>(path: &Path, from: fn([u8; N]) -> T) -> Vec<T> {
    let bytes = std::fs::read(path).unwrap();
    bytes.as_chunks::<N>().0.iter().map(|&b| from(b)).collect()
}

#[test]
fn codes_and_values_equal_ml_dtypes_and_numpy() {
    let Some(mut oracle) = support::oracle("minifloat.py") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, ending: &str| folder.path().join(format!("{name}.{ending}"));
    let write = |path: &Path, values: &[f32]| std::fs::write(path, bytemuck::cast_slice(values)).unwrap();

    let specials = [
        0.0,
        f32::INFINITY,
        f32::NAN,
        f32::MAX,
        f32::from_bits(1),
        f32::from_bits(0x7f80_0001),
    ];
    let mut shared: Vec<f32> = specials.into_iter().flat_map(|x| [x, -x]).collect();
    shared.extend(
        random_bits(1)
            .take(1 << 20)
            .map(|bits| f32::from_bits((bits >> 32) as u32)),
    );
    write(&file("shared", "values"), &shared);
    let mut lines = String::new();
    let cases = Case::all();
    for case in &cases {
        write(&file(case.name, "values"), &case.hard_values());
        writeln!(lines, "{} {} {}", case.name, case.dtype, case.limit).unwrap();
    }
    std::fs::write(folder.path().join("cases.txt"), lines).unwrap();
    support::run(oracle.arg(folder.path()));

    for case in &cases {
        let values = [shared.as_slice(), &case.hard_values()].concat();
        let path = file(case.name, "codes");
        let expected = match case.kind {
            Kind::Fp8(..) | Kind::Fp4 => read(&path, |[byte]| u16::from(byte)),
            Kind::Bf16 | Kind::F16 => read(&path, u16::from_le_bytes),
        };
        assert_eq!(expected.len(), values.len());
        for ((value, ours), theirs) in values.iter().zip(case.encode(&values)).zip(expected) {
            assert!(
                case.same_code(ours, theirs),
                "{}: {value:e} ({:#010x}) is {theirs:#x}, not {ours:#x}",
                case.name,
                value.to_bits()
            );
        }

        let expected = read(&file(case.name, "decoded"), f32::from_le_bytes);
        let decoded = case.decode_all();
        assert_eq!(decoded.len(), expected.len());
        for (code, (ours, theirs)) in decoded.iter().zip(&expected).enumerate() {
            let both_nan =
                ours.is_nan() && theirs.is_nan() && ours.is_sign_negative() == theirs.is_sign_negative();
            assert!(
                ours.to_bits() == theirs.to_bits() || both_nan,
                "{}: {code:#x} is {theirs:e}, not {ours:e}",
                case.name
            );
        }
    }
}
