//! A bag may be as large as it likes: reading and playing it take the same memory.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use sensorium::io::bag::{Bag, BagTopic, BagWriter, BagWriterSettings};
use sensorium::io::messages::IMAGE_TYPE;
use sensorium::io::player::{Buffering, Player, PlayerSettings, PlayerSink, Rate, Release, SystemClock};

/// Knows how many bytes are allocated, and the most there were.
struct Watching;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system allocator unchanged.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::SeqCst) + layout.size();
        MOST.fetch_max(now, Ordering::SeqCst);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::SeqCst);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static GLOBAL: Watching = Watching;

/// Bytes that `work` had allocated at most, beyond those that there were before.
fn most_bytes(work: impl FnOnce()) -> usize {
    let before = NOW.load(Ordering::SeqCst);
    MOST.store(before, Ordering::SeqCst);
    work();
    MOST.load(Ordering::SeqCst) - before
}

const MIB: usize = 1 << 20;

/// A bag of so many messages of 256 KiB.
fn record(path: &Path, messages: u64) {
    let mut writer = BagWriter::create(path, BagWriterSettings::default()).unwrap();
    let id = writer.add_topic(&BagTopic::of_type("/a", IMAGE_TYPE)).unwrap();
    let data = vec![5; MIB / 4];
    for i in 0..messages {
        writer.write(id, i * 1000, i * 1000, &data).unwrap();
    }
    writer.finish().unwrap();
}

/// Counts bytes; stops after so many.
struct Counter {
    bytes: usize,
}

impl PlayerSink for Counter {
    fn release(&mut self, release: Release) {
        self.bytes += release.data.len();
    }
}

fn play(path: &Path, read_ahead: usize) -> usize {
    let settings = PlayerSettings {
        rate: Rate::Max,
        buffering: Buffering::ReadAhead { bytes: read_ahead },
        ..PlayerSettings::default()
    };
    let player = Player::open(Bag::open(path).unwrap(), settings).unwrap();
    let mut sink = Counter { bytes: 0 };
    player.play(&SystemClock, &mut sink).unwrap();
    sink.bytes
}

// One test, for tests that run beside it would be counted too.
#[test]
fn memory_stays_flat_whatever_the_size_of_the_bag() {
    let folder = tempfile::tempdir().unwrap();
    let [mut reading, mut playing] = [[0; 2]; 2];
    for (place, megabytes) in [16, 128].into_iter().enumerate() {
        let path = folder.path().join(format!("{megabytes}.mcap"));
        record(&path, megabytes * 4);
        let bytes = megabytes as usize * MIB;
        reading[place] = most_bytes(|| {
            let bag = Bag::open(&path).unwrap();
            let read: usize = bag
                .all_messages()
                .map(|message| message.unwrap().data.len())
                .sum();
            assert_eq!(read, bytes);
        });
        playing[place] = most_bytes(|| assert_eq!(play(&path, 4 * MIB), bytes));
    }
    println!("reading {reading:?}, playing {playing:?} bytes");
    // A chunk, its message, a buffer; and what is read ahead.
    assert!(reading.iter().all(|most| *most < 6 * MIB), "{reading:?}");
    assert!(playing.iter().all(|most| *most < 10 * MIB), "{playing:?}");
    assert!(
        playing.iter().all(|most| *most > 4 * MIB),
        "read ahead: {playing:?}"
    );
}
