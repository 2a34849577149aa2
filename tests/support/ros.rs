//! Nodes of the ROS 2 graph for tests: they meet on ports of this machine that nobody else uses.
#![allow(dead_code, unreachable_pub, reason = "every test target uses its own part")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use sensorium::io::messages::type_hash;
use sensorium::io::ros::wire::HashMode;
use sensorium::io::ros::zenoh::{SessionEnvironment, SessionSettings, ZenohNode, ZenohNodeSettings};
use sensorium::io::ros::{Endpoint, NodeName, Qos, Received, RosNode, RosSubscription};

/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// A port of this machine that nobody uses.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// A session that listens on, or connects to, a port of this machine.
pub fn session(listen: Option<u16>, connect: Option<u16>) -> SessionSettings {
    let endpoint = |port: u16| format!("tcp/127.0.0.1:{port}");
    SessionSettings {
        connect: connect.map(endpoint).into_iter().collect(),
        listen: listen.map(endpoint).into_iter().collect(),
        // Tests run on busy machines.
        patience: Some(Duration::from_secs(20)),
        environment: SessionEnvironment {
            // Whatever router there may be on this machine is not meant.
            overrides: connect.is_none().then(|| "connect/endpoints=[]".to_owned()),
            router_attempts: -1,
            ..SessionEnvironment::default()
        },
    }
}

/// A node in `/perception` and domain 42.
pub fn settings(name: &str, session: SessionSettings) -> ZenohNodeSettings {
    ZenohNodeSettings {
        name: NodeName::new("/perception", name).unwrap(),
        domain: 42,
        hash_mode: HashMode::Rihs01,
        session,
    }
}

/// An endpoint of a type that the library knows.
pub fn endpoint(topic: &str, type_name: &str, qos: Qos) -> Endpoint {
    Endpoint {
        topic: topic.into(),
        type_name: type_name.into(),
        type_hash: type_hash(type_name).unwrap(),
        qos,
    }
}

/// Waits until something is so.
pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Subscribes; what arrives is in the receiver.
pub fn listen(node: &ZenohNode, endpoint: &Endpoint) -> (Box<dyn RosSubscription>, Receiver<Received>) {
    let (sender, receiver) = channel();
    let on_message = Box::new(move |message| {
        let _ = sender.send(message);
    });
    (node.subscribe(endpoint, on_message).unwrap(), receiver)
}
