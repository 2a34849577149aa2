//! The nodes of a pipeline file: sources, detectors and sinks.

use std::path::{Path, PathBuf};

use super::{Made, Validator, option_span, section, value_span};
use crate::pipeline::foxglove::{FOXGLOVE_ADDRESS, FoxglovePublisherSettings};
use crate::pipeline::nearest::{alternatives, suggestion};
use crate::pipeline::problem::Problem;
use crate::pipeline::raw::{
    DEFAULT_KEY, DEFAULT_TOPIC, RawDetector, RawJsonLines, RawNode, RawPublisher, RawRate, RawRecorder,
    RawSource, RawTopics,
};
use crate::pipeline::ros2::Ros2PublisherSettings;
use crate::pipeline::settings::{
    Clock, DetectorSettings, JsonLinesSettings, KEY_SPECIAL, NodeKind, PublisherSettings, Rate,
    RecorderSettings, SWEEPS_A_SECOND, SimulateSettings, SourceSettings, Topics, Transport,
    ZenohPublisherSettings,
};
use crate::pipeline::source::Span;
use crate::pipeline::tree::{self, Entry};

impl Validator<'_> {
    pub(super) fn node(&mut self, pipeline: &str, entry: &Entry, raw: RawNode) -> Made {
        if entry.key == "device" {
            self.problems.push(Problem::error(
                "a node cannot be called `device`",
                &entry.key_span,
                "this is the name of the device's owner",
            ));
        }
        match raw {
            RawNode::Source(raw) => Made::On(NodeKind::Source(self.source(entry, raw))),
            RawNode::Detector(raw) => Made::On(NodeKind::Detector(self.detector(entry, raw))),
            RawNode::Publisher(raw) => Made::On(NodeKind::Publisher(self.publisher(pipeline, entry, raw))),
            RawNode::Recorder(raw) => self.recorder(entry, &raw),
            RawNode::Jsonl(raw) => self.json_lines(entry, &raw),
            RawNode::Compute(raw) => Made::On(NodeKind::Compute(self.compute(entry, raw))),
            RawNode::Sync(raw) => Made::On(NodeKind::Sync(self.sync(entry, raw))),
            RawNode::Concat(raw) => Made::On(NodeKind::Concat(Self::concat(entry, raw))),
        }
    }

    fn source(&mut self, entry: &Entry, raw: RawSource) -> SourceSettings {
        let bag = match &self.overrides.bag {
            Some(bag) => self.existing(bag.clone(), &option_span("--bag", bag), "bag"),
            None => self.own_feed(entry, &raw),
        };
        // A bag on the command line takes the place of a drive and of live messages.
        let (simulate, subscribe) = match bag {
            Some(_) => (None, None),
            None => (raw.simulate, raw.subscribe),
        };
        if subscribe.is_some() {
            self.check_live(entry, &raw);
        }
        if self.overrides.deterministic && subscribe.is_some() {
            self.problems.push(
                Problem::error(
                    format!(
                        "the source `{}` takes live messages, which come in no fixed order",
                        entry.key
                    ),
                    value_span(entry, "subscribe"),
                    "cannot be deterministic",
                )
                .help("record the topics and play the recording with --bag, or leave --deterministic out"),
            );
        }
        if let Some(drive) = &simulate {
            self.check_drive(entry, drive);
        }
        let in_file = match raw.rate {
            RawRate::Times(times) => Rate::Times(times),
            RawRate::Max(_) => Rate::Max,
        };
        SourceSettings {
            simulate,
            subscribe,
            bag,
            topics: match raw.topics {
                RawTopics::Auto(_) => Topics::Auto,
                RawTopics::Listed(topics) => Topics::Listed(topics),
            },
            clock: match self.overrides.deterministic {
                true => Clock::Deterministic,
                false => raw.clock,
            },
            rate: self.overrides.rate.unwrap_or(in_file),
            deadline_ms: raw.deadline_ms,
        }
    }

    /// The bag that the file names for a source, if it is one that plays a bag.
    fn own_feed(&mut self, entry: &Entry, raw: &RawSource) -> Option<PathBuf> {
        let feeds = [
            ("bag", !raw.bag.is_empty()),
            ("simulate", raw.simulate.is_some()),
            ("subscribe", raw.subscribe.is_some()),
        ];
        let mut given = feeds.iter().filter(|(_, given)| *given).map(|(key, _)| *key);
        match (given.next(), given.next()) {
            (None, _) => {
                self.missing.push(
                    Problem::note(
                        format!("the source `{}` has no bag yet", entry.key),
                        entry.value.get("bag").map_or(&entry.key_span, |bag| &bag.span),
                        "empty: the bag must be given",
                    )
                    .help(format!(
                        "give it with --bag PATH or --set nodes.{}.bag=PATH",
                        entry.key
                    )),
                );
                None
            }
            (Some("bag"), None) => self.existing_in_file(&raw.bag, value_span(entry, "bag"), "bag"),
            (Some(_), None) => None,
            (Some(one), Some(other)) => {
                self.problems.push(
                    Problem::error(
                        format!(
                            "the source `{}` plays a bag, simulates a drive or subscribes, not two of them",
                            entry.key
                        ),
                        value_span(entry, one),
                        format!("leave this out, or `{other}`"),
                    )
                    .related(value_span(entry, other), "this is another feed"),
                );
                None
            }
        }
    }

    /// Images are taken at the stamps of sweeps.
    fn check_drive(&mut self, entry: &Entry, drive: &SimulateSettings) {
        if SWEEPS_A_SECOND.is_multiple_of(drive.camera_hz) {
            return;
        }
        let hz = entry
            .value
            .get("simulate")
            .and_then(|drive| drive.get("camera_hz"));
        let span = hz.map_or_else(|| value_span(entry, "simulate"), |hz| &hz.span);
        self.problems.push(Problem::error(
            format!(
                "the cameras of the source `{}` cannot take {} images a second",
                entry.key, drive.camera_hz
            ),
            span,
            "expected 1, 2, 5 or 10",
        ));
    }

    /// What a source of live messages needs, and what it cannot have.
    fn check_live(&mut self, entry: &Entry, raw: &RawSource) {
        if matches!(raw.topics, RawTopics::Auto(_)) {
            self.problems.push(
                Problem::error(
                    format!("the source `{}` subscribes to no topic", entry.key),
                    value_span(entry, "subscribe"),
                    "expected a list of `topics` beside this",
                )
                .help("for example topics: [~/input/pointcloud]"),
            );
        }
        let unfit = [
            ("clock", raw.clock == Clock::Deterministic),
            ("rate", entry.value.get("rate").is_some()),
        ];
        for (key, _) in unfit.into_iter().filter(|(_, given)| *given) {
            self.problems.push(
                Problem::error(
                    format!("live messages come when they come: `{key}` is for bags and drives"),
                    value_span(entry, key),
                    "leave this out",
                )
                .related(value_span(entry, "subscribe"), "because of this"),
            );
        }
    }

    fn detector(&mut self, entry: &Entry, raw: RawDetector) -> DetectorSettings {
        let models = || {
            section(self.tree, "models")
                .iter()
                .map(|model| model.key.as_str())
        };
        if !models().any(|model| model == raw.model) {
            self.problems.push(
                Problem::error(
                    format!("there is no model `{}`", raw.model),
                    value_span(entry, "model"),
                    suggestion(&raw.model, models()),
                )
                .help(format!("the models are {}", alternatives(models()))),
            );
        }
        DetectorSettings {
            model: raw.model,
            prepare_workers: raw.prepare_workers,
            finish_workers: raw.finish_workers,
            pose_wait_ms: raw.pose_wait_ms,
            on_late: raw.on_late,
        }
    }

    fn publisher(&mut self, pipeline: &str, entry: &Entry, raw: RawPublisher) -> PublisherSettings {
        let (own, foreign): (_, &[&str]) = match raw.transport {
            Transport::Zenoh => (
                "zenoh",
                &["topic", "skip_without_subscribers", "debug", "address"],
            ),
            Transport::Ros2 => ("ros2", &["key", "mode", "connect", "listen", "address"]),
            Transport::Foxglove => ("foxglove", &ZENOH_AND_ROS_KEYS),
        };
        for key in foreign.iter().filter(|key| entry.value.get(key).is_some()) {
            let mut problem = Problem::error(
                format!("a publisher with transport `{own}` has no `{key}`"),
                value_span(entry, key),
                "leave this out",
            )
            .related(value_span(entry, "transport"), "because of this");
            if ["connect", "listen"].contains(key) && own == "ros2" {
                problem = problem.help("endpoints of the ROS 2 node stand in the section `ros2`");
            }
            self.problems.push(problem);
        }
        match raw.transport {
            Transport::Zenoh => PublisherSettings::Zenoh(self.zenoh_publisher(pipeline, entry, raw)),
            Transport::Ros2 => PublisherSettings::Ros2(Ros2PublisherSettings {
                topic: raw.topic.unwrap_or_else(|| DEFAULT_TOPIC.into()),
                skip_without_subscribers: raw.skip_without_subscribers.unwrap_or(true),
                debug: raw.debug.unwrap_or(true),
            }),
            Transport::Foxglove => {
                PublisherSettings::Foxglove(self.foxglove_publisher(entry, raw.address.as_deref()))
            }
        }
    }

    fn foxglove_publisher(&mut self, entry: &Entry, address: Option<&str>) -> FoxglovePublisherSettings {
        let parsed = address.map_or(Ok(FOXGLOVE_ADDRESS), str::parse);
        let address = parsed.unwrap_or_else(|_| {
            self.problems.push(Problem::error(
                format!("{:?} is no address to listen on", address.unwrap_or_default()),
                value_span(entry, "address"),
                "expected ADDRESS:PORT, such as 127.0.0.1:8765",
            ));
            FOXGLOVE_ADDRESS
        });
        FoxglovePublisherSettings { address }
    }

    fn zenoh_publisher(
        &mut self,
        pipeline: &str,
        entry: &Entry,
        raw: RawPublisher,
    ) -> ZenohPublisherSettings {
        let template = raw.key.as_deref().unwrap_or(DEFAULT_KEY);
        let key = template
            .replace("{pipeline}", pipeline)
            .replace("{node}", &entry.key);
        let rest = key.replace("{stream}", "stream");
        if rest.contains(['{', '}']) || rest.contains(KEY_SPECIAL) || rest.split('/').any(str::is_empty) {
            self.problems.push(
                Problem::error(
                    format!("{template:?} is no key that can be published"),
                    value_span(entry, "key"),
                    "expected parts joined by `/`, none of them empty, without * $ ? #",
                )
                .help("the fields that are filled in are {pipeline}, {node} and {stream}"),
            );
        }
        self.check_endpoints(entry);
        ZenohPublisherSettings {
            key,
            mode: raw.mode.unwrap_or_default(),
            connect: raw.connect.unwrap_or_default(),
            listen: raw.listen.unwrap_or_default(),
        }
    }

    /// Checks the endpoints of zenoh in an entry.
    pub(super) fn check_endpoints(&mut self, entry: &Entry) {
        for list in ["connect", "listen"] {
            for endpoint in entry.value.get(list).into_iter().flat_map(tree::Node::items) {
                let text = endpoint.text().unwrap_or_default();
                if !is_endpoint(text) {
                    self.problems.push(Problem::error(
                        format!("{text:?} is no endpoint"),
                        &endpoint.span,
                        "expected tcp/HOST:PORT",
                    ));
                }
            }
        }
    }

    fn recorder(&mut self, entry: &Entry, raw: &RawRecorder) -> Made {
        match self.output(entry, &raw.path, self.overrides.record.as_ref()) {
            Some(path) => Made::On(NodeKind::Recorder(RecorderSettings {
                path,
                include_images: raw.include_images,
            })),
            None => Made::Off("recorder"),
        }
    }

    fn json_lines(&mut self, entry: &Entry, raw: &RawJsonLines) -> Made {
        match self.output(entry, &raw.path, self.overrides.jsonl.as_ref()) {
            Some(path) => Made::On(NodeKind::JsonLines(JsonLinesSettings { path })),
            None => Made::Off("jsonl"),
        }
    }

    /// Where a sink writes: the option's path as it is, or the file's relative to its folder.
    fn output(&self, entry: &Entry, in_file: &str, option: Option<&PathBuf>) -> Option<PathBuf> {
        match option {
            Some(path) => Some(path.clone()),
            None if in_file.is_empty() => None,
            None => Some(self.resolve(in_file, value_span(entry, "path"))),
        }
    }

    /// What concerns all nodes of a kind.
    pub(super) fn check_sources(&mut self, made: &[(&Entry, Made)]) {
        let count = |kind: &str| {
            section(self.tree, "nodes")
                .iter()
                .filter(|entry| entry.value.get("kind").and_then(tree::Node::text) == Some(kind))
                .count()
        };
        let start = self.tree.entry("nodes").map(|nodes| nodes.key_span.clone());
        let options = [
            ("--bag", &self.overrides.bag, "source", "bag"),
            ("--record", &self.overrides.record, "recorder", "path"),
            ("--jsonl", &self.overrides.jsonl, "jsonl", "path"),
        ];
        for (option, path, kind, key) in options {
            if let Some(path) = path
                && count(kind) != 1
            {
                let what = format!("the file has {} nodes of kind `{kind}`", count(kind));
                self.ambiguous(option, path, &what, &format!("--set nodes.NAME.{key}=PATH"));
            }
        }
        if let Some(start) = start {
            // A node that is not sound may be meant as a source.
            if count("source") + count("compute") == 0 && made.len() == section(self.tree, "nodes").len() {
                let label = "expected at least one node of kind `source`";
                self.problems
                    .push(Problem::error("the pipeline has no source", &start, label));
            }
            if count("publisher") + count("recorder") + count("jsonl") + count("compute") == 0 {
                let label = "no node of kind `publisher`, `recorder` or `jsonl`";
                self.warnings
                    .push(Problem::warning("the pipeline has no sink", &start, label));
            }
        }
        let clocks = made.iter().filter_map(|(entry, made)| match made {
            Made::On(NodeKind::Source(source)) => Some((*entry, source.clock)),
            _ => None,
        });
        let (fixed, free): (Vec<_>, Vec<_>) = clocks.partition(|(_, clock)| *clock == Clock::Deterministic);
        if let (Some((fixed, _)), Some((free, _))) = (fixed.first(), free.first()) {
            let span = |entry| -> &Span { value_span(entry, "clock") };
            self.problems.push(
                Problem::error(
                    "one source cannot be deterministic while another is not",
                    span(fixed),
                    format!("deterministic, but `{}` is not", free.key),
                )
                .related(span(free), "not deterministic"),
            );
        }
    }

    pub(super) fn ambiguous(&mut self, option: &'static str, path: &Path, what: &str, instead: &str) {
        self.problems.push(
            Problem::error(
                format!("{option} needs one place to apply to"),
                &option_span(option, path),
                what,
            )
            .help(format!("use {instead}")),
        );
    }
}

/// Keys of publishers that Foxglove has nothing to do with.
const ZENOH_AND_ROS_KEYS: [&str; 7] = [
    "key",
    "mode",
    "connect",
    "listen",
    "topic",
    "skip_without_subscribers",
    "debug",
];

/// Whether `text` is `tcp/HOST:PORT`.
fn is_endpoint(text: &str) -> bool {
    text.strip_prefix("tcp/")
        .and_then(|address| address.rsplit_once(':'))
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}
