//! Admission: how many frames of a model are between preparation and result.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bounds the frames of one model that are under way, over all detectors that run it. Without a bound of its own, the
/// slots of the device are the bound.
#[derive(Debug, Clone)]
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
