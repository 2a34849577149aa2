//! Bounded channels with a policy for when they are full.
//!
//! flume moves the items; what it lacks is "keep the newest". A sender with that policy holds a receiving end
//! too and takes the oldest item out itself, so that the item can be accounted for.

use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::{FutureExt, select_all};

use crate::pipeline::OnFull;
use crate::telemetry::DropReason;
use crate::telemetry::live::QueueGauge;

/// The sending end.
#[derive(Debug)]
pub struct Sender<T> {
    items: flume::Sender<Item<T>>,
    /// Other end of the same channel, to make room with.
    oldest: Option<Arc<Mutex<flume::Receiver<Item<T>>>>>,
    on_full: OnFull,
    gauge: Option<Arc<QueueGauge>>,
    reader_gone: Arc<AtomicBool>,
}

/// How full a channel is.
pub(crate) struct Gauge {
    items: Box<dyn Fn() -> Option<usize> + Send + Sync>,
    capacity: usize,
}

impl Gauge {
    /// Items that wait; `None` once nobody can send any more.
    pub(crate) fn len(&self) -> Option<usize> {
        (self.items)()
    }

    /// Items that the channel holds.
    pub(crate) const fn capacity(&self) -> usize {
        self.capacity
    }
}

impl fmt::Debug for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gauge")
            .field("len", &self.len())
            .field("capacity", &self.capacity)
            .finish()
    }
}

/// The receiving end of one channel, or of several that lead to one reader. It has one reader at a time: with more
/// of them waiting, a channel would take in more than its capacity.
#[derive(Debug)]
pub struct Receiver<T> {
    channels: Vec<End<T>>,
    /// The channel that is looked at first; moves on with every item, so that none starves another.
    turn: usize,
}

/// What lies in a channel, and when it came, where that is watched.
#[derive(Debug)]
struct Item<T> {
    value: T,
    came_ns: u64,
}

/// One channel of a receiver.
#[derive(Debug)]
struct End<T> {
    items: flume::Receiver<Item<T>>,
    /// What the senders hold while they make room, if they ever do.
    oldest: Option<Arc<Mutex<flume::Receiver<Item<T>>>>>,
    gauge: Option<Arc<QueueGauge>>,
    reader_gone: Arc<AtomicBool>,
}

/// What became of an item that was sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Sent<T> {
    /// It is in the channel.
    Queued,
    /// It is in the channel, and this older one had to go.
    Displaced(T),
    /// It was dropped itself.
    Refused(T),
    /// Nobody will ever receive it.
    Closed(T),
}

impl<T> Sent<T> {
    /// The item that did not get through, with the reason.
    pub fn lost(self) -> Option<(T, DropReason)> {
        match self {
            Self::Queued => None,
            Self::Displaced(item) => Some((item, DropReason::ChannelFullOldest)),
            Self::Refused(item) => Some((item, DropReason::ChannelFullNewest)),
            Self::Closed(item) => Some((item, DropReason::ShuttingDown)),
        }
    }
}

/// A channel for at most `capacity` items (at least 1).
#[must_use]
pub fn bounded<T>(capacity: usize, on_full: OnFull) -> (Sender<T>, Receiver<T>) {
    with_gauge(capacity, on_full, None)
}

/// A channel that tells a gauge how full it is.
#[must_use]
pub fn gauged<T>(capacity: usize, on_full: OnFull, gauge: Arc<QueueGauge>) -> (Sender<T>, Receiver<T>) {
    with_gauge(capacity, on_full, Some(gauge))
}

fn with_gauge<T>(
    capacity: usize,
    on_full: OnFull,
    gauge: Option<Arc<QueueGauge>>,
) -> (Sender<T>, Receiver<T>) {
    let (tx, rx) = flume::bounded(capacity.max(1));
    let reader_gone = Arc::new(AtomicBool::new(false));
    let oldest = (on_full == OnFull::DropOldest).then(|| Arc::new(Mutex::new(rx.clone())));
    (
        Sender {
            items: tx,
            oldest: oldest.clone(),
            on_full,
            gauge: gauge.clone(),
            reader_gone: Arc::clone(&reader_gone),
        },
        Receiver {
            channels: vec![End {
                items: rx,
                oldest,
                gauge,
                reader_gone,
            }],
            turn: 0,
        },
    )
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self {
            items: self.items.clone(),
            oldest: self.oldest.clone(),
            on_full: self.on_full,
            gauge: self.gauge.clone(),
            reader_gone: Arc::clone(&self.reader_gone),
        }
    }
}

impl<T> Sender<T> {
    /// Sends by the channel's policy; waits only under [`OnFull::Block`].
    pub async fn send(&self, item: T) -> Sent<T> {
        if self.reader_gone.load(Ordering::Acquire) {
            return Sent::Closed(item);
        }
        let (item, came_ns) = self.stamped(item);
        match self.on_full {
            OnFull::DropNewest => match self.items.try_send(item) {
                Ok(()) => self.queued(came_ns),
                Err(flume::TrySendError::Full(item)) => {
                    if let Some(gauge) = &self.gauge {
                        gauge.refused();
                    }
                    Sent::Refused(item.value)
                }
                Err(flume::TrySendError::Disconnected(item)) => Sent::Closed(item.value),
            },
            OnFull::DropOldest => self.send_newest(item),
            OnFull::Block => match self.items.send_async(item).await {
                Ok(()) => self.queued(came_ns),
                Err(flume::SendError(item)) => Sent::Closed(item.value),
            },
        }
    }

    /// Sends if there is room, whatever the policy.
    ///
    /// # Errors
    /// The item, if the channel is full or closed.
    pub fn try_send(&self, item: T) -> Result<(), T> {
        if self.reader_gone.load(Ordering::Acquire) {
            return Err(item);
        }
        let (item, came_ns) = self.stamped(item);
        let _alone = self.alone();
        match self.items.try_send(item) {
            Ok(()) => {
                self.queued::<T>(came_ns);
                Ok(())
            }
            Err(error) => Err(error.into_inner().value),
        }
    }

    /// Items waiting to be received.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether nothing waits to be received.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    fn send_newest(&self, item: Item<T>) -> Sent<T> {
        let came_ns = item.came_ns;
        let oldest = self.alone();
        let back = match self.items.try_send(item) {
            Ok(()) => return self.queued(came_ns),
            Err(flume::TrySendError::Disconnected(back)) => return Sent::Closed(back.value),
            Err(flume::TrySendError::Full(back)) => back,
        };
        let displaced = oldest.as_ref().and_then(|oldest| oldest.try_recv().ok());
        if let (Some(gauge), Some(_)) = (&self.gauge, &displaced) {
            gauge.displaced();
        }
        match self.items.try_send(back) {
            Ok(()) => {
                let queued = self.queued(came_ns);
                displaced.map_or(queued, |displaced| Sent::Displaced(displaced.value))
            }
            // Not reached: the room was just made or found, and neither another sender nor the reader is at work.
            Err(error) => Sent::Refused(error.into_inner().value),
        }
    }

    /// An item with the present, which nobody asks for without a gauge.
    fn stamped(&self, value: T) -> (Item<T>, u64) {
        let came_ns = self.gauge.as_ref().map_or(0, |gauge| gauge.now_ns());
        (Item { value, came_ns }, came_ns)
    }

    fn queued<U>(&self, came_ns: u64) -> Sent<U> {
        if let Some(gauge) = &self.gauge {
            gauge.sent(came_ns);
        }
        Sent::Queued
    }

    /// Keeps the other senders out where one may take an item out to make room: otherwise they would fill the
    /// room, and with all of them at it no thread might be left to receive.
    fn alone(&self) -> Option<MutexGuard<'_, flume::Receiver<Item<T>>>> {
        Some(lock(self.oldest.as_ref()?))
    }
}

impl<T: Send + 'static> Sender<T> {
    /// Tells how full the channel is without keeping it open.
    pub(crate) fn gauge(&self) -> Gauge {
        Gauge {
            items: Box::new({
                let items = self.items.downgrade();
                move || Some(items.upgrade()?.len())
            }),
            capacity: self.items.capacity().unwrap_or(0),
        }
    }
}

fn lock<T>(oldest: &Mutex<flume::Receiver<Item<T>>>) -> MutexGuard<'_, flume::Receiver<Item<T>>> {
    oldest.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> End<T> {
    /// Waits for an item while no sender is making room.
    ///
    /// A woken receiver of flume that finds nothing signs up again in a second step. An item that a sender puts
    /// in between, having taken out the one before it, would wake nobody, and the next would be let in beyond the
    /// capacity.
    async fn recv(&self) -> Result<T, flume::RecvError> {
        let mut item = self.items.recv_async();
        let received = poll_fn(|cx| {
            let _alone = self.oldest.as_deref().map(lock);
            item.poll_unpin(cx)
        })
        .await;
        received.map(|item| self.taken(item))
    }

    fn try_recv(&self) -> Option<T> {
        self.items.try_recv().ok().map(|item| self.taken(item))
    }

    fn taken(&self, item: Item<T>) -> T {
        if let Some(gauge) = &self.gauge {
            gauge.taken(item.came_ns);
        }
        item.value
    }
}

impl<T> Receiver<T> {
    /// One receiving end for all channels of these receivers. Each keeps its capacity, its policy and its order;
    /// they take turns.
    #[must_use]
    pub fn merge(receivers: impl IntoIterator<Item = Self>) -> Self {
        Self {
            channels: receivers
                .into_iter()
                .flat_map(|receiver| receiver.channels)
                .collect(),
            turn: 0,
        }
    }

    /// The next item; `None` once all senders are gone and nothing waits. Dropping the future loses nothing.
    pub async fn recv(&mut self) -> Option<T> {
        if let [only] = &self.channels[..] {
            return only.recv().await.ok();
        }
        loop {
            if let Some(item) = self.try_recv() {
                return Some(item);
            }
            // Looked at in this order: once the senders are gone, nothing is put in any more.
            let over = |end: &&End<T>| end.items.is_disconnected() && end.items.is_empty();
            let open = self.channels.iter().filter(|end| !over(end));
            let waiting: Vec<_> = open.map(|end| Box::pin(end.recv())).collect();
            if waiting.is_empty() {
                return None;
            }
            if let (Ok(item), ..) = select_all(waiting).await {
                return Some(item);
            }
        }
    }

    /// The next item if one waits.
    #[must_use]
    pub fn try_recv(&mut self) -> Option<T> {
        let first = self.turn;
        self.turn = first.wrapping_add(1);
        let count = self.channels.len();
        (0..count).find_map(|i| self.channels[first.wrapping_add(i) % count].try_recv())
    }
}

impl<T> Drop for End<T> {
    fn drop(&mut self) {
        self.reader_gone.store(true, Ordering::Release);
    }
}
