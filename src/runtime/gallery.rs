//! Which frames of a run the report shows.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Most moments.
const MOMENTS: usize = 8;

/// Frames that are kept until it is clear whether their moment is shown.
const RECENT: usize = 16;

/// A spread of moments over a run of unknown length: every `stride`-th one with the frames of one stamp, one a stream, and
/// when there are too many, every other one goes and the stride doubles.
///
/// Where several streams share stamps, the slowest of them says when a moment is complete enough to be shown, so that
/// the others are there too.
#[derive(Debug)]
pub(super) struct Gallery<T> {
    moments: Vec<Moment<T>>,
    /// The latest frames, for moments that begin after them.
    recent: VecDeque<Frame<T>>,
    /// Frames of each stream so far.
    counts: HashMap<Arc<str>, u64>,
    /// Streams that had a stamp in common with another.
    sharing: HashSet<Arc<str>>,
    begun: u64,
    stride: u64,
}

#[derive(Debug)]
struct Moment<T> {
    number: u64,
    frames: Vec<Frame<T>>,
}

#[derive(Debug, Clone)]
struct Frame<T> {
    stream: Arc<str>,
    stamp_ns: i64,
    item: T,
}

impl<T> Default for Gallery<T> {
    fn default() -> Self {
        Self {
            moments: Vec::new(),
            recent: VecDeque::with_capacity(RECENT),
            counts: HashMap::new(),
            sharing: HashSet::new(),
            begun: 0,
            stride: 1,
        }
    }
}

impl<T: Clone> Gallery<T> {
    /// Takes note of a frame, in the order in which frames come out.
    pub(super) fn offer(&mut self, stream: &Arc<str>, stamp_ns: i64, item: &T) {
        let frame = Frame {
            stream: Arc::clone(stream),
            stamp_ns,
            item: item.clone(),
        };
        *self.counts.entry(Arc::clone(stream)).or_default() += 1;
        let partners: Vec<_> = self
            .recent
            .iter()
            .filter(|other| other.stamp_ns == stamp_ns && other.stream != *stream)
            .map(|other| Arc::clone(&other.stream))
            .collect();
        if !partners.is_empty() {
            self.sharing.extend(partners);
            self.sharing.insert(Arc::clone(stream));
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(frame.clone());

        let open = self.moments.iter_mut().find(|moment| {
            let mut frames = moment.frames.iter();
            frames.all(|held| held.stamp_ns == stamp_ns && held.stream != *stream)
        });
        if let Some(moment) = open {
            moment.frames.push(frame);
        } else if self.begins(stream) {
            self.begin(frame);
        }
    }

    /// Everything that is shown.
    pub(super) fn frames(&self) -> impl Iterator<Item = &T> {
        let frames = self.moments.iter().flat_map(|moment| &moment.frames);
        frames.map(|frame| &frame.item)
    }

    /// Whether a frame of this stream may begin a moment: it stands alone, or none of its partners has fewer frames.
    fn begins(&self, stream: &Arc<str>) -> bool {
        let own = self.counts.get(stream).copied().unwrap_or(0);
        let fewest = self.sharing.iter().filter_map(|name| self.counts.get(name)).min();
        !self.sharing.contains(stream) || fewest.is_none_or(|&fewest| own <= fewest)
    }

    fn begin(&mut self, frame: Frame<T>) {
        let number = self.begun;
        self.begun += 1;
        if !number.is_multiple_of(self.stride) {
            return;
        }
        if self.moments.len() == MOMENTS {
            self.stride *= 2;
            let stride = self.stride;
            self.moments.retain(|moment| moment.number.is_multiple_of(stride));
            if !number.is_multiple_of(stride) {
                return;
            }
        }
        let mut frames: Vec<Frame<T>> = Vec::new();
        for held in self.recent.iter().rev() {
            let first = frames.iter().all(|other| other.stream != held.stream);
            if held.stamp_ns == frame.stamp_ns && first {
                frames.push(held.clone());
            }
        }
        self.moments.push(Moment { number, frames });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(name: &str) -> Arc<str> {
        name.into()
    }

    #[test]
    fn frames_with_one_stamp_do_not_pile_up() {
        let mut gallery = Gallery::default();
        for i in 0..1_000 {
            gallery.offer(&stream("front"), 0, &i);
        }
        assert!(gallery.frames().count() <= MOMENTS);
    }

    #[test]
    fn a_long_run_is_shown_from_its_start_to_its_end() {
        let mut gallery = Gallery::default();
        for i in 0..1_000_i64 {
            gallery.offer(&stream("front"), i, &i);
        }
        let shown: Vec<_> = gallery.frames().copied().collect();
        assert!((4..=MOMENTS).contains(&shown.len()), "{shown:?}");
        assert!(shown[0] == 0 && shown[shown.len() - 1] >= 500, "{shown:?}");
    }

    #[test]
    fn a_moment_has_all_sensors_even_where_one_is_five_times_as_fast_and_late() {
        let mut gallery = Gallery::default();
        for sweep in 0..200_i64 {
            if sweep % 5 == 0 {
                for camera in ["front", "left", "right"] {
                    gallery.offer(&stream(camera), sweep, &(camera, sweep));
                }
            }
            // The sweep of a stamp comes out after the images of the next one.
            if sweep > 0 {
                gallery.offer(&stream("lidar"), sweep - 1, &("lidar", sweep - 1));
            }
        }
        // The first moments begin before it is known that streams share stamps.
        let moments = gallery.moments.iter().skip(1);
        for moment in moments {
            let names: Vec<_> = moment.frames.iter().map(|frame| &*frame.stream).collect();
            assert_eq!(names.len(), 4, "{names:?}");
        }
        assert!(gallery.moments.len() >= 4);
    }

    #[test]
    fn streams_that_share_nothing_are_all_shown() {
        let mut gallery = Gallery::default();
        for i in 0..100_i64 {
            gallery.offer(&stream("a"), 2 * i, &"a");
            gallery.offer(&stream("b"), 2 * i + 1, &"b");
        }
        assert!(gallery.frames().count() >= 4);
    }
}
