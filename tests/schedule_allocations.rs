//! In the steady state the choice of the next frame allocates nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "support/allocations.rs"]
mod allocations;

use std::sync::atomic::Ordering;

use allocations::{ALLOCATIONS, ARMED};
use sensorium::runtime::schedule::{LaneRules, Order, Schedule};
use sensorium::telemetry::{StreamId, Streams};

const STREAMS: usize = 16;

#[test]
fn frames_come_and_go_without_an_allocation() {
    let names = Streams::default();
    let ids: Vec<StreamId> = (0..STREAMS).map(|i| names.register(&i.to_string())).collect();
    for order in [Order::Deadline, Order::Arrival] {
        let alone = LaneRules {
            places: 8,
            largest_batch: 1,
            timeout_ns: 0,
            drop_late: true,
        };
        let fours = LaneRules {
            largest_batch: 4,
            timeout_ns: 3,
            ..alone
        };
        let mut schedule = Schedule::new(order, &[alone, fours]);
        let mut batch: Vec<usize> = Vec::with_capacity(4);
        for (stream, &id) in ids.iter().enumerate() {
            schedule.push(stream % 2, id, None, 0, stream).unwrap();
        }
        while schedule.take_any().is_some() {}
        let (mut came, mut went) = (0, 0);
        let mut turn = |now_ns: u64| {
            let stream = (now_ns * 7 % STREAMS as u64) as usize;
            let deadline_ns = now_ns.is_multiple_of(3).then_some(now_ns + 5);
            let pushed = schedule.push(stream % 2, ids[stream], deadline_ns, now_ns, stream);
            came += usize::from(pushed.is_ok());
            went += usize::from(schedule.take_late(now_ns).is_some());
            schedule.wake_ns(now_ns);
            schedule.next(now_ns, false, |_| 2, &mut batch);
            went += batch.len();
            batch.clear();
        };
        // Every stream is known from the first round on.
        (0..100).for_each(&mut turn);
        ALLOCATIONS.store(0, Ordering::SeqCst);
        ARMED.store(true, Ordering::SeqCst);
        (100..10_000).for_each(&mut turn);
        ARMED.store(false, Ordering::SeqCst);
        assert_eq!(ALLOCATIONS.load(Ordering::SeqCst), 0, "{order:?}");
        assert!(
            came > 5_000 && came - went == schedule.len(),
            "{came} came, {went} went"
        );
    }
}
