//! Finds the files of a bag, tells what each is, and puts their tables of contents together.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::metadata::{self, CompressionMode, Metadata};
use super::topic::FileTopic;
use super::{
    Bag, BagError, BagFile, BagLimits, BagTopic, BagWarning, Contents, FileReader, TimeRange, db3, mcap, zstd,
};

/// Suffixes that a bag file may have; only used to look through a folder without metadata.
const SUFFIXES: [&str; 4] = ["mcap", "db3", "bag", "zstd"];

/// First bytes of a ROS 1 bag.
const ROS1_MAGIC: &[u8] = b"#ROSBAG V";

pub(super) fn open(path: &Path, limits: BagLimits) -> Result<Bag, BagError> {
    let kind = std::fs::metadata(path).map_err(BagError::io(path))?;
    let mut opening = Opening::new(limits);
    if kind.is_dir() {
        let metadata = path.join(metadata::FILE_NAME);
        if metadata.is_file() {
            opening.metadata(path, &metadata)?;
        } else {
            opening.folder(path)?;
            opening.warnings.push(BagWarning::NoMetadata {
                path: path.to_owned(),
            });
        }
    } else if path
        .extension()
        .is_some_and(|suffix| suffix == "yaml" || suffix == "yml")
    {
        opening.metadata(path.parent().unwrap_or(Path::new("")), path)?;
    } else {
        opening.files(&[path.to_owned()])?;
    }
    opening.finish()
}

struct Opening {
    limits: BagLimits,
    files: Vec<BagFile>,
    warnings: Vec<BagWarning>,
    size_bytes: u64,
    declared_messages: Option<u64>,
    compression: &'static str,
    topics: BTreeMap<String, BagTopic>,
    unpacked: Option<tempfile::TempDir>,
    unpacked_bytes: u64,
}

impl Opening {
    fn new(limits: BagLimits) -> Self {
        Self {
            limits,
            files: Vec::new(),
            warnings: Vec::new(),
            size_bytes: 0,
            declared_messages: None,
            compression: "none",
            topics: BTreeMap::new(),
            unpacked: None,
            unpacked_bytes: 0,
        }
    }

    fn topic(&mut self, topic: FileTopic) {
        let known = self.topics.entry(topic.name.clone());
        known
            .or_insert_with(|| BagTopic::new(&topic))
            .learn(topic, &mut self.warnings);
    }

    /// Files that a metadata file names.
    fn metadata(&mut self, folder: &Path, path: &Path) -> Result<(), BagError> {
        let metadata = Metadata::read(path)?;
        self.compression = match metadata.compression(path)? {
            CompressionMode::None => "none",
            CompressionMode::File => "file",
            CompressionMode::Message => "message",
        };
        self.declared_messages = metadata.message_count;
        for topic in metadata.topics_with_message_count.into_iter().flatten() {
            self.topic(topic.topic_metadata.into_topic());
        }
        let names = metadata.relative_file_paths.unwrap_or_default();
        let Some(first) = names.first() else {
            return self.folder(folder);
        };
        let (mut present, mut missing) = (Vec::new(), Vec::new());
        for name in &names {
            match metadata::candidates(folder, name)
                .into_iter()
                .find(|place| place.is_file())
            {
                Some(place) => present.push(place),
                None => missing.push(name.clone()),
            }
        }
        if present.is_empty() {
            return Err(BagError::AllFilesMissing {
                path: path.to_owned(),
                named: names.len(),
                first: first.clone(),
            });
        }
        if !missing.is_empty() {
            let named = names.len();
            self.warnings.push(BagWarning::MissingFiles { missing, named });
        }
        self.files(&present)
    }

    /// Every bag file in a folder, by name.
    fn folder(&mut self, folder: &Path) -> Result<(), BagError> {
        let entries = std::fs::read_dir(folder).map_err(BagError::io(folder))?;
        let mut files = Vec::new();
        for entry in entries {
            let path = entry.map_err(BagError::io(folder))?.path();
            let suffix = path.extension().and_then(|suffix| suffix.to_str());
            if suffix.is_some_and(|suffix| SUFFIXES.contains(&suffix)) && path.is_file() {
                files.push(path);
            }
        }
        files.sort();
        if files.is_empty() {
            return Err(BagError::NoBagInFolder {
                path: folder.to_owned(),
            });
        }
        self.files(&files)
    }

    /// Opens files; one that fails beside others that do not is a warning.
    fn files(&mut self, paths: &[PathBuf]) -> Result<(), BagError> {
        let mut failures = Vec::new();
        for path in paths {
            match self.file(path) {
                Ok(()) => {}
                Err(error) => failures.push((path, error)),
            }
        }
        if self.files.is_empty()
            && let Some(at) = failures.len().checked_sub(paths.len())
        {
            return Err(failures.swap_remove(at).1);
        }
        let unreadable = failures
            .into_iter()
            .map(|(path, error)| BagWarning::UnreadableFile {
                path: path.clone(),
                reason: error.to_string(),
            });
        self.warnings.extend(unreadable);
        Ok(())
    }

    fn file(&mut self, path: &Path) -> Result<(), BagError> {
        let mut size_bytes = std::fs::metadata(path).map_err(BagError::io(path))?.len();
        let mut first_bytes = first_bytes(path)?;
        let mut place = path.to_owned();
        if first_bytes.starts_with(&zstd::MAGIC) {
            place = self.unpack(path)?;
            first_bytes = self::first_bytes(&place)?;
        }
        let reader = if first_bytes.is_empty() {
            return Err(BagError::EmptyFile {
                path: path.to_owned(),
            });
        } else if mcap::is_mcap(&first_bytes) {
            FileReader::Mcap(mcap::McapFile::open(&place, path, &self.limits)?)
        } else if first_bytes.starts_with(db3::MAGIC) {
            if let Some((log, log_bytes)) = db3::write_ahead_log(path) {
                place = self
                    .copy_with_log(path, size_bytes, log, log_bytes)
                    .unwrap_or(place);
                size_bytes += log_bytes;
            }
            FileReader::Db3(db3::Db3File::open(&place, path)?)
        } else if first_bytes.starts_with(ROS1_MAGIC) {
            return Err(BagError::Ros1 {
                path: path.to_owned(),
            });
        } else {
            return Err(BagError::UnknownFormat {
                path: path.to_owned(),
            });
        };
        self.size_bytes += size_bytes;
        self.files.push(BagFile {
            shown: path.to_owned(),
            reader,
        });
        Ok(())
    }

    /// Decompresses a file.
    fn unpack(&mut self, path: &Path) -> Result<PathBuf, BagError> {
        let place = self.temporary()?;
        self.compression = "file";
        let room = self.limits.max_unpacked_bytes.saturating_sub(self.unpacked_bytes);
        self.unpacked_bytes += zstd::decompress_file(path, &place, room)?;
        Ok(place)
    }

    /// Makes a copy of a SQLite file with its write-ahead log in it. Where that cannot be, the file is read without.
    fn copy_with_log(&mut self, path: &Path, bytes: u64, log: PathBuf, log_bytes: u64) -> Option<PathBuf> {
        let bytes = bytes.saturating_add(log_bytes);
        let room = self.limits.max_unpacked_bytes.saturating_sub(self.unpacked_bytes);
        let copied = if bytes > room {
            Err(format!("a copy of {bytes} bytes is larger than the limit"))
        } else {
            self.temporary()
                .and_then(|place| db3::copy_with_log(path, &log, &place).map(|()| place))
                .map_err(|error| error.to_string())
        };
        self.warnings.push(BagWarning::WriteAheadLog {
            path: log,
            not_read: copied.as_ref().err().cloned(),
        });
        let place = copied.ok()?;
        self.unpacked_bytes += bytes;
        Some(place)
    }

    /// The name of a new file in a temporary folder that lives as long as the bag and its readers.
    fn temporary(&mut self) -> Result<PathBuf, BagError> {
        let folder = match self.unpacked.take() {
            Some(folder) => folder,
            None => {
                let made = tempfile::Builder::new().prefix("sensorium-bag-").tempdir();
                made.map_err(BagError::io(std::env::temp_dir()))?
            }
        };
        let place = folder.path().join(format!("{}.unpacked", self.files.len()));
        self.unpacked = Some(folder);
        Ok(place)
    }

    fn finish(mut self) -> Result<Bag, BagError> {
        let mut range_ns: Option<(u64, u64)> = None;
        for file in &self.files {
            if let Some((start, end)) = file.range_ns() {
                range_ns =
                    Some(range_ns.map_or((start, end), |(first, last)| (first.min(start), last.max(end))));
            }
            self.warnings.extend(file.warnings());
        }
        let topics: Vec<FileTopic> = self.files.iter().flat_map(BagFile::topics).collect();
        for topic in topics {
            self.topic(topic);
        }
        if self.compression != "message" {
            self.sniff_messages()?;
        }
        Ok(Bag {
            contents: Arc::new(Contents {
                files: self.files,
                limits: self.limits,
                range_ns,
                size_bytes: self.size_bytes,
                declared_messages: self.declared_messages,
                compression: self.compression,
                _unpacked: self.unpacked,
            }),
            topics: self.topics.into_values().collect(),
            warnings: self.warnings,
        })
    }

    /// Looks at the first message of each file: bags exist whose messages are compressed though nothing says
    /// so.
    fn sniff_messages(&mut self) -> Result<(), BagError> {
        for file in &self.files {
            let first = match &file.reader {
                FileReader::Mcap(reader) => reader.messages(|_| true, TimeRange::ALL, self.limits)?.next(),
                FileReader::Db3(reader) => reader.messages(|_| true, TimeRange::ALL, self.limits)?.next(),
            };
            if let Some(Ok(message)) = first
                && message.data.starts_with(&zstd::MAGIC)
            {
                self.compression = "message";
                self.warnings.push(BagWarning::UndeclaredCompression {
                    path: file.shown.clone(),
                });
            }
        }
        Ok(())
    }
}

fn first_bytes(path: &Path) -> Result<Vec<u8>, BagError> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(BagError::io(path))?;
    file.take(16)
        .read_to_end(&mut bytes)
        .map_err(BagError::io(path))?;
    Ok(bytes)
}
