//! PyTorch checkpoints as data: `torch.save` of a state dict, or of a dict that holds one.
//!
//! A checkpoint is a pickle, which in Python is a program. Here it is read by a machine that knows dicts, tuples,
//! numbers, texts and tensors, calls nothing, and refuses any other class or function by its name.

mod error;
mod files;
mod pickle;
mod tensors;
mod value;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub use error::{PickleFault, TorchError, TorchTensorFault};

use super::Array;
use value::{Objects, Value};

/// Where checkpoints of a training keep the weights, if not at the top.
const USUAL_KEYS: [&str; 4] = ["state_dict", "model_state_dict", "model_state", "model"];

/// How often the elements of a file may be read on average: several tensors may share a storage.
const MAX_SHARED: usize = 8;

/// The tensors of a checkpoint: those under `key`, a path of keys joined by `/`; without one those at the top, or, if
/// there are none, those under the only one of the usual keys. What is no tensor is left out.
pub(super) fn read(
    bytes: &[u8],
    file: &str,
    key: Option<&str>,
) -> Result<BTreeMap<String, Arc<Array>>, TorchError> {
    let mut opened = files::open(bytes, file)?;
    let dict = select(&opened.objects, opened.root, key).ok_or_else(|| no_tensors(&opened, file, key))?;
    let tensors: Vec<(String, usize)> = opened
        .objects
        .entries(dict)
        .filter_map(|(name, value)| match value {
            Value::Tensor(at) => Some((name.to_owned(), at)),
            _ => None,
        })
        .collect();
    let mut room = bytes.len().saturating_mul(MAX_SHARED);
    // Entries of an archive may lie over each other, so each is counted.
    let mut unread = room;
    let mut storages = HashMap::new();
    let mut arrays = BTreeMap::new();
    for (name, at) in tensors {
        let refused = |fault| TorchError::Tensor {
            file: file.to_owned(),
            tensor: name.clone(),
            fault: Box::new(fault),
        };
        let tensor = opened.objects.tensors[at].clone();
        let key = opened.objects.storages[tensor.storage].clone();
        if !storages.contains_key(&key) {
            let storage = opened.storage(tensor.storage).map_err(refused)?;
            unread = unread
                .checked_sub(storage.bytes.len())
                .ok_or_else(|| refused(TorchTensorFault::Overlap))?;
            storages.insert(key.clone(), storage);
        }
        let array = tensors::array(&tensor, &storages[&key], &mut room).map_err(refused)?;
        arrays.insert(name, Arc::new(array));
    }
    Ok(arrays)
}

/// The dict of tensors that is meant.
fn select(objects: &Objects, root: Value, key: Option<&str>) -> Option<Value> {
    let has_tensors = |dict: &Value| objects.entries(*dict).any(|(_, v)| matches!(v, Value::Tensor(_)));
    let under = |dict: Value, key: &str| {
        objects
            .entries(dict)
            .filter(|(k, _)| *k == key)
            .last()
            .map(|(_, v)| v)
    };
    match key {
        Some(path) => path.split('/').try_fold(root, under).filter(has_tensors),
        None if has_tensors(&root) => Some(root),
        None => {
            let mut usual = USUAL_KEYS
                .iter()
                .filter_map(|key| under(root, key))
                .filter(has_tensors);
            usual.next().filter(|_| usual.next().is_none())
        }
    }
}

fn no_tensors(opened: &files::Opened<'_>, file: &str, key: Option<&str>) -> TorchError {
    let keys = opened.objects.entries(opened.root).map(|(key, _)| key);
    let shown: Vec<String> = keys
        .take(8)
        .map(|key| format!("{:?}", key.chars().take(64).collect::<String>()))
        .collect();
    TorchError::Key {
        file: file.to_owned(),
        key: key.map_or_else(
            || format!("the top, or one of {}", USUAL_KEYS.join(", ")),
            |key| format!("`{}`", key.chars().take(128).collect::<String>()),
        ),
        found: match &shown[..] {
            [] => "no keys at all".to_owned(),
            some => some.join(", "),
        },
    }
}
