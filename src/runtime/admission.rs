//! Admission: how many frames of a detector are between preparation and result.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bounds the frames of one detector that are under way, over all its streams. Without a bound of its own, the slots of
/// the device are the bound. A stage must not have more workers than there are places: its frames leave it in order, and
/// one that is done holds its place until those before it have theirs.
#[derive(Debug)]
pub(crate) struct Admission {
    places: Option<Arc<Semaphore>>,
}

/// A frame's place among those under way, free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Admitted {
    _place: Option<OwnedSemaphorePermit>,
}

impl Admission {
    /// At most so many frames; `None`: no bound.
    pub(crate) fn new(max_in_flight: Option<u32>) -> Self {
        Self {
            places: max_in_flight.map(|most| Arc::new(Semaphore::new(most as usize))),
        }
    }

    /// Waits for a place. Places are given in the order in which they were asked for.
    pub(crate) async fn admit(&self) -> Admitted {
        let place = match &self.places {
            // Fails only once it is closed, which nobody does.
            Some(places) => Arc::clone(places).acquire_owned().await.ok(),
            None => None,
        };
        Admitted { _place: place }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn so_many_frames_are_admitted_and_the_next_one_when_one_of_them_is_done() {
        let admission = Admission::new(Some(2));
        let first = admission.admit().now_or_never().unwrap();
        let second = admission.admit().now_or_never().unwrap();
        let mut third = Box::pin(admission.admit());
        assert!((&mut third).now_or_never().is_none());
        drop(first);
        assert!(third.now_or_never().is_some(), "its place was free");
        drop(second);
        let unbounded = Admission::new(None);
        let admitted = (0..1_000).map(|_| unbounded.admit().now_or_never());
        assert_eq!(admitted.collect::<Vec<_>>().iter().flatten().count(), 1_000);
    }
}
