//! From a well-formed file to a [`Pipeline`]: names, values that depend on each other, files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::connect;
use super::load::Overrides;
use super::nearest::{alternatives, suggestion};
use super::problem::Problem;
use super::raw::{
    RawCameraModel, RawCenterPoint, RawDetector, RawDevice, RawJsonLines, RawModel, RawNode, RawPipeline,
    RawPublisher, RawRate, RawRecorder, RawSource, RawThreads, RawTopics,
};
use super::settings::{
    CameraSettings, CenterPointSettings, Clock, DetectorSettings, DeviceSettings, Family, JsonLinesSettings,
    KEY_SPECIAL, Labels, ModelSettings, Node, NodeKind, Pipeline, Preprocess, PublisherSettings, Rate,
    RecorderSettings, SourceSettings, Topics,
};
use super::source::{Span, source};
use super::tree::{self, Entry};
use crate::device::{Backends, DeviceLayer, Threads};

/// The pipeline that `raw` describes. It is only good if no problem was found.
pub(super) fn validate(
    path: &Path,
    tree: &tree::Node,
    raw: RawPipeline,
    overrides: &Overrides,
    problems: &mut Vec<Problem>,
) -> Pipeline {
    let mut validator = Validator {
        tree,
        folder: path.parent().unwrap_or_else(|| Path::new("")),
        overrides,
        problems,
        warnings: Vec::new(),
        missing: Vec::new(),
    };
    validator.pipeline(path, raw)
}

struct Validator<'a> {
    tree: &'a tree::Node,
    folder: &'a Path,
    overrides: &'a Overrides,
    problems: &'a mut Vec<Problem>,
    warnings: Vec<Problem>,
    missing: Vec<Problem>,
}

/// What a node of the file becomes; a sink without a path is off.
pub(super) enum Made {
    On(NodeKind),
    Off(&'static str),
}

impl Made {
    /// The `kind` as a pipeline file spells it.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::On(kind) => kind.name(),
            Self::Off(kind) => kind,
        }
    }
}

impl Validator<'_> {
    fn pipeline(&mut self, path: &Path, mut raw: RawPipeline) -> Pipeline {
        let models = self.models(std::mem::take(&mut raw.models), &raw.nodes);
        let tree = self.tree;
        let mut made = Vec::new();
        // In the order of the file, which the map of raw nodes does not keep.
        for entry in section(tree, "nodes") {
            if let Some(node) = raw.nodes.remove(&entry.key) {
                let made_node = self.node(&raw.pipeline, entry, node);
                made.push((entry, made_node));
            }
        }
        self.check_sources(&made);
        let connected = connect::connect(tree, &made, &raw.channels, self.problems, &mut self.warnings);
        let mut inactive = Vec::new();
        let mut by_place: Vec<Option<Node>> = Vec::new();
        for (entry, made) in made {
            by_place.push(match made {
                Made::On(kind) => Some(Node {
                    name: entry.key.clone(),
                    kind,
                }),
                Made::Off(_) => {
                    inactive.push(entry.key.clone());
                    None
                }
            });
        }
        let nodes = connected
            .order
            .iter()
            .filter_map(|&place| by_place[place].take())
            .collect();
        let mut edges = connected.edges;
        edges.retain(|edge| !inactive.contains(&edge.to));
        Pipeline {
            file: path.to_owned(),
            name: raw.pipeline,
            device: self.device(&raw.device),
            models,
            nodes,
            edges,
            inactive,
            warnings: std::mem::take(&mut self.warnings),
            missing: std::mem::take(&mut self.missing),
        }
    }

    /// The settings of the file and those of `--set`, each with the keys that it really says.
    fn device(&mut self, raw: &RawDevice) -> DeviceSettings {
        let all = DeviceLayer {
            // The schema lists the same names.
            backend: Backends::builtin().named(&raw.backend).ok(),
            threads: Some(match raw.threads {
                RawThreads::Auto(_) => Threads::Auto,
                RawThreads::Count(count) => Threads::Count(count),
            }),
            queues: Some(raw.queues),
            arena_mib: Some(raw.arena_mib),
            trace_region_mib: Some(raw.trace_region_mib),
            spin_us: Some(raw.spin_us),
            allow_fallback: Some(raw.allow_fallback),
        };
        let section = self.tree.get("device");
        let said = |key: &str, in_file: bool| {
            section
                .and_then(|section| section.get(key))
                .is_some_and(|value| self.in_file(&value.span) == in_file)
        };
        DeviceSettings {
            file: all.only(|key| said(key, true)),
            command_line: all.only(|key| said(key, false)),
            frame_deadline_ms: raw.frame_deadline_ms,
            restart: raw.restart,
            faults: raw.fault.plan(section, self.problems),
        }
    }

    /// Whether something stands in the file, not in an option of the command.
    fn in_file(&self, span: &Span) -> bool {
        span.source() == self.tree.span.source()
    }

    fn models(
        &mut self,
        raw: BTreeMap<String, RawModel>,
        nodes: &BTreeMap<String, RawNode>,
    ) -> BTreeMap<String, ModelSettings> {
        let entries = section(self.tree, "models");
        if let Some(weights) = &self.overrides.model
            && entries.len() != 1
        {
            let what = format!("the file has {} models", entries.len());
            self.ambiguous("--model", weights, &what, "--set models.NAME.weights=FILE");
        }
        let used = |name: &str| {
            nodes
                .values()
                .any(|node| matches!(node, RawNode::Detector(detector) if detector.model == name))
        };
        let mut models = BTreeMap::new();
        for entry in entries {
            let Some(model) = raw.get(&entry.key) else {
                continue;
            };
            if !used(&entry.key) {
                let message = format!("the model `{}` is not used", entry.key);
                self.warnings
                    .push(Problem::warning(message, &entry.key_span, "no detector names it"));
            }
            models.insert(entry.key.clone(), self.model(entry, model));
        }
        models
    }

    fn model(&mut self, entry: &Entry, raw: &RawModel) -> ModelSettings {
        let (weights, precision, max_streams, on_full) = match raw {
            RawModel::Yolox(raw) | RawModel::FastestDet(raw) => {
                (&raw.weights, raw.precision, raw.max_streams, raw.on_full)
            }
            RawModel::CenterPoint(raw) => (&raw.weights, raw.precision, raw.max_streams, raw.on_full),
        };
        let weights = self.weights(entry, weights);
        let family = match raw {
            RawModel::Yolox(raw) => Family::Yolox(self.camera(entry, raw, Preprocess::YoloxOpencv)),
            RawModel::FastestDet(raw) => {
                Family::FastestDet(self.camera(entry, raw, Preprocess::FastestDetOpencv))
            }
            RawModel::CenterPoint(raw) => Family::CenterPoint(self.center_point(entry, raw)),
        };
        ModelSettings {
            weights,
            precision,
            max_streams,
            on_full,
            family,
        }
    }

    fn weights(&mut self, entry: &Entry, in_file: &str) -> Option<PathBuf> {
        match &self.overrides.model {
            Some(file) => self.existing(file.clone(), &option_span("--model", file), "weights"),
            None if in_file.is_empty() => {
                self.missing.push(
                    Problem::note(
                        format!("the model `{}` has no weights yet", entry.key),
                        value_span(entry, "weights"),
                        "empty: a file must be given",
                    )
                    .help(format!(
                        "give it with --model FILE or --set models.{}.weights=FILE",
                        entry.key
                    )),
                );
                None
            }
            None => self.existing_in_file(in_file, value_span(entry, "weights"), "weights"),
        }
    }

    fn camera(&mut self, entry: &Entry, raw: &RawCameraModel, fitting: Preprocess) -> CameraSettings {
        if raw.preprocess != fitting {
            let family = entry
                .value
                .get("type")
                .and_then(tree::Node::text)
                .unwrap_or_default();
            self.problems.push(
                Problem::error(
                    format!("a {family} network cannot be fed by `{}`", raw.preprocess),
                    value_span(entry, "preprocess"),
                    format!("expected `{fitting}`"),
                )
                .related(value_span(entry, "type"), "because of this type"),
            );
        }
        let labels = if raw.labels == "coco80" {
            Labels::Coco80
        } else {
            let span = value_span(entry, "labels");
            let file = self.existing_in_file(&raw.labels, span, "labels");
            Labels::File(file.unwrap_or_default())
        };
        CameraSettings {
            weight_format: raw.weight_format,
            preprocess: raw.preprocess,
            labels,
            score_threshold: raw.score_threshold,
            nms_threshold: raw.nms_threshold,
            max_detections: raw.max_detections,
        }
    }

    fn center_point(&mut self, entry: &Entry, raw: &RawCenterPoint) -> CenterPointSettings {
        let encoder = match raw.encoder.as_str() {
            "" => None,
            file => self.existing_in_file(file, value_span(entry, "encoder"), "encoder"),
        };
        let spans = entry.value.get("params");
        let params = raw.params.iter().enumerate();
        let params = params.filter_map(|(index, file)| {
            let span = spans
                .and_then(|list| list.items().get(index))
                .map_or(&entry.key_span, |node| &node.span);
            self.existing_in_file(file, span, "parameter")
        });
        CenterPointSettings {
            params: params.collect(),
            encoder,
            score_threshold: raw.score_threshold,
            world_frame: raw.world_frame.clone(),
            shuffle_seed: raw.shuffle_seed,
        }
    }

    fn node(&mut self, pipeline: &str, entry: &Entry, raw: RawNode) -> Made {
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
        }
    }

    fn source(&mut self, entry: &Entry, raw: RawSource) -> SourceSettings {
        let bag = match (&self.overrides.bag, raw.simulate) {
            (Some(bag), _) => self.existing(bag.clone(), &option_span("--bag", bag), "bag"),
            (None, Some(_)) if !raw.bag.is_empty() => {
                self.problems.push(
                    Problem::error(
                        format!(
                            "the source `{}` plays a bag or simulates a drive, not both",
                            entry.key
                        ),
                        value_span(entry, "bag"),
                        "leave this out, or `simulate`",
                    )
                    .related(value_span(entry, "simulate"), "this asks for a drive"),
                );
                None
            }
            (None, Some(_)) => None,
            (None, None) if raw.bag.is_empty() => {
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
            (None, None) => self.existing_in_file(&raw.bag, value_span(entry, "bag"), "bag"),
        };
        let in_file = match raw.rate {
            RawRate::Times(times) => Rate::Times(times),
            RawRate::Max(_) => Rate::Max,
        };
        SourceSettings {
            // A bag on the command line takes the drive's place.
            simulate: raw.simulate.filter(|_| bag.is_none()),
            bag,
            topics: match raw.topics {
                RawTopics::Auto(_) => Topics::Auto,
                RawTopics::Listed(topics) => Topics::Listed(topics),
            },
            clock: raw.clock,
            rate: self.overrides.rate.unwrap_or(in_file),
            deadline_ms: raw.deadline_ms,
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
        }
    }

    fn publisher(&mut self, pipeline: &str, entry: &Entry, raw: RawPublisher) -> PublisherSettings {
        let key = raw
            .key
            .replace("{pipeline}", pipeline)
            .replace("{node}", &entry.key);
        let rest = key.replace("{stream}", "stream");
        if rest.contains(['{', '}']) || rest.contains(KEY_SPECIAL) || rest.split('/').any(str::is_empty) {
            self.problems.push(
                Problem::error(
                    format!("{:?} is no key that can be published", raw.key),
                    value_span(entry, "key"),
                    "expected parts joined by `/`, none of them empty, without * $ ? #",
                )
                .help("the fields that are filled in are {pipeline}, {node} and {stream}"),
            );
        }
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
        PublisherSettings {
            transport: raw.transport,
            key,
            mode: raw.mode,
            connect: raw.connect,
            listen: raw.listen,
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
    fn check_sources(&mut self, made: &[(&Entry, Made)]) {
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
            if count("source") == 0 && made.len() == section(self.tree, "nodes").len() {
                let label = "expected at least one node of kind `source`";
                self.problems
                    .push(Problem::error("the pipeline has no source", &start, label));
            }
            if count("publisher") + count("recorder") + count("jsonl") == 0 {
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

    fn ambiguous(&mut self, option: &'static str, path: &Path, what: &str, instead: &str) {
        self.problems.push(
            Problem::error(
                format!("{option} needs one place to apply to"),
                &option_span(option, path),
                what,
            )
            .help(format!("use {instead}")),
        );
    }

    /// A path written in the file is relative to the file's folder, one given by an option to the working
    /// directory.
    fn resolve(&self, path: &str, span: &Span) -> PathBuf {
        if self.in_file(span) {
            self.folder.join(path)
        } else {
            PathBuf::from(path)
        }
    }

    fn existing_in_file(&mut self, path: &str, span: &Span, what: &str) -> Option<PathBuf> {
        self.existing(self.resolve(path, span), span, what)
    }

    fn existing(&mut self, path: PathBuf, span: &Span, what: &str) -> Option<PathBuf> {
        match path.try_exists() {
            Ok(true) => Some(path),
            Ok(false) => {
                let message = format!("the {what} {} cannot be found", path.display());
                self.problems.push(Problem::error(message, span, "no such file"));
                None
            }
            Err(error) => {
                let message = format!("the {what} {} cannot be reached", path.display());
                self.problems
                    .push(Problem::error(message, span, error.to_string()));
                None
            }
        }
    }
}

/// Entries of a top-level section, one for each name.
pub(super) fn section<'t>(tree: &'t tree::Node, key: &str) -> &'t [Entry] {
    tree.get(key).map_or(&[], tree::Node::entries)
}

/// Where the value of a key stands, or the entry's own key if it is left out.
pub(super) fn value_span<'t>(entry: &'t Entry, key: &str) -> &'t Span {
    match entry.value.entry(key) {
        Some(found) if found.value.span.range().is_empty() => &found.key_span,
        Some(found) => &found.value.span,
        None => &entry.key_span,
    }
}

fn option_span(option: &'static str, path: &Path) -> Span {
    let text = path.display().to_string();
    let range = 0..text.len();
    Span::new(&source(option, text), range)
}

/// Whether `text` is `tcp/HOST:PORT`.
fn is_endpoint(text: &str) -> bool {
    text.strip_prefix("tcp/")
        .and_then(|address| address.rsplit_once(':'))
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}
