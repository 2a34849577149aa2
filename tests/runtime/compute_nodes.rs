//! Compute nodes: the reference system, what is counted, and what a file may say.

use crate::tiny;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use sensorium::pipeline::{Overrides, Pipeline};
use sensorium::telemetry::bench::{BenchResult, ScenarioKind};
use sensorium::telemetry::graph::{GraphKpis, NodeKpis};
use tiny::{outcome, sensorium};

/// `bench` on a pipeline of compute nodes.
fn bench(text: &str, seconds: &str) -> BenchResult {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("graph.yaml");
    std::fs::write(&file, text).unwrap();
    let run = outcome(sensorium().arg("bench").arg(&file).args([
        "--duration",
        seconds,
        "--warm-up",
        "0",
        "--format",
        "json",
    ]));
    assert_eq!(run.code, Some(0), "{run:?}");
    let result: BenchResult = serde_json::from_str(&run.out).unwrap();
    assert!(result.incomplete.is_empty(), "{:?}", result.incomplete);
    for stream in &result.streams {
        let frames = stream.frames;
        assert_eq!(frames.frames_in, frames.frames_out + frames.dropped, "{stream:?}");
    }
    result
}

fn node<'a>(graph: &'a GraphKpis, name: &str) -> &'a NodeKpis {
    graph.nodes.iter().find(|node| node.name == name).unwrap()
}

fn shipped() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("pipelines/reference_system.yaml"))
        .unwrap()
}

#[test]
fn the_reference_system_has_its_nodes_and_tells_its_key_figures() {
    // Little work, for builds that are not optimized.
    let result = bench(&shipped().replace("primes: 4096", "primes: 64"), "2");
    assert_eq!(result.scenario.name, ScenarioKind::Timers);
    let graph = result.graph.unwrap();
    let count = |role: &str| graph.nodes.iter().filter(|node| node.role == role).count();
    let roles = [
        "sensor",
        "transform",
        "fusion",
        "cyclic",
        "intersection",
        "command",
    ]
    .map(count);
    assert_eq!((graph.nodes.len(), roles), (24, [6, 9, 5, 1, 1, 2]));
    // Two seconds of timers of 100, 100, 120, 60, 100 and 25 ms.
    let sensors: Vec<u64> = graph
        .nodes
        .iter()
        .filter(|n| n.role == "sensor")
        .map(|n| n.runs)
        .collect();
    assert_eq!(sensors, [20, 20, 17, 34, 20, 80]);
    let estimator = node(&graph, "object_collision_estimator").chain.clone().unwrap();
    assert_eq!(
        (estimator.from.as_str(), estimator.samples),
        ("front_lidar_driver", 20)
    );
    assert_eq!(estimator.reached + estimator.lost, 20);
    assert!(estimator.reached > 0, "{estimator:?}");
    assert_eq!(estimator.latency.unwrap().n, estimator.reached);
    let planner = node(&graph, "behavior_planner");
    assert!(
        planner.timer.unwrap().period_us == 100_000.0 && planner.runs >= 2,
        "{planner:?}"
    );
    let transforms = graph.nodes.iter().filter(|node| node.role == "transform");
    assert_eq!(
        graph.transform_drops,
        transforms.map(|node| node.drops).sum::<u64>()
    );
    assert!(graph.nodes.iter().all(|node| node.runs > 0), "{graph:?}");
    assert!(node(&graph, "vehicle_dbw_system").runs <= node(&graph, "vehicle_interface").runs);
}

#[test]
fn channels_that_block_lose_nothing_and_routes_lead_where_they_say() {
    let result = bench(
        "\
pipeline: graph
nodes:
  fast: { kind: compute, role: sensor, period_ms: 10 }
  slow: { kind: compute, role: sensor, period_ms: 25 }
  cross:
    kind: compute
    role: intersection
    input: [fast, slow]
    payload_bytes: 1000000
    routes: { fast: work, slow: [out, both] }
  work: { kind: compute, role: transform, input: cross, cost: { micros: 50 }, latency_from: fast }
  both: { kind: compute, role: command, input: [cross, work] }
  out: { kind: compute, role: command, input: cross, latency_from: slow }
channels:
  default: { capacity: 8, on_full: block }
",
        "1",
    );
    let graph = result.graph.unwrap();
    let runs = ["fast", "slow", "cross", "work", "both", "out"].map(|name| node(&graph, name).runs);
    assert_eq!(runs, [100, 40, 140, 100, 140, 40]);
    assert!(graph.nodes.iter().all(|node| node.drops == 0), "{graph:?}");
    for (name, samples) in [("work", 100), ("out", 40)] {
        let chain = node(&graph, name).chain.clone().unwrap();
        assert_eq!(
            (chain.samples, chain.reached, chain.lost),
            (samples, samples, 0),
            "{name}"
        );
        // The work is part of the chain.
        let service = node(&graph, name).service.unwrap();
        assert!(chain.latency.unwrap().min_us >= service.min_us, "{chain:?}");
    }
    let forward = result
        .streams
        .iter()
        .find(|stream| stream.name == "cross -> work")
        .unwrap();
    assert_eq!((forward.frames.frames_in, forward.frames.frames_out), (100, 100));
}

#[test]
fn what_a_slow_node_cannot_take_is_dropped_and_counted() {
    let result = bench(
        "\
pipeline: graph
nodes:
  sensor: { kind: compute, role: sensor, period_ms: 5 }
  slow: { kind: compute, role: transform, input: sensor, cost: { micros: 100000 }, latency_from: sensor }
  out: { kind: compute, role: command, input: slow }
channels:
  default: { capacity: 1, on_full: drop_oldest }
",
        "1",
    );
    let graph = result.graph.unwrap();
    let slow = node(&graph, "slow");
    assert_eq!(node(&graph, "sensor").runs, 200);
    assert!(slow.drops > 0 && slow.runs + slow.drops == 200, "{slow:?}");
    assert_eq!(graph.transform_drops, slow.drops);
    let chain = slow.chain.clone().unwrap();
    assert_eq!((chain.reached, chain.lost), (slow.runs, slow.drops));
    assert_eq!(node(&graph, "out").runs, slow.runs);
}

#[test]
fn a_graph_without_a_load_runs_until_it_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("graph.yaml");
    let text = "\
pipeline: graph
nodes:
  sensor: { kind: compute, role: sensor, period_ms: 5 }
  out: { kind: compute, role: command, input: sensor }
";
    std::fs::write(&file, text).unwrap();
    let mut child = sensorium()
        .env("SENSORIUM_LOG", "info")
        .arg("run")
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
    let started = told.any(|line| line.unwrap().contains("the graph runs until it is stopped"));
    assert!(started && child.try_wait().unwrap().is_none());
    let interrupt = Command::new("kill")
        .arg("-INT")
        .arg(child.id().to_string())
        .status();
    assert!(interrupt.unwrap().success());
    // What it still logs must not fill the pipe.
    let rest = std::thread::spawn(move || told.count());
    let output = child.wait_with_output().unwrap();
    rest.join().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{told}");
    assert!(
        told.contains("sensor -> out") && told.contains("2 compute nodes"),
        "{told}"
    );
    assert!(!told.contains("stopped before the end"), "{told}");
}

const GOOD: &str = "\
pipeline: graph
nodes:
  sensor: { kind: compute, role: sensor, period_ms: 10 }
  other: { kind: compute, role: sensor, period_ms: 10 }
  fusion: { kind: compute, role: fusion, input: [sensor, other], cost: { primes: 10 } }
  cross: { kind: compute, role: intersection, input: [sensor, other], routes: { sensor: out, other: out } }
  out: { kind: compute, role: command, input: [fusion, cross], latency_from: sensor }
";

#[test]
fn mistakes_are_told_with_their_place_and_what_would_do() {
    let parse = |text: &str| {
        Pipeline::parse(
            Path::new("p.yaml"),
            text.to_owned(),
            &Overrides::default(),
            &|_| Err(std::env::VarError::NotPresent),
        )
    };
    let good = parse(GOOD).unwrap();
    assert!(good.warnings.is_empty());
    assert_eq!(good.plan().channels.len(), 6);
    let mistakes = [
        ("role: sensor, period_ms: 10", "role: sensor", "has no period"),
        (
            "role: sensor, period_ms: 10",
            "role: senser, period_ms: 10",
            "did you mean `sensor`?",
        ),
        (
            "role: fusion,",
            "role: fusion, period_ms: 5,",
            "has no `period_ms`",
        ),
        (
            "input: [sensor, other], cost",
            "input: sensor, cost",
            "expected two or more nodes",
        ),
        (
            "role: fusion, input: [sensor, other]",
            "role: transform, input: [sensor, other]",
            "expected one `input`",
        ),
        (
            "cost: { primes: 10 }",
            "cost: { primes: 10, micros: 3 }",
            "not both",
        ),
        (
            "cost: { primes: 10 }",
            "cost: { prime: 10 }",
            "did you mean `primes`?",
        ),
        ("cost: { primes: 10 }", "cost: { primes: 0 }", "from 1 to"),
        (
            "latency_from: sensor",
            "latency_from: senor",
            "did you mean `sensor`?",
        ),
        (
            "routes: { sensor: out, other: out }",
            "routes: { sensor: out }",
            "expected a route of `other`",
        ),
        (
            "routes: { sensor: out,",
            "routes: { sensor: fusion,",
            "has not `cross` as its input",
        ),
        (
            "routes: { sensor: out,",
            "routes: { fusion: out, sensor: out,",
            "`fusion` does not feed `cross`",
        ),
        (
            ", routes: { sensor: out, other: out }",
            "",
            "expected `routes` beside this",
        ),
        (
            "role: fusion,",
            "role: fusion, routes: { sensor: out },",
            "has no `routes`",
        ),
        (
            "input: [fusion, cross]",
            "input: [fusion, crss]",
            "there is no node `crss`",
        ),
    ];
    for (from, to, told) in mistakes {
        assert!(GOOD.contains(from), "{from}");
        let error = parse(&GOOD.replacen(from, to, 1)).expect_err(to);
        let all: Vec<String> = error
            .problems()
            .iter()
            .map(|problem| serde_json::to_string(&problem.to_record()).unwrap())
            .collect();
        assert!(
            all.iter().any(|problem| problem.contains(told)),
            "{to}: {told}: {all:#?}"
        );
    }
    let mixed = format!("{GOOD}  jsonl: {{ kind: jsonl, input: fusion, path: out.jsonl }}\n");
    let error = parse(&mixed).unwrap_err();
    assert!(
        error
            .problems()
            .iter()
            .any(|p| p.to_string().contains("cannot be fed by the compute"))
    );
}
