//! Writing recordings: one MCAP file with ROS 2 messages as they came and JSON beside them.
//!
//! Files carry the profile `ros2`, a definition for every channel and a full index, so that `ros2 bag`,
//! Foxglove and the `rosbags` and `mcap` packages read them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use mcap::records::MessageHeader;
use thiserror::Error;

use super::bag::{BagTopic, qos_text};

/// The longest that messages wait in memory for their chunk to fill, by their log times: what a sudden end may cost a
/// recording of few bytes a second. Log times rather than a clock, so that a file's bytes do not depend on the pace.
const LONGEST_CHUNK_NS: u64 = 5_000_000_000;

/// Why a recording cannot be written.
#[derive(Debug, Error)]
pub enum RecordError {
    /// The file cannot be made.
    #[error("cannot write {}: {source}", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Writing failed, most often because the disk is full.
    #[error("writing {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The writer's reason.
        source: mcap::McapError,
    },
}

/// How a recording's chunks are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordCompression {
    /// Not at all: the cheapest, and right for JPEG and PNG, which do not shrink.
    None,
    /// zstd at its default level.
    Zstd,
}

/// A channel of one [`McapRecorder`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordChannel(u16);

/// Writes one MCAP file.
///
/// [`finish`](Self::finish) tells whether the file is whole; a recorder that is merely dropped still closes its
/// file as far as the disk lets it.
pub struct McapRecorder {
    path: PathBuf,
    writer: mcap::Writer<BufWriter<File>>,
    /// Messages written to each channel, which numbers the next one.
    sequences: BTreeMap<RecordChannel, u32>,
    /// Log time of the first message that may still be in memory.
    unwritten_since_ns: Option<u64>,
}

impl std::fmt::Debug for McapRecorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McapRecorder")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl McapRecorder {
    /// Creates the file, replacing one of that name.
    ///
    /// # Errors
    /// [`RecordError::Create`], [`RecordError::Write`].
    pub fn create(path: &Path, compression: RecordCompression) -> Result<Self, RecordError> {
        let file = File::create(path).map_err(|source| RecordError::Create {
            path: path.to_owned(),
            source,
        })?;
        let writer = mcap::WriteOptions::new()
            .profile("ros2")
            .library("sensorium")
            .compression(match compression {
                RecordCompression::None => None,
                RecordCompression::Zstd => Some(mcap::Compression::Zstd),
            })
            // The caller's threads are all there are; a file's bytes do not depend on the machine.
            .compression_threads(0)
            .create(BufWriter::with_capacity(1 << 18, file))
            .map_err(|source| RecordError::Write {
                path: path.to_owned(),
                source,
            })?;
        Ok(Self {
            path: path.to_owned(),
            writer,
            sequences: BTreeMap::new(),
            unwritten_since_ns: None,
        })
    }

    /// Adds a topic of ROS 2 messages in CDR. `definition` is the type's `ros2msg` text; for the types of
    /// this crate see [`definition`](super::messages::definition).
    ///
    /// # Errors
    /// [`RecordError::Write`].
    pub fn add_ros_channel(
        &mut self,
        topic: &str,
        type_name: &str,
        definition: &str,
    ) -> Result<RecordChannel, RecordError> {
        // Players ask for the key even where the profile is the default one.
        let metadata = BTreeMap::from([("offered_qos_profiles".to_owned(), String::new())]);
        self.add_channel(topic, "cdr", (type_name, "ros2msg", definition), &metadata)
    }

    /// Adds a topic as a bag has it: with its type's definition and hash, and what its publishers offered.
    ///
    /// # Errors
    /// [`RecordError::Write`].
    pub fn add_topic(&mut self, topic: &BagTopic) -> Result<RecordChannel, RecordError> {
        let mut metadata = BTreeMap::new();
        if topic.serialization == "cdr" {
            let qos = qos_text(&topic.offered_qos).map_err(|error| RecordError::Write {
                path: self.path.clone(),
                source: mcap::McapError::Io(std::io::Error::other(error)),
            })?;
            metadata.insert("offered_qos_profiles".to_owned(), qos);
            let hash = topic.type_hash.map(|hash| hash.to_string()).unwrap_or_default();
            metadata.insert("topic_type_hash".to_owned(), hash);
        }
        let (encoding, text) = match &topic.definition {
            Some(definition) => (definition.encoding.as_str(), definition.text.as_str()),
            None => ("", ""),
        };
        let schema = (topic.type_name.as_str(), encoding, text);
        self.add_channel(&topic.name, &topic.serialization, schema, &metadata)
    }

    /// Writes a metadata record: names and texts.
    ///
    /// # Errors
    /// [`RecordError::Write`].
    pub fn add_metadata(
        &mut self,
        name: &str,
        metadata: BTreeMap<String, String>,
    ) -> Result<(), RecordError> {
        let record = mcap::records::Metadata {
            name: name.to_owned(),
            metadata,
        };
        self.writer
            .write_metadata(&record)
            .map_err(|source| self.failed(source))
    }

    /// Adds a topic of JSON messages with a JSON schema.
    ///
    /// # Errors
    /// [`RecordError::Write`].
    pub fn add_json_channel(
        &mut self,
        topic: &str,
        schema_name: &str,
        json_schema: &str,
    ) -> Result<RecordChannel, RecordError> {
        self.add_channel(
            topic,
            "json",
            (schema_name, "jsonschema", json_schema),
            &BTreeMap::new(),
        )
    }

    fn add_channel(
        &mut self,
        topic: &str,
        encoding: &str,
        (schema_name, schema_encoding, schema): (&str, &str, &str),
        metadata: &BTreeMap<String, String>,
    ) -> Result<RecordChannel, RecordError> {
        let schema = match schema_name {
            // A message without a type has no schema, which is number 0.
            "" => Ok(0),
            _ => self
                .writer
                .add_schema(schema_name, schema_encoding, schema.as_bytes()),
        };
        let channel = schema.and_then(|schema| self.writer.add_channel(schema, topic, encoding, metadata));
        let channel = RecordChannel(channel.map_err(|source| self.failed(source))?);
        self.sequences.entry(channel).or_insert(0);
        Ok(channel)
    }

    /// Writes one message, and to the file all that came five seconds of log time before it or earlier.
    ///
    /// # Errors
    /// [`RecordError::Write`].
    pub fn write(
        &mut self,
        channel: RecordChannel,
        log_time_ns: u64,
        publish_time_ns: u64,
        data: &[u8],
    ) -> Result<(), RecordError> {
        let sequence = self.sequences.entry(channel).or_insert(0);
        let header = MessageHeader {
            channel_id: channel.0,
            sequence: *sequence,
            log_time: log_time_ns,
            publish_time: publish_time_ns,
        };
        *sequence = sequence.wrapping_add(1);
        let since_ns = *self.unwritten_since_ns.get_or_insert(log_time_ns);
        let mut written = self.writer.write_to_known_channel(&header, data);
        // Clocks of bags jump either way.
        if written.is_ok() && log_time_ns.abs_diff(since_ns) >= LONGEST_CHUNK_NS {
            self.unwritten_since_ns = None;
            written = self.writer.flush();
        }
        written.map_err(|source| self.failed(source))
    }

    /// Writes the index and closes the file.
    ///
    /// # Errors
    /// [`RecordError::Write`].
    pub fn finish(mut self) -> Result<(), RecordError> {
        let finished = self.writer.finish().map(|_| ());
        finished.map_err(|source| self.failed(source))?;
        let path = self.path.clone();
        // What is still in the buffer is written here, where a full disk can be told of.
        let file = self.writer.into_inner().into_inner();
        file.map(|_| ()).map_err(|error| RecordError::Write {
            path,
            source: error.into_error().into(),
        })
    }

    fn failed(&self, source: mcap::McapError) -> RecordError {
        RecordError::Write {
            path: self.path.clone(),
            source,
        }
    }
}
