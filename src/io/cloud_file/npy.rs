//! NumPy arrays of points: `[points, columns]` or, organised, `[rows, width, columns]`.

use ndarray::Array2;
use ndarray_npy::WriteNpyExt;
use ndarray_npy::npy::header::{Header, Layout};

use super::error::CloudFileError;
use super::table::{TableLayout, believable, list, rows};
use super::{CloudFile, CloudFileOptions, CloudFormat};
use crate::io::cloud::{ReadOptions, Scalar, Table, read_table};
use crate::lidar::PointCloud;

/// An array's header is one short Python dictionary.
const MAX_HEADER_BYTES: usize = 4096;

fn bad(reason: impl Into<String>) -> CloudFileError {
    CloudFileError::Npy {
        reason: reason.into(),
    }
}

/// Reads an array of float16, float32 or float64 in either byte order.
///
/// Without a layout, three columns are x, y, z, a fourth is the intensity, and a fifth is the ring or the lag if its
/// values leave only one of them.
pub(super) fn read(bytes: &[u8], options: &CloudFileOptions) -> Result<CloudFile, CloudFileError> {
    let array = Rows::of(NpyArray::parse(bytes)?)?;
    if let Some(layout) = &options.layout {
        return array.cloud(layout, options.read);
    }
    let known: &[&str] = match array.columns {
        3 => &["xyz"],
        4 => &["xyzi"],
        5 => &["xyzir", "xyzil"],
        _ => &[],
    };
    let known: Vec<TableLayout> = known.iter().filter_map(|text| text.parse().ok()).collect();
    if let [only] = &known[..] {
        return array.cloud(only, options.read);
    }
    let all = ReadOptions {
        keep_non_finite: true,
        ..ReadOptions::default()
    };
    let fits = |layout: &&TableLayout| array.cloud(layout, all).is_ok_and(|file| believable(&file));
    let fitting: Vec<&TableLayout> = known.iter().filter(fits).collect();
    match fitting[..] {
        [only] => array.cloud(only, options.read),
        _ => Err(CloudFileError::LayoutUnknown {
            len: array.array.data.len(),
            candidates: list(&fitting),
        }),
    }
}

/// An array of numbers, whatever they mean.
pub(in crate::io) struct NpyArray<'a> {
    /// As many values as the shape says.
    pub(in crate::io) data: &'a [u8],
    pub(in crate::io) scalar: Scalar,
    pub(in crate::io) big_endian: bool,
    pub(in crate::io) fortran: bool,
    pub(in crate::io) shape: Vec<usize>,
}

/// An array with a point in each row.
struct Rows<'a> {
    array: NpyArray<'a>,
    /// Points in a row, and rows.
    size: [usize; 2],
    columns: usize,
}

impl<'a> NpyArray<'a> {
    pub(in crate::io) fn parse(bytes: &'a [u8]) -> Result<Self, CloudFileError> {
        check_header(bytes)?;
        let mut rest = bytes;
        let header = Header::from_reader(&mut rest).map_err(|error| bad(error.to_string()))?;
        let kind = header.type_descriptor.to_string();
        let known = || {
            bad(format!(
                "its type is {kind}; float16 to float64 or a whole number is expected"
            ))
        };
        let text = kind.trim_matches(['\'', '"']);
        let (order, name) = text.split_at_checked(1).ok_or_else(known)?;
        let scalar = match name {
            "i1" => Scalar::I8,
            "u1" => Scalar::U8,
            "i2" => Scalar::I16,
            "u2" => Scalar::U16,
            "i4" => Scalar::I32,
            "u4" => Scalar::U32,
            "i8" => Scalar::I64,
            "u8" => Scalar::U64,
            "f2" => Scalar::F16,
            "f4" => Scalar::F32,
            "f8" => Scalar::F64,
            _ => return Err(known()),
        };
        let big_endian = match order {
            "<" | "|" => false,
            ">" => true,
            _ => return Err(known()),
        };
        let values = header
            .shape
            .iter()
            .try_fold(1usize, |values, &len| values.checked_mul(len));
        let needed = values.and_then(|values| values.checked_mul(scalar.size()));
        if needed != Some(rest.len()) {
            return Err(bad(format!(
                "its shape {:?} does not fit its {} bytes of {}",
                header.shape,
                rest.len(),
                scalar.name()
            )));
        }
        Ok(Self {
            data: rest,
            scalar,
            big_endian,
            fortran: header.layout == Layout::Fortran,
            shape: header.shape,
        })
    }
}

impl<'a> Rows<'a> {
    fn of(array: NpyArray<'a>) -> Result<Self, CloudFileError> {
        let scalar = array.scalar;
        if !matches!(scalar, Scalar::F16 | Scalar::F32 | Scalar::F64) {
            let name = scalar.name();
            return Err(bad(format!(
                "its type is {name}; float16, float32 or float64 is expected"
            )));
        }
        let (size, columns) = match array.shape[..] {
            [points, columns] => ([points, 1], columns),
            [rows, width, columns] => ([width, rows], columns),
            _ => {
                let shape = &array.shape;
                return Err(bad(format!(
                    "its shape is {shape:?}; [points, columns] is expected"
                )));
            }
        };
        if array.fortran && array.shape.len() == 3 {
            return Err(bad("an organised cloud in Fortran order; save it in C order"));
        }
        Ok(Self { array, size, columns })
    }

    fn cloud(&self, layout: &TableLayout, options: ReadOptions) -> Result<CloudFile, CloudFileError> {
        let array = &self.array;
        if layout.width() != self.columns || layout.scalar().is_some_and(|scalar| scalar != array.scalar) {
            return Err(bad(format!(
                "it has {} columns of {}, which layout {layout} is not",
                self.columns,
                array.scalar.name()
            )));
        }
        let points = self.size[0] * self.size[1];
        let size = array.scalar.size();
        // In Fortran order a column's values follow each other.
        let (step, stride) = match array.fortran {
            true => (points * size, size),
            false => (size, self.columns * size),
        };
        let table = Table {
            data: array.data,
            rows: 1,
            width: points,
            row_step: array.data.len(),
            big_endian: array.big_endian,
            stamp_ns: None,
        };
        let mut cloud = PointCloud::default();
        let places = layout.places(array.scalar, step, stride, options);
        let summary = read_table(&table, &places, options, &mut cloud)?;
        Ok(CloudFile {
            cloud,
            summary,
            format: CloudFormat::Npy,
            layout: format!("{layout}, {}", array.scalar.name()),
            size: self.size,
        })
    }
}

/// The header is there, short, and not nested: the parser behind it makes room for any length and recurs for any depth.
fn check_header(bytes: &[u8]) -> Result<(), CloudFileError> {
    let cut = || bad("it ends in its header");
    let rest = bytes
        .strip_prefix(b"\x93NUMPY")
        .ok_or_else(|| bad("it does not start as one"))?;
    let (len, text) = match *rest {
        [1, _, low, high, ref text @ ..] => (usize::from(u16::from_le_bytes([low, high])), text),
        [2 | 3, _, a, b, c, d, ref text @ ..] => (u32::from_le_bytes([a, b, c, d]) as usize, text),
        _ => return Err(cut()),
    };
    if len > MAX_HEADER_BYTES {
        return Err(bad(format!(
            "its header claims {len} bytes; at most {MAX_HEADER_BYTES} are expected"
        )));
    }
    let header = text.get(..len).ok_or_else(cut)?;
    if header.iter().filter(|&&b| b"([{".contains(&b)).count() > 4 {
        return Err(bad(
            "its header is nested; one dictionary with one shape is expected",
        ));
    }
    Ok(())
}

/// A float32 array `[points, 4 or 5]` of x, y, z, intensity and, where there is one, ring.
pub(super) fn write(cloud: &PointCloud) -> Result<Vec<u8>, CloudFileError> {
    let (values, width) = rows(cloud);
    let array =
        Array2::from_shape_vec((cloud.len(), width), values).map_err(|error| bad(error.to_string()))?;
    let mut bytes = Vec::new();
    array
        .write_npy(&mut bytes)
        .map_err(|error| bad(error.to_string()))?;
    Ok(bytes)
}
