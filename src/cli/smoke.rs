//! `sensorium smoke`: checks a service.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueHint;
use miette::{IntoDiagnostic, WrapErr, miette};
use serde_json::{Map, Value};

use super::{report, token};
use crate::io::forms::BodyForm;
use crate::perception::bundle::{Bundle, BundleSample, compare, pinned};
use crate::server::client::{
    Client, Expected, Gates, RequestParts, build_request, check_bad_request, check_service,
    compare_with_reference, find_reference,
};

/// Checks a service: waits until it has its model, holds what it says of itself against what is expected, sends a frame,
/// holds the answer against a stored one, and sends requests that it has to refuse.
///
/// The stored answer is FILE.reference.json beside the frame (FILE without its extension; FILE.VARIANT.reference.json goes
/// before it), or the one that --reference names. The line that is printed says where no frame was sent, or no stored answer
/// compared. The exit code is 0 if everything is as it has to be, 1 otherwise.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sensorium smoke http://127.0.0.1:8000
  sensorium smoke http://127.0.0.1:8000 --points sweep.pcd --param score_threshold=0.4
  sensorium smoke http://127.0.0.1:8000 --bundle bundles/centerpoint
  sensorium smoke http://127.0.0.1:8000 --points sweep.npz --reference sweep.reference.json --gate min_recall=0.9")]
pub(super) struct Args {
    /// The service.
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    url: String,
    /// Points to send: a .bin, .npy, .npz or .pcd file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["image", "inputs"])]
    points: Option<PathBuf>,
    /// Names of the points' columns, such as x,y,z,intensity.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "points")]
    fields: Option<Vec<String>>,
    /// Image to send: FILE or CAMERA=FILE. Can be given several times.
    #[arg(long, value_name = "[CAMERA=]FILE", value_hint = ValueHint::FilePath, conflicts_with = "inputs")]
    image: Vec<String>,
    /// NumPy archive of plain arrays to send.
    #[arg(long, value_name = "FILE.npz", value_hint = ValueHint::FilePath)]
    inputs: Option<PathBuf>,
    /// Calibration of the cameras: a JSON file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "image")]
    calib: Option<PathBuf>,
    /// Name of a calibration that the service has.
    #[arg(long, value_name = "NAME", requires = "image")]
    calib_preset: Option<String>,
    /// Parameter of the call. Can be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = param)]
    param: Vec<(String, Value)>,
    /// Stream that the frame belongs to.
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
    /// The stream begins anew.
    #[arg(long, requires = "stream")]
    reset: bool,
    /// Arrays of the answer as NumPy archives.
    #[arg(long)]
    npz: bool,
    /// Stored answer.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    reference: Option<PathBuf>,
    /// A limit of the comparison, such as min_recall=0.9. Can be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = gate)]
    gate: Vec<(String, f64)>,
    /// Bundle that the service has to run: what it pins is compared to what the service tells of itself. Without a frame of
    /// its own, the samples of the bundle are sent; a bundle that has none fails.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    bundle: Option<PathBuf>,
    /// Name that the model has to have.
    #[arg(long, value_name = "NAME")]
    expect_model: Option<String>,
    /// Backend that the device has to be.
    #[arg(long, value_name = "NAME")]
    expect_backend: Option<String>,
    /// Variant that has to be there.
    #[arg(long, value_name = "NAME")]
    expect_variant: Option<String>,
    /// SHA-256 that the weights have to have.
    #[arg(long, value_name = "HEX")]
    expect_weights: Option<String>,
    /// How long to wait for the model, in seconds.
    #[arg(long, value_name = "S", default_value_t = 60)]
    wait_s: u32,
    /// Longest time for one answer, in seconds.
    #[arg(long, value_name = "S", default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..))]
    timeout_s: u32,
    /// File with the bearer token; without it, SENSORIUM_TOKEN if that is set.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    token_file: Option<PathBuf>,
    /// Writes the answer into this file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: Option<PathBuf>,
}

fn param(text: &str) -> Result<(String, Value), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => {
            let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
            Ok((name.to_owned(), value))
        }
        _ => Err("expected NAME=VALUE, such as score_threshold=0.4".to_owned()),
    }
}

fn gate(text: &str) -> Result<(String, f64), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("expected NAME=VALUE, such as min_recall=0.9")?;
    let value: f64 = value.parse().map_err(|_| format!("{value:?} is no number"))?;
    Gates::default()
        .set(name, value)
        .map_err(|error| error.to_string())?;
    Ok((name.to_owned(), value))
}

/// Runs the command.
///
/// # Errors
/// A service that does not answer, and files that cannot be read or written.
pub(super) fn run(args: &Args) -> miette::Result<ExitCode> {
    let timeout = Duration::from_secs(args.timeout_s.into());
    let client = Client::new(
        &args.url,
        token::token(args.token_file.as_deref(), token::SERVICE)?,
        timeout,
    );
    let health = client
        .wait_ready(Duration::from_secs(args.wait_s.into()))
        .into_diagnostic()?;
    let expected = Expected {
        model: args.expect_model.clone(),
        backend: args.expect_backend.clone(),
        variant: args.expect_variant.clone(),
        weights_sha256: args.expect_weights.clone(),
    };
    let (info, mut failures) = check_service(&client, &expected).into_diagnostic()?;
    let bundle = args.bundle.as_deref().map(opened).transpose()?;
    if let Some(bundle) = &bundle {
        failures.extend(compare(&info, &pinned(bundle.manifest())));
    }
    let mut frames: Vec<Frame> = given(args).into_iter().collect();
    let mut unsampled = None;
    if let Some(bundle) = bundle.filter(|_| frames.is_empty()) {
        frames = samples(&bundle, &info, args);
        unsampled = frames.is_empty().then(|| {
            miette!(
                help = "make it with --sample FILE, or send a frame with --points, --image or --inputs",
                "the bundle {} has no samples: no stored answer was compared",
                bundle.folder().display()
            )
        });
    }
    if frames.is_empty() && args.reference.is_some() {
        return Err(miette!(
            help = "send a frame with --points, --image or --inputs",
            "a stored answer is of no use without a frame"
        ));
    }
    let mut summary = Vec::new();
    if frames.is_empty() {
        summary.push("(no frame was sent)".to_owned());
    }
    for frame in &frames {
        ask(&client, args, frame, &info, &mut summary, &mut failures)?;
    }
    failures.extend(check_bad_request(&client).into_diagnostic()?);
    let model = health.model.unwrap_or_default();
    let fine = failures.is_empty() && unsampled.is_none();
    let verdict = if fine { "ok" } else { "FAILED" };
    let line = format!("{model}: {verdict} {}", summary.join(" "));
    report::print(line.trim_end())?;
    for failure in failures {
        report::show(&miette!("{failure}"));
    }
    if let Some(unsampled) = unsampled {
        report::show(&unsampled);
    }
    Ok(if fine {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// A frame to send, and the answer that is stored for it.
struct Frame {
    parts: RequestParts,
    /// The file beside which a stored answer is looked for.
    sample: PathBuf,
    /// The stored answer, where it is known.
    reference: Option<PathBuf>,
    /// Whether the stored answer is of a bundle, whose model may be called otherwise here.
    of_bundle: bool,
}

/// The bundle of a folder, if it is what it was when it was made.
fn opened(folder: &Path) -> miette::Result<Bundle> {
    let bundle = Bundle::open(folder).into_diagnostic()?;
    bundle.verify().into_diagnostic()?;
    Ok(bundle)
}

/// The frame of the command line.
fn given(args: &Args) -> Option<Frame> {
    let images: Vec<_> = args.image.iter().map(|text| image(text)).collect();
    let files = [&args.points, &args.inputs].into_iter().flatten();
    let sample = files.chain(images.first().map(|(_, path)| path)).next()?.clone();
    Some(Frame {
        parts: RequestParts {
            points: args.points.clone(),
            inputs: args.inputs.clone(),
            images,
            ..parts(args)
        },
        sample,
        reference: args.reference.clone(),
        of_bundle: false,
    })
}

/// The samples of a bundle, as the service takes them.
fn samples(bundle: &Bundle, info: &Value, args: &Args) -> Vec<Frame> {
    let takes_images = info["input"]["kind"] == "images";
    let frame = |stored: &BundleSample| {
        let sample = bundle.folder().join(&stored.sample);
        let mut parts = parts(args);
        match takes_images {
            true => parts.images.push((None, sample.clone())),
            false => parts.points = Some(sample.clone()),
        }
        Frame {
            parts,
            sample,
            reference: Some(bundle.folder().join(&stored.reference)),
            of_bundle: true,
        }
    };
    bundle.manifest().samples.iter().map(frame).collect()
}

/// What every request has.
fn parts(args: &Args) -> RequestParts {
    RequestParts {
        fields: args.fields.clone(),
        calibration: args.calib.clone(),
        preset: args.calib_preset.clone(),
        params: args.param.iter().cloned().collect::<Map<_, _>>(),
        stream: args.stream.clone().map(|stream| (stream, args.reset)),
        form: if args.npz { BodyForm::Npz } else { BodyForm::Json },
        ..RequestParts::default()
    }
}

/// Sends a frame, and holds the answer against the stored one.
fn ask(
    client: &Client,
    args: &Args,
    frame: &Frame,
    info: &Value,
    summary: &mut Vec<String>,
    failures: &mut Vec<String>,
) -> miette::Result<()> {
    let request = build_request(&frame.parts).into_diagnostic()?;
    let reply = client
        .post("/predict", request.to_string().as_bytes())
        .into_diagnostic()?;
    // Before the answer is written: one that goes where a stored one lies is not held against itself.
    let variant = info["variant"].as_str().unwrap_or("");
    let reference = frame.reference.clone();
    let reference = reference.or_else(|| find_reference(&frame.sample, &[variant]));
    let stored = reference.as_deref().map(json).transpose()?;
    if let Some(out) = &args.out {
        let text = serde_json::to_vec_pretty(&reply.body).into_diagnostic()?;
        std::fs::write(out, text)
            .into_diagnostic()
            .wrap_err_with(|| format!("cannot write {}", out.display()))?;
    }
    if reply.status != 200 {
        failures.push(format!(
            "/predict answers {}: {}",
            reply.status, reply.body["detail"]
        ));
        return Ok(());
    }
    let count = reply.body["num_detections"].as_u64();
    summary.extend(count.map(|count| format!("n={count}")));
    summary.push(format!("total={} ms", reply.body["timing_ms"]["total"]));
    let Some(mut stored) = stored else {
        summary.push("(no stored answer was compared)".to_owned());
        return Ok(());
    };
    let mut gates = Gates::default();
    for (name, value) in &args.gate {
        gates.set(name, *value).into_diagnostic()?;
    }
    if let Some(stored) = stored.as_object_mut().filter(|_| frame.of_bundle) {
        stored.remove("model");
    }
    let (metrics, more) = compare_with_reference(&reply.body, &stored, &gates);
    summary.extend(metrics.iter().map(|(name, value)| format!("{name}={value:.4}")));
    failures.extend(more);
    Ok(())
}

/// A file, or a camera and its file.
fn image(text: &str) -> (Option<String>, PathBuf) {
    match text.split_once('=') {
        Some((camera, file)) if !camera.is_empty() && !camera.contains(['/', '.']) => {
            (Some(camera.to_owned()), file.into())
        }
        _ => (None, text.into()),
    }
}

fn json(path: &Path) -> miette::Result<Value> {
    let text = std::fs::read(path)
        .into_diagnostic()
        .wrap_err_with(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&text)
        .into_diagnostic()
        .wrap_err_with(|| format!("{} is no JSON", path.display()))
}
