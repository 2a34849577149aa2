//! SQLite files as rosbag2 writes them: schema version 4.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};

use super::BagWriteError;
use super::metadata::{DISTRO, VERSION};
use crate::io::bag::{BagTopic, qos};

/// Bytes of messages in one transaction.
const TRANSACTION_BYTES: usize = 16 << 20;

const TABLES: &str = "
    CREATE TABLE schema(schema_version INTEGER PRIMARY KEY, ros_distro TEXT NOT NULL);
    CREATE TABLE metadata(id INTEGER PRIMARY KEY, metadata_version INTEGER NOT NULL, metadata TEXT NOT NULL);
    CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT NOT NULL, type TEXT NOT NULL,
        serialization_format TEXT NOT NULL, offered_qos_profiles TEXT NOT NULL, type_description_hash TEXT NOT NULL);
    CREATE TABLE message_definitions(id INTEGER PRIMARY KEY, topic_type TEXT NOT NULL, encoding TEXT NOT NULL,
        encoded_message_definition TEXT NOT NULL, type_description_hash TEXT NOT NULL);
    CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER NOT NULL, timestamp INTEGER NOT NULL,
        data BLOB NOT NULL);
    CREATE INDEX timestamp_idx ON messages (timestamp ASC);
";

/// One file that is being written. It has no name that anybody waits for yet, so it needs no journal.
#[derive(Debug)]
pub(super) struct Db3Writer {
    path: PathBuf,
    connection: Connection,
    /// Types whose definition is written.
    defined: BTreeSet<String>,
    /// Bytes of messages in the open transaction.
    open_bytes: usize,
}

impl Db3Writer {
    pub(super) fn create(path: &Path) -> Result<Self, BagWriteError> {
        let connection = Connection::open(path).map_err(BagWriteError::sqlite(path))?;
        let begun = connection
            .execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
            .and_then(|()| connection.execute_batch(TABLES))
            .and_then(|()| connection.execute("INSERT INTO schema VALUES (4, ?1)", [DISTRO]))
            .and_then(|_| connection.execute_batch("BEGIN"));
        begun.map_err(BagWriteError::sqlite(path))?;
        Ok(Self {
            path: path.to_owned(),
            connection,
            defined: BTreeSet::new(),
            open_bytes: 0,
        })
    }

    pub(super) fn add_topic(&mut self, id: usize, topic: &BagTopic) -> Result<(), BagWriteError> {
        let qos = qos::text(&topic.offered_qos).map_err(|error| BagWriteError::Metadata {
            path: self.path.clone(),
            reason: error.to_string(),
        })?;
        let hash = topic.type_hash.map(|hash| hash.to_string()).unwrap_or_default();
        let row = params![
            id as i64,
            topic.name,
            topic.type_name,
            topic.serialization,
            qos,
            hash
        ];
        self.connection
            .execute("INSERT INTO topics VALUES (?1, ?2, ?3, ?4, ?5, ?6)", row)
            .map_err(BagWriteError::sqlite(&self.path))?;
        if let Some(definition) = &topic.definition
            && self.defined.insert(topic.type_name.clone())
        {
            let row = params![topic.type_name, definition.encoding, definition.text, hash];
            let statement = "INSERT INTO message_definitions(topic_type, encoding, encoded_message_definition, \
                             type_description_hash) VALUES (?1, ?2, ?3, ?4)";
            self.connection
                .execute(statement, row)
                .map_err(BagWriteError::sqlite(&self.path))?;
        }
        Ok(())
    }

    pub(super) fn write(&mut self, id: usize, log_time_ns: u64, data: &[u8]) -> Result<(), BagWriteError> {
        let timestamp = i64::try_from(log_time_ns).map_err(|_| BagWriteError::Time {
            path: self.path.clone(),
            time_ns: log_time_ns,
        })?;
        let statement = "INSERT INTO messages(topic_id, timestamp, data) VALUES (?1, ?2, ?3)";
        let written = self
            .connection
            .prepare(statement)
            .and_then(|mut statement| statement.execute(params![id as i64, timestamp, data]));
        written.map_err(BagWriteError::sqlite(&self.path))?;
        self.open_bytes += data.len();
        if self.open_bytes >= TRANSACTION_BYTES {
            self.open_bytes = 0;
            self.connection
                .execute_batch("COMMIT; BEGIN")
                .map_err(BagWriteError::sqlite(&self.path))?;
        }
        Ok(())
    }

    pub(super) fn finish(self, metadata: &str) -> Result<(), BagWriteError> {
        let statement = "INSERT INTO metadata(metadata_version, metadata) VALUES (?1, ?2)";
        self.connection
            .execute(statement, params![VERSION, metadata])
            .and_then(|_| self.connection.execute_batch("COMMIT"))
            .map_err(BagWriteError::sqlite(&self.path))?;
        let closed = self.connection.close();
        closed.map_err(|(_, source)| BagWriteError::sqlite(&self.path)(source))
    }
}
