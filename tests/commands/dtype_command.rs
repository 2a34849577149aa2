//! `sensorium dtype`, from the outside.

use std::process::Output;

fn dtype(more: &[&str]) -> Output {
    let mut command = crate::tiny::sensorium();
    command.arg("dtype").args(more).output().unwrap()
}

fn printed(more: &[&str]) -> String {
    let output = dtype(more);
    assert!(output.status.success(), "{more:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(more: &[&str]) -> String {
    let output = dtype(more);
    assert!(
        !output.status.success() && output.stdout.is_empty(),
        "{more:?}: {output:?}"
    );
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn the_table_has_sixteen_rows_and_marks_the_eight_that_the_wrapper_does_not_take() {
    let text = printed(&[]);
    let rows: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("│") && line.contains(" 0x"))
        .collect();
    assert_eq!(rows.len(), 16, "{text}");
    let absent: Vec<&str> = rows
        .iter()
        .filter(|row| row.contains("absent"))
        .map(|row| row.split_whitespace().nth(2).unwrap())
        .collect();
    assert_eq!(
        absent,
        [
            "INVALID", "UINT64", "UINT16", "UINT32", "FP32R", "FP8_EXP3", "FP8_EXP4", "FP8_EXP5"
        ]
    );
    assert_eq!(rows.iter().filter(|row| row.contains("mapped")).count(), 8);
    let all = printed(&["--all"]);
    assert_eq!(
        all.lines()
            .filter(|line| line.starts_with("│") && line.contains(" 0x"))
            .count(),
        30,
        "{all}"
    );
}

#[test]
fn a_value_is_taken_apart_under_the_policy_that_is_named() {
    let text = printed(&["--isa", "0xE", "--value", "0x7e", "--policy", "ocp"]);
    for part in [
        "FP8_EXP4 (ISA code 0x0e), policy ocp",
        "0x7e = 0 1111 110",
        "15 (bias 7)",
        "6 of 8",
        "normal",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let value = |args: &[&str]| -> serde_json::Value {
        serde_json::from_str(&printed(&[args, &["--format", "json"]].concat())).unwrap()
    };
    for (isa, bits, policy, class, expected) in [
        ("14", "0x7e", "ocp", "normal", "448"),
        ("FP8_EXP4", "0b0111_1110", "ieee", "NaN", "NaN"),
        ("0x0e", "0x78", "ieee", "infinity", "inf"),
        ("fp8_exp5", "0xfc", "ocp", "infinity", "-inf"),
        ("0xd", "1", "ieee", "subnormal", "0.015625"),
        ("0xd", "0x7e", "extended", "normal", "30"),
        ("6", "0x3fc0", "ieee", "normal", "1.5"),
        ("7", "1", "ieee", "subnormal", "5.960464477539063e-8"),
        ("0xa", "0x80000000", "ieee", "zero", "-0"),
        ("0x10", "0xf", "ieee", "normal", "-6"),
    ] {
        let found = value(&["--isa", isa, "--value", bits, "--policy", policy]);
        assert_eq!(
            (&found["value"], &found["float"]["class"]),
            (&expected.into(), &class.into()),
            "{isa} {bits}"
        );
    }
    for (isa, bits, expected) in [
        ("2", "0xff", "-1"),
        ("0x12", "0x8", "-8"),
        ("1", "0xffffffffffffffff", "18446744073709551615"),
    ] {
        assert_eq!(value(&["--isa", isa, "--value", bits])["value"], expected);
    }
}

#[test]
fn what_no_source_says_is_refused_with_the_code_named() {
    for (args, words) in [
        (
            &["--isa", "23"][..],
            &["23 (0x17)", "not assigned in any source"][..],
        ),
        (
            &["--isa", "0x1c", "--value", "1"],
            &["CPTC4 (ISA code 0x1c)", "no source says"],
        ),
        (&["--isa", "0xb", "--value", "1"], &["FP32R (ISA code 0x0b)"]),
        (&["--isa", "0", "--value", "0"], &["INVALID (ISA code 0x00)"]),
        (
            &["--isa", "0xe", "--value", "0x1ff"],
            &["0x1ff does not fit FP8_EXP4", "8 bits"],
        ),
        (
            &["--isa", "0xe", "--value", "0x7e", "--policy", "amd"],
            &["ieee, ocp, ocp-nonsat and extended"],
        ),
        (
            &["--isa", "float", "--value", "1"],
            &["'float' is no data type code", "--all"],
        ),
        (&["--isa", "2", "--value", "-1"], &["-1"]),
        (&["--value", "1"], &["--isa"]),
    ] {
        let told = refused(args);
        for word in words {
            assert!(told.contains(word), "{args:?}: {word} in {told}");
        }
    }
}
