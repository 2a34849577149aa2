//! Recordings that were cut off or damaged: nothing whole is lost, nothing panics, everything ends.

use crate::support;
use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;

use mcap::records::MessageHeader;
use mcap::sans_io::{LinearReadEvent, LinearReader};
use sensorium::io::bag::{Bag, BagError, BagLimits, BagWarning};
use sensorium::io::messages::{CompressedImageMsg, HeaderMsg, ImageMsg};

/// Log time and checksum of a message.
type Seen = (u64, u32);

/// Everything a bag gives, and the errors on the way.
fn read(path: &Path) -> Result<(Vec<Seen>, Vec<BagError>), BagError> {
    let (mut seen, mut errors) = (Vec::new(), Vec::new());
    for item in Bag::open(path)?.all_messages() {
        match item {
            Ok(message) => {
                assert!(errors.is_empty(), "whole messages come before the error");
                seen.push((message.log_time_ns, crc32fast::hash(&message.data)));
            }
            Err(error) => errors.push(error),
        }
    }
    Ok((seen, errors))
}

/// Every message that the streaming reader of the `mcap` crate finds before it gives up, by log time.
fn whole_messages(file: &[u8]) -> Vec<Seen> {
    let mut reader = LinearReader::new();
    let (mut at, mut seen) = (0, Vec::new());
    while let Some(Ok(event)) = reader.next_event() {
        match event {
            LinearReadEvent::ReadRequest(wanted) => {
                let n = wanted.min(file.len() - at);
                reader.insert(wanted)[..n].copy_from_slice(&file[at..at + n]);
                reader.notify_read(n);
                at += n;
            }
            LinearReadEvent::Record { data, opcode } => {
                if let Ok(mcap::records::Record::Message { header, data }) = mcap::parse_record(opcode, data)
                {
                    seen.push((header.log_time, crc32fast::hash(&data)));
                }
            }
        }
    }
    seen.sort_by_key(|(time, _)| *time);
    seen
}

/// Whether every element of one list is in the other, as often.
fn holds(all: &[Seen], some: &[Seen]) -> bool {
    let mut left: BTreeMap<Seen, usize> = BTreeMap::new();
    for seen in all {
        *left.entry(*seen).or_default() += 1;
    }
    some.iter().all(|seen| {
        left.get_mut(seen)
            .is_some_and(|n| n.checked_sub(1).map(|less| *n = less).is_some())
    })
}

/// Offsets of the top-level records, found by their lengths alone.
fn record_offsets(file: &[u8]) -> Vec<usize> {
    let mut offsets = vec![8];
    while let Some(header) = file.get(offsets.last().unwrap() + 1..offsets.last().unwrap() + 9) {
        let len = u64::from_le_bytes(header.try_into().unwrap()) as usize;
        offsets.push(offsets.last().unwrap() + 9 + len);
    }
    offsets
}

/// A recording of `messages` on two topics, times jumping a little back and forth, payloads alike.
fn recording(options: mcap::WriteOptions, messages: u32) -> Vec<u8> {
    let mut writer = options.create(Cursor::new(Vec::new())).unwrap();
    let schema = writer
        .add_schema("std_msgs/msg/String", "ros2msg", b"string data")
        .unwrap();
    let channels = ["/a", "/b"].map(|t| writer.add_channel(schema, t, "cdr", &BTreeMap::new()).unwrap());
    for i in 0..messages {
        let log_time = u64::from(1000 + i * 10 + (i % 3) * 25);
        let header = MessageHeader {
            channel_id: channels[(i % 2) as usize],
            sequence: i,
            log_time,
            publish_time: log_time - 1,
        };
        writer.write_to_known_channel(&header, &[i as u8; 40]).unwrap();
    }
    writer.finish().unwrap();
    writer.into_inner().into_inner()
}

fn small_chunks(compression: Option<mcap::Compression>) -> mcap::WriteOptions {
    mcap::WriteOptions::new()
        .compression(compression)
        .compression_threads(0)
        .chunk_size(Some(400))
}

/// Public reports: foxglove/mcap issue 697, rosbag2 issue 2003 (truncated files).
#[test]
fn a_file_cut_at_any_record_boundary_gives_every_whole_message_then_says_where() {
    let Some(path) = support::data("bags/mcap_crate/compressed.mcap") else {
        return;
    };
    let file = std::fs::read(path).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let cut_path = folder.path().join("cut.mcap");
    let every = whole_messages(&file);
    assert_eq!(every.len(), 774 + 52);
    let offsets = record_offsets(&file);
    assert!(offsets.len() > 20, "{}", offsets.len());
    // The file has thousands of records and each cut is read to its end: one boundary in so many is taken, and
    // the first and last of them. Files cut at every byte are small ones, below.
    let step = offsets.len() / 40;
    let some = offsets
        .iter()
        .enumerate()
        .filter(|(i, _)| i % step == 0 || *i < 6 || i + 6 > offsets.len());
    let cuts = some.flat_map(|(_, offset)| [offset - 1, *offset, offset + 1]);
    for cut in cuts.filter(|cut| (8..file.len()).contains(cut)) {
        std::fs::write(&cut_path, &file[..cut]).unwrap();
        let (seen, errors) = read(&cut_path).unwrap();
        // Within the chunk that is cut, how much decompresses is each decompressor's own.
        assert!(
            holds(&seen, &whole_messages(&file[..cut])),
            "cut at {cut}: {} messages",
            seen.len()
        );
        assert!(holds(&every, &seen), "cut at {cut}: {} messages", seen.len());
        let last_whole = *offsets.iter().rfind(|offset| **offset <= cut).unwrap() as u64;
        let [BagError::Truncated { offset, .. }] = errors[..] else {
            panic!("cut at {cut}: {errors:?}")
        };
        assert_eq!(offset, last_whole, "cut at {cut}");
    }
}

#[test]
fn a_small_file_cut_at_any_byte_loses_no_whole_message() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.mcap");
    let variants = [
        ("loose", true, mcap::WriteOptions::new().use_chunks(false)),
        ("plain chunks", true, small_chunks(None)),
        ("zstd chunks", false, small_chunks(Some(mcap::Compression::Zstd))),
        ("lz4 chunks", false, small_chunks(Some(mcap::Compression::Lz4))),
    ];
    for (name, exact, options) in variants {
        let file = recording(options, 20);
        let every = whole_messages(&file);
        assert_eq!(every.len(), 20);
        for cut in 1..file.len() {
            std::fs::write(&path, &file[..cut]).unwrap();
            match read(&path) {
                Ok((seen, errors)) => {
                    let expected = whole_messages(&file[..cut]);
                    assert!(
                        holds(&seen, &expected) && holds(&every, &seen),
                        "{name} cut at {cut}: {seen:?}"
                    );
                    assert!(!exact || seen == expected, "{name} cut at {cut}: {seen:?}");
                    assert!(
                        matches!(errors[..], [BagError::Truncated { .. }]),
                        "{name} cut at {cut}: {errors:?}"
                    );
                }
                Err(BagError::Truncated { offset: 0, .. }) => assert!(cut < 8, "{name} cut at {cut}"),
                Err(error) => panic!("{name} cut at {cut}: {error}"),
            }
        }
    }
}

/// Public report: foxglove/mcap PR 1480 (a chunk that was never closed says it has 2^64 - 1 bytes).
#[test]
fn a_chunk_that_was_never_closed_is_a_truncated_file() {
    let Some(path) = support::data("bags/malformed/chunk_not_closed.mcap") else {
        return;
    };
    let (seen, errors) = read(&path).unwrap();
    assert_eq!(seen, []);
    assert!(
        matches!(errors[..], [BagError::Truncated { offset: 39, .. }]),
        "{errors:?}"
    );
    let warnings = Bag::open(&path).unwrap().warnings().to_vec();
    assert!(
        matches!(warnings[..], [BagWarning::Truncated { offset: 39, .. }]),
        "{warnings:?}"
    );
}

#[test]
fn a_file_without_a_summary_and_with_padded_chunks_is_read_whole() {
    let Some(path) = support::data("bags/malformed/zstd_chunk_with_padding.mcap") else {
        return;
    };
    let expected = whole_messages(&std::fs::read(&path).unwrap());
    assert!(!expected.is_empty());
    let (seen, errors) = read(&path).unwrap();
    assert!(seen == expected, "{} of {}", seen.len(), expected.len());
    assert!(errors.is_empty(), "{errors:?}");
}

#[test]
fn messages_out_of_order_come_sorted_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    for options in [mcap::WriteOptions::new().use_chunks(false), small_chunks(None)] {
        let file = recording(options, 200);
        let path = folder.path().join("disorder.mcap");
        std::fs::write(&path, &file).unwrap();
        let bag = Bag::open(&path).unwrap();
        assert!(
            matches!(bag.warnings(), [BagWarning::OutOfOrder { .. }]),
            "{:?}",
            bag.warnings()
        );
        assert_eq!(
            (bag.message_count(), bag.range_ns()),
            (200, Some((1000, 1000 + 1970 + 50)))
        );
        let (seen, errors) = read(&path).unwrap();
        assert!(errors.is_empty());
        assert_eq!(seen, whole_messages(&file));

        // The same with every overlapping chunk given up and decompressed again.
        let limits = BagLimits {
            max_resident_bytes: 0,
            ..BagLimits::default()
        };
        let messages = Bag::open_with(&path, limits).unwrap().all_messages();
        let seen: Vec<Seen> = messages
            .map(Result::unwrap)
            .map(|m| (m.log_time_ns, crc32fast::hash(&m.data)))
            .collect();
        assert_eq!(seen, whole_messages(&file));
    }
}

#[test]
fn a_damaged_chunk_costs_its_own_messages_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.mcap");
    let mut file = recording(small_chunks(None), 60);
    let offsets = record_offsets(&file);
    let chunks: Vec<usize> = offsets
        .iter()
        .copied()
        .filter(|offset| file.get(*offset) == Some(&6))
        .collect();
    assert!(chunks.len() > 3);
    // A byte in the middle of the second chunk's records.
    file[(chunks[1] + chunks[2]) / 2 - 60] ^= 0x40;
    std::fs::write(&path, &file).unwrap();
    let items: Vec<_> = Bag::open(&path).unwrap().all_messages().collect();
    let errors: Vec<_> = items.iter().filter_map(|item| item.as_ref().err()).collect();
    let [BagError::ChunkChecksum { offset, .. }] = errors[..] else {
        panic!("{errors:?}")
    };
    assert_eq!(*offset, chunks[1] as u64);
    let delivered = items.len() - 1;
    assert!((40..60).contains(&delivered), "{delivered}");
}

#[test]
fn chunks_without_the_topics_asked_for_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("two.mcap");
    let mut writer = small_chunks(None).create(Cursor::new(Vec::new())).unwrap();
    for (topic, times) in [("/a", 0..10), ("/b", 100..110), ("/a", 200..210)] {
        let channel = writer.add_channel(0, topic, "cdr", &BTreeMap::new()).unwrap();
        for log_time in times {
            let header = MessageHeader {
                channel_id: channel,
                sequence: 0,
                log_time,
                publish_time: 0,
            };
            writer.write_to_known_channel(&header, &[5; 40]).unwrap();
        }
        writer.flush().unwrap();
    }
    writer.finish().unwrap();
    let mut file = writer.into_inner().into_inner();
    // Damage in a chunk of /b, which nobody who asks for /a should meet.
    let offsets = record_offsets(&file);
    let chunks: Vec<usize> = offsets
        .iter()
        .copied()
        .filter(|offset| file.get(*offset) == Some(&6))
        .collect();
    let damaged = chunks
        .iter()
        .find(|at| file[**at + 9..][..8] == 100u64.to_le_bytes())
        .unwrap();
    file[damaged + 150] ^= 1;
    std::fs::write(&path, &file).unwrap();
    let bag = Bag::open(&path).unwrap();
    let of_a: Vec<_> = bag.messages(&["/a"]).unwrap().collect();
    assert!(of_a.len() == 20 && of_a.iter().all(Result::is_ok), "{of_a:?}");
    let of_b = bag.messages(&["/b"]).unwrap();
    assert_eq!(of_b.filter(Result::is_err).count(), 1);
}

/// xorshift64*: the same damage in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }

    fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(6) {
            let at = self.below(bytes.len());
            match self.below(4) {
                0 => bytes[at] = 0xff,
                1 => bytes[at] = 0,
                2 => bytes.truncate(at.max(1)),
                _ => bytes[at] ^= 1 << self.below(8),
            }
        }
    }
}

/// Reads damaged bytes to the end; more messages than bytes would mean a loop.
fn survives(path: &Path, bytes: &[u8]) -> usize {
    std::fs::write(path, bytes).unwrap();
    match Bag::open(path) {
        Ok(bag) => bag.all_messages().take(bytes.len()).filter(Result::is_ok).count(),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            0
        }
    }
}

#[test]
fn thousands_of_damaged_mcap_files_neither_panic_nor_hang() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.mcap");
    let mut random = Random(1);
    let mut delivered = 0;
    for options in [
        mcap::WriteOptions::new().use_chunks(false),
        small_chunks(None),
        small_chunks(Some(mcap::Compression::Zstd)),
        small_chunks(Some(mcap::Compression::Lz4)),
    ] {
        let file = recording(options, 20);
        for _ in 0..750 {
            let mut bytes = file.clone();
            random.damage(&mut bytes);
            delivered += survives(&path, &bytes);
        }
    }
    assert!(
        delivered > 5_000,
        "the damage leaves something to read: {delivered}"
    );
}

#[test]
fn thousands_of_damaged_sqlite_files_neither_panic_nor_hang() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("whole.db3");
    let connection = rusqlite::Connection::open(&path).unwrap();
    let tables = "CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT NOT NULL, type TEXT NOT NULL,
                      serialization_format TEXT NOT NULL, offered_qos_profiles TEXT NOT NULL);
                  CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER NOT NULL,
                      timestamp INTEGER NOT NULL, data BLOB NOT NULL);
                  CREATE INDEX timestamp_idx ON messages (timestamp ASC);
                  INSERT INTO topics VALUES (1, '/a', 'std_msgs/String', 'cdr', '');";
    connection.execute_batch(tables).unwrap();
    for i in 0..50i64 {
        let row = (1000 + (i * 37) % 50, [i as u8; 300]);
        connection
            .execute(
                "INSERT INTO messages(topic_id, timestamp, data) VALUES (1, ?1, ?2)",
                row,
            )
            .unwrap();
    }
    drop(connection);
    let file = std::fs::read(&path).unwrap();
    assert_eq!(survives(&path, &file), 50);
    let damaged = folder.path().join("damaged.db3");
    let mut random = Random(2);
    let mut delivered = 0;
    for _ in 0..2000 {
        let mut bytes = file.clone();
        random.damage(&mut bytes);
        delivered += survives(&damaged, &bytes);
    }
    assert!(
        delivered > 5_000,
        "the damage leaves something to read: {delivered}"
    );
    let left: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(left.len(), 2, "no file was created beside a bag: {left:?}");
}

#[test]
fn a_message_with_a_time_before_the_epoch_or_without_bytes_is_named_and_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd.db3");
    let connection = rusqlite::Connection::open(&path).unwrap();
    // The tables of the first schema version, without an index.
    let tables = "CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT);
                  CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data BLOB);
                  INSERT INTO topics VALUES (7, '/a', 'std_msgs/String', 'cdr');
                  INSERT INTO messages VALUES (1, 7, -5, x'00'), (2, 7, 10, 'text'), (3, 7, 20, x'0102');";
    connection.execute_batch(tables).unwrap();
    drop(connection);
    let items: Vec<_> = Bag::open(&path).unwrap().all_messages().collect();
    assert!(
        matches!(items[0], Err(BagError::BadRow { id: 1, .. })),
        "{items:?}"
    );
    assert!(
        matches!(items[1], Err(BagError::BadRow { id: 2, .. })),
        "{items:?}"
    );
    assert_eq!(items[2].as_ref().unwrap().data, [1, 2]);
    assert_eq!(items.len(), 3);
}

#[test]
fn a_sqlite_file_that_is_no_bag_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.db3");
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute_batch("CREATE TABLE topics(id INTEGER)")
        .unwrap();
    let error = Bag::open(&path).unwrap_err();
    assert!(matches!(error, BagError::NotABagDatabase { .. }), "{error}");
    assert!(error.to_string().contains("\"name\""), "{error}");
}

#[test]
fn thousands_of_damaged_image_messages_neither_panic_nor_reach_beyond_their_bytes() {
    let header = HeaderMsg::new(1_700_000_000_000_000_000, "camera").unwrap();
    let image = ImageMsg {
        header,
        height: 2,
        width: 2,
        encoding: "rgb8",
        is_bigendian: 0,
        step: 6,
        data: &[7; 12],
    };
    let jpeg = CompressedImageMsg {
        header,
        format: "jpeg",
        data: &[9; 30],
    };
    let mut random = Random(3);
    for whole in [image.encode().unwrap(), jpeg.encode().unwrap()] {
        for _ in 0..5000 {
            let mut bytes = whole.clone();
            random.damage(&mut bytes);
            if let Ok(image) = ImageMsg::decode(&bytes) {
                assert!(image.data.len() + image.encoding.len() < bytes.len());
            }
            if let Ok(image) = CompressedImageMsg::decode(&bytes) {
                assert!(image.data.len() + image.format.len() < bytes.len());
            }
        }
    }
}
