//! A run that is watched: metrics, status and health over HTTP, traces, and structured logs.

use crate::support;
use crate::tiny;
use crate::watched;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;
use tiny::{Lab, await_end, film};
use watched::{Watched, get, post};

const TOPIC: &str = "/camera/image";
const PERIOD_NS: u64 = 20_000_000;

/// Frames of which every fifth cannot be decoded.
fn damaged(count: usize) -> Vec<tiny::Frame> {
    let mut frames = film(TOPIC, count, PERIOD_NS);
    for (i, frame) in frames.iter_mut().enumerate() {
        if i % 5 == 4 {
            *frame = tiny::compressed(TOPIC, i as u64 * PERIOD_NS, "png", b"no picture");
        }
    }
    frames
}

/// Values of a family of the page of metrics, by labels and, for the parts of a histogram, name.
fn values(families: &Value, family: &str) -> BTreeMap<String, f64> {
    let samples = families[family]["samples"].as_array();
    let samples = samples.unwrap_or_else(|| panic!("no {family} in {families}"));
    samples
        .iter()
        .map(|sample| {
            let labels = sample["labels"].as_object().unwrap();
            let labels: Vec<String> = labels
                .iter()
                .map(|(k, v)| format!("{k}={}", v.as_str().unwrap()))
                .collect();
            let part = sample["name"].as_str().unwrap().strip_prefix(family).unwrap();
            (
                format!("{}{part}", labels.join(",")),
                sample["value"].as_f64().unwrap(),
            )
        })
        .collect()
}

#[test]
fn metrics_are_read_by_prometheus_own_parser_and_agree_with_the_status() {
    let lab = Lab::new();
    lab.bag(&damaged(3_000));
    let run = Watched::start(&lab, &["--rate", "1", "--jsonl", "out.jsonl"]);
    run.until(|status| status["streams"][0]["frames_out"].as_u64() >= Some(40));
    let first = run.status();
    let text = run.page("/metrics");
    let last = run.status();
    let outcome = run.end();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");

    assert_eq!(first["state"], "ready");
    assert_eq!(first["pipeline"], "tiny");
    let stream = &first["streams"][0];
    assert_eq!(stream["name"], TOPIC);
    let rate = stream["rate_hz"].as_f64().unwrap();
    assert!(
        (20.0..60.0).contains(&rate),
        "four of five frames at 50 Hz come out: {rate}"
    );
    assert!(stream["latency"]["p50_ms"].as_f64() > Some(0.0));
    assert_eq!(stream["drops"][0]["reason"], "decode_failed");
    let queues: Vec<&str> = first["queues"]
        .as_array()
        .unwrap()
        .iter()
        .map(|q| q["to"].as_str().unwrap())
        .collect();
    assert_eq!(queues, ["jsonl", "device", "detector/finish", "detector/prepare"]);
    let stages: Vec<&str> = first["stages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["stage"].as_str().unwrap())
        .collect();
    assert_eq!(
        stages,
        [
            "ingest", "prepare", "upload", "replay", "readback", "finish", "publish"
        ]
    );
    assert!(first["process"]["resident_bytes"].as_u64() > Some(1 << 20));

    // What grows lies between the two looks.
    let within = |value: f64, of: &dyn Fn(&Value) -> f64| {
        assert!(
            (of(&first)..=of(&last)).contains(&value),
            "{value} of {first} to {last}"
        );
    };
    let path = lab.path("metrics.txt");
    std::fs::write(&path, &text).unwrap();
    let Some(mut oracle) = support::oracle("prometheus_text.py") else {
        return;
    };
    let families: Value = serde_json::from_slice(&support::run(oracle.arg(&path))).unwrap();
    let frames = values(&families, "sensorium_frames");
    within(frames[&format!("edge=in,stream={TOPIC}_total")], &|s| {
        s["streams"][0]["frames_in"].as_f64().unwrap()
    });
    within(frames[&format!("edge=out,stream={TOPIC}_total")], &|s| {
        s["streams"][0]["frames_out"].as_f64().unwrap()
    });
    let drops = values(&families, "sensorium_drops");
    let bad = drops[&format!("place=detector/prepare,reason=decode_failed,stream={TOPIC}_total")];
    within(bad, &|s| s["streams"][0]["drops"][0]["count"].as_f64().unwrap());
    let stages = values(&families, "sensorium_stage_seconds");
    for stage in [
        "ingest", "prepare", "upload", "replay", "readback", "finish", "publish",
    ] {
        for part in ["wait", "service"] {
            let count = stages[&format!("part={part},stage={stage}_count")];
            within(count, &|s| s["streams"][0]["frames_out"].as_f64().unwrap());
        }
    }
    let total = values(&families, "sensorium_frame_seconds")[&format!("stream={TOPIC}_count")];
    within(total, &|s| s["streams"][0]["frames_out"].as_f64().unwrap());
    let busy = values(&families, "sensorium_device_busy_seconds");
    within(busy["queue=replay_total"], &|s| {
        s["device_use"]["replay_busy_s"].as_f64().unwrap()
    });
    let written = values(&families, "sensorium_sink_written");
    within(written["sink=jsonl_total"], &|s| {
        s["sinks"][0]["written"].as_f64().unwrap()
    });
    assert_eq!(values(&families, "sensorium_pipeline_state")["state=ready"], 1.0);
    let lengths = values(&families, "sensorium_queue_length");
    let capacities = values(&families, "sensorium_queue_capacity");
    assert_eq!(
        lengths.keys().collect::<Vec<_>>(),
        capacities.keys().collect::<Vec<_>>()
    );
    assert!(lengths.iter().all(|(queue, length)| *length <= capacities[queue]));
    assert_eq!(capacities["from=camera,to=detector/prepare"], 4.0);
    for family in [
        "sensorium_queue_oldest_age_seconds",
        "sensorium_queue_taken_age_seconds",
        "sensorium_queue_items",
        "sensorium_device_utilisation_ratio",
        "process_resident_memory_bytes",
        "process_cpu_seconds",
    ] {
        assert!(!values(&families, family).is_empty());
    }
}

#[test]
fn the_state_banks_that_streams_have_are_told_of_how_many() {
    let lab = Lab::new();
    let pipeline = "\
pipeline: states
device: { threads: 1, queues: 2, arena_mib: 64 }
models:
  memory: { type: stream_queries, seed: 5, memory_frames: 2, score_threshold: 0.05, max_streams: 3 }
nodes:
  cameras: { kind: source, topics: auto, clock: bag, rate: 1 }
  finder: { kind: detector, model: memory, input: cameras }
  jsonl: { kind: jsonl, input: finder, path: out.jsonl }
";
    std::fs::write(lab.path("tiny.yaml"), pipeline).unwrap();
    let image = tiny::numbered(0).0;
    // One stream from the first message on, another later.
    let frames: Vec<_> = (0..1_200)
        .flat_map(|i| {
            let at_ns = i * 100_000_000;
            let rear = (i >= 20).then(|| tiny::raw("/rear", at_ns + 1, &image));
            [Some(tiny::raw("/front", at_ns, &image)), rear]
        })
        .flatten()
        .collect();
    lab.bag(&frames);
    let run = Watched::start(&lab, &[]);
    let mut seen = Vec::new();
    for used in [1, 2] {
        run.until(|status| status["banks"][0]["used"] == used);
        let text = run.page("/metrics");
        let values = ["sensorium_banks_used", "sensorium_banks"].map(|family| {
            let line = format!("{family}{{model=\"finder\"}} ");
            let value = text.lines().find_map(|l| l.strip_prefix(&line));
            value.unwrap_or_else(|| panic!("no {family}: {text}")).to_owned()
        });
        seen.push(values);
    }
    let outcome = run.end();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(["1", "2"].contains(&&*seen[0][0]), "{seen:?}");
    assert_eq!(seen[1][0], "2");
    assert!(seen.iter().all(|[_, capacity]| capacity == "3"), "{seen:?}");
}

#[test]
fn a_late_frame_is_a_deadline_miss_in_the_metrics_and_in_the_summary() {
    let lab = Lab::new();
    lab.bag(&film(TOPIC, 3_000, PERIOD_NS));
    // No frame gets through in a millisecond's thousandth part of its queue.
    let run = Watched::start(&lab, &["--rate", "1000", "--set", "nodes.camera.deadline_ms=1"]);
    run.until(|status| status["streams"][0]["deadline_misses"].as_u64() >= Some(20));
    let (status, text) = (run.status(), run.page("/metrics"));
    let outcome = run.end();
    let misses = status["streams"][0]["deadline_misses"].as_u64().unwrap();
    let line = format!("sensorium_deadline_misses_total{{stream=\"{TOPIC}\"}} ");
    let told: u64 = text
        .lines()
        .find_map(|l| l.strip_prefix(&line))
        .unwrap()
        .parse()
        .unwrap();
    assert!(told >= misses, "{told} after {misses}");
    assert!(outcome.summary()["deadline"]["misses"].as_u64() >= Some(told));
}

#[test]
fn a_token_is_asked_for_and_what_is_wrong_is_told_as_json() {
    let lab = Lab::new();
    lab.bag(&film(TOPIC, 3_000, PERIOD_NS));
    std::fs::write(lab.path("token"), "a-token-of-some-length\n").unwrap();
    let run = Watched::start(&lab, &["--rate", "1", "--token-file", "token"]);
    let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
    let right = bearer("a-token-of-some-length");
    let asked = [
        ("/health", ""),
        ("/status", ""),
        ("/metrics", &bearer("another-token-of-this")),
        ("/status", &right),
        ("/", &right),
        ("/nothing", &right),
    ]
    .map(|(path, header)| get(run.address(), "GET", path, header));
    let posted = get(run.address(), "POST", "/status", &right);
    let outcome = run.end();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let codes = asked.each_ref().map(|(code, _)| *code);
    assert!([200, 503].contains(&codes[0]), "{codes:?}");
    assert_eq!(codes[1..], [401, 401, 200, 200, 404]);
    let json = |(_, body): &(u16, String)| -> Value { serde_json::from_str(body).unwrap() };
    assert_eq!(
        json(&asked[1])["detail"],
        "a token is required: Authorization: Bearer TOKEN"
    );
    assert!(json(&asked[4])["routes"]["GET /metrics"].is_string());
    assert_eq!(
        json(&asked[5])["detail"],
        "there is no /nothing; GET / lists what there is"
    );
    assert_eq!(posted.0, 405);
}

#[test]
fn clients_that_say_nothing_hold_no_frame_up() {
    let lab = Lab::new();
    lab.bag(&film(TOPIC, 150, PERIOD_NS));
    let run = Watched::start(&lab, &["--rate", "1"]);
    // More than there are places, some with half a request.
    let clients: Vec<TcpStream> = (0..48)
        .map(|i| {
            let mut client = TcpStream::connect(run.address()).unwrap();
            if i % 2 == 0 {
                client
                    .write_all(b"GET /status HTTP/1.1\r\nHost: localhost\r\n")
                    .unwrap();
            }
            client
        })
        .collect();
    let outcome = run.ended();
    assert_eq!(
        (outcome.code, outcome.frames()),
        (Some(0), [150, 150, 0, 0]),
        "{outcome:?}"
    );
    for mut client in clients {
        // Gone with the run, without an answer.
        let mut rest = Vec::new();
        let _ = client.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    }
}

#[test]
fn what_cannot_be_watched_is_told_before_the_run() {
    let lab = Lab::new();
    lab.bag(&film(TOPIC, 2, PERIOD_NS));
    std::fs::write(lab.path("short"), "short").unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (arguments, code, told) in [
        (
            vec!["--listen", "9100"],
            2,
            "expected ADDRESS:PORT, such as 127.0.0.1:9100",
        ),
        (vec!["--listen", &taken], 1, "cannot listen on 127.0.0.1:"),
        (
            vec!["--listen", "127.0.0.1:0", "--token-file", "short"],
            1,
            "a token of 5 characters can be guessed",
        ),
        (vec!["--token-file", "short"], 2, "--listen"),
        (
            vec!["--trace", "no/such/folder.json"],
            1,
            "the trace no/such/folder.json cannot be written",
        ),
        (vec!["--log-format", "xml"], 2, "possible values: text, json"),
    ] {
        let outcome = lab.run(&arguments);
        assert_eq!(outcome.code, Some(code), "{arguments:?}: {outcome:?}");
        assert!(outcome.told.contains(told), "{arguments:?}: {}", outcome.told);
    }
}

#[test]
fn logs_are_json_objects_with_the_values_as_fields() {
    let lab = Lab::new();
    lab.bag(&damaged(10));
    for by_environment in [false, true] {
        let mut command = lab.command(&["-vv"]);
        match by_environment {
            true => command.env("SENSORIUM_LOG_FORMAT", "json"),
            false => command.args(["--log-format", "json"]),
        };
        let output = command.output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        let lines: Vec<Value> = told
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
            .collect();
        let dropped: Vec<u64> = lines
            .iter()
            .filter(|line| line["message"] == "frame dropped")
            .map(|line| {
                assert_eq!(line["stream"], TOPIC);
                assert_eq!(line["place"], "detector/prepare");
                assert_eq!(
                    (&line["reason"], &line["level"]),
                    (&"decode_failed".into(), &"DEBUG".into())
                );
                line["seq"].as_u64().unwrap()
            })
            .collect();
        assert_eq!(dropped, [4, 9]);
        assert!(
            lines
                .iter()
                .all(|line| line["timestamp"].is_string() && line["target"].is_string())
        );
    }
    let mut command = lab.command(&[]);
    let outcome = tiny::outcome(command.env("SENSORIUM_LOG_FORMAT", "xml"));
    assert!(
        outcome
            .told
            .contains("SENSORIUM_LOG_FORMAT=\"xml\": expected text or json"),
        "{outcome:?}"
    );
}

#[test]
fn a_run_that_nobody_watches_listens_nowhere() {
    let lab = Lab::new();
    lab.bag(&film(TOPIC, 3, PERIOD_NS));
    let outcome = await_end(lab.start(&[]));
    assert_eq!(outcome.code, Some(0));
    assert!(!outcome.told.contains("http://"), "{}", outcome.told);
}

#[test]
fn top_shows_a_run_once_and_says_what_is_wrong_where_there_is_none() {
    let lab = Lab::new();
    lab.bag(&damaged(3_000));
    let run = Watched::start(&lab, &["--rate", "1", "--jsonl", "out.jsonl"]);
    run.until(|status| status["streams"][0]["drops"][0]["count"].as_u64() >= Some(4));
    let address = run.address().to_string();
    let mut command = tiny::sensorium();
    let shown = command.args(["top", &address, "--once"]).output().unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.status.success(),
        "{text} {}",
        String::from_utf8_lossy(&shown.stderr)
    );
    run.end();
    let line = |start: &str| {
        let mut lines = text.lines();
        lines
            .find(|line| line.starts_with(start))
            .unwrap_or_else(|| panic!("{start}: {text}"))
            .to_owned()
    };
    assert!(text.starts_with("tiny  ready  up 0:00:"), "{text}");
    let stream: Vec<String> = line(TOPIC).split_whitespace().map(str::to_owned).collect();
    let rate: f64 = stream[1].parse().unwrap();
    assert!((20.0..60.0).contains(&rate), "{text}");
    assert_eq!(stream[stream.len() - 1], "decode_failed", "{text}");
    for part in [
        "stage, ms",
        "replay",
        "queue",
        "camera → detector/prepare",
        "written: jsonl",
    ] {
        let _ = line(part);
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");

    let gone = tiny::outcome(tiny::sensorium().args(["top", &address, "--once"]));
    assert_eq!(gone.code, Some(1));
    assert!(
        gone.told.contains(&format!("no run answers at http://{address}")),
        "{gone:?}"
    );
    assert!(
        gone.told.contains("start the run with `--listen 127.0.0.1:9100`"),
        "{gone:?}"
    );
    let no_terminal = tiny::outcome(tiny::sensorium().args(["top", &address, "--columns", "100"]));
    assert_eq!(no_terminal.code, Some(2), "{no_terminal:?}");
}

#[test]
fn top_asks_with_a_token_where_one_is_required() {
    let lab = Lab::new();
    lab.bag(&film(TOPIC, 3_000, PERIOD_NS));
    std::fs::write(lab.path("token"), "a-token-of-some-length\n").unwrap();
    let run = Watched::start(&lab, &["--rate", "1", "--token-file", "token"]);
    let address = run.address().to_string();
    let top = || {
        let mut command = tiny::sensorium();
        command
            .args(["top", &address, "--once"])
            .env_remove("SENSORIUM_HTTP_TOKEN");
        command
    };
    let without = tiny::outcome(&mut top());
    let by_file = tiny::outcome(top().arg("--token-file").arg(lab.path("token")));
    let by_environment = tiny::outcome(top().env("SENSORIUM_HTTP_TOKEN", "a-token-of-some-length"));
    run.end();
    assert_eq!(
        (without.code, by_file.code, by_environment.code),
        (Some(1), Some(0), Some(0))
    );
    assert!(without.told.contains("asks for a token"), "{without:?}");
}

/// The stream of a name in a status.
fn stream_of<'a>(status: &'a Value, name: &str) -> &'a Value {
    let mut streams = status["streams"].as_array().unwrap().iter();
    streams
        .find(|stream| stream["name"] == name)
        .unwrap_or(&Value::Null)
}

/// Frames of a stream that were dropped for a reason.
fn dropped_for(status: &Value, stream: &str, reason: &str) -> u64 {
    let drops = stream_of(status, stream)["drops"].as_array().unwrap();
    let own = drops.iter().filter(|drop| drop["reason"] == reason);
    own.map(|drop| drop["count"].as_u64().unwrap()).sum()
}

#[test]
fn streams_are_paused_resumed_and_drained_over_http() {
    let lab = Lab::new();
    let mut frames = film("/front", 3_000, PERIOD_NS);
    frames.extend(film("/rear", 3_000, PERIOD_NS));
    frames.sort_by_key(|frame| frame.time_ns);
    lab.bag(&frames);
    let run = Watched::start(&lab, &["--rate", "1"]);
    let out = |status: &Value, stream: &str| stream_of(status, stream)["frames_out"].as_u64().unwrap_or(0);
    run.until(|status| out(status, "/rear") >= 10);

    let front = r#"{"stream": "/front"}"#;
    assert_eq!(
        post(run.address(), "/control/pause", "", front),
        (200, serde_json::json!({ "done": true }))
    );
    run.until(|status| dropped_for(status, "/front", "stream_paused") >= 10);
    assert_eq!(post(run.address(), "/control/resume", "", front).0, 200);
    let resumed = run.status();
    run.until(|status| out(status, "/front") >= out(&resumed, "/front") + 10);
    assert_eq!(
        post(run.address(), "/control/drain", "", r#"{"stream": "/rear"}"#).0,
        200
    );
    let told: Value = serde_json::from_str(&run.page("/control")).unwrap();
    assert_eq!(stream_of(&told, "/front")["flow"], "flowing");
    assert_eq!(stream_of(&told, "/rear"), &Value::Null, "it was drained: {told}");
    let status = run.status();
    assert_eq!(stream_of(&status, "/rear")["under_way"], 0);

    let refused = [
        (
            "/control/pause",
            "",
            r#"{"stream": "/side"}"#,
            404,
            "there is no stream `/side`; there is /front",
        ),
        (
            "/control/pause",
            "",
            r#"{"topic": "/front"}"#,
            422,
            "unknown field `topic`",
        ),
        ("/control/pause", "", "{", 400, "EOF"),
        (
            "/control/set_param",
            "",
            r#"{"node": "nobody", "name": "a", "value": 1}"#,
            404,
            "there is no detector `nobody`",
        ),
        (
            "/control/pause",
            "Origin: http://elsewhere\r\n",
            front,
            403,
            "not changed from a web page",
        ),
    ];
    for (path, headers, body, code, told) in refused {
        let answer = post(run.address(), path, headers, body);
        let error = answer.1["detail"].as_str().unwrap();
        assert_eq!(answer.0, code, "{path} {body}: {error}");
        assert!(error.contains(told), "{path} {body}: {error}");
    }
    let (code, _) = get(
        run.address(),
        "POST",
        "/control/pause",
        "Content-Type: text/plain\r\nContent-Length: 0\r\n",
    );
    assert_eq!(code, 415);

    let file = std::fs::read_to_string(lab.path("tiny.yaml")).unwrap();
    let with =
        |threshold: &str| file.replace("score_threshold: 0.3", &format!("score_threshold: {threshold}"));
    std::fs::write(lab.path("tiny.yaml"), with("0.35")).unwrap();
    let (code, report) = post(run.address(), "/control/reload", "", "");
    assert_eq!(
        (code, report["done"].as_array().map(Vec::len)),
        (200, Some(1)),
        "{report}"
    );
    std::fs::write(lab.path("tiny.yaml"), with("none")).unwrap();
    let (code, told) = post(run.address(), "/control/reload", "", "");
    assert_eq!(code, 422, "{told}");
    let outcome = run.end();
    let [came, out, dropped, lost] = outcome.frames();
    assert_eq!(
        (outcome.code, came, lost),
        (Some(0), out + dropped, 0),
        "{outcome:?}"
    );
}

#[test]
fn an_address_that_others_reach_takes_changes_only_with_a_token() {
    let lab = Lab::new();
    lab.bag(&film(TOPIC, 3_000, PERIOD_NS));
    std::fs::write(lab.path("token"), "a-token-of-some-length\n").unwrap();
    let pause = format!(r#"{{"stream": "{TOPIC}"}}"#);
    let bearer = "Authorization: Bearer a-token-of-some-length\r\n";
    for (options, header, code) in [(vec![], "", 403), (vec!["--token-file", "token"], bearer, 200)] {
        let mut arguments = vec!["--rate", "1", "--listen", "0.0.0.0:0"];
        arguments.extend(options);
        let run = Watched::start_on(&lab, &arguments);
        let far = run.address();
        let near = std::net::SocketAddr::new(std::net::Ipv4Addr::LOCALHOST.into(), far.port());
        let told = |(found, _): (u16, String)| found;
        while told(get(near, "GET", "/health", "")) != 200 {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let answer = post(near, "/control/pause", header, &pause);
        assert_eq!(answer.0, code, "{answer:?}");
        assert!(
            run.head().contains("other machines can reach this address"),
            "{}",
            run.head()
        );
        let _ = run.end();
    }
}
