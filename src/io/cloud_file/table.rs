//! Tables of numbers without a header, as KITTI and nuScenes store their sweeps.

use std::fmt;
use std::str::FromStr;

use super::error::CloudFileError;
use super::{CloudFile, CloudFileOptions, CloudFormat};
use crate::io::cloud::{Place, Places, ReadOptions, Scalar, Table, Time, TimeUnit, read_table};
use crate::lidar::PointCloud;

/// What the numbers of a point are, one letter each, and their type.
///
/// Written `f32:xyzi` (KITTI), `f32:xyzir` (nuScenes), `f16:xyzil` (several sweeps of nuScenes in one file), `xyzi__`
/// (Waymo's copies in KITTI's form): `x`, `y`, `z` in metres, `i` intensity, `r` ring, `t` seconds after the stamp, `l`
/// seconds before it, `_` a number to pass over. Types are `f16`, `f32` and `f64`; without one it is that of the file, or
/// `f32` where the file does not say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableLayout {
    scalar: Option<Scalar>,
    columns: String,
}

impl FromStr for TableLayout {
    type Err = CloudFileError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = |reason| CloudFileError::LayoutText {
            text: text.to_owned(),
            reason,
        };
        let (scalar, columns) = match text.split_once(':') {
            Some(("f16", columns)) => (Some(Scalar::F16), columns),
            Some(("f32", columns)) => (Some(Scalar::F32), columns),
            Some(("f64", columns)) => (Some(Scalar::F64), columns),
            Some(_) => return Err(bad("the type in front of the colon is f16, f32 or f64")),
            None => (None, text),
        };
        let times = |letter| columns.matches(letter).count();
        if columns.len() > 64 || columns.chars().any(|c| !"xyzirtl_".contains(c)) {
            return Err(bad("columns are up to 64 of x, y, z, i, r, t, l and _"));
        }
        if ['x', 'y', 'z'].iter().any(|&letter| times(letter) != 1) {
            return Err(bad("x, y and z are needed once each"));
        }
        if times('i') > 1 || times('r') > 1 || times('t') + times('l') > 1 {
            return Err(bad("i, r and one of t and l can be there once"));
        }
        Ok(Self {
            scalar,
            columns: columns.to_owned(),
        })
    }
}

impl fmt::Display for TableLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scalar = match self.scalar {
            Some(Scalar::F16) => "f16:",
            Some(Scalar::F32) => "f32:",
            Some(Scalar::F64) => "f64:",
            _ => "",
        };
        write!(f, "{scalar}{}", self.columns)
    }
}

impl TableLayout {
    fn new(scalar: Scalar, columns: &str) -> Self {
        Self {
            scalar: Some(scalar),
            columns: columns.to_owned(),
        }
    }

    pub(super) fn scalar(&self) -> Option<Scalar> {
        self.scalar
    }

    /// Numbers of a point.
    pub(super) fn width(&self) -> usize {
        self.columns.len()
    }

    /// The columns of numbers of `scalar`, the first of which are `step` bytes apart and those of one point `stride`.
    pub(super) fn places(&self, scalar: Scalar, step: usize, stride: usize, options: ReadOptions) -> Places {
        let place = |letter: char| {
            self.columns.find(letter).map(|column| Place {
                offset: column * step,
                stride,
                scalar,
            })
        };
        let wanted = |wanted: bool, letter| if wanted { place(letter) } else { None };
        let time = |letter, unit| wanted(options.time, letter).map(|place| Time { place, unit });
        let nowhere = Place {
            offset: 0,
            stride,
            scalar,
        };
        Places {
            // A layout has all three, or it is not one.
            x: place('x').unwrap_or(nowhere),
            y: place('y').unwrap_or(nowhere),
            z: place('z').unwrap_or(nowhere),
            intensity: wanted(options.intensity, 'i'),
            ring: wanted(options.ring, 'r'),
            time: time('t', TimeUnit::OffsetSeconds).or_else(|| time('l', TimeUnit::LagSeconds)),
            return_type: None,
        }
    }
}

/// Reads a `.bin` file; one that is a PointCloud2 message by its first bytes is read as that.
pub(super) fn read(bytes: &[u8], options: &CloudFileOptions) -> Result<CloudFile, CloudFileError> {
    if let Some(layout) = &options.layout {
        return with_layout(bytes, layout, options.read);
    }
    // A float32 whose bytes are those of a message's header is below 1e-42: no coordinate.
    if let [0, 0 | 1, _, _, ..] = bytes
        && let Ok(file) = super::message(bytes, options.read)
    {
        return Ok(file);
    }
    let known = ["xyzi", "xyzir", "xyzil"];
    let known =
        [Scalar::F32, Scalar::F16].map(|scalar| known.map(|columns| TableLayout::new(scalar, columns)));
    let fitting: Vec<&TableLayout> = known
        .iter()
        .flatten()
        .filter(|layout| fits(bytes, layout))
        .collect();
    match fitting[..] {
        [only] => with_layout(bytes, only, options.read),
        _ => Err(CloudFileError::LayoutUnknown {
            len: bytes.len(),
            candidates: list(&fitting),
        }),
    }
}

pub(super) fn list(layouts: &[&TableLayout]) -> String {
    let names: Vec<String> = layouts.iter().map(ToString::to_string).collect();
    names.join(" or ")
}

fn fits(bytes: &[u8], layout: &TableLayout) -> bool {
    let all = ReadOptions {
        keep_non_finite: true,
        ..ReadOptions::default()
    };
    with_layout(bytes, layout, all).is_ok_and(|file| believable(&file))
}

/// All values are such as a LiDAR reports: coordinates within a kilometre, intensities within 16 bits, no lag below 0.
pub(super) fn believable(file: &CloudFile) -> bool {
    const REACH_M: f32 = 1000.0;
    let cloud = &file.cloud;
    // Numbers of another type, read as float32, often are too small to be normal.
    let normal = |v: f32| v == 0.0 || v.abs() >= f32::MIN_POSITIVE;
    let coordinates = [&cloud.x, &cloud.y, &cloud.z];
    coordinates
        .iter()
        .all(|c| c.iter().all(|&v| v.abs() <= REACH_M && normal(v)))
        && cloud
            .intensity
            .iter()
            .all(|&v| (0.0..=65535.0).contains(&v) && normal(v))
        && cloud.time_ns.iter().all(|&ns| ns <= 0)
}

fn with_layout(
    bytes: &[u8],
    layout: &TableLayout,
    options: ReadOptions,
) -> Result<CloudFile, CloudFileError> {
    let scalar = layout.scalar.unwrap_or(Scalar::F32);
    let stride = scalar.size() * layout.width();
    let layout_name = TableLayout::new(scalar, &layout.columns).to_string();
    if !bytes.len().is_multiple_of(stride) {
        return Err(CloudFileError::LayoutSize {
            len: bytes.len(),
            layout: layout_name,
            step: stride,
        });
    }
    let table = Table {
        data: bytes,
        rows: 1,
        width: bytes.len() / stride,
        row_step: bytes.len(),
        big_endian: false,
        stamp_ns: None,
    };
    let mut cloud = PointCloud::default();
    let places = layout.places(scalar, scalar.size(), stride, options);
    let summary = read_table(&table, &places, options, &mut cloud)?;
    Ok(CloudFile {
        cloud,
        summary,
        format: CloudFormat::Bin,
        layout: layout_name,
        size: [table.width, 1],
    })
}

/// Float32 x, y, z, intensity and, where there is one, ring, a point after the other.
pub(super) fn rows(cloud: &PointCloud) -> (Vec<f32>, usize) {
    let with_ring = !cloud.ring.is_empty();
    let width = if with_ring { 5 } else { 4 };
    let mut values = Vec::with_capacity(cloud.len() * width);
    for at in 0..cloud.len() {
        let intensity = cloud.intensity.get(at).copied().unwrap_or(0.0);
        values.extend_from_slice(&[cloud.x[at], cloud.y[at], cloud.z[at], intensity]);
        values.extend(cloud.ring.get(at).map(|&ring| f32::from(ring)));
    }
    (values, width)
}

pub(super) fn write(cloud: &PointCloud) -> Vec<u8> {
    let (values, _) = rows(cloud);
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}
