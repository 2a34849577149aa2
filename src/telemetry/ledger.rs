//! Frames in, frames out, frames dropped, devices opened again: counted here and nowhere else.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use metrics::Counter;

use super::trace_file::TraceFile;
use super::{
    Balance, BalanceError, DropCount, DropReason, FrameId, Imbalance, StreamAccount, StreamId, Streams,
};

/// Least time between two warnings about the same kind of drop; a bad sensor must not flood the log.
const WARN_INTERVAL: Duration = Duration::from_secs(5);
/// Most frames of a stream that may be under way. A pipeline of bounded channels holds far fewer; beyond this
/// the oldest counts as lost, so that a leak cannot grow the ledger.
const OPEN_LIMIT: usize = 65_536;
/// How many lost frames an account names.
const LOST_NAMED: usize = 16;

/// Told of every frame that was dropped.
type DropHook = Box<dyn Fn(FrameId) + Send + Sync>;

/// The accounts of all streams of a run. Shared by reference between threads; each call holds a lock for well
/// under a microsecond.
pub struct Ledger {
    streams: Streams,
    on_drop: OnceLock<DropHook>,
    accounts: Mutex<BTreeMap<StreamId, Account>>,
    /// Of all streams.
    dropped: AtomicU64,
    /// Open frames that wait for others of their set.
    waiting: AtomicU64,
    device_restarts: AtomicU64,
    restart_counter: Counter,
    trace: Option<Arc<TraceFile>>,
}

#[derive(Debug)]
struct Account {
    name: Arc<str>,
    frames_in: u64,
    frames_out: u64,
    next_unseen: u64,
    drops: Vec<DropEntry>,
    /// Unsettled sequence numbers, rising.
    open: VecDeque<u64>,
    overlooked: u64,
    settled_twice: u64,
    in_counter: Counter,
    out_counter: Counter,
}

#[derive(Debug)]
struct DropEntry {
    place: Arc<str>,
    reason: DropReason,
    count: u64,
    warned_at: Option<Instant>,
    unwarned: u64,
    counter: Counter,
}

impl Account {
    fn new(name: Arc<str>) -> Self {
        let counter = |edge: &'static str| metrics::counter!("sensorium_frames_total", "stream" => Arc::clone(&name), "edge" => edge);
        Self {
            in_counter: counter("in"),
            out_counter: counter("out"),
            name,
            frames_in: 0,
            frames_out: 0,
            next_unseen: 0,
            drops: Vec::new(),
            open: VecDeque::new(),
            overlooked: 0,
            settled_twice: 0,
        }
    }

    /// Takes a frame off the open ones; whether it was there.
    fn settle(&mut self, seq: u64) -> bool {
        let found = self.open.binary_search(&seq);
        match found {
            Ok(index) => drop(self.open.remove(index)),
            Err(_) => self.settled_twice += 1,
        }
        found.is_ok()
    }

    fn drop_entry(&mut self, place: &str, reason: DropReason) -> &mut DropEntry {
        let index = self
            .drops
            .iter()
            .position(|entry| entry.reason == reason && *entry.place == *place)
            .unwrap_or_else(|| {
                let place: Arc<str> = Arc::from(place);
                self.drops.push(DropEntry {
                    counter: metrics::counter!(
                        "sensorium_drops_total",
                        "reason" => reason.name(),
                        "place" => Arc::clone(&place),
                        "stream" => Arc::clone(&self.name)
                    ),
                    place,
                    reason,
                    count: 0,
                    warned_at: None,
                    unwarned: 0,
                });
                self.drops.len() - 1
            });
        &mut self.drops[index]
    }

    fn snapshot(&self, stream: StreamId) -> StreamAccount {
        StreamAccount {
            stream,
            name: Arc::clone(&self.name),
            frames_in: self.frames_in,
            frames_out: self.frames_out,
            drops: self
                .drops
                .iter()
                .map(|entry| DropCount {
                    stream: self.name.to_string(),
                    place: entry.place.to_string(),
                    reason: entry.reason,
                    count: entry.count,
                })
                .collect(),
            open: self.open.len() as u64 + self.overlooked,
            open_seqs: self.open.iter().copied().take(LOST_NAMED).collect(),
            settled_twice: self.settled_twice,
        }
    }
}

impl Ledger {
    /// An empty ledger. A `metrics` recorder, if any, must be installed before the first frame comes in.
    #[must_use]
    pub fn new(streams: Streams) -> Self {
        Self {
            streams,
            on_drop: OnceLock::new(),
            accounts: Mutex::new(BTreeMap::new()),
            dropped: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            device_restarts: AtomicU64::new(0),
            restart_counter: metrics::counter!("sensorium_device_restarts_total"),
            trace: None,
        }
    }

    /// Has `hook` told of every frame that is dropped from now on. Only the first hook counts.
    pub fn on_drop(&self, hook: impl Fn(FrameId) + Send + Sync + 'static) {
        let _ = self.on_drop.set(Box::new(hook));
    }

    /// Has frames that are dropped told to a trace, too.
    #[must_use]
    pub fn with_trace(self, trace: Option<Arc<TraceFile>>) -> Self {
        Self { trace, ..self }
    }

    /// The trace that these frames' ways are written to, if any.
    #[must_use]
    pub fn trace(&self) -> Option<&TraceFile> {
        self.trace.as_deref()
    }

    /// The streams it accounts for.
    #[must_use]
    pub const fn streams(&self) -> &Streams {
        &self.streams
    }

    /// Opens a frame: every message that a source takes up, before anything else is done with it. The caller
    /// owes the ledger one [`Ledger::frame_out`] or one [`Ledger::frame_dropped`].
    pub fn frame_in(&self, stream: StreamId) -> FrameId {
        let mut accounts = self.lock();
        let account = self.account(&mut accounts, stream);
        let seq = account.frames_in;
        account.frames_in += 1;
        if account.open.len() == OPEN_LIMIT {
            account.open.pop_front();
            account.overlooked += 1;
        }
        account.open.push_back(seq);
        account.in_counter.increment(1);
        FrameId { stream, seq }
    }

    /// Settles a frame that came out. Returns how many frames of its stream are missing between it and the
    /// frame that came out before (0 for a frame that is not open, or that comes out after a later one).
    pub fn frame_out(&self, frame: FrameId) -> u64 {
        let mut accounts = self.lock();
        let account = self.account(&mut accounts, frame.stream);
        if !account.settle(frame.seq) {
            return 0;
        }
        account.frames_out += 1;
        account.out_counter.increment(1);
        // Sequence numbers have no gaps and a stream is never reordered, so what is missing was dropped,
        // whichever thread has counted it so far.
        let dropped_before = frame.seq.saturating_sub(account.next_unseen);
        account.next_unseen = account.next_unseen.max(frame.seq + 1);
        dropped_before
    }

    /// Counts frames of a stream that were lost before anybody could open them: as in, and as dropped at `place`.
    pub fn frames_lost(&self, stream: StreamId, count: u64, place: &str, reason: DropReason) {
        if count == 0 {
            return;
        }
        let mut accounts = self.lock();
        let account = self.account(&mut accounts, stream);
        account.frames_in = account.frames_in.saturating_add(count);
        account.in_counter.increment(count);
        let entry = account.drop_entry(place, reason);
        entry.count = entry.count.saturating_add(count);
        self.dropped.fetch_add(count, Ordering::Relaxed);
        entry.counter.increment(count);
    }

    /// Settles a frame that will not come out. `place` is the actor or channel where it ended.
    pub fn frame_dropped(&self, frame: FrameId, place: &str, reason: DropReason) {
        let mut accounts = self.lock();
        let account = self.account(&mut accounts, frame.stream);
        if !account.settle(frame.seq) {
            return;
        }
        let name = Arc::clone(&account.name);
        let entry = account.drop_entry(place, reason);
        entry.count += 1;
        self.dropped.fetch_add(1, Ordering::Relaxed);
        entry.counter.increment(1);
        let now = Instant::now();
        let warn_of = match entry.warned_at {
            Some(at) if now.duration_since(at) < WARN_INTERVAL => {
                entry.unwarned += 1;
                None
            }
            _ => {
                entry.warned_at = Some(now);
                Some(std::mem::take(&mut entry.unwarned) + 1)
            }
        };
        drop(accounts);
        if let Some(trace) = &self.trace {
            trace.dropped(frame, reason);
        }

        if let Some(told) = self.on_drop.get() {
            told(frame);
        }
        let seq = frame.seq;
        tracing::debug!(stream = %name, seq, place, %reason, "frame dropped");
        if let Some(count) = warn_of {
            tracing::warn!(stream = %name, seq, place, %reason, count, "frames dropped");
        }
    }

    /// Settles a frame as dropped unless it is settled already: for whoever cleans up after a fault and cannot know how
    /// far the frame had got. Whether it was still open.
    pub fn frame_abandoned(&self, frame: FrameId, place: &str, reason: DropReason) -> bool {
        let mut accounts = self.lock();
        let account = self.account(&mut accounts, frame.stream);
        let open = account.open.binary_search(&frame.seq).is_ok();
        drop(accounts);
        if open {
            self.frame_dropped(frame, place, reason);
        }
        open
    }

    /// Frames of a stream that are not settled yet.
    #[must_use]
    pub fn frames_open(&self, stream: StreamId) -> u64 {
        let mut accounts = self.lock();
        let account = self.account(&mut accounts, stream);
        account.open.len() as u64 + account.overlooked
    }

    /// Frames of all streams that were dropped so far.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Takes note that so many frames wait for others of their set, where `before` did.
    pub(crate) fn frames_wait(&self, before: u64, now: u64) {
        // Wraps around where fewer wait, which adds up.
        self.waiting.fetch_add(now.wrapping_sub(before), Ordering::AcqRel);
    }

    /// Frames of all streams that are neither settled nor wait for others of their set.
    #[must_use]
    pub fn frames_under_way(&self) -> u64 {
        let accounts = self.lock();
        let open = accounts
            .values()
            .map(|account| account.open.len() as u64 + account.overlooked);
        let open: u64 = open.sum();
        drop(accounts);
        open.saturating_sub(self.waiting.load(Ordering::Acquire))
    }

    /// Counts that a device which was lost is open again.
    pub fn device_restarted(&self) {
        self.device_restarts.fetch_add(1, Ordering::Relaxed);
        self.restart_counter.increment(1);
    }

    /// How often a lost device was opened again.
    #[must_use]
    pub fn device_restarts(&self) -> u64 {
        self.device_restarts.load(Ordering::Relaxed)
    }

    /// All accounts as they are now, in the order of registration; streams without frames included.
    #[must_use]
    pub fn accounts(&self) -> Vec<StreamAccount> {
        let mut accounts = self.lock();
        for (stream, _) in self.streams.all() {
            self.account(&mut accounts, stream);
        }
        accounts
            .iter()
            .map(|(&stream, account)| account.snapshot(stream))
            .collect()
    }

    /// Proves that every frame was settled once. To be called when nothing is under way any more.
    ///
    /// # Errors
    /// [`BalanceError`] names each stream that does not add up, and the frames it lost.
    pub fn check_balance(&self) -> Result<Balance, BalanceError> {
        let streams = self.accounts();
        let imbalances: Vec<Imbalance> = streams
            .iter()
            .filter(|account| !account.is_balanced())
            .map(|account| Imbalance {
                account: account.clone(),
            })
            .collect();
        if imbalances.is_empty() {
            Ok(Balance { streams })
        } else {
            Err(BalanceError { imbalances })
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<StreamId, Account>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn account<'a>(
        &self,
        accounts: &'a mut BTreeMap<StreamId, Account>,
        stream: StreamId,
    ) -> &'a mut Account {
        accounts
            .entry(stream)
            .or_insert_with(|| Account::new(self.streams.name(stream)))
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger")
            .field("streams", &self.streams)
            .field("accounts", &self.accounts)
            .field("device_restarts", &self.device_restarts)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;

    fn ledger(names: &[&str]) -> (Ledger, Vec<StreamId>) {
        let streams = Streams::default();
        let ids = names.iter().map(|name| streams.register(name)).collect();
        (Ledger::new(streams), ids)
    }

    #[test]
    fn frames_in_equal_frames_out_plus_dropped() {
        let (ledger, ids) = ledger(&["front", "rear"]);
        for i in 0..10 {
            let frame = ledger.frame_in(ids[0]);
            match i {
                3 => ledger.frame_dropped(frame, "decode", DropReason::DecodeFailed),
                4 | 5 => ledger.frame_dropped(frame, "prepare", DropReason::ChannelFullOldest),
                _ => {
                    ledger.frame_out(frame);
                }
            }
        }
        let balance = ledger.check_balance().unwrap();
        let front = &balance.streams[0];
        assert_eq!((front.frames_in, front.frames_out, front.dropped()), (10, 7, 3));
        let kinds: Vec<_> = front
            .drops
            .iter()
            .map(|d| (d.place.as_str(), d.reason, d.count))
            .collect();
        assert_eq!(
            kinds,
            [
                ("decode", DropReason::DecodeFailed, 1),
                ("prepare", DropReason::ChannelFullOldest, 2)
            ]
        );
        assert_eq!(balance.streams[1].frames_in, 0);
    }

    #[test]
    fn a_lost_frame_is_detected_with_its_stream_and_number() {
        let (ledger, ids) = ledger(&["front", "rear"]);
        for stream in [ids[0], ids[1], ids[1], ids[1]] {
            let frame = ledger.frame_in(stream);
            if frame.seq != 1 {
                ledger.frame_out(frame);
            }
        }
        let error = ledger.check_balance().unwrap_err();
        assert_eq!(error.imbalances.len(), 1);
        assert_eq!(
            error.to_string(),
            "frames do not add up: stream \"rear\": 3 in, 2 out, 0 dropped, 1 lost (#1)"
        );
    }

    #[test]
    fn a_frame_reported_twice_cannot_hide_a_lost_one() {
        let (ledger, ids) = ledger(&["front"]);
        let first = ledger.frame_in(ids[0]);
        let second = ledger.frame_in(ids[0]);
        ledger.frame_out(first);
        ledger.frame_dropped(first, "finish", DropReason::Panicked);
        let error = ledger.check_balance().unwrap_err();
        assert_eq!(error.imbalances[0].account.open_seqs, [second.seq]);
        assert!(error.to_string().contains("1 reported twice"), "{error}");
        ledger.frame_out(second);
        assert!(ledger.check_balance().is_err());
    }

    #[test]
    fn a_frame_that_comes_out_knows_what_was_dropped_before_it() {
        let (ledger, ids) = ledger(&["front", "rear"]);
        let frames: Vec<FrameId> = (0..7).map(|_| ledger.frame_in(ids[0])).collect();
        let other = ledger.frame_in(ids[1]);
        assert_eq!(ledger.frame_out(frames[0]), 0);
        ledger.frame_dropped(frames[1], "a", DropReason::ChannelFullOldest);
        // Dropped while an earlier frame is still under way: it counts for the later one.
        ledger.frame_dropped(frames[3], "a", DropReason::ChannelFullOldest);
        assert_eq!(ledger.frame_out(frames[2]), 1);
        assert_eq!(ledger.frame_out(other), 0);
        ledger.frame_dropped(frames[4], "b", DropReason::Panicked);
        assert_eq!(ledger.frame_out(frames[5]), 2);
        assert_eq!(ledger.frame_out(frames[6]), 0);
        assert_eq!(ledger.frame_out(frames[6]), 0);
    }

    #[test]
    fn many_threads_lose_no_count() {
        let (ledger, ids) = ledger(&["front", "rear"]);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (ledger, ids) = (&ledger, &ids);
                scope.spawn(move || {
                    for i in 0..5_000_u64 {
                        let frame = ledger.frame_in(ids[(i % 2) as usize]);
                        if (i + thread) % 5 == 0 {
                            ledger.frame_dropped(frame, "queue", DropReason::ChannelFullNewest);
                        } else {
                            ledger.frame_out(frame);
                        }
                    }
                });
            }
        });
        let balance = ledger.check_balance().unwrap();
        let total = |count: fn(&StreamAccount) -> u64| balance.streams.iter().map(count).sum::<u64>();
        assert_eq!(total(|a| a.frames_in), 20_000);
        assert_eq!(total(StreamAccount::dropped), 4_000);
    }

    #[test]
    fn a_leak_does_not_grow_the_ledger() {
        let (ledger, ids) = ledger(&["front"]);
        for _ in 0..OPEN_LIMIT + 10 {
            ledger.frame_in(ids[0]);
        }
        let account = &ledger.accounts()[0];
        assert_eq!(account.open, OPEN_LIMIT as u64 + 10);
        assert_eq!(ledger.lock()[&ids[0]].open.len(), OPEN_LIMIT);
    }

    /// A log writer that keeps what it is given.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn every_dropped_frame_is_logged_and_warnings_do_not_flood() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let (ledger, ids) = ledger(&["front"]);
            for i in 0..200 {
                let frame = ledger.frame_in(ids[0]);
                let reason = if i == 150 {
                    DropReason::Panicked
                } else {
                    DropReason::InvalidImage
                };
                ledger.frame_dropped(frame, "prepare", reason);
            }
        });
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().filter(|line| line.contains("DEBUG")).count(), 200);
        let warnings: Vec<&str> = text.lines().filter(|line| line.contains("WARN")).collect();
        assert_eq!(warnings.len(), 2, "one for each kind of drop");
        assert!(warnings[1].contains("seq=150") && warnings[1].contains("reason=panicked"));
        assert!(
            text.contains("stream=front seq=199 place=\"prepare\" reason=invalid_image"),
            "{text}"
        );
    }
}
