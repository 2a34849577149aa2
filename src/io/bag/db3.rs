//! SQLite bags (`.db3`), schema versions 1 to 4.
//!
//! Files are opened read-only and as immutable: SQLite then takes no lock and writes no journal beside the
//! bag. Tables and columns are probed rather than derived from a version, since older files do not say theirs.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::topic::FileTopic;
use super::{BagError, BagLimits, BagMessage, TimeRange, TypeDefinition};
use crate::io::messages::normalise_type;

/// First bytes of every SQLite file.
pub(super) const MAGIC: &[u8] = b"SQLite format 3\0";

/// Keys (24 bytes each) in the first page and in the largest. Pages double: the first message comes at once,
/// and a file without an index on time is not sorted over and over.
const PAGE_KEYS: (i64, i64) = (1 << 8, 1 << 16);

/// Longest definition that is read.
const MAX_DEFINITION_BYTES: i64 = 1 << 20;

/// One opened file.
#[derive(Debug)]
pub(super) struct Db3File {
    path: PathBuf,
    shown: PathBuf,
    topics: BTreeMap<i64, Topic>,
    range_ns: Option<(u64, u64)>,
}

#[derive(Debug, Clone)]
struct Topic {
    name: Arc<str>,
    type_name: Arc<str>,
    serialization: String,
    messages: u64,
    /// Offered profiles and type hash as the file has them; empty for none.
    offered_qos: String,
    type_hash: String,
    definition: Option<TypeDefinition>,
}

impl Db3File {
    /// Opens a file; `shown` is the name that errors give.
    pub(super) fn open(path: &Path, shown: &Path) -> Result<Self, BagError> {
        let connection = connect(path, shown)?;
        let sqlite = || BagError::sqlite(shown);
        for (table, needed) in [
            ("topics", &["id", "name", "type", "serialization_format"][..]),
            ("messages", &["id", "topic_id", "timestamp", "data"][..]),
        ] {
            let columns = columns(&connection, table).map_err(sqlite())?;
            if columns.is_empty() {
                return Err(BagError::NotABagDatabase {
                    path: shown.to_owned(),
                    missing: format!("it has no table {table:?}"),
                });
            }
            if let Some(missing) = needed.iter().find(|name| !columns.iter().any(|c| c == *name)) {
                return Err(BagError::NotABagDatabase {
                    path: shown.to_owned(),
                    missing: format!("its table {table:?} has no column {missing:?}"),
                });
            }
        }
        let range = "SELECT min(timestamp), max(timestamp) FROM messages";
        let range: (Option<i64>, Option<i64>) = connection
            .query_row(range, [], |row| Ok((row.get(0)?, row.get(1)?)))
            .map_err(sqlite())?;
        Ok(Self {
            path: path.to_owned(),
            shown: shown.to_owned(),
            topics: topics(&connection).map_err(sqlite())?,
            range_ns: match range {
                (Some(first), Some(last)) => Some((first.max(0) as u64, last.max(0) as u64)),
                _ => None,
            },
        })
    }

    /// Topics with their counts, in the order of their ids.
    pub(super) fn topics(&self) -> Vec<FileTopic> {
        let topics = self.topics.values().map(|topic| FileTopic {
            name: topic.name.to_string(),
            type_name: topic.type_name.to_string(),
            serialization: topic.serialization.clone(),
            messages: topic.messages,
            offered_qos: topic.offered_qos.clone().into(),
            type_hash: topic.type_hash.clone(),
            definition: topic.definition.clone(),
        });
        topics.collect()
    }

    /// First and last timestamp, or `None` for a file without messages.
    pub(super) fn range_ns(&self) -> Option<(u64, u64)> {
        self.range_ns
    }

    /// Messages in `range` of the topics for which `wanted` is true.
    pub(super) fn messages(
        &self,
        wanted: impl Fn(&str) -> bool,
        range: TimeRange,
        limits: BagLimits,
    ) -> Result<Messages, BagError> {
        let topics: BTreeMap<i64, Topic> = self
            .topics
            .iter()
            .filter(|(_, topic)| wanted(&topic.name))
            .map(|(id, topic)| (*id, topic.clone()))
            .collect();
        let mut ids = String::new();
        for id in topics.keys() {
            let comma = if ids.is_empty() { "" } else { "," };
            // Writing to a string does not fail.
            let _ = write!(ids, "{comma}{id}");
        }
        Ok(Messages {
            connection: connect(&self.path, &self.shown)?,
            shown: self.shown.clone(),
            topics,
            page_query: format!(
                "SELECT timestamp, id, topic_id FROM messages \
                 WHERE (timestamp, id) > (?1, ?2) AND timestamp <= ?4 AND topic_id IN ({ids}) \
                 ORDER BY timestamp, id LIMIT ?3"
            ),
            page: VecDeque::new(),
            page_keys: PAGE_KEYS.0,
            // Times before the epoch are damage, told of unless a start was asked for.
            after: match range.start_ns {
                0 => Some((i64::MIN, i64::MIN)),
                start_ns => i64::try_from(start_ns).ok().map(|start| (start, i64::MIN)),
            },
            last: match range.end_ns {
                Some(end_ns) => i64::try_from(end_ns).unwrap_or(i64::MAX).saturating_sub(1),
                None => i64::MAX,
            },
            limits,
        })
    }
}

/// An iterator over the messages of one file in time order, page by page.
#[derive(Debug)]
pub(super) struct Messages {
    connection: Connection,
    shown: PathBuf,
    topics: BTreeMap<i64, Topic>,
    page_query: String,
    /// Timestamp, id and topic of the next messages.
    page: VecDeque<(i64, i64, i64)>,
    /// Keys to fetch next.
    page_keys: i64,
    /// Key of the last message fetched; `None` after the last page.
    after: Option<(i64, i64)>,
    /// Last timestamp to fetch.
    last: i64,
    limits: BagLimits,
}

impl Messages {
    fn fetch_page(&mut self, after: (i64, i64)) -> rusqlite::Result<()> {
        let mut query = self.connection.prepare(&self.page_query)?;
        let mut rows = query.query([after.0, after.1, self.page_keys, self.last])?;
        while let Some(row) = rows.next()? {
            self.page.push_back((row.get(0)?, row.get(1)?, row.get(2)?));
        }
        self.page_keys = (self.page_keys * 2).min(PAGE_KEYS.1);
        Ok(())
    }

    fn message(&self, timestamp: i64, id: i64, topic: i64) -> Result<BagMessage, BagError> {
        let bad = |reason| BagError::BadRow {
            path: self.shown.clone(),
            id,
            reason,
        };
        let log_time_ns = u64::try_from(timestamp).map_err(|_| bad("its timestamp is before the epoch"))?;
        let topic = self
            .topics
            .get(&topic)
            .ok_or_else(|| bad("its topic is unknown"))?;
        let limit = self.limits.max_message_bytes;
        let data = (|| {
            let mut query = self
                .connection
                .prepare("SELECT data FROM messages WHERE id = ?1")?;
            let data = query.query_row([id], |row| match row.get_ref(0)? {
                ValueRef::Blob(data) if data.len() as u64 <= limit => Ok(Ok(data.to_vec())),
                ValueRef::Blob(_) => Ok(Err("it is larger than the limit")),
                _ => Ok(Err("its data is no blob")),
            });
            data.optional()
        })();
        let data = data.map_err(BagError::sqlite(&self.shown))?;
        Ok(BagMessage {
            topic: Arc::clone(&topic.name),
            type_name: Arc::clone(&topic.type_name),
            log_time_ns,
            publish_time_ns: log_time_ns,
            data: data.unwrap_or(Err("it cannot be found by its id")).map_err(bad)?,
        })
    }
}

impl Iterator for Messages {
    type Item = Result<BagMessage, BagError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.page.is_empty() {
            let fetched = self.fetch_page(self.after?);
            // A page that fails half-way is the last one: what was fetched is delivered first.
            self.after = match (&fetched, self.page.back()) {
                (Ok(()), Some((timestamp, id, _))) => Some((*timestamp, *id)),
                _ => None,
            };
            if let Err(source) = fetched {
                self.page.clear();
                return Some(Err(BagError::sqlite(&self.shown)(source)));
            }
        }
        let (timestamp, id, topic) = self.page.pop_front()?;
        Some(self.message(timestamp, id, topic))
    }
}

/// The write-ahead log of a file, if there is one with anything in it, and its length in bytes.
pub(super) fn write_ahead_log(path: &Path) -> Option<(PathBuf, u64)> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let log = PathBuf::from(log);
    let bytes = std::fs::metadata(&log).ok()?.len();
    (bytes > 0).then_some((log, bytes))
}

/// Copies a file and its write-ahead log to `to` and has SQLite put them together there.
pub(super) fn copy_with_log(path: &Path, log: &Path, to: &Path) -> Result<(), BagError> {
    let mut log_copy = to.as_os_str().to_owned();
    log_copy.push("-wal");
    std::fs::copy(path, to).map_err(BagError::io(path))?;
    std::fs::copy(log, PathBuf::from(log_copy)).map_err(BagError::io(log))?;
    let merged = Connection::open(to).and_then(|connection| {
        // Answers with the mode that is on now.
        connection.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get::<_, String>(0))?;
        connection.close().map_err(|(_, error)| error)
    });
    merged.map_err(BagError::sqlite(log))
}

/// Opens without locks and without files beside the bag.
fn connect(path: &Path, shown: &Path) -> Result<Connection, BagError> {
    let absolute = std::path::absolute(path).map_err(BagError::io(shown))?;
    let mut uri = String::from("file:");
    for byte in absolute.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => {
                uri.push(char::from(*byte))
            }
            // Writing to a string does not fail.
            other => drop(write!(uri, "%{other:02X}")),
        }
    }
    uri.push_str("?mode=ro&immutable=1");
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(uri, flags).map_err(BagError::sqlite(shown))
}

fn columns(connection: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    let mut query = connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
    let names = query.query_map([table], |row| row.get(0))?;
    names.collect()
}

fn topics(connection: &Connection) -> rusqlite::Result<BTreeMap<i64, Topic>> {
    let mut counts = connection.prepare("SELECT topic_id, count(*) FROM messages GROUP BY topic_id")?;
    let counts = counts.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?)))?;
    let counts: BTreeMap<i64, i64> = counts.collect::<rusqlite::Result<_>>()?;
    let names = columns(connection, "topics")?;
    // Older schema versions lack these columns, in turn.
    let column = |name: &str| match names.iter().any(|known| known == name) {
        true => name.to_owned(),
        false => "''".to_owned(),
    };
    // Messages are read without definitions: where that table is damaged, there are none.
    let definitions = definitions(connection).unwrap_or_default();
    let mut query = connection.prepare(&format!(
        "SELECT id, name, type, serialization_format, {}, {} FROM topics",
        column("offered_qos_profiles"),
        column("type_description_hash")
    ))?;
    let topics = query.query_map([], |row| {
        let id: i64 = row.get(0)?;
        let type_name = normalise_type(&row.get::<_, String>(2)?);
        let topic = Topic {
            name: row.get::<_, String>(1)?.into(),
            definition: definitions.get(&type_name).cloned(),
            type_name: type_name.into(),
            serialization: row.get(3)?,
            messages: counts.get(&id).map_or(0, |n| n.unsigned_abs()),
            // Null, or of another type than text: as good as none.
            offered_qos: row.get(4).unwrap_or_default(),
            type_hash: row.get(5).unwrap_or_default(),
        };
        Ok((id, topic))
    })?;
    topics.collect()
}

/// Definitions by type; none in files before schema version 4.
fn definitions(connection: &Connection) -> rusqlite::Result<BTreeMap<String, TypeDefinition>> {
    let names = columns(connection, "message_definitions")?;
    let needed = ["topic_type", "encoding", "encoded_message_definition"];
    if !needed.iter().all(|name| names.iter().any(|known| known == name)) {
        return Ok(BTreeMap::new());
    }
    let query = "SELECT topic_type, encoding, encoded_message_definition FROM message_definitions \
                 WHERE encoding != '' AND length(encoded_message_definition) <= ?1";
    let mut query = connection.prepare(query)?;
    let definitions = query.query_map([MAX_DEFINITION_BYTES], |row| {
        let definition = TypeDefinition {
            encoding: row.get(1)?,
            text: row.get(2)?,
        };
        Ok((normalise_type(&row.get::<_, String>(0)?), definition))
    })?;
    definitions.collect()
}
