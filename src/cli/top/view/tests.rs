#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::telemetry::Stage;
use crate::telemetry::live::{
    BankReading, DeviceReading, ProcessReading, Quantiles, SinkReading, StreamDrops,
};

fn quantiles(p50_ms: f64) -> Quantiles {
    Quantiles {
        p50_ms,
        p99_ms: p50_ms * 3.0,
        max_ms: p50_ms * 10.0,
    }
}

/// A run of so many streams, with numbers that tell the places apart.
fn status(streams: usize) -> LiveStatus {
    let stream = |i: usize| StreamReading {
        name: format!("/sensing/camera/camera{i}/image"),
        frames_in: 1_000 + i as u64,
        frames_out: 900 + i as u64,
        under_way: 3,
        rate_hz: (i > 0).then_some(9.5 + i as f64),
        latency: (i > 0).then(|| quantiles(12.0 * ((i * 7) % 5 + 1) as f64)),
        deadline_misses: i as u64 * 4,
        drops: match i % 3 {
            0 => Vec::new(),
            _ => [("decode_failed", 2), ("channel_full_oldest", 95 + i as u64)]
                .map(|(reason, count)| StreamDrops {
                    reason: reason.into(),
                    place: "detector".into(),
                    count,
                })
                .into(),
        },
    };
    let queue = |from: &str, to: &str, len: usize, capacity: usize| QueueReading {
        from: from.into(),
        to: to.into(),
        capacity,
        len,
        oldest_age_s: len as f64 * 0.011,
        taken_age_s: 0.0042,
        sent: 1_000,
        dropped: 97,
    };
    LiveStatus {
        pipeline: "five_cameras".into(),
        state: LiveState::Degraded,
        reasons: vec!["sink recorder: No space left on device".into()],
        uptime_s: 3_723.4,
        streams: (0..streams).map(stream).collect(),
        stages: Stage::ALL
            .map(|stage| StageReading {
                stage,
                wait: quantiles(0.05 * (stage.index() + 1) as f64),
                service: quantiles(1.5 * (stage.index() + 1) as f64),
            })
            .into(),
        queues: vec![
            queue("camera", "detector/prepare", 4, 4),
            queue("detector/prepare", "device", 1, 4),
            queue("device", "detector/finish", 0, 4),
            queue("detector/finish", "jsonl", 2, 4),
        ],
        sinks: vec![
            SinkReading {
                name: "recorder".into(),
                results_in: 900,
                written: 880,
                dropped: 20,
            },
            SinkReading {
                name: "jsonl".into(),
                results_in: 900,
                written: 900,
                dropped: 0,
            },
        ],
        device: "cpu: 2 threads, AVX-512, 2 queues".into(),
        device_use: DeviceReading {
            replay_busy_s: 1_800.0,
            transfer_busy_s: 70.0,
            replay_utilisation: 0.62,
            transfer_utilisation: 0.02,
            frames: 900,
        },
        device_restarts: 1,
        actor_restarts: BTreeMap::from([("detector/prepare".to_owned(), 2)]),
        banks: vec![BankReading {
            model: "temporal".into(),
            used: 5,
            capacity: 8,
        }],
        process: ProcessReading {
            resident_bytes: 400 << 20,
            cpu_s: 5_000.0,
            threads: 14,
            open_files: 30,
        },
    }
}

fn screen(view: View<'_>, columns: u16, rows: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal
        .draw(|frame| frame.render_widget(view, frame.area()))
        .unwrap();
    terminal.backend().to_string()
}

#[test]
fn a_small_terminal_shows_every_part() {
    insta::assert_snapshot!(screen(View::of(&status(5)), 80, 24));
}

#[test]
fn a_large_terminal_shows_everything() {
    let status = status(9);
    let view = View::of(&status).sorted(Order::Latency);
    insta::assert_snapshot!(screen(view, 120, 40));
}

#[test]
fn what_is_wrong_and_that_it_is_paused_are_on_the_screen() {
    let (now, mut before) = (status(1), status(1));
    before.uptime_s -= 2.0;
    before.process.cpu_s -= 3.0;
    let view = View::of(&now)
        .since(Some(&before))
        .sorted(Order::Drops)
        .paused(true)
        .troubled(Some(
            "no run answers at http://127.0.0.1:9100: Connection refused",
        ));
    let text = screen(view, 80, 24);
    for part in [
        "cpu 150 %",
        "PAUSED",
        "sort: drops",
        "no run answers",
        "No space left on device",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn streams_are_sorted_by_latency_and_by_drops() {
    let status = status(6);
    let names = |order| -> Vec<String> {
        let view = View::of(&status).sorted(order);
        let streams = view.ordered_streams();
        streams
            .iter()
            .map(|s| s.name.replace("/sensing/camera/camera", "").replace("/image", ""))
            .collect()
    };
    assert_eq!(names(Order::Name), ["0", "1", "2", "3", "4", "5"]);
    // 12 ms times 3, 5, 2, 4, 1 for the streams 1 to 5; stream 0 has none.
    assert_eq!(names(Order::Latency), ["2", "4", "1", "3", "5", "0"]);
    assert_eq!(names(Order::Drops), ["5", "4", "2", "1", "0", "3"]);
    assert_eq!(Order::Name.next().next().next(), Order::Name);
}

#[test]
fn no_size_of_a_terminal_makes_it_panic() {
    for streams in [0, 1, 40] {
        let status = status(streams);
        for columns in [0, 1, 20, 80] {
            for rows in [0, 1, 2, 5, 9, 24, 60] {
                let area = Rect::new(0, 0, columns, rows);
                View::of(&status).render(area, &mut Buffer::empty(area));
            }
        }
    }
}

#[test]
fn the_end_of_a_long_name_is_kept() {
    assert_eq!(shortened("/front", 6), "/front");
    assert_eq!(shortened("/camera/front", 6), "…front");
    assert_eq!(shortened("/écran/à gauche", 8), "… gauche");
    assert_eq!(
        (shortened("abc", 1), shortened("abc", 0)),
        ("…".to_owned(), "…".to_owned())
    );
}

#[test]
fn bars_and_times_read_well() {
    assert_eq!((bar(0.0), bar(1.0)), ("░".repeat(BAR), "█".repeat(BAR)));
    assert_eq!(bar(0.001), "█".to_owned() + &"░".repeat(BAR - 1));
    assert_eq!(bar(f64::NAN).chars().count(), BAR);
    let times = [0.004, 9.99, 12.34, 250.0, 9_999.0, 12_345.0].map(ms);
    assert_eq!(times, ["0.00", "9.99", "12.3", "250", "9999", "12 s"]);
    assert_eq!(clock(3_723.9), "1:02:03");
}
