//! What two queues gain, in virtual time: transfers run beside replays, and the slower side sets the period.

use crate::streaming;
use sensorium::trace::TraceOptions;

use streaming::*;

/// Both ends of a frame's work, and mixtures: upload, copy, compute, read.
const CASES: [(&str, Costs); 8] = [
    ("the upload dominates", costs(1_000, 1, 400, 1)),
    ("the replay dominates", costs(200, 1, 1_000, 100)),
    ("the read dominates", costs(1, 1, 400, 1_000)),
    ("the staging copy adds to the replay", costs(200, 500, 800, 100)),
    ("both transfers together dominate", costs(500, 10, 800, 400)),
    ("all sides are alike", costs(500, 20, 1_000, 500)),
    ("everything but the replay is small", costs(1, 1, 1_000, 1)),
    ("everything but the transfers is small", costs(400, 1, 20, 400)),
];

fn period(costs: Costs, options: TraceOptions) -> f64 {
    let seeds = 0..3;
    let mut periods = seeds.map(|seed| {
        let mut device = costs.device(seed);
        let outputs = stream(&mut device, options.clone());
        assert_eq!(device.races(), []);
        assert_eq!(wrong_frames(&outputs), [] as [usize; 0]);
        period_us(&device)
    });
    let first = periods.next().unwrap();
    assert!(
        periods.all(|other| other == first),
        "virtual time depends on the order of execution"
    );
    first
}

fn assert_close(found: f64, expected: f64, what: &str) {
    assert!(
        (found - expected).abs() <= 0.01 * expected,
        "{what}: a period of {found} us instead of {expected} us"
    );
}

/// Queue 1 uploads and reads, in order; queue 0 copies and replays. The slower of the two sets the period: where one of
/// upload, copy with replay, or read is much longer than the rest, that is its time alone.
#[test]
fn the_period_on_two_queues_is_that_of_the_slower_queue_and_on_one_queue_the_sum() {
    println!(
        "{:>8} {:>8} {:>8} {:>8} | {:>10} {:>10} | {:>10} {:>10}  (us)",
        "upload", "copy", "replay", "read", "2 queues", "longest", "1 queue", "sum"
    );
    for (name, costs) in CASES {
        let Costs {
            upload,
            copy,
            compute,
            read,
        } = costs;
        let longest = (upload + read).max(copy + compute) as f64;
        let sum = (upload + compute + read) as f64;
        let two = period(costs, TraceOptions::two_queues());
        let one = period(costs, TraceOptions::default());
        println!(
            "{upload:8} {copy:8} {compute:8} {read:8} | {two:10.2} {longest:10.2} | {one:10.2} {sum:10.2}  {name}"
        );
        assert_close(two, longest, name);
        assert_close(one, sum, name);
    }
    for (name, costs) in &CASES[..3] {
        let alone = costs.upload.max(costs.copy + costs.compute).max(costs.read) as f64;
        assert_close(period(*costs, TraceOptions::two_queues()), alone, name);
    }
}
