//! `sensorium bench`: offers load to a pipeline and tells what became of it.

mod peak;
mod trial;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use clap::{ValueEnum, ValueHint};
use miette::{IntoDiagnostic, Report, WrapErr, miette};

use self::trial::{Trial, run_trial};
use super::pipeline_args::{self, Format, PipelineArgs};
use super::report;
use crate::pipeline::{Clock, NodeKind, Overrides, Pipeline, Rate};
use crate::runtime::{Arrivals, Load, LoadTally, Until};
use crate::telemetry::StreamSummary;
use crate::telemetry::bench::{
    BenchResult, Claim, Condition, Limit, LoadSummary, Machine, PeakSummary, PercentileValue,
    Ros2BenchmarkKeys, ScenarioKind, ScenarioSummary, compare, evaluate, required_samples, write_hlog,
};
use crate::telemetry::report::{prepare_dir, write_bench};

/// Form of results that is written and read.
const FORM: u32 = 1;
/// Largest earlier result that is read.
const MAX_BASELINE_BYTES: u64 = 1 << 28;
/// Most queries of a run; the latency of each is kept.
const MOST_QUERIES: u64 = 5_000_000;
/// Seconds that are measured where nothing else says how long.
const DEFAULT_DURATION_S: f64 = 60.0;
/// Seconds that are measured with `--quick`, at most.
const QUICK_DURATION_S: f64 = 10.0;
/// Seconds that are left out with `--quick`, at most.
const QUICK_WARM_UP_S: f64 = 1.0;
/// Streams of `multi-stream` where nothing else says how many.
const DEFAULT_STREAMS: u32 = 4;

/// File of the result in the folder of `--out`.
const RESULT_FILE: &str = "bench.json";
/// File of the histograms there.
const HLOG_FILE: &str = "latency.hlog";

/// Offers load to a pipeline and tells latency, throughput and drops: MLPerf-style scenarios.
///
/// The messages of a bag (or of a simulated drive) are loaded into memory, then offered on a schedule that the pipeline
/// cannot slow down. Latency counts from the time at which a message was due; messages that get away late are counted.
/// Sinks are off unless asked for. Percentiles are claimed only where there are samples enough.
///
/// A pipeline of compute nodes alone runs by its own timers, and tells the key figures of its graph.
///
/// The exit code is 1 where a condition of `--fail-if` holds beyond chance, and where something went wrong.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sensorium bench pipelines/centerpoint.yaml --bag drive.mcap --scenario single-stream --quick
  sensorium bench pipelines/centerpoint.yaml --bag drive.mcap --scenario multi-stream --streams 8 --out out/bench
  sensorium bench pipelines/centerpoint.yaml --bag drive.mcap --scenario peak-rate
  sensorium bench pipelines/centerpoint.yaml --bag drive.mcap --baseline old/bench.json --fail-if 'p99>+5%'
  sensorium bench pipelines/reference_system.yaml --duration 60")]
pub(super) struct Args {
    #[command(flatten)]
    pipeline: PipelineArgs,
    /// Bag to take messages from: a folder with metadata.yaml, or one .mcap or .db3 file.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    bag: Option<PathBuf>,
    /// File of the model.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    model: Option<PathBuf>,
    /// How load is offered.
    #[arg(long, value_enum, default_value_t = Scenario::ConstantStream)]
    scenario: Scenario,
    /// Streams that each topic of the bag is offered as; 4 in multi-stream, 1 otherwise, if left out.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_024))]
    streams: Option<u32>,
    /// Messages a second of each stream; as recorded if left out. In peak-rate, the first rate that is tried.
    #[arg(long, value_name = "HZ", value_parser = rate)]
    rate: Option<f64>,
    /// Seconds that are measured; 60 if left out.
    #[arg(long, value_name = "S", value_parser = duration)]
    duration: Option<f64>,
    /// Messages that are measured, in place of a duration.
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=MOST_QUERIES))]
    queries: Option<u64>,
    /// Seconds before that, which are left out.
    #[arg(long, value_name = "S", default_value_t = 5.0, value_parser = warm_up)]
    warm_up: f64,
    /// The percentile to claim, such as 99.9: without --duration and --queries so many messages are measured as that
    /// takes. 99 if left out, of as many messages as come.
    #[arg(long, value_name = "P", value_parser = percent)]
    percentile: Option<f64>,
    /// Makes it short: 10 s at most after 1 s at most, told in the result.
    #[arg(long)]
    quick: bool,
    /// Memory for messages.
    #[arg(long, value_name = "MIB", default_value_t = 1_024, value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
    memory: u64,
    /// Leaves the pipeline's recorders, publishers and JSON lines on.
    #[arg(long)]
    keep_sinks: bool,
    /// Writes bench.json, bench.html and latency.hlog (HdrHistogram) into this folder.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    out: Option<PathBuf>,
    /// An earlier bench.json to compare with.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    baseline: Option<PathBuf>,
    /// Fails where this holds beyond chance: METRIC, one of > >= < <=, and a change (+5%, needs --baseline) or a value
    /// (80ms, 30hz, 0.1%). Metrics: p50, p90, p95, p99, p99.9, max, mean, throughput, drops, misses, peak. Can be given
    /// several times.
    #[arg(long, value_name = "CONDITION")]
    fail_if: Vec<Condition>,
    /// Form of the result on standard output.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// How load is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// The next message when the last one is done: a closed loop.
    SingleStream,
    /// One stream at a fixed rate: an open loop.
    ConstantStream,
    /// Several streams at a fixed rate, a part of the period apart: an open loop.
    MultiStream,
    /// A search for the highest rate at which fewer than one message in a thousand fails.
    PeakRate,
}

fn number_within(text: &str, low: f64, high: f64, what: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|value: &f64| *value > low && *value <= high)
        .ok_or_else(|| format!("expected {what} above {low} and at most {high}"))
}

fn rate(text: &str) -> Result<f64, String> {
    number_within(text, 0.0, 1e6, "a rate in Hz")
}

fn duration(text: &str) -> Result<f64, String> {
    number_within(text, 0.0, 604_800.0, "a time in seconds")
}

fn warm_up(text: &str) -> Result<f64, String> {
    if text == "0" {
        Ok(0.0)
    } else {
        number_within(text, 0.0, 3_600.0, "a time in seconds")
    }
}

fn percent(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|value: &f64| *value >= 50.0 && *value <= 99.99)
        .map(|value: f64| value / 100.0)
        .ok_or_else(|| "expected a percentile from 50 to 99.99".to_owned())
}

/// Runs the command.
///
/// # Errors
/// Whatever keeps the benchmark from starting or goes wrong in it.
pub(super) fn run(args: &Args) -> miette::Result<ExitCode> {
    let overrides = Overrides {
        bag: args.bag.clone(),
        model: args.model.clone(),
        ..Overrides::default()
    };
    let mut pipeline = args.pipeline.load(overrides)?.into_pipeline();
    for warning in &pipeline.warnings {
        report::show(&Report::new(warning.clone()));
    }
    pipeline.require_files()?;
    let baseline = args.baseline.as_deref().map(read_baseline).transpose()?;
    if let Some(condition) = args.fail_if.iter().find(|c| matches!(c.limit, Limit::Change(_)))
        && baseline.is_none()
    {
        return Err(miette!(
            help = "give the bench.json of an earlier run with --baseline FILE",
            "`{}` speaks of a change, and there is nothing to compare with",
            condition.text
        ));
    }
    if let Some(dir) = &args.out {
        prepare_dir(dir).into_diagnostic()?;
    }
    let asked = args.percentile.unwrap_or(0.99);
    let kind = kind_of(args, &pipeline)?;
    if let (Some(before), Some(file)) = (&baseline, &args.baseline)
        && before.scenario.name != kind
    {
        return Err(miette!(
            help = "compare with a result of the same --scenario",
            "{} is a result of {}, and this is {}",
            file.display(),
            before.scenario.name.name(),
            kind.name()
        ));
    }
    let streams = match (args.scenario, args.streams) {
        (_, Some(streams)) => streams,
        (Scenario::MultiStream, None) => DEFAULT_STREAMS,
        _ => 1,
    };
    let changes = adapt(&mut pipeline, args, streams);
    let load = load_of(args, kind, streams, asked);

    let tokio = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .into_diagnostic()
        .wrap_err("the asynchronous runtime cannot start")?;
    let environment = pipeline_args::device_environment()?;
    let (started, machine) = (SystemTime::now(), Machine::here());
    let benched = tokio.block_on(async {
        match kind {
            ScenarioKind::PeakRate => peak::search(&pipeline, &environment, &load, args).await,
            _ => run_trial(&pipeline, &environment, load.clone(), true)
                .await
                .map(|trial| (trial, None)),
        }
    });
    tokio.shutdown_timeout(Duration::from_millis(500));
    let (trial, peak) = benched?;

    let scenario = ScenarioSummary {
        name: kind,
        r#loop: kind.loop_words().to_owned(),
        style: "MLPerf-style".to_owned(),
        streams: trial.tally.streams(),
        rate_hz: trial.rate_hz(),
        duration_s: trial.duration_s(),
        warm_up_s: trial.load.warm_up.as_secs_f64(),
        percentile: asked,
        quick: args.quick,
        changes,
    };
    let mut undecided = Vec::new();
    let mut result = result_of(&pipeline, &trial, scenario, machine, started, peak);
    if let (Some(before), Some(file)) = (&baseline, &args.baseline) {
        result.comparison = Some(compare(before, &file.display().to_string(), &result));
    }
    for condition in &args.fail_if {
        match evaluate(condition, &result, result.comparison.as_ref()) {
            Ok(outcome) => result.conditions.push(outcome),
            Err(why) => undecided.push(why),
        }
    }

    match args.format {
        Format::Text => report::print(&result.text())?,
        Format::Json => report::print(&serde_json::to_string(&result).into_diagnostic()?)?,
    }
    if let Some(dir) = &args.out {
        let json = serde_json::to_vec(&result).into_diagnostic()?;
        fs::write(dir.join(RESULT_FILE), json)
            .into_diagnostic()
            .wrap_err_with(|| format!("{} cannot be written", dir.join(RESULT_FILE).display()))?;
        write_hlog(&dir.join(HLOG_FILE), &trial.collected, started).into_diagnostic()?;
        write_bench(dir, &result, &trial.collected).into_diagnostic()?;
    }
    let mut code = if result.fails() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    };
    // What was measured is told all the same.
    for why in undecided {
        report::show(&miette!("{why}"));
        code = ExitCode::FAILURE;
    }
    for fault in trial.faults {
        report::show(&super::run::explain(fault));
        code = ExitCode::FAILURE;
    }
    Ok(code)
}

/// What is run: the scenario asked for, or the timers of a pipeline without sources.
fn kind_of(args: &Args, pipeline: &Pipeline) -> miette::Result<ScenarioKind> {
    let has = |wanted: fn(&NodeKind) -> bool| pipeline.nodes.iter().any(|node| wanted(&node.kind));
    if has(|kind| matches!(kind, NodeKind::Source(_))) {
        return Ok(match args.scenario {
            Scenario::SingleStream => ScenarioKind::SingleStream,
            Scenario::ConstantStream => ScenarioKind::ConstantStream,
            Scenario::MultiStream => ScenarioKind::MultiStream,
            Scenario::PeakRate => ScenarioKind::PeakRate,
        });
    }
    let unfit = [
        ("--queries", args.queries.is_some()),
        ("--rate", args.rate.is_some()),
        ("--streams", args.streams.is_some()),
        ("--scenario", args.scenario != Scenario::ConstantStream),
    ];
    match unfit.iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(miette!(
            help = "give its length with --duration; the periods stand in the pipeline file",
            "this pipeline has no source to offer messages for, only timers: {option} does not apply"
        )),
        None => Ok(ScenarioKind::Timers),
    }
}

/// Makes the pipeline fit for a benchmark; what was changed, in words.
fn adapt(pipeline: &mut Pipeline, args: &Args, streams: u32) -> Vec<String> {
    let mut changes = Vec::new();
    if !args.keep_sinks {
        let is_sink = |kind: &NodeKind| {
            matches!(
                kind,
                NodeKind::Publisher(_) | NodeKind::Recorder(_) | NodeKind::JsonLines(_)
            )
        };
        let off: Vec<String> = pipeline
            .nodes
            .iter()
            .filter(|node| is_sink(&node.kind))
            .map(|node| node.name.clone())
            .collect();
        pipeline.nodes.retain(|node| !is_sink(&node.kind));
        pipeline.edges.retain(|edge| !off.contains(&edge.to));
        if !off.is_empty() {
            changes.push(format!("sinks off: {}", off.join(", ")));
        }
    }
    for node in &mut pipeline.nodes {
        if let NodeKind::Source(source) = &mut node.kind
            && source.clock == Clock::Deterministic
        {
            source.clock = Clock::Bag;
            changes.push(format!(
                "{}: clock bag in place of deterministic, which offers no load",
                node.name
            ));
        }
        if let NodeKind::Source(source) = &mut node.kind {
            // The schedule is the load's.
            source.rate = Rate::Times(1.0);
        }
    }
    let wanted = u16::try_from(streams).unwrap_or(u16::MAX);
    for (name, model) in &mut pipeline.models {
        if model.max_streams < wanted {
            changes.push(format!(
                "{name}: max_streams {wanted} in place of {}",
                model.max_streams
            ));
            model.max_streams = wanted;
        }
    }
    changes
}

fn load_of(args: &Args, kind: ScenarioKind, streams: u32, asked: f64) -> Load {
    let seconds =
        |limit: f64, value: f64| Duration::from_secs_f64(if args.quick { value.min(limit) } else { value });
    let until = match (args.queries, args.duration, args.percentile) {
        (Some(queries), ..) => Until::Queries(queries),
        (None, Some(duration), _) => Until::For(seconds(QUICK_DURATION_S, duration)),
        (None, None, Some(_))
            if !args.quick && kind != ScenarioKind::PeakRate && kind != ScenarioKind::Timers =>
        {
            Until::Queries(required_samples(asked).min(MOST_QUERIES))
        }
        _ => Until::For(seconds(QUICK_DURATION_S, DEFAULT_DURATION_S)),
    };
    Load {
        arrivals: match (kind, args.rate) {
            (ScenarioKind::SingleStream, _) => Arrivals::AfterLast,
            (_, Some(hz)) => Arrivals::Every {
                period_ns: period_ns(hz),
            },
            (_, None) => Arrivals::AsRecorded,
        },
        copies: streams,
        warm_up: seconds(QUICK_WARM_UP_S, args.warm_up),
        until,
        most_queries: MOST_QUERIES,
        give_up_after: None,
        memory_bytes: args.memory << 20,
        messages: Arc::new(OnceLock::new()),
        tally: Arc::new(LoadTally::default()),
    }
}

/// From one message to the next at a rate.
fn period_ns(hz: f64) -> u64 {
    (1e9 / hz).round().max(1.0) as u64
}

fn read_baseline(path: &Path) -> miette::Result<BenchResult> {
    let shown = path.display();
    let mut bytes = Vec::new();
    fs::File::open(path)
        .and_then(|file| file.take(MAX_BASELINE_BYTES + 1).read_to_end(&mut bytes))
        .into_diagnostic()
        .wrap_err_with(|| format!("the earlier result {shown} cannot be read"))?;
    if bytes.len() as u64 > MAX_BASELINE_BYTES {
        return Err(miette!(
            "the earlier result {shown} is larger than {MAX_BASELINE_BYTES} bytes"
        ));
    }
    let result: BenchResult = serde_json::from_slice(&bytes).map_err(|error| {
        miette!(
            help = "expected the bench.json that `sensorium bench --out DIR` writes",
            "{shown} is no result of a benchmark: {error}"
        )
    })?;
    if result.form != FORM {
        return Err(miette!(
            help = "measure it again with this version",
            "{shown} is a result of form {}, and this version reads form {FORM}",
            result.form
        ));
    }
    Ok(result)
}

/// The result of a trial.
fn result_of(
    pipeline: &Pipeline,
    trial: &Trial,
    scenario: ScenarioSummary,
    machine: Machine,
    started: SystemTime,
    peak: Option<PeakSummary>,
) -> BenchResult {
    let mut samples = trial.collected.samples.clone();
    samples.sort_by_key(|sample| (sample.due_ns, sample.stream));
    let latencies_ns: Vec<u64> = samples.iter().map(|sample| sample.latency_ns()).collect();
    let percentiles = PercentileValue::all(&latencies_ns, scenario.percentile);
    let claim = Claim::of(&percentiles, scenario.percentile, latencies_ns.len() as u64);
    let recorder = &trial.collected.recorder;
    let deadline_us = recorder.options().deadline_ns.map(|ns| ns as f64 / 1e3);
    let summary = &trial.summary;
    let timers = scenario.name == ScenarioKind::Timers;
    let streams: Vec<StreamSummary> = summary
        .streams
        .iter()
        .enumerate()
        .map(|(number, stream)| trial.stream(number, stream, deadline_us))
        .collect();
    let misses = streams.iter().filter_map(|stream| stream.deadline);
    let deadline = misses.reduce(|all, one| crate::telemetry::DeadlineSummary {
        deadline_us: all.deadline_us,
        misses: all.misses + one.misses,
        longest_streak: all.longest_streak.max(one.longest_streak),
    });
    let loaded = trial.load.messages.get();
    BenchResult {
        form: FORM,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        optimized: !cfg!(debug_assertions),
        pipeline: pipeline.name.clone(),
        model: summary.run.model.clone(),
        device: if timers {
            String::new()
        } else {
            summary.run.device.clone()
        },
        started_at: humantime::format_rfc3339_seconds(started).to_string(),
        // Data of plain types, which has a JSON form.
        settings: serde_json::to_value(pipeline).unwrap_or_default(),
        machine,
        process: trial.process,
        load: loaded.map_or_else(LoadSummary::default, |loaded| LoadSummary {
            messages: loaded.messages() as u64,
            bytes: loaded.bytes,
            cut_off: loaded.cut_off,
        }),
        queries: trial.queries(),
        throughput_hz: trial.throughput_hz(),
        latency: recorder.total(),
        claim,
        percentiles,
        stages: trial.stages(),
        streams,
        deadline,
        drops: summary.drops.clone(),
        incomplete: summary.incomplete.clone(),
        peak,
        graph: trial.graph.clone(),
        ros2_benchmark: Ros2BenchmarkKeys::of(&trial.collected, trial.tally.frames(), trial.offered_hz()),
        latencies_us: latencies_ns.iter().map(|ns| (ns + 500) / 1_000).collect(),
        results_per_second: trial.results_per_second(),
        comparison: None,
        conditions: Vec::new(),
        scenario,
    }
}
