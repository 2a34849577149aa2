//! FP8 and FP4 against the definition of their values, and what their interface promises.

mod peers;

use std::num::FpCategory;

use proptest::prelude::*;
use sensorium::numeric::{
    Fp8Format, Fp8Knobs, Fp8Policy, Fp8PolicyError, LengthError, bf16_decode_into, bf16_encode_into,
    bf16_to_f32, f16_decode_into, f16_encode_into, f16_to_f32, fp4_decode, fp4_decode_into, fp4_encode,
    fp4_encode_into, fp8_decode, fp8_decode_into, fp8_encode, fp8_encode_into, fp8_fields,
};

/// Value of a magnitude whose exponent field, whatever it holds, is a number's.
fn by_definition(exponent_bits: u32, mantissa_bits: u32, magnitude: u32) -> f64 {
    let bias = (1 << (exponent_bits - 1)) - 1;
    let exponent = (magnitude >> mantissa_bits) as i32;
    let mantissa = f64::from(magnitude & ((1 << mantissa_bits) - 1)) / f64::from(1 << mantissa_bits);
    match exponent {
        0 => mantissa * 2_f64.powi(1 - bias),
        e => (1.0 + mantissa) * 2_f64.powi(e - bias),
    }
}

/// Pseudo-random bits (splitmix64).
fn random_bits(seed: u64) -> impl Iterator<Item = u64> {
    (1_u64..).map(move |i| {
        let z = (seed + i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

/// What is hard for a layout: numbers of its range, and every halfway value, the one before the overflow
/// included, with the nearest f32 on both sides.
fn hard_values(exponent_bits: u32, mantissa_bits: u32) -> Vec<f32> {
    let magnitudes = 1 << (exponent_bits + mantissa_bits);
    let value = |magnitude| by_definition(exponent_bits, mantissa_bits, magnitude);
    let halfway = (0..magnitudes).flat_map(|low| {
        let middle = ((value(low) + value(low + 1)) / 2.0) as f32;
        [-1, 0, 1].map(|step| f32::from_bits(middle.to_bits().wrapping_add_signed(step)))
    });
    let widest = value(magnitudes - 1).log2() + 2.0;
    let narrowest = value(1).log2() - 2.0;
    let in_range = random_bits(7).take(1 << 16).map(|bits| {
        let exponent = narrowest + (widest - narrowest) * (bits >> 11) as f64 / 2_f64.powi(53);
        exponent.exp2() as f32
    });
    halfway.chain(in_range).flat_map(|x| [x, -x]).collect()
}

/// What a value becomes, by trying every code: the nearest number, the even code of two that are equally near,
/// in a layout whose exponents do not end; then what the policy does beyond the largest.
fn encode_by_search(format: Fp8Format, policy: &Fp8Policy, value: f32) -> u8 {
    let knobs = policy.knobs();
    let (bits, bias) = (format.mantissa_bits(), format.bias());
    let sign = u8::from(value.is_sign_negative()) << 7;
    let top = (0x7f >> bits) << bits;
    let ieee_emax = (1 << format.exponent_bits()) - 2 - bias;
    let emax = match format {
        Fp8Format::E3M4 => 3 + u32::from(knobs.range_extension),
        Fp8Format::E4M3 => knobs.emax_e4m3,
        Fp8Format::E5M2 => knobs.emax_e5m2,
    };
    let extended = knobs.range_extension || emax > ieee_emax;
    if value.is_nan() {
        return sign | if extended { 0x7f } else { top | (1 << (bits - 1)) };
    }
    let number = |code: u32| by_definition(format.exponent_bits(), bits, code);
    let largest = (0..0x7f)
        .rfind(|&code| number(code) < 2_f64.powi(emax as i32 + 1))
        .unwrap();
    // Far beyond every layout, all distances would round to one.
    let distance = |code: u32| (number(code) - f64::from(value.abs()).min(1e9)).abs();
    let nearest = (0..=largest + 1)
        .min_by(|&a, &b| distance(a).total_cmp(&distance(b)).then((a % 2).cmp(&(b % 2))))
        .unwrap();
    if nearest <= largest && value.is_finite() {
        return sign | nearest as u8;
    }
    sign | match (knobs.ocp_sat, extended) {
        (true, _) => largest as u8,
        (false, true) => 0x7f,
        (false, false) => top,
    }
}

/// What a code is worth, from the description of the policy.
fn decode_by_definition(format: Fp8Format, policy: &Fp8Policy, code: u8) -> f64 {
    let sign = if code >> 7 == 1 { -1.0 } else { 1.0 };
    let (magnitude, bits) = (code & 0x7f, format.mantissa_bits());
    let all_ones = magnitude >> bits == 0x7f >> bits;
    let nan_or_infinity = if policy.has_infinity(format) {
        all_ones
    } else {
        magnitude == 0x7f
    };
    sign * match (nan_or_infinity, magnitude & ((1 << bits) - 1)) {
        (true, 0) => f64::INFINITY,
        (true, _) => f64::NAN,
        (false, _) => by_definition(format.exponent_bits(), bits, magnitude.into()),
    }
}

#[test]
fn extended_ranges_are_those_of_the_definition() {
    for format in Fp8Format::ALL {
        let policy = Fp8Policy::EXTENDED;
        for code in 0..=255 {
            let (value, expected) = (
                fp8_decode(format, &policy, code),
                decode_by_definition(format, &policy, code),
            );
            assert_eq!(value.is_nan(), code & 0x7f == 0x7f);
            assert!(
                value.is_nan() || f64::from(value).to_bits() == expected.to_bits(),
                "{format} {code:#x}"
            );
            assert_eq!(fp8_encode(format, &policy, value), code, "{format} {code:#x}");
        }
        for value in hard_values(format.exponent_bits(), format.mantissa_bits()) {
            assert_eq!(
                fp8_encode(format, &policy, value),
                encode_by_search(format, &policy, value),
                "{format} {value:e}"
            );
        }
    }
}

#[test]
fn named_policies_end_where_their_documentation_says() {
    let named = |name: &str| name.parse::<Fp8Policy>().unwrap();
    for (name, largest, infinities, overflow) in [
        ("ieee", [15.5, 240.0, 57344.0], [true, true, true], f32::INFINITY),
        ("ocp", [15.5, 448.0, 57344.0], [true, false, true], 448.0),
        (
            "ocp-nonsat",
            [15.5, 448.0, 57344.0],
            [true, false, true],
            f32::NAN,
        ),
        ("extended", [30.0, 448.0, 98304.0], [false, false, false], 448.0),
    ] {
        let policy = named(name);
        assert_eq!(policy.to_string(), name);
        for ((format, largest), infinity) in Fp8Format::ALL.into_iter().zip(largest).zip(infinities) {
            assert_eq!(
                fp8_decode(format, &policy, policy.largest_code(format)),
                largest,
                "{name} {format}"
            );
            assert_eq!(policy.has_infinity(format), infinity, "{name} {format}");
            assert_eq!(format.to_string().to_lowercase().parse(), Ok(format));
        }
        let beyond = fp8_decode(
            Fp8Format::E4M3,
            &policy,
            fp8_encode(Fp8Format::E4M3, &policy, 1e6),
        );
        assert!(
            beyond == overflow || beyond.is_nan() && overflow.is_nan(),
            "{name} {beyond}"
        );
    }
    assert_eq!(Fp8Policy::default(), named("ocp-nonsat"));
}

#[test]
fn settings_that_do_not_fit_are_refused_in_words() {
    let knobs = Fp8Policy::default().knobs();
    let refused = |knobs| Fp8Policy::new(knobs).unwrap_err().to_string();
    assert_eq!(
        refused(Fp8Knobs {
            emax_e4m3: 9,
            ..knobs
        }),
        "emax 9 does not fit E4M3: its exponent field ends at 8; choose 0 to 8"
    );
    assert_eq!(
        refused(Fp8Knobs {
            emax_e5m2: u32::MAX,
            ..knobs
        }),
        "emax 4294967295 does not fit E5M2: its exponent field ends at 16; choose 0 to 16"
    );
    assert_eq!(
        "OCP".parse::<Fp8Policy>(),
        Err(Fp8PolicyError::UnknownName("OCP".to_owned()))
    );
    assert_eq!(
        "e4m3fn".parse::<Fp8Policy>().unwrap_err().to_string(),
        "no FP8 policy is called \"e4m3fn\"; the choices are ieee, ocp, ocp-nonsat and extended"
    );
    assert_eq!(
        "E2M5".parse::<Fp8Format>().unwrap_err().to_string(),
        "no FP8 format is called \"E2M5\"; the choices are E3M4, E4M3 and E5M2"
    );
    let unnamed = Fp8Policy::new(Fp8Knobs {
        emax_e4m3: 5,
        ..knobs
    })
    .unwrap();
    assert_eq!(
        unnamed.to_string(),
        "range_extension off, ocp_sat off, emax_e4m3 5, emax_e5m2 15"
    );
}

#[test]
fn slices_that_do_not_match_are_refused_and_left_alone() {
    let policy = Fp8Policy::default();
    let (mut bytes, mut shorts, mut values) = ([7_u8; 3], [7_u16; 3], [7.0_f32; 4]);
    let refusals: [Result<(), LengthError>; 8] = [
        fp8_encode_into(Fp8Format::E4M3, &policy, &[1.0; 4], &mut bytes),
        fp8_decode_into(Fp8Format::E4M3, &policy, &[1; 3], &mut values),
        fp4_encode_into(&[1.0; 4], &mut bytes),
        fp4_decode_into(&[1; 3], &mut values),
        bf16_encode_into(&[1.0; 4], &mut shorts),
        bf16_decode_into(&[1; 3], &mut values),
        f16_encode_into(&[1.0; 4], &mut shorts),
        f16_decode_into(&[1; 3], &mut values),
    ];
    assert!(refusals.iter().all(Result::is_err));
    assert_eq!(
        refusals[2].unwrap_err().to_string(),
        "FP4 encoding: the codes of 4 values fill a slice of 2, but the one given has 3; \
         give slices that hold the same number of values"
    );
    assert_eq!((bytes, shorts, values), ([7; 3], [7; 3], [7.0; 4]));
}

#[test]
fn a_code_is_shown_with_its_fields_and_class() {
    let shown = |format, policy, code| {
        let fields = fp8_fields(format, &policy, code);
        (
            fields.sign,
            fields.exponent,
            fields.mantissa,
            fields.class,
            fields.value.to_string(),
        )
    };
    let [ieee, ocp] = [Fp8Policy::IEEE, Fp8Policy::OCP];
    use Fp8Format::{E3M4, E4M3, E5M2};
    for (found, expected) in [
        (shown(E4M3, ocp, 0xb8), (true, 7, 0, FpCategory::Normal, "-1")),
        (shown(E4M3, ocp, 0x80), (true, 0, 0, FpCategory::Zero, "-0")),
        (
            shown(E4M3, ocp, 0x01),
            (false, 0, 1, FpCategory::Subnormal, "0.001953125"),
        ),
        (shown(E4M3, ocp, 0x78), (false, 15, 0, FpCategory::Normal, "256")),
        (
            shown(E4M3, ieee, 0x78),
            (false, 15, 0, FpCategory::Infinite, "inf"),
        ),
        (shown(E4M3, ieee, 0x79), (false, 15, 1, FpCategory::Nan, "NaN")),
        (
            shown(E3M4, ieee, 0x0f),
            (false, 0, 15, FpCategory::Subnormal, "0.234375"),
        ),
        (
            shown(E5M2, ocp, 0xfc),
            (true, 31, 0, FpCategory::Infinite, "-inf"),
        ),
    ] {
        let (sign, exponent, mantissa, class, value) = expected;
        assert_eq!(found, (sign, exponent, mantissa, class, value.to_owned()));
    }
}

#[test]
fn fp4_packs_the_first_value_low_and_fills_an_odd_end_with_zero() {
    let values = [0.5, -6.0, 2.5, f32::INFINITY, -0.0];
    let mut packed = [0xff; 3];
    fp4_encode_into(&values, &mut packed).unwrap();
    assert_eq!(packed, [0xf1, 0x74, 0x08]);
    let mut decoded = [0.0; 5];
    // What the unused half holds does not matter.
    fp4_decode_into(&[0xf1, 0x74, 0x38], &mut decoded).unwrap();
    assert_eq!(decoded, [0.5, -6.0, 2.0, 6.0, 0.0]);
    assert!(decoded[4].is_sign_negative());
    assert_eq!([f32::NAN, -f32::NAN].map(fp4_encode), [8, 0]);
}

fn any_format() -> impl Strategy<Value = Fp8Format> {
    prop::sample::select(Fp8Format::ALL.to_vec())
}

fn any_policy() -> impl Strategy<Value = Fp8Policy> {
    (any::<bool>(), any::<bool>(), 0_u32..=8, 0_u32..=16).prop_map(
        |(range_extension, ocp_sat, emax_e4m3, emax_e5m2)| {
            let knobs = Fp8Knobs {
                range_extension,
                ocp_sat,
                emax_e4m3,
                emax_e5m2,
            };
            Fp8Policy::new(knobs).unwrap()
        },
    )
}

/// Any bits, and more often numbers of the formats' ranges and few enough mantissa bits to tie.
fn any_value() -> impl Strategy<Value = f32> {
    let bits = any::<u32>().prop_map(f32::from_bits);
    let near = (any::<bool>(), 105_u32..147, 0_u32..64).prop_map(|(sign, exponent, mantissa)| {
        f32::from_bits((u32::from(sign) << 31) | (exponent << 23) | (mantissa << 17))
    });
    let between = (105_u32..147, 0_u32..1 << 23).prop_map(|(e, m)| f32::from_bits((e << 23) | m));
    prop_oneof![bits, near, between]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_policy_encodes_to_the_nearest_number_it_has(
        format in any_format(), policy in any_policy(), value in any_value(), code in any::<u8>(),
    ) {
        let encoded = fp8_encode(format, &policy, value);
        prop_assert_eq!(encoded, encode_by_search(format, &policy, value));
        // Signs are mirrored, NaN's too.
        prop_assert_eq!(fp8_encode(format, &policy, -value), encoded ^ 0x80);
        let decoded = fp8_decode(format, &policy, encoded);
        prop_assert_eq!(fp8_encode(format, &policy, decoded), encoded);
        prop_assert!(!policy.knobs().ocp_sat || value.is_nan() || decoded.is_finite());
        prop_assert_eq!(decoded.is_sign_negative(), value.is_sign_negative());

        let expected = decode_by_definition(format, &policy, code);
        let decoded = f64::from(fp8_decode(format, &policy, code));
        prop_assert!(decoded.to_bits() == expected.to_bits() || decoded.is_nan() && expected.is_nan());
    }

    #[test]
    fn larger_values_never_get_smaller_codes(
        format in any_format(), policy in any_policy(), a in any_value(), b in any_value(),
    ) {
        let round_trip = |x| fp8_decode(format, &policy, fp8_encode(format, &policy, x));
        let (low, high) = (round_trip(a.min(b)), round_trip(a.max(b)));
        prop_assert!(low <= high || low.is_nan() || high.is_nan());
        let fp4 = |x: f32| fp4_decode(fp4_encode(x));
        prop_assert!(a.is_nan() || b.is_nan() || fp4(a.min(b)) <= fp4(a.max(b)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_decode_to_the_values_of_their_codes_at_any_offset(
        bytes in prop::collection::vec(any::<u8>(), 0..300), offset in 0_usize..8, format in any_format(),
        policy in any_policy(), odd in any::<bool>(),
    ) {
        let bytes = &bytes[offset.min(bytes.len())..];
        let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let same = |values: &[f32], alone: Vec<f32>| bits(values) == bits(&alone);

        let mut values = vec![0.0; bytes.len()];
        fp8_decode_into(format, &policy, bytes, &mut values).unwrap();
        prop_assert!(same(&values, bytes.iter().map(|&b| fp8_decode(format, &policy, b)).collect()));

        let mut values = vec![0.0; (2 * bytes.len()).saturating_sub(odd.into())];
        fp4_decode_into(bytes, &mut values).unwrap();
        let mut alone: Vec<f32> = bytes.iter().flat_map(|&b| [fp4_decode(b), fp4_decode(b >> 4)]).collect();
        alone.truncate(values.len());
        prop_assert!(same(&values, alone));

        let shorts: Vec<u16> = bytes.as_chunks::<2>().0.iter().map(|&b| u16::from_le_bytes(b)).collect();
        let mut values = vec![0.0; shorts.len()];
        bf16_decode_into(&shorts, &mut values).unwrap();
        prop_assert!(same(&values, shorts.iter().map(|&s| bf16_to_f32(s)).collect()));
        f16_decode_into(&shorts, &mut values).unwrap();
        prop_assert!(same(&values, shorts.iter().map(|&s| f16_to_f32(s)).collect()));
    }
}
