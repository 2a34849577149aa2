//! What a pipeline becomes: actors, channels, keys, charts.

use sensorium::pipeline::{ActorRole, NodeKind, OnFull, Overrides, PublisherSettings, RunsOn};

use crate::pipeline_files::{GOOD, parse};

#[test]
fn a_detector_becomes_prepare_device_and_finish() {
    let plan = parse(GOOD, &Overrides::default()).unwrap().plan();
    let actors: Vec<_> = plan
        .actors
        .iter()
        .map(|a| (a.name.as_str(), a.role, a.runs_on))
        .collect();
    assert_eq!(
        actors,
        [
            ("camera", ActorRole::Source, RunsOn::Thread),
            ("detector/prepare", ActorRole::Prepare, RunsOn::Workers(2)),
            ("device", ActorRole::DeviceOwner, RunsOn::Thread),
            ("detector/finish", ActorRole::Finish, RunsOn::Workers(1)),
            ("out", ActorRole::Sink, RunsOn::Task),
        ]
    );
    let channels: Vec<_> = plan
        .channels
        .iter()
        .map(|c| (c.from.as_str(), c.to.as_str(), c.capacity, c.on_full))
        .collect();
    assert_eq!(
        channels,
        [
            ("camera", "detector/prepare", 8, OnFull::DropOldest),
            ("detector/prepare", "device", 4, OnFull::Block),
            ("device", "detector/finish", 2, OnFull::Block),
            ("detector/finish", "out", 4, OnFull::Block),
        ]
    );
}

#[test]
fn a_key_of_a_stream_is_one_that_zenoh_takes() {
    let pipeline = parse(GOOD, &Overrides::default()).unwrap();
    let NodeKind::Publisher(PublisherSettings::Zenoh(publisher)) = &pipeline.nodes[2].kind else {
        panic!()
    };
    assert_eq!(
        publisher.key_of("/cam/front"),
        "sensorium/front/out/cam/front/detections"
    );
    for stream in ["", "/", "//a//b/", "a*?", "$x#"] {
        let key = publisher.key_of(stream);
        zenoh::key_expr::KeyExpr::new(key.clone()).unwrap_or_else(|error| panic!("{key}: {error}"));
    }
}

#[test]
fn mermaid_shows_nodes_actors_and_channels() {
    let pipeline = parse(
        &GOOD.replace("    model: nano", "    model: nano # x"),
        &Overrides::default(),
    )
    .unwrap();
    insta::assert_snapshot!("mermaid", pipeline.mermaid());
    insta::assert_snapshot!("mermaid_expanded", pipeline.mermaid_expanded());
}
