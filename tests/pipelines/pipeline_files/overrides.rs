//! The environment, `--set` and the options of the command.

use std::env::VarError;
use std::path::Path;

use sensorium::device::{DeviceLayer, Threads};
use sensorium::pipeline::{NodeKind, Overrides, Pipeline, Rate, Topics};

use crate::pipeline_files::{GOOD, errors, lines, parse, set};

#[test]
fn variables_come_from_the_environment_or_their_default() {
    let environment = |name: &str| match name {
        "THREADS" => Ok("3".to_owned()),
        "RATE" => Ok("max".to_owned()),
        "NAME" => Ok("left".to_owned()),
        "EMPTY" => Ok(String::new()),
        _ => Err(VarError::NotPresent),
    };
    let read = |text: &str| {
        Pipeline::parse(
            Path::new("p.yaml"),
            text.to_owned(),
            &Overrides::default(),
            &environment,
        )
    };
    let text = GOOD
        .replace("threads: 2", "threads: '${THREADS}'")
        .replace("threads: '${THREADS}', queues", "queues")
        .replace("pipeline: front", "pipeline: cam-${NAME}-${NOPE:-x}${EMPTY:-y}")
        .replace(
            "    rate: 1.0",
            "    rate: ${RATE}\n    deadline_ms: ${DEADLINE:-40}",
        )
        .replace("[/a, /b]", "[\"/$${NAME}\", \"${EMPTY}/b\"]");
    let pipeline = read(&text).map_err(|error| lines(&error)).unwrap();
    assert_eq!(pipeline.name, "cam-left-xy");
    let NodeKind::Source(source) = &pipeline.nodes[0].kind else {
        panic!()
    };
    assert_eq!((source.rate, source.deadline_ms), (Rate::Max, Some(40)));
    assert_eq!(
        source.topics,
        Topics::Listed(vec!["/${NAME}".into(), "/b".into()])
    );

    // Quoted text stays text, as everywhere in YAML.
    let told = lines(&read(&GOOD.replace("threads: 2", "threads: '${THREADS}'")).unwrap_err());
    assert!(
        told[0].starts_with("p.yaml:2:34: `device.threads` cannot be `3`"),
        "{told:?}"
    );
}

#[test]
fn a_variable_that_is_not_set_or_not_named_is_told_at_its_place() {
    let told = |weights: &str| errors(&GOOD.replace("weights: \"\"", &format!("weights: {weights}")));
    assert_eq!(
        told("models/${WEIGHTS}.onnx"),
        ["p.yaml:6:21: the environment variable `WEIGHTS` is not set | not set, and no default is given"]
    );
    assert_eq!(
        told("${A B}"),
        ["p.yaml:6:14: `${A B}` does not name a variable | expected ${NAME} or ${NAME:-default}"]
    );
    assert_eq!(
        told("x${A"),
        ["p.yaml:6:15: `${A` has no closing brace | expected `}`"]
    );
    let big = |_: &str| Ok("x".repeat(600_000));
    let text = GOOD.replace("weights: \"\"", "weights: ${A}${B}");
    let error = Pipeline::parse(Path::new("p.yaml"), text, &Overrides::default(), &big).unwrap_err();
    assert!(lines(&error)[0].starts_with("p.yaml:6:18: the substitutions of this file yield more than"));
}

#[test]
fn set_changes_values_by_their_path() {
    let pipeline = parse(
        GOOD,
        &set(&[
            ("device.threads", "auto"),
            ("nodes.camera.rate", "max"),
            ("nodes.camera.deadline_ms", "50"),
            ("nodes.camera.topics", "[/front, /rear]"),
            ("channels.edges.0.capacity", "2"),
            ("nodes.tape.path", "tapes/out.mcap"),
            ("pipeline", "other"),
        ]),
    )
    .unwrap();
    assert_eq!(pipeline.name, "other");
    let NodeKind::Source(source) = &pipeline.nodes[0].kind else {
        panic!()
    };
    assert_eq!((source.rate, source.deadline_ms), (Rate::Max, Some(50)));
    assert_eq!(
        source.topics,
        Topics::Listed(vec!["/front".into(), "/rear".into()])
    );
    assert_eq!(pipeline.edges[0].capacity, 2);
    assert!(pipeline.inactive.is_empty());
}

#[test]
fn the_environment_stands_between_the_file_and_the_command_line() {
    let environment = DeviceLayer {
        threads: Some(Threads::Count(8)),
        arena_mib: Some(512),
        ..DeviceLayer::default()
    };
    let said = |changes| parse(GOOD, &set(changes)).unwrap().device;
    let file = said(&[]).config(&environment);
    assert_eq!(
        (file.threads, file.queues, file.arena_bytes),
        (Threads::Count(8), 2, 512 << 20)
    );
    let one_key = said(&[("device.threads", "3")]);
    assert_eq!(one_key.file.keys(), ["backend", "queues", "arena_mib"]);
    assert_eq!(one_key.command_line.keys(), ["threads"]);
    let config = one_key.config(&environment);
    assert_eq!(
        (config.threads, config.arena_bytes),
        (Threads::Count(3), 512 << 20)
    );
    // The whole section in one option.
    let section = said(&[("device", "{ arena_mib: 32, allow_fallback: true }")]);
    assert_eq!(section.file, DeviceLayer::default());
    let config = section.config(&environment);
    assert_eq!(
        (config.threads, config.arena_bytes),
        (Threads::Count(8), 32 << 20)
    );
    assert!(config.allow_fallback);
}

#[test]
fn a_wrong_set_is_told_as_such_with_the_nearest_spelling() {
    let told = |path, value| lines(&parse(GOOD, &set(&[(path, value)])).unwrap_err());
    assert_eq!(
        told("nodes.camra.rate", "2"),
        ["--set:1:7: `nodes` has no `camra` | did you mean `camera`?"]
    );
    assert_eq!(
        told("nodes.camera.rat", "2"),
        ["--set:1:14: unknown key `rat` in `nodes.camera` | did you mean `rate`?"]
    );
    assert_eq!(
        told("devic.threads", "2"),
        ["--set:1:1: unknown key `devic` in the pipeline | did you mean `device`?"]
    );
    assert_eq!(
        told("channels.default.capacity", "0"),
        ["--set:1:27: `channels.default.capacity` cannot be 0 | expected a whole number from 1 to 65536"]
    );
    assert_eq!(
        told("channels.edges.7.capacity", "1"),
        ["--set:1:16: `7` is no item of a list of 1 | expected the number of an item, counted from 0"]
    );
    assert_eq!(
        told("nodes.camera.rate.fast", "1"),
        [
            "--set:1:19: `fast` cannot be set: what holds it is a number | expected the path of a value in the file, such as nodes.camera.rate"
        ]
    );
    let told = told("nodes.camera.topics", "[/a");
    assert!(
        told[0].starts_with("--set:1:2") && told[0].contains("no YAML"),
        "{told:?}"
    );
}

#[test]
fn options_of_the_command_go_to_their_only_place_or_say_that_there_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.onnx");
    std::fs::write(&file, b"x").unwrap();
    let overrides = Overrides {
        bag: Some(folder.path().to_owned()),
        model: Some(file.clone()),
        rate: Some(Rate::Max),
        record: Some("out.mcap".into()),
        ..Overrides::default()
    };
    let pipeline = parse(GOOD, &overrides).unwrap();
    pipeline.require_files().unwrap();
    assert_eq!(pipeline.models["nano"].weights.as_deref(), Some(file.as_path()));
    let NodeKind::Source(source) = &pipeline.nodes[0].kind else {
        panic!()
    };
    assert_eq!(
        (source.bag.as_deref(), source.rate),
        (Some(folder.path()), Rate::Max)
    );
    let tape = pipeline.nodes.iter().find(|node| node.name == "tape").unwrap();
    let NodeKind::Recorder(recorder) = &tape.kind else {
        panic!()
    };
    assert_eq!(recorder.path, Path::new("out.mcap"));

    let overrides = Overrides {
        jsonl: Some("a.jsonl".into()),
        bag: Some("no/bag".into()),
        ..Overrides::default()
    };
    assert_eq!(
        lines(&parse(GOOD, &overrides).unwrap_err()),
        [
            "--bag:1:1: the bag no/bag cannot be found | no such file",
            "--jsonl:1:1: --jsonl needs one place to apply to | the file has 0 nodes of kind `jsonl`",
        ]
    );
}

#[test]
fn files_that_are_still_to_be_given_are_asked_for_before_a_run() {
    let pipeline = parse(GOOD, &Overrides::default()).unwrap();
    assert_eq!(
        lines(&pipeline.require_files().unwrap_err()),
        [
            "p.yaml:6:14: the model `nano` has no weights yet | empty: a file must be given",
            "p.yaml:16:3: the source `camera` has no bag yet | empty: the bag must be given",
        ]
    );
}

#[test]
fn paths_in_a_file_are_relative_to_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("models")).unwrap();
    std::fs::write(folder.path().join("models/a.onnx"), b"x").unwrap();
    let file = folder.path().join("p.yaml");
    std::fs::write(&file, GOOD.replace("weights: \"\"", "weights: models/a.onnx")).unwrap();
    let pipeline = Pipeline::load(&file, &Overrides::default()).unwrap();
    assert_eq!(
        pipeline.models["nano"].weights,
        Some(folder.path().join("models/a.onnx"))
    );
    // The same path given on the command line is relative to the working directory, where there is none.
    let error = Pipeline::load(&file, &set(&[("models.nano.weights", "models/a.onnx")])).unwrap_err();
    assert_eq!(
        lines(&error),
        ["--set:1:21: the weights models/a.onnx cannot be found | no such file"]
    );
}
