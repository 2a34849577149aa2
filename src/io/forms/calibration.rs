//! Calibration of cameras: in the request, or by the name of a preset in a folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::shown;
use super::{InputError, Intrinsics, IntrinsicsForm, TransformForm, parse_intrinsics, parse_transform};

/// Longest file of a preset that is read.
const MAX_PRESET_BYTES: u64 = 4 << 20;
/// Most presets that a folder may hold.
const MAX_PRESETS: usize = 1024;

/// What is known of cameras: a preset, cameras by name, or both, where what is said here goes before the preset.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Calibration")]
pub struct CalibrationForm {
    /// Name of a preset.
    #[schemars(length(min = 1, max = 128))]
    pub preset: Option<String>,
    /// Cameras by name.
    #[serde(default, deserialize_with = "super::limited_map_or_null::<_, _, _, 64>")]
    #[schemars(with = "Option<BTreeMap<String, CameraCalibrationForm>>", extend("maxProperties" = 64))]
    pub cameras: BTreeMap<String, CameraCalibrationForm>,
}

/// What is known of a camera.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CameraCalibration")]
pub struct CameraCalibrationForm {
    /// Its intrinsics.
    pub intrinsics: Option<IntrinsicsForm>,
    /// From its optical frame to the reference frame.
    #[serde(rename = "T_ref_from_camera")]
    pub ref_from_camera: Option<TransformForm>,
    /// Distortion coefficients in OpenCV's order.
    #[schemars(length(max = 14))]
    #[serde(default, deserialize_with = "super::limited_list_or_null::<_, _, 14>")]
    pub distortion: Option<Vec<f64>>,
}

/// What is known of a camera, checked.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CameraCalibration {
    /// Its intrinsics in pixels.
    pub intrinsics: Option<Intrinsics>,
    /// From its optical frame to the reference frame, row by row.
    pub ref_from_camera: Option<[f64; 16]>,
    /// Distortion coefficients in OpenCV's order; none without distortion.
    pub distortion: Vec<f64>,
}

impl CameraCalibrationForm {
    /// Checks what is said.
    ///
    /// # Errors
    /// [`InputError`] with paths below `field`.
    pub fn parse(&self, field: &str) -> Result<CameraCalibration, InputError> {
        let intrinsics = self.intrinsics.as_ref();
        let intrinsics = intrinsics.map(|form| parse_intrinsics(&form.0, &format!("{field}.intrinsics")));
        let pose = self.ref_from_camera.as_ref();
        let pose = pose.map(|form| parse_transform(&form.0, &format!("{field}.T_ref_from_camera")));
        let distortion = self.distortion.clone().unwrap_or_default();
        let field = || format!("{field}.distortion");
        if !matches!(distortion.len(), 0 | 4 | 5 | 8 | 12 | 14) {
            let found = format!("{} coefficients", distortion.len());
            return Err(InputError::value(field(), found, "0, 4, 5, 8, 12 or 14"));
        }
        if distortion.iter().any(|value| !value.is_finite()) {
            return Err(InputError::value(
                field(),
                "a coefficient that is not finite",
                "finite numbers",
            ));
        }
        Ok(CameraCalibration {
            intrinsics: intrinsics.transpose()?,
            ref_from_camera: pose.transpose()?,
            distortion,
        })
    }

    /// This, with what is missing taken from `other`.
    #[must_use]
    pub(super) fn or(&self, other: Option<&Self>) -> Self {
        let other = other.cloned().unwrap_or_default();
        Self {
            intrinsics: self.intrinsics.clone().or(other.intrinsics),
            ref_from_camera: self.ref_from_camera.clone().or(other.ref_from_camera),
            distortion: self.distortion.clone().or(other.distortion),
        }
    }
}

/// Why the presets of a folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PresetError {
    /// The folder or a file of it cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Too many files.
    #[error("{} holds more than {MAX_PRESETS} presets", path.display())]
    TooMany {
        /// The folder.
        path: PathBuf,
    },
    /// A file that is too long for a calibration.
    #[error("{} has {bytes} bytes; a calibration has at most {MAX_PRESET_BYTES}", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// A file that is no calibration.
    #[error("{} is no calibration: {source}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// A calibration that cannot be.
    #[error("{}: {source}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Why.
        source: InputError,
    },
}

/// Calibrations by name, read once: a request names one, it never names a file.
#[derive(Debug, Clone, Default)]
pub struct Presets(BTreeMap<String, CalibrationForm>);

impl Presets {
    /// Reads every `<name>.json` of a folder.
    ///
    /// # Errors
    /// [`PresetError`]: the first file that is no calibration.
    pub fn read(folder: &Path) -> Result<Self, PresetError> {
        let unreadable = |path: &Path| {
            let path = path.to_owned();
            move |source| PresetError::Read { path, source }
        };
        let mut presets = BTreeMap::new();
        for entry in std::fs::read_dir(folder).map_err(unreadable(folder))? {
            let path = entry.map_err(unreadable(folder))?.path();
            let (Some(stem), Some("json")) = (
                path.file_stem().and_then(|s| s.to_str()),
                path.extension().and_then(|e| e.to_str()),
            ) else {
                continue;
            };
            if presets.len() == MAX_PRESETS {
                return Err(PresetError::TooMany {
                    path: folder.to_owned(),
                });
            }
            let bytes = std::fs::metadata(&path).map_err(unreadable(&path))?.len();
            if bytes > MAX_PRESET_BYTES {
                return Err(PresetError::TooLong { path, bytes });
            }
            let text = std::fs::read(&path).map_err(unreadable(&path))?;
            let form: CalibrationForm =
                serde_json::from_slice(&text).map_err(|source| PresetError::Parse {
                    path: path.clone(),
                    source,
                })?;
            for (name, camera) in &form.cameras {
                let checked = camera.parse(&format!("cameras.{}", shown(name)));
                checked.map_err(|source| PresetError::Invalid {
                    path: path.clone(),
                    source,
                })?;
            }
            presets.insert(stem.to_owned(), form);
        }
        Ok(Self(presets))
    }

    /// Names of all presets.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The cameras of a form, those of its preset among them; what the form says of a camera goes before the preset.
    ///
    /// # Errors
    /// [`InputError`] with paths below `field`.
    pub fn resolve(
        &self,
        form: &CalibrationForm,
        field: &str,
    ) -> Result<BTreeMap<String, CameraCalibrationForm>, InputError> {
        let mut cameras = match &form.preset {
            None => BTreeMap::new(),
            Some(name) => {
                let preset = self.0.get(name).ok_or_else(|| {
                    let known: Vec<&str> = self.names().take(16).collect();
                    let expected = match known[..] {
                        [] => "none, for there are no presets".to_owned(),
                        _ => format!("one of {}", known.join(", ")),
                    };
                    InputError::value(format!("{field}.preset"), format!("`{}`", shown(name)), expected)
                })?;
                preset.cameras.clone()
            }
        };
        for (name, camera) in &form.cameras {
            let merged = camera.or(cameras.get(name));
            cameras.insert(name.clone(), merged);
        }
        Ok(cameras)
    }
}
