//! Element-wise launches that write where they read.

use std::collections::BTreeMap;

use crate::device::{BufferClass, OpDesc, Operand};
use crate::models::plan::{BufferPlan, Launch, Slot, Step};

/// What [`in_place`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::models) struct Reused {
    /// Launches that write where they read.
    pub(in crate::models) launches: usize,
    /// Bytes of the buffers that are not needed any more.
    pub(in crate::models) bytes: usize,
}

/// First and last launch that use a buffer.
type Lives = BTreeMap<usize, (usize, usize)>;

/// Lets element-wise launches write into the buffer of an operand that nobody reads afterwards, where both have the same
/// size and are seen through the same view: an element is read before it is written in its place.
pub(in crate::models) fn in_place(launches: &mut [Launch], buffers: &[BufferPlan]) -> Reused {
    let mut reused = Reused::default();
    let mut lives = lives(launches);
    for time in 0..launches.len() {
        let Some((from, to)) = candidate(&launches[time], time, buffers, &lives) else {
            continue;
        };
        // The output keeps its own buffer: what leads to it moves there.
        let (gone, kept) = match buffers[to].class {
            BufferClass::Output => (from, to),
            _ => (to, from),
        };
        for launch in launches.iter_mut() {
            for slot in &mut launch.slots {
                if *slot == Slot::Buffer(gone) {
                    *slot = Slot::Buffer(kept);
                }
            }
        }
        let life = (lives[&from].0, lives[&to].1);
        lives.remove(&gone);
        lives.insert(kept, life);
        reused.launches += 1;
        reused.bytes += buffers[gone].spec.bytes();
    }
    reused
}

fn lives(launches: &[Launch]) -> Lives {
    let mut lives = Lives::new();
    for (time, launch) in launches.iter().enumerate() {
        for slot in &launch.slots {
            if let Slot::Buffer(buffer) = slot {
                lives.entry(*buffer).or_insert((time, time)).1 = time;
            }
        }
    }
    lives
}

/// The buffers of an operand that dies in this launch and of its result, where one can be the other.
fn candidate(launch: &Launch, time: usize, buffers: &[BufferPlan], lives: &Lives) -> Option<(usize, usize)> {
    let (operands, dst) = elementwise(&launch.op)?;
    let &Slot::Buffer(to) = launch.slots.get(operands.len())? else {
        return None;
    };
    // A result that shares its buffer, as the parts of a concatenation do, stays there.
    if lives.get(&to)?.0 != time || dst.view.shape.elements() != buffers[to].spec.shape.elements() {
        return None;
    }
    let read = |slot: Slot| {
        launch.slots[..operands.len()]
            .iter()
            .zip(&operands)
            .filter(move |(s, _)| **s == slot)
    };
    operands.iter().enumerate().find_map(|(index, _)| {
        let slot @ Slot::Buffer(from) = launch.slots[index] else {
            return None;
        };
        let fits = from != to
            && buffers[from].class == BufferClass::Intermediate
            && buffers[from].spec.bytes() == buffers[to].spec.bytes()
            && buffers[from].spec.dtype == buffers[to].spec.dtype
            && lives.get(&from)?.1 == time
            && read(slot).all(|(_, operand)| **operand == *dst);
        fits.then_some((from, to))
    })
}

/// Operands and destination of an operation that reads each element only where it writes it.
fn elementwise(op: &OpDesc) -> Option<(Vec<&Operand>, &Operand)> {
    match op {
        OpDesc::Unary { src, dst, .. } => Some((vec![src], dst)),
        OpDesc::Binary { lhs, rhs, dst, .. } => Some((vec![lhs, rhs], dst)),
        _ => None,
    }
}

/// Bytes of all buffers that are needed at once at most.
pub(in crate::models) fn peak_bytes(steps: &[Step], buffers: &[BufferPlan]) -> usize {
    let (mut now, mut peak) = (0_usize, 0);
    for step in steps {
        match step {
            Step::Alloc(buffer) => now += buffers[*buffer].spec.bytes(),
            Step::Free(buffer) => now -= buffers[*buffer].spec.bytes(),
            Step::Launch(_) => {}
        }
        peak = peak.max(now);
    }
    peak
}
