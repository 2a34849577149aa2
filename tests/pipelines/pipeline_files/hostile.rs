//! Files that are no pipeline at all: nothing panics, everything is bounded.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use sensorium::pipeline::{OnFull, Overrides, Pipeline, PipelineError};

use crate::pipeline_files::{GOOD, errors, lines, parse, render, set};

#[test]
fn files_that_are_no_text_too_large_or_missing_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let load = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        Pipeline::load(&path, &Overrides::default()).unwrap_err()
    };
    assert!(matches!(
        load("a", b"pipeline: \xff"),
        PipelineError::NotText { valid_up_to: 10, .. }
    ));
    assert!(matches!(
        load("b", &vec![b'#'; (1 << 20) + 1]),
        PipelineError::TooLarge { .. }
    ));
    let missing = Pipeline::load(&folder.path().join("none"), &Overrides::default()).unwrap_err();
    assert!(matches!(missing, PipelineError::Read { .. }));
    for empty in ["", "# nothing\n", "---\n", "[]", "text", "null", "{}"] {
        assert!(!errors(empty).is_empty(), "{empty:?}");
    }
}

#[test]
fn aliases_and_nesting_are_bounded() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..20 {
        let items = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb += &format!("a{level}: &a{level} [{items}]\n");
    }
    let deep = "[".repeat(100_000);
    let block: String = (0..2_000)
        .map(|depth| format!("{}a:\n", " ".repeat(depth % 500)))
        .collect();
    let wide = format!("[{}]", "1,".repeat(400_000));
    let start = Instant::now();
    for text in [bomb, deep, block, wide] {
        let told = errors(&text);
        assert!(!told.is_empty(), "{}", &text[..40]);
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn a_file_full_of_errors_is_told_in_measure() {
    let nodes: String = (0..2_000)
        .map(|n| format!("  n{n}: {{ kind: jsonl, input: m{n}, x: 1 }}\n"))
        .collect();
    let start = Instant::now();
    let error = parse(&format!("pipeline: p\nnodes:\n{nodes}"), &Overrides::default()).unwrap_err();
    // Two for each node, and that there is no source.
    assert_eq!(error.problems().len(), 50);
    assert!(
        render(&error).contains("has 4001 errors, of which these are the first 50"),
        "{error}"
    );
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn aliases_and_merges_of_a_sane_size_work() {
    let text = GOOD
        .replace(
            "  tape: { kind: recorder, input: detector }",
            "  tape: { kind: recorder, input: *d }",
        )
        .replace(
            "    input: detector\n  camera",
            "    input: &d detector\n  camera",
        )
        .replace("default: {", "default: &c {")
        .replace("capacity: 8, on_full: drop_oldest }", "<<: *c }");
    let pipeline = parse(&text, &Overrides::default())
        .map_err(|error| lines(&error))
        .unwrap();
    assert_eq!(pipeline.inactive, ["tape"]);
    assert_eq!(
        (pipeline.edges[0].capacity, pipeline.edges[0].on_full),
        (4, OnFull::Block)
    );
}

/// Reads and shows whatever is said; nothing may panic, and no file may pass the schema yet not fit the types.
fn survive(text: &str) {
    match parse(text, &Overrides::default()) {
        Ok(pipeline) => {
            assert!(pipeline.plan().actors.len() >= pipeline.nodes.len());
            assert!(pipeline.mermaid().starts_with("flowchart"));
            assert!(pipeline.mermaid_expanded().starts_with("flowchart"));
        }
        Err(error) => {
            render(&error);
            assert!(!error.problems().is_empty());
            for problem in error.problems() {
                let record = problem.to_record();
                assert!(record.line >= 1 && record.column >= 1);
                assert_ne!(record.expected, "in this file", "{}", record.message);
            }
        }
    }
}

/// Pieces that a mutated file is likely to be wrong in interesting ways with.
const PIECES: [&str; 24] = [
    "null",
    "~",
    "[]",
    "{}",
    "- ",
    ": ",
    "\n",
    "  ",
    "\t",
    "&a ",
    "*a",
    "<<: ",
    "!!int ",
    "|",
    ">",
    "'",
    "\"",
    "${",
    "}",
    "$${A:-b}",
    "99999999999999999999",
    ".nan",
    "-.inf",
    "\u{feff}é",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_text_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        survive(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn a_mutated_file_never_panics(
        edits in prop::collection::vec((0..GOOD.len(), 0..12_usize, 0..PIECES.len()), 1..4),
    ) {
        let mut text = GOOD.to_owned();
        for (at, removed, piece) in edits {
            let (before, rest): (Vec<char>, Vec<char>) =
                (text.chars().take(at).collect(), text.chars().skip(at + removed).collect());
            text = before.into_iter().chain(PIECES[piece].chars()).chain(rest).collect();
        }
        survive(&text);
    }

    #[test]
    fn a_file_with_lines_swapped_never_panics(a in 0..29_usize, b in 0..29_usize, indent in 0..6_usize) {
        let mut all: Vec<String> = GOOD.lines().map(str::to_owned).collect();
        all.swap(a, b);
        all[a].insert_str(0, &" ".repeat(indent));
        survive(&all.join("\n"));
    }

    #[test]
    fn a_random_set_never_panics(path in "[a-z0-9.]{0,20}|nodes\\.camera\\.[a-z_]{1,9}", value in ".{0,20}") {
        if let Err(error) = parse(GOOD, &set(&[(&path, &value)])) {
            render(&error);
        }
    }
}
