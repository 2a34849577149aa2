//! Writing rosbag2 bags: a folder with `metadata.yaml`, or one file.
//!
//! A bag gets its name when it is complete: until then it lies in a temporary folder beside its place, which goes
//! with the writer. What has the name already is replaced only where that is allowed, and only if it is a bag.

mod db3;
mod error;
mod metadata;
mod place;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

pub use error::BagWriteError;

use super::metadata::FILE_NAME;
use super::{BagTopic, Storage};
use crate::io::recorder::{McapRecorder, RecordChannel, RecordCompression};
use db3::Db3Writer;
use metadata::{FileEntry, Information};
use place::Place;

/// How a bag is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BagWriterSettings {
    /// What keeps the messages of a folder; the name of a single file says it itself.
    pub storage: Storage,
    /// Compression of MCAP chunks.
    pub compression: RecordCompression,
    /// A new file begins before a message that would make its messages larger than this, in bytes.
    pub split_bytes: Option<u64>,
    /// A new file begins with a message that is later than the first of its file by more than this, in nanoseconds.
    pub split_duration_ns: Option<u64>,
    /// Whether a bag of that name is replaced.
    pub overwrite: bool,
}

impl Default for BagWriterSettings {
    /// MCAP, uncompressed, in one file, of a name that is free.
    fn default() -> Self {
        Self {
            storage: Storage::Mcap,
            compression: RecordCompression::None,
            split_bytes: None,
            split_duration_ns: None,
            overwrite: false,
        }
    }
}

/// A topic of one [`BagWriter`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(usize);

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrittenBag {
    /// Messages.
    pub messages: u64,
    /// Storage files.
    pub files: usize,
    /// Bytes of the storage files.
    pub size_bytes: u64,
}

/// Writes one bag; see the settings. Dropped before [`finish`](Self::finish), it leaves nothing behind.
///
/// ```no_run
/// # fn main() -> Result<(), sensorium::io::bag::BagWriteError> {
/// use sensorium::io::bag::{BagTopic, BagWriter, BagWriterSettings};
/// let mut bag = BagWriter::create("drive".as_ref(), BagWriterSettings::default())?;
/// let clock = bag.add_topic(&BagTopic::of_type("/clock", "rosgraph_msgs/msg/Clock"))?;
/// bag.write(clock, 5_000_000_000, 5_000_000_000, &[0, 1, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0])?;
/// bag.finish()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct BagWriter {
    place: Place,
    /// The bag is a folder, and this the beginning of its files' names.
    stem: Option<String>,
    settings: BagWriterSettings,
    topics: Vec<BagTopic>,
    numbers: HashMap<String, TopicId>,
    open: Option<OpenFile>,
    files: Vec<FileEntry>,
    size_bytes: u64,
}

/// The file that is being written.
#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    storage: StorageWriter,
    entry: FileEntry,
    bytes: u64,
}

#[derive(Debug)]
enum StorageWriter {
    Mcap {
        recorder: Box<McapRecorder>,
        channels: Vec<RecordChannel>,
    },
    Db3(Db3Writer),
}

impl BagWriter {
    /// Begins a bag. A name that ends in `.mcap` or `.db3` is one file of that storage, any other a folder.
    ///
    /// # Errors
    /// [`BagWriteError::Exists`], [`BagWriteError::NotReplaced`], [`BagWriteError::SplitFile`],
    /// [`BagWriteError::CompressedSqlite`], [`BagWriteError::Io`].
    pub fn create(path: &Path, mut settings: BagWriterSettings) -> Result<Self, BagWriteError> {
        let suffix = path.extension().and_then(|suffix| suffix.to_str());
        let storage = match suffix {
            Some("mcap") => Some(Storage::Mcap),
            Some("db3") => Some(Storage::Sqlite3),
            _ => None,
        };
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let stem = storage.is_none().then_some(name);
        settings.storage = storage.unwrap_or(settings.storage);
        if settings.storage == Storage::Sqlite3 && settings.compression != RecordCompression::None {
            return Err(BagWriteError::CompressedSqlite);
        }
        if stem.is_none() && (settings.split_bytes.is_some() || settings.split_duration_ns.is_some()) {
            return Err(BagWriteError::SplitFile {
                path: path.to_owned(),
            });
        }
        let place = Place::new(path, settings.overwrite)?;
        if stem.is_some() {
            let folder = place.unfinished();
            std::fs::create_dir(&folder).map_err(BagWriteError::io(folder))?;
        }
        Ok(Self {
            place,
            stem,
            settings,
            topics: Vec::new(),
            numbers: HashMap::new(),
            open: None,
            files: Vec::new(),
            size_bytes: 0,
        })
    }

    /// Adds a topic; its count of messages does not matter. A topic that is there already stays as it is.
    ///
    /// # Errors
    /// [`BagWriteError::TwoTypes`] for a topic that is there with another type, and those of the storage.
    pub fn add_topic(&mut self, topic: &BagTopic) -> Result<TopicId, BagWriteError> {
        if let Some(id) = self.numbers.get(&topic.name) {
            let known = &self.topics[id.0];
            if known.type_name != topic.type_name {
                return Err(BagWriteError::TwoTypes {
                    topic: topic.name.clone(),
                    first: known.type_name.clone(),
                    second: topic.type_name.clone(),
                });
            }
            return Ok(*id);
        }
        let id = TopicId(self.topics.len());
        if let Some(open) = &mut self.open {
            open.add_topic(id, topic)?;
        }
        self.topics.push(topic.clone());
        self.numbers.insert(topic.name.clone(), id);
        Ok(id)
    }

    /// Writes one serialised message. SQLite bags do not keep the time of publishing.
    ///
    /// # Errors
    /// Any of the storage, most often because the disk is full.
    pub fn write(
        &mut self,
        topic: TopicId,
        log_time_ns: u64,
        publish_time_ns: u64,
        data: &[u8],
    ) -> Result<(), BagWriteError> {
        if self.is_full(log_time_ns, data.len() as u64) {
            self.close_file()?;
        }
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                let file = self.next_file()?;
                self.open.insert(file)
            }
        };
        match &mut open.storage {
            StorageWriter::Mcap { recorder, channels } => {
                recorder.write(channels[topic.0], log_time_ns, publish_time_ns, data)?;
            }
            StorageWriter::Db3(writer) => writer.write(topic.0 + 1, log_time_ns, data)?,
        }
        open.bytes += data.len() as u64;
        open.entry.counts[topic.0] += 1;
        let (first, last) = open.entry.range_ns.unwrap_or((log_time_ns, log_time_ns));
        open.entry.range_ns = Some((first.min(log_time_ns), last.max(log_time_ns)));
        Ok(())
    }

    /// Whether the open file shall not take a message of that time and length.
    fn is_full(&self, log_time_ns: u64, bytes: u64) -> bool {
        let Some(open) = &self.open else { return false };
        let Some((first, _)) = open.entry.range_ns else {
            return false;
        };
        let settings = &self.settings;
        settings
            .split_bytes
            .is_some_and(|limit| open.bytes.saturating_add(bytes) > limit)
            || settings
                .split_duration_ns
                .is_some_and(|limit| log_time_ns.saturating_sub(first) > limit)
    }

    fn next_file(&self) -> Result<OpenFile, BagWriteError> {
        let unfinished = self.place.unfinished();
        let (path, name) = match &self.stem {
            Some(stem) => {
                let suffix = match self.settings.storage {
                    Storage::Mcap => "mcap",
                    Storage::Sqlite3 => "db3",
                };
                let name = format!("{stem}_{}.{suffix}", self.files.len());
                (unfinished.join(&name), name)
            }
            None => {
                let name = self.place.wanted().file_name().unwrap_or_default();
                (unfinished, name.to_string_lossy().into_owned())
            }
        };
        let storage = match self.settings.storage {
            Storage::Mcap => StorageWriter::Mcap {
                recorder: Box::new(McapRecorder::create(&path, self.settings.compression)?),
                channels: Vec::new(),
            },
            Storage::Sqlite3 => StorageWriter::Db3(Db3Writer::create(&path)?),
        };
        let entry = FileEntry {
            name,
            range_ns: None,
            counts: Vec::new(),
        };
        let mut file = OpenFile {
            path,
            storage,
            entry,
            bytes: 0,
        };
        for (number, topic) in self.topics.iter().enumerate() {
            file.add_topic(TopicId(number), topic)?;
        }
        Ok(file)
    }

    fn close_file(&mut self) -> Result<(), BagWriteError> {
        let Some(file) = self.open.take() else {
            return Ok(());
        };
        let files = [file.entry];
        let metadata = Information::new(self.settings.storage, &self.topics, &files).within();
        let metadata = metadata.map_err(|error| self.bad_metadata(&error))?;
        match file.storage {
            StorageWriter::Mcap { mut recorder, .. } => {
                let record = BTreeMap::from([("serialized_metadata".to_owned(), metadata)]);
                recorder.add_metadata("rosbag2", record)?;
                recorder.finish()?;
            }
            StorageWriter::Db3(writer) => writer.finish(&metadata)?,
        }
        place::sync(&file.path)?;
        let size = std::fs::metadata(&file.path).map_err(BagWriteError::io(&file.path))?;
        self.size_bytes += size.len();
        self.files.extend(files);
        Ok(())
    }

    /// Closes the files, writes the metadata, and gives the bag its name.
    ///
    /// # Errors
    /// Any of the storage and of the file system; the bag is not there then.
    pub fn finish(mut self) -> Result<WrittenBag, BagWriteError> {
        // A bag without messages has a file too, which tells its topics.
        if self.open.is_none() && self.files.is_empty() {
            self.open = Some(self.next_file()?);
        }
        self.close_file()?;
        let information = Information::new(self.settings.storage, &self.topics, &self.files);
        if self.stem.is_some() {
            let path = self.place.unfinished().join(FILE_NAME);
            let text = information.beside().map_err(|error| self.bad_metadata(&error))?;
            std::fs::write(&path, text).map_err(BagWriteError::io(&path))?;
            place::sync(&path)?;
        }
        let written = WrittenBag {
            messages: self.files.iter().flat_map(|file| &file.counts).sum(),
            files: self.files.len(),
            size_bytes: self.size_bytes,
        };
        self.place.complete()?;
        Ok(written)
    }

    fn bad_metadata(&self, error: &dyn std::fmt::Display) -> BagWriteError {
        BagWriteError::Metadata {
            path: self.place.wanted().to_owned(),
            reason: error.to_string(),
        }
    }
}

impl OpenFile {
    fn add_topic(&mut self, id: TopicId, topic: &BagTopic) -> Result<(), BagWriteError> {
        match &mut self.storage {
            StorageWriter::Mcap { recorder, channels } => channels.push(recorder.add_topic(topic)?),
            StorageWriter::Db3(writer) => writer.add_topic(id.0 + 1, topic)?,
        }
        self.entry.counts.push(0);
        Ok(())
    }
}
