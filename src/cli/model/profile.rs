//! `sensorium model profile`: where the time of a model goes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::ValueHint;
use miette::{Diagnostic, IntoDiagnostic};

use crate::cli::pipeline_args::Format;
use crate::cli::report;
use crate::device::cpu::measure_peak;
use crate::device::{CpuConfig, CpuDevice, Cq, Device};
use crate::models::{ForwardError, LoadedGraph, LowerOptions, LoweredGraph, Step, lower};
use crate::numeric::{Fp8Policy, Isa};
use crate::telemetry::profile::{ModelProfile, ProfileError, ProfileOptions, profile_variant};
use crate::telemetry::report::profile_svg;
use crate::tensor::{DType, HostTensor, TensorError, TensorSpec};
use crate::trace::{InputId, TraceError, TraceOptions, TraceRunner, VariantId};
use crate::weights::OnnxModel;

/// Longest wait for one frame: nobody else waits for the device.
const DEADLINE: Duration = Duration::from_secs(600);
/// Time for each of the machine's speeds.
const PEAK_TIME: Duration = Duration::from_millis(150);

/// Measures where the time of an ONNX model goes on the CPU device.
///
/// The model is lowered, captured and replayed with inputs of random numbers from 0 to 1 (whole numbers: 0). Told are the
/// stages of a frame, every launch of the trace with its time, arithmetic and memory traffic, its share of what this machine
/// was measured to do at best, the gaps between launches, and the processor's frequency and temperature where the system
/// shows them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sensorium model profile yolox_nano_416.onnx --threads 1 --picture profile.svg
  sensorium model profile yolox_nano_416.onnx --storage bfloat16 --format json")]
pub(super) struct Args {
    /// The model, an .onnx file.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Frames that are measured.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    frames: u32,
    /// Frames before them that are not.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    warmup: u32,
    /// Threads of the device; 0 is one for each of the machine's.
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,
    /// Type of weights and intermediates: float32 or bfloat16.
    #[arg(long, value_name = "TYPE", default_value_t = DType::F32, value_parser = DType::named)]
    storage: DType,
    /// Longest launches, and longest gaps, that are told.
    #[arg(long, value_name = "N", default_value_t = 15)]
    top: usize,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Also writes it as JSON.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    json: Option<PathBuf>,
    /// Also draws it, as SVG.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    picture: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error, Diagnostic)]
enum CannotProfile {
    #[error("{} cannot be profiled", file.display())]
    #[diagnostic(help(
        "Only what can be imported runs: `sensorium model info {}` says what stands in the way. Inputs need fixed sizes.",
        file.display()
    ))]
    Import {
        file: PathBuf,
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("{} cannot be run", file.display())]
    #[diagnostic(help(
        "The device said why. A network that is too large for it needs more memory than this machine lends."
    ))]
    Run {
        file: PathBuf,
        #[source]
        cause: Box<RunError>,
    },
    #[error("{} cannot be written", file.display())]
    #[diagnostic(help("Give a file in a folder that exists and can be written."))]
    Write {
        file: PathBuf,
        #[source]
        cause: std::io::Error,
    },
    #[error("weights and intermediates cannot be {0}")]
    #[diagnostic(help("Give float32 or bfloat16."))]
    Storage(DType),
}

#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(transparent)]
    Device(#[from] crate::device::DeviceError),
    #[error(transparent)]
    Forward(#[from] ForwardError),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(transparent)]
    Tensor(#[from] TensorError),
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

/// Runs the command.
///
/// # Errors
/// A file that is no model or cannot be imported, a network that does not run, a file that cannot be written.
pub(super) fn run(args: &Args) -> miette::Result<()> {
    if !matches!(args.storage, DType::F32 | DType::Bf16) {
        return Err(CannotProfile::Storage(args.storage).into());
    }
    let model = OnnxModel::open(&args.file).map_err(|cause| super::no_model(&args.file, cause))?;
    let options = LowerOptions {
        storage: args.storage,
        ..LowerOptions::default()
    };
    let graph = lower(&model, &options).map_err(|cause| CannotProfile::Import {
        file: args.file.clone(),
        cause: Box::new(cause),
    })?;
    let profile = measured(graph, args).map_err(|cause| CannotProfile::Run {
        file: args.file.clone(),
        cause: Box::new(cause),
    })?;
    let json = serde_json::to_string_pretty(&profile).into_diagnostic()?;
    if let Some(file) = &args.json {
        write(file, &format!("{json}\n"))?;
    }
    if let Some(file) = &args.picture {
        write(file, &profile_svg(&profile, args.top))?;
    }
    report::print(&match args.format {
        Format::Text => profile.table(args.top),
        Format::Json => json,
    })
}

fn write(file: &Path, text: &str) -> Result<(), CannotProfile> {
    std::fs::write(file, text).map_err(|cause| CannotProfile::Write {
        file: file.to_owned(),
        cause,
    })
}

fn measured(graph: LoweredGraph, args: &Args) -> Result<ModelProfile, RunError> {
    let hardware = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if args.threads == 0 { hardware } else { args.threads };
    let bytes = |specs: &mut dyn Iterator<Item = TensorSpec>| specs.map(|spec| spec.bytes()).sum::<usize>();
    let buffers = bytes(&mut graph.buffers.iter().map(|buffer| buffer.spec));
    let inputs = bytes(&mut graph.inputs.iter().map(|input| input.spec));
    let parameters = 4 * graph.stats.parameters as usize;
    let mut device = CpuDevice::open(&CpuConfig {
        threads,
        // Twice for outputs and weights that a kernel pads, and no less than usual.
        arena_bytes: (2 * (buffers + inputs + parameters)).max(CpuConfig::default().arena_bytes),
        ..CpuConfig::default()
    })?;
    let names: Vec<String> = graph.steps.iter().filter_map(launch_name).collect();
    let model = graph.model.clone();
    let peak = measure_peak(threads, Isa::detect(), PEAK_TIME);
    let (mut runner, variant, inputs) = captured(graph, &mut device)?;
    let tensors: Vec<(InputId, HostTensor)> = inputs
        .into_iter()
        .map(|(id, spec)| Ok((id, random(spec)?)))
        .collect::<Result<_, TensorError>>()?;
    let bound: Vec<(InputId, &HostTensor)> = tensors.iter().map(|(id, tensor)| (*id, tensor)).collect();
    let options = ProfileOptions {
        frames: args.frames as usize,
        warmup: args.warmup as usize,
        top_gaps: args.top,
        ..ProfileOptions::default()
    };
    let storage = args.storage.to_string();
    let profile = profile_variant(
        &mut runner,
        &mut device,
        variant,
        &bound,
        None,
        Some(peak),
        [&model, &storage],
        &options,
    )?;
    device.close();
    Ok(profile.named(&names))
}

fn launch_name(step: &Step) -> Option<String> {
    match step {
        Step::Launch(launch) => Some(launch.name.clone()),
        Step::Alloc(_) | Step::Free(_) => None,
    }
}

/// The inputs of a captured network with what they hold.
type Inputs = Vec<(InputId, TensorSpec)>;

fn captured(
    graph: LoweredGraph,
    device: &mut dyn Device,
) -> Result<(TraceRunner, VariantId, Inputs), RunError> {
    let network = Arc::new(LoadedGraph::prepare(graph, device, Cq::COMPUTE)?);
    let options = TraceOptions {
        deadline: DEADLINE,
        ..TraceOptions::default()
    };
    let mut runner = TraceRunner::new(network.model(), options)?;
    let mut inputs = Inputs::new();
    for plan in network.inputs() {
        inputs.push((runner.add_input(device, &plan.name, plan.spec, None)?, plan.spec));
    }
    for plan in network.outputs() {
        runner.add_output(device, &plan.name, plan.spec)?;
    }
    let forward = Arc::clone(&network);
    let variant = runner.add_variant(
        device,
        "default",
        Box::new(move |context| {
            let inputs = forward.inputs().iter().map(|plan| context.input(&plan.name));
            let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
            let mut outputs = Vec::new();
            for plan in forward.outputs() {
                outputs.push(context.output(&plan.name)?);
            }
            forward.forward_into(context.ops(), &inputs, &outputs)?;
            let names = forward.outputs().iter().map(|plan| plan.name.clone());
            Ok(names.zip(outputs).collect())
        }),
    )?;
    runner.capture(device)?;
    Ok((runner, variant, inputs))
}

/// Numbers from 0 to 1 for floats, the same in every run; zeros for whole numbers, which may be indices.
fn random(spec: TensorSpec) -> Result<HostTensor, TensorError> {
    if !matches!(spec.dtype, DType::F32 | DType::F16 | DType::Bf16) {
        return Ok(HostTensor::zeros(spec));
    }
    let mut state = 1_u64;
    let values: Vec<f32> = (0..spec.shape.elements())
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as f32 / (1_u64 << 24) as f32
        })
        .collect();
    HostTensor::from_f32(&spec.shape, &values, spec.dtype, &Fp8Policy::default())
}
