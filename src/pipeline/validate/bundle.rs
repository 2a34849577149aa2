//! Models that come from bundles.

use std::path::Path;
use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::Value as Json;

use super::{Validator, option_span, value_span};
use crate::perception::bundle::{Bundle, MANIFEST_FILE};
use crate::pipeline::bundle::RawBundle;
use crate::pipeline::problem::{Problem, told};
use crate::pipeline::raw::RawModel;
use crate::pipeline::settings::{CenterPointSettings, Family, ModelSettings, OnStreamsFull, Precision};
use crate::pipeline::shape;
use crate::pipeline::source::source;
use crate::pipeline::tree::{self, Entry};

/// The schema of one model.
static MODEL: LazyLock<Json> = LazyLock::new(|| {
    let generator = SchemaSettings::draft2020_12().into_generator();
    generator.into_root_schema_for::<RawModel>().to_value()
});

impl Validator<'_> {
    /// The model that a bundle pins. Problems of its manifest point into the manifest.
    pub(super) fn bundle(&mut self, entry: &Entry, raw: &RawBundle) -> ModelSettings {
        if let Some(weights) = &self.overrides.model {
            self.problems.push(
                Problem::error(
                    format!("the bundle of the model `{}` pins its weights", entry.key),
                    &option_span("--model", weights),
                    "expected no --model",
                )
                .help("name another bundle, or write the model's own settings in place of the bundle"),
            );
        }
        let span = value_span(entry, "path").clone();
        let folder = self.resolve(&raw.path, &span);
        let pinned = self.pinned(&folder, entry);
        let mut settings = match pinned {
            Ok(Some(settings)) => settings,
            Ok(None) => nothing(),
            Err(problem) => {
                self.problems.push(*problem);
                nothing()
            }
        };
        settings.max_streams = raw.max_streams.unwrap_or(settings.max_streams);
        settings.on_full = raw.on_full.unwrap_or(settings.on_full);
        settings.bundle = Some(folder);
        settings
    }

    fn pinned(&mut self, folder: &Path, entry: &Entry) -> Result<Option<ModelSettings>, Box<Problem>> {
        let span = value_span(entry, "path");
        let bundle = Bundle::open(folder).and_then(|bundle| bundle.verify().map(|()| bundle));
        let bundle = bundle.map_err(|error| {
            Box::new(
                Problem::error(told(&error), span, "this bundle cannot be used")
                    .help("`sensorium bundle check DIR` tells all that is wrong with a bundle"),
            )
        })?;
        let manifest = source(
            &folder.join(MANIFEST_FILE).display().to_string(),
            bundle.text().to_owned(),
        );
        // The manifest is JSON, and so it is YAML.
        let tree = tree::parse(&manifest, 0)?;
        let Some(model) = tree.entry("model") else {
            return Ok(None);
        };
        let before = self.problems.len();
        let json = shape::check(&model.value, &MODEL, self.problems);
        let Some(json) = json.filter(|_| self.problems.len() == before) else {
            return Ok(None);
        };
        let raw: RawModel = serde_json::from_value(json).map_err(|error| {
            Box::new(Problem::error(
                error.to_string(),
                &model.key_span,
                "in this model",
            ))
        })?;
        if matches!(raw, RawModel::Bundle(_)) {
            let label = "expected a model, not another bundle";
            let message = "a bundle cannot hold a bundle";
            return Err(Box::new(Problem::error(message, &model.key_span, label)));
        }
        let pinned = Entry {
            key: entry.key.clone(),
            key_span: model.key_span.clone(),
            value: model.value.clone(),
        };
        Ok(Some(self.model(&pinned, &raw)))
    }
}

/// What stands for a model whose problems are told.
fn nothing() -> ModelSettings {
    ModelSettings {
        weights: None,
        precision: Precision::default(),
        max_streams: 1,
        on_full: OnStreamsFull::default(),
        max_in_flight: None,
        batch: None,
        bundle: None,
        family: Family::CenterPoint(CenterPointSettings {
            encoder: None,
            params: Vec::new(),
            score_threshold: None,
            world_frame: None,
            shuffle_seed: 0,
        }),
    }
}
