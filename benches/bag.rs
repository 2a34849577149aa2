//! Reading an uncompressed MCAP file message by message, here and with the reader of the `mcap` crate.
//!
//! Beside criterion's numbers it prints, for each file, gigabytes a second of both and their ratio, taken in turns in
//! one run, so that a machine that gets slower meanwhile makes both slower.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark stops at the first surprise"
)]

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sensorium::io::bag::{Bag, BagTopic, BagWriter, BagWriterSettings};
use sensorium::io::messages::IMAGE_TYPE;

/// Name, messages, bytes of each: 256 MiB of images, and 64 MiB of what an IMU sends.
const FILES: [(&str, u64, usize); 2] = [("large", 256, 1 << 20), ("small", 200_000, 336)];

/// Turns of each reader for the ratio.
const TURNS: usize = 7;

fn record(folder: &Path, (name, messages, bytes): (&str, u64, usize)) -> PathBuf {
    let path = folder.join(format!("{name}.mcap"));
    let mut writer = BagWriter::create(&path, BagWriterSettings::default()).unwrap();
    let topic = writer.add_topic(&BagTopic::of_type("/a", IMAGE_TYPE)).unwrap();
    let data: Vec<u8> = (0..bytes).map(|i| (i * 31 % 251) as u8).collect();
    for i in 0..messages {
        writer.write(topic, i * 1000, i * 1000, &data).unwrap();
    }
    writer.finish().unwrap();
    path
}

/// Bytes of all messages; the file is opened each time.
fn ours(path: &Path) -> usize {
    let bag = Bag::open(path).unwrap();
    let messages = bag.all_messages().map(Result::unwrap);
    messages.map(|message| black_box(message.data).len()).sum()
}

/// The same with `mcap`, whose reader wants the file in memory: reading it is part of the work.
fn theirs(path: &Path) -> usize {
    in_memory(&std::fs::read(path).unwrap())
}

/// `mcap` without the work of reading the file.
fn in_memory(file: &[u8]) -> usize {
    let messages = mcap::MessageStream::new(file).unwrap().map(Result::unwrap);
    messages.map(|message| black_box(message.data).len()).sum()
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64()
}

fn compare(name: &str, path: &Path, bytes: usize) {
    let file = std::fs::read(path).unwrap();
    let readers: [&dyn Fn() -> usize; 3] = [&|| ours(path), &|| theirs(path), &|| in_memory(&file)];
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..TURNS {
        for (read, times) in readers.iter().zip(&mut times) {
            let start = Instant::now();
            assert_eq!(read(), bytes);
            times.push(start.elapsed());
        }
    }
    let [here, there, in_memory] = times.map(median);
    let rate = |seconds: f64| bytes as f64 / seconds / 1e9;
    println!(
        "{name}: {:.2} GB/s here, {:.2} GB/s with mcap ({:.2} of its time), {:.2} GB/s with mcap and the file in memory \
         ({:.2} of its time)",
        rate(here),
        rate(there),
        here / there,
        rate(in_memory),
        here / in_memory
    );
}

fn read(c: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    for file in FILES {
        let (name, messages, bytes) = file;
        let path = record(folder.path(), file);
        let total = messages as usize * bytes;
        compare(name, &path, total);
        let mut group = c.benchmark_group(format!("mcap/{name}"));
        group.throughput(Throughput::Bytes(total as u64)).sample_size(10);
        group.bench_function("here", |b| b.iter(|| ours(&path)));
        group.bench_function("mcap crate", |b| b.iter(|| theirs(&path)));
        group.finish();
    }
}

criterion_group!(benches, read);
criterion_main!(benches);
