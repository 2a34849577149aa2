//! Sweeps of the past, brought into the frame of the present one.

use std::collections::VecDeque;

use super::affine::Affine3f;
use super::cloud::Columns;
use super::geometry::RigidTransform;
use super::points::{ColumnsError, PointColumns, checked_len};

/// Columns of a densified point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PointLayout {
    /// x, y, z, time lag: `point_feature_size` 4.
    Xyzt,
    /// x, y, z, intensity, time lag: `point_feature_size` 5.
    Xyzit,
}

/// How sweeps are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DensifyConfig {
    /// Sweeps kept beside the present one. Poses are needed unless it is 0.
    pub num_past_frames: usize,
    /// Most points of all sweeps together.
    pub cloud_capacity: usize,
    /// Columns of a point.
    pub layout: PointLayout,
}

impl Default for DensifyConfig {
    /// One past frame, 2,000,000 points, without intensity.
    fn default() -> Self {
        Self {
            num_past_frames: 1,
            cloud_capacity: 2_000_000,
            layout: PointLayout::Xyzt,
        }
    }
}

/// A sweep that cannot be taken. The cache is as before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DensifyError {
    /// Columns that do not belong together.
    #[error(transparent)]
    Columns(#[from] ColumnsError),
    /// Intensities are asked for, but there are none.
    #[error(
        "a sweep of {points} points has no intensity, but points of 5 values are asked for; use the layout without \
         intensity, or a cloud that has the field"
    )]
    NoIntensity {
        /// Points of the sweep.
        points: usize,
    },
}

/// What became of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enqueued {
    /// It is the present one now.
    Cached,
    /// It is the present one now, and the only one: its stamp lies before that of the sweep before it.
    CachedAfterReset,
    /// It was left out, for its pose is not known; the cache is as before.
    NoPose,
}

impl Enqueued {
    /// Whether the sweep is the present one now.
    #[must_use]
    pub const fn is_cached(self) -> bool {
        !matches!(self, Self::NoPose)
    }
}

/// What a densified cloud is made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DensifyInfo {
    /// Sweeps in it.
    pub sweeps: usize,
    /// Points in it.
    pub points: usize,
    /// Past sweeps left out for the capacity: the first that did not fit and every older one.
    pub sweeps_dropped: usize,
    /// Points left out for the capacity: those of the sweeps left out, and the last ones of a present sweep that alone
    /// is larger than the capacity.
    pub points_dropped: usize,
}

/// What a [`SweepDensifier`] has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DensifierState {
    /// Sweeps in the cache.
    pub sweeps: usize,
    /// Points in the cache.
    pub points: usize,
    /// Stamp of the present sweep.
    pub newest_stamp_ns: Option<i64>,
    /// Stamp of the oldest.
    pub oldest_stamp_ns: Option<i64>,
    /// Sweeps left out for a missing pose since the start.
    pub missing_poses: u64,
    /// Times that the clock jumped back since the start.
    pub backward_jumps: u64,
}

/// A densified cloud, column by column; the present sweep first, then the others from new to old. Reused for the next
/// frame, it allocates nothing more once it has held the largest.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SweepPoints {
    x: Vec<f32>,
    y: Vec<f32>,
    z: Vec<f32>,
    /// Empty without intensities.
    intensity: Vec<f32>,
    time_lag_s: Vec<f32>,
    layout: Option<PointLayout>,
}

impl SweepPoints {
    /// Number of points.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.x.len()
    }

    /// Whether there is no point.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.x.is_empty()
    }

    /// x, y, z in metres, then the intensity where the layout has it, then the time lag in seconds.
    #[must_use]
    pub fn columns(&self) -> PointColumns<'_> {
        let extra: &[&[f32]] = match self.layout {
            Some(PointLayout::Xyzit) => &[&self.intensity, &self.time_lag_s],
            _ => &[&self.time_lag_s],
        };
        PointColumns::of_one_length([&self.x, &self.y, &self.z], extra)
    }

    /// Makes room for exactly this many points. What the rooms hold is to be overwritten.
    fn resize(&mut self, points: usize, layout: PointLayout) {
        self.layout = Some(layout);
        let intensities = if layout == PointLayout::Xyzit { points } else { 0 };
        self.intensity.resize(intensities, 0.0);
        for column in [&mut self.x, &mut self.y, &mut self.z, &mut self.time_lag_s] {
            column.resize(points, 0.0);
        }
    }

    /// Writes the first points of a sweep, from row `at`.
    fn write(
        &mut self,
        at: usize,
        points: usize,
        sweep: &Columns<'_>,
        present_from_sweep: Option<&Affine3f>,
        time_lag_s: f32,
    ) {
        let rows = at..at + points;
        let from = [&sweep.x[..points], &sweep.y[..points], &sweep.z[..points]];
        let to = [
            &mut self.x[rows.clone()],
            &mut self.y[rows.clone()],
            &mut self.z[rows.clone()],
        ];
        match present_from_sweep {
            Some(transform) => transform.transform_points_f32(from, to),
            None => {
                for (to, from) in to.into_iter().zip(from) {
                    to.copy_from_slice(from);
                }
            }
        }
        if self.layout == Some(PointLayout::Xyzit) {
            self.intensity[rows.clone()].copy_from_slice(&sweep.intensity[..points]);
        }
        self.time_lag_s[rows].fill(time_lag_s);
    }
}

/// The sweeps that fit into a capacity, from new to old: how many, and what of the first.
fn fit(lengths: impl Iterator<Item = usize>, capacity: usize) -> DensifyInfo {
    let mut info = DensifyInfo::default();
    for (age, length) in lengths.enumerate() {
        let room = capacity - info.points;
        if age == 0 {
            info.sweeps = 1;
            info.points = length.min(room);
            info.points_dropped = length - info.points;
        } else if info.sweeps_dropped == 0 && info.points_dropped == 0 && length <= room {
            info.sweeps += 1;
            info.points += length;
        } else {
            info.sweeps_dropped += 1;
            info.points_dropped += length;
        }
    }
    info
}

fn checked(sweep: &Columns<'_>, layout: PointLayout) -> Result<usize, DensifyError> {
    let points = checked_len(sweep)?;
    if layout == PointLayout::Xyzit && sweep.intensity.len() != points {
        return Err(DensifyError::NoIntensity { points });
    }
    Ok(points)
}

/// A sweep of the past and where it was taken.
#[derive(Debug, Clone, Copy)]
pub struct PastSweep<'a> {
    /// Its points, in its own frame.
    pub columns: Columns<'a>,
    /// Age against the present sweep in seconds.
    pub time_lag_s: f32,
    /// Takes its points to the frame of the present sweep.
    pub present_from_past: RigidTransform,
}

/// Puts sweeps together that the caller keeps: the present one as it is, then the others in the order given, each taken
/// to the present frame in float32. The capacity works as in [`SweepDensifier::sweep_points`].
///
/// # Errors
/// [`DensifyError`]; `out` is unchanged then.
pub fn densify_sweeps(
    present: &Columns<'_>,
    past: &[PastSweep<'_>],
    layout: PointLayout,
    cloud_capacity: usize,
    out: &mut SweepPoints,
) -> Result<DensifyInfo, DensifyError> {
    checked(present, layout)?;
    for sweep in past {
        checked(&sweep.columns, layout)?;
    }
    let lengths = std::iter::once(present).chain(past.iter().map(|sweep| &sweep.columns));
    let info = fit(lengths.map(|columns| columns.x.len()), cloud_capacity);
    out.resize(info.points, layout);
    let mut at = present.x.len().min(info.points);
    out.write(0, at, present, None, 0.0);
    for sweep in past.iter().take(info.sweeps.saturating_sub(1)) {
        let points = sweep.columns.x.len();
        let transform = Affine3f::from(&sweep.present_from_past);
        out.write(at, points, &sweep.columns, Some(&transform), sweep.time_lag_s);
        at += points;
    }
    Ok(info)
}

#[derive(Debug, Clone)]
struct Sweep {
    x: Vec<f32>,
    y: Vec<f32>,
    z: Vec<f32>,
    intensity: Vec<f32>,
    stamp_ns: i64,
    /// Takes points of the world to this sweep's frame, and back.
    sweep_from_world: Affine3f,
    world_from_sweep: Affine3f,
}

impl Sweep {
    const fn new() -> Self {
        Self {
            x: Vec::new(),
            y: Vec::new(),
            z: Vec::new(),
            intensity: Vec::new(),
            stamp_ns: 0,
            sweep_from_world: Affine3f::IDENTITY,
            world_from_sweep: Affine3f::IDENTITY,
        }
    }

    fn columns(&self) -> Columns<'_> {
        Columns {
            x: &self.x,
            y: &self.y,
            z: &self.z,
            intensity: &self.intensity,
        }
    }
}

/// The last sweeps of one stream: Autoware's `PointCloudDensification`.
///
/// It copies what it is given into buffers that go round, so that it allocates nothing more once each has held the
/// largest sweep.
#[derive(Debug, Clone)]
pub struct SweepDensifier {
    config: DensifyConfig,
    /// Newest first.
    sweeps: VecDeque<Sweep>,
    /// Buffers without a sweep.
    spare: Vec<Sweep>,
    missing_poses: u64,
    backward_jumps: u64,
}

impl SweepDensifier {
    /// An empty cache.
    #[must_use]
    pub const fn new(config: DensifyConfig) -> Self {
        Self {
            config,
            sweeps: VecDeque::new(),
            spare: Vec::new(),
            missing_poses: 0,
            backward_jumps: 0,
        }
    }

    /// How sweeps are put together.
    #[must_use]
    pub const fn config(&self) -> DensifyConfig {
        self.config
    }

    /// Makes this sweep the present one, and forgets the oldest where there are too many. `world_from_sensor` is where
    /// the sensor was at the stamp; it is not looked at where no past frames are kept.
    ///
    /// A stamp before that of the present sweep means that time has jumped back (a bag that starts again): every sweep
    /// in the cache is forgotten first.
    ///
    /// # Errors
    /// [`DensifyError`]; the cache is unchanged then, as it is for a sweep without the pose that it needs.
    pub fn enqueue(
        &mut self,
        sweep: &Columns<'_>,
        stamp_ns: i64,
        world_from_sensor: Option<&RigidTransform>,
    ) -> Result<Enqueued, DensifyError> {
        checked(sweep, self.config.layout)?;
        let sweep_from_world = match (self.config.num_past_frames, world_from_sensor) {
            (0, _) => Affine3f::IDENTITY,
            (_, Some(pose)) => Affine3f::from(&pose.invert_rigid()),
            (_, None) => {
                self.missing_poses += 1;
                return Ok(Enqueued::NoPose);
            }
        };
        let jumped_back = self
            .sweeps
            .front()
            .is_some_and(|newest| stamp_ns < newest.stamp_ns);
        if jumped_back {
            self.backward_jumps += 1;
            self.reset();
        }
        if self.sweeps.len() > self.config.num_past_frames {
            self.spare.extend(self.sweeps.pop_back());
        }
        let mut kept = self.spare.pop().unwrap_or_else(Sweep::new);
        let with_intensity = self.config.layout == PointLayout::Xyzit;
        for (to, from) in [
            (&mut kept.x, sweep.x),
            (&mut kept.y, sweep.y),
            (&mut kept.z, sweep.z),
            (
                &mut kept.intensity,
                if with_intensity { sweep.intensity } else { &[] },
            ),
        ] {
            to.clear();
            to.extend_from_slice(from);
        }
        kept.stamp_ns = stamp_ns;
        kept.sweep_from_world = sweep_from_world;
        kept.world_from_sweep = sweep_from_world.invert_affine_f32();
        self.sweeps.push_front(kept);
        Ok(if jumped_back {
            Enqueued::CachedAfterReset
        } else {
            Enqueued::Cached
        })
    }

    /// Writes all sweeps in the frame of the present one, which comes first. Each is taken there by the float32 product
    /// of the present sweep's `sweep_from_world` and its own `world_from_sweep` (so the present one too, as in
    /// Autoware). The time lag is the difference of the stamps, each in seconds as float64, rounded to float32.
    ///
    /// A sweep that does not fit into the capacity is left out with every older one. Of a present sweep that alone is
    /// larger, the first points stay. [`DensifyInfo`] tells both. Without a sweep the cloud is empty.
    pub fn sweep_points(&self, out: &mut SweepPoints) -> DensifyInfo {
        let info = fit(
            self.sweeps.iter().map(|sweep| sweep.x.len()),
            self.config.cloud_capacity,
        );
        out.resize(info.points, self.config.layout);
        let Some(present) = self.sweeps.front() else {
            return info;
        };
        let mut at = 0;
        for sweep in self.sweeps.iter().take(info.sweeps) {
            let points = sweep.x.len().min(info.points - at);
            let present_from_sweep = present.sweep_from_world.compose_f32(&sweep.world_from_sweep);
            let lag = seconds(present.stamp_ns) - seconds(sweep.stamp_ns);
            out.write(
                at,
                points,
                &sweep.columns(),
                Some(&present_from_sweep),
                lag as f32,
            );
            at += points;
        }
        info
    }

    /// Forgets every sweep; keeps the memory and the counters.
    pub fn reset(&mut self) {
        self.spare.extend(self.sweeps.drain(..));
    }

    /// As new, but for the memory.
    pub(super) fn start_anew(&mut self) {
        self.reset();
        (self.missing_poses, self.backward_jumps) = (0, 0);
    }

    /// Stamps of the sweeps in the cache, newest first.
    pub fn stamps(&self) -> impl ExactSizeIterator<Item = i64> + '_ {
        self.sweeps.iter().map(|sweep| sweep.stamp_ns)
    }

    /// What it holds and has seen.
    #[must_use]
    pub fn describe(&self) -> DensifierState {
        DensifierState {
            sweeps: self.sweeps.len(),
            points: self.sweeps.iter().map(|sweep| sweep.x.len()).sum(),
            newest_stamp_ns: self.sweeps.front().map(|sweep| sweep.stamp_ns),
            oldest_stamp_ns: self.sweeps.back().map(|sweep| sweep.stamp_ns),
            missing_poses: self.missing_poses,
            backward_jumps: self.backward_jumps,
        }
    }
}

/// As `rclcpp::Time::seconds`.
fn seconds(stamp_ns: i64) -> f64 {
    stamp_ns as f64 / 1e9
}
