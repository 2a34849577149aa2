//! Precisions as text, policies, knobs, and the arithmetic of a matrix engine against a transcription of its definition
//! in integers.

use std::collections::BTreeMap;

use sensorium::precision::{
    Fidelity, Knob, KnobError, KnobSource, KnobValue, Knobs, Math, MatrixMath, OperandFormat, PRESETS,
    Precision, PrecisionError, PrecisionPolicy, parse_bool,
};
use sensorium::tensor::DType;

fn parse(text: &str) -> Precision {
    text.parse().unwrap()
}

fn refusal(text: &str) -> String {
    text.parse::<Precision>().unwrap_err().to_string()
}

#[test]
fn a_precision_reads_back_as_it_was_written() {
    let mut labels = std::collections::HashSet::new();
    for fidelity in Fidelity::ALL {
        for switches in 0..16_u8 {
            for weights in OperandFormat::ALL {
                for activations in [DType::Bf16, DType::F32] {
                    let precision = Precision::new(fidelity, switches & 1 != 0)
                        .with_approx(switches & 2 != 0)
                        .with_packer_l1_acc(switches & 4 != 0)
                        .with_dst_full_sync(switches & 8 != 0)
                        .with_weights(weights)
                        .with_activations(activations)
                        .unwrap();
                    assert_eq!(parse(&precision.label()), precision);
                    assert!(
                        labels.insert(precision.label()),
                        "{precision} stands for two values"
                    );
                }
            }
        }
    }
}

#[test]
fn a_text_says_every_part() {
    assert_eq!(
        parse("HiFi4+fp32+approx+l1acc+fullsync:w=bfp8:a=bf16"),
        Precision {
            fidelity: Fidelity::HiFi4,
            fp32_acc: true,
            approx: true,
            packer_l1_acc: true,
            dst_full_sync: true,
            weights: OperandFormat::Bfp8,
            activations: DType::Bf16,
        }
    );
    assert_eq!(
        parse("HiFi2:a=float32:w=bfloat4_b").label(),
        "HiFi2:w=bfp4:a=fp32"
    );
    assert_eq!(parse("LoFi"), Precision::new(Fidelity::LoFi, false));
    assert_eq!(parse("HiFi4+l1acc+fp32"), Precision::CONVOLUTION);
    assert_eq!(parse("accurate").label(), "HiFi4+fp32");
    assert_eq!(parse("balanced").label(), "HiFi2+fp32");
    assert_eq!(parse("fast").label(), "LoFi:w=bfp8");
    assert_eq!(parse("balanced+l1acc:a=f32").label(), "HiFi2+fp32+l1acc:a=fp32");
    assert_eq!(
        PRESETS.map(|preset| parse(preset.name)),
        PRESETS.map(|preset| preset.precision)
    );
}

#[test]
fn a_text_that_means_nothing_is_told_what_is_allowed() {
    for (text, expected) in [
        ("", "names no fidelity"),
        (":w=f32", "names no fidelity"),
        ("+fp32", "names no fidelity"),
        ("hifi4", "LoFi, HiFi2, HiFi3, HiFi4"),
        ("HiFi5+fp32", "accurate, balanced, fast"),
        ("HiFi4+fp16", "+fp32, +approx, +l1acc or +fullsync"),
        ("HiFi4+", "`+` is not an option"),
        ("HiFi4+fp32+fp32", "says `+fp32` twice"),
        ("HiFi4:w=bf16:w=bf16", "says `:w=` twice"),
        ("HiFi4:x=bf16", ":w=FORMAT (weights) or :a=FORMAT (activations)"),
        ("HiFi4:w", "`:w` is not a setting"),
        (
            "HiFi4:w=int8",
            "fp32 (float32), bf16 (bfloat16), bfp8 (bfloat8_b) or bfp4 (bfloat4_b)",
        ),
        ("HiFi4:a=bfp8", "expected bf16 (bfloat16) or fp32 (float32)"),
    ] {
        assert!(refusal(text).contains(expected), "{text}: {}", refusal(text));
    }
    assert!(Precision::CONVOLUTION.with_activations(DType::I8).is_err());
}

#[test]
fn what_changes_no_bit_changes_no_operation() {
    let quiet = parse("HiFi3+fp32+l1acc:w=bfp8");
    let loud = quiet.with_approx(true).with_dst_full_sync(true);
    assert_eq!(Math::from(quiet), Math::from(loud));
    assert_eq!(
        Math::from(quiet),
        Math::Matrix(MatrixMath {
            fidelity: Fidelity::HiFi3,
            fp32_acc: true,
            packer_l1_acc: true,
            weights: OperandFormat::Bfp8,
        })
    );
}

#[test]
fn the_first_rule_that_matches_decides() {
    let policy = PrecisionPolicy::parse(
        &[
            ("head.reg*", "accurate"),
            ("backbone.*", "HiFi2+fp32:w=bfp8"),
            ("*.fc1", "fast"),
        ],
        "balanced",
    )
    .unwrap();
    assert_eq!(policy.resolve("head.reg.fc1"), parse("accurate"));
    assert_eq!(
        policy.resolve("backbone.block3.conv2"),
        parse("HiFi2+fp32:w=bfp8")
    );
    assert_eq!(policy.resolve("head.cls.fc1"), parse("fast"));
    assert_eq!(policy.resolve("neck"), parse("balanced"));
    assert_eq!(
        policy.describe(),
        "head.reg* = HiFi4+fp32\n\
         backbone.* = HiFi2+fp32:w=bfp8\n\
         *.fc1 = LoFi:w=bfp8\n\
         otherwise HiFi2+fp32\n\
         \x20 backbone.block3.conv2 -> HiFi2+fp32:w=bfp8 (rule backbone.*)\n\
         \x20 head.cls.fc1 -> LoFi:w=bfp8 (rule *.fc1)\n\
         \x20 head.reg.fc1 -> HiFi4+fp32 (rule head.reg*)\n\
         \x20 neck -> HiFi2+fp32 (the default)\n"
    );
    assert_eq!(policy.resolved().len(), 4);
    assert_eq!(policy.clone().resolved(), []);
    assert_eq!(policy.clone(), policy);
}

#[test]
fn patterns_are_of_whole_names_and_stars_match_dots() {
    let matches = |pattern: &str, module: &str| {
        let policy = PrecisionPolicy::parse(&[(pattern, "fast")], "accurate").unwrap();
        policy.resolve(module) == parse("fast")
    };
    for (pattern, module) in [
        ("backbone.*", "backbone.block3.conv2"),
        ("*.conv?", "backbone.block3.conv2"),
        ("*", ""),
        ("head.{reg,cls}.*", "head.cls.fc1"),
        ("*/conv", "/model/head/conv"),
        ("block[12].*", "block2.conv"),
    ] {
        assert!(matches(pattern, module), "{pattern} {module}");
    }
    for (pattern, module) in [
        ("backbone.*", "backbone"),
        ("conv", "conv2"),
        ("*.conv?", "a.conv"),
        ("reg", "head.reg"),
    ] {
        assert!(!matches(pattern, module), "{pattern} {module}");
    }
    let error = PrecisionPolicy::parse(&[("head.[reg", "fast")], "accurate").unwrap_err();
    assert!(error.to_string().starts_with("pattern `head.[reg`: "), "{error}");
}

#[test]
fn the_environment_goes_before_the_rules() {
    let policy = PrecisionPolicy::parse(&[("backbone.*", "fast")], "balanced").unwrap();
    let with = |text: &str| {
        policy.with_env("CENTERPOINT", |name| {
            (name == "CENTERPOINT_PRECISION").then(|| text.to_owned())
        })
    };
    let overridden = with("backbone.stem=HiFi4+fp32:w=f32; head.*=HiFi3").unwrap();
    assert_eq!(overridden.resolve("backbone.stem"), parse("HiFi4+fp32:w=f32"));
    assert_eq!(overridden.resolve("backbone.block1"), parse("fast"));
    assert_eq!(overridden.resolve("head.cls"), parse("HiFi3"));
    assert_eq!(overridden.resolve("neck"), parse("balanced"));
    let all = with("HiFi2+fp32:w=bfp8").unwrap();
    assert_eq!(all.resolve("backbone.stem"), parse("HiFi2+fp32:w=bfp8"));
    assert_eq!(with("").unwrap(), policy);
    assert_eq!(policy.with_env("CENTERPOINT", |_| None).unwrap(), policy);
    let error = with("backbone.*=HiFi9").unwrap_err();
    assert!(matches!(error, PrecisionError::Environment { .. }));
    assert!(
        error
            .to_string()
            .starts_with("CENTERPOINT_PRECISION: `HiFi9` begins with neither"),
        "{error}"
    );
    for broken in ["backbone.*=", "=fast", "a=fast;"] {
        assert!(
            with(broken)
                .unwrap_err()
                .to_string()
                .contains("PATTERN=PRECISION"),
            "{broken}"
        );
    }
}

fn knobs() -> Knobs {
    Knobs::new(
        "CENTERPOINT",
        vec![
            Knob::new("FUSED_HEAD", true, "merged head convolutions"),
            Knob::new("ACT_BLOCK_H", 64, "rows of a block").choices([32, 64, 128]),
            Knob::new("BFP8_WEIGHTS", false, "block floats in the backbone").experiment(),
            Knob::new("SCALE", 0.5, "of a | b"),
            Knob::new("PATH", "auto", "").choices(["auto", "tile"]),
        ],
    )
    .unwrap()
}

#[test]
fn a_knob_is_the_programs_then_the_environments_then_its_default() {
    let environment = |name: &str| match name {
        "CENTERPOINT_FUSED_HEAD" => Some("off".to_owned()),
        "CENTERPOINT_ACT_BLOCK_H" => Some(" 128 ".to_owned()),
        "CENTERPOINT_SCALE" => Some(String::new()),
        "CENTERPOINT_BFP8_WEIGHTS" => Some("yes".to_owned()),
        _ => None,
    };
    let values = knobs().read(environment, &[("ACT_BLOCK_H", 32.into())]).unwrap();
    assert!(!values.flag("FUSED_HEAD").unwrap());
    assert_eq!(values.int("ACT_BLOCK_H"), Ok(32));
    assert_eq!(values.float("SCALE"), Ok(0.5));
    assert_eq!(values.text("PATH"), Ok("auto"));
    assert!(values.flag("BFP8_WEIGHTS").unwrap());
    assert_eq!(values.source("FUSED_HEAD"), Ok(KnobSource::Environment));
    assert_eq!(values.source("ACT_BLOCK_H"), Ok(KnobSource::Override));
    assert_eq!(values.source("SCALE"), Ok(KnobSource::Default));
    let overridden: Vec<_> = values.overridden().into_keys().collect();
    assert_eq!(overridden, ["ACT_BLOCK_H", "BFP8_WEIGHTS", "FUSED_HEAD"]);
    assert_eq!(values.as_dict()["ACT_BLOCK_H"], &KnobValue::Int(32));
    // What a run was made with gives the same run again.
    let again = values.serve_env();
    let read = knobs().read(|name| again.get(name).cloned(), &[]).unwrap();
    assert_eq!(read.as_dict(), values.as_dict());
}

#[test]
fn a_setting_that_a_knob_does_not_have_is_refused() {
    let read = |name: &'static str, text: &'static str| {
        let told = knobs().read(|n| (n == name).then(|| text.to_owned()), &[]);
        told.unwrap_err().to_string()
    };
    assert!(read("CENTERPOINT_FUSED_HEAD", "maybe").contains("1, true, yes, on"));
    assert!(read("CENTERPOINT_ACT_BLOCK_H", "48").contains("expected one of 32, 64, 128"));
    assert!(read("CENTERPOINT_ACT_BLOCK_H", "4.5").contains("a whole number"));
    assert!(read("CENTERPOINT_SCALE", "NaN").contains("a finite number"));
    let values = |name, value: KnobValue| knobs().read(|_| None, &[(name, value)]);
    assert!(matches!(
        values("FUSED_HAED", true.into()),
        Err(KnobError::Unknown { .. })
    ));
    assert!(matches!(
        values("FUSED_HEAD", 1.into()),
        Err(KnobError::Kind { .. })
    ));
    assert!(matches!(
        values("PATH", "rm".into()),
        Err(KnobError::Choice { .. })
    ));
    assert!(matches!(
        knobs().defaults().int("PATH"),
        Err(KnobError::Kind { .. })
    ));
    assert!(matches!(
        knobs().defaults().get("path"),
        Err(KnobError::Unknown { .. })
    ));
    let made = |prefix, list| Knobs::new(prefix, list).unwrap_err().to_string();
    let knob = |name| Knob::new(name, true, "");
    assert!(made("P", vec![knob("a")]).contains("capitals"));
    assert!(made("p", vec![]).contains("capitals"));
    assert!(made("P", vec![knob("A"), knob("A")]).contains("two knobs"));
    assert!(made("P", vec![Knob::new("A", 1, "").choices([2, 3])]).contains("expected one of 2, 3"));
}

#[test]
fn what_a_bundle_pins_equals_the_defaults() {
    let knobs = knobs();
    let defaults = knobs.serve_env();
    let expected = [
        ("CENTERPOINT_ACT_BLOCK_H", "64"),
        ("CENTERPOINT_BFP8_WEIGHTS", "0"),
        ("CENTERPOINT_FUSED_HEAD", "1"),
        ("CENTERPOINT_PATH", "auto"),
        ("CENTERPOINT_SCALE", "0.5"),
    ];
    let pinned: BTreeMap<&str, &str> = expected.into();
    assert!(defaults.iter().map(|(a, b)| (&**a, &**b)).eq(pinned.clone()));
    assert_eq!(knobs.check_pinned(pinned.clone()), Ok(()));
    let mut other = pinned.clone();
    other.insert("OTHER_ACT_BLOCK_H", "1");
    other.insert("CENTERPOINT_FUSED_HEAD", "true");
    assert_eq!(
        knobs.check_pinned(other),
        Ok(()),
        "another spelling of the same value"
    );
    let mut wrong = pinned;
    wrong.insert("CENTERPOINT_ACT_BLOCK_H", "32");
    wrong.insert("CENTERPOINT_GONE", "1");
    wrong.remove("CENTERPOINT_SCALE");
    assert_eq!(
        knobs.check_pinned(wrong).unwrap_err().to_string(),
        "the pinned settings are not the defaults: CENTERPOINT_ACT_BLOCK_H is `32`, the default is 64; \
         CENTERPOINT_SCALE is missing (default 0.5); CENTERPOINT_GONE sets no knob"
    );
}

#[test]
fn the_table_of_knobs_names_every_one() {
    assert_eq!(
        knobs().doc_table(),
        "| variable | default | choices | what |\n\
         |---|---|---|---|\n\
         | `CENTERPOINT_FUSED_HEAD` | `1` |  | merged head convolutions |\n\
         | `CENTERPOINT_ACT_BLOCK_H` | `64` | 32, 64, 128 | rows of a block |\n\
         | `CENTERPOINT_BFP8_WEIGHTS` | `0` |  | block floats in the backbone (experiment) |\n\
         | `CENTERPOINT_SCALE` | `0.5` |  | of a \\| b |\n\
         | `CENTERPOINT_PATH` | `auto` | auto, tile |  |\n"
    );
}

#[test]
fn words_for_on_and_off() {
    for on in ["1", "true", "YES", " on "] {
        assert_eq!(parse_bool(on), Some(true));
    }
    for off in ["0", "False", "no", "OFF"] {
        assert_eq!(parse_bool(off), Some(false));
    }
    for neither in ["", "2", "enable", "t"] {
        assert_eq!(parse_bool(neither), None);
    }
}
