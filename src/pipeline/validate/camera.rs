//! Models on camera images, with the parameter files of Autoware's node.

use std::path::PathBuf;

use super::super::camera::{CameraSettings, Preprocess};
use super::super::nearest::nearest;
use super::super::problem::Problem;
use super::super::raw::RawCameraModel;
use super::super::settings::Labels;
use super::super::source::Span;
use super::super::tree::{self, Entry};
use super::{Validator, value_span};
use crate::image::{ImageError, PresetOption, PresetOptions, SampleType};
use crate::perception::YoloxParams;

impl Validator<'_> {
    /// What the parameter files of a model say, read before anything else of it. `None` if one of them is no good.
    pub(super) fn yolox_params(&mut self, entry: &Entry, raw: &RawCameraModel) -> Option<YoloxParams> {
        let problems_before = self.problems.len();
        let mut params = YoloxParams::default();
        for (path, span) in self.param_files(entry, &raw.params) {
            if let Err(error) = params.add_file(&path) {
                self.problems.push(Problem::error(
                    error.to_string(),
                    &span,
                    "this parameter file cannot be used",
                ));
            }
        }
        for warning in &params.warnings {
            self.warnings.push(Problem::warning(
                warning,
                value_span(entry, "params"),
                "said by a parameter file",
            ));
        }
        (self.problems.len() == problems_before).then_some(params)
    }

    /// FastestDet has no node in Autoware, and no parameter files.
    pub(super) fn no_params(&mut self, entry: &Entry, raw: &RawCameraModel) -> Option<YoloxParams> {
        if !raw.params.is_empty() {
            self.problems.push(
                Problem::error(
                    "a fastestdet network has no parameter files",
                    value_span(entry, "params"),
                    "expected no `params`",
                )
                .related(value_span(entry, "type"), "because of this type"),
            );
            return None;
        }
        Some(YoloxParams::default())
    }

    pub(super) fn camera(
        &mut self,
        entry: &Entry,
        raw: &RawCameraModel,
        fitting: Preprocess,
        params: Option<&YoloxParams>,
    ) -> CameraSettings {
        let fits = match fitting {
            Preprocess::FastestDetOpencv => raw.preprocess == fitting,
            _ => raw.preprocess != Preprocess::FastestDetOpencv,
        };
        if !fits {
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
        let known = params.cloned().unwrap_or_default();
        let mut threshold = |key, in_file: Option<f32>, in_params| {
            in_file.or(in_params).unwrap_or_else(|| {
                if params.is_some() {
                    self.says_no(entry, raw, key, key, "a number from 0 to 1");
                }
                0.0
            })
        };
        let score_threshold = threshold("score_threshold", raw.score_threshold, known.score_threshold);
        let nms_threshold = threshold("nms_threshold", raw.nms_threshold, known.nms_threshold);
        let settings = CameraSettings {
            weight_format: raw.weight_format,
            preprocess: raw.preprocess,
            upload: raw.upload,
            upload_layout: raw.upload_layout,
            channel_order: raw.channel_order,
            contraction: raw.contraction,
            preprocess_scale: raw.preprocess_scale,
            decode_to_scale: raw.decode_to_scale,
            labels: self.labels(entry, raw, params),
            score_threshold,
            nms_threshold,
            max_detections: raw.max_detections,
        };
        self.preset(entry, &settings);
        settings
    }

    /// That the preset can do what is asked of it.
    fn preset(&mut self, entry: &Entry, settings: &CameraSettings) {
        // The size of the input is the network's, which is read later; any size does for the other options.
        const ANY_PX: [usize; 2] = [64, 64];
        let checked = settings.preset().and_then(|(preset, options)| {
            PresetOptions {
                target_px: preset.takes_target().then_some(ANY_PX),
                ..options
            }
            .check(preset)?;
            Ok((preset, options))
        });
        let mut refuse = |key: &str, message: String, label: &str| {
            self.problems.push(
                Problem::error(message, value_span(entry, key), label)
                    .related(value_span(entry, "preprocess"), "this one"),
            );
        };
        match checked {
            Ok((preset, options)) => {
                if options.samples == Some(SampleType::U8) && preset.byte_scale().is_none() {
                    let message = format!("`{}` normalises pixels, which bytes leave out", preset.name());
                    refuse("upload", message, "expected `bf16` or `fp32`");
                }
                if settings.decode_to_scale && !preset.allows_decode_to_scale() {
                    let message = format!("`{}` counts out the pixels of whole images", preset.name());
                    refuse("decode_to_scale", message, "expected `false`");
                }
            }
            Err(error) => {
                let key = match error {
                    ImageError::PresetOption { option, .. } => match option {
                        PresetOption::Samples => "upload",
                        PresetOption::Contraction => "contraction",
                        PresetOption::Scale => "preprocess_scale",
                        PresetOption::Target => "preprocess",
                    },
                    _ => "preprocess",
                };
                refuse(key, error.to_string(), "not with this preset");
            }
        }
    }

    fn labels(&mut self, entry: &Entry, raw: &RawCameraModel, params: Option<&YoloxParams>) -> Labels {
        let in_params = params.and_then(|params| params.label_path.as_ref());
        let file = match (&raw.labels, in_params) {
            (Some(name), _) if name == "coco80" => return Labels::Coco80,
            (Some(path), _) => self.existing_in_file(path, value_span(entry, "labels"), "labels"),
            (None, Some(path)) => self.existing(path.clone(), value_span(entry, "params"), "labels"),
            (None, None) => {
                if params.is_some() {
                    let expected = "`coco80` or the path of a text file with one name a line";
                    self.says_no(entry, raw, "labels", "label_path", expected);
                }
                None
            }
        };
        Labels::File(file.unwrap_or_default())
    }

    /// That neither the pipeline file has `key` nor any parameter file what stands for it.
    fn says_no(
        &mut self,
        entry: &Entry,
        raw: &RawCameraModel,
        key: &'static str,
        in_params: &str,
        expected: &str,
    ) {
        // A misspelt one has been told already.
        let is_meant = |found: &Entry| found.key != key && nearest(&found.key, [key]).is_some();
        if entry.value.entries().iter().any(is_meant) {
            return;
        }
        let message = match raw.params.as_slice() {
            [] => format!("`models.{}` has no `{key}`", entry.key),
            files => format!(
                "`models.{}` has no `{key}`, and {} no `{in_params}`",
                entry.key,
                files.join(", ")
            ),
        };
        let label = format!("expected `{key}:` with {expected}");
        self.problems
            .push(Problem::error(message, &entry.key_span, label));
    }

    /// The parameter files that there are, with the places that name them.
    pub(super) fn param_files(&mut self, entry: &Entry, files: &[String]) -> Vec<(PathBuf, Span)> {
        let spans = entry.value.get("params");
        let mut found = Vec::new();
        for (index, file) in files.iter().enumerate() {
            let span = spans
                .and_then(|list| list.items().get(index))
                .map_or(&entry.key_span, |node| &node.span);
            if let Some(path) = self.existing_in_file(file, span, "parameter file") {
                found.push((path, span.clone()));
            }
        }
        found
    }
}
