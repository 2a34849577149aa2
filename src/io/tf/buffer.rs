//! The tree of frames.

use std::collections::{HashMap, VecDeque};

use super::history::{Gap, History, Told};
use super::transform::normalised;
use super::{TfError, TfLimits, Transform};
use crate::io::messages::{TfMsg, TransformStampedMsg};

/// How far the squared length of a quaternion may be from 1, as tf2 has it.
const UNIT_TOLERANCE: f64 = 1e-2;
/// Longest name of a frame in bytes.
const MAX_NAME_BYTES: usize = 256;
/// Frames that an error names.
const NAMED_FRAMES: usize = 12;

/// What became of the transforms of one message; sums where several are added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TfUpdate {
    /// Transforms taken in.
    pub accepted: u64,
    /// Left out: a stamp that the frame has already.
    pub repeated: u64,
    /// Left out: older than the history goes.
    pub too_old: u64,
    /// Refused: a value that is NaN or infinite, or a quaternion whose length is not 1.
    pub invalid: u64,
    /// Refused: a frame without a name, or one longer than 256 bytes.
    pub unnamed: u64,
    /// Refused: the frame would be its own ancestor.
    pub loops: u64,
    /// Refused: more frames than the limit.
    pub too_many_frames: u64,
    /// Frames that moved to another parent, and lost the history in the one before.
    pub reparented: u64,
    /// Jumps back in time, at each of which all moving transforms were forgotten.
    pub jumps_back: u64,
    /// Length of the last jump back in nanoseconds.
    pub jump_back_ns: i64,
}

impl TfUpdate {
    /// Adds another update to this one.
    pub fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.repeated += other.repeated;
        self.too_old += other.too_old;
        self.invalid += other.invalid;
        self.unnamed += other.unnamed;
        self.loops += other.loops;
        self.too_many_frames += other.too_many_frames;
        self.reparented += other.reparented;
        self.jumps_back += other.jumps_back;
        if other.jumps_back > 0 {
            self.jump_back_ns = other.jump_back_ns;
        }
    }
}

#[derive(Debug, Clone)]
struct Frame {
    name: String,
    /// Where it hangs, and its transform there; `None` for a root.
    parent: Option<(usize, History)>,
}

/// Frames and where they have been.
#[derive(Debug, Clone)]
pub struct TfBuffer {
    limits: TfLimits,
    frames: Vec<Frame>,
    index: HashMap<String, usize>,
    total: TfUpdate,
}

impl Default for TfBuffer {
    fn default() -> Self {
        Self::new(TfLimits::default())
    }
}

impl TfBuffer {
    /// A buffer that knows nothing.
    #[must_use]
    pub fn new(limits: TfLimits) -> Self {
        Self {
            limits,
            frames: Vec::new(),
            index: HashMap::new(),
            total: TfUpdate::default(),
        }
    }

    /// Takes in a message of `/tf`, or of `/tf_static` where `is_static`.
    ///
    /// What cannot be true is refused, one transform at a time, and counted. A frame holds what was said last: another
    /// parent, or static instead of moving, replaces what was known.
    pub fn insert(&mut self, message: &TfMsg<'_>, is_static: bool) -> TfUpdate {
        let mut update = TfUpdate::default();
        for transform in &message.transforms {
            self.insert_one(transform, is_static, &mut update);
        }
        self.total.add(&update);
        update
    }

    /// All updates so far.
    #[must_use]
    pub fn total(&self) -> &TfUpdate {
        &self.total
    }

    /// Names of the frames, in the order of their first mention.
    pub fn frames(&self) -> impl Iterator<Item = &str> {
        self.frames.iter().map(|frame| &*frame.name)
    }

    /// Forgets where moving frames have been, as after a jump in time; static transforms stay.
    pub fn forget_moving(&mut self) {
        for frame in &mut self.frames {
            if let Some((_, history)) = &mut frame.parent {
                history.forget();
            }
        }
    }

    /// The transform that takes points of `source` to `target` at a time.
    ///
    /// # Errors
    /// Any [`TfError`].
    pub fn lookup(&self, target: &str, source: &str, stamp_ns: i64) -> Result<Transform, TfError> {
        let (target, source) = (self.frame(target)?, self.frame(source)?);
        let common = self.common(target, source)?;
        let to_common = self.chain(source, common, stamp_ns)?;
        let target_to_common = self.chain(target, common, stamp_ns)?;
        Ok(target_to_common.inverse().after(&to_common))
    }

    /// The newest time at which [`lookup`](Self::lookup) of these frames succeeds; `None` where only static transforms
    /// lie between them, so that any time does.
    ///
    /// # Errors
    /// [`TfError::UnknownFrame`], [`TfError::Disconnected`], [`TfError::NoData`], and [`TfError::ExtrapolationPast`]
    /// where the times of two frames do not overlap.
    pub fn newest_common_ns(&self, target: &str, source: &str) -> Result<Option<i64>, TfError> {
        let (target, source) = (self.frame(target)?, self.frame(source)?);
        let common = self.common(target, source)?;
        let mut newest: Option<i64> = None;
        let edges = || self.edges(source, common).chain(self.edges(target, common));
        for (frame, history) in edges() {
            if let History::Moving(_) = history {
                let stamp = history
                    .newest_ns()
                    .ok_or_else(|| self.gap(frame, 0, Gap::Empty))?;
                newest = Some(newest.map_or(stamp, |newest| newest.min(stamp)));
            }
        }
        if let Some(stamp_ns) = newest {
            for (frame, history) in edges() {
                if let Some(oldest_ns) = history.oldest_ns().filter(|&oldest| oldest > stamp_ns) {
                    return Err(self.gap(frame, stamp_ns, Gap::Before { oldest_ns }));
                }
            }
        }
        Ok(newest)
    }

    fn insert_one(&mut self, transform: &TransformStampedMsg<'_>, is_static: bool, update: &mut TfUpdate) {
        let parent = bare(transform.header.frame_id);
        let child = bare(transform.child_frame_id);
        if [parent, child]
            .iter()
            .any(|name| name.is_empty() || name.len() > MAX_NAME_BYTES)
        {
            update.unnamed += 1;
            return;
        }
        let Some(value) = checked(transform) else {
            update.invalid += 1;
            return;
        };
        if self.makes_loop(parent, child) {
            update.loops += 1;
            return;
        }
        let new = [parent, child]
            .iter()
            .filter(|name| !self.index.contains_key(**name))
            .count();
        if self.frames.len() + new > self.limits.frames {
            update.too_many_frames += 1;
            return;
        }
        let (parent, child) = (self.intern(parent), self.intern(child));
        let stamp_ns = transform.header.stamp_ns();
        if !is_static {
            self.note_jump(child, stamp_ns, update);
        }
        let known = &mut self.frames[child].parent;
        if known.as_ref().is_some_and(|(of, _)| *of != parent) {
            update.reparented += 1;
            *known = None;
        }
        if is_static {
            *known = Some((parent, History::Static(value)));
            update.accepted += 1;
            return;
        }
        let (_, history) = known.get_or_insert_with(|| (parent, History::Moving(VecDeque::new())));
        match history.tell(stamp_ns, value, &self.limits) {
            Told::Kept => update.accepted += 1,
            Told::Repeated => update.repeated += 1,
            Told::TooOld => update.too_old += 1,
        }
    }

    /// Forgets all moving transforms if a frame's stamps jump back: the world has started over.
    fn note_jump(&mut self, child: usize, stamp_ns: i64, update: &mut TfUpdate) {
        let newest = self.frames[child]
            .parent
            .as_ref()
            .and_then(|(_, history)| history.newest_ns());
        let back = newest.map_or(0, |newest| newest.saturating_sub(stamp_ns));
        if back > self.limits.jump_back_ns {
            self.forget_moving();
            update.jumps_back += 1;
            update.jump_back_ns = back;
        }
    }

    /// Whether `child` is `parent` or one of its ancestors.
    fn makes_loop(&self, parent: &str, child: &str) -> bool {
        let child_at = self.index.get(child);
        let mut up = self.index.get(parent).copied();
        while let Some(at) = up {
            if Some(&at) == child_at {
                return true;
            }
            up = self.parent(at);
        }
        parent == child
    }

    fn parent(&self, frame: usize) -> Option<usize> {
        self.frames[frame].parent.as_ref().map(|(parent, _)| *parent)
    }

    fn intern(&mut self, name: &str) -> usize {
        if let Some(&at) = self.index.get(name) {
            return at;
        }
        self.frames.push(Frame {
            name: name.to_owned(),
            parent: None,
        });
        self.index.insert(name.to_owned(), self.frames.len() - 1);
        self.frames.len() - 1
    }

    fn frame(&self, name: &str) -> Result<usize, TfError> {
        self.index.get(bare(name)).copied().ok_or_else(|| {
            let mut known: Vec<&str> = self.frames().take(NAMED_FRAMES).collect();
            known.extend((self.frames.len() > NAMED_FRAMES).then_some("..."));
            TfError::UnknownFrame {
                frame: name.to_owned(),
                known: if known.is_empty() {
                    "none".to_owned()
                } else {
                    known.join(", ")
                },
            }
        })
    }

    fn ancestors(&self, frame: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(frame), |&at| self.parent(at))
    }

    /// The nearest frame that both hang from.
    fn common(&self, target: usize, source: usize) -> Result<usize, TfError> {
        // Trees of vehicles are a dozen frames deep.
        let of_source: Vec<usize> = self.ancestors(source).collect();
        let found = self.ancestors(target).find(|frame| of_source.contains(frame));
        found.ok_or_else(|| {
            let name = |frame: usize| self.frames[frame].name.clone();
            let root = |frame: usize| self.ancestors(frame).last().map_or_else(String::new, name);
            TfError::Disconnected {
                target: name(target),
                source_frame: name(source),
                target_root: root(target),
                source_root: root(source),
            }
        })
    }

    /// Frames from `frame` up to below `ancestor`, each with its transform in its parent.
    fn edges(&self, frame: usize, ancestor: usize) -> impl Iterator<Item = (usize, &History)> {
        self.ancestors(frame)
            .take_while(move |&at| at != ancestor)
            .filter_map(|at| Some((at, &self.frames[at].parent.as_ref()?.1)))
    }

    /// The transform that takes points of a frame to one of its ancestors.
    fn chain(&self, frame: usize, ancestor: usize, stamp_ns: i64) -> Result<Transform, TfError> {
        let mut chain = Transform::IDENTITY;
        for (at, history) in self.edges(frame, ancestor) {
            let step = history.at(stamp_ns).map_err(|gap| self.gap(at, stamp_ns, gap))?;
            chain = step.after(&chain);
        }
        Ok(chain)
    }

    fn gap(&self, frame: usize, stamp_ns: i64, gap: Gap) -> TfError {
        let frame = self.frames[frame].name.clone();
        match gap {
            Gap::Empty => TfError::NoData { frame },
            Gap::Before { oldest_ns } => TfError::ExtrapolationPast {
                frame,
                stamp_ns,
                oldest_ns,
            },
            Gap::After { newest_ns } => TfError::ExtrapolationFuture {
                frame,
                stamp_ns,
                newest_ns,
            },
        }
    }
}

/// The name without the slash in front that ROS 1 wrote.
fn bare(name: &str) -> &str {
    name.strip_prefix('/').unwrap_or(name)
}

/// The transform, if all of it is finite and its rotation is one.
fn checked(message: &TransformStampedMsg<'_>) -> Option<Transform> {
    let (t, q) = (&message.transform.translation, &message.transform.rotation);
    let (translation, rotation) = ([t.x, t.y, t.z], [q.x, q.y, q.z, q.w]);
    let length_squared: f64 = rotation.iter().map(|v| v * v).sum();
    let is_unit = (length_squared - 1.0).abs() <= UNIT_TOLERANCE;
    (is_unit && translation.iter().all(|v| v.is_finite())).then(|| Transform {
        translation,
        rotation: normalised(rotation),
    })
}
