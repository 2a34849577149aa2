//! Which field of a layout holds what.

use super::error::CloudError;
use super::{Place, Places, ReadOptions, Time, TimeUnit};

/// Type of one value in a table of points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F16,
    F32,
    F64,
}

impl Scalar {
    /// The type that `sensor_msgs/PointField` numbers so.
    pub(crate) fn of_datatype(datatype: u8) -> Option<Self> {
        let all = [
            Self::I8,
            Self::U8,
            Self::I16,
            Self::U16,
            Self::I32,
            Self::U32,
            Self::F32,
            Self::F64,
        ];
        all.get(usize::from(datatype).checked_sub(1)?).copied()
    }

    pub(crate) const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::I8 => "int8",
            Self::U8 => "uint8",
            Self::I16 => "int16",
            Self::U16 => "uint16",
            Self::I32 => "int32",
            Self::U32 => "uint32",
            Self::I64 => "int64",
            Self::U64 => "uint64",
            Self::F16 => "float16",
            Self::F32 => "float32",
            Self::F64 => "float64",
        }
    }
}

/// One field of a layout, as the message or file declares it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field<'a> {
    pub(crate) name: &'a str,
    /// Where the first point's value starts.
    pub(crate) offset: u64,
    /// Bytes from one point's value to the next one's.
    pub(crate) stride: u64,
    /// Its type, or the text of one that is not known.
    pub(crate) scalar: Result<Scalar, u8>,
    pub(crate) count: u64,
    /// The value ends within so many bytes of where the point starts.
    pub(crate) within: Option<u64>,
}

const INTENSITY_NAMES: [&str; 1] = ["intensity"];
/// Read where no field is called `intensity`: Ouster's clouds have both, and the calibrated one second.
const REFLECTIVITY_NAMES: [&str; 1] = ["reflectivity"];
const RING_NAMES: [&str; 2] = ["ring", "channel"];
const TIME_NAMES: [&str; 4] = ["t", "time", "timestamp", "time_stamp"];
const RETURN_NAMES: [&str; 1] = ["return_type"];

/// Whether a field of that name is one that [`find_places`] looks for.
pub(crate) fn is_column(name: &str) -> bool {
    let optional = [
        &INTENSITY_NAMES[..],
        &REFLECTIVITY_NAMES,
        &RING_NAMES,
        &TIME_NAMES,
        &RETURN_NAMES,
    ];
    ["x", "y", "z"].contains(&name) || optional.iter().any(|names| names.contains(&name))
}

/// Finds the fields to read by their names and checks their types.
///
/// # Errors
/// [`CloudError::MissingField`], [`CloudError::AmbiguousFields`], [`CloudError::FieldType`],
/// [`CloudError::FieldCount`], [`CloudError::FieldBeyondPoint`].
pub(crate) fn find_places(fields: &[Field<'_>], options: ReadOptions) -> Result<Places, CloudError> {
    let coordinate = |name: &'static str| -> Result<Place, CloudError> {
        let field = find(fields, name, &[name])?.ok_or_else(|| CloudError::MissingField {
            name,
            fields: names_of(fields),
        })?;
        place(field, "float32 or float64", |scalar| {
            matches!(scalar, Scalar::F16 | Scalar::F32 | Scalar::F64)
        })
    };
    let (x, y, z) = (coordinate("x")?, coordinate("y")?, coordinate("z")?);
    let optional = |wanted: bool, meaning, names: &[&str]| match wanted {
        true => find(fields, meaning, names),
        false => Ok(None),
    };
    let intensity = match optional(options.intensity, "intensity", &INTENSITY_NAMES)? {
        Some(field) => Some(field),
        None => optional(options.intensity, "intensity", &REFLECTIVITY_NAMES)?,
    };
    let any = |_| true;
    let intensity = intensity.map(|f| place(f, "a number", any)).transpose()?;
    let ring = optional(options.ring, "ring", &RING_NAMES)?;
    let ring = ring.map(|f| place(f, "a number", any)).transpose()?;
    let time = optional(options.time, "time", &TIME_NAMES)?;
    let time = time.map(time_place).transpose()?;
    let return_type = optional(options.return_type, "return type", &RETURN_NAMES)?;
    let return_type = return_type.map(|f| place(f, "a number", any)).transpose()?;
    Ok(Places {
        x,
        y,
        z,
        intensity,
        ring,
        time,
        return_type,
    })
}

/// A point's time: whole numbers are nanoseconds, fractions are seconds.
fn time_place(field: &Field<'_>) -> Result<Time, CloudError> {
    let expected =
        "uint32 or int32 (nanoseconds), uint64 or int64 (nanoseconds), float32 or float64 (seconds)";
    let place = place(field, expected, |scalar| scalar.size() >= 4)?;
    let unit = match place.scalar {
        Scalar::F32 => TimeUnit::OffsetSeconds,
        Scalar::F64 => TimeUnit::Seconds,
        Scalar::I64 | Scalar::U64 => TimeUnit::Nanoseconds,
        _ => TimeUnit::OffsetNanoseconds,
    };
    Ok(Time { place, unit })
}

fn find<'f, 'a>(
    fields: &'f [Field<'a>],
    meaning: &'static str,
    names: &[&str],
) -> Result<Option<&'f Field<'a>>, CloudError> {
    let mut found = fields.iter().filter(|field| names.contains(&field.name));
    let first = found.next();
    match (first, found.next()) {
        (Some(first), Some(second)) => Err(CloudError::AmbiguousFields {
            meaning,
            first: first.name.to_owned(),
            second: second.name.to_owned(),
        }),
        _ => Ok(first),
    }
}

fn place(field: &Field<'_>, expected: &'static str, fits: fn(Scalar) -> bool) -> Result<Place, CloudError> {
    let name = || field.name.to_owned();
    let scalar = match field.scalar {
        Ok(scalar) if fits(scalar) => scalar,
        found => {
            return Err(CloudError::FieldType {
                field: name(),
                found: found.map_or_else(|code| format!("of unknown type {code}"), |s| s.name().to_owned()),
                expected,
            });
        }
    };
    // Some publishers leave the count of a single value at 0.
    if field.count > 1 {
        return Err(CloudError::FieldCount {
            field: name(),
            count: field.count,
        });
    }
    let beyond = |end| CloudError::FieldBeyondPoint {
        field: name(),
        end,
        point_step: field.stride,
    };
    let end = field.offset.saturating_add(scalar.size() as u64);
    if field.within.is_some_and(|within| end > within) {
        return Err(beyond(end));
    }
    let offset = usize::try_from(field.offset).map_err(|_| beyond(end))?;
    let stride = usize::try_from(field.stride).map_err(|_| beyond(end))?;
    Ok(Place {
        offset,
        stride,
        scalar,
    })
}

fn names_of(fields: &[Field<'_>]) -> String {
    match fields {
        [] => "none".to_owned(),
        fields => fields
            .iter()
            .map(|field| field.name)
            .collect::<Vec<_>>()
            .join(", "),
    }
}
