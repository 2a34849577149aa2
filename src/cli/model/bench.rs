//! `sensorium model bench`: an ONNX file through the trace runner, beside ONNX Runtime.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::ValueEnum;
use comfy_table::CellAlignment;
use miette::{Diagnostic, IntoDiagnostic};
use serde::Serialize;

use super::no_model;
use super::peer::Peer;
use crate::cli::pipeline_args::Format;
use crate::cli::report;
use crate::device::{CpuConfig, CpuDevice, Cq, Device, HostSlot};
use crate::models::{LoadedGraph, LowerOptions, LoweredGraph, lower};
use crate::tensor::{DType, HostTensor, TensorSpec};
use crate::trace::{InputId, TraceError, TraceOptions, TraceRunner, VariantId};
use crate::weights::OnnxModel;

/// Variable that names a Python with ONNX Runtime where `--python` does not.
const PYTHON: &str = "SENSORIUM_TEST_PYTHON";

/// Rounds into which the runs are divided.
const ROUNDS: usize = 5;

/// Arguments of the command.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The ONNX file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Numbers of threads that compute.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,2",
          value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Vec<u16>,
    /// Types of weights and intermediates on the device.
    #[arg(
        long,
        value_name = "TYPE,...",
        value_enum,
        value_delimiter = ',',
        default_value = "f32,bf16"
    )]
    storage: Vec<Storage>,
    /// Runs of each configuration.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    runs: u32,
    /// A Python with onnxruntime; SENSORIUM_TEST_PYTHON if left out, and ONNX Runtime takes no part without either.
    #[arg(long, value_name = "PROGRAM")]
    python: Option<PathBuf>,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Type of weights and intermediates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
enum Storage {
    /// float32
    F32,
    /// bfloat16
    Bf16,
}

impl Storage {
    const fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Bf16 => DType::Bf16,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        }
    }
}

/// Why a model does not run: refused by the importer, the device, or the trace runner.
type Cause = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{file} cannot be run on the device")]
#[diagnostic(help("`sensorium model info` lists what is not importable"))]
struct NotRunnable {
    file: String,
    #[source]
    cause: Cause,
}

/// A median and the fastest, in milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
struct Times {
    median_ms: f64,
    fastest_ms: f64,
}

impl Times {
    fn of(seconds: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = seconds.map(|s| s * 1e3).collect();
        sorted.sort_by(f64::total_cmp);
        Self {
            median_ms: sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN),
            fastest_ms: sorted.first().copied().unwrap_or(f64::NAN),
        }
    }
}

/// One configuration's result.
#[derive(Debug, Serialize)]
struct Row {
    threads: u16,
    storage: Storage,
    /// What the device computes with.
    device: String,
    upload: Times,
    replay: Times,
    read: Times,
    /// From the beginning of the upload to the end of the read.
    total: Times,
    /// `session.run` of ONNX Runtime in fp32, with as many threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    onnx_runtime: Option<Times>,
    /// Ours by ONNX Runtime's, medians: below 1 ours is faster.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_median: Option<f64>,
    /// The same of the fastest runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_fastest: Option<f64>,
}

/// The whole result.
#[derive(Debug, Serialize)]
struct Outcome {
    model: String,
    gflop: f64,
    runs: usize,
    /// Version of ONNX Runtime, where it took part.
    #[serde(skip_serializing_if = "Option::is_none")]
    onnx_runtime_version: Option<String>,
    rows: Vec<Row>,
}

/// Seconds of one run.
struct Run {
    upload: f64,
    replay: f64,
    read: f64,
}

/// The model on a device of its own.
struct Session {
    threads: u16,
    storage: Storage,
    device: CpuDevice,
    runner: TraceRunner,
    variant: VariantId,
    inputs: Vec<(InputId, HostSlot)>,
    outputs: Vec<HostSlot>,
    weights: Arc<LoadedGraph>,
    runs: Vec<Run>,
}

impl Session {
    fn open(graph: &LoweredGraph, threads: u16, storage: Storage) -> Result<Self, Cause> {
        let config = CpuConfig {
            threads: threads.into(),
            queues: 1,
            arena_bytes: arena_bytes(graph),
            ..CpuConfig::default()
        };
        let mut device = CpuDevice::open(&config)?;
        let weights = Arc::new(LoadedGraph::prepare(graph.clone(), &mut device, Cq::COMPUTE)?);
        let mut runner = TraceRunner::new(&graph.model, TraceOptions::default())?;
        let mut inputs = Vec::with_capacity(graph.inputs.len());
        for plan in &graph.inputs {
            let values = numbers(plan.spec);
            let id = runner.add_input(&mut device, &plan.name, plan.spec, Some(&values))?;
            let mut slot = device.host_slot(plan.spec.bytes())?;
            let bytes = slot.bytes_mut()?;
            bytes[..values.bytes().len()].copy_from_slice(values.bytes());
            inputs.push((id, slot));
        }
        let mut outputs = Vec::with_capacity(graph.outputs.len());
        for plan in &graph.outputs {
            runner.add_output(&mut device, &plan.name, plan.spec)?;
            outputs.push(device.host_slot(plan.spec.bytes())?);
        }
        let names = |plans: Vec<&str>| plans.into_iter().map(str::to_owned).collect::<Vec<String>>();
        let input_names = names(graph.inputs.iter().map(|plan| plan.name.as_str()).collect());
        let output_names = names(graph.outputs.iter().map(|plan| plan.name.as_str()).collect());
        let network = Arc::clone(&weights);
        let variant = runner.add_variant(
            &mut device,
            "default",
            Box::new(move |context| {
                let mut read = Vec::with_capacity(input_names.len());
                for name in &input_names {
                    read.push(context.input(name)?);
                }
                let mut written = Vec::with_capacity(output_names.len());
                for name in &output_names {
                    written.push(context.output(name)?);
                }
                network.forward_into(context.ops(), &read, &written)?;
                Ok(output_names.iter().cloned().zip(written).collect())
            }),
        )?;
        runner.capture(&mut device)?;
        Ok(Self {
            threads,
            storage,
            device,
            runner,
            variant,
            inputs,
            outputs,
            weights,
            runs: Vec::new(),
        })
    }

    fn run(&mut self) -> Result<Run, TraceError> {
        let inputs: Vec<(InputId, &HostSlot)> = self.inputs.iter().map(|(id, slot)| (*id, slot)).collect();
        let begin = Instant::now();
        let uploaded = self.runner.upload(&mut self.device, &inputs)?;
        self.runner.wait(&mut self.device, uploaded)?;
        let there = Instant::now();
        let pending = self.runner.replay(&mut self.device, self.variant)?;
        self.runner.wait(&mut self.device, pending.done)?;
        let computed = Instant::now();
        for (index, slot) in self.outputs.iter_mut().enumerate() {
            let read = self.runner.read(&mut self.device, pending, index, slot)?;
            self.runner.wait(&mut self.device, read)?;
        }
        Ok(Run {
            upload: (there - begin).as_secs_f64(),
            replay: (computed - there).as_secs_f64(),
            read: computed.elapsed().as_secs_f64(),
        })
    }

    fn round(&mut self, runs: usize) -> Result<(), TraceError> {
        for _ in 0..runs {
            let run = self.run()?;
            self.runs.push(run);
        }
        Ok(())
    }

    fn row(&self, peer: Option<Times>) -> Row {
        let times = |part: fn(&Run) -> f64| Times::of(self.runs.iter().map(part));
        let total = times(|run| run.upload + run.replay + run.read);
        Row {
            threads: self.threads,
            storage: self.storage,
            device: self.device.caps().description.clone(),
            upload: times(|run| run.upload),
            replay: times(|run| run.replay),
            read: times(|run| run.read),
            total,
            onnx_runtime: peer,
            ratio_median: peer.map(|peer| total.median_ms / peer.median_ms),
            ratio_fastest: peer.map(|peer| total.fastest_ms / peer.fastest_ms),
        }
    }

    fn close(mut self) -> Result<(), TraceError> {
        self.runner.release(&mut self.device)?;
        self.weights.release(&mut self.device);
        Ok(())
    }
}

/// Device memory that is enough however buffers are placed: pages that are not touched cost nothing.
fn arena_bytes(graph: &LoweredGraph) -> usize {
    let buffers: usize = graph.buffers.iter().map(|plan| plan.spec.bytes()).sum();
    let inputs: usize = graph.inputs.iter().map(|plan| plan.spec.bytes()).sum();
    // Weights are at most doubled by the padding of their panels, parameters are fp32 at most.
    let weights = graph.stats.parameters as usize * size_of::<f32>() * 2;
    buffers + inputs + weights + (256 << 20)
}

/// Numbers between -1 and 1 for floats, else zeros.
fn numbers(spec: TensorSpec) -> HostTensor {
    let mut tensor = HostTensor::zeros(spec);
    if let Ok(values) = tensor.as_mut_slice::<f32>() {
        for (i, value) in values.iter_mut().enumerate() {
            *value = (i * 7919 % 1000) as f32 / 500.0 - 1.0;
        }
    }
    tensor
}

/// Runs the command.
///
/// # Errors
/// A file that is no model or cannot be run on the device; a Python that cannot be started or has no ONNX Runtime.
pub(super) fn run(args: &Args) -> miette::Result<ExitCode> {
    let model = OnnxModel::open(&args.file).map_err(|cause| no_model(&args.file, cause))?;
    let not_runnable = |cause: Cause| NotRunnable {
        file: args.file.display().to_string(),
        cause,
    };
    let python = args
        .python
        .clone()
        .or_else(|| std::env::var_os(PYTHON).map(PathBuf::from));
    let mut peer = python
        .map(|python| Peer::start(&python, &args.file))
        .transpose()?;
    let mut sessions = Vec::new();
    let mut gflop = 0.0;
    for &storage in &args.storage {
        let options = LowerOptions {
            storage: storage.dtype(),
            ..LowerOptions::default()
        };
        let graph = lower(&model, &options).map_err(|cause| not_runnable(Box::new(cause)))?;
        gflop = graph.stats.gflop;
        for &threads in &args.threads {
            let session = Session::open(&graph, threads, storage);
            sessions.push(session.map_err(not_runnable)?);
        }
    }

    let runs = args.runs as usize;
    let mut theirs: Vec<(u16, Vec<f64>)> = args
        .threads
        .iter()
        .map(|&threads| (threads, Vec::new()))
        .collect();
    for round in 0..ROUNDS.min(runs) {
        let rounds = ROUNDS.min(runs);
        let now = runs * (round + 1) / rounds - runs * round / rounds;
        for session in &mut sessions {
            session
                .round(now)
                .map_err(|cause| not_runnable(Box::new(cause)))?;
        }
        if let Some(peer) = &mut peer {
            for (threads, seconds) in &mut theirs {
                seconds.extend(peer.seconds(*threads, now)?);
            }
        }
    }

    let of_peer = |threads: u16| {
        let (_, seconds) = theirs
            .iter()
            .find(|(count, seconds)| *count == threads && !seconds.is_empty())?;
        Some(Times::of(seconds.iter().copied()))
    };
    let outcome = Outcome {
        model: model.name().to_owned(),
        gflop,
        runs,
        onnx_runtime_version: peer.map(|peer| peer.version.clone()),
        rows: sessions
            .iter()
            .map(|session| session.row(of_peer(session.threads)))
            .collect(),
    };
    for session in sessions {
        session.close().map_err(|cause| not_runnable(Box::new(cause)))?;
    }
    report::print(&match args.format {
        Format::Text => text(&outcome),
        Format::Json => serde_json::to_string_pretty(&outcome).into_diagnostic()?,
    })?;
    Ok(ExitCode::SUCCESS)
}

fn text(outcome: &Outcome) -> String {
    let mut table = report::table();
    let peer = outcome.onnx_runtime_version.as_ref();
    let mut header = vec!["storage", "threads", "upload", "replay", "read", "total"];
    if peer.is_some() {
        header.extend(["ONNX Runtime", "ratio"]);
    }
    let columns = header.len();
    table.set_header(header);
    let times = |times: Times| format!("{:.3} / {:.3}", times.median_ms, times.fastest_ms);
    for row in &outcome.rows {
        let mut cells = vec![row.storage.name().to_owned(), row.threads.to_string()];
        cells.extend([row.upload, row.replay, row.read, row.total].map(times));
        if let (Some(peer), Some(median), Some(fastest)) =
            (row.onnx_runtime, row.ratio_median, row.ratio_fastest)
        {
            cells.extend([times(peer), format!("{median:.2} / {fastest:.2}")]);
        }
        table.add_row(cells);
    }
    for column in 1..columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let beside = peer.map_or_else(
        || "no Python given, so without ONNX Runtime".to_owned(),
        |version| format!("beside ONNX Runtime {version} in fp32; a ratio below 1 means that ours is faster"),
    );
    let device = outcome.rows.first().map_or("", |row| row.device.as_str());
    format!(
        "{}: {:.3} GFLOP, {device}\n{table}\nmilliseconds, median / fastest of {} runs, {beside}",
        outcome.model, outcome.gflop, outcome.runs
    )
}
