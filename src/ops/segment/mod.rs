//! Reductions over runs of rows.
//!
//! Rows are sorted by the segment that they belong to, so that a segment is a run of rows: segment `s` has those from
//! `offsets[s]` to before `offsets[s + 1]`. Rows past the last offset are padding that nobody reads.

mod host;
mod logstep;

pub use host::{segment_reduce_host, worker_segments};
pub use logstep::{
    logstep_segment_max, logstep_segment_max_host, segment_last_rows, segment_rounds, segment_shift_tables,
};

use super::{DeviceTensor, OpContext, OpRefusal, PortRule};
use crate::device::{OpDesc, Scalar, SegmentOp, SegmentReduceDesc};
use crate::tensor::DType;

const OP: &str = "segment_reduce";

/// Rows and channels come in multiples of this on accelerators ([`PortRule::Accelerator`]).
const TILE: usize = 32;

/// Why offsets are not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// Another number of offsets than segments have ends.
    #[error("{found} offsets for {segments} segments, expected {}", segments + 1)]
    Count {
        /// How many there are.
        found: usize,
        /// Segments.
        segments: usize,
    },
    /// The first segment does not begin at the first row.
    #[error("the first offset is {0}, expected 0")]
    First(u32),
    /// An offset below the one before it.
    #[error("offset {position} is {value}, below the {before} before it: offsets do not decrease")]
    Decreases {
        /// Position of the offset.
        position: usize,
        /// The offset.
        value: u32,
        /// The offset before it.
        before: u32,
    },
    /// A last offset past the rows.
    #[error("the last offset is {last}, there are {rows} rows")]
    Rows {
        /// The offset.
        last: u32,
        /// Rows.
        rows: usize,
    },
    /// Less room than offsets.
    #[error("room for {length} offsets, {needed} are needed")]
    Length {
        /// The room.
        length: usize,
        /// Offsets.
        needed: usize,
    },
    /// Segment numbers that are not sorted.
    #[error(
        "row {position} belongs to segment {value}, behind a row of segment {before}: rows are sorted by segment"
    )]
    Unsorted {
        /// Position of the row.
        position: usize,
        /// Its segment.
        value: u32,
        /// The segment of the row before it.
        before: u32,
    },
    /// More rows than uint32 counts.
    #[error("{0} rows or segments: offsets are uint32")]
    TooMany(usize),
}

/// The offsets of `segments` segments from the sorted segment numbers of the rows. Rows of a segment past the last are
/// trailing padding.
///
/// # Errors
/// [`SegmentError::Unsorted`], [`SegmentError::TooMany`].
pub fn segment_offsets(ids: &[u32], segments: usize) -> Result<Vec<u32>, SegmentError> {
    if ids.len() > u32::MAX as usize || segments >= u32::MAX as usize {
        return Err(SegmentError::TooMany(ids.len().max(segments)));
    }
    if let Some(at) = ids.windows(2).position(|pair| pair[0] > pair[1]) {
        return Err(SegmentError::Unsorted {
            position: at + 1,
            value: ids[at + 1],
            before: ids[at],
        });
    }
    let before = |segment: usize| ids.partition_point(|&id| (id as usize) < segment) as u32;
    Ok((0..=segments).map(before).collect())
}

/// Checks offsets before they are uploaded and brings them to `length` entries by repeating the last: a row for a device
/// tensor whose size does not depend on the frame.
///
/// # Errors
/// [`SegmentError`].
pub fn check_offsets(
    offsets: &[u32],
    segments: usize,
    rows: usize,
    length: Option<usize>,
) -> Result<Vec<u32>, SegmentError> {
    let (Some(&first), Some(&last)) = (offsets.first(), offsets.last()) else {
        return Err(SegmentError::Count { found: 0, segments });
    };
    if offsets.len() - 1 != segments {
        let found = offsets.len();
        return Err(SegmentError::Count { found, segments });
    }
    if first != 0 {
        return Err(SegmentError::First(first));
    }
    if let Some(at) = offsets.windows(2).position(|pair| pair[0] > pair[1]) {
        return Err(SegmentError::Decreases {
            position: at + 1,
            value: offsets[at + 1],
            before: offsets[at],
        });
    }
    if last as usize > rows {
        return Err(SegmentError::Rows { last, rows });
    }
    let length = length.unwrap_or(offsets.len());
    if length < offsets.len() {
        let needed = offsets.len();
        return Err(SegmentError::Length { length, needed });
    }
    let mut checked = offsets.to_vec();
    checked.resize(length, last);
    Ok(checked)
}

/// A reduction's sizes and types, the same for every frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SegmentReduceSpec {
    /// Rows, padding included.
    pub rows: usize,
    /// Values of a row.
    pub channels: usize,
    /// Segments.
    pub segments: usize,
    /// Type of the rows: fp32 or bf16.
    pub input: DType,
    /// Type of the result: fp32 or bf16 (rounded to nearest even).
    pub output: DType,
    /// The reduction.
    pub op: SegmentOp,
    /// What segments without rows get.
    pub empty_value: f32,
    /// What may be asked for.
    pub port_rule: PortRule,
}

/// Reduces the segments of rows whose offsets lie on the device, one launch a call. See [`SegmentReduceDesc`] for the
/// arithmetic; the result does not depend on how the segments are divided among threads, nor, for maximum and minimum, on
/// the order of the rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SegmentReduce {
    spec: SegmentReduceSpec,
}

impl SegmentReduce {
    /// A reduction.
    ///
    /// # Errors
    /// [`OpRefusal::Invalid`] for types that are not reduced or more rows than uint32 counts; [`OpRefusal::Unportable`].
    pub fn new(spec: SegmentReduceSpec) -> Result<Self, OpRefusal> {
        for (what, dtype) in [("rows", spec.input), ("results", spec.output)] {
            if !matches!(dtype, DType::F32 | DType::Bf16) {
                let reason = format!("{what} of {dtype}: float32 and bfloat16 are reduced");
                return Err(OpRefusal::invalid(OP, reason));
            }
        }
        if spec.rows > u32::MAX as usize || spec.segments >= u32::MAX as usize {
            let reason = format!(
                "{} rows, {} segments: offsets are uint32",
                spec.rows, spec.segments
            );
            return Err(OpRefusal::invalid(OP, reason));
        }
        if spec.port_rule == PortRule::Accelerator {
            let SegmentReduceSpec {
                rows, channels, op, ..
            } = spec;
            let reason = if !rows.is_multiple_of(TILE) || !channels.is_multiple_of(TILE) {
                format!("{rows} rows of {channels} channels: both come in multiples of {TILE}")
            } else if op != SegmentOp::Max {
                format!("{op:?}: only the maximum needs no float unit")
            } else {
                return Ok(Self { spec });
            };
            return Err(OpRefusal::Unportable { op: OP, reason });
        }
        Ok(Self { spec })
    }

    /// Sizes and types.
    #[must_use]
    pub const fn spec(&self) -> &SegmentReduceSpec {
        &self.spec
    }

    /// One row `[segments, channels]` for each segment of rows `[.., rows, channels]`; `offsets` are uint32, at least
    /// `segments + 1` of them (further ones are not read). Freed by the caller.
    ///
    /// # Errors
    /// [`OpRefusal`]; nothing stays allocated.
    pub fn forward(
        &self,
        ops: &mut OpContext<'_>,
        rows: &DeviceTensor,
        offsets: &DeviceTensor,
    ) -> Result<DeviceTensor, OpRefusal> {
        let dims = [self.spec.segments, self.spec.channels];
        ops.make(OP, &dims, self.spec.output, |ops, output| {
            self.forward_into(ops, rows, offsets, output)
        })
    }

    /// As [`SegmentReduce::forward`], into rows that exist.
    ///
    /// # Errors
    /// [`OpRefusal`].
    pub fn forward_into(
        &self,
        ops: &mut OpContext<'_>,
        rows: &DeviceTensor,
        offsets: &DeviceTensor,
        output: &DeviceTensor,
    ) -> Result<(), OpRefusal> {
        let spec = &self.spec;
        let of = |tensor: &'static str, given: &DeviceTensor, dtype: DType, dims: [usize; 2]| {
            if given.dtype != dtype {
                return Err(OpRefusal::DType {
                    op: OP,
                    tensor,
                    found: given.dtype,
                    expected: dtype.to_string(),
                });
            }
            (given.as_rows())
                .filter(|rows| rows.view.shape[..] == dims)
                .ok_or_else(|| {
                    let expected = format!("rows at equal distances, [.., {}, {}]", dims[0], dims[1]);
                    OpRefusal::shape(OP, tensor, given.view.shape, expected)
                })
        };
        let rows = of("the rows", rows, spec.input, [spec.rows, spec.channels])?;
        let output = of("the result", output, spec.output, [spec.segments, spec.channels])?;
        if offsets.dtype != DType::U32 {
            return Err(OpRefusal::DType {
                op: OP,
                tensor: "the offsets",
                found: offsets.dtype,
                expected: DType::U32.to_string(),
            });
        }
        let line = offsets.reshape(&[offsets.view.shape.elements()]);
        let line = line.and_then(|line| line.view.slice(0, 0, spec.segments + 1, 1).ok());
        let Some(view) = line else {
            let expected = format!("at least {} entries at equal distances", spec.segments + 1);
            return Err(OpRefusal::shape(OP, "the offsets", offsets.view.shape, expected));
        };
        let desc = SegmentReduceDesc {
            rows: rows.operand(),
            offsets: DeviceTensor { view, ..*offsets }.operand(),
            output: output.operand(),
            kind: spec.op,
            empty: Scalar::new(spec.empty_value),
        };
        let buffers = [rows.buffer, offsets.buffer, output.buffer];
        ops.run(&OpDesc::SegmentReduce(desc), &buffers)
            .map_err(OpRefusal::device(OP))
    }
}
