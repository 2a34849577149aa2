//! MCAP and SQLite bags (the first byte picks one): no file panics, hangs, or gives messages without end.
#![no_main]

use std::io::Write;

use libfuzzer_sys::fuzz_target;
use sensorium_fuzz::io::bag::{Bag, BagLimits};

fuzz_target!(|bytes: &[u8]| {
    let Some((pick, bytes)) = bytes.split_first() else {
        return;
    };
    let suffix = if pick % 2 == 0 { ".mcap" } else { ".db3" };
    let mut file = tempfile::Builder::new().suffix(suffix).tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.flush().unwrap();
    let limits = BagLimits {
        max_message_bytes: 1 << 20,
        max_chunk_bytes: 1 << 20,
        ..BagLimits::default()
    };
    if let Ok(bag) = Bag::open_with(file.path(), limits) {
        let _ = (bag.duration_ns(), bag.topics().len(), bag.warnings().len());
        for message in bag.all_messages() {
            if let Ok(message) = message {
                assert!(message.data.len() <= 1 << 20);
            }
        }
    }
});
