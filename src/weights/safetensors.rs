//! safetensors files as data.
//!
//! A file is the length of its header (8 bytes, little-endian), the header (JSON: for each tensor its type,
//! shape and range of bytes), and the bytes of all tensors one after the other, without gaps.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use super::widen::from_raw;
use super::{Array, ElementType, SafetensorsError, TensorFault};
use crate::tensor::{HostTensor, Shape, TensorSpec};

/// Largest header that is read. The format's own library refuses longer ones, too.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// Key of the header under which texts about the file may stand.
const METADATA: &str = "__metadata__";

/// Every type of the format: name, bits of an element, and the type that it is read as, if it is.
const TYPES: &[(&str, usize, Option<ElementType>)] = &[
    ("BOOL", 8, Some(ElementType::Bool)),
    ("U8", 8, Some(ElementType::U8)),
    ("I8", 8, Some(ElementType::I8)),
    ("U16", 16, Some(ElementType::U16)),
    ("I16", 16, Some(ElementType::I16)),
    ("U32", 32, Some(ElementType::U32)),
    ("I32", 32, Some(ElementType::I32)),
    ("U64", 64, Some(ElementType::U64)),
    ("I64", 64, Some(ElementType::I64)),
    ("F16", 16, Some(ElementType::F16)),
    ("BF16", 16, Some(ElementType::Bf16)),
    ("F32", 32, Some(ElementType::F32)),
    ("F64", 64, Some(ElementType::F64)),
    ("F8_E4M3", 8, Some(ElementType::F8E4M3Fn)),
    ("F8_E5M2", 8, Some(ElementType::F8E5M2)),
    ("F4", 4, None),
    ("F6_E2M3", 6, None),
    ("F6_E3M2", 6, None),
    ("F8_E8M0", 8, None),
    ("F8_E4M3FNUZ", 8, None),
    ("F8_E5M2FNUZ", 8, None),
    ("C64", 64, None),
];

/// A tensor of a file, without its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SafetensorsEntry {
    /// Type in the format's own spelling, for example `F8_E4M3`.
    pub stored_type: &'static str,
    /// The type that it is read as; `None` if its values cannot be read.
    pub element: Option<ElementType>,
    /// Dimensions, outermost first.
    pub shape: Shape,
    /// Place in the bytes of all tensors.
    range: Range<usize>,
}

impl SafetensorsEntry {
    /// Bytes that the values take in the file.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.range.len()
    }
}

/// A safetensors file: a table of tensors whose values are read on request.
///
/// `F8_E4M3` is OCP's E4M3 (finite up to 448, no infinity), `F8_E5M2` is as in IEEE 754.
#[derive(Clone)]
pub struct Safetensors {
    name: String,
    metadata: BTreeMap<String, String>,
    entries: BTreeMap<String, SafetensorsEntry>,
    /// The whole file.
    bytes: Vec<u8>,
    /// Where the tensors begin in it.
    data_start: usize,
}

impl Safetensors {
    /// Reads a file.
    ///
    /// # Errors
    /// [`SafetensorsError`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SafetensorsError> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|source| SafetensorsError::Read {
            path: path.to_owned(),
            source,
        })?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        Self::from_bytes(bytes, &name)
    }

    /// Reads a file out of memory. `name` is used in messages.
    ///
    /// # Errors
    /// [`SafetensorsError`].
    pub fn from_bytes(bytes: Vec<u8>, name: &str) -> Result<Self, SafetensorsError> {
        let Some((length, rest)) = bytes.split_first_chunk::<8>() else {
            return Err(SafetensorsError::TooShort {
                file: name.to_owned(),
                bytes: bytes.len(),
            });
        };
        let length = u64::from_le_bytes(*length);
        let header = usize::try_from(length)
            .ok()
            .filter(|_| length <= MAX_HEADER_BYTES)
            .and_then(|length| rest.get(..length))
            .ok_or_else(|| SafetensorsError::HeaderLength {
                file: name.to_owned(),
                length,
                available: rest.len(),
            })?;
        let RawHeader { metadata, tensors } =
            serde_json::from_slice(header).map_err(|source| SafetensorsError::Header {
                file: name.to_owned(),
                source,
            })?;
        let data_start = 8 + header.len();
        let entries = entries(name, tensors, bytes.len() - data_start)?;
        Ok(Self {
            name: name.to_owned(),
            metadata,
            entries,
            bytes,
            data_start,
        })
    }

    /// Name used in messages: the file name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the file says about itself, for example `format`.
    #[must_use]
    pub const fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// All tensors by name, without their values.
    #[must_use]
    pub const fn entries(&self) -> &BTreeMap<String, SafetensorsEntry> {
        &self.entries
    }

    /// A tensor, its values widened without loss.
    ///
    /// # Errors
    /// [`SafetensorsError::Tensor`] for a tensor that the file does not have, a type that is not read, or a
    /// uint64 value above the range of int64.
    pub fn array(&self, tensor: &str) -> Result<Array, SafetensorsError> {
        let refused = |fault| refused(&self.name, tensor, fault);
        let (entry, raw) = self.raw(tensor)?;
        let unread = || {
            refused(TensorFault::Unread {
                stored_type: entry.stored_type,
            })
        };
        let element = entry.element.ok_or_else(unread)?;
        let values = from_raw(element, raw, entry.shape.elements())
            .map_err(|value| refused(TensorFault::ValueRange { value, element }))?;
        // The number of bytes was held against the shape.
        Array::new(entry.shape, element, values).ok_or_else(unread)
    }

    /// All tensors by name, their values widened without loss.
    ///
    /// # Errors
    /// As [`Self::array`], for the first tensor that is refused.
    pub fn arrays(&self) -> Result<BTreeMap<String, Arc<Array>>, SafetensorsError> {
        self.entries
            .keys()
            .map(|tensor| Ok((tensor.clone(), Arc::new(self.array(tensor)?))))
            .collect()
    }

    /// A tensor with its elements as the file has them. The codes of its 8-bit floats mean what
    /// [`Fp8Policy::OCP`](crate::numeric::Fp8Policy::OCP) says.
    ///
    /// # Errors
    /// [`SafetensorsError::Tensor`] for a tensor that the file does not have, or a type that host tensors do
    /// not have, as float64 and bool.
    pub fn host_tensor(&self, tensor: &str) -> Result<HostTensor, SafetensorsError> {
        let refused = |fault| refused(&self.name, tensor, fault);
        let (entry, raw) = self.raw(tensor)?;
        let dtype = entry.element.and_then(ElementType::dtype).ok_or_else(|| {
            refused(TensorFault::NoHostType {
                stored_type: entry.stored_type,
            })
        })?;
        let spec = TensorSpec::new(&entry.shape, dtype).map_err(|e| refused(TensorFault::Shape(e)))?;
        let mut values = HostTensor::zeros(spec);
        values.bytes_mut().copy_from_slice(raw);
        Ok(values)
    }

    fn raw(&self, tensor: &str) -> Result<(&SafetensorsEntry, &[u8]), SafetensorsError> {
        match self.entries.get(tensor) {
            Some(entry) => Ok((entry, &self.bytes[self.data_start..][entry.range.clone()])),
            None => Err(refused(&self.name, tensor, TensorFault::Missing)),
        }
    }
}

impl fmt::Debug for Safetensors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Safetensors")
            .field("name", &self.name)
            .field("metadata", &self.metadata)
            .field("entries", &self.entries)
            .finish_non_exhaustive()
    }
}

fn refused(file: &str, tensor: &str, fault: TensorFault) -> SafetensorsError {
    SafetensorsError::Tensor {
        file: file.to_owned(),
        tensor: tensor.to_owned(),
        fault: Box::new(fault),
    }
}

/// The header as it is written, in its order.
#[derive(Default)]
struct RawHeader {
    metadata: BTreeMap<String, String>,
    tensors: Vec<(String, serde_json::Value)>,
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = RawHeader;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of tensors")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<RawHeader, M::Error> {
                let mut header = RawHeader::default();
                while let Some(key) = map.next_key::<String>()? {
                    if key == METADATA {
                        header.metadata = map.next_value()?;
                    } else {
                        header.tensors.push((key, map.next_value()?));
                    }
                }
                Ok(header)
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

#[derive(serde::Deserialize)]
struct RawEntry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [usize; 2],
}

/// The table of tensors: each holds together, and they share out the `data_len` bytes among them.
fn entries(
    file: &str,
    raw: Vec<(String, serde_json::Value)>,
    data_len: usize,
) -> Result<BTreeMap<String, SafetensorsEntry>, SafetensorsError> {
    let mut entries = BTreeMap::new();
    for (tensor, value) in raw {
        let entry = entry(value, data_len).map_err(|fault| refused(file, &tensor, fault))?;
        if entries.contains_key(&tensor) {
            return Err(refused(file, &tensor, TensorFault::Twice));
        }
        entries.insert(tensor, entry);
    }
    let mut by_place: Vec<(&String, &SafetensorsEntry)> = entries.iter().collect();
    // An empty tensor lies before the one that begins where it does.
    by_place.sort_by_key(|(_, entry)| (entry.range.start, entry.range.end));
    let mut end = 0;
    for (tensor, entry) in by_place {
        if entry.range.start != end {
            let fault = TensorFault::Place {
                start: entry.range.start,
                expected: end,
            };
            return Err(refused(file, tensor, fault));
        }
        end = entry.range.end;
    }
    if end != data_len {
        return Err(SafetensorsError::Uncovered {
            file: file.to_owned(),
            bytes: data_len,
            covered: end,
        });
    }
    Ok(entries)
}

/// One entry, held against itself and against the number of bytes that there are.
fn entry(value: serde_json::Value, data_len: usize) -> Result<SafetensorsEntry, TensorFault> {
    let raw: RawEntry = serde_json::from_value(value).map_err(|e| TensorFault::Entry(e.to_string()))?;
    let [start, end] = raw.data_offsets;
    let Some(&(stored_type, bits, element)) = TYPES.iter().find(|(name, ..)| *name == raw.dtype) else {
        return Err(TensorFault::UnknownType {
            stored_type: raw.dtype.chars().take(64).collect(),
        });
    };
    let shape = Shape::new(&raw.shape)?;
    if start > end || end > data_len {
        return Err(TensorFault::Offsets { start, end, data_len });
    }
    // A shape's element count fits `isize`, its bits may not fit a `usize`.
    let needed = shape.elements() as u128 * bits as u128;
    let found = end - start;
    if needed != found as u128 * 8 {
        return Err(TensorFault::Length {
            shape,
            stored_type,
            needed: needed.div_ceil(8),
            found,
        });
    }
    Ok(SafetensorsEntry {
        stored_type,
        element,
        shape,
        range: start..end,
    })
}
