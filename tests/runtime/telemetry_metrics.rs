//! What reaches a `metrics` recorder.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use sensorium::telemetry::{
    DropReason, FrameSizes, FrameTimes, LatencyOptions, LatencyRecorder, Ledger, Observation, Stage, Streams,
};

/// Sum and number of what was recorded under each name with its labels.
#[derive(Clone, Default)]
struct Sums(Arc<Mutex<BTreeMap<String, (f64, u64)>>>);

struct Entry {
    sums: Sums,
    key: String,
}

impl Entry {
    fn add(&self, value: f64) {
        let mut sums = self.sums.0.lock().unwrap();
        let (sum, n) = sums.entry(self.key.clone()).or_default();
        *sum += value;
        *n += 1;
    }
}

impl CounterFn for Entry {
    fn increment(&self, value: u64) {
        self.add(value as f64);
    }

    fn absolute(&self, _: u64) {
        unreachable!("counters only count up");
    }
}

impl HistogramFn for Entry {
    fn record(&self, value: f64) {
        self.add(value);
    }
}

impl Sums {
    fn entry(&self, key: &Key) -> Arc<Entry> {
        let labels: Vec<String> = key
            .labels()
            .map(|l| format!("{}={}", l.key(), l.value()))
            .collect();
        Arc::new(Entry {
            sums: self.clone(),
            key: format!("{}{{{}}}", key.name(), labels.join(",")),
        })
    }
}

impl Recorder for Sums {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.entry(key))
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.entry(key))
    }
}

#[test]
fn frames_drops_restarts_and_stage_times_reach_the_metrics() {
    let sums = Sums::default();
    metrics::with_local_recorder(&sums, || {
        let streams = Streams::default();
        let stream = streams.register("cam");
        let ledger = Ledger::new(streams);
        let mut latency = LatencyRecorder::new(LatencyOptions {
            deadline_ns: None,
            rate: None,
        });
        let dropped = ledger.frame_in(stream);
        ledger.frame_dropped(dropped, "decode", DropReason::DecodeFailed);
        ledger.device_restarted();
        ledger.device_restarted();
        for _ in 0..2 {
            let frame = ledger.frame_in(stream);
            let mut times = FrameTimes::new(0);
            times.begin(Stage::Replay, 250_000_000);
            times.end(Stage::Replay, 750_000_000);
            ledger.frame_out(frame);
            latency.record(&Observation {
                frame,
                stamp_ns: 0,
                times: &times,
                deadline_ns: None,
                published_wall_ns: None,
            });
        }
    });
    let found = sums.0.lock().unwrap().clone();
    let expected = BTreeMap::from(
        [
            ("sensorium_device_restarts_total{}", (2.0, 2)),
            ("sensorium_frames_total{stream=cam,edge=in}", (3.0, 3)),
            ("sensorium_frames_total{stream=cam,edge=out}", (2.0, 2)),
            (
                "sensorium_drops_total{reason=decode_failed,place=decode,stream=cam}",
                (1.0, 1),
            ),
            ("sensorium_stage_seconds{stage=replay,part=wait}", (0.5, 2)),
            ("sensorium_stage_seconds{stage=replay,part=service}", (1.0, 2)),
        ]
        .map(|(key, value)| (key.to_owned(), value)),
    );
    assert_eq!(found, expected);
}

#[test]
fn plans_of_pre_processing_are_counted_by_whether_they_were_at_hand() {
    let sums = Sums::default();
    metrics::with_local_recorder(&sums, || {
        let sizes = FrameSizes::default();
        for planned in [true, false, false] {
            sizes.note(&"front".into(), [640, 400], planned);
        }
    });
    let found = sums.0.lock().unwrap().clone();
    let key = |result| format!("sensorium_preprocess_plans_total{{result={result}}}");
    assert_eq!(
        found,
        BTreeMap::from([(key("hit"), (2.0, 2)), (key("miss"), (1.0, 1))])
    );
}
