//! A publisher on DDS.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use futures_util::StreamExt;
use rustdds::dds::result::WriteError;
use rustdds::{DataWriterStatus, RTPSEntity, StatusEvented, Timestamp, TopicDescription};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::Shared;
use super::raw::{Body, RawWriter};
use crate::io::ros::{Endpoint, RosError, RosPublisher};

/// A publisher of one topic.
pub(super) struct DdsPublisher {
    endpoint: Endpoint,
    writer: Arc<RawWriter>,
    /// Subscriptions found that take what this publisher offers.
    subscriptions: Arc<AtomicI32>,
    /// Counts subscriptions.
    watch: AbortHandle,
    shared: Arc<Shared>,
}

impl DdsPublisher {
    pub(super) fn start(
        endpoint: &Endpoint,
        writer: Arc<RawWriter>,
        events: &Handle,
        shared: Arc<Shared>,
    ) -> Self {
        let subscriptions = Arc::new(AtomicI32::new(0));
        let watch = events
            .spawn(count_subscriptions(
                Arc::clone(&writer),
                Arc::clone(&subscriptions),
            ))
            .abort_handle();
        Self {
            endpoint: endpoint.clone(),
            writer,
            subscriptions,
            watch,
            shared,
        }
    }

    fn failed(&self, reason: String) -> RosError {
        RosError::Publish {
            topic: self.endpoint.topic.clone(),
            reason,
        }
    }
}

impl RosPublisher for DdsPublisher {
    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn publish(&self, data: Vec<u8>) -> Result<(), RosError> {
        if self.shared.has_left() {
            return Err(self.failed("the node has left the network".to_owned()));
        }
        let body = Body::of_message(data).ok_or_else(|| {
            self.failed(
                "the message is not little-endian plain CDR, which is all that is sent over DDS".to_owned(),
            )
        })?;
        self.writer
            .write(body, Some(Timestamp::now()))
            .map_err(|error| match error {
                WriteError::WouldBlock { .. } => self
                    .failed("a reliable subscription acknowledges nothing; the message is lost".to_owned()),
                other => self.failed(other.to_string()),
            })
    }

    fn has_subscribers(&self) -> bool {
        self.subscriptions.load(Ordering::Relaxed) > 0
    }
}

impl Drop for DdsPublisher {
    fn drop(&mut self) {
        self.watch.abort();
        self.shared.forget(self.writer.guid());
    }
}

impl fmt::Debug for DdsPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DdsPublisher")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

async fn count_subscriptions(writer: Arc<RawWriter>, subscriptions: Arc<AtomicI32>) {
    let mut changes = writer.as_async_status_stream();
    while let Some(change) = changes.next().await {
        match change {
            DataWriterStatus::PublicationMatched { current, .. } => {
                subscriptions.store(current.count(), Ordering::Relaxed);
            }
            DataWriterStatus::OfferedIncompatibleQos { last_policy_id, .. } => {
                let topic = writer.topic().name();
                tracing::warn!(topic, policy = ?last_policy_id, "a subscription asks for more than is offered");
            }
            _ => {}
        }
    }
}
