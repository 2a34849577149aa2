//! What the protocol of rmw_zenoh costs on top of zenoh: a cloud of 8 MiB from one session to another, published as a
//! node does and put as it is, in one run.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "benches")]

use std::hint::black_box;
use std::sync::mpsc::{Receiver, channel};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sensorium::io::messages::{POINT_CLOUD_TYPE, type_hash};
use sensorium::io::ros::wire::HashMode;
use sensorium::io::ros::zenoh::{SessionEnvironment, SessionSettings, ZenohNode, ZenohNodeSettings};
use sensorium::io::ros::{Endpoint, NodeName, Qos, RosNode};
use zenoh::Wait;
use zenoh::qos::CongestionControl;

const BYTES: usize = 8 << 20;

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn node(name: &str, listen: Option<u16>, connect: Option<u16>) -> ZenohNode {
    let endpoint = |port: u16| format!("tcp/127.0.0.1:{port}");
    let settings = ZenohNodeSettings {
        name: NodeName::new("/", name).unwrap(),
        domain: 7,
        hash_mode: HashMode::Rihs01,
        session: SessionSettings {
            connect: connect.map(endpoint).into_iter().collect(),
            listen: listen.map(endpoint).into_iter().collect(),
            patience: None,
            environment: SessionEnvironment {
                overrides: connect.is_none().then(|| "connect/endpoints=[]".to_owned()),
                router_attempts: -1,
                ..SessionEnvironment::default()
            },
        },
    };
    ZenohNode::open(&settings).unwrap()
}

fn raw(listen: Option<u16>, connect: Option<u16>) -> zenoh::Session {
    let mut config = zenoh::Config::default();
    let mut set = |key: &str, port: Option<u16>| {
        let endpoints: Vec<String> = port
            .map(|port| format!("tcp/127.0.0.1:{port}"))
            .into_iter()
            .collect();
        let value = serde_json::Value::from(endpoints).to_string();
        config.insert_json5(key, &value).unwrap();
    };
    set("listen/endpoints", listen);
    set("connect/endpoints", connect);
    config
        .insert_json5("scouting/multicast/enabled", "false")
        .unwrap();
    zenoh::open(config).wait().unwrap()
}

fn arrives(messages: &Receiver<usize>) {
    assert_eq!(messages.recv().unwrap(), BYTES);
}

fn publish(c: &mut Criterion) {
    let message = vec![7_u8; BYTES];
    let mut group = c.benchmark_group("publish_8_mib");
    group.throughput(Throughput::Bytes(BYTES as u64)).sample_size(40);

    // Both copy the message out of the network's buffers, for that is what a subscriber gets.
    let port = free_port();
    let (there, here) = (raw(Some(port), None), raw(None, Some(port)));
    let (sender, messages) = channel();
    let _subscriber = there
        .declare_subscriber("cloud")
        .callback(move |sample| {
            let data = sample.payload().to_bytes().into_owned();
            let _ = sender.send(black_box(data).len());
        })
        .wait()
        .unwrap();
    let publisher = here
        .declare_publisher("cloud")
        .congestion_control(CongestionControl::Block)
        .wait()
        .unwrap();
    while !publisher.matching_status().wait().unwrap().matching() {
        std::thread::yield_now();
    }
    group.bench_function("zenoh_put", |b| {
        b.iter(|| {
            publisher.put(message.clone()).wait().unwrap();
            arrives(&messages);
        });
    });

    let port = free_port();
    let (there, here) = (node("there", Some(port), None), node("here", None, Some(port)));
    let endpoint = Endpoint {
        topic: "/cloud".into(),
        type_name: POINT_CLOUD_TYPE.into(),
        type_hash: type_hash(POINT_CLOUD_TYPE).unwrap(),
        qos: Qos {
            history: sensorium::io::ros::History::KeepAll,
            ..Qos::reliable(1)
        },
    };
    let (sender, messages) = channel();
    let on_message = Box::new(move |received: sensorium::io::ros::Received| {
        let _ = sender.send(received.data.len());
    });
    let _subscription = there.subscribe(&endpoint, on_message).unwrap();
    let publisher = here.publisher(&endpoint).unwrap();
    while !publisher.has_subscribers() {
        std::thread::yield_now();
    }
    group.bench_function("ros_node", |b| {
        b.iter(|| {
            publisher.publish(message.clone()).unwrap();
            arrives(&messages);
        });
    });
    group.finish();
}

criterion_group!(benches, publish);
criterion_main!(benches);
