//! What the runtime adds where stages do nothing: per hop between tasks, through a stage with a worker, and to the device's
//! thread and back, with 8 MiB messages.
//!
//! ```text
//! cargo bench --bench overhead -- [--seconds 10] [--flood 200000] [--json FILE]
//! ```
//!
//! Open loop at 10, 30 and 100 Hz: messages go out at fixed times, and a hop counts from just before a message is sent until
//! the receiver has it. Flooded: as fast as they go; what counts is how many a second. `handle`: the payload is a shared
//! buffer that nobody touches. `written and read`: the sender writes all of it before, the last receiver reads all of it
//! after; the hop in between is measured, and what all of it together takes. `benches/peers/hops.py` runs this beside other
//! runtimes.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "benches")]

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kameo::actor::Spawn;
use sensorium::device::{CpuConfig, CpuDevice, Cq, Device};
use sensorium::pipeline::OnFull;
use sensorium::runtime::channel::{Receiver, Sender, bounded};
use sensorium::runtime::{FrameMeta, Message, Sample, Shutdown, Stage, StageLogic, Turn};
use sensorium::telemetry::{DropReason, FrameTimes, LatencyHistogram, LatencyStats, Ledger, Streams};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

const BYTES: usize = 8 << 20;
const CAPACITY: usize = 4;
/// Buffers in turn: those in two channels, one in each hand.
const BUFFERS: usize = 2 * CAPACITY + 3;
const RATES_HZ: [u32; 3] = [10, 30, 100];

/// What travels between plain tasks.
struct Parcel {
    payload: Arc<Vec<u8>>,
    sent: Instant,
    /// When the sender began to write the payload.
    begun: Instant,
}

struct Settings {
    seconds: f64,
    flood: usize,
    json: Option<String>,
}

fn settings() -> Settings {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let place = arguments.iter().position(|argument| argument == name)?;
        arguments.get(place + 1).cloned()
    };
    Settings {
        seconds: value("--seconds").map_or(10.0, |text| text.parse().expect("--seconds S")),
        flood: value("--flood").map_or(200_000, |text| text.parse().expect("--flood N")),
        json: value("--json"),
    }
}

/// Sums all words, so that every byte is read.
fn read(payload: &[u8]) -> u64 {
    let (words, _) = payload.as_chunks::<8>();
    words
        .iter()
        .fold(0, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)))
}

/// Source, relay and sink as tasks on the runtime's channels; per hop, and from writing to read.
fn tasks(runtime: &Runtime, rate_hz: Option<u32>, count: usize, touched: bool) -> Measured {
    runtime.block_on(async move {
        let (first, mut at_relay) = bounded::<Parcel>(CAPACITY, OnFull::Block);
        let (second, mut at_sink) = bounded::<Parcel>(CAPACITY, OnFull::Block);
        let (back, mut free) = bounded::<Arc<Vec<u8>>>(BUFFERS, OnFull::Block);
        for i in 0..BUFFERS {
            assert!(back.try_send(Arc::new(vec![i as u8; BYTES])).is_ok());
        }
        let source: JoinHandle<()> = tokio::spawn(async move {
            let mut due = tokio::time::Instant::now();
            for i in 0..count {
                if let Some(rate_hz) = rate_hz {
                    due += Duration::from_secs(1) / rate_hz;
                    tokio::time::sleep_until(due).await;
                }
                let mut payload = free.recv().await.unwrap();
                let begun = Instant::now();
                if touched {
                    Arc::get_mut(&mut payload)
                        .expect("nobody else has it")
                        .fill(i as u8);
                }
                let parcel = Parcel {
                    payload,
                    sent: Instant::now(),
                    begun,
                };
                first.send(parcel).await;
            }
        });
        let relay: JoinHandle<LatencyHistogram> = tokio::spawn(async move {
            let mut hops = LatencyHistogram::new();
            while let Some(mut parcel) = at_relay.recv().await {
                hops.record(nanos(parcel.sent));
                parcel.sent = Instant::now();
                second.send(parcel).await;
            }
            hops
        });
        let sink = tokio::spawn(async move {
            let (mut hops, mut whole) = (LatencyHistogram::new(), LatencyHistogram::new());
            let since = Instant::now();
            let mut sum = 0_u64;
            while let Some(parcel) = at_sink.recv().await {
                hops.record(nanos(parcel.sent));
                if touched {
                    sum = sum.wrapping_add(read(&parcel.payload));
                }
                whole.record(nanos(parcel.begun));
                back.send(parcel.payload).await;
            }
            std::hint::black_box(sum);
            (hops, whole, since.elapsed())
        });
        source.await.unwrap();
        let mut hops = relay.await.unwrap();
        let (second_hops, whole, elapsed) = sink.await.unwrap();
        hops.merge(&second_hops);
        Measured {
            hop: hops.stats().unwrap(),
            whole: whole.stats().unwrap(),
            per_second: count as f64 / elapsed.as_secs_f64(),
        }
    })
}

/// Source and sink as threads of the system on a channel of the standard library: what waking costs on this machine.
fn threads(rate_hz: u32, count: usize) -> LatencyStats {
    let (sender, receiver) = std::sync::mpsc::sync_channel::<Instant>(CAPACITY);
    let sink = std::thread::spawn(move || {
        let mut hops = LatencyHistogram::new();
        while let Ok(sent) = receiver.recv() {
            hops.record(nanos(sent));
        }
        hops.stats().unwrap()
    });
    let mut due = Instant::now();
    for _ in 0..count {
        due += Duration::from_secs(1) / rate_hz;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        sender.send(Instant::now()).unwrap();
    }
    drop(sender);
    sink.join().unwrap()
}

/// A stage whose work is nothing.
struct Nothing {
    output: Sender<(Instant, Sample<Instant>)>,
}

impl StageLogic for Nothing {
    type In = Instant;
    type Out = Instant;
    type Permit = ();

    fn name(&self) -> &str {
        "nothing"
    }

    async fn admit(&self) -> Option<()> {
        Some(())
    }

    fn work(&self, sample: Sample<Instant>, (): ()) -> Result<Sample<Instant>, DropReason> {
        Ok(sample)
    }

    async fn emit(&self, sample: Sample<Instant>) {
        self.output.send((Instant::now(), sample)).await;
    }
}

/// Through a stage with one worker thread: channel, actor, hand-over to the worker and back.
fn stage(runtime: &Runtime, rate_hz: Option<u32>, count: usize) -> Measured {
    runtime.block_on(async move {
        let ledger = Arc::new(Ledger::new(Streams::default()));
        let stream = ledger.streams().register("/points");
        let (input, to_stage) = bounded::<Sample<Instant>>(CAPACITY, OnFull::Block);
        let (output, mut from_stage): (_, Receiver<(Instant, Sample<Instant>)>) =
            bounded(CAPACITY, OnFull::Block);
        let stage = Stage::new(
            Nothing { output },
            to_stage,
            1,
            Arc::clone(&ledger),
            Shutdown::default(),
        );
        let actor = Stage::spawn(stage);
        let message = Arc::new(Message {
            topic: "/points".into(),
            type_name: "sensor_msgs/msg/PointCloud2".into(),
            log_time_ns: 0,
            data: vec![1; BYTES],
            beside: Vec::new(),
            parts: Vec::new(),
        });
        let accounts = Arc::clone(&ledger);
        let source = tokio::spawn(async move {
            let mut due = tokio::time::Instant::now();
            for _ in 0..count {
                if let Some(rate_hz) = rate_hz {
                    due += Duration::from_secs(1) / rate_hz;
                    tokio::time::sleep_until(due).await;
                }
                let meta = FrameMeta {
                    id: accounts.frame_in(stream),
                    stream: "/points".into(),
                    stamp_ns: 0,
                    frame_id: "lidar".into(),
                    times: FrameTimes::new(0),
                    deadline_ns: None,
                    fresh: false,
                    freshness: None,
                    within_capacity: None,
                    device_restarts: 0,
                    turn: Turn::default(),
                    world_from_sensor: None,
                    transforms: None,
                };
                let sample = Sample {
                    meta,
                    message: Arc::clone(&message),
                    payload: Instant::now(),
                };
                input.send(sample).await;
            }
        });
        let mut hops = LatencyHistogram::new();
        let since = Instant::now();
        while let Some((_, sample)) = from_stage.recv().await {
            hops.record(nanos(sample.payload));
            ledger.frame_out(sample.meta.id);
        }
        let elapsed = since.elapsed();
        source.await.unwrap();
        actor.wait_for_shutdown().await;
        Measured {
            hop: hops.stats().unwrap(),
            whole: hops.stats().unwrap(),
            per_second: count as f64 / elapsed.as_secs_f64(),
        }
    })
}

/// An empty command on an idle queue, a millisecond after the last one, until the host knows that it is done. A host that
/// waits does so small a command itself; where it only polls, the queue's thread is woken and does it.
fn device(spin_us: u64, waits: bool, count: usize) -> LatencyStats {
    let config = CpuConfig {
        threads: 1,
        spin: Duration::from_micros(spin_us),
        ..CpuConfig::default()
    };
    let mut device = CpuDevice::open(&config).unwrap();
    let mut times = LatencyHistogram::new();
    for _ in 0..count {
        std::thread::sleep(Duration::from_millis(1));
        let since = Instant::now();
        let event = device.record_event(Cq::COMPUTE).unwrap();
        if waits {
            device.sync_event(event, since + Duration::from_secs(1)).unwrap();
        } else {
            while !device.poll_event(event).unwrap() {
                std::hint::spin_loop();
            }
        }
        times.record(nanos(since));
    }
    times.stats().unwrap()
}

fn nanos(since: Instant) -> u64 {
    since.elapsed().as_nanos() as u64
}

struct Measured {
    hop: LatencyStats,
    whole: LatencyStats,
    per_second: f64,
}

fn main() {
    let settings = settings();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let (mut table, mut rows): (String, Vec<Value>) = (String::new(), Vec::new());
    let mut row = |what: &str,
                   rate: &str,
                   stats: &LatencyStats,
                   whole: Option<&LatencyStats>,
                   per_second: Option<f64>| {
        let us = |value: f64| format!("{value:.1}");
        _ = writeln!(
            table,
            "{what:<34}{rate:>8}{:>9}{:>9}{:>9}{:>9}{:>10}{:>12}{:>12}",
            stats.n,
            us(stats.p50_us),
            us(stats.p99_us),
            us(stats.p999_us),
            us(stats.max_us),
            whole.map_or_else(String::new, |whole| us(whole.p50_us)),
            per_second.map_or_else(String::new, |rate| format!("{rate:.0}")),
        );
        rows.push(json!({
            "what": what, "rate": rate, "hop": stats, "whole": whole, "per_second": per_second,
        }));
    };
    for rate_hz in RATES_HZ {
        let count = (settings.seconds * f64::from(rate_hz)).ceil().max(1.0) as usize;
        let rate = format!("{rate_hz} Hz");
        row(
            "threads of the system",
            &rate,
            &threads(rate_hz, count),
            None,
            None,
        );
        for (touched, what) in [(false, "task hop, handle"), (true, "task hop, written and read")] {
            let measured = tasks(&runtime, Some(rate_hz), count, touched);
            row(what, &rate, &measured.hop, Some(&measured.whole), None);
        }
        let measured = stage(&runtime, Some(rate_hz), count);
        row("stage with a worker", &rate, &measured.hop, None, None);
    }
    for (touched, what) in [(false, "task hop, handle"), (true, "task hop, written and read")] {
        let count = if touched {
            settings.flood / 100
        } else {
            settings.flood
        }
        .max(1);
        let measured = tasks(&runtime, None, count, touched);
        row(
            what,
            "flooded",
            &measured.hop,
            Some(&measured.whole),
            Some(measured.per_second),
        );
    }
    let measured = stage(&runtime, None, settings.flood.max(1));
    row(
        "stage with a worker",
        "flooded",
        &measured.hop,
        None,
        Some(measured.per_second),
    );
    let count = (settings.seconds * 300.0).ceil().max(1.0) as usize;
    for spin_us in [0, 20, 100] {
        for (waits, who) in [(true, "host waits"), (false, "its thread")] {
            let what = format!("device, {who}, spin {spin_us} us");
            row(&what, "idle", &device(spin_us, waits, count), None, None);
        }
    }
    println!(
        "{:<34}{:>8}{:>9}{:>9}{:>9}{:>9}{:>10}{:>12}{:>12}\n{table}",
        "microseconds", "rate", "n", "p50", "p99", "p99.9", "max", "with bytes", "a second"
    );
    if let Some(path) = settings.json {
        let text = serde_json::to_string_pretty(&json!({ "payload_bytes": BYTES, "rows": rows })).unwrap();
        std::fs::write(&path, text).expect("the JSON file can be written");
    }
}
