//! Compute nodes of a pipeline file.

use std::collections::BTreeMap;

use super::{Validator, section, value_span};
use crate::pipeline::compute::{ComputeCost, ComputeRole, ComputeSettings, RawCompute};
use crate::pipeline::connect::one_or_many;
use crate::pipeline::nearest::{alternatives, suggestion};
use crate::pipeline::problem::Problem;
use crate::pipeline::tree::{self, Entry};

impl Validator<'_> {
    pub(super) fn compute(&mut self, entry: &Entry, raw: RawCompute) -> ComputeSettings {
        self.check_inputs(entry, raw.role);
        let timed = matches!(raw.role, ComputeRole::Sensor | ComputeRole::Cyclic);
        if timed && raw.period_ms.is_none() {
            self.problems.push(
                Problem::error(
                    format!("the {} `{}` has no period", raw.role, entry.key),
                    value_span(entry, "role"),
                    "expected `period_ms` beside this",
                )
                .help("for example period_ms: 100"),
            );
        }
        self.forbid(entry, "period_ms", !timed, raw.role, "it runs when messages come");
        let cost = match (raw.cost.primes, raw.cost.micros) {
            (None, None) => ComputeCost::Free,
            (Some(limit), None) => ComputeCost::Primes(limit),
            (None, Some(micros)) => ComputeCost::Micros(micros),
            (Some(_), Some(_)) => {
                self.problems.push(Problem::error(
                    format!("the work of `{}` is stated twice", entry.key),
                    value_span(entry, "cost"),
                    "expected `primes` or `micros`, not both",
                ));
                ComputeCost::Free
            }
        };
        if let Some(sensor) = &raw.latency_from {
            self.check_sensor(entry, sensor);
        }
        ComputeSettings {
            routes: self.routes(entry, raw.role),
            role: raw.role,
            period_ms: raw.period_ms,
            cost,
            payload_bytes: raw.payload_bytes,
            latency_from: raw.latency_from,
        }
    }

    fn check_inputs(&mut self, entry: &Entry, role: ComputeRole) {
        let count = inputs_of(entry).count();
        let (fits, expected) = match role {
            ComputeRole::Sensor => (count == 0, "no `input`"),
            ComputeRole::Transform => (count == 1, "one `input`"),
            ComputeRole::Fusion => (count >= 2, "two or more nodes as its `input`"),
            ComputeRole::Cyclic | ComputeRole::Intersection | ComputeRole::Command => {
                (count >= 1, "one or more nodes as its `input`")
            }
        };
        if !fits {
            let key = if entry.value.get("input").is_some() {
                "input"
            } else {
                "role"
            };
            self.problems.push(Problem::error(
                format!("the {role} `{}` has {count} input(s)", entry.key),
                value_span(entry, key),
                format!("expected {expected}"),
            ));
        }
    }

    /// Refuses a key that a role cannot have.
    fn forbid(&mut self, entry: &Entry, key: &str, forbidden: bool, role: ComputeRole, why: &str) {
        if forbidden && entry.value.get(key).is_some() {
            self.problems.push(
                Problem::error(
                    format!("the {role} `{}` has no `{key}`: {why}", entry.key),
                    value_span(entry, key),
                    "leave this out",
                )
                .related(value_span(entry, "role"), "because of this"),
            );
        }
    }

    fn check_sensor(&mut self, entry: &Entry, sensor: &str) {
        let is_sensor = |node: &&Entry| {
            let text = |key| node.value.get(key).and_then(tree::Node::text);
            text("kind") == Some("compute") && text("role") == Some("sensor")
        };
        let sensors = || {
            section(self.tree, "nodes")
                .iter()
                .filter(is_sensor)
                .map(|node| node.key.as_str())
        };
        if !sensors().any(|name| name == sensor) {
            let problem = Problem::error(
                format!("there is no sensor `{sensor}`"),
                value_span(entry, "latency_from"),
                suggestion(sensor, sensors()),
            )
            .help(format!("the sensors are {}", alternatives(sensors())));
            self.problems.push(problem);
        }
    }

    /// The routes of an intersection: every input has one, and leads to nodes that this one feeds.
    fn routes(&mut self, entry: &Entry, role: ComputeRole) -> BTreeMap<String, Vec<String>> {
        if role != ComputeRole::Intersection {
            self.forbid(
                entry,
                "routes",
                true,
                role,
                "every node that it feeds gets all it sends",
            );
            return BTreeMap::new();
        }
        let Some(written) = entry.value.get("routes") else {
            self.problems.push(
                Problem::error(
                    format!(
                        "the intersection `{}` does not say which node gets what",
                        entry.key
                    ),
                    value_span(entry, "role"),
                    "expected `routes` beside this",
                )
                .help("for example routes: { from_a: to_x, from_b: [to_y, to_z] }"),
            );
            return BTreeMap::new();
        };
        let fed: Vec<&str> = section(self.tree, "nodes")
            .iter()
            .filter(|node| inputs_of(node).any(|input| input.text() == Some(&entry.key)))
            .map(|node| node.key.as_str())
            .collect();
        let inputs: Vec<&str> = inputs_of(entry).filter_map(tree::Node::text).collect();
        let mut routes = BTreeMap::new();
        for route in written.entries() {
            if !inputs.contains(&route.key.as_str()) {
                self.problems.push(
                    Problem::error(
                        format!("`{}` does not feed `{}`", route.key, entry.key),
                        &route.key_span,
                        suggestion(&route.key, inputs.iter().copied()),
                    )
                    .help(format!("its inputs are {}", alternatives(inputs.iter().copied()))),
                );
            }
            let mut targets = Vec::new();
            for target in one_or_many(&route.value) {
                let Some(name) = target.text() else { continue };
                if !fed.contains(&name) {
                    self.problems.push(Problem::error(
                        format!("`{name}` has not `{}` as its input", entry.key),
                        &target.span,
                        suggestion(name, fed.iter().copied()),
                    ));
                }
                targets.push(name.to_owned());
            }
            routes.insert(route.key.clone(), targets);
        }
        for input in inputs.iter().filter(|input| !routes.contains_key(**input)) {
            self.problems.push(Problem::error(
                format!(
                    "`{}` does not say which node gets what it makes of `{input}`",
                    entry.key
                ),
                value_span(entry, "routes"),
                format!("expected a route of `{input}`"),
            ));
        }
        routes
    }
}

/// The names under a node's `input`.
fn inputs_of(entry: &Entry) -> impl Iterator<Item = &tree::Node> {
    entry.value.get("input").into_iter().flat_map(one_or_many)
}
