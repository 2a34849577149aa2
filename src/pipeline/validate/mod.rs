//! From a well-formed file to a [`Pipeline`]: names, values that depend on each other, files.

mod bundle;
mod camera;
mod compute;
mod nodes;
mod scheduling;
mod sync;
mod temporal;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::camera::{CameraSettings, Preprocess};
use super::connect;
use super::load::Overrides;
use super::problem::Problem;
use super::raw::{
    RawBf16Sums, RawCameraModel, RawCenterPoint, RawDevice, RawModel, RawNode, RawPipeline, RawThreads,
};
use super::ros2::{RawRos2, Ros2Settings};
use super::settings::{CenterPointSettings, DeviceSettings, Family, ModelSettings, Node, NodeKind, Pipeline};
use super::source::{Span, source};
use super::supervision::check_faults;
use super::tree::{self, Entry};
use crate::device::{Backends, Bf16Sums, DeviceLayer, Threads};
use crate::perception::YoloxParams;

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
        self.check_sets(&made, &connected.edges, &models);
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
        let pipeline = Pipeline {
            file: path.to_owned(),
            ros2: self.ros2(&raw.pipeline, std::mem::take(&mut raw.ros2)),
            name: raw.pipeline,
            device: self.device(&raw.device),
            models,
            nodes,
            edges,
            supervision: raw.supervision,
            inactive,
            mounts: Vec::new(),
            warnings: std::mem::take(&mut self.warnings),
            missing: std::mem::take(&mut self.missing),
        };
        check_faults(&pipeline.supervision.fault, &pipeline.plan(), tree, self.problems);
        pipeline
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
            bf16_dot: Some(match raw.bf16_dot {
                RawBf16Sums::Auto => Bf16Sums::Auto,
                RawBf16Sums::Off => Bf16Sums::Off,
            }),
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

    fn ros2(&mut self, pipeline: &str, raw: RawRos2) -> Ros2Settings {
        if let Some(section) = self.tree.entry("ros2") {
            self.check_endpoints(section);
        }
        raw.settings(pipeline, &self.overrides.remap)
    }

    /// Whether something stands in a file, not in an option of the command.
    fn in_file(&self, span: &Span) -> bool {
        self.folder_of(span).is_some()
    }

    /// Folder of the file that something stands in: the pipeline's own, or that of the vehicle which changes it.
    fn folder_of<'s>(&'s self, span: &'s Span) -> Option<&'s Path> {
        let name = span.source().name();
        if span.source() == self.tree.span.source() {
            Some(self.folder)
        } else if name.starts_with("--") {
            None
        } else {
            Some(Path::new(name).parent().unwrap_or_else(|| Path::new("")))
        }
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
        let settings = match raw {
            RawModel::Yolox(raw) => {
                let params = self.yolox_params(entry, raw);
                self.camera_model(
                    entry,
                    raw,
                    params.as_ref(),
                    Preprocess::YoloxOpencv,
                    Family::Yolox,
                )
            }
            RawModel::FastestDet(raw) => {
                let params = self.no_params(entry, raw);
                let fitting = Preprocess::FastestDetOpencv;
                self.camera_model(entry, raw, params.as_ref(), fitting, Family::FastestDet)
            }
            RawModel::CenterPoint(raw) => ModelSettings {
                weights: self.weights(entry, &raw.weights, None),
                precision: raw.precision,
                max_streams: raw.max_streams,
                on_full: raw.on_full,
                max_in_flight: raw.max_in_flight,
                batch: raw.batch.clone(),
                bundle: None,
                family: Family::CenterPoint(self.center_point(entry, raw)),
            },
            RawModel::BevRing(raw) => self.seeded(entry, raw, Family::BevRing),
            RawModel::StreamQueries(raw) => self.seeded(entry, raw, Family::StreamQueries),
            RawModel::Bundle(raw) => self.bundle(entry, raw),
        };
        self.check_batch(entry, &settings);
        settings
    }

    fn camera_model(
        &mut self,
        entry: &Entry,
        raw: &RawCameraModel,
        params: Option<&YoloxParams>,
        fitting: Preprocess,
        family: fn(CameraSettings) -> Family,
    ) -> ModelSettings {
        let model_path = params.and_then(|params| params.model_path.as_deref());
        ModelSettings {
            weights: self.weights(entry, &raw.weights, model_path),
            precision: raw.precision,
            max_streams: raw.max_streams,
            on_full: raw.on_full,
            max_in_flight: raw.max_in_flight,
            batch: raw.batch.clone(),
            bundle: None,
            family: family(self.camera(entry, raw, fitting, params)),
        }
    }

    /// The command line goes before the file, and the file before its parameter files.
    fn weights(&mut self, entry: &Entry, in_file: &str, in_params: Option<&Path>) -> Option<PathBuf> {
        match (&self.overrides.model, in_params) {
            (Some(file), _) => self.existing(file.clone(), &option_span("--model", file), "weights"),
            (None, Some(file)) if in_file.is_empty() => {
                self.existing(file.to_owned(), value_span(entry, "params"), "weights")
            }
            (None, None) if in_file.is_empty() => {
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
            _ => self.existing_in_file(in_file, value_span(entry, "weights"), "weights"),
        }
    }

    fn center_point(&mut self, entry: &Entry, raw: &RawCenterPoint) -> CenterPointSettings {
        let encoder = match raw.encoder.as_str() {
            "" => None,
            file => self.existing_in_file(file, value_span(entry, "encoder"), "encoder"),
        };
        let params = self.param_files(entry, &raw.params);
        CenterPointSettings {
            params: params.into_iter().map(|(path, _)| path).collect(),
            encoder,
            score_threshold: raw.score_threshold,
            world_frame: raw.world_frame.clone(),
            shuffle_seed: raw.shuffle_seed,
        }
    }

    /// A path written in the file is relative to the file's folder, one given by an option to the working
    /// directory.
    fn resolve(&self, path: &str, span: &Span) -> PathBuf {
        self.folder_of(span)
            .map_or_else(|| PathBuf::from(path), |folder| folder.join(path))
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
