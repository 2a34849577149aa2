//! Point clouds that are packed into bytes.

use crate::io::cloud::Scalar;
use crate::io::cloud_file::{CloudFileOptions, CloudFormat, NpyArray, parse};
use crate::io::forms::error::shown;
use crate::io::forms::scalars::number;
use crate::io::forms::{ArrayType, ByteOrder, InputError};
use crate::weights::{Npz, Values};

use super::{
    MAX_FIELDS, PointEncoding, PointLimits, PointTable, PointsEnvelope, check_count, collect, names_of,
};

/// What bytes are by their first ones.
pub(super) fn sniff(bytes: &[u8]) -> PointEncoding {
    match bytes {
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => PointEncoding::Npy,
        [b'P', b'K', 3 | 5, 4 | 6, ..] => PointEncoding::Npz,
        bytes if bytes.starts_with(b"# .PCD") || bytes.starts_with(b"VERSION") => PointEncoding::Pcd,
        _ => PointEncoding::Raw,
    }
}

pub(super) fn of_raw(
    bytes: &[u8],
    envelope: &PointsEnvelope,
    data_field: &str,
    field: &str,
    limits: &PointLimits<'_>,
) -> Result<PointTable, InputError> {
    let scalar = scalar_of(envelope.dtype.unwrap_or(ArrayType::Float32), field)?;
    let names = envelope.fields.as_deref();
    let columns = names.map_or(limits.default_fields.len(), <[String]>::len);
    let fields = names_of(names, columns, field, limits)?;
    let stride = columns * scalar.size();
    if !bytes.len().is_multiple_of(stride) {
        let expected = format!("a multiple of {stride}: {columns} columns of {}", scalar.name());
        return Err(InputError::value(
            data_field,
            format!("{} bytes", bytes.len()),
            expected,
        ));
    }
    let points = bytes.len() / stride;
    check_count(points, data_field, limits)?;
    let big = envelope.byte_order == Some(ByteOrder::Big);
    Ok(collect(fields, points, |point, column| {
        number(
            scalar,
            big,
            &bytes[point * stride + column * scalar.size()..][..scalar.size()],
        )
    }))
}

fn scalar_of(dtype: ArrayType, field: &str) -> Result<Scalar, InputError> {
    Ok(match dtype {
        ArrayType::Int8 => Scalar::I8,
        ArrayType::Uint8 => Scalar::U8,
        ArrayType::Int16 => Scalar::I16,
        ArrayType::Uint16 => Scalar::U16,
        ArrayType::Int32 => Scalar::I32,
        ArrayType::Uint32 => Scalar::U32,
        ArrayType::Int64 => Scalar::I64,
        ArrayType::Uint64 => Scalar::U64,
        ArrayType::Float16 => Scalar::F16,
        ArrayType::Float32 => Scalar::F32,
        ArrayType::Float64 => Scalar::F64,
        ArrayType::Bool | ArrayType::Bfloat16 => {
            let found = dtype.element().to_string();
            let expected = "a whole number of 8 to 64 bits, float16, float32 or float64";
            return Err(InputError::value(format!("{field}.dtype"), found, expected));
        }
    })
}

pub(super) fn of_npy(
    bytes: &[u8],
    names: Option<&[String]>,
    data_field: &str,
    field: &str,
    limits: &PointLimits<'_>,
) -> Result<PointTable, InputError> {
    let array = NpyArray::parse(bytes).map_err(|error| InputError::new(data_field, error))?;
    let [points, columns] = array.shape[..] else {
        let found = format!("an array of shape {:?}", array.shape);
        return Err(InputError::value(data_field, found, "[points, columns]"));
    };
    check_count(points, data_field, limits)?;
    let fields = names_of(names, columns, field, limits)?;
    let size = array.scalar.size();
    let (step, stride) = match array.fortran {
        true => (points * size, size),
        false => (size, columns * size),
    };
    Ok(collect(fields, points, |point, column| {
        number(
            array.scalar,
            array.big_endian,
            &array.data[point * stride + column * step..][..size],
        )
    }))
}

pub(super) fn of_npz(
    bytes: &[u8],
    names: Option<&[String]>,
    data_field: &str,
    field: &str,
    limits: &PointLimits<'_>,
) -> Result<PointTable, InputError> {
    let archive = Npz::from_bytes(bytes, "archive", limits.max_bytes as u64);
    let archive = archive.map_err(|error| InputError::new(data_field, error))?;
    let value = |values: &Values, at: usize| match values {
        Values::F32(values) => f64::from(values[at]),
        Values::F64(values) => values[at],
        Values::I64(values) => values[at] as f64,
    };
    let only = match archive.arrays().len() {
        1 => archive.arrays().values().next(),
        _ => archive.array("points"),
    };
    if let Some(array) = only {
        let [points, columns] = array.shape()[..] else {
            let found = format!("an array of shape {:?}", &array.shape()[..]);
            return Err(InputError::value(data_field, found, "[points, columns]"));
        };
        check_count(points, data_field, limits)?;
        let fields = names_of(names, columns, field, limits)?;
        let values = array.values();
        return Ok(collect(fields, points, |point, column| {
            value(values, point * columns + column)
        }));
    }
    let all: Vec<String> = archive.arrays().keys().cloned().collect();
    let fields = names.map_or(all, <[String]>::to_vec);
    if fields.len() > MAX_FIELDS {
        return Err(InputError::value(
            data_field,
            format!("{} arrays", fields.len()),
            "at most 32",
        ));
    }
    let mut columns = Vec::with_capacity(fields.len());
    for name in &fields {
        let array = archive.array(name).ok_or_else(|| {
            InputError::missing(data_field, format!("an array `{}` in the archive", shown(name)))
        })?;
        let [len] = array.shape()[..] else {
            let found = format!("array `{}` has shape {:?}", shown(name), &array.shape()[..]);
            return Err(InputError::value(data_field, found, "one dimension"));
        };
        columns.push((len, array.values()));
    }
    for name in ["x", "y", "z"] {
        if !fields.iter().any(|field| field == name) {
            return Err(InputError::missing(
                data_field,
                format!("an array `{name}` in the archive"),
            ));
        }
    }
    let points = columns.first().map_or(0, |(len, _)| *len);
    if let Some((at, (len, _))) = columns.iter().enumerate().find(|(_, (len, _))| *len != points) {
        let found = format!("array `{}` has {len} values", shown(&fields[at]));
        return Err(InputError::value(
            data_field,
            found,
            format!("{points}, as the first one"),
        ));
    }
    check_count(points, data_field, limits)?;
    Ok(collect(fields, points, |point, column| {
        value(columns[column].1, point)
    }))
}

/// The columns of a PCD file that the reader of such files knows. It hands on no others, as no model takes them.
pub(super) fn of_pcd(
    bytes: &[u8],
    names: Option<&[String]>,
    data_field: &str,
    field: &str,
    limits: &PointLimits<'_>,
) -> Result<PointTable, InputError> {
    if names.is_some() {
        return Err(InputError::unexpected(
            format!("{field}.fields"),
            "a PCD file names its columns itself",
        ));
    }
    let mut options = CloudFileOptions {
        max_unpacked_bytes: limits.max_bytes as u64,
        ..CloudFileOptions::default()
    };
    options.read.keep_non_finite = true;
    let file = parse(bytes, CloudFormat::Pcd, &options);
    let cloud = file.map_err(|error| InputError::new(data_field, error))?.cloud;
    check_count(cloud.len(), data_field, limits)?;
    let mut fields = vec!["x".to_owned(), "y".to_owned(), "z".to_owned()];
    let optional = [
        ("intensity", cloud.intensity.is_empty()),
        ("ring", cloud.ring.is_empty()),
        ("t", cloud.time_ns.is_empty()),
        ("return_type", cloud.return_type.is_empty()),
    ];
    let present = optional.iter().filter(|(_, empty)| !empty);
    fields.extend(present.map(|(name, _)| (*name).to_owned()));
    let kinds = fields.clone();
    Ok(collect(fields, cloud.len(), |point, column| {
        match kinds[column].as_str() {
            "x" => cloud.x[point].into(),
            "y" => cloud.y[point].into(),
            "z" => cloud.z[point].into(),
            "intensity" => cloud.intensity[point].into(),
            "ring" => cloud.ring[point].into(),
            "return_type" => cloud.return_type[point].into(),
            // Seconds after the stamp.
            _ => cloud.time_ns[point] as f64 / 1e9,
        }
    }))
}
