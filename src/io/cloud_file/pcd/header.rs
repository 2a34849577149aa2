//! The header of a PCD file: lines of text up to the one that starts with DATA.

use crate::io::cloud::Scalar;
use crate::io::cloud_file::error::CloudFileError;

/// A header is a dozen short lines; what goes on longer is another kind of file.
const MAX_HEADER_BYTES: usize = 1 << 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Storage {
    Ascii,
    Binary,
    BinaryCompressed,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct PcdField<'a> {
    pub(super) name: &'a str,
    pub(super) scalar: Scalar,
    pub(super) count: u64,
}

#[derive(Debug)]
pub(super) struct Header<'a> {
    pub(super) fields: Vec<PcdField<'a>>,
    pub(super) width: u64,
    pub(super) height: u64,
    pub(super) points: u64,
    pub(super) storage: Storage,
    /// Where the points start.
    pub(super) body_at: usize,
}

/// A line that has been seen: its number and its words after the first.
type Line<'a> = (usize, Vec<&'a str>);

#[derive(Default)]
struct Lines<'a> {
    fields: Option<Line<'a>>,
    size: Option<Line<'a>>,
    kind: Option<Line<'a>>,
    count: Option<Line<'a>>,
    width: Option<Line<'a>>,
    height: Option<Line<'a>>,
    points: Option<Line<'a>>,
}

impl<'a> Header<'a> {
    /// Parses the header at the start of a file.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, CloudFileError> {
        let start = &bytes[..bytes.len().min(MAX_HEADER_BYTES)];
        let mut lines = Lines::default();
        let mut at = 0;
        for (index, raw) in start.split_inclusive(|&b| b == b'\n').enumerate() {
            at += raw.len();
            let bad = |reason| CloudFileError::PcdLine {
                line: index + 1,
                text: String::from_utf8_lossy(&raw[..raw.len().min(80)])
                    .trim_end()
                    .to_owned(),
                reason,
            };
            // The points of a binary file follow the line break at once, so a DATA line has one.
            let text = std::str::from_utf8(raw).map_err(|_| bad("not text"))?;
            let mut words = text.split_ascii_whitespace();
            let Some(key) = words.next().filter(|key| !key.starts_with('#')) else {
                continue;
            };
            let slot = match key {
                "VERSION" | "VIEWPOINT" => continue,
                "FIELDS" | "COLUMNS" => &mut lines.fields,
                "SIZE" => &mut lines.size,
                "TYPE" => &mut lines.kind,
                "COUNT" => &mut lines.count,
                "WIDTH" => &mut lines.width,
                "HEIGHT" => &mut lines.height,
                "POINTS" => &mut lines.points,
                "DATA" => {
                    let storage = match words.next() {
                        Some("ascii") => Storage::Ascii,
                        Some("binary") => Storage::Binary,
                        Some("binary_compressed") => Storage::BinaryCompressed,
                        _ => return Err(bad("ascii, binary or binary_compressed is expected")),
                    };
                    return lines.finish(storage, at);
                }
                _ => return Err(bad("not a line of a PCD header")),
            };
            if slot.is_some() {
                return Err(bad("the second one of its kind"));
            }
            *slot = Some((index + 1, words.collect()));
        }
        Err(CloudFileError::NoPcdHeader {
            searched: start.len(),
        })
    }

    /// Bytes of one point in a binary file.
    pub(super) fn point_bytes(&self) -> u64 {
        self.fields.iter().map(|f| f.scalar.size() as u64 * f.count).sum()
    }

    /// Bytes of all points in a binary file.
    pub(super) fn body_bytes(&self) -> u64 {
        self.point_bytes().saturating_mul(self.points)
    }

    /// Fields with their types, and how they are stored.
    pub(super) fn describe(&self) -> String {
        let field = |f: &PcdField<'_>| match f.count {
            1 => format!("{}:{}", f.name, f.scalar.name()),
            count => format!("{}:{}[{count}]", f.name, f.scalar.name()),
        };
        let fields: Vec<String> = self.fields.iter().map(field).collect();
        let storage = match self.storage {
            Storage::Ascii => "ascii",
            Storage::Binary => "binary",
            Storage::BinaryCompressed => "binary_compressed",
        };
        format!("{}, {storage}", fields.join(" "))
    }
}

impl<'a> Lines<'a> {
    fn finish(self, storage: Storage, body_at: usize) -> Result<Header<'a>, CloudFileError> {
        let missing = |key| CloudFileError::PcdKeyMissing { key };
        let (_, names) = self.fields.ok_or_else(|| missing("FIELDS"))?;
        let sizes = self.size.ok_or_else(|| missing("SIZE"))?;
        let kinds = self.kind.ok_or_else(|| missing("TYPE"))?;
        for (key, line) in [
            ("SIZE", Some(&sizes)),
            ("TYPE", Some(&kinds)),
            ("COUNT", self.count.as_ref()),
        ] {
            let found = line.map_or(names.len(), |(_, words)| words.len());
            if found != names.len() {
                return Err(CloudFileError::PcdFieldCount {
                    key,
                    found,
                    fields: names.len(),
                });
            }
        }
        let mut fields = Vec::with_capacity(names.len());
        let mut point_bytes = 0u64;
        for (i, name) in names.into_iter().enumerate() {
            let scalar = scalar_of(kinds.1[i], sizes.1[i]).ok_or_else(|| CloudFileError::PcdLine {
                line: kinds.0,
                text: format!("{name} {} {}", kinds.1[i], sizes.1[i]),
                reason: "types are F of size 4 or 8, I and U of size 1, 2, 4 or 8",
            })?;
            let count = match &self.count {
                Some(line) => number(line, i)?,
                None => 1,
            };
            // Holds as well for 2^32 points: below 2^31 bytes a point no product overflows.
            point_bytes = point_bytes.saturating_add((scalar.size() as u64).saturating_mul(count));
            if count == 0 || point_bytes > u64::from(u32::MAX >> 1) {
                return Err(CloudFileError::PcdLine {
                    line: self.count.as_ref().map_or(kinds.0, |line| line.0),
                    text: format!("{name} {count}"),
                    reason: "a count of 1 or more is expected, and a point shorter than 2 GiB",
                });
            }
            fields.push(PcdField { name, scalar, count });
        }
        let one = |line: &Option<Line<'a>>| line.as_ref().map(|line| number(line, 0)).transpose();
        let (width, height, points) = (one(&self.width)?, one(&self.height)?, one(&self.points)?);
        // Version 0.6 and older may leave out the number of points, or the sizes.
        let (width, height) = match (width, height, points) {
            (Some(width), Some(height), _) => (width, height),
            (Some(width), None, _) => (width, 1),
            (None, _, Some(points)) => (points, 1),
            (None, _, None) => return Err(missing("WIDTH")),
        };
        let product = width.checked_mul(height).filter(|&n| n <= u64::from(u32::MAX));
        let declared = points.or(product);
        let (Some(points), true) = (product, product == declared) else {
            return Err(CloudFileError::PcdPoints {
                width,
                height,
                points: declared.unwrap_or(u64::MAX),
            });
        };
        Ok(Header {
            fields,
            width,
            height,
            points,
            storage,
            body_at,
        })
    }
}

fn scalar_of(kind: &str, size: &str) -> Option<Scalar> {
    Some(match (kind, size) {
        ("F", "4") => Scalar::F32,
        ("F", "8") => Scalar::F64,
        ("I", "1") => Scalar::I8,
        ("I", "2") => Scalar::I16,
        ("I", "4") => Scalar::I32,
        ("I", "8") => Scalar::I64,
        ("U", "1") => Scalar::U8,
        ("U", "2") => Scalar::U16,
        ("U", "4") => Scalar::U32,
        ("U", "8") => Scalar::U64,
        _ => return None,
    })
}

fn number((line, words): &Line<'_>, at: usize) -> Result<u64, CloudFileError> {
    let text = words.get(at).copied().unwrap_or("");
    text.parse().map_err(|_| CloudFileError::PcdLine {
        line: *line,
        text: text.to_owned(),
        reason: "a whole number is expected",
    })
}
