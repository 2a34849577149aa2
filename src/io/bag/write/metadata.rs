//! The table of contents that rosbag2 keeps beside, and in MCAP files also within, a bag's files: version 9.

use serde::Serialize;

use crate::io::bag::qos::WrittenProfile;
use crate::io::bag::{BagTopic, Storage};

/// Version of the layout.
pub(super) const VERSION: u32 = 9;

/// Name under which this program stands where rosbag2 writes its distribution.
pub(super) const DISTRO: &str = "sensorium";

/// One file of a bag, written and closed.
#[derive(Debug, Clone)]
pub(super) struct FileEntry {
    pub name: String,
    /// First and last log time.
    pub range_ns: Option<(u64, u64)>,
    /// Messages of each topic.
    pub counts: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct Document<'a> {
    rosbag2_bagfile_information: Information<'a>,
}

#[derive(Debug, Serialize)]
pub(super) struct Information<'a> {
    version: u32,
    storage_identifier: &'static str,
    duration: Nanoseconds,
    starting_time: SinceEpoch,
    message_count: u64,
    topics_with_message_count: Vec<TopicWithCount<'a>>,
    compression_format: &'static str,
    compression_mode: &'static str,
    relative_file_paths: Vec<&'a str>,
    files: Vec<FileInformation<'a>>,
    custom_data: Option<()>,
    ros_distro: &'static str,
}

#[derive(Debug, Serialize)]
struct Nanoseconds {
    nanoseconds: u64,
}

#[derive(Debug, Serialize)]
struct SinceEpoch {
    nanoseconds_since_epoch: u64,
}

#[derive(Debug, Serialize)]
struct TopicWithCount<'a> {
    topic_metadata: TopicMetadata<'a>,
    message_count: u64,
}

#[derive(Debug, Serialize)]
struct TopicMetadata<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    type_name: &'a str,
    serialization_format: &'a str,
    offered_qos_profiles: Vec<WrittenProfile>,
    type_description_hash: String,
}

#[derive(Debug, Serialize)]
struct FileInformation<'a> {
    path: &'a str,
    starting_time: SinceEpoch,
    duration: Nanoseconds,
    message_count: u64,
}

/// First time and duration; as rosbag2 has it, a bag without messages starts at the last time there is.
fn times(range_ns: Option<(u64, u64)>) -> (SinceEpoch, Nanoseconds) {
    let (first, last) = range_ns.unwrap_or((i64::MAX as u64, i64::MAX as u64));
    let start = SinceEpoch {
        nanoseconds_since_epoch: first,
    };
    let duration = Nanoseconds {
        nanoseconds: last - first,
    };
    (start, duration)
}

impl<'a> Information<'a> {
    pub(super) fn new(storage: Storage, topics: &'a [BagTopic], files: &'a [FileEntry]) -> Self {
        let ranges = files.iter().filter_map(|file| file.range_ns);
        let range_ns = ranges.reduce(|all, range| (all.0.min(range.0), all.1.max(range.1)));
        let (starting_time, duration) = times(range_ns);
        let topics = topics.iter().enumerate().map(|(number, topic)| TopicWithCount {
            topic_metadata: TopicMetadata {
                name: &topic.name,
                type_name: &topic.type_name,
                serialization_format: &topic.serialization,
                offered_qos_profiles: topic.offered_qos.iter().map(WrittenProfile::from).collect(),
                type_description_hash: topic.type_hash.map(|hash| hash.to_string()).unwrap_or_default(),
            },
            message_count: files
                .iter()
                .map(|file| file.counts.get(number).copied().unwrap_or(0))
                .sum(),
        });
        let topics: Vec<TopicWithCount<'a>> = topics.collect();
        let entries = files.iter().map(|file| {
            let (starting_time, duration) = times(file.range_ns);
            FileInformation {
                path: &file.name,
                starting_time,
                duration,
                message_count: file.counts.iter().sum(),
            }
        });
        Self {
            version: VERSION,
            storage_identifier: storage.name(),
            duration,
            starting_time,
            message_count: topics.iter().map(|topic| topic.message_count).sum(),
            topics_with_message_count: topics,
            compression_format: "",
            compression_mode: "",
            relative_file_paths: files.iter().map(|file| file.name.as_str()).collect(),
            files: entries.collect(),
            custom_data: None,
            ros_distro: DISTRO,
        }
    }

    /// The text that a storage file keeps.
    pub(super) fn within(&self) -> Result<String, serde_saphyr::ser::Error> {
        serde_saphyr::to_string(self)
    }

    /// The text of `metadata.yaml`.
    pub(super) fn beside(self) -> Result<String, serde_saphyr::ser::Error> {
        serde_saphyr::to_string(&Document {
            rosbag2_bagfile_information: self,
        })
    }
}
