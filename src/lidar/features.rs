//! What the pillar encoder is told of each point.

use super::pillars::PillarSet;
use crate::numeric::bf16_encode_into;

/// Values of a slot in the device's layout.
const LANES: usize = 16;
/// Slots of a pillar in the device's layout.
const DEVICE_SLOTS: usize = 32;

/// The inputs of Autoware's pillar encoders, by `encoder_in_feature_size`. Offsets are metres.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EncoderInput {
    /// x, y, z, time lag; offsets to the mean of the pillar's points (x, y, z) and to the middle of the pillar (x, y).
    Nine,
    /// The same, and the offset to the middle of the pillar along z.
    Ten,
    /// x, y, z, intensity, time lag; offsets to the mean (x, y, z) and to the middle (x, y, z).
    Eleven,
    /// PointPainting: x, y, z, time lag, three scores of classes; offsets to the mean (x, y, z) and to the middle
    /// (x, y).
    Twelve,
}

impl EncoderInput {
    /// The input with this many values a point.
    ///
    /// # Errors
    /// [`FeatureError::EncoderSize`] unless it is 9 to 12.
    pub const fn from_size(encoder_in_feature_size: usize) -> Result<Self, FeatureError> {
        match encoder_in_feature_size {
            9 => Ok(Self::Nine),
            10 => Ok(Self::Ten),
            11 => Ok(Self::Eleven),
            12 => Ok(Self::Twelve),
            found => Err(FeatureError::EncoderSize { found }),
        }
    }

    /// Values of a point after decoration.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Nine => 9,
            Self::Ten => 10,
            Self::Eleven => 11,
            Self::Twelve => 12,
        }
    }

    /// Values of a point before it.
    #[must_use]
    pub const fn point_features(self) -> usize {
        match self {
            Self::Nine | Self::Ten => 4,
            Self::Eleven => 5,
            Self::Twelve => 7,
        }
    }
}

/// Where features go: memory for some number of pillars, those of the set first.
#[derive(Debug)]
pub enum FeatureRows<'a> {
    /// float32 (pillars, slots of the grid, values of the encoder), as Autoware's encoders take it.
    Dense(&'a mut [f32]),
    /// float32 (pillars, 32 slots, 16 values): values beyond the encoder's are 0; where the grid has K < 32 slots, slots
    /// K to 31 repeat slot 0, so that a maximum over 32 slots is that over K.
    Device32(&'a mut [f32]),
    /// The same in bfloat16, nearest, ties to even.
    DeviceBf16(&'a mut [u16]),
}

/// What the slots of a pillar hold that have no point. An encoder takes its maximum over all slots, so its weights belong
/// to the one that they were trained with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SlotFill {
    /// Zeros, as in Autoware: they go through the encoder like points.
    #[default]
    Zeros,
    /// The pillar's first point, which leaves the maximum to the points there are.
    FirstPoint,
}

/// What the last frame left in one buffer, so that the next clears only that: most slots of most pillars are empty.
///
/// Belongs to one buffer that nobody else writes. A new one clears the whole buffer.
#[derive(Debug, Clone, Default)]
pub struct SlotHistory {
    layout: Option<Layout>,
    /// Slots of each pillar that may hold something.
    used: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    rows: usize,
    row_values: usize,
    slot_values: usize,
    value_bytes: usize,
}

/// Pillars, encoder and memory that do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FeatureError {
    /// No known encoder.
    #[error(
        "encoder_in_feature_size is {found}; 9, 10, 11 (with intensity) and 12 (PointPainting) are known"
    )]
    EncoderSize {
        /// As given.
        found: usize,
    },
    /// Points with too few or too many values.
    #[error(
        "an encoder of {size} values takes points of {expected} values, but the pillars hold points of {found}; \
         {} of them come after x, y and z", expected - 3
    )]
    PointFeatures {
        /// Values after decoration.
        size: usize,
        /// Values before it.
        expected: usize,
        /// Values that the points have.
        found: usize,
    },
    /// More slots than a row of the device has.
    #[error(
        "the grid gives a pillar {slots} slots, but a row of the device has {DEVICE_SLOTS}; lower max_points_per_pillar"
    )]
    Slots {
        /// Of the grid.
        slots: usize,
    },
    /// Memory that is no whole number of rows, or too little.
    #[error(
        "{pillars} pillars need rows of {row_values} values, but the slice given holds {found}; give a whole number of \
         rows, as many as the most pillars of a frame"
    )]
    Length {
        /// Pillars of this frame.
        pillars: usize,
        /// Values of a pillar.
        row_values: usize,
        /// Values of the slice.
        found: usize,
    },
}

/// Writes the features of every pillar, as `generateFeatures_kernel` computes them: the columns of a point, its offsets
/// to the mean of its pillar's points (a float32 sum in the order of the slots, divided by their number), and its
/// offsets to the middle of the pillar ([`centre_m`](super::PillarGridSpec::centre_m)). Slots without a point
/// become what `fill` says, rows without a pillar 0.
///
/// # Errors
/// [`FeatureError`]; nothing is written then.
pub fn decorate(
    set: &PillarSet,
    input: EncoderInput,
    out: FeatureRows<'_>,
    fill: SlotFill,
    history: Option<&mut SlotHistory>,
) -> Result<(), FeatureError> {
    let slots = set.grid().max_points_per_pillar();
    if set.point_features() != input.point_features() && !set.is_empty() {
        return Err(FeatureError::PointFeatures {
            size: input.size(),
            expected: input.point_features(),
            found: set.point_features(),
        });
    }
    if slots > DEVICE_SLOTS && !matches!(out, FeatureRows::Dense(_)) {
        return Err(FeatureError::Slots { slots });
    }
    match out {
        FeatureRows::Dense(values) => {
            let target = Target::new(set, values, slots, input.size(), fill, history)?;
            match input {
                EncoderInput::Nine => write::<4, 2, 9, _>(set, target, copy_slots),
                EncoderInput::Ten => write::<4, 3, 10, _>(set, target, copy_slots),
                EncoderInput::Eleven => write::<5, 3, 11, _>(set, target, copy_slots),
                EncoderInput::Twelve => write::<7, 2, 12, _>(set, target, copy_slots),
            }
        }
        FeatureRows::Device32(values) => {
            let target = Target::new(set, values, DEVICE_SLOTS, LANES, fill, history)?;
            write_device(set, input, target, copy_slots);
        }
        FeatureRows::DeviceBf16(codes) => {
            let target = Target::new(set, codes, DEVICE_SLOTS, LANES, fill, history)?;
            write_device(set, input, target, encode_slots);
        }
    }
    Ok(())
}

fn write_device<T: Copy + Default>(
    set: &PillarSet,
    input: EncoderInput,
    target: Target<'_, T>,
    put: impl Fn(&[[f32; LANES]], &mut [[T; LANES]]),
) {
    match input {
        EncoderInput::Nine => write::<4, 2, LANES, _>(set, target, put),
        EncoderInput::Ten => write::<4, 3, LANES, _>(set, target, put),
        EncoderInput::Eleven => write::<5, 3, LANES, _>(set, target, put),
        EncoderInput::Twelve => write::<7, 2, LANES, _>(set, target, put),
    }
}

/// Checked memory, and what is in it.
struct Target<'a, T> {
    values: &'a mut [T],
    row_values: usize,
    slots: usize,
    fill: SlotFill,
    history: Option<&'a mut SlotHistory>,
}

impl<'a, T: Copy + Default> Target<'a, T> {
    fn new(
        set: &PillarSet,
        values: &'a mut [T],
        slots: usize,
        slot_values: usize,
        fill: SlotFill,
        mut history: Option<&'a mut SlotHistory>,
    ) -> Result<Self, FeatureError> {
        let row_values = slots * slot_values;
        let rows = values.len() / row_values;
        if !values.len().is_multiple_of(row_values) || rows < set.len() {
            return Err(FeatureError::Length {
                pillars: set.len(),
                row_values,
                found: values.len(),
            });
        }
        let layout = Layout {
            rows,
            row_values,
            slot_values,
            value_bytes: size_of::<T>(),
        };
        if let Some(history) = &mut history
            && history.layout != Some(layout)
        {
            history.layout = Some(layout);
            history.used.clear();
            // Fits: a grid has at most 255 slots.
            history.used.resize(rows, slots as u8);
        }
        Ok(Self {
            values,
            row_values,
            slots,
            fill,
            history,
        })
    }
}

/// Decorates pillar by pillar. `RAW` values of a point, `CENTRE` offsets to the middle, `WIDTH` values of a slot in
/// memory; `put` brings finished slots there.
fn write<const RAW: usize, const CENTRE: usize, const WIDTH: usize, T: Copy + Default>(
    set: &PillarSet,
    target: Target<'_, T>,
    put: impl Fn(&[[f32; LANES]], &mut [[T; WIDTH]]),
) {
    let Target {
        values,
        row_values,
        slots,
        fill,
        mut history,
    } = target;
    let grid_slots = set.grid().max_points_per_pillar();
    // A set without pillars may have points of another width.
    let (points, starts) = set.rows::<RAW>().unwrap_or((&[], &[]));
    let mut decorated = [[0.0; LANES]; DEVICE_SLOTS];
    for (pillar, row) in values.chunks_exact_mut(row_values).enumerate() {
        let (row, _) = row.as_chunks_mut::<WIDTH>();
        let before = history.as_ref().map_or(slots, |h| usize::from(h.used[pillar]));
        let used = match starts.get(pillar..pillar + 2) {
            Some(&[start, end]) => {
                let points = &points[start as usize..end as usize];
                let mean = mean(points);
                let centre = set.grid().centre_m(set.coords()[pillar]);
                for (points, row) in points.chunks(DEVICE_SLOTS).zip(row.chunks_mut(DEVICE_SLOTS)) {
                    for (point, lanes) in points.iter().zip(&mut decorated) {
                        *lanes = decorate_point::<RAW, CENTRE>(point, mean, centre);
                    }
                    put(&decorated[..points.len()], &mut row[..points.len()]);
                }
                let first = row[0];
                row[grid_slots..].fill(first);
                let filled = points.len();
                if fill == SlotFill::FirstPoint {
                    row[filled..grid_slots].fill(first);
                } else if filled < before {
                    row[filled..before.min(grid_slots)]
                        .as_flattened_mut()
                        .fill(T::default());
                }
                if grid_slots < slots || fill == SlotFill::FirstPoint {
                    slots
                } else {
                    filled
                }
            }
            _ => {
                row[..before].as_flattened_mut().fill(T::default());
                0
            }
        };
        if let Some(history) = &mut history {
            // Fits: a grid has at most 255 slots.
            history.used[pillar] = used as u8;
        }
    }
}

fn copy_slots<const WIDTH: usize>(slots: &[[f32; LANES]], row: &mut [[f32; WIDTH]]) {
    for (lanes, slot) in slots.iter().zip(row) {
        slot.copy_from_slice(&lanes[..WIDTH]);
    }
}

fn encode_slots(slots: &[[f32; LANES]], row: &mut [[u16; LANES]]) {
    let same_length = bf16_encode_into(slots.as_flattened(), row.as_flattened_mut());
    debug_assert!(same_length.is_ok(), "slots and row have one length");
}

/// The float32 mean of the coordinates, summed in the order of the slots.
fn mean<const RAW: usize>(points: &[[f32; RAW]]) -> [f32; 3] {
    let mut sum = [0.0_f32; 3];
    for point in points {
        for axis in 0..3 {
            sum[axis] += point[axis];
        }
    }
    sum.map(|sum| sum / points.len() as f32)
}

fn decorate_point<const RAW: usize, const CENTRE: usize>(
    point: &[f32; RAW],
    mean: [f32; 3],
    centre: [f32; 3],
) -> [f32; LANES] {
    let mut lanes = [0.0; LANES];
    lanes[..RAW].copy_from_slice(point);
    for axis in 0..3 {
        lanes[RAW + axis] = point[axis] - mean[axis];
    }
    for axis in 0..CENTRE {
        lanes[RAW + 3 + axis] = point[axis] - centre[axis];
    }
    lanes
}
