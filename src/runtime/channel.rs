//! Bounded channels with a policy for when they are full.
//!
//! flume moves the items; what it lacks is "keep the newest". A sender with that policy holds a receiving end
//! too and takes the oldest item out itself, so that the item can be accounted for.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::select_all;

use crate::pipeline::OnFull;
use crate::telemetry::DropReason;

/// The sending end.
#[derive(Debug)]
pub struct Sender<T> {
    items: flume::Sender<T>,
    /// Other end of the same channel, to make room with.
    oldest: Option<Arc<Mutex<flume::Receiver<T>>>>,
    on_full: OnFull,
    reader_gone: Arc<AtomicBool>,
}

/// The receiving end of one channel, or of several that lead to one reader.
#[derive(Debug)]
pub struct Receiver<T> {
    channels: Vec<End<T>>,
    /// The channel that is looked at first; moves on with every item, so that none starves another.
    turn: AtomicUsize,
}

/// One channel of a receiver.
#[derive(Debug)]
struct End<T> {
    items: flume::Receiver<T>,
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
    let (tx, rx) = flume::bounded(capacity.max(1));
    let reader_gone = Arc::new(AtomicBool::new(false));
    let oldest = (on_full == OnFull::DropOldest).then(|| Arc::new(Mutex::new(rx.clone())));
    (
        Sender {
            items: tx,
            oldest,
            on_full,
            reader_gone: Arc::clone(&reader_gone),
        },
        Receiver {
            channels: vec![End {
                items: rx,
                reader_gone,
            }],
            turn: AtomicUsize::new(0),
        },
    )
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self {
            items: self.items.clone(),
            oldest: self.oldest.clone(),
            on_full: self.on_full,
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
        match self.on_full {
            OnFull::DropNewest => match self.items.try_send(item) {
                Ok(()) => Sent::Queued,
                Err(flume::TrySendError::Full(item)) => Sent::Refused(item),
                Err(flume::TrySendError::Disconnected(item)) => Sent::Closed(item),
            },
            OnFull::DropOldest => self.send_newest(item),
            OnFull::Block => match self.items.send_async(item).await {
                Ok(()) => Sent::Queued,
                Err(flume::SendError(item)) => Sent::Closed(item),
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
        self.items.try_send(item).map_err(flume::TrySendError::into_inner)
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

    fn send_newest(&self, item: T) -> Sent<T> {
        // All senders of such a channel share this lock, so that whoever makes room also gets it; the reader
        // only ever makes more.
        let oldest = self
            .oldest
            .as_ref()
            .map(|oldest| oldest.lock().unwrap_or_else(PoisonError::into_inner));
        let mut displaced = None;
        let mut item = item;
        loop {
            match self.items.try_send(item) {
                Ok(()) => return displaced.map_or(Sent::Queued, Sent::Displaced),
                Err(flume::TrySendError::Disconnected(back)) => return Sent::Closed(back),
                Err(flume::TrySendError::Full(back)) => match &oldest {
                    Some(oldest) => {
                        displaced = displaced.or_else(|| oldest.try_recv().ok());
                        item = back;
                    }
                    None => return Sent::Refused(back),
                },
            }
        }
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
            turn: AtomicUsize::new(0),
        }
    }

    /// The next item; `None` once all senders are gone and nothing waits. Dropping the future loses nothing.
    pub async fn recv(&self) -> Option<T> {
        if let [only] = &self.channels[..] {
            return only.items.recv_async().await.ok();
        }
        loop {
            if let Some(item) = self.try_recv() {
                return Some(item);
            }
            // Looked at in this order: once the senders are gone, nothing is put in any more.
            let over = |end: &&End<T>| end.items.is_disconnected() && end.items.is_empty();
            let open = self.channels.iter().filter(|end| !over(end));
            let waiting: Vec<_> = open.map(|end| end.items.recv_async()).collect();
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
    pub fn try_recv(&self) -> Option<T> {
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        let count = self.channels.len();
        (0..count).find_map(|i| self.channels[(first + i) % count].items.try_recv().ok())
    }
}

impl<T> Drop for End<T> {
    fn drop(&mut self) {
        self.reader_gone.store(true, Ordering::Release);
    }
}
