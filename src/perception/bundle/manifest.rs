//! The manifest of a bundle.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::path::plain;

/// Name of the manifest in its folder.
pub const MANIFEST_FILE: &str = "bundle.json";
/// The format of manifests that this program reads and writes.
pub const BUNDLE_FORMAT: u32 = 1;
/// Largest manifest that is read, in bytes.
pub const MAX_MANIFEST_BYTES: u64 = 1 << 20;
/// Folder of the calibration presets in a bundle.
pub const CALIBRATION_FOLDER: &str = "calib";

/// What a bundle says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`BUNDLE_FORMAT`].
    pub bundle: u32,
    /// Name of the model.
    pub name: String,
    /// Version of the bundle.
    pub version: String,
    /// The program that made it.
    pub created_by: String,
    /// Where the weights come from.
    #[serde(default)]
    pub source: BundleSource,
    /// Licence of the weights, as SPDX spells it; empty where it is not known.
    #[serde(default)]
    pub licence: String,
    /// What is pinned: an entry of `models` in a pipeline file, with paths relative to the bundle's folder.
    pub model: Map<String, Value>,
    /// [`settings_sha256`](super::settings_sha256) of the model; earlier manifests have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_sha256: Option<String>,
    /// Calibration presets, by the name of the preset: files of the bundle, each `calib/NAME.json`.
    #[serde(default)]
    pub calibrations: BTreeMap<String, String>,
    /// Samples with the outputs that were stored for them.
    #[serde(default)]
    pub samples: Vec<BundleSample>,
    /// Every file of the bundle but the manifest, by its name.
    pub files: BTreeMap<String, BundleFile>,
}

/// Where weights come from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundleSource {
    /// The repository, as its owner names it; empty where it is not known.
    #[serde(default)]
    pub repository: String,
    /// The one revision of it; empty where it is not known.
    #[serde(default)]
    pub revision: String,
}

/// A sample and what the model made of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundleSample {
    /// The sensor's data: a file of the bundle.
    pub sample: String,
    /// What the model made of it in fp32: a file of the bundle.
    pub reference: String,
}

/// A file of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundleFile {
    /// Its SHA-256 in hexadecimal.
    pub sha256: String,
    /// Its size in bytes.
    pub bytes: u64,
}

impl Manifest {
    /// Whether the manifest can be true, without a look at the files.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.bundle != BUNDLE_FORMAT {
            return Err(format!(
                "its format is {}, and this program reads {BUNDLE_FORMAT}",
                self.bundle
            ));
        }
        if self.name.is_empty() || self.version.is_empty() {
            return Err("`name` and `version` cannot be empty".to_owned());
        }
        for (name, file) in &self.files {
            plain(name).map_err(|reason| format!("the file {name:?}: {reason}"))?;
            let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
            if file.sha256.len() != 64 || !file.sha256.chars().all(is_hex) {
                return Err(format!(
                    "the file {name:?} has no SHA-256 of 64 hexadecimal digits"
                ));
            }
        }
        let known = |name: &str, what: &str| {
            if self.files.contains_key(name) {
                Ok(())
            } else {
                Err(format!("{what} {name:?} is none of its files"))
            }
        };
        for name in self.paths() {
            known(name, "the model's file")?;
        }
        for (name, file) in &self.calibrations {
            // A service reads them as a folder of presets, where the file's name is that of the preset.
            let expected = format!("{CALIBRATION_FOLDER}/{name}.json");
            if *file != expected {
                return Err(format!(
                    "the calibration {name:?} is {file:?}, and has to be {expected:?}"
                ));
            }
            known(file, "the calibration")?;
        }
        for sample in &self.samples {
            known(&sample.sample, "the sample")?;
            known(&sample.reference, "the reference")?;
        }
        Ok(())
    }

    /// Files that the model names.
    fn paths(&self) -> impl Iterator<Item = &str> {
        let single = ["weights", "encoder", "labels"].into_iter().filter_map(|key| {
            let name = self.model.get(key)?.as_str()?;
            // A model without an encoder says so with an empty name, and labels may be those of a data set.
            (!name.is_empty() && (key != "labels" || name != "coco80")).then_some(name)
        });
        let params = self.model.get("params").and_then(Value::as_array);
        single.chain(params.into_iter().flatten().filter_map(Value::as_str))
    }
}
