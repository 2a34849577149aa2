//! Class names: the COCO 80, and label files.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A label file that is longer is refused.
pub const MAX_LABEL_FILE_BYTES: u64 = 1 << 20;

/// The 80 classes of COCO object detection, in the order of the public YOLOX and FastestDet weights.
#[rustfmt::skip]
pub const COCO_80: [&str; 80] = [
    "person", "bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat", "traffic light",
    "fire hydrant", "stop sign", "parking meter", "bench", "bird", "cat", "dog", "horse", "sheep", "cow",
    "elephant", "bear", "zebra", "giraffe", "backpack", "umbrella", "handbag", "tie", "suitcase", "frisbee",
    "skis", "snowboard", "sports ball", "kite", "baseball bat", "baseball glove", "skateboard", "surfboard",
    "tennis racket", "bottle", "wine glass", "cup", "fork", "knife", "spoon", "bowl", "banana", "apple",
    "sandwich", "orange", "broccoli", "carrot", "hot dog", "pizza", "donut", "cake", "chair", "couch",
    "potted plant", "bed", "dining table", "toilet", "tv", "laptop", "mouse", "remote", "keyboard",
    "cell phone", "microwave", "oven", "toaster", "sink", "refrigerator", "book", "clock", "vase", "scissors",
    "teddy bear", "hair drier", "toothbrush",
];

/// Why a label file gives no class names.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabelError {
    /// The file cannot be read.
    #[error("label file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: std::io::Error,
    },
    /// More than [`MAX_LABEL_FILE_BYTES`].
    #[error("label file {} is longer than {MAX_LABEL_FILE_BYTES} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// No name in the text.
    #[error("no class names: one name per line is expected")]
    Empty,
    /// An empty line between names would shift every class after it.
    #[error("line {line} is empty, but names follow; every line is one class")]
    EmptyLine {
        /// Line number, from 1.
        line: usize,
    },
}

/// [`COCO_80`] in the form that detections carry.
#[must_use]
pub fn coco_80() -> Arc<[String]> {
    COCO_80.iter().map(|&name| name.to_owned()).collect()
}

/// Class names from text, one per line; line number (from 0) is the label id. White space around a name, a
/// byte order mark, and empty lines at the end are ignored.
///
/// # Errors
/// [`LabelError::Empty`] or [`LabelError::EmptyLine`].
pub fn parse_labels(text: &str) -> Result<Arc<[String]>, LabelError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).trim_end();
    if text.is_empty() {
        return Err(LabelError::Empty);
    }
    text.lines()
        .enumerate()
        .map(|(i, line)| match line.trim() {
            "" => Err(LabelError::EmptyLine { line: i + 1 }),
            name => Ok(name.to_owned()),
        })
        .collect()
}

/// Class names from a file in the form of [`parse_labels`], such as Autoware's `label.txt`.
///
/// # Errors
/// [`LabelError`]; text that is not UTF-8 is [`LabelError::Read`].
pub fn read_labels(path: &Path) -> Result<Arc<[String]>, LabelError> {
    let failed = |source| LabelError::Read {
        path: path.to_owned(),
        source,
    };
    let mut text = String::new();
    File::open(path)
        .map_err(failed)?
        .take(MAX_LABEL_FILE_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    if text.len() as u64 > MAX_LABEL_FILE_BYTES {
        return Err(LabelError::TooLong {
            path: path.to_owned(),
        });
    }
    parse_labels(&text)
}
