//! What can be wrong with a PyTorch checkpoint.

use std::path::PathBuf;

use crate::tensor::{Shape, TensorError};
use crate::weights::ElementType;

/// Why a checkpoint, or a tensor of it, was refused. Every variant names the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TorchError {
    /// The file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Neither of the two forms of a checkpoint.
    #[error("{file}: not a PyTorch checkpoint: neither a ZIP archive nor the older form of `torch.save`")]
    NoCheckpoint {
        /// The file.
        file: String,
    },
    /// A ZIP archive that is damaged, or that lacks what a checkpoint has.
    #[error("{file}: not a PyTorch checkpoint, or damaged: {reason}")]
    Archive {
        /// The file.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// A description of the objects (a pickle) that is refused.
    #[error("{file}: byte {at} of its pickle: {fault}")]
    Pickle {
        /// The file.
        file: String,
        /// Place in the pickle.
        at: usize,
        /// What is wrong.
        fault: PickleFault,
    },
    /// No such key, or one that leads to no tensors.
    #[error("{file}: no tensors under {key}; the file has {found}")]
    Key {
        /// The file.
        file: String,
        /// Where tensors were looked for, in words.
        key: String,
        /// The keys that there are, in words.
        found: String,
    },
    /// One tensor is wrong.
    #[error("{file}: tensor `{tensor}`: {fault}")]
    Tensor {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// What is wrong with it.
        fault: Box<TorchTensorFault>,
    },
}

/// Why a pickle is refused. Only what state dicts need is understood, and nothing is ever run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PickleFault {
    /// It ends too early.
    #[error("it is cut short")]
    Short,
    /// An instruction that state dicts do not need.
    #[error("instruction {code:#04x} is not taken")]
    Instruction {
        /// Its code.
        code: u8,
    },
    /// A class or function that state dicts do not need.
    #[error("`{name}` is not taken: a state dict has dicts, tuples, numbers, texts and tensors only")]
    Global {
        /// Its name, cut to 128 characters.
        name: String,
    },
    /// Values that do not suit an instruction.
    #[error("{0}")]
    Operands(&'static str),
    /// More values than any state dict has.
    #[error("it holds more than {limit} {what}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many are taken.
        limit: usize,
    },
    /// Text that is not UTF-8.
    #[error("a text is not UTF-8")]
    Text,
    /// A whole number beyond 64 bits.
    #[error("a whole number has more than 64 bits")]
    Number,
}

/// What is wrong with one tensor of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TorchTensorFault {
    /// Its values are not in the file.
    #[error("its values, storage `{storage}`, cannot be read: {reason}")]
    Storage {
        /// Name of the storage.
        storage: String,
        /// What is wrong.
        reason: String,
    },
    /// A storage of another size than it says.
    #[error("its storage `{storage}` is to have {needed} bytes and has {found}")]
    Length {
        /// Name of the storage.
        storage: String,
        /// Bytes that it should have.
        needed: u64,
        /// Bytes that there are.
        found: u64,
    },
    /// A shape that is refused.
    #[error(transparent)]
    Shape(#[from] TensorError),
    /// Places outside its storage.
    #[error(
        "shape {shape} with strides {strides:?} from element {offset} on leaves its storage of {elements} elements"
    )]
    Outside {
        /// The shape.
        shape: Shape,
        /// Elements from one index to the next, per dimension.
        strides: Vec<i64>,
        /// First element.
        offset: i64,
        /// Elements of the storage.
        elements: usize,
    },
    /// Storages that lie over each other in the file.
    #[error("the storages are together far longer than the file: they lie over each other")]
    Overlap,
    /// A tensor of more elements than its storage, or more tensors on a storage than fit in memory.
    #[error("it repeats elements of its storage; only tensors that were saved whole are read")]
    Repeats,
    /// A value that cannot be carried.
    #[error("{value} cannot be carried as {element}")]
    ValueRange {
        /// The value in words.
        value: String,
        /// The type.
        element: ElementType,
    },
}
