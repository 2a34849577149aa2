//! `sensorium device`: which device a run would use, and whether it keeps its promises.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Subcommand;
use miette::{Diagnostic, IntoDiagnostic};
use serde_json::{Value, json};

use super::pipeline_args::{Format, device_environment};
use super::report;
use crate::device::conformance::{CHECKS, Outcome, Report};
use crate::device::{Backends, DeviceConfig, DeviceLayer, OpenError, OpenedDevice};

/// Opens the device and shows what it can do: queues, memory, the room for traces.
///
/// The environment and the options below decide which one and how, as for a run; a pipeline file has no say.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  sensorium device --threads 2
  sensorium device check --backend cpu --queues 1"
)]
pub(super) struct Args {
    #[command(flatten)]
    device: DeviceArgs,
    /// Form of the result.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(subcommand)]
    command: Option<DeviceCommand>,
}

#[derive(Debug, Subcommand)]
enum DeviceCommand {
    /// Runs the conformance suite: every promise that a device makes, one by one.
    ///
    /// What a device cannot do is skipped with the reason. The exit code is 1 if a promise is broken. Unless it is
    /// told otherwise, the device has little memory and a small trace region, for checks that fill them.
    Check {
        #[command(flatten)]
        device: DeviceArgs,
        /// Form of the result.
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
}

/// Settings of the device, as in a pipeline file.
#[derive(Debug, clap::Args)]
struct DeviceArgs {
    /// Which backend.
    #[arg(long, value_name = "NAME", value_parser = setting("backend"))]
    backend: Option<DeviceLayer>,
    /// Threads that compute: a number, or `auto`.
    #[arg(long, value_name = "N", value_parser = setting("threads"))]
    threads: Option<DeviceLayer>,
    /// Command queues.
    #[arg(long, value_name = "N", value_parser = setting("queues"))]
    queues: Option<DeviceLayer>,
    /// Device memory in MiB.
    #[arg(long, value_name = "MIB", value_parser = setting("arena_mib"))]
    arena_mib: Option<DeviceLayer>,
    /// Memory that all traces together may take in MiB.
    #[arg(long, value_name = "MIB", value_parser = setting("trace_region_mib"))]
    trace_region_mib: Option<DeviceLayer>,
    /// Which sums convolutions of bf16 have: `auto`, those of the fastest instruction of the processor, or `off`, those
    /// of fp32, the same on every processor.
    #[arg(long, value_name = "WORD", value_parser = setting("bf16_dot"))]
    bf16_dot: Option<DeviceLayer>,
    /// Take the CPU device if the backend cannot be opened.
    #[arg(long)]
    allow_fallback: bool,
}

/// Reads one setting, with the rules of a pipeline file and of the environment.
fn setting(key: &'static str) -> impl Fn(&str) -> Result<DeviceLayer, String> + Clone + Send + Sync {
    move |text| {
        let mut layer = DeviceLayer::default();
        layer
            .set(key, text, &Backends::builtin())
            .map_err(|expected| format!("expected {expected}"))?;
        Ok(layer)
    }
}

/// Sizes that a check fills in a moment.
const SMALL: DeviceLayer = DeviceLayer {
    backend: None,
    threads: None,
    queues: None,
    arena_mib: Some(64),
    trace_region_mib: Some(2),
    spin_us: None,
    allow_fallback: None,
    bf16_dot: None,
};

impl DeviceArgs {
    /// The configuration that `base`, the environment and these options make, the later over the earlier.
    fn config(&self, base: DeviceLayer) -> miette::Result<DeviceConfig> {
        let flag = DeviceLayer {
            allow_fallback: self.allow_fallback.then_some(true),
            ..DeviceLayer::default()
        };
        let given = [
            &self.backend,
            &self.threads,
            &self.queues,
            &self.arena_mib,
            &self.trace_region_mib,
            &self.bf16_dot,
        ];
        let environment = device_environment()?;
        let layers = [&base, &environment]
            .into_iter()
            .chain(given.into_iter().flatten())
            .chain([&flag]);
        Ok(DeviceConfig::from_layers(layers))
    }
}

#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("there is no device to show")]
#[diagnostic(help(
    "`sensorium device --help` lists the settings; SENSORIUM_DEVICE_* variables are settings, too"
))]
struct NoDevice(#[source] OpenError);

/// Runs the command.
///
/// # Errors
/// The device cannot be opened.
pub(super) fn run(args: Args) -> miette::Result<ExitCode> {
    let backends = Backends::builtin();
    match args.command {
        None => {
            let opened = open(&backends, &args.device.config(DeviceLayer::default())?)?;
            report::print(&match args.format {
                Format::Text => text(&opened, &backends),
                Format::Json => pretty(&machine_readable(&opened, &backends))?,
            })?;
            Ok(ExitCode::SUCCESS)
        }
        Some(DeviceCommand::Check { device, format }) => {
            let (printed, code) = check(&backends, &device.config(SMALL)?, format)?;
            report::print(&printed)?;
            Ok(code)
        }
    }
}

fn open(backends: &Backends, config: &DeviceConfig) -> miette::Result<OpenedDevice> {
    Ok(backends.open(config).map_err(NoDevice)?)
}

fn pretty(value: &Value) -> miette::Result<String> {
    serde_json::to_string_pretty(value).into_diagnostic()
}

fn machine_readable(opened: &OpenedDevice, backends: &Backends) -> Value {
    let known: Vec<&str> = backends.iter().map(|backend| backend.name).collect();
    json!({ "device": opened.describe(), "backends": known })
}

fn text(opened: &OpenedDevice, backends: &Backends) -> String {
    let device = opened.device.as_ref();
    let (caps, memory) = (device.caps(), device.memory());
    let mut facts = report::table();
    let mut fact = |name: &str, value: String| {
        facts.add_row([name, &value]);
    };
    fact("device", format!("{}: {}", opened.choice, caps.description));
    let wait = if caps.device_side_wait {
        "wait for each other on the device"
    } else {
        "wait for each other through the host"
    };
    fact(
        "queues",
        format!("{}, {} commands each, {wait}", caps.queues, caps.queue_depth),
    );
    fact("memory", budget(caps.memory_bytes, memory.used_bytes));
    fact("traces", budget(caps.trace_region_bytes, memory.trace_bytes));
    fact("alignment", format!("{} bytes", caps.alignment));
    let dtypes: Vec<String> = caps.dtypes.iter().map(ToString::to_string).collect();
    fact("types", dtypes.join(", "));
    let known: Vec<&str> = backends.iter().map(|backend| backend.name).collect();
    fact("backends", known.join(", "));
    facts.to_string()
}

fn budget(bytes: usize, used: usize) -> String {
    format!("{} MiB, {used} bytes in use", bytes >> 20)
}

/// Runs the conformance suite; what to print, and how the command ends.
fn check(backends: &Backends, config: &DeviceConfig, format: Format) -> miette::Result<(String, ExitCode)> {
    // A backend that cannot be opened conforms to nothing, whatever may take its place in a run.
    let config = DeviceConfig {
        allow_fallback: false,
        ..*config
    };
    let opened = open(backends, &config)?;
    let (caps, description) = (opened.device.caps().clone(), opened.describe());
    drop(opened);
    let mut another = || match backends.open(&config) {
        Ok(opened) => Ok(opened.device),
        Err(OpenError::Refused { source, .. }) => Err(*source),
        Err(other) => Err(crate::device::DeviceError::Config(other.to_string())),
    };
    let reports: Vec<Report> = CHECKS
        .iter()
        .map(|check| check.run(&caps, &mut another))
        .collect();
    let tally = Tally::of(&reports);
    let printed = match format {
        Format::Text => {
            let device = format!("{}: {}", caps.backend, caps.description);
            format!("{device}\n\n{}\n{tally}", check_table(&reports))
        }
        Format::Json => pretty(&json!({
            "device": description,
            "checks": reports.iter().map(record).collect::<Vec<_>>(),
            "passed": tally.passed,
            "failed": tally.failed,
            "skipped": tally.skipped,
        }))?,
    };
    let code = if tally.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    };
    Ok((printed, code))
}

#[derive(Debug, Default)]
struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Tally {
    fn of(reports: &[Report]) -> Self {
        let mut tally = Self::default();
        for report in reports {
            *match report.outcome {
                Outcome::Passed => &mut tally.passed,
                Outcome::Failed(_) => &mut tally.failed,
                Outcome::Skipped(_) => &mut tally.skipped,
            } += 1;
        }
        tally
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            passed,
            failed,
            skipped,
        } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

fn check_table(reports: &[Report]) -> String {
    let mut table = report::table();
    table.set_header(["promise", "check", "result", "ms"]);
    let mut rule = "";
    let mut notes = String::new();
    for report in reports {
        let name = report.check.name.replace('_', " ");
        let (result, note) = match &report.outcome {
            Outcome::Passed => ("passed", None),
            Outcome::Skipped(reason) => ("skipped", Some(reason.clone())),
            Outcome::Failed(failure) => ("FAILED", Some(failure.to_string())),
        };
        if let Some(note) = note {
            // Writing to a string cannot fail.
            let _ = writeln!(notes, "{result}: {name}: {note}");
        }
        let head = if rule == report.check.rule {
            ""
        } else {
            report.check.rule
        };
        rule = report.check.rule;
        let ms = format!("{:.1}", report.took.as_secs_f64() * 1e3);
        table.add_row([head, &name, result, &ms]);
    }
    format!("{table}\n{notes}")
}

fn record(report: &Report) -> Value {
    let (result, reason) = match &report.outcome {
        Outcome::Passed => ("passed", None),
        Outcome::Skipped(reason) => ("skipped", Some(reason.clone())),
        Outcome::Failed(failure) => ("failed", Some(failure.to_string())),
    };
    json!({
        "check": report.check.name,
        "promise": report.check.rule,
        "result": result,
        "reason": reason,
        "ms": report.took.as_secs_f64() * 1e3,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Backend, CpuConfig, CpuDevice};

    #[test]
    fn a_broken_promise_is_shown_and_sets_the_exit_code() {
        let mut backends = Backends::builtin();
        backends.register(Backend {
            name: "careless",
            about: "A CPU device that replays whatever the replay may destroy.",
            runs_alone: true,
            open: |config| {
                let config = CpuConfig {
                    track_allocations: false,
                    ..CpuConfig::from(config)
                };
                Ok(Box::new(CpuDevice::open(&config)?))
            },
        });
        let layer = DeviceLayer {
            backend: Some(backends.named("careless").unwrap()),
            arena_mib: Some(16),
            trace_region_mib: Some(1),
            queues: Some(1),
            ..DeviceLayer::default()
        };
        let config = DeviceConfig::default().with(&layer);
        let (printed, code) = check(&backends, &config, Format::Text).unwrap();
        assert_eq!(code, ExitCode::FAILURE);
        assert!(
            printed.contains("FAILED: a replay is refused while a later buffer is alive: "),
            "{printed}"
        );
        assert!(
            printed.contains("skipped: an event makes one queue wait for another: it has one command queue"),
            "{printed}"
        );
        let (printed, code) = check(&backends, &config, Format::Json).unwrap();
        let document: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(code, ExitCode::FAILURE);
        assert!(document["failed"].as_u64() >= Some(3), "{printed}");
        assert_eq!(document["checks"].as_array().unwrap().len(), CHECKS.len());
    }
}
