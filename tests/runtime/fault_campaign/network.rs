//! The network fails: a router goes, a sensor falls silent.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sensorium::io::messages::IMAGE_TYPE;
use sensorium::io::ros::zenoh::ZenohNode;
use sensorium::io::ros::{Qos, RosNode};

use crate::fault_campaign::watch::{Watch, longest_pause_ms, row, within_reason};
use crate::fault_campaign::{FRAMES, PERIOD_NS, TOPIC, campaign};
use crate::ros::{PATIENCE, endpoint, free_port, session, settings, wait_for};
use crate::tiny::{self, Lab, await_end, film};

/// A router of ours on this port.
fn router(port: u16) -> Child {
    tiny::sensorium()
        .args(["router", "--listen", &format!("tcp/127.0.0.1:{port}")])
        .env("ZENOH_CONFIG_OVERRIDE", "scouting/multicast/enabled=false")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn end(mut router: Child) {
    router.kill().unwrap();
    router.wait().unwrap();
}

/// What a run said that ended too early.
fn told(child: &mut Child) -> String {
    let mut told = String::new();
    if let Some(stderr) = &mut child.stderr {
        stderr.read_to_string(&mut told).unwrap();
    }
    told
}

fn client(port: u16) -> Option<zenoh::Session> {
    use zenoh::Wait;
    let mut config = zenoh::Config::default();
    for (key, value) in [
        ("mode", "\"client\"".to_owned()),
        ("connect/endpoints", format!("[\"tcp/127.0.0.1:{port}\"]")),
        ("scouting/multicast/enabled", "false".to_owned()),
    ] {
        config.insert_json5(key, &value).unwrap();
    }
    zenoh::open(config).wait().ok()
}

#[test]
fn a_router_that_goes_and_comes_back_costs_what_was_published_meanwhile() {
    use zenoh::Wait;
    campaign(|random| {
        let lab = Lab::new();
        let frames = 3 * FRAMES;
        lab.bag(&film(TOPIC, frames, PERIOD_NS));
        let port = free_port();
        let first = router(port);
        let mut joined = None;
        wait_for("a router", || {
            joined = client(port);
            joined.is_some()
        });
        let session = joined.unwrap();
        let heard = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&heard);
        let subscriber = session
            .declare_subscriber("sensorium/**")
            .callback(move |_| {
                counter.fetch_add(1, Ordering::Relaxed);
            })
            .wait()
            .unwrap();
        let publisher = format!(
            "  zenoh: {{ kind: publisher, transport: zenoh, input: detector, mode: client, connect: [tcp/127.0.0.1:{port}] }}\nchannels:"
        );
        let file = std::fs::read_to_string(lab.path("tiny.yaml")).unwrap();
        std::fs::write(lab.path("tiny.yaml"), file.replace("channels:", &publisher)).unwrap();
        let watch = Watch::file(&lab.path("out.jsonl"));
        let mut child = lab.start(&["--rate", "1", "--jsonl", "out.jsonl"]);
        wait_for("results before the router goes", || {
            assert!(child.try_wait().unwrap().is_none(), "{}", told(&mut child));
            heard.load(Ordering::Relaxed) > 10
        });
        end(first);
        let gone_ms = 300 + random.below(1_000) as u64;
        std::thread::sleep(Duration::from_millis(gone_ms));
        let before = heard.load(Ordering::Relaxed);
        let second = router(port);
        let back = Instant::now();
        wait_for("results after the router is back", || {
            heard.load(Ordering::Relaxed) > before
        });
        let recovery_ms = back.elapsed().as_millis();
        let run = within_reason(child);
        let came = watch.end();
        end(second);
        drop(subscriber);
        assert_eq!(
            (run.code, run.frames()),
            (Some(0), [frames as u64, frames as u64, 0, 0]),
            "{run:?}"
        );
        assert_eq!(lab.lines("out.jsonl").len(), frames, "the other output is whole");
        assert!(longest_pause_ms(&came) < PATIENCE.as_millis());
        row(
            "router gone and back",
            format!("away for {gone_ms} ms"),
            &run,
            Some(recovery_ms),
        )
    });
}

const LIVE: &str = "\
pipeline: tiny
device: { threads: 1, queues: 2, arena_mib: 16 }
ros2:
  node: detector
  namespace: /perception
  domain: 42
  listen: ['tcp/127.0.0.1:PORT']
models:
  squares:
    type: yolox
    weights: squares.onnx
    preprocess: yolox_opencv
    labels: colours.txt
    score_threshold: 0.3
    nms_threshold: 0.45
nodes:
  camera: { kind: source, subscribe: ros2, topics: [/camera/image] }
  detector: { kind: detector, model: squares, input: camera }
  jsonl: { kind: jsonl, input: detector, path: out.jsonl }
";

#[test]
fn a_sensor_that_falls_silent_is_served_again_when_it_speaks() {
    campaign(|random| {
        let lab = Lab::new();
        let port = free_port();
        std::fs::write(lab.path("live.yaml"), LIVE.replace("PORT", &port.to_string())).unwrap();
        let watch = Watch::file(&lab.path("out.jsonl"));
        let child = tiny::sensorium()
            .current_dir(lab.path(""))
            .args(["run", "live.yaml", "--format", "json"])
            .env("ZENOH_CONFIG_OVERRIDE", "connect/endpoints=[]")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let peer = ZenohNode::open(&settings("driver", session(None, Some(port)))).unwrap();
        let camera = peer
            .publisher(&endpoint(TOPIC, IMAGE_TYPE, Qos::sensor_data(5)))
            .unwrap();
        let images: Vec<Vec<u8>> = (0..FRAMES)
            .map(|i| tiny::raw(TOPIC, i as u64 * PERIOD_NS, &tiny::numbered(i).0).data)
            .collect();
        let lines = || std::fs::read_to_string(lab.path("out.jsonl")).map_or(0, |text| text.lines().count());
        // Until the program is there, messages go nowhere.
        wait_for("a first result", || {
            camera.publish(images[0].clone()).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            lines() > 0
        });
        let speak = |images: &[Vec<u8>]| {
            for image in images {
                camera.publish(image.clone()).unwrap();
                std::thread::sleep(Duration::from_nanos(PERIOD_NS));
            }
        };
        let silent_at = 30 + random.below(60);
        speak(&images[1..silent_at]);
        let silent_ms = 500 + random.below(1_000) as u64;
        std::thread::sleep(Duration::from_millis(silent_ms));
        let before = lines();
        let again = Instant::now();
        camera.publish(images[silent_at].clone()).unwrap();
        wait_for("a result after the silence", || lines() > before);
        let recovery_ms = again.elapsed().as_millis();
        speak(&images[silent_at + 1..]);
        let stamp_of_last = (tiny::START_NS + (FRAMES as u64 - 1) * PERIOD_NS).to_string();
        wait_for("the last result", || {
            std::fs::read_to_string(lab.path("out.jsonl"))
                .unwrap()
                .contains(&stamp_of_last)
        });
        let sent = Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
        let run = await_end(child);
        watch.end();
        assert_eq!(run.code, Some(0), "{run:?}");
        let place = format!("frame {silent_at}, for {silent_ms} ms");
        row("source stall", place, &run, Some(recovery_ms))
    });
}
