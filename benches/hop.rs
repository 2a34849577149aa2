//! What a hop costs: between two tasks, through a stage's worker, and to the device's thread and back.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "benches")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use sensorium::device::{CpuConfig, CpuDevice, Cq, Device};
use sensorium::pipeline::OnFull;
use sensorium::runtime::channel::bounded;

/// One way between two tasks, half of a round trip.
fn channel_hop(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let mut group = c.benchmark_group("channel_hop");
    for (name, bytes) in [("64B", 64), ("8MiB", 8 << 20)] {
        let payload: Arc<[u8]> = vec![1_u8; bytes].into();
        for policy in [OnFull::Block, OnFull::DropOldest] {
            group.bench_function(BenchmarkId::new(name, policy.as_str()), |b| {
                b.iter_custom(|rounds| {
                    let payload = Arc::clone(&payload);
                    runtime.block_on(async move {
                        let (there_tx, mut there_rx) = bounded::<Arc<[u8]>>(4, policy);
                        let (back_tx, mut back_rx) = bounded::<Arc<[u8]>>(4, policy);
                        let echo = tokio::spawn(async move {
                            while let Some(item) = there_rx.recv().await {
                                back_tx.send(item).await;
                            }
                        });
                        let ping = tokio::spawn(async move {
                            let start = Instant::now();
                            for _ in 0..rounds {
                                there_tx.send(Arc::clone(&payload)).await;
                                back_rx.recv().await.unwrap();
                            }
                            start.elapsed() / 2
                        });
                        let elapsed = ping.await.unwrap();
                        echo.await.unwrap();
                        elapsed
                    })
                });
            });
        }
    }
    group.finish();
}

/// To an idle queue's thread and back to a waiting host, for several lengths of the spin before parking. The pause
/// before each round lets the queue go idle, as between the frames of a camera.
fn device_hand_over(c: &mut Criterion) {
    let mut group = c.benchmark_group("device_hand_over");
    group.sample_size(20);
    for spin_us in [0, 20, 100] {
        for (name, pause) in [("busy", Duration::ZERO), ("idle", Duration::from_micros(500))] {
            let config = CpuConfig {
                threads: 1,
                spin: Duration::from_micros(spin_us),
                ..CpuConfig::default()
            };
            let mut device = CpuDevice::open(&config).unwrap();
            group.bench_function(BenchmarkId::new(name, format!("spin_{spin_us}us")), |b| {
                b.iter_custom(|rounds| {
                    let mut total = Duration::ZERO;
                    for _ in 0..rounds {
                        if !pause.is_zero() {
                            std::thread::sleep(pause);
                        }
                        let start = Instant::now();
                        let event = device.record_event(Cq::COMPUTE).unwrap();
                        device.sync_event(event, start + Duration::from_secs(1)).unwrap();
                        total += start.elapsed();
                    }
                    total
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, channel_hop, device_hand_over);
criterion_main!(benches);
