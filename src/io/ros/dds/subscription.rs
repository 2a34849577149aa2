//! A subscription on DDS.

use std::collections::HashMap;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use futures_util::StreamExt;
use rustdds::no_key::DeserializedCacheChange;
use rustdds::{DataReaderStatus, GUID, StatusEvented, Timestamp};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::Shared;
use super::raw::RawReader;
use crate::io::ros::{Endpoint, OnMessage, Received, RosSubscription};

/// A subscription of one topic.
pub(super) struct DdsSubscription {
    endpoint: Endpoint,
    id: GUID,
    state: Arc<State>,
    /// Hands messages on.
    take: AbortHandle,
    shared: Arc<Shared>,
}

/// What a subscription and its task share.
#[derive(Debug, Default)]
struct State {
    /// Publishers found that offer what is asked for.
    publishers: AtomicI32,
    /// Whether the subscription has ended.
    ended: AtomicBool,
}

impl DdsSubscription {
    pub(super) fn start(
        endpoint: &Endpoint,
        reader: RawReader,
        on_message: OnMessage,
        events: &Handle,
        shared: Arc<Shared>,
    ) -> Self {
        let state = Arc::new(State::default());
        let id = reader.guid();
        let topic = endpoint.topic.clone();
        let take = events
            .spawn(take(topic, reader, on_message, Arc::clone(&state)))
            .abort_handle();
        Self {
            endpoint: endpoint.clone(),
            id,
            state,
            take,
            shared,
        }
    }
}

impl RosSubscription for DdsSubscription {
    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn has_publishers(&self) -> bool {
        self.state.publishers.load(Ordering::Relaxed) > 0
    }
}

impl Drop for DdsSubscription {
    fn drop(&mut self) {
        // The task ends at its next pause only.
        self.state.ended.store(true, Ordering::Relaxed);
        self.take.abort();
        self.shared.forget(self.id);
    }
}

impl fmt::Debug for DdsSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DdsSubscription")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

async fn take(topic: String, reader: RawReader, on_message: OnMessage, state: Arc<State>) {
    let mut messages = pin!(reader.as_async_stream());
    let mut changes = reader.as_async_status_stream();
    let mut numbers = Numbers::default();
    let mut unreadable = 0_u64;
    loop {
        tokio::select! {
            Some(message) = messages.next() => match message {
                Ok(message) if !state.ended.load(Ordering::Relaxed) => {
                    let missed_before = numbers.missed_before(&message);
                    on_message(Received {
                        source_time_ns: message.source_timestamp().and_then(time_ns),
                        missed_before,
                        data: message.into_value(),
                    });
                }
                Ok(_) => return,
                Err(error) => {
                    unreadable += 1;
                    // Once, then ever more rarely: a publisher in another representation sends nothing else.
                    if unreadable.is_power_of_two() {
                        tracing::warn!(topic, %error, unreadable, "a message cannot be read");
                    }
                }
            },
            Some(change) = changes.next() => match change {
                DataReaderStatus::SubscriptionMatched { current, writer, .. } => {
                    state.publishers.store(current.count(), Ordering::Relaxed);
                    if current.count_change() < 0 {
                        numbers.last.remove(&writer);
                    }
                }
                DataReaderStatus::RequestedIncompatibleQos { last_policy_id, .. } => {
                    tracing::warn!(topic, policy = ?last_policy_id, "a publisher offers less than is asked for");
                }
                _ => {}
            },
            else => return,
        }
        // One topic in flood must not keep the others of the node waiting.
        tokio::task::yield_now().await;
    }
}

/// The number of each publisher's newest message.
#[derive(Debug, Default)]
struct Numbers {
    last: HashMap<GUID, i64>,
}

impl Numbers {
    fn missed_before(&mut self, message: &DeserializedCacheChange<Vec<u8>>) -> u64 {
        let number = i64::from(message.sequence_number);
        let last = self.last.entry(message.writer_guid()).or_insert(number);
        let missed = number.saturating_sub(*last).saturating_sub(1);
        *last = number.max(*last);
        u64::try_from(missed).unwrap_or(0)
    }
}

/// Nanoseconds since the epoch, unless it is one of the marks that stand for no time.
fn time_ns(time: Timestamp) -> Option<i64> {
    if time == Timestamp::INVALID || time == Timestamp::INFINITE {
        return None;
    }
    let (seconds, fraction) = (time.to_ticks() >> 32, time.to_ticks() & 0xffff_ffff);
    // Fits: 2^32 seconds are 2^62 nanoseconds.
    Some((seconds * 1_000_000_000 + ((fraction * 1_000_000_000) >> 32)) as i64)
}
