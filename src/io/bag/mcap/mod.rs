//! MCAP files, read record by record.
//!
//! The `mcap` crate writes the files of this project; reading is done here, since a reader of recordings from
//! vehicles must deliver every whole message of a file that was cut off at any byte, in time order with or
//! without an index, and never allocate what a damaged length claims.

mod chunk;
mod index;
mod messages;
mod record;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) use messages::Messages;

use super::{BagError, BagLimits, BagWarning, FileTopic, TimeRange};
use index::Index;
use messages::Wanted;

/// One opened file.
#[derive(Debug)]
pub(super) struct McapFile {
    path: PathBuf,
    shown: PathBuf,
    index: Arc<Index>,
}

/// Whether a file starts as MCAP does, or was cut off while it did.
pub(super) fn is_mcap(first_bytes: &[u8]) -> bool {
    first_bytes.starts_with(&record::MAGIC) || record::MAGIC.starts_with(first_bytes)
}

impl McapFile {
    /// Opens a file; `shown` is the name that errors give.
    pub(super) fn open(path: &Path, shown: &Path, limits: &BagLimits) -> Result<Self, BagError> {
        Ok(Self {
            path: path.to_owned(),
            shown: shown.to_owned(),
            index: Arc::new(Index::build(path, shown, limits)?),
        })
    }

    /// Topics with their counts, in channel order; a topic with several channels comes several times.
    pub(super) fn topics(&self) -> Vec<FileTopic> {
        let topics = self.index.channels.iter().map(|(id, channel)| FileTopic {
            name: channel.topic.to_string(),
            type_name: channel.type_name.to_string(),
            serialization: channel.encoding.clone(),
            messages: self.index.counts.get(id).copied().unwrap_or(0),
            offered_qos: channel.offered_qos.clone().into(),
            type_hash: channel.type_hash.clone(),
            definition: channel.definition.clone(),
        });
        topics.collect()
    }

    /// First and last log time, or `None` for a file without messages.
    pub(super) fn range_ns(&self) -> Option<(u64, u64)> {
        self.index.range_ns
    }

    pub(super) fn warnings(&self) -> Vec<BagWarning> {
        let path = || self.shown.clone();
        let truncated = self
            .index
            .truncated_at
            .map(|offset| BagWarning::Truncated { path: path(), offset });
        let disorder = self
            .index
            .out_of_order
            .then(|| BagWarning::OutOfOrder { path: path() });
        let damage = self.index.damage.as_ref().map(|damage| BagWarning::Damaged {
            path: path(),
            offset: damage.offset,
            reason: damage.reason.clone(),
        });
        truncated.into_iter().chain(disorder).chain(damage).collect()
    }

    /// Messages in `range` of the topics for which `wanted` is true.
    pub(super) fn messages(
        &self,
        wanted: impl Fn(&str) -> bool,
        range: TimeRange,
        limits: BagLimits,
    ) -> Result<Messages, BagError> {
        let channels: BTreeSet<u16> = self
            .index
            .channels
            .iter()
            .filter(|(_, channel)| wanted(&channel.topic))
            .map(|(id, _)| *id)
            .collect();
        let wanted = Wanted { channels, range };
        Messages::new(Arc::clone(&self.index), &self.path, &self.shown, wanted, limits)
    }
}
