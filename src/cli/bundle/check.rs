//! `sensorium bundle check`: whether a bundle is what it was when it was made.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueHint;
use miette::{IntoDiagnostic, WrapErr, miette};
use serde_json::{Value, json};

use super::{calibration, origin, sample};
use crate::cli::pipeline_args::{self, Format};
use crate::cli::report;
use crate::device::DeviceConfig;
use crate::perception::bundle::{Bundle, BundleFinding, FindingKind};
use crate::pipeline::{Overrides, Pipeline};

/// Largest reference that is read, in bytes.
const MAX_REFERENCE_BYTES: u64 = 64 << 20;

/// Tells whether a bundle is what it was when it was made, a line for each thing that is not.
///
/// `modified` files and settings, `missing` and `extra` files, `unsafe` names and links, and `invalid` calibrations are errors:
/// the exit code is 1. `outdated` (another bundle is newer), `changed` (it is something else under the same version) and
/// `unverified` (nobody can tell where something comes from, or whether it is as it was) are warnings.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sensorium bundle check bundles/centerpoint
  sensorium bundle check bundles/centerpoint --run
  sensorium bundle check bundles/centerpoint --against /mnt/release/centerpoint --strict
  sensorium bundle check bundles/centerpoint --source ~/checkouts/centerpoint-weights")]
pub(super) struct Args {
    /// The bundle.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    dir: PathBuf,
    /// Another bundle that this one should not be older than, nor something else under the same version. Versions are numbers
    /// with dots between them, such as 1.10.0, and 1.10.0-rc.1 before it.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    against: Option<PathBuf>,
    /// Git checkout of the repository that the weights come from: files of the bundle have to be what files of that name are at
    /// the recorded revision. Nothing is fetched.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    source: Option<PathBuf>,
    /// Runs the model on the samples, in fp32, and compares what it finds to what is stored.
    #[arg(long)]
    run: bool,
    /// Takes warnings for errors, as before a release.
    #[arg(long)]
    strict: bool,
    /// Form of the result.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Runs the command.
///
/// # Errors
/// A bundle that cannot be read.
pub(super) fn run(args: &Args) -> miette::Result<ExitCode> {
    let bundle = Bundle::open(&args.dir).into_diagnostic()?;
    let against = args
        .against
        .as_deref()
        .map(Bundle::open)
        .transpose()
        .into_diagnostic()?;
    let mut found = bundle.check(against.as_ref()).into_diagnostic()?;
    found.extend(calibration::check(&bundle, &found)?);
    if let Some(checkout) = &args.source {
        found.extend(origin::check(&bundle, checkout)?);
    }
    if args.run {
        // A bundle that was changed is not run: what is stored says nothing about it.
        if found.iter().all(|finding| finding.kind.is_warning()) {
            found.extend(run_samples(&bundle)?);
        } else {
            tracing::warn!("the samples are not run: the bundle was changed");
        }
    }
    let manifest = bundle.manifest();
    let bad = |finding: &&BundleFinding| args.strict || !finding.kind.is_warning();
    let errors = found.iter().filter(bad).count();
    report::print(&match args.format {
        Format::Text => {
            let mut lines: Vec<String> = found.iter().map(ToString::to_string).collect();
            let state = match (errors, found.len()) {
                (0, 0) => "is what it was made".to_owned(),
                (0, warnings) => format!("is what it was made; {warnings} warning(s)"),
                (errors, _) => format!("has {errors} error(s)"),
            };
            lines.push(format!(
                "{} {}, {} file(s): {state}",
                manifest.name,
                manifest.version,
                manifest.files.len()
            ));
            lines.join("\n")
        }
        Format::Json => {
            let document = json!({
                "ok": errors == 0,
                "name": manifest.name,
                "version": manifest.version,
                "findings": found,
            });
            serde_json::to_string_pretty(&document).into_diagnostic()?
        }
    })?;
    Ok(if errors == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Samples of which the model makes something else than what is stored.
fn run_samples(bundle: &Bundle) -> miette::Result<Vec<BundleFinding>> {
    let name = "model";
    // The manifest is understood as every pipeline file understands it.
    let path = std::path::absolute(bundle.folder()).into_diagnostic()?;
    let text = serde_json::to_string(&json!({
        "pipeline": "bundle",
        "models": { name: { "type": "bundle", "path": path } },
        "nodes": {
            "source": { "kind": "source" },
            "detector": { "kind": "detector", "model": name, "input": "source" },
        },
    }))
    .into_diagnostic()?;
    let environment = |_: &str| Err(std::env::VarError::NotPresent);
    let pipeline = Pipeline::parse(Path::new("bundle"), text, &Overrides::default(), &environment)?;
    let device = DeviceConfig::from_layers([&pipeline_args::device_environment()?]);
    let settings = &pipeline.models[name];
    let mut model = sample::open(&bundle.manifest().name, settings, &device)?;
    let mut found = Vec::new();
    for sample in &bundle.manifest().samples {
        let stored = read_json(&bundle.folder().join(&sample.reference))?;
        let made = sample::reference(&mut model, settings, &bundle.folder().join(&sample.sample))?;
        for difference in sample::differences(&stored, &made) {
            found.push(BundleFinding {
                kind: FindingKind::Modified,
                path: sample.sample.clone(),
                detail: format!("gives other results: {difference}"),
            });
        }
    }
    model.close().into_diagnostic()?;
    Ok(found)
}

fn read_json(path: &Path) -> miette::Result<Value> {
    let wrong = || format!("the reference {}", path.display());
    let bytes = std::fs::metadata(path)
        .into_diagnostic()
        .wrap_err_with(wrong)?
        .len();
    if bytes > MAX_REFERENCE_BYTES {
        return Err(miette!("{} is larger than {MAX_REFERENCE_BYTES} bytes", wrong()));
    }
    let text = std::fs::read(path).into_diagnostic().wrap_err_with(wrong)?;
    serde_json::from_slice(&text)
        .into_diagnostic()
        .wrap_err_with(wrong)
}
