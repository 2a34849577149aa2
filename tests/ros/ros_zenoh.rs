//! Nodes of the ROS 2 graph over zenoh: among themselves, and with a reader and a writer in Python that share none of
//! our code.

use crate::ros;
use crate::support;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use ros::{PATIENCE, endpoint, free_port, listen, session, settings, wait_for};
use sensorium::io::messages::{HeaderMsg, POINT_CLOUD_TYPE, PointCloud2Msg, STRING_TYPE, StringMsg};
use sensorium::io::ros::wire::{Attachment, EntityKind, Gid, HashMode, data_key};
use sensorium::io::ros::zenoh::{SessionSettings, ZenohNode, ZenohNodeSettings};
use sensorium::io::ros::{Durability, Endpoint, History, Qos, RosError, RosNode};
use serde_json::Value;
use zenoh::Wait;

fn text(text: &str) -> Vec<u8> {
    StringMsg { data: text }.encode().unwrap()
}

#[test]
fn two_nodes_find_each_other_and_talk() {
    let port = free_port();
    let talker = ZenohNode::open(&settings("talker", session(Some(port), None))).unwrap();
    let listener = ZenohNode::open(&settings("listener", session(None, Some(port)))).unwrap();
    assert_eq!(talker.name(), "/perception/talker");

    let chatter = endpoint("/chatter", STRING_TYPE, Qos::reliable(10));
    let publisher = talker.publisher(&chatter).unwrap();
    assert!(!publisher.has_subscribers());
    let (subscription, messages) = listen(&listener, &chatter);
    wait_for("the talker sees its listener", || publisher.has_subscribers());
    wait_for("the listener sees its talker", || subscription.has_publishers());
    for i in 0..5 {
        publisher.publish(text(&format!("hello {i}"))).unwrap();
    }
    for i in 0..5 {
        let message = messages.recv_timeout(PATIENCE).unwrap();
        assert_eq!(message.data, text(&format!("hello {i}")));
        assert_eq!(message.missed_before, 0);
        assert!(message.source_time_ns.unwrap() > 1_700_000_000_000_000_000);
    }
    // Both know both nodes and both endpoints.
    for node in [&talker, &listener] {
        wait_for("four tokens", || node.graph().len() == 4);
        let kinds: Vec<_> = node
            .graph()
            .into_iter()
            .map(|token| {
                (
                    token.node.name().to_owned(),
                    token.entity.map(|entity| (entity.kind, entity.topic)),
                )
            })
            .collect();
        for expected in [
            ("talker", None),
            ("talker", Some((EntityKind::Publisher, "/chatter".to_owned()))),
            ("listener", None),
            (
                "listener",
                Some((EntityKind::Subscription, "/chatter".to_owned())),
            ),
        ] {
            assert!(kinds.contains(&(expected.0.to_owned(), expected.1)), "{kinds:?}");
        }
    }
    drop(subscription);
    wait_for("the talker sees that nobody listens", || {
        !publisher.has_subscribers()
    });
    listener.close().unwrap();
    wait_for("the talker is alone", || talker.graph().len() == 2);
    talker.close().unwrap();
}

#[test]
fn a_subscription_may_be_there_before_anybody_can_be_reached() {
    let port = free_port();
    let listener = ZenohNode::open(&settings("listener", session(None, Some(port)))).unwrap();
    let chatter = endpoint("/chatter", STRING_TYPE, Qos::reliable(10));
    let (subscription, messages) = listen(&listener, &chatter);
    let talker = ZenohNode::open(&settings("talker", session(Some(port), None))).unwrap();
    let publisher = talker.publisher(&chatter).unwrap();
    wait_for("the talker sees its listener", || publisher.has_subscribers());
    wait_for("the listener sees its talker", || subscription.has_publishers());
    for i in 0..5 {
        publisher.publish(text(&format!("hello {i}"))).unwrap();
    }
    for i in 0..5 {
        let message = messages.recv_timeout(PATIENCE).unwrap();
        assert_eq!(message.data, text(&format!("hello {i}")));
    }
    listener.close().unwrap();
    talker.close().unwrap();
}

#[test]
fn a_late_subscription_gets_what_is_latched_and_nothing_else() {
    let port = free_port();
    let early = ZenohNode::open(&settings("early", session(Some(port), None))).unwrap();
    let latched = endpoint("/map", STRING_TYPE, Qos::latched(2));
    let volatile = endpoint("/news", STRING_TYPE, Qos::reliable(2));
    let (map, news) = (
        early.publisher(&latched).unwrap(),
        early.publisher(&volatile).unwrap(),
    );
    for i in 0..4 {
        map.publish(text(&format!("map {i}"))).unwrap();
        news.publish(text(&format!("news {i}"))).unwrap();
    }
    let late = ZenohNode::open(&settings("late", session(None, Some(port)))).unwrap();
    let (_map, maps) = listen(&late, &latched);
    let (_news, all_news) = listen(&late, &volatile);
    for i in 2..4 {
        assert_eq!(
            maps.recv_timeout(PATIENCE).unwrap().data,
            text(&format!("map {i}"))
        );
    }
    wait_for("the news have a reader", || news.has_subscribers());
    news.publish(text("news 4")).unwrap();
    assert_eq!(all_news.recv_timeout(PATIENCE).unwrap().data, text("news 4"));
    map.publish(text("map 4")).unwrap();
    assert_eq!(maps.recv_timeout(PATIENCE).unwrap().data, text("map 4"));
    late.close().unwrap();
    early.close().unwrap();
}

#[test]
fn a_gap_in_the_numbers_is_told_and_strangers_are_heard() {
    let port = free_port();
    let node = ZenohNode::open(&settings("reader", session(Some(port), None))).unwrap();
    let topic = endpoint("/gaps", STRING_TYPE, Qos::sensor_data(5));
    let (_subscription, messages) = listen(&node, &topic);
    let mut config = zenoh::Config::default();
    for (key, value) in [
        ("connect/endpoints", format!("[\"tcp/127.0.0.1:{port}\"]")),
        ("scouting/multicast/enabled", "false".into()),
    ] {
        config.insert_json5(key, &value).unwrap();
    }
    let stranger = zenoh::open(config).wait().unwrap();
    let key = data_key(42, &topic, HashMode::Rihs01).unwrap();
    let publisher = stranger.declare_publisher(key).wait().unwrap();
    wait_for("the stranger is connected", || {
        publisher.matching_status().wait().unwrap().matching()
    });
    let send = |sequence| {
        let attachment = Attachment {
            sequence,
            source_time_ns: 7,
            gid: Gid([9; 16]),
        };
        let put = publisher.put(text("x")).attachment(attachment.encode());
        put.wait().unwrap();
    };
    for (sequence, missed) in [(3, 0), (4, 0), (8, 3), (9, 0)] {
        send(sequence);
        let message = messages.recv_timeout(PATIENCE).unwrap();
        assert_eq!((message.missed_before, message.source_time_ns), (missed, Some(7)));
    }
    publisher.put(text("without")).attachment(b"33?").wait().unwrap();
    let message = messages.recv_timeout(PATIENCE).unwrap();
    assert_eq!((message.data, message.source_time_ns), (text("without"), None));
    node.close().unwrap();
}

#[test]
fn nodes_that_know_a_router_alone_find_each_other() {
    let port = free_port();
    let listen_on = format!("tcp/127.0.0.1:{port}");
    let router = crate::tiny::sensorium()
        .args(["router", "--listen", &listen_on])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut router = Ended(router);
    let mut line = String::new();
    BufReader::new(router.0.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(line.contains("the router runs"), "{line}");
    let talker = ZenohNode::open(&settings("talker", session(None, Some(port)))).unwrap();
    let listener = ZenohNode::open(&settings("listener", session(None, Some(port)))).unwrap();
    let chatter = endpoint("/chatter", STRING_TYPE, Qos::reliable(10));
    let publisher = talker.publisher(&chatter).unwrap();
    let (_subscription, messages) = listen(&listener, &chatter);
    wait_for("the talker sees its listener", || publisher.has_subscribers());
    publisher.publish(text("hello")).unwrap();
    assert_eq!(messages.recv_timeout(PATIENCE).unwrap().data, text("hello"));
    listener.close().unwrap();
    talker.close().unwrap();
}

/// A process that does not outlive the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn nodes_of_humble_meet_on_keys_without_a_hash() {
    let port = free_port();
    let humble = |name: &str, session| ZenohNodeSettings {
        hash_mode: HashMode::Humble,
        ..settings(name, session)
    };
    let talker = ZenohNode::open(&humble("talker", session(Some(port), None))).unwrap();
    let listener = ZenohNode::open(&humble("listener", session(None, Some(port)))).unwrap();
    let jazzy = ZenohNode::open(&settings("jazzy", session(None, Some(port)))).unwrap();
    let chatter = endpoint("/chatter", STRING_TYPE, Qos::reliable(10));
    let publisher = talker.publisher(&chatter).unwrap();
    let (_a, heard) = listen(&listener, &chatter);
    let (_b, not_heard) = listen(&jazzy, &chatter);
    wait_for("both listen", || talker.graph().len() == 6);
    publisher.publish(text("hello")).unwrap();
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap().data, text("hello"));
    assert!(not_heard.try_recv().is_err());
    for node in [&talker, &listener, &jazzy] {
        node.close().unwrap();
    }
}

#[test]
fn names_and_types_that_ros_does_not_have_are_refused() {
    let node = ZenohNode::open(&settings("n", session(Some(free_port()), None))).unwrap();
    let good = endpoint("/t", STRING_TYPE, Qos::reliable(1));
    for topic in ["t", "/a//b", "/a b", "~/t"] {
        let topic = Endpoint {
            topic: topic.into(),
            ..good.clone()
        };
        assert!(node.publisher(&topic).is_err(), "{topic:?}");
    }
    let short = Endpoint {
        type_name: "String".into(),
        ..good
    };
    assert!(matches!(node.publisher(&short), Err(RosError::Endpoint { .. })));
    node.close().unwrap();
}

/// A program in Python that speaks rmw_zenoh by itself; see tests/oracles/ros_peer.py.
struct Peer {
    _child: Ended,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Peer {
    fn start(arguments: &[&str]) -> Option<Self> {
        let mut child = support::oracle("ros_peer.py")?
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Some(Self {
            _child: Ended(child),
            lines,
        })
    }

    fn line(&mut self) -> Value {
        serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap()
    }
}

/// A cloud of some size whose bytes count up.
fn cloud(points: usize) -> Vec<u8> {
    let data: Vec<u8> = (0..points * 16).map(|i| (i % 251) as u8).collect();
    PointCloud2Msg {
        header: HeaderMsg::new(12_000_000_034, "lidar").unwrap(),
        height: 1,
        width: points as u32,
        point_step: 16,
        row_step: points as u32 * 16,
        data: &data,
        is_dense: true,
        ..PointCloud2Msg::default()
    }
    .encode()
    .unwrap()
}

#[test]
fn python_reads_what_we_publish() {
    let port = free_port();
    let node = ZenohNode::open(&settings("talker", session(Some(port), None))).unwrap();
    let points = endpoint("/sensing/points", POINT_CLOUD_TYPE, Qos::reliable(1));
    let publisher = node.publisher(&points).unwrap();
    let Some(mut peer) = Peer::start(&[
        "listen",
        &port.to_string(),
        "42",
        "/sensing/points",
        "sensor_msgs/msg/PointCloud2",
        "3",
    ]) else {
        return;
    };
    wait_for("the peer subscribes", || publisher.has_subscribers());
    let sizes = [0, 10, 300_000];
    for size in sizes {
        publisher.publish(cloud(size)).unwrap();
    }
    let before = std::time::SystemTime::now();
    let now_ns = before.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as i64;
    let token = format!(
        "{}",
        node.graph()
            .iter()
            .find(|token| {
                token
                    .entity
                    .as_ref()
                    .is_some_and(|entity| entity.kind == EntityKind::Publisher)
            })
            .unwrap()
    );
    for (i, size) in sizes.into_iter().enumerate() {
        let sample = peer.line();
        assert_eq!(sample["sequence"], i as i64 + 1);
        assert!((sample["source_time_ns"].as_i64().unwrap() - now_ns).abs() < 60_000_000_000);
        assert_eq!(sample["gid_is_of_token"], token.as_str());
        assert_eq!(sample["width"], size);
        assert_eq!(sample["stamp"], serde_json::json!([12, 34]));
        assert_eq!(sample["frame_id"], "lidar");
        let sum: u64 = (0..size * 16).map(|i| (i % 251) as u64).sum();
        assert_eq!(sample["data_sum"], sum);
    }
    // What the peer sees of the graph, by its own reading of the tokens.
    let graph = peer.line();
    let node_line = serde_json::json!({"node": "/perception/talker", "kind": "NN"});
    let publisher_line = serde_json::json!({
        "node": "/perception/talker", "kind": "MP", "topic": "/sensing/points",
        "type": "sensor_msgs/msg/PointCloud2", "hash_is_right": true, "qos": "::,1:,:,:,,",
    });
    let lines = graph["graph"].as_array().unwrap();
    assert!(lines.contains(&node_line), "{lines:?}");
    assert!(lines.contains(&publisher_line), "{lines:?}");
    node.close().unwrap();
}

#[test]
fn we_read_what_python_publishes_latched_or_not() {
    let port = free_port();
    let node = ZenohNode::open(&settings("listener", session(Some(port), None))).unwrap();
    // Latched: published before we subscribe.
    let Some(mut peer) = Peer::start(&["talk", &port.to_string(), "42", "/latched", "latched"]) else {
        return;
    };
    assert_eq!(peer.line()["published"], 3);
    let (subscription, messages) = listen(&node, &endpoint("/latched", STRING_TYPE, Qos::latched(1)));
    let message = messages.recv_timeout(PATIENCE).unwrap();
    assert_eq!(StringMsg::decode(&message.data).unwrap().data, "message 2");
    assert_eq!(message.missed_before, 0);
    wait_for("the talker is on the graph", || subscription.has_publishers());
    drop(peer);

    let topic = endpoint("/plain", STRING_TYPE, Qos::reliable(1));
    let (_subscription, messages) = listen(&node, &topic);
    let Some(_peer) = Peer::start(&["talk", &port.to_string(), "42", "/plain", "volatile"]) else {
        return;
    };
    for i in 0..3 {
        let message = messages.recv_timeout(PATIENCE).unwrap();
        assert_eq!(
            StringMsg::decode(&message.data).unwrap().data,
            format!("message {i}")
        );
        assert_eq!(message.missed_before, 0);
    }
    node.close().unwrap();
}

#[test]
fn a_reliable_publisher_that_keeps_all_loses_nothing() {
    let port = free_port();
    // Nothing waits for the network but what has to.
    let hasty = SessionSettings {
        patience: Some(Duration::ZERO),
        ..session(Some(port), None)
    };
    let talker = ZenohNode::open(&settings("talker", hasty)).unwrap();
    let listener = ZenohNode::open(&settings("listener", session(None, Some(port)))).unwrap();
    let qos = Qos {
        history: History::KeepAll,
        durability: Durability::Volatile,
        ..Qos::reliable(1)
    };
    let topic = endpoint("/all", POINT_CLOUD_TYPE, qos);
    let publisher = talker.publisher(&topic).unwrap();
    let (_subscription, messages) = listen(&listener, &topic);
    wait_for("the talker sees its listener", || publisher.has_subscribers());
    let message = cloud(20_000);
    for _ in 0..200 {
        publisher.publish(message.clone()).unwrap();
    }
    for _ in 0..200 {
        let received = messages.recv_timeout(PATIENCE).unwrap();
        assert_eq!((received.missed_before, received.data.len()), (0, message.len()));
    }
    listener.close().unwrap();
    talker.close().unwrap();
}
