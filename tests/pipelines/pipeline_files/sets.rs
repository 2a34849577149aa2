//! Nodes that put sets together and make clouds of them.

use sensorium::pipeline::{ActorRole, MatchRule, NodeKind, OnPartial, Overrides};

use crate::pipeline_files::{errors, parse};

const GOOD: &str = r#"pipeline: sets
models:
  cp: { type: centerpoint, weights: "" }
nodes:
  bag: { kind: source }
  pair:
    kind: sync
    input: bag
    members:
      - { topic: /a }
      - { topic: /b, sensor: lidar, offset_ms: 5 }
    policy: approximate
    tolerance_ms: 12.5
  cloud: { kind: concat, input: pair, world_frame: map }
  detector: { kind: detector, model: cp, input: cloud }
  out: { kind: jsonl, input: detector, path: x }
"#;

#[test]
fn a_set_becomes_an_actor_between_sources_and_detectors() {
    let pipeline = parse(GOOD, &Overrides::default()).unwrap();
    assert!(pipeline.warnings.is_empty(), "{:?}", pipeline.warnings);
    let node = |name: &str| &pipeline.nodes.iter().find(|node| node.name == name).unwrap().kind;
    let NodeKind::Sync(sync) = node("pair") else {
        panic!("{:?}", node("pair"))
    };
    let tolerance_ns = 12_500_000;
    assert_eq!(sync.policy, MatchRule::Within { tolerance_ns });
    assert_eq!((sync.stream.as_str(), sync.timeout_ns), ("pair", 200_000_000));
    assert_eq!(
        (sync.on_partial, sync.min_members, sync.max_waiting),
        (OnPartial::Release, 1, 8)
    );
    let offsets: Vec<i64> = sync.members.iter().map(|member| member.offset_ns).collect();
    assert_eq!(offsets, [0, 5_000_000]);
    let NodeKind::Concat(concat) = node("cloud") else {
        panic!("{:?}", node("cloud"))
    };
    assert_eq!(
        (concat.output_frame.as_str(), concat.stream.as_str()),
        ("base_link", "cloud")
    );
    let plan = pipeline.plan();
    assert_eq!(plan.actor("pair").unwrap().role, ActorRole::Sync);
    assert_eq!(plan.actor("cloud").unwrap().role, ActorRole::Concat);
    let joined = |from: &str, to: &str| plan.channels.iter().any(|c| c.from == from && c.to == to);
    assert!(joined("bag", "pair") && joined("pair", "cloud") && joined("cloud", "detector/prepare"));
    assert!(
        pipeline
            .mermaid()
            .contains("pair<br/>sync<br/>2 members, within 12.5 ms")
    );
    assert!(
        pipeline
            .mermaid_expanded()
            .contains("cloud<br/>concat<br/>1 worker")
    );
    let latest = GOOD.replace("approximate\n    tolerance_ms: 12.5", "latest\n    reference: /b");
    let pipeline = parse(&latest, &Overrides::default()).unwrap();
    let rule = pipeline.nodes.iter().find_map(|node| match &node.kind {
        NodeKind::Sync(sync) => Some(sync.policy),
        _ => None,
    });
    let expected = MatchRule::Latest {
        reference: 1,
        max_age_ns: 100_000_000,
    };
    assert_eq!(rule, Some(expected));
}

#[test]
fn mistakes_in_sets_are_told_with_their_place() {
    let cases = [
        (
            "policy: approximate",
            "policy: exakt",
            "p.yaml:12:13: `nodes.pair.policy` cannot be `exakt` | did you mean `exact`?",
        ),
        (
            "policy: approximate",
            "policy: exact",
            "p.yaml:13:19: a sync with the policy `exact` has no `tolerance_ms` | leave this out",
        ),
        (
            "tolerance_ms: 12.5",
            "reference: /a",
            "p.yaml:13:16: a sync with the policy `approximate` has no `reference` | leave this out",
        ),
        (
            "approximate\n    tolerance_ms: 12.5",
            "latest\n    reference: /bb",
            "p.yaml:13:16: the reference /bb is no member | did you mean `/b`?",
        ),
        (
            "topic: /b",
            "topic: /a",
            "p.yaml:11:18: the member /a is there twice | already a member",
        ),
        (
            "tolerance_ms: 12.5",
            "min_members: 3",
            "p.yaml:13:18: a set of 2 member(s) never has the 3 of `min_members` | expected at most 2",
        ),
        (
            "tolerance_ms: 12.5",
            "stream: /b",
            "p.yaml:13:13: the stream of sets cannot be called /b | this is the topic of a member",
        ),
        (
            "tolerance_ms: 12.5",
            "stream: cloud",
            "p.yaml:14:3: two nodes name their streams cloud | already taken",
        ),
        (
            "model: cp, input: cloud",
            "model: cp, input: pair",
            "p.yaml:15:49: the detector `detector` takes point clouds and cannot be fed by `pair` | `pair` yields sets of \
             several sensors",
        ),
        (
            "concat, input: pair",
            "concat, input: bag",
            "p.yaml:14:33: `cloud` is a concat and cannot be fed by the source `bag` | expected a sync",
        ),
        (
            "offset_ms: 5",
            "offset: 5",
            "p.yaml:11:37: unknown key `offset` in `nodes.pair.members.1` | not known here",
        ),
    ];
    for (from, to, expected) in cases {
        assert!(GOOD.contains(from), "{from}");
        let found = errors(&GOOD.replace(from, to));
        assert!(found.iter().any(|line| line == expected), "{to}: {found:#?}");
    }
}
