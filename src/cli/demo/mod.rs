//! `sensorium demo`: a drive, its detections, and how good they are.

mod cameras;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueHint;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use miette::{IntoDiagnostic, WrapErr};

use super::interrupt::end_on_interrupt;
use super::run::explain;
use super::{pipeline_args, report};
use crate::accuracy::{
    ClassAccuracy, Evaluation, EvaluationParams, FrameObjects, SeenObject, Side, evaluate, read_frames,
};
use crate::pipeline::{Overrides, Pipeline};
use crate::runtime::{self, Progress, RunOptions, RunOutput, Shutdown, TruthFrame};
use crate::telemetry::report::{QualityTable, ReportPictures};
use crate::telemetry::{RunSummary, Stage};

/// The demo's files, so that the program needs nothing beside it.
const PIPELINE: &str = include_str!("../../../pipelines/demo.yaml");
const WEIGHTS: [(&str, &[u8]); 3] = [
    (
        "weights/centerpoint_sim.safetensors",
        include_bytes!("../../../pipelines/weights/centerpoint_sim.safetensors"),
    ),
    (
        "weights/yolox_sim.onnx",
        include_bytes!("../../../pipelines/weights/yolox_sim.onnx"),
    ),
    (
        "weights/yolox_sim.labels",
        include_bytes!("../../../pipelines/weights/yolox_sim.labels"),
    ),
];

/// How far ahead and to the sides the LiDAR's network of the demo looks, in metres.
const REACH_M: f64 = 51.2;

/// Distance of centres at which a detection counts as right, in metres.
const MATCH_M: f64 = 1.0;

/// Drives through a simulated town, finds what is on the road, and tells how well and how fast.
///
/// The drive is made while it plays, at the pace of real sensors: a LiDAR with 10 sweeps a second and three cameras with 2
/// images a second each. CenterPoint and YOLOX run on the embedded device, one process for both. What comes of it is left
/// in a folder: a report with pictures, a recording of everything for Foxglove, and detections and truth as JSON lines.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sensorium demo
  sensorium demo --seconds 60 --seed 3 --out out/demo --view")]
pub(super) struct Args {
    /// Length of the drive.
    #[arg(long, value_name = "S", default_value_t = 20.0, value_parser = seconds)]
    seconds: f64,
    /// Another drive.
    #[arg(long, value_name = "N", default_value_t = 7)]
    seed: u64,
    /// Folder for everything that is written.
    #[arg(long, value_name = "DIR", default_value = "demo-out", value_hint = ValueHint::DirPath)]
    out: PathBuf,
    /// Opens the report at the end.
    #[arg(long)]
    view: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let parsed = text.parse().ok();
    parsed
        .filter(|&seconds: &f64| seconds > 0.0 && seconds <= 3_600.0)
        .ok_or_else(|| "expected seconds, above 0 and at most 3600".to_owned())
}

/// Where everything goes.
struct Files {
    pipeline: PathBuf,
    detections: PathBuf,
    truth: PathBuf,
    image_truth: PathBuf,
    recording: PathBuf,
}

impl Files {
    /// Makes the folder, with the pipeline and its weights in it.
    fn prepare(out: &Path) -> miette::Result<Self> {
        crate::telemetry::report::prepare_dir(out).into_diagnostic()?;
        let write = |name: &str, bytes: &[u8]| {
            let path = out.join(name);
            let parent = path.parent().unwrap_or(out);
            fs::create_dir_all(parent)
                .and_then(|()| fs::write(&path, bytes))
                .into_diagnostic()
                .wrap_err_with(|| format!("{} cannot be written", path.display()))?;
            Ok::<_, miette::Report>(path)
        };
        for (name, bytes) in WEIGHTS {
            write(name, bytes)?;
        }
        Ok(Self {
            pipeline: write("demo.yaml", PIPELINE.as_bytes())?,
            detections: out.join("detections.jsonl"),
            truth: out.join("truth.jsonl"),
            image_truth: out.join("image_truth.jsonl"),
            recording: out.join("drive.mcap"),
        })
    }
}

/// Runs the command.
///
/// # Errors
/// Whatever keeps the run from starting, or went wrong in it.
pub(super) fn run(args: &Args) -> miette::Result<ExitCode> {
    let files = Files::prepare(&args.out)?;
    let set = |key: &str, value: String| (key.to_owned(), value);
    let overrides = Overrides {
        record: Some(files.recording.clone()),
        jsonl: Some(files.detections.clone()),
        set: vec![
            set("nodes.drive.simulate.seconds", args.seconds.to_string()),
            set("nodes.drive.simulate.seed", args.seed.to_string()),
        ],
        ..Overrides::default()
    };
    let pipeline = Pipeline::load(&files.pipeline, &overrides)?;
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .into_diagnostic()
        .wrap_err("the asynchronous runtime cannot start")?;
    let shutdown = Shutdown::default();
    let options = RunOptions {
        gallery: true,
        with_latency: true,
        device_environment: pipeline_args::device_environment()?,
        ros_node: None,
        build_only: false,
        live: crate::telemetry::live::Live::default(),
        progress: Arc::new(Live::new()),
        control: runtime::Control::default(),
        load: None,
    };
    let outcome = tokio.block_on(async {
        end_on_interrupt(shutdown.clone());
        runtime::run(&pipeline, options, shutdown).await
    });
    tokio.shutdown_timeout(Duration::from_millis(500));
    let mut output = outcome.map_err(explain)?;

    write_truth(&files.truth, &output.truth)?;
    cameras::write_truth(&files.image_truth, &output.image_truth)?;
    let tables = [
        sweeps_quality(&files.detections, &output.truth)?,
        cameras::quality(&files.detections, &output.image_truth)?,
    ];
    add_truth(&mut output.gallery, &output.truth);
    cameras::add_truth(&mut output.gallery, &output.image_truth);

    report::print(&text(&tables, &output.summary))?;
    output.gallery.quality = tables.to_vec();
    let RunOutput {
        summary,
        gallery,
        timeline,
        ..
    } = &output;
    crate::telemetry::report::write(&args.out, summary, gallery, timeline)
        .into_diagnostic()
        .wrap_err("the report cannot be written")?;
    let page = args.out.join(crate::telemetry::report::HTML_FILE);
    report::print(&next_steps(&args.out, &files))?;
    if args.view {
        open::that_detached(&page)
            .into_diagnostic()
            .wrap_err_with(|| format!("no program opens {}", page.display()))?;
    }
    let code = if output.faults.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    };
    for fault in output.faults {
        report::show(&explain(fault));
    }
    Ok(code)
}

/// What was found in the sweeps, against what is there.
fn sweeps_quality(detections: &Path, truth: &[TruthFrame]) -> miette::Result<QualityTable> {
    let truth: Vec<FrameObjects> = truth.iter().map(frame_of).collect();
    let found = fs::File::open(detections).into_diagnostic()?;
    let found = read_frames(std::io::BufReader::new(found), Side::Detections).map_err(|error| {
        miette::miette!("{}, line {}: {}", detections.display(), error.line, error.problem)
    })?;
    let params = EvaluationParams {
        distances_m: vec![MATCH_M],
        match_distance_m: MATCH_M,
        ..EvaluationParams::default()
    };
    Ok(quality(&evaluate(&found, &truth, &params).into_diagnostic()?))
}

/// The truth of a frame. What lies beyond the network's reach is as good as unseen: neither missed nor a false alarm.
fn frame_of(frame: &TruthFrame) -> FrameObjects {
    let objects = frame.objects.iter().map(|object| {
        let [x, y, _] = object.object.position_m;
        let in_reach = x.abs().max(y.abs()) < REACH_M;
        SeenObject {
            object: object.object,
            points: Some(if in_reach { object.points } else { 0 }),
            velocity_mps: Some(object.velocity_mps),
        }
    });
    FrameObjects {
        stamp_ns: frame.stamp_ns,
        objects: objects.collect(),
    }
}

fn write_truth(path: &Path, frames: &[TruthFrame]) -> miette::Result<()> {
    let mut text = Vec::new();
    for frame in frames {
        let objects = frame.objects.iter().map(|object| {
            let mut json = serde_json::to_value(object.object)?;
            json["id"] = object.id.into();
            json["points"] = object.points.into();
            json["velocity_mps"] = object.velocity_mps.to_vec().into();
            Ok(json)
        });
        let objects = objects
            .collect::<Result<Vec<_>, serde_json::Error>>()
            .into_diagnostic()?;
        let line = serde_json::json!({ "stamp_ns": frame.stamp_ns, "objects": objects });
        serde_json::to_writer(&mut text, &line).into_diagnostic()?;
        text.push(b'\n');
    }
    fs::write(path, text)
        .into_diagnostic()
        .wrap_err_with(|| format!("{} cannot be written", path.display()))
}

/// Lays the truth under the pictures of sweeps.
fn add_truth(pictures: &mut ReportPictures, truth: &[TruthFrame]) {
    for sweep in &mut pictures.sweeps {
        if let Some(frame) = truth.iter().find(|frame| frame.stamp_ns == sweep.stamp_ns) {
            sweep.truth = frame.objects.iter().map(|object| object.object).collect();
        }
    }
}

fn quality(evaluation: &Evaluation) -> QualityTable {
    let head = [
        "class",
        "there",
        "found",
        "missed",
        "false",
        "precision",
        "recall",
        "AP",
        "heading, deg",
    ];
    let classes = evaluation
        .classes
        .iter()
        .filter(|class| class.objects + class.detections > 0);
    QualityTable {
        title: "LiDAR, CenterPoint".to_owned(),
        head: head.map(str::to_owned).to_vec(),
        rows: classes.map(quality_row).collect(),
        note: format!(
            "A detection is right if its centre lies within {MATCH_M} m of an object's of its class that no better one took. \
             Objects with fewer than {} LiDAR points or beyond the network's reach count neither way; those of dropped sweeps are missed. AP: area under precision over recall, of what \
             is reported. Heading: median error of those found.",
            EvaluationParams::default().min_points
        ),
    }
}

fn quality_row(class: &ClassAccuracy) -> Vec<String> {
    let share = |part: usize, of: usize| match of {
        0 => "-".to_owned(),
        of => format!("{:.2}", part as f64 / of as f64),
    };
    let (hits, false_alarms) = class
        .at
        .first()
        .map_or((0, class.detections), |at| (at.hits, at.false_alarms));
    let heading = class.heading.map_or_else(
        || "-".to_owned(),
        |heading| format!("{:.1}", heading.median_rad.to_degrees()),
    );
    vec![
        class.label.name().to_owned(),
        class.objects.to_string(),
        hits.to_string(),
        (class.objects - hits).to_string(),
        false_alarms.to_string(),
        share(hits, hits + false_alarms),
        share(hits, class.objects),
        class
            .at
            .first()
            .map_or_else(|| "-".to_owned(), |at| format!("{:.2}", at.ap_all_points)),
        heading,
    ]
}

fn text(tables: &[QualityTable], summary: &RunSummary) -> String {
    let mut parts = Vec::new();
    for quality in tables {
        let mut table = report::table();
        table.set_header(&quality.head);
        for row in &quality.rows {
            table.add_row(row);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(comfy_table::CellAlignment::Right);
        }
        parts.extend([
            quality.title.clone(),
            table.to_string(),
            quality.note.clone(),
            String::new(),
        ]);
    }
    parts.push(summary.table());
    if let Some(busy) = utilisation(summary) {
        parts.push(format!("device busy {:.0} % of the time", busy * 100.0));
    }
    parts.join("\n")
}

/// Share of the run that the device spent in replays.
fn utilisation(summary: &RunSummary) -> Option<f64> {
    let replay = summary.stages.iter().find(|stage| stage.stage == Stage::Replay)?;
    let busy_s = replay.service.mean_us * 1e-6 * replay.service.n as f64;
    summary
        .run
        .wall_s
        .filter(|&wall_s| wall_s > 0.0)
        .map(|wall_s| busy_s / wall_s)
}

fn next_steps(out: &Path, files: &Files) -> String {
    let page = out.join(crate::telemetry::report::HTML_FILE);
    format!(
        "\n{} has the pictures; {} opens in Foxglove.\n\nNow try\n  \
         sensorium run {} --deterministic\n  \
         sensorium eval --detections {} --truth {}\n  \
         sensorium demo --seed 8 --seconds 60",
        page.display(),
        files.recording.display(),
        files.pipeline.display(),
        files.detections.display(),
        files.truth.display(),
    )
}

/// A progress bar with the last result beside it, on standard error; hidden where that is no terminal.
struct Live {
    bar: ProgressBar,
}

impl Live {
    fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} frames  {elapsed}  {msg}");
        Self {
            bar: style.map_or_else(|_| bar.clone(), |style| bar.clone().with_style(style)),
        }
    }
}

impl Progress for Live {
    fn started(&self, messages: u64) {
        self.bar.set_length(messages);
    }

    fn message(&self) {
        self.bar.inc(1);
    }

    fn result(&self, objects: usize, latency: Duration, dropped: u64) {
        let ms = latency.as_secs_f64() * 1e3;
        self.bar
            .set_message(format!("{objects} objects  {ms:.0} ms  {dropped} dropped"));
    }

    fn ended(&self) {
        self.bar.finish_and_clear();
    }
}
