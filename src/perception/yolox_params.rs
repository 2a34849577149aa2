//! Autoware's parameter files of its node tensorrt_yolox (`yolox_*.param.yaml`).

use std::path::{Path, PathBuf};

use super::param_file::{Leaf, ParamError, ParamOrigin, SUBSTITUTION, Value, distance, read};

/// Name of the node in messages.
const NODE: &str = "tensorrt_yolox";

/// What parameter files of Autoware's tensorrt_yolox say of a model, as far as it means something here.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct YoloxParams {
    /// Least score of a detection, 0 to 1.
    pub score_threshold: Option<f32>,
    /// Largest overlap (intersection over union) of two boxes of a class, 0 to 1.
    pub nms_threshold: Option<f32>,
    /// The ONNX file, where a path is said; a relative one is relative to the folder of the parameter file.
    pub model_path: Option<PathBuf>,
    /// The label file, in the same way.
    pub label_path: Option<PathBuf>,
    /// What is said and cannot be followed, one line each, with its place.
    pub warnings: Vec<String>,
}

/// What a value has to be.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Boolean,
    Integer,
    Number,
    Text,
}

/// What becomes of a key.
#[derive(Debug, Clone, Copy)]
enum Role {
    Score,
    Nms,
    Precision,
    Model,
    Labels,
    /// A file that changes what is published, if one is named.
    Remap,
    /// Of TensorRT, of segmentation or of the node; nothing to do with what is computed here.
    Ignored(Kind),
}

use Kind::{Boolean, Integer, Number, Text};
use Role::{Ignored, Labels, Model, Nms, Precision, Remap, Score};

/// Every key that the node has read since 2023; `*` at the end is any one name.
const KEYS: &[(&str, Role)] = &[
    ("score_threshold", Score),
    ("nms_threshold", Nms),
    ("precision", Precision),
    ("model_path", Model),
    ("label_path", Labels),
    ("roi_remap_path", Remap),
    // How TensorRT builds and runs the network.
    ("calibration_algorithm", Ignored(Text)),
    ("calibration_image_list_path", Ignored(Text)),
    ("dla_core_id", Ignored(Integer)),
    ("quantize_first_layer", Ignored(Boolean)),
    ("quantize_last_layer", Ignored(Boolean)),
    ("profile_per_layer", Ignored(Boolean)),
    ("clip_value", Ignored(Number)),
    ("preprocess_on_gpu", Ignored(Boolean)),
    ("gpu_id", Ignored(Integer)),
    ("build_only", Ignored(Boolean)),
    ("use_sim_time", Ignored(Boolean)),
    // Segmentation, in the words of 2025-03, then of 2026-06.
    ("is_roi_overlap_segment", Ignored(Boolean)),
    ("roi_overlay_segment_label.*", Ignored(Boolean)),
    ("color_map_path", Ignored(Text)),
    ("is_roi_overlap_segmentation", Ignored(Boolean)),
    ("roi_overlay_segmentation_label.*", Ignored(Boolean)),
    ("semantic_segmentation_color_map_path", Ignored(Text)),
    ("roi_to_semantic_segmentation_remap_path", Ignored(Text)),
    ("overlap_roi_score_threshold", Ignored(Number)),
    ("is_publish_color_mask", Ignored(Boolean)),
];

impl YoloxParams {
    /// Takes over what a file says, as Autoware gives it to its node, of any generation up to 2026-06. It holds over
    /// what earlier files said.
    ///
    /// A path with a launch substitution (`$(var model_path)`) is left to the arguments of the launch file.
    ///
    /// # Errors
    /// [`ParamError`]: the first thing that is wrong, a key that the node does not have included.
    pub fn add_file(&mut self, path: &Path) -> Result<(), ParamError> {
        for leaf in read(path)? {
            self.add(&Place { path, leaf: &leaf })?;
        }
        Ok(())
    }

    fn add(&mut self, place: &Place<'_>) -> Result<(), ParamError> {
        match find(&place.leaf.key).ok_or_else(|| place.unknown())? {
            Score => self.score_threshold = Some(place.share()?),
            Nms => self.nms_threshold = Some(place.share()?),
            Precision => {
                if place.precision()? != "fp32" {
                    self.warnings.push(format!(
                        "{}: `{}` is TensorRT's and not followed; `precision` of the pipeline file holds",
                        place.origin(),
                        place.leaf.key
                    ));
                }
            }
            // What is left to the launch file does not take back what an earlier file said.
            Model => self.model_path = place.file()?.or_else(|| self.model_path.take()),
            Labels => self.label_path = place.file()?.or_else(|| self.label_path.take()),
            Remap => {
                if place.file()?.is_some() {
                    self.warnings.push(format!(
                        "{}: `{}` is not followed: names of classes decide what is published",
                        place.origin(),
                        place.leaf.key
                    ));
                }
            }
            Ignored(kind) => place.check(kind)?,
        }
        Ok(())
    }
}

fn find(key: &str) -> Option<Role> {
    let fits = |known: &str| match known.strip_suffix('*') {
        None => known == key,
        Some(above) => key
            .strip_prefix(above)
            .is_some_and(|name| !name.is_empty() && !name.contains('.')),
    };
    KEYS.iter().find(|(known, _)| fits(known)).map(|&(_, role)| role)
}

/// A key of a file with its value.
struct Place<'a> {
    path: &'a Path,
    leaf: &'a Leaf,
}

impl Place<'_> {
    fn origin(&self) -> ParamOrigin {
        ParamOrigin::file(self.path, self.leaf.line)
    }

    fn unknown(&self) -> ParamError {
        let key = &self.leaf.key;
        let group = |key: &str| key.split_once('.').map(|(group, _)| group.to_owned());
        // Labels in a group have any name, so that only the group's own can be wrong.
        let near = |known: &&str| match (group(key), known.strip_suffix(".*")) {
            (Some(group), Some(known)) => distance(&group, known),
            (None, None) => distance(key, known),
            _ => None,
        };
        let nearest = KEYS
            .iter()
            .filter_map(|(known, _)| Some((near(known)?, *known)))
            .min()
            .map(|(_, known)| known);
        ParamError::UnknownKey {
            at: self.origin(),
            key: key.clone(),
            node: NODE,
            advice: nearest.map_or_else(
                || "remove it, or give the file to the node that it is for".to_owned(),
                |known| format!("did you mean `{known}`?"),
            ),
        }
    }

    fn wrong(&self, expected: &str) -> ParamError {
        ParamError::wrong_type(self.origin(), self.leaf.key.clone(), &self.leaf.value, expected)
    }

    fn refuse(&self, expected: &str) -> ParamError {
        ParamError::Value {
            at: self.origin(),
            key: self.leaf.key.clone(),
            found: self.leaf.value.shown(),
            expected: expected.to_owned(),
        }
    }

    /// A number from 0 to 1.
    fn share(&self) -> Result<f32, ParamError> {
        const EXPECTED: &str = "a number from 0 to 1";
        let number = self.leaf.value.number().ok_or_else(|| self.wrong(EXPECTED))?;
        if (0.0..=1.0).contains(&number) {
            Ok(number as f32)
        } else {
            Err(self.refuse(EXPECTED))
        }
    }

    fn precision(&self) -> Result<&str, ParamError> {
        const EXPECTED: &str = "\"fp32\", \"fp16\" or \"int8\"";
        match &self.leaf.value {
            Value::Text(text) if matches!(text.as_str(), "fp32" | "fp16" | "int8") => Ok(text),
            Value::Text(text) if !text.contains(SUBSTITUTION) => Err(self.refuse(EXPECTED)),
            _ => Err(self.wrong(EXPECTED)),
        }
    }

    /// The file that is named; `None` where none is, or a launch file is to say it.
    fn file(&self) -> Result<Option<PathBuf>, ParamError> {
        match &self.leaf.value {
            // Paths are repeated in messages, which go to terminals.
            Value::Text(text) if text.contains(char::is_control) => Err(self.refuse("the path of a file")),
            Value::Text(text) if text.is_empty() || text.contains(SUBSTITUTION) => Ok(None),
            Value::Text(text) => {
                let folder = self.path.parent().unwrap_or_else(|| Path::new(""));
                Ok(Some(folder.join(text)))
            }
            _ => Err(self.wrong("the path of a file")),
        }
    }

    /// Of what is not used, only the type is checked: a wrong one hints at a slip in the file.
    fn check(&self, kind: Kind) -> Result<(), ParamError> {
        let value = &self.leaf.value;
        let (fits, expected) = match kind {
            Boolean => (matches!(value, Value::Bool(_)), "true or false"),
            Integer => (matches!(value, Value::Int(_)), "an integer"),
            Number => (value.number().is_some(), "a number"),
            Text => (matches!(value, Value::Text(_)), "text"),
        };
        let substituted = matches!(value, Value::Text(text) if text.contains(SUBSTITUTION));
        if fits || substituted {
            Ok(())
        } else {
            Err(self.wrong(expected))
        }
    }
}
