//! `metadata.yaml`, the table of contents that rosbag2 writes beside a bag's files (versions 1 to 9).
//!
//! Only what reading needs is taken; unknown keys are ignored, since every ROS distribution adds some.
//! `offered_qos_profiles` is text up to version 8 and a list since 9, so it is taken as whatever it is;
//! `custom_data` may be null and is not read.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::BagError;
use super::topic::FileTopic;
use crate::io::messages::normalise_type;

/// Name of the file.
pub(super) const FILE_NAME: &str = "metadata.yaml";

/// Largest metadata file that is read.
const MAX_BYTES: u64 = 64 << 20;

/// How rosbag2 compressed the bag, on top of what its storage does itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CompressionMode {
    None,
    /// Every file is one zstd stream.
    File,
    /// Every message is one zstd frame.
    Message,
}

#[derive(Debug, Deserialize)]
struct Document {
    rosbag2_bagfile_information: Metadata,
}

/// What a metadata file says.
#[derive(Debug, Deserialize)]
pub(super) struct Metadata {
    #[serde(default)]
    pub message_count: Option<u64>,
    #[serde(default)]
    pub topics_with_message_count: Option<Vec<TopicWithCount>>,
    #[serde(default)]
    compression_format: Option<String>,
    #[serde(default)]
    compression_mode: Option<String>,
    #[serde(default)]
    pub relative_file_paths: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct TopicWithCount {
    pub topic_metadata: TopicMetadata,
}

#[derive(Debug, Deserialize)]
pub(super) struct TopicMetadata {
    name: String,
    #[serde(rename = "type")]
    type_name: String,
    #[serde(default)]
    serialization_format: String,
    #[serde(default)]
    offered_qos_profiles: serde_json::Value,
    #[serde(default)]
    type_description_hash: Option<String>,
}

impl TopicMetadata {
    /// The topic, whose messages are those of files yet to be opened.
    pub(super) fn into_topic(self) -> FileTopic {
        FileTopic {
            name: self.name,
            type_name: normalise_type(&self.type_name),
            serialization: self.serialization_format,
            messages: 0,
            offered_qos: self.offered_qos_profiles,
            type_hash: self.type_description_hash.unwrap_or_default(),
            definition: None,
        }
    }
}

impl Metadata {
    /// Reads a metadata file.
    pub(super) fn read(path: &Path) -> Result<Self, BagError> {
        let len = std::fs::metadata(path).map_err(BagError::io(path))?.len();
        if len > MAX_BYTES {
            return Err(BagError::TooLarge {
                path: path.to_owned(),
                what: "the metadata".to_owned(),
                limit: MAX_BYTES,
            });
        }
        let text = std::fs::read_to_string(path).map_err(BagError::io(path))?;
        let document: Document = serde_saphyr::from_str(&text).map_err(|e| BagError::Metadata {
            path: path.to_owned(),
            reason: e.to_string(),
        })?;
        Ok(document.rosbag2_bagfile_information)
    }

    /// The compression mode; an error for one that is not known.
    pub(super) fn compression(&self, path: &Path) -> Result<CompressionMode, BagError> {
        let unsupported = |what: &str, word: &str| BagError::Metadata {
            path: path.to_owned(),
            reason: format!("compression {what} {word:?} is not known"),
        };
        let mode = self.compression_mode.as_deref().unwrap_or("");
        let mode = match mode.to_ascii_uppercase().as_str() {
            "" | "NONE" => CompressionMode::None,
            "FILE" => CompressionMode::File,
            "MESSAGE" => CompressionMode::Message,
            _ => return Err(unsupported("mode", mode)),
        };
        let format = self.compression_format.as_deref().unwrap_or("");
        if mode != CompressionMode::None && !matches!(format, "" | "zstd") {
            return Err(unsupported("format", format));
        }
        Ok(mode)
    }
}

/// Where a file that the metadata names may lie, likeliest first.
///
/// Old distributions wrote the bag's own folder in front (`bag/bag_0.db3.zstd`), others left the compressed
/// file's suffix out or in. A name never leads out of the folder.
pub(super) fn candidates(folder: &Path, name: &str) -> Vec<PathBuf> {
    let relative = Path::new(name);
    let inside = relative
        .components()
        .all(|c| matches!(c, std::path::Component::Normal(_)));
    let mut places = Vec::new();
    if inside {
        places.push(folder.join(relative));
    }
    if let Some(last) = relative.file_name() {
        let place = folder.join(last);
        if !places.contains(&place) {
            places.push(place);
        }
    }
    let zstd = places.iter().map(|place| match place.extension() {
        Some(extension) if extension == "zstd" => place.with_extension(""),
        _ => {
            let mut longer = place.clone().into_os_string();
            longer.push(".zstd");
            longer.into()
        }
    });
    let zstd: Vec<PathBuf> = zstd.collect();
    places.extend(zstd);
    places
}
