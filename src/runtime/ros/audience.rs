//! Whether anybody would see a result.

use std::collections::HashMap;
use std::sync::Arc;

use crate::io::ros::RosPublisher;

/// The publishers that the results of each stream go to, where nothing else uses them.
#[derive(Debug, Default)]
pub(crate) struct Audience {
    publishers: HashMap<Arc<str>, Vec<Arc<dyn RosPublisher>>>,
}

impl Audience {
    /// The results of a stream go there, too.
    pub(crate) fn add(&mut self, stream: Arc<str>, publisher: Arc<dyn RosPublisher>) {
        self.publishers.entry(stream).or_default().push(publisher);
    }

    /// Whether anybody subscribes to the results of a stream.
    pub(crate) fn listens_to(&self, stream: &str) -> bool {
        let publishers = self.publishers.get(stream);
        publishers.is_some_and(|all| all.iter().any(|publisher| publisher.has_subscribers()))
    }
}
