//! Stages: frames keep their order on several workers, and a panic in one costs that frame and nothing else.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kameo::actor::Spawn;
use sensorium::device::HostSlot;
use sensorium::pipeline::OnFull;
use sensorium::runtime::channel::bounded;
use sensorium::runtime::{
    FrameMeta, Message, PooledSlot, Sample, Shutdown, SlotPool, Stage, StageLogic, Turn,
};
use sensorium::telemetry::{DropReason, FrameTimes, Ledger, StreamAccount, Streams};

/// Doubles a number; panics, refuses or waits on some.
struct Doubler {
    slots: SlotPool,
    ledger: Arc<Ledger>,
    came_out: Arc<Mutex<Vec<u64>>>,
    under_way: Arc<AtomicUsize>,
    most_under_way: Arc<AtomicUsize>,
}

impl StageLogic for Doubler {
    type In = u64;
    type Out = u64;
    type Permit = PooledSlot;

    fn name(&self) -> &str {
        "doubler"
    }

    async fn admit(&self) -> Option<PooledSlot> {
        self.slots.take().await
    }

    fn work(&self, sample: Sample<u64>, _slot: PooledSlot) -> Result<Sample<u64>, DropReason> {
        let now = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_under_way.fetch_max(now, Ordering::SeqCst);
        // The sooner a frame came, the longer it takes: order is not kept by chance.
        std::thread::sleep(Duration::from_millis(7 - sample.payload % 7));
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        match sample.payload % 10 {
            3 => panic!("frame {} is a bad one", sample.payload),
            5 => Err(DropReason::InvalidImage),
            _ => {
                let (sample, number) = sample.replace(());
                Ok(sample.replace(2 * number).0)
            }
        }
    }

    async fn emit(&self, sample: Sample<u64>) {
        self.ledger.frame_out(sample.meta.id);
        self.came_out.lock().unwrap().push(sample.payload);
    }
}

struct Ran {
    came_out: Vec<u64>,
    account: StreamAccount,
    most_under_way: usize,
}

/// Sends 0, 1, 2, ... through a stage; aborts the run before the given number.
fn run(workers: usize, slots: usize, count: u64, abort_before: Option<u64>) -> Ran {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let ledger = Arc::new(Ledger::new(Streams::default()));
        let stream = ledger.streams().register("s");
        let came_out = Arc::new(Mutex::new(Vec::new()));
        let most_under_way = Arc::new(AtomicUsize::new(0));
        let logic = Doubler {
            slots: SlotPool::new((0..slots).map(|_| HostSlot::new(64)).collect()),
            ledger: Arc::clone(&ledger),
            came_out: Arc::clone(&came_out),
            under_way: Arc::new(AtomicUsize::new(0)),
            most_under_way: Arc::clone(&most_under_way),
        };
        let (sender, receiver) = bounded(4, OnFull::Block);
        let shutdown = Shutdown::default();
        let stage = Stage::new(logic, receiver, workers, Arc::clone(&ledger), shutdown.clone());
        let actor = Stage::spawn(stage);
        for number in 0..count {
            if abort_before == Some(number) {
                shutdown.abort();
            }
            let sample = Sample {
                meta: FrameMeta {
                    id: ledger.frame_in(stream),
                    stream: "s".into(),
                    stamp_ns: 0,
                    frame_id: "".into(),
                    times: FrameTimes::new(0),
                    deadline_ns: None,
                    fresh: false,
                    freshness: None,
                    within_capacity: None,
                    device_restarts: 0,
                    turn: Turn::default(),
                    world_from_sensor: None,
                    transforms: None,
                },
                message: Arc::new(Message {
                    topic: "s".into(),
                    type_name: "".into(),
                    log_time_ns: 0,
                    data: Vec::new(),
                    beside: Vec::new(),
                    parts: Vec::new(),
                }),
                payload: number,
            };
            assert!(sender.send(sample).await.lost().is_none());
        }
        drop(sender);
        let ended = tokio::time::timeout(Duration::from_secs(30), actor.wait_for_shutdown()).await;
        assert!(ended.is_ok(), "the stage never ended");
        let balance = ledger.check_balance().unwrap();
        let came_out = came_out.lock().unwrap().clone();
        Ran {
            came_out,
            account: balance.streams[0].clone(),
            most_under_way: most_under_way.load(Ordering::SeqCst),
        }
    })
}

#[test]
fn a_panic_costs_the_frame_it_happened_in_and_no_slot() {
    for workers in [1, 3] {
        // With two slots, a slot that a panic kept would stop the stage at the second one.
        let ran = run(workers, 2, 60, None);
        let expected: Vec<u64> = (0..60)
            .filter(|n| n % 10 != 3 && n % 10 != 5)
            .map(|n| 2 * n)
            .collect();
        assert_eq!(ran.came_out, expected, "{workers} workers, in order");
        let mut drops: Vec<_> = ran.account.drops.iter().map(|d| (d.reason, d.count)).collect();
        drops.sort_by_key(|(reason, _)| reason.name());
        assert_eq!(drops, [(DropReason::InvalidImage, 6), (DropReason::Panicked, 6)]);
        assert!(ran.account.drops.iter().all(|drop| drop.place == "doubler"));
    }
}

#[test]
fn as_many_frames_are_worked_on_as_there_are_workers_and_no_more() {
    assert_eq!(run(1, 8, 30, None).most_under_way, 1);
    let most = run(3, 8, 30, None).most_under_way;
    assert!((2..=3).contains(&most), "{most}");
}

#[test]
fn an_abort_drops_what_waits_and_counts_it() {
    let ran = run(2, 4, 50, Some(30));
    let out = ran.came_out.len() as u64;
    let of = |reason| {
        let drops = ran.account.drops.iter().filter(|d| d.reason == reason);
        drops.map(|d| d.count).sum::<u64>()
    };
    assert!(of(DropReason::ShuttingDown) >= 20, "{:?}", ran.account);
    assert_eq!(
        out + of(DropReason::ShuttingDown) + of(DropReason::Panicked) + of(DropReason::InvalidImage),
        50
    );
    assert!(ran.came_out.is_sorted());
}

#[test]
fn an_abort_reaches_a_frame_that_waits_for_a_slot() {
    // Without a slot no frame is ever admitted.
    let ran = run(1, 0, 3, Some(2));
    assert!(ran.came_out.is_empty());
    let drops: Vec<_> = ran.account.drops.iter().map(|d| (d.reason, d.count)).collect();
    assert_eq!(drops, [(DropReason::ShuttingDown, 3)]);
}
