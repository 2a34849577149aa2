//! DDS endpoints against Eclipse Cyclone DDS, which ROS 2's rmw_cyclonedds is made of, and against themselves. Only
//! loopback is used.

use crate::support;
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use sensorium::io::drive_bag::{POINTS_TOPIC, TF_STATIC_TOPIC, TF_TOPIC, drive_messages};
use sensorium::io::messages::{
    DETECTED_OBJECTS_TYPE, DetectedObjectsMsg, HeaderMsg, POINT_CLOUD_TYPE, PointCloud2Msg, PointFieldMsg,
    TF_TYPE, field_type,
};
use sensorium::io::ros::dds::{DdsNode, DdsSettings};
use sensorium::io::ros::{
    Endpoint, History, NodeName, OnMessage, Qos, Received, RosError, RosNode, RosPublisher, RosSubscription,
    TypeHash,
};
use sensorium::io::sim::{Drive, DriveConfig};
use serde_json::{Value, json};

/// How long anything may take that must happen.
const PATIENCE: Duration = Duration::from_secs(180);
/// A small cloud, and one that travels in many fragments.
const SIZES: [usize; 2] = [208, 1_600_000];

/// A domain that no other test of this process uses, nor, most likely, another process.
fn free_domain() -> u32 {
    /// More than there are tests.
    const TESTS: u32 = 16;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = std::process::id() % 12 * TESTS + NEXT.fetch_add(1, Ordering::Relaxed) % TESTS;
    20 + number
}

fn node(domain: u32, name: &str) -> DdsNode {
    let networks = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
    DdsNode::open(&DdsSettings {
        name: NodeName::of_full(name).unwrap(),
        domain,
        networks,
        humble: false,
    })
    .unwrap()
}

fn clouds(topic: &str, qos: Qos) -> Endpoint {
    Endpoint {
        topic: topic.to_owned(),
        type_name: POINT_CLOUD_TYPE.to_owned(),
        // Not told on DDS.
        type_hash: TypeHash([0; 32]),
        qos,
    }
}

/// A cloud of `bytes` bytes that differ from cloud to cloud.
fn cloud(number: u32, bytes: usize) -> Vec<u8> {
    let mut state = number;
    let data: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
    .take(bytes)
    .collect();
    let field = |name, offset| PointFieldMsg {
        name,
        offset,
        datatype: field_type::FLOAT32,
        count: 1,
    };
    PointCloud2Msg {
        header: HeaderMsg::new(1_600_000_000_000_000_001 + i64::from(number), "base_link").unwrap(),
        height: 1,
        width: (bytes / 16) as u32,
        fields: [
            field("x", 0),
            field("y", 4),
            field("z", 8),
            field("intensity", 12),
        ]
        .into_iter()
        .collect(),
        is_bigendian: false,
        point_step: 16,
        row_step: bytes as u32,
        data: &data,
        is_dense: number.is_multiple_of(2),
    }
    .encode()
    .unwrap()
}

/// What a message says, as the peer says it.
fn said(message: &[u8]) -> Value {
    let cloud = PointCloud2Msg::decode(message).unwrap();
    json!({
        "stamp_ns": cloud.header.stamp_ns(),
        "frame_id": cloud.header.frame_id,
        "height": cloud.height,
        "width": cloud.width,
        "fields": cloud.fields.iter()
            .map(|f| json!([f.name, f.offset, f.datatype, f.count]))
            .collect::<Vec<_>>(),
        "point_step": cloud.point_step,
        "row_step": cloud.row_step,
        "is_dense": cloud.is_dense,
        "bytes": cloud.data.len(),
        "crc32": crc32fast::hash(cloud.data),
    })
}

/// Waits for what has to happen.
fn until(what: &str, happened: impl Fn() -> bool) {
    for _ in 0..PATIENCE.as_millis() / 10 {
        if happened() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}: not within {PATIENCE:?}");
}

/// Hands messages on to a channel.
fn into_channel() -> (OnMessage, mpsc::Receiver<Received>) {
    let (tell, told) = mpsc::channel();
    // A test that is done does not listen any more.
    (Box::new(move |message| drop(tell.send(message))), told)
}

fn subscribe(node: &DdsNode, endpoint: &Endpoint) -> (Box<dyn RosSubscription>, mpsc::Receiver<Received>) {
    let (on_message, messages) = into_channel();
    (node.subscribe(endpoint, on_message).unwrap(), messages)
}

fn next(messages: &mpsc::Receiver<Received>) -> Received {
    messages.recv_timeout(PATIENCE).expect("a message")
}

/// Whether a message is the one that was sent. DDS fills it up to a multiple of four bytes.
fn is_same(received: &Received, sent: &[u8]) -> bool {
    let (message, padding) = received.data.split_at(sent.len());
    message == sent && padding.len() < 4 && padding.iter().all(|&byte| byte == 0)
}

/// A process that dies with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The peer in another process.
struct Peer {
    _process: Running,
    lines: mpsc::Receiver<String>,
    /// Held open: the end of its input tells the peer to end.
    _input: ChildStdin,
}

impl Peer {
    /// Starts it and waits until it is on the network.
    fn start(args: &[&str]) -> Option<Self> {
        let mut process = support::oracle("dds_peer.py")?
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (tell, lines) = mpsc::channel();
        let output = BufReader::new(process.stdout.take().unwrap());
        std::thread::spawn(move || {
            output
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| tell.send(line))
        });
        let input = process.stdin.take().unwrap();
        let peer = Self {
            _process: Running(process),
            lines,
            _input: input,
        };
        assert_eq!(peer.line(), "ready");
        Some(peer)
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a line of the peer")
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.line()).unwrap()
    }

    /// The next line that is none of `earlier`.
    fn next_other_than(&self, earlier: &[Value], patience: Duration) -> Option<Value> {
        std::iter::from_fn(|| self.lines.recv_timeout(patience).ok())
            .map(|line| serde_json::from_str(&line).unwrap())
            .find(|said| !earlier.contains(said))
    }
}

#[test]
fn cyclone_dds_gets_the_clouds_that_are_published() {
    let domain = free_domain();
    for (name, qos) in [("reliable", Qos::reliable(1)), ("sensor", Qos::sensor_data(5))] {
        let (topic, dds_topic) = (format!("/{name}/points"), format!("rt/{name}/points"));
        let Some(peer) = Peer::start(&["subscribe", &domain.to_string(), &dds_topic, name, "1000"]) else {
            return;
        };
        let node = node(domain, "/sensing/talker");
        let publisher = node.publisher(&clouds(&topic, qos)).unwrap();
        until("a subscription is found", || publisher.has_subscribers());
        // The other side may not know the publisher yet, and what it does not expect is lost.
        let greeting = cloud(100, 16);
        until("the subscription gets the first cloud", || {
            publisher.publish(greeting.clone()).unwrap();
            peer.lines.recv_timeout(Duration::from_millis(200)).is_ok()
        });
        let mut earlier = vec![said(&greeting)];
        for (number, size) in SIZES.into_iter().enumerate() {
            let message = cloud(number as u32, size);
            // Only best effort may lose one.
            let sendings = if name == "sensor" { 20 } else { 1 };
            let arrived = (0..sendings).find_map(|_| {
                publisher.publish(message.clone()).unwrap();
                peer.next_other_than(&earlier, PATIENCE / sendings)
            });
            assert_eq!(arrived, Some(said(&message)), "{name}");
            earlier.push(said(&message));
        }
        node.close().unwrap();
    }
}

#[test]
fn clouds_of_cyclone_dds_arrive_as_they_were_published() {
    let domain = free_domain();
    for (name, qos) in [("reliable", Qos::reliable(10)), ("latched", Qos::latched(10))] {
        let [small, large] = SIZES.map(|size| size.to_string());
        let dds_topic = format!("rt/{name}/points");
        let Some(peer) = Peer::start(&["publish", &domain.to_string(), &dds_topic, name, &small, &large])
        else {
            return;
        };
        let node = node(domain, "/perception/listener");
        let (subscription, messages) = subscribe(&node, &clouds(&format!("/{name}/points"), qos));
        for size in SIZES {
            let message = next(&messages);
            assert_eq!(said(&message.data), peer.json(), "{name}");
            assert!(message.data.len() > size && message.data.starts_with(&[0, 1]));
            // RustDDS does not keep the time of a message that came in fragments.
            let sent_lately = |time| time > 1_700_000_000_000_000_000;
            assert!(message.source_time_ns.is_some_and(sent_lately) || size > 60_000);
            assert_eq!(message.missed_before, 0);
        }
        until("the publisher is known", || subscription.has_publishers());
        drop(peer);
        node.close().unwrap();
    }
}

#[test]
fn cyclone_dds_gets_what_was_published_before_it_came() {
    let domain = free_domain();
    let node = node(domain, "/late");
    let publisher = node.publisher(&clouds("/map", Qos::latched(1))).unwrap();
    let message = cloud(5, 4096);
    publisher.publish(message.clone()).unwrap();
    let Some(peer) = Peer::start(&["subscribe", &domain.to_string(), "rt/map", "latched", "1"]) else {
        return;
    };
    assert_eq!(peer.json(), said(&message));
}

#[test]
fn the_graph_of_ros_2_knows_a_node_with_its_endpoints() {
    let domain = free_domain();
    let Some(peer) = Peer::start(&["graph", &domain.to_string(), "lidar_centerpoint"]) else {
        return;
    };
    let node = node(domain, "/perception/object_recognition/lidar_centerpoint");
    let (_subscription, _messages) = subscribe(&node, &clouds("/input", Qos::sensor_data(1)));
    let _publisher = node.publisher(&clouds("/output", Qos::reliable(1))).unwrap();
    assert_eq!(
        peer.json(),
        json!({
            "namespace": "/perception/object_recognition",
            "name": "lidar_centerpoint",
            "readers": 1,
            "writers": 1,
            "of_this_participant": true,
        })
    );
}

#[test]
fn two_nodes_find_each_other_and_part() {
    let domain = free_domain();
    let (talker, listener) = (node(domain, "/talker"), node(domain, "/listener"));
    let endpoint = clouds("/points", Qos::reliable(10));
    let publisher = talker.publisher(&endpoint).unwrap();
    assert!(!publisher.has_subscribers());
    let (subscription, messages) = subscribe(&listener, &endpoint);
    until("both know each other", || {
        publisher.has_subscribers() && subscription.has_publishers()
    });
    for (number, size) in SIZES.into_iter().enumerate() {
        let message = cloud(number as u32, size);
        publisher.publish(message.clone()).unwrap();
        let received = next(&messages);
        assert!(is_same(&received, &message), "{size} bytes");
        assert_eq!(received.missed_before, 0);
    }

    drop(subscription);
    until("the publisher is told", || !publisher.has_subscribers());
    publisher.publish(cloud(9, 16)).unwrap();
    talker.close().unwrap();
    assert!(
        messages.recv().is_err(),
        "no message comes to a subscription that was dropped"
    );
    listener.close().unwrap();
}

#[test]
fn messages_that_arrive_are_not_counted_as_missed() {
    let domain = free_domain();
    let (talker, listener) = (node(domain, "/talker"), node(domain, "/listener"));
    let endpoint = clouds("/points", Qos::latched(2));
    let publisher = talker.publisher(&endpoint).unwrap();
    let (subscription, messages) = subscribe(&listener, &endpoint);
    until("both know each other", || {
        publisher.has_subscribers() && subscription.has_publishers()
    });
    let missed: Vec<u64> = (0..5)
        .map(|number| {
            publisher.publish(cloud(number, 64)).unwrap();
            next(&messages).missed_before
        })
        .collect();
    assert_eq!(missed, [0; 5]);
}

#[test]
fn a_publisher_that_keeps_all_loses_nothing_in_a_burst() {
    let domain = free_domain();
    let (talker, listener) = (node(domain, "/talker"), node(domain, "/listener"));
    let endpoint = clouds(
        "/points",
        Qos {
            history: History::KeepAll,
            ..Qos::reliable(1)
        },
    );
    let publisher = talker.publisher(&endpoint).unwrap();
    let (subscription, messages) = subscribe(&listener, &endpoint);
    until("both know each other", || {
        publisher.has_subscribers() && subscription.has_publishers()
    });
    for number in 0..300 {
        publisher.publish(cloud(number, 20_000)).unwrap();
    }
    for number in 0..300 {
        assert!(
            is_same(&next(&messages), &cloud(number, 20_000)),
            "message {number}"
        );
    }
}

#[test]
fn what_cannot_be_sent_is_an_error_of_that_message() {
    let node = node(free_domain(), "/talker");
    let publisher = node.publisher(&clouds("/points", Qos::reliable(1))).unwrap();
    let mut big_endian = cloud(1, 16);
    big_endian[1] = 0;
    for wrong in [big_endian, vec![0, 1, 0], Vec::new()] {
        let error = publisher.publish(wrong).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot publish on /points: the message is not little-endian"),
            "{error}"
        );
    }
    publisher.publish(cloud(1, 16)).unwrap();
    node.close().unwrap();
    let error = publisher.publish(cloud(1, 16)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot publish on /points: the node has left the network"
    );
    let (on_message, _messages) = into_channel();
    let late = node.subscribe(&clouds("/points", Qos::reliable(1)), on_message);
    assert!(matches!(late, Err(RosError::Endpoint { .. })), "{late:?}");
    node.close().unwrap();
}

#[test]
fn names_and_domains_that_do_not_exist_are_refused() {
    let beyond = DdsNode::open(&DdsSettings {
        name: NodeName::of_full("/a").unwrap(),
        domain: 233,
        networks: Vec::new(),
        humble: false,
    });
    assert_eq!(
        beyond.unwrap_err().to_string(),
        "cannot join the network: domain 233 does not exist: DDS has domains 0 to 232"
    );
    let node = node(free_domain(), "/a");
    let topic = node.publisher(&clouds("/a//b", Qos::reliable(1)));
    assert!(
        matches!(topic, Err(RosError::Name { what: "topic", .. })),
        "{topic:?}"
    );
    let endpoint = Endpoint {
        type_name: "PointCloud2".to_owned(),
        ..clouds("/a", Qos::reliable(1))
    };
    let typed: Result<Arc<dyn RosPublisher>, RosError> = node.publisher(&endpoint);
    assert!(
        matches!(
            typed,
            Err(RosError::Name {
                what: "message type",
                ..
            })
        ),
        "{typed:?}"
    );
}

#[test]
fn a_pipeline_takes_sweeps_and_gives_objects_over_dds() {
    let domain = free_domain();
    let root = env!("CARGO_MANIFEST_DIR");
    let process = crate::tiny::sensorium()
        .arg("run")
        .arg(format!("{root}/pipelines/lidar_centerpoint.yaml"))
        .args(["--set", "ros2.transport=dds", "--set"])
        .arg(format!("ros2.domain={domain}"))
        .args(["--remap", "~/output/objects:=/found"])
        .env("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let _run = Running(process);
    let vehicle = node(domain, "/vehicle");
    let endpoint = |topic: &str, type_name: &str, qos| Endpoint {
        type_name: type_name.to_owned(),
        ..clouds(topic, qos)
    };
    let tf = vehicle
        .publisher(&endpoint(TF_TOPIC, TF_TYPE, Qos::reliable(100)))
        .unwrap();
    let tf_static = vehicle
        .publisher(&endpoint(TF_STATIC_TOPIC, TF_TYPE, Qos::latched(1)))
        .unwrap();
    let points = vehicle
        .publisher(&clouds(POINTS_TOPIC, Qos::sensor_data(5)))
        .unwrap();
    let (_subscription, found) = subscribe(
        &vehicle,
        &endpoint("/found", DETECTED_OBJECTS_TYPE, Qos::reliable(1)),
    );
    let mut drive = Drive::new(&DriveConfig::default(), 7);
    // The first sweeps may be lost, and a street may be empty for a while.
    let objects = (0..200).find_map(|number| {
        let mut answer = None;
        for message in drive_messages(&drive.next_frame(), number == 0).unwrap() {
            match &*message.topic {
                TF_TOPIC => tf.publish(message.data).unwrap(),
                TF_STATIC_TOPIC => tf_static.publish(message.data).unwrap(),
                POINTS_TOPIC => {
                    until("the pipeline takes sweeps", || points.has_subscribers());
                    let sent = PointCloud2Msg::decode(&message.data).unwrap().header.stamp_ns();
                    points.publish(message.data.clone()).unwrap();
                    answer = found
                        .recv_timeout(Duration::from_secs(2))
                        .ok()
                        .map(|found| (sent, found));
                }
                _ => {}
            }
        }
        let (sent, answer) = answer?;
        let answer = DetectedObjectsMsg::decode(&answer.data).unwrap();
        assert!(answer.header.stamp_ns() <= sent);
        (!answer.objects.is_empty()).then_some(answer.objects)
    });
    assert!(
        objects.is_some_and(|objects| { objects.iter().all(|object| object.existence_probability > 0.1) })
    );
}
