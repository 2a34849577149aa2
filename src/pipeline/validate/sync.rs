//! Nodes that put sets together and make clouds of them.

use std::collections::BTreeMap;

use super::{Made, Validator, value_span};
use crate::perception::Sensor;
use crate::pipeline::nearest::{alternatives, suggestion};
use crate::pipeline::problem::Problem;
use crate::pipeline::settings::{Edge, ModelSettings, NodeKind};
use crate::pipeline::source::Span;
use crate::pipeline::sync::{
    ConcatSettings, DEFAULT_MAX_AGE_MS, DEFAULT_TOLERANCE_MS, MAX_MEMBERS, MatchBy, MatchRule, RawConcat,
    RawSync, SyncMember, SyncSettings,
};
use crate::pipeline::tree::{self, Entry};

const NS_PER_MS: f64 = 1e6;

fn ns(ms: f64) -> i64 {
    (ms * NS_PER_MS).round() as i64
}

impl Validator<'_> {
    pub(super) fn sync(&mut self, entry: &Entry, raw: RawSync) -> SyncSettings {
        self.check_members(entry, &raw);
        let foreign: &[&str] = match raw.policy {
            MatchBy::Exact => &["tolerance_ms", "reference", "max_age_ms"],
            MatchBy::Approximate => &["reference", "max_age_ms"],
            MatchBy::Latest => &["tolerance_ms"],
        };
        for key in foreign.iter().filter(|key| entry.value.get(key).is_some()) {
            let message = format!("a sync with the policy `{}` has no `{key}`", raw.policy);
            self.problems.push(
                Problem::error(message, value_span(entry, key), "leave this out")
                    .related(value_span(entry, "policy"), "because of this"),
            );
        }
        let policy = match raw.policy {
            MatchBy::Exact => MatchRule::Within { tolerance_ns: 0 },
            MatchBy::Approximate => MatchRule::Within {
                tolerance_ns: ns(raw.tolerance_ms.unwrap_or(DEFAULT_TOLERANCE_MS)),
            },
            MatchBy::Latest => MatchRule::Latest {
                reference: self.reference(entry, &raw),
                max_age_ns: ns(raw.max_age_ms.unwrap_or(DEFAULT_MAX_AGE_MS)),
            },
        };
        SyncSettings {
            policy,
            timeout_ns: ns(raw.timeout_ms),
            on_partial: raw.on_partial,
            min_members: raw.min_members,
            max_waiting: raw.max_waiting,
            stream: raw.stream.unwrap_or_else(|| entry.key.clone()),
            members: raw
                .members
                .into_iter()
                .map(|member| SyncMember {
                    topic: member.topic,
                    sensor: member.sensor,
                    offset_ns: ns(member.offset_ms),
                })
                .collect(),
        }
    }

    /// Topics differ from each other and from the name of the stream, and there are enough of them.
    fn check_members(&mut self, entry: &Entry, raw: &RawSync) {
        let listed = entry.value.get("members").map_or(&[] as &[_], tree::Node::items);
        let topics: Vec<(&str, &Span)> = listed
            .iter()
            .filter_map(|member| member.get("topic"))
            .filter_map(|topic| Some((topic.text()?, &topic.span)))
            .collect();
        for (at, &(topic, span)) in topics.iter().enumerate() {
            if let Some(&(_, first)) = topics[..at].iter().find(|(known, _)| *known == topic) {
                let message = format!("the member {topic} is there twice");
                self.problems
                    .push(Problem::error(message, span, "already a member").related(first, "the first one"));
            }
        }
        if topics.len() > MAX_MEMBERS {
            let message = format!("a set of {} members is too large", topics.len());
            let span = value_span(entry, "members");
            self.problems.push(Problem::error(
                message,
                span,
                format!("expected at most {MAX_MEMBERS}"),
            ));
        }
        if usize::from(raw.min_members) > raw.members.len() {
            let count = raw.members.len();
            let message = format!(
                "a set of {count} member(s) never has the {} of `min_members`",
                raw.min_members
            );
            let expected = format!("expected at most {count}");
            self.problems.push(Problem::error(
                message,
                value_span(entry, "min_members"),
                expected,
            ));
        }
        if let Some(stream) = &raw.stream
            && raw.members.iter().any(|member| member.topic == *stream)
        {
            let message = format!("the stream of sets cannot be called {stream}");
            let span = value_span(entry, "stream");
            self.problems
                .push(Problem::error(message, span, "this is the topic of a member"));
        }
    }

    /// Position of the reference among the members.
    fn reference(&mut self, entry: &Entry, raw: &RawSync) -> usize {
        let Some(wanted) = &raw.reference else { return 0 };
        let topics = || raw.members.iter().map(|member| member.topic.as_str());
        topics().position(|topic| topic == wanted).unwrap_or_else(|| {
            let message = format!("the reference {wanted} is no member");
            let span = value_span(entry, "reference");
            self.problems.push(
                Problem::error(message, span, suggestion(wanted, topics()))
                    .help(format!("the members are {}", alternatives(topics()))),
            );
            0
        })
    }

    pub(super) fn concat(entry: &Entry, raw: RawConcat) -> ConcatSettings {
        ConcatSettings {
            output_frame: raw.output_frame,
            world_frame: raw.world_frame,
            pose_wait_ms: raw.pose_wait_ms,
            max_points: raw.max_points,
            stream: raw.stream.unwrap_or_else(|| entry.key.clone()),
        }
    }

    /// Streams of sets and clouds have names of their own, and detectors take what comes to them.
    pub(super) fn check_sets(
        &mut self,
        made: &[(&Entry, Made)],
        edges: &[Edge],
        models: &BTreeMap<String, ModelSettings>,
    ) {
        let mut named: Vec<(&str, &Entry)> = Vec::new();
        for (entry, made) in made {
            let stream = match made {
                Made::On(NodeKind::Sync(settings)) => &settings.stream,
                Made::On(NodeKind::Concat(settings)) => &settings.stream,
                _ => continue,
            };
            if let Some((_, first)) = named.iter().find(|(known, _)| known == stream) {
                let message = format!("two nodes name their streams {stream}");
                self.problems.push(
                    Problem::error(message, value_span(entry, "stream"), "already taken")
                        .related(value_span(first, "stream"), "the first one"),
                );
            }
            named.push((stream, entry));
        }
        let kind_of = |name: &str| made.iter().find(|(entry, _)| entry.key == name);
        for (entry, node) in made {
            let Made::On(NodeKind::Detector(detector)) = node else {
                continue;
            };
            let Some(model) = models.get(&detector.model) else {
                continue;
            };
            let takes = model.family.sensor();
            for edge in edges.iter().filter(|edge| edge.to == entry.key) {
                let Some((_, Made::On(from))) = kind_of(&edge.from) else {
                    continue;
                };
                let fits = match from {
                    NodeKind::Sync(_) => false,
                    NodeKind::Concat(_) => takes == Sensor::Lidar,
                    _ => true,
                };
                if fits {
                    continue;
                }
                let yields = match from {
                    NodeKind::Sync(_) => "sets of several sensors",
                    _ => "point clouds",
                };
                let mut problem = Problem::error(
                    format!(
                        "the detector `{}` takes {} and cannot be fed by `{}`",
                        entry.key, takes, edge.from
                    ),
                    value_span(entry, "input"),
                    format!("`{}` yields {yields}", edge.from),
                );
                if matches!(from, NodeKind::Sync(_)) && takes == Sensor::Lidar {
                    problem = problem.help("a node of kind `concat` makes one cloud of a set of clouds");
                }
                self.problems.push(problem);
            }
        }
    }
}
