//! Whether anybody would see a result.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use crate::io::ros::RosPublisher;

/// The publishers that the results of each stream of a detector go to, where nothing else used them as the run began.
#[derive(Debug, Default)]
pub(crate) struct Audience {
    publishers: HashMap<Arc<str>, Vec<Arc<dyn RosPublisher>>>,
    /// Sinks that were opened since and take every result.
    others: RwLock<BTreeSet<String>>,
}

impl Audience {
    /// The results of a stream go there, too.
    pub(crate) fn add(&mut self, stream: Arc<str>, publisher: Arc<dyn RosPublisher>) {
        self.publishers.entry(stream).or_default().push(publisher);
    }

    /// A sink takes every result from now on.
    pub(crate) fn joined_by(&self, sink: &str) {
        let mut others = self.others.write().unwrap_or_else(PoisonError::into_inner);
        others.insert(sink.to_owned());
    }

    /// A sink takes no more results.
    pub(crate) fn left_by(&self, sink: &str) {
        let mut others = self.others.write().unwrap_or_else(PoisonError::into_inner);
        others.remove(sink);
    }

    /// Whether anybody takes the results of a stream.
    pub(crate) fn listens_to(&self, stream: &str) -> bool {
        let others = self.others.read().unwrap_or_else(PoisonError::into_inner);
        if !others.is_empty() {
            return true;
        }
        let publishers = self.publishers.get(stream);
        publishers.is_some_and(|all| all.iter().any(|publisher| publisher.has_subscribers()))
    }
}
