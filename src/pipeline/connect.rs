//! Connections between nodes: inputs, circles, channels.

use std::collections::{BTreeMap, BTreeSet};

use super::graph;
use super::nearest::{alternatives, suggestion};
use super::problem::Problem;
use super::raw::{RawChannel, RawChannels};
use super::settings::{Clock, Edge, NodeKind, OnFull};
use super::source::Span;
use super::tree::{self, Entry};
use super::validate::{Made, section, value_span};

/// How the nodes hang together.
pub(super) struct Connected {
    /// Positions of the nodes, each after all that feed it.
    pub(super) order: Vec<usize>,
    /// One for each input, in the order of the receiving node.
    pub(super) edges: Vec<Edge>,
}

/// Joins `nodes`, which are those of the file that are sound so far.
pub(super) fn connect(
    tree: &tree::Node,
    nodes: &[(&Entry, Made)],
    channels: &RawChannels,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<Problem>,
) -> Connected {
    let mut connection = Connection {
        tree,
        nodes,
        problems,
        warnings,
    };
    let inputs = connection.inputs();
    let places: Vec<Vec<usize>> = inputs
        .iter()
        .map(|node| {
            node.iter()
                .filter_map(|input| connection.place(input.name))
                .collect()
        })
        .collect();
    let (order, circle) = match graph::order(&places) {
        Ok(order) => (order, Vec::new()),
        Err(circle) => ((0..nodes.len()).collect(), circle),
    };
    connection.check_circle(&circle, &inputs);
    connection.check_kinds(&circle, &inputs);
    connection.check_unread(&inputs);
    let own = connection.own_channels(channels, &inputs);
    let edges = connection.edges(&order, &inputs, &own, channels.default);
    Connected { order, edges }
}

/// One name under a node's `input`.
struct Input<'t> {
    name: &'t str,
    span: &'t Span,
}

/// Channels that the file lists, by sender and receiver.
type OwnChannels<'t> = BTreeMap<(&'t str, &'t str), (RawChannel, Option<&'t Span>)>;

struct Connection<'t, 'a> {
    tree: &'t tree::Node,
    nodes: &'a [(&'t Entry, Made)],
    problems: &'a mut Vec<Problem>,
    warnings: &'a mut Vec<Problem>,
}

impl<'t> Connection<'t, '_> {
    /// Every node name of the file, also of nodes that are not sound.
    fn names(&self) -> impl Iterator<Item = &'t str> + use<'t> {
        section(self.tree, "nodes").iter().map(|entry| entry.key.as_str())
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|(entry, _)| entry.key == name)
    }

    /// The inputs of each node, without repeated ones.
    fn inputs(&mut self) -> Vec<Vec<Input<'t>>> {
        let mut all = Vec::with_capacity(self.nodes.len());
        for (entry, _) in self.nodes {
            let mut inputs: Vec<Input<'t>> = Vec::new();
            for input in entry.value.get("input").into_iter().flat_map(one_or_many) {
                let Some(name) = input.text() else { continue };
                if inputs.iter().any(|seen| seen.name == name) {
                    let message = format!("`{name}` feeds `{}` twice", entry.key);
                    self.problems
                        .push(Problem::error(message, &input.span, "already in the list"));
                    continue;
                }
                if !self.names().any(|known| known == name) {
                    self.unknown_node(name, &input.span);
                }
                inputs.push(Input {
                    name,
                    span: &input.span,
                });
            }
            all.push(inputs);
        }
        all
    }

    fn unknown_node(&mut self, name: &str, span: &Span) {
        self.problems.push(
            Problem::error(
                format!("there is no node `{name}`"),
                span,
                suggestion(name, self.names()),
            )
            .help(format!("the nodes are {}", alternatives(self.names()))),
        );
    }

    fn check_circle(&mut self, circle: &[usize], inputs: &[Vec<Input<'t>>]) {
        let (Some(&first), Some(&last)) = (circle.first(), circle.last()) else {
            return;
        };
        let name = |place: usize| self.nodes[place].0.key.as_str();
        let walk: Vec<&str> = circle.iter().chain([&first]).map(|&place| name(place)).collect();
        if let Some(input) = inputs[first].iter().find(|input| input.name == name(last)) {
            self.problems.push(
                Problem::error(
                    format!("the nodes feed each other in a circle: {}", walk.join(" -> ")),
                    input.span,
                    "this input closes the circle",
                )
                .help("samples flow from sources through detectors to sinks, never back"),
            );
        }
    }

    /// A detector reads sources and what is made of them, a sink reads detectors.
    fn check_kinds(&mut self, circle: &[usize], inputs: &[Vec<Input<'t>>]) {
        for (place, (entry, made)) in self.nodes.iter().enumerate() {
            let wanted: &[&str] = match made.kind() {
                "detector" => &["source", "sync", "concat"],
                "sync" => &["source"],
                "concat" => &["sync"],
                "compute" => &["compute"],
                _ => &["detector"],
            };
            for input in &inputs[place] {
                let Some(from) = self.place(input.name) else {
                    continue;
                };
                // Nodes in a circle are wrong for a better reason.
                if circle.contains(&place) && circle.contains(&from) {
                    continue;
                }
                let found = self.nodes[from].1.kind();
                if wanted.contains(&found) {
                    continue;
                }
                let good = self
                    .nodes
                    .iter()
                    .filter(|(_, made)| wanted.contains(&made.kind()));
                let good: Vec<&str> = good.map(|(entry, _)| entry.key.as_str()).collect();
                let problem = Problem::error(
                    format!(
                        "`{}` is a {} and cannot be fed by the {found} `{}`",
                        entry.key,
                        made.kind(),
                        input.name
                    ),
                    input.span,
                    format!("expected a {}", wanted[0]),
                );
                self.problems.push(if good.is_empty() {
                    problem
                } else {
                    problem.help(format!("a {} here is {}", wanted[0], alternatives(good)))
                });
            }
        }
    }

    /// A source or detector that nobody reads.
    fn check_unread(&mut self, inputs: &[Vec<Input<'t>>]) {
        let read: BTreeSet<&str> = inputs.iter().flatten().map(|input| input.name).collect();
        for (entry, made) in self.nodes {
            if matches!(made.kind(), "source" | "detector" | "sync" | "concat")
                && !read.contains(entry.key.as_str())
            {
                self.warnings.push(Problem::warning(
                    format!("nothing reads what `{}` yields", entry.key),
                    &entry.key_span,
                    "no node has it as its input",
                ));
            }
        }
    }

    /// The channels under `channels.edges`, each checked to be a connection that exists.
    fn own_channels(&mut self, channels: &RawChannels, inputs: &[Vec<Input<'t>>]) -> OwnChannels<'t> {
        let listed = self
            .tree
            .get("channels")
            .and_then(|channels| channels.get("edges"))
            .map_or(&[] as &'t [_], tree::Node::items);
        let mut own = OwnChannels::new();
        for item in listed {
            let (Some(from), Some(to)) = (item.entry("from"), item.entry("to")) else {
                continue;
            };
            let (Some(sender), Some(receiver)) = (from.value.text(), to.value.text()) else {
                continue;
            };
            let unknown: Vec<(&str, &Span)> = [(sender, &from.value.span), (receiver, &to.value.span)]
                .into_iter()
                .filter(|(name, _)| !self.names().any(|known| known == *name))
                .collect();
            for (name, span) in &unknown {
                self.unknown_node(name, span);
            }
            let Some(place) = self.place(receiver) else {
                continue;
            };
            if !unknown.is_empty() {
                continue;
            }
            if !inputs[place].iter().any(|input| input.name == sender) {
                // One of the unknown inputs may be meant as this sender.
                if !inputs[place]
                    .iter()
                    .all(|input| self.names().any(|known| known == input.name))
                {
                    continue;
                }
                let feeds: Vec<&str> = inputs[place].iter().map(|input| input.name).collect();
                let label = format!("`{receiver}` is fed by {}", alternatives(feeds));
                let message = format!("`{sender}` does not feed `{receiver}`");
                self.problems
                    .push(Problem::error(message, &from.value.span, label));
                continue;
            }
            // Items that are not sound are not among the raw ones, which carry the typed values.
            let raw = channels
                .edges
                .iter()
                .find(|raw| raw.from == sender && raw.to == receiver);
            let Some(raw) = raw else { continue };
            let channel = RawChannel {
                capacity: raw.capacity.unwrap_or(channels.default.capacity),
                on_full: raw.on_full.unwrap_or(channels.default.on_full),
            };
            let policy = item.entry("on_full").map(|entry| &entry.value.span);
            if own.insert((sender, receiver), (channel, policy)).is_some() {
                let message = format!("the channel from `{sender}` to `{receiver}` is there twice");
                self.problems
                    .push(Problem::error(message, &from.value.span, "already in the list"));
            }
        }
        own
    }

    fn edges(
        &mut self,
        order: &[usize],
        inputs: &[Vec<Input<'t>>],
        own: &OwnChannels<'t>,
        default: RawChannel,
    ) -> Vec<Edge> {
        let deterministic = self.nodes.iter().find_map(|(entry, made)| match made {
            Made::On(NodeKind::Source(source)) if source.clock == Clock::Deterministic => Some(*entry),
            _ => None,
        });
        let mut edges = Vec::new();
        for &place in order {
            let to = &self.nodes[place].0.key;
            for input in &inputs[place] {
                let (channel, policy) = own
                    .get(&(input.name, to.as_str()))
                    .copied()
                    .unwrap_or((default, None));
                let on_full = match deterministic {
                    Some(source) if channel.on_full != OnFull::Block => {
                        let span = policy.unwrap_or(input.span);
                        self.warnings.push(
                            Problem::warning(
                                format!("the channel from `{}` to `{to}` blocks", input.name),
                                span,
                                format!("`{}` is not used", channel.on_full),
                            )
                            .related(value_span(source, "clock"), "a deterministic run drops nothing"),
                        );
                        OnFull::Block
                    }
                    _ => channel.on_full,
                };
                edges.push(Edge {
                    from: input.name.to_owned(),
                    to: to.clone(),
                    capacity: channel.capacity,
                    on_full,
                });
            }
        }
        edges
    }
}

/// The items of a list, or the one value that stands for a list of one.
pub(super) fn one_or_many(value: &tree::Node) -> &[tree::Node] {
    match &value.value {
        tree::Value::List(items) => items,
        _ => std::slice::from_ref(value),
    }
}
