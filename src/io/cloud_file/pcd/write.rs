//! Writing PCD files.

use std::fmt::Write;

use super::{PcdEncoding, lzf};
use crate::lidar::PointCloud;

/// Values of one column.
enum Column<'a> {
    F32(&'a [f32]),
    U16(&'a [u16]),
    U8(&'a [u8]),
    I64(&'a [i64]),
}

impl Column<'_> {
    fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::U16(values) => values.len(),
            Self::U8(values) => values.len(),
            Self::I64(values) => values.len(),
        }
    }

    /// Size and type letter.
    fn kind(&self) -> (usize, char) {
        match self {
            Self::F32(_) => (4, 'F'),
            Self::U16(_) => (2, 'U'),
            Self::U8(_) => (1, 'U'),
            Self::I64(_) => (8, 'I'),
        }
    }

    fn append_bytes(&self, at: usize, out: &mut Vec<u8>) {
        match self {
            Self::F32(values) => out.extend_from_slice(&values[at].to_le_bytes()),
            Self::U16(values) => out.extend_from_slice(&values[at].to_le_bytes()),
            Self::U8(values) => out.push(values[at]),
            Self::I64(values) => out.extend_from_slice(&values[at].to_le_bytes()),
        }
    }

    fn append_text(&self, at: usize, out: &mut String) {
        // Writing to a string cannot fail.
        let _ = match self {
            Self::F32(values) if values[at].is_nan() => write!(out, "nan"),
            Self::F32(values) => write!(out, "{}", values[at]),
            Self::U16(values) => write!(out, "{}", values[at]),
            Self::U8(values) => write!(out, "{}", values[at]),
            Self::I64(values) => write!(out, "{}", values[at]),
        };
    }
}

/// The file of a cloud whose columns have one length; times are whole nanoseconds.
pub(in crate::io::cloud_file) fn write(cloud: &PointCloud, encoding: PcdEncoding) -> Vec<u8> {
    let mut columns = vec![
        ("x", Column::F32(&cloud.x)),
        ("y", Column::F32(&cloud.y)),
        ("z", Column::F32(&cloud.z)),
        ("intensity", Column::F32(&cloud.intensity)),
        ("ring", Column::U16(&cloud.ring)),
        ("return_type", Column::U8(&cloud.return_type)),
        ("t", Column::I64(&cloud.time_ns)),
    ];
    let points = cloud.len();
    columns.retain(|(name, column)| ["x", "y", "z"].contains(name) || (points > 0 && column.len() == points));
    let mut file = header(&columns, points, encoding).into_bytes();
    match encoding {
        PcdEncoding::Ascii => {
            let mut text = String::new();
            for at in 0..points {
                for (i, (_, column)) in columns.iter().enumerate() {
                    text.push_str(if i == 0 { "" } else { " " });
                    column.append_text(at, &mut text);
                }
                text.push('\n');
            }
            file.extend_from_slice(text.as_bytes());
        }
        PcdEncoding::Binary => {
            for at in 0..points {
                for (_, column) in &columns {
                    column.append_bytes(at, &mut file);
                }
            }
        }
        PcdEncoding::BinaryCompressed => {
            let mut bytes = Vec::new();
            for (_, column) in &columns {
                (0..points).for_each(|at| column.append_bytes(at, &mut bytes));
            }
            let packed = lzf::compress(&bytes);
            // Both fit: the number of points was checked.
            file.extend_from_slice(&(packed.len() as u32).to_le_bytes());
            file.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            file.extend_from_slice(&packed);
        }
    }
    file
}

fn header(columns: &[(&str, Column<'_>)], points: usize, encoding: PcdEncoding) -> String {
    let words =
        |of: &dyn Fn(&(&str, Column<'_>)) -> String| columns.iter().map(of).collect::<Vec<_>>().join(" ");
    let names = words(&|(name, _)| (*name).to_owned());
    let sizes = words(&|(_, column)| column.kind().0.to_string());
    let kinds = words(&|(_, column)| column.kind().1.to_string());
    let counts = words(&|_| "1".to_owned());
    let data = match encoding {
        PcdEncoding::Ascii => "ascii",
        PcdEncoding::Binary => "binary",
        PcdEncoding::BinaryCompressed => "binary_compressed",
    };
    format!(
        "# .PCD v0.7 - Point Cloud Data file format\nVERSION 0.7\nFIELDS {names}\nSIZE {sizes}\nTYPE {kinds}\n\
         COUNT {counts}\nWIDTH {points}\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS {points}\nDATA {data}\n"
    )
}
