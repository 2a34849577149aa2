//! The list of launches while it grows, and what is made of it at the end.

use std::collections::BTreeMap;

use super::plan::{BufferPlan, Launch, Slot, Step};
use crate::device::{BufferClass, OpDesc, Operand};
use crate::tensor::{MAX_RANK, Shape, View};

/// Joins neighbouring copies between the same two buffers whose windows differ by a constant step, such as
/// the four copies of a space-to-depth stem, into one copy with an axis more.
pub(super) fn join_copies(launches: Vec<Launch>) -> Vec<Launch> {
    let mut joined: Vec<Launch> = Vec::with_capacity(launches.len());
    for launch in launches {
        joined.push(launch);
        // A join may make two equal neighbours, which join again.
        while let Some(pair) = joined.len().checked_sub(2)
            && let Some(both) = join(&joined[pair], &joined[pair + 1])
        {
            joined.truncate(pair);
            joined.push(both);
        }
    }
    joined
}

fn join(a: &Launch, b: &Launch) -> Option<Launch> {
    let (
        OpDesc::Copy {
            src: src_a,
            dst: dst_a,
        },
        OpDesc::Copy {
            src: src_b,
            dst: dst_b,
        },
    ) = (&a.op, &b.op)
    else {
        return None;
    };
    // Within one buffer the second copy could read what the first wrote.
    if a.slots != b.slots || a.slots[0] == a.slots[1] {
        return None;
    }
    let (src, dst) = (pair(src_a, src_b)?, pair(dst_a, dst_b)?);
    if dst.view.strides[0] == 0 {
        return None;
    }
    Some(Launch {
        name: format!("{} + {}", a.name, b.name),
        op: OpDesc::Copy { src, dst },
        slots: a.slots.clone(),
    })
}

/// Two windows of equal form as one with a leading axis of two.
fn pair(a: &Operand, b: &Operand) -> Option<Operand> {
    let (va, vb) = (packed(&a.view)?, packed(&b.view)?);
    if a.dtype != b.dtype || va.shape != vb.shape || va.steps() != vb.steps() || va.rank() == MAX_RANK {
        return None;
    }
    let mut strides = [0; MAX_RANK];
    strides[0] = vb.offset as isize - va.offset as isize;
    strides[1..].copy_from_slice(&va.strides[..MAX_RANK - 1]);
    let dims = [&[2], &va.shape[..]].concat();
    Some(Operand {
        dtype: a.dtype,
        view: View {
            shape: Shape::new(&dims).ok()?,
            strides,
            offset: va.offset,
        },
    })
}

/// A view without axes of one element.
fn packed(view: &View) -> Option<View> {
    let keep: Vec<usize> = (0..view.rank()).filter(|&a| view.shape[a] != 1).collect();
    let mut strides = [0; MAX_RANK];
    for (to, &from) in keep.iter().enumerate() {
        strides[to] = view.strides[from];
    }
    let dims: Vec<usize> = keep.iter().map(|&a| view.shape[a]).collect();
    Some(View {
        shape: Shape::new(&dims).ok()?,
        strides,
        offset: view.offset,
    })
}

/// Adds the reservation of each buffer before its first launch and its return after the last one. Outputs
/// are not returned.
pub(super) fn with_lifetimes(launches: Vec<Launch>, buffers: &[BufferPlan]) -> Vec<Step> {
    let mut lives: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    for (time, launch) in launches.iter().enumerate() {
        for slot in &launch.slots {
            if let Slot::Buffer(buffer) = slot {
                lives.entry(*buffer).or_insert((time, time)).1 = time;
            }
        }
    }
    let mut steps = Vec::new();
    for (time, launch) in launches.into_iter().enumerate() {
        steps.extend(
            lives
                .iter()
                .filter(|(_, life)| life.0 == time)
                .map(|(&b, _)| Step::Alloc(b)),
        );
        steps.push(Step::Launch(Box::new(launch)));
        let ends = lives
            .iter()
            .filter(|&(&b, life)| life.1 == time && buffers[b].class == BufferClass::Intermediate);
        steps.extend(ends.map(|(&b, _)| Step::Free(b)));
    }
    steps
}
