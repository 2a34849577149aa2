//! Sizes of the frames of every stream, and how often pre-processing had its tables at hand.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use metrics::Counter;

/// Watches the frame sizes of streams. Counts `sensorium_preprocess_plans_total`, by `result`: `hit` where the tables for
/// a frame's size were at hand, `miss` where they had to be made.
#[derive(Debug)]
pub struct FrameSizes {
    last_px: Mutex<HashMap<Arc<str>, [u32; 2]>>,
    hits: Counter,
    misses: Counter,
}

impl Default for FrameSizes {
    fn default() -> Self {
        let counter =
            |result: &'static str| metrics::counter!("sensorium_preprocess_plans_total", "result" => result);
        Self {
            last_px: Mutex::default(),
            hits: counter("hit"),
            misses: counter("miss"),
        }
    }
}

impl FrameSizes {
    /// Takes note of a frame of `size_px` (width, height) whose tables had to be made, or had not. Returns the size of
    /// the stream's frame before it if that was another.
    pub fn note(&self, stream: &Arc<str>, size_px: [u32; 2], planned: bool) -> Option<[u32; 2]> {
        if planned {
            self.misses.increment(1);
        } else {
            self.hits.increment(1);
        }
        let mut last_px = self.last_px.lock().unwrap_or_else(PoisonError::into_inner);
        match last_px.get_mut(stream) {
            Some(last) => {
                let before = std::mem::replace(last, size_px);
                (before != size_px).then_some(before)
            }
            None => {
                last_px.insert(Arc::clone(stream), size_px);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_once_and_only_of_its_own_stream() {
        let sizes = FrameSizes::default();
        let (front, rear): (Arc<str>, Arc<str>) = ("front".into(), "rear".into());
        assert_eq!(sizes.note(&front, [640, 480], true), None);
        assert_eq!(sizes.note(&rear, [320, 240], true), None);
        assert_eq!(sizes.note(&front, [640, 480], false), None);
        assert_eq!(sizes.note(&front, [1280, 960], true), Some([640, 480]));
        assert_eq!(sizes.note(&front, [1280, 960], false), None);
        assert_eq!(sizes.note(&rear, [320, 240], false), None);
    }
}
