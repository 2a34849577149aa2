//! What commands touch.

use std::collections::BTreeMap;
use std::ops::Range;

use super::race::RaceObject;
use super::ranges::Ranges;
use crate::device::{BufferClass, BufferId, OpDesc, Operand};

/// Where bytes lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Space {
    /// The device's memory, by offset.
    Arena,
    /// One host slot.
    Slot(u64),
}

/// Bytes that a command reads or writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) space: Space,
    pub(super) range: Range<usize>,
    pub(super) writes: bool,
    pub(super) object: RaceObject,
}

impl Access {
    /// Bytes of the arena that belong to a buffer.
    pub(super) const fn buffer(id: BufferId, class: BufferClass, range: Range<usize>, writes: bool) -> Self {
        Self {
            space: Space::Arena,
            range,
            writes,
            object: RaceObject::Buffer { id, class },
        }
    }

    /// The first `len` bytes of a host slot.
    pub(super) const fn slot(number: u64, len: usize, writes: bool) -> Self {
        Self {
            space: Space::Slot(number),
            range: 0..len,
            writes,
            object: RaceObject::HostSlot(number),
        }
    }
}

/// How a program uses one of its bound buffers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Use {
    /// Bytes from the start of the buffer, the smallest range around the view; `None` is all that the kernel
    /// requires.
    pub(super) range: Option<Range<usize>>,
    /// Bytes of the elements themselves.
    pub(super) elements_bytes: usize,
    pub(super) writes: bool,
}

/// The bound buffers' uses, in the order of [`OpDesc`]. The description has been prepared, so its views lie
/// above element 0 and inside the address space.
pub(super) fn uses(op: &OpDesc) -> Vec<Use> {
    let reads = |operand: &Operand| operand_use(operand, false);
    let writes = |operand: &Operand| operand_use(operand, true);
    let weights = Use {
        range: None,
        elements_bytes: 0,
        writes: false,
    };
    match op {
        OpDesc::Fill { dst, .. } => vec![writes(dst)],
        OpDesc::Copy { src, dst }
        | OpDesc::ResizeNearest { src, dst, .. }
        | OpDesc::Unary { src, dst, .. }
        | OpDesc::Softmax { src, dst, .. }
        | OpDesc::Gather { src, dst, .. } => vec![reads(src), writes(dst)],
        OpDesc::Pool2d(desc) => vec![reads(&desc.input), writes(&desc.output)],
        OpDesc::Binary { lhs, rhs, dst, .. } => vec![reads(lhs), reads(rhs), writes(dst)],
        OpDesc::GatherRows { table, index, dst } => vec![reads(table), reads(index), writes(dst)],
        OpDesc::Pillars(desc) => vec![reads(&desc.points), weights, writes(&desc.output)],
        OpDesc::TopK(desc) => vec![reads(&desc.src), writes(&desc.values), writes(&desc.indices)],
        OpDesc::SplitIndex(desc) => vec![reads(&desc.index), writes(&desc.major), writes(&desc.minor)],
        OpDesc::LocalMax(desc) => vec![reads(&desc.input), writes(&desc.output)],
        OpDesc::GridSample(desc) => vec![reads(&desc.input), reads(&desc.grid), writes(&desc.output)],
        OpDesc::SegmentReduce(desc) => vec![reads(&desc.rows), reads(&desc.offsets), writes(&desc.output)],
        OpDesc::Conv2d(desc) => {
            let mut uses = vec![reads(&desc.input), weights, writes(&desc.output)];
            uses.extend(desc.residual.as_ref().map(reads));
            uses
        }
        OpDesc::MatMul(desc) => {
            let mut uses = vec![reads(&desc.lhs), reads(&desc.rhs), writes(&desc.output)];
            uses.extend(desc.bias.as_ref().map(reads));
            uses
        }
        OpDesc::LayerNorm(desc) => {
            let mut uses = vec![reads(&desc.src), writes(&desc.dst)];
            let others = [&desc.residual, &desc.gamma, &desc.beta];
            uses.extend(others.into_iter().flatten().map(reads));
            uses
        }
        OpDesc::Reduce(desc) => vec![reads(&desc.src), writes(&desc.dst)],
        OpDesc::Sdpa(desc) => {
            let inputs = [&desc.query, &desc.key, &desc.value];
            let mut uses: Vec<Use> = inputs.into_iter().map(reads).collect();
            uses.push(writes(&desc.output));
            uses.extend(desc.mask.as_ref().map(reads));
            uses
        }
    }
}

fn operand_use(operand: &Operand, writes: bool) -> Use {
    let size = operand.dtype.size_bytes();
    let range = match operand.view.bounds() {
        Some((low, high)) => low as usize * size..(high as usize + 1) * size,
        None => 0..0,
    };
    Use {
        range: Some(range),
        elements_bytes: operand.view.shape.elements() * size,
        writes,
    }
}

/// What all launches of a trace touch together.
#[derive(Debug, Default)]
pub(super) struct Footprint {
    /// By buffer and by whether it is written.
    touched: BTreeMap<(BufferId, bool), (BufferClass, Ranges)>,
}

impl Footprint {
    /// Adds accesses to buffers.
    pub(super) fn add(&mut self, accesses: &[Access]) {
        for access in accesses {
            if let RaceObject::Buffer { id, class } = access.object {
                let (_, ranges) = self
                    .touched
                    .entry((id, access.writes))
                    .or_insert_with(|| (class, Ranges::default()));
                ranges.insert(access.range.clone());
            }
        }
    }

    /// Everything added.
    pub(super) fn accesses(&self) -> Vec<Access> {
        let each = self.touched.iter();
        each.flat_map(|(&(id, writes), (class, ranges))| {
            ranges
                .iter()
                .map(move |range| Access::buffer(id, *class, range, writes))
        })
        .collect()
    }
}
