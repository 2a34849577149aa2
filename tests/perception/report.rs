//! The run report: written from a simulated run, read back, and looked at for what it must and must not hold.

use std::path::Path;
use std::sync::Arc;

use jpeg_encoder::{ColorType, Encoder};
use sensorium::outputs::{Detection2D, Detections2D};
use sensorium::telemetry::report::{self, ReportError, ReportFrame, ReportPictures};
use sensorium::telemetry::{
    ClockKind, DropReason, FrameTimes, LatencyOptions, LatencyRecorder, Ledger, Observation, RunInfo,
    RunSummary, Stage, Streams, Timeline,
};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// What a simulated run leaves behind.
struct Run {
    ledger: Ledger,
    latency: LatencyRecorder,
    timeline: Timeline,
}

impl Run {
    fn new(streams: &Streams, deadline_ns: u64) -> Self {
        Self {
            ledger: Ledger::new(streams.clone()),
            latency: LatencyRecorder::new(LatencyOptions {
                deadline_ns: Some(deadline_ns),
                rate: Some(1.0),
            }),
            timeline: Timeline::new(streams.clone(), Timeline::DEFAULT_FRAMES),
        }
    }

    fn summary(&self) -> RunSummary {
        RunSummary::new(info(), &self.ledger, &self.latency)
    }
}

fn info() -> RunInfo {
    RunInfo {
        pipeline: "yolox".to_owned(),
        model: "yolox_nano_416.onnx".to_owned(),
        device: "cpu: AVX2, 2 threads".to_owned(),
        device_details: serde_json::json!({ "used": "cpu", "queues": 2 }),
        clock: ClockKind::Bag,
        rate: Some(1.0),
        started_at: Some("2026-03-01T12:00:00Z".to_owned()),
        wall_s: Some(12.5),
    }
}

/// Two cameras on one device with two queues. Each resource serves one frame at a time, in order; uploads go
/// through their own queue, so the next one runs beside a replay. Service times vary by a fixed pattern, and
/// every 97th replay takes three times as long. A frame that would wait for the device longer than three quarters of a period is dropped.
fn simulate(streams: &Streams, names: [&str; 2], frames: u64, period_ns: u64) -> Run {
    let mut run = Run::new(streams, 40 * MS);
    let ids = names.map(|name| streams.register(name));
    let mut free_ns = [0_u64; Stage::COUNT];
    let mut prepare_free_ns = [0_u64; 2];
    for i in 0..frames {
        for (camera, stream) in ids.into_iter().enumerate() {
            let frame = run.ledger.frame_in(stream);
            let released_ns = i * period_ns + camera as u64 * 700 * US;
            if i % 50 == 49 {
                run.ledger
                    .frame_dropped(frame, "decode", DropReason::DecodeFailed);
                continue;
            }
            if free_ns[Stage::Replay.index()] > released_ns + period_ns * 3 / 4 {
                run.ledger
                    .frame_dropped(frame, "prepare \u{2192} device", DropReason::ChannelFullOldest);
                continue;
            }
            let wobble = |scale: u64| (i * 7919 + camera as u64 * 104_729) % scale;
            let mut times = FrameTimes::new(released_ns);
            let mut ready_ns = released_ns;
            for stage in Stage::ALL {
                let service_ns = match stage {
                    Stage::Ingest => 150 * US + wobble(60 * US),
                    Stage::Prepare => 1_900 * US + wobble(500 * US),
                    Stage::Upload => 1_200 * US + wobble(200 * US),
                    Stage::Replay if i % 97 == 20 => 21 * MS,
                    Stage::Replay => 7 * MS + wobble(900 * US),
                    Stage::Readback => 350 * US,
                    Stage::Finish => 480 * US + wobble(150 * US),
                    Stage::Publish => 90 * US + wobble(40 * US),
                };
                let resource = match stage {
                    Stage::Prepare => &mut prepare_free_ns[camera],
                    _ => &mut free_ns[stage.index()],
                };
                let started_ns = ready_ns.max(*resource);
                times.begin(stage, started_ns);
                ready_ns = started_ns + service_ns;
                times.end(stage, ready_ns);
                *resource = ready_ns;
            }
            run.ledger.frame_out(frame);
            run.timeline.offer(frame, &times);
            run.latency.record(&Observation {
                frame,
                stamp_ns: released_ns as i64,
                times: &times,
                deadline_ns: run.latency.options().deadline_ns,
                published_wall_ns: None,
            });
        }
    }
    run
}

/// A picture that is smooth in one direction, with a bright and a dark half.
fn picture(width_px: u16, height_px: u16) -> Vec<u8> {
    let rgb: Vec<u8> = (0..height_px)
        .flat_map(|y| {
            (0..width_px).flat_map(move |x| {
                let shade = (u32::from(x) * 255 / u32::from(width_px)) as u8;
                let sky = if y < height_px / 2 { 90 } else { 0 };
                [shade, shade / 2 + sky, 120_u8.saturating_add(sky)]
            })
        })
        .collect();
    let mut jpeg = Vec::new();
    Encoder::new(&mut jpeg, 85)
        .encode(&rgb, width_px, height_px, ColorType::Rgb)
        .unwrap();
    jpeg
}

fn report_frame(stream: &str, seq: u64, boxes: &[(u32, f32, [f32; 4])]) -> ReportFrame {
    let labels: Arc<[String]> = ["person", "bicycle", "car"].map(str::to_owned).into();
    let detections = boxes
        .iter()
        .map(|&(label_id, score, box_xyxy)| Detection2D {
            label_id,
            score,
            box_xyxy,
        })
        .collect();
    ReportFrame {
        stream: stream.to_owned(),
        seq,
        stamp_ns: 1_700_000_000_000_000_000 + seq as i64 * 100_000_000,
        width_px: 640,
        height_px: 400,
        jpeg: picture(640, 400),
        detections: Detections2D::new(detections, labels, "yolox".into(), "camera".into(), [640, 400]),
        truth: Vec::new(),
    }
}

fn pictures(frames: &[ReportFrame]) -> ReportPictures {
    ReportPictures {
        frames: frames.to_vec(),
        ..ReportPictures::default()
    }
}

fn write_report(dir: &Path, run: &Run, frames: &[ReportFrame]) -> (String, String, RunSummary) {
    report::prepare_dir(dir).unwrap();
    let summary = run.summary();
    report::write(dir, &summary, &pictures(frames), &run.timeline).unwrap();
    let text = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    let parsed: RunSummary = serde_json::from_str(&text(report::JSON_FILE)).unwrap();
    assert!(parsed == summary, "report.json reads back as something else");
    (text(report::HTML_FILE), text(report::TIMELINE_FILE), parsed)
}

/// A folder that goes away, or the one named by `SENSORIUM_TEST_REPORT` for looking at the result.
fn out_dir(name: &str) -> (Option<tempfile::TempDir>, std::path::PathBuf) {
    match std::env::var_os("SENSORIUM_TEST_REPORT") {
        Some(dir) => (None, Path::new(&dir).join(name)),
        None => {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join(name);
            (Some(dir), path)
        }
    }
}

#[test]
fn a_report_reads_back_and_holds_everything_it_shows() {
    let streams = Streams::default();
    let names = ["/camera/front/image_raw", "/camera/rear/image_raw"];
    let run = simulate(&streams, names, 700, 20 * MS);
    let frames = [
        report_frame(
            names[0],
            0,
            &[
                (0, 0.91, [40.0, 90.0, 130.0, 330.0]),
                (2, 0.78, [300.0, 180.0, 560.0, 340.0]),
                (1, 0.55, [500.0, 2.0, 639.0, 120.0]),
            ],
        ),
        report_frame(names[1], 3, &[(2, 0.66, [0.0, 0.0, 200.0, 399.0])]),
        report_frame(names[1], 17, &[]),
    ];
    let (_guard, dir) = out_dir("two_cameras");
    let (html, timeline, summary) = write_report(&dir, &run, &frames);
    assert!(summary.incomplete.is_empty());
    assert_eq!(summary.frames.frames_in, 1400);
    assert_eq!(
        summary.frames.frames_in,
        summary.frames.frames_out + summary.frames.dropped
    );
    assert_eq!(html.matches("data:image/jpeg;base64,/9j/").count(), 3);
    assert!(html.contains("person 0.91") && html.contains("3 objects: 1 person, 1 bicycle, 1 car"));
    for part in [
        "p99.9, ms",
        "channel_full_oldest",
        "decode_failed",
        "Deadline misses",
        "Slowest frame",
    ] {
        assert!(html.contains(part), "{part}");
    }
    assert!(timeline.starts_with("<svg xmlns=") && timeline.contains("tl-replay"));
}

#[test]
fn the_page_refers_to_nothing_outside_and_runs_no_script_from_a_name() {
    let streams = Streams::default();
    let evil = "<script>alert(1)</script>\"'&\u{1}";
    let mut run = simulate(&streams, [evil, "b"], 20, 20 * MS);
    let stream = streams.register(evil);
    let frame = run.ledger.frame_in(stream);
    run.ledger.frame_dropped(frame, evil, DropReason::Panicked);
    run.ledger.frame_in(stream);
    let mut shown = report_frame(evil, 0, &[(0, 0.5, [1.0, 1.0, 9.0, 9.0])]);
    shown.detections.labels = [evil.to_owned()].into();
    run.timeline = simulate(&streams, [evil, "b"], 20, 20 * MS).timeline;
    let (_guard, dir) = out_dir("evil");
    let (html, timeline, _) = write_report(&dir, &run, &[shown]);
    for text in [&html, &timeline] {
        assert!(!text.contains("<script") && !text.contains('\u{1}'));
        assert!(text.contains("&lt;script&gt;"));
    }
    assert!(!html.contains("://"), "a URL in the page");
    for attribute in ["src=", "<link", "url(", "@import", "href=\"//"] {
        assert!(!html.contains(attribute), "{attribute}");
    }
    assert_eq!(
        html.matches("href=").count(),
        html.matches("href=\"data:image/jpeg;base64,").count()
    );
    assert_eq!(
        timeline.matches("://").count(),
        1,
        "only the name of the SVG namespace"
    );
}

#[test]
fn drawings_hold_finite_numbers_only() {
    let streams = Streams::default();
    for (name, frames, period_ns) in [("one", 1, 20 * MS), ("sparse", 30, 900 * MS), ("none", 0, MS)] {
        let run = simulate(&streams, ["a", "b"], frames, period_ns);
        let (_guard, dir) = out_dir(name);
        let (html, timeline, _) = write_report(&dir, &run, &[]);
        for text in [&html, &timeline] {
            assert!(
                !text.contains("NaN") && !text.contains("inf\"") && !text.contains("width=\"-"),
                "{name}"
            );
        }
    }
}

#[test]
fn a_run_of_zero_frames_has_a_report_without_numbers() {
    let streams = Streams::default();
    streams.register("cam");
    let run = Run::new(&streams, 40 * MS);
    let (_guard, dir) = out_dir("empty");
    let (html, _, summary) = write_report(&dir, &run, &[]);
    assert_eq!((summary.total, summary.throughput_fps), (None, None));
    assert!(summary.incomplete.is_empty());
    assert!(html.contains("No frame came out."));
    let table = summary.table();
    assert!(table.contains("0 frames in, 0 out, 0 dropped") && !table.contains("NaN"));
}

#[test]
fn a_folder_that_cannot_hold_a_report_is_refused_before_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    assert!(matches!(
        report::prepare_dir(&file),
        Err(ReportError::NotAFolder { .. })
    ));
    assert!(matches!(
        report::prepare_dir(&file.join("below")),
        Err(ReportError::Create { .. })
    ));
    let deep = dir.path().join("a/b/c");
    report::prepare_dir(&deep).unwrap();
    assert_eq!(
        std::fs::read_dir(&deep).unwrap().count(),
        0,
        "nothing is left behind"
    );

    // A file that cannot be replaced is named.
    std::fs::create_dir(deep.join(report::HTML_FILE)).unwrap();
    let run = Run::new(&Streams::default(), MS);
    match report::write(&deep, &run.summary(), &pictures(&[]), &run.timeline) {
        Err(ReportError::Write { path, .. }) => assert_eq!(path, deep.join(report::HTML_FILE)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_device_that_was_opened_again_is_told_everywhere_and_leaves_the_run_complete() {
    let streams = Streams::default();
    let run = simulate(&streams, ["front", "rear"], 10, 20 * MS);
    assert!(!run.summary().table().contains("the device was lost"));
    run.ledger.device_restarted();
    let once = run.summary().table();
    let table = once.lines().nth(2).unwrap();
    assert_eq!(table, "the device was lost and opened again once");

    run.ledger.device_restarted();
    let (_guard, dir) = out_dir("restarts");
    let (html, _, summary) = write_report(&dir, &run, &[]);
    assert!(html.contains("<dd>the device was lost and opened again 2 times</dd>"));
    assert_eq!((summary.device_restarts, summary.incomplete.len()), (2, 0));
    // Reports from before there were restarts can be read.
    let mut older = serde_json::to_value(&summary).unwrap();
    older.as_object_mut().unwrap().remove("device_restarts");
    let read: RunSummary = serde_json::from_value(older).unwrap();
    assert_eq!(read.device_restarts, 0);
}

#[test]
fn a_lost_frame_makes_the_run_incomplete() {
    let streams = Streams::default();
    let run = simulate(&streams, ["front", "rear"], 10, 20 * MS);
    run.ledger.frame_in(streams.register("rear"));
    let mut summary = run.summary();
    summary.mark_incomplete("bag ends in the middle of a message");
    assert_eq!(
        summary.incomplete,
        [
            "1 frame lost",
            "stream \"rear\": 11 in, 10 out, 0 dropped, 1 lost (#10)",
            "bag ends in the middle of a message"
        ]
    );
    assert!(summary.table().contains("INCOMPLETE: 1 frame lost\n"));
}

#[test]
fn the_table_at_the_end_of_a_run_tells_all_of_it() {
    let streams = Streams::default();
    let run = simulate(&streams, ["/camera/front", "/camera/rear"], 60, 20 * MS);
    insta::assert_snapshot!(run.summary().table(), @r"
    yolox | yolox_nano_416.onnx | cpu: AVX2, 2 threads | bag clock, rate 1
    120 frames in, 117 out, 3 dropped, 97.51 frames/s, 12.5 s

    ───────────────────────────────────────────────────────────────────────────────
     latency, µs             n       p50       p90        p99      p99.9       max
    ═══════════════════════════════════════════════════════════════════════════════
     ingest wait           117       0.0       0.0        0.0       ~0.0       0.0
     ingest service        117     180.5     203.6      209.4     ~209.7     209.7
     prepare wait          117       0.0       0.0        0.0       ~0.0       0.0
     prepare service       117    2140.2    2336.8     2377.7    ~2384.8    2384.8
     upload wait           117       0.0     590.8      977.9    ~1106.5    1106.5
     upload service        117    1303.6    1376.3     1398.8    ~1399.8    1399.8
     replay wait           117     976.4    6098.9     6098.9    ~6871.5    6871.5
     replay service        117    7290.9    7487.5     7573.5   ~21000.0   21000.0
     readback wait         117       0.0       0.0        0.0       ~0.0       0.0
     readback service      117     350.0     350.0      350.0     ~350.0     350.0
     finish wait           117       0.0       0.0        0.0       ~0.0       0.0
     finish service        117     552.4     614.9      625.2     ~625.2     625.2
     publish wait          117       0.0       0.0        0.0       ~0.0       0.0
     publish service       117     111.4     127.6      129.6     ~129.8     129.8
     total                 117   17711.1   18956.3    19415.0   ~25571.9   25571.9
     total /camera/front    59   11870.2   12263.4   ~25571.9   ~25571.9   25571.9
     total /camera/rear     58   18497.5   19071.0   ~19414.5   ~19414.5   19414.5
    ───────────────────────────────────────────────────────────────────────────────

    ─────────────────────────────────────────────────────────────────────────────────
     stream          in   out   dropped   missed   in a row   jitter, µs   worst, µs
    ═════════════════════════════════════════════════════════════════════════════════
     /camera/front   60    59         1        0          0        526.9     13889.1
     /camera/rear    60    58         2        0          0         83.0      1087.1
    ─────────────────────────────────────────────────────────────────────────────────

    ──────────────────────────────────────────────────────────────────
     dropped   reason                place              stream
    ══════════════════════════════════════════════════════════════════
           1   decode_failed         decode             /camera/front
           1   channel_full_oldest   prepare → device   /camera/rear
           1   decode_failed         decode             /camera/rear
    ──────────────────────────────────────────────────────────────────

    deadline 40000 µs: 0 of 117 frames missed it, at most 0 in a row
    ~ too few frames to tell this percentile from the maximum (p99.9 takes 1000, p99 100, p90 10)
    ");
}
