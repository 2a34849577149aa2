//! The two forms of a checkpoint: a ZIP archive, and the older one of pickles followed by storages.

use std::collections::HashMap;
use std::io::{Cursor, Read};

use zip::{CompressionMethod, ZipArchive};

use super::error::{PickleFault, TorchError, TorchTensorFault};
use super::pickle;
use super::tensors::Storage;
use super::value::{Objects, StorageRef, Value};

/// The longest pickle that is read. A hundred thousand tensors take some 16 MiB.
const MAX_PICKLE_BYTES: u64 = 16 << 20;

/// The first pickle of the older form: a number that nothing else begins with. The second is the version.
const OLD_MAGIC: &[u8] = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e";
/// The version of the older form.
const OLD_VERSION: Value = Value::Int(1001);

/// A checkpoint whose objects were read and whose elements were not.
#[derive(Debug)]
pub(super) struct Opened<'a> {
    pub(super) root: Value,
    pub(super) objects: Objects,
    pub(super) big_endian: bool,
    elements: Elements<'a>,
}

#[derive(Debug)]
enum Elements<'a> {
    Archive {
        archive: ZipArchive<Cursor<&'a [u8]>>,
        /// What the names of all members begin with.
        prefix: String,
    },
    /// The bytes of every storage.
    Slices(HashMap<String, &'a [u8]>),
}

pub(super) fn open<'a>(bytes: &'a [u8], file: &str) -> Result<Opened<'a>, TorchError> {
    if bytes.starts_with(b"PK\x03\x04") {
        open_archive(bytes, file)
    } else if let Some(rest) = bytes.strip_prefix(OLD_MAGIC) {
        open_old(rest, OLD_MAGIC.len(), file)
    } else {
        Err(TorchError::NoCheckpoint {
            file: file.to_owned(),
        })
    }
}

fn open_archive<'a>(bytes: &'a [u8], file: &str) -> Result<Opened<'a>, TorchError> {
    let broken = |reason: String| TorchError::Archive {
        file: file.to_owned(),
        reason,
    };
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(|e| broken(e.to_string()))?;
    let names = archive.file_names().flatten();
    let pickles: Vec<String> = names
        .filter_map(|name| Some(name.strip_suffix("data.pkl")?.to_owned()))
        .filter(|prefix| prefix.is_empty() || prefix.ends_with('/'))
        .collect();
    let [prefix] = &pickles[..] else {
        return Err(broken(format!(
            "it has {} members `data.pkl`, one is expected",
            pickles.len()
        )));
    };
    let prefix = prefix.clone();
    let pickled = member(&mut archive, &format!("{prefix}data.pkl"), MAX_PICKLE_BYTES).map_err(broken)?;
    let order = format!("{prefix}byteorder");
    let big_endian = match archive.index_for_name(&order) {
        None => false,
        Some(_) => match &member(&mut archive, &order, 16).map_err(broken)?[..] {
            b"little" => false,
            b"big" => true,
            _ => return Err(broken("its byte order is neither `little` nor `big`".to_owned())),
        },
    };
    let mut objects = Objects::default();
    let (root, _) = pickle::load(&pickled, &mut objects).map_err(pickle_error(file, 0))?;
    Ok(Opened {
        root,
        objects,
        big_endian,
        elements: Elements::Archive { archive, prefix },
    })
}

/// The bytes of a member that claims to have at most `allowed`.
fn member(archive: &mut ZipArchive<Cursor<&[u8]>>, name: &str, allowed: u64) -> Result<Vec<u8>, String> {
    let member = archive.by_name(name).map_err(|e| format!("`{name}`: {e}"))?;
    // Uncompressed, a member is no longer than the file, whatever it claims.
    if member.compression() != CompressionMethod::Stored {
        return Err(format!("`{name}` is compressed, which no checkpoint is"));
    }
    let declared = member.size();
    if declared > allowed {
        return Err(format!(
            "`{name}` has {declared} bytes, at most {allowed} are expected"
        ));
    }
    let mut bytes = Vec::new();
    let read = member.take(declared + 1).read_to_end(&mut bytes);
    read.map_err(|e| format!("`{name}`: {e}"))?;
    match bytes.len() as u64 == declared {
        true => Ok(bytes),
        false => Err(format!("`{name}` has another size than it says")),
    }
}

fn pickle_error(file: &str, offset: usize) -> impl Fn((usize, PickleFault)) -> TorchError {
    move |(at, fault)| TorchError::Pickle {
        file: file.to_owned(),
        at: offset + at,
        fault,
    }
}

/// Reads the older form: after the magic number the version, a dict about the machine, the object, the keys of the
/// storages, and for each storage the number of its elements (8 bytes) and the elements.
fn open_old<'a>(bytes: &'a [u8], offset: usize, file: &str) -> Result<Opened<'a>, TorchError> {
    let broken = |reason: String| TorchError::Archive {
        file: file.to_owned(),
        reason,
    };
    let mut at = 0;
    let mut next = |objects: &mut Objects| -> Result<(Value, &'a [u8]), TorchError> {
        let rest = &bytes[at..];
        let pickled = &rest[..rest.len().min(MAX_PICKLE_BYTES as usize)];
        let (value, len) = pickle::load(pickled, objects).map_err(pickle_error(file, offset + at))?;
        at += len;
        Ok((value, &bytes[at..]))
    };
    let mut about = Objects::default();
    let (version, _) = next(&mut about)?;
    if version != OLD_VERSION {
        return Err(broken("it is of another version than 1001".to_owned()));
    }
    let (machine, _) = next(&mut about)?;
    let little = about.entries(machine).find(|(key, _)| *key == "little_endian");
    let big_endian = little.is_some_and(|(_, value)| value == Value::Bool(false));
    let mut objects = Objects::default();
    let (root, _) = next(&mut objects)?;
    let mut listed = Objects::default();
    let (keys, mut rest) = next(&mut listed)?;
    let Value::List(keys) = keys else {
        return Err(broken("the keys of its storages are no list".to_owned()));
    };
    let by_key: HashMap<&str, &StorageRef> = objects.storages.iter().map(|s| (s.key.as_str(), s)).collect();
    let mut slices = HashMap::new();
    for &key in &listed.lists[keys] {
        let storage = listed.text(key).and_then(|key| by_key.get(key).copied());
        let storage = storage.ok_or_else(|| broken("a storage that no tensor uses".to_owned()))?;
        let short = || broken(format!("it ends within storage `{}`", storage.key));
        let (count, behind) = rest.split_first_chunk::<8>().ok_or_else(short)?;
        if u64::from_le_bytes(*count) != storage.elements as u64 {
            return Err(broken(format!(
                "storage `{}` has another size than it says",
                storage.key
            )));
        }
        let len = storage.element.bytes_of(storage.elements).ok_or_else(short)?;
        let (slice, behind) = behind.split_at_checked(len).ok_or_else(short)?;
        slices.insert(storage.key.clone(), slice);
        rest = behind;
    }
    Ok(Opened {
        root,
        objects,
        big_endian,
        elements: Elements::Slices(slices),
    })
}

impl Opened<'_> {
    /// The elements of a storage.
    pub(super) fn storage(&mut self, at: usize) -> Result<Storage, TorchTensorFault> {
        let reference = &self.objects.storages[at];
        let unread = |reason: String| TorchTensorFault::Storage {
            storage: reference.key.chars().take(64).collect(),
            reason,
        };
        let bytes = match &mut self.elements {
            Elements::Archive { archive, prefix } => {
                let needed = reference.element.bytes_of(reference.elements);
                let needed = needed.map_or(u64::MAX, |needed| needed as u64);
                let name = format!("{prefix}data/{}", reference.key);
                member(archive, &name, needed).map_err(unread)?
            }
            Elements::Slices(slices) => match slices.get(&reference.key) {
                Some(slice) => slice.to_vec(),
                None => return Err(unread("the file does not have it".to_owned())),
            },
        };
        Storage::new(reference, bytes, self.big_endian)
    }
}
