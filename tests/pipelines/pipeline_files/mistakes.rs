//! Mistakes in a file: each is told with its place and what was meant.

use sensorium::pipeline::{OnFull, Overrides};

use crate::pipeline_files::{GOOD, errors, parse, render, set};

/// What in the good file is replaced, by what, and all that must then be said.
const MISTAKES: &[(&str, &str, &[&str])] = &[
    // Words.
    (
        "kind: source",
        "kind: sorce",
        &["p.yaml:17:11: `nodes.camera.kind` cannot be `sorce` | did you mean `source`?"],
    ),
    (
        "kind: source",
        "knd: source",
        &[
            "p.yaml:16:3: `nodes.camera` has no `kind` | expected `kind:` with `source`, `detector`, `publisher`, `recorder`, `jsonl`, `compute`, `sync` or `concat`",
        ],
    ),
    (
        "type: yolox",
        "type: resnet",
        &[
            "p.yaml:5:11: `models.nano.type` cannot be `resnet` | expected `yolox`, `fastestdet`, `centerpoint`, `bev_ring`, `stream_queries` or `bundle`",
        ],
    ),
    (
        "preprocess: yolox_opencv",
        "preprocess: yolox_opencv\n    weight_format: bfp9",
        &["p.yaml:8:20: `models.nano.weight_format` cannot be `bfp9` | did you mean `bfp8`?"],
    ),
    (
        "preprocess: yolox_opencv",
        "preprocess: yolox_opencv\n    weight_format: int4",
        &[
            "p.yaml:8:20: `models.nano.weight_format` cannot be `int4` | expected `fp32`, `bf16`, `fp16`, `fp8_e4m3`, `fp8_e5m2`, `fp8_e3m4`, `bfp8` or `bfp4`",
        ],
    ),
    (
        "preprocess: yolox_opencv",
        "preprocess: yolox_opencv\n    weights_format: bfp8",
        &["p.yaml:8:5: unknown key `weights_format` in `models.nano` | did you mean `weight_format`?"],
    ),
    (
        "on_full: drop_oldest",
        "on_full: drop-oldest",
        &["p.yaml:29:59: `channels.edges.0.on_full` cannot be `drop-oldest` | did you mean `drop_oldest`?"],
    ),
    (
        "rate: 1.0",
        "rate: maks",
        &["p.yaml:18:11: `nodes.camera.rate` cannot be `maks` | did you mean `max`?"],
    ),
    (
        "threads: 2",
        "threads: many",
        &[
            "p.yaml:2:34: `device.threads` cannot be `many` | expected `auto`, or a whole number from 1 to 256",
        ],
    ),
    // Keys.
    (
        "score_threshold: 0.3",
        "scor_threshold: 0.3",
        &["p.yaml:9:5: unknown key `scor_threshold` in `models.nano` | did you mean `score_threshold`?"],
    ),
    (
        "device:",
        "devise:",
        &["p.yaml:2:1: unknown key `devise` in the pipeline | did you mean `device`?"],
    ),
    (
        "    rate: 1.0\n",
        "    rate: 1.0\n    zoom: 2\n",
        &["p.yaml:19:5: unknown key `zoom` in `nodes.camera` | not known here"],
    ),
    (
        "    rate: 1.0\n",
        "    rate: 1.0\n    rate: 2\n",
        &["p.yaml:19:5: `nodes.camera.rate` is there twice | the second one"],
    ),
    (
        "pipeline: front\n",
        "",
        &[
            "p.yaml:1:1: the pipeline has no `pipeline` | expected `pipeline:` with a name of small letters, digits, `_` and `-`",
        ],
    ),
    (
        "    model: nano\n",
        "",
        &["p.yaml:20:3: `nodes.detector` has no `model` | expected `model:` with text"],
    ),
    // Faults and restarts of the device.
    (
        "arena_mib: 64",
        "fault: { faults: [ { kind: loose_event, at: { nth: 1 } } ] }",
        &["p.yaml:2:75: `device.fault.faults.0.kind` cannot be `loose_event` | did you mean `lose_event`?"],
    ),
    (
        "arena_mib: 64",
        "fault: { faults: [ { kind: lose_event, at: { nth: 1, from: 2 } } ] }",
        &[
            "p.yaml:2:87: `device.fault.faults.0.at` takes exactly one key | expected one of `nth`, `from` and `chance_per_million`",
        ],
    ),
    (
        "arena_mib: 64",
        "fault: { faults: [ { kind: lose_event, at: {} } ] }",
        &[
            "p.yaml:2:87: `device.fault.faults.0.at` takes exactly one key | expected one of `nth`, `from` and `chance_per_million`",
        ],
    ),
    (
        "arena_mib: 64",
        "fault: { faults: [ { kind: lose_event, at: { nth: 0 } } ] }",
        &[
            "p.yaml:2:98: `device.fault.faults.0.at.nth` cannot be 0 | expected a whole number from 1 to 1000000000",
        ],
    ),
    (
        "arena_mib: 64",
        "fault: { faults: [ { kind: refuse, cal: write, at: { nth: 1 } } ] }",
        &["p.yaml:2:83: unknown key `cal` in `device.fault.faults.0` | did you mean `call`?"],
    ),
    (
        "arena_mib: 64",
        "fault: { faults: [ { kind: refuse, call: wrte, at: { nth: 1 } } ] }",
        &["p.yaml:2:89: `device.fault.faults.0.call` cannot be `wrte` | did you mean `write`?"],
    ),
    (
        "arena_mib: 64",
        "fault: { faults: [ { kind: slow, at: { nth: 1 } } ] }",
        &[
            "p.yaml:2:69: `device.fault.faults.0` has no `factor` | expected `factor:` with a whole number from 2 to 1000000",
        ],
    ),
    (
        "arena_mib: 64",
        "restart: { limit: -1 }",
        &["p.yaml:2:66: `device.restart.limit` cannot be -1 | expected a whole number from 0 to 1000"],
    ),
    (
        "arena_mib: 64",
        "restart: { limits: 1 }",
        &["p.yaml:2:59: unknown key `limits` in `device.restart` | did you mean `limit`?"],
    ),
    (
        "arena_mib: 64",
        "frame_deadline_ms: 5",
        &["p.yaml:2:67: `device.frame_deadline_ms` cannot be 5 | expected a whole number from 10 to 3600000"],
    ),
    // Types and ranges.
    (
        "capacity: 8",
        "capacity: 0",
        &["p.yaml:29:47: `channels.edges.0.capacity` cannot be 0 | expected a whole number from 1 to 65536"],
    ),
    (
        "capacity: 4",
        "capacity: 65537",
        &[
            "p.yaml:27:24: `channels.default.capacity` cannot be 65537 | expected a whole number from 1 to 65536",
        ],
    ),
    (
        "capacity: 4",
        "capacity: 4.5",
        &[
            "p.yaml:27:24: `channels.default.capacity` cannot be 4.5 | expected a whole number from 1 to 65536",
        ],
    ),
    (
        "capacity: 4",
        "capacity: 340282366920938463463374607431768211455",
        &[
            "p.yaml:27:24: `channels.default.capacity` cannot be 340282366920938500000000000000000000000 | expected a whole number from 1 to 65536",
        ],
    ),
    (
        "score_threshold: 0.3",
        "score_threshold: 1.01",
        &["p.yaml:9:22: `models.nano.score_threshold` cannot be 1.01 | expected a number from 0 to 1"],
    ),
    (
        "nms_threshold: 0.45",
        "nms_threshold: -1",
        &["p.yaml:10:20: `models.nano.nms_threshold` cannot be -1 | expected a number from 0 to 1"],
    ),
    (
        "nms_threshold: 0.45",
        "nms_threshold: '0.45'",
        &[
            "p.yaml:10:20: `models.nano.nms_threshold` cannot be the text \"0.45\" | expected a number from 0 to 1",
        ],
    ),
    (
        "rate: 1.0",
        "rate: 0",
        &[
            "p.yaml:18:11: `nodes.camera.rate` cannot be 0 | expected a number above 0 and at most 1000, or `max`",
        ],
    ),
    (
        "rate: 1.0",
        "rate: -2.5",
        &[
            "p.yaml:18:11: `nodes.camera.rate` cannot be -2.5 | expected a number above 0 and at most 1000, or `max`",
        ],
    ),
    (
        "rate: 1.0",
        "rate: [1]",
        &[
            "p.yaml:18:5: `nodes.camera.rate` cannot be a list | expected a number above 0 and at most 1000, or `max`",
        ],
    ),
    (
        "topics: [/a, /b]",
        "topics: []",
        &["p.yaml:19:5: `nodes.camera.topics` cannot be empty | expected a list, each item text"],
    ),
    (
        "topics: [/a, /b]",
        "topics: [/a, 7]",
        &["p.yaml:19:18: `nodes.camera.topics.1` cannot be 7 | expected text"],
    ),
    (
        "threads: 2",
        "threads: 0",
        &["p.yaml:2:34: `device.threads` cannot be 0 | expected `auto`, or a whole number from 1 to 256"],
    ),
    (
        "queues: 2",
        "queues: true",
        &["p.yaml:2:45: `device.queues` cannot be true | expected a whole number from 1 to 2"],
    ),
    (
        "labels: coco80",
        "labels:",
        &[
            "p.yaml:4:3: `models.nano` has no `labels` | expected `labels:` with `coco80` or the path of a text file with one name a line",
        ],
    ),
    // Names and references.
    (
        "pipeline: front",
        "pipeline: Front Left",
        &[
            "p.yaml:1:11: `pipeline` cannot be the text \"Front Left\" | expected a name of small letters, digits, `_` and `-`",
        ],
    ),
    (
        "tape:",
        "Tape:",
        &[
            "p.yaml:25:3: \"Tape\" is no name for an entry of `nodes` | a name of small letters, digits, `_` and `-`",
        ],
    ),
    (
        "tape:",
        "device:",
        &["p.yaml:25:3: a node cannot be called `device` | this is the name of the device's owner"],
    ),
    (
        "input: camera",
        "input: camara",
        &["p.yaml:23:12: there is no node `camara` | did you mean `camera`?"],
    ),
    (
        "input: camera",
        "input: [camera, camera]",
        &["p.yaml:23:21: `camera` feeds `detector` twice | already in the list"],
    ),
    (
        "model: nano",
        "model: nono",
        &["p.yaml:22:12: there is no model `nono` | did you mean `nano`?"],
    ),
    (
        "from: camera",
        "from: camra",
        &["p.yaml:29:15: there is no node `camra` | did you mean `camera`?"],
    ),
    (
        "from: camera",
        "from: out",
        &["p.yaml:29:15: `out` does not feed `detector` | `detector` is fed by `camera`"],
    ),
    (
        "  edges:\n",
        "  edges:\n    - { from: camera, to: detector }\n",
        &["p.yaml:30:15: the channel from `camera` to `detector` is there twice | already in the list"],
    ),
    // Connections.
    (
        "input: detector\n  camera",
        "input: camera\n  camera",
        &[
            "p.yaml:15:12: `out` is a publisher and cannot be fed by the source `camera` | expected a detector",
        ],
    ),
    (
        "input: camera",
        "input: [camera, out]",
        &[
            "p.yaml:23:21: the nodes feed each other in a circle: detector -> out -> detector | this input closes the circle",
        ],
    ),
    (
        "input: camera",
        "input: [camera, detector]",
        &[
            "p.yaml:23:21: the nodes feed each other in a circle: detector -> detector | this input closes the circle",
        ],
    ),
    (
        "kind: source\n    rate: 1.0\n    topics: [/a, /b]",
        "kind: jsonl\n    input: detector",
        &[
            "p.yaml:11:1: the pipeline has no source | expected at least one node of kind `source`",
            "p.yaml:18:12: the nodes feed each other in a circle: camera -> detector -> camera | this input closes the circle",
        ],
    ),
    (
        "preprocess: yolox_opencv",
        "preprocess: fastestdet_opencv",
        &["p.yaml:7:17: a yolox network cannot be fed by `fastestdet_opencv` | expected `yolox_opencv`"],
    ),
    (
        "preprocess: yolox_opencv",
        "preprocess: sceneseg\n    upload: uint8",
        &["p.yaml:8:13: `sceneseg` normalises pixels, which bytes leave out | expected `bf16` or `fp32`"],
    ),
    (
        "preprocess: yolox_opencv",
        "preprocess: yolox_opencv\n    upload: fp32\n    contraction: fused",
        &[
            "p.yaml:9:18: pre-processing preset yolox_opencv: no floats are blended, so there is no contraction to choose | not with this preset",
        ],
    ),
    (
        "preprocess: yolox_opencv",
        "preprocess: bevfusion\n    decode_to_scale: true",
        &["p.yaml:8:22: `bevfusion` counts out the pixels of whole images | expected `false`"],
    ),
    // Files and keys of zenoh.
    (
        "weights: \"\"",
        "weights: no/such.onnx",
        &["p.yaml:6:14: the weights no/such.onnx cannot be found | no such file"],
    ),
    (
        "labels: coco80",
        "labels: coco81",
        &["p.yaml:8:13: the labels coco81 cannot be found | no such file"],
    ),
    (
        "transport: zenoh",
        "transport: zenoh\n    key: a//{node}",
        &[
            "p.yaml:15:10: \"a//{node}\" is no key that can be published | expected parts joined by `/`, none of them empty, without * $ ? #",
        ],
    ),
    (
        "transport: zenoh",
        "transport: zenoh\n    key: '{name}/x'",
        &[
            "p.yaml:15:10: \"{name}/x\" is no key that can be published | expected parts joined by `/`, none of them empty, without * $ ? #",
        ],
    ),
    (
        "transport: zenoh",
        "transport: zenoh\n    connect: [localhost]",
        &["p.yaml:15:15: \"localhost\" is no endpoint | expected tcp/HOST:PORT"],
    ),
    // ROS 2.
    (
        "transport: zenoh",
        "transport: zenoh\n    topic: ~/out",
        &["p.yaml:15:12: a publisher with transport `zenoh` has no `topic` | leave this out"],
    ),
    (
        "transport: zenoh",
        "transport: ros2\n    key: a/b\n    connect: [tcp/localhost:1]",
        &[
            "p.yaml:15:10: a publisher with transport `ros2` has no `key` | leave this out",
            "p.yaml:16:14: a publisher with transport `ros2` has no `connect` | leave this out",
        ],
    ),
    (
        "transport: zenoh",
        "transport: ros2\n    topic: /a//b",
        &[
            "p.yaml:15:12: `nodes.out.topic` cannot be the text \"/a//b\" | expected a topic such as /a/b, ~/a or ~/{stream}/a",
        ],
    ),
    (
        "models:",
        "ros2: { node: a/b, domain: 233, remap: { a b: /x, '~/x': y/ }, listen: [localhost] }\nmodels:",
        &[
            "p.yaml:3:15: `ros2.node` cannot be the text \"a/b\" | expected a name of letters, digits and `_`, no digit first",
            "p.yaml:3:28: `ros2.domain` cannot be 233 | expected a whole number from 0 to 232",
            "p.yaml:3:42: \"a b\" is no name for an entry of `ros2.remap` | a topic such as /a/b, a/b or ~/a",
            "p.yaml:3:58: `ros2.remap.~/x` cannot be the text \"y/\" | expected a topic such as /a/b, a/b or ~/a",
            "p.yaml:3:73: \"localhost\" is no endpoint | expected tcp/HOST:PORT",
        ],
    ),
    (
        "rate: 1.0",
        "rate: 1.0\n    subscribe: ros2",
        &["p.yaml:18:11: live messages come when they come: `rate` is for bags and drives | leave this out"],
    ),
    (
        "rate: 1.0\n    topics: [/a, /b]",
        "subscribe: ros2\n    clock: deterministic",
        &[
            "p.yaml:18:16: the source `camera` subscribes to no topic | expected a list of `topics` beside this",
            "p.yaml:19:12: live messages come when they come: `clock` is for bags and drives | leave this out",
        ],
    ),
    (
        "rate: 1.0",
        "subscribe: ros2\n    simulate: { seconds: 1 }",
        &[
            "p.yaml:19:15: the source `camera` plays a bag, simulates a drive or subscribes, not two of them | leave this out, or `subscribe`",
        ],
    ),
    // Several frames at a time.
    (
        "preprocess: yolox_opencv",
        "preprocess: yolox_opencv\n    batch: { sizes: [4, 2] }",
        &[
            "p.yaml:8:21: the batch sizes of `models.nano` are not in order | expected each size once, the smallest first",
        ],
    ),
    (
        "preprocess: yolox_opencv",
        "preprocess: yolox_opencv\n    batch: { sizes: [] }",
        &[
            "p.yaml:8:14: `models.nano.batch.sizes` cannot be empty | expected a list, each item a whole number from 2 to 64",
        ],
    ),
    (
        "preprocess: yolox_opencv",
        "preprocess: yolox_opencv\n    batch: { sizes: [1] }",
        &["p.yaml:8:22: `models.nano.batch.sizes.0` cannot be 1 | expected a whole number from 2 to 64"],
    ),
    (
        "preprocess: yolox_opencv",
        "preprocess: yolox_opencv\n    batch: { sizes: [2, 12] }",
        &[
            "p.yaml:8:21: a batch of 12 has a frame of 12 streams, and `models.nano` serves 8 | expected sizes up to 8, or `max_streams: 12`",
        ],
    ),
    (
        "preprocess: yolox_opencv",
        "preprocess: yolox_opencv\n    batch: { sizes: [2, 4] }\n    max_in_flight: 3",
        &["p.yaml:9:20: a batch of 4 never fills with 3 frames in flight | expected at least 4"],
    ),
    (
        "type: yolox\n    weights: \"\"\n    preprocess: yolox_opencv\n    labels: coco80\n    score_threshold: 0.3\n    nms_threshold: 0.45",
        "type: centerpoint\n    weights: \"\"\n    batch: { sizes: [2] }",
        &[
            "p.yaml:7:12: a centerpoint network takes one frame at a time: it keeps earlier frames of each stream | leave this out",
        ],
    ),
    (
        "prepare_workers: 2",
        "prepare_workers: 2\n    on_late: skip",
        &["p.yaml:25:14: `nodes.detector.on_late` cannot be `skip` | expected `run` or `drop`"],
    ),
    // YAML itself.
    (
        "channels:",
        "channels",
        &["p.yaml:26:1: this is no YAML that can be read | simple key expected ':'"],
    ),
];

#[test]
fn each_mistake_is_told_with_its_place_and_what_was_meant() {
    let mut wrong = Vec::new();
    for &(good, bad, expected) in MISTAKES {
        assert_eq!(
            GOOD.matches(good).count(),
            usize::from(GOOD.contains(good)).max(1),
            "{good}"
        );
        let told = errors(&GOOD.replacen(good, bad, 1));
        if told != expected {
            wrong.push(format!("{bad}\n  told     {told:#?}\n  expected {expected:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn all_errors_of_a_file_are_told_at_once_in_the_order_of_the_file() {
    let text = GOOD
        .replace("pipeline: front", "pipeline: Front")
        .replace("queues: 2", "queues: 3")
        .replace("input: camera", "input: camara")
        .replace("capacity: 4", "capacity: 0");
    let places: Vec<String> = errors(&text)
        .iter()
        .map(|l| l.split(": ").next().unwrap().to_owned())
        .collect();
    assert_eq!(
        places,
        ["p.yaml:1:11", "p.yaml:2:45", "p.yaml:23:12", "p.yaml:27:24"]
    );
}

#[test]
fn an_error_shows_file_line_column_the_source_and_advice() {
    let text = GOOD.replace("on_full: drop_oldest", "on_full: drop_old");
    let shown = render(&parse(&text, &Overrides::default()).unwrap_err());
    insta::assert_snapshot!("one_error", shown);
    let text = GOOD.replace("    rate: 1.0\n", "    rate: 1.0\n    rate: 2\n    zoom: 1\n");
    let shown = render(&parse(&text, &Overrides::default()).unwrap_err());
    insta::assert_snapshot!("two_errors", shown);
}

#[test]
fn what_hardly_can_be_meant_is_warned_of() {
    let warnings = |text: &str| -> Vec<String> {
        let pipeline = parse(text, &Overrides::default()).unwrap();
        pipeline.warnings.iter().map(|problem| render(problem)).collect()
    };
    let unread = warnings(&GOOD.replace("nodes:\n", "nodes:\n  spare: { kind: source }\n"));
    assert!(
        unread.len() == 1 && unread[0].contains("nothing reads what `spare` yields"),
        "{unread:?}"
    );
    let model = "  unused:\n    type: fastestdet\n    weights: ''\n    preprocess: fastestdet_opencv\n    labels: coco80\n    \
                 score_threshold: 0\n    nms_threshold: 1\n";
    let unused = warnings(&GOOD.replace("nodes:\n", &format!("{model}nodes:\n")));
    assert!(
        unused.len() == 1 && unused[0].contains("the model `unused` is not used"),
        "{unused:?}"
    );
    let sinkless = GOOD
        .replace(
            "  out:\n    kind: publisher\n    transport: zenoh\n    input: detector\n",
            "",
        )
        .replace("  tape: { kind: recorder, input: detector }\n", "");
    let sinkless = warnings(&sinkless);
    assert!(sinkless[0].contains("the pipeline has no sink"), "{sinkless:?}");
}

#[test]
fn a_deterministic_run_drops_nothing_and_says_so() {
    let pipeline = parse(GOOD, &set(&[("nodes.camera.clock", "deterministic")])).unwrap();
    assert!(pipeline.edges.iter().all(|edge| edge.on_full == OnFull::Block));
    assert_eq!(pipeline.warnings.len(), 1);
    let shown = render(&pipeline.warnings[0]);
    assert!(
        shown.contains("p.yaml:29:59") && shown.contains("`drop_oldest` is not used"),
        "{shown}"
    );

    let mixed = GOOD.replace(
        "nodes:\n",
        "nodes:\n  rear: { kind: source, clock: deterministic }\n",
    );
    let told = errors(&mixed);
    assert!(
        told[0].starts_with("p.yaml:12:32: one source cannot be deterministic while"),
        "{told:?}"
    );
}
