//! The objects of a pickle, as far as state dicts have them.

use crate::weights::ElementType;

/// A value. Compound ones lie in [`Objects`] and are named by their place there, so that values that contain
/// themselves, or are nested without end, harm nobody.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i64),
    Float,
    Text(usize),
    Bytes,
    Tuple(usize),
    List(usize),
    Dict(usize),
    Global(Global),
    Storage(usize),
    Tensor(usize),
}

/// The classes and functions that are known. None of them is ever called: what they would make is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Global {
    OrderedDict,
    Size,
    RebuildTensor,
    RebuildParameter,
    Storage(ElementType),
}

impl Global {
    pub(super) fn named(module: &str, name: &str) -> Option<Self> {
        Some(match (module, name) {
            ("collections", "OrderedDict") => Self::OrderedDict,
            ("torch", "Size") => Self::Size,
            ("torch._utils", "_rebuild_tensor_v2") => Self::RebuildTensor,
            ("torch._utils", "_rebuild_parameter") => Self::RebuildParameter,
            ("torch", "FloatStorage") => Self::Storage(ElementType::F32),
            ("torch", "DoubleStorage") => Self::Storage(ElementType::F64),
            ("torch", "HalfStorage") => Self::Storage(ElementType::F16),
            ("torch", "BFloat16Storage") => Self::Storage(ElementType::Bf16),
            ("torch", "LongStorage") => Self::Storage(ElementType::I64),
            ("torch", "IntStorage") => Self::Storage(ElementType::I32),
            ("torch", "ShortStorage") => Self::Storage(ElementType::I16),
            ("torch", "CharStorage") => Self::Storage(ElementType::I8),
            ("torch", "ByteStorage") => Self::Storage(ElementType::U8),
            ("torch", "BoolStorage") => Self::Storage(ElementType::Bool),
            _ => return None,
        })
    }
}

/// Where elements of tensors lie.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct StorageRef {
    pub(super) key: String,
    pub(super) element: ElementType,
    pub(super) elements: usize,
}

/// A tensor as the pickle describes it; nothing is checked yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TensorRef {
    /// Place in [`Objects::storages`].
    pub(super) storage: usize,
    pub(super) offset: i64,
    pub(super) sizes: Vec<i64>,
    pub(super) strides: Vec<i64>,
}

/// All compound values of a pickle.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) texts: Vec<String>,
    pub(super) tuples: Vec<Box<[Value]>>,
    pub(super) lists: Vec<Vec<Value>>,
    pub(super) dicts: Vec<Vec<(Value, Value)>>,
    pub(super) storages: Vec<StorageRef>,
    pub(super) tensors: Vec<TensorRef>,
}

impl Objects {
    pub(super) fn text(&self, value: Value) -> Option<&str> {
        match value {
            Value::Text(at) => Some(&self.texts[at]),
            _ => None,
        }
    }

    pub(super) fn tuple(&self, value: Value) -> Option<&[Value]> {
        match value {
            Value::Tuple(at) => Some(&self.tuples[at]),
            _ => None,
        }
    }

    pub(super) fn dict(&self, value: Value) -> Option<&[(Value, Value)]> {
        match value {
            Value::Dict(at) => Some(&self.dicts[at]),
            _ => None,
        }
    }

    /// The values under text keys of a dict; of equal keys the last counts.
    pub(super) fn entries(&self, value: Value) -> impl Iterator<Item = (&str, Value)> {
        let pairs = self.dict(value).unwrap_or_default().iter();
        pairs.filter_map(|&(key, value)| Some((self.text(key)?, value)))
    }
}
