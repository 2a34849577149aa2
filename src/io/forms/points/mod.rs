//! Point clouds in JSON.

mod packed;

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use self::packed::{of_npy, of_npz, of_pcd, of_raw, sniff};
use super::error::shown;
use super::{ArrayType, ByteOrder, InputError, InputFault, NumberRows, decode_base64};

/// Points that a cloud may have where nothing else is said.
pub const MAX_POINTS: usize = 2_000_000;
/// Names of the columns of a cloud that does not say them.
pub const DEFAULT_POINT_FIELDS: [&str; 4] = ["x", "y", "z", "intensity"];
/// Columns that a cloud may have.
const MAX_FIELDS: usize = 32;

/// How points are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PointEncoding {
    /// Rows of numbers.
    List,
    /// Base64 of numbers of `dtype`, a point after the other.
    Raw,
    /// Base64 of a `.bin` file: float32, a point after the other.
    Bin,
    /// Base64 of a NumPy array of shape `[points, columns]`.
    Npy,
    /// Base64 of a NumPy archive: one such array, or one array of one dimension for each column.
    Npz,
    /// Base64 of a PCD file. Its columns are x, y, z and, where the file has them, intensity (or reflectivity), ring (or
    /// channel), t (seconds) and return_type; others are left out.
    Pcd,
}

/// A point cloud: rows of numbers, or an envelope that says how it is encoded.
#[derive(Debug, Clone, PartialEq)]
pub enum PointsForm {
    /// Rows of numbers.
    Rows(NumberRows),
    /// Anything else.
    Envelope(Box<PointsEnvelope>),
}

/// A point cloud and how it is encoded.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "EncodedPoints")]
pub struct PointsEnvelope {
    /// How `data` is encoded; found out from its first bytes where it is left out.
    pub format: Option<PointEncoding>,
    /// Base64, or rows of numbers.
    pub data: PointData,
    /// Names of the columns; x, y, z, intensity where they are left out.
    #[schemars(length(min = 3, max = 32))]
    #[serde(default, deserialize_with = "super::limited_list_or_null::<_, _, 32>")]
    pub fields: Option<Vec<String>>,
    /// Type of raw numbers; float32 where it is left out.
    pub dtype: Option<ArrayType>,
    /// Order of the bytes in a raw number.
    pub byte_order: Option<ByteOrder>,
    /// Coordinate frame of the points.
    #[schemars(length(max = 256))]
    pub frame_id: Option<String>,
}

/// The data of a cloud.
#[derive(Debug, Clone, PartialEq)]
pub enum PointData {
    /// Base64.
    Text(String),
    /// Rows of numbers.
    Rows(NumberRows),
}

/// How much is taken, and what columns are called that do not say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointLimits<'a> {
    /// Most points.
    pub max_points: usize,
    /// Most bytes, packed and unpacked.
    pub max_bytes: usize,
    /// Names of columns that do not say theirs.
    pub default_fields: &'a [&'a str],
}

impl Default for PointLimits<'_> {
    /// 2 million points in 256 MiB.
    fn default() -> Self {
        Self {
            max_points: MAX_POINTS,
            max_bytes: 256 << 20,
            default_fields: &DEFAULT_POINT_FIELDS,
        }
    }
}

/// Points as columns of float32, each with a name. Points with a coordinate that is NaN or infinite are left out.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PointTable {
    /// Names of the columns.
    pub fields: Vec<String>,
    /// As many as there are names, all of one length.
    pub columns: Vec<Vec<f32>>,
    /// Coordinate frame, where it was said.
    pub frame_id: Option<String>,
    /// Points that were left out.
    pub dropped: usize,
}

impl PointTable {
    /// Number of points.
    #[must_use]
    pub fn len(&self) -> usize {
        self.columns.first().map_or(0, Vec::len)
    }

    /// Whether there is no point.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Columns by name, in the order of `names`; one that is missing has `fill` everywhere.
    ///
    /// # Errors
    /// [`InputError`] of `field` for a column that is missing where there is no `fill`.
    pub fn select(
        &self,
        names: &[&str],
        fill: Option<f32>,
        field: &str,
    ) -> Result<Vec<Vec<f32>>, InputError> {
        let column = |name: &&str| {
            let at = self.fields.iter().position(|field| field == name);
            match (at, fill) {
                (Some(at), _) => Ok(self.columns[at].clone()),
                (None, Some(fill)) => Ok(vec![fill; self.len()]),
                (None, None) => {
                    let has: Vec<String> = self.fields.iter().map(|field| shown(field)).collect();
                    let found = format!("the columns are {}", has.join(", "));
                    Err(InputError::value(field, found, format!("a column `{name}`")))
                }
            }
        };
        names.iter().map(column).collect()
    }
}

impl PointsForm {
    /// The points of a form.
    ///
    /// # Errors
    /// [`InputError`] with paths below `field`.
    pub fn decode(&self, field: &str, limits: &PointLimits<'_>) -> Result<PointTable, InputError> {
        let envelope = match self {
            Self::Rows(rows) => return of_rows(rows, None, field, field, limits),
            Self::Envelope(envelope) => envelope,
        };
        let data_field = format!("{field}.data");
        let names = envelope.fields.as_deref();
        check_names(names, field)?;
        let mut table = match (&envelope.data, envelope.format) {
            (PointData::Rows(rows), None | Some(PointEncoding::List)) => {
                raw_alone(envelope, field)?;
                of_rows(rows, names, &data_field, field, limits)?
            }
            (PointData::Rows(_), Some(_)) => {
                return Err(InputError::value(data_field, "rows", "base64, for this format"));
            }
            (PointData::Text(_), Some(PointEncoding::List)) => {
                return Err(InputError::value(
                    data_field,
                    "text",
                    "rows of numbers, for this format",
                ));
            }
            (PointData::Text(text), format) => {
                let bytes = decode_base64(text, &data_field, limits.max_bytes)?;
                let format = format.unwrap_or_else(|| sniff(&bytes));
                if format != PointEncoding::Raw {
                    raw_alone(envelope, field)?;
                }
                match format {
                    PointEncoding::Npy => of_npy(&bytes, names, &data_field, field, limits)?,
                    PointEncoding::Npz => of_npz(&bytes, names, &data_field, field, limits)?,
                    PointEncoding::Pcd => of_pcd(&bytes, names, &data_field, field, limits)?,
                    PointEncoding::Bin | PointEncoding::Raw | PointEncoding::List => {
                        of_raw(&bytes, envelope, &data_field, field, limits)?
                    }
                }
            }
        };
        table.frame_id = envelope.frame_id.clone();
        Ok(table)
    }
}

/// Type and byte order are said of raw numbers alone.
fn raw_alone(envelope: &PointsEnvelope, field: &str) -> Result<(), InputError> {
    let given = [
        ("dtype", envelope.dtype.is_some()),
        ("byte_order", envelope.byte_order.is_some()),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((name, _)) => Err(InputError::unexpected(
            format!("{field}.{name}"),
            "only raw numbers have it",
        )),
        None => Ok(()),
    }
}

fn check_names(names: Option<&[String]>, field: &str) -> Result<(), InputError> {
    let Some(names) = names else { return Ok(()) };
    let field = format!("{field}.fields");
    if !(3..=MAX_FIELDS).contains(&names.len()) {
        return Err(InputError::value(
            field,
            format!("{} names", names.len()),
            "3 to 32",
        ));
    }
    for (at, name) in names.iter().enumerate() {
        if names[..at].contains(name) {
            return Err(InputError::unexpected(
                field,
                format!("`{}` is there twice", shown(name)),
            ));
        }
    }
    Ok(())
}

/// Names of so many columns.
fn names_of(
    names: Option<&[String]>,
    columns: usize,
    field: &str,
    limits: &PointLimits<'_>,
) -> Result<Vec<String>, InputError> {
    if let Some(names) = names {
        return match names.len() == columns {
            true => Ok(names.to_vec()),
            false => {
                let found = format!("{} names", names.len());
                Err(InputError::value(
                    format!("{field}.fields"),
                    found,
                    format!("{columns}, one a column"),
                ))
            }
        };
    }
    if !(3..=MAX_FIELDS).contains(&columns) {
        let found = format!("{columns} columns");
        return Err(InputError::value(
            field,
            found,
            "x, y, z and up to 29 more columns",
        ));
    }
    let name = |at: usize| match limits.default_fields.get(at) {
        Some(name) => (*name).to_owned(),
        None => format!("c{at}"),
    };
    Ok((0..columns).map(name).collect())
}

fn check_count(points: usize, field: &str, limits: &PointLimits<'_>) -> Result<(), InputError> {
    let (found, allowed) = (points, limits.max_points);
    match found > allowed {
        true => Err(InputError::new(
            field,
            InputFault::TooMany {
                what: "points",
                found,
                allowed,
            },
        )),
        false => Ok(()),
    }
}

/// Columns out of numbers by point and column; points that are nowhere are left out.
fn collect(fields: Vec<String>, points: usize, value: impl Fn(usize, usize) -> f64) -> PointTable {
    // The coordinates by their names, or the first three columns.
    let coordinate = |at: usize, name: &str| fields.iter().position(|field| field == name).unwrap_or(at);
    let coordinates = [coordinate(0, "x"), coordinate(1, "y"), coordinate(2, "z")];
    let mut columns = vec![Vec::with_capacity(points); fields.len()];
    let mut dropped = 0;
    for point in 0..points {
        // A coordinate beyond float32 is nowhere, too.
        if coordinates
            .iter()
            .any(|&column| !(value(point, column) as f32).is_finite())
        {
            dropped += 1;
            continue;
        }
        for (column, values) in columns.iter_mut().enumerate() {
            values.push(value(point, column) as f32);
        }
    }
    PointTable {
        fields,
        columns,
        frame_id: None,
        dropped,
    }
}

fn of_rows(
    rows: &NumberRows,
    names: Option<&[String]>,
    data_field: &str,
    field: &str,
    limits: &PointLimits<'_>,
) -> Result<PointTable, InputError> {
    check_count(rows.rows, data_field, limits)?;
    if let Some((row, found)) = rows.ragged {
        let expected = rows.columns;
        return Err(InputError::new(
            data_field,
            InputFault::Ragged { row, found, expected },
        ));
    }
    // No points have as many columns as one likes.
    let columns = match rows.rows {
        0 => names.map_or(limits.default_fields.len(), <[String]>::len),
        _ => rows.columns,
    };
    let fields = names_of(names, columns, field, limits)?;
    Ok(collect(fields, rows.rows, |point, column| {
        rows.values[point * columns + column]
    }))
}

impl<'de> Deserialize<'de> for PointsForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;

        impl<'de> Visitor<'de> for Form {
            type Value = PointsForm;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("rows of numbers, or an object with `data`")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<PointsForm, A::Error> {
                NumberRows::read(seq).map(PointsForm::Rows)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PointsForm, A::Error> {
                let envelope = PointsEnvelope::deserialize(MapAccessDeserializer::new(map))?;
                Ok(PointsForm::Envelope(Box::new(envelope)))
            }
        }

        deserializer.deserialize_any(Form)
    }
}

impl<'de> Deserialize<'de> for PointData {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Data;

        impl<'de> Visitor<'de> for Data {
            type Value = PointData;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("base64, or rows of numbers")
            }

            fn visit_str<E>(self, text: &str) -> Result<PointData, E> {
                Ok(PointData::Text(text.to_owned()))
            }

            fn visit_string<E>(self, text: String) -> Result<PointData, E> {
                Ok(PointData::Text(text))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<PointData, A::Error> {
                NumberRows::read(seq).map(PointData::Rows)
            }
        }

        deserializer.deserialize_any(Data)
    }
}

fn rows_schema() -> Schema {
    json_schema!({ "type": "array", "items": { "type": "array", "items": { "type": "number" } } })
}

impl JsonSchema for PointsForm {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Points".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let envelope = generator.subschema_for::<PointsEnvelope>();
        json_schema!({
            "description": "Rows of numbers (x, y, z, intensity), or points and how they are encoded.",
            "anyOf": [rows_schema(), envelope],
        })
    }
}

impl JsonSchema for PointData {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "PointData".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Base64, or rows of numbers.",
            "anyOf": [{ "type": "string" }, rows_schema()],
        })
    }
}
