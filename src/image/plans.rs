//! The plans of a preset, kept by frame size and shared by all streams.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Geometry, ImageError, ImageRef, Preset, PresetOptions, PresetPlan, Workspace};

/// Sizes whose plan is kept. A vehicle has a handful of cameras; more sizes than this only cost time.
pub const DEFAULT_PLANS: usize = 16;

/// How often a plan was at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlanCounts {
    /// Frames whose plan was at hand.
    pub hits: u64,
    /// Frames whose plan had to be made.
    pub misses: u64,
}

/// Plans by frame size, the least recently used one leaving when there are too many. Shared by threads.
#[derive(Debug)]
pub struct PlanCache {
    preset: Preset,
    options: PresetOptions,
    capacity: usize,
    /// Most recently used last.
    plans: Mutex<VecDeque<Arc<PresetPlan>>>,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl PlanCache {
    /// No plans yet; at most `capacity` (at least 1) of them later.
    ///
    /// # Errors
    /// [`ImageError::PresetOption`] for options that no frame could be planned with.
    pub fn new(preset: Preset, options: PresetOptions, capacity: usize) -> Result<Self, ImageError> {
        options.check(preset)?;
        let capacity = capacity.max(1);
        Ok(Self {
            preset,
            options,
            capacity,
            plans: Mutex::new(VecDeque::with_capacity(capacity)),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        })
    }

    /// The preset.
    #[must_use]
    pub const fn preset(&self) -> Preset {
        self.preset
    }

    /// The plan for frames of `source_px` (width, height), and whether it had to be made.
    ///
    /// # Errors
    /// As [`PresetPlan::new`].
    pub fn get(&self, source_px: [usize; 2]) -> Result<(Arc<PresetPlan>, bool), ImageError> {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let held = plans
            .iter()
            .position(|plan| plan.geometry().source_px == source_px);
        if let Some(plan) = held.and_then(|at| plans.remove(at)) {
            plans.push_back(Arc::clone(&plan));
            self.hits.fetch_add(1, Ordering::Relaxed);
            return Ok((plan, false));
        }
        // Other streams need not wait for the tables of a new size.
        drop(plans);
        let plan = Arc::new(PresetPlan::new(self.preset, source_px, &self.options)?);
        self.misses.fetch_add(1, Ordering::Relaxed);
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        plans.retain(|held| held.geometry().source_px != source_px);
        if plans.len() == self.capacity {
            plans.pop_front();
        }
        plans.push_back(Arc::clone(&plan));
        Ok((plan, true))
    }

    /// Writes the inputs for the cameras of one moment into `out`, one after another, each camera with a size of its
    /// own; `geometries` receives where each lies. On as many threads as there are workspaces.
    ///
    /// # Errors
    /// As [`PlanCache::get`] and [`PresetPlan::apply`]; what `out` holds then is not defined.
    ///
    /// # Panics
    /// If there is no workspace.
    pub fn apply_all(
        &self,
        images: &[ImageRef<'_>],
        out: &mut [u8],
        geometries: &mut Vec<Geometry>,
        workspaces: &mut [Workspace],
    ) -> Result<(), ImageError> {
        geometries.clear();
        let mut rest = out;
        for image in images {
            let (plan, _) = self.get([image.width(), image.height()])?;
            let (expected, found) = (plan.form().bytes(), rest.len());
            let (input, after) = rest
                .split_at_mut_checked(expected)
                .ok_or(ImageError::OutputLength { expected, found })?;
            plan.apply(image, input, workspaces)?;
            geometries.push(plan.geometry());
            rest = after;
        }
        match rest.len() {
            0 => Ok(()),
            surplus => Err(ImageError::OutputLength {
                expected: 0,
                found: surplus,
            }),
        }
    }

    /// Hits and misses so far.
    #[must_use]
    pub fn counts(&self) -> PlanCounts {
        PlanCounts {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
        }
    }

    /// Plans at hand.
    #[must_use]
    pub fn len(&self) -> usize {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(capacity: usize) -> PlanCache {
        let options = PresetOptions {
            target_px: Some([32, 32]),
            ..PresetOptions::DEPLOYED
        };
        PlanCache::new(Preset::YoloxOpencv, options, capacity).unwrap()
    }

    #[test]
    fn the_least_recently_used_plan_leaves() {
        let cache = cache(2);
        let made = |width: usize| cache.get([width, 10]).unwrap().1;
        assert!(made(10) && made(20));
        assert!(!made(10), "still there");
        assert!(made(30), "20 leaves");
        assert!(!made(10) && made(20));
        assert_eq!(cache.len(), 2);
        assert_eq!(cache.counts(), PlanCounts { hits: 2, misses: 4 });
    }

    #[test]
    fn a_size_without_plan_is_an_error_and_costs_no_other_its_plan() {
        let cache = cache(1);
        cache.get([10, 10]).unwrap();
        cache.get([0, 10]).unwrap_err();
        assert!(!cache.get([10, 10]).unwrap().1);
    }
}
