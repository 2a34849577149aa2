//! `sensorium bundle make`: a model of a pipeline file as a folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueHint;
use miette::{IntoDiagnostic, WrapErr, miette};
use serde_json::{Map, Value};

use super::{calibration, sample};
use crate::cli::pipeline_args::{self, chosen_model, key_value};
use crate::cli::report;
use crate::perception::bundle::{
    BUNDLE_FORMAT, Bundle, BundleFile, BundleSample, BundleSource, CALIBRATION_FOLDER, MANIFEST_FILE,
    Manifest, settings_sha256,
};
use crate::pipeline::{Family, Labels, ModelSettings, Overrides, Pipeline};
use crate::weights::{OnnxModel, file_sha256};

/// Makes a bundle of a model of a pipeline file: its settings, its files, and what it makes of samples.
///
/// The samples are run in fp32, and what is found is stored beside them. The folder must not be there yet, or be empty; it is
/// only there when everything is in it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sensorium bundle make bundles/centerpoint --from pipelines/centerpoint.yaml --bundle-version 1.0.0 --sample sweep.pcd
  sensorium bundle make bundles/yolox --from pipelines/yolox.yaml --set models.yolox_nano.weights=yolox_nano.onnx \\
    --licence Apache-2.0 --repository Megvii-BaseDetection/YOLOX --revision 0.1.1rc0 --sample street.jpg")]
pub(super) struct Args {
    /// The folder to make.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    dir: PathBuf,
    /// The pipeline file that has the model.
    #[arg(long, value_name = "PIPELINE", value_hint = ValueHint::FilePath)]
    from: PathBuf,
    /// Name of the model in the pipeline file. Left out: the only one.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Changes one value of the pipeline file. Can be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,
    /// Version of the bundle.
    #[arg(long, value_name = "VERSION", default_value = "0.1.0", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    bundle_version: String,
    /// Licence of the weights, as SPDX spells it.
    #[arg(long, value_name = "SPDX", default_value = "")]
    licence: String,
    /// Repository that the weights come from.
    #[arg(long, default_value = "")]
    repository: String,
    /// The revision of the repository.
    #[arg(long, default_value = "")]
    revision: String,
    /// A calibration preset: a JSON file with what is known of cameras, as a request of a service has it. A request names it by
    /// the file's name without .json. Can be given several times.
    #[arg(long, value_name = "FILE.json", value_hint = ValueHint::FilePath)]
    calibration: Vec<PathBuf>,
    /// A sample: a picture or a point cloud. Can be given several times.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    sample: Vec<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// A pipeline or a model that cannot be loaded, a sample that the model does not take, or a folder that cannot be written.
pub(super) fn run(args: &Args) -> miette::Result<ExitCode> {
    let overrides = Overrides {
        set: args.set.clone(),
        ..Overrides::default()
    };
    let pipeline = Pipeline::load(&args.from, &overrides)?;
    let (name, settings) = chosen_model(&pipeline, args.model.as_deref())?;
    let occupied = args.dir.symlink_metadata().is_ok();
    let empty = std::fs::read_dir(&args.dir).is_ok_and(|mut entries| entries.next().is_none());
    if occupied && !empty {
        return Err(miette!(
            help = "name another folder, or remove this one",
            "{} is there already",
            args.dir.display()
        ));
    }
    let staged = Staged::new(&args.dir)?;
    let manifest = fill(&staged, args, &pipeline, name, settings)?;
    let text = serde_json::to_string_pretty(&manifest).into_diagnostic()?;
    std::fs::write(staged.folder.join(MANIFEST_FILE), text + "\n")
        .into_diagnostic()
        .wrap_err("the manifest cannot be written")?;
    // What was written is what can be read.
    Bundle::open(&staged.folder)
        .and_then(|bundle| bundle.verify())
        .into_diagnostic()
        .wrap_err("the bundle that was made cannot be used")?;
    staged.finish(&args.dir, empty)?;
    report::print(&format!(
        "{} {}: {} file(s), {} sample(s) in {}",
        manifest.name,
        manifest.version,
        manifest.files.len(),
        manifest.samples.len(),
        args.dir.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Puts everything but the manifest into the folder.
fn fill(
    staged: &Staged,
    args: &Args,
    pipeline: &Pipeline,
    name: &str,
    settings: &ModelSettings,
) -> miette::Result<Manifest> {
    let mut files = BTreeMap::new();
    let model = pin(staged, settings, name, &mut files)?;
    let mut calibrations = BTreeMap::new();
    for path in &args.calibration {
        let wrong = || format!("the calibration {}", path.display());
        let bytes = std::fs::metadata(path)
            .into_diagnostic()
            .wrap_err_with(wrong)?
            .len();
        let most = calibration::MAX_CALIBRATION_BYTES;
        if bytes > most {
            return Err(miette!("{} is larger than {most} bytes", wrong()));
        }
        let text = std::fs::read(path).into_diagnostic().wrap_err_with(wrong)?;
        calibration::parse(&text)
            .map_err(|reason| miette!(help = calibration::FORM, "{}: {reason}", wrong()))?;
        let stem = stem(path)?;
        let target = format!("{CALIBRATION_FOLDER}/{stem}.json");
        staged.copy(path, &target, &mut files)?;
        calibrations.insert(stem, target);
    }
    let mut samples = Vec::new();
    if !args.sample.is_empty() {
        let device = pipeline.device.config(&pipeline_args::device_environment()?);
        let mut opened = sample::open(name, settings, &device)?;
        for path in &args.sample {
            let target = format!("samples/{}", file_name(path)?);
            let reference = format!("samples/{}.reference.json", stem(path)?);
            let found = sample::reference(&mut opened, settings, path)?;
            staged.copy(path, &target, &mut files)?;
            let text = serde_json::to_string_pretty(&found).into_diagnostic()?;
            staged.write(&reference, &(text + "\n"), &mut files)?;
            samples.push(BundleSample {
                sample: target,
                reference,
            });
        }
        opened.close().into_diagnostic()?;
    }
    Ok(Manifest {
        bundle: BUNDLE_FORMAT,
        name: name.to_owned(),
        version: args.bundle_version.clone(),
        created_by: concat!("sensorium ", env!("CARGO_PKG_VERSION")).to_owned(),
        source: BundleSource {
            repository: args.repository.clone(),
            revision: args.revision.clone(),
        },
        licence: args.licence.clone(),
        model_sha256: Some(settings_sha256(&model)),
        model,
        calibrations,
        samples,
        files,
    })
}

/// The model's settings as an entry of a pipeline file whose paths lie in the bundle, where its files are put.
fn pin(
    staged: &Staged,
    settings: &ModelSettings,
    name: &str,
    files: &mut BTreeMap<String, BundleFile>,
) -> miette::Result<Map<String, Value>> {
    if settings.weights.is_none() && !settings.family.is_seeded() {
        return Err(miette!(
            help = format!("give them with --set models.{name}.weights=FILE"),
            "the model `{name}` has no weights yet"
        ));
    }
    // Written and read again, so that a number in single precision is as short as in the pipeline file.
    let text = serde_json::to_string(settings).into_diagnostic()?;
    let mut model: Map<String, Value> = serde_json::from_str(&text).into_diagnostic()?;
    model.retain(|_, value| !value.is_null());
    model.remove("bundle");
    let mut put = |folder: &str, path: &Path| -> miette::Result<Value> {
        let target = format!("{folder}/{}", file_name(path)?);
        staged.copy(path, &target, files)?;
        if path.extension().is_some_and(|extension| extension == "onnx") {
            let beside = path.parent().unwrap_or_else(|| Path::new(""));
            let onnx = OnnxModel::open(path).into_diagnostic()?;
            for external in onnx.external_files() {
                staged.copy(&beside.join(external), &format!("{folder}/{external}"), files)?;
            }
        }
        Ok(Value::String(target))
    };
    if let Some(weights) = &settings.weights {
        model.insert("weights".to_owned(), put("weights", weights)?);
    }
    match &settings.family {
        Family::Yolox(camera) | Family::FastestDet(camera) => {
            let labels = match &camera.labels {
                Labels::Coco80 => Value::String("coco80".to_owned()),
                Labels::File(path) => put("labels", path)?,
            };
            model.insert("labels".to_owned(), labels);
        }
        Family::CenterPoint(lidar) => {
            if let Some(encoder) = &lidar.encoder {
                model.insert("encoder".to_owned(), put("weights", encoder)?);
            }
            let params = lidar.params.iter().map(|path| put("params", path));
            let params = params.collect::<miette::Result<Vec<_>>>()?;
            model.insert("params".to_owned(), Value::Array(params));
        }
        // Their weights come out of a seed, which is among the settings.
        Family::BevRing(_) | Family::StreamQueries(_) => {}
    }
    Ok(model)
}

fn file_name(path: &Path) -> miette::Result<String> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.map(str::to_owned)
        .ok_or_else(|| miette!("{} has no name that can be kept", path.display()))
}

fn stem(path: &Path) -> miette::Result<String> {
    let stem = path.file_stem().and_then(|name| name.to_str());
    stem.map(str::to_owned)
        .ok_or_else(|| miette!("{} has no name that can be kept", path.display()))
}

/// A bundle that is not finished; it goes when it is dropped.
struct Staged {
    folder: PathBuf,
}

impl Staged {
    /// A folder beside the one that is wanted, so that it can be renamed.
    fn new(wanted: &Path) -> miette::Result<Self> {
        let name = file_name(wanted)?;
        let folder = wanted.with_file_name(format!(".{name}.{}.partial", std::process::id()));
        std::fs::create_dir_all(&folder)
            .into_diagnostic()
            .wrap_err_with(|| format!("{} cannot be made", folder.display()))?;
        Ok(Self { folder })
    }

    /// The place of a new file.
    fn place(&self, name: &str, files: &BTreeMap<String, BundleFile>) -> miette::Result<PathBuf> {
        if files.contains_key(name) {
            return Err(miette!("two files of the bundle would be called {name}"));
        }
        let path = self.folder.join(name);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).into_diagnostic()?;
        }
        Ok(path)
    }

    fn copy(&self, from: &Path, name: &str, files: &mut BTreeMap<String, BundleFile>) -> miette::Result<()> {
        let path = self.place(name, files)?;
        std::fs::copy(from, &path)
            .into_diagnostic()
            .wrap_err_with(|| format!("{} cannot be copied", from.display()))?;
        files.insert(name.to_owned(), listed(&path)?);
        Ok(())
    }

    fn write(&self, name: &str, text: &str, files: &mut BTreeMap<String, BundleFile>) -> miette::Result<()> {
        let path = self.place(name, files)?;
        std::fs::write(&path, text)
            .into_diagnostic()
            .wrap_err_with(|| format!("{name} cannot be written"))?;
        files.insert(name.to_owned(), listed(&path)?);
        Ok(())
    }

    fn finish(self, wanted: &Path, there_and_empty: bool) -> miette::Result<()> {
        if there_and_empty {
            std::fs::remove_dir(wanted).into_diagnostic()?;
        }
        std::fs::rename(&self.folder, wanted)
            .into_diagnostic()
            .wrap_err_with(|| format!("{} cannot be put in place", wanted.display()))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // After it was put in place there is nothing left of it.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn listed(path: &Path) -> miette::Result<BundleFile> {
    let bytes = std::fs::metadata(path).into_diagnostic()?.len();
    Ok(BundleFile {
        sha256: file_sha256(path).into_diagnostic()?,
        bytes,
    })
}
