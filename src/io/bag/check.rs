//! Reading a bag from end to end to see whether it is whole, and finding the bags of a folder.

use std::path::{Path, PathBuf};

use super::{Bag, BagError, metadata};
use crate::io::cdr::{CdrError, CdrReader};

/// Suffixes of files that are, or should be, bags.
const SUFFIXES: [&str; 5] = ["mcap", "db3", "bag", "mcap.zstd", "db3.zstd"];

/// Folders within folders that are looked through.
const MAX_DEPTH: usize = 64;

/// What reading every message of a bag showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BagCheck {
    /// Topics.
    pub topics: usize,
    /// Messages read.
    pub messages: u64,
    /// Bytes of these messages, decompressed.
    pub message_bytes: u64,
    /// Nanoseconds from the first message to the last.
    pub duration_ns: u64,
    /// What is missing or damaged, in words; empty for a bag that is whole.
    pub damage: Vec<String>,
    /// What its user should know besides.
    pub remarks: Vec<String>,
}

/// Errors of reading that are put into words; those beyond are counted.
const MAX_DAMAGE_TOLD: usize = 20;

/// Opens a bag and reads every message and the header of every CDR message.
///
/// # Errors
/// Any [`BagError`] that leaves nothing to read.
pub fn check(path: &Path) -> Result<BagCheck, BagError> {
    let bag = Bag::open(path)?;
    let mut damage = Vec::new();
    let mut remarks = Vec::new();
    // Files that are cut off or damaged tell of it again when they are read.
    let told_by_reading = |warning: &super::BagWarning| {
        matches!(
            warning,
            super::BagWarning::Truncated { .. } | super::BagWarning::Damaged { .. }
        )
    };
    for warning in bag.warnings().iter().filter(|warning| !told_by_reading(warning)) {
        if warning.loses_messages() {
            damage.push(warning.to_string());
        } else {
            remarks.push(warning.to_string());
        }
    }
    let mut errors = 0usize;
    let mut tell = |reason: String| {
        errors += 1;
        if errors <= MAX_DAMAGE_TOLD {
            damage.push(reason);
        }
    };
    let cdr = bag.topics().iter().filter(|topic| topic.serialization == "cdr");
    let cdr: std::collections::BTreeSet<&str> = cdr.map(|topic| topic.name.as_str()).collect();
    let (mut messages, mut message_bytes) = (0, 0u64);
    let mut headless: Option<(u64, String)> = None;
    for message in bag.all_messages() {
        let message = match message {
            Ok(message) => message,
            Err(error) => {
                tell(error.to_string());
                continue;
            }
        };
        messages += 1;
        message_bytes += message.data.len() as u64;
        if cdr.contains(&*message.topic)
            && let Err(error) = CdrReader::new(&message.data)
        {
            let first = |error: CdrError| {
                let at = format!("{} at {} ns", message.topic, message.log_time_ns);
                format!("messages that are no CDR, the first of {at}: {error}")
            };
            headless.get_or_insert_with(|| (0, first(error))).0 += 1;
        }
    }
    if errors > MAX_DAMAGE_TOLD {
        damage.push(format!("and {} errors more", errors - MAX_DAMAGE_TOLD));
    }
    if let Some((count, reason)) = headless {
        damage.push(format!("{count} {reason}"));
    }
    if let Some(declared) = bag.declared_message_count()
        && declared > messages
        && damage.is_empty()
    {
        damage.push(format!(
            "{messages} of {declared} messages that the metadata names"
        ));
    }
    Ok(BagCheck {
        topics: bag.topics().len(),
        messages,
        message_bytes,
        duration_ns: bag.duration_ns(),
        damage,
        remarks,
    })
}

/// The bags that a path leads to: itself, or, for a folder that is no bag, every bag within, by name. A folder with
/// `metadata.yaml` is one bag; elsewhere every `.mcap`, `.db3` and `.bag` file is one. Links are not followed.
///
/// # Errors
/// [`BagError::Io`] where a folder cannot be read.
pub fn find_bags(path: &Path) -> Result<Vec<PathBuf>, BagError> {
    let mut found = Vec::new();
    if path.is_dir() {
        walk(path, 0, &mut found)?;
    } else {
        found.push(path.to_owned());
    }
    Ok(found)
}

fn walk(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), BagError> {
    if folder.join(metadata::FILE_NAME).is_file() {
        found.push(folder.to_owned());
        return Ok(());
    }
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(BagError::io(folder))? {
        let entry = entry.map_err(BagError::io(folder))?;
        let kind = entry.file_type().map_err(BagError::io(folder))?;
        entries.push((entry.path(), kind));
    }
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    for (path, kind) in entries {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let suffix = |suffix: &&str| name.strip_suffix(*suffix).is_some_and(|stem| stem.ends_with('.'));
        if kind.is_dir() && depth < MAX_DEPTH {
            walk(&path, depth + 1, found)?;
        } else if kind.is_file() && SUFFIXES.iter().any(suffix) {
            found.push(path);
        }
    }
    Ok(())
}
